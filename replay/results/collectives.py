"""Collectives of a run: times of every instance, and the rows of the table."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from chakra.arrays import I64, ranges
from chakra.replay.collectives.algorithms import Family
from chakra.replay.collectives.library.in_effect import PlacedLibrary
from chakra.replay.collectives.library.shape import BY_NETWORK_SWITCHES, BY_NODE_SWITCHES, Choice
from chakra.replay.collectives.plan import FLAT, Plan, library_phase
from chakra.replay.config.model import CollectiveKind, Network
from chakra.replay.engines.outcome import RawRun
from chakra.replay.results.bounds import bound_ns, bus_factor
from chakra.replay.results.crossed import Crossed
from chakra.replay.symmetry.classes import coordinates
from chakra.replay.workload.communicators import Communicator, Membership, first_places
from chakra.replay.workload.model import Program

#: rows above this number are merged by group and collective
MAX_ROWS = 2000


@dataclass(frozen=True, slots=True)
class Instances:
    """Times of every collective instance in ns: first issue, last issue, last end; and how much its members waited.

    Where classes of NPUs were simulated, an instance stands for those of all groups that are alike.
    """

    start: I64
    ready: I64
    end: I64
    #: sum over the members of one group
    waiting: I64


def instances(raw: RawRun, programs: list[Program], met: Mapping[int, I64]) -> Instances:
    """Times of all collective instances; -1 where one never became complete. `met` is of those of some dimensions."""
    n = len(raw.instance_plan)
    far = np.iinfo(np.int64).max
    start, end = np.full(n, far), np.full(n, -1)
    waiting = np.zeros(n, np.int64)
    npus_of = np.bincount(raw.partition.class_of, minlength=len(programs))
    groups = np.bincount(raw.comm_of[raw.comm_of >= 0], minlength=len(raw.comms))
    for actor, program in enumerate(programs):
        comm = np.flatnonzero(program.comm >= 0)
        if not len(comm):
            continue
        cells = slice(int(raw.comm_start[actor]), int(raw.comm_start[actor + 1]))
        instance = raw.comm_instance[cells]
        known = instance >= 0
        nodes, instance = comm[known], instance[known]
        where = raw.nodes(actor)
        issue, finish = raw.issue_ns[where][nodes], raw.finish_ns[where][nodes]
        np.minimum.at(start, instance, issue)
        np.maximum.at(end, instance, finish)
        # an NPU has a group once, so an actor stands for as many members of each group as it has NPUs for one
        members = npus_of[actor] // groups[raw.instance_comm[instance]]
        ready = raw.instance_ready_ns[instance]
        if actor in met:
            ready = np.where(met[actor][nodes] >= 0, met[actor][nodes], ready)
        np.add.at(waiting, instance, members * np.maximum(ready - issue, 0))
    start[start == far] = -1
    return Instances(start, raw.instance_ready_ns.copy(), end, waiting)


def algorithm_name(plan: Plan) -> str:
    """Algorithms of a plan's phases, one per dimension."""
    names: list[str] = []
    for phase in plan.variants[0]:
        if not names or names[-1] != phase.algorithm.name:
            names.append(phase.algorithm.name)
    return "+".join(dict.fromkeys(names))


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups of NPUs by name, for each communicator of a run.

    Attributes
    ----------
    names
        Names, each once.
    comm, name, count
        A communicator, a name that groups of NPUs have which it stands for, and how many those are, row by row.
    place
        Place of the first of them in the order of their first NPUs.
    """

    names: list[str]
    comm: I64
    name: I64
    count: I64
    place: I64

    @classmethod
    def of(cls, raw: RawRun, membership: Membership) -> "Groups":
        """Of a run."""
        numbers, place = first_places(membership)
        names = list(dict.fromkeys(comm.name for comm in membership.comms))
        index = {name: k for k, name in enumerate(names)}
        name = np.array([index[comm.name] for comm in membership.comms], np.int64)[numbers]
        pairs, first, count = np.unique(
            np.stack([raw.comm_of[numbers], name], axis=1)[np.argsort(place)],
            axis=0,
            return_index=True,
            return_counts=True,
        )
        return cls(names, pairs[:, 0], pairs[:, 1], count, np.sort(place)[first])


def collective_rows(
    raw: RawRun,
    programs: list[Program],
    membership: Membership,
    library: PlacedLibrary | None,
    crossed: Crossed,
    met: Mapping[int, I64],
) -> list[dict[str, Any]]:
    """One row per collective, of groups of one name that run alike; merged by group and collective above `MAX_ROWS`.

    What a row says, and which rows there are, does not depend on the engine, nor on whether classes of NPUs were
    simulated.
    """
    found = instances(raw, programs, met)
    done = np.flatnonzero((found.start >= 0) & (raw.instance_plan >= 0))
    if not len(done):
        return []
    pairs, pair = np.unique(
        np.stack([raw.instance_plan[done], raw.instance_comm[done]], axis=1), axis=0, return_inverse=True
    )
    example = {int(raw.comm_of[c]): comm for c, comm in reversed(list(enumerate(membership.comms)))}
    kinds: dict[_What, int] = {}
    ran_by = [(int(plan), example[int(comm)]) for plan, comm in pairs]
    bounds = _bounds(raw, crossed, ran_by, library)
    what = np.array(
        [
            kinds.setdefault(_what(raw, plan, comm, bound, library), len(kinds))
            for (plan, comm), bound in zip(ran_by, bounds, strict=True)
        ]
    )
    groups = Groups.of(raw, membership)
    # rows of `groups` for each instance
    first = np.searchsorted(groups.comm, np.arange(len(raw.comms) + 1))
    each = np.diff(first)[raw.instance_comm[done]]
    at = np.repeat(np.arange(len(done)), each)
    row = ranges(first[raw.instance_comm[done]], each)
    times = np.stack([found.start, found.ready, found.end, found.waiting], axis=1)[done]
    table = np.concatenate([what[pair.reshape(-1)[at], None], groups.name[row, None], times[at]], axis=1)
    table, inverse = np.unique(table, axis=0, return_inverse=True)
    count, place = np.zeros(len(table), np.int64), np.full(len(table), np.iinfo(np.int64).max)
    np.add.at(count, inverse.reshape(-1), groups.count[row])
    np.minimum.at(place, inverse.reshape(-1), groups.place[row])
    # times of all collectives that a row stands for, which need not take as long as the one that it shows
    total = count[:, None] * (table[:, 4:5] - table[:, 2:4])
    if len(table) > MAX_ROWS:
        # the longest of each, and of those the first
        order = np.lexsort([place, table[:, 2], table[:, 3] - table[:, 4], table[:, 1], table[:, 0]])
        table, count, place, total = table[order], count[order], place[order], total[order]
        new = np.flatnonzero(np.r_[True, (table[1:, :2] != table[:-1, :2]).any(axis=1)])
        table, count, place = table[new], np.add.reduceat(count, new), place[new]
        total = np.add.reduceat(total, new, axis=0)
    known = list(kinds)
    rank = np.argsort(np.argsort([repr(one) for one in known]))[table[:, 0]]
    order = np.lexsort([rank, *table.T[:1:-1], place, table[:, 2]])
    cells = zip(table[order].tolist(), count[order].tolist(), total[order].tolist(), strict=True)
    return [
        known[k].row(groups.names[name], times, number, taken) for (k, name, *times), number, taken in cells
    ]


@dataclass(frozen=True)
class _What:
    """What a collective is, whoever runs it."""

    kind: CollectiveKind
    algorithm: str
    members: int
    #: comm_size; of unequal shares, of the even collective that brings as many bytes through its ports as the busiest
    #: member does
    size: int
    #: members that exchange data with each other: fewer where a collective of all NPUs involves some dimensions only
    exchange: int
    bound_ns: float | None
    uneven: bool
    ran: tuple[str, str, int] | None

    def row(self, group: str, times: list[int], count: int, total: list[int]) -> dict[str, Any]:
        """A row: times of one collective, and in all of `count`, from the first member's start and from the last's."""
        start, ready, end, waiting = times
        time = total[1] / count
        scale, factor = bus_factor(self.kind, self.exchange)
        timed = time > 0 and self.kind is not CollectiveKind.BARRIER
        row: dict[str, Any] = {
            "kind": self.kind.value,
            "algorithm": self.algorithm,
            "group": group,
            "members": self.members,
            "bytes": self.size,
            "start_ns": start,
            "ready_ns": ready,
            "end_ns": end,
            "waiting_ns": waiting,
            "transfer_ns": end - ready,
            "algbw_gbps": self.size * scale / time if timed else None,
            "busbw_gbps": self.size * scale * factor / time if timed else None,
            "bound_ns": self.bound_ns,
            "count": count,
            "total_ns": total[0],
            "total_transfer_ns": total[1],
        }
        if self.exchange < self.members:
            row["exchanging"] = self.exchange
        if self.uneven:
            row["uneven"] = True
        if self.ran is not None:
            names = ("library_algorithm", "library_protocol", "library_channels")
            row |= dict(zip(names, self.ran, strict=True))
        return row


def _what(
    raw: RawRun, number: int, comm: Communicator, bound: "_Bound", library: PlacedLibrary | None
) -> _What:
    plan = raw.plans[number]
    choice = _choice(plan, comm, library)
    return _What(
        plan.kind,
        algorithm_name(plan),
        comm.size,
        int(raw.plan_bytes[number]),
        bound.exchange,
        bound.ns,
        plan.uneven,
        (choice.algorithm.value, choice.protocol.value, choice.channels) if choice is not None else None,
    )


@dataclass(frozen=True, slots=True)
class _Bound:
    """How many members exchange data with each other, and the time that bounds theirs."""

    exchange: int
    ns: float | None


def _bounds(
    raw: RawRun, crossed: Crossed, ran_by: list[tuple[int, Communicator]], library: PlacedLibrary | None
) -> list[_Bound]:
    """Bounds of plans on groups."""
    network = crossed.network
    sets: dict[tuple[bytes, tuple[int, ...]], list[I64]] = {}
    keys = []
    for number, comm in ran_by:
        dims = _joined(raw.plans[number], comm, len(network.dims))
        keys.append((comm.members.tobytes(), dims))
        if keys[-1] not in sets:
            sets[keys[-1]] = _planes(network, dims) if dims else [comm.members]
    every = [members for some in sets.values() for members in some]
    found = iter(crossed.cuts(every))
    cuts = {key: [next(found) for _ in some] for key, some in sets.items()}
    out = []
    for (number, comm), key in zip(ran_by, keys, strict=True):
        plan, size = raw.plans[number], int(raw.plan_bytes[number])
        times = [
            bound_ns(
                plan.kind,
                size,
                some,
                switched=_switched(plan, comm, npus, network, library),
                uneven=plan.uneven,
            )
            for npus, some in zip(sets[key], cuts[key], strict=True)
        ]
        known = [time for time in times if time is not None]
        out.append(_Bound(len(sets[key][0]), max(known) if known else None))
    return out


def _switched(
    plan: Plan, comm: Communicator, npus: I64, network: Network, library: PlacedLibrary | None
) -> I64 | None:
    """For each of some NPUs the number of the part of the network in which switches reduce and copy; None: nowhere."""
    choice = _choice(plan, comm, library)
    if library is not None and choice is not None:
        if choice.algorithm in BY_NETWORK_SWITCHES:
            return np.zeros(len(npus), np.int64)
        return npus // library.node_npus if choice.algorithm in BY_NODE_SWITCHES else None
    phases = [phase for phase in plan.variants[0] if phase.algorithm.family is Family.SWITCH]
    if not phases:
        return None
    by = {phase.view for phase in phases}
    rest = [k for k in range(len(network.dims)) if k not in by and FLAT not in by]
    return np.unique(coordinates(network, npus)[:, rest], axis=0, return_inverse=True)[1].reshape(-1)


def _choice(plan: Plan, comm: Communicator, library: PlacedLibrary | None) -> Choice | None:
    """What a library ran for a plan on a group, if one did."""
    phase = library_phase(plan)
    if library is None or phase is None or phase.algorithm.kind == CollectiveKind.BARRIER:
        return None
    return library.choice(CollectiveKind(phase.algorithm.kind), phase.bytes, comm.members)


def _joined(plan: Plan, comm: Communicator, dims: int) -> tuple[int, ...]:
    """Dimensions that a collective of all NPUs joins, where these are some only; else ()."""
    phases = [phase for variant in plan.variants for phase in variant]
    phases += [phase for pair in plan.templates for phase in pair]
    views = {phase.view for phase in phases}
    if not comm.whole or FLAT in views or not 0 < len(views) < dims:
        return ()
    return tuple(sorted(views))


def _planes(network: Network, dims: tuple[int, ...]) -> list[I64]:
    """Sets of NPUs that differ in some dimensions only."""
    grid = np.arange(network.npus).reshape([dim.npus for dim in reversed(network.dims)])
    axes = [len(network.dims) - 1 - k for k in dims]
    rest = [axis for axis in range(grid.ndim) if axis not in axes]
    size = int(np.prod([network.dims[k].npus for k in dims]))
    return list(np.sort(grid.transpose(rest + axes).reshape(-1, size), axis=1))
