"""Workloads in memory that a run takes beside files and lists of traces, known by what they offer.

`chakra.builder.Workload` and `chakra.et.manifest.WorkloadManifest` are ours; an object of another package that offers the
same serves as well.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeGuard

from chakra.arrays import I32
from chakra.et import Trace
from chakra.replay.workload.communicators import GroupTable


class BuiltWorkload(Protocol):
    """A program for each rank, made into traces when asked; groups are the ranks in their order."""

    @property
    def npus(self) -> int:
        """Number of ranks."""

    @property
    def groups(self) -> Mapping[str, tuple[int, ...]]:
        """Ranks of each group."""

    def traces(self) -> list[Trace]:
        """A trace a rank; equal programs share one."""

    def trace_of(self, rank: int) -> Trace:
        """The trace of one rank."""


class SharedTraces(Protocol):
    """Distinct traces and who runs which; a group's row that holds a rank is the rank's."""

    @property
    def traces(self) -> Sequence[Trace]:
        """Distinct traces."""

    @property
    def trace_of(self) -> I32:
        """(npus,) index into `traces` of every rank."""

    @property
    def groups(self) -> GroupTable:
        """Rows of ranks by the name of the group."""

    @property
    def peer_mode(self) -> str:
        """``relative`` where peers in the traces are offsets to the rank's own number."""


def is_built(workload: object) -> TypeGuard[BuiltWorkload]:
    """Whether it offers what a builder's workload does."""
    return callable(getattr(workload, "trace_of", None)) and callable(getattr(workload, "traces", None))


def is_shared(workload: object) -> TypeGuard[SharedTraces]:
    """Whether it offers what a manifest does."""
    return not is_built(workload) and hasattr(workload, "trace_of") and hasattr(workload, "traces")
