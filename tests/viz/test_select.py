"""Selections against NetworkX."""

import itertools

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from viz_strategies import graphs
from viz_traces import digraph, make_trace

from chakra.errors import UsageError
from chakra.et import Trace
from chakra.viz import Graph, from_trace
from chakra.viz.graph import select
from chakra.viz.style import EdgeKind

short = st.sampled_from(["a", "b"])


@settings(max_examples=60, deadline=None)
@given(graphs(texts=short), st.integers(0, 4), st.integers(0, 100))
def test_around_is_an_ego_graph(graph: Graph, hops: int, pick: int) -> None:
    centre = pick % graph.n_nodes
    found = select.around(graph, int(graph.ids[centre]), hops)
    ego = nx.ego_graph(digraph(graph).to_undirected(), centre, hops)
    assert set(found.ids.tolist()) == {int(graph.ids[i]) for i in ego}


@settings(max_examples=60, deadline=None)
@given(graphs(texts=short))
def test_critical_path_is_as_long_as_the_longest_path_and_has_only_its_edges(graph: Graph) -> None:
    path = select.critical_nodes(graph).tolist()
    made = digraph(graph)
    assert all(made.has_edge(a, b) for a, b in itertools.pairwise(path))
    for a, b in made.edges:
        made.edges[a, b]["weight"] = int(graph.duration_ns[a])
    ends = {node: int(graph.duration_ns[node]) for node in made}
    best = 0
    length = dict.fromkeys(made, 0)
    for node in nx.topological_sort(made):
        for child in made.successors(node):
            length[child] = max(length[child], length[node] + ends[node])
        best = max(best, length[node] + ends[node])
    assert sum(ends[node] for node in path) == best
    drawn = select.critical_path(graph)
    assert drawn.n_nodes == len(path)
    pairs = set(zip(drawn.src.tolist(), drawn.dst.tolist(), strict=True))
    assert len(pairs) == len(path) - 1


def test_the_shortcut_past_the_critical_path_is_not_drawn(diamond: Trace) -> None:
    drawn = select.critical_path(from_trace(diamond))
    names = [
        (drawn.names[a], drawn.names[b]) for a, b in zip(drawn.src.tolist(), drawn.dst.tolist(), strict=True)
    ]
    assert sorted(set(names)) == [("a", "b"), ("b", "c"), ("c", "d")]
    assert len(names) == 4  # b -> c by data and by control


def test_only_joins_what_hidden_nodes_joined(diamond: Trace) -> None:
    drawn = select.only(from_trace(diamond), ("comm",))
    assert drawn.names == ["b", "d"]
    assert drawn.edge_kinds.tolist() == [EdgeKind.THROUGH]
    with pytest.raises(UsageError, match="unknown kind"):
        select.only(from_trace(diamond), ("communication",))
    with pytest.raises(UsageError, match="no such node"):
        select.only(from_trace(diamond), ("memory",))


def test_window_uses_earliest_starts_where_none_are_recorded(diamond: Trace) -> None:
    assert select.window(from_trace(diamond), 0, 1000).names == ["a"]
    assert select.window(from_trace(diamond), 5999, 6001).names == ["b", "c"]
    with pytest.raises(UsageError, match="runs from 0 to 12000 ns"):
        select.window(from_trace(diamond), 10**9, 2 * 10**9)


@pytest.mark.parametrize(
    ("text", "window"),
    [("10us:2ms", (10_000, 2_000_000)), (":5", (0, 5_000)), ("1.5ns:1s", (2, 10**9)), ("3:", (3_000, 2**62))],
)
def test_windows_are_read_with_units(text: str, window: tuple[int, int]) -> None:
    assert select.parse_window(text) == window


@pytest.mark.parametrize("text", ["", "5", "5:1", "a:b", "1:2:3", "-1:2", "1e3:2", "1 h:2 h"])
def test_other_windows_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="BEGIN:END"):
        select.parse_window(text)


def test_around_an_absent_node_is_refused() -> None:
    graph = from_trace(make_trace(["a"], [[]]))
    for ident in (-1, 7, 2**64 - 1):
        with pytest.raises(UsageError, match="no node with this id"):
            select.around(graph, ident, 1)
    with pytest.raises(UsageError, match="node_id must be a whole number of at most 64 bits"):
        select.around(graph, 2**64, 1)
    assert np.array_equal(select.around(graph, 0, 0).ids, graph.ids)
