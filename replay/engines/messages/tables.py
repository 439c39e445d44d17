"""The block of the message-level kernel: rows of NPUs, communicators and collectives, and the first part of the pool."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from chakra.arrays import I64
from chakra.replay.checks.partners import ASTRA_TAGS, tags_of
from chakra.replay.collectives.algorithms import Family
from chakra.replay.collectives.plan import Phase, Schedule
from chakra.replay.collectives.steps import Steps, member_rows
from chakra.replay.config.model import MemoryKind
from chakra.replay.engines.kernels import messages_layout as L
from chakra.replay.engines.kernels.messages_events import hash_tick
from chakra.replay.engines.messages.channels import Channels
from chakra.replay.engines.messages.flows import Flows
from chakra.replay.engines.messages.links import NetworkRows
from chakra.replay.engines.messages.simulated import Simulated, add_class_rings
from chakra.replay.engines.plan_tables import Fields, Planned, PlanRows, StreamShape
from chakra.replay.engines.scenario import Scenario
from chakra.replay.engines.state import Block
from chakra.replay.engines.tables import (
    Actors,
    Code,
    Members,
    add_code,
    add_instances,
    code_of,
    collectives_in_flight,
    head_floats,
    instances_of,
    loads_and_shares,
    set_rules,
)
from chakra.replay.networks.routes import LinkGraph
from chakra.replay.symmetry.rings_used import ROOTED
from chakra.replay.workload.custom import CustomProgram
from chakra.replay.workload.model import Op

#: gap per byte of the bus inside an NPU (replay semantics, section 4.5)
INNER_GAP = 0.0038
#: messages of one tick that a network outside gets at once at most, unless one step sends more
LEAST_BATCH = 1 << 14


@dataclass(frozen=True, slots=True)
class Custom:
    """A custom algorithm on the members of a communicator.

    Attributes
    ----------
    npus
        Numbers of the members among those that are simulated.
    """

    npus: I64
    #: per member: its program, and the NPU at the other end of each of its messages
    programs: tuple[CustomProgram, ...]
    peers: tuple[I64, ...]
    #: per member: the role of the pair that each of its messages is of, or None where all members are simulated
    roles: tuple[I64, ...] | None = None


@dataclass(frozen=True, slots=True)
class Calls:
    """Collectives of a run: the distinct ones, what is known of some by their number, the one of every NPU's calls."""

    planned: Sequence[Planned]
    #: programs of members: custom algorithms, and the messages of a library's collectives
    customs: dict[int, Custom]
    #: a library's collectives: ns from the last member's start to their first messages, or to their end
    delays: dict[int, int]
    plan_of_call: I64


class MessageTables:
    """Rows and state at the start of a run, and where they lie.

    Attributes
    ----------
    m, f
        The arrays of the kernel's state.
    """

    def __init__(
        self,
        scenario: Scenario,
        calls: Calls,
        groups: Sequence[I64],
        graph: LinkGraph | Flows | None,
        who: Simulated,
    ) -> None:
        self.scenario = scenario
        self.calls = calls
        workload, options = scenario.workload, scenario.options
        self.who = who
        self.program_of = np.asarray(workload.program_of[who.npus], np.int64)
        self.contexts = collectives_in_flight(workload.programs)
        self._steps: dict[Steps, int] = {}
        customs = calls.customs.values()
        #: nodes of the longest program of a member of a custom algorithm
        self._longest = max((len(program.op) for custom in customs for program in custom.programs), default=0)
        block = self._block = Block()
        head = self._head = np.zeros(L.NPU_BASE, np.int64)
        block.room(L.NPU_BASE)
        self.dims = len(scenario.network.dims)
        queues = options.queues_per_dim
        self.actors = Actors(block, workload.programs, self.program_of, self.dims, queues)
        aware = options.backend == "aware"
        self.network = NetworkRows(block, head, scenario.network, graph, aware)
        codes = [add_code(block, code_of(program, scenario)) for program in workload.programs]
        self.actors.set_programs(codes, self.program_of)
        self.plans = PlanRows(
            block,
            calls.planned,
            self.dims,
            scenario.system,
            options,
            self._phase_fields,
            self._stream_shape,
        )
        self._set_machine()
        self.works = self.actors.set_overlap(self.contexts) if head[L.C_OVERLAP] else 0
        self._set_comms(groups)
        self._set_messages()
        self._set_bus()
        self.plans.done()
        self.actors.done()
        self._set_room()
        block.put(0, head)
        f = head_floats(scenario.network, scenario.system)
        if scenario.system.shared_bus is not None:
            f[L.F_BUS_G], f[L.F_INNER_G] = scenario.system.shared_bus.gap_per_byte, INNER_GAP
        self.f = np.concatenate([f[: L.F_SPEED], self.network.speed, loads_and_shares(scenario.network)])
        self.m = with_room(block.build(), 2 * int(head[L.C_MARGIN]) + 64 * self.actors.n * L.ROW)

    def _set_machine(self) -> None:
        head, block, actors = self._head, self._block, self.actors
        set_rules(head, self.scenario, self.contexts)
        head[L.C_NPUS] = head[L.C_UNFINISHED] = actors.n
        head[L.C_SLOTS] = actors.n_slots
        head[L.C_DEFERRED] = actors.deferred
        head[L.C_QUEUE_ROWS] = actors.queue_rows
        head[L.C_LISTED] = block.add(np.arange(self.dims))
        head[L.C_LOADS] = L.F_SPEED + len(self.network.speed)
        head[L.C_LAST_TICK] = -1

    def _phase_fields(self, row: list[int], phase: Phase, number: int, template: bool) -> Fields:
        out = {L.PH_JOINT: int(_together(phase))}
        if phase.algorithm.family is Family.LIBRARY:
            out[L.PH_DELAY] = self.calls.delays[number]
            out[L.PH_BESIDE] = int(self.scenario.plans.slows)
            out[L.PH_FAMILY] = int(Family.CUSTOM if number in self.calls.customs else Family.NONE)
        if phase.algorithm.family is Family.STEPS:
            steps = self.scenario.plans.steps(phase, whole=self.calls.planned[number].whole)
            out[L.PH_WHOLE] = steps.whole
            out[L.PH_ROUNDS] = self._rounds_at(steps)
        return out

    def _stream_shape(self, item: Planned) -> StreamShape:
        """A stream: queues of its phases, two inboxes (custom: what each node waits for), and counts of members."""
        bits = pending = 0
        joint = False
        for phase in item.each_phase():
            family = phase.algorithm.family
            joint |= _together(phase)
            if family is Family.DIRECT:
                bits = max(bits, -(-2 * (phase.size - 1) // 32))
            elif family is Family.HALVING_DOUBLING:
                bits = max(bits, 2)
            elif family is Family.STEPS:
                steps = self.scenario.plans.steps(phase, whole=item.whole)
                bits = max(bits, -(-member_rows(steps).most // 32))
            elif family in (Family.CUSTOM, Family.LIBRARY):
                pending = self._longest
        counts = 2 * item.phases if joint else 0
        width = L.STREAM_OF_MESSAGES + item.phases + max(2 * bits, pending) + counts
        return StreamShape(-(-width // 8) * 8, L.STREAM_OF_MESSAGES, counts, bits)

    def _rounds_at(self, steps: Steps) -> int:
        """Where a table of steps lies by member; equal tables are shared."""
        if steps not in self._steps:
            rows = member_rows(steps)
            first = self._block.add(rows.rows)
            members = np.stack([first + rows.start[:-1] * L.STEP_ROW, np.diff(rows.start)], axis=1)
            self._steps[steps] = self._block.add(members)
        return self._steps[steps]

    def _set_comms(self, groups: Sequence[I64]) -> None:
        """Communicators and who is where in them; the slots of an NPU's groups are those of its bindings."""
        membership, actors = self.scenario.membership, self.actors
        if self.who.comms is not None:
            comms = self.who.comms
            self._add_comms(
                Members(comms.group_start, comms.group_comm, comms.group_member), len(comms.comms), []
            )
            return
        slots = membership.comm.shape[1]
        member = np.zeros(membership.comm.shape, np.int64)
        for c, npus in enumerate(groups):
            place, slot = np.nonzero(membership.comm[npus] == c)
            member[npus[place], slot] = place
        comm = np.maximum(membership.comm.reshape(-1), 0).astype(np.int64)
        members = Members(np.arange(actors.n) * slots, comm, member.reshape(-1))
        self._add_comms(members, len(groups), groups)

    def _add_comms(self, members: Members, comms: int, groups: Sequence[I64]) -> None:
        """Rows of communicators of NPUs, or of classes."""
        block, actors = self._block, self.actors
        counts = instances_of(members, actors.programs, comms)
        self.instance_comm = np.repeat(np.arange(len(counts)), counts)
        self.instances, first = add_instances(block, counts)
        rows = np.zeros((comms, L.GROUP_ROW), np.int64)
        rows[:, L.G_INSTANCES] = first
        if self.who.comms is None:
            rows[:, L.G_N] = [len(npus) for npus in groups]
            rows[:, L.G_MEMBERS] = [block.add(npus) for npus in groups]
        else:
            add_class_rings(block, rows, self.who)
        at = block.add(rows) + np.arange(len(rows)) * L.GROUP_ROW
        self.network.set_trees(block, int(at[0]) if len(at) else 0, len(rows))
        call_group = np.array([call.group for p in actors.programs for call in p.calls], np.int64)
        actors.set_calls(members, at, self.plans.at[self.calls.plan_of_call], call_group)

    def _set_messages(self) -> None:
        """Channels of point-to-point messages, which custom algorithms share; memory servers."""
        block, rows, workload = self._block, self.actors.rows, self.scenario.workload
        astra = self.scenario.options.astra
        channels = Channels(self.who.partition)
        first = []
        for actor, program in enumerate(self.actors.programs):
            npu = int(self.who.npus[actor])
            peers = workload.peers.of(npu)[program.p2p_peer]
            tags = tags_of(program, astra=astra)
            first.append(channels.add(tags, program.p2p_bytes, program.p2p_is_send, actor, peers))
        customs = {number: self._custom_rows(item, channels) for number, item in self.calls.customs.items()}
        at = channels.put(block)
        rows[:, L.N_P2P] = at + np.array(first, np.int64) * L.P2P_ROW
        for number, table in customs.items():
            table[:, L.CU_MESSAGES] = at + table[:, L.CU_MESSAGES] * L.P2P_ROW
            self.plans.rows[number, L.P_CUSTOM] = block.add(table)
        memory = self.scenario.memory
        per_node = max(memory.npus_per_node, 1) if memory.kind is MemoryKind.PER_NODE else 0
        server = np.arange(self.actors.n) // per_node if per_node else np.zeros(self.actors.n, np.int64)
        rows[:, L.N_SERVER] = block.room((int(server.max()) + 1) * L.SERVER_ROW) + server * L.SERVER_ROW

    def _custom_rows(self, custom: Custom, channels: Channels) -> I64:
        """Members of a custom algorithm; members of one program share its rows."""
        table = np.zeros((len(custom.programs), L.CUSTOM_ROW), np.int64)
        known: dict[int, tuple[int, int]] = {}
        for k, (program, peers) in enumerate(zip(custom.programs, custom.peers, strict=True)):
            if id(program) not in known:
                known[id(program)] = add_code(self._block, _custom_code(program))
            tag = program.p2p_tag % ASTRA_TAGS if self.scenario.options.astra else program.p2p_tag
            sends = program.op[program.op != Op.TIMER] == Op.SEND
            role = None if custom.roles is None else custom.roles[k]
            first = channels.add(tag, program.p2p_bytes, sends, int(custom.npus[k]), peers, role)
            table[k] = (*known[id(program)], len(program.op), first)
        return table

    def _set_bus(self) -> None:
        head, bus, options = self._head, self.scenario.system.shared_bus, self.scenario.options
        if bus is None:
            return
        head[L.C_BUS] = 1
        head[L.C_BUS_L], head[L.C_BUS_O], head[L.C_BUS_G] = bus.latency, bus.overhead, bus.gap
        head[L.C_BUS_REDUCE] = self.scenario.system.local_reduction_delay
        head[L.C_BUS_ENDS] = self._block.room(4 * self.actors.n * L.BUS_ROW)
        for number, item in enumerate(self.calls.planned):
            self.plans.rows[number, L.P_BUS] = item.whole or not options.astra

    def _set_room(self) -> None:
        head, block = self._head, self._block
        margin = head[L.C_MARGIN] = self._margin()
        head[L.C_CLEAR] = L.NEVER
        if self.scenario.network.outside is not None:
            # as many messages as one step can send, and as many again, so that batches are large
            step = int(margin) // L.ROW
            head[L.C_MAIL_MARK] = max(step, LEAST_BATCH)
            head[L.C_MAIL] = block.room((int(head[L.C_MAIL_MARK]) + step + 1) * L.MAIL_ROW)
        head[L.C_TOP] = block.size

    def _margin(self) -> int:
        """Words that one step of the kernel may take from the pool at most."""
        head, scenario = self._head, self.scenario
        n, n_dims = self.actors.n, self.dims
        queues = scenario.options.queues_per_dim
        p2p = max((len(program.p2p_tag) for program in scenario.workload.programs), default=0)
        window, custom, chunks = 1, 0, 1
        deep = together = False
        for number, item in enumerate(self.calls.planned):
            chunks = max(chunks, len(item.plan.chunks))
            deep |= item.phases >= 5 or item.plan.schedule is not Schedule.PLAN
            for phase in item.each_phase():
                together |= _together(phase)
                if phase.algorithm.family is Family.DIRECT:
                    window = max(window, phase.size - 1)
            if number in self.calls.customs:
                custom = max(custom, *(len(p.op) for p in self.calls.customs[number].programs))
        starts = min(n_dims * queues * int(head[L.C_STREAMS]), self.contexts * chunks) + 2
        rows = (
            64 + self.network.wakes + 6 * p2p + 8 * self.contexts * custom + 6 * starts * window + 6 * window
        )
        if together:
            rows += 2 * n * starts
        if head[L.C_OVERLAP]:
            # all compute nodes of the members of what starts or ends, and the collectives of those that are issued
            rows += 2 * n * self.works * starts + 2 * (self.works + self.contexts)
        # only then can full queues block each other
        in_turn = scenario.system.intra_dimension_scheduling == "FIFO"
        if head[L.C_RELIEVE] and (deep or self.contexts > 1 or not in_turn):
            rows += 4 * n * n_dims * queues * window
        else:
            head[L.C_RELIEVE] = 0
        return rows * L.ROW + (self.contexts + 1) * self.plans.largest

    def rows(self, m: I64, at: int, count: int, size: int) -> I64:
        """So many rows of a block, as a view."""
        return m[at : at + count * size].reshape(count, size)


def _together(phase: Phase) -> bool:
    """Whether all members begin a phase with the last one and end it with the last one."""
    return phase.do in ROOTED or phase.algorithm.family in (Family.NONE, Family.LIBRARY, Family.SWITCH)


def _custom_code(program: CustomProgram) -> Code:
    n = len(program.op)
    comm = np.full(n, -1, np.int64)
    p2p = np.flatnonzero(program.op != Op.TIMER)
    comm[p2p] = np.arange(len(p2p))
    zeros = np.zeros(len(p2p), np.int64)
    return Code(
        op=program.op,
        slot=np.zeros(n, np.int64),
        duration_ns=program.duration_ns,
        child_start=program.child_start,
        child=program.child,
        comm=comm,
        index=np.arange(len(p2p)),
        priority=zeros,
        ordinal=zeros,
    )


def with_room(m: I64, room: int) -> I64:
    """The array with `room` free words in its pool, and a heap and hash table of ticks that are large enough for them.

    There are no more ticks than rows, since each has a row of its own.
    """
    top, used = int(m[L.C_TOP]), 2 * int(m[L.C_HEAP_N])
    rows = (top + room) // L.ROW
    size = 1 << max(rows // 4, 128).bit_length()
    out = np.zeros(top + 2 * rows + size + room, np.int64)
    out[:top] = m[:top]
    heap, hashed = top, top + 2 * rows
    old = int(m[L.C_HEAP])
    out[heap : heap + used] = m[old : old + used]
    buckets = out[heap + 1 : heap + used : 2].tolist()
    if m[L.C_BUCKET]:
        buckets.append(int(m[L.C_BUCKET]))
    for bucket in buckets:
        place = hashed + hash_tick(int(out[bucket + L.B_TICK]), size - 1)
        out[bucket + L.NEXT] = out[place]
        out[place] = bucket
    out[L.C_HEAP], out[L.C_HASH], out[L.C_HASH_MASK] = heap, hashed, size - 1
    out[L.C_TOP] = hashed + size
    return out
