"""Tables of the phase-level kernel: programs, actors, communicators, plans, and room for the state of a run."""

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from chakra.arrays import I64
from chakra.errors import WorkloadError
from chakra.et import ABSENT
from chakra.replay.actor_comms import ActorComm, actor_communicators
from chakra.replay.channels import message_channels
from chakra.replay.classes import Partition
from chakra.replay.collectives.algorithms import Family
from chakra.replay.collectives.matching import ordinals
from chakra.replay.collectives.plan import FLAT, NATIVE, OLD_MODEL, Phase, Plan, Schedule
from chakra.replay.collectives.select import endpoint_delay, least_bytes, make_plan
from chakra.replay.collectives.steps import Do, Steps
from chakra.replay.communicators import Membership
from chakra.replay.config.model import KIND_NUMBERS, Memory, MemoryKind, Network, System, Topology
from chakra.replay.durations import Durations, tree_tables
from chakra.replay.kernels import phases_algorithms, phases_layout
from chakra.replay.layout import Layout
from chakra.replay.options import RunOptions
from chakra.replay.tables import concat, ints, starts
from chakra.replay.usage import ROOTED, usage_of
from chakra.replay.workload import Op, Program, Workload

#: explicit priorities are cut to this range
MOST_URGENT = 1 << 28

TOPOLOGIES = {
    Topology.RING: phases_layout.TOPO_RING,
    Topology.SWITCH: phases_layout.TOPO_SWITCH,
    Topology.FULLY_CONNECTED: phases_layout.TOPO_FULL,
}


def physical_memory() -> int:
    """Bytes of memory of this machine; a run that needs more would only make it swap."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 1 << 36


class PhaseTables:
    """Tables and state of one run, in one block of integers, and where each starts in it."""

    def __init__(
        self,
        workload: Workload,
        membership: Membership,
        partition: Partition,
        system: System,
        network: Network,
        memory: Memory,
        options: RunOptions,
    ) -> None:
        self.workload = workload
        self.membership = membership
        self.partition = partition
        self.system = system
        self.network = network
        self.memory = memory
        self.options = options
        self.plans: list[Plan] = []
        self._plan_of: dict[tuple[Any, ...], int] = {}
        self.plan_comm: list[int] = []  # communicator whose distances decide a plan's durations
        self.plan_bytes: list[int] = []
        self.layout = Layout()
        self.table = np.zeros(phases_layout.TABLE_SIZE, np.int64)
        self.net = self._network()
        self._durations = Durations(network, system, options, self.net)
        self._build()

    def _set(self, prefix: str, **tables: int) -> None:
        """Tell the kernel where tables start (or the value of a plain number)."""
        for name, cell in tables.items():
            self.table[getattr(phases_layout, f"{prefix}_{name.upper()}")] = cell

    # -- tables ------------------------------------------------------------------------------------------------

    def _network(self) -> phases_layout.Net:
        dims = self.network.dims
        return phases_layout.Net(
            topo=np.array([TOPOLOGIES[Topology(d.topology)] for d in dims], np.int64),
            size=np.array([d.npus for d in dims], np.int64),
            lat=np.array([d.latency_ns for d in dims], np.float64),
            rate=np.array([d.bytes_per_ns for d in dims], np.float64),
            sum_dims=not self.options.astra,
            min_bytes=least_bytes(self.options),
            reduce_rate=self.system.local_mem_bw_gbps * 1e9,
            rendezvous=self.options.rendezvous,
            old=self.options.compat == OLD_MODEL,
            share=np.array([d.bandwidth_gibps / dims[0].bandwidth_gibps for d in dims], np.float64),
            load=np.zeros(len(dims), np.float64),
        )

    def _build(self) -> None:
        workload, partition = self.workload, self.partition
        self.npu_of = partition.representative
        n = len(self.npu_of)
        programs = workload.programs
        self.program_of = workload.program_of[self.npu_of]
        nodes = [p.n_nodes for p in programs]
        slots = [len(p.slot_cap) for p in programs]
        put = self.layout.put
        self._set(
            "PR",
            start=put(starts(nodes)),
            op=put(concat([p.op for p in programs])),
            slot=put(concat([p.slot for p in programs])),
            dur=put(concat([p.duration_ns for p in programs])),
            child_start=put(self._child_starts()),
            child=put(concat([p.child for p in programs], np.int32)),
            comm=put(concat([p.comm for p in programs])),
            priority=put(concat([self._priorities(p) for p in programs])),
            ordinal=put(concat([ordinals(p) for p in programs])),
            call=put(concat([p.call for p in programs])),
            slot_start=put(starts(slots)),
            slot_cap=put(concat([p.slot_cap for p in programs])),
            heap_start=put(concat([starts([int(x) for x in p.slot_nodes])[:-1] for p in programs])),
        )
        per_actor = [programs[p] for p in self.program_of]
        self.node_start = starts([p.n_nodes for p in per_actor])
        self.comm_start = starts([p.n_comm for p in per_actor])
        self.actor_programs = per_actor
        usage = usage_of(workload, self.membership, self.system, self.network, self.options)
        comms, group_comm, group_member, group_start = actor_communicators(
            self.membership, partition, self.network, usage
        )
        self.comms = comms
        call_plan, call_group, call_start = self._calls(comms, group_comm, group_start)
        self.call_plan = call_plan
        channel, p2p_start, channels = message_channels(
            workload, partition, per_actor, self.net, self.options
        )
        self._group_comm = group_comm
        self._group_start = group_start
        self._server = self._servers(n)
        self._set(
            "AC",
            program=put(np.asarray(self.program_of, np.int64)),
            node=put(self.node_start[:-1]),
            slot=put(starts([len(p.slot_cap) for p in per_actor])[:-1]),
            comm=put(self.comm_start[:-1]),
            call=put(call_start),
            p2p=put(p2p_start),
            group=put(group_start),
            call_plan=put(call_plan),
            call_group=put(call_group),
            group_comm=put(group_comm),
            group_member=put(group_member),
            channel=put(channel),
            server=put(self._server),
        )
        self._set_comms(comms, channels)
        trees = self._set_plans()
        self._set_rules(trees)
        self._set_state()
        if 8 * self.layout.size > physical_memory():
            raise WorkloadError(
                f"the run needs about {self.layout.size * 8 / 2**30:.0f} GiB: {len(self.npu_of):,} of "
                f"{self.workload.npus:,} NPUs behave differently and are simulated one by one "
                f"({int(self.node_start[-1]):,} nodes). NPUs fold into classes when process groups lie alike in the "
                "network: choose dimensions that align with the groups"
            )
        self.block = self.layout.build()

    def _priorities(self, program: Program) -> I64:
        """Explicit priority of every node; ASTRA-sim has none that takes effect (section 3.4)."""
        if self.options.astra:
            return np.zeros(program.n_nodes, np.int64)
        given = program.trace.comm_priority[program.order]
        return np.clip(np.where(given == ABSENT, 0, given), -MOST_URGENT, MOST_URGENT)

    def _child_starts(self) -> I64:
        parts, base = [], 0
        for program in self.workload.programs:
            parts.append(program.child_start[:-1] + base)
            base += len(program.child)
        parts.append(np.array([base], np.int64))
        return np.concatenate(parts)

    def _calls(self, comms: list[ActorComm], group_comm: I64, group_start: I64) -> tuple[I64, I64, I64]:
        """Plan and group of every call of every actor."""
        call_plan: list[int] = []
        call_group: list[int] = []
        call_start: list[int] = []
        for a, program in enumerate(self.actor_programs):
            call_start.append(len(call_plan))
            for call in program.calls:
                c = int(group_comm[group_start[a] + call.group])
                comm = comms[c]
                key = (
                    call.kind,
                    call.bytes,
                    call.involved,
                    comm.whole,
                    comm.size,
                    None if comm.whole else c,
                )
                if key not in self._plan_of:
                    self._plan_of[key] = len(self.plans)
                    self.plans.append(
                        make_plan(call, comm.size, comm.whole, self.system, self.network, self.options)
                    )
                    self.plan_comm.append(c)
                    self.plan_bytes.append(call.bytes)
                call_plan.append(self._plan_of[key])
                call_group.append(call.group)
        return (
            np.asarray(call_plan or [0], np.int64),
            np.asarray(call_group or [0], np.int64),
            np.asarray(call_start, np.int64),
        )

    def _servers(self, n: int) -> I64:
        if self.memory.kind is MemoryKind.PER_NODE:
            return np.asarray(self.npu_of // max(self.memory.npus_per_node, 1), np.int64)
        return np.zeros(n, np.int64)

    def _set_comms(self, comms: list[ActorComm], channels: dict[str, I64]) -> None:
        view: list[int] = []
        view_ring: list[int] = []
        ring_of: list[int] = []
        ring_start: list[int] = []
        ring_size: list[int] = []
        ring_actors: list[int] = []
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
                    present = np.unique(stand)
                    for actor in present:
                        where[int(actor)] = len(ring_start)
                    ring_start.append(at)
                    ring_size.append(len(npus))
                    ring_actors.append(len(present))
                    ring_index.append(i)
                    ring_actor.append(stand)
                    ring_npu.append(npus)
                    at += len(npus)
                ring_of += where
        instances = np.zeros(len(comms), np.int64)
        group_counts: dict[tuple[int, int], int] = {}
        for a, program in enumerate(self.actor_programs):
            coll = program.call[program.op == Op.COLLECTIVE]
            groups = np.array([program.calls[int(c)].group for c in coll], np.int64)
            for g, count in enumerate(np.bincount(groups)) if len(groups) else ():
                group_counts[a, g] = int(count)
        for (a, g), count in group_counts.items():
            c = int(self._group_comm_at(a, g))
            instances[c] = max(instances[c], count)
        self.instance_comm = np.repeat(np.arange(len(comms)), instances)
        members = [np.asarray(comm.actors, np.int64) for comm in comms]
        self.instances = int(instances.sum())
        self._comm_actors = [len(comm.actors) for comm in comms]
        self._channels_n = len(channels["src"])
        self._channel_cells = int(channels["start"][-1]) + 1
        put = self.layout.put
        self._set(
            "CO",
            actors=put(ints([len(comm.actors) for comm in comms])),
            instance=put(starts([int(i) for i in instances])),
            view_start=put(ints(view)),
            view_ring=put(ints(view_ring)),
            ring_of=put(ints(ring_of)),
            ring_start=put(ints(ring_start)),
            ring_size=put(ints(ring_size)),
            ring_actors=put(ints(ring_actors)),
            ring_index=put(ints(ring_index)),
            ring_actor=put(concat(ring_actor)),
            ring_npu=put(concat(ring_npu)),
            member=put(starts([len(m) for m in members])),
            member_actor=put(concat(members)),
            chan_src=put(channels["src"]),
            chan_dst=put(channels["dst"]),
            chan_delay=put(channels["delay"]),
            chan_back=put(channels["back"]),
            chan_start=put(channels["start"]),
        )

    def _group_comm_at(self, a: int, g: int) -> int:
        return int(self._group_comm[self._group_start[a] + g])

    def _set_plans(self) -> I64:
        """Tables of plans and phases; returns the tables of trees and steps."""
        chunk_start, variant_of = [0], list[int]()
        variant_phase: list[int] = []
        rows: list[tuple[int, ...]] = []
        tables: list[I64] = []
        table_at: dict[int, int] = {}
        kept: list[Steps] = []  # keys of table_at are identities, so they must live
        durations: dict[tuple[Any, ...], tuple[int, int, int]] = {}
        same: dict[tuple[Any, ...], int] = {}

        def table_of(key: int, make: Callable[[], I64]) -> int:
            if key not in table_at:
                table_at[key] = sum(len(t) for t in tables)
                tables.append(make())
            return table_at[key]

        def row_of(phase: Phase, plan: Plan, c: int, left: int) -> tuple[int, ...]:
            comm, size, algorithm = self.comms[c], phase.size, phase.algorithm
            table, window = 0, algorithm.window_in(size)
            cycle = algorithm.cycle_in(size, sub_cluster=not comm.whole)
            family = int(algorithm.family)
            if algorithm.family is Family.TREE:
                table = table_of(size, lambda: tree_tables(size))
            elif phase.do in ROOTED:
                family = phases_layout.ALG_NONE
            elif algorithm.family is Family.STEPS:
                steps = self._durations.steps(phase, comm)
                kept.append(steps)
                table = table_of(id(steps), lambda: np.ascontiguousarray(steps.messages.reshape(-1)))
                window, cycle = steps.whole, len(steps.messages)
            kind = (phase.view, algorithm, phase.do, size, c if phase.view == FLAT else comm.whole)
            key = (*kind, phase.bytes)
            if key not in durations:
                durations[key] = self._durations.of(phase, comm)
            tau, last, sent = durations[key]
            return (
                len(comm.views) - 1 if phase.view == FLAT else phase.view,
                phase.dim,
                int(phase.rule),
                family,
                int(phase.do),
                phase.bytes,
                window,
                cycle,
                endpoint_delay(comm.whole, self.system, self.options),
                tau,
                last,
                table,
                KIND_NUMBERS[plan.kind],
                sent,
                left,
                same.setdefault(kind, len(same) + 1),
            )

        templates: list[int] = []
        where: list[int] = []
        for plan, c in zip(self.plans, self.plan_comm, strict=True):
            first = len(variant_phase)
            for variant in plan.variants:
                variant_phase.append(len(rows))
                rows += [row_of(phase, plan, c, len(variant) - k) for k, phase in enumerate(variant)]
            variant_of += [first + v for v in plan.chunks]
            chunk_start.append(len(variant_of))
            where.append(len(templates))
            by_dim = {pair[0].dim: pair for pair in plan.templates}
            for dim in range(len(self.network.dims)) if by_dim else ():
                templates += [by_dim[dim][0].size if dim in by_dim else 0, len(rows), len(rows) + 1]
                for phase in by_dim.get(dim, ()):
                    row = list(row_of(phase, plan, c, 1))
                    row[phases_layout.PH_SENT] = phase.size
                    if row[phases_layout.PH_TAU] >= 0 and phase.algorithm.family is not Family.STEPS:
                        row[phases_layout.PH_TAU] = phases_layout.TAU_UNKNOWN
                    else:
                        row[phases_layout.PH_TAU] = phases_layout.TAU_DIFFERS
                    rows.append(tuple(row))
        put = self.layout.put
        base = put(np.asarray(rows or [(0,) * phases_layout.PH_CELLS], np.int64).reshape(-1))
        cells = phases_layout.PH_CELLS
        template = np.asarray(templates or [0], np.int64)
        template[1::3] = base + cells * template[1::3]
        template[2::3] = base + cells * template[2::3]
        templates_at = put(template)
        self._set(
            "PL",
            chunks=put(ints([len(p.chunks) for p in self.plans])),
            phases=put(ints([max(len(v) for v in p.variants) for p in self.plans])),
            chunk_start=put(np.asarray(chunk_start, np.int64)),
            variant=put(ints(variant_of)),
            variant_phase=put(base + cells * ints(variant_phase)),
            block=put(ints([self._block_cells(i) for i in range(len(self.plans))])),
            schedule=put(ints([int(p.schedule) for p in self.plans])),
            template=put(templates_at + ints(where)),
            kind=put(ints([int(NATIVE.get(p.kind, Do.ALL_REDUCE)) for p in self.plans])),
            bytes=put(ints([sum(p.variants[v][0].bytes for v in p.chunks) for p in self.plans])),
        )
        return concat(tables) if tables else np.zeros(1, np.int64)

    def _block_cells(self, number: int) -> int:
        """Room that an instance of a plan needs in the pool."""
        plan = self.plans[number]
        chunks, phases = len(plan.chunks), max(len(v) for v in plan.variants)
        cells = 2 * chunks * phases * self._comm_actors[self.plan_comm[number]]
        if plan.schedule is not Schedule.PLAN:
            cells += 1 + chunks
        if plan.templates:
            cells += chunks * phases * phases_layout.PH_CELLS
        return cells

    def _set_rules(self, trees: I64) -> None:
        contexts = 1
        for program in self.workload.programs:
            used = np.unique(program.slot[program.op == Op.COLLECTIVE])
            room = int(program.slot_cap[used].sum()) if len(used) else 0
            contexts = max(contexts, min(room, int((program.op == Op.COLLECTIVE).sum())))
        orders = {
            "FIFO": phases_layout.ORDER_FIFO,
            "RG": phases_layout.ORDER_RG,
            "smallestFirst": phases_layout.ORDER_SMALLEST_FIRST,
            "lessRemainingPhaseFirst": phases_layout.ORDER_LESS_REMAINING,
        }
        old = self.options.compat == OLD_MODEL
        newest = old and self.system.scheduling_policy == "LIFO"
        scratch, scratch_heap = self._scratch()
        self.dims = len(self.network.dims)
        self.contexts = contexts
        self.max_chunks = max((len(p.chunks) for p in self.plans), default=1)
        self.max_phases = max((len(v) for p in self.plans for v in p.variants), default=1)
        self._scratch_cells = scratch, scratch_heap
        self._set(
            "RU",
            actors=len(self.npu_of),
            scratch=scratch,
            scratch_heap=scratch_heap,
            dims=self.dims,
            queues=self.options.queues_per_dim,
            running=-(-self.system.active_chunks // self.options.queues_per_dim),
            contexts=contexts,
            max_chunks=self.max_chunks,
            max_phases=self.max_phases,
            kinds=len(KIND_NUMBERS),
            repeat_pass=old or not self.options.astra,
            order=orders[self.system.intra_dimension_scheduling],
            first=phases_layout.LAST_ISSUED if newest else phases_layout.FIRST_ISSUED,
            by_id=contexts > 1,
            relieve=old or not self.options.astra,
            trees=self.layout.put(trees),
        )

    def _set_state(self) -> None:
        n = len(self.npu_of)
        nodes = int(self.node_start[-1])
        slots = sum(len(p.slot_cap) for p in self.actor_programs)
        receives = sum(int((~p.p2p_is_send).sum()) for p in self.actor_programs)
        streams = n * self.contexts * self.max_chunks
        timers = sum(int(np.minimum(p.slot_cap, p.slot_nodes).sum()) for p in self.actor_programs)
        events = timers + streams + receives + 16
        queues = n * self.dims * self.options.queues_per_dim
        self.reserve = self.contexts * max((self._block_cells(i) for i in range(len(self.plans))), default=0)
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
            group_count=room(len(self._group_comm)),
            comm_ready=minus(self.comm_start[-1]),
            comm_instance=minus(self.comm_start[-1]),
            inst_plan=minus(self.instances),
            inst_block=minus(self.instances),
            inst_issued=room(self.instances),
            inst_ended=room(self.instances),
            inst_ready=minus(self.instances),
            free=minus(len(self.plans)),
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
            sent=minus(self._channel_cells),
            sent_node=minus(self._channel_cells),
            arrived=minus(self._channel_cells),
            posted=minus(self._channel_cells),
            posted_node=minus(self._channel_cells),
            sent_n=room(self._channels_n),
            posted_n=room(self._channels_n),
            server_free=room(int(self._server.max()) + 1 if n else 1),
            dim_bytes=room(n * self.dims),
            scratch=room(self._scratch_cells[0]),
            scratch_heap=room(self._scratch_cells[1]),
            pool=room(4 * self.reserve + 1),
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

    def _scratch(self) -> tuple[int, int]:
        """Room for phases that are evaluated member by member; only as much as the workload's phases can need."""
        cells, heap = 8, 2
        for plan, c in zip(self.plans, self.plan_comm, strict=True):
            comm = self.comms[c]
            variants = [(v, False) for v in plan.variants] + [(v, True) for v in plan.templates]
            for variant, template in variants:
                for phase in variant:
                    rings = comm.views[-1 if phase.view == FLAT else phase.view]
                    n = phase.size
                    if template and phase.algorithm.family is not Family.STEPS:
                        packets = phases_algorithms.packet_count(
                            int(phase.algorithm.family), int(phase.do), n
                        )
                        cells = max(cells, 8 + packets)
                        heap = max(heap, 3 * (2 * phase.algorithm.window_in(n) + 2 * packets + 2))
                    elif not template and all(len(np.unique(s)) == 1 for _, s in rings):
                        continue
                    cells = max(cells, 4 * n)
                    windowed = phase.algorithm.window_in(n) < n - 1
                    if phase.algorithm.family is Family.DIRECT and (
                        windowed or int(phase.do) == phases_layout.DO_ALL_REDUCE
                    ):
                        packets = phases_algorithms.packet_count(
                            int(phase.algorithm.family), int(phase.do), n
                        )
                        cells = max(cells, n + 5 * n + n * packets)
                        window = phase.algorithm.window_in(n)
                        heap = max(heap, 3 * n * (2 * window + 2 * packets + 2))
        return cells, heap
