"""Kineto traces (PyTorch profiler) as a timeline: threads and streams as rows, launches as arrows, times
without loss."""

from decimal import Decimal
from typing import Final

import msgspec

from chakra.arguments import checked
from chakra.errors import UsageError
from chakra.io.files import PathLike, read_bytes
from chakra.timeline.builder import TimelineBuilder
from chakra.timeline.model import Timeline

_DEVICE: Final = frozenset(("kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset", "async_gpu"))
_HOST: Final = frozenset(("cpu_op", "python_function", "user_annotation", "Operator", "Trace"))
_LAUNCH: Final = frozenset(
    ("cuda_runtime", "cuda_driver", "Runtime", "hip_runtime", "mtia_runtime", "xpu_runtime")
)
_COLLECTIVE: Final = ("nccl", "rccl", "hccl", "gloo:")


class _Args(msgspec.Struct, gc=False):
    correlation: int | str | None = None
    stream: int | str | None = None
    device: int | str | None = None
    external_id: int | str | None = msgspec.field(name="External id", default=None)


class _Event(msgspec.Struct, gc=False):
    ph: str = ""
    name: object = ""
    cat: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: Decimal | None = None
    dur: Decimal | None = None
    args: msgspec.Raw = msgspec.Raw(b"{}")


class _File(msgspec.Struct, gc=False):
    traceEvents: list[_Event]  # noqa: N815 - the file's name
    baseTimeNanoseconds: int = 0  # noqa: N815
    distributedInfo: object = None  # noqa: N815


@checked
def read_kineto(paths: list[PathLike]) -> Timeline:
    """One timeline of one or more Kineto files, one a rank, on a common clock that begins at their first
    event.

    Parameters
    ----------
    paths
        Kineto files, JSON or gzipped JSON.

    Raises
    ------
    UsageError
        If a file is no Kineto trace, has no events with a duration, or two files say that they are the same
        rank.
    """
    if not paths:
        raise UsageError("paths: at least one Kineto trace is needed")
    files = [_load(path) for path in paths]
    ranks = _ranks(files, paths)
    builder = TimelineBuilder(", ".join(map(str, paths)))
    begins = [_begin(file, path) for file, path in zip(files, paths, strict=True)]
    first = min(begins)
    for file, rank in zip(files, ranks, strict=True):
        _add(builder, file, rank, first)
    return builder.build()


def _load(path: PathLike) -> _File:
    data = read_bytes(path, error=UsageError)
    try:
        if data.lstrip()[:1] == b"[":
            return _File(msgspec.json.decode(data, type=list[_Event]))
        return msgspec.json.decode(data, type=_File)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: no Kineto trace that can be read: {error}") from error
    except RecursionError:
        raise UsageError(f"{path}: JSON nested too deeply") from None


def _ranks(files: list[_File], paths: list[PathLike]) -> list[int]:
    ranks = []
    for place, file in enumerate(files):
        info = file.distributedInfo
        rank = info.get("rank") if isinstance(info, dict) else None
        ranks.append(rank if isinstance(rank, int) and 0 <= rank < 2**31 else place)
    if len(set(ranks)) < len(ranks):
        again = next(rank for i, rank in enumerate(ranks) if rank in ranks[:i])
        one, other = (
            paths[i] for i, rank in enumerate(ranks) if rank == again and ranks[: i + 1].count(rank) <= 2
        )
        raise UsageError(f"{other}: is of rank {again}, as {one} is")
    return ranks


def _ns(value: Decimal) -> int:
    """Nanoseconds of a number of microseconds below 2**53."""
    # Decimal keeps the digits of 1782000000000000.125 that a float would lose.
    return int((value * 1000).to_integral_value())


def _usable(event: _Event) -> bool:
    """Whether the event has a duration and a time that fits; a huge exponent must not become a huge integer."""
    if event.ph != "X" or event.cat == "Trace" or event.ts is None or not event.ts.is_finite():
        return False
    return abs(event.ts) < 2**53 and (event.dur is None or not event.dur.is_finite() or event.dur < 2**53)


def _begin(file: _File, path: PathLike) -> int:
    times = [event.ts for event in file.traceEvents if event.ts is not None and _usable(event)]
    if not times:
        raise UsageError(f"{path}: a Kineto trace without any event that has a time and a duration")
    return _ns(min(times)) + file.baseTimeNanoseconds


def _add(builder: TimelineBuilder, file: _File, rank: int, first: int) -> None:
    launches: dict[str, int] = {}
    kernels: list[tuple[str, int]] = []
    shift = file.baseTimeNanoseconds - first
    for event in file.traceEvents:
        if event.ts is None or not _usable(event):
            continue
        duration = (
            event.dur if event.dur is not None and event.dur.is_finite() and event.dur > 0 else Decimal(0)
        )
        start = _ns(event.ts) + shift
        length = _ns(event.ts + duration) + shift - start
        name = event.name if isinstance(event.name, str) else str(event.name)
        args = _args(event.args) if event.cat in _DEVICE or event.cat in _LAUNCH else None
        device = event.cat in _DEVICE or event.cat == "gpu_user_annotation"
        row = _row(builder, rank, event, args, device=device)
        number = builder.slice(row, name, _category(event.cat, name), max(start, 0), max(length, 0))
        key = _key(args)
        if key is not None and event.cat in _DEVICE:
            kernels.append((key, number))
        elif key is not None:
            launches[key] = number
    # Correlation ids are those of this rank's file: looked up here, never across ranks.
    for key, number in kernels:
        if key in launches:
            builder.flow(launches[key], number)


def _args(raw: msgspec.Raw) -> _Args | None:
    try:
        return msgspec.json.decode(raw, type=_Args)
    except (msgspec.DecodeError, UnicodeDecodeError):
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
    stream = args.stream if args is not None and args.stream is not None else event.tid
    if event.cat == "gpu_user_annotation":
        return builder.row(rank, f"GPU {gpu} stream {stream} annotations", 2, nests=True)
    return builder.row(rank, f"GPU {gpu} stream {stream}", 1, nests=False)


def _category(cat: str, name: str) -> str:
    lowered = name.lower()
    if cat in _DEVICE:
        if any(word in lowered for word in _COLLECTIVE):
            return "communication"
        return "memory" if lowered.startswith(("memcpy", "memset")) else "compute"
    return "cpu" if cat in _HOST or cat in _LAUNCH else "other"
