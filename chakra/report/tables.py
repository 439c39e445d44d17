"""The rows of a report's tables, as text ready to be shown on a page or a terminal."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, repeat
from typing import Final

from chakra.et.families import plain_name
from chakra.et.memory_need import need_in_words
from chakra.io.readable import (
    beside_prediction,
    bytes_text,
    count_text,
    counted,
    counted_name,
    counted_text,
    duration_text,
    figure_text,
    grouped_text,
    percent_text,
    price_text,
    printable,
)
from chakra.replay.config.model import LinkTopology
from chakra.replay.results.beaten import busy_remark, why_faster
from chakra.replay.results.formatting import (
    SUMS_OF_MESSAGES,
    WAITING,
    ends_in_words,
    members_in_words,
    takes_recorded_times,
)
from chakra.replay.results.pipeline import bubble_in_words
from chakra.report.document import ACCOUNT_PARTS, Run, computed_of, part_words, stood_for
from chakra.timeline.lenient import number

WORDS: Final = dict(ACCOUNT_PARTS)
#: numbers and the units behind them
_UNIT: Final = re.compile(r"([0-9]) ((?:%|[nµm]?s|[kMGT]i?B|B|NPUs?)(?!\w))")
#: row of a path whose document lists only its last nodes and not the sums of all, as those of earlier versions do
UNLISTED: Final = "before the first node that the result lists"


@dataclass(frozen=True, slots=True)
class Table:
    """A table: column names, rows of text, how many rows were left out, and which columns are numbers
    (right-aligned): from the first one on, as many as there are by default. A remark explains signs in its cells."""

    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    omitted: int = 0
    first_number: int = 1
    numbers: int | None = None
    remark: str = ""

    def is_number(self, column: int) -> bool:
        """Whether a column, counted from 0, is one of numbers."""
        return column >= self.first_number and (
            self.numbers is None or column < self.first_number + self.numbers
        )


def answer(run: Run) -> str:
    """One sentence that says what the run is asked for: how long, how sure, and what to do first."""
    what = "The run was ended after" if run.document.get("partial") else "The run takes"
    text = f"{what} {duration_text(run.end_ns)} on {counted_text(run.npus, 'NPU')}"
    interval = run.document.get("interval")
    if isinstance(interval, Mapping) and run.interval_ns is not None:
        low, high = map(duration_text, run.interval_ns)
        text += f"; measured, it would take {low} to {high} with {100 * number(interval.get('share')):g} %"
    path = path_by_operator(run, 1).rows
    if path and path[0][0] != UNLISTED:
        operator, _, _, total, share = path[0]
        text += f". The largest part of its critical path: {operator}, {total} ({share})"
    return f"{text}."


def headline(run: Run) -> list[tuple[str, str]]:
    """The figures that a reader wants first, with units."""
    end = run.end_ns
    worst = int(run.exposed_ns.max(initial=0))
    facts = [
        ("Simulated time", duration_text(end) + (f" ({count_text(end)} ns)" if end >= 1000 else "")),
        *_interval(run),
        *_rates(run),
        ("NPUs", count_text(run.npus)),
        ("First NPU finished", duration_text(int(run.finish_ns[run.finished].min(initial=end)))),
        (
            "Exposed communication",
            f"{duration_text(worst)} at most{_whose(run, worst)} ({percent(worst, end)}){_exposed_parts(run)}"
            if worst
            else "none",
        ),
    ]
    if not run.finished.all():
        facts.insert(-1, ("NPUs that finished", count_text(int(run.finished.sum()))))
    total, words = int(run.finish_ns.sum()), part_words([run])
    facts += [
        (
            words[key][0].upper() + words[key][1:],
            f"{percent(int(run.account[key].sum()), total)} of all NPUs' time",
        )
        for key in words
        if key in run.account and int(run.account[key].sum()) > 0
    ]
    pipeline = run.document.get("pipeline")
    if isinstance(pipeline, Mapping):
        facts.append(("Pipeline bubble", bubble_in_words(pipeline)))
    need = run.document.get("memory_need")
    if isinstance(need, Mapping):
        facts.append(("Memory needed", need_in_words(need)))
    memory = run.document.get("memory")
    if isinstance(memory, Mapping) and isinstance(memory.get("peak_bytes"), list) and memory["peak_bytes"]:
        facts.append(("Peak memory", bytes_text(int(max(number(v) for v in memory["peak_bytes"])))))
    return facts


def fact_parts(value: str) -> tuple[str, str]:
    """A fact's figure, and what stands behind it in smaller letters; numbers and their units are not parted by lines.

    >>> fact_parts("12 (7 of 9)"), fact_parts("none: nothing is near"), fact_parts("64, 4 of each")
    (('12', ' (7 of 9)'), ('none', ': nothing is near'), ('64', ', 4 of each'))
    >>> fact_parts("38.5 % of 80 GB")
    ('38.5\\xa0% of 80\\xa0GB', '')
    """
    found = re.search(r" \(|: |, ", value)
    figure, rest = (value[: found.start()], value[found.start() :]) if found else (value, "")
    return _UNIT.sub("\\1\N{NO-BREAK SPACE}\\2", figure), _UNIT.sub("\\1\N{NO-BREAK SPACE}\\2", rest)


def _whose(run: Run, worst: int) -> str:
    """The first NPU with the most exposed communication; empty where all have as much."""
    most = run.exposed_ns == worst
    return "" if most.all() else f", NPU {int(most.argmax())}"


def _exposed_parts(run: Run) -> str:
    """What exposed communication is made of on the NPU that has most: data that moves, and peers that have not come."""
    if not len(run.exposed_ns) or not {"transfer_ns", "waiting_ns"} <= set(run.account):
        return ""
    npu = int(run.exposed_ns.argmax())
    moving, waiting = (int(run.account[key][npu]) for key in ("transfer_ns", "waiting_ns"))
    # ASTRA-sim's figure, under `compat`, is another one
    if not waiting or moving + waiting != int(run.exposed_ns[npu]):
        return ""
    return f": {duration_text(moving)} moving data, {duration_text(waiting)} waiting for peers"


def waiting_note(run: Run) -> str:
    """One sentence that says what waiting for peers is, where NPUs do."""
    return f"Waiting for peers: {WAITING}." if _exposed_parts(run) else ""


def _rates(run: Run) -> list[tuple[str, str]]:
    """What the step of a generated workload comes to, and its costs."""
    rates = run.document.get("rates")
    if not isinstance(rates, Mapping):
        return []
    facts = []
    if "tokens_per_s" in rates:
        every, each = (number(rates.get(f"tokens_per_s{end}")) for end in ("", "_per_npu"))
        what = "Output tokens" if "tpot_ms" in rates or "ttft_ms" in rates else "Tokens"
        facts.append((f"{what} in a second", f"{figure_text(every)}, {figure_text(each)} of each NPU"))
    elif "samples_per_s" in rates:
        facts.append(("Samples in a second", figure_text(number(rates["samples_per_s"]))))
    facts += _of_requests(rates)
    shares = {"mfu": "the model's matrix products", "hfu": "with those done again"}
    facts += [
        (name.upper(), f"{percent(number(rates[name]), 1)} of the peak, {words}")
        for name, words in shares.items()
        if name in rates
    ]
    costs = {
        "hour": "Cost of an hour",
        "step": "Cost of the step",
        "million_tokens": "Cost of a million tokens",
    }
    if "paid_npus" in rates:
        facts.append(("NPUs paid for, spare ones included", count_text(int(number(rates["paid_npus"])))))
    for name, words in costs.items():
        for state, ending in (("", ""), ("steady_", " in steady state")):
            if (key := f"{state}cost_per_{name}") in rates:
                facts.append((f"{words}{ending}", price_text(number(rates[key]))))
    return facts


def _of_requests(rates: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Latencies of an inference's requests, and rates while they decode or in steady state."""
    for key, words in (("ttft_ms", "Time to first token"), ("tpot_ms", "Time per output token")):
        if key in rates:
            yield words, duration_text(round(number(rates[key]) * 1e6))
    for key, words in (
        ("decode_tokens_per_s", "Tokens in a second while decoding"),
        ("steady_samples_per_s", "Samples in a second in steady state"),
        ("steady_tokens_per_s", "Tokens in a second in steady state"),
    ):
        if key in rates:
            yield words, figure_text(number(rates[key]))


def _interval(run: Run) -> list[tuple[str, str]]:
    """Within which times the step would be measured, and on what that rests; or why that cannot be told."""
    interval = run.document.get("interval")
    if not isinstance(interval, Mapping):
        return []
    if run.interval_ns is None:
        return [("Interval", f"none: nothing measured is near ({text_of(interval.get('reason'))})")]
    low, high = map(duration_text, run.interval_ns)
    differs = interval.get("differs")
    beside = beside_prediction(*run.interval_ns, run.end_ns)
    words = [interval.get("family"), *(differs if isinstance(differs, list) else []), *filter(None, [beside])]
    share = f"{100 * number(interval.get('share')):g} %"
    return [("Interval", f"{low} to {high} with {share} ({'; '.join(text_of(word) for word in words)})")]


def percent(part: float, whole: float) -> str:
    """A share as text.

    >>> percent(1, 3)
    '33.3 %'
    """
    return percent_text(part / whole if whole else 0.0)


def text_of(value: object) -> str:
    """Any scalar of the document as printable text."""
    return printable(str(value)) if value is not None else ""


def waiting_verdict(run: Run) -> str:
    """One sentence: what the machine was waiting for."""
    total = int(run.finish_ns.sum())
    if not run.account or not total:
        return ""
    sums = {key: int(values.sum()) for key, values in run.account.items()}
    key = max(sums, key=lambda k: sums[k])
    part = "Most" if 2 * sums[key] > total else "The largest part"
    meaning = {
        "compute_ns": "the NPUs compute",
        "cpu_ns": "the NPUs wait for their CPUs"
        if sums.get("compute_ns")
        else "the CPUs compute, in traces without accelerator work",
        "transfer_ns": "goes into communication that no compute hides, waiting for peers included"
        if run.waits_in_transfer
        else "goes into moving data that no compute hides",
        "waiting_ns": "NPUs wait for peers that are late",
        "memory_ns": "goes into memory accesses that nothing hides",
        "idle_ns": "the NPUs have nothing that is ready to run",
    }[key]
    return f"{part} of the time {meaning} ({percent(sums[key], total)})."


def collectives(run: Run, most: int = 200) -> Table:
    """Collectives, those that cost most first; equal ones (kind, group, size, durations) share a row with their count.

    Durations are means: in a long run a row of the document stands for some that take longer than others.
    """
    merged: dict[tuple[str, ...], tuple[Mapping[str, object], Taken, int]] = {}
    for c in run.table("collectives"):
        taken = taken_by(c)
        key = (
            text_of(c.get("kind")),
            _ran(c),
            text_of(c.get("group")),
            _members(c),
            *(str(number(c.get(part))) for part in ("bytes", "algbw_gbps", "busbw_gbps", "bound_ns")),
            str(taken.mean_ns),
            str(taken.mean_transfer_ns),
        )
        first, before, start = merged.get(key, (c, Taken(0, 0, 0), int(number(c.get("start_ns")))))
        merged[key] = (first, before + taken, min(start, int(number(c.get("start_ns")))))
    rows = sorted(merged.values(), key=lambda row: (-row[1].total_ns, row[2]))
    backend = text_of(run.document.get("backend"))
    why = [_why_faster(c, taken, backend) for c, taken, _ in rows[:most]]
    table = [
        (
            text_of(c.get("kind")),
            _ran(c),
            text_of(c.get("group")) or "all",
            _members(c),
            bytes_text(int(number(c.get("bytes")))),
            count_text(taken.count),
            duration_text(start),
            duration_text(taken.total_ns),
            duration_text(round(taken.mean_ns)),
            duration_text(round(taken.mean_ns - taken.mean_transfer_ns)),
            f"{number(c.get('algbw_gbps')):.2f}",
            f"{number(c.get('busbw_gbps')):.2f}",
            (percent(number(c.get("bound_ns")), taken.mean_transfer_ns) if number(c.get("bound_ns")) else "")
            + "*" * bool(reason),
        )
        for (c, taken, start), reason in zip(rows[:most], why, strict=True)
    ]
    columns = (
        *("kind", "algorithm", "group", "members", "size", "count", "first start", "total", "mean"),
        *("of it waiting", "algbw GB/s", "busbw GB/s", "of the bound"),
    )
    remark = " ".join(sorted({*why} - {""}))
    return Table(columns, table, max(len(rows) - most, 0), 3, remark=remark)


@dataclass(frozen=True, slots=True)
class Taken:
    """How many collectives there are, and what they take in all, ns: from the first and from the last member's start."""

    count: int
    total_ns: int
    total_transfer_ns: int

    def __add__(self, other: "Taken") -> "Taken":
        return Taken(
            self.count + other.count,
            self.total_ns + other.total_ns,
            self.total_transfer_ns + other.total_transfer_ns,
        )

    @property
    def mean_ns(self) -> float:
        """Mean from the first member's start."""
        return self.total_ns / self.count

    @property
    def mean_transfer_ns(self) -> float:
        """Mean from the last member's start."""
        return self.total_transfer_ns / self.count


def taken_by(row: Mapping[str, object]) -> Taken:
    """What the collectives of a row take; in documents of earlier versions as if all took as long as the one shown."""
    count = max(int(number(row.get("count"), 1)), 1)
    start = number(row.get("start_ns"))
    span = max(int(number(row.get("end_ns")) - start), 0)
    waited = min(max(int(number(row.get("ready_ns"), start) - start), 0), span)
    total = int(number(row.get("total_ns"), count * span))
    return Taken(count, total, int(number(row.get("total_transfer_ns"), count * (span - waited))))


def _why_faster(row: Mapping[str, object], taken: Taken, backend: str) -> str:
    bound = number(row.get("bound_ns"))
    library = "library_algorithm" in row
    return why_faster(
        taken.total_transfer_ns,
        bound * taken.count,
        library=library,
        backend=backend,
        waited=taken.total_ns > taken.total_transfer_ns,
    )


def _ran(row: Mapping[str, object]) -> str:
    """The algorithm; of a collective library what it ran, its protocol and its channels."""
    told = [text_of(row.get(f"library_{part}")) for part in ("algorithm", "protocol")]
    if not all(told):
        return text_of(row.get("algorithm"))
    channels = int(number(row.get("library_channels")))
    return f"{text_of(row.get('algorithm'))} {'/'.join(told)}, {counted(channels, 'channel')}"


def _members(row: Mapping[str, object]) -> str:
    value, exchanging = row.get("members"), int(number(row.get("exchanging")))
    return members_in_words(
        len(value) if isinstance(value, list) else int(number(value)), exchanging if exchanging > 0 else None
    )


def messages(run: Run) -> Table:
    """Point-to-point messages by the dimensions that they cross."""
    rows = [
        (
            ends_in_words([int(number(dim)) for dim in _list(row.get("dims"))]),
            count_text(int(number(row.get("count")))),
            bytes_text(int(number(row.get("bytes")))),
            *(
                duration_text(int(number(row.get(part))))
                for part in ("longest_ns", "transfer_ns", "waiting_ns")
            ),
        )
        for row in run.table("messages")
    ]
    remark = f"All transfers and all waiting are {SUMS_OF_MESSAGES}" if rows else ""
    columns = ("across", "messages", "bytes of all", "longest", "all transfers", "all waiting")
    return Table(columns, rows, remark=remark)


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def dimensions(run: Run) -> Table:
    """Network dimensions: what they are and how busy; a dash where recorded times do not tell what they carried."""
    carried = not takes_recorded_times(run.document)
    rows = [
        (
            text_of(d.get("dim")),
            text_of(d.get("topology")),
            count_text(int(number(d.get("npus")))),
            _speeds(d),
            grouped_text(number(d.get("latency_ns"))),
            bytes_text(int(number(d.get("bytes_per_npu")))) if carried else "-",
            percent_text(number(d.get("utilisation"))) if carried else "-",
        )
        for d in run.table("dimensions")
    ]
    return Table(
        ("dim", "topology", "NPUs", "bandwidth GiB/s", "latency ns", "bytes per NPU", "utilisation"),
        rows,
        0,
        2,
        remark=busy_remark(number(d.get("utilisation")) for d in run.table("dimensions")) if carried else "",
    )


def _speeds(dim: Mapping[str, object]) -> str:
    """Bandwidth of a dimension, from the least to the most where NPUs or links have different ones."""
    rows = [row for row in _list(dim.get("unequal")) if isinstance(row, Mapping)] or [dim]
    ends = (number(row.get("bandwidth_gibps")) for row in (rows[-1], rows[0]))
    return " to ".join(dict.fromkeys(grouped_text(speed) for speed in ends))


def links(run: Run, most: int = 50) -> Table:
    """The links that used most of their bandwidth, with their dimension where they are of one."""
    listed = any(text_of(d.get("topology")) == LinkTopology.LINKS for d in run.table("dimensions"))
    rows = sorted(run.table("links"), key=lambda link: -share_of(link, run.end_ns))
    table = [
        (
            link_name(link),
            *(() if listed else (text_of(link.get("dim")),)),
            bytes_text(int(number(link.get("bytes")))),
            percent(share_of(link, run.end_ns), 1),
            duration_text(int(number(link.get("busy_ns")))),
            duration_text(int(number(link.get("queued_ns")))),
        )
        for link in rows[:most]
    ]
    columns = ("link", *(() if listed else ("dim",)), "bytes", "utilisation", "busy", "queueing")
    return Table(columns, table, max(len(rows) - most, 0), 1 if listed else 2)


def link_name(link: Mapping[str, object]) -> str:
    """What a link is called: its ends, the switch of a building block by its dimension."""
    ends = []
    for key in ("from", "to"):
        value = link.get(key)
        if value == -1:
            ends.append(f"switch of dim {text_of(link.get('dim'))}")
        else:
            ends.append(f"NPU {value}" if type(value) is int else text_of(value))
    return " → ".join(ends)


def share_of(link: Mapping[str, object], end_ns: int) -> float:
    """Share of a link's bandwidth that was used: by its bytes, or if its bandwidth is not told, the time it was busy."""
    speed = number(link.get("bandwidth_gibps"))
    if speed > 0:
        return number(link.get("bytes")) / (speed * 2**30 / 1e9 * max(end_ns, 1))
    return number(link.get("busy_ns")) / max(end_ns, 1)


def why_no_use(run: Run) -> str:
    """Why the use of links over time is not there, though links are."""
    if run.document.get("backend") == "aware":
        return (
            "Use over time is not shown: the run was computed in closed form, without single messages "
            "(chakra replay --engine messages has them), or has more links than it is kept for."
        )
    if run.document.get("backend") == "flow":
        return "Use over time is not shown: it is kept for at most 61,680 links."
    if run.document.get("backend") == "ns3":
        return "Use over time is not shown: it is kept for at most 65,536 links."
    return "Use over time is not shown: the network was simulated outside of chakra, and counts its links in all only."


def critical_path(run: Run, most: int = 200) -> Table:
    """Nodes of the critical path in order, with the time between one's end and the next one's start."""
    rows = run.table("critical_path")
    table, before = [], 0
    for row in rows[:most]:
        start, end = int(number(row.get("issue_ns"))), int(number(row.get("finish_ns")))
        table.append(
            (
                text_of(row.get("name")) or f"node {text_of(row.get('node'))}",
                node_word(row.get("kind")),
                text_of(row.get("npu")),
                text_of(row.get("node")),
                duration_text(start),
                duration_text(max(end - start, 0)),
                duration_text(max(start - before, 0)),
            )
        )
        before = end
    return Table(
        ("name", "kind", "NPU", "node", "start", "duration", "gap before"),
        table,
        max(_path_nodes(run, len(rows)) - len(table), 0),
        2,
    )


def _path_nodes(run: Run, listed: int) -> int:
    """Nodes of the whole path, of which the document lists some."""
    stated = run.document.get("critical_path_sums")
    return int(number(stated.get("nodes"), listed)) if isinstance(stated, Mapping) else listed


def path_by_operator(run: Run, most: int = 200) -> Table:
    """The critical path by operator: nodes whose names differ in numbers (of layers, micro-batches) are one row.

    Times between one node's end and the next one's start are a row of their own; shares are of the simulated time. The
    rows are of the whole path, of which the document lists no more than a part.
    """
    stated = run.document.get("critical_path_sums")
    sums = _stated_sums(stated) if isinstance(stated, Mapping) else _listed_sums(run)
    return _by_total(sums, run.end_ns, most, "of the simulated time")


def _stated_sums(stated: Mapping[str, object]) -> dict[tuple[str, ...], tuple[int, int]]:
    """Times and totals of the whole path, as the document states them."""
    parts = stated.get("parts")
    sums: dict[tuple[str, ...], tuple[int, int]] = {}
    for part in parts if isinstance(parts, list) else []:
        if isinstance(part, Mapping):
            key = _operator(part.get("operator")), node_word(part.get("kind"))
            count, total = sums.get(key, (0, 0))
            sums[key] = count + int(number(part.get("count"))), total + int(number(part.get("total_ns")))
    sums = {key: (count, total) for key, (count, total) in sums.items() if total}
    gap = int(number(stated.get("gap_ns")))
    if gap:
        sums[_NOTHING] = int(number(stated.get("gaps"))), gap
    return sums


def _listed_sums(run: Run) -> dict[tuple[str, ...], tuple[int, int]]:
    """Times and totals of the nodes that the document lists."""
    sums: dict[tuple[str, ...], tuple[int, int]] = {}
    before = 0
    rows = run.table("critical_path")
    # a collective's last member may end after members that lead on: its part ends where they do
    ends = list(accumulate((int(number(row.get("finish_ns"))) for row in reversed(rows)), min))[::-1]
    for place, (row, end) in enumerate(zip(rows, ends, strict=True)):
        start = int(number(row.get("issue_ns")))
        for key, time in (
            ((_operator(row.get("name")), node_word(row.get("kind"))), end - max(start, before)),
            (_NOTHING if place else (UNLISTED, ""), start - before),
        ):
            if time > 0:
                count, total = sums.get(key, (0, 0))
                sums[key] = count + 1, total + time
        before = max(before, end)
    return sums


#: kinds of nodes as tables and the timeline call them, by the engine that a node occupies, else by its type
_NODE_WORDS: Final = {
    "CPU": WORDS["cpu_ns"], "GPU": WORDS["compute_ns"], "COMM": "communication", "MEMORY": WORDS["memory_ns"],
    "COMP": WORDS["compute_ns"], "MEM": WORDS["memory_ns"],
}  # fmt: skip


def node_word(engine: object, kind: object = None) -> str:
    """What a kind of node is called.

    Parameters
    ----------
    engine
        The engine of an NPU that it occupies; None where the document does not say.
    kind
        Its type in the trace.

    Examples
    --------
    >>> node_word("CPU", "COMP"), node_word(None, "COMM_COLL_NODE"), node_word("NONE")
    ('CPU', 'communication', 'other')
    """
    said = text_of(engine if engine is not None else kind).upper()
    return _NODE_WORDS.get(said, _NODE_WORDS.get(said.partition("_")[0], "other"))


def operators(run: Run, *, host: bool = False, most: int = 200) -> Table:
    """Operators of all NPUs whose nodes the document holds, or that these stand for, those that take most time in all
    first: what the devices do, or what the hosts do.

    Nodes on other streams, or of other shapes, are rows of their own; columns that no row fills are left out.
    """
    sums: dict[tuple[str, ...], tuple[int, int]] = {}
    for npu in run.table("nodes"):
        parts = [npu.get(key) for key in ("names", "kinds", "issue_ns", "finish_ns")]
        if not all(isinstance(part, list) for part in parts):
            continue
        streams, engines = (
            given if isinstance(given, list) else repeat(None)
            for given in (npu.get("streams"), npu.get("engines"))
        )
        told = zip(engines, streams, computed_of(run, npu) or repeat(""), strict=False)
        alike = stood_for(npu)
        for (name, kind, start, end), (engine, stream, shape) in zip(
            zip(*parts, strict=False), told, strict=False
        ):
            word = node_word(engine, kind)
            if host != (word == WORDS["cpu_ns"]):
                continue
            key = (_operator(name), word, "" if stream is None else text_of(stream), shape)
            count, total = sums.get(key, (0, 0))
            sums[key] = count + alike, total + alike * max(int(number(end) - number(start)), 0)
    # all that hosts do is of one kind
    filled = [k for k in range(4) if k == 0 or (not host if k == 1 else any(key[k] for key in sums))]
    kept = {tuple(key[k] for k in filled): value for key, value in sums.items()}
    words = tuple(("operator", "kind", "stream", "what it computes")[k] for k in filled)
    return _by_total(kept, sum(total for _, total in sums.values()), most, "of all", words)


_NAMELESS: Final = "nodes without a name"
_NOTHING: Final = ("nothing runs on the path", "")


#: names of C++, which have types in them
_TYPED = re.compile(r"void |.*(?:::|<).*[(>]")


def _operator(name: object) -> str:
    text = text_of(name)
    return counted_name(plain_name(text) if _TYPED.match(text) else text) if text else _NAMELESS


def _by_total(
    sums: Mapping[tuple[str, ...], tuple[int, int]],
    whole: int,
    most: int,
    of: str,
    words: tuple[str, ...] = ("operator", "kind"),
) -> Table:
    order = sorted(sums.items(), key=lambda item: (-item[1][1], item[0]))
    rows = [
        (*key, count_text(count), duration_text(total), percent(total, whole))
        for key, (count, total) in order[:most]
    ]
    return Table((*words, "times", "total", of), rows, max(len(order) - most, 0), len(words))


def corrections(run: Run) -> Table:
    """Corrections of ASTRA-sim's model that applied."""
    given = run.document.get("corrections")
    from chakra.replay.results.corrections import REGISTRY

    known = {entry.name: entry for entry in REGISTRY}

    def words(name: object) -> tuple[str, str, str]:
        entry = known.get(str(name))
        return (entry.case, entry.astra, entry.default) if entry is not None else ("", "", "")

    rows = (
        [(text_of(name), *words(name), count_text(int(number(count)))) for name, count in given.items()]
        if isinstance(given, Mapping)
        else []
    )
    return Table(("correction", "case", "ASTRA-sim", "here", "times"), rows, 0, 4)


def inputs(run: Run) -> list[tuple[str, str]]:
    """The inputs of a run, flattened to dotted keys."""
    given = run.document.get("inputs")
    flat: list[tuple[str, str]] = []
    facts = ("version", "backend", "compat")
    flat.extend((key, text_of(run.document[key])) for key in facts if run.document.get(key) is not None)
    if isinstance(given, Mapping):
        _flatten("", given, flat, 0)
    return flat[:500]


def _flatten(prefix: str, value: object, into: list[tuple[str, str]], depth: int) -> None:
    if isinstance(value, Mapping) and depth < 6:
        for key, inner in value.items():
            _flatten(f"{prefix}.{key}" if prefix else str(key), inner, into, depth + 1)
    elif isinstance(value, list) and depth < 6 and any(isinstance(item, Mapping) for item in value):
        for place, inner in enumerate(value[:100]):
            _flatten(f"{prefix}[{place}]", inner, into, depth + 1)
    else:
        text = text_of(value)
        into.append((printable(prefix), text if len(text) < 300 else text[:299] + "…"))
