"""Folding a graph: a tree of groups over its nodes, and the graph of what is visible when groups are
closed."""

import heapq
import re
from collections.abc import Callable
from enum import StrEnum
from functools import lru_cache
from typing import Final

import numpy as np

from chakra.arguments import checked
from chakra.arrays import I64, AnyArray, distinct
from chakra.errors import UsageError
from chakra.io.readable import count_text
from chakra.viz.graph.fold_tree import FoldTree, merged
from chakra.viz.graph.graph import Graph
from chakra.viz.graph.levels import csr
from chakra.viz.graph.repeats import Repeat, find_repeats, rounds
from chakra.viz.style import EdgeKind, Kind


class Folding(StrEnum):
    """Ways to fold; ``AUTO`` applies repeats, operators, streams and segments until the drawing is small
    enough."""

    AUTO = "auto"
    REPEAT = "repeat"
    OPERATOR = "operator"
    CHAIN = "chain"
    STREAM = "stream"
    SEGMENT = "segment"


#: A stage of folding: the graph of what is visible -> for every element the number of its new group, or -1,
#: with labels.
Groups = tuple[I64, list[str]]
_Stage = Callable[[Graph, "_Builder"], bool]


class _Builder:
    """Grows a fold tree stage by stage; ``graph`` is always the graph of what is visible with all groups
    closed."""

    def __init__(self, graph: Graph) -> None:
        self.original = graph
        self.graph = graph
        self.elements: I64 = np.arange(graph.n_nodes, dtype=np.int64)
        self.parent: list[I64] = [np.full(graph.n_nodes, -1, np.int64)]
        self.labels: list[str] = []

    def apply(self, group: I64, labels: list[str]) -> bool:
        """Put visible element i into new group ``group[i]`` (-1: none); False if nothing was grouped."""
        if not labels:
            return False
        base = self.original.n_nodes + len(self.labels)
        grouped = group >= 0
        flat = np.concatenate(self.parent)
        flat[self.elements[grouped]] = base + group[grouped]
        self.parent = [flat, np.full(len(labels), -1, np.int64)]
        self.labels += labels
        # New elements stand where their first member stood, so that the order stays a topological one.
        kept = np.flatnonzero(~grouped)
        first = np.full(len(labels), len(group), np.int64)
        np.minimum.at(first, group[grouped], np.flatnonzero(grouped))
        places = np.concatenate([kept, first])
        order = np.argsort(places, kind="stable")
        new_number = np.empty(len(order), np.int64)
        new_number[order] = np.arange(len(order))
        target = np.empty(len(group), np.int64)
        target[kept] = new_number[: len(kept)]
        target[grouped] = new_number[len(kept) + group[grouped]]
        elements = np.concatenate([self.elements[kept], base + np.arange(len(labels))])[order]
        self.graph = merged(self.graph, target, len(order), self._label_of(elements))
        self.elements = elements
        return True

    def _label_of(self, elements: I64) -> list[str | None]:
        n = self.original.n_nodes
        return [self.labels[e - n] if e >= n else None for e in elements.tolist()]

    def tree(self) -> FoldTree:
        return FoldTree(self.original.n_nodes, np.concatenate(self.parent).astype(np.int32), self.labels)


@checked
def fold(graph: Graph, how: Folding = Folding.AUTO, limit: int = 300) -> FoldTree:
    """Fold a graph.

    Parameters
    ----------
    graph
        The graph.
    how
        What is put together.
    limit
        Boxes that the closed drawing should have at most; guaranteed by ``AUTO`` and ``SEGMENT`` (up to one
        box for each lane and segment), an aim elsewhere.

    Raises
    ------
    UsageError
        If the limit is below 1.
    """
    if limit < 1:
        raise UsageError(f"limit: {limit} is not a whole number of at least 1")
    builder = _Builder(_in_topological_order(graph))
    order = _order(graph)
    stages: tuple[_Stage, ...]
    if how == Folding.AUTO:
        stages = (
            _fold_repeats,
            _fold_operators(limit),
            _fold_repeats,
            _fold_chains,
            _fold_streams,
            _fold_segments(limit),
        )
    else:
        stages = {
            Folding.REPEAT: (_fold_repeats,),
            Folding.OPERATOR: (_fold_operators(limit),),
            Folding.CHAIN: (_fold_chains,),
            Folding.STREAM: (_fold_streams,),
            Folding.SEGMENT: (_fold_segments(limit),),
        }[how]
    _fold_missing(builder.graph, builder)
    for stage in stages:
        if how == Folding.AUTO and builder.graph.n_nodes <= limit:
            break
        stage(builder.graph, builder)
    tree = builder.tree()
    # The builder numbers nodes in topological order; give back the graph's own numbers.
    parent = tree.parent.copy()
    parent[order] = tree.parent[: graph.n_nodes]
    return FoldTree(tree.n_nodes, parent, tree.labels)


def _order(graph: Graph) -> I64:
    """Order of folding: missing parents, then the trace's own order where it is topological, else the nearest
    to it.

    Staying near the trace's order keeps a layer's nodes together, which an order by levels would not.
    """
    missing = _missing(graph)
    place = np.cumsum(~missing)
    place[missing] = 0
    if np.all((place[graph.src] < place[graph.dst]) | missing[graph.src]):
        return np.concatenate([np.flatnonzero(missing), np.flatnonzero(~missing)])
    offsets, children = csr(graph.n_nodes, graph.src, graph.dst)
    bounds, below = offsets.tolist(), children.tolist()
    waiting = np.bincount(graph.dst, minlength=graph.n_nodes).tolist()
    ready = [node for node, count in enumerate(waiting) if count == 0]
    order: list[int] = []
    lowest = 0
    placed = bytearray(graph.n_nodes)
    while len(order) < graph.n_nodes:
        if ready:
            node = heapq.heappop(ready)
        else:  # a cycle: cut it at its lowest node
            while placed[lowest] or waiting[lowest] <= 0:
                lowest += 1
            node = lowest
        placed[node] = 1
        order.append(node)
        for child in below[bounds[node] : bounds[node + 1]]:
            waiting[child] -= 1
            if waiting[child] == 0 and not placed[child]:
                heapq.heappush(ready, child)
    return np.array(order, np.int64)


def _in_topological_order(graph: Graph) -> Graph:
    order = _order(graph)
    number = np.empty(graph.n_nodes, np.int64)
    number[order] = np.arange(graph.n_nodes)
    return Graph(
        title=graph.title,
        ids=graph.ids[order],
        kinds=graph.kinds[order],
        names=[graph.names[i] for i in order.tolist()],
        notes=[graph.notes[i] for i in order.tolist()],
        duration_ns=graph.duration_ns[order],
        size_bytes=graph.size_bytes[order],
        start_ns=graph.start_ns[order],
        lanes=graph.lanes[order],
        lane_names=graph.lane_names,
        members=graph.members[order],
        src=number[graph.src].astype(np.int32),
        dst=number[graph.dst].astype(np.int32),
        edge_kinds=graph.edge_kinds,
        edge_counts=graph.edge_counts,
    )


# ------------------------------------------------------------------------------------------------- the stages

#: Share of nodes without children from which on control edges are taken for a call tree.
_LEAVES_OF_A_TREE: Final = 0.3
_NUMBERS: Final = re.compile(r"[0-9]+")


@lru_cache(maxsize=1 << 17)
def family(name: str) -> str:
    """A name without its numbers: equal for the same operator in another layer, micro-batch or step.

    >>> family("layer3.mlp2_fwd") == family("layer11.mlp2_fwd")
    True
    """
    return _NUMBERS.sub("#", name)


def _missing(graph: Graph) -> AnyArray:
    """Missing parents: they only have children. One that a graph made elsewhere gives a parent is a node like others."""
    missing = graph.kinds == Kind.MISSING
    missing[graph.dst] = False
    return np.asarray(missing)


def _fold_missing(graph: Graph, builder: _Builder) -> bool:
    """Fold missing parents into one box; there may be thousands, and they have no order of their own."""
    missing = _missing(graph)
    if missing.sum() < 4:
        return False
    return builder.apply(np.where(missing, 0, -1), ["missing parents"])


def _fold_repeats(graph: Graph, builder: _Builder) -> bool:
    """Fold repeated stretches of the topological order: a contiguous stretch can never be part of a cycle."""
    any_fold = False
    for _ in range(rounds()):
        graph = builder.graph
        found = find_repeats(_tokens(graph))
        if not found:
            break
        units = np.full(graph.n_nodes, -1, np.int64)
        labels: list[str] = []
        wraps: list[tuple[int, int, str]] = []
        for repeat in found:
            span = slice(repeat.start, repeat.start + repeat.period * repeat.count)
            unit_name = family(graph.names[repeat.start]) or "(no name)"
            if repeat.period > 1:
                units[span] = len(labels) + np.arange(repeat.period * repeat.count) // repeat.period
                labels += [f"{unit_name} … ({i + 1} of {repeat.count})" for i in range(repeat.count)]
            label = f"{count_text(repeat.count)} × {unit_name}" + (" …" if repeat.period > 1 else "")
            wraps.append((repeat.start, repeat.count, label))
        starts = _outer_places(found)
        builder.apply(units, labels)
        outer = np.full(builder.graph.n_nodes, -1, np.int64)
        for number, (start, (_, count, _)) in enumerate(zip(starts, wraps, strict=True)):
            outer[start : start + count] = number
        any_fold |= builder.apply(outer, [label for _, _, label in wraps])
    return any_fold


def _outer_places(found: list[Repeat]) -> list[int]:
    """Where each repeat begins once its copies have become single elements."""
    places, removed = [], 0
    for repeat in found:
        places.append(repeat.start - removed)
        removed += repeat.count * (repeat.period - 1)
    return places


def _tokens(graph: Graph) -> I64:
    """Equal numbers for nodes that look alike: kind, name without numbers, bytes, members."""
    seen: dict[tuple[object, ...], int] = {}
    rows = zip(
        graph.kinds.tolist(),
        (family(name) for name in graph.names),
        graph.size_bytes.tolist(),
        graph.members.tolist(),
        strict=True,
    )
    return np.fromiter((seen.setdefault(row, len(seen)) for row in rows), np.int64, graph.n_nodes)


def _fold_operators(limit: int) -> _Stage:
    """Fold subtrees of the operator call tree (control edges of PyTorch traces), opening the largest while it fits."""

    def stage(graph: Graph, builder: _Builder) -> bool:
        n = graph.n_nodes
        ctrl = graph.edge_kinds == EdgeKind.CTRL
        parent = np.full(n, -1, np.int64)
        fan_in = np.bincount(graph.dst[ctrl], minlength=n)
        single = (
            ctrl
            & (fan_in[graph.dst] == 1)
            & (graph.src < graph.dst)
            & (graph.kinds[graph.src] != Kind.MISSING)
        )
        parent[graph.dst[single]] = graph.src[single]
        called = np.bincount(parent[parent >= 0], minlength=n)
        # Control edges that only say in which order a thread ran make chains, not trees: trees are mostly leaves.
        if not called.any() or (called == 0).sum() < _LEAVES_OF_A_TREE * n:
            return False
        root = _subtree_heads(parent, limit)
        sizes = np.bincount(root, minlength=n)
        heads = np.flatnonzero(sizes > 1)
        number = np.full(n, -1, np.int64)
        number[heads] = np.arange(len(heads))
        return builder.apply(number[root], [graph.names[h] or f"id {graph.ids[h]}" for h in heads.tolist()])

    return stage


def _subtree_heads(parent: I64, limit: int) -> I64:
    """(n,) the head of the subtree that each node is folded into; about ``limit`` heads. Parents come before children."""
    n = len(parent)
    above = parent.tolist()
    size = [1] * n
    children: list[list[int]] = [[] for _ in range(n)]
    for node in range(n - 1, -1, -1):
        if above[node] >= 0:
            size[above[node]] += size[node]
            children[above[node]].append(node)
    boxes = sum(1 for node in above if node < 0)
    largest = [(-size[node], node) for node in range(n) if above[node] < 0]
    heapq.heapify(largest)
    is_head = [node < 0 for node in above]
    while largest:
        _, node = heapq.heappop(largest)
        if not children[node] or boxes + len(children[node]) > limit:
            continue
        boxes += len(children[node])
        for child in children[node]:
            is_head[child] = True
            heapq.heappush(largest, (-size[child], child))
    head = list(range(n))
    for node in range(n):
        if not is_head[node]:
            head[node] = head[above[node]]
    return np.array(head, np.int64)


def _fold_chains(graph: Graph, builder: _Builder) -> bool:
    """Fold runs in which every node has one child and that child one parent, within one lane and kind."""
    n = graph.n_nodes
    pairs = distinct(graph.src.astype(np.int64) * n + graph.dst)
    src, dst = pairs // max(n, 1), pairs % max(n, 1)
    alone = (np.bincount(src, minlength=n)[src] == 1) & (np.bincount(dst, minlength=n)[dst] == 1)
    alone &= (graph.lanes[src] == graph.lanes[dst]) & (graph.kinds[src] == graph.kinds[dst]) & (src < dst)
    before = np.full(n, -1, np.int64)
    before[dst[alone]] = src[alone]
    head = np.arange(n)
    for node in np.flatnonzero(before >= 0).tolist():
        head[node] = head[before[node]]
    return _apply_runs(graph, builder, head)


def _fold_streams(graph: Graph, builder: _Builder) -> bool:
    """Fold each lane's stretches between the points where it waits for, or is waited for by, another lane."""
    n = graph.n_nodes
    crossing = graph.lanes[graph.src] != graph.lanes[graph.dst]
    opens, closes = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
    opens[graph.dst[crossing]] = True
    closes[graph.src[crossing]] = True
    nodes = np.argsort(graph.lanes, kind="stable")
    lanes = graph.lanes[nodes]
    new = np.ones(n, np.bool_)
    new[1:] = (lanes[1:] != lanes[:-1]) | opens[nodes[1:]] | closes[nodes[:-1]]
    head = np.empty(n, np.int64)
    head[nodes] = nodes[np.flatnonzero(new)[np.cumsum(new) - 1]]
    return _apply_runs(graph, builder, head)


def _fold_segments(limit: int) -> _Stage:
    """Cut the topological order into equal segments and fold each lane of a segment: always reaches the
    limit."""

    def stage(graph: Graph, builder: _Builder) -> bool:
        lanes = max(len(graph.lane_names), 1)
        n = graph.n_nodes
        segments = max(1, limit // lanes)
        if n <= limit:
            return False
        segment = np.arange(n) * segments // n
        key = segment * lanes + graph.lanes
        _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
        return _apply_runs(graph, builder, first[inverse])

    return stage


def _apply_runs(graph: Graph, builder: _Builder, head: I64) -> bool:
    """Group nodes with the same head; a head alone stays as it is. Groups are named after head and last
    member."""
    sizes = np.bincount(head, minlength=graph.n_nodes)
    heads = np.flatnonzero(sizes > 1)
    number = np.full(graph.n_nodes, -1, np.int64)
    number[heads] = np.arange(len(heads))
    last = np.zeros(graph.n_nodes, np.int64)
    np.maximum.at(last, head, np.arange(graph.n_nodes))
    labels = []
    for h in heads.tolist():
        a, b = graph.names[h], graph.names[int(last[h])]
        labels.append(a if a == b else f"{a} … {b}")
    return builder.apply(number[head], labels)
