"""Running a scenario on the message-level engine.

Every NPU is simulated with every message of its collectives. This is the engine for what has no closed form: congested
networks, the shared memory bus, custom collective algorithms.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from chakra.arrays import I64
from chakra.errors import WorkloadError
from chakra.io.readable import counted, counted_text, with_article
from chakra.replay.checks.run import order_problem
from chakra.replay.collectives.algorithms import Algorithm, Family
from chakra.replay.collectives.call import Call
from chakra.replay.collectives.in_network import switch_dimension
from chakra.replay.collectives.plan import FLAT, Phase, Plan, Rule, library_phase
from chakra.replay.collectives.select import counted_bytes
from chakra.replay.collectives.steps import Do
from chakra.replay.config.model import CollectiveKind, bytes_per_ns
from chakra.replay.engines.kernels import messages_layout as L
from chakra.replay.engines.messages.alone import LibraryCall
from chakra.replay.engines.messages.engine import simulate
from chakra.replay.engines.messages.flow_setup import every_npu, folded, largest_message
from chakra.replay.engines.messages.flows import Flows
from chakra.replay.engines.messages.library import (
    ALONE_NS,
    FIRST_TAG,
    Delays,
    MemberPrograms,
    delays_of,
)
from chakra.replay.engines.messages.simulated import everybody
from chakra.replay.engines.messages.tables import Calls, Custom, MessageTables
from chakra.replay.engines.messages.use import outside_use
from chakra.replay.engines.messages.volume import bytes_sent
from chakra.replay.engines.outcome import RawRun, order_notes
from chakra.replay.engines.plan_tables import Planned
from chakra.replay.engines.scenario import Scenario
from chakra.replay.engines.tables import instance_numbers
from chakra.replay.networks.exchange import outside_run, tell
from chakra.replay.networks.flow.paths import port
from chakra.replay.networks.interface import LinkUse
from chakra.replay.networks.routes import LinkGraph, link_graph
from chakra.replay.options import FLOW
from chakra.replay.symmetry.library_talk import by_position
from chakra.replay.workload.communicators import Communicator
from chakra.replay.workload.custom import prefix_of
from chakra.replay.workload.model import Op

#: events that a message stands for, to choose between compiled and plain kernel; a flow changes the shares of others
_EVENTS = {"aware": 4, FLOW: 14}


class MessageRun:
    """One run of the message-level engine.

    Parameters
    ----------
    scenario
        What is run on what.
    alone
        Whether collectives of a library have their messages only, without the delay that makes up its time.

    Raises
    ------
    WorkloadError
        When a message goes to an NPU that is not there.
    """

    def __init__(self, scenario: Scenario, *, alone: bool = False) -> None:
        self.scenario = scenario
        self.workload = scenario.workload
        self.membership = scenario.membership
        self._planned: list[Planned] = []
        self._plan_of: dict[tuple[Any, ...], int] = {}
        self._customs: dict[int, Custom] = {}
        self._library: dict[int, LibraryCall] = {}
        self._programs: dict[tuple[object, ...], MemberPrograms] = {}
        #: rings whose collectives trees of switches carry out, on links: number of the tree and NPUs
        self._trees: dict[tuple[int, bytes], I64] = {}
        #: members of each communicator in the order of its rings
        self._groups = [by_position(comm) for comm in self.membership.comms]
        self._check_peers()
        self._setup = folded(scenario)
        self.who = everybody(self.workload.npus) if self._setup is None else self._setup.who
        #: ring of all members of a communicator of classes, by its number and the member
        self._flat_ring = {(ring.comm, ring.member): ring for ring in self.who.rings}  # the flat one is last
        self._plan_of_call = self._call_plans()
        self._delays = Delays([ALONE_NS] * len(self._library)) if alone else self._library_delays()

    def _library_delays(self) -> Delays:
        """How long the collectives of a library wait before they send."""
        library = self.scenario.plans.library
        if library is None:
            return Delays([])

        def alone(scenario: Scenario) -> RawRun:
            return MessageRun(scenario, alone=True).run()

        calls = list(self._library.values())
        return delays_of(calls, self.scenario, library, alone if library.sends else None)

    def _check_peers(self) -> None:
        peers, n = self.workload.peers, self.workload.npus
        outside = np.flatnonzero(peers.flat >= n)
        if len(outside):
            npu = int(peers.owners()[outside[0]])
            raise WorkloadError(
                f"NPU {npu} sends to or receives from rank {int(peers.flat.max())}, but there are {counted(n, 'NPU')}"
            )

    def _call_plans(self) -> I64:
        """Plan of every call of every NPU that is simulated."""
        out: list[int] = []
        known: dict[tuple[int, bytes], list[int]] = {}
        classes = self.who.comms
        for actor, npu in enumerate(self.who.npus.tolist()):
            number, comms = int(self.workload.program_of[npu]), self.membership.comm[npu]
            key = (number if classes is None else ~actor, comms.tobytes())
            if key not in known:
                calls = self.workload.programs[number].calls
                if classes is None:
                    known[key] = [self._plan(call, int(comms[call.group])) for call in calls]
                else:
                    known[key] = [
                        self._plan_of_classes(call, classes.comm_of(actor, call.group)) for call in calls
                    ]
            out += known[key]
        return np.array(out, np.int64)

    def _plan_of_classes(self, call: Call, number: int) -> int:
        """Plan of a call on a communicator of classes, whose streams are those of its classes."""
        assert self.who.comms is not None
        comm = self.who.comms.comms[number]
        key = (call.kind, call.bytes, call.involved, number)
        if key not in self._plan_of:
            self._plan_of[key] = len(self._planned)
            plan = self.scenario.plans.of(call, comm.size, whole=comm.whole)
            self._add_library(call, plan, self._flat_ring[number, 0].real, number)
            self._planned.append(Planned(plan, comm.whole, len(comm.actors), counted_bytes(call)))
        return self._plan_of[key]

    def _plan(self, call: Call, number: int) -> int:
        comm = self.membership.comms[number]
        prefix = prefix_of(call.kind, call.node_id, self.scenario.system, self.scenario.custom_of_node)
        if comm.size == 1:
            prefix = None
        key: tuple[Any, ...] = (call.kind, prefix, number)
        if prefix is None:
            key = (call.kind, call.bytes, call.uneven, call.involved, comm.whole, comm.size)
            if self.scenario.plans.library is not None and not comm.whole:
                key = (*key, number)  # its time follows from where its members are
        elif call.uneven is not None:
            raise WorkloadError(
                f"{with_article(call.kind.value)} of unequal shares has a custom algorithm, whose traces give "
                "sizes of their own; leave the algorithm out for it"
            )
        if key not in self._plan_of:
            self._plan_of[key] = len(self._planned)
            if prefix is not None:
                plan = self._add_custom(call, comm, number, prefix)
            else:
                plan = self.scenario.plans.of(call, comm.size, whole=comm.whole)
                self._add_library(call, plan, number, number)
            self._planned.append(Planned(plan, comm.whole, comm.size, counted_bytes(call)))
        return self._plan_of[key]

    def _add_library(self, call: Call, plan: Plan, real: int, number: int) -> None:
        """Messages of a library's collective on a communicator, where it has some; of classes it has another number."""
        phase, library = library_phase(plan), self.scenario.plans.library
        if phase is None or library is None:
            return
        comm, members = self.membership.comms[real], self._groups[real]
        like = {} if self._setup is None else self._setup.like
        kind = CollectiveKind(phase.algorithm.kind)
        item = LibraryCall(call, phase, comm, members, like.get((kind, phase.bytes, real)))
        self._library[len(self._planned)] = item
        if not library.sends:
            return
        key = (kind, phase.bytes, phase.sizes, *library.layout(members))
        if key not in self._programs:
            found = library.phase_lanes(phase, members)
            self._programs[key] = MemberPrograms(found, comm.size)
        made, tag = self._programs[key], FIRST_TAG + len(self._planned)
        if self.who.comms is None:
            programs = made.of(range(comm.size), tag)
            peers = tuple(members[program.partner] for program in programs)
            self._customs[len(self._planned)] = Custom(members, programs, peers)
            return
        actors = self.who.comms.comms[number].actors
        rings = [self._flat_ring[number, place] for place in range(len(actors))]
        programs = made.of([ring.index for ring in rings], tag)
        self._customs[len(self._planned)] = Custom(
            np.array(actors, np.int64),
            programs,
            tuple(ring.npus[program.partner] for ring, program in zip(rings, programs, strict=True)),
            tuple(made.roles(ring.index) for ring in rings),
        )

    def _add_custom(self, call: Call, comm: Communicator, number: int, prefix: str) -> Plan:
        """A custom algorithm: positions are ranks of the member list, sorted in ASTRA-sim (D20)."""
        algorithm_of = self.scenario.custom_algorithms.of(prefix, comm.size)
        members = self._groups[number]
        astra = self.scenario.options.astra
        position = np.argsort(np.argsort(members)) if astra else np.arange(comm.size)
        programs = tuple(algorithm_of[int(p)] for p in position)
        peers = tuple(members[program.partner] for program in programs)
        self._customs[len(self._planned)] = Custom(members, programs, peers)
        algorithm = Algorithm(Family.CUSTOM)
        phase = Phase(FLAT, 0, Rule.FIXED, algorithm, Do.ALL_REDUCE, comm.size, call.bytes)
        return Plan(call.kind, (0,), ((phase,),))

    def _pairs(self) -> I64:
        """Pairs of NPUs that may exchange messages, shape (pairs, 2), and of NPUs and switches (`port`)."""
        workload, network = self.workload, self.scenario.network
        dims = network.dims
        n = workload.npus
        parts, ports = [np.zeros((0, 2), np.int64)], [np.zeros((0, 2), np.int64)]
        used: set[tuple[int, int]] = set()
        at = 0
        for npu, number in enumerate(workload.program_of.tolist()):
            program = workload.programs[number]
            if len(program.p2p_peer):
                peers = workload.peers.of(npu)[program.p2p_peer]
                parts.append(np.stack([np.full(len(peers), npu), peers], axis=1))
            plans = self._plan_of_call[at : at + len(program.calls)].tolist()
            groups = self.membership.comm[npu][[call.group for call in program.calls]].tolist()
            used |= set(zip(plans, groups, strict=True))
            at += len(program.calls)
        for plan, group in used:
            if plan in self._library:
                custom = self._customs.get(plan)
                for npu, peers in zip(custom.npus.tolist(), custom.peers, strict=True) if custom else ():
                    parts.append(np.unique(np.stack([np.full(len(peers), npu), peers], axis=1), axis=0))
                continue
            for phase in self._planned[plan].each_phase():
                rows = self._groups[group][None, :]
                if phase.view != FLAT:
                    grid = np.arange(n).reshape([dim.npus for dim in reversed(dims)])
                    rows = np.moveaxis(grid, len(dims) - 1 - phase.view, -1).reshape(
                        -1, dims[phase.view].npus
                    )
                if phase.algorithm.family is Family.SWITCH:
                    if network.links is not None:
                        number = group if phase.view == FLAT else len(self._groups) + phase.view
                        self._trees.update({(number, row.tobytes()): row for row in rows})
                        continue
                    dim = phase.view if phase.view != FLAT else switch_dimension(rows[0], network)
                    assert dim is not None, "a group that no switch joins is refused"
                    npus = np.repeat(rows.reshape(-1), 2)
                    ends = [port(network, dim, back=back) for back in (False, True)]
                    ports.append(np.stack([npus, np.tile(ends, rows.size)], axis=1))
                    continue
                ring = phase.algorithm.family is Family.RING and phase.do is not Do.ALL_TO_ALL
                for shift in (1,) if ring else range(1, rows.shape[1]):
                    other = np.roll(rows, -shift, axis=1)
                    parts.append(np.stack([rows.reshape(-1), other.reshape(-1)], axis=1))
        pairs = np.concatenate(parts)
        return np.concatenate([pairs, pairs[:, ::-1], *ports])

    def _carried(self) -> tuple[I64, int]:
        """Pairs that may exchange messages, and the bytes of all, about."""
        sent = bytes_sent(self.scenario, self._planned, self._customs, self._plan_of_call)
        return self._pairs(), sent

    def _flows(self) -> Flows:
        """Paths of all flows, and the largest of them."""
        setup = self._setup
        if setup is None:
            pairs = self._pairs()
            trees = [(number, row) for (number, _), row in self._trees.items()]
            setup = every_npu(self.scenario, pairs, trees)
        largest = largest_message([item.plan for item in self._planned])
        sizes = [program.p2p_bytes for program in self.workload.programs]
        sizes += [program.p2p_bytes for custom in self._customs.values() for program in custom.programs]
        cap = self.scenario.network.flow_cap_gibps
        return setup.flows(
            max(largest, L.CONTROL_BYTES, *(int(size.max(initial=0)) for size in sizes)),
            None if cap is None else bytes_per_ns(cap),
        )

    def work_estimate(self) -> int:
        """Rough number of events, to choose between compiled and plain kernel."""
        factor = _EVENTS.get(self.scenario.options.backend, 3)
        weight = np.array([self._messages(k) for k in range(len(self._planned))] or [0], np.int64)
        total = at = 0
        for number in self.workload.program_of[self.who.npus].tolist():
            program = self.workload.programs[number]
            total += 2 * program.n_nodes
            if program.calls:
                uses = np.bincount(
                    program.call[program.op == Op.COLLECTIVE], minlength=len(program.calls)
                ).astype(np.int64)
                plans = self._plan_of_call[at : at + len(program.calls)]
                total += factor * int((weight[plans] * uses).sum())
                at += len(program.calls)
        return total

    def _messages(self, number: int) -> int:
        """Messages of a member in a collective, about."""
        item = self._planned[number]
        if number in self._customs:
            return len(self._customs[number].programs[0].op)
        messages = 0
        for phase in item.plan.variants[0]:
            ring = phase.size
            everybody = phase.algorithm.family is Family.RING and phase.do is Do.ALL_TO_ALL
            messages += ring * (ring - 1) // 2 if everybody else 2 * ring
        return messages * len(item.plan.chunks)

    def run(self, progress: Callable[[int, int], bool] | None = None) -> RawRun:
        """Run to the end.

        Raises
        ------
        WorkloadError
            When NPUs meet in a collective with different kinds, sizes or dimensions.
        """
        network = self.scenario.network
        delays = dict(zip(self._library, self._delays.ns, strict=True))
        graph: LinkGraph | Flows | None = None
        if self.scenario.options.backend == FLOW:
            graph = self._flows()
        elif network.links is not None and network.outside is None:
            graph = link_graph(network, self._pairs())
        tables = MessageTables(
            self.scenario,
            Calls(self._planned, self._customs, delays, self._plan_of_call),
            self._groups,
            graph,
            self.who,
        )
        links: tuple[dict[str, Any], ...] = ()
        link_use: dict[str, object] = {}
        said: tuple[str, ...] = ()
        if network.outside is None:
            ended = simulate(tables, self.work_estimate(), progress, None)
        else:
            tell(network.outside, self._carried)
            with outside_run(network.outside) as exchange:
                ended = simulate(tables, self.work_estimate(), progress, exchange)
                links = tuple(_outside_link(use) for use in exchange.links())
                said = exchange.notes()
                end_ns = int(tables.m[L.C_NOW])
                link_use = outside_use(exchange.use_over_time(end_ns), end_ns)
        m = tables.m
        if m[L.C_STATUS] == L.MISMATCH:
            npu, node = int(self.who.npus[int(m[L.C_ERROR_NPU])]), int(m[L.C_ERROR_NODE])
            raise WorkloadError(order_problem(self.workload, self.membership, npu, node))
        if self.scenario.options.backend in ("aware", FLOW):
            links = tables.network.used(m)
            link_use = tables.network.over_time(m, int(m[L.C_NOW]))
        return self._raw(tables, links, link_use, said, ended)

    def _raw(
        self,
        t: MessageTables,
        links: tuple[dict[str, Any], ...],
        link_use: dict[str, object],
        said: tuple[str, ...],
        ended: bool,
    ) -> RawRun:
        m, actors = t.m, t.actors
        n, nodes, comms = actors.n, int(actors.node_start[-1]), int(actors.comm_start[-1])
        npu = t.rows(m, actors.rows_at, n, L.NPU_ROW)
        states = t.rows(m, actors.states, nodes, L.NODE_STATE)
        comm_states = t.rows(m, actors.comm_states, comms, L.COMM_STATE)
        instances = t.rows(m, t.instances, len(t.instance_comm), L.INSTANCE_ROW)
        return RawRun(
            partition=self.who.partition,
            program_of=t.program_of,
            done_ns=npu[:, L.N_FINISH].copy(),
            node_start=actors.node_start,
            issue_ns=states[:, L.NS_ISSUE].copy(),
            finish_ns=states[:, L.NS_FINISH].copy(),
            order=m[actors.order : actors.order + nodes].copy(),
            order_n=npu[:, L.N_ISSUED].copy(),
            comm_start=actors.comm_start,
            comm_ready_ns=comm_states[:, L.CS_PARTNER].copy(),
            comm_instance=instance_numbers(comm_states[:, L.CS_INSTANCE], t.instances),
            instance_ready_ns=instances[:, L.I_READY].copy(),
            instance_plan=t.plans.numbers(instances[:, L.I_PLAN]),
            instance_comm=t.instance_comm,
            plans=tuple(item.plan for item in self._planned),
            comms=self._comms(),
            comm_of=self._comm_of(),
            dim_bytes=t.network.dim_bytes(m, n),
            plan_bytes=np.asarray([item.size_bytes for item in self._planned] or [0], np.int64),
            partial=ended,
            events=int(m[L.C_EVENTS]),
            engine="messages",
            links=links,
            link_use=link_use,
            relieved=int(m[L.C_RELIEVED]),
            notes=(
                *self._fold_notes(),
                f"{counted_text(int(m[L.C_MESSAGES]), 'message')} and hops simulated one by one",
                *order_notes(int(m[L.C_RELIEVED])),
            ),
            messages_counted=True,
            remarks=(*self._delays.notes(), *said),
        )

    def _comms(self) -> tuple[tuple[str, int, tuple[int, ...]], ...]:
        """Name, size and simulated members of each communicator."""
        if self.who.comms is not None:
            return tuple((c.name, c.size, c.actors) for c in self.who.comms.comms)
        return tuple((c.name, c.size, tuple(c.members.tolist())) for c in self.membership.comms)

    def _comm_of(self) -> I64:
        """Which communicator stands for each group of NPUs."""
        if self.who.comms is not None:
            return self.who.comms.stands_for
        return np.arange(len(self.membership.comms), dtype=np.int64)

    def _fold_notes(self) -> tuple[str, ...]:
        """How many NPUs were simulated for how many."""
        if self._setup is None:
            return ()
        classes, npus = self.who.partition.n_classes, self.workload.npus
        return (
            (
                f"flows of {classes:,} of {counted_text(npus, 'NPU')} simulated, which stand for all that cannot be "
                "told apart"
            ),
        )


def _outside_link(use: LinkUse) -> dict[str, Any]:
    """A row of the result document."""
    return {
        "dim": 0,
        "from": use.source,
        "to": use.target,
        "bytes": use.bytes,
        "busy_ns": use.busy_ns,
        "queued_ns": use.queued_ns,
    }
