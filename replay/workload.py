"""From traces to programs: what every node does, for how long, in which slot.

A *program* is a distinct trace prepared for the engines: nodes in ascending id, durations resolved to ns, collectives
and point-to-point messages described once each. NPUs whose traces differ only in the names of their groups and the
numbers of their peers share a program; their *bindings* say which groups and peers those are.

Sources: replay semantics, section 2; corrections C1, C2, C6, C8, C20 and C21 of `differences.md`.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from chakra.arrays import I32, I64, AnyArray
from chakra.errors import WorkloadError
from chakra.et import ABSENT, CommType, NodeType, Trace
from chakra.replay.collectives.plan import OLD_MODEL
from chakra.replay.config.model import CollectiveKind, Memory, MemoryKind, System
from chakra.replay.options import RunOptions

#: greatest time or size that the engines take; sums of two stay inside 64 bits
LIMIT = 1 << 62


class Op(IntEnum):
    """What a node does when it is issued, numbered as in the kernels."""

    TIMER = 0
    ZERO = 1
    COLLECTIVE = 2
    SEND = 3
    RECV = 4
    SERVER = 5


class Engine(IntEnum):
    """Which of an NPU's engines a node occupies, for accounts and timelines."""

    CPU = 0
    GPU = 1
    COMM = 2
    MEMORY = 3
    NONE = 4


@dataclass(frozen=True, slots=True)
class Call:
    """A distinct collective of a program; `group` is an index into the bindings' groups."""

    kind: CollectiveKind
    bytes: int
    group: int
    involved: tuple[bool, ...] | None
    #: node id, if the node has a custom algorithm of its own
    node_id: int | None = None


@dataclass(frozen=True, slots=True)
class Program:
    """A distinct trace, ready to be simulated. Arrays have one entry per node, in ascending node id."""

    trace: Trace
    #: file index of each node
    order: I64
    op: I64
    engine: I64
    slot: I64
    duration_ns: I64
    child_start: I64
    child: I32
    parents: I32
    #: index among the communication nodes (collectives, sends, receives), -1 for others
    comm: I64
    #: collectives: index into `calls`; p2p: index into the p2p arrays; -1 for others
    call: I64
    calls: tuple[Call, ...]
    #: number of nodes of each slot, and how many it runs at once
    slot_nodes: I64
    slot_cap: I64
    #: per p2p node: index into the bindings' peers, bytes, tag
    p2p_peer: I64
    p2p_bytes: I64
    p2p_tag: I64
    p2p_is_send: AnyArray
    #: how often each correction of ASTRA-sim changed something in this program
    corrections: Counter[str] = field(default_factory=Counter)

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return len(self.op)

    @property
    def n_comm(self) -> int:
        """Number of communication nodes."""
        return int((self.comm >= 0).sum())

    def ids(self) -> AnyArray:
        """Node ids in program order."""
        return self.trace.ids[self.order]


@dataclass(frozen=True, slots=True)
class Bindings:
    """What the names in an NPU's trace stand for."""

    #: group names in order of first use ("" = all NPUs)
    groups: tuple[str, ...]
    #: peers in order of first use: NPU numbers, or offsets if the trace is written for relative peers
    peers: I64


def first_use(values: AnyArray) -> tuple[AnyArray, I64]:
    """Distinct values in order of first occurrence, and for each value its index among them."""
    distinct, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    rank = np.empty(len(distinct), np.int64)
    rank[np.argsort(first, kind="stable")] = np.arange(len(distinct))
    out = np.empty_like(distinct)
    out[rank] = distinct
    return out, rank[inverse.reshape(-1)]


def bindings_of(trace: Trace, order: I64, *, astra: bool) -> tuple[Bindings, I64, I64]:
    """Bindings of a trace, and per node (program order) the index of its group and of its peer (-1: none)."""
    types = trace.types[order]
    group = np.full(len(order), -1, np.int64)
    coll = np.flatnonzero(types == NodeType.COMM_COLL)
    names: tuple[str, ...] = ()
    if len(coll):
        table = [group_name(name, astra=astra) for name in trace.pg_table]
        distinct = {name: i for i, name in enumerate(dict.fromkeys(["", *table]))}
        lut = np.array([*(distinct[name] for name in table), 0], np.int64)  # last: absent, index -1
        used, inverse = first_use(lut[trace.pg_codes[order][coll]])
        group[coll] = inverse
        by_code = list(distinct)
        names = tuple(by_code[int(code)] for code in used)
    peer = np.full(len(order), -1, np.int64)
    send = types == NodeType.COMM_SEND
    p2p = np.flatnonzero(send | (types == NodeType.COMM_RECV))
    peers = np.zeros(0, np.int64)
    if len(p2p):
        values = np.where(send[p2p], trace.comm_dst[order][p2p], trace.comm_src[order][p2p])
        distinct_peers, inverse = first_use(values)
        peer[p2p] = inverse
        peers = distinct_peers.astype(np.int64)
    return Bindings(names, peers), group, peer


def group_name(name: str, *, astra: bool) -> str:
    """The group that a `pg_name` stands for; "" is all NPUs (correction C18)."""
    if name in ("", "0"):
        return ""
    if astra:
        digits = name.lstrip()
        end = 1 if digits[:1] in ("+", "-") else 0
        while end < len(digits) and digits[end].isdigit():
            end += 1
        if digits[:end].lstrip("+-"):
            number = str(int(digits[:end]))
            return "" if number == "0" else number
    return name


def structure_key(trace: Trace, order: I64, group: I64, peer: I64, *, ids: bool) -> bytes:
    """What two traces must share to be one program: everything but the numbers of nodes, groups and peers.

    `ids` asks for equal node ids, too (where a file names collectives by node id).
    """
    import hashlib

    digest = hashlib.blake2b(digest_size=16)
    for column in (
        trace.types,
        trace.duration_micros,
        trace.duration_ns,
        trace.is_cpu_op,
        trace.comm_type,
        trace.comm_size,
        trace.comm_tag,
        trace.comm_priority,
        trace.num_ops,
        trace.tensor_size,
        trace.stream,
        trace.tid,
        trace.dim_codes,
    ):
        digest.update(np.ascontiguousarray(column[order]).tobytes())
    start, child, _ = children_in_order(trace, order)
    for column in (group, peer, start, child, *((trace.ids,) if ids else ())):
        digest.update(np.ascontiguousarray(column).tobytes())
    digest.update(repr(trace.dim_table).encode())
    return digest.digest()


def compile_program(
    trace: Trace,
    group: I64,
    peer: I64,
    system: System,
    memory: Memory,
    options: RunOptions,
    per_node_custom: frozenset[int],
    scale: float,
) -> Program:
    """Prepare one trace for the engines.

    Raises
    ------
    WorkloadError
        For a node that cannot be replayed: the message names file, node and what is missing.
    """
    order = trace.order_by_id()
    corrections: Counter[str] = Counter()
    n = trace.n_nodes
    types = trace.types[order]
    cpu = trace.is_cpu_op[order] == 1
    op = np.full(n, Op.TIMER, np.int64)
    engine = np.full(n, Engine.GPU, np.int64)
    engine[cpu] = Engine.CPU
    comm_node = (types == NodeType.COMM_COLL) | (types == NodeType.COMM_SEND) | (types == NodeType.COMM_RECV)
    mem_node = (types == NodeType.MEM_LOAD) | (types == NodeType.MEM_STORE)
    idle_node = (types == NodeType.INVALID) | (types == NodeType.METADATA)
    engine[comm_node] = Engine.COMM
    engine[mem_node & ~cpu] = Engine.MEMORY
    engine[idle_node] = Engine.NONE

    duration = base_durations(trace, order, options)
    comp = types == NodeType.COMP
    if not system.replay_only:
        op[idle_node] = Op.ZERO
    timed = np.ones(n, bool) if system.replay_only else comp
    old = options.compat == OLD_MODEL
    if old:
        # 1.0 cuts scaled times and sizes to whole numbers
        duration = np.where(timed & ~comm_node, np.floor(duration * options.compute_scale), duration)
        duration = duration.astype(np.int64)
    elif options.astra:
        duration = np.where(timed, np.maximum(duration, 1), duration)
    else:
        modelled = comp & ~cpu & (system.roofline and not system.replay_only)
        corrections["C2"] += int((timed & ~modelled & (duration == 0)).sum())
        if options.compute_scale != 1.0:
            corrections["C17"] += int((timed & ~comm_node).sum())
        duration = scaled(duration, options.compute_scale * scale, timed & ~comm_node, trace)
    if options.astra and scale != 1.0:
        duration = scaled(duration, scale, timed & ~comm_node, trace)

    sizes = trace.comm_size[order]
    if (old or not options.astra) and options.comm_scale != 1.0:
        stretched = np.where(sizes == ABSENT, 0, sizes) * options.comm_scale
        if (stretched > LIMIT).any():
            raise WorkloadError(
                f"{trace.source}: comm_size times {options.comm_scale:g} does not fit 64 bits"
            )
        sizes = np.where(sizes == ABSENT, sizes, np.floor(stretched).astype(np.int64))
        if not old:
            corrections["C17"] += int(comm_node.sum())

    if not system.replay_only:
        if system.roofline:
            _roofline(trace, order, comp & ~cpu, op, duration, system, options, corrections, scale)
        _memory(trace, order, mem_node, op, duration, memory)
        _collectives(trace, order, types, op, duration, sizes, options)
        op[types == NodeType.COMM_SEND] = Op.SEND
        op[types == NodeType.COMM_RECV] = Op.RECV
        for kind in (Op.SEND, Op.RECV):
            _require_p2p(trace, order, op == kind, sizes, kind, options)
        bad = np.flatnonzero(comm_node & cpu & (op != Op.TIMER))
        if len(bad):
            raise _node_error(
                trace,
                order[bad[0]],
                "a communication node with is_cpu_op true cannot be replayed; set it to false",
            )
    calls, call = _calls(trace, order, op, types, sizes, group, per_node_custom)
    p2p = np.flatnonzero((op == Op.SEND) | (op == Op.RECV))
    call[p2p] = np.arange(len(p2p))
    comm = np.full(n, -1, np.int64)
    is_comm = np.flatnonzero((op == Op.COLLECTIVE) | (op == Op.SEND) | (op == Op.RECV))
    comm[is_comm] = np.arange(len(is_comm))
    slot, slot_cap = _slots(trace, order, op, engine, cpu, system, options)
    child_start, child, parents = children_in_order(trace, order)
    if (duration > LIMIT).any() or (duration < 0).any():
        bad = np.flatnonzero((duration > LIMIT) | (duration < 0))
        raise _node_error(trace, order[bad[0]], "duration does not fit 64 bits of nanoseconds")
    return Program(
        trace=trace,
        order=order,
        op=op,
        engine=engine,
        slot=slot,
        duration_ns=duration,
        child_start=child_start,
        child=child,
        parents=parents,
        comm=comm,
        call=call,
        calls=calls,
        slot_nodes=np.bincount(slot, minlength=len(slot_cap)).astype(np.int64),
        slot_cap=slot_cap,
        p2p_peer=peer[p2p],
        p2p_bytes=sizes[p2p],
        p2p_tag=trace.comm_tag[order][p2p],
        p2p_is_send=op[p2p] == Op.SEND,
        corrections=corrections,
    )


def base_durations(trace: Trace, order: I64, options: RunOptions) -> I64:
    """Recorded durations in ns; `duration_ns` before `duration_micros` unless ASTRA-sim's numbers are wanted (C21)."""
    micros = trace.duration_micros[order]
    exact = np.full(len(micros), ABSENT)
    if options.compat == OLD_MODEL or not options.astra:
        exact = trace.duration_ns[order]
    given = exact != ABSENT
    too_long = np.flatnonzero(~given & ((micros < 0) | (micros > LIMIT // 1000)))
    if len(too_long):
        raise _node_error(trace, order[too_long[0]], "duration_micros does not fit 64 bits of nanoseconds")
    return np.where(given, exact, np.where(given, 0, micros) * 1000)


def scaled(duration: I64, factor: float, where: AnyArray, trace: Trace) -> I64:
    """Durations times a factor, rounded to the nearest ns."""
    if factor == 1.0:
        return duration
    stretched = np.where(where, np.rint(duration * factor), duration)
    if (stretched > LIMIT).any():
        raise WorkloadError(
            f"{trace.source}: a duration times {factor:g} does not fit 64 bits of nanoseconds"
        )
    return stretched.astype(np.int64)


def _node_error(trace: Trace, index: int, what: str) -> WorkloadError:
    return WorkloadError(f"{trace.source}: node {int(trace.ids[index])}: {what}")


def _roofline(
    trace: Trace,
    order: I64,
    where: AnyArray,
    op: I64,
    duration: I64,
    system: System,
    options: RunOptions,
    corrections: Counter[str],
    scale: float,
) -> None:
    """Durations of GPU compute nodes from operations and bytes (section 2.3, correction C8)."""
    nodes = np.flatnonzero(where)
    if not len(nodes):
        return
    ops, size = trace.num_ops[order][nodes], trace.tensor_size[order][nodes]
    for name, values in (("num_ops", ops), ("tensor_size", size)):
        missing = np.flatnonzero(values == ABSENT)
        if len(missing):
            raise _node_error(
                trace, order[nodes[missing[0]]], f"the roofline model needs the attribute {name}"
            )
    bandwidth = system.local_mem_bw_gbps * 1e9
    peak = (system.peak_perf_tflops or 0.0) * 1e12
    work = ops.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        perf = np.minimum(bandwidth * (work / size), peak)
        time = work / perf * 1e9
    if options.astra:
        op[nodes[size == 0]] = Op.ZERO
        bad = (size != 0) & np.isnan(time)
        if bad.any():
            raise _node_error(
                trace, order[nodes[np.flatnonzero(bad)[0]]], "num_ops is 0: ASTRA-sim's time overflows here"
            )
        time = np.where(np.isinf(time) | np.isnan(time), 0.0, time)
    else:
        odd = (ops == 0) | (size == 0) | (peak == 0.0) | (bandwidth == 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            compute = np.where(ops == 0, 0.0, work / peak * 1e9 if peak else 0.0)
            memory = np.where(size == 0, 0.0, size / bandwidth * 1e9 if bandwidth else 0.0)
        time = np.where(odd, np.maximum(compute, memory), time)
        corrections["C8"] += int(((ops == 0) | (size == 0)).sum())
        time = time * scale * options.compute_scale
    if (time > LIMIT).any():
        raise _node_error(trace, order[nodes[int(np.argmax(time))]], "roofline time does not fit 64 bits")
    duration[nodes] = np.floor(time).astype(np.int64)


def _memory(trace: Trace, order: I64, where: AnyArray, op: I64, duration: I64, memory: Memory) -> None:
    """Times of remote memory accesses (section 2.3)."""
    nodes = np.flatnonzero(where)
    if not len(nodes):
        return
    size = trace.tensor_size[order][nodes]
    missing = np.flatnonzero((size == ABSENT) | (size < 0))
    if len(missing):
        raise _node_error(
            trace, order[nodes[missing[0]]], "a memory node needs tensor_size, the bytes it moves"
        )
    if memory.kind is MemoryKind.NONE:
        raise _node_error(
            trace,
            order[nodes[0]],
            "a memory node, but the remote memory model is off "
            f"({memory.source}: memory-type is {MemoryKind.NONE.value}); give a memory configuration",
        )
    duration[nodes] = memory.latency_ns + (size // memory.bytes_per_ns if memory.bytes_per_ns else 0)
    op[nodes] = Op.TIMER if memory.kind is MemoryKind.PER_NPU else Op.SERVER


def _collectives(
    trace: Trace, order: I64, types: AnyArray, op: I64, duration: I64, sizes: I64, options: RunOptions
) -> None:
    """Which COMM_COLL nodes are priced by the network."""
    nodes = np.flatnonzero(types == NodeType.COMM_COLL)
    if not len(nodes):
        return
    kinds = trace.comm_type[order][nodes]
    missing = np.flatnonzero((kinds == ABSENT) | (kinds < 0) | (kinds > CommType.BARRIER))
    if len(missing):
        raise _node_error(
            trace,
            order[nodes[missing[0]]],
            "a collective needs comm_type, a value of CollectiveCommType (0 to 9)",
        )
    op[nodes] = Op.COLLECTIVE
    if options.astra:
        timers = nodes[kinds == CommType.BROADCAST]
        op[timers] = Op.TIMER
        duration[timers] = np.maximum(duration[timers], 1)
    size = sizes[nodes]
    bad = np.flatnonzero(((size == ABSENT) & (kinds != CommType.BARRIER)) | ((size < 0) & (size != ABSENT)))
    bad = bad[op[nodes[bad]] == Op.COLLECTIVE]
    if len(bad):
        raise _node_error(trace, order[nodes[bad[0]]], "a collective needs comm_size, bytes of at least 0")


def _require_p2p(
    trace: Trace, order: I64, where: AnyArray, sizes: I64, kind: Op, options: RunOptions
) -> None:
    """Attributes without which a message cannot be matched."""
    nodes = np.flatnonzero(where)
    if not len(nodes):
        return
    name, column = ("comm_dst", trace.comm_dst) if kind is Op.SEND else ("comm_src", trace.comm_src)
    for attribute, values in (
        (name, column[order]),
        ("comm_size", sizes),
        ("comm_tag", trace.comm_tag[order]),
    ):
        missing = np.flatnonzero(values[nodes] == ABSENT)
        if len(missing):
            word = "send" if kind is Op.SEND else "receive"
            raise _node_error(trace, order[nodes[missing[0]]], f"a {word} needs the attribute {attribute}")
    negative = np.flatnonzero(sizes[nodes] < 0)
    if len(negative):
        raise _node_error(trace, order[nodes[negative[0]]], "comm_size is negative")


def _calls(
    trace: Trace,
    order: I64,
    op: I64,
    types: AnyArray,
    sizes: I64,
    group: I64,
    per_node_custom: frozenset[int],
) -> tuple[tuple[Call, ...], I64]:
    """Distinct collectives of a program and, per node, which of them it is."""
    call = np.full(len(order), -1, np.int64)
    nodes = np.flatnonzero(op == Op.COLLECTIVE)
    if not len(nodes):
        return (), call
    ids = trace.ids[order][nodes]
    own = np.full(len(nodes), -1, np.int64)
    if per_node_custom:
        own = np.array([int(i) if int(i) in per_node_custom else -1 for i in ids], np.int64)
    size = np.where(sizes[nodes] == ABSENT, 0, sizes[nodes])
    rows = np.stack(
        [trace.comm_type[order][nodes], size, group[nodes], trace.dim_codes[order][nodes], own], axis=1
    )
    distinct, inverse = np.unique(rows, axis=0, return_inverse=True)
    call[nodes] = inverse.reshape(-1)
    calls = tuple(
        Call(
            kind=CollectiveKind(CommType(int(kind)).name),
            bytes=int(n_bytes),
            group=int(name),
            involved=trace.dim_table[int(dims)] if dims >= 0 else None,
            node_id=int(node) if node >= 0 else None,
        )
        for kind, n_bytes, name, dims, node in distinct
    )
    return calls, call


UNBOUNDED = 1 << 40


def _slots(
    trace: Trace, order: I64, op: I64, engine: I64, cpu: AnyArray, system: System, options: RunOptions
) -> tuple[I64, I64]:
    """Slot of every node and capacity of every slot.

    ASTRA-sim's slots (section 2.2): CPU, GPU compute, GPU communication (collectives, sends, memory, zero-time nodes)
    and, without a bound, receives. A recorded trace replayed by its own durations has an engine per host thread and
    per device stream instead (link-and-convert, part I).
    """
    if system.replay_only and not options.astra:
        return _recorded_slots(trace, order, engine, cpu)
    slot = np.full(len(op), 2, np.int64)
    slot[engine == Engine.GPU] = 1
    slot[cpu] = 0
    slot[op == Op.RECV] = 3
    # 1.0 has no communication slot: its workload layer issues whatever is ready
    streams = UNBOUNDED if options.compat == OLD_MODEL else options.comm_streams
    return slot, np.array([1, 1, streams, UNBOUNDED], np.int64)


def _recorded_slots(trace: Trace, order: I64, engine: I64, cpu: AnyArray) -> tuple[I64, I64]:
    """One engine per host thread and per device stream; nodes that name neither share one engine per kind."""
    tid, stream = trace.tid[order], trace.stream[order]
    kind = np.where(cpu, 0, np.where(engine == Engine.COMM, 2, 1))
    where = np.where(cpu, tid, stream)
    kind = np.where(~cpu & (stream != ABSENT), 1, kind)
    rows = np.stack([kind, where], axis=1)
    distinct, inverse = np.unique(rows, axis=0, return_inverse=True)
    return inverse.reshape(-1).astype(np.int64), np.ones(len(distinct), np.int64)


def children_in_order(trace: Trace, order: I64) -> tuple[I64, I32, I32]:
    """Children of every node in program order, as CSR, and the number of parents."""
    offsets, index = trace.children()
    n = trace.n_nodes
    inverse = np.empty(n, np.int32)
    inverse[order] = np.arange(n, dtype=np.int32)
    counts = np.diff(offsets)[order]
    start = np.zeros(n + 1, np.int64)
    np.cumsum(counts, out=start[1:])
    if np.array_equal(order, np.arange(n)):
        child = np.ascontiguousarray(index, dtype=np.int32)
    else:
        picks = np.repeat(offsets[:-1][order] - start[:-1], counts) + np.arange(start[-1])
        child = inverse[np.asarray(index)[picks]]
    parents = np.bincount(child, minlength=n).astype(np.int32)
    return start, child, parents


@dataclass(frozen=True, slots=True)
class Workload:
    """All NPUs' programs and bindings."""

    programs: tuple[Program, ...]
    #: program of each NPU
    program_of: I64
    #: trace of each NPU (index into `traces`) and its bindings
    traces: tuple[Trace, ...]
    trace_of: I64
    bindings: tuple[Bindings, ...]
    #: whether peers are offsets to the NPU's own number
    relative: bool = False

    @property
    def npus(self) -> int:
        """Number of NPUs."""
        return len(self.program_of)


def compile_workload(
    traces: Sequence[Trace],
    trace_of: I64,
    system: System,
    memory: Memory,
    options: RunOptions,
    *,
    per_node_custom: frozenset[int] = frozenset(),
    relative: bool = False,
) -> Workload:
    """Prepare the traces of all NPUs; `trace_of[i]` is the index of NPU i's trace."""
    programs: list[Program] = []
    by_key: dict[tuple[bytes, float], int] = {}
    prepared = []
    for trace in traces:
        order = trace.order_by_id()
        bindings, group, peer = bindings_of(trace, order, astra=options.astra)
        prepared.append((bindings, group, peer))
    keys = (
        [b""]
        if len(traces) == 1
        else [
            structure_key(trace, trace.order_by_id(), group, peer, ids=bool(per_node_custom))
            for trace, (_, group, peer) in zip(traces, prepared, strict=True)
        ]
    )
    scale = options.npu_scale
    program_of = np.empty(len(trace_of), np.int64)
    pairs = trace_of if scale is None else np.stack([trace_of.astype(np.float64), scale], axis=1)
    distinct, inverse = np.unique(pairs, axis=0, return_inverse=True)
    number = np.empty(len(distinct), np.int64)
    for i, row in enumerate(distinct):
        t, factor = (int(row), 1.0) if scale is None else (int(row[0]), float(row[1]))
        key = (keys[t], factor)
        if key not in by_key:
            by_key[key] = len(programs)
            _, group, peer = prepared[t]
            programs.append(
                compile_program(traces[t], group, peer, system, memory, options, per_node_custom, factor)
            )
        number[i] = by_key[key]
    program_of = number[inverse.reshape(-1)]
    return Workload(
        tuple(programs), program_of, tuple(traces), trace_of, tuple(p[0] for p in prepared), relative
    )
