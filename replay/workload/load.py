"""What `simulate` takes as a workload, read into traces: prefixes, paths, builders' workloads, manifests."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from chakra.arguments import shown
from chakra.arrays import I64
from chakra.errors import TraceError, UsageError, WorkloadError
from chakra.et import Trace, read_traces
from chakra.et.manifest import SUFFIX, read_manifest
from chakra.io import files
from chakra.io.rank_files import expect_one_workload, meant_prefix, missing_ranks, ranks_found
from chakra.io.readable import counted
from chakra.replay.workload.communicators import GroupTable
from chakra.replay.workload.in_memory import is_built, is_shared


class Loaded(NamedTuple):
    """A workload as it was given."""

    #: distinct ones
    traces: list[Trace]
    #: trace of each NPU
    trace_of: I64
    #: groups that come with the workload
    groups: GroupTable
    #: whether peers are offsets
    relative: bool


def load_workload(workload: object, npus: int) -> Loaded:
    """Read what `simulate` takes as a workload."""
    if is_built(workload):
        if workload.npus != npus:
            raise WorkloadError(
                f"the workload is for {counted(workload.npus, 'NPU')}, but the network has {npus}"
            )
        built = load_workload(workload.traces(), npus)
        return built._replace(groups={name: [ranks] for name, ranks in workload.groups.items()})
    if is_shared(workload):
        trace_of = np.asarray(workload.trace_of, np.int64)
        if len(trace_of) != npus:
            raise WorkloadError(
                f"the workload is for {counted(len(trace_of), 'NPU')}, but the network has {npus}"
            )
        if not all(isinstance(trace, Trace) for trace in workload.traces):
            raise UsageError("workload: its traces must be of the class chakra.et.Trace")
        relative = getattr(workload, "peer_mode", "absolute") == "relative"
        return Loaded(list(workload.traces), trace_of, workload.groups, relative)
    if isinstance(workload, str | os.PathLike):
        manifest = manifest_path(os.fspath(workload))
        if manifest is not None:
            return load_workload(read_manifest(manifest), npus)
        return _shared(read_files(files_of_ranks(os.fspath(workload), npus)))
    if not isinstance(workload, Iterable | Trace) or isinstance(workload, bytes | Mapping):
        raise UsageError(
            "workload: a prefix of files, a list of paths or traces, or a workload of chakra.builder or "
            f"chakra.generate is needed, not {shown(workload)}"
        )
    entries: list[object] = [workload] if isinstance(workload, Trace) else list(workload)
    if len(entries) != npus:
        raise WorkloadError(f"{counted(len(entries), 'trace')} for {counted(npus, 'NPU')}; give one per NPU")
    # an entry may stand for thousands of equal ranks, so entries are looked at once each
    keys = list(map(id, entries))
    distinct = dict(zip(keys, entries, strict=True))
    traces = {key: entry for key, entry in distinct.items() if isinstance(entry, Trace)}
    if len(traces) == len(distinct):
        return _shared([traces[key] for key in keys])
    names = {key: os.fspath(entry) for key, entry in distinct.items() if isinstance(entry, str | os.PathLike)}
    if len(names) < len(distinct):
        odd = next(entry for key, entry in distinct.items() if key not in names)
        raise UsageError(f"workload: the list must hold paths alone or traces alone, but holds {shown(odd)}")
    return _shared(read_files([names[key] for key in keys]))


def _shared(traces: Sequence[Trace]) -> Loaded:
    """Traces of all ranks, those that are one object once, in the order of the first rank that has it."""
    keys = list(map(id, traces))
    place = {key: k for k, key in enumerate(dict.fromkeys(keys))}
    distinct = list(dict(zip(keys, traces, strict=True)).values())
    return Loaded(distinct, np.array([*map(place.__getitem__, keys)], np.int64), {}, False)


def manifest_path(prefix: str) -> str | None:
    """The workload manifest that a prefix names, if it names one: the file itself, or ``PREFIX.workload.json``.

    Raises
    ------
    UsageError
        There are traces ``PREFIX.<rank>.et``, too.
    """
    if prefix.endswith(SUFFIX):
        return prefix
    expect_one_workload(prefix)
    return prefix + SUFFIX if os.path.exists(prefix + SUFFIX) else None


def read_files(paths: Sequence[str]) -> list[Trace]:
    """Traces of all paths; a file that several ranks share, by name or by link, is read once."""
    first: dict[tuple[int, int], str] = {}
    names: dict[str, str] = {}
    for path in paths:
        if path not in names:
            try:
                status = os.stat(path)
                names[path] = first.setdefault((status.st_dev, status.st_ino), path)
            except OSError:
                names[path] = path  # the reader says what is wrong with it
    distinct = list(dict.fromkeys(names.values()))
    traces = dict(zip(distinct, read_traces(distinct), strict=True))
    return [traces[names[path]] for path in paths]


def _recordings(prefix: str) -> str:
    """What to do with recordings whose names begin with a prefix that has no traces; for the end of a message."""
    folder, name = os.path.split(prefix)
    try:
        beside = sorted(entry.path for entry in os.scandir(folder or ".") if entry.name.startswith(name))
        kinds = (files.KINETO, files.HOST_TRACE, files.LINKED)
        held = name and any(os.path.isfile(path) and files.sniff_kind(path) in kinds for path in beside[:4])
    except (OSError, ValueError, TraceError):
        return ""
    return (
        f"; there are recordings: `chakra convert pytorch --dir {prefix} -o OUT` makes traces of them"
        if held
        else ""
    )


def files_of_ranks(prefix: str, npus: int) -> list[str]:
    """Files of all ranks below a prefix.

    Raises
    ------
    WorkloadError
        When ranks have no file: the first of them are named.
    """
    found = ranks_found(prefix)
    missing, shown = missing_ranks(found, npus)
    if missing:
        there = [rank for rank in found if rank < npus]
        repeatable = there and there[-1] == len(there) - 1 and npus % len(there) == 0
        raise WorkloadError(
            f"{prefix}.<rank>.et: no file for {missing} of {counted(npus, 'rank')}: {shown}"
            + (
                ""
                if os.path.isdir(Path(prefix).parent)
                else f" (folder {Path(prefix).parent} does not exist)"
            )
            + ("; --replicate repeats the traces that there are" if repeatable else "")
            + ("" if found else _recordings(prefix) or meant_prefix(prefix))
        )
    return [found[rank] for rank in range(npus)]
