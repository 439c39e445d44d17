"""What one rank did when: the spans that a comparison works on, wherever they come from."""

from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from chakra.accuracy.interval import Job
from chakra.arguments import checked
from chakra.arrays import I64, bounds
from chakra.report.document import Run


class Kind(IntEnum):
    """Kinds of spans, in the order in which an instant goes to the first that is there."""

    COMPUTE = 0
    #: a collective or message under way
    TRANSFER = 1
    #: a collective whose last member has not come
    PEERS = 2
    #: copies between host and device, memory servers
    COPY = 3
    #: operators and calls of the host
    HOST = 4
    #: the host in a call that waits for the device
    HOST_WAIT = 5
    #: the host between operators, and nothing on the device
    GAP = 6


#: what each kind is called
WORDS = {
    Kind.COMPUTE: "kernels", Kind.TRANSFER: "exposed communication", Kind.PEERS: "waits for peers",
    Kind.COPY: "copies", Kind.HOST: "host", Kind.HOST_WAIT: "host waits", Kind.GAP: "gaps",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel.

    Attributes
    ----------
    name
        As the profiler or the trace writes it.
    family
        One of `chakra.et.families.FAMILIES`.
    shapes
        Shapes of the inputs of the operator that launched it, as text; empty where unknown.
    start_ns, duration_ns
        When, and for how long.
    kin
        Name that it shares with its like in other layers and micro-batches, whose row it belongs to; empty for a row by
        its own name.
    """

    name: str
    family: str
    shapes: str
    start_ns: int
    duration_ns: int
    kin: str = ""


@dataclass(slots=True)
class RankSpans:
    """Spans of one rank; times in ns.

    Attributes
    ----------
    begin_ns, end_ns
        What is accounted for: of a recording what the conversion takes of it, of a replay all.
    kinds, labels, starts, ends
        A row a span; the label is the kernel's family, or the collective.
    kernels
        Kernels that compute, as they were launched or ran.
    computes
        Whether the accelerator has work. Where it has none, the host is what computes and hides communication, as in the
        time account of a replay.
    told
        Time by kind and label as the source itself adds it up, in place of spans, which it does not hold.
    """

    begin_ns: int = 0
    end_ns: int = 0
    kinds: list[int] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)
    computes: bool = True
    told: dict[tuple[Kind, str], int] | None = None

    @property
    def span_ns(self) -> int:
        """The whole."""
        return self.end_ns - self.begin_ns

    @checked
    def add(self, kind: Kind, label: str, start_ns: int, end_ns: int) -> None:
        """Append a span.

        Parameters
        ----------
        kind, label
            What runs.
        start_ns, end_ns
            When; a span of no length is left out.
        """
        if end_ns > start_ns:
            self.kinds.append(int(kind))
            self.labels.append(label)
            self.starts.append(start_ns)
            self.ends.append(end_ns)


@dataclass(frozen=True, slots=True)
class Source:
    """A recording or a replay.

    Attributes
    ----------
    name
        What it was read from.
    what
        ``recording`` or ``replay``.
    ranks
        Rank -> its spans.
    notes
        What is not known of it.
    job
        What an interval of its time depends on, of a replay that states one.
    samples
        Samples (sequences) that are computed in its time, of a replay that says so.
    run
        The result document, of a replay.
    steps
        Profiler steps in its time, where it says them.
    world
        Ranks of the job, where that is known: more than ``ranks`` where not all are here.
    """

    name: str
    what: str
    ranks: dict[int, RankSpans]
    notes: tuple[str, ...] = ()
    job: Job | None = None
    samples: int | None = None
    run: Run | None = None
    steps: int | None = None
    world: int | None = None


def account(spans: RankSpans) -> dict[tuple[Kind, str], int]:
    """Time of a rank by kind and label, in ns; the values add up to its span.

    Every instant goes to the first kind of `Kind` that has a span there, and within the kind to the span that began
    first; an instant without any is a gap. Where the accelerator has no work, the host's work comes first.
    """
    order = np.lexsort((spans.ends, spans.starts))
    kinds = np.array(spans.kinds, dtype=np.int64)[order]
    starts = np.clip(np.array(spans.starts, dtype=np.int64)[order], spans.begin_ns, spans.end_ns)
    ends = np.clip(np.array(spans.ends, dtype=np.int64)[order], spans.begin_ns, spans.end_ns)
    labels = [spans.labels[i] for i in order.tolist()]
    totals: dict[tuple[Kind, str], int] = dict(spans.told or {})
    edges = covered = np.zeros(
        0, dtype=np.int64
    )  # union of the kinds so far, as disjoint ascending intervals
    for kind in Kind if spans.computes else (Kind.HOST, *(kind for kind in Kind if kind is not Kind.HOST)):
        mine = np.flatnonzero(kinds == kind)
        if not len(mine):
            continue
        first, last = _claims(starts[mine], ends[mine])
        own = (last - first) - (_measure(last, edges, covered) - _measure(first, edges, covered))
        for place, value in zip(mine.tolist(), own.tolist(), strict=True):
            if value > 0:
                key = (kind, labels[place])
                totals[key] = totals.get(key, 0) + value
        edges, covered = _union(edges, covered, first, last)
    rest = spans.span_ns - sum(totals.values())
    if rest:
        totals[Kind.GAP, ""] = totals.get((Kind.GAP, ""), 0) + rest
    return totals


def communicating(spans: RankSpans) -> int:
    """Time in which communication runs, hidden or not, in ns."""
    mine = np.isin(np.array(spans.kinds, dtype=np.int64), (Kind.TRANSFER, Kind.PEERS))
    starts, ends = (
        np.clip(np.array(given, dtype=np.int64)[mine], spans.begin_ns, spans.end_ns)
        for given in (spans.starts, spans.ends)
    )
    none = np.zeros(0, dtype=np.int64)
    first, last = _union(none, none, starts, ends)
    return int((last - first).sum())


def _claims(starts: I64, ends: I64) -> tuple[I64, I64]:
    """Disjoint parts of overlapping spans in order of their start: what earlier ones had not covered."""
    reached = np.concatenate([starts[:1], np.maximum.accumulate(ends)[:-1]])
    first = np.maximum(starts, reached)
    return first, np.maximum(first, ends)


def _measure(at: I64, firsts: I64, lasts: I64) -> I64:
    """How much of disjoint intervals lies before each instant."""
    if not len(firsts):
        return np.zeros(len(at), dtype=np.int64)
    before = bounds(lasts - firsts)
    place = np.searchsorted(firsts, at, side="right")
    whole: I64 = before[place]
    over = np.where(place > 0, np.maximum(lasts[np.maximum(place - 1, 0)] - at, 0), 0)
    measured: I64 = (whole - over).astype(np.int64)
    return measured


def _union(firsts: I64, lasts: I64, more_firsts: I64, more_lasts: I64) -> tuple[I64, I64]:
    """Union of intervals as disjoint ones, ascending."""
    begin, end = np.concatenate([firsts, more_firsts]), np.concatenate([lasts, more_lasts])
    keep = end > begin
    order = np.lexsort((end[keep], begin[keep]))
    begin, end = begin[keep][order], end[keep][order]
    if not len(begin):
        return begin, end
    reached = np.maximum.accumulate(end)
    new = np.concatenate([[True], begin[1:] > reached[:-1]])
    return begin[new], np.maximum.reduceat(end, np.flatnonzero(new))


def slowest(ranks: dict[int, RankSpans]) -> int:
    """The rank that takes longest from its own begin, the first of several; ranks of a replay begin together."""
    return min(ranks, key=lambda rank: (-ranks[rank].span_ns, rank))
