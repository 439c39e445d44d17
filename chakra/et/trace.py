"""The trace model: an immutable columnar store of one rank's execution trace."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from chakra.arguments import checked
from chakra.arrays import I32, I64
from chakra.errors import TraceError
from chakra.et.attributes import AttributeValue, attribute_value
from chakra.et.columns import Columns, Records
from chakra.et.graph import Csr, IdMap, resolve, topological_order, transposed
from chakra.et.schema import ABSENT, INTEGER_MEMBERS, NodeType
from chakra.et.wire import parse_metadata, parse_node
from chakra.io.readable import counted
from chakra.schemas.et_def_pb2 import GlobalMetadata, Node

if TYPE_CHECKING:
    import networkx as nx


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


@dataclass(frozen=True, eq=False, repr=False)
class Trace(Columns):
    """One rank's execution trace: columns over its nodes (see `Columns`), in file order, all arrays
    read-only.

    Made by `read_trace`, `read_traces`, `TraceColumns` and the builder; nothing that reads, runs, checks or
    draws a trace changes it.

    Attributes
    ----------
    source
        Path of the file, or ``<memory>``; begins every message about the trace.
    records
        The encoded nodes, for attributes without a column and for writing.
    dropped_ctrl_deps, dropped_data_deps
        Dependencies on nodes that are not in the file, dropped on reading (the latter only with ``repair``).
    """

    source: str
    records: Records
    dropped_ctrl_deps: int
    dropped_data_deps: int
    _parents: Csr
    _acyclic: bool

    # ------------------------------------------------------------------------------------ whole trace

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return len(self.ids)

    def __len__(self) -> int:
        return self.n_nodes

    def __repr__(self) -> str:
        return f"<Trace {self.source}: {counted(self.n_nodes, 'node')}>"

    @property
    def name_table(self) -> tuple[str, ...]:
        """Distinct node names; ``name_codes`` indexes it."""
        return self.name_pool.strings

    @property
    def pg_table(self) -> tuple[str, ...]:
        """Distinct process group names; ``pg_codes`` indexes it."""
        return self.pg_pool.strings

    @property
    def operator_table(self) -> tuple[str, ...]:
        """Distinct texts of the attribute operator; ``operator_codes`` indexes it."""
        return self.operator_pool.strings

    @property
    def metadata(self) -> GlobalMetadata:
        """A fresh copy of the file's metadata message."""
        records = self.records
        return parse_metadata(records.data, records.meta_start, records.meta_end, self.source)

    @cached_property
    def rank(self) -> int | None:
        """The rank this trace was written for, if it says so (metadata attribute ``rank``)."""
        for attr in self.metadata.attr:
            if attr.name == "rank" and attr.WhichOneof("value") in INTEGER_MEMBERS:
                value = attribute_value(attr)
                return value if isinstance(value, int) else None
        return None

    @cached_property
    def content_hash(self) -> str:
        """Hexadecimal hash of the uncompressed content: equal content, equal hash."""
        return hash_of(self.records)

    def durations_ns(self) -> I64:
        """Duration of every node in nanoseconds, int64: attribute duration_ns if given, else duration_micros
        x 1000.

        Raises
        ------
        TraceError
            If a duration does not fit a signed 64-bit number of nanoseconds.
        """
        return self._durations_ns

    @cached_property
    def _durations_ns(self) -> I64:
        limit = (2**63 - 1) // 1000
        given = self.duration_ns != ABSENT
        huge = (self.duration_micros > limit) & ~given
        if huge.any():
            i = int(np.argmax(huge))
            raise TraceError(
                f"{self.source}: node {self.ids[i]}: duration of {self.duration_micros[i]} microseconds is "
                f"more than a signed 64-bit number of nanoseconds holds"
            )
        values = np.where(given, self.duration_ns, np.where(given, 0, self.duration_micros) * 1000)
        values.flags.writeable = False
        return values

    # ------------------------------------------------------------------------------------------ nodes

    @checked
    def node(self, index: int) -> NodeView:
        """View of node number ``index`` (negative counts from the end).

        Raises
        ------
        IndexError
            If there is no such node.
        """
        return NodeView(self, self._place(index))

    def _place(self, index: int) -> int:
        if not -self.n_nodes <= index < self.n_nodes:
            raise IndexError(f"node index {index} of {counted(self.n_nodes, 'node')}")
        return index % self.n_nodes

    def nodes(self) -> Iterator[NodeView]:
        """Views of all nodes in file order."""
        return (NodeView(self, index) for index in range(self.n_nodes))

    @checked
    def node_proto(self, index: int) -> Node:
        """A fresh protobuf message of node number ``index``, as it stands in the file."""
        return parse_node(self.records, self._place(index), self.source)

    @checked
    def attr(self, index: int, name: str, default: object = None) -> Any:
        """Any attribute of node number ``index`` as a Python value (list kinds as tuples), else
        ``default``.
        """
        found = default
        for attr in self.node_proto(index).attr:
            if attr.name == name:
                found = attribute_value(attr)
        return found

    @checked
    def splits(self, index: int) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
        """Split sizes of node number ``index``, bytes per member of its group: of what the rank brings in
        (attribute in_split_bytes) and of what it takes out (out_split_bytes); None where the node has none.
        """
        place = int(np.searchsorted(self.split_nodes, self._place(index)))
        if place == len(self.split_nodes) or self.split_nodes[place] != self._place(index):
            return None, None
        return self._split_list(self.in_split_codes[place]), self._split_list(self.out_split_codes[place])

    def _split_list(self, code: np.int32) -> tuple[int, ...] | None:
        if code < 0:
            return None
        return tuple(self.split_bytes[self.split_offsets[code] : self.split_offsets[code + 1]].tolist())

    @checked
    def index_of(self, node_id: int) -> int:
        """Index of the node with this id.

        Raises
        ------
        TraceError
            If there is none.
        """
        if 0 <= node_id < 2**64:
            index = int(self._id_map.indices(np.array([node_id], np.uint64))[0])
            if index >= 0:
                return index
        raise TraceError(f"{self.source}: there is no node with id {node_id}")

    @cached_property
    def _id_map(self) -> IdMap:
        return IdMap(self.ids, self.source)

    # ------------------------------------------------------------------------------------------ graph

    def order_by_id(self) -> I64:
        """Permutation (int64) that sorts the nodes by id."""
        return self._order_by_id

    @cached_property
    def _order_by_id(self) -> I64:
        if np.all(self.ids[1:] > self.ids[:-1]):
            order = np.arange(self.n_nodes, dtype=np.int64)
        else:
            order = np.argsort(self.ids, kind="stable").astype(np.int64, copy=False)
        order.flags.writeable = False
        return order

    def parents(self) -> tuple[I64, I32]:
        """Distinct control and data dependencies of every node as node indices: CSR (offsets int64, index
        int32).
        """
        return self._parents.offsets, self._parents.index

    def children(self) -> tuple[I64, I32]:
        """Nodes that depend on each node, as node indices in ascending order: CSR (offsets int64, index
        int32).
        """
        return self._children.offsets, self._children.index

    @cached_property
    def _children(self) -> Csr:
        graph = transposed(self._parents)
        graph.offsets.flags.writeable = graph.index.flags.writeable = False
        return graph

    def topological_order(self) -> I64:
        """Node indices, every node after its parents; by index among those that are free at the same time.

        Raises
        ------
        TraceError
            If there is a cycle; the message names one.
        """
        return self._topological_order

    @cached_property
    def _topological_order(self) -> I64:
        order = topological_order(self._parents, self._children, self.ids, self.source)
        order.flags.writeable = False
        return order

    def check(self) -> None:
        """Refuse a graph that cannot run because control dependencies close a cycle.

        Cycles of data dependencies alone are refused on reading; files in the wild have control dependencies
        (from tools that did not obey them) that close one with data dependencies, and are still worth looking
        at.

        Raises
        ------
        TraceError
            Naming one cycle.
        """
        if not self._acyclic:
            self.topological_order()

    def to_networkx(self) -> "nx.DiGraph[int]":
        """The graph for NetworkX: nodes are ids, edges run from a dependency to the node that waits for it.

        Nodes carry ``index``, ``name``, ``type`` (the type's name) and ``duration_ns``; edges carry ``kind``:
        "ctrl", "data" or "both".
        """
        from chakra.et.networkx_view import to_networkx

        return to_networkx(self, self.durations_ns(), self.source)


def make_trace(columns: Columns, records: Records, source: str, *, repair: bool) -> Trace:
    """Assemble a trace: resolve its dependencies, freeze its arrays.

    Raises
    ------
    TraceError
        If ids repeat, a data dependency is absent (unless ``repair``), or data dependencies form a cycle.
    """
    resolved = resolve(columns, source, repair=repair)
    if resolved.ctrl is not None:
        columns = replace(columns, ctrl_offsets=resolved.ctrl[0], ctrl_ids=resolved.ctrl[1])
    if resolved.data is not None:
        columns = replace(columns, data_offsets=resolved.data[0], data_ids=resolved.data[1])
    for array in (*columns.arrays(), resolved.parents.offsets, resolved.parents.index):
        array.flags.writeable = False
    return Trace(
        **{item.name: getattr(columns, item.name) for item in fields(Columns)},
        source=source,
        records=records,
        dropped_ctrl_deps=resolved.dropped_ctrl,
        dropped_data_deps=resolved.dropped_data,
        _parents=resolved.parents,
        _acyclic=resolved.acyclic,
    )


def hash_of(records: Records) -> str:
    """Hash of a trace's uncompressed bytes."""
    return hashlib.blake2b(records.data.data, digest_size=16).hexdigest()
