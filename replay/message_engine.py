"""Front of the message-level engine: values in, arrays for the kernel, results out.

The engine simulates every message of every collective on every link, in ASTRA-sim's order of events, so it is exact
for both network backends. What it is asked to simulate is given as *programs* (distinct traces), *actors* (NPUs, each
running a program), *groups* and *collectives* (chunks and phases); nothing here reads a trace or a configuration.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np

from chakra.arrays import F64, I64
from chakra.replay.config.model import Topology
from chakra.replay.kernels import messages_layout as lay

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

    def rows(self) -> tuple[I64, int, Any]:
        """Rows of `p2p`, number of channels, and the key of each channel (tag, src, dst, size)."""
        if not self.count:
            return np.zeros(0, np.int64), 0, np.zeros((0, 4), np.int64)
        keys = np.stack([np.concatenate(v) for v in (self.tag, self.src, self.dst, self.size)], axis=1)
        _, data = np.unique(keys, axis=0, return_inverse=True)
        _, control = np.unique(keys[:, :3], axis=0, return_inverse=True)
        data, control = data.reshape(-1), control.reshape(-1)
        n_data = int(data.max()) + 1
        table = np.stack([data, control + n_data, np.concatenate(self.peer)], axis=1).astype(np.int64)
        return table.reshape(-1), n_data + int(control.max()) + 1, keys


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
        self._arrays = self._build()

    # --- building --------------------------------------------------------------------------------------------------

    def _build(self) -> dict[str, Any]:
        a: dict[str, Any] = {}
        model = self._model
        n = len(self._actors)
        c = np.zeros(lay.C_SCALARS, np.int64)
        a["c"] = c
        self._build_network(a)
        self._build_programs(a)
        self._build_collectives(a)
        self._build_actors(a)
        c[lay.C_LAST_TICK] = -1
        c[lay.C_NPUS] = n
        c[lay.C_UNFINISHED] = n
        c[lay.C_RENDEZVOUS] = model.rendezvous
        c[lay.C_REPEAT] = model.repeat_pass
        c[lay.C_SUM_DIMS] = model.sum_dims
        c[lay.C_QUEUES] = model.queues_per_dim
        c[lay.C_STREAMS] = model.streams_per_queue
        n_dims = len(model.dims)
        a["queues"] = np.zeros(n * n_dims * model.queues_per_dim * lay.QUEUE_ROW, np.int64)
        a["cursors"] = np.zeros(n * n_dims * 13, np.int64)
        a["servers"] = np.zeros(3 * max(model.n_servers, 1), np.int64)
        real = np.zeros(4)
        real[lay.F_REDUCE_BW] = model.reduce_bytes_per_s
        if model.bus is not None:
            c[lay.C_BUS] = 1
            c[lay.C_BUS_L] = model.bus.latency_ns
            c[lay.C_BUS_O] = model.bus.overhead_ns
            c[lay.C_BUS_G] = model.bus.gap_ns
            c[lay.C_BUS_REDUCE] = model.bus.reduction_ns
            real[lay.F_BUS_G] = model.bus.gap_per_byte_ns
            real[lay.F_INNER_G] = 0.0038
        a["real"] = real
        a["bus"] = np.zeros(4 * n * lay.BUS_ROW if model.bus is not None else 0, np.int64)
        self._set_margins(a)
        return a

    def _build_network(self, a: dict[str, Any]) -> None:
        model, c = self._model, a["c"]
        n = len(self._actors)
        n_dims = len(model.dims)
        c[lay.C_DIMS] = n_dims
        dims = np.zeros(n_dims * lay.DIM_ROW, np.int64)
        coords = np.zeros((n, n_dims), np.int64)
        kinds = {
            Topology.RING: lay.TOPO_RING,
            Topology.SWITCH: lay.TOPO_SWITCH,
            Topology.FULLY_CONNECTED: lay.TOPO_FULL,
        }
        stride = 1
        link = lay.LINK_ROW  # the first row stays unused: handle 0 is no row
        onward, classes = [], []
        speed = []
        self._link_ranges: list[tuple[int, int]] = []
        for k, dim in enumerate(model.dims):
            row = dims[k * lay.DIM_ROW : (k + 1) * lay.DIM_ROW]
            row[lay.D_TOPOLOGY] = kinds[dim.topology]
            row[lay.D_N] = dim.npus
            row[lay.D_STRIDE] = stride
            row[lay.D_LINKS] = link
            coords[:, k] = np.arange(n) // stride % dim.npus
            if model.aware and model.graph is None:
                count = n * dim.npus if dim.topology is Topology.FULLY_CONNECTED else 2 * n
                ahead = np.zeros(count, np.int64)
                if dim.topology is Topology.RING:
                    npu, at = np.arange(n), coords[:, k]
                    up = npu + np.where(at == dim.npus - 1, 1 - dim.npus, 1) * stride
                    down = npu + np.where(at == 0, dim.npus - 1, -1) * stride
                    ahead[0::2] = link + 2 * up * lay.LINK_ROW
                    ahead[1::2] = link + (2 * down + 1) * lay.LINK_ROW
                onward.append(ahead)
                classes.append(np.full(count, k, np.int64))
                self._link_ranges.append((len(np.concatenate(classes)) - count, count))
                link += count * lay.LINK_ROW
            speed += [dim.latency_ns, dim.bytes_per_ns]
            stride *= dim.npus
        if stride != n:
            raise ValueError(f"{n} actors for a network of {stride} NPUs")
        graph = model.graph
        c[lay.C_NET] = lay.NET_AWARE if model.aware else lay.NET_UNAWARE
        if graph is not None:
            c[lay.C_NET] = lay.NET_GRAPH if model.aware else lay.NET_GRAPH_UNAWARE
            count = len(graph.latency_ns)
            classes = [np.arange(count, dtype=np.int64)]
            onward = [np.zeros(count, np.int64)]
            speed = np.stack([graph.latency_ns, graph.bytes_per_ns], axis=1).reshape(-1).tolist()
            link += count * lay.LINK_ROW
        n_links = (link - lay.LINK_ROW) // lay.LINK_ROW
        links = np.zeros((n_links, lay.LINK_ROW), np.int64)
        if n_links:
            links[:, lay.KIND] = lay.EV_LINK
            links[:, lay.L_CLASS] = np.concatenate(classes)
            links[:, lay.L_ONWARD] = np.concatenate(onward)
            links[:, lay.L_SIZE] = -1
        self._links = n_links
        c[lay.C_TOP] = link
        a["ent"] = np.concatenate([np.zeros(lay.LINK_ROW, np.int64), links.reshape(-1)])
        a["dims"], a["coords"] = dims, coords.reshape(-1).copy()
        a["speed"] = np.array(speed, np.float64)
        a["route_start"] = np.zeros(0, np.int64) if graph is None else graph.route_start.astype(np.int64)
        routes = np.zeros(0, np.int64) if graph is None else graph.routes.astype(np.int64)
        a["routes"] = (routes + 1) * lay.LINK_ROW

    def _build_programs(self, a: dict[str, Any]) -> None:
        nodes, children = [], []
        self._program_row: list[int] = []
        row, child = 0, 0
        for program in self._programs:
            n = len(program.op)
            table = np.zeros((n, lay.NODE_ROW), np.int64)
            table[:, lay.O_OP] = program.op
            table[:, lay.O_SLOT] = program.slot
            table[:, lay.O_NS] = program.duration_ns
            table[:, lay.O_CHILD] = program.child_start[:-1] + child
            table[:, lay.O_CHILD_END] = program.child_start[1:] + child
            table[:, lay.O_INDEX] = program.index
            p2p = np.flatnonzero((program.op == lay.OP_SEND) | (program.op == lay.OP_RECV))
            table[p2p, lay.O_SIZE] = program.p2p_bytes[program.index[p2p]]
            nodes.append(table.reshape(-1))
            children.append(program.child.astype(np.int64))
            self._program_row.append(row)
            row += n * lay.NODE_ROW
            child += len(program.child)
        a["nodes"] = np.concatenate([*nodes, np.zeros(0, np.int64)])
        a["children"] = np.concatenate([*children, np.zeros(0, np.int64)])

    def _build_collectives(self, a: dict[str, Any]) -> None:
        plans: list[int] = []
        chunks: list[I64] = []
        n_chunks = 0
        self._plan_row: list[int] = []
        self._widths: dict[int, int] = {}
        members_of = [1] * len(self._collectives)
        for actor in self._actors:
            for plan, group in np.unique(actor.calls, axis=0).tolist() if len(actor.calls) else ():
                members_of[plan] = max(members_of[plan], len(self._groups[group]))
        sizes = {}
        for number, plan in enumerate(self._collectives):
            bits = 0
            for phase in plan.phases:
                ring = self._ring_size(phase, members_of[number])
                if phase.algorithm is Algorithm.DIRECT:
                    bits = max(bits, -(-2 * (ring - 1) // 62))
                elif phase.algorithm is Algorithm.HALVING_DOUBLING:
                    bits = max(bits, 1 if ring < 1 << 31 else 2)
            extra = 1 + max((len(self._programs[p].op) for p in plan.custom_programs), default=0)
            width = lay.S_LIST + (extra if plan.mode is Mode.CUSTOM else max(len(plan.phases), 1) + 2 * bits)
            width = -(-width // 8) * 8
            n_chunk = max(len(plan.chunk_bytes), 1)
            block = members_of[number] * n_chunk * width
            size_class = sizes.setdefault(block, len(sizes))
            row = len(plans)
            self._plan_row.append(row)
            phase_row = row + lay.PLAN_ROW
            plans += [
                n_chunk,
                n_chunks,
                len(plan.phases),
                phase_row,
                plan.endpoint_delay_ns,
                int(plan.bus),
                plan.least_bytes,
                size_class,
                int(plan.mode),
                width,
                bits,
                plan.tree_counter,
                0,
                block,
            ]
            for phase in plan.phases:
                plans += [
                    phase.dim,
                    int(phase.algorithm),
                    int(phase.do),
                    int(phase.rule),
                    int(phase.ring),
                    phase.window,
                    int(phase.sub_cluster),
                ]
            chunks.append(plan.chunk_bytes if len(plan.chunk_bytes) else np.zeros(1, np.int64))
            n_chunks += n_chunk
        a["plans"] = np.array(plans, np.int64)
        a["chunks"] = np.concatenate([*chunks, np.zeros(0, np.int64)]).astype(np.int64)
        a["blocks"] = np.zeros(len(sizes) + 1, np.int64)
        self._max_block = max(sizes, default=0)

    def _ring_size(self, phase: Phase, members: int) -> int:
        if phase.ring is Ring.DIM:
            return self._model.dims[phase.dim].npus
        return members

    def _build_actors(self, a: dict[str, Any]) -> None:
        n = len(self._actors)
        programs, c = self._programs, a["c"]
        n_slots = max((len(programs[actor.program].slot_cap) for actor in self._actors), default=1)
        c[lay.C_SLOTS] = n_slots
        counts = np.array([len(programs[actor.program].op) for actor in self._actors], np.int64)
        self._node_start = np.concatenate([[0], np.cumsum(counts)])
        total = int(self._node_start[-1])
        npu = np.zeros((n, lay.NPU_ROW), np.int64)
        slots = np.zeros((n, n_slots, lay.SLOT_ROW), np.int64)
        ready = np.zeros(max(total, 1), np.int64)
        pending = np.zeros(max(total, 1), np.int64)
        group_rows, members, membership, member_row = self._build_groups()
        channels = _Channels()
        calls: list[int] = []
        shared: dict[int, Any] = {}
        for i, actor in enumerate(self._actors):
            program = programs[actor.program]
            if actor.program not in shared:
                shared[actor.program] = _program_start(program, n_slots)
            indegree, order, per_slot, ready_slot, sends = shared[actor.program]
            first = int(self._node_start[i])
            pending[first : first + len(indegree)] = indegree
            base = first
            at = 0
            for k in range(n_slots):
                slots[i, k, lay.SL_FREE] = program.slot_cap[k] if k < len(program.slot_cap) else 0
                slots[i, k, lay.SL_BASE] = base
                slots[i, k, lay.SL_N] = ready_slot[k]
                ready[base : base + ready_slot[k]] = order[at : at + ready_slot[k]]
                at += ready_slot[k]
                base += per_slot[k]
            npu[i, lay.N_READY] = at
            npu[i, lay.N_PROGRAM] = self._program_row[actor.program]
            npu[i, lay.N_NODES] = first
            npu[i, lay.N_CALLS] = len(calls)
            npu[i, lay.N_P2P] = lay.P2P_ROW * channels.add(program, i, actor.peers, sends)
            npu[i, lay.N_FINISH] = -1
            npu[i, lay.N_SERVER] = 3 * actor.server
            for plan, group in actor.calls.tolist():
                if (group, i) not in member_row:
                    raise ValueError(f"NPU {i} calls a collective of group {group} but is not a member")
                calls += [self._plan_row[plan], member_row[group, i]]
        for number, plan in enumerate(self._collectives):
            if plan.mode is Mode.CUSTOM:
                a["plans"][self._plan_row[number] + lay.P_CUSTOM] = len(calls)
                for which, peers in zip(plan.custom_programs, plan.custom_peers, strict=True):
                    program = programs[which]
                    calls += [self._program_row[which], len(program.op), -1]
        self._finish_custom(a, calls, channels)
        table, n_channels, keys = channels.rows()
        self._keys = keys
        a["npu"], a["slots"] = npu.reshape(-1), slots.reshape(-1)
        a["ready"], a["pending"] = ready, pending
        for name in ("issue", "finish", "partner"):
            a[name] = np.full(max(total, 1), -1, np.int64)
        a["calls"] = np.array(calls, np.int64)
        a["memberships"], a["groups"], a["members"] = membership, group_rows, members
        a["p2p"] = table
        a["channels"] = np.zeros(n_channels * lay.CHANNEL_ROW, np.int64)

    def _finish_custom(self, a: dict[str, Any], calls: list[int], channels: _Channels) -> None:
        """Number the channels of custom algorithms, which share them with the workload."""
        owners: dict[int, Sequence[int]] = {}
        for actor in self._actors:
            for plan, group in actor.calls.tolist():
                owners.setdefault(plan, self._groups[group])
        for number, plan in enumerate(self._collectives):
            if plan.mode is not Mode.CUSTOM or number not in owners:
                continue
            row = int(a["plans"][self._plan_row[number] + lay.P_CUSTOM])
            for k, npu in enumerate(owners[number]):
                program = self._programs[plan.custom_programs[k]]
                first = channels.add(program, npu, plan.custom_peers[k], _is_send(program))
                calls[row + 3 * k + 2] = lay.P2P_ROW * first

    def _build_groups(self) -> tuple[I64, I64, I64, dict[tuple[int, int], int]]:
        rows, members, membership = [], [], []
        where: dict[tuple[int, int], int] = {}
        for number, group in enumerate(self._groups):
            rows += [len(group), len(members), int(len(group) == len(self._actors)), 0, 0]
            members += list(group)
            for k, npu in enumerate(group):
                where[number, npu] = len(membership)
                membership += [number * lay.GROUP_ROW, k, 0]
        to_array = np.array
        return (
            to_array(rows, dtype=np.int64),
            to_array(members, dtype=np.int64),
            to_array(membership, dtype=np.int64),
            where,
        )

    def _set_margins(self, a: dict[str, Any]) -> None:
        """Rows that one step of the kernel may take at most, and the arrays' first sizes."""
        model, c = self._model, a["c"]
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
        c[lay.C_RELIEVE] = relieve
        if relieve:
            rows += 4 * n * n_dims * model.queues_per_dim * window
        c[lay.C_ENT_MARGIN] = rows * lay.ROW
        c[lay.C_ST_MARGIN] = (concurrent + 1) * self._max_block + 64
        c[lay.C_REC_MARGIN] = (concurrent + 1) * (lay.REC_ROW + 2 * phases)
        c[lay.C_ST_TOP] = 64
        grow = 2 * rows * lay.ROW + 64 * n * lay.ROW
        a["ent"] = np.concatenate([a["ent"], np.zeros(grow, np.int64)])
        a["st"] = np.zeros(2 * int(c[lay.C_ST_MARGIN]), np.int64)
        a["records"] = np.zeros(4 * int(c[lay.C_REC_MARGIN]), np.int64)
        self._size_queue(a)

    def _size_queue(self, a: dict[str, Any]) -> None:
        """Make the heap and the hash table of ticks as large as the pool needs, and fill the table."""
        c, ent = a["c"], a["ent"]
        rows = len(ent) // lay.ROW + 1
        used = 2 * int(c[lay.C_HEAP_N])
        heap = np.zeros(2 * rows, np.int64)
        if used:
            heap[:used] = a["heap"][:used]
        a["heap"] = heap
        size = 1 << max(rows // 4, 256).bit_length()
        hashed = np.zeros(size, np.int64)
        c[lay.C_HASH_MASK] = size - 1
        buckets = heap[1:used:2].tolist()
        if c[lay.C_BUCKET]:
            buckets.append(int(c[lay.C_BUCKET]))
        for bucket in buckets:
            tick = int(ent[bucket + lay.B_TICK])
            place = (tick ^ (tick >> 9) ^ (tick >> 18)) & (size - 1)
            ent[bucket + lay.NEXT] = hashed[place]
            hashed[place] = bucket
        a["hashed"] = hashed

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
        a = self._arrays
        kernel: Any
        if jit:
            from chakra.kernels import compiled

            kernel = compiled("chakra.replay.kernels.messages")
            state = lay.State(**a)
        else:
            from chakra.replay.kernels import messages as kernel

            state = lay.State(**{name: array.tolist() for name, array in a.items()})
        while True:
            state.c[lay.C_BUDGET] = STEP if jit else STEP // 50
            status = kernel.run(state)
            if status == lay.BUDGET:
                if progress is not None:
                    progress(int(state.c[lay.C_NOW]), len(self._actors) - int(state.c[lay.C_UNFINISHED]))
            elif status in (lay.GROW_ENT, lay.GROW_ST, lay.GROW_REC):
                state = self._grow(state, int(status), jit)
            else:
                break
        arrays = _as_arrays(state)
        return self._result(arrays, int(status), jit)

    def _grow(self, state: lay.State, status: int, jit: bool) -> lay.State:
        """A state with more room of one kind."""
        name = {lay.GROW_ENT: "ent", lay.GROW_ST: "st", lay.GROW_REC: "records"}[status]
        a = _as_arrays(state)
        a[name] = np.concatenate([a[name], np.zeros(len(a[name]), np.int64)])
        if name == "ent":
            self._size_queue(a)
        return lay.State(**a) if jit else lay.State(**{key: value.tolist() for key, value in a.items()})

    # --- results ---------------------------------------------------------------------------------------------------

    def _result(self, a: dict[str, Any], status: int, jit: bool) -> EngineResult:
        c = a["c"]
        npu = a["npu"].reshape(-1, lay.NPU_ROW)
        dims = a["dims"].reshape(-1, lay.DIM_ROW)
        waiting = self._waiting_messages(a)
        stall = None
        if status == lay.STALLED:
            stall = Stall(
                tick_ns=int(c[lay.C_NOW]),
                unfinished=np.flatnonzero(npu[:, lay.N_FINISH] < 0),
                collectives=self._waiting_collectives(a),
                messages=tuple(m for m in waiting if not m.is_send) + tuple(m for m in waiting if m.is_send),
            )
        return EngineResult(
            finish_ns=npu[:, lay.N_FINISH].copy(),
            node_start=self._node_start,
            issue_ns=a["issue"],
            node_finish_ns=a["finish"],
            partner_ns=a["partner"],
            collectives=self._records(a),
            links=self._link_stats(a) if self._model.aware else None,
            dim_bytes=dims[:, lay.D_BYTES].copy(),
            dim_byte_hops=dims[:, lay.D_BYTE_HOPS].copy(),
            events=int(c[lay.C_EVENTS]),
            hops=int(c[lay.C_MESSAGES]),
            relieved=int(c[lay.C_RELIEVED]),
            compiled=jit,
            stall=stall,
            mismatch=Mismatch(int(c[lay.C_ERROR_NPU]), int(c[lay.C_ERROR_NODE]))
            if status == lay.MISMATCH
            else None,
            unreceived=tuple(m for m in waiting if m.is_send),
        )

    def _records(self, a: dict[str, Any]) -> tuple[CollectiveRecord, ...]:
        out = []
        number = {row: k for k, row in enumerate(self._plan_row)}
        at, top = 0, int(a["c"][lay.C_REC_TOP])
        records = a["records"][:top].tolist()
        while at < top:
            plan = number[records[at + lay.RC_PLAN]]
            phases = len(self._collectives[plan].phases)
            ticks = records[at + lay.REC_ROW : at + lay.REC_ROW + 2 * phases]
            out.append(
                CollectiveRecord(
                    plan,
                    records[at + lay.RC_GROUP] // lay.GROUP_ROW,
                    records[at + lay.RC_ORDINAL],
                    records[at + lay.RC_START],
                    records[at + lay.RC_READY],
                    records[at + lay.RC_END],
                    tuple(ticks[0::2]),
                    tuple(ticks[1::2]),
                )
            )
            at += lay.REC_ROW + 2 * phases
        return tuple(out)

    def _link_stats(self, a: dict[str, Any]) -> LinkStats:
        rows = a["ent"][lay.LINK_ROW : (1 + self._links) * lay.LINK_ROW].reshape(-1, lay.LINK_ROW)
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

    def _waiting_collectives(self, a: dict[str, Any]) -> tuple[WaitingCollective, ...]:
        out = []
        ent, st, groups = a["ent"], a["st"], a["groups"]
        number = {row: k for k, row in enumerate(self._plan_row)}
        for k, group in enumerate(self._groups):
            at = int(groups[k * lay.GROUP_ROW + lay.G_FIRST])
            while at != lay.NIL:
                plan = int(ent[at + lay.I_PLAN])
                base = int(ent[at + lay.I_BASE])
                step = int(a["plans"][plan + lay.P_CHUNKS] * a["plans"][plan + lay.P_WIDTH])
                issued = []
                missing = []
                for index, npu in enumerate(group):
                    here = a["memberships"][self._member_row(k, index) + 2]
                    (issued if here > ent[at + lay.I_ORDINAL] else missing).append(int(npu))
                assert base + step * len(group) <= len(st)
                out.append(
                    WaitingCollective(
                        number[plan], k, int(ent[at + lay.I_ORDINAL]), tuple(issued), tuple(missing)
                    )
                )
                at = int(ent[at + lay.NEXT])
        return tuple(out)

    def _member_row(self, group: int, index: int) -> int:
        before = sum(len(g) for g in self._groups[:group])
        return (before + index) * lay.MEMBERSHIP_ROW

    def _waiting_messages(self, a: dict[str, Any]) -> tuple[WaitingMessage, ...]:
        """Posted sends and receives that found no partner."""
        ent, channels = a["ent"], a["channels"]
        out = []
        p2p = a["p2p"].reshape(-1, lay.P2P_ROW)
        rows = channels.reshape(-1, lay.CHANNEL_ROW)
        for channel in np.flatnonzero(rows[:, lay.CH_SEND] | rows[:, lay.CH_RECV]).tolist():
            key = self._keys[np.flatnonzero(p2p[:, lay.P2P_CHANNEL] == channel)[:1]].tolist()
            control = not key
            if control:
                key = self._keys[np.flatnonzero(p2p[:, lay.P2P_CONTROL] == channel)[:1]].tolist()
            tag, src, dst, size = key[0]
            at = int(rows[channel, lay.CH_RECV])
            while at != lay.NIL:
                sends = bool(ent[at + lay.R_WHAT] == lay.RQ_SEND)
                node = -1 if ent[at + lay.R_STREAM] else int(ent[at + lay.R_NODE])
                out.append(
                    WaitingMessage(src if sends else dst, node, sends, dst if sends else src, tag, size)
                )
                at = int(ent[at + lay.R_NEXT])
            at = int(rows[channel, lay.CH_SEND])
            while at != lay.NIL:
                out.append(
                    WaitingMessage(
                        dst if control else src, -1, not control, src if control else dst, tag, size
                    )
                )
                at = int(ent[at + lay.M_P])
        return tuple(out)


def _as_arrays(state: lay.State) -> dict[str, Any]:
    """The state's arrays; lists of the plain kernel are converted."""
    floats = ("speed", "real")
    return {
        name: np.asarray(value, np.float64 if name in floats else np.int64)
        for name, value in state._asdict().items()
    }


def _program_start(program: Program, n_slots: int) -> tuple[I64, I64, I64, I64, Any]:
    """Indegrees, roots by slot, nodes per slot, roots per slot, and which point-to-point nodes are sends."""
    n = len(program.op)
    indegree = np.bincount(program.child, minlength=n).astype(np.int64)
    roots = np.flatnonzero(indegree == 0)
    order = roots[np.argsort(program.slot[roots], kind="stable")]
    return (
        indegree,
        order,
        np.bincount(program.slot, minlength=n_slots).astype(np.int64),
        np.bincount(program.slot[roots], minlength=n_slots).astype(np.int64),
        _is_send(program),
    )
