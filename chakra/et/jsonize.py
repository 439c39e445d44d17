"""Execution traces as JSON documents and back, without loss.

The document is ``{"schema": "chakra.et.json/1", "metadata": {..}, "nodes": [{..}, ..]}``. A node has the
fields of the protobuf message under their names there; an attribute is ``{"name": .., "<member>": value}``.
Fields that are not in the message are left out. Bytes are base64 text; NaN and infinities are the texts
"nan", "inf" and "-inf".

Where a message would not come back with the same bytes (unknown fields, another field order), it also carries
``"raw"``, its bytes in base64, which then decide.
"""

import base64
import binascii
import json
import math
from collections.abc import Callable, Iterator
from typing import IO, Any, TypeAlias

import numpy as np
from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from chakra.arrays import U8
from chakra.errors import TraceError
from chakra.et.codec import frame
from chakra.et.columns import Records
from chakra.et.read import advice
from chakra.et.wire import make_records, parse_metadata, parse_node
from chakra.io import files
from chakra.io.documents import json_text, streamed
from chakra.schemas.et_def_pb2 import AttributeProto, GlobalMetadata, Node, NodeType
from chakra.schemas.protolib import encode_varint

SCHEMA = "chakra.et.json/1"

_TEXT_FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_PLAIN_FIELDS = ("id", "name", "start_time_micros", "duration_micros")
_MEMBERS = frozenset(field.name for field in AttributeProto.DESCRIPTOR.oneofs_by_name["value"].fields)
#: a record as JSON has it; a value that does not fit its member is refused where the message is built
_Entry: TypeAlias = dict[str, Any]


# ------------------------------------------------------------------------------------------------- to JSON


def write_json(content: bytes, source: str, out: IO[str]) -> int:
    """Write the JSON document of a trace file's (uncompressed) content; returns the number of nodes.

    ``source`` names the file in messages.

    Only the framing and the messages are looked at, so that a trace with a broken graph can be shown as well.

    Raises
    ------
    TraceError
        If the file is not an execution trace.
    """
    data = np.frombuffer(content, np.uint8)
    kind = files.kind_of(data[: 1 << 16].tobytes())
    if kind not in (files.EXECUTION_TRACE, files.UNKNOWN, files.TEXT, files.EMPTY):
        raise TraceError(f"{source}: this is a {kind}, not an execution trace{advice(kind, data, source)}")
    starts, ends = frame(data, source)
    records = make_records(data, starts, ends, source)
    prefixes = _odd_lengths(data, starts.tolist(), ends.tolist())
    metadata = parse_metadata(records.data, records.meta_start, records.meta_end, source)
    raw = records.data[records.meta_start : records.meta_end].tobytes()
    head = {"schema": SCHEMA, "metadata": _with_raw(_metadata_json(metadata), metadata, raw, prefixes, 0)}
    out.writelines(streamed(head, "nodes", _nodes(records, prefixes, source), json_text))
    return len(records.starts)


def _nodes(records: Records, prefixes: dict[int, str], source: str) -> Iterator[str]:
    for i in range(len(records.starts)):
        node = parse_node(records, i, source)
        yield json_text(_with_raw(_node_json(node), node, records.message(i), prefixes, i + 1))


def _odd_lengths(data: U8, starts: list[int], ends: list[int]) -> dict[int, str]:
    """Record lengths that are not written in the shortest way: record number -> their bytes in base64."""
    odd: dict[int, str] = {}
    previous = 0
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        prefix = data[previous:start].tobytes()
        if prefix != encode_varint(end - start):
            odd[number] = base64.b64encode(prefix).decode()
        previous = end
    return odd


def _with_raw(
    entry: dict[str, object], message: Message, raw: bytes, prefixes: dict[int, str], number: int
) -> dict[str, object]:
    back = _metadata_from(entry, "") if isinstance(message, GlobalMetadata) else _node_from(entry, "")
    if back.SerializeToString(deterministic=True) != raw:
        entry["raw"] = base64.b64encode(raw).decode()
    if number in prefixes:
        entry["length"] = prefixes[number]
    return entry


def _metadata_json(metadata: GlobalMetadata) -> dict[str, object]:
    entry: dict[str, object] = {"version": metadata.version} if metadata.version else {}
    if metadata.attr:
        entry["attr"] = [_attribute_json(attr) for attr in metadata.attr]
    return entry


def _node_json(node: Node) -> dict[str, object]:
    entry: dict[str, object] = {"id": node.id}
    if node.name:
        entry["name"] = node.name
    known = node.type in NodeType.values()
    entry["type"] = NodeType.Name(node.type) if known else int(node.type)
    for field in ("ctrl_deps", "data_deps"):
        if getattr(node, field):
            entry[field] = list(getattr(node, field))
    for field in ("start_time_micros", "duration_micros"):
        if getattr(node, field):
            entry[field] = getattr(node, field)
    for field in ("inputs", "outputs"):
        if node.HasField(field):
            side = getattr(node, field)
            entry[field] = {
                key: getattr(side, key) for key in ("values", "shapes", "types") if getattr(side, key)
            }
    if node.attr:
        entry["attr"] = [_attribute_json(attr) for attr in node.attr]
    return entry


def _attribute_json(attr: AttributeProto) -> dict[str, object]:
    entry: dict[str, object] = {"name": attr.name}
    if attr.doc_string:
        entry["doc_string"] = attr.doc_string
    member = attr.WhichOneof("value")
    if member is not None:
        value = getattr(attr, member)
        entry[member] = [_plain(item) for item in value.values] if member.endswith("_list") else _plain(value)
    return entry


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


# ----------------------------------------------------------------------------------------------- from JSON


def trace_bytes(content: bytes, source: str) -> bytes:
    """The bytes of the trace that a JSON document describes; ``source`` names it in messages.

    Also reads the output of upstream's jsonizer: protobuf JSON objects one after the other.

    Raises
    ------
    TraceError
        With the node's position and the key that is wrong.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TraceError(f"{source}: byte {error.start}: not UTF-8 text") from error
    documents = _documents(text, source)
    first = next(documents, None)
    if isinstance(first, dict) and first.get("schema") == SCHEMA:
        return b"".join(_own_records(first, source))
    return b"".join(_upstream_records(first, documents, source))


#: what building a message raises for values of the wrong kind
_BUILD_ERRORS = (binascii.Error, TypeError, ValueError, AttributeError, KeyError, OverflowError)


def _reason(error: Exception) -> str:
    return "a text is not Unicode" if isinstance(error, SystemError) else str(error) or type(error).__name__


def _documents(text: str, source: str) -> Iterator[Any]:
    decoder = json.JSONDecoder()
    position = 0
    while True:
        while position < len(text) and text[position].isspace():
            position += 1
        if position >= len(text):
            return
        try:
            document, position = decoder.raw_decode(text, position)
        except (ValueError, RecursionError) as error:
            raise TraceError(f"{source}: {files.json_fault(error)}") from error
        yield document


def _own_records(document: dict[str, object], source: str) -> Iterator[bytes]:
    nodes = document.get("nodes")
    metadata = document.get("metadata", {})
    if not isinstance(nodes, list) or not isinstance(metadata, dict):
        raise TraceError(f"{source}: 'metadata' must be an object and 'nodes' a list")
    yield _framed(metadata, _metadata_from, f"{source}: metadata")
    for position, entry in enumerate(nodes):
        where = f"{source}: nodes[{position}]"
        if not isinstance(entry, dict):
            raise TraceError(f"{where}: a node must be an object")
        yield _framed(entry, _node_from, where)


def _framed(entry: _Entry, build: Callable[[_Entry, str], Message], where: str) -> bytes:
    try:
        if "raw" in entry:
            payload = base64.b64decode(entry["raw"], validate=True)
        else:
            payload = build(entry, where).SerializeToString(deterministic=True)
        prefix = (
            base64.b64decode(entry["length"], validate=True)
            if "length" in entry
            else encode_varint(len(payload))
        )
    except (*_BUILD_ERRORS, SystemError) as error:
        raise TraceError(f"{where}: {_reason(error)}") from error
    return bytes(prefix + payload)


def _metadata_from(entry: _Entry, where: str) -> GlobalMetadata:
    _refuse_unknown(entry, {"version", "attr", "raw", "length"}, where)
    metadata = GlobalMetadata(version=entry.get("version", ""))
    metadata.attr.extend(_attribute_from(item, where) for item in entry.get("attr", []))
    return metadata


def _node_from(entry: _Entry, where: str) -> Node:
    allowed = {*_PLAIN_FIELDS, "type", "ctrl_deps", "data_deps", "inputs", "outputs", "attr", "raw", "length"}
    _refuse_unknown(entry, allowed, where)
    node = Node()
    for key in _PLAIN_FIELDS:
        if key in entry:
            _set(node, key, entry[key])
    kind = entry.get("type", 0)
    node.type = NodeType.Value(kind) if isinstance(kind, str) else kind  # type: ignore[assignment]
    for key in ("ctrl_deps", "data_deps"):
        try:
            getattr(node, key).extend(entry.get(key, []))
        except (TypeError, ValueError, OverflowError):
            raise ValueError(f"{key} must be a list of node ids, found {_short(entry[key])}") from None
    for field in ("inputs", "outputs"):
        if field in entry:
            side = getattr(node, field)
            side.SetInParent()
            _refuse_unknown(entry[field], {"values", "shapes", "types"}, where)
            for key, value in entry[field].items():
                _set(side, key, value)
    node.attr.extend(_attribute_from(item, where) for item in entry.get("attr", []))
    return node


def _attribute_from(entry: _Entry, where: str) -> AttributeProto:
    _refuse_unknown(entry, {"name", "doc_string"} | _MEMBERS, where)
    attr = AttributeProto(name=entry["name"], doc_string=entry.get("doc_string", ""))
    members = [key for key in entry if key in _MEMBERS]
    if len(members) > 1:
        raise ValueError(f"attribute {attr.name} has more than one value: {', '.join(members)}")
    for member in members:
        value = entry[member]
        if member.endswith("_list"):
            getattr(attr, member).SetInParent()
            getattr(attr, member).values.extend(_parsed(item, member) for item in value)
        else:
            setattr(attr, member, _parsed(value, member))
    return attr


def _parsed(value: Any, member: str) -> object:
    if member.startswith("bytes"):
        return base64.b64decode(value, validate=True)
    if member.startswith(("double", "float")) and isinstance(value, str):
        return _TEXT_FLOATS[value]
    return value


def _set(message: Message, key: str, value: Any) -> None:
    try:
        setattr(message, key, value)
    except (TypeError, ValueError, OverflowError):
        kind = message.DESCRIPTOR.fields_by_name[key].cpp_type
        wanted = "a text" if kind == FieldDescriptor.CPPTYPE_STRING else "a whole number that fits the field"
        raise ValueError(f"{key} must be {wanted}, found {_short(value)}") from None


def _short(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:56] + "..."


def _refuse_unknown(entry: object, allowed: set[str] | frozenset[str], where: str) -> None:
    if not isinstance(entry, dict):
        raise ValueError(f"an object is needed, not {entry!r}")
    unknown = sorted(set(entry) - allowed)
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r}; the keys are {', '.join(sorted(allowed))}")


def _upstream_records(first: object, others: Iterator[Any], source: str) -> Iterator[bytes]:
    """Records of upstream's jsonizer output, whose first object is the metadata."""
    message: Message = GlobalMetadata()
    documents = [first, *others] if first is not None else []
    if not documents:
        raise TraceError(f"{source}: the file is empty")
    for position, document in enumerate(documents):
        try:
            json_format.ParseDict(document, message)
            payload = message.SerializeToString(deterministic=True)
        # The protobuf library lets out what its parts raise: SystemError for a key that is no UTF-8 text.
        except (json_format.ParseError, DecodeError, *_BUILD_ERRORS, SystemError, RecursionError) as error:
            what = "metadata" if position == 0 else "node"
            raise TraceError(
                f"{source}: object {position + 1} is not the {what} of an execution trace in JSON "
                f"({_reason(error)})"
            ) from error
        yield encode_varint(len(payload)) + payload
        message = Node()
