"""Which NPUs a collective spans: groups by name, resolved for every NPU.

A *communicator* is a set of NPUs that run collectives together, in the order of their logical ring. Sources: replay
semantics, sections 1.5 and 3.3; correction C18.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from chakra.arrays import I32, I64, distinct
from chakra.errors import WorkloadError
from chakra.replay.workload.model import Op, Workload

#: group name -> disjoint rows of NPUs; a group file has one row per name
GroupTable = Mapping[str, Sequence[Sequence[int]] | I32]


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


def first_places(membership: Membership) -> tuple[I64, I64]:
    """Communicators that NPUs have, and where each stands first: the cell of its first NPU's groups."""
    cells = membership.comm.reshape(-1)
    numbers, first = np.unique(cells, return_index=True)
    return numbers[numbers >= 0], first[numbers >= 0]


def short(name: str, shown: int = 40) -> str:
    """A group's name in a message, cut where it is long."""
    return repr(name if len(name) <= shown else f"{name[:shown]}...")


def first_node(workload: Workload, trace: int, group: str) -> str:
    """The first node of a trace that runs a collective of a group, as a place in a message."""
    columns = workload.traces[trace]
    slot = workload.bindings[trace].groups.index(group)
    number = int(workload.program_of[workload.npus_of_trace[trace][0]])
    program = workload.programs[number]
    mine = [k for k, call in enumerate(program.calls) if call.group == slot]
    nodes = np.flatnonzero((program.op == Op.COLLECTIVE) & np.isin(program.call, mine))
    if not len(nodes):
        return columns.source
    return f"{columns.source}: node {int(columns.ids[columns.order_by_id()[nodes[0]]])}"


@dataclass(frozen=True, slots=True)
class _Rows:
    """The NPUs that a name stands for, ascending, each with its communicator and its place in that one's ring."""

    npus: I64
    comm: I64
    member: I64

    def places(self, npus: I64) -> tuple[I64, I64]:
        """Communicator and place of some NPUs; -1 for those that the name does not hold."""
        at = np.minimum(np.searchsorted(self.npus, npus), len(self.npus) - 1)
        known = self.npus[at] == npus
        return np.where(known, self.comm[at], -1), np.where(known, self.member[at], -1)


def _rows(workload: Workload, groups: GroupTable, name: str, trace: int, comms: list[Communicator]) -> _Rows:
    """Resolve a name that a trace uses; adds its communicators to `comms`."""
    n = workload.npus
    if name == "":
        rows: Sequence[Sequence[int]] | I32 = [range(n)]
    elif name in groups:
        rows = groups[name]
    else:
        known = ", ".join(short(other) for other in sorted(groups)[:8]) or "none"
        more = ", ..." if len(groups) > 8 else ""
        file = "give the communicator-group file (-g; conversions write PREFIX.comm_groups.json)"
        missing = "the groups that were given lack it" if groups else file
        raise WorkloadError(
            f"{first_node(workload, trace, name)}: process group {short(name)} is not defined (known groups: "
            f"{known}{more}); {missing}"
        )
    first = len(comms)
    for row in rows:
        members = np.asarray(row if len(row) else range(n), np.int64)
        if len(members) and (members.min() < 0 or members.max() >= n):
            bad = int(members.min()) if members.min() < 0 else int(members.max())
            raise WorkloadError(
                f"process group {short(name)} has rank {bad}, but the system has NPUs 0 to {n - 1}"
            )
        if len(members) == n and len(distinct(members)) == n:
            members = np.arange(n)  # runs on the network's own dimensions, in order of ranks (section 3.3)
        comms.append(Communicator(name, members, len(members) == n))
    here = comms[first:]
    npus = np.concatenate([comm.members for comm in here])
    order = np.argsort(npus, kind="stable")
    if (np.diff(npus[order]) == 0).any():
        raise WorkloadError(f"process group {short(name)} lists a rank twice")
    number = np.repeat(np.arange(first, len(comms)), [comm.size for comm in here])
    place = np.concatenate([np.arange(comm.size) for comm in here])
    return _Rows(npus[order], number[order], place[order])


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
    rows_of: dict[str, _Rows] = {}
    for t, bindings in enumerate(workload.bindings):
        npus = workload.npus_of_trace[t]
        for s, name in enumerate(bindings.groups):
            if name not in rows_of:
                rows_of[name] = _rows(workload, groups, name, t, comms)
            of, index = rows_of[name].places(npus)
            lost = npus[of < 0]
            if len(lost):
                raise WorkloadError(
                    f"{first_node(workload, t, name)}: NPU {int(lost[0])} runs a collective of process group "
                    f"{short(name)}, but is not a member of it"
                )
            comm[npus, s] = of
            member[npus, s] = index
    return Membership(tuple(comms), comm, member)
