"""Hypothesis strategies for execution-trace messages and their (also unusual) encodings."""

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from chakra.schemas.et_def_pb2 import AttributeProto, GlobalMetadata, IOInfo, Node, NodeType
from chakra.schemas.protolib import encode_varint

UINT64 = st.integers(0, 2**64 - 1)
INT64 = st.integers(-(2**63) + 1, 2**63 - 1)
SMALL = st.integers(0, 300)
TEXT = st.text(st.characters(codec="utf-8"), max_size=12)

INTEGERS = {
    "int32_val": st.integers(-(2**31), 2**31 - 1),
    "int64_val": INT64,
    "uint32_val": st.integers(0, 2**32 - 1),
    "uint64_val": st.integers(0, 2**63 - 1),
    "sint32_val": st.integers(-(2**31), 2**31 - 1),
    "sint64_val": INT64,
    "fixed32_val": st.integers(0, 2**32 - 1),
    "fixed64_val": st.integers(0, 2**63 - 1),
    "sfixed32_val": st.integers(-(2**31), 2**31 - 1),
    "sfixed64_val": INT64,
}
OTHERS = {
    "double_val": st.floats(),
    "float_val": st.floats(width=32),
    "bool_val": st.booleans(),
    "string_val": TEXT,
    "bytes_val": st.binary(max_size=12),
    "int32_list": st.lists(INTEGERS["int32_val"], max_size=4),
    "sint64_list": st.lists(INT64, max_size=4),
    "fixed32_list": st.lists(INTEGERS["fixed32_val"], max_size=4),
    "double_list": st.lists(st.floats(), max_size=4),
    "bool_list": st.lists(st.booleans(), max_size=70),
    "string_list": st.lists(TEXT, max_size=4),
    "bytes_list": st.lists(st.binary(max_size=4), max_size=4),
}
INT_NAMES = (
    *("duration_ns", "comm_type", "comm_size", "comm_src", "comm_dst", "comm_tag", "comm_priority"),
    *("num_ops", "tensor_size", "stream", "tid", "comm_group"),
)

SPLIT_NAMES = ("in_split_bytes", "out_split_bytes")


def _attr(name: str, member: str, value: Any) -> AttributeProto:
    attr = AttributeProto(name=name)
    if member.endswith("_list"):
        getattr(attr, member).SetInParent()
        getattr(attr, member).values.extend(value)
    else:
        setattr(attr, member, value)
    return attr


def _members(table: Mapping[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[tuple[str, object]]:
    return st.sampled_from(sorted(table)).flatmap(lambda member: st.tuples(st.just(member), table[member]))


@st.composite
def good_attributes(draw: st.DrawFn) -> AttributeProto:
    """An attribute that every reader takes: known ones of the right kind, others of any."""
    which = draw(st.sampled_from(["int", "int", "cpu", "pg", "dims", "split", "other"]))
    if which == "int":
        return _attr(draw(st.sampled_from(INT_NAMES)), *draw(_members(INTEGERS)))
    if which == "cpu":
        if draw(st.booleans()):
            return _attr("is_cpu_op", "bool_val", draw(st.booleans()))
        return _attr("is_cpu_op", *draw(_members(INTEGERS)))
    if which == "pg":
        return _attr("pg_name", "string_val", draw(TEXT))
    if which == "dims":
        return _attr("involved_dim", "bool_list", draw(OTHERS["bool_list"]))
    if which == "split":
        name = draw(st.sampled_from(SPLIT_NAMES))
        member = draw(st.sampled_from(["int32_list", "sint64_list", "fixed32_list"]))
        return _attr(name, member, draw(OTHERS[member]))
    attr = _attr(draw(TEXT), *draw(_members(INTEGERS | OTHERS)))
    if attr.name in (*INT_NAMES, "is_cpu_op", "pg_name", "involved_dim", *SPLIT_NAMES):
        attr.name = "x"
    attr.doc_string = draw(TEXT)
    return attr


@st.composite
def nodes(draw: st.DrawFn, node_id: int, others: list[int]) -> Node:
    """A node that may depend on ``others``."""
    node = Node(
        id=node_id,
        name=draw(TEXT),
        type=NodeType.Name(draw(st.integers(0, 7))),
        start_time_micros=draw(st.one_of(SMALL, st.integers(0, 2**63 - 1))),
        duration_micros=draw(SMALL),
    )
    deps = st.lists(st.sampled_from(others), max_size=4) if others else st.just([])
    node.ctrl_deps.extend(draw(deps))
    node.data_deps.extend(draw(deps))
    if draw(st.booleans()):
        node.inputs.CopyFrom(IOInfo(values=draw(TEXT), shapes=draw(TEXT), types=draw(TEXT)))
    if draw(st.booleans()):
        node.outputs.SetInParent()
    node.attr.extend(draw(st.lists(good_attributes(), max_size=5)))
    return node


def padded_varint(value: int, size: int) -> bytes:
    """A varint with at least ``size`` bytes, longer than it need be."""
    plain = bytearray(encode_varint(value))
    while len(plain) < size:
        plain[-1] |= 0x80
        plain.append(0)
    return bytes(plain)


@st.composite
def odd_encodings(draw: st.DrawFn, node: Node) -> bytes:
    """Another encoding of the same node: shuffled fields, unpacked lists, unknown fields, long varints."""
    fields: list[bytes] = []
    rest = Node()
    rest.CopyFrom(node)
    for number, name in ((4, "ctrl_deps"), (5, "data_deps")):
        if draw(st.booleans()):
            tag = bytes([number << 3])
            fields.extend(tag + padded_varint(dep, draw(st.integers(1, 10))) for dep in getattr(rest, name))
            rest.ClearField(name)
    while rest.attr:
        attr = rest.attr.pop(0)
        payload = attr.SerializeToString()
        if draw(st.booleans()):  # value before name, and an unknown field
            nameless = AttributeProto()
            nameless.CopyFrom(attr)
            nameless.ClearField("name")
            named = AttributeProto(name=attr.name).SerializeToString()
            payload = nameless.SerializeToString() + b"\xa0\x06\x05" + named
        fields.append(b"\x52" + padded_varint(len(payload), draw(st.integers(1, 3))) + payload)
    fields.append(rest.SerializeToString())
    fields.append(
        draw(st.sampled_from([b"", b"\xc0\x06\x05", b"\xc2\x06\x02ab", b"\xc5\x06abcd", b"\xc1\x06abcdefgh"]))
    )
    # The order of dependencies and attributes must stay; only whole groups may move.
    if draw(st.booleans()):
        fields = [fields[-1], *fields[:-1]]
    return b"".join(fields)


@st.composite
def files(draw: st.DrawFn, max_nodes: int = 8) -> bytes:
    """A valid file with acyclic dependencies."""
    ids = draw(st.lists(st.one_of(SMALL, UINT64), max_size=max_nodes, unique=True))
    metadata = GlobalMetadata(version=draw(st.sampled_from(["1.0.0", "0.0.4", ""])))
    metadata.attr.extend(draw(st.lists(good_attributes(), max_size=2)))
    payload = metadata.SerializeToString()
    pieces = [encode_varint(len(payload)) + payload]
    for position, node_id in enumerate(ids):
        node = draw(nodes(node_id, ids[:position]))
        message = draw(odd_encodings(node)) if draw(st.booleans()) else node.SerializeToString()
        pieces.append(encode_varint(len(message)) + message)
    return b"".join(pieces)
