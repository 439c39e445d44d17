"""The feeder in Python: same order as the replay's rule, same method names as upstream's."""

from pathlib import Path

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakra.builder import Handle, TraceBuilder
from chakra.errors import ChakraError, TraceError
from chakra.et import NodeType, Trace
from chakra.feeder import ETFeeder
from chakra.schemas import et_def_pb2 as pb2
from chakra.schemas.protolib import encodeMessage


def diamond() -> Trace:
    builder = TraceBuilder()
    first = builder.compute("first", duration_ns=3000)
    left = builder.compute("left", num_ops=5, tensor_bytes=7, after=[first])
    right = builder.collective("ALL_REDUCE", size_bytes=64, name="right", after=[first])
    builder.compute("last", duration_ns=1, after=[left, right])
    return builder.build()


def test_nodes_come_when_their_dependencies_are_done() -> None:
    feeder = ETFeeder(diamond())
    first = feeder.getNextIssuableNode()
    assert first is not None
    assert (first.id(), first.name(), first.runtime()) == (0, "first", 3)
    assert feeder.getNextIssuableNode() is None
    assert feeder.hasNodesToIssue()
    feeder.freeChildrenNodes(0)
    feeder.removeNode(0)
    left, right = feeder.getNextIssuableNode(), feeder.getNextIssuableNode()
    assert left is not None
    assert right is not None
    assert (left.num_ops(), left.tensor_size(), left.is_cpu_op()) == (5, 7, False)
    assert (right.type(), right.comm_type().name, right.comm_size()) == (NodeType.COMM_COLL, "ALL_REDUCE", 64)
    assert left.getChildren() == right.getChildren() == [feeder.lookupNode(3)]
    feeder.pushBackIssuableNode(left.id())
    assert feeder.getNextIssuableNode() == left
    for node in (left, right):
        assert feeder.getNextIssuableNode() is None
        feeder.freeChildrenNodes(node.id())
        feeder.removeNode(node.id())
    last = feeder.getNextIssuableNode()
    assert last is not None
    feeder.freeChildrenNodes(last.id())
    feeder.removeNode(last.id())
    assert not feeder.hasNodesToIssue()


def test_a_node_is_done_once_and_given_back_once() -> None:
    """Done twice, the first node of two would free what also waits for the second."""
    builder = TraceBuilder()
    first, second = (builder.compute(name, duration_ns=1) for name in ("first", "second"))
    builder.compute("both", duration_ns=1, after=[first, second])
    feeder = ETFeeder(builder.build())
    with pytest.raises(ChakraError, match="node 0 was not taken: it cannot be given back"):
        feeder.pushBackIssuableNode(0)
    assert [feeder.getNextIssuableNode() for _ in range(2)] == [feeder.lookupNode(0), feeder.lookupNode(1)]
    feeder.pushBackIssuableNode(0)
    with pytest.raises(ChakraError, match="node 0 was not taken"):
        feeder.pushBackIssuableNode(0)
    assert feeder.getNextIssuableNode() == feeder.lookupNode(0)
    feeder.freeChildrenNodes(0)
    for call, message in (
        (feeder.freeChildrenNodes, "node 0 is done already"),
        (feeder.pushBackIssuableNode, "node 0 is done: it cannot be given back"),
    ):
        with pytest.raises(ChakraError, match=message):
            call(0)
    assert feeder.getNextIssuableNode() is None
    feeder.freeChildrenNodes(1)
    assert feeder.getNextIssuableNode() == feeder.lookupNode(2)


def test_a_kind_that_no_collective_has(tmp_path: Path) -> None:
    node = pb2.Node(id=3, name="all", type=pb2.COMM_COLL_NODE)
    node.attr.add(name="comm_type", int64_val=99)
    with (tmp_path / "t.0.et").open("wb") as file:
        encodeMessage(file, pb2.GlobalMetadata(version="0.0.4"))
        encodeMessage(file, node)
    given = ETFeeder(tmp_path / "t.0.et").getNextIssuableNode()
    assert given is not None
    with pytest.raises(TraceError, match="node 3: comm_type 99 is unknown; the kinds are 0 to 9"):
        given.comm_type()


def test_other_attributes_and_wrong_ids() -> None:
    builder = TraceBuilder()
    builder.compute("a", duration_ns=1, attrs={"colour": "red"})
    feeder = ETFeeder(builder.build())
    node = feeder.lookupNode(0)
    assert node.has_other_attr("colour")
    assert not node.has_other_attr("num_ops")
    assert node.get_other_attr("colour").string_val == "red"
    with pytest.raises(ChakraError, match="no attribute 'shape'"):
        node.get_other_attr("shape")
    with pytest.raises(ChakraError, match="no node with id 9"):
        feeder.lookupNode(9)
    feeder.removeNode(0)
    with pytest.raises(ChakraError, match="node 0 has been removed"):
        feeder.freeChildrenNodes(0)


def test_a_file(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    feeder = ETFeeder(root / "traces" / "allreduce_ring8" / "workload.0.et")
    node = feeder.getNextIssuableNode()
    assert node is not None
    assert node.getChakraNode().name == node.name()
    with pytest.raises(ChakraError):
        ETFeeder(tmp_path / "missing.et")


@given(st.lists(st.sets(st.integers(0, 30), max_size=4), min_size=1, max_size=30))
def test_every_node_comes_once_and_after_its_dependencies(parents: list[set[int]]) -> None:
    """Run one at a time, the order is the topological one that takes the smallest free id."""
    builder = TraceBuilder()
    nodes: list[Handle] = []
    for number, wanted in enumerate(parents):
        deps = [nodes[p] for p in sorted(wanted) if p < number]
        nodes.append(builder.compute(f"n{number}", duration_ns=1, after=deps))
    trace = builder.build()
    feeder = ETFeeder(trace)
    order = []
    while feeder.hasNodesToIssue():
        node = feeder.getNextIssuableNode()
        assert node is not None
        order.append(node.id())
        feeder.freeChildrenNodes(node.id())
        feeder.removeNode(node.id())
    assert order == [*nx.lexicographical_topological_sort(trace.to_networkx())]
