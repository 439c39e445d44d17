"""Decoding node by node with the protobuf library.

The path for small inputs (compiling or loading kernels costs more than it saves), the plain version that tests compare
the kernel with, and the place where every message about a bad node is made: the kernel only says which node
to look at.
"""

from array import array
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from google.protobuf.unknown_fields import UnknownFieldSet

from chakra.errors import TraceError
from chakra.et.columns import Columns, Records, StringPool
from chakra.et.operators import ATTRIBUTE as OPERATOR
from chakra.et.schema import ABSENT, IN_SPLIT, INT_COLUMNS, INTEGER_MEMBERS, OUT_SPLIT, NodeType
from chakra.et.splits import SplitColumns, split_values
from chakra.et.wire import explain_old_format, parse_node
from chakra.io.readable import with_article
from chakra.schemas.et_def_pb2 import AttributeProto, Node

_COLUMN_OF = {name: number for number, name in enumerate(INT_COLUMNS)}
_INT64_MAX = 2**63 - 1


@dataclass(slots=True)
class _Attributes:
    """Values of the attributes of one node that have a column."""

    ints: list[int] = field(default_factory=lambda: [ABSENT] * len(INT_COLUMNS))
    is_cpu_op: int = -1
    group: str | None = None
    involved: tuple[bool, ...] | None = None
    operator: str | None = None
    in_split: tuple[int, ...] | None = None
    out_split: tuple[int, ...] | None = None


def decode(records: Records, source: str) -> Columns:
    """Decode all nodes into columns.

    Raises
    ------
    TraceError
        With byte offset or node id: a record that does not parse, an old format, an attribute of the wrong
        kind.
    """
    n = len(records.starts)
    ids = np.zeros(n, np.uint64)
    types = np.zeros(n, np.uint8)
    times = np.zeros((2, n), np.int64)
    ints = np.full((len(INT_COLUMNS), n), ABSENT, np.int64)
    cpu = np.full(n, -1, np.int8)
    codes = np.full((4, n), -1, np.int32)
    offsets = np.zeros((2, n + 1), np.int64)
    ctrl, data = array("Q"), array("Q")
    names: dict[str, int] = {}
    groups: dict[str, int] = {}
    dims: dict[tuple[bool, ...], int] = {}
    operators: dict[str, int] = {}
    splits = SplitColumns()
    for i in range(n):
        node = parse_node(records, i, source)
        check_node(node, records, i, source)
        ids[i] = node.id
        types[i] = node.type
        times[0, i] = node.start_time_micros
        times[1, i] = node.duration_micros
        codes[0, i] = names.setdefault(node.name, len(names))
        ctrl.extend(node.ctrl_deps)
        data.extend(node.data_deps)
        offsets[0, i + 1] = len(ctrl)
        offsets[1, i + 1] = len(data)
        if not node.attr:
            continue
        found = known_attributes(node, source)
        ints[:, i] = found.ints
        cpu[i] = found.is_cpu_op
        if found.group is not None:
            codes[1, i] = groups.setdefault(found.group, len(groups))
        if found.involved is not None:
            codes[2, i] = dims.setdefault(found.involved, len(dims))
        if found.operator is not None:
            codes[3, i] = operators.setdefault(found.operator, len(operators))
        splits.add(i, found.in_split, found.out_split)
    return Columns(
        ids=ids,
        types=types,
        name_codes=codes[0],
        name_pool=StringPool.of(tuple(names)),
        start_micros=times[0],
        duration_micros=times[1],
        ctrl_offsets=offsets[0],
        ctrl_ids=np.array(ctrl, np.uint64),
        data_offsets=offsets[1],
        data_ids=np.array(data, np.uint64),
        is_cpu_op=cpu,
        pg_codes=codes[1],
        pg_pool=StringPool.of(tuple(groups)),
        dim_codes=codes[2],
        dim_table=tuple(dims),
        operator_codes=codes[3],
        operator_pool=StringPool.of(tuple(operators)),
        **splits.columns(),
        **cast("dict[str, Any]", dict(zip(INT_COLUMNS, ints, strict=True))),
    )


def check_node(node: Node, records: Records, index: int, source: str) -> None:
    """Refuse nodes of old formats, unknown types and times that no clock can hold.

    Raises
    ------
    TraceError
        With the node's id.
    """
    where = f"{source}: node {node.id}"
    if len(UnknownFieldSet(node)):
        old = explain_old_format(records.message(index))
        if old is not None:
            raise TraceError(f"{source}: byte {records.offset(index)}: {old}")
    if not 0 <= node.type < len(NodeType):
        raise TraceError(f"{where}: type {node.type} is unknown; the types are 0 to {len(NodeType) - 1}")
    for name, value in (
        ("start_time_micros", node.start_time_micros),
        ("duration_micros", node.duration_micros),
    ):
        if value > _INT64_MAX:
            raise TraceError(f"{where}: {name} {value} does not fit a signed 64-bit integer")


def known_attributes(node: Node, source: str) -> _Attributes:
    """Values of the attributes that have columns; of an attribute given twice the last one counts.

    Raises
    ------
    TraceError
        If one of them has a value of the wrong kind.
    """
    found = _Attributes()
    comm_group: str | None = None
    for attr in node.attr:
        name = attr.name
        if name in _COLUMN_OF:
            found.ints[_COLUMN_OF[name]] = integer_value(attr, node.id, source)
        elif name == "is_cpu_op":
            if attr.WhichOneof("value") == "bool_val":
                found.is_cpu_op = int(attr.bool_val)
            else:
                found.is_cpu_op = int(integer_value(attr, node.id, source, "a bool or an integer") != 0)
        elif name == "pg_name":
            if attr.WhichOneof("value") != "string_val":
                raise _wrong_kind(attr, node.id, source, "a string (string_val)")
            found.group = attr.string_val
        elif name == "comm_group":
            comm_group = str(integer_value(attr, node.id, source))
        elif name == "involved_dim":
            if attr.WhichOneof("value") != "bool_list":
                raise _wrong_kind(attr, node.id, source, "a list of bools (bool_list)")
            found.involved = tuple(attr.bool_list.values)
        elif name == OPERATOR:
            # other tools may mean something else by this word: only a text can be ours
            found.operator = attr.string_val if attr.WhichOneof("value") == "string_val" else None
        elif name == IN_SPLIT:
            found.in_split = _splits(attr, node.id, source)
        elif name == OUT_SPLIT:
            found.out_split = _splits(attr, node.id, source)
    if found.group is None:
        found.group = comm_group
    return found


def integer_value(attr: AttributeProto, node_id: int, source: str, wanted: str = "an integer") -> int:
    """Value of an integer attribute; all integer members mean the same.

    Raises
    ------
    TraceError
        If the value is no integer, or does not fit a signed 64-bit integer.
    """
    kind = attr.WhichOneof("value")
    if kind not in INTEGER_MEMBERS:
        raise _wrong_kind(attr, node_id, source, wanted)
    value: int = getattr(attr, kind)
    if not ABSENT < value <= _INT64_MAX:
        raise TraceError(
            f"{source}: node {node_id}: attribute {attr.name} {value} does not fit a signed 64-bit integer"
        )
    return value


def _splits(attr: AttributeProto, node_id: int, source: str) -> tuple[int, ...]:
    try:
        values = split_values(attr)
    except OverflowError as error:
        raise TraceError(
            f"{source}: node {node_id}: attribute {attr.name}: {error} does not fit a signed 64-bit integer"
        ) from None
    if values is None:
        raise _wrong_kind(attr, node_id, source, "a list of integers (int64_list)")
    return values


def _wrong_kind(attr: AttributeProto, node_id: int, source: str, wanted: str) -> TraceError:
    kind = attr.WhichOneof("value")
    given = "has no value" if kind is None else f"is {with_article(kind)}"
    return TraceError(f"{source}: node {node_id}: attribute {attr.name} {given}; it must be {wanted}")
