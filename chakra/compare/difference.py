"""Where the difference of two runs lies: parts that add up to it, and kernels side by side."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from chakra.accuracy.interval import SHARE, NothingNear
from chakra.accuracy.ratio import ratio_of
from chakra.arguments import checked
from chakra.compare.match import KernelRow, match_kernels
from chakra.compare.read import told_by_account
from chakra.compare.spans import WORDS, Kind, Source, account, communicating, slowest
from chakra.errors import UsageError
from chakra.io.readable import counted, duration_text
from chakra.report.document import Run
from chakra.report.side_by_side import collective_times, differing_inputs, dimension_use

SCHEMA = "chakra.compare/1"
#: share by which times of communication may differ that are as long in both
_ALIKE = 0.001
#: ns of exposed communication, from which a difference is told apart from one of the network
_LEAST_NS = 1000


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the time of both runs.

    Attributes
    ----------
    part
        Kernels, exposed communication, waits for peers, copies, host, host waits or gaps.
    name
        Family of the kernels, or the collective; empty for the others.
    a_ns, b_ns
        Time in each.
    """

    part: str
    name: str
    a_ns: int
    b_ns: int

    @property
    def difference_ns(self) -> int:
        """What the second run takes longer."""
        return self.b_ns - self.a_ns


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs side by side.

    Attributes
    ----------
    a, b
        The runs.
    rank_a, rank_b
        Ranks compared.
    a_ns, b_ns
        Their spans; ``parts`` add up to each.
    parts
        Largest difference first.
    kernels
        Kernels that do the same, matched by name, shape and order; largest difference first.
    """

    a: Source
    b: Source
    rank_a: int
    rank_b: int
    a_ns: int
    b_ns: int
    parts: tuple[Part, ...]
    kernels: tuple[KernelRow, ...]

    @property
    def difference_ns(self) -> int:
        """What the second run takes longer."""
        return self.b_ns - self.a_ns

    def to_dict(self) -> dict[str, Any]:
        """The document ``chakra.compare/1``."""
        sides = ((self.a, self.rank_a, self.a_ns), (self.b, self.rank_b, self.b_ns))
        return {
            "schema": SCHEMA,
            **{
                key: {"source": side.name, "what": side.what, "ranks": len(side.ranks), "rank": rank, "span_ns": span}
                for key, (side, rank, span) in zip("ab", sides, strict=True)
            },
            "difference_ns": self.difference_ns,
            "parts": [
                {
                    "part": part.part, "name": part.name, "a_ns": part.a_ns, "b_ns": part.b_ns,
                    "difference_ns": part.difference_ns,
                }
                for part in self.parts
            ],
            "kernels": [
                {
                    "how": row.how, "family": row.family, "a": row.a, "b": row.b, "calls_a": row.calls_a,
                    "calls_b": row.calls_b, "a_ns": row.a_ns, "b_ns": row.b_ns, "difference_ns": row.difference_ns,
                }
                for row in self.kernels
            ],
            **_side_by_side(self.runs),
            "notes": list(self.notes),
        }  # fmt: skip

    @property
    def notes(self) -> tuple[str, ...]:
        """What is not known of the two, whether they do as much, and whether their intervals tell them apart."""
        said = [note for side in (self.a, self.b) for note in side.notes]
        said += _unlike_steps(self.a, self.b)
        said += self._hidden()
        told = _unlike(self.a, self.b) or _told_apart(self.a, self.b, self.b_ns - self.a_ns)
        return tuple(dict.fromkeys([*said, *told, *_without_nodes(self.a, self.b)]))

    def _hidden(self) -> list[str]:
        """That communication which takes as long in both is exposed for another time, since other work runs beside it."""
        sides = (self.a.ranks[self.rank_a], self.b.ranks[self.rank_b])
        whole = [communicating(spans) for spans in sides]
        words = (WORDS[Kind.TRANSFER], WORDS[Kind.PEERS])
        mine = [part for part in self.parts if part.part in words]
        shown = [sum(part.a_ns for part in mine), sum(part.b_ns for part in mine)]
        if (
            not whole[0]
            or abs(whole[1] - whole[0]) > _ALIKE * whole[0]
            or abs(shown[1] - shown[0]) < _LEAST_NS
        ):
            return []
        behind = [duration_text(max(all_of - part, 0)) for all_of, part in zip(whole, shown, strict=True)]
        what = "kernels run" if all(spans.computes for spans in sides) else "other work runs"
        beside = f"{what} beside {behind[0]} of it in A and {behind[1]} in B"
        said = f"communication takes {duration_text(whole[0])} in both; {beside}"
        return [f"{said}: it starts at other times, the network is as fast"]

    @property
    def runs(self) -> tuple[Run, ...]:
        """The result documents, where both are replays; else none."""
        found = tuple(side.run for side in (self.a, self.b) if side.run is not None)
        return found if len(found) == 2 else ()


def _side_by_side(runs: Sequence[Run]) -> dict[str, Any]:
    """Of two replays their collectives by kind, their network dimensions and the inputs that differ."""
    if not runs:
        return {}
    return {
        "collectives": [
            {"kind": kind, "a_ns": a, "b_ns": b, "difference_ns": (b or 0) - (a or 0)}
            for kind, (a, b) in collective_times(runs)
        ],
        "dimensions": [
            {"dim": dim, "a_utilisation": a.share if a else None, "b_utilisation": b.share if b else None}
            for dim, (a, b) in dimension_use(runs)
        ],
        "inputs": [{"key": key, "a": a, "b": b} for key, (a, b) in differing_inputs(runs)],
    }


def _unlike(a: Source, b: Source) -> list[str]:
    """What a sample takes in each of two runs of unlike many samples, whose times alone do not say which is faster."""
    if a.samples is None or b.samples is None or a.samples == b.samples:
        return []
    each = [
        f"{counted(samples, 'sample')} in {name}, {duration_text(round(_end(side) / samples))} each"
        for name, side, samples in (("A", a, a.samples), ("B", b, b.samples))
    ]
    return [f"the two do not compute as much: {', '.join(each)}"]


def _by_account(side: Source) -> bool:
    """Whether a side is a replay whose result holds no nodes."""
    return any(spans.told is not None for spans in side.ranks.values())


def _without_nodes(a: Source, b: Source) -> list[str]:
    """That parts are those of the time account, and how to see operators."""
    without = [name for name, side in (("A", a), ("B", b)) if side.run and not side.run.table("nodes")]
    if not without:
        return []
    who = f"{without[0]} holds" if len(without) == 1 else "A and B hold"
    return [
        (
            f"{who} no nodes, so parts are those of the NPUs' time accounts and no operators are compared: results of "
            "`chakra replay --format json --nodes` have them"
        )
    ]


def _unlike_steps(a: Source, b: Source) -> list[str]:
    """What a profiler step takes in each of two runs that hold unlike many of them."""
    if a.steps is None or b.steps is None or a.steps == b.steps:
        return []
    each = [
        f"{counted(steps, 'profiler step')} in {name}, {duration_text(round(_longest(side) / steps))} each"
        for name, side, steps in (("A", a, a.steps), ("B", b, b.steps))
    ]
    return [f"the two do not hold as many steps: {', '.join(each)}"]


def _longest(side: Source) -> int:
    """What the rank that takes longest takes."""
    return max(spans.span_ns for spans in side.ranks.values())


def _end(side: Source) -> int:
    """When the last rank of a run has finished."""
    return max(spans.end_ns for spans in side.ranks.values())


def _told_apart(a: Source, b: Source, difference_ns: int) -> list[str]:
    """Whether the interval of the ratio of two predicted steps tells which takes longer, by the rule of a study's
    designs; nothing where one has no interval.

    Documents do not say what else differs where the jobs are the same.
    """
    (fast, slow), names = ((a, b), "AB") if difference_ns >= 0 else ((b, a), "BA")
    if fast.job is None or slow.job is None:
        return []
    found = ratio_of(fast.job, slow.job, otherwise=fast.job == slow.job)
    ratio = _end(slow) / max(_end(fast), 1)
    if isinstance(found, NothingNear) or ratio == 1:
        return []
    share, times = f"{100 * SHARE:g} %", f"the step of {names[1]} takes {ratio:.3g} times that of {names[0]}"
    if found.tells(ratio):
        return [
            f"{times}, enough to tell them apart with {share} (from {1 / found.low:.3g} on, by {found.basis})"
        ]
    return [
        f"{times}, too little to tell them apart with {share} ({1 / found.low:.3g} would, by {found.basis})"
    ]


@checked
def compare(a: Source, b: Source, *, rank: int | None = None) -> Comparison:
    """Compare two runs by one rank of each.

    Parameters
    ----------
    a, b
        From `read_source`.
    rank
        The rank; by default the one that takes longest, in each run.

    Raises
    ------
    UsageError
        A run without that rank; a recording and a result without nodes.
    """
    a, b = _alike(a, b)
    ranks = []
    for side in (a, b):
        if rank is not None and rank not in side.ranks:
            raise UsageError(f"{side.name}: no rank {rank}; its ranks: {_listed(sorted(side.ranks))}")
        ranks.append(slowest(side.ranks) if rank is None else rank)
    one, two = a.ranks[ranks[0]], b.ranks[ranks[1]]
    times = (account(one), account(two))
    keys = sorted({*times[0], *times[1]})
    parts = [
        Part(WORDS[kind], label, *(time.get((kind, label), 0) for time in times)) for kind, label in keys
    ]
    parts.sort(key=lambda part: (-abs(part.difference_ns), -max(part.a_ns, part.b_ns), part.part, part.name))
    kernels = tuple(match_kernels(_ordered(one.kernels), _ordered(two.kernels)))
    return Comparison(a, b, ranks[0], ranks[1], one.span_ns, two.span_ns, tuple(parts), kernels)


def _alike(a: Source, b: Source) -> tuple[Source, Source]:
    """Both by their nodes or, of replays, both by their time accounts, where one has no nodes."""
    if _by_account(a) == _by_account(b):
        return a, b
    bare, other = (a, b) if _by_account(a) else (b, a)
    if other.run is None:
        raise UsageError(
            f"{bare.name}: the result holds no nodes, which a comparison with a recording needs; run `chakra replay "
            "--format json --nodes`"
        )
    told = told_by_account(other.run)
    return (a, told) if bare is a else (told, b)


def _ordered(kernels: Sequence[Any]) -> list[Any]:
    return sorted(kernels, key=lambda kernel: kernel.start_ns)


def _listed(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")


#: order of the parts in totals
PARTS = tuple(WORDS[kind] for kind in Kind)
