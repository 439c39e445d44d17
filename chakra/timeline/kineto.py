"""Profiler traces (PyTorch's Kineto, Ascend's) as a timeline: threads and streams as rows; launches, and messages and
collectives between ranks, as arrows; times without loss. They are read as `chakra convert pytorch` reads them: the same
events, the same rule for missing times.
"""

import os
from dataclasses import replace
from typing import Final

import msgspec
import numpy as np

from chakra.arguments import checked
from chakra.converters.pytorch.read.columns import to_integer
from chakra.converters.pytorch.read.device import CALL, CATEGORIES, DEVICE, OP, CommArgs
from chakra.converters.pytorch.read.file_kinds import expect
from chakra.converters.pytorch.read.first_bytes import FileKind
from chakra.converters.pytorch.read.jsonarray import ArrayReader
from chakra.converters.pytorch.read.kernel_names import DEFAULT, LIBRARY
from chakra.converters.pytorch.read.repeated import ONE_KERNEL, repeated_launches, repeats, said_of
from chakra.converters.pytorch.read.times import event_times, untimed_text
from chakra.errors import ConversionError, UsageError
from chakra.io.files import PathLike
from chakra.timeline.builder import TimelineBuilder
from chakra.timeline.model import Timeline
from chakra.timeline.recorded_arrows import RecordedMatcher

#: categories of events of the host that the conversion does not read
_HOST: Final = frozenset(("python_function", "trace"))
#: annotations of the host, repeated above the streams that they cover
_SHADOW: Final = "gpu_user_annotation"


class _Args(CommArgs, gc=False):
    correlation: object = None
    stream: object = None
    device: object = None
    external_id: object = msgspec.field(name="External id", default=None)
    task_type: object = msgspec.field(name="Task Type", default=None)
    stream_id: object = msgspec.field(name="Stream Id", default=None)


class _Event(msgspec.Struct, gc=False):
    ph: object = ""
    name: object = ""
    cat: object = ""
    pid: object = 0
    tid: object = 0
    ts: msgspec.Raw = msgspec.Raw(b"")
    dur: object = msgspec.UNSET
    args: msgspec.Raw = msgspec.Raw(b"{}")


class _File:
    """The events of one file that have a time, and where it begins."""

    def __init__(self, path: PathLike) -> None:
        self.events: list[tuple[_Event, int, int]] = []
        self.untimed = 0
        try:
            expect(os.fspath(path), FileKind.DEVICE)
            reader = ArrayReader(str(path), "traceEvents", _Event)
            for events in reader:
                self._add(events)
        except ConversionError as error:
            raise UsageError(str(error)) from error
        self.base = max(to_integer(reader.header.get("baseTimeNanoseconds"), 0), 0)
        info = reader.header.get("distributedInfo")
        rank = info.get("rank") if isinstance(info, dict) else None
        self.rank = rank if isinstance(rank, int) and 0 <= rank < 2**31 else None
        if not self.events:
            raise UsageError(f"{path}: a Kineto trace without any event that has a time and a duration")
        self.begin = min(start for _, start, _ in self.events) + self.base

    def _add(self, events: list[_Event]) -> None:
        spans = [e for e in events if e.ph == "X" and str(e.cat).lower() != "trace"]
        times = event_times([e.ts for e in spans], [e.dur for e in spans])
        self.untimed += int((~times.known).sum())
        lists = (times.start.tolist(), times.length.tolist(), times.known.tolist())
        self.events += [(e, s, d) for e, s, d, known in zip(spans, *lists, strict=True) if known]


@checked
def read_kineto(paths: list[PathLike]) -> Timeline:
    """One timeline of one or more profiler traces, one a rank, on a common clock that begins at their first
    event.

    Parameters
    ----------
    paths
        Kineto files or Ascend's ``trace_view.json``, JSON or gzipped JSON.

    Raises
    ------
    UsageError
        If a file is no such trace, has no events with a duration, or two files say that they are the same
        rank.
    """
    if not paths:
        raise UsageError("paths: at least one Kineto trace is needed")
    files = [_File(path) for path in paths]
    ranks = _ranks(files, paths)
    builder = TimelineBuilder(", ".join(map(str, paths)))
    first = min(file.begin for file in files)
    remarks: list[str] = []
    matcher = RecordedMatcher()
    for path, file, rank in zip(paths, files, ranks, strict=True):
        seen = _Seen()
        _add(builder, matcher, file, rank, file.base - first, seen)
        remarks += seen.remarks(os.fspath(path))
        if file.untimed:
            remarks.append(untimed_text(os.fspath(path), file.untimed))
    for a, b in matcher.flows():
        builder.flow(a, b)
    return replace(builder.build(), remarks=tuple(remarks))


class _Seen:
    """Launches and kernels of a file, for ids that are there twice."""

    def __init__(self) -> None:
        self.launches: list[tuple[int, int, int, int, int]] = []
        self.kernels: list[int] = []
        self._threads: dict[str, int] = {}
        self._names: dict[str, int] = {}

    def call(self, name: str, event: _Event, correlation: int, start: int, length: int) -> None:
        if name not in self._names:
            self._names[name] = len(self._names) if ONE_KERNEL.search(name) else -1
        if self._names[name] >= 0 and correlation > 0:
            thread = self._threads.setdefault(f"{event.pid} {event.tid}", len(self._threads))
            self.launches.append((self._names[name], correlation, thread, start, start + length))

    def remarks(self, source: str) -> list[str]:
        launches = np.array(self.launches, np.int64).reshape(-1, 5)
        kernels = repeats(np.array(self.kernels, np.int64))
        kernels = kernels[np.isin(kernels, launches[:, 1])]
        none = np.zeros(0, np.int64)
        return said_of(source, repeated_launches(*launches.T), kernels, none, "")


def _ranks(files: list[_File], paths: list[PathLike]) -> list[int]:
    ranks = [place if file.rank is None else file.rank for place, file in enumerate(files)]
    if len(set(ranks)) < len(ranks):
        again = next(rank for i, rank in enumerate(ranks) if rank in ranks[:i])
        one, other = (
            paths[i] for i, rank in enumerate(ranks) if rank == again and ranks[: i + 1].count(rank) <= 2
        )
        raise UsageError(f"{other}: is of rank {again}, as {one} is")
    return ranks


def _add(
    builder: TimelineBuilder, matcher: RecordedMatcher, file: _File, rank: int, shift: int, seen: _Seen
) -> None:
    launches: dict[str, int] = {}
    kernels: list[tuple[str, int]] = []
    for event, start, length in file.events:
        name = event.name if isinstance(event.name, str) else str(event.name)
        kind = CATEGORIES.get(str(event.cat).lower(), -1)
        args = _args(event.args) if kind in (DEVICE, CALL) or not event.cat else None
        task = args is not None and args.task_type is not None and args.stream_id is not None
        device = kind == DEVICE or task or event.cat == _SHADOW
        row = _row(builder, rank, event, args, device=device)
        number = builder.slice(row, name, _category(kind, event, name, task=task), start + shift, length)
        key = _key(args)
        correlation = to_integer(args.correlation, 0) if args is not None else 0
        if kind == DEVICE:
            seen.kernels.append(correlation)
            if args is not None:
                matcher.add(args, number, rank, start + shift)
        elif kind == CALL:
            seen.call(name, event, correlation, start, length)
        if key is not None and kind == DEVICE:
            kernels.append((key, number))
        elif key is not None and kind == CALL:
            launches[key] = number
    # Correlation ids are those of this rank's file: looked up here, never across ranks.
    for key, number in kernels:
        if key in launches:
            builder.flow(launches[key], number)


def _args(raw: msgspec.Raw) -> _Args | None:
    try:
        return msgspec.json.decode(raw, type=_Args)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _key(args: _Args | None) -> str | None:
    if args is None:
        return None
    if args.correlation not in (None, 0, "0"):
        return f"c{args.correlation}"
    return f"e{args.external_id}" if args.external_id not in (None, 0, "0") else None


def _row(builder: TimelineBuilder, rank: int, event: _Event, args: _Args | None, *, device: bool) -> int:
    if not device:
        return builder.row(rank, f"thread {event.tid}", 0, nests=True)
    gpu = args.device if args is not None and args.device is not None else event.pid
    stream = event.tid
    if args is not None:
        stream = next((s for s in (args.stream, args.stream_id) if s is not None), event.tid)
    if event.cat == _SHADOW:
        return builder.row(rank, f"GPU {gpu} stream {stream} annotations", 2, nests=True)
    return builder.row(rank, f"GPU {gpu} stream {stream}", 1, nests=False)


def _category(kind: int, event: _Event, name: str, *, task: bool) -> str:
    if kind == DEVICE or task:
        if LIBRARY.search(name) or "gloo:" in name or DEFAULT.kind(name):
            return "communication"
        return "memory" if name.lower().startswith(("memcpy", "memset")) else "compute"
    return "cpu" if kind in (OP, CALL) or str(event.cat).lower() in _HOST else "other"
