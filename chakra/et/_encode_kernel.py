"""Encoding of whole traces: columns straight into protobuf wire format.

Kernel module: arrays and scalars only; runs as plain Python too. Signed 64-bit integers hold the bits of
unsigned ones, so that no mixed arithmetic turns into floating point. Sizes are computed first, then
everything is written.
"""

from chakra.arrays import I32, I64, U8

_ABSENT = -(2**63)

ENTRY_POINTS = ("node_sizes", "write_nodes")
ALLOCATES = False


def _varint_size(value: int) -> int:
    """Bytes of a varint that holds the bits of ``value``."""
    if value < 0:
        return 10
    size = 1
    while value >= 128:
        value >>= 7
        size += 1
    return size


def _put_varint(out: U8, position: int, value: int) -> int:
    """Write the bits of ``value`` as a varint; returns the next position."""
    if value < 0:
        for _ in range(9):
            out[position] = (value & 127) | 128
            value >>= 7
            position += 1
        out[position] = 1
        return position + 1
    while value >= 128:
        out[position] = (value & 127) | 128
        value >>= 7
        position += 1
    out[position] = value
    return position + 1


def _put_bytes(out: U8, position: int, blob: U8, start: int, end: int) -> int:
    """Copy bytes; returns the next position."""
    for k in range(start, end):
        out[position] = blob[k]
        position += 1
    return position


def _value_size(kind: int, value: int) -> int:
    """Bytes of an integer value; kind 0 varint, 1 zigzag, 4 and 8 fixed."""
    if kind == 0:
        return _varint_size(value)
    if kind == 1:
        return _varint_size((value << 1) ^ (value >> 63))
    return kind


def node_sizes(
    ids: I64,
    types: U8,
    name_codes: I32,
    ctrl_offsets: I64,
    ctrl_ids: I64,
    data_offsets: I64,
    data_ids: I64,
    times: I64,
    message_codes: I32,
    message_base: I64,
    ints: I64,
    kinds: I64,
    rows: I64,
    blob_starts: I64,
    blob_ends: I64,
    name_base: int,
    prefix_base: int,
    deps: I64,
    sizes: I64,
) -> None:
    """Sizes of all node messages into ``sizes`` and of their packed dependencies into ``deps`` (2, n).

    Blobs 'name_base + code' are names, 'message_base[row] + code' whole encoded fields, 'prefix_base +
    column' the bytes of an integer attribute before its value. kinds[c] is -1 for a message column, else how
    the integer in ints[rows[c]] is written. Message rows 0 and 1 are the node's inputs and outputs.
    """
    for i in range(len(ids)):
        size = 0
        if ids[i] != 0:
            size += 1 + _varint_size(ids[i])
        blob = name_base + name_codes[i]
        length = blob_ends[blob] - blob_starts[blob]
        if length > 0:
            size += 1 + _varint_size(length) + length
        if types[i] != 0:
            size += 2
        for which in range(2):
            offsets = data_offsets if which == 1 else ctrl_offsets
            targets = data_ids if which == 1 else ctrl_ids
            length = 0
            for k in range(offsets[i], offsets[i + 1]):
                length += _varint_size(targets[k])
            deps[which, i] = length
            if length > 0:
                size += 1 + _varint_size(length) + length
        for which in range(2):
            if times[which, i] != 0:
                size += 1 + _varint_size(times[which, i])
        for row in range(2):
            if message_codes[row, i] >= 0:
                blob = message_base[row] + message_codes[row, i]
                size += blob_ends[blob] - blob_starts[blob]
        for column in range(len(kinds)):
            row = rows[column]
            if kinds[column] < 0:
                if message_codes[row, i] >= 0:
                    blob = message_base[row] + message_codes[row, i]
                    size += blob_ends[blob] - blob_starts[blob]
            elif ints[row, i] != _ABSENT:
                blob = prefix_base + column
                length = blob_ends[blob] - blob_starts[blob] + _value_size(kinds[column], ints[row, i])
                size += 1 + _varint_size(length) + length
        sizes[i] = size


def write_nodes(
    ids: I64,
    types: U8,
    name_codes: I32,
    ctrl_offsets: I64,
    ctrl_ids: I64,
    data_offsets: I64,
    data_ids: I64,
    times: I64,
    message_codes: I32,
    message_base: I64,
    ints: I64,
    kinds: I64,
    rows: I64,
    blob_starts: I64,
    blob_ends: I64,
    name_base: int,
    prefix_base: int,
    deps: I64,
    sizes: I64,
    blobs: U8,
    out: U8,
    position: int,
) -> int:
    """Write all records (length and message) into ``out`` from ``position`` on; arguments as of
    `node_sizes`.
    """
    for i in range(len(ids)):
        position = _put_varint(out, position, sizes[i])
        if ids[i] != 0:
            out[position] = 0x08
            position = _put_varint(out, position + 1, ids[i])
        blob = name_base + name_codes[i]
        length = blob_ends[blob] - blob_starts[blob]
        if length > 0:
            out[position] = 0x12
            position = _put_varint(out, position + 1, length)
            position = _put_bytes(out, position, blobs, blob_starts[blob], blob_ends[blob])
        if types[i] != 0:
            out[position] = 0x18
            out[position + 1] = types[i]
            position += 2
        for which in range(2):
            if deps[which, i] == 0:
                continue
            offsets = data_offsets if which == 1 else ctrl_offsets
            targets = data_ids if which == 1 else ctrl_ids
            out[position] = 0x2A if which == 1 else 0x22
            position = _put_varint(out, position + 1, deps[which, i])
            for k in range(offsets[i], offsets[i + 1]):
                position = _put_varint(out, position, targets[k])
        for which in range(2):
            if times[which, i] != 0:
                out[position] = 0x30 + 8 * which
                position = _put_varint(out, position + 1, times[which, i])
        for row in range(2):
            if message_codes[row, i] >= 0:
                blob = message_base[row] + message_codes[row, i]
                position = _put_bytes(out, position, blobs, blob_starts[blob], blob_ends[blob])
        for column in range(len(kinds)):
            row = rows[column]
            kind = kinds[column]
            if kind < 0:
                if message_codes[row, i] >= 0:
                    blob = message_base[row] + message_codes[row, i]
                    position = _put_bytes(out, position, blobs, blob_starts[blob], blob_ends[blob])
            elif ints[row, i] != _ABSENT:
                value = ints[row, i]
                blob = prefix_base + column
                out[position] = 0x52
                length = blob_ends[blob] - blob_starts[blob] + _value_size(kind, value)
                position = _put_varint(out, position + 1, length)
                position = _put_bytes(out, position, blobs, blob_starts[blob], blob_ends[blob])
                if kind == 0:
                    position = _put_varint(out, position, value)
                elif kind == 1:
                    position = _put_varint(out, position, (value << 1) ^ (value >> 63))
                else:
                    for _ in range(kind):
                        out[position] = value & 255
                        value >>= 8
                        position += 1
    return position
