"""Measurements from recordings of PyTorch jobs: Kineto traces of all ranks."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from chakra.arguments import checked
from chakra.converters.pytorch.collective_times import CollectiveTime, collective_times
from chakra.converters.pytorch.folder import given_inputs, names_recordings
from chakra.converters.pytorch.read.file_kinds import kind_of
from chakra.converters.pytorch.read.first_bytes import FileKind
from chakra.errors import ConversionError, UsageError
from chakra.et import CommType
from chakra.replay.collectives.measured.nccl_log import Log, Measurement
from chakra.replay.config.model import CollectiveKind

_KINDS = {
    CommType.ALL_REDUCE: CollectiveKind.ALL_REDUCE,
    CommType.ALL_GATHER: CollectiveKind.ALL_GATHER,
    CommType.REDUCE_SCATTER: CollectiveKind.REDUCE_SCATTER,
    CommType.ALL_TO_ALL: CollectiveKind.ALL_TO_ALL,
}
_RECORDED = (FileKind.DEVICE, FileKind.HOST, FileKind.LINKED)


@checked
def is_recording(path: str | Path) -> bool:
    """Whether a path is a folder, ``FOLDER/JOB``, or a trace of PyTorch's profiler or observer.

    Parameters
    ----------
    path
        Any path; one that cannot be read, or is cut off, is a recording if it is called ``.json`` or ``.json.gz``.
    """
    if names_recordings(Path(path)):
        return True
    named = os.fspath(path).endswith((".json", ".json.gz"))
    try:
        kind = kind_of(path)
        return kind in _RECORDED or (kind is FileKind.EMPTY and named)
    except ConversionError:
        return named


@checked
def read_recordings(
    paths: Sequence[str | Path], *, job: str | None = None, told: Callable[[str], None] | None = None
) -> Log:
    """Times of the collectives of a recorded job, from the last member's start to the last member's end.

    Equal collectives (kind, members, bytes) are one measurement, the median of their times. What cannot be measured is in
    the notes: groups whose members were not all recorded, collectives with unequal shares, those beside others, and those
    that the model has no costs for.

    Parameters
    ----------
    paths
        Kineto traces of all ranks with their host traces where there are some, linked traces, or folders with them.
    job
        Name of the job, where there are several.
    told
        Called with a line when a rank has been read.

    Raises
    ------
    ConversionError
        Ranks share a GPU (their kernels take turns), traces don't fit together, or nothing can be measured.
    UsageError
        No paths.
    """
    if not paths:
        raise UsageError("no recordings: paths is empty")
    found = collective_times(given_inputs([Path(path) for path in paths], job), told)
    notes = list(found.notes)
    measurements = []
    for one in found.collectives:
        if one.kind in _KINDS:
            measurements.append(_measurement(one))
        else:
            notes.append(
                f"{one.where}: {one.kind.name.lower()} is left out: not a collective that can be fitted"
            )
    if not measurements:
        raise ConversionError(f"{paths[0]}: no measurements: {'; '.join(notes)}")
    return Log(tuple(measurements), tuple(notes))


def _measurement(one: CollectiveTime) -> Measurement:
    kind = _KINDS[one.kind]
    # nccl-tests count what everybody ends with, a recording what a member brings in
    size = one.size_bytes * (one.members if kind is CollectiveKind.ALL_GATHER else 1)
    return Measurement(kind, one.members, size, one.median_us, one.where)
