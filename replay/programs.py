"""From traces to programs: every node's kind, duration and slot, and the collectives that it calls.

Sources: replay semantics, section 2; corrections C1, C2, C6, C8, C17, C20 and C21 of `differences.md`.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from chakra.arrays import I64, AnyArray
from chakra.errors import WorkloadError
from chakra.et import ABSENT, CommType, NodeType, Trace
from chakra.replay.bindings import bindings_of, children_in_order, structure_key
from chakra.replay.collectives.plan import OLD_MODEL
from chakra.replay.config.model import CollectiveKind, Memory, System
from chakra.replay.node_costs import (
    LIMIT,
    base_durations,
    collectives,
    node_error,
    remote_memory,
    require_p2p,
    roofline,
    scaled,
)
from chakra.replay.options import RunOptions
from chakra.replay.workload import Bindings, Call, Engine, Op, Program, Workload


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
            structure_key(trace, trace.order_by_id(), bindings, group, peer, ids=bool(per_node_custom))
            for trace, (bindings, group, peer) in zip(traces, prepared, strict=True)
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
            programs.append(
                compile_program(traces[t], *prepared[t], system, memory, options, per_node_custom, factor)
            )
        number[i] = by_key[key]
    program_of = number[inverse.reshape(-1)]
    return Workload(
        tuple(programs), program_of, tuple(traces), trace_of, tuple(p[0] for p in prepared), relative
    )


def compile_program(
    trace: Trace,
    bindings: Bindings,
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
            roofline(trace, order, comp & ~cpu, op, duration, system, options, corrections, scale)
        remote_memory(trace, order, mem_node, op, duration, memory)
        collectives(trace, order, types, op, duration, sizes, options)
        op[types == NodeType.COMM_SEND] = Op.SEND
        op[types == NodeType.COMM_RECV] = Op.RECV
        for kind in (Op.SEND, Op.RECV):
            require_p2p(trace, order, op == kind, sizes, kind, options)
        bad = np.flatnonzero(comm_node & cpu & (op != Op.TIMER))
        if len(bad):
            raise node_error(
                trace,
                order[bad[0]],
                "a communication node with is_cpu_op true cannot be replayed; set it to false",
            )
    calls, call = _calls(trace, order, op, types, sizes, group, bindings.world, per_node_custom)
    p2p = np.flatnonzero((op == Op.SEND) | (op == Op.RECV))
    call[p2p] = np.arange(len(p2p))
    comm = np.full(n, -1, np.int64)
    is_comm = np.flatnonzero((op == Op.COLLECTIVE) | (op == Op.SEND) | (op == Op.RECV))
    comm[is_comm] = np.arange(len(is_comm))
    slot, slot_cap = _slots(trace, order, op, engine, cpu, system, options)
    child_start, child, parents = children_in_order(trace, order)
    if (duration > LIMIT).any() or (duration < 0).any():
        bad = np.flatnonzero((duration > LIMIT) | (duration < 0))
        raise node_error(trace, order[bad[0]], "duration does not fit 64 bits of nanoseconds")
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


#: dimensions of a collective of a process group, as many as ASTRA-sim then counts, and their code
ALL_DIMS = (True,) * 10
GROUP_DIMS = -2


def _calls(
    trace: Trace,
    order: I64,
    op: I64,
    types: AnyArray,
    sizes: I64,
    group: I64,
    world: int,
    per_node_custom: frozenset[int],
) -> tuple[tuple[Call, ...], I64]:
    """Distinct collectives of a program and, per node, which of them it is.

    A node that names a process group has the group's members, whatever its `involved_dim` says (section 3.3); `world` is
    the index of all NPUs among the groups.
    """
    call = np.full(len(order), -1, np.int64)
    nodes = np.flatnonzero(op == Op.COLLECTIVE)
    if not len(nodes):
        return (), call
    ids = trace.ids[order][nodes]
    own = np.full(len(nodes), -1, np.int64)
    if per_node_custom:
        own = np.array([int(i) if int(i) in per_node_custom else -1 for i in ids], np.int64)
    size = np.where(sizes[nodes] == ABSENT, 0, sizes[nodes])
    dims_of = np.where(group[nodes] == world, trace.dim_codes[order][nodes], GROUP_DIMS)
    rows = np.stack([trace.comm_type[order][nodes], size, group[nodes], dims_of, own], axis=1)
    distinct, inverse = np.unique(rows, axis=0, return_inverse=True)
    call[nodes] = inverse.reshape(-1)
    calls = tuple(
        Call(
            kind=CollectiveKind(CommType(int(kind)).name),
            bytes=int(n_bytes),
            group=int(name),
            involved=ALL_DIMS if dims == GROUP_DIMS else trace.dim_table[int(dims)] if dims >= 0 else None,
            node_id=int(node) if node >= 0 else None,
        )
        for kind, n_bytes, name, dims, node in distinct
    )
    return calls, call


#: capacity of a slot without a bound
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
    slot[(trace.types[order] == NodeType.COMM_RECV) & ~cpu] = 3
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
