"""Durations of phases whose members start together, before the run; tables of trees and of steps."""

from typing import Any

import numpy as np

from chakra.arrays import I64
from chakra.jit import compiled, worth_compiling
from chakra.replay.collectives.algorithms import Family
from chakra.replay.collectives.in_network import port_bytes
from chakra.replay.collectives.plan import FLAT, Phase, library_sent
from chakra.replay.collectives.plan_table import PlanTable
from chakra.replay.collectives.steps import Steps, Symmetry
from chakra.replay.collectives.uneven import is_open, pair_bytes
from chakra.replay.engines.kernels import phases_algorithms
from chakra.replay.engines.kernels import phases_layout as L
from chakra.replay.engines.kernels.packets import free_delay, phase_packet, reduction
from chakra.replay.engines.phases.communicators import ActorComm
from chakra.replay.engines.plan_tables import Fields, Planned
from chakra.replay.engines.state import Block
from chakra.replay.networks.answers import EarlyAnswers
from chakra.replay.symmetry.rings_used import ROOTED

KERNEL = "chakra.replay.engines.kernels.phases_algorithms"
#: messages of a table of steps from which compiled code pays (loaded, in the cache, to be compiled)
COMPILE_FROM = (500, 50_000, 500_000)
#: members of a ring from which a state for one phase is an array: lists are faster to index, slower to make
AS_ARRAY_FROM = 4096


class Durations:
    """What the phase-level engine knows of phases beforehand, as fields of their rows.

    Parameters
    ----------
    block
        Gets the tables of trees and steps.
    net
        The network without contention (`chakra.replay.engines.tables.free_network`).
    answers
        What the network knows of phases.
    """

    def __init__(self, block: Block, plans: PlanTable, net: L.State, answers: EarlyAnswers) -> None:
        self._answers = answers
        self._block = block
        self._plans = plans
        self._net = net
        self._net_size = len(net.m)
        self._table_at: dict[Any, int] = {}
        self._kept: list[Steps] = []  # keys of _table_at are identities, so they must live
        self._known: dict[tuple[Any, ...], tuple[int, int, int]] = {}

    def fields(self, row: list[int], phase: Phase, item: Planned, comm: ActorComm, template: bool) -> Fields:
        """Duration, final timer and bytes of a phase, and where its table of a tree or of steps lies."""
        family = phase.algorithm.family
        out: dict[int, int] = {}
        if family is Family.TREE:
            out[L.PH_TREE] = self._table(phase.size, lambda: tree_tables(phase.size))
        elif phase.do in ROOTED or family in (Family.LIBRARY, Family.SWITCH):
            out[L.PH_FAMILY] = int(Family.NONE)
            out[L.PH_BESIDE] = int(family is Family.LIBRARY and self._plans.slows)
        elif family is Family.STEPS:
            steps = self._steps(phase, comm)
            self._kept.append(steps)
            out[L.PH_STEPS] = self._table(id(steps), lambda: steps.messages)
            out[L.PH_STEPS_N] = len(steps.messages)
            out[L.PH_WHOLE] = steps.whole
        place = id(comm) if phase.view == FLAT else item.whole
        key = (phase.view, phase.algorithm, phase.do, phase.size, place, phase.bytes, phase.sizes)
        if key not in self._known:
            self._known[key] = self._of(row, phase, comm)
        tau, out[L.PH_LAST], out[L.PH_SENT] = self._known[key]
        if template:  # the kernel copies the row and gives it a size: its duration is not known yet
            same_ends = tau >= 0 and family is not Family.STEPS
            tau = L.TAU_UNKNOWN if same_ends else L.TAU_DIFFERS
        out[L.PH_TAU] = tau
        return out

    def _table(self, key: Any, make: Any) -> int:
        """Where a table of a tree or of steps starts."""
        if key not in self._table_at:
            self._table_at[key] = self._block.add(make())
        return self._table_at[key]

    def _steps(self, phase: Phase, comm: ActorComm) -> Steps:
        return self._plans.steps(phase, whole=comm.whole)

    def _of(self, row: list[int], phase: Phase, comm: ActorComm) -> tuple[int, int, int]:
        """Duration of a phase with equal starts (-1 if members differ), its final timer, bytes each member sends."""
        family = phase.algorithm.family
        if family is Family.NONE:
            return 0, 0, 0
        if family is Family.STEPS:
            return self._of_steps(row, phase, comm)
        if family is Family.LIBRARY:
            return self._plans.library_ns(phase, comm.views[-1][0][0]), 0, _sent(phase)
        if family is Family.SWITCH:
            return self._of_switch(row, phase, comm)
        if family is Family.TREE:
            return L.TAU_DIFFERS, 0, 0  # what a member sends depends on its place in the tree
        if phase.sizes is not None:
            return L.TAU_SPARSE if is_sparse(phase) else L.TAU_DIFFERS, 0, _sent(phase)
        packets, window = row[L.PH_PACKETS], row[L.PH_WINDOW]
        flat = phase.view == FLAT
        npus = comm.views[-1 if flat else phase.view][0][0]
        machine = family is not Family.RING or self._plans.options.rendezvous
        cells = 7 + packets if machine else 0
        credits = 3 * (2 * window + 2 * packets + 2) if machine else 0
        s, f, ring = self._state(row, npus, cells, credits)
        if family is Family.HALVING_DOUBLING:
            sent = sum(phase_packet(s, f, p) for p in range(packets))
        else:
            sent = packets * phase_packet(s, f, 0)
        if flat and not comm.label[1]:
            return L.TAU_DIFFERS, 0, sent
        known = self._answers.duration_ns(phase, row[L.PH_ENDPOINT], self._net.f[L.F_REDUCE_BW])
        if known is not None:
            return known, row[L.PH_ENDPOINT], sent
        phases_algorithms.set_duration(s, f, ring, not flat)
        return int(s.m[f + L.PH_TAU]), int(s.m[f + L.PH_LAST]), sent

    def _of_switch(self, row: list[int], phase: Phase, comm: ActorComm) -> tuple[int, int, int]:
        """The same of a phase that a switch carries out: all of its members lie in one dimension."""
        e = row[L.PH_ENDPOINT]
        up, down = port_bytes(phase.do, phase.bytes, phase.size)
        npus = comm.views[-1 if phase.view == FLAT else phase.view][0][0]
        known = self._answers.duration_ns(phase, e, self._net.f[L.F_REDUCE_BW])
        if known is not None:
            return known, e, up
        return 2 * e + free_delay(self._net, int(npus[0]), int(npus[1]), max(up, down)), e, up

    def _state(self, row: list[int], npus: I64, cells: int, credits: int) -> tuple[L.State, int, int]:
        """A state with one phase, the NPUs of its ring and room to work in; the phase, the NPUs."""
        f = self._net_size
        ring = f + L.PHASE_ROW
        scratch = ring + len(npus)
        m: Any
        if len(npus) < AS_ARRAY_FROM:
            m = [*self._net.m, *row, *npus.tolist(), *([0] * (cells + credits))]  # type: ignore[misc]
        else:
            m = np.concatenate([self._net.m, row, npus, np.zeros(cells + credits, np.int64)])
        m[L.C_SCRATCH] = scratch
        m[L.C_CREDITS] = scratch + cells
        return L.State(m, self._net.f), f, ring

    def _of_steps(self, row: list[int], phase: Phase, comm: ActorComm) -> tuple[int, int, int]:
        """The same of a table of steps; the mean of bytes sent."""
        steps = self._steps(phase, comm)
        delay = row[L.PH_ENDPOINT]
        whole, share = steps.whole, steps.messages[:, 2]
        size = phase.bytes // whole * share + -(-(phase.bytes % whole * share) // whole)
        sent = int(size.sum()) // steps.n
        rooted = phase.do in ROOTED
        if not rooted and (steps.symmetry is Symmetry.NONE or (phase.view == FLAT and not comm.label[1])):
            return L.TAU_DIFFERS, 0, sent
        npus = np.ascontiguousarray(comm.views[-1 if phase.view == FLAT else phase.view][0][0], np.int64)
        net = self._net
        if not rooted:
            own = np.flatnonzero(steps.messages[:, 1] == 0)
            now = delay
            for k in own.tolist():
                source, _, _, flags = (int(v) for v in steps.messages[k])
                a, b = int(npus[source]), int(npus[0])
                now += phases_algorithms.leaves(net, a, b, 0, 0) + free_delay(net, a, b, int(size[k])) + delay
                now += reduction(net, int(size[k])) if flags & 1 else 0
            return now, delay, sent
        module: Any = phases_algorithms
        words, numbers = np.asarray(net.m, np.int64), np.asarray(net.f, np.float64)
        f, ring = len(words), len(words) + L.PHASE_ROW
        table = ring + steps.n
        scratch = table + steps.messages.size
        m = np.concatenate([words, row, npus, steps.messages.reshape(-1), np.zeros(3 * steps.n, np.int64)])
        m[f + L.PH_STEPS], m[f + L.PH_STEPS_N], m[f + L.PH_WHOLE] = table, len(steps.messages), steps.whole
        m[L.C_SCRATCH] = scratch
        if worth_compiling(KERNEL, *COMPILE_FROM, len(steps.messages)):
            module = compiled(KERNEL)
            module.eval_steps(L.State(m, numbers), f, ring)
        else:
            m = m.tolist()
            module.eval_steps(L.State(m, net.f), f, ring)
        return int(max(m[scratch : scratch + steps.n])), delay, sent


def is_sparse(phase: Phase) -> bool:
    """Whether some members of a phase of unequal shares receive nothing from some, and need not wait for them."""
    if phase.sizes is None or not is_open(phase.algorithm, phase.size):
        return False
    pairs = pair_bytes(phase.do, phase.sizes.sizes)
    return int((pairs == 0).sum()) > phase.size


def _sent(phase: Phase) -> int:
    """Bytes that each member sends in a library's collective or a direct one of unequal shares; the mean of these."""
    if phase.sizes is None:
        return library_sent(phase)
    return int(pair_bytes(phase.do, phase.sizes.sizes).sum()) // phase.size


def tree_tables(n: int) -> I64:
    """Parents and a children-first order of both trees on n positions (section 4.3).

    Layout: for tree X, then Y: n parents (-1 for the root), n positions ordered so that children precede parents.
    """

    def perfect(lo: int, hi: int, parent: list[int], order: list[int], above: int) -> None:
        if lo >= hi:
            return
        mid = (lo + hi) // 2
        perfect(lo, mid, parent, order, mid)
        perfect(mid + 1, hi, parent, order, mid)
        parent[mid] = above
        order.append(mid)

    out: list[int] = []
    for root, lo, hi in ((n - 1, 0, n - 1), (0, 1, n)):
        parent, order = [-1] * n, list[int]()
        perfect(lo, hi, parent, order, root)
        order.append(root)
        out += parent + order
    return np.asarray(out, np.int64)
