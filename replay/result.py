"""The result of a replay: times, and everything that can be derived from them on demand."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from chakra.arrays import I64, AnyArray
from chakra.replay.communicators import Membership
from chakra.replay.config.model import Memory, Network, System
from chakra.replay.options import RunOptions
from chakra.replay.raw import RawRun
from chakra.replay.workload import Engine, Program, Workload


@dataclass
class ReplayResult:
    """Times of one replay in ns. Derived figures are computed when they are first asked for."""

    raw: RawRun
    workload: Workload
    membership: Membership
    system: System
    network: Network
    memory_config: Memory = field(default_factory=Memory)
    options: RunOptions = field(default_factory=RunOptions)

    @property
    def npus(self) -> int:
        """Number of NPUs."""
        return self.workload.npus

    @property
    def partial(self) -> bool:
        """Whether the run was ended before all NPUs had finished."""
        return self.raw.partial

    @cached_property
    def finish_ns(self) -> I64:
        """Finish of every NPU, shape (npus,)."""
        return self.raw.finish_per_npu()

    @cached_property
    def exposed_comm_ns(self) -> I64:
        """Communication that compute does not hide, per NPU, shape (npus,)."""
        per_actor = np.array([self._exposed(a) for a in range(self.raw.partition.n_classes)], np.int64)
        return np.asarray(per_actor[self.raw.partition.class_of])

    def _exposed(self, actor: int) -> int:
        program = self.program(actor)
        counted = program.engine == Engine.GPU
        if self.system.replay_only:
            counted = program.engine != Engine.CPU
        issued = self.raw.issue_ns[self.raw.nodes(actor)] >= 0
        return int(self.raw.done_ns[actor]) - int(program.duration_ns[counted & issued].sum())

    def program(self, actor: int) -> Program:
        """Program of an actor."""
        return self.workload.programs[int(self.raw.program_of[actor])]

    def node_ticks(self, npu: int) -> tuple[AnyArray, I64, I64]:
        """Node ids, issue and finish ticks of an NPU, in issue order."""
        actor = self.raw.actor_of(npu)
        first = int(self.raw.node_start[actor])
        order = self.raw.order[first : first + int(self.raw.order_n[actor])]
        where = self.raw.nodes(actor)
        trace = self.workload.traces[int(self.workload.trace_of[npu])]
        ids = trace.ids[trace.order_by_id()]
        return ids[order], self.raw.issue_ns[where][order], self.raw.finish_ns[where][order]

    def to_dict(self, *, nodes: bool = False) -> dict[str, Any]:
        """The result document."""
        return {"finish_ns": self.finish_ns.tolist(), "exposed_comm_ns": self.exposed_comm_ns.tolist()}
