"""The trace's graph against NetworkX, and against the definition of each derived array."""

import itertools
import pickle
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chakra.errors import TraceError
from chakra.et import NodeType, Trace, TraceColumns, read_trace
from chakra.et.trace_summary import critical_path, summarize


@st.composite
def graphs(draw: st.DrawFn) -> Trace:
    """Random traces: ids in any order, control and data dependencies anywhere, data acyclic."""
    n = draw(st.integers(1, 12))
    columns = TraceColumns(n)
    columns.ids[:] = draw(st.permutations(range(100, 100 + n)))
    columns.duration_micros[:] = draw(st.lists(st.integers(0, 9), min_size=n, max_size=n))
    rank = draw(st.permutations(range(n)))  # dependencies go from lower to higher rank
    for setter in (columns.set_data_deps, columns.set_ctrl_deps):
        rows = []
        for i in range(n):
            below = [int(columns.ids[j]) for j in range(n) if rank[j] < rank[i]]
            rows.append(draw(st.lists(st.sampled_from(below), max_size=3)) if below else [])
        offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
        setter(offsets, np.array([dep for row in rows for dep in row], np.uint64))
    return columns.build()


@settings(deadline=None)
@given(trace=graphs())
def test_graph_agrees_with_networkx(trace: Trace) -> None:
    graph = trace.to_networkx()
    assert list(graph.nodes) == trace.ids.tolist()
    offsets, index = trace.parents()
    child_offsets, child_index = trace.children()
    for i, node_id in enumerate(trace.ids.tolist()):
        parents = index[offsets[i] : offsets[i + 1]].tolist()
        assert len(set(parents)) == len(parents)
        assert {int(trace.ids[j]) for j in parents} == set(graph.predecessors(node_id))
        children = child_index[child_offsets[i] : child_offsets[i + 1]].tolist()
        assert children == sorted(children)
        assert {int(trace.ids[j]) for j in children} == set(graph.successors(node_id))
        assert trace.index_of(node_id) == i
    assert nx.is_directed_acyclic_graph(graph)
    place = {int(trace.ids[i]): position for position, i in enumerate(trace.topological_order())}
    assert sorted(place) == sorted(graph.nodes)
    assert all(place[a] < place[b] for a, b in graph.edges)
    assert trace.ids[trace.order_by_id()].tolist() == sorted(trace.ids.tolist())
    kinds = nx.get_edge_attributes(graph, "kind")
    for parent, child in graph.edges:
        view = trace.node(trace.index_of(child))
        data, ctrl = parent in view.data_deps, parent in view.ctrl_deps
        assert kinds[parent, child] == ("both" if data and ctrl else "data" if data else "ctrl")


@settings(deadline=None)
@given(trace=graphs())
def test_critical_path_is_networkxs_longest_path(trace: Trace) -> None:
    weights = trace.durations_ns()
    path = critical_path(trace, weights)
    graph = trace.to_networkx()
    # NetworkX weighs edges: one costs what the node it leads to takes; a source stands in front of all roots.
    weighted: nx.DiGraph[int | str] = nx.DiGraph()
    for node, data in graph.nodes(data=True):
        weighted.add_edge("source", node, weight=data["duration_ns"])
    for a, b in graph.edges:
        weighted.add_edge(a, b, weight=graph.nodes[b]["duration_ns"])
    assert path.length_ns == nx.dag_longest_path_length(weighted)
    assert path.length_ns == int(weights[list(path.nodes)].sum())
    ids = [int(trace.ids[i]) for i in path.nodes]
    assert all(graph.has_edge(a, b) for a, b in itertools.pairwise(ids))


def test_cycles_are_those_of_networkx() -> None:
    columns = TraceColumns(5)
    columns.set_data_deps([0, 0, 1, 2, 3, 3], [0, 1, 2])
    columns.set_ctrl_deps([0, 1, 1, 1, 1, 1], [3])
    from chakra.et.read import decode_trace

    trace = decode_trace(np.frombuffer(columns.encode(), np.uint8), "t")
    assert sorted(map(sorted, nx.simple_cycles(trace.to_networkx()))) == [[0, 1, 2, 3]]
    with pytest.raises(TraceError, match="cycle of 4 nodes: 0 -> 1 -> 2 -> 3 -> 0"):
        trace.topological_order()
    assert "cycle of 4 nodes" in summarize(trace).critical_path.problem
    with pytest.raises(TraceError, match="cycle of 4 nodes"):
        columns.build()


def test_views_and_pickling() -> None:
    columns = TraceColumns(2)
    columns.types[:] = NodeType.MEM_LOAD, NodeType.COMM_RECV
    columns.set_names(["ä", "b"])
    columns.set_int("tensor_size", [5, -(2**63)])
    trace = columns.build("here")
    again = pickle.loads(pickle.dumps(trace))
    assert again.content_hash == trace.content_hash
    assert [view.name for view in again.nodes()] == ["ä", "b"]
    assert again.node(-1).id == 1
    assert again.attr(0, "tensor_size") == 5
    assert again.attr(1, "tensor_size", "none") == "none"
    assert repr(again.node(0)) == "<node 0 MEM_LOAD 'ä'>"
    with pytest.raises(IndexError):
        trace.node(2)
    with pytest.raises(TraceError, match="here: there is no node with id 7"):
        trace.index_of(7)


@pytest.mark.shared
def test_every_trace_of_the_reference_data_reads_and_returns(shared: Path, tmp_path: Path) -> None:
    """All files seen in the wild read, and come back byte for byte from the writer and from JSON."""
    import io

    from chakra.et import write_trace
    from chakra.et.jsonize import trace_bytes, write_json
    from chakra.io import files

    paths = sorted((shared / "data").rglob("*.et")) + sorted((shared / "data" / "chakra").glob("*.et.gz"))
    assert len(paths) > 40
    for path in paths:
        trace = read_trace(path)
        write_trace(trace, tmp_path / "a.et")
        content = files.read_bytes(path)
        assert (tmp_path / "a.et").read_bytes() == content
        text = io.StringIO()
        write_json(content, str(path), text)
        assert trace_bytes(text.getvalue().encode(), "a.json") == content


@pytest.mark.shared
def test_the_feeder_test_file(shared: Path) -> None:
    """Figures of the data's own description."""
    trace = read_trace(shared / "data" / "chakra" / "feeder_chakra.0.et.gz")
    assert trace.n_nodes == 3664
    assert len(trace.data_ids) == 181_878
    assert trace.dropped_ctrl_deps == 1277
    assert np.bincount(trace.types).tolist() == [0, 0, 0, 0, 3643, 0, 0, 21]
    assert [(row.kind, row.count, row.bytes) for row in summarize(trace).collectives][1:] == [
        ("ALL_REDUCE", 5, 102_228_128),
        ("BROADCAST", 2, 212_904),
    ]
    twin = read_trace(shared / "data" / "chakra" / "feeder_chakra.0.json.gz")
    assert twin.n_nodes == 3664
    assert twin.data_ids.tolist() == trace.data_ids.tolist()
    small = read_trace(shared / "data" / "chakra" / "feeder_small_chakra.0.json")
    offsets, _ = small.parents()
    assert small.ids[np.diff(offsets) == 0].tolist()[:2] == [216, 432]
    children = small.children()
    i = small.index_of(216)
    assert small.ids[children[1][children[0][i] : children[0][i + 1]]].tolist() == [217, 430, 435]
