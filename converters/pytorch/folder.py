"""Which files of a folder belong to which rank of which job."""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from chakra.arguments import checked
from chakra.converters.pytorch.job import Inputs
from chakra.converters.pytorch.read.file_kinds import head_and_kind
from chakra.converters.pytorch.read.first_bytes import FileKind
from chakra.errors import ConversionError, UsageError
from chakra.io.digits import whole_number
from chakra.io.rank_files import meant_prefix

_NUMBER = re.compile(r"rank[_\-.]?([0-9]+)", re.IGNORECASE)
_WORDS = re.compile(
    r"rank[_\-.]?[0-9]+|(?<![a-z0-9])(et|kineto|host|device|trace|traces|execution|pt|json|gz|chakra|pytorch|linked)(?![a-z0-9])",
    re.IGNORECASE,
)


@dataclass(slots=True)
class TraceFile:
    """A trace file in a folder."""

    path: Path
    kind: FileKind
    rank: int | None
    job: str
    pid: str


@checked
def find_inputs(folder: Path, job: str | None = None) -> list[Inputs]:
    """Pair the traces of a folder by content, job and rank.

    The rank is the recorded one (``distributedInfo``), else the number after ``rank`` in the name, else that
    of the trace of the same process (``pid``).

    Parameters
    ----------
    folder
        Folder that holds the traces, or folders with traces in them (as Megatron-LM writes them), or the beginning of
        the names of a job's traces, as `chakra.capture` takes it.
    job
        Name of the job, where the folder holds several.

    Raises
    ------
    ConversionError
        No trace, several jobs (they are listed: choose with ``--job``), ranks without a partner, or a file that is cut
        off before it says what it is.
    UsageError
        Neither a folder nor such a name.
    """
    if not os.path.isdir(folder):
        if not names_recordings(folder):
            raise UsageError(f"{folder}: neither a folder nor the beginning of the names of a job's traces")
        folder, job = folder.parent, job or folder.name
    found = _traces_in(folder)
    if not found:
        # Megatron-LM writes two folders side by side: of the profiler and of the observer, a file a rank in each.
        found = [f for p in sorted(folder.iterdir()) if p.is_dir() for f in _traces_in(p)]
    if not found:
        raise ConversionError(
            f"{folder}: no host, device or linked trace in this folder nor in one of its folders{meant_prefix(folder)}"
        )
    return pair_files(found, str(folder), job)


def names_recordings(path: Path) -> bool:
    """Whether a path is a folder, or the beginning of the names of recordings in one (``traces/job`` of
    ``traces/job.rank0.kineto.json``).
    """
    if os.path.isdir(path):
        return True
    if os.path.lexists(path) or not path.name or not os.path.isdir(path.parent):
        return False
    named = [p for p in sorted(path.parent.iterdir()) if p.name.startswith(path.name)]
    return any(p.is_file() and is_recording(p) for p in named)


def given_inputs(paths: Sequence[Path], job: str | None = None) -> list[Inputs]:
    """Pair traces that were named one by one, and those of folders among them, as :func:`find_inputs` does.

    Raises
    ------
    ConversionError
        As :func:`find_inputs`, and a file that is no trace.
    """
    if len(paths) == 1 and names_recordings(paths[0]):
        return find_inputs(paths[0], job)
    found = []
    for path in paths:
        if os.path.isdir(path):
            found += _traces_in(path)
        elif (file := _look(path)) is not None:
            found.append(file)
        else:
            raise ConversionError(f"{path}: no host, device or linked trace")
    return pair_files(found, paths[0].name + (f" and {len(paths) - 1} more" * (len(paths) > 1)), job)


def pair_files(found: list[TraceFile], folder: str, job: str | None) -> list[Inputs]:
    """Pair traces by job and rank; ``folder`` is how messages call where they are."""
    if job is not None:
        chosen = [f for f in found if f.job == job] or [f for f in found if f.path.name.startswith(job)]
        if not chosen:
            raise ConversionError(f"{folder}: no trace of job {job!r}; jobs there: {_jobs(found)}")
        found = chosen
    hosts = [f for f in found if f.kind is FileKind.HOST]
    devices = [f for f in found if f.kind is FileKind.DEVICE]
    linked = [f for f in found if f.kind is FileKind.LINKED]
    if linked and not (hosts or devices):
        return _single(folder, linked, lambda f, r: Inputs(linked=f.path, rank=r))
    if not devices:
        raise ConversionError(
            f"{folder}: host traces only ({len(hosts)}); the device (Kineto) traces are missing"
        )
    _ranks_by_pid(hosts, devices)
    if not hosts:
        return _single(folder, devices, lambda f, r: Inputs(device=f.path, rank=r))
    by_rank_host, by_rank_device = _unique(folder, hosts, found), _unique(folder, devices, found)
    lonely = sorted(set(by_rank_host) ^ set(by_rank_device))
    if lonely:
        where = "device" if lonely[0] in by_rank_host else "host"
        raise ConversionError(
            f"{folder}: rank {lonely[0]} has no {where} trace (ranks without a partner: {lonely})"
        )
    return [
        Inputs(host=by_rank_host[r].path, device=by_rank_device[r].path, rank=r) for r in sorted(by_rank_host)
    ]


def is_recording(path: Path) -> bool:
    """Whether a file is a host, device or linked trace."""
    try:
        return _look(path) is not None
    except ConversionError:
        return False


def _traces_in(folder: Path) -> list[TraceFile]:
    return [f for p in sorted(folder.iterdir()) if p.is_file() and (f := _look(p)) is not None]


def _look(path: Path) -> TraceFile | None:
    if path.name.startswith(".") or path.suffix in (".txt", ".md", ".py"):
        return None
    head, kind = head_and_kind(path)
    if kind in (FileKind.EMPTY, FileKind.BINARY, FileKind.TEXT) and path.name.endswith((".json", ".json.gz")):
        raise ConversionError(f"{path}: this is {kind}, not JSON: was it cut off or damaged?")
    if kind not in (FileKind.HOST, FileKind.DEVICE, FileKind.LINKED):
        return None
    rank = None
    info = re.search(rb'"distributedInfo"\s*:\s*\{[^{}]*?"rank"\s*:\s*(\d+)', head)
    if info and kind is FileKind.DEVICE:
        rank = int(info.group(1))
    named = _NUMBER.search(path.name)
    if rank is None and named:
        rank = whole_number(named.group(1))
    pid = re.search(rb'"pid"\s*:\s*(\d+)', head)
    words = _WORDS.sub(" ", path.name)
    job = ".".join(re.findall(r"[A-Za-z0-9_\-]*[A-Za-z0-9][A-Za-z0-9_\-]*", words)).strip("_-")
    return TraceFile(path, kind, rank, job, pid.group(1).decode() if pid else "")


def _jobs(found: list[TraceFile]) -> str:
    return ", ".join(sorted({f.job or "(no name)" for f in found}))


def _ranks_by_pid(hosts: list[TraceFile], devices: list[TraceFile]) -> None:
    """Give traces without a rank that of the trace of the same process."""
    for one, other in ((hosts, devices), (devices, hosts)):
        ranks = {f.pid: f.rank for f in other if f.pid and f.rank is not None}
        for f in one:
            if f.rank is None:
                f.rank = ranks.get(f.pid)


def _unique(folder: str, found: list[TraceFile], everything: list[TraceFile]) -> dict[int, TraceFile]:
    out: dict[int, TraceFile] = {}
    if len(found) == 1 and found[0].rank is None:
        found[0].rank = 0
    for f in found:
        if f.rank is None:
            raise ConversionError(
                f"{f.path}: its rank is neither recorded nor in its name (the number after 'rank')"
            )
        if f.rank in out:
            other = out[f.rank]
            todo = f"choose one job with --job (jobs there: {_jobs(everything)})"
            if f.job == other.job:
                todo = f"both of job {f.job or '(no name)'}: remove one of them"
            raise ConversionError(
                f"{folder}: {other.path.name} and {f.path.name} are both rank {f.rank}; {todo}"
            )
        out[f.rank] = f
    return out


def _single(folder: str, found: list[TraceFile], make: Callable[[TraceFile, int], Inputs]) -> list[Inputs]:
    by_rank = _unique(folder, found, found)
    return [make(by_rank[r], r) for r in sorted(by_rank)]
