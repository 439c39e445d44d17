"""Choosing a part of a graph to draw: around a node, the critical path, some kinds, a window of time."""

import re
from dataclasses import replace
from typing import Final

import numpy as np

from chakra.arguments import checked
from chakra.arrays import I64, Bool
from chakra.errors import UsageError
from chakra.io.digits import decimal_number
from chakra.viz.graph.graph import Graph, induced
from chakra.viz.graph.levels import csr, order_and_levels
from chakra.viz.style import EdgeKind, Kind

#: Words of ``--only`` and the kinds that they mean.
GROUPS_OF_KINDS: Final[dict[str, tuple[Kind, ...]]] = {
    "comm": (Kind.COLL, Kind.SEND, Kind.RECV),
    "compute": (Kind.COMP,),
    "cpu": (Kind.CPU,),
    "memory": (Kind.MEM_LOAD, Kind.MEM_STORE),
    "metadata": (Kind.METADATA,),
    "missing": (Kind.MISSING,),
}
#: Hidden nodes pass on at most this many ancestors, so that a selection stays linear in the graph.
_CARRIED: Final = 16
_TIME = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(ns|us|µs|ms|s)?\s*$")
_TIME_NS: Final = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


@checked
def around(graph: Graph, node_id: int, hops: int) -> Graph:
    """Nodes at most ``hops`` edges away from the node with this id, in either direction.

    Parameters
    ----------
    graph
        The graph.
    node_id
        Id of the node in the trace.
    hops
        Edges away from it at most.

    Raises
    ------
    UsageError
        If no node has this id.
    """
    if hops < 0:
        raise UsageError(f"hops: {hops} is not a whole number of at least 0")
    found = np.flatnonzero(graph.ids == np.uint64(node_id)) if 0 <= node_id < 2**64 else np.zeros(0, np.int64)
    if not len(found):
        raise UsageError(f"--around {node_id}: {graph.title} has no node with this id")
    keep = np.zeros(graph.n_nodes, np.bool_)
    keep[found] = True
    for _ in range(hops):
        grown = keep.copy()
        grown[graph.dst[keep[graph.src]]] = True
        grown[graph.src[keep[graph.dst]]] = True
        if grown.sum() == keep.sum():
            break
        keep = grown
    return induced(graph, keep, f"{graph.title}: {hops} hops around node {node_id}")


@checked
def only(graph: Graph, words: tuple[str, ...]) -> Graph:
    """Nodes of some kinds; paths through the others become dotted edges to the nearest chosen ancestors.

    Parameters
    ----------
    graph
        The graph.
    words
        Keys of ``GROUPS_OF_KINDS``, or words of ``KIND_STYLES``.

    Raises
    ------
    UsageError
        If a word is unknown or nothing is left.
    """
    kinds: set[int] = set()
    singles = {kind.name.lower(): kind for kind in Kind}
    for word in words:
        if word in GROUPS_OF_KINDS:
            kinds.update(GROUPS_OF_KINDS[word])
        elif word in singles:
            kinds.add(singles[word])
        else:
            choices = ", ".join(dict.fromkeys([*GROUPS_OF_KINDS, *singles]))
            raise UsageError(f"--only {word}: unknown kind of node; one of {choices}")
    keep = np.isin(graph.kinds, list(kinds))
    if not keep.any():
        raise UsageError(f"--only {','.join(words)}: {graph.title} has no such node")
    return _with_paths(graph, keep, f"{graph.title}: only {', '.join(words)}")


@checked
def window(graph: Graph, begin_ns: int, end_ns: int) -> Graph:
    """Nodes that run within [begin, end) after the first start.

    The trace's own start times count; where it has none, every node starts as soon as its parents have ended.

    Parameters
    ----------
    graph
        The graph.
    begin_ns
        First ns of the window, after the first start.
    end_ns
        The ns after its last.

    Raises
    ------
    UsageError
        If nothing runs then.
    """
    recorded = bool(np.any(graph.start_ns >= 0))
    starts = graph.start_ns if recorded else earliest_starts(graph)
    ends = starts + np.maximum(graph.duration_ns, 1)
    keep = (starts < end_ns) & (ends > begin_ns) & (starts >= 0)
    if not keep.any():
        last = int(ends.max()) if graph.n_nodes else 0
        raise UsageError(f"--window: nothing runs then; {graph.title} runs from 0 to {last} ns")
    what = "recorded starts" if recorded else "earliest starts"
    return induced(graph, keep, f"{graph.title}: {begin_ns} to {end_ns} ns ({what})")


@checked
def critical_path(graph: Graph) -> Graph:
    """The longest path by durations, each node waiting for its parents only; edges are those along the
    path.

    Parameters
    ----------
    graph
        The graph.
    """
    path = critical_nodes(graph)
    keep = np.zeros(graph.n_nodes, np.bool_)
    keep[path] = True
    place = np.full(graph.n_nodes, -1, np.int64)
    place[path] = np.arange(len(path))
    # Other edges between nodes of the path are not part of it (a shortcut past a member is no step of the
    # path).
    steps = keep[graph.src] & keep[graph.dst] & (place[graph.dst] == place[graph.src] + 1)
    cut = replace(
        graph,
        src=graph.src[steps],
        dst=graph.dst[steps],
        edge_kinds=graph.edge_kinds[steps],
        edge_counts=graph.edge_counts[steps],
    )
    return induced(cut, keep, f"{graph.title}: critical path, {int(graph.duration_ns[path].sum())} ns")


def critical_nodes(graph: Graph) -> I64:
    """Node indices of the longest path by durations, from its first node to its last."""
    if not graph.n_nodes:
        return np.zeros(0, np.int64)
    starts, before = _schedule(graph)
    ends = starts + graph.duration_ns
    node = int(np.argmax(ends))
    path = []
    while node >= 0:
        path.append(node)
        node = int(before[node])
    return np.array(path[::-1], np.int64)


def earliest_starts(graph: Graph) -> I64:
    """(n,) start of every node in ns if it waits for its parents only; cycles are cut."""
    return _schedule(graph)[0]


def _schedule(graph: Graph) -> tuple[I64, I64]:
    order, _ = order_and_levels(graph)
    offsets, children = csr(graph.n_nodes, graph.src, graph.dst)
    durations, bounds, below = graph.duration_ns.tolist(), offsets.tolist(), children.tolist()
    place = np.empty(graph.n_nodes, np.int64)
    place[order] = np.arange(graph.n_nodes)
    places = place.tolist()
    start = [0] * graph.n_nodes
    before = [-1] * graph.n_nodes
    for node in order.tolist():
        end = start[node] + durations[node]
        for child in below[bounds[node] : bounds[node + 1]]:
            if places[child] > places[node] and (end > start[child] or before[child] < 0):
                start[child], before[child] = end, node
    return np.array(start, np.int64), np.array(before, np.int64)


def _with_paths(graph: Graph, keep: Bool, title: str) -> Graph:
    order, _ = order_and_levels(graph)
    offsets, parents = csr(graph.n_nodes, graph.dst, graph.src)
    bounds, above = offsets.tolist(), parents.tolist()
    chosen = keep.tolist()
    carried: list[tuple[int, ...]] = [()] * graph.n_nodes
    direct = set(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))
    extra: list[tuple[int, int]] = []
    for node in order.tolist():
        near: dict[int, None] = {}
        for parent in above[bounds[node] : bounds[node + 1]]:
            if not chosen[parent]:
                near.update(dict.fromkeys(carried[parent]))
            elif not chosen[node]:
                near[parent] = None
        if chosen[node]:
            extra.extend((parent, node) for parent in near if (parent, node) not in direct)
        else:
            carried[node] = tuple(near)[-_CARRIED:]
    added = np.array(extra, np.int32).reshape(-1, 2)
    joined = replace(
        graph,
        src=np.concatenate([graph.src, added[:, 0]]),
        dst=np.concatenate([graph.dst, added[:, 1]]),
        edge_kinds=np.concatenate([graph.edge_kinds, np.full(len(added), EdgeKind.THROUGH, np.uint8)]),
        edge_counts=np.concatenate([graph.edge_counts, np.ones(len(added), np.int64)]),
    )
    return induced(joined, keep, title)


def parse_window(text: str) -> tuple[int, int]:
    """A window such as ``10us:2ms``, ``:5ms`` or ``100:200`` (microseconds without a unit) in ns.

    Raises
    ------
    UsageError
        If it is not two times, the second one later.
    """
    parts = text.split(":")
    if len(parts) == 2:
        begin = _time_ns(parts[0]) if parts[0].strip() else 0
        end = _time_ns(parts[1]) if parts[1].strip() else 2**62
        if begin is not None and end is not None and begin < end:
            return begin, end
    raise UsageError(
        f"--window {text}: expected BEGIN:END with BEGIN before END, such as 10us:2ms (units ns, us, ms, s)"
    )


def parse_time(text: str, option: str) -> int:
    """A time such as ``10us`` in ns; microseconds without a unit.

    Raises
    ------
    UsageError
        If it is no time.
    """
    value = _time_ns(text)
    if value is None:
        raise UsageError(f"{option} {text}: expected a time such as 10us (units ns, us, ms, s)")
    return value


def _time_ns(text: str) -> int | None:
    match = _TIME.match(text)
    if not match or len(match[1]) > 18:
        return None
    return round(decimal_number(match[1]) * _TIME_NS[match[2] or "us"])
