"""The graph that is drawn: columns over nodes and edges, made from a trace, by a selection, or by folding."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from chakra.arguments import checked
from chakra.arrays import I32, I64, U8, U64, Bool, distinct
from chakra.et import ABSENT, CommType, NodeType, Trace
from chakra.io.readable import bytes_text, counted_text, duration_text
from chakra.schemas.et_def_pb2 import Node
from chakra.viz.style import KIND_STYLES, EdgeKind, Kind

#: In ``size_bytes`` and ``start_ns``: the node has no such value.
NONE: Final = -1


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """Nodes and edges to draw. Edges of both kinds between the same two nodes are two edges.

    Attributes
    ----------
    title
        What the drawing is headed with.
    ids
        (n,) uint64: ids in the trace; of folded nodes, that of the first member.
    kinds
        (n,) uint8: values of ``Kind``.
    names, notes
        (n,) text: the name; what else the label says (collective, peers, group), may be empty.
    duration_ns, size_bytes, start_ns
        (n,) int64; a duration of 0 and a size or start of ``NONE`` are not shown.
    lanes, lane_names
        (n,) int32 index of the row that each node is drawn in, and the rows' names.
    members
        (n,) int64: how many nodes of the trace it stands for.
    src, dst, edge_kinds, edge_counts
        (m,) int32, int32, uint8, int64: edges as node indices; how many edges of the trace each stands for.
    """

    title: str
    ids: U64
    kinds: U8
    names: list[str]
    notes: list[str]
    duration_ns: I64
    size_bytes: I64
    start_ns: I64
    lanes: I32
    lane_names: tuple[str, ...]
    members: I64
    src: I32
    dst: I32
    edge_kinds: U8
    edge_counts: I64

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return len(self.ids)

    @property
    def n_edges(self) -> int:
        """Number of edges."""
        return len(self.src)

    def detail(self, node: int) -> str:
        """What a node's label says below its name: members, duration or bytes, and what they belong to."""
        return ", ".join(part for part in (self.count_text(node), self.cost_text(node)) if part)

    def count_text(self, node: int) -> str:
        """How many nodes a folded one stands for; empty for a plain node."""
        return f"{counted_text(int(self.members[node]), 'node')}" if self.members[node] > 1 else ""

    def cost_text(self, node: int) -> str:
        """A node's note, bytes and duration, as far as it has them."""
        parts = [self.notes[node]] if self.notes[node] else []
        if self.size_bytes[node] >= 0:
            parts.append(bytes_text(int(self.size_bytes[node])))
        if self.duration_ns[node] > 0:
            parts.append(duration_text(int(self.duration_ns[node])))
        return ", ".join(parts)

    def tooltip(self, node: int) -> str:
        """Everything known about a node, one fact a line."""
        kind = KIND_STYLES[Kind(int(self.kinds[node]))].legend
        lines = [
            self.names[node] or "(no name)",
            f"id {self.ids[node]}, {kind}, {self.lane_names[self.lanes[node]]}",
        ]
        detail = self.detail(node)
        return "\n".join([*lines, detail] if detail else lines)


#: Dependencies as (id of the parent, index of the node that waits), one entry an edge.
Dependencies = tuple[U64, I64]


@checked
def from_trace(
    trace: Trace, title: str | None = None, *, written: tuple[Dependencies, Dependencies] | None = None
) -> Graph:
    """The whole graph of a trace, with one ghost for every id that dependencies name and the trace does not
    have.

    Parameters
    ----------
    trace
        Dependencies that were dropped on reading come back here, from its records.
    title
        Default: the trace's source.
    written
        Data and control dependencies as the file has them, where the trace's records are already repaired.
    """
    n = trace.n_nodes
    if written is None and (trace.dropped_ctrl_deps or trace.dropped_data_deps):
        written = dependencies_of([trace.node_proto(i) for i in range(n)])
    if written is None:
        written = _edges(trace.data_offsets, trace.data_ids), _edges(trace.ctrl_offsets, trace.ctrl_ids)
    (data_src, data_dst), (ctrl_src, ctrl_dst) = written
    source_ids = np.concatenate([data_src, ctrl_src])
    dst = np.concatenate([data_dst, ctrl_dst])
    kinds = np.repeat(np.array([EdgeKind.DATA, EdgeKind.CTRL], np.uint8), [len(data_src), len(ctrl_src)])
    order = trace.order_by_id()
    place = np.minimum(np.searchsorted(trace.ids, source_ids, sorter=order), max(n - 1, 0))
    src = order[place] if n else np.zeros(0, np.int64)
    lost = trace.ids[src] != source_ids if n else np.zeros(0, np.bool_)
    ghosts = distinct(source_ids[lost])
    src[lost] = n + np.searchsorted(ghosts, source_ids[lost])
    keep = _first_of_each(src, dst, kinds, n + len(ghosts))
    lanes, lane_names = _lanes(trace, len(ghosts))
    node_kinds = np.where((trace.types == NodeType.COMP) & (trace.is_cpu_op == 1), Kind.CPU, trace.types)
    node_kinds = np.where(node_kinds > Kind.MISSING, Kind.INVALID, node_kinds)
    pad = len(ghosts)
    table = trace.name_table
    sizes = np.where(trace.comm_size != ABSENT, trace.comm_size, trace.tensor_size)
    sizes = np.where((sizes == ABSENT) | ((trace.types == NodeType.COMP) & (sizes == 0)), NONE, sizes)
    starts = np.where(np.any(trace.start_micros > 0), trace.start_micros, NONE)
    first = int(starts.min()) if n else 0
    starts = np.where(starts >= 0, np.minimum(starts - max(first, 0), 2**53) * 1000, NONE)
    return Graph(
        title=title or trace.source,
        ids=np.concatenate([trace.ids, ghosts]),
        kinds=np.concatenate([node_kinds, np.full(pad, Kind.MISSING)]).astype(np.uint8),
        names=[table[code] for code in trace.name_codes.tolist()] + ["(missing)"] * pad,
        notes=_notes(trace) + ["not in the trace"] * pad,
        duration_ns=np.concatenate([np.maximum(trace.durations_ns(), 0), np.zeros(pad, np.int64)]),
        size_bytes=np.concatenate([sizes, np.full(pad, NONE, np.int64)]),
        start_ns=np.concatenate([starts, np.full(pad, NONE, np.int64)]),
        lanes=lanes,
        lane_names=lane_names,
        members=np.ones(n + pad, np.int64),
        src=src[keep].astype(np.int32),
        dst=dst[keep].astype(np.int32),
        edge_kinds=kinds[keep],
        edge_counts=np.ones(int(keep.sum()), np.int64),
    )


def _edges(offsets: I64, ids: U64) -> Dependencies:
    return ids, np.repeat(np.arange(len(offsets) - 1, dtype=np.int64), np.diff(offsets))


def dependencies_of(nodes: list[Node]) -> tuple[Dependencies, Dependencies]:
    """Data and control dependencies of messages, which may name ids that no message has."""
    return _flat([list(node.data_deps) for node in nodes]), _flat([list(node.ctrl_deps) for node in nodes])


def _flat(lists: list[list[int]]) -> Dependencies:
    counts = np.fromiter((len(item) for item in lists), np.int64, len(lists))
    ids = np.fromiter((value for item in lists for value in item), np.uint64, int(counts.sum()))
    return ids, np.repeat(np.arange(len(lists), dtype=np.int64), counts)


def _first_of_each(src: I64, dst: I64, kinds: U8, n: int) -> Bool:
    """Mark the first of every group of equal edges (a dependency may be listed twice)."""
    _, first = np.unique((src * n + dst) * 2 + kinds, return_index=True)
    keep = np.zeros(len(src), np.bool_)
    keep[first] = True
    return keep


def _lanes(trace: Trace, ghosts: int) -> tuple[I32, tuple[str, ...]]:
    """One row per thread, stream or engine, in that order; ghosts get a row of their own."""
    types, cpu = trace.types, trace.is_cpu_op == 1
    comm = (types == NodeType.COMM_COLL) | (types == NodeType.COMM_SEND) | (types == NodeType.COMM_RECV)
    memory = (types == NodeType.MEM_LOAD) | (types == NodeType.MEM_STORE)
    rank = np.select([cpu, types == NodeType.COMP, comm, memory], [0, 1, 2, 3], 4)
    number = np.select([rank == 0, rank < 4], [trace.tid, trace.stream], ABSENT)
    keys, lanes = np.unique(np.stack([rank, number]), axis=1, return_inverse=True)
    words = ("CPU", "compute", "communication", "memory", "other")
    joint = ("thread", "stream", "stream", "stream", "")
    names = [
        words[r] if value == ABSENT else f"{words[r]}, {joint[r]} {value}" for r, value in keys.T.tolist()
    ]
    rows: I32 = lanes.reshape(-1).astype(np.int32)
    if ghosts:
        rows = np.concatenate([rows, np.full(ghosts, len(names), np.int32)])
        names.append("missing")
    return rows, tuple(names)


def _notes(trace: Trace) -> list[str]:
    """What a communication node does: its collective, peer, tag and group."""
    notes = [""] * trace.n_nodes
    types = trace.types
    known = {int(kind): kind.name for kind in CommType}
    for i in np.flatnonzero(types >= NodeType.COMM_SEND).tolist():
        parts = []
        if types[i] == NodeType.COMM_COLL and trace.comm_type[i] != ABSENT:
            parts.append(known.get(int(trace.comm_type[i]), f"collective {trace.comm_type[i]}"))
        elif types[i] == NodeType.COMM_SEND and trace.comm_dst[i] != ABSENT:
            parts.append(f"to {trace.comm_dst[i]}")
        elif types[i] == NodeType.COMM_RECV and trace.comm_src[i] != ABSENT:
            parts.append(f"from {trace.comm_src[i]}")
        if types[i] != NodeType.COMM_COLL and trace.comm_tag[i] != ABSENT:
            parts.append(f"tag {trace.comm_tag[i]}")
        if trace.pg_codes[i] >= 0:
            parts.append(f"group {trace.pg_table[trace.pg_codes[i]]}")
        notes[i] = ", ".join(parts)
    return notes


def induced(graph: Graph, keep: Bool, title: str | None = None) -> Graph:
    """The part of a graph that has the marked nodes and the edges between them; ``keep`` is (n,) bool."""
    number = np.cumsum(keep) - 1
    edges = keep[graph.src] & keep[graph.dst]
    chosen = np.flatnonzero(keep)
    used, lanes = np.unique(graph.lanes[chosen], return_inverse=True)
    return Graph(
        title=title or graph.title,
        ids=graph.ids[chosen],
        kinds=graph.kinds[chosen],
        names=[graph.names[i] for i in chosen.tolist()],
        notes=[graph.notes[i] for i in chosen.tolist()],
        duration_ns=graph.duration_ns[chosen],
        size_bytes=graph.size_bytes[chosen],
        start_ns=graph.start_ns[chosen],
        lanes=lanes.astype(np.int32),
        lane_names=tuple(graph.lane_names[i] for i in used.tolist()),
        members=graph.members[chosen],
        src=number[graph.src[edges]].astype(np.int32),
        dst=number[graph.dst[edges]].astype(np.int32),
        edge_kinds=graph.edge_kinds[edges],
        edge_counts=graph.edge_counts[edges],
    )
