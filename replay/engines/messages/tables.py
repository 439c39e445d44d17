"""Builds the array that the message-level kernel works on.

Tables of fixed size are laid one behind the other; `message_results` finds its way back through the positions kept
here.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from chakra.arrays import I64
from chakra.replay.collectives.steps import Steps, member_rows
from chakra.replay.config.model import Topology
from chakra.replay.engines.kernels import messages_layout as lay
from chakra.replay.engines.kernels.messages_events import hash_tick
from chakra.replay.engines.messages.model import (
    Actor,
    Algorithm,
    Collective,
    EngineModel,
    Mode,
    Phase,
    Program,
    Ring,
)

#: cursors of a dimension, see the kernel
CURSORS = 13
#: messages of one tick that a network outside gets at once at most, unless one step sends more
LEAST_BATCH = 1 << 14


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


class Tables:
    """The kernel's array at the start of a run, and where its tables begin.

    Attributes
    ----------
    m, floats
        The arrays of `State`.
    node_start
        First node of each NPU in the order of all nodes, shape (npus + 1,).
    """

    def __init__(
        self,
        model: EngineModel,
        programs: Sequence[Program],
        actors: Sequence[Actor],
        groups: Sequence[Sequence[int]],
        collectives: Sequence[Collective],
    ) -> None:
        self.model = model
        self.programs = programs
        self.actors = actors
        self.groups = groups
        self.collectives = collectives
        self._words = _Words()
        self._steps: dict[Steps, int] = {}
        self.floats = np.zeros(lay.F_SPEED + 2)
        self.m = self._build()

    def _build(self) -> I64:
        """Fill the array: scalars and NPU rows, tables, then the first part of the pool."""
        model, words = self.model, self._words
        n = len(self.actors)
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
        self.floats[lay.F_REDUCE_BW] = model.reduce_bytes_per_s
        if model.bus is not None:
            c[lay.C_BUS] = 1
            c[lay.C_BUS_L] = model.bus.latency_ns
            c[lay.C_BUS_O] = model.bus.overhead_ns
            c[lay.C_BUS_G] = model.bus.gap_ns
            c[lay.C_BUS_REDUCE] = model.bus.reduction_ns
            c[lay.C_BUS_ENDS] = words.zeros(4 * n * lay.BUS_ROW)
            self.floats[lay.F_BUS_G] = model.bus.gap_per_byte_ns
            self.floats[lay.F_INNER_G] = 0.0038
        self._build_programs()
        self._build_groups()
        self._build_collectives()
        self._build_actors()
        c[lay.C_LAST_RECORD] = c[lay.C_FIRST_RECORD] = words.zeros(lay.REC_ROW)
        margin = c[lay.C_MARGIN] = self._margin()
        c[lay.C_CLEAR] = lay.NEVER
        if model.outside is not None:
            # as many messages as one step can send, and as many again, so that batches are large
            step = margin // lay.ROW
            c[lay.C_MAIL_MARK] = max(step, LEAST_BATCH)
            c[lay.C_MAIL] = words.zeros((c[lay.C_MAIL_MARK] + step + 1) * lay.MAIL_ROW)
        c[lay.C_HEAP_N] = 0
        c[lay.C_TOP] = words.count
        m = words.join()
        for index, value in c.items():
            m[index] = value
        return with_room(m, 2 * margin + 64 * n * lay.ROW)

    def _build_network(self) -> None:
        model, c, words = self.model, self._scalars, self._words
        n = len(self.actors)
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
        self.first_link = words.count
        self.link_ranges: list[tuple[int, int]] = []
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
                self.link_ranges.append((count, own))
                count += own
            stride *= dim.npus
        if stride != n:
            raise ValueError(f"{n} actors for a network of {stride} NPUs")
        speed = [(dim.latency_ns, dim.bytes_per_ns) for dim in model.dims]
        graph = model.graph
        c[lay.C_NET] = lay.NET_AWARE if model.aware else lay.NET_UNAWARE
        if model.outside is not None:
            c[lay.C_NET] = lay.NET_OUTSIDE
        if graph is not None:
            c[lay.C_NET] = lay.NET_GRAPH if model.aware else lay.NET_GRAPH_UNAWARE
            count = len(graph.latency_ns)
            words.add(_link_rows(np.arange(count), np.zeros(count, np.int64)))
            speed = list(zip(graph.latency_ns.tolist(), graph.bytes_per_ns.tolist(), strict=True))
            routes = words.add(self.first_link + graph.routes.astype(np.int64) * lay.LINK_ROW)
            c[lay.C_ROUTE_START] = words.add(graph.route_start.astype(np.int64) + routes)
        self.links = count
        words.put(c[lay.C_DIM_ROWS], dims)
        words.put(c[lay.C_COORDS], coords)
        self.floats = np.concatenate([np.zeros(lay.F_SPEED), np.array(speed, np.float64).reshape(-1)])

    def _build_programs(self) -> None:
        self._program_row: list[int] = []
        for program in self.programs:
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
        self.group_row: list[int] = []
        self.membership: dict[tuple[int, int], int] = {}
        for number, group in enumerate(self.groups):
            members = self._words.add(np.array(group, np.int64))
            row = self._words.add(np.array([len(group), members, 0, 0], np.int64))
            self.group_row.append(row)
            table = np.zeros((len(group), lay.MEMBERSHIP_ROW), np.int64)
            table[:, 0] = row
            table[:, 1] = np.arange(len(group))
            first = self._words.add(table)
            for k, npu in enumerate(group):
                self.membership[number, npu] = first + k * lay.MEMBERSHIP_ROW

    def _build_collectives(self) -> None:
        words = self._words
        self.plan_row: list[int] = []
        largest = [1] * len(self.collectives)
        self._owner = [-1] * len(self.collectives)
        pairs = [actor.calls for actor in self.actors if len(actor.calls)]
        for plan, group in np.unique(np.concatenate(pairs), axis=0).tolist() if pairs else ():
            largest[plan] = max(largest[plan], len(self.groups[group]))
            self._owner[plan] = group
        classes: dict[int, int] = {}
        for number, plan in enumerate(self.collectives):
            bits = 0
            for phase in plan.phases:
                ring = self.ring_size(phase, largest[number])
                if phase.algorithm is Algorithm.DIRECT:
                    bits = max(bits, -(-2 * (ring - 1) // 32))
                elif phase.algorithm is Algorithm.HALVING_DOUBLING:
                    bits = max(bits, 2)
                bits = max([bits, *(-(-member_rows(steps).most // 32) for steps in phase.steps)])
            custom = 1 + max((len(self.programs[p].op) for p in plan.custom_programs), default=0)
            tail = custom if plan.mode is Mode.CUSTOM else len(plan.phases) + 2 * bits
            joint = 2 * len(plan.phases) if any(phase.joint for phase in plan.phases) else 0
            width = -(-(lay.S_LIST + tail + joint) // 8) * 8
            chunks = plan.chunk_bytes if len(plan.chunk_bytes) else np.zeros(1, np.int64)
            block = largest[number] * len(chunks) * width
            if block not in classes:
                classes[block] = words.zeros(1)
            phases = [
                (
                    *(ph.dim, ph.algorithm, ph.do, ph.rule, ph.ring, ph.window, ph.sub_cluster),
                    words.add(np.array([self._steps_at(steps) for steps in ph.steps] or [0], np.int64)),
                    ph.joint,
                )
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
                joint,
            ]
            self.plan_row.append(words.add(np.array(row, np.int64)))
        self._max_block = max(classes, default=0)

    def _steps_at(self, steps: Steps) -> int:
        """Where a table of steps lies; equal tables are shared."""
        if steps not in self._steps:
            rows = member_rows(steps)
            first = self._words.add(rows.rows.reshape(-1))
            members = np.stack([first + rows.start[:-1] * lay.STEP_ROW, np.diff(rows.start)], axis=1)
            self._steps[steps] = self._words.add(np.concatenate([[steps.whole], members.reshape(-1)]))
        return self._steps[steps]

    def ring_size(self, phase: Phase, members: int) -> int:
        if phase.ring is Ring.DIM:
            return self.model.dims[phase.dim].npus
        return members

    def _build_actors(self) -> None:
        n, words, programs = len(self.actors), self._words, self.programs
        n_slots = max((len(programs[actor.program].slot_cap) for actor in self.actors), default=1)
        self._scalars[lay.C_SLOTS] = n_slots
        counts = [len(programs[actor.program].op) for actor in self.actors]
        self.node_start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        total = int(self.node_start[-1])
        states = np.full((total, lay.NODE_STATE), -1, np.int64)
        ready = np.zeros(total, np.int64)
        self.states = words.zeros(total * lay.NODE_STATE)
        ready_base = words.zeros(total)
        slots_base = words.zeros(n * n_slots * lay.SLOT_ROW)
        cursors = words.zeros(n * len(self.model.dims) * CURSORS)
        servers = words.zeros(3 * max(self.model.n_servers, 1))
        slots = np.zeros((n, n_slots, lay.SLOT_ROW), np.int64)
        npu = np.zeros((n, lay.NPU_ROW), np.int64)
        channels = _Channels()
        starts = {
            which: _program_start(programs[which], n_slots) for which in {a.program for a in self.actors}
        }
        per_npu = len(self.model.dims) * self.model.queues_per_dim * lay.QUEUE_ROW
        for i, actor in enumerate(self.actors):
            program, begin = programs[actor.program], starts[actor.program]
            first = int(self.node_start[i])
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
                if (group, i) not in self.membership:
                    raise ValueError(f"NPU {i} calls a collective of group {group} but is not a member")
                calls += [self.plan_row[plan], self.membership[group, i]]
            row = npu[i]
            row[lay.N_READY] = done
            row[lay.N_PROGRAM] = self._program_row[actor.program]
            row[lay.N_NODES] = self.states + first * lay.NODE_STATE
            row[lay.N_CALLS] = words.add(np.array(calls, np.int64))
            row[lay.N_P2P] = channels.add(program, i, actor.peers, begin.sends)
            row[lay.N_FINISH] = -1
            row[lay.N_SERVER] = servers + 3 * actor.server
            row[lay.N_SLOTS] = slots_base + i * n_slots * lay.SLOT_ROW
            row[lay.N_QUEUES] = self._scalars[lay.C_QUEUE_ROWS] + i * per_npu
            row[lay.N_CURSORS] = cursors + i * len(self.model.dims) * CURSORS
        customs = self._add_custom(channels)
        self.p2p, self.keys, n_channels = channels.table()
        self.channels = words.zeros(n_channels * lay.CHANNEL_ROW)
        self.n_channels = n_channels
        table = self.p2p.copy()
        table[:, :2] = self.channels + table[:, :2] * lay.CHANNEL_ROW
        p2p = words.add(table)
        npu[:, lay.N_P2P] = p2p + npu[:, lay.N_P2P] * lay.P2P_ROW
        for at, values in customs:
            values[:, 2] = p2p + values[:, 2] * lay.P2P_ROW
            words.put(at, values)
        words.put(lay.NPU_BASE, npu)
        words.put(self.states, states)
        words.put(ready_base, ready)
        words.put(slots_base, slots)

    def _add_custom(self, channels: "_Channels") -> list[tuple[int, I64]]:
        """Members of custom collectives: program, nodes, first point-to-point row; they share the workload's channels."""
        out = []
        for number, plan in enumerate(self.collectives):
            if plan.mode is not Mode.CUSTOM or self._owner[number] < 0:
                continue
            rows = np.zeros((len(plan.custom_programs), 3), np.int64)
            for k, npu in enumerate(self.groups[self._owner[number]]):
                program = self.programs[plan.custom_programs[k]]
                rows[k, 0] = self._program_row[plan.custom_programs[k]]
                rows[k, 1] = len(program.op)
                rows[k, 2] = channels.add(program, npu, plan.custom_peers[k], _is_send(program))
            out.append((self._words.get(self.plan_row[number] + lay.P_CUSTOM), rows))
        return out

    def _margin(self) -> int:
        """Words that one step of the kernel may take from the pool at most."""
        model = self.model
        n, n_dims = len(self.actors), len(model.dims)
        concurrent = 0
        p2p = 0
        for program in self.programs:
            nodes = np.flatnonzero(program.op == lay.OP_COLLECTIVE)
            used = np.unique(program.slot[nodes])
            cap = int(program.slot_cap[used].sum()) if len(used) else 0
            concurrent = max(concurrent, min(cap, len(nodes)))
            p2p = max(p2p, len(program.p2p_tag))
        window, custom, phases, chunks = 1, 0, 1, 1
        deep = False
        for plan in self.collectives:
            phases = max(phases, len(plan.phases))
            chunks = max(chunks, len(plan.chunk_bytes))
            deep |= len(plan.phases) >= 5
            for phase in plan.phases:
                if phase.algorithm is Algorithm.DIRECT:
                    window = max(window, self.ring_size(phase, n) - 1)
            for which in plan.custom_programs:
                custom = max(custom, len(self.programs[which].op))
        starts = min(n_dims * model.queues_per_dim * model.streams_per_queue, concurrent * chunks) + 2
        rows = 64 + 6 * p2p + 8 * concurrent * custom + 6 * starts * window + 6 * window
        if any(plan.mode is Mode.TOGETHER for plan in self.collectives):
            rows += 2 * n
        if any(phase.joint for plan in self.collectives for phase in plan.phases):
            rows += 2 * n * starts
        relieve = model.relieve and (deep or concurrent > 1)
        self._scalars[lay.C_RELIEVE] = relieve
        if relieve:
            rows += 4 * n * n_dims * model.queues_per_dim * window
        return rows * lay.ROW + (concurrent + 1) * (self._max_block + lay.REC_ROW)


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


def with_room(m: I64, room: int) -> I64:
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
