"""A view of one node: what its columns say, and everything else from its encoded form on demand."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from chakra.et.schema import NodeType
from chakra.schemas.et_def_pb2 import AttributeProto, Node

if TYPE_CHECKING:
    from chakra.et.trace import Trace

Scalar: TypeAlias = int | float | bool | str | bytes
#: Value of an attribute in Python: a scalar, or a tuple of scalars for the list kinds.
AttributeValue: TypeAlias = Scalar | tuple[Scalar, ...]


def attribute_value(attr: AttributeProto) -> AttributeValue | None:
    """Value of an attribute as Python has it; None if it carries no value."""
    kind = attr.WhichOneof("value")
    if kind is None:
        return None
    value = getattr(attr, kind)
    if kind.endswith("_list"):
        return tuple(value.values)
    scalar: Scalar = value
    return scalar


class NodeView:
    """One node of a trace, read-only.

    Cheap: it holds the trace and an index. ``attrs`` and ``proto`` decode the node's message when asked.

    Attributes
    ----------
    trace
        The trace.
    index
        Place of the node in the trace's columns.
    """

    __slots__ = ("_trace", "index")

    def __init__(self, trace: "Trace", index: int) -> None:
        self._trace = trace
        self.index: int = index

    @property
    def id(self) -> int:
        """Id in the file."""
        return int(self._trace.ids[self.index])

    @property
    def name(self) -> str:
        """Name."""
        return self._trace.name_table[int(self._trace.name_codes[self.index])]

    @property
    def type(self) -> NodeType:
        """What the node does."""
        return NodeType(int(self._trace.types[self.index]))

    @property
    def duration_ns(self) -> int:
        """Duration in nanoseconds: the attribute duration_ns if given, else duration_micros x 1000."""
        return int(self._trace.durations_ns()[self.index])

    @property
    def ctrl_deps(self) -> tuple[int, ...]:
        """Ids of the control dependencies that are in the trace."""
        trace = self._trace
        return tuple(
            trace.ctrl_ids[trace.ctrl_offsets[self.index] : trace.ctrl_offsets[self.index + 1]].tolist()
        )

    @property
    def data_deps(self) -> tuple[int, ...]:
        """Ids of the data dependencies."""
        trace = self._trace
        return tuple(
            trace.data_ids[trace.data_offsets[self.index] : trace.data_offsets[self.index + 1]].tolist()
        )

    @property
    def attrs(self) -> Mapping[str, AttributeValue | None]:
        """All attributes by name; of one given twice the last counts."""
        return {attr.name: attribute_value(attr) for attr in self.proto().attr}

    def proto(self) -> Node:
        """A fresh protobuf message of the node, as it stands in the file."""
        return self._trace.node_proto(self.index)

    def __repr__(self) -> str:
        return f"<node {self.id} {self.type.name} {self.name!r}>"
