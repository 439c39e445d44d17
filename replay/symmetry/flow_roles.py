"""Who sends to whom, and in which role: what classes of flows are refined from.

A *role* says what a message is to its sender, in words that fit every NPU: the column of a peer, or the group's slot, the
dimension, and how far the partner is on the ring. NPUs of a class have the same roles, each towards one partner.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from chakra.arrays import I64, distinct, rows_by
from chakra.replay.collectives.algorithms import Family
from chakra.replay.collectives.in_network import switch_dimension
from chakra.replay.collectives.plan import FLAT, Phase, Plan
from chakra.replay.collectives.plan_table import PlanTable
from chakra.replay.collectives.steps import Do, Steps, Symmetry, member_rows
from chakra.replay.config.model import Network
from chakra.replay.networks.flow.paths import port
from chakra.replay.symmetry.library_talk import LibraryTalk
from chakra.replay.workload.communicators import Membership
from chakra.replay.workload.model import Workload


@dataclass(frozen=True, slots=True)
class Talk:
    """Pairs of NPUs and the role of the second to the first; a pair may have several."""

    src: I64
    dst: I64
    role: I64

    @property
    def pairs(self) -> I64:
        """Both ends, shape (pairs, 2)."""
        return np.stack([self.src, self.dst], axis=1)


class _Roles:
    """Numbers of roles; those of collectives have room for the slot of the group."""

    def __init__(self, slots: int) -> None:
        self._slots = slots + 1
        self._number: dict[tuple[Any, ...], int] = {}

    def of(self, *what: Any) -> int:
        """A role that is not a group's; of a group: plus its slot."""
        return self._number.setdefault(what, len(self._number)) * self._slots


def talk(
    workload: Workload, membership: Membership, plans: PlanTable, library: Sequence[LibraryTalk] = ()
) -> Talk:
    """Messages that a run may have, of native collectives, of a library's and between peers."""
    roles = _Roles(membership.comm.shape[1])
    parts: list[tuple[I64, I64, I64]] = []
    n = workload.npus
    for said in library:
        src, dst = said.pairs()
        slot_of_src, slot_of_dst = (said.slots[:, ends] for ends in (said.roles.source, said.roles.target))
        slots = membership.comm.shape[1]
        numbers = [[roles.of("library", role, slot) for slot in range(slots)] for role in said.roles.role]
        # none where so few bytes are shared that no member sends any
        table = np.array(numbers, np.int64).reshape(-1, slots)
        role = table[np.arange(src.shape[1]), slot_of_dst] + slot_of_src
        parts.append((src.reshape(-1), dst.reshape(-1), role.reshape(-1)))
    for number, program in enumerate(workload.programs):
        npus = workload.npus_of_program[number]
        for column in distinct(program.p2p_peer).tolist():
            peers = workload.peers.at(npus, column)
            parts.append((npus, peers, np.full(len(npus), roles.of("peer", column))))
    for (view, partners), comms in _rings(workload, membership, plans).items():
        rows, slots = _members(membership, plans, view, sorted(comms), n)
        if partners.family is Family.SWITCH:
            parts += _of_switches(rows, slots, view, plans.network, roles)
            continue
        for label, target in partners.each(rows.shape[1]):
            known = target >= 0
            role = roles.of(view, label) + slots[:, known]
            parts.append((rows[:, known].reshape(-1), rows[:, target[known]].reshape(-1), role.reshape(-1)))
    empty = np.zeros(0, np.int64)
    src, dst, role = (
        (np.concatenate([empty, *column]) for column in zip(*parts, strict=True)) if parts else (empty,) * 3
    )
    apart = src != dst
    return Talk(src[apart], dst[apart], role[apart])


def _of_switches(
    rows: I64, slots: I64, view: int, network: Network, roles: _Roles
) -> Iterator[tuple[I64, I64, I64]]:
    """Members of rings (rings, size) and the ports of the switch that joins each ring."""
    dims = [view if view != FLAT else switch_dimension(row, network) for row in rows]
    for back in (False, True):
        ends = [port(network, dim, back=back) for dim in dims if dim is not None]
        role = roles.of(view, "switch", back) + slots
        yield rows.reshape(-1), np.repeat(ends, rows.shape[1]), role.reshape(-1)


@dataclass(frozen=True, slots=True)
class _Partners:
    """Whom a member of a ring sends to or receives from."""

    family: Family
    everybody: bool
    size: int
    steps: Steps | None

    def each(self, n: int) -> Iterator[tuple[Any, I64]]:
        """Label of a role, and each member's partner in it, by place; -1: none."""
        index = np.arange(n)
        if self.steps is not None:
            yield from _of_steps(self.steps)
        elif self.family is Family.RING and not self.everybody:
            for shift in (1, -1):
                yield shift, (index + shift) % n
        elif self.family is Family.HALVING_DOUBLING:
            for k in range(n.bit_length() - 1):
                yield ("xor", k), index ^ (1 << k)
        elif self.family not in (Family.NONE, Family.LIBRARY):
            for shift in range(1, n):
                yield shift, (index + shift) % n


def _of_steps(steps: Steps) -> Iterator[tuple[Any, I64]]:
    """Partners in a table of steps, by its symmetry; without one, by place."""
    table, n = member_rows(steps), steps.n
    me = np.repeat(np.arange(n), np.diff(table.start))
    ends = np.concatenate(
        [np.stack([me, table.rows[:, 0]], axis=1), np.stack([me, table.rows[:, 3]], axis=1)]
    )
    ends = np.unique(ends[ends[:, 1] >= 0], axis=0)
    if steps.symmetry is Symmetry.CYCLIC:
        label = (ends[:, 1] - ends[:, 0]) % n
    else:
        label = ends[:, 0] ^ ends[:, 1] if steps.symmetry is Symmetry.XOR else ends[:, 1]
    for one, places in rows_by(label).items():
        target = np.full(n, -1, np.int64)
        mine = ends[places]
        target[mine[:, 0]] = mine[:, 1]
        yield (steps.symmetry.value, one), target


def _rings(
    workload: Workload, membership: Membership, plans: PlanTable
) -> dict[tuple[int, _Partners], set[int]]:
    """Communicators whose rings carry messages, by dimension and by who talks to whom on them."""
    out: dict[tuple[int, _Partners], set[int]] = {}
    size = np.array([comm.size for comm in membership.comms], np.int64)
    whole = np.array([comm.whole for comm in membership.comms], bool)
    for number, program in enumerate(workload.programs):
        npus = workload.npus_of_program[number]
        for call in program.calls:
            comms = distinct(membership.comm[npus, call.group])
            for shape in {(int(size[c]), bool(whole[c])) for c in comms.tolist()}:
                mine = comms[(size[comms] == shape[0]) & (whole[comms] == shape[1])].tolist()
                plan = plans.of(call, shape[0], whole=shape[1])
                for phase in _phases(plan):
                    steps = None
                    if phase.algorithm.family is Family.STEPS:
                        steps = plans.steps(phase, whole=shape[1])
                    everybody = phase.do is Do.ALL_TO_ALL
                    what = _Partners(phase.algorithm.family, everybody, phase.size, steps)
                    out.setdefault((phase.view, what), set()).update(mine)
    return out


def _phases(plan: Plan) -> list[Phase]:
    """Phases of all variants and templates."""
    every = [phase for variant in plan.variants for phase in variant]
    return every + [phase for pair in plan.templates for phase in pair]


def _members(
    membership: Membership, plans: PlanTable, view: int, comms: list[int], n: int
) -> tuple[I64, I64]:
    """Rings (rings, size) by place, and the slot under which each member knows the group."""
    rows = np.stack([membership.comms[c].members for c in comms])
    if membership.comms[comms[0]].whole:
        rows = np.sort(rows, axis=1)
    number = np.array(comms)[:, None, None]
    slots = np.argmax(membership.comm[rows] == number, axis=2)
    if view == FLAT:
        return rows, slots
    dims = plans.network.dims
    grid = np.arange(n).reshape([dim.npus for dim in reversed(dims)])
    lines = np.moveaxis(grid, len(dims) - 1 - view, -1).reshape(-1, dims[view].npus)
    return (
        np.concatenate([lines] * len(comms)),
        np.concatenate([of_npu[lines] for of_npu in slots]),
    )
