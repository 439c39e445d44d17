"""The device (Kineto) trace as columns: operators, host calls, device operations, synchronisation records.

Only the fields that are used are kept; Python frames, memory events, flows and counters (55-85 % of a trace
with stacks) are dropped while reading.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from chakra.arrays import I64, Bool
from chakra.converters.pytorch.read.ascend import FLOW, Arrows, is_task
from chakra.converters.pytorch.read.columns import Growing, Names, collector_off, integers, to_integer
from chakra.converters.pytorch.read.file_kinds import expect
from chakra.converters.pytorch.read.first_bytes import FileKind
from chakra.converters.pytorch.read.jsonarray import ArrayReader
from chakra.converters.pytorch.read.times import event_times, never_read
from chakra.errors import ConversionError
from chakra.io.digits import whole_number
from chakra.io.json_value import Json
from chakra.io.readable import counted

NONE = -1
OP, CALL, DEVICE, SYNC, RECORD = range(5)

#: Categories (lower case) by what they are. Names of 2022 and earlier (Kernel, Runtime, ...) map as well.
CATEGORIES: dict[str, int] = {
    **dict.fromkeys(("cpu_op", "operator", "user_annotation", "hpu_op"), OP),
    **dict.fromkeys(
        (
            "cuda_runtime", "cuda_driver", "runtime", "hip_runtime", "hip_driver", "xpu_runtime", "xpu_driver",
            "mtia_runtime", "glow_runtime", "privateuse1_runtime", "privateuse1_driver", "musa_runtime", "musa_driver",
        ),
        CALL,
    ),
    **dict.fromkeys(
        (
            "kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset", "mtia_ccp_events", "collective_comm",
            "privateuse1", "privateuse1_kernel", "privateuse1_memcpy", "privateuse1_memset", "concurrent_kernel",
        ),
        DEVICE,
    ),
    **dict.fromkeys(("cuda_sync", "xpu_sync"), SYNC),
    "cuda_event": RECORD,
}  # fmt: skip
KERNEL, MEMCPY, MEMSET = range(3)
#: key of `DeviceTrace.dropped` for events without a time
BAD = "bad time"
#: How annotations of communication libraries begin.
COMMUNICATION = ("nccl:", "gloo:", "mpi:", "ucc:", "xccl:", "hccl:", "ccl:", "c10d::")


class CommArgs(msgspec.Struct, gc=False, omit_defaults=True):
    """Collective metadata of an event, as written (see trace formats, section 5.3)."""

    collective: Json = msgspec.field(default=None, name="Collective name")
    in_elements: Json = msgspec.field(default=None, name="In msg nelems")
    out_elements: Json = msgspec.field(default=None, name="Out msg nelems")
    dtype: Json = None
    group: Json = msgspec.field(default=None, name="Process Group Name")
    group_ranks: Json = msgspec.field(default=None, name="Process Group Ranks")
    group_size: Json = msgspec.field(default=None, name="Group size")
    start: Json = msgspec.field(default=None, name="Global rank start")
    stride: Json = msgspec.field(default=None, name="Global rank stride")
    rank: Json = msgspec.field(default=None, name="Rank")
    src: Json = msgspec.field(default=None, name="Src Rank")
    dst: Json = msgspec.field(default=None, name="Dst Rank")
    seq: Json = msgspec.field(default=None, name="Seq")
    in_split: Json = msgspec.field(default=None, name="In split size")
    out_split: Json = msgspec.field(default=None, name="Out split size")


class Args(CommArgs, gc=False):
    """What is read of an event's ``args``."""

    external: Json = msgspec.field(default=None, name="External id")
    correlation: Json = None
    rf_id: Json = msgspec.field(default=None, name="Record function id")
    ev_idx: Json = msgspec.field(default=None, name="Ev Idx")
    sequence: Json = msgspec.field(default=None, name="Sequence number")
    stream: Json = None
    device: Json = None
    context: Json = None
    bytes: Json = None
    sync_kind: Json = msgspec.field(default=None, name="cuda_sync_kind")
    wait_stream: Json = msgspec.field(default=None, name="wait_on_stream")
    wait_record: Json = msgspec.field(default=None, name="wait_on_cuda_event_record_corr_id")
    wait_event: Json = msgspec.field(default=None, name="wait_on_cuda_event_id")
    event_id: Json = None
    task_type: Json = msgspec.field(default=None, name="Task Type")
    stream_id: Json = msgspec.field(default=None, name="Stream Id")
    connection: Json = msgspec.field(default=None, name="connection_id")
    input_dims: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="Input Dims")
    input_type: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="Input type")


class Event(msgspec.Struct, gc=False):
    """One trace event."""

    ph: Json = ""
    cat: Json = ""
    name: Json = ""
    pid: Json = None
    tid: Json = None
    ts: msgspec.Raw = msgspec.Raw(b"")
    dur: Json | msgspec.UnsetType = msgspec.UNSET
    id: Json = None
    args: Any = None


class TypedEvent(Event, gc=False):
    """One trace event whose ``args`` is an object, as all writers of today have it."""

    args: Args | None = None


@dataclass(slots=True)
class Ops:
    """Operators and annotations, one row each, ordered by thread, start, longest first, event number."""

    name: I64
    thread: I64
    start: I64
    end: I64
    rf_id: I64
    external: I64
    ev_idx: I64
    sequence: I64
    annotation: Bool
    comm: I64
    dims: I64
    """Row in ``DeviceTrace.io`` or -1."""


@dataclass(slots=True)
class Calls:
    """Runtime and driver calls, ordered by thread and start."""

    name: I64
    thread: I64
    start: I64
    end: I64
    correlation: I64
    external: I64


@dataclass(slots=True)
class DeviceOps:
    """Kernels, copies, memsets, ordered by start."""

    name: I64
    kind: I64
    device: I64
    context: I64
    stream: I64
    start: I64
    end: I64
    correlation: I64
    external: I64
    comm: I64
    bytes: I64


@dataclass(slots=True)
class Syncs:
    """Synchronisation records (``cuda_sync``) and event records (``cuda_event``), ordered by start."""

    name: I64
    device: I64
    stream: I64
    start: I64
    end: I64
    correlation: I64
    wait_stream: I64
    wait_record: I64
    wait_event: I64


@dataclass(slots=True)
class DeviceTrace:
    """A Kineto trace. Times are integer nanoseconds since ``first_ns`` (absolute when the file has a
    base).
    """

    source: str
    names: Names
    threads: list[tuple[str, str]]
    ops: Ops
    calls: Calls
    device: DeviceOps
    syncs: Syncs
    records: Syncs
    comm: list[CommArgs]
    io: list[tuple[bytes, bytes]]
    header: dict[str, object]
    first_ns: int
    resolution_ns: int
    events: int
    dropped: dict[str, int] = field(default_factory=dict)
    repaired: int = 0
    lost_bytes: int = 0

    @property
    def rank(self) -> int | None:
        """Rank as the profiler recorded it, or None."""
        info = self.header.get("distributedInfo")
        value = to_integer(info.get("rank"), NONE) if isinstance(info, dict) else NONE
        return value if value >= 0 else None

    @property
    def world_size(self) -> int | None:
        """World size as the profiler recorded it, or None."""
        info = self.header.get("distributedInfo")
        value = to_integer(info.get("world_size"), NONE) if isinstance(info, dict) else NONE
        return value if value > 0 else None


_OPS = (
    "name",
    "thread",
    "start",
    "end",
    "rf_id",
    "external",
    "ev_idx",
    "sequence",
    "annotation",
    "comm",
    "dims",
)
_CALLS = ("name", "thread", "start", "end", "correlation", "external")
_DEVICE = (
    "name", "kind", "device", "context", "stream", "start", "end", "correlation", "external", "comm", "bytes",
)  # fmt: skip
_SYNCS = (
    "name", "device", "stream", "start", "end", "correlation", "wait_stream", "wait_record", "wait_event",
)  # fmt: skip


class _Builder:
    """Collects the rows of one file."""

    def __init__(self, names: Names, keep_io: bool, all_io: bool = False) -> None:
        self.names = names
        self.keep_io = keep_io or all_io
        self.all_io = all_io
        self.threads: dict[tuple[str, str], int] = {}
        self.ops = Growing(*_OPS)
        self.calls = Growing(*_CALLS)
        self.device = Growing(*_DEVICE)
        self.syncs = Growing(*_SYNCS)
        self.records = Growing(*_SYNCS)
        self.comm: list[CommArgs] = []
        self.io: list[tuple[bytes, bytes]] = []
        self.dropped: dict[str, int] = {}
        self.arrows = Arrows()
        self.device_rows = 0
        self.events = 0
        self.fractional = False

    def thread(self, event: Event) -> int:
        key = (str(event.pid), str(event.tid))
        return self.threads.setdefault(key, len(self.threads))

    def comm_row(self, args: Args) -> int:
        if args.collective is None and args.group is None:
            return NONE
        names = CommArgs.__struct_fields__
        self.comm.append(CommArgs(*(getattr(args, name) for name in names)))
        return len(self.comm) - 1

    def io_row(self, name: str, args: Args) -> int:
        """Row of an operator's input shapes, kept only for those that communicate (unless ``all_io``)."""
        dims = bytes(args.input_dims)
        communicates = self.all_io or name == "record_param_comms" or name.startswith(COMMUNICATION)
        if not dims or not communicates:
            return NONE
        self.io.append((dims, bytes(args.input_type)))
        return len(self.io) - 1

    def add(self, events: list[Event]) -> None:
        """Sort the events of one piece into the tables."""
        self.events += len(events)
        kinds = CATEGORIES
        groups: tuple[list[Event], ...] = ([], [], [], [], [])
        arrows: list[Event] = []
        dropped = self.dropped
        for event in events:
            cat = event.cat
            kind = kinds.get(cat) if cat.__class__ is str else None
            if kind is None:
                kind = kinds.get(str(cat).lower(), NONE)
            if kind >= 0 and event.ph == "X":
                groups[kind].append(event)
            elif not cat and event.ph == "X" and is_task(event):
                groups[DEVICE].append(event)
            elif cat == FLOW:
                arrows.append(event)
            else:
                key = str(cat) if event.ph in ("X", "i") else f"phase {event.ph}"
                dropped[key] = dropped.get(key, 0) + 1
        if arrows:
            self.arrows.add(arrows)
        for rows, add in zip(
            groups,
            (self._add_ops, self._add_calls, self._add_device, self._add_syncs, self._add_records),
            strict=True,
        ):
            if rows:
                self._with_times(rows, add)

    def _with_times(
        self, rows: list[Event], add: Callable[[list[Event], list[Args], I64, I64, I64], None]
    ) -> None:
        start, length, known = event_times([e.ts for e in rows], [e.dur for e in rows])
        if not self.fractional:
            self.fractional = any(b"." in bytes(e.ts) for e in rows[:100])
        if not known.all():
            self.without_time(int((~known).sum()))
            keep = np.flatnonzero(known)
            rows = [rows[i] for i in keep]
            start, length = start[keep], length[keep]
        end = start + length
        empty = Args()
        args = [e.args or empty for e in rows]
        name = self.names.encode([e.name if e.name.__class__ is str else str(e.name) for e in rows])
        add(rows, args, name, start, end)

    def without_time(self, count: int) -> None:
        """Note events that are left out because they have no time."""
        self.dropped[BAD] = self.dropped.get(BAD, 0) + count

    def _add_ops(self, rows: list[Event], args: list[Args], name: I64, start: I64, end: I64) -> None:
        self.ops.add(
            name=name,
            thread=np.array([self.thread(e) for e in rows], np.int64),
            start=start,
            end=end,
            rf_id=integers([a.rf_id for a in args], 0),
            external=integers([a.external for a in args], 0),
            ev_idx=integers([a.ev_idx for a in args], 0),
            sequence=integers([a.sequence for a in args], NONE),
            annotation=np.array(["annotation" in str(e.cat).lower() for e in rows], np.int64),
            comm=np.array([self.comm_row(a) for a in args], np.int64),
            dims=np.array([self.io_row(str(e.name), a) for e, a in zip(rows, args, strict=True)], np.int64)
            if self.keep_io
            else np.full(len(rows), NONE, np.int64),
        )

    def _add_calls(self, rows: list[Event], args: list[Args], name: I64, start: I64, end: I64) -> None:
        self.calls.add(
            name=name,
            thread=np.array([self.thread(e) for e in rows], np.int64),
            start=start,
            end=end,
            correlation=integers([a.correlation for a in args], 0),
            external=integers([a.external for a in args], 0),
        )

    def _add_device(self, rows: list[Event], args: list[Args], name: I64, start: I64, end: I64) -> None:
        kind = np.array(
            [
                MEMCPY if "memcpy" in c else MEMSET if "memset" in c else KERNEL
                for c in (str(e.cat or e.name).lower() for e in rows)
            ],
            np.int64,
        )
        # A device event's row in the viewer (pid, tid) is its device and stream.
        device = [a.device if a.device is not None else e.pid for a, e in zip(args, rows, strict=True)]
        stream = [
            a.stream if a.stream is not None else e.tid if a.stream_id is None else a.stream_id
            for a, e in zip(args, rows, strict=True)
        ]
        self.arrows.add_tasks(self.device_rows, rows, args, start)
        self.device_rows += len(rows)
        self.device.add(
            name=name,
            kind=kind,
            device=integers(device, 0),
            context=integers([a.context for a in args], 0),
            stream=integers(stream, 0),
            start=start,
            end=end,
            correlation=integers([a.correlation for a in args], 0),
            external=integers([a.external for a in args], 0),
            comm=np.array([self.comm_row(a) for a in args], np.int64),
            bytes=integers([a.bytes for a in args], 0),
        )

    def _add_syncs(self, rows: list[Event], args: list[Args], name: I64, start: I64, end: I64) -> None:
        kinds = [a.sync_kind if a.sync_kind is not None else e.name for a, e in zip(args, rows, strict=True)]
        self._add_sync_rows(self.syncs, rows, args, self.names.encode(map(str, kinds)), start, end)

    def _add_records(self, rows: list[Event], args: list[Args], name: I64, start: I64, end: I64) -> None:
        for a in args:
            a.wait_event = a.event_id if a.event_id is not None else a.wait_event
        self._add_sync_rows(self.records, rows, args, name, start, end)

    def _add_sync_rows(
        self, table: Growing, rows: list[Event], args: list[Args], name: I64, start: I64, end: I64
    ) -> None:
        table.add(
            name=name,
            device=integers(
                [a.device if a.device is not None else e.pid for a, e in zip(args, rows, strict=True)], 0
            ),
            stream=integers([a.stream for a in args], NONE),
            start=start,
            end=end,
            correlation=integers([a.correlation for a in args], 0),
            wait_stream=integers([a.wait_stream for a in args], NONE),
            wait_record=integers([a.wait_record for a in args], NONE),
            wait_event=integers([a.wait_event for a in args], NONE),
        )


def _args_of(event: Event) -> Event:
    """Give an event of any layout typed arguments (an empty set when its ``args`` is not an object)."""
    args = event.args
    if isinstance(args, dict):
        raw = {k: v for k, v in args.items() if k not in ("Input Dims", "Input type")}
        event.args = msgspec.convert(raw, Args)
    else:
        event.args = None
    return event


def read_device_trace(
    path: str | Path,
    names: Names | None = None,
    *,
    repair: bool = False,
    keep_io: bool = False,
    all_io: bool = False,
) -> DeviceTrace:
    """Read a Kineto trace (plain or gzip).

    Parameters
    ----------
    names:
        Name table to share with the host trace.
    repair:
        Cut a broken tail at the last whole event instead of refusing the file.
    keep_io:
        Keep input shapes and types of operators that communicate (for traces without host trace).
    all_io:
        Keep those of all operators.

    Raises
    ------
    ConversionError
        Not a Kineto trace, or broken: one line with file, byte offset and cause.
    """
    expect(path, FileKind.DEVICE)
    names = names or Names()
    try:
        return _read(path, names, TypedEvent, repair, keep_io, all_io)
    except ConversionError:
        # An event whose ``args`` is not an object fails the typed reader; the general one takes it.
        return _read(path, names, Event, repair, keep_io, all_io)


def _read(
    path: str | Path, names: Names, struct: type[Event], repair: bool, keep_io: bool, all_io: bool
) -> DeviceTrace:
    reader = ArrayReader(path, "traceEvents", struct, repair=repair)
    builder = _Builder(names, keep_io, all_io)
    general = struct is Event
    with collector_off():
        for events in reader:
            builder.add([_args_of(e) for e in events] if general else events)
    return _finish(str(path), builder, reader)


def _ordered(table: dict[str, I64], *keys: str) -> dict[str, I64]:
    """Rows sorted by ``keys``; ``-x`` sorts descending."""
    columns = [-table[k[1:]] if k.startswith("-") else table[k] for k in reversed(keys)]
    order = np.lexsort(columns)
    return {name: values[order] for name, values in table.items()}


def _arrow_calls(builder: _Builder) -> None:
    """The begins of arrows to the device stand for the calls that launched its tasks."""
    begins = builder.arrows.begins
    if begins:
        time = np.array([time for _, time in begins.values()], np.int64)
        where = [builder.threads.setdefault(row, len(builder.threads)) for row, _ in begins.values()]
        builder.calls.add(
            name=builder.names.encode([FLOW] * len(begins)),
            thread=np.array(where, np.int64),
            start=time,
            end=time + 1,  # so that the instant of the launch lies inside the call
            correlation=np.array(list(begins), np.int64),
            external=np.zeros(len(begins), np.int64),
        )


def _finish(source: str, builder: _Builder, reader: ArrayReader[Any]) -> DeviceTrace:
    _arrow_calls(builder)
    tables = [
        t.joined() for t in (builder.ops, builder.calls, builder.device, builder.syncs, builder.records)
    ]
    builder.arrows.connect(tables[2]["correlation"])
    every = np.concatenate([t["start"] for t in tables])
    if never_read(every).any():
        for table in tables:
            known = table["start"] != 0
            builder.without_time(int((~known).sum()))
            table.update({name: values[known] for name, values in table.items()})
    starts = [int(t["start"].min()) for t in tables if len(t["start"])]
    if not starts:
        raise ConversionError(
            f"{source}: no operator, runtime or device event among {counted(builder.events, 'event')}; "
            "was the profiler started with activities?"
        )
    first = min(starts)
    for table in tables:
        table["start"] -= first
        table["end"] -= first
    ops, calls, device, syncs, records = tables
    ops["length"] = ops["end"] - ops["start"]
    ops = _ordered(ops, "thread", "start", "-length", "ev_idx")
    del ops["length"]
    header = reader.header
    base = to_integer(header.get("baseTimeNanoseconds"), 0)
    absolute = first + base > 10**17  # a time since 1970 in nanoseconds, not since boot
    coarse = builder.fractional and base == 0 and first > 10**17
    return DeviceTrace(
        source=source,
        names=builder.names,
        threads=list(builder.threads),
        ops=Ops(**{k: v.astype(np.bool_) if k == "annotation" else v for k, v in ops.items()}),  # type: ignore[arg-type]
        calls=Calls(**_ordered(calls, "thread", "start")),
        device=DeviceOps(**_ordered(device, "start", "end", "correlation")),
        syncs=Syncs(**_ordered(syncs, "start")),
        records=Syncs(**_ordered(records, "start")),
        comm=builder.comm,
        io=builder.io,
        header=header,
        first_ns=first + base if absolute else 0,
        resolution_ns=250 if coarse else 1 if builder.fractional else 1000,
        events=builder.events,
        dropped=builder.dropped,
        repaired=reader.repaired,
        lost_bytes=reader.lost_bytes,
    )


_STEP = re.compile(r"ProfilerStep#([0-9]+)$")


def profiler_steps(trace: DeviceTrace) -> dict[int, tuple[int, int]]:
    """Start and end (ns) of every ProfilerStep annotation, by step number."""
    out: dict[int, tuple[int, int]] = {}
    ops = trace.ops
    numbers = {
        code: whole_number(m.group(1))
        for code, text in enumerate(trace.names.texts)
        if (m := _STEP.match(text))
    }
    if not numbers:
        return out
    for row in np.flatnonzero(np.isin(ops.name, list(numbers))):
        step = numbers[int(ops.name[row])]
        begin, end = int(ops.start[row]), int(ops.end[row])
        if step in out:
            begin, end = min(begin, out[step][0]), max(end, out[step][1])
        out[step] = (begin, end)
    return dict(sorted(out.items()))
