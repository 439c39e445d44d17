"""Which NPUs a collective spans: groups by name, resolved for every NPU.

A *communicator* is a set of NPUs that run collectives together, in the order of their logical ring. Sources: replay
semantics, sections 1.5 and 3.3; correction C18.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from chakra.arrays import I64
from chakra.errors import WorkloadError
from chakra.replay.workload import Workload

#: group name -> disjoint rows of NPUs; a group file has one row per name
GroupTable = Mapping[str, Sequence[Sequence[int]]]


@dataclass(frozen=True, slots=True)
class Communicator:
    """NPUs that run collectives together; `members` is the order of the logical ring."""

    name: str
    members: I64
    #: spans the whole system, so it has a ring in every dimension
    whole: bool

    @property
    def size(self) -> int:
        """Number of members."""
        return len(self.members)


@dataclass(frozen=True, slots=True)
class Membership:
    """Communicators of all NPUs. `comm[i, s]` is the one that NPU i's s-th group stands for, -1 where it has none."""

    comms: tuple[Communicator, ...]
    comm: I64
    #: index of the NPU within that communicator
    member: I64


def resolve_groups(workload: Workload, groups: GroupTable) -> Membership:
    """Resolve the group names of all NPUs.

    Raises
    ------
    WorkloadError
        For a name that no group has, a group without the NPU that uses it, or members outside the system.
    """
    n = workload.npus
    width = max((len(b.groups) for b in workload.bindings), default=0)
    comm = np.full((n, width), -1, np.int64)
    member = np.full((n, width), -1, np.int64)
    comms: list[Communicator] = []
    lookup: dict[str, tuple[I64, I64]] = {}

    def table_of(name: str, trace: int) -> tuple[I64, I64]:
        """Communicator and member index of every NPU under a name."""
        if name in lookup:
            return lookup[name]
        of = np.full(n, -1, np.int64)
        index = np.full(n, -1, np.int64)
        if name == "":
            rows: Sequence[Sequence[int]] = [range(n)]
        elif name in groups:
            rows = groups[name]
        else:
            known = ", ".join(sorted(groups)[:8]) or "none"
            raise WorkloadError(
                f"{workload.traces[trace].source}: process group {name!r} is not defined (known groups: {known}); "
                "give the communicator-group file"
            )
        for row in rows:
            members = np.asarray(row if len(row) else range(n), np.int64)
            if len(members) and (members.min() < 0 or members.max() >= n):
                bad = int(members.min()) if members.min() < 0 else int(members.max())
                raise WorkloadError(
                    f"process group {name!r} has rank {bad}, but the system has NPUs 0 to {n - 1}"
                )
            if len(np.unique(members)) != len(members) or (of[members] >= 0).any():
                raise WorkloadError(f"process group {name!r} lists a rank twice")
            of[members] = len(comms)
            index[members] = np.arange(len(members))
            comms.append(Communicator(name, members, len(members) == n))
        lookup[name] = (of, index)
        return lookup[name]

    for t, bindings in enumerate(workload.bindings):
        npus = np.flatnonzero(workload.trace_of == t)
        for s, name in enumerate(bindings.groups):
            of, index = table_of(name, t)
            lost = npus[of[npus] < 0]
            if len(lost):
                raise WorkloadError(
                    f"{workload.traces[t].source}: NPU {int(lost[0])} runs a collective of process group {name!r} "
                    "but is not a member of it"
                )
            comm[npus, s] = of[npus]
            member[npus, s] = index[npus]
    return Membership(tuple(comms), comm, member)
