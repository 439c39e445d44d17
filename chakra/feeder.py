"""Feeding a simulator of your own with a trace: nodes whose dependencies are done, in order of their ids.

Method names are those of the C++ feeder of mlcommons/chakra (``src/feeder/et_feeder.h``), so that a simulator written
against it reads alike. The trace is read whole into columns (about 500 bytes a node); there are no windows.

>>> feeder = ETFeeder("run.0.et")  # doctest: +SKIP
>>> while feeder.hasNodesToIssue():  # doctest: +SKIP
...     node = feeder.getNextIssuableNode()
...     if node is None:
...         node = wait_for_one_that_runs()
...         feeder.freeChildrenNodes(node.id())
...         feeder.removeNode(node.id())
...     else:
...         start(node)
"""

import heapq

from chakra.arguments import checked
from chakra.errors import TraceError, UsageError
from chakra.et import ABSENT, CommType, NodeType, Trace, read_trace
from chakra.io.files import PathLike
from chakra.schemas import et_def_pb2 as pb2

__all__ = ["ETFeeder", "ETFeederNode"]

#: attributes with a method of their own
_OWN = frozenset(
    (
        *("is_cpu_op", "num_ops", "tensor_size", "pg_name"),
        *("comm_type", "comm_priority", "comm_size", "comm_src", "comm_dst", "comm_tag"),
    )
)


class ETFeederNode:
    """A node as the feeder hands it out.

    Parameters
    ----------
    trace
        The trace.
    index
        Place of the node in the trace's columns.
    """

    __slots__ = ("_index", "_trace")

    def __init__(self, trace: Trace, index: int) -> None:
        self._trace, self._index = trace, index

    def _number(self, column: str, missing: int = 0) -> int:
        value = int(getattr(self._trace, column)[self._index])
        return missing if value == ABSENT else value

    def id(self) -> int:
        """Id in the file."""
        return int(self._trace.ids[self._index])

    def name(self) -> str:
        """Name."""
        return self._trace.node(self._index).name

    def type(self) -> NodeType:
        """What the node does."""
        return self._trace.node(self._index).type

    def is_cpu_op(self) -> bool:
        """Whether the host runs it; false where the file does not say."""
        return bool(self._number("is_cpu_op"))

    def runtime(self) -> int:
        """Duration in us, as `duration_micros` gives it."""
        return int(self._trace.duration_micros[self._index])

    def num_ops(self) -> int:
        """Operations, 0 where the file does not say."""
        return self._number("num_ops")

    def tensor_size(self) -> int:
        """Bytes of memory traffic, 0 where the file does not say."""
        return self._number("tensor_size")

    def comm_type(self) -> CommType:
        """The collective, ALL_REDUCE where the file does not say.

        Raises
        ------
        TraceError
            If the file gives a number that no collective has.
        """
        kind = self._number("comm_type")
        try:
            return CommType(kind)
        except ValueError:
            raise TraceError(
                f"{self._trace.source}: node {self.id()}: comm_type {kind} is unknown; "
                f"the kinds are 0 to {max(CommType)}"
            ) from None

    def comm_priority(self) -> int:
        """Priority, 0 where the file does not say."""
        return self._number("comm_priority")

    def comm_size(self) -> int:
        """Bytes of the communication, 0 where the file does not say."""
        return self._number("comm_size")

    def comm_src(self) -> int:
        """Sender, 0 where the file does not say."""
        return self._number("comm_src")

    def comm_dst(self) -> int:
        """Receiver, 0 where the file does not say."""
        return self._number("comm_dst")

    def comm_tag(self) -> int:
        """Tag, 0 where the file does not say."""
        return self._number("comm_tag")

    def pg_name(self) -> str:
        """Process group, empty where the file does not say."""
        code = int(self._trace.pg_codes[self._index])
        return self._trace.pg_table[code] if code >= 0 else ""

    def get_inputs_values(self) -> str:
        """Values of the inputs, as PyTorch recorded them."""
        return self.getChakraNode().inputs.values

    def get_inputs_shapes(self) -> str:
        """Shapes of the inputs."""
        return self.getChakraNode().inputs.shapes

    def get_inputs_types(self) -> str:
        """Types of the inputs."""
        return self.getChakraNode().inputs.types

    def get_outputs_values(self) -> str:
        """Values of the outputs."""
        return self.getChakraNode().outputs.values

    def get_outputs_shapes(self) -> str:
        """Shapes of the outputs."""
        return self.getChakraNode().outputs.shapes

    def get_outputs_types(self) -> str:
        """Types of the outputs."""
        return self.getChakraNode().outputs.types

    def getChakraNode(self) -> pb2.Node:  # noqa: N802  upstream's name
        """A fresh protobuf message of the node."""
        return self._trace.node_proto(self._index)

    def getChildren(self) -> "list[ETFeederNode]":  # noqa: N802
        """Nodes that wait for this one."""
        offsets, index = self._trace.children()
        return [
            ETFeederNode(self._trace, child)
            for child in index[offsets[self._index] : offsets[self._index + 1]].tolist()
        ]

    @checked
    def has_other_attr(self, attr_name: str) -> bool:
        """Whether there is an attribute of this name that has no method."""
        return attr_name not in _OWN and any(a.name == attr_name for a in self.getChakraNode().attr)

    @checked
    def get_other_attr(self, attr_name: str) -> pb2.AttributeProto:
        """An attribute that has no method.

        Raises
        ------
        UsageError
            If there is none.
        """
        if self.has_other_attr(attr_name):
            for attribute in reversed(self.getChakraNode().attr):
                if attribute.name == attr_name:
                    return attribute
        raise UsageError(f"{self._trace.source}: node {self.id()}: there is no attribute {attr_name!r}")

    def __repr__(self) -> str:
        return repr(self._trace.node(self._index))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ETFeederNode) and self._trace is other._trace and self._index == other._index

    def __hash__(self) -> int:
        return hash((id(self._trace), self._index))


class ETFeeder:
    """Hands out the nodes of a trace whose control and data dependencies are done, the smallest id first.

    Parameters
    ----------
    filename
        An execution trace, also gzipped; or a trace that has been read.

    Raises
    ------
    TraceError
        If the file is no execution trace, or its dependencies close a cycle.
    """

    @checked
    def __init__(self, filename: PathLike | Trace) -> None:
        self._trace = filename if isinstance(filename, Trace) else read_trace(filename)
        self._trace.check()
        offsets, _ = self._trace.parents()
        #: dependencies that are not done, by place in the columns
        self._waiting = (offsets[1:] - offsets[:-1]).tolist()
        #: places of the nodes that have not been removed
        self._left = set(range(len(self._trace)))
        self._ready = [(self._id(place), place) for place in self._left if not self._waiting[place]]
        heapq.heapify(self._ready)
        #: places of the nodes that were taken and not given back, and of those that are done
        self._taken: set[int] = set()
        self._done: set[int] = set()

    def _id(self, place: int) -> int:
        return int(self._trace.ids[place])

    def _place(self, node_id: int) -> int:
        place = self._trace.index_of(node_id)
        if place not in self._left:
            raise UsageError(f"{self._trace.source}: node {node_id} has been removed")
        return place

    def hasNodesToIssue(self) -> bool:  # noqa: N802
        """Whether there are nodes that have not been removed."""
        return bool(self._left or self._ready)

    def getNextIssuableNode(self) -> ETFeederNode | None:  # noqa: N802
        """Take the free node of the smallest id; None if every node that is left waits for another."""
        if not self._ready:
            return None
        place = heapq.heappop(self._ready)[1]
        self._taken.add(place)
        return ETFeederNode(self._trace, place)

    @checked
    def pushBackIssuableNode(self, node_id: int) -> None:  # noqa: N802
        """Give back a node that could not be started.

        Raises
        ------
        TraceError, UsageError
            If there is no such node, or it has been removed, is done, or was not taken: it would be issued twice.
        """
        place = self._place(node_id)
        if place not in self._taken or place in self._done:
            state = "is done" if place in self._done else "was not taken"
            raise UsageError(f"{self._trace.source}: node {node_id} {state}: it cannot be given back")
        self._taken.remove(place)
        heapq.heappush(self._ready, (node_id, place))

    @checked
    def lookupNode(self, node_id: int) -> ETFeederNode:  # noqa: N802
        """A node that has not been removed.

        Raises
        ------
        TraceError, UsageError
            If there is no such node, or it has been removed.
        """
        return ETFeederNode(self._trace, self._place(node_id))

    @checked
    def freeChildrenNodes(self, node_id: int) -> None:  # noqa: N802
        """Say that a node is done: those that waited for it alone become free.

        Raises
        ------
        TraceError, UsageError
            If there is no such node, or it has been removed, or was done before: a node that also waits for others would
            become free too early.
        """
        place = self._place(node_id)
        if place in self._done:
            raise UsageError(f"{self._trace.source}: node {node_id} is done already")
        self._done.add(place)
        offsets, index = self._trace.children()
        for child in index[offsets[place] : offsets[place + 1]].tolist():
            self._waiting[child] -= 1
            if not self._waiting[child]:
                heapq.heappush(self._ready, (self._id(child), child))

    @checked
    def removeNode(self, node_id: int) -> None:  # noqa: N802
        """Forget a node.

        Raises
        ------
        TraceError, UsageError
            If there is no such node, or it has been removed.
        """
        self._left.remove(self._place(node_id))
