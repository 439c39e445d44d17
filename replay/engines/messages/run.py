"""Running a compiled workload on the message-level engine.

Every NPU is simulated with every message of its collectives. This is the engine for what has no closed form: congested
networks, the shared memory bus, custom collective algorithms.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from chakra.arrays import I64
from chakra.errors import WorkloadError
from chakra.replay.checks.partners import ASTRA_TAGS, tags_of
from chakra.replay.checks.run import order_problem
from chakra.replay.collectives.algorithms import Algorithm, Family
from chakra.replay.collectives.call import Call
from chakra.replay.collectives.plan import FLAT, Phase, Plan, Rule
from chakra.replay.collectives.select import endpoint_delay, steps_of
from chakra.replay.collectives.steps import Do, Steps
from chakra.replay.config.model import KIND_NUMBERS, CollectiveKind, Links, MemoryKind, Topology
from chakra.replay.engines.messages import engine as engine
from chakra.replay.engines.outcome import RawRun
from chakra.replay.engines.scenario import Scenario
from chakra.replay.networks.routes import link_graph
from chakra.replay.symmetry.classes import discrete
from chakra.replay.symmetry.rings_used import ROOTED
from chakra.replay.workload.communicators import Communicator
from chakra.replay.workload.custom import CustomProgram, load_algorithm, prefix_of
from chakra.replay.workload.model import Op, Program

FAMILIES = {
    Family.RING: engine.Algorithm.RING,
    Family.DIRECT: engine.Algorithm.DIRECT,
    Family.HALVING_DOUBLING: engine.Algorithm.HALVING_DOUBLING,
    Family.TREE: engine.Algorithm.TREE,
    Family.STEPS: engine.Algorithm.STEPS,
}
RULES = {Rule.ANY: engine.Rule.ANY, Rule.FIRST: engine.Rule.FIRST, Rule.LAST: engine.Rule.LAST}


class MessageRun:
    """One run of the message-level engine."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.workload = scenario.workload
        self.membership = scenario.membership
        self.system = scenario.system
        self.network = scenario.network
        self.memory = scenario.memory
        self.options = scenario.options
        self.per_node = scenario.custom_of_node
        self._ended = False  # by `progress`, before all NPUs had finished
        self.plans: list[Plan] = []
        self.plan_bytes: list[int] = []
        self._collectives: list[engine.Collective] = []
        self._collective_of: dict[tuple[Any, ...], int] = {}
        self._customs: dict[tuple[str, int], list[int]] = {}
        self._custom_programs: list[CustomProgram] = []
        self._programs = [self._program(p) for p in self.workload.programs]
        self.actors = self._actors()

    def _program(self, program: Program) -> engine.Program:
        tag = tags_of(program, astra=self.options.astra)
        return engine.Program(
            op=program.op,
            slot=program.slot,
            duration_ns=program.duration_ns,
            child_start=program.child_start,
            child=np.asarray(program.child, np.int64),
            index=program.call,
            p2p_bytes=program.p2p_bytes,
            p2p_tag=tag,
            slot_cap=program.slot_cap,
        )

    def _actors(self) -> list[engine.Actor]:
        peers = self.workload.peers
        n = self.workload.npus
        if len(peers) and (peers >= n).any():
            npu = int(np.argwhere(peers >= n)[0][0])
            raise WorkloadError(
                f"NPU {npu} sends to or receives from rank {int(peers.max())}, but there are {n} NPUs"
            )
        per_node = max(self.memory.npus_per_node, 1) if self.memory.kind is MemoryKind.PER_NODE else 0
        actors = []
        for npu in range(n):
            program = self.workload.programs[int(self.workload.program_of[npu])]
            calls = [
                (
                    self._collective(call, int(self.membership.comm[npu, call.group])),
                    int(self.membership.comm[npu, call.group]),
                )
                for call in program.calls
            ]
            actors.append(
                engine.Actor(
                    program=int(self.workload.program_of[npu]),
                    calls=np.asarray(calls, np.int64).reshape(-1, 2),
                    peers=peers[npu][program.p2p_peer] if len(program.p2p_peer) else np.zeros(0, np.int64),
                    server=npu // per_node if per_node else 0,
                )
            )
        return actors

    def _collective(self, call: Call, number: int) -> int:
        comm = self.membership.comms[number]
        prefix = prefix_of(call.kind, call.node_id, self.system, self.per_node)
        if comm.size == 1:
            prefix = None
        key = (
            call.kind,
            call.bytes if prefix is None else -1,
            call.involved if prefix is None else None,
            comm.whole,
            comm.size,
            prefix,
            number if prefix is not None else -1,
        )
        if key not in self._collective_of:
            self._collective_of[key] = len(self._collectives)
            if prefix is not None:
                self._add_custom(call, comm, prefix)
            else:
                self._add_native(call, comm)
            self.plan_bytes.append(call.bytes)
        return self._collective_of[key]

    def _add_native(self, call: Call, comm: Communicator) -> None:
        plan = self.scenario.plans.of(call, comm.size, whole=comm.whole)
        self.plans.append(plan)
        first = plan.variants[0]
        if first[0].algorithm.family is Family.NONE:
            mode = engine.Mode.INSTANT if comm.size == 1 else engine.Mode.TOGETHER
            self._collectives.append(engine.Collective(np.zeros(1, np.int64), (), mode=mode))
            return
        self._collectives.append(
            engine.Collective(
                chunk_bytes=np.array([plan.variants[v][0].bytes for v in plan.chunks], np.int64),
                phases=tuple(self._phase(plan, k, comm) for k in range(len(first))),
                endpoint_delay_ns=endpoint_delay(comm.whole, self.system, self.options),
                bus=self.system.shared_bus is not None and (comm.whole or not self.options.astra),
                tree_counter=KIND_NUMBERS[plan.kind],
                least_bytes=0 if plan.kind is CollectiveKind.BARRIER else 1,
            )
        )

    def _phase(self, plan: Plan, number: int, comm: Communicator) -> engine.Phase:
        """A phase of all chunks: sizes follow from what enters, but a table of steps may differ from chunk to chunk."""
        variants = [variant[number] for variant in plan.variants]
        phase = variants[0]
        steps: list[Steps] = []
        if phase.algorithm.family is Family.STEPS:
            made = [steps_of(v, comm.whole, self.network, self.system, self.options) for v in variants]
            steps = [made[v] for v in plan.chunks]
        ring = engine.Ring.DIM
        if phase.view == FLAT:
            ring = engine.Ring.FLAT if comm.whole else engine.Ring.GROUP
        return engine.Phase(
            dim=phase.dim,
            algorithm=FAMILIES[phase.algorithm.family],
            do=phase.do,
            rule=RULES[phase.rule],
            ring=ring,
            window=phase.algorithm.window,
            sub_cluster=not comm.whole,
            steps=tuple(steps),
            joint=phase.do in ROOTED,
        )

    def _add_custom(self, call: Call, comm: Communicator, prefix: str) -> None:
        """A custom algorithm: positions are ranks of the member list, sorted in ASTRA-sim (D20)."""
        key = (prefix, comm.size)
        if key not in self._customs:
            loaded = load_algorithm(prefix, comm.size, self.system, astra=self.options.astra)
            self._customs[key] = [
                len(self.workload.programs) + len(self._custom_programs) + i for i in range(comm.size)
            ]
            self._custom_programs += loaded
        numbers = self._customs[key]
        members = np.sort(comm.members) if comm.whole else comm.members
        position = np.argsort(np.argsort(members)) if self.options.astra else np.arange(comm.size)
        first = len(self.workload.programs)
        programs = tuple(numbers[int(p)] for p in position)
        peers = tuple(members[self._custom_programs[n - first].partner] for n in programs)
        phase = Phase(FLAT, 0, Rule.ANY, Algorithm(Family.NONE, True), Do.ALL_REDUCE, comm.size, call.bytes)
        self.plans.append(Plan(call.kind, (0,), ((phase,),)))
        self._collectives.append(
            engine.Collective(
                chunk_bytes=np.zeros(1, np.int64),
                phases=(
                    engine.Phase(
                        dim=0,
                        algorithm=engine.Algorithm.CUSTOM,
                        do=engine.Do.ALL_REDUCE,
                        rule=engine.Rule.FIXED,
                        ring=engine.Ring.FLAT if comm.whole else engine.Ring.GROUP,
                    ),
                ),
                mode=engine.Mode.CUSTOM,
                custom_programs=programs,
                custom_peers=peers,
            )
        )

    def _custom_as_program(self, custom: CustomProgram) -> engine.Program:
        index = np.full(len(custom.op), -1, np.int64)
        p2p = np.flatnonzero(custom.op != Op.TIMER)
        index[p2p] = np.arange(len(p2p))
        return engine.Program(
            op=custom.op,
            slot=np.zeros(len(custom.op), np.int64),
            duration_ns=custom.duration_ns,
            child_start=custom.child_start,
            child=custom.child,
            index=index,
            p2p_bytes=custom.p2p_bytes,
            p2p_tag=custom.p2p_tag % ASTRA_TAGS if self.options.astra else custom.p2p_tag,
            slot_cap=np.ones(1, np.int64),
        )

    def _pairs(self) -> I64:
        """Pairs of NPUs that may exchange messages, shape (pairs, 2)."""
        n = self.workload.npus
        parts = [np.zeros((0, 2), np.int64)]
        used: set[tuple[int, int]] = set()
        for npu, actor in enumerate(self.actors):
            parts.append(np.stack([np.full(len(actor.peers), npu), actor.peers], axis=1))
            used |= {(int(c), int(g)) for c, g in actor.calls}
        for number, group in used:
            plan = self._collectives[number]
            comm = self.membership.comms[group]
            members = np.sort(comm.members) if comm.whole else comm.members
            for phase in plan.phases:
                rows = members[None, :]
                if phase.ring is engine.Ring.DIM:
                    sizes = [dim.npus for dim in self.network.dims]
                    grid = np.arange(n).reshape(sizes[::-1])
                    rows = np.moveaxis(grid, len(sizes) - 1 - phase.dim, -1).reshape(-1, sizes[phase.dim])
                ring = phase.algorithm is engine.Algorithm.RING and phase.do is not engine.Do.ALL_TO_ALL
                for shift in (1,) if ring else range(1, rows.shape[1]):
                    other = np.roll(rows, -shift, axis=1)
                    parts.append(np.stack([rows.reshape(-1), other.reshape(-1)], axis=1))
        pairs = np.concatenate(parts)
        return np.concatenate([pairs, pairs[:, ::-1]])

    def _model(self) -> engine.EngineModel:
        bus = self.system.shared_bus
        queues = self.options.queues_per_dim
        return engine.EngineModel(
            dims=tuple(
                engine.NetworkDim(
                    d.topology if isinstance(d.topology, Topology) else Topology.SWITCH,
                    d.npus,
                    d.bytes_per_ns,
                    d.latency_ns,
                )
                for d in self.network.dims
            ),
            aware=self.options.backend == "aware",
            graph=None if self.network.links is None else link_graph(self.network, self._pairs()),
            queues_per_dim=queues,
            streams_per_queue=-(-self.system.active_chunks // queues),
            rendezvous=self.options.rendezvous,
            reduce_bytes_per_s=self.system.local_mem_bw_gbps * 1e9,
            bus=None
            if bus is None
            else engine.Bus(
                bus.latency, bus.overhead, bus.gap, bus.gap_per_byte, self.system.local_reduction_delay
            ),
            n_servers=max(actor.server for actor in self.actors) + 1,
            sum_dims=not self.options.astra,
            repeat_pass=not self.options.astra,
            relieve=not self.options.astra,
        )

    def run(self, progress: Callable[[int, int], bool] | None = None) -> RawRun:
        """Run to the end.

        Raises
        ------
        WorkloadError
            When NPUs meet in a collective with different kinds, sizes or dimensions.
        """
        programs = [*self._programs, *(self._custom_as_program(c) for c in self._custom_programs)]
        groups = [
            np.sort(comm.members).tolist() if comm.whole else comm.members.tolist()
            for comm in self.membership.comms
        ]
        machine = engine.MessageEngine(self._model(), programs, self.actors, groups, self._collectives)
        result = machine.run(None if progress is None else self._tell(progress))
        if result.mismatch is not None:
            where = result.mismatch
            raise WorkloadError(order_problem(self.workload, self.membership, where.npu, where.node))
        return self._raw(result)

    def _tell(self, progress: Callable[[int, int], bool]) -> Callable[[int, int], bool]:
        def tell(now: int, done: int) -> bool:
            self._ended = not progress(done, now)
            return not self._ended

        return tell

    def _raw(self, result: engine.EngineResult) -> RawRun:
        n = self.workload.npus
        issue, finish = result.issue_ns, result.node_finish_ns
        node_start = result.node_start
        order = np.zeros(len(issue), np.int64)
        order_n = np.zeros(n, np.int64)
        comm_start = np.zeros(n + 1, np.int64)
        comm_ready: list[I64] = []
        comm_instance: list[I64] = []
        number = {(r.group, r.ordinal): i for i, r in enumerate(result.collectives)}
        for npu in range(n):
            program = self.workload.programs[int(self.workload.program_of[npu])]
            where = slice(int(node_start[npu]), int(node_start[npu + 1]))
            mine = np.lexsort((np.arange(program.n_nodes), issue[where]))
            mine = mine[issue[where][mine] >= 0]
            order[where.start : where.start + len(mine)] = mine
            order_n[npu] = len(mine)
            nodes = np.flatnonzero(program.comm >= 0)
            comm_start[npu + 1] = comm_start[npu] + len(nodes)
            comm_ready.append(result.partner_ns[where][nodes])
            comm_instance.append(self._instances(npu, program, mine, number))
        instances = result.collectives
        return RawRun(
            partition=discrete(n),
            program_of=self.workload.program_of,
            done_ns=result.finish_ns,
            node_start=node_start,
            issue_ns=issue,
            finish_ns=finish,
            order=order,
            order_n=order_n,
            comm_start=comm_start,
            comm_ready_ns=np.concatenate(comm_ready),
            comm_instance=np.concatenate(comm_instance),
            instance_ready_ns=np.array([r.ready_ns for r in instances], np.int64),
            instance_plan=np.array([r.collective for r in instances], np.int64),
            instance_comm=np.array([r.group for r in instances], np.int64),
            plans=tuple(self.plans),
            comms=tuple((c.name, c.size, tuple(c.members.tolist())) for c in self.membership.comms),
            # counted over all NPUs together: no share of them is any one's own
            dim_bytes=np.vstack([result.dim_bytes, np.zeros((n - 1, len(self.network.dims)), np.int64)]),
            plan_bytes=np.asarray(self.plan_bytes or [0], np.int64),
            partial=self._ended,
            events=result.events,
            engine="messages",
            links=self._links(result),
            notes=(
                f"{result.hops:,} messages and hops simulated one by one",
                *(
                    (f"blocked queues were given room {result.relieved} times (C13)",)
                    if result.relieved
                    else ()
                ),
            ),
            messages_counted=True,
        )

    def _instances(self, npu: int, program: Program, issued: I64, number: dict[tuple[int, int], int]) -> I64:
        """Collective instance of each communication node of an NPU."""
        out = np.full(program.n_comm, -1, np.int64)
        ordinals: dict[int, int] = {}
        coll = issued[program.op[issued] == Op.COLLECTIVE]
        for node in coll.tolist():
            call = program.calls[int(program.call[node])]
            group = int(self.membership.comm[npu, call.group])
            ordinal = ordinals.get(group, 0)
            ordinals[group] = ordinal + 1
            out[int(program.comm[node])] = number.get((group, ordinal), -1)
        return out

    def _links(self, result: engine.EngineResult) -> tuple[dict[str, Any], ...]:
        links = result.links
        if links is None:
            return ()
        columns = (links.dim, links.src, links.dst, links.bytes, links.busy_ns, links.queued_ns)
        if self.network.links is not None:
            return self._graph_links(self.network.links, zip(*(c.tolist() for c in columns[2:]), strict=True))
        return tuple(
            {"dim": dim, "from": src, "to": dst, "bytes": size, "busy_ns": busy, "queued_ns": queued}
            for dim, src, dst, size, busy, queued in zip(*(c.tolist() for c in columns), strict=True)
        )

    def _graph_links(self, links: Links, rows: Iterable[tuple[int, ...]]) -> tuple[dict[str, Any], ...]:
        """Figures of single links; a vertex that is no NPU goes by its name."""
        n = self.workload.npus
        names: list[int | str] = [*range(n), *links.vertices]
        out = []
        for number, size, busy, queued in rows:
            link = links.links[number]
            ends = {"dim": 0, "from": names[link.src], "to": names[link.dst]}
            out.append({**ends, "bytes": size, "busy_ns": busy, "queued_ns": queued})
        return tuple(out)
