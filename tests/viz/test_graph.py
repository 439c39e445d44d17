"""From a trace to the graph that is drawn."""

from pathlib import Path

import numpy as np
import pytest

from chakra.errors import TraceError
from chakra.et import Trace
from chakra.schemas.et_def_pb2 import GlobalMetadata, Node
from chakra.schemas.protolib import encode_message
from chakra.viz import from_trace, read_graph
from chakra.viz.style import EdgeKind, Kind


def _write(path: Path, nodes: list[Node]) -> Path:
    with path.open("wb") as file:
        encode_message(file, GlobalMetadata(version="0.0.4"))
        for node in nodes:
            encode_message(file, node)
    return path


def test_both_kinds_of_edges_between_the_same_nodes_are_kept(diamond: Trace) -> None:
    graph = from_trace(diamond)
    edges = set(zip(graph.src.tolist(), graph.dst.tolist(), graph.edge_kinds.tolist(), strict=True))
    assert (1, 2, EdgeKind.DATA) in edges
    assert (1, 2, EdgeKind.CTRL) in edges
    assert graph.n_edges == 5


@pytest.mark.parametrize("field", ["data_deps", "ctrl_deps"])
def test_missing_parents_become_marked_ghosts(tmp_path: Path, field: str) -> None:
    nodes = [Node(id=5, name="a", type="COMP_NODE"), Node(id=2**64 - 2, name="b", type="COMP_NODE")]
    getattr(nodes[0], field).extend([77, 2**63])
    getattr(nodes[1], field).extend([5, 77])
    graph = read_graph(_write(tmp_path / "x.et", nodes))
    ghosts = np.flatnonzero(graph.kinds == Kind.MISSING)
    assert graph.ids[ghosts].tolist() == [77, 2**63]
    assert graph.n_edges == 4
    kind = EdgeKind.DATA if field == "data_deps" else EdgeKind.CTRL
    assert set(graph.edge_kinds.tolist()) == {kind}


def test_a_cycle_of_control_edges_is_drawn_and_one_of_data_edges_is_named(tmp_path: Path) -> None:
    ring = [Node(id=1, type="COMP_NODE", ctrl_deps=[2]), Node(id=2, type="COMP_NODE", ctrl_deps=[1])]
    assert read_graph(_write(tmp_path / "c.et", ring)).n_edges == 2
    ring = [Node(id=1, type="COMP_NODE", data_deps=[2]), Node(id=2, type="COMP_NODE", data_deps=[1])]
    with pytest.raises(TraceError, match="cycle"):
        read_graph(_write(tmp_path / "d.et", ring))


def test_a_dependency_listed_twice_is_one_edge(tmp_path: Path) -> None:
    nodes = [Node(id=1, type="COMP_NODE"), Node(id=2, type="COMP_NODE", data_deps=[1, 1])]
    assert read_graph(_write(tmp_path / "x.et", nodes)).n_edges == 1


def test_labels_say_duration_bytes_and_partners(tmp_path: Path) -> None:
    node = Node(id=1, name="grad", type="COMM_COLL_NODE", duration_micros=3)
    for name, value in (("comm_type", 0), ("comm_size", 1 << 20)):
        attr = node.attr.add(name=name)
        attr.int64_val = value
    graph = read_graph(_write(tmp_path / "x.et", [node]))
    assert graph.detail(0) == "ALL_REDUCE, 1 MiB, 3 µs"
    assert graph.tooltip(0).startswith("grad\nid 1, collective")
