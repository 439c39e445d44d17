"""Durations of phases whose members start together, before the run."""

from typing import Any

import numpy as np

from chakra.arrays import I64
from chakra.jit import compiled, worth_compiling
from chakra.replay.collectives.algorithms import Family
from chakra.replay.collectives.plan import FLAT, Phase
from chakra.replay.collectives.select import endpoint_delay, steps_of
from chakra.replay.collectives.steps import Steps, Symmetry
from chakra.replay.config.model import Network, System
from chakra.replay.engines.kernels import phases_algorithms, phases_layout
from chakra.replay.engines.phases.communicators import ActorComm
from chakra.replay.networks.answers import EarlyAnswers
from chakra.replay.options import RunOptions
from chakra.replay.symmetry.rings_used import ROOTED

KERNEL = "chakra.replay.engines.kernels.phases_algorithms"
#: messages of a table of steps from which compiled code pays (loaded, in the cache, to be compiled)
COMPILE_FROM = (500, 50_000, 500_000)


class Durations:
    """Durations on one machine; `answers` are those of its network."""

    def __init__(
        self,
        network: Network,
        system: System,
        options: RunOptions,
        net: phases_layout.Net,
        answers: EarlyAnswers,
    ) -> None:
        self._answers = answers
        self._network = network
        self._system = system
        self._options = options
        self._net = net

    def steps(self, phase: Phase, comm: ActorComm) -> Steps:
        """Table of messages of a phase."""
        return steps_of(phase, comm.whole, self._network, self._system, self._options)

    def _steps_duration(self, phase: Phase, comm: ActorComm) -> tuple[int, int, int]:
        """Duration of a table of steps with equal starts, -1 if members end apart; final timer; mean bytes sent."""
        steps = self.steps(phase, comm)
        delay = endpoint_delay(comm.whole, self._system, self._options)
        whole, share = steps.whole, steps.messages[:, 2]
        size = phase.bytes // whole * share + -(-(phase.bytes % whole * share) // whole)
        sent = int(size.sum()) // steps.n
        rooted = phase.do in ROOTED
        if not rooted and (steps.symmetry is Symmetry.NONE or (phase.view == FLAT and not comm.label[1])):
            return -1, 0, sent
        npus = np.ascontiguousarray(comm.views[-1 if phase.view == FLAT else phase.view][0][0], np.int64)
        if not rooted:
            own = np.flatnonzero(steps.messages[:, 1] == 0)
            now = delay
            for k in own.tolist():
                source, _, _, flags = (int(v) for v in steps.messages[k])
                a, b = int(npus[source]), int(npus[0])
                if self._options.rendezvous:
                    now += phases_algorithms.delay(self._net, b, a, phases_layout.CONTROL_BYTES)
                now += phases_algorithms.delay(self._net, a, b, int(size[k])) + delay
                now += phases_algorithms.reduction(self._net, int(size[k])) if flags & 1 else 0
            return now, delay, sent
        ends, work = np.zeros(steps.n, np.int64), np.zeros(2 * steps.n, np.int64)
        table = np.concatenate([steps.messages.reshape(-1), npus])
        module: Any = phases_algorithms
        if worth_compiling(KERNEL, *COMPILE_FROM, len(steps.messages)):
            module = compiled(KERNEL)
        module.eval_steps(
            self._net,
            steps.n,
            phase.bytes,
            delay,
            table,
            0,
            len(steps.messages),
            steps.whole,
            len(table) - steps.n,
            ends,
            work,
        )
        return int(ends.max()), delay, sent

    def of(self, phase: Phase, comm: ActorComm) -> tuple[int, int, int]:
        """Duration of a phase with equal starts (-1 if members differ), its final timer, bytes each member sends."""
        family, size = int(phase.algorithm.family), phase.size
        if phase.algorithm.family is Family.NONE:
            return 0, 0, 0
        if phase.algorithm.family is Family.STEPS:
            return self._steps_duration(phase, comm)
        if phase.algorithm.family is Family.TREE:
            return -1, 0, 2 * phase.bytes
        do = int(phase.do)
        packets = phases_algorithms.packet_count(family, do, size)
        if phase.algorithm.family is Family.HALVING_DOUBLING:
            sent = sum(
                phases_algorithms.packet_bytes(family, do, size, phase.bytes, p, 1) for p in range(packets)
            )
        else:
            sent = packets * phases_algorithms.packet_bytes(family, do, size, phase.bytes, 0, 1)
        flat = phase.view == FLAT
        if flat and not comm.label[1]:
            return -1, 0, sent
        npus = comm.views[-1 if flat else phase.view][0][0]
        window = phase.algorithm.window_in(size)
        delay = endpoint_delay(comm.whole, self._system, self._options)
        known = self._answers.duration_ns(phase, delay, self._net.reduce_rate)
        if known is not None:
            return known, delay, sent
        out = np.zeros(2, np.int64)
        machine = family != phases_layout.ALG_RING or self._options.rendezvous
        work = np.zeros(5 + packets if machine else 1, np.int64)
        heap = np.zeros(3 * (2 * window + 2 * packets + 2) if machine else 1, np.int64)
        run = phases_algorithms.equal_start_time
        tau = run(
            self._net,
            family,
            do,
            size,
            phase.bytes,
            delay,
            window,
            phase.algorithm.cycle_in(size, sub_cluster=not comm.whole),
            np.ascontiguousarray(npus, np.int64),
            0,
            not flat,
            out,
            work,
            heap,
        )
        return int(tau), int(out[0]), sent


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
