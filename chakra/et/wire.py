"""Framing of records, and saying what is wrong with bytes that are not a current execution trace."""

from collections.abc import Iterator

import numpy as np
from google.protobuf.message import DecodeError

from chakra.arrays import I64, U8
from chakra.errors import TraceError
from chakra.et.columns import Records
from chakra.io.readable import counted
from chakra.schemas.et_def_pb2 import GlobalMetadata, Node
from chakra.schemas.protolib import MAX_LENGTH_BYTES


def split_records(
    data: bytes | memoryview, source: str, most: int | None = None
) -> tuple[list[int], list[int]] | None:
    """Bounds (starts, ends) of all messages in a file, the metadata record first.

    None if there are ``most`` or more. A length of zero is an empty message. The length is a varint of at
    most 5 bytes.

    Raises
    ------
    TraceError
        With the byte offset where the framing breaks.
    """
    starts: list[int] = []
    ends: list[int] = []
    position = 0
    size = len(data)
    while position < size:
        length = shift = 0
        begin = position
        byte = 0x80
        while byte >= 0x80 and position < size and shift < 7 * MAX_LENGTH_BYTES:
            byte = data[position]
            position += 1
            length |= (byte & 0x7F) << shift
            shift += 7
        if byte >= 0x80 or position + length > size:
            tail = bytes(data[begin : begin + MAX_LENGTH_BYTES])
            raise explain_length(tail, size - begin, source, begin, len(starts))
        starts.append(position)
        position += length
        ends.append(position)
        if len(starts) == most:
            return None
    return starts, ends


def explain_length(tail: bytes, left: int, source: str, offset: int, record: int) -> TraceError:
    """The error for a record length that does not fit: ``tail`` begins with it, ``left`` bytes follow its
    offset.
    """
    length = 0
    problem = f"a record length of more than {MAX_LENGTH_BYTES} bytes"
    if len(tail) < MAX_LENGTH_BYTES:
        problem = "the file ends inside the length of a record"
    for position, byte in enumerate(tail[:MAX_LENGTH_BYTES]):
        length |= (byte & 0x7F) << 7 * position
        if byte < 0x80:
            problem = f"a record of {counted(length, 'byte')}, but only {left - position - 1} are left"
            break
    what = (
        "not an execution trace, or cut off at its start" if record == 0 else "the file is cut off or damaged"
    )
    return TraceError(f"{source}: byte {offset} (record {record + 1}): {problem}: {what}")


def parse_metadata(data: U8, start: int, end: int, source: str) -> GlobalMetadata:
    """Parse record 1, refusing the formats before schema 0.0.4 (October 2023).

    Raises
    ------
    TraceError
        If the record is not a GlobalMetadata message.
    """
    payload = data[start:end].tobytes()
    metadata = GlobalMetadata()
    try:
        metadata.ParseFromString(payload)
    except DecodeError as error:
        old = explain_old_format(payload)
        if old is None and _is_node(payload):
            old = _NO_METADATA
        reason: str | None = (
            old or f"record 1 is not a GlobalMetadata message ({error}): not an execution trace"
        )
        raise TraceError(f"{source}: byte {start}: {reason}") from error
    # A Node in the place of the metadata parses into unknown fields: its id is a varint where metadata has
    # text.
    if not metadata.version and not metadata.attr and payload:
        reason = explain_old_format(payload) or (_NO_METADATA if _is_node(payload) else None)
        if reason is not None:
            raise TraceError(f"{source}: byte {start}: {reason}")
        if not any(field in (1, 2) for field, _, _ in _fields(payload)):
            raise TraceError(
                f"{source}: byte {start}: record 1 is not a GlobalMetadata message: not an execution trace"
            )
    return metadata


_NO_METADATA = (
    "record 1 is a node, not the file's metadata: files from before 2023-08 (schema 0.0.1 to 0.0.3) have no "
    "metadata record and cannot be read; write the trace again with a current tool"
)
_OLD = (
    "this is the Chakra wire format {version}, whose field numbers differ from the current one (since 0.0.4, "
    "2023-10); it cannot be read: write the trace again with a current tool"
)


def explain_old_format(payload: bytes) -> str | None:
    """Say which old format a node record has, None if none: fields that only the formats before 0.0.4 have.

    Field 11 (a list of name/type/value attributes) is 0.0.2 or 0.0.3; fields 13 to 20 are 0.0.1.
    """
    fields = {field for field, _, _ in _fields(payload)}
    if 11 in fields:
        return _OLD.format(version="0.0.2 or 0.0.3")
    if fields & set(range(13, 21)):
        return _OLD.format(version="0.0.1")
    return None


def _is_node(payload: bytes) -> bool:
    """Whether a record has a node's name (field 2, text) and type (field 3, a number)."""
    kinds = {field: (wire, value) for field, wire, value in _fields(payload)}
    return (3 in kinds and kinds[3][0] == 0 and 2 in kinds and kinds[2][0] == 2) or kinds.get(1, (2,))[0] == 0


def _fields(payload: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Top-level (field number, wire type, raw value) of a message, as far as it can be split."""
    position = 0
    size = len(payload)

    def varint() -> int | None:
        nonlocal position
        value = shift = 0
        while position < size and shift < 70:
            byte = payload[position]
            position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value
        return None

    while position < size:
        tag = varint()
        if tag is None or tag >> 3 == 0:
            return
        begin = position
        wire = tag & 7
        if wire == 0:
            if varint() is None:
                return
        elif wire == 2:
            length = varint()
            if length is None or position + length > size:
                return
            begin = position
            position += length
        elif wire in (1, 5):
            position += 8 if wire == 1 else 4
            if position > size:
                return
        else:
            return
        yield tag >> 3, wire, payload[begin:position]


def make_records(data: U8, starts: I64, ends: I64, source: str) -> Records:
    """Records of a split file; the first message is the metadata.

    Raises
    ------
    TraceError
        If there is not even a metadata record.
    """
    if len(starts) == 0:
        raise TraceError(f"{source}: the file is empty; an execution trace begins with a metadata record")
    frozen = data.view()
    frozen.flags.writeable = False
    return Records(
        frozen, np.ascontiguousarray(starts[1:]), np.ascontiguousarray(ends[1:]), int(starts[0]), int(ends[0])
    )


def parse_node(records: Records, index: int, source: str) -> Node:
    """Parse one node with the protobuf library.

    Raises
    ------
    TraceError
        With the byte offset, and what is wrong.
    """
    payload = records.message(index)
    node = Node()
    try:
        node.ParseFromString(payload)
    except DecodeError as error:
        reason = (
            explain_old_format(payload) or f"record {index + 2} is not a Node message (it does not parse)"
        )
        raise TraceError(f"{source}: byte {records.offset(index)}: {reason}") from error
    return node
