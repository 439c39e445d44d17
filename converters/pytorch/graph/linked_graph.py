"""The linked graph as columns, and how it is put in order (rules R-STREAM, R-NODE, R-DAG, R-DUR)."""

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from chakra.arrays import I32, I64, AnyArray, Bool, bounds, changes
from chakra.converters.pytorch.comm.operations import Comm
from chakra.converters.pytorch.graph.columns import Draft, NodeColumns, compact, ordered
from chakra.converters.pytorch.match.attach import kernels

#: Kinds of nodes beside those of the host's time (`time.host_time`).
NODE_DEVICE, NODE_UNMATCHED, NODE_DEVICE_GAP, NODE_TURN = 4, 5, 6, 7
E_CHAIN, E_LAUNCH, E_STREAM, E_SYNC, E_WAIT, E_FORK, E_JOIN, E_TENSOR = range(8)
EDGE_NAMES = (
    "thread order", "launch", "stream order", "host waits for device", "stream waits for stream",
    "thread starts thread", "thread waits for thread", "tensor",
)  # fmt: skip


@dataclass(slots=True)
class Graph(NodeColumns):
    """Nodes in file order (= time order) with their edges as indices.

    ``sources[offsets[i]:offsets[i + 1]]`` are data dependencies. ``engine`` numbers threads, then streams.
    """

    offsets: I64
    sources: I64
    engine: I32
    n_engines: int
    comm: dict[int, Comm]
    edges: dict[str, int] = field(default_factory=dict)
    against_time: dict[str, int] = field(default_factory=dict)
    fitted: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    """Nodes whose time is what is left of a wait."""
    until: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    """When each of them ended as recorded, since the region's begin."""
    replay_ns: int = field(default=0, init=False)
    #: the same with every fitted wait set to 0: what the graph explains by itself
    explained_ns: int = field(default=0, init=False)
    #: the same without other ranks' turns on a shared accelerator either
    alone_ns: int = field(default=0, init=False)

    def __len__(self) -> int:
        return len(self.type)


def finish(draft: Draft) -> Graph:
    """Order the nodes by time, drop edges against it, thin out implied edges, settle durations."""
    compact(draft)
    n = len(draft.type)
    order = np.lexsort((draft.rank, draft.start)).astype(np.int32)  # stable: draft order breaks ties
    position = np.empty(n, np.int32)
    position[order] = np.arange(n, dtype=np.int32)
    sources, targets, kinds, against = _collect(draft, position)
    draft.edges = []
    parent = np.where(draft.parent >= 0, position[draft.parent], np.int32(-1))
    late = (parent >= 0) & (parent >= position)
    if late.any():
        against["parent"] = int(late.sum())
        parent[late] = -1
    parent = parent[order]
    offsets, sources, kinds = _thin(sources, targets, kinds, draft.chain_group[order], n)
    columns = ordered(draft, order) | {"parent": parent}
    thread = columns["thread"]
    engines = np.where(thread >= 0, thread, int(thread.max(initial=-1)) + 1 + columns["stream_key"])
    used, engine = np.unique(engines, return_inverse=True)
    graph = Graph(
        **columns,
        offsets=offsets,
        sources=sources,
        engine=engine.reshape(-1).astype(np.int32),
        n_engines=len(used),
        comm={int(position[i]): c for i, c in draft.comm.items()},
        edges={name: int((kinds == k).sum()) for k, name in enumerate(EDGE_NAMES)},
        against_time=dict(against),
    )
    hold = draft.hold[order]
    graph.fitted = np.flatnonzero(hold >= 0)
    graph.until = hold[graph.fitted]
    settle(graph)
    return graph


class _Edges(NamedTuple):
    """Edges between nodes in their final order, and how many were left out because they go back in time."""

    sources: I64
    targets: I64
    kinds: I64
    against: Counter[str]


def _collect(draft: Draft, position: I32) -> _Edges:
    against: Counter[str] = Counter()
    parts: list[tuple[AnyArray, AnyArray, AnyArray]] = []
    for source, target, kind in draft.edges:
        ok = (source >= 0) & (target >= 0)
        s, t = position[source[ok]], position[target[ok]]
        forward = s < t
        if not forward.all():
            against[EDGE_NAMES[kind]] += int((~forward).sum())
        parts.append((s[forward], t[forward], np.full(int(forward.sum()), kind, np.int8)))
    if not parts:
        empty = np.zeros(0, np.int64)
        return _Edges(empty, empty, empty, against)
    return _Edges(
        np.concatenate([p[0] for p in parts]),
        np.concatenate([p[1] for p in parts]),
        np.concatenate([p[2] for p in parts]),
        against,
    )


def _thin(sources: I64, targets: I64, kinds: I64, group: I64, n: int) -> tuple[I64, I64, I64]:
    """Keep per node and chain only the latest source; deduplicate; sort. Returns (offsets, sources,
    kinds).
    """
    groups = group[sources]
    order = np.lexsort((kinds, sources, groups, targets))
    sources, targets, kinds, groups = sources[order], targets[order], kinds[order], groups[order]
    if len(sources):
        last = np.append((targets[1:] != targets[:-1]) | (groups[1:] != groups[:-1]), True)
        sources, targets, kinds = sources[last], targets[last], kinds[last]
    del groups, order
    order = np.lexsort((sources, targets))
    sources, targets, kinds = sources[order], targets[order], kinds[order]
    offsets = bounds(np.bincount(targets, minlength=n))
    return offsets, sources, kinds


def settle(graph: Graph) -> None:
    """Durations of waits: from the replayed end of the awaited work to the recorded return of the call."""
    ends = np.zeros(len(graph), np.int64)
    hold = np.full(len(graph), -1, np.int64)
    hold[graph.fitted] = graph.until
    kernels(len(graph)).replay(
        graph.offsets, graph.sources, graph.duration, graph.engine, graph.n_engines, hold, ends
    )
    graph.replay_ns = int(ends.max(initial=0))
    graph.explained_ns = graph.alone_ns = graph.replay_ns
    own, none = graph.duration.copy(), np.full_like(hold, -1)
    if len(graph.fitted):
        own[graph.fitted] = 0
        kernels(len(graph)).replay(
            graph.offsets, graph.sources, own, graph.engine, graph.n_engines, none, ends
        )
        graph.explained_ns = graph.alone_ns = int(ends.max(initial=0))
    turns = graph.kind == NODE_TURN
    if turns.any():
        own[turns] = 0
        kernels(len(graph)).replay(
            graph.offsets, graph.sources, own, graph.engine, graph.n_engines, none, ends
        )
        graph.alone_ns = int(ends.max(initial=0))


def micros(duration_ns: I64, engine: I32) -> I64:
    """Whole microseconds whose running sum per engine stays within half a microsecond of the true sum
    (R-DUR).
    """
    out = np.zeros(len(duration_ns), np.int64)
    order = np.argsort(engine, kind="stable")
    grouped = engine[order]
    sums = np.cumsum(duration_ns[order])
    first = changes(grouped)
    base = np.maximum.accumulate(np.where(first, sums - duration_ns[order], 0)) if len(order) else sums
    rounded = (sums - base + 500) // 1000
    out[order] = rounded - np.where(first, 0, np.append(0, rounded[:-1]))
    return out


def host_ranks(thread: I64, start: I64, late: Bool) -> I64:
    """Ranks among equal start times: 0, or 2 for nodes behind a wait, never falling along a thread."""
    rank = np.where(late, 2, 0)
    if not len(thread):
        return rank
    # (thread, start) never falls along the table, so a running maximum carries a rank over equal starts only.
    span = int(start.max()) + 1
    key = (thread * span + start) * 4 + rank
    out: I64 = np.maximum.accumulate(key) % 4
    return out
