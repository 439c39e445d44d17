"""Who waits for the device: host calls and streams (rule R-SYNC of the conversion).

Where the profiler recorded ``cuda_sync`` events with their event records, those are used. Newer CUPTI writes
-1 in place of the record, and most traces have no such events at all; then the calls' names, the order of
calls on each thread and the times decide. No edge is written unless the awaited operation really ended
before the wait did.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from chakra.arrays import I64, Bool, Rows, rows_by
from chakra.converters.pytorch.match.attach import Attachment
from chakra.converters.pytorch.read.device import MEMCPY, DeviceTrace
from chakra.converters.pytorch.time.library_calls import Works, library_calls
from chakra.converters.pytorch.time.stream_waits import felt_waits, stream_waits

#: How much later than the host's return (or the waiting operation's start) an awaited operation may seem to
# end.
TOLERANCE_NS = 1000
#: launch of what was launched before the trace began
BEFORE_NS = -1


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
    if text.startswith(_LEVEL_ZERO):
        return _level_zero(text)
    if "synchronize" in text or text.endswith("sync"):
        if "event" in text:
            return "event"
        if "stream" in text or "queue" in text:
            return "stream"
        return "device" if any(word in text for word in ("device", "ctx", "context")) else None
    if "streamwaitevent" in text:
        return "wait"
    if "eventrecord" in text or "recordevent" in text:
        return "record"
    if "memcpy" in text:
        return "copy"
    return None


#: calls of SYCL's plug-ins, of Unified Runtime and of Level Zero (XPU)
_LEVEL_ZERO = ("ur", "pi", "ze")


def _level_zero(text: str) -> str | None:
    """What a call on an XPU waits for: ``urEventWait``, ``urQueueFinish``, ``zeFenceHostSynchronize`` and others."""
    if "memcpy" in text or "memorycopy" in text:
        return "copy"
    if "enqueue" in text:
        return "wait" if "wait" in text else None
    if "event" in text and ("wait" in text or "hostsynchronize" in text):
        return "event"
    if "finish" in text or "synchronize" in text:
        return "stream"
    return None


class WaitState:
    """Working state of `find_waits`."""

    def __init__(self, device: DeviceTrace, call: I64, kept: Bool, is_comm: Bool) -> None:
        self.device = device
        gpu, calls = device.device, device.calls
        self.call = call
        self.is_comm = is_comm
        self.key = stream_keys(device)
        self.launch = launch_times(device, call, self.key)
        self.launcher = np.where(call >= 0, calls.thread[call] if len(calls.thread) else -1, -1)
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

    @cached_property
    def first_call(self) -> dict[int, int]:
        """First call of each correlation."""
        first: dict[int, int] = {}
        for row, correlation in enumerate(self.device.calls.correlation.tolist()):
            first.setdefault(correlation, row)
        return first

    @cached_property
    def rows_of_event(self) -> Rows:
        """Records of each event in the order of their start."""
        return rows_by(self.device.records.wait_event)

    def last_on_stream(self, key: int, before: int, until: int = 1 << 62) -> int:
        """Last operation of a stream that was launched before a time, or -1.

        Where nobody knows when an operation was launched, it was not yet if it ended after ``until``.
        """
        rows, times = self.streams.get(key, ([], []))
        at = bisect_left(times, before)
        while at and self.call[rows[at - 1]] < 0 and self.end[rows[at - 1]] > until:
            at -= 1
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

    def last_record(self, thread: int, before: int) -> int:
        """Last event record of a thread before a time, or -1."""
        rows = self.records.get(thread, [])
        at = bisect_left(rows, before, key=self._record_start)
        return rows[at - 1] if at else -1

    def unused_record(self, thread: int, before: int) -> int:
        """Nearest earlier event record of a thread that no other wait has used, or -1; looks back 64."""
        rows = self.records.get(thread, [])
        at = bisect_left(rows, before, key=self._record_start)
        for i in range(at - 1, max(at - 65, -1), -1):
            if rows[i] not in self.used_records:
                self.used_records.add(rows[i])
                return rows[i]
        return -1

    def _record_start(self, row: int) -> int:
        return int(self.device.calls.start[row])

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


def launch_times(device: DeviceTrace, call: I64, keys: I64) -> I64:
    """When each device operation was launched; without a call, when the one before it on its stream was.

    Operations of a stream are launched in the order in which they run, so this is the earliest time. Those at the
    beginning of a trace were launched before it: their time is below all others.
    """
    gpu, calls = device.device, device.calls
    known = np.where(call >= 0, calls.start[call] if len(calls.start) else 0, BEFORE_NS)
    if not len(known) or (call >= 0).all():
        return known
    order = np.lexsort((np.arange(len(keys)), gpu.start, keys))
    first = np.append(True, keys[order][1:] != keys[order][:-1])
    # A running maximum per stream: every stream's times are shifted above those of the one before.
    span = int(known.max()) - BEFORE_NS + 1
    shift = (np.cumsum(first) - 1) * span
    filled = np.maximum.accumulate(known[order] - BEFORE_NS + shift) - shift + BEFORE_NS
    out = known.copy()
    out[order] = np.where(call[order] >= 0, known[order], filled)
    return out


def stream_keys(device: DeviceTrace) -> I64:
    """A number for each (device, context, stream), one per device operation."""
    gpu = device.device
    if not len(gpu.name):
        return np.zeros(0, np.int64)
    table = np.stack([gpu.device, gpu.context, gpu.stream])
    return np.unique(table, axis=1, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _grouped(rows: I64, keys: I64, times: I64) -> dict[int, tuple[list[int], list[int]]]:
    in_time = rows[np.lexsort((rows, times[rows]))]
    return {key: (part.tolist(), times[part].tolist()) for key, part in rows_by(keys, in_time).items()}


def find_waits(
    device: DeviceTrace, attachment: Attachment, kept: Bool, is_comm: Bool, works: dict[int, list[int]]
) -> SyncEdges:
    """Find all waits of hosts and streams for the device.

    Parameters
    ----------
    attachment
        Calls and operators of the device operations.
    kept
        Device operations that become nodes.
    is_comm
        Device operations that are communication.
    works
        Communications that PyTorch's records of waits name, by the row of the record.
    """
    state = WaitState(device, attachment.call, kept, is_comm)
    kinds = {code: classify(text) for code, text in enumerate(device.names.texts)}
    wanted = np.array([code for code, kind in kinds.items() if kind], np.int64)
    rows = np.flatnonzero(np.isin(device.calls.name, wanted))
    by_kind: dict[str, list[int]] = {k: [] for k in ("device", "stream", "event", "copy", "wait", "record")}
    for row in rows[np.argsort(device.calls.start[rows], kind="stable")].tolist():
        by_kind[str(kinds[int(device.calls.name[row])])].append(row)
    library = library_calls(
        device, attachment, np.flatnonzero(is_comm & kept), np.array(by_kind["record"], np.int64)
    )
    for row in by_kind["record"]:
        if library.inner[row]:
            continue
        state.records.setdefault(int(device.calls.thread[row]), []).append(row)
    known = _recorded(state)
    _copies(state, by_kind["copy"])
    for kind in ("device", "stream", "event"):
        for row in by_kind[kind]:
            if row not in known:
                _by_name(state, kind, row)
    unsaid = [row for row in by_kind["wait"] if row not in known]
    stream_waits(state, unsaid, library, Works(library.scope, works, state.launch_list))
    felt_waits(state, by_kind["wait"], library)
    host = np.array(list(state.host), np.int64).reshape(-1, 2)
    stream = np.array(list(state.stream), np.int64).reshape(-1, 2)
    return SyncEdges(host[:, 0], host[:, 1], stream[:, 0], stream[:, 1], dict(state.counts))


# -- recorded synchronisation ----------------------------------------------------------------------------


def _recorded(state: WaitState) -> set[int]:
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
        until = int(calls.end[call]) + TOLERANCE_NS
        if "wait event" in kind:
            done = _recorded_stream_wait(state, i, call, key_by_id)
        elif "event" in kind:
            done = _recorded_event_sync(state, i, call, key_by_id)
        elif "stream" in kind:
            key = key_by_id.get((number, int(syncs.stream[i])), -1)
            done = state.add_host(call, state.last_on_stream(key, begin, until), "stream syncs (recorded)")
            done = done or key >= 0
        else:
            for key in keys_of_device.get(number, []):
                state.add_host(call, state.last_on_stream(key, begin, until), "device syncs (recorded)")
            done = True
        if done:
            known.add(call)
    return known


def _record_of(state: WaitState, i: int) -> tuple[int, int, int] | None:
    """Stream id, time of the record and its call for a sync record; None where the trace does not say."""
    syncs, calls, records = state.device.syncs, state.device.calls, state.device.records
    correlation = int(syncs.wait_record[i])
    if correlation > 0:
        row = state.first_call.get(correlation, -1)
        if row >= 0:
            return int(syncs.wait_stream[i]), int(calls.start[row]), row
    event = int(syncs.wait_event[i])
    if event >= 0 and len(records.name):
        rows = state.rows_of_event[event]
        at = int(np.searchsorted(records.start[rows], syncs.start[i], "right")) - 1
        if at >= 0:
            row = int(rows[at])
            call = state.first_call.get(int(records.correlation[row]), -1)
            if call >= 0:
                return int(records.stream[row]), int(calls.start[call]), call
    return None


def _recorded_event_sync(state: WaitState, i: int, call: int, key_by_id: dict[tuple[int, int], int]) -> bool:
    found = _record_of(state, i)
    if found is None:
        return False
    stream, time, record = found
    key = key_by_id.get((int(state.device.syncs.device[i]), stream), -1)
    state.used_records.add(record)
    return state.add_host(call, state.last_on_stream(key, time), "event syncs (recorded)")


def _recorded_stream_wait(state: WaitState, i: int, call: int, key_by_id: dict[tuple[int, int], int]) -> bool:
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


def _copies(state: WaitState, rows: list[int]) -> None:
    """A copy that ended before its own call returned held the host (pageable copies, blocking copies)."""
    wanted = set(rows)
    gpu = state.device.device
    ends = state.device.calls.end
    for op in np.flatnonzero(gpu.kind == MEMCPY):
        call = int(state.call[op])
        if call in wanted and gpu.end[op] <= ends[call]:
            state.add_host(call, int(op), "blocking copies")


def _by_name(state: WaitState, kind: str, call: int) -> None:
    """A synchronising call without a record: by its kind and by what ended while it waited."""
    calls = state.device.calls
    begin, end, thread = int(calls.start[call]), int(calls.end[call]), int(calls.thread[call])
    if kind == "device":
        for key in state.streams:
            state.add_host(
                call, state.last_on_stream(key, begin, end + TOLERANCE_NS), "device syncs (by call)"
            )
        return
    if kind == "stream":
        inside = state.ended_last_inside(begin, end)
        source = inside if inside >= 0 else state.last_by_thread(thread, begin)
        if source >= 0:
            # The whole stream was waited for: its last operation launched before the call.
            source = state.last_on_stream(state.key_list[source], begin, end + TOLERANCE_NS)
        state.add_host(call, source, "stream syncs (by call)")
        return
    inside = state.ended_last_inside(begin, end)
    if inside >= 0:
        state.add_host(call, inside, "event syncs (by time)")
        return
    record = state.unused_record(thread, begin)
    if record >= 0:
        state.add_host(
            call, state.last_by_thread(thread, int(calls.start[record])), "event syncs (nearest record)"
        )
