"""The phase-level engine: running the kernel `chakra.replay.engines.kernels.phases` on the tables of `phase_tables`.

What it covers: the congestion-unaware network with every native algorithm, process groups, point-to-point messages
(eager and rendezvous), remote memory; and the congestion-aware network where no link is shared.
`chakra.replay.engines.choice` says why not, if a run needs the message-level engine.
"""

from collections.abc import Callable
from time import monotonic
from typing import Any

import numpy as np

from chakra.errors import WorkloadError
from chakra.jit import compiled, worth_changing, worth_compiling
from chakra.replay.checks.run import order_problem
from chakra.replay.engines.kernels import phases as kernel
from chakra.replay.engines.kernels import phases_layout as L
from chakra.replay.engines.outcome import RawRun, order_notes
from chakra.replay.engines.phases.communicators import ActorComm
from chakra.replay.engines.phases.tables import PhaseTables
from chakra.replay.engines.plan_tables import Planned
from chakra.replay.engines.scenario import Scenario
from chakra.replay.engines.tables import instance_numbers, ints
from chakra.replay.symmetry.classes import Partition
from chakra.replay.workload.model import Op

#: events from which compiled code pays when it is loaded, when it must be loaded (half a second), and when it must be
#: compiled first (5 s); plain Python takes about 40 us per event
COMPILE_FROM = (200, 15_000, 125_000)
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
        weight = ints([_events(item, comm) for item, comm in zip(t.planned, t.comm_of_plan, strict=True)])
        total = int(t.actors.node_start[-1])
        for at, program in zip(t.call_start.tolist(), t.actors.programs, strict=False):
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
        tables = self.tables
        compile_it = worth_compiling(KERNEL, *COMPILE_FROM, self.work_estimate())
        module: Any = compiled(KERNEL) if compile_it else kernel
        m: Any = tables.m if compile_it else tables.m.tolist()
        f: Any = tables.f if compile_it else tables.f.tolist()
        partial = False
        plain_s = 0.0
        while True:
            m[L.C_BUDGET] = BUDGET if compile_it else PLAIN_BUDGET
            begun = monotonic()
            status = module.run(L.State(m, f))
            plain_s += monotonic() - begun
            if not compile_it and status == L.BUDGET and worth_changing(KERNEL, plain_s):
                compile_it, module = True, compiled(KERNEL)
                m, f = np.array(m, np.int64), np.array(f, np.float64)
            if status == L.GROW:
                more = len(m) - int(m[L.C_TOP]) + int(m[L.C_MARGIN])
                m = np.concatenate([m, np.zeros(more, np.int64)]) if compile_it else m + [0] * more
            elif status == L.BUDGET:
                if progress is not None and not progress(int(m[L.C_NODES_DONE]), int(m[L.C_NOW])):
                    partial = True
                    break
            else:
                break
        if status == L.MISMATCH:
            npu = int(tables.npu_of[int(m[L.C_ERROR_NPU])])
            raise WorkloadError(
                order_problem(self.scenario.workload, self.scenario.membership, npu, int(m[L.C_ERROR_NODE]))
            )
        tables.m = np.asarray(m, np.int64)
        return self._raw(partial)

    def _raw(self, partial: bool) -> RawRun:
        t, actors = self.tables, self.tables.actors
        n, nodes, comm = actors.n, int(actors.node_start[-1]), int(actors.comm_start[-1])
        npu = t.rows(actors.rows_at, n, L.NPU_ROW)
        states = t.rows(actors.states, nodes, L.NODE_STATE)
        comm_states = t.rows(actors.comm_states, comm, L.COMM_STATE)
        instances = t.rows(t.instances, len(t.instance_comm), L.INSTANCE_ROW)
        relieved, ties = int(t.m[L.C_RELIEVED]), int(t.m[L.C_TIES])
        return RawRun(
            partition=t.partition,
            program_of=t.program_of,
            done_ns=npu[:, L.N_FINISH],
            node_start=actors.node_start,
            issue_ns=states[:, L.NS_ISSUE],
            finish_ns=states[:, L.NS_FINISH],
            order=t.m[actors.order : actors.order + nodes],
            order_n=npu[:, L.N_ISSUED],
            comm_start=actors.comm_start,
            comm_ready_ns=comm_states[:, L.CS_PARTNER],
            comm_instance=instance_numbers(comm_states[:, L.CS_INSTANCE], t.instances),
            instance_ready_ns=instances[:, L.I_READY],
            instance_plan=t.plans.numbers(instances[:, L.I_PLAN]),
            instance_comm=t.instance_comm,
            plans=tuple(item.plan for item in t.planned),
            plan_bytes=ints([item.size_bytes for item in t.planned]),
            comms=tuple((c.name, c.size, c.actors) for c in t.groups.comms),
            comm_of=t.groups.stands_for,
            dim_bytes=t.rows(t.dim_bytes, n, t.dims),
            partial=partial,
            events=int(t.m[L.C_EVENTS]),
            engine="phases",
            relieved=relieved,
            ties=ties,
            notes=order_notes(relieved, ties if self.scenario.options.astra else 0),
        )


def _events(item: Planned, comm: ActorComm) -> int:
    """Events of one instance of a collective, about."""
    members = max(
        (len(npus) if len(comm.on_ring(stand)) > 1 else 1) for rings in comm.views for npus, stand in rings
    )
    return len(item.plan.chunks) * item.phases * (1 + members // 4)
