"""Front of the message-level engine: values in, arrays for the kernel, results out.

The engine simulates every message of every collective on every link, in ASTRA-sim's order of events, so it is exact
for both network backends. What it is asked to simulate is given as *programs* (distinct traces), *actors* (NPUs, each
running a program), *groups* and *collectives* (chunks and phases); nothing here reads a trace or a configuration.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np

from chakra.arrays import F64, I64
from chakra.replay.config.model import Topology
from chakra.replay.kernels import messages_layout as lay
from chakra.replay.kernels.messages_events import hash_tick

#: cursors of a dimension, see the kernel
CURSORS = 13
#: events after which control comes back for progress and interrupts
STEP = 4_000_000
#: estimated events from which starting the compiler pays
COMPILE_FROM = 60_000


class Algorithm(IntEnum):
    """Algorithm of a phase."""

    RING = lay.RING
    DIRECT = lay.DIRECT
    HALVING_DOUBLING = lay.HALVING_DOUBLING
    TREE = lay.TREE
    CUSTOM = lay.CUSTOM


class Do(IntEnum):
    """What a phase does to the data."""

    ALL_REDUCE = lay.ALL_REDUCE
    REDUCE_SCATTER = lay.REDUCE_SCATTER
    ALL_GATHER = lay.ALL_GATHER
    ALL_TO_ALL = lay.ALL_TO_ALL


class Rule(IntEnum):
    """Which of its dimension's queues a phase takes (replay semantics, 3.4)."""

    ANY = lay.RULE_ANY
    FIRST = lay.RULE_FIRST
    LAST = lay.RULE_LAST
    #: always the dimension's queue 0, without moving a cursor (custom algorithms)
    FIXED = lay.RULE_FIXED


class Ring(IntEnum):
    """Logical ring of a phase."""

    #: the NPUs that differ only in the coordinate of the phase's dimension; whole-system groups only
    DIM = lay.RING_DIM
    #: all NPUs in order of number; whole-system groups only
    FLAT = lay.RING_FLAT
    #: the group's members in the order of its list
    GROUP = lay.RING_GROUP


class Mode(IntEnum):
    """How a collective runs."""

    NATIVE = lay.MODE_NATIVE
    #: a program of sends and receives per member
    CUSTOM = lay.MODE_CUSTOM
    #: no messages: ends on all members when the last one has issued it
    TOGETHER = lay.MODE_TOGETHER
    #: ends at once on each member, like a zero-time node
    INSTANT = lay.MODE_INSTANT


@dataclass(frozen=True, slots=True)
class Phase:
    """One algorithm on one logical ring."""

    dim: int
    algorithm: Algorithm
    do: Do
    rule: Rule = Rule.ANY
    ring: Ring = Ring.DIM
    #: messages in flight of `DIRECT`; 0 = ring size - 1
    window: int = 0
    #: whether `DIRECT` counts its plain packets as in a group smaller than the system (Z of replay semantics 4.2)
    sub_cluster: bool = False


@dataclass(frozen=True, slots=True)
class Collective:
    """A distinct collective: what every member does."""

    #: bytes of each chunk that enter the first phase
    chunk_bytes: I64
    phases: tuple[Phase, ...]
    #: local delay before every send, ns
    endpoint_delay_ns: int = 10
    #: whether the shared bus, if there is one, replaces the local delay
    bus: bool = False
    #: least size of a message, bytes
    least_bytes: int = 1
    mode: Mode = Mode.NATIVE
    #: collectives that share the alternation between the two trees of `TREE` (0 to 9), such as one kind's
    tree_counter: int = 0
    #: `Mode.CUSTOM`: for each member the index of its program among the engine's programs
    custom_programs: tuple[int, ...] = ()
    #: `Mode.CUSTOM`: for each member the NPU at the other end of each of the program's point-to-point nodes
    custom_peers: tuple[I64, ...] = ()


@dataclass(frozen=True, slots=True)
class Program:
    """A distinct trace (or custom algorithm); nodes in ascending id, arrays with one entry per node."""

    #: 0 timer, 1 no time, 2 collective, 3 send, 4 receive, 5 memory server
    op: I64
    #: slot that the node occupies, an index into `slot_cap`
    slot: I64
    #: ns of timers and service ns of memory accesses, final
    duration_ns: I64
    #: children of node i: child[child_start[i]:child_start[i + 1]], ascending
    child_start: I64
    child: I64
    #: collectives: index into the actor's calls; point to point: ordinal among the program's such nodes; else -1
    index: I64
    #: per point-to-point node
    p2p_bytes: I64
    p2p_tag: I64
    #: nodes that each slot runs at once; ignored for custom algorithms
    slot_cap: I64


@dataclass(frozen=True, slots=True)
class Actor:
    """An NPU: the program it runs and what the program's names stand for here."""

    program: int
    #: per call of the program: index of the collective, index of the group, shape (calls, 2)
    calls: I64
    #: per point-to-point node of the program: NPU at the other end
    peers: I64
    #: memory server of its memory accesses
    server: int = 0


@dataclass(frozen=True, slots=True)
class NetworkDim:
    """One dimension: a building block of equal links."""

    topology: Topology
    npus: int
    bytes_per_ns: float
    latency_ns: float


@dataclass(frozen=True, slots=True)
class LinkGraph:
    """An arbitrary network: links and one route per ordered pair of NPUs."""

    #: per link
    latency_ns: F64
    bytes_per_ns: F64
    #: links of pair (a, b): routes[route_start[a * npus + b]:route_start[a * npus + b + 1]]
    route_start: I64
    routes: I64


@dataclass(frozen=True, slots=True)
class Bus:
    """Shared memory bus (replay semantics, 4.5)."""

    latency_ns: int
    overhead_ns: int
    gap_ns: int
    gap_per_byte_ns: float
    #: local-reduction-delay
    reduction_ns: int = 1


@dataclass(frozen=True, slots=True)
class EngineModel:
    """The machine and the rules."""

    dims: tuple[NetworkDim, ...]
    aware: bool
    graph: LinkGraph | None = None
    queues_per_dim: int = 1
    #: streams that each queue runs at once
    streams_per_queue: int = 1
    rendezvous: bool = False
    #: bytes per s of the local memory; 0: reductions take no time
    reduce_bytes_per_s: float = 0.0
    bus: Bus | None = None
    n_servers: int = 1
    #: unaware: charge a message in every dimension that it crosses (C5), not only in the lowest
    sum_dims: bool = True
    #: repeat the issue pass after zero-time nodes (C10)
    repeat_pass: bool = True
    #: when all is blocked by full queues, let each start one more stream (C13)
    relieve: bool = True


@dataclass(frozen=True, slots=True)
class CollectiveRecord:
    """A collective that was issued, in order of first issue. Ticks in ns; -1: did not happen."""

    collective: int
    group: int
    ordinal: int
    start_ns: int
    #: when the last member had issued it
    ready_ns: int
    end_ns: int
    #: per phase: first start and last end over chunks and members
    phase_start_ns: tuple[int, ...]
    phase_end_ns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LinkStats:
    """Totals per link that carried something (aware). `dim` is -1 and the ends are link numbers for a graph.

    For a switch one end is -1, the switch.
    """

    dim: I64
    src: I64
    dst: I64
    bytes: I64
    messages: I64
    busy_ns: I64
    queued_ns: I64


@dataclass(frozen=True, slots=True)
class WaitingCollective:
    """A collective that is not over: who has issued it and who has not."""

    collective: int
    group: int
    ordinal: int
    issued: tuple[int, ...]
    missing: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WaitingMessage:
    """A send or receive without its partner; `node` is an index into the program, -1 for a custom algorithm's."""

    npu: int
    node: int
    is_send: bool
    peer: int
    tag: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Stall:
    """Nothing can happen any more, but some NPUs are not finished."""

    tick_ns: int
    unfinished: I64
    collectives: tuple[WaitingCollective, ...]
    messages: tuple[WaitingMessage, ...]


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Members of a group issued different collectives at the same position."""

    npu: int
    node: int


@dataclass(frozen=True, slots=True)
class EngineResult:
    """Outcome of a run. Nodes of actor i lie at node_start[i]:node_start[i + 1]; ticks in ns, -1: did not happen."""

    finish_ns: I64
    node_start: I64
    issue_ns: I64
    node_finish_ns: I64
    #: when the last partner of a communication node had issued its part (collectives: last member; receives: the send)
    partner_ns: I64
    collectives: tuple[CollectiveRecord, ...]
    links: LinkStats | None
    #: per dimension: bytes sent into it by all NPUs, and bytes times hops
    dim_bytes: I64
    dim_byte_hops: I64
    events: int
    hops: int
    #: times that blocked queues were given one more place (C13)
    relieved: int
    compiled: bool
    stall: Stall | None = None
    mismatch: Mismatch | None = None
    #: messages that arrived but were never received: (npu, node, ...) of their sends
    unreceived: tuple[WaitingMessage, ...] = ()


@dataclass
class _Channels:
    """Numbers of distinct (tag, source, destination, size) and (tag, source, destination)."""

    tag: list[I64] = field(default_factory=list)
    src: list[I64] = field(default_factory=list)
    dst: list[I64] = field(default_factory=list)
    size: list[I64] = field(default_factory=list)
    peer: list[I64] = field(default_factory=list)
    count: int = 0

    def add(self, program: Program, npu: int, peers: I64, sends: Any) -> int:
        """Add the point-to-point nodes of an NPU; returns the index of the first."""
        first = self.count
        n = len(program.p2p_tag)
        if n:
            me = np.full(n, npu, np.int64)
            self.tag.append(program.p2p_tag)
            self.src.append(np.where(sends, me, peers))
            self.dst.append(np.where(sends, peers, me))
            self.size.append(program.p2p_bytes)
            self.peer.append(peers)
            self.count += n
        return first

    def table(self) -> tuple[I64, I64, int]:
        """Per node: data channel, control channel, peer; its (tag, source, destination, size); number of channels."""
        if not self.count:
            return np.zeros((0, lay.P2P_ROW), np.int64), np.zeros((0, 4), np.int64), 0
        keys = np.stack([np.concatenate(v) for v in (self.tag, self.src, self.dst, self.size)], axis=1)
        _, data = np.unique(keys, axis=0, return_inverse=True)
        _, control = np.unique(keys[:, :3], axis=0, return_inverse=True)
        data, control = data.reshape(-1), control.reshape(-1)
        n_data = int(data.max()) + 1
        rows = np.stack([data, control + n_data, np.concatenate(self.peer)], axis=1).astype(np.int64)
        return rows, keys, n_data + int(control.max()) + 1


class _Words:
    """Tables laid one behind the other in what becomes the kernel's array."""

    def __init__(self) -> None:
        self._parts: list[I64] = []
        self._starts: list[int] = []
        self.count = 0

    def add(self, table: I64) -> int:
        """Append a table; returns where it begins."""
        first = self.count
        self._parts.append(np.ascontiguousarray(table, np.int64).reshape(-1))
        self._starts.append(first)
        self.count += table.size
        return first

    def zeros(self, count: int) -> int:
        """Append `count` zeros; returns where they begin."""
        return self.add(np.zeros(count, np.int64))

    def _part(self, at: int) -> tuple[I64, int]:
        k = bisect_right(self._starts, at) - 1
        while not self._parts[k].size:
            k -= 1
        return self._parts[k], at - self._starts[k]

    def put(self, at: int, table: I64) -> None:
        """Overwrite words of one table."""
        if table.size:
            part, offset = self._part(at)
            part[offset : offset + table.size] = table.reshape(-1)

    def get(self, at: int) -> int:
        """One word."""
        part, offset = self._part(at)
        return int(part[offset])

    def join(self) -> I64:
        """All tables."""
        return np.concatenate(self._parts)


def _is_send(program: Program) -> Any:
    """Per point-to-point node, in ordinal order: whether it is a send."""
    nodes = np.flatnonzero((program.op == lay.OP_SEND) | (program.op == lay.OP_RECV))
    sends = np.zeros(len(nodes), bool)
    sends[program.index[nodes]] = program.op[nodes] == lay.OP_SEND
    return sends


class MessageEngine:
    """Simulates a workload message by message.

    Parameters
    ----------
    model
        Network, queues and rules.
    programs
        Distinct traces, and the programs of custom algorithms.
    actors
        One per NPU, in NPU order; as many as the network's dimensions have NPUs.
    groups
        NPUs of each communicator, in ring order. A group as large as the system lists the NPUs ascending.
    collectives
        Distinct collectives that the actors' calls refer to.
    jit
        Compile the kernel (True), run it as plain Python (False), or decide by the estimated work (None).
    """

    def __init__(
        self,
        model: EngineModel,
        programs: Sequence[Program],
        actors: Sequence[Actor],
        groups: Sequence[Sequence[int]],
        collectives: Sequence[Collective],
        *,
        jit: bool | None = None,
    ) -> None:
        self._model = model
        self._programs = programs
        self._actors = actors
        self._groups = groups
        self._collectives = collectives
        self._jit = jit
        self._words = _Words()
        self._floats = np.zeros(lay.F_SPEED + 2)
        self._build()

    # --- building ------------------------------------------------------------------------------------------------

    def _build(self) -> None:
        """Fill the array: scalars and NPU rows, tables, then the first part of the pool."""
        model, words = self._model, self._words
        n = len(self._actors)
        words.add(np.zeros(lay.NPU_BASE + n * lay.NPU_ROW, np.int64))
        c = self._scalars = {lay.C_LAST_TICK: -1}
        c[lay.C_NPUS] = c[lay.C_UNFINISHED] = n
        c[lay.C_RENDEZVOUS] = model.rendezvous
        c[lay.C_REPEAT] = model.repeat_pass
        c[lay.C_SUM_DIMS] = model.sum_dims
        c[lay.C_QUEUES] = model.queues_per_dim
        c[lay.C_STREAMS] = model.streams_per_queue
        c[lay.C_QUEUE_ROWS] = words.zeros(n * len(model.dims) * model.queues_per_dim * lay.QUEUE_ROW)
        self._build_network()
        self._floats[lay.F_REDUCE_BW] = model.reduce_bytes_per_s
        if model.bus is not None:
            c[lay.C_BUS] = 1
            c[lay.C_BUS_L] = model.bus.latency_ns
            c[lay.C_BUS_O] = model.bus.overhead_ns
            c[lay.C_BUS_G] = model.bus.gap_ns
            c[lay.C_BUS_REDUCE] = model.bus.reduction_ns
            c[lay.C_BUS_ENDS] = words.zeros(4 * n * lay.BUS_ROW)
            self._floats[lay.F_BUS_G] = model.bus.gap_per_byte_ns
            self._floats[lay.F_INNER_G] = 0.0038
        self._build_programs()
        self._build_groups()
        self._build_collectives()
        self._build_actors()
        c[lay.C_LAST_RECORD] = c[lay.C_FIRST_RECORD] = words.zeros(lay.REC_ROW)
        margin = c[lay.C_MARGIN] = self._margin()
        c[lay.C_HEAP_N] = 0
        c[lay.C_TOP] = words.count
        m = words.join()
        for index, value in c.items():
            m[index] = value
        self._m = _with_room(m, 2 * margin + 64 * n * lay.ROW)

    def _build_network(self) -> None:
        model, c, words = self._model, self._scalars, self._words
        n = len(self._actors)
        n_dims = len(model.dims)
        c[lay.C_DIMS] = n_dims
        dims = np.zeros((n_dims, lay.DIM_ROW), np.int64)
        coords = np.zeros((n, n_dims), np.int64)
        kinds = {
            Topology.RING: lay.TOPO_RING,
            Topology.SWITCH: lay.TOPO_SWITCH,
            Topology.FULLY_CONNECTED: lay.TOPO_FULL,
        }
        c[lay.C_DIM_ROWS] = words.zeros(n_dims * lay.DIM_ROW)
        c[lay.C_COORDS] = words.zeros(n * n_dims)
        self._first_link = words.count
        self._link_ranges: list[tuple[int, int]] = []
        stride = 1
        count = 0
        for k, dim in enumerate(model.dims):
            row = dims[k]
            row[lay.D_TOPOLOGY] = kinds[dim.topology]
            row[lay.D_N] = dim.npus
            row[lay.D_STRIDE] = stride
            row[lay.D_LINKS] = words.count
            coords[:, k] = np.arange(n) // stride % dim.npus
            if model.aware and model.graph is None:
                own = n * dim.npus if dim.topology is Topology.FULLY_CONNECTED else 2 * n
                onward = np.zeros(own, np.int64)
                if dim.topology is Topology.RING:
                    npu, at = np.arange(n), coords[:, k]
                    up = npu + np.where(at == dim.npus - 1, 1 - dim.npus, 1) * stride
                    down = npu + np.where(at == 0, dim.npus - 1, -1) * stride
                    onward[0::2] = words.count + 2 * up * lay.LINK_ROW
                    onward[1::2] = words.count + (2 * down + 1) * lay.LINK_ROW
                words.add(_link_rows(np.full(own, k, np.int64), onward))
                self._link_ranges.append((count, own))
                count += own
            stride *= dim.npus
        if stride != n:
            raise ValueError(f"{n} actors for a network of {stride} NPUs")
        speed = [(dim.latency_ns, dim.bytes_per_ns) for dim in model.dims]
        graph = model.graph
        c[lay.C_NET] = lay.NET_AWARE if model.aware else lay.NET_UNAWARE
        if graph is not None:
            c[lay.C_NET] = lay.NET_GRAPH if model.aware else lay.NET_GRAPH_UNAWARE
            count = len(graph.latency_ns)
            words.add(_link_rows(np.arange(count), np.zeros(count, np.int64)))
            speed = list(zip(graph.latency_ns.tolist(), graph.bytes_per_ns.tolist(), strict=True))
            routes = words.add(self._first_link + graph.routes.astype(np.int64) * lay.LINK_ROW)
            c[lay.C_ROUTE_START] = words.add(graph.route_start.astype(np.int64) + routes)
        self._links = count
        words.put(c[lay.C_DIM_ROWS], dims)
        words.put(c[lay.C_COORDS], coords)
        self._floats = np.concatenate([np.zeros(lay.F_SPEED), np.array(speed, np.float64).reshape(-1)])

    def _build_programs(self) -> None:
        self._program_row: list[int] = []
        for program in self._programs:
            n = len(program.op)
            child = self._words.add(program.child.astype(np.int64))
            table = np.zeros((n, lay.NODE_ROW), np.int64)
            table[:, lay.O_OP] = program.op
            table[:, lay.O_SLOT] = program.slot
            table[:, lay.O_NS] = program.duration_ns
            table[:, lay.O_CHILD] = program.child_start[:-1] + child
            table[:, lay.O_CHILD_END] = program.child_start[1:] + child
            table[:, lay.O_INDEX] = program.index
            p2p = np.flatnonzero((program.op == lay.OP_SEND) | (program.op == lay.OP_RECV))
            table[p2p, lay.O_SIZE] = program.p2p_bytes[program.index[p2p]]
            self._program_row.append(self._words.add(table))

    def _build_groups(self) -> None:
        """Groups, their members, and per member its place and the number of collectives it has issued."""
        self._group_row: list[int] = []
        self._membership: dict[tuple[int, int], int] = {}
        for number, group in enumerate(self._groups):
            members = self._words.add(np.array(group, np.int64))
            row = self._words.add(np.array([len(group), members, 0, 0], np.int64))
            self._group_row.append(row)
            table = np.zeros((len(group), lay.MEMBERSHIP_ROW), np.int64)
            table[:, 0] = row
            table[:, 1] = np.arange(len(group))
            first = self._words.add(table)
            for k, npu in enumerate(group):
                self._membership[number, npu] = first + k * lay.MEMBERSHIP_ROW

    def _build_collectives(self) -> None:
        words = self._words
        self._plan_row: list[int] = []
        largest = [1] * len(self._collectives)
        self._owner = [-1] * len(self._collectives)
        pairs = [actor.calls for actor in self._actors if len(actor.calls)]
        for plan, group in np.unique(np.concatenate(pairs), axis=0).tolist() if pairs else ():
            largest[plan] = max(largest[plan], len(self._groups[group]))
            self._owner[plan] = group
        classes: dict[int, int] = {}
        for number, plan in enumerate(self._collectives):
            bits = 0
            for phase in plan.phases:
                ring = self._ring_size(phase, largest[number])
                if phase.algorithm is Algorithm.DIRECT:
                    bits = max(bits, -(-2 * (ring - 1) // 32))
                elif phase.algorithm is Algorithm.HALVING_DOUBLING:
                    bits = max(bits, 2)
            custom = 1 + max((len(self._programs[p].op) for p in plan.custom_programs), default=0)
            tail = custom if plan.mode is Mode.CUSTOM else len(plan.phases) + 2 * bits
            width = -(-(lay.S_LIST + tail) // 8) * 8
            chunks = plan.chunk_bytes if len(plan.chunk_bytes) else np.zeros(1, np.int64)
            block = largest[number] * len(chunks) * width
            if block not in classes:
                classes[block] = words.zeros(1)
            phases = [
                (ph.dim, ph.algorithm, ph.do, ph.rule, ph.ring, ph.window, ph.sub_cluster)
                for ph in plan.phases
            ]
            row = [
                len(chunks),
                words.add(chunks.astype(np.int64)),
                len(plan.phases),
                words.add(np.array(phases, np.int64)),
                plan.endpoint_delay_ns,
                plan.bus,
                plan.least_bytes,
                classes[block],
                plan.mode,
                width,
                bits,
                plan.tree_counter,
                words.zeros(3 * len(plan.custom_programs)),
                block,
            ]
            self._plan_row.append(words.add(np.array(row, np.int64)))
        self._max_block = max(classes, default=0)

    def _ring_size(self, phase: Phase, members: int) -> int:
        if phase.ring is Ring.DIM:
            return self._model.dims[phase.dim].npus
        return members

    def _build_actors(self) -> None:
        n, words, programs = len(self._actors), self._words, self._programs
        n_slots = max((len(programs[actor.program].slot_cap) for actor in self._actors), default=1)
        self._scalars[lay.C_SLOTS] = n_slots
        counts = [len(programs[actor.program].op) for actor in self._actors]
        self._node_start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        total = int(self._node_start[-1])
        states = np.full((total, lay.NODE_STATE), -1, np.int64)
        ready = np.zeros(total, np.int64)
        self._states = words.zeros(total * lay.NODE_STATE)
        ready_base = words.zeros(total)
        slots_base = words.zeros(n * n_slots * lay.SLOT_ROW)
        cursors = words.zeros(n * len(self._model.dims) * CURSORS)
        servers = words.zeros(3 * max(self._model.n_servers, 1))
        slots = np.zeros((n, n_slots, lay.SLOT_ROW), np.int64)
        npu = np.zeros((n, lay.NPU_ROW), np.int64)
        channels = _Channels()
        starts = {
            which: _program_start(programs[which], n_slots) for which in {a.program for a in self._actors}
        }
        per_npu = len(self._model.dims) * self._model.queues_per_dim * lay.QUEUE_ROW
        for i, actor in enumerate(self._actors):
            program, begin = programs[actor.program], starts[actor.program]
            first = int(self._node_start[i])
            states[first : first + len(program.op), lay.NS_PENDING] = begin.indegree
            at = first
            done = 0
            for k in range(n_slots):
                n_ready = int(begin.slot_roots[k])
                slots[i, k, lay.SL_FREE] = program.slot_cap[k] if k < len(program.slot_cap) else 0
                slots[i, k, lay.SL_BASE] = ready_base + at
                slots[i, k, lay.SL_N] = n_ready
                ready[at : at + n_ready] = begin.roots[done : done + n_ready]
                done += n_ready
                at += int(begin.slot_nodes[k])
            calls = []
            for plan, group in actor.calls.tolist():
                if (group, i) not in self._membership:
                    raise ValueError(f"NPU {i} calls a collective of group {group} but is not a member")
                calls += [self._plan_row[plan], self._membership[group, i]]
            row = npu[i]
            row[lay.N_READY] = done
            row[lay.N_PROGRAM] = self._program_row[actor.program]
            row[lay.N_NODES] = self._states + first * lay.NODE_STATE
            row[lay.N_CALLS] = words.add(np.array(calls, np.int64))
            row[lay.N_P2P] = channels.add(program, i, actor.peers, begin.sends)
            row[lay.N_FINISH] = -1
            row[lay.N_SERVER] = servers + 3 * actor.server
            row[lay.N_SLOTS] = slots_base + i * n_slots * lay.SLOT_ROW
            row[lay.N_QUEUES] = self._scalars[lay.C_QUEUE_ROWS] + i * per_npu
            row[lay.N_CURSORS] = cursors + i * len(self._model.dims) * CURSORS
        customs = self._add_custom(channels)
        self._p2p, self._keys, n_channels = channels.table()
        self._channels = words.zeros(n_channels * lay.CHANNEL_ROW)
        self._n_channels = n_channels
        table = self._p2p.copy()
        table[:, :2] = self._channels + table[:, :2] * lay.CHANNEL_ROW
        p2p = words.add(table)
        npu[:, lay.N_P2P] = p2p + npu[:, lay.N_P2P] * lay.P2P_ROW
        for at, values in customs:
            values[:, 2] = p2p + values[:, 2] * lay.P2P_ROW
            words.put(at, values)
        words.put(lay.NPU_BASE, npu)
        words.put(self._states, states)
        words.put(ready_base, ready)
        words.put(slots_base, slots)

    def _add_custom(self, channels: "_Channels") -> list[tuple[int, I64]]:
        """Members of custom collectives: program, nodes, first point-to-point row; they share the workload's channels."""
        out = []
        for number, plan in enumerate(self._collectives):
            if plan.mode is not Mode.CUSTOM or self._owner[number] < 0:
                continue
            rows = np.zeros((len(plan.custom_programs), 3), np.int64)
            for k, npu in enumerate(self._groups[self._owner[number]]):
                program = self._programs[plan.custom_programs[k]]
                rows[k, 0] = self._program_row[plan.custom_programs[k]]
                rows[k, 1] = len(program.op)
                rows[k, 2] = channels.add(program, npu, plan.custom_peers[k], _is_send(program))
            out.append((self._words.get(self._plan_row[number] + lay.P_CUSTOM), rows))
        return out

    def _margin(self) -> int:
        """Words that one step of the kernel may take from the pool at most."""
        model = self._model
        n, n_dims = len(self._actors), len(model.dims)
        concurrent = 0
        p2p = 0
        for program in self._programs:
            nodes = np.flatnonzero(program.op == lay.OP_COLLECTIVE)
            used = np.unique(program.slot[nodes])
            cap = int(program.slot_cap[used].sum()) if len(used) else 0
            concurrent = max(concurrent, min(cap, len(nodes)))
            p2p = max(p2p, len(program.p2p_tag))
        window, custom, phases, chunks = 1, 0, 1, 1
        deep = False
        for plan in self._collectives:
            phases = max(phases, len(plan.phases))
            chunks = max(chunks, len(plan.chunk_bytes))
            deep |= len(plan.phases) >= 5
            for phase in plan.phases:
                if phase.algorithm is Algorithm.DIRECT:
                    window = max(window, self._ring_size(phase, n) - 1)
            for which in plan.custom_programs:
                custom = max(custom, len(self._programs[which].op))
        starts = min(n_dims * model.queues_per_dim * model.streams_per_queue, concurrent * chunks) + 2
        rows = 64 + 6 * p2p + 8 * concurrent * custom + 6 * starts * window + 6 * window
        if any(plan.mode is Mode.TOGETHER for plan in self._collectives):
            rows += 2 * n
        relieve = model.relieve and (deep or concurrent > 1)
        self._scalars[lay.C_RELIEVE] = relieve
        if relieve:
            rows += 4 * n * n_dims * model.queues_per_dim * window
        return rows * lay.ROW + (concurrent + 1) * (self._max_block + lay.REC_ROW + 2 * phases)

    # --- running ---------------------------------------------------------------------------------------------------

    def estimated_events(self) -> int:
        """Rough number of events, to choose between compiled and plain kernel."""
        factor = 4 if self._model.aware else 3
        total = 0
        n = len(self._actors)
        per_plan = []
        for plan in self._collectives:
            messages = 0
            for phase in plan.phases:
                ring = self._ring_size(phase, n)
                if phase.algorithm is Algorithm.RING and phase.do is Do.ALL_TO_ALL:
                    messages += ring * (ring - 1) // 2
                else:
                    messages += 2 * ring
            messages += sum(len(self._programs[p].op) for p in plan.custom_programs[:1])
            per_plan.append(messages * max(len(plan.chunk_bytes), 1))
        known: dict[tuple[int, bytes], int] = {}
        for actor in self._actors:
            key = (actor.program, actor.calls.tobytes())
            if key not in known:
                program = self._programs[actor.program]
                nodes = np.flatnonzero(program.op == lay.OP_COLLECTIVE)
                uses = np.bincount(program.index[nodes], minlength=len(actor.calls))
                plans = actor.calls[:, 0] if len(actor.calls) else np.zeros(0, np.int64)
                work = sum(per_plan[int(p)] * int(u) for p, u in zip(plans, uses, strict=False))
                known[key] = len(program.op) * 2 + factor * work
            total += known[key]
        return total

    def run(self, progress: Callable[[int, int], None] | None = None) -> EngineResult:
        """Simulate to the end.

        Parameters
        ----------
        progress
            Called now and then with the tick reached (ns) and the number of finished NPUs.

        Returns
        -------
        EngineResult
            With `stall` or `mismatch` set if the workload cannot end.
        """
        jit = self._jit
        if jit is None:
            jit = self.estimated_events() >= COMPILE_FROM
        kernel: Any
        if jit:
            from chakra.kernels import compiled

            kernel = compiled("chakra.replay.kernels.messages")
            state = lay.State(self._m, self._floats)
        else:
            from chakra.replay.kernels import messages as kernel

            state = lay.State(self._m.tolist(), self._floats.tolist())
        while True:
            state.m[lay.C_BUDGET] = STEP if jit else STEP // 50
            status = int(kernel.run(state))
            if status == lay.BUDGET:
                if progress is not None:
                    progress(int(state.m[lay.C_NOW]), len(self._actors) - int(state.m[lay.C_UNFINISHED]))
            elif status == lay.GROW:
                m = np.asarray(state.m, np.int64)
                m = _with_room(m, len(m))
                state = lay.State(m if jit else m.tolist(), state.f)
            else:
                break
        return self._result(np.asarray(state.m, np.int64), status, jit)

    # --- results ---------------------------------------------------------------------------------------------------

    def _result(self, m: I64, status: int, jit: bool) -> EngineResult:
        npu = m[lay.NPU_BASE : lay.NPU_BASE + len(self._actors) * lay.NPU_ROW].reshape(-1, lay.NPU_ROW)
        first = int(m[lay.C_DIM_ROWS])
        dims = m[first : first + len(self._model.dims) * lay.DIM_ROW].reshape(-1, lay.DIM_ROW)
        total = int(self._node_start[-1])
        states = m[self._states : self._states + total * lay.NODE_STATE].reshape(-1, lay.NODE_STATE)
        waiting = self._waiting_messages(m)
        stall = mismatch = None
        if status == lay.STALLED:
            stall = Stall(
                tick_ns=int(m[lay.C_NOW]),
                unfinished=np.flatnonzero(npu[:, lay.N_FINISH] < 0),
                collectives=self._waiting_collectives(m),
                messages=waiting,
            )
        elif status == lay.MISMATCH:
            mismatch = Mismatch(int(m[lay.C_ERROR_NPU]), int(m[lay.C_ERROR_NODE]))
        return EngineResult(
            finish_ns=npu[:, lay.N_FINISH].copy(),
            node_start=self._node_start,
            issue_ns=states[:, lay.NS_ISSUE].copy(),
            node_finish_ns=states[:, lay.NS_FINISH].copy(),
            partner_ns=states[:, lay.NS_PARTNER].copy(),
            collectives=self._records(m),
            links=self._link_stats(m) if self._model.aware else None,
            dim_bytes=dims[:, lay.D_BYTES].copy(),
            dim_byte_hops=dims[:, lay.D_BYTE_HOPS].copy(),
            events=int(m[lay.C_EVENTS]),
            hops=int(m[lay.C_MESSAGES]),
            relieved=int(m[lay.C_RELIEVED]),
            compiled=jit,
            stall=stall,
            mismatch=mismatch,
            unreceived=tuple(w for w in waiting if w.is_send),
        )

    def _records(self, m: I64) -> tuple[CollectiveRecord, ...]:
        out = []
        number = {row: k for k, row in enumerate(self._plan_row)}
        group = {row: k for k, row in enumerate(self._group_row)}
        at = int(m[m[lay.C_FIRST_RECORD] + lay.RC_NEXT])
        while at != lay.NIL:
            plan = number[int(m[at + lay.RC_PLAN])]
            row = m[at : at + lay.REC_ROW + 2 * len(self._collectives[plan].phases)].tolist()
            out.append(
                CollectiveRecord(
                    collective=plan,
                    group=group[row[lay.RC_GROUP]],
                    ordinal=row[lay.RC_ORDINAL],
                    start_ns=row[lay.RC_START],
                    ready_ns=row[lay.RC_READY],
                    end_ns=row[lay.RC_END],
                    phase_start_ns=tuple(row[lay.REC_ROW :: 2]),
                    phase_end_ns=tuple(row[lay.REC_ROW + 1 :: 2]),
                )
            )
            at = row[lay.RC_NEXT]
        return tuple(out)

    def _link_stats(self, m: I64) -> LinkStats:
        end = self._first_link + self._links * lay.LINK_ROW
        rows = m[self._first_link : end].reshape(-1, lay.LINK_ROW)
        n = len(self._actors)
        dim, src, dst = (np.full(self._links, -1, np.int64) for _ in range(3))
        if self._model.graph is not None:
            src[:] = dst[:] = np.arange(self._links)
        stride = 1
        for k, (first, count) in enumerate(self._link_ranges):
            kind, size = self._model.dims[k].topology, self._model.dims[k].npus
            own = slice(first, first + count)
            dim[own] = k
            npu = np.arange(n)
            at = npu // stride % size
            if kind is Topology.FULLY_CONNECTED:
                src[own] = np.repeat(npu, size)
                dst[own] = (npu[:, None] + (np.arange(size)[None, :] - at[:, None]) * stride).reshape(-1)
            elif kind is Topology.RING:
                src[own] = np.repeat(npu, 2)
                dst[first : first + count : 2] = npu + ((at + 1) % size - at) * stride
                dst[first + 1 : first + count : 2] = npu + ((at - 1) % size - at) * stride
            else:
                src[first : first + count : 2] = npu
                dst[first + 1 : first + count : 2] = npu
            stride *= size
        used = np.flatnonzero(rows[:, lay.L_MESSAGES] > 0)
        return LinkStats(
            dim[used],
            src[used],
            dst[used],
            rows[used, lay.L_BYTES],
            rows[used, lay.L_MESSAGES],
            rows[used, lay.L_BUSY_NS],
            rows[used, lay.L_QUEUED_NS],
        )

    def _waiting_collectives(self, m: I64) -> tuple[WaitingCollective, ...]:
        out = []
        number = {row: k for k, row in enumerate(self._plan_row)}
        for k, group in enumerate(self._groups):
            at = int(m[self._group_row[k] + lay.G_FIRST])
            while at != lay.NIL:
                ordinal = int(m[at + lay.I_ORDINAL])
                has = [int(m[self._membership[k, npu] + 2]) > ordinal for npu in group]
                out.append(
                    WaitingCollective(
                        collective=number[int(m[at + lay.I_PLAN])],
                        group=k,
                        ordinal=ordinal,
                        issued=tuple(npu for npu, issued in zip(group, has, strict=True) if issued),
                        missing=tuple(npu for npu, issued in zip(group, has, strict=True) if not issued),
                    )
                )
                at = int(m[at + lay.NEXT])
        return tuple(out)

    def _waiting_messages(self, m: I64) -> tuple[WaitingMessage, ...]:
        """Posted sends and receives that found no partner, receives first."""
        out: list[WaitingMessage] = []
        end = self._channels + self._n_channels * lay.CHANNEL_ROW
        rows = m[self._channels : end].reshape(-1, lay.CHANNEL_ROW)
        for channel in np.flatnonzero(rows[:, lay.CH_SEND] | rows[:, lay.CH_RECV]).tolist():
            control = not (self._p2p[:, lay.P2P_CHANNEL] == channel).any()
            column = lay.P2P_CONTROL if control else lay.P2P_CHANNEL
            key = self._keys[np.flatnonzero(self._p2p[:, column] == channel)[0]].tolist()
            tag, src, dst, size = key
            at = int(rows[channel, lay.CH_RECV])
            while at != lay.NIL:
                node = -1 if m[at + lay.R_STREAM] else int(m[at + lay.R_NODE])
                send = bool(m[at + lay.R_WHAT] == lay.RQ_SEND)
                ends = (src, dst) if send else (dst, src)
                out.append(WaitingMessage(ends[0], node, send, ends[1], tag, int(m[at + lay.R_SIZE])))
                at = int(m[at + lay.R_NEXT])
            at = int(rows[channel, lay.CH_SEND])
            while at != lay.NIL:
                ends = (dst, src) if control else (src, dst)
                out.append(WaitingMessage(ends[0], -1, not control, ends[1], tag, size))
                at = int(m[at + lay.M_P])
        return tuple(sorted(out, key=lambda w: w.is_send))


@dataclass(frozen=True, slots=True)
class _Start:
    """What a program has before anything is issued."""

    indegree: I64
    #: nodes without parents, by slot and id
    roots: I64
    slot_nodes: I64
    slot_roots: I64
    #: per point-to-point node: whether it is a send
    sends: Any


def _program_start(program: Program, n_slots: int) -> _Start:
    indegree = np.bincount(program.child, minlength=len(program.op)).astype(np.int64)
    roots = np.flatnonzero(indegree == 0)
    roots = roots[np.argsort(program.slot[roots], kind="stable")]
    return _Start(
        indegree,
        roots,
        np.bincount(program.slot, minlength=n_slots).astype(np.int64),
        np.bincount(program.slot[roots], minlength=n_slots).astype(np.int64),
        _is_send(program),
    )


def _link_rows(classes: I64, onward: I64) -> I64:
    rows = np.zeros((len(classes), lay.LINK_ROW), np.int64)
    rows[:, lay.KIND] = lay.EV_LINK
    rows[:, lay.L_CLASS] = classes
    rows[:, lay.L_ONWARD] = onward
    rows[:, lay.L_SIZE] = -1
    return rows


def _with_room(m: I64, room: int) -> I64:
    """The array with `room` free words in its pool, and a heap and hash table of ticks that are large enough for them.

    There are no more ticks than rows, since each has a row of its own.
    """
    top, used = int(m[lay.C_TOP]), 2 * int(m[lay.C_HEAP_N])
    rows = (top + room) // lay.ROW
    size = 1 << max(rows // 4, 128).bit_length()
    out = np.zeros(top + 2 * rows + size + room, np.int64)
    out[:top] = m[:top]
    heap, hashed = top, top + 2 * rows
    old = int(m[lay.C_HEAP])
    out[heap : heap + used] = m[old : old + used]
    buckets = out[heap + 1 : heap + used : 2].tolist()
    if m[lay.C_BUCKET]:
        buckets.append(int(m[lay.C_BUCKET]))
    for bucket in buckets:
        place = hashed + hash_tick(int(out[bucket + lay.B_TICK]), size - 1)
        out[bucket + lay.NEXT] = out[place]
        out[place] = bucket
    out[lay.C_HEAP], out[lay.C_HASH], out[lay.C_HASH_MASK] = heap, hashed, size - 1
    out[lay.C_TOP] = hashed + size
    return out
