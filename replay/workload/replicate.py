"""Fewer traces than NPUs: the ranks that have a trace are repeated, block by block.

With k traced ranks, trace i serves ranks i, i + k, i + 2k, ...: peers are shifted by the start of the rank's block,
every process group of the traced ranks has a copy in each block, and the group of all ranks spans all NPUs. That is a
guess about a larger system, so the result says that it was made.
"""

import os
from collections.abc import Sequence, Sized
from dataclasses import replace

import numpy as np

from chakra.arrays import I64
from chakra.errors import WorkloadError
from chakra.et import Trace
from chakra.et.manifest import manifest_of, read_manifest
from chakra.io.rank_files import ranks_found
from chakra.io.readable import counted
from chakra.replay.workload.communicators import GroupTable
from chakra.replay.workload.in_memory import is_built, is_shared
from chakra.replay.workload.model import Bindings, Workload


def traced_ranks(workload: object, npus: int) -> int:
    """Number of ranks that have a trace, in a prefix, list, manifest or builder's workload.

    Raises
    ------
    WorkloadError
        If a rank below another one has no file, or the number of NPUs is not a multiple of the traced ranks.
    """
    if is_built(workload):
        count = workload.npus
    elif is_shared(workload):
        count = len(workload.trace_of)
    elif isinstance(workload, str | os.PathLike) and (manifest := manifest_of(os.fspath(workload))):
        count = read_manifest(manifest).npus
    elif isinstance(workload, str | os.PathLike):
        prefix = os.fspath(workload)
        there = [rank for rank in ranks_found(prefix) if rank < npus]
        count = len(there)
        if count and there[-1] != count - 1:
            gap = next(place for place, rank in enumerate(there) if rank != place)
            raise WorkloadError(
                f"{prefix}.<rank>.et: cannot repeat the traces: rank {gap} has no file, but rank {there[-1]} has"
            )
        if not count:
            raise WorkloadError(f"{prefix}.<rank>.et: no file for rank 0: there is no trace to repeat")
    else:
        count = len(workload) if isinstance(workload, Sized) else 0
    if count == 0 or count > npus or npus % count:
        raise WorkloadError(
            f"{counted(count, 'traced rank')} cannot be repeated over {counted(npus, 'NPU')}: "
            "the number of NPUs must be a multiple of the number of traces"
        )
    return count


def spread(traces: Sequence[Trace], trace_of: I64, npus: int) -> tuple[list[Trace], I64]:
    """A trace entry per traced rank (whose peers are its own), and the entry of each of `npus` ranks."""
    return [traces[int(t)] for t in trace_of], np.arange(npus) % len(trace_of)


def repeat_blocks(workload: Workload, groups: GroupTable, traced: int) -> tuple[Workload, GroupTable]:
    """The workload with peers inside each block, and groups with a copy per block.

    Raises
    ------
    WorkloadError
        If a peer or a group member is not among the traced ranks.
    """
    bindings = []
    for rank, bound in enumerate(workload.bindings):
        peers = (bound.peers + rank) % traced if workload.relative else bound.peers
        outside = peers[(peers < 0) | (peers >= traced)]
        if len(outside):
            raise WorkloadError(
                f"{workload.traces[rank].source}: rank {rank} talks to rank {int(outside[0])}, but the traces of ranks "
                f"0 to {traced - 1} are repeated"
            )
        bindings.append(Bindings(bound.groups, peers - rank))
    copies: dict[str, list[list[int]]] = {}
    for name, rows in groups.items():
        if any(len(row) == 0 for row in rows):
            copies[name] = [list(range(workload.npus))]  # no ranks: all of them
            continue
        known = [np.asarray(row, np.int64) for row in rows]
        for row in known:
            if row.min() < 0 or row.max() >= traced:
                raise WorkloadError(
                    f"process group {name!r} has rank {int(row.max())}, but the traces of ranks 0 to {traced - 1} "
                    "are repeated"
                )
        starts = range(0, workload.npus, traced)
        copies[name] = [(row + start).tolist() for start in starts for row in known]
    return replace(workload, bindings=tuple(bindings), relative=True), copies


def repeated_text(traced: int, npus: int) -> str:
    """What the summary says about it."""
    return (
        f"{counted(traced, 'trace')} repeated over {counted(npus, 'NPU')} (--replicate): rank i runs the "
        "trace of rank "
        f"i mod {traced}, peers and process groups are shifted to its block, all-ranks collectives span all NPUs"
    )
