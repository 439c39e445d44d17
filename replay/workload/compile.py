"""From traces to programs: every node's kind, duration and slot, and the collectives that it calls.

Source: replay semantics, section 2.
"""

from collections.abc import Sequence

import numpy as np

from chakra.arrays import I64, distinct
from chakra.et import ABSENT, CommType, NodeType, Trace
from chakra.et.attributes import metadata_text
from chakra.et.operators import BY_STREAM, COMM_ORDER, FRAMEWORK
from chakra.replay.collectives.call import Call
from chakra.replay.compute.in_effect import measured_products, operator_model
from chakra.replay.config.model import CollectiveKind, Memory, System
from chakra.replay.options import OLD_MODEL, RunOptions
from chakra.replay.workload.bindings import Bound, bindings_of, children_in_order, structure_key
from chakra.replay.workload.model import Engine, Op, Program, Workload
from chakra.replay.workload.node_costs import check_durations, price, scale_sizes, set_durations
from chakra.replay.workload.node_draft import Draft, Setting, draft_of
from chakra.replay.workload.recorded import is_recorded
from chakra.replay.workload.splits import check_splits, splits_of


def framework_of(traces: Sequence[Trace]) -> str | None:
    """The framework whose program the traces are, where they say so."""
    if not any(len(trace.operator_table) for trace in traces):
        return None
    return next((name for trace in traces if (name := metadata_text(trace.metadata, FRAMEWORK))), None)


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
    operators = operator_model(system, options, framework_of(traces))
    told = any(len(trace.operator_table) for trace in traces)
    products = measured_products(system, options, operators) if told else None
    setting = Setting(system, memory, options, per_node_custom, operators, products)
    bound = [bindings_of(trace, trace.order_by_id(), astra=options.astra) for trace in traces]
    keys = [b""] * len(traces)
    if len(traces) > 1:
        keys = [
            structure_key(trace, trace.order_by_id(), one, ids=bool(per_node_custom))
            for trace, one in zip(traces, bound, strict=True)
        ]
    scale = options.npu_scale
    pairs = trace_of if scale is None else np.stack([trace_of.astype(np.float64), scale], axis=1)
    distinct, inverse = np.unique(pairs, axis=0, return_inverse=True)
    programs: list[Program] = []
    by_key: dict[tuple[bytes, float], int] = {}
    number = np.empty(len(distinct), np.int64)
    for i, row in enumerate(distinct):
        t, factor = (int(row), 1.0) if scale is None else (int(row[0]), float(row[1]))
        key = (keys[t], factor)
        if key not in by_key:
            by_key[key] = len(programs)
            programs.append(compile_program(traces[t], bound[t], setting, factor))
        number[i] = by_key[key]
    return Workload(
        programs=tuple(programs),
        program_of=number[inverse.reshape(-1)],
        traces=tuple(traces),
        trace_of=trace_of,
        bindings=tuple(one.bindings for one in bound),
        relative=relative,
    )


def compile_program(trace: Trace, bound: Bound, setting: Setting, scale: float) -> Program:
    """Prepare one trace for the engines.

    Raises
    ------
    WorkloadError
        For a node that cannot be replayed: the message names file, node and what is missing.
    """
    draft = draft_of(trace, setting, scale)
    set_durations(draft)
    scale_sizes(draft)
    price(draft)
    check_splits(draft)
    calls, call = _calls(draft, bound)
    sends = draft.op == Op.SEND
    p2p = np.flatnonzero(sends | (draft.op == Op.RECV))
    call[p2p] = np.arange(len(p2p))
    comm = np.full(len(draft.op), -1, np.int64)
    is_comm = np.flatnonzero(call >= 0)
    comm[is_comm] = np.arange(len(is_comm))
    slot, slot_cap = _slots(draft)
    child_start, child, parents = children_in_order(trace, draft.order)
    check_durations(draft)
    return Program(
        trace=trace,
        order=draft.order,
        op=draft.op,
        engine=draft.engine,
        slot=slot,
        duration_ns=draft.duration_ns,
        child_start=child_start,
        child=child,
        parents=parents,
        comm=comm,
        call=call,
        calls=calls,
        slot_nodes=np.bincount(slot, minlength=len(slot_cap)).astype(np.int64),
        slot_cap=slot_cap,
        p2p_peer=bound.peer[p2p],
        p2p_bytes=draft.comm_bytes[p2p],
        p2p_tag=trace.comm_tag[draft.order[p2p]],
        p2p_is_send=sends[p2p],
        corrections=draft.corrections,
    )


#: dimensions of a collective of a process group, as many as ASTRA-sim then counts, and their code
ALL_DIMS = (True,) * 10
GROUP_DIMS = -2


def _calls(draft: Draft, bound: Bound) -> tuple[tuple[Call, ...], I64]:
    """Distinct collectives of a program and, per node, which of them it is.

    A node that names a process group has the group's members, whatever its `involved_dim` says (section 3.3).
    """
    trace, per_node_custom = draft.trace, draft.setting.per_node_custom
    call = np.full(len(draft.op), -1, np.int64)
    nodes = np.flatnonzero(draft.op == Op.COLLECTIVE)
    if not len(nodes):
        return (), call
    index = draft.order[nodes]
    own = np.full(len(nodes), -1, np.int64)
    if per_node_custom:
        own = np.array([int(i) if int(i) in per_node_custom else -1 for i in trace.ids[index]], np.int64)
    size = np.where(draft.comm_bytes[nodes] == ABSENT, 0, draft.comm_bytes[nodes])
    group = bound.group[nodes]
    dims_of = np.where(group == bound.bindings.world, trace.dim_codes[index], GROUP_DIMS)
    rows = np.stack([trace.comm_type[index], size, group, dims_of, own], axis=1)
    splits = splits_of(draft, nodes)
    if splits is not None:
        rows = np.concatenate([rows, splits.codes], axis=1)
    distinct, inverse = np.unique(rows, axis=0, return_inverse=True)
    call[nodes] = inverse.reshape(-1)
    calls = tuple(
        Call(
            kind=CollectiveKind(CommType(int(kind)).name),
            bytes=int(n_bytes),
            group=int(name),
            involved=ALL_DIMS if dims == GROUP_DIMS else trace.dim_table[int(dims)] if dims >= 0 else None,
            node_id=int(node) if node >= 0 else None,
            in_split=splits.lists.get(int(lists[0])) if splits else None,
            out_split=splits.lists.get(int(lists[1])) if splits else None,
        )
        for kind, n_bytes, name, dims, node, *lists in distinct
    )
    return calls, call


#: capacity of a slot without a bound
UNBOUNDED = 1 << 40


def _slots(draft: Draft) -> tuple[I64, I64]:
    """Slot of every node and capacity of every slot.

    ASTRA-sim's slots (section 2.2): CPU, GPU compute, GPU communication (collectives, sends, memory, zero-time nodes)
    and, without a bound, receives. A recorded trace has an engine per host thread and per device stream instead
    (linking and conversion, section 6), so that what ran side by side still does. By its own durations a stream runs one
    node at a time; where the network decides, communication has an engine per stream beside the stream's computing, and
    receives none, since either end would wait for the other.
    """
    options = draft.setting.options
    if draft.setting.system.replay_only and not options.astra:
        return _recorded_slots(draft)
    slot = np.full(len(draft.op), 2, np.int64)
    slot[np.isin(draft.engine, (Engine.GPU, Engine.IDLE))] = 1
    slot[draft.cpu] = 0
    slot[draft.where(NodeType.COMM_RECV) & ~draft.cpu] = 3
    streams = _comm_streams(draft, slot)
    capacity = np.array([1, 1, streams, UNBOUNDED], np.int64)
    if options.astra or not is_recorded(draft.trace):
        return slot, capacity
    where = np.where(slot == 0, draft.trace.tid[draft.order], draft.trace.stream[draft.order])
    where = np.where((slot == 3) | (draft.engine == Engine.NONE), ABSENT, where)
    return _distinct(slot, where, capacity)


def _comm_streams(draft: Draft, slot: I64) -> int:
    """Collectives and messages that an NPU may have in flight.

    NCCL's communicators have a device stream each, and do not wait for each other. So where a library gives collectives
    their times, a trace whose streams are chains of their own has all of these in flight, if nobody asks for more.
    """
    setting = draft.setting
    options = setting.options
    if options.compat == OLD_MODEL:
        # 1.0 has no communication slot: its workload layer issues whatever is ready
        return UNBOUNDED
    alone = options.comm_streams == 1 and not options.astra and setting.system.collective_library is not None
    if not alone or metadata_text(draft.trace.metadata, COMM_ORDER) != BY_STREAM:
        return options.comm_streams
    return max(len(distinct(draft.trace.stream[draft.order][slot == 2])), 1)


def _recorded_slots(draft: Draft) -> tuple[I64, I64]:
    """One engine per host thread and per device stream; nodes that name neither share one engine per kind."""
    tid, stream = draft.trace.tid[draft.order], draft.trace.stream[draft.order]
    kind = np.where(draft.cpu, 0, np.where(draft.engine == Engine.COMM, 2, 1))
    where = np.where(draft.cpu, tid, stream)
    kind = np.where(~draft.cpu & (stream != ABSENT), 1, kind)
    return _distinct(kind, where, np.ones(3, np.int64))


def _distinct(kind: I64, where: I64, capacity: I64) -> tuple[I64, I64]:
    """Slot of every node, one per kind and place, and the capacity of each, that of its kind."""
    rows = np.stack([kind, where], axis=1)
    distinct, inverse = np.unique(rows, axis=0, return_inverse=True)
    return inverse.reshape(-1).astype(np.int64), capacity[distinct[:, 0]]
