"""The layered layout, folding and reduction, against NetworkX and their own laws."""

import dataclasses
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from viz_strategies import graphs
from viz_traces import digraph, make_trace

from chakra.builder import TraceBuilder
from chakra.errors import UsageError
from chakra.jit import compiled
from chakra.viz import DrawOptions, Folding, Graph, draw, fold, folded, from_trace
from chakra.viz.graph import _levels_kernel as plain
from chakra.viz.graph.fold_tree import opened_within
from chakra.viz.graph.levels import csr, order_and_levels
from chakra.viz.graph.reduce import transitively_reduced
from chakra.viz.graph.repeats import find_repeats
from chakra.viz.layout.layers import NODE_HEIGHT, NODE_WIDTH, layered
from chakra.viz.style import Kind

short = st.sampled_from(["a", "b0", "b1", "c"])


@settings(max_examples=80, deadline=None)
@given(graphs(texts=short))
def test_levels_are_longest_paths_and_the_order_is_topological(graph: Graph) -> None:
    order, level = order_and_levels(graph)
    place = np.empty(graph.n_nodes, np.int64)
    place[order] = np.arange(graph.n_nodes)
    assert np.all(place[graph.src] < place[graph.dst])
    wanted = [0] * graph.n_nodes
    for depth, generation in enumerate(nx.topological_generations(digraph(graph))):
        for node in generation:
            wanted[node] = depth
    assert level.tolist() == wanted


@settings(max_examples=80, deadline=None)
@given(graphs(acyclic=False, texts=short))
def test_cycles_are_cut_and_every_node_is_placed_without_overlap(graph: Graph) -> None:
    layout = layered(graph)
    assert sorted(order_and_levels(graph)[0].tolist()) == list(range(graph.n_nodes))
    points = sorted(zip(layout.x.tolist(), layout.y.tolist(), strict=True))
    for i, (x, y) in enumerate(points):
        for u, v in points[i + 1 :]:
            assert abs(x - u) >= NODE_WIDTH or abs(y - v) >= NODE_HEIGHT
    assert layout.x.max() + NODE_WIDTH / 2 <= layout.width
    assert layout.y.max() + NODE_HEIGHT / 2 <= layout.height


def test_the_compiled_kernel_equals_plain_python() -> None:
    rng = np.random.default_rng(3)
    src, dst = rng.integers(0, 500, 2000).astype(np.int32), rng.integers(0, 500, 2000).astype(np.int32)
    offsets, children = csr(500, src, dst)
    waiting = np.bincount(dst, minlength=500).astype(np.int64)
    fast = compiled("chakra.viz.graph._levels_kernel").order_and_levels(offsets, children, waiting.copy())
    slow: Any = plain.order_and_levels(offsets, children, waiting.copy())
    assert all(np.array_equal(a, b) for a, b in zip(fast, slow, strict=True))


def test_a_long_chain_is_wrapped_to_a_page() -> None:
    chain = from_trace(make_trace(["x"] * 400, [[], *([i] for i in range(399))]))
    layout = layered(chain)
    assert 0.3 < layout.width / layout.height < 6
    assert len(layout.bands) > 4


@settings(max_examples=60, deadline=None)
@given(graphs(texts=short))
def test_reduction_is_networkx_transitive_reduction(graph: Graph) -> None:
    reduced = transitively_reduced(graph)
    kept = set(zip(reduced.src.tolist(), reduced.dst.tolist(), strict=True))
    assert kept == set(nx.transitive_reduction(digraph(graph)).edges)


@settings(max_examples=80, deadline=None)
@given(graphs(texts=short), st.sampled_from(list(Folding)), st.integers(2, 10))
def test_folding_loses_no_node_time_or_crossing_edge(graph: Graph, how: Folding, limit: int) -> None:
    tree = fold(graph, how, limit)
    small = folded(graph, tree)
    assert int(small.members.sum()) == graph.n_nodes
    assert int(small.duration_ns.sum()) == int(graph.duration_ns.sum())
    shown = tree.visible()[: graph.n_nodes]
    crossing = int((shown[graph.src] != shown[graph.dst]).sum())
    assert int(small.edge_counts.sum()) == crossing
    # A group comes after everything in it, and opening all of them gives the graph back.
    above = tree.parent >= 0
    assert np.all(tree.parent[above] > np.flatnonzero(above))
    opened = np.ones(tree.n_groups, np.bool_)
    whole = folded(graph, tree, opened)
    assert whole.n_nodes == graph.n_nodes
    assert whole.n_edges == graph.n_edges


def test_missing_parents_with_parents_of_their_own_are_not_boxed_together() -> None:
    """0 -> 1 -> 2 where 0 and 2 are marked as missing: one box of both would be before and behind node 1."""
    drawn = from_trace(make_trace(list("abcde"), [(), (0,), (1,), (), ()]))
    kinds = np.array([Kind.MISSING, Kind.COMP, *[Kind.MISSING] * 3], np.uint8)
    graph = dataclasses.replace(drawn, kinds=kinds)
    for how in (Folding.REPEAT, Folding.CHAIN):
        assert nx.is_directed_acyclic_graph(digraph(folded(graph, fold(graph, how))))


@settings(max_examples=60, deadline=None)
@given(graphs(texts=short), st.sampled_from([Folding.REPEAT, Folding.CHAIN]))
def test_folding_repeats_and_chains_makes_no_cycle(graph: Graph, how: Folding) -> None:
    assert nx.is_directed_acyclic_graph(digraph(folded(graph, fold(graph, how))))


@settings(max_examples=40, deadline=None)
@given(graphs(most=60, texts=short), st.integers(4, 12))
def test_auto_reaches_the_limit(graph: Graph, limit: int) -> None:
    assert folded(graph, fold(graph, Folding.AUTO, limit)).n_nodes <= max(limit, len(graph.lane_names)) + 3


def test_repeated_layers_become_one_box_with_its_count() -> None:
    layer = ["norm", "attention", "mlp", "all-reduce"]
    names = ["embed", *(f"layer{i}.{op}" for i in range(24) for op in layer), "head"]
    graph = from_trace(make_trace(names, [[], *([i] for i in range(len(names) - 1))]))
    tree = fold(graph, Folding.REPEAT)
    small = folded(graph, tree)
    assert small.names == ["embed", "24 × layer#.norm …", "head"]
    assert small.members.tolist() == [1, 96, 1]
    opened = np.zeros(tree.n_groups, np.bool_)
    opened[-1] = True  # the outer group: its 24 copies show
    assert folded(graph, tree, opened).n_nodes == 26


def test_repeats_of_repeats_are_found() -> None:
    step = ["start", *["fwd", "send", "recv"] * 8, *["bwd", "grad", "sync"] * 8, "update"]
    names = step * 5
    small = folded(
        graph := from_trace(make_trace(names, [[], *([i] for i in range(len(names) - 1))])),
        fold(graph, Folding.REPEAT),
    )
    assert small.n_nodes == 1
    assert small.names[0].startswith("5 × start")


@pytest.mark.parametrize("tokens", [[], [1], [1, 2, 3], [1, 1, 1], [1, 2, 1, 2]])
def test_short_sequences_have_no_repeats(tokens: list[int]) -> None:
    assert find_repeats(np.array(tokens, np.int64)) == []


def test_operator_trees_fold_to_their_roots() -> None:
    names = ["step", "linear", "mm", "add", "relu"]
    graph = from_trace(make_trace(names, [[]] * 5, [[], [0], [1], [1], [0]]))
    small = folded(graph, fold(graph, Folding.OPERATOR, limit=3))
    assert small.names == ["step", "linear", "relu"]
    assert small.members.tolist() == [1, 3, 1]


@settings(max_examples=60, deadline=None)
@given(graphs(most=40, texts=short), st.integers(2, 30))
def test_groups_are_opened_as_far_as_the_limit_allows(graph: Graph, limit: int) -> None:
    tree = fold(graph, Folding.AUTO, limit)
    closed = folded(graph, tree).n_nodes
    opened = opened_within(tree, limit)
    shown = folded(graph, tree, opened).n_nodes
    assert closed <= shown <= max(limit, closed)
    visible = set(tree.visible(opened)[: graph.n_nodes].tolist())
    for group in visible - set(range(graph.n_nodes)):
        assert shown + int((tree.parent == group).sum()) - 1 > limit


@pytest.mark.parametrize(
    ("name", "held", "instead"),
    [
        (
            "g.html",
            "that a page holds (--limit)",
            "try --limit 1200 for a large page, --fold with an .svg file, ",
        ),
        ("g.svg", "that are drawn plainly (--limit)", "or an .html file, which folds by itself"),
    ],
)
def test_a_graph_that_is_too_large_is_refused_with_what_helps_there(
    tmp_path: Path, name: str, held: str, instead: str
) -> None:
    builder = TraceBuilder()
    for _ in range(1200):
        builder.compute("op", duration_micros=1)
    with pytest.raises(UsageError) as failed:
        draw(from_trace(builder.build()), tmp_path / name, DrawOptions(limit=1000))
    text = str(failed.value)
    assert f"has 1,200 nodes, more than the 1,000 {held}; try " in text
    assert instead in text
