"""The block of the phase-level kernel: rows of actors, communicators and collectives, and room for the state of a run."""

import os
from functools import partial
from typing import Any

import numpy as np

from chakra.arrays import I64, bounds
from chakra.errors import WorkloadError
from chakra.io.readable import counted_text, verb
from chakra.replay.collectives.algorithms import Family
from chakra.replay.collectives.plan import Do, Phase
from chakra.replay.collectives.select import counted_bytes
from chakra.replay.config.model import MemoryKind
from chakra.replay.engines.kernels import phases_layout as L
from chakra.replay.engines.kernels.packets import free_delay, packet_count
from chakra.replay.engines.phases.channels import message_channels
from chakra.replay.engines.phases.communicators import ActorComm, actor_communicators
from chakra.replay.engines.phases.durations import Durations, is_sparse
from chakra.replay.engines.plan_tables import Fields, Planned, PlanRows, StreamShape
from chakra.replay.engines.scenario import Scenario
from chakra.replay.engines.state import Block
from chakra.replay.engines.tables import (
    Actors,
    Members,
    add_code,
    add_instances,
    code_of,
    collectives_in_flight,
    dimension_rows,
    free_network,
    head_floats,
    instances_of,
    loads_and_shares,
    set_rules,
)
from chakra.replay.symmetry.classes import Partition


def physical_memory() -> int:
    """Bytes of memory of this machine; a run that needs more would only make it swap."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 1 << 36


class PhaseTables:
    """Rows and state of one run, in one block of integers.

    Attributes
    ----------
    planned
        Distinct collectives of all actors.
    call_plan, call_start
        Plan of each actor's calls, actor after actor, and where an actor's begin.
    instance_comm
        Communicator of every collective that may be under way.
    m, f
        The arrays of the kernel's state.
    """

    def __init__(self, scenario: Scenario, partition: Partition) -> None:
        system, network, options = scenario.system, scenario.network, scenario.options
        programs = scenario.workload.programs
        self.scenario = scenario
        self.partition = partition
        self.npu_of = partition.representative
        self.program_of = np.asarray(scenario.workload.program_of[self.npu_of], np.int64)
        self.dims = len(network.dims)
        self.contexts = collectives_in_flight(programs)
        self.groups = actor_communicators(scenario.membership, partition, network, scenario.rings_used)
        net = free_network(network, system, options)
        self._block = Block()
        self._head = np.zeros(L.NPU_BASE, np.int64)
        self._block.room(L.NPU_BASE)
        queues = options.queues_per_dim
        self.actors = Actors(self._block, programs, self.program_of, self.dims, queues)
        delay_ns = partial(free_delay, net) if scenario.ways is None else scenario.ways.delay_ns
        lanes = message_channels(scenario.workload, partition, self.actors.programs, delay_ns, options)
        self._set_machine()
        codes = [add_code(self._block, code_of(program, scenario)) for program in programs]
        self.actors.set_programs(codes, self.program_of)
        self.planned: list[Planned] = []
        self.comm_of_plan: list[ActorComm] = []
        self.call_start = bounds([len(p.calls) for p in self.actors.programs])
        self.call_plan = self._call_plans()
        self._durations = Durations(self._block, scenario.plans, net, scenario.answers)
        self.plans = PlanRows(
            self._block, self.planned, self.dims, system, options, self._phase_fields, _stream_shape
        )
        self.plans.done()
        self._set_comms()
        self._set_messages(lanes)
        self._set_room(lanes)
        self.actors.done()
        self._block.put(0, self._head)
        self._require_memory()
        self.m = self._block.build(4 * int(self._head[L.C_MARGIN]))
        self.f = np.concatenate([head_floats(network, system), loads_and_shares(network)])

    def _set_machine(self) -> None:
        head, block, actors = self._head, self._block, self.actors
        set_rules(head, self.scenario, self.contexts)
        head[L.C_NPUS] = head[L.C_UNFINISHED] = actors.n
        head[L.C_SLOTS] = actors.n_slots
        head[L.C_DEFERRED] = actors.deferred
        head[L.C_QUEUE_ROWS] = actors.queue_rows
        head[L.C_DIMS] = self.dims
        head[L.C_DIM_ROWS] = block.add(dimension_rows(self.scenario.network))
        head[L.C_LISTED] = block.add(np.arange(self.dims))
        head[L.C_LOADS] = L.F_SPEED + 2 * self.dims

    def _call_plans(self) -> I64:
        """Plan of every call of every actor; calls of one kind and size on like communicators share one."""
        plan_of: dict[tuple[Any, ...], int] = {}
        call_plan: list[int] = []
        for a, program in enumerate(self.actors.programs):
            for call in program.calls:
                c = self.groups.comm_of(a, call.group)
                comm = self.groups.comms[c]
                place = None if comm.whole else c
                key = (call.kind, call.bytes, call.uneven, call.involved, comm.whole, comm.size, place)
                if key not in plan_of:
                    plan_of[key] = len(self.planned)
                    plan = self.scenario.plans.of(call, comm.size, whole=comm.whole)
                    self.planned.append(Planned(plan, comm.whole, len(comm.actors), counted_bytes(call)))
                    self.comm_of_plan.append(comm)
                call_plan.append(plan_of[key])
        return np.array(call_plan, np.int64)

    def _phase_fields(self, row: list[int], phase: Phase, number: int, template: bool) -> Fields:
        comm = self.comm_of_plan[number]
        return self._durations.fields(row, phase, self.planned[number], comm, template)

    def _servers(self) -> I64:
        """Memory server of every actor."""
        memory = self.scenario.memory
        if memory.kind is MemoryKind.PER_NODE:
            return np.asarray(self.npu_of // max(memory.npus_per_node, 1), np.int64)
        return np.zeros(self.actors.n, np.int64)

    def _set_comms(self) -> None:
        groups, block, actors = self.groups, self._block, self.actors
        members = Members(groups.group_start, groups.group_comm, groups.group_member)
        counts = instances_of(members, actors.programs, len(groups.comms))
        self.instance_comm = np.repeat(np.arange(len(counts)), counts)
        self.instances, first = add_instances(block, counts)
        rows = np.zeros((len(groups.comms), L.GROUP_ROW), np.int64)
        rows[:, L.G_N] = [len(comm.actors) for comm in groups.comms]
        rows[:, L.G_INSTANCES] = first
        rows[:, L.G_FLAT] = [len(comm.views) - 1 for comm in groups.comms]
        for c, comm in enumerate(groups.comms):
            rows[c, L.G_VIEWS] = block.add(np.array([self._add_view(comm, v) for v in comm.views], np.int64))
        at = block.add(rows) + np.arange(len(rows)) * L.GROUP_ROW
        call_group = np.array([call.group for p in actors.programs for call in p.calls], np.int64)
        actors.set_calls(members, at, self.plans.at[self.call_plan], call_group)

    def _add_view(self, comm: ActorComm, rings: tuple[tuple[I64, I64], ...]) -> int:
        """Add the rings of a view; returns where the table of the members' rings lies."""
        block = self._block
        ring_of = np.zeros(len(comm.actors), np.int64)
        for i, (npus, stand) in enumerate(rings):
            distinct = comm.on_ring(stand)
            row = np.zeros(L.RING_ROW, np.int64)
            row[L.RG_INDEX], row[L.RG_MEMBERS] = i, len(distinct)
            row[L.RG_PLACES], row[L.RG_NPUS] = block.add(stand), block.add(npus)
            ring_of[distinct] = block.add(row)
        return block.add(ring_of)

    def _set_messages(self, lanes: Any) -> None:
        block, rows = self._block, self.actors.rows
        n = len(lanes.src)
        table = np.zeros((n, L.LANE_ROW), np.int64)
        pairs = block.room(int(lanes.start[-1]) * L.PAIR_ROW, -1)
        table[:, L.LN_SRC] = lanes.src
        table[:, L.LN_DST] = lanes.dst
        table[:, L.LN_NS] = lanes.delay_ns
        table[:, L.LN_BACK_NS] = lanes.back_ns
        table[:, L.LN_FIRST] = pairs + lanes.start[:-1] * L.PAIR_ROW
        self._head[L.C_LANES] = block.add(table)
        rows[:, L.N_LANES] = block.add(lanes.of_message) + lanes.message_start
        servers = self._servers()
        rows[:, L.N_SERVER] = (
            block.room((int(servers.max(initial=0)) + 1) * L.SERVER_ROW) + servers * L.SERVER_ROW
        )
        self.dim_bytes = block.room(self.actors.n * self.dims)
        rows[:, L.N_END_TICK] = -1
        rows[:, L.N_DIM_BYTES] = self.dim_bytes + np.arange(self.actors.n) * self.dims

    def _set_room(self, lanes: Any) -> None:
        """Room for events, for phases that are evaluated member by member, and for instances."""
        head, block, programs = self._head, self._block, self.actors.programs
        chunks = max((len(item.plan.chunks) for item in self.planned), default=0)
        receives = sum(int((~p.p2p_is_send).sum()) for p in programs)
        timers = sum(int(np.minimum(p.slot_cap, p.slot_nodes).sum()) for p in programs)
        events = timers + self.actors.n * self.contexts * chunks + receives + 16
        if head[L.C_OVERLAP]:
            self.actors.set_overlap(self.contexts)
            # as many again for those that mean nothing any more: they are taken out when the heap is full
            events += self.actors.n * self.contexts
            head[L.C_HEAP_ROOM] = 2 * events
            events *= 3
        head[L.C_HEAP] = block.room(L.EVENT_ROW * events)
        head[L.C_MEMO] = block.room(L.MEMO_ROW * L.MEMO, -1)
        cells, credits = _scratch(self.planned, self.comm_of_plan)
        head[L.C_SCRATCH] = block.room(cells)
        head[L.C_CREDITS] = block.room(credits)
        # a message that arrives lets its sender and its receiver issue, in one event
        head[L.C_MARGIN] = 2 * self.contexts * self.plans.largest
        head[L.C_TOP] = block.size

    def _require_memory(self) -> None:
        """Refuse a run that does not fit this machine.

        Raises
        ------
        WorkloadError
            With the memory that it needs, and why it needs that much.
        """
        size = 8 * (self._block.size + 4 * int(self._head[L.C_MARGIN]))
        if size > physical_memory():
            raise WorkloadError(
                f"the run needs about {size / 2**30:.0f} GiB: {self.actors.n:,} of "
                f"{counted_text(self.scenario.workload.npus, 'NPU')} "
                f"{verb(self.scenario.workload.npus, 'behaves', 'behave')} differently and are simulated one by one "
                f"({counted_text(int(self.actors.node_start[-1]), 'node')}). NPUs fold into classes when process "
                "groups lie alike in "
                "the network: choose dimensions that align with the groups"
            )

    def rows(self, at: int, count: int, size: int) -> I64:
        """So many rows of the block, as a view."""
        return self.m[at : at + count * size].reshape(count, size)


def _stream_shape(item: Planned) -> StreamShape:
    marks = int(any(is_sparse(phase) for phase in item.each_phase()))
    return StreamShape(
        width=L.STREAM_OF_PHASES + 2 * item.phases + marks,
        codes=L.STREAM_OF_PHASES,
        counts=item.phases + marks,
    )


def _scratch(planned: list[Planned], comms: list[ActorComm]) -> tuple[int, int]:
    """Room for phases that are evaluated member by member, and for their events; as much as any can need."""
    cells, credits = 8, 2
    for item, comm in zip(planned, comms, strict=True):
        for phase in (phase for pair in item.plan.templates for phase in pair):
            cells, credits = _most((cells, credits), _template_scratch(phase))
        for phase in (phase for variant in item.plan.variants for phase in variant):
            rings = comm.views[phase.view]
            if phase.sizes is not None or any(len(comm.on_ring(stand)) > 1 for _, stand in rings):
                cells, credits = _most((cells, credits), _member_scratch(phase))
    return cells, credits


def _most(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return max(one[0], other[0]), max(one[1], other[1])


def _template_scratch(phase: Phase) -> tuple[int, int]:
    """Cells and heap to evaluate a phase whose size is known during the run only."""
    cells, credits = _member_scratch(phase)
    if phase.algorithm.family is not Family.STEPS:
        packets = packet_count(int(phase.algorithm.family), int(phase.do), phase.size)
        window = phase.algorithm.window_in(phase.size)
        cells, credits = _most((cells, credits), (8 + packets, 3 * (2 * window + 2 * packets + 2)))
    return cells, credits


def _member_scratch(phase: Phase) -> tuple[int, int]:
    """Cells and heap to evaluate a phase whose members start or end apart."""
    n, window = phase.size, phase.algorithm.window_in(phase.size)
    in_turns = window < n - 1 or phase.do is Do.ALL_REDUCE
    if phase.algorithm.family is not Family.DIRECT or not in_turns:
        return 4 * n, 0
    packets = packet_count(int(phase.algorithm.family), int(phase.do), n)
    return max(4 * n, 6 * n + n * packets), 3 * n * (2 * window + 2 * packets + 2)
