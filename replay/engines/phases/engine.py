"""The phase-level engine: running the kernel `chakra.replay.engines.kernels.phases` on the tables of `phase_tables`.

What it covers: the congestion-unaware network with every native algorithm, process groups, point-to-point messages
(eager and rendezvous), remote memory; and the congestion-aware network where no link is shared.
`chakra.replay.engines.choice` says why not, if a run needs the message-level engine.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from chakra.errors import WorkloadError
from chakra.jit import compiled, worth_compiling
from chakra.replay.checks.run import order_problem
from chakra.replay.engines.kernels import phases as kernel
from chakra.replay.engines.kernels import phases_layout
from chakra.replay.engines.outcome import RawRun
from chakra.replay.engines.phases.plan_tables import Planned
from chakra.replay.engines.phases.tables import PhaseTables
from chakra.replay.engines.scenario import Scenario
from chakra.replay.engines.tables import ints
from chakra.replay.symmetry.classes import Partition
from chakra.replay.workload.model import Op

#: events from which compiled code pays when it is loaded, when it must be loaded (half a second), and when it must be
#: compiled first (15 s); plain Python takes about 40 us per event
COMPILE_FROM = (200, 15_000, 400_000)
#: events per entry into the kernel, compiled and plain, so that progress can be shown and an interrupt be heard
BUDGET, PLAIN_BUDGET = 2_000_000, 20_000
KERNEL = "chakra.replay.engines.kernels.phases"


class PhaseEngine:
    """One run of the phase-level engine.

    Parameters
    ----------
    scenario
        What is run on what.
    partition
        Classes of NPUs that behave alike; one of each is simulated.

    Raises
    ------
    WorkloadError
        When the tables do not fit this machine's memory, or a message goes to an NPU that is not there.
    """

    def __init__(self, scenario: Scenario, partition: Partition) -> None:
        self.scenario = scenario
        self.tables = PhaseTables(scenario, partition)

    def work_estimate(self) -> int:
        """Events that the run will take, about; a phase that is evaluated member by member counts for its ring."""
        t = self.tables
        weight = ints([_events(item) for item in t.planned])
        total = int(t.node_start[-1])
        for at, program in zip(t.call_start.tolist(), t.actor_programs, strict=False):
            calls = program.call[program.op == Op.COLLECTIVE]
            if len(calls):
                total += int(weight[t.call_plan[at + calls]].sum())
        return total

    def run(self, progress: Callable[[int, int], bool] | None = None) -> RawRun:
        """Run to the end, or until `progress(nodes_done, now_ns)` returns False.

        Raises
        ------
        WorkloadError
            When NPUs meet in a collective with different kinds, sizes or dimensions.
        """
        module: Any = kernel
        if worth_compiling(KERNEL, *COMPILE_FROM, self.work_estimate()):
            module = compiled(KERNEL)
        partial = False
        while True:
            status = module.run(
                self.tables.block,
                self.tables.table,
                self.tables.net,
                self.tables.reserve,
                PLAIN_BUDGET if module is kernel else BUDGET,
            )
            if status == phases_layout.GROW_POOL:
                pool = len(self.tables.block) - int(self.tables.table[phases_layout.ST_POOL])
                self.tables.block = np.concatenate([self.tables.block, np.zeros(pool, np.int64)])
                continue
            scalars = self.tables.cells("ST_SCALARS", phases_layout.SC_SIZE)
            if status == phases_layout.MISMATCH:
                npu = int(self.tables.npu_of[int(scalars[phases_layout.SC_ERR_ACTOR])])
                node = int(scalars[phases_layout.SC_ERR_NODE])
                raise WorkloadError(
                    order_problem(self.scenario.workload, self.scenario.membership, npu, node)
                )
            if status == phases_layout.PAUSED:
                done, now = int(scalars[phases_layout.SC_NODES_DONE]), int(scalars[phases_layout.SC_NOW])
                if progress is not None and not progress(done, now):
                    partial = True
                    break
                continue
            break
        return self._raw(partial)

    def _raw(self, partial: bool) -> RawRun:
        t = self.tables
        cells = t.cells
        n, nodes, comm = len(t.npu_of), int(t.node_start[-1]), int(t.comm_start[-1])
        instances = len(t.instance_comm)
        relieved = int(cells("ST_SCALARS", phases_layout.SC_SIZE)[phases_layout.SC_RELIEVED])
        notes = (
            f"streams blocked each other in full queues {relieved} times; each queue started one more (C13)",
        )
        return RawRun(
            partition=t.partition,
            program_of=np.asarray(t.program_of),
            done_ns=cells("ST_DONE", n),
            node_start=t.node_start,
            issue_ns=cells("ST_ISSUE", nodes),
            finish_ns=cells("ST_FINISH", nodes),
            order=cells("ST_ORDER", nodes),
            order_n=cells("ST_ORDER_N", n),
            comm_start=t.comm_start,
            comm_ready_ns=cells("ST_COMM_READY", comm),
            comm_instance=cells("ST_COMM_INSTANCE", comm),
            instance_ready_ns=cells("ST_INST_READY", instances),
            instance_plan=cells("ST_INST_PLAN", instances),
            instance_comm=t.instance_comm,
            plans=tuple(item.plan for item in t.planned),
            plan_bytes=ints([item.size_bytes for item in t.planned]),
            comms=tuple((c.name, c.size, c.actors) for c in t.groups.comms),
            dim_bytes=cells("ST_DIM_BYTES", n * t.dims).reshape(n, -1),
            partial=partial,
            events=int(cells("ST_SCALARS", phases_layout.SC_SIZE)[phases_layout.SC_EVENTS]),
            engine="phases",
            notes=notes if relieved else (),
        )


def _events(item: Planned) -> int:
    """Events of one instance of a collective, about."""
    members = max(
        (len(npus) if len(np.unique(stand)) > 1 else 1) for rings in item.comm.views for npus, stand in rings
    )
    return len(item.plan.chunks) * item.phases * (1 + members // 4)
