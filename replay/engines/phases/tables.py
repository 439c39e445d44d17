"""Tables of the phase-level kernel: programs, actors, communicators, and room for the state of a run."""

import os
from typing import Any

import numpy as np

from chakra.arrays import I64
from chakra.errors import WorkloadError
from chakra.et import ABSENT
from chakra.replay.collectives.plan import OLD_MODEL
from chakra.replay.config.model import KIND_NUMBERS, MemoryKind, Network, System, Topology
from chakra.replay.engines.kernels import phases_layout
from chakra.replay.engines.phases.channels import message_channels
from chakra.replay.engines.phases.communicators import ActorComm, actor_communicators
from chakra.replay.engines.phases.durations import Durations
from chakra.replay.engines.phases.plan_tables import Planned, PlanTables
from chakra.replay.engines.scenario import Scenario
from chakra.replay.engines.state import Layout
from chakra.replay.engines.tables import concat, ints, starts
from chakra.replay.options import RunOptions
from chakra.replay.symmetry.classes import Partition
from chakra.replay.workload.model import Op, Program
from chakra.replay.workload.node_order import ordinals

#: explicit priorities are cut to this range
MOST_URGENT = 1 << 28

TOPOLOGIES = {
    Topology.RING: phases_layout.TOPO_RING,
    Topology.SWITCH: phases_layout.TOPO_SWITCH,
    Topology.FULLY_CONNECTED: phases_layout.TOPO_FULL,
}

#: intra-dimension-scheduling in system files
ORDERS = {
    "FIFO": phases_layout.ORDER_FIFO,
    "RG": phases_layout.ORDER_RG,
    "smallestFirst": phases_layout.ORDER_SMALLEST_FIRST,
    "lessRemainingPhaseFirst": phases_layout.ORDER_LESS_REMAINING,
}


def physical_memory() -> int:
    """Bytes of memory of this machine; a run that needs more would only make it swap."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 1 << 36


def kernel_network(network: Network, system: System, options: RunOptions) -> phases_layout.Net:
    """The network as the kernel takes it."""
    dims = network.dims
    return phases_layout.Net(
        topo=np.array([TOPOLOGIES[Topology(d.topology)] for d in dims], np.int64),
        size=np.array([d.npus for d in dims], np.int64),
        lat=np.array([d.latency_ns for d in dims], np.float64),
        rate=np.array([d.bytes_per_ns for d in dims], np.float64),
        sum_dims=not options.astra,
        min_bytes=1,
        reduce_rate=system.local_mem_bw_gbps * 1e9,
        rendezvous=options.rendezvous,
        old=options.compat == OLD_MODEL,
        share=np.array([d.bandwidth_gibps / dims[0].bandwidth_gibps for d in dims], np.float64),
        load=np.zeros(len(dims), np.float64),
    )


class PhaseTables:
    """Tables and state of one run, in one block of integers, and where each starts in it."""

    def __init__(self, scenario: Scenario, partition: Partition) -> None:
        system, network, options = scenario.system, scenario.network, scenario.options
        programs = scenario.workload.programs
        self.scenario = scenario
        self.partition = partition
        self.npu_of = partition.representative
        self.program_of = scenario.workload.program_of[self.npu_of]
        self.actor_programs = [programs[p] for p in self.program_of]
        self.node_start = starts([p.n_nodes for p in self.actor_programs])
        self.comm_start = starts([p.n_comm for p in self.actor_programs])
        self.groups = actor_communicators(scenario.membership, partition, network, scenario.rings_used)
        self.net = kernel_network(network, system, options)
        self.channels = message_channels(scenario.workload, partition, self.actor_programs, self.net, options)
        #: distinct collectives of all actors
        self.planned: list[Planned] = []
        self.instance_comm = self._instances()
        self.layout = Layout()
        self.table = np.zeros(phases_layout.TABLE_SIZE, np.int64)
        self._set_programs()
        self._set_actors()
        self._set_comms()
        durations = Durations(network, system, options, self.net, scenario.answers)
        self._plans = PlanTables(self.planned, len(network.dims), durations, system, options)
        self._set("PL", **self._plans.put(self.layout))
        self._set_rules()
        self._set_state()
        self._require_memory()
        self.block = self.layout.build()

    def _set(self, prefix: str, **tables: int) -> None:
        """Tell the kernel where tables start (or the value of a plain number)."""
        for name, cell in tables.items():
            self.table[getattr(phases_layout, f"{prefix}_{name.upper()}")] = cell

    # -- tables ------------------------------------------------------------------------------------------------

    def _instances(self) -> I64:
        """Communicator of every instance of a collective that may be under way; as many as its busiest actor calls."""
        instances = np.zeros(len(self.groups.comms), np.int64)
        for a, program in enumerate(self.actor_programs):
            coll = program.call[program.op == Op.COLLECTIVE]
            groups = np.array([program.calls[int(c)].group for c in coll], np.int64)
            for group, count in enumerate(np.bincount(groups).tolist()):
                c = self.groups.comm_of(a, group)
                instances[c] = max(instances[c], count)
        return np.repeat(np.arange(len(instances)), instances)

    def _set_programs(self) -> None:
        programs = self.scenario.workload.programs
        put = self.layout.put
        self._set(
            "PR",
            start=put(starts([p.n_nodes for p in programs])),
            op=put(concat([p.op for p in programs])),
            slot=put(concat([p.slot for p in programs])),
            dur=put(concat([p.duration_ns for p in programs])),
            child_start=put(self._child_starts()),
            child=put(concat([p.child for p in programs], np.int32)),
            comm=put(concat([p.comm for p in programs])),
            priority=put(concat([self._priorities(p) for p in programs])),
            ordinal=put(concat([ordinals(p) for p in programs])),
            call=put(concat([p.call for p in programs])),
            slot_start=put(starts([len(p.slot_cap) for p in programs])),
            slot_cap=put(concat([p.slot_cap for p in programs])),
            heap_start=put(concat([starts([int(x) for x in p.slot_nodes])[:-1] for p in programs])),
        )

    def _set_actors(self) -> None:
        self.call_start = starts([len(p.calls) for p in self.actor_programs])
        self.call_plan = self._call_plans()
        put = self.layout.put
        self._set(
            "AC",
            program=put(np.asarray(self.program_of, np.int64)),
            node=put(self.node_start[:-1]),
            slot=put(starts([len(p.slot_cap) for p in self.actor_programs])[:-1]),
            comm=put(self.comm_start[:-1]),
            call=put(self.call_start[:-1]),
            p2p=put(self.channels.message_start),
            group=put(self.groups.group_start),
            call_plan=put(self.call_plan),
            call_group=put(ints([call.group for p in self.actor_programs for call in p.calls])),
            group_comm=put(self.groups.group_comm),
            group_member=put(self.groups.group_member),
            channel=put(self.channels.of_message),
            server=put(self._servers()),
        )

    def _priorities(self, program: Program) -> I64:
        """Explicit priority of every node; ASTRA-sim has none that takes effect (section 3.4)."""
        if self.scenario.options.astra:
            return np.zeros(program.n_nodes, np.int64)
        given = program.trace.comm_priority[program.order]
        return np.clip(np.where(given == ABSENT, 0, given), -MOST_URGENT, MOST_URGENT)

    def _child_starts(self) -> I64:
        parts, base = [], 0
        for program in self.scenario.workload.programs:
            parts.append(program.child_start[:-1] + base)
            base += len(program.child)
        parts.append(np.array([base], np.int64))
        return np.concatenate(parts)

    def _call_plans(self) -> I64:
        """Plan of every call of every actor; calls of one kind and size on like communicators share one."""
        scenario = self.scenario
        plan_of: dict[tuple[Any, ...], int] = {}
        call_plan: list[int] = []
        for a, program in enumerate(self.actor_programs):
            for call in program.calls:
                c = self.groups.comm_of(a, call.group)
                comm = self.groups.comms[c]
                key = (call.kind, call.bytes, call.involved, comm.whole, comm.size, None if comm.whole else c)
                if key not in plan_of:
                    plan_of[key] = len(self.planned)
                    plan = scenario.plans.of(call, comm.size, whole=comm.whole)
                    self.planned.append(Planned(plan, comm, call.bytes))
                call_plan.append(plan_of[key])
        return ints(call_plan)

    def _servers(self) -> I64:
        """Memory server of every actor."""
        memory = self.scenario.memory
        if memory.kind is MemoryKind.PER_NODE:
            return np.asarray(self.npu_of // max(memory.npus_per_node, 1), np.int64)
        return np.zeros(len(self.npu_of), np.int64)

    def _set_comms(self) -> None:
        comms, channels = self.groups.comms, self.channels
        instances = np.bincount(self.instance_comm, minlength=len(comms)).tolist()
        members = [np.asarray(comm.actors, np.int64) for comm in comms]
        put = self.layout.put
        self._set(
            "CO",
            actors=put(ints([len(m) for m in members])),
            instance=put(starts(instances)),
            member=put(starts([len(m) for m in members])),
            member_actor=put(concat(members)),
            chan_src=put(channels.src),
            chan_dst=put(channels.dst),
            chan_delay=put(channels.delay_ns),
            chan_back=put(channels.back_ns),
            chan_start=put(channels.start),
            **{name: put(ints(cells)) for name, cells in _ring_tables(comms).items()},
        )

    def _set_rules(self) -> None:
        scenario = self.scenario
        system, options = scenario.system, scenario.options
        contexts = 1
        for program in scenario.workload.programs:
            used = np.unique(program.slot[program.op == Op.COLLECTIVE])
            room = int(program.slot_cap[used].sum()) if len(used) else 0
            contexts = max(contexts, min(room, int((program.op == Op.COLLECTIVE).sum())))
        old = options.compat == OLD_MODEL
        newest = old and system.scheduling_policy == "LIFO"
        self._scratch_cells = self._plans.scratch()
        self.dims = len(scenario.network.dims)
        self.contexts = contexts
        self.max_chunks = max((len(item.plan.chunks) for item in self.planned), default=1)
        self.max_phases = max((item.phases for item in self.planned), default=1)
        self._set(
            "RU",
            actors=len(self.npu_of),
            scratch=self._scratch_cells[0],
            scratch_heap=self._scratch_cells[1],
            dims=self.dims,
            queues=options.queues_per_dim,
            running=-(-system.active_chunks // options.queues_per_dim),
            contexts=contexts,
            max_chunks=self.max_chunks,
            max_phases=self.max_phases,
            kinds=len(KIND_NUMBERS),
            repeat_pass=old or not options.astra,
            order=ORDERS[system.intra_dimension_scheduling],
            first=phases_layout.LAST_ISSUED if newest else phases_layout.FIRST_ISSUED,
            by_id=contexts > 1,
            relieve=old or not options.astra,
            trees=self.layout.put(self._plans.trees),
        )

    def _set_state(self) -> None:
        n = len(self.npu_of)
        nodes, comm_nodes = int(self.node_start[-1]), int(self.comm_start[-1])
        instances, channels = len(self.instance_comm), self.channels
        waiting = int(channels.start[-1]) + 1
        slots = sum(len(p.slot_cap) for p in self.actor_programs)
        receives = sum(int((~p.p2p_is_send).sum()) for p in self.actor_programs)
        streams = n * self.contexts * self.max_chunks
        timers = sum(int(np.minimum(p.slot_cap, p.slot_nodes).sum()) for p in self.actor_programs)
        events = timers + streams + receives + 16
        queues = n * self.dims * self.scenario.options.queues_per_dim
        self.reserve = self.contexts * max((item.block_cells() for item in self.planned), default=0)
        room, minus = self._room, self._minus
        self._set(
            "ST",
            scalars=room(phases_layout.SC_SIZE),
            left=self.layout.put(concat([p.parents for p in self.actor_programs])),
            issue=minus(nodes),
            finish=minus(nodes),
            heap=room(4 * events),
            ready=room(nodes),
            ready_n=room(slots),
            busy=room(slots),
            running=room(n),
            done=minus(n),
            deferred=room(max((p.n_nodes for p in self.actor_programs), default=1)),
            order=room(nodes),
            order_n=room(n),
            group_count=room(len(self.groups.group_comm)),
            comm_ready=minus(comm_nodes),
            comm_instance=minus(comm_nodes),
            inst_plan=minus(instances),
            inst_block=minus(instances),
            inst_issued=room(instances),
            inst_ended=room(instances),
            inst_ready=minus(instances),
            free=minus(len(self.planned)),
            ctx_inst=minus(n * self.contexts + 1),
            ctx_node=room(n * self.contexts),
            ctx_group=room(n * self.contexts),
            ctx_left=room(n * self.contexts),
            ctx_rank=room(n * self.contexts),
            issued=room(n),
            ordered=self.layout.put(np.array([*range(self.dims), -1, 0], np.int64)),
            memo=minus(4 * phases_layout.MEMO),
            st_first=room(streams),
            st_seq=room(streams),
            st_phase=room(streams),
            st_next=minus(streams),
            st_queue=room(streams * self.max_phases),
            q_head=minus(queues),
            q_tail=minus(queues),
            q_busy=room(queues),
            cursor=room(n * self.dims * 3),
            tree_count=room(n * len(KIND_NUMBERS) * self.dims),
            sent=minus(waiting),
            sent_node=minus(waiting),
            arrived=minus(waiting),
            posted=minus(waiting),
            posted_node=minus(waiting),
            sent_n=room(len(channels.src)),
            posted_n=room(len(channels.src)),
            server_free=room(int(self._servers().max(initial=0)) + 1),
            dim_bytes=room(n * self.dims),
            scratch=room(self._scratch_cells[0]),
            scratch_heap=room(self._scratch_cells[1]),
            pool=room(4 * self.reserve + 1),
        )

    def _require_memory(self) -> None:
        """Refuse a run that does not fit this machine.

        Raises
        ------
        WorkloadError
            With the memory that it needs, and why it needs that much.
        """
        if 8 * self.layout.size > physical_memory():
            raise WorkloadError(
                f"the run needs about {self.layout.size * 8 / 2**30:.0f} GiB: {len(self.npu_of):,} of "
                f"{self.scenario.workload.npus:,} NPUs behave differently and are simulated one by one "
                f"({int(self.node_start[-1]):,} nodes). NPUs fold into classes when process groups lie alike in the "
                "network: choose dimensions that align with the groups"
            )

    def _room(self, cells: int) -> int:
        """A table of zeros, of at least one cell."""
        return self.layout.room(max(int(cells), 1))

    def _minus(self, cells: int) -> int:
        """A table of -1, of at least one cell."""
        return self.layout.room(max(int(cells), 1), -1)

    def cells(self, table: str, cells: int) -> I64:
        """The first cells of a table of the block."""
        start = int(self.table[getattr(phases_layout, table)])
        return self.block[start : start + cells]


def _ring_tables(comms: tuple[ActorComm, ...]) -> dict[str, Any]:
    """Logical rings of all communicators by view, and on which of them an actor of the communicator is."""
    view: list[int] = []
    view_ring: list[int] = []
    ring_of: list[int] = []
    ring_start: list[int] = []
    ring_index: list[int] = []
    ring_actor: list[I64] = []
    ring_npu: list[I64] = []
    at = 0
    for comm in comms:
        view.append(len(view_ring))
        for rings in comm.views:
            view_ring.append(len(ring_of))
            where = [0] * len(comm.actors)
            for i, (npus, stand) in enumerate(rings):
                for actor in np.unique(stand).tolist():
                    where[actor] = len(ring_start)
                ring_start.append(at)
                ring_index.append(i)
                ring_actor.append(stand)
                ring_npu.append(npus)
                at += len(npus)
            ring_of += where
    return {
        "view_start": view,
        "view_ring": view_ring,
        "ring_of": ring_of,
        "ring_start": ring_start,
        "ring_size": [len(npus) for npus in ring_npu],
        "ring_actors": [len(np.unique(stand)) for stand in ring_actor],
        "ring_index": ring_index,
        "ring_actor": concat(ring_actor),
        "ring_npu": concat(ring_npu),
    }
