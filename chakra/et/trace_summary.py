"""What a trace holds, in figures."""

from dataclasses import dataclass

import numpy as np

from chakra.arrays import I64, AnyArray, rows_by
from chakra.errors import TraceError
from chakra.et import _graph_kernel
from chakra.et.graph import graph_kernels
from chakra.et.idle_nodes import idles
from chakra.et.schema import ABSENT, CommType, NodeType
from chakra.et.trace import Trace
from chakra.schemas.et_def_pb2 import AttributeProto


@dataclass(frozen=True, slots=True)
class Traffic:
    """Communication or memory nodes of one kind: how many, and their bytes (those that state a size)."""

    kind: str
    group: str
    count: int
    bytes: int


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """The longest chain of dependent nodes by the durations in the trace (communication counts what it
    states).

    ``length_ns`` is None if control dependencies close a cycle; ``problem`` then says which.
    """

    length_ns: int | None
    nodes: tuple[int, ...]
    problem: str = ""


@dataclass(frozen=True, slots=True)
class TraceSummary:
    """Figures of one trace; times in nanoseconds, sizes in bytes."""

    source: str
    version: str
    rank: int | None
    metadata: dict[str, str]
    nodes: int
    nodes_by_type: dict[str, int]
    cpu_nodes: int
    data_edges: int
    ctrl_edges: int
    dropped_data_deps: int
    dropped_ctrl_deps: int
    roots: int
    leaves: int
    accelerator_compute_ns: int
    cpu_compute_ns: int
    num_ops: int
    collectives: tuple[Traffic, ...]
    messages: tuple[Traffic, ...]
    memory: tuple[Traffic, ...]
    critical_path: CriticalPath


def summarize(trace: Trace) -> TraceSummary:
    """Count what a trace holds.

    Raises
    ------
    TraceError
        If a duration does not fit 64 bits.
    """
    types = trace.types
    durations = trace.durations_ns()
    compute = types == NodeType.COMP
    on_cpu = trace.is_cpu_op == 1
    on_accelerator = compute & ~on_cpu & ~idles(trace)
    counts = np.bincount(types, minlength=len(NodeType)).tolist()
    offsets, index = trace.parents()
    has_children = np.zeros(trace.n_nodes, np.bool_)
    has_children[index] = True
    metadata = trace.metadata
    ops = trace.num_ops[compute]
    return TraceSummary(
        source=trace.source,
        version=metadata.version,
        rank=trace.rank,
        metadata={name: _shown(attr) for name, attr in {attr.name: attr for attr in metadata.attr}.items()},
        nodes=trace.n_nodes,
        nodes_by_type={kind.name: counts[kind] for kind in NodeType if counts[kind]},
        cpu_nodes=int(on_cpu.sum()),
        data_edges=len(trace.data_ids),
        ctrl_edges=len(trace.ctrl_ids),
        dropped_data_deps=trace.dropped_data_deps,
        dropped_ctrl_deps=trace.dropped_ctrl_deps,
        roots=int((np.diff(offsets) == 0).sum()),
        leaves=int((~has_children).sum()),
        accelerator_compute_ns=_total(durations[on_accelerator]),
        cpu_compute_ns=_total(durations[compute & on_cpu]),
        num_ops=_total(ops[ops != ABSENT]),
        collectives=_collectives(trace),
        messages=_by_type(trace, trace.comm_size, NodeType.COMM_SEND, NodeType.COMM_RECV),
        memory=_by_type(trace, trace.tensor_size, NodeType.MEM_LOAD, NodeType.MEM_STORE),
        critical_path=critical_path(trace, durations),
    )


def _shown(attr: AttributeProto) -> str:
    from chakra.et.attributes import attribute_value

    text = " ".join(str(attribute_value(attr)).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def _total(values: I64) -> int:
    """Sum without overflow."""
    if len(values) and int(np.abs(values).max()) > (2**63 - 1) // len(values):
        return sum(values.tolist())
    return int(values.sum())


def _sizes(column: I64, chosen: AnyArray) -> int:
    values = column[chosen]
    return _total(values[values != ABSENT])


def _collectives(trace: Trace) -> tuple[Traffic, ...]:
    """Collectives by kind and group, in the order of the schema and of first use."""
    chosen = trace.types == NodeType.COMM_COLL
    rows: list[Traffic] = []
    keys = np.stack([trace.comm_type[chosen], trace.pg_codes[chosen]], axis=1)
    pairs, inverse = np.unique(keys, axis=0, return_inverse=True)
    nodes = np.flatnonzero(chosen)
    for number, places in rows_by(inverse.reshape(-1)).items():
        (kind, group), mine = pairs[number].tolist(), nodes[places]
        known = kind in CommType._value2member_map_
        name = (
            CommType(kind).name if known else "kind not given" if kind == ABSENT else f"unknown kind {kind}"
        )
        rows.append(
            Traffic(
                kind=name,
                group=trace.pg_table[group] if group >= 0 else "",
                count=len(mine),
                bytes=_sizes(trace.comm_size, mine),
            )
        )
    return tuple(rows)


def _by_type(trace: Trace, column: I64, *kinds: NodeType) -> tuple[Traffic, ...]:
    rows = [(kind, trace.types == kind) for kind in kinds]
    return tuple(
        Traffic(kind.name, "", int(mask.sum()), _sizes(column, mask)) for kind, mask in rows if mask.any()
    )


def critical_path(trace: Trace, weights: I64) -> CriticalPath:
    """The longest chain by ``weights`` (int64, one a node), as node indices from first to last."""
    try:
        order = trace.topological_order()
    except TraceError as error:
        return CriticalPath(None, (), str(error).removeprefix(f"{trace.source}: "))
    n = trace.n_nodes
    if not n:
        return CriticalPath(0, ())
    offsets, index = trace.parents()
    kernels = graph_kernels(n + len(index))
    if kernels is None:
        finish, best = [0] * n, [-1] * n
        lists = (offsets.tolist(), index.tolist(), order.tolist(), weights.tolist())
        _graph_kernel.longest_paths(*lists, finish, best)
        node = max(range(n), key=finish.__getitem__)
        length = finish[node]
    else:
        ends, best_parent = np.zeros(n, np.int64), np.full(n, -1, np.int64)
        kernels.longest_paths(offsets, index, order, weights, ends, best_parent)
        node = int(np.argmax(ends))
        length = int(ends[node])
        best = best_parent.tolist()
    path: list[int] = []
    while node >= 0:
        path.append(node)
        node = best[node]
    return CriticalPath(length, tuple(reversed(path)))
