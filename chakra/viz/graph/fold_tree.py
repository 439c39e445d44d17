"""Trees of groups over a graph's nodes, and the graph of what is visible while some groups are open."""

import heapq
from dataclasses import dataclass

import numpy as np

from chakra.arguments import checked
from chakra.arrays import I32, I64, AnyArray, Bool
from chakra.viz.graph.graph import NONE, Graph
from chakra.viz.style import EdgeKind, Kind


@dataclass(frozen=True, slots=True, eq=False)
class FoldTree:
    """Groups over a graph's nodes.

    Elements are numbered: nodes 0 .. n-1, then groups n .. n+g-1, a group after everything in it.

    Attributes
    ----------
    n_nodes
        n.
    parent
        (n+g,) int32: the group that an element lies in, -1 at the top.
    labels
        (g,) what a closed group is called.
    """

    n_nodes: int
    parent: I32
    labels: list[str]

    @property
    def n_groups(self) -> int:
        """Number of groups, at all depths."""
        return len(self.labels)

    def visible(self, opened: Bool | None = None) -> I32:
        """(n+g,) the element that stands for each: itself if all around it are open, else its outermost
        closed group.

        Parameters
        ----------
        opened
            (g,) which groups are open; none by default.
        """
        shown = np.arange(len(self.parent), dtype=np.int32)
        for element in range(len(self.parent) - 1, -1, -1):
            above = int(self.parent[element])
            if above >= 0 and not (
                shown[above] == above and opened is not None and opened[above - self.n_nodes]
            ):
                shown[element] = shown[above]
        return shown


def merged(graph: Graph, target: AnyArray, size: int, labels: list[str | None]) -> Graph:
    """The graph in which node i has become part of node ``target[i]`` of ``size``; edges inside one
    disappear.

    Parameters
    ----------
    labels
        Names of the new nodes; None keeps the only member's.
    """
    first = np.full(size, graph.n_nodes, np.int64)
    np.minimum.at(first, target, np.arange(graph.n_nodes))
    total = np.zeros(size, np.int64)
    np.add.at(total, target, graph.duration_ns)
    volume = np.zeros(size, np.int64)
    np.add.at(volume, target, np.where(graph.size_bytes >= 0, graph.size_bytes, 0))
    has_size = np.zeros(size, np.bool_)
    np.logical_or.at(has_size, target, graph.size_bytes >= 0)
    starts = np.full(size, np.iinfo(np.int64).max)
    np.minimum.at(starts, target, np.where(graph.start_ns >= 0, graph.start_ns, np.iinfo(np.int64).max))
    members = np.zeros(size, np.int64)
    np.add.at(members, target, graph.members)
    # A group is drawn as the kind, and in the lane, that most of its nodes have.
    kinds = _majority(target, graph.kinds, graph.members, size, max(Kind) + 1)
    lanes = _majority(target, graph.lanes, graph.members, size, max(len(graph.lane_names), 1))
    src, dst = target[graph.src], target[graph.dst]
    crossing = src != dst
    keys = (src[crossing] * size + dst[crossing]) * len(EdgeKind) + graph.edge_kinds[crossing]
    unique, inverse = np.unique(keys, return_inverse=True)
    counts = np.zeros(len(unique), np.int64)
    np.add.at(counts, inverse, graph.edge_counts[crossing])
    pairs = unique // len(EdgeKind)
    whole = [label is None for label in labels]
    return Graph(
        title=graph.title,
        ids=graph.ids[first],
        kinds=kinds.astype(np.uint8),
        names=[
            graph.names[i] if label is None else label
            for i, label in zip(first.tolist(), labels, strict=True)
        ],
        notes=[graph.notes[i] if alone else "" for i, alone in zip(first.tolist(), whole, strict=True)],
        duration_ns=total,
        size_bytes=np.where(has_size, volume, NONE),
        start_ns=np.where(starts == np.iinfo(np.int64).max, NONE, starts),
        lanes=lanes.astype(np.int32),
        lane_names=graph.lane_names,
        members=members,
        src=(pairs // size).astype(np.int32),
        dst=(pairs % size).astype(np.int32),
        edge_kinds=(unique % len(EdgeKind)).astype(np.uint8),
        edge_counts=counts,
    )


def _majority(target: AnyArray, value: AnyArray, weight: I64, size: int, n_values: int) -> AnyArray:
    keys, inverse = np.unique(target.astype(np.int64) * n_values + value, return_inverse=True)
    votes = np.bincount(inverse, weights=weight)
    order = np.lexsort((-votes, keys // n_values))
    _, firsts = np.unique(keys[order] // n_values, return_index=True)
    winners: AnyArray = keys[order][firsts] % n_values
    return winners


@checked
def folded(graph: Graph, tree: FoldTree, opened: Bool | None = None) -> Graph:
    """The graph of what is visible; closed groups by default.

    Parameters
    ----------
    graph
        The graph.
    tree
        How its nodes are grouped.
    opened
        Which groups show what is in them, (groups,) bool; none by default.
    """
    shown = tree.visible(opened)[: tree.n_nodes]
    elements, first, inverse = np.unique(shown, return_index=True, return_inverse=True)
    # Boxes stand in the order of their first members, as the trace has them.
    order = np.argsort(first, kind="stable")
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    elements, target = elements[order], number[inverse]
    labels = [tree.labels[e - tree.n_nodes] if e >= tree.n_nodes else None for e in elements.tolist()]
    return merged(graph, target, len(elements), labels)


def opened_within(tree: FoldTree, limit: int) -> Bool:
    """(groups,) which groups to open, those with most in them first, so that at most ``limit`` boxes show.

    Folding stops at what belongs together, which may leave far fewer boxes than a picture can hold.
    """
    n = tree.n_nodes
    inside: list[list[int]] = [[] for _ in range(tree.n_groups)]
    size = [1] * n + [0] * tree.n_groups
    parents = tree.parent.tolist()
    boxes = 0
    for element, above in enumerate(parents):
        if above >= 0:
            inside[above - n].append(element)
            size[above] += size[element]
        else:
            boxes += 1
    opened = np.zeros(tree.n_groups, np.bool_)
    waiting = [(-size[e], e) for e in range(n, len(parents)) if parents[e] < 0]
    heapq.heapify(waiting)
    while waiting:
        _, group = heapq.heappop(waiting)
        if boxes + len(inside[group - n]) - 1 > limit:
            continue
        boxes += len(inside[group - n]) - 1
        opened[group - n] = True
        for element in inside[group - n]:
            if element >= n:
                heapq.heappush(waiting, (-size[element], element))
    return opened
