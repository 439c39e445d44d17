"""Who waits for the device: host calls and streams (rule R-SYNC of the conversion).

Where the profiler recorded ``cuda_sync`` events with their event records, those are used. Newer CUPTI writes
-1 in place of the record, and most traces have no such events at all; then the calls' names, the order of
calls on each thread and the times decide. No edge is written unless the awaited operation really ended
before the wait did.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from chakra.arrays import I64, Bool
from chakra.converters.pytorch.read.device import MEMCPY, DeviceTrace

#: How close behind an operation of another stream an operation must start to be taken for waiting for it.
CLOSE_NS = 20_000
#: How much later than the host's return (or the waiting operation's start) an awaited operation may seem to
# end.
TOLERANCE_NS = 1000


@dataclass(slots=True)
class SyncEdges:
    """Waits found in a trace.

    ``host_call`` / ``host_source``: pairs of a host call (row in calls) and a device operation it waits for.
    ``stream_source`` / ``stream_target``: pairs of device operations on different streams, the target waits.
    ``counts`` says how many of each were found, and how.
    """

    host_call: I64
    host_source: I64
    stream_source: I64
    stream_target: I64
    counts: dict[str, int] = field(default_factory=dict)


def classify(name: str) -> str | None:
    """What a host call waits for by its name: ``device``, ``stream``, ``event``, ``copy``; ``wait`` for
    stream waits,
    ``record`` for event records, None for all other calls. Works for CUDA, HIP, driver and other vendors'
    names.
    """
    text = name.lower()
    if "query" in text or "elapsed" in text:
        return None
    if "synchronize" in text or text.endswith("sync"):
        if "event" in text:
            return "event"
        if "stream" in text or "queue" in text:
            return "stream"
        return "device" if any(word in text for word in ("device", "ctx", "context")) else None
    if "streamwaitevent" in text:
        return "wait"
    if "eventrecord" in text:
        return "record"
    if "memcpy" in text:
        return "copy"
    return None


class _Waits:
    """Working state of `find_waits`."""

    def __init__(self, device: DeviceTrace, call: I64, kept: Bool, is_comm: Bool) -> None:
        self.device = device
        gpu, calls = device.device, device.calls
        self.call = call
        self.is_comm = is_comm
        self.launch = np.where(call >= 0, calls.start[call] if len(calls.start) else 0, gpu.start)
        self.launcher = np.where(call >= 0, calls.thread[call] if len(calls.thread) else -1, -1)
        self.key = stream_keys(device)
        rows = np.flatnonzero(kept)
        # Per stream and per launching thread: rows in launch order, and their launch times, as lists for
        # bisect.
        self.streams: dict[int, tuple[list[int], list[int]]] = _grouped(rows, self.key, self.launch)
        self.threads: dict[int, tuple[list[int], list[int]]] = _grouped(rows, self.launcher, self.launch)
        self.by_end = rows[np.argsort(gpu.end[rows], kind="stable")].tolist()
        self.ends = gpu.end[self.by_end].tolist() if len(rows) else []
        self.device_of_stream = {int(self.key[r]): int(gpu.device[r]) for r in rows}
        self.host: dict[tuple[int, int], None] = {}
        self.stream: dict[tuple[int, int], None] = {}
        self.counts: Counter[str] = Counter()
        self.records: dict[int, list[int]] = {}
        self.used_records: set[int] = set()
        self.waiting: dict[int, int] = {}
        """Stream (key) that a stream wait holds, for calls whose record says so."""
        # Ends and starts as plain integers: single look-ups into arrays are slow.
        self.end = gpu.end.tolist()
        self.start = gpu.start.tolist()
        self.launch_list = self.launch.tolist()
        self.key_list = self.key.tolist()

    def last_on_stream(self, key: int, before: int) -> int:
        """Last operation of a stream that was launched before a time, or -1."""
        rows, times = self.streams.get(key, ([], []))
        at = bisect_left(times, before)
        return rows[at - 1] if at else -1

    def next_on_stream(self, key: int, after: int) -> int:
        """First operation of a stream that was launched at or after a time, or -1."""
        rows, times = self.streams.get(key, ([], []))
        at = bisect_left(times, after)
        return rows[at] if at < len(rows) else -1

    def last_by_thread(self, thread: int, before: int, not_stream: int = -1) -> int:
        """Last operation launched by a thread before a time, on another stream than ``not_stream``; looks
        back 64.
        """
        rows, times = self.threads.get(thread, ([], []))
        at = bisect_left(times, before)
        for i in range(at - 1, max(at - 65, -1), -1):
            if self.key_list[rows[i]] != not_stream:
                return rows[i]
        return -1

    def ended_last_inside(self, begin: int, end: int) -> int:
        """Operation launched before ``begin`` that ended last within ``begin``..``end``, or -1."""
        at = bisect_right(self.ends, end + TOLERANCE_NS)
        while at > 0 and self.ends[at - 1] >= begin:
            row = self.by_end[at - 1]
            if self.launch_list[row] < begin:
                return int(row)
            at -= 1
        return -1

    def add_host(self, call: int, source: int, how: str) -> bool:
        """Note that a host call waits for an operation, if times agree."""
        if source < 0 or self.end[source] > int(self.device.calls.end[call]) + TOLERANCE_NS:
            self.counts["waits dropped (against time)"] += source >= 0
            return False
        if (call, source) not in self.host:
            self.host[(call, source)] = None
            self.counts[how] += 1
        return True

    def add_stream(self, source: int, target: int, how: str) -> bool:
        """Note that an operation waits for one of another stream, if times agree."""
        if source < 0 or target < 0 or self.key_list[source] == self.key_list[target]:
            return False
        if self.end[source] > self.start[target] + TOLERANCE_NS:
            self.counts["stream waits dropped (against time)"] += 1
            return False
        if (source, target) not in self.stream:
            self.stream[(source, target)] = None
            self.counts[how] += 1
        return True


def stream_keys(device: DeviceTrace) -> I64:
    """A number for each (device, context, stream), one per device operation."""
    gpu = device.device
    if not len(gpu.name):
        return np.zeros(0, np.int64)
    table = np.stack([gpu.device, gpu.context, gpu.stream])
    return np.unique(table, axis=1, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _grouped(rows: I64, keys: I64, times: I64) -> dict[int, tuple[list[int], list[int]]]:
    order = rows[np.lexsort((rows, times[rows], keys[rows]))]
    out = {}
    if len(order):
        cuts = np.flatnonzero(np.diff(keys[order])) + 1
        for part in np.split(order, cuts):
            out[int(keys[part[0]])] = (part.tolist(), times[part].tolist())
    return out


def find_waits(device: DeviceTrace, call: I64, kept: Bool, is_comm: Bool) -> SyncEdges:
    """Find all waits of hosts and streams for the device.

    Parameters
    ----------
    call
        Row of the host call of each device operation, -1 where it has none.
    kept
        Device operations that become nodes.
    is_comm
        Device operations that are communication.
    """
    state = _Waits(device, call, kept, is_comm)
    kinds = {code: classify(text) for code, text in enumerate(device.names.texts)}
    wanted = np.array([code for code, kind in kinds.items() if kind], np.int64)
    rows = np.flatnonzero(np.isin(device.calls.name, wanted))
    by_kind: dict[str, list[int]] = {k: [] for k in ("device", "stream", "event", "copy", "wait", "record")}
    for row in rows[np.argsort(device.calls.start[rows], kind="stable")].tolist():
        by_kind[str(kinds[int(device.calls.name[row])])].append(row)
    for row in by_kind["record"]:
        state.records.setdefault(int(device.calls.thread[row]), []).append(row)
    known = _recorded(state)
    _copies(state, by_kind["copy"])
    for kind in ("device", "stream", "event"):
        for row in by_kind[kind]:
            if row not in known:
                _by_name(state, kind, row)
    _stream_waits(state, [row for row in by_kind["wait"] if row not in known])
    _felt_waits(state, by_kind["wait"])
    host = np.array(list(state.host), np.int64).reshape(-1, 2)
    stream = np.array(list(state.stream), np.int64).reshape(-1, 2)
    return SyncEdges(host[:, 0], host[:, 1], stream[:, 0], stream[:, 1], dict(state.counts))


# -- recorded synchronisation ----------------------------------------------------------------------------


def _recorded(state: _Waits) -> set[int]:
    """Use ``cuda_sync`` events; returns the rows of the calls that they explain."""
    syncs, calls = state.device.syncs, state.device.calls
    if not len(syncs.name):
        return set()
    row_of = {int(c): row for row, c in enumerate(calls.correlation) if c}
    keys_of_device: dict[int, list[int]] = {}
    for key, number in state.device_of_stream.items():
        keys_of_device.setdefault(number, []).append(key)
    gpu = state.device.device
    key_by_id = {(int(gpu.device[r]), int(gpu.stream[r])): int(state.key[r]) for r in state.by_end}
    texts = state.device.names.texts
    known: set[int] = set()
    for i in range(len(syncs.name)):
        kind = texts[int(syncs.name[i])].lower()
        call = row_of.get(int(syncs.correlation[i]), -1)
        if call < 0 or "query" in texts[int(calls.name[call])].lower():
            continue
        begin, number = int(calls.start[call]), int(syncs.device[i])
        if "wait event" in kind:
            done = _recorded_stream_wait(state, i, call, key_by_id)
        elif "event" in kind:
            done = _recorded_event_sync(state, i, call, key_by_id)
        elif "stream" in kind:
            key = key_by_id.get((number, int(syncs.stream[i])), -1)
            done = state.add_host(call, state.last_on_stream(key, begin), "stream syncs (recorded)")
            done = done or key >= 0
        else:
            for key in keys_of_device.get(number, []):
                state.add_host(call, state.last_on_stream(key, begin), "device syncs (recorded)")
            done = True
        if done:
            known.add(call)
    return known


def _record_of(state: _Waits, i: int) -> tuple[int, int, int] | None:
    """Stream id, time of the record and its call for a sync record; None where the trace does not say."""
    syncs, calls, records = state.device.syncs, state.device.calls, state.device.records
    correlation = int(syncs.wait_record[i])
    if correlation > 0:
        rows = np.flatnonzero(calls.correlation == correlation)
        if len(rows):
            return int(syncs.wait_stream[i]), int(calls.start[rows[0]]), int(rows[0])
    event = int(syncs.wait_event[i])
    if event >= 0 and len(records.name):
        rows = np.flatnonzero((records.wait_event == event) & (records.start <= syncs.start[i]))
        if len(rows):
            row = rows[-1]
            call = np.flatnonzero(calls.correlation == records.correlation[row])
            if len(call):
                return int(records.stream[row]), int(calls.start[call[0]]), int(call[0])
    return None


def _recorded_event_sync(state: _Waits, i: int, call: int, key_by_id: dict[tuple[int, int], int]) -> bool:
    found = _record_of(state, i)
    if found is None:
        return False
    stream, time, record = found
    key = key_by_id.get((int(state.device.syncs.device[i]), stream), -1)
    state.used_records.add(record)
    return state.add_host(call, state.last_on_stream(key, time), "event syncs (recorded)")


def _recorded_stream_wait(state: _Waits, i: int, call: int, key_by_id: dict[tuple[int, int], int]) -> bool:
    number, calls = int(state.device.syncs.device[i]), state.device.calls
    target = key_by_id.get((number, int(state.device.syncs.stream[i])), -1)
    found = _record_of(state, i)
    if found is None:
        if target >= 0:
            state.waiting[call] = target
        return False
    stream, time, record = found
    source = key_by_id.get((number, stream), -1)
    state.used_records.add(record)
    waiting = state.next_on_stream(target, int(calls.start[call]))
    return state.add_stream(state.last_on_stream(source, time), waiting, "stream waits (recorded)")


# -- by names, order and times ---------------------------------------------------------------------------


def _copies(state: _Waits, rows: list[int]) -> None:
    """A copy that ended before its own call returned held the host (pageable copies, blocking copies)."""
    wanted = set(rows)
    gpu = state.device.device
    ends = state.device.calls.end
    for op in np.flatnonzero(gpu.kind == MEMCPY):
        call = int(state.call[op])
        if call in wanted and gpu.end[op] <= ends[call]:
            state.add_host(call, int(op), "blocking copies")


def _by_name(state: _Waits, kind: str, call: int) -> None:
    """A synchronising call without a record: by its kind and by what ended while it waited."""
    calls = state.device.calls
    begin, end, thread = int(calls.start[call]), int(calls.end[call]), int(calls.thread[call])
    if kind == "device":
        for key in state.streams:
            state.add_host(call, state.last_on_stream(key, begin), "device syncs (by call)")
        return
    if kind == "stream":
        inside = state.ended_last_inside(begin, end)
        source = inside if inside >= 0 else state.last_by_thread(thread, begin)
        if source >= 0:
            # The whole stream was waited for: its last operation launched before the call.
            source = state.last_on_stream(state.key_list[source], begin)
        state.add_host(call, source, "stream syncs (by call)")
        return
    inside = state.ended_last_inside(begin, end)
    if inside >= 0:
        state.add_host(call, inside, "event syncs (by time)")
        return
    record = _unused_record(state, thread, begin)
    if record >= 0:
        state.add_host(
            call, state.last_by_thread(thread, int(calls.start[record])), "event syncs (nearest record)"
        )


def _unused_record(state: _Waits, thread: int, before: int) -> int:
    """Nearest earlier event record of a thread that no other wait has used, or -1; looks back 64."""
    rows = state.records.get(thread, [])
    starts = state.device.calls.start
    at = bisect_left(rows, before, key=lambda r: int(starts[r]))
    for i in range(at - 1, max(at - 65, -1), -1):
        if rows[i] not in state.used_records:
            state.used_records.add(rows[i])
            return rows[i]
    return -1


def _stream_waits(state: _Waits, rows: list[int]) -> None:
    """Stream waits without a usable record.

    Communication libraries make their stream wait for the caller's stream right before the launch, and the
    caller's stream wait for theirs later. So a communication operation behind a wait depends on the last
    operation that the thread launched on another stream. Any other operation behind a wait depends on the
    operation of another stream that ended last before it started, if it ended after this one could have
    started (the wait was felt); else on what the nearest unused event record of the thread stands behind;
    else on the oldest communication that nobody has waited for yet.
    """
    calls, gpu = state.device.calls, state.device.device
    comm_rows = [r for r in np.argsort(state.launch, kind="stable").tolist() if state.is_comm[r]]
    pending = [r for r in comm_rows if r in set(state.by_end)] if comm_rows else []
    oldest = 0
    awaited: set[int] = set()
    handled: set[int] = set()
    previous = _previous_on_stream(state)
    for row in rows:
        thread, begin = int(calls.thread[row]), int(calls.start[row])
        launched, times = state.threads.get(thread, ([], []))
        at = bisect_left(times, begin)
        if row in state.waiting:
            target = state.next_on_stream(state.waiting[row], begin)
        else:
            target = launched[at] if at < len(launched) else -1
        if target < 0:
            continue
        record = _unused_record(state, thread, begin)
        marked = -1
        if record >= 0:
            marked = state.last_by_thread(thread, int(calls.start[record]))
        if state.is_comm[target]:
            source = state.last_by_thread(thread, begin, state.key_list[target])
            state.add_stream(source, target, "stream waits (before communication)")
            continue
        if target in handled:
            continue
        handled.add(target)
        ready = max(state.launch_list[target], state.end[previous[target]] if previous[target] >= 0 else 0)
        felt = _felt_wait(state, target, ready)
        if felt >= 0:
            state.add_stream(felt, target, "stream waits (by time)")
            awaited.add(felt)
            continue
        if marked >= 0 and not state.is_comm[marked] and state.key_list[marked] != state.key_list[target]:
            state.add_stream(marked, target, "stream waits (nearest record)")
            continue
        while oldest < len(pending) and pending[oldest] in awaited:
            oldest += 1
        if oldest < len(pending):
            source = pending[oldest]
            if state.launch_list[source] < begin and state.end[source] <= gpu.start[target]:
                state.add_stream(source, target, "stream waits (oldest communication)")
                awaited.add(source)


def _felt_waits(state: _Waits, rows: list[int]) -> None:
    """Waits that show in the times only: of streams that the waiting thread does not launch on next.

    FSDP makes its copy and communication streams wait from the thread that computes, and NCCL orders the streams of one
    communicator among each other. An operation that started late, right behind one of another stream, with a stream
    wait called since the one before it was launched, waited for it.
    """
    times = state.device.calls.start[np.array(rows, np.int64)].tolist() if rows else []
    sources: dict[int, list[int]] = {}
    for source, target in state.stream:
        sources.setdefault(target, []).append(source)
    for launched, launches in state.streams.values():
        for i in range(1, len(launched)):
            before, target = launched[i - 1], launched[i]
            ready = max(launches[i], state.end[before])
            if state.start[target] - ready <= CLOSE_NS:
                continue
            if bisect_left(times, launches[i]) == bisect_left(times, launches[i - 1]):
                continue
            if any(state.start[target] - state.end[s] <= CLOSE_NS for s in sources.get(target, ())):
                continue
            felt = _felt_wait(state, target, ready)
            if felt >= 0 and state.start[target] - state.end[felt] <= CLOSE_NS:
                state.add_stream(felt, target, "stream waits (by time)")


def _previous_on_stream(state: _Waits) -> list[int]:
    out = [-1] * len(state.end)
    for rows, _ in state.streams.values():
        for before, after in pairwise(rows):
            out[after] = before
    return out


def _felt_wait(state: _Waits, target: int, ready: int) -> int:
    """Operation of another stream, launched earlier, that ended last between ``ready`` and the target's
    start.
    """
    at = bisect_right(state.ends, state.start[target])
    key, launched = state.key_list[target], state.launch_list[target]
    for i in range(at - 1, max(at - 257, -1), -1):
        row = state.by_end[i]
        if state.ends[i] <= ready:
            return -1
        if state.key_list[row] != key and state.launch_list[row] < launched:
            return int(row)
    return -1
