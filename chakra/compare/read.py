"""Recordings and replays as spans: profiler traces of one rank or of a folder, and result documents."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from chakra.accuracy.interval import Job, job_from
from chakra.arguments import checked
from chakra.arrays import I64, Bool, rows_by
from chakra.compare.spans import Kernel, Kind, RankSpans, Source
from chakra.converters.pytorch import find_inputs
from chakra.converters.pytorch.comm.on_cpu import communicates, cpu_operations
from chakra.converters.pytorch.comm.operations import normalise
from chakra.converters.pytorch.folder import names_recordings
from chakra.converters.pytorch.job import Inputs, rank_of, read_traces
from chakra.converters.pytorch.match.attach import lost_launches, lost_text
from chakra.converters.pytorch.match.region import LinkOptions, Region, match_traces, matched_bounds
from chakra.converters.pytorch.read.device import (
    BAD,
    KERNEL,
    NONE,
    DeviceTrace,
    profiler_steps,
)
from chakra.converters.pytorch.read.host import HostTrace
from chakra.converters.pytorch.read.kernel_names import DEFAULT, LIBRARY
from chakra.converters.pytorch.read.repeated import repeated_ids
from chakra.converters.pytorch.read.times import untimed_text
from chakra.converters.pytorch.time.sync import classify
from chakra.errors import UsageError
from chakra.et.families import kernel_family, launcher_family, operator_family
from chakra.et.idle_nodes import IDLE_NAMES
from chakra.io import files
from chakra.io.rank_files import expect_run
from chakra.io.readable import counted_name
from chakra.replay.workload.recorded import START
from chakra.report import Run, read_run
from chakra.report.document import computed_of, shares_of
from chakra.timeline.lenient import number

#: names of collectives, by what their names in libraries, traces and documents contain
_WORDS = tuple(
    (word, re.compile(pattern, re.IGNORECASE))
    for word, pattern in (
        ("all-reduce", r"all_?reduce"),
        ("reduce-scatter", r"reduce_?scatter"),
        ("all-gather", r"all_?gather"),
        ("all-to-all", r"all_?to_?all"),
        ("send and receive", r"send|recv|coalesced"),
        ("broadcast", r"broadcast"),
        ("barrier", r"barrier"),
        ("gather", r"gather"),
        ("scatter", r"scatter"),
        ("reduce", r"reduce"),
    )
)
_WAITS = ("device", "stream", "event")
#: note of a replay of recorded times that do not tell when members of collectives came
RECORDED_TIMES = "communication of a replay-only run takes the recorded times, waits for peers included"
#: communication of a rank by (collective, group): place among its spans, start, end
_Meetings = dict[tuple[str, str], list[tuple[int, int, int]]]


def collective_word(text: str) -> str:
    """What a communication is called in a comparison."""
    return next((word for word, pattern in _WORDS if pattern.search(text)), "communication")


@checked
def read_source(path: str | os.PathLike[str], *, job: str | None = None, step: int | None = None) -> Source:
    """Read one side of a comparison.

    Parameters
    ----------
    path
        A profiler trace (Kineto), a folder of those of all ranks, the beginning of the names of a job's in one
        (``FOLDER/JOB``), or a replay's result (``chakra replay --format json --nodes``).
    job
        Which job of a folder that holds several.
    step
        Of a recording only this ``ProfilerStep``.

    Raises
    ------
    UsageError
        Neither, a result with neither nodes nor a time account, or a recording without that step.
    """
    name = os.fspath(path)
    if names_recordings(Path(name)):
        found = [inputs for inputs in find_inputs(Path(name), job) if inputs.device is not None]
        return _recording(name, found, step)
    expect_run(name)
    kind = files.sniff_kind(name, error=UsageError)
    if kind == files.KINETO:
        return _recording(name, [Inputs(device=Path(name))], step)
    if kind in (files.RESULT, files.JSON):
        return _replay(read_run(name))
    raise UsageError(
        f"{name}: this is {'an' if kind[0] in 'aeiou' else 'a'} {kind}; a comparison is made from profiler traces "
        "and from what `chakra replay --format json --nodes` prints"
    )


# -------------------------------------------------------------------------------------------------------- recordings


def _recording(name: str, files: Sequence[Inputs], step: int | None) -> Source:
    ranks: dict[int, RankSpans] = {}
    meetings: list[_Meetings] = []
    clocks: list[int] = []
    said: list[str] = []
    steps, world = set(), 0
    for inputs in files:
        host, trace, _ = read_traces(inputs, all_io=True)
        said += [*repeated_ids(trace), *_left_out(trace)]
        steps.add(1 if step is not None else len(profiler_steps(trace)))
        world = max(world, trace.world_size or 0)
        spans = ranks[rank_of(inputs, trace)] = RankSpans()
        spans.computes = len(trace.device.name) > 0
        spans.begin_ns, spans.end_ns, kept = _recorded(host, trace, step)
        communication = _cpu_communication(trace)
        meetings.append(_add_device(spans, trace, kept))
        _add_communication_of_cpus(spans, trace, communication, meetings[-1])
        _add_host(spans, trace, communication)
        clocks.append(trace.first_ns)
    whole = _split_meetings([*ranks.values()], meetings, clocks)
    if whole:
        said.append(f"of a recording the waits for peers that were late are part of: {', '.join(whole)}")
    if not any(rank.span_ns for rank in ranks.values()):
        raise UsageError(f"{name}: nothing with a time in it")
    held = steps.pop() if len(steps) == 1 else 0
    return Source(name, "recording", ranks, tuple(said), steps=held or None, world=world or None)


def _recorded(host: HostTrace | None, trace: DeviceTrace, step: int | None) -> tuple[int, int, I64]:
    """Begin and end of what the conversion takes of a recording, and the device operations that belong to it."""
    device, steps = trace.device, profiler_steps(trace)
    if step is not None and step not in steps:
        raise UsageError(
            f"{trace.source}: no ProfilerStep {step}; there are {', '.join(map(str, steps)) or 'none'}"
        )
    if not len(trace.ops.name) and not len(trace.calls.name):
        # a device alone has nothing that could be converted
        return int(min(device.start, default=0)), int(max(device.end, default=0)), np.arange(len(device.name))
    match = match_traces(host, trace, LinkOptions(step=step))
    region = Region(trace, match.attachment, match.active)
    return (*matched_bounds(trace, region, gpu_only=False), np.flatnonzero(region.kept))


def _left_out(trace: DeviceTrace) -> list[str]:
    """What is missing from a recording, as `chakra convert pytorch` says it."""
    lines = []
    if trace.dropped.get(BAD):
        lines.append(untimed_text(trace.source, trace.dropped[BAD]))
    launches, lost = lost_launches(trace, 0, int(max(trace.calls.end, default=0)))
    if lost:
        lines.append(lost_text(trace.source, launches, lost))
    return lines


def _add_device(spans: RankSpans, trace: DeviceTrace, kept: I64) -> _Meetings:
    """Add what a device did; returns the places of its communication by (collective, group), with start and end."""
    device, texts = trace.device, trace.names.texts
    shapes, launchers = _shapes(trace), _launchers(trace)
    meetings: _Meetings = {}
    for row in kept.tolist():
        name, start, end = texts[int(device.name[row])], int(device.start[row]), int(device.end[row])
        comm = trace.comm[int(device.comm[row])] if device.comm[row] >= 0 else None
        kind = DEFAULT.kind(name)
        if LIBRARY.search(name) or kind or comm is not None:
            said = comm.collective if comm is not None and comm.collective is not None else kind
            word = collective_word(str(said or name))
            if end > start:
                group = str(comm.group) if comm is not None else ""
                meetings.setdefault((word, group), []).append((len(spans.kinds), start, end))
            spans.add(Kind.TRANSFER, word, start, end)
        elif device.kind[row] != KERNEL:
            spans.add(Kind.COPY, "", start, end)
        else:
            family = launcher_family(launchers[row]) or kernel_family(name)
            spans.add(Kind.COMPUTE, family, start, end)
            spans.kernels.append(Kernel(name, family, shapes[row], start, end - start))
    return meetings


def _shapes(trace: DeviceTrace) -> list[str]:
    """Input shapes of the operator that launched each device operation; '' where unknown."""
    out = []
    for op in _launching(trace, trace.ops.dims >= 0):
        dims = int(trace.ops.dims[op]) if op >= 0 else NONE
        out.append(trace.io[dims][0].decode("utf-8", "replace").replace(" ", "") if dims >= 0 else "")
    return out


def _launchers(trace: DeviceTrace) -> list[str]:
    """Name of the operator that launched each device operation; '' where unknown."""
    texts, names = trace.names.texts, trace.ops.name
    return [texts[int(names[op])] if op >= 0 else "" for op in _launching(trace, trace.ops.annotation == 0)]


def _launching(trace: DeviceTrace, wanted: Bool) -> list[int]:
    """The innermost of the wanted operators around the launch of each device operation; -1 where there is none."""
    call_of = {int(c): i for i, c in enumerate(trace.calls.correlation.tolist()) if c}
    inner = _innermost(trace, wanted).tolist()
    return [inner[call_of[c]] if c in call_of else NONE for c in trace.device.correlation.tolist()]


def _innermost(trace: DeviceTrace, wanted: Bool) -> I64:
    """(calls,) the innermost of the wanted operators around each call; -1 where there is none."""
    ops, calls = trace.ops, trace.calls
    out = np.full(len(calls.start), NONE, dtype=np.int64)
    ops_of = rows_by(ops.thread, np.flatnonzero(wanted))
    for thread, made in rows_by(calls.thread).items():
        mine = ops_of[thread]
        rows = mine[np.lexsort((-ops.end[mine], ops.start[mine]))].tolist()
        stack: list[int] = []
        place = 0
        for call in made.tolist():
            at = int(calls.start[call])
            while place < len(rows) and int(ops.start[rows[place]]) <= at:
                stack.append(rows[place])
                place += 1
            while stack and int(ops.end[stack[-1]]) < at:
                stack.pop()
            out[call] = stack[-1] if stack else NONE
    return out


def _cpu_communication(trace: DeviceTrace) -> I64:
    """Annotations of messages and collectives that the host does, in the order in which they begin."""
    named = cpu_operations(trace.names.texts)
    codes = [code for code, name in named.items() if communicates(normalise(name))]
    rows = np.flatnonzero(np.isin(trace.ops.name, codes))
    return rows[np.argsort(trace.ops.start[rows], kind="stable")]


def _add_communication_of_cpus(spans: RankSpans, trace: DeviceTrace, rows: I64, meetings: _Meetings) -> None:
    """Add what the host communicates. The trace does not name its groups, so each back end is taken as one."""
    for row in rows.tolist():
        backend, name = trace.names.texts[int(trace.ops.name[row])].split(":", 1)
        start, end, word = int(trace.ops.start[row]), int(trace.ops.end[row]), collective_word(name)
        if end > start:
            meetings.setdefault((word, backend), []).append((len(spans.kinds), start, end))
        spans.add(Kind.TRANSFER, word, start, end)


def _add_host(spans: RankSpans, trace: DeviceTrace, communication: I64) -> None:
    """Add operators, calls and waits of the host; waits and communication take their time out of the operators that they
    are in, and operators theirs out of communication that they are in.
    """
    calls, ops, texts = trace.calls, trace.ops, trace.names.texts
    waits = {code for code, text in enumerate(texts) if classify(text) in _WAITS}
    moves = np.zeros(len(ops.name), np.bool_)
    moves[communication] = True
    waits_in_it = np.isin(calls.name, list(waits))
    calls_of, moves_of = rows_by(calls.thread), rows_by(ops.thread, communication)
    ops_of = rows_by(ops.thread, np.flatnonzero((ops.annotation == 0) & ~moves))
    for thread in range(len(trace.threads)):
        made = calls_of[thread]
        called, waiting = made[~waits_in_it[made]], made[waits_in_it[made]]
        for first, last in zip(calls.start[waiting].tolist(), calls.end[waiting].tolist(), strict=True):
            spans.add(Kind.HOST_WAIT, "", first, last)
        idle = _holes(calls.start[waiting], calls.end[waiting])
        _add_outside(spans, calls.start[called], calls.end[called], idle)
        mine, moving = ops_of[thread], moves_of[thread]
        # of two that are one in the other, the inner one counts
        around = np.searchsorted(ops.start[moving], ops.start[mine], side="right") - 1
        inner = (around >= 0) & (ops.end[mine] <= ops.end[moving[around]]) if len(moving) else around >= 0
        _add_outside(spans, ops.start[mine[inner]], ops.end[mine[inner]], idle)
        holes = _holes(
            np.concatenate([calls.start[waiting], ops.start[moving]]),
            np.concatenate([calls.end[waiting], ops.end[moving]]),
        )
        _add_outside(spans, ops.start[mine[~inner]], ops.end[mine[~inner]], holes)


def _holes(starts: I64, ends: I64) -> tuple[I64, I64]:
    """Starts of spans, ascending, and how far each and those before it reach."""
    order = np.argsort(starts, kind="stable")
    return starts[order], np.maximum.accumulate(ends[order])


def _add_outside(spans: RankSpans, starts: I64, ends: I64, holes: tuple[I64, I64]) -> None:
    """Add the union of host spans of a thread without what goes on inside them."""
    if not len(starts):
        return
    order = np.argsort(starts, kind="stable")
    starts, reached = starts[order], np.maximum.accumulate(ends[order])
    new = np.flatnonzero(np.concatenate([[True], starts[1:] > reached[:-1]]))
    for first, last in zip(starts[new].tolist(), np.maximum.reduceat(ends[order], new).tolist(), strict=True):
        at = first
        for hole in range(int(np.searchsorted(holes[1], first, side="right")), len(holes[0])):
            if int(holes[0][hole]) >= last:
                break
            spans.add(Kind.HOST, "", at, int(holes[0][hole]))
            at = max(at, int(holes[1][hole]))
        spans.add(Kind.HOST, "", at, last)


def _split_meetings(
    ranks: Sequence[RankSpans], meetings: Sequence[_Meetings], clocks: Sequence[int]
) -> list[str]:
    """Tell waits for peers from transfers where all ranks are there: nothing moves before the last has come.

    Times of each rank count from a time of its own on the clock that ranks share (0 where it has none). Returns the kinds
    of communication in some of which the two cannot be told apart.
    """
    keys = sorted({key for held in meetings for key in held})
    if len(ranks) < 2 or not all(clocks):
        return list(dict.fromkeys(word for word, _ in keys))
    whole = []
    for key in keys:
        members = [
            (rank, held[key], clock)
            for rank, held, clock in zip(ranks, meetings, clocks, strict=True)
            if key in held
        ]
        known = (
            key[0] not in ("send and receive", "communication") and len({len(m) for _, m, _ in members}) == 1
        )
        if not known or len(members) < 2:
            whole.append(key[0])
            continue
        for turn in range(len(members[0][1])):
            last = max(found[turn][1] + clock for _, found, clock in members)
            for rank, found, clock in members:
                place, start, end = found[turn]
                ready = min(max(last - clock, start), end)
                rank.starts[place] = ready
                rank.add(Kind.PEERS, key[0], start, ready)
    return list(dict.fromkeys(whole))


# -------------------------------------------------------------------------------------------------------- replays


def _replay(run: Run) -> Source:
    entries = run.document.get("nodes")
    if not isinstance(entries, list) or not entries:
        return told_by_account(run)
    meetings = _meetings(run)
    ranks: dict[int, RankSpans] = {}
    for entry in entries:
        rank = int(entry["npu"])
        spans = ranks[rank] = RankSpans(0, int(run.finish_ns[rank]))
        spans.computes = any(str(engine).upper() == "GPU" for engine in entry.get("engines") or ["GPU"])
        _add_nodes(spans, entry, _told(run, entry), meetings)
    return _replayed(run, ranks)


def _replayed(run: Run, ranks: dict[int, RankSpans]) -> Source:
    """A result document as one side, with what it states of its job."""
    notes = (RECORDED_TIMES,) if run.waits_in_transfer else ()
    return Source(run.name, "replay", ranks, notes, _job(run), _samples(run), run, _steps(run), run.npus)


def _job(run: Run) -> Job | None:
    """What an interval of the run's time depends on; None where it states none."""
    stated = run.document.get("interval")
    return job_from(stated.get("job")) if isinstance(stated, Mapping) else None


#: which part of a comparison each part of a replay's time account is; what is left is a gap
_ACCOUNTED = {
    "compute_ns": Kind.COMPUTE, "cpu_ns": Kind.HOST, "transfer_ns": Kind.TRANSFER, "waiting_ns": Kind.PEERS,
    "memory_ns": Kind.COPY,
}  # fmt: skip


@checked
def told_by_account(run: Run) -> Source:
    """A replay by the time account of its NPUs, which results without nodes have, too: parts without their operators.

    Parameters
    ----------
    run
        A result document.

    Raises
    ------
    UsageError
        A document without a time account.
    """
    if not run.account:
        raise UsageError(
            f"{run.name}: the result holds neither nodes nor a time account; run `chakra replay --format json --nodes`"
        )
    ranks = {
        npu: RankSpans(
            0,
            int(end_ns),
            told={
                (kind, ""): int(run.account[key][npu])
                for key, kind in _ACCOUNTED.items()
                if key in run.account and run.account[key][npu] > 0
            },
        )
        for npu, end_ns in enumerate(run.finish_ns.tolist())
    }
    return _replayed(run, ranks)


def _steps(run: Run) -> int | None:
    """Profiler steps of the recording that was replayed; None where it does not say them."""
    found = run.document.get("recorded_steps")
    return found if type(found) is int and found > 0 else None


def _samples(run: Run) -> int | None:
    """Samples of the whole run; None where it does not say its rates."""
    rates = run.document.get("rates")
    if not isinstance(rates, Mapping) or "samples_per_s" not in rates:
        return None
    return round(number(rates["samples_per_s"]) * int(run.finish_ns.max(initial=0)) / 1e9) or None


def _meetings(run: Run) -> dict[str, tuple[I64, I64, I64, list[str]]]:
    """Group -> start, last member's start, end and kind of its collectives, in the order of their ends."""
    rows: dict[str, list[tuple[int, int, int, str]]] = {}
    for row in run.table("collectives"):
        given = [row.get(key) for key in ("start_ns", "ready_ns", "end_ns")]
        times = [time for time in given if isinstance(time, int) and not isinstance(time, bool)]
        if len(times) == len(given):
            start, ready, end = times
            rows.setdefault(str(row.get("group") or ""), []).append((start, ready, end, str(row.get("kind"))))
    out = {}
    for group, found in rows.items():
        found.sort(key=lambda row: row[2])
        columns = np.array([row[:3] for row in found], dtype=np.int64)
        out[group] = (columns[:, 0], columns[:, 1], columns[:, 2], [row[3] for row in found])
    return out


#: how names of generated nodes begin that count steps, micro-batches, layers or buckets; those of kernels do not
_COUNTED = re.compile(
    r"step[0-9]+[. ]\S|[A-Z][0-9]+(?:\.[0-9]+)* |(?:\w+\.)?(?:layer|block|bucket|chunk|stage)s?[0-9]+"
)


def _told(run: Run, entry: Mapping[str, Any]) -> list[tuple[str, Mapping[str, float]]]:
    """What each node of an NPU computes, and its families' shares of the time where these are several."""
    count = len(entry["ids"])
    return list(
        zip(computed_of(run, entry) or [""] * count, shares_of(run, entry) or [{}] * count, strict=True)
    )


def _add_nodes(
    spans: RankSpans,
    entry: Mapping[str, Any],
    told: Sequence[tuple[str, Mapping[str, float]]],
    meetings: Mapping[str, tuple[I64, I64, I64, list[str]]],
) -> None:
    count = len(entry["ids"])
    names, kinds, engines, groups, families = (
        entry.get(key) or [""] * count for key in ("names", "kinds", "engines", "groups", "families")
    )
    met = entry.get("ready_ns") or [None] * count
    for i in range(count):
        start, end = int(entry["issue_ns"][i]), int(entry["finish_ns"][i])
        name, kind, engine = str(names[i]), str(kinds[i]).upper(), str(engines[i]).upper()
        if end < start or start < 0:
            continue
        if "COMM" in kind and engine != "CPU":
            _add_communication(spans, (name, kind, str(groups[i] or "")), start, end, meetings, met[i])
        elif "MEM" in kind:
            spans.add(Kind.COPY, "", start, end)
        elif engine == "CPU":
            waits = classify(name) in _WAITS or name.startswith("wait for")
            spans.add(Kind.GAP if name == "gap" else Kind.HOST_WAIT if waits else Kind.HOST, "", start, end)
        elif name in (*IDLE_NAMES, START):
            spans.add(Kind.GAP, "", start, end)
        elif name.lower().startswith(("memcpy", "memset")):
            spans.add(Kind.COPY, "", start, end)
        else:
            computed, shares = told[i]
            family = operator_family(computed) or str(families[i] or "") or kernel_family(name)
            _add_parts(spans, shares or {family: 1.0}, start, end)
            if end > start:
                kin = counted_name(name) if _COUNTED.match(name) else ""
                family = max(shares, key=shares.__getitem__) if shares else family
                spans.kernels.append(Kernel(name, family, computed, start, end - start, kin))


def _add_parts(spans: RankSpans, shares: Mapping[str, float], start: int, end: int) -> None:
    """Add a kernel, or what stands for several, one family after the other; the parts take all of the time."""
    over, begun = 0.0, start
    for family, share in shares.items():
        over += share
        until = min(start + round(over / sum(shares.values()) * (end - start)), end)
        spans.add(Kind.COMPUTE, family, begun, until)
        begun = until


def _add_communication(
    spans: RankSpans, told: tuple[str, str, str], start: int, end: int,
    meetings: Mapping[str, tuple[I64, I64, I64, list[str]]], come: int | None,
) -> None:  # fmt: skip
    """Add a communication whose last member has come at a time: a wait for peers, then a transfer.

    Results of recorded times, and of earlier versions, do not say that time of every node. The table of collectives then
    tells it, where it has the collective.
    """
    name, kind, group = told
    word, ready = collective_word("send" if "COLL" not in kind else name), start
    found = meetings.get(group) if "COLL" in kind else None
    if found is not None:
        begun, last, over, kinds = found
        # the first to end of those in which this member can have been
        fits = np.flatnonzero((over >= end) & (begun <= start))
        if len(fits):
            row = int(fits[0])
            word, ready = collective_word(kinds[row]), int(last[row])
    ready = min(max(ready if come is None else int(come), start), end)
    spans.add(Kind.PEERS, word, start, ready)
    spans.add(Kind.TRANSFER, word, ready, end)
