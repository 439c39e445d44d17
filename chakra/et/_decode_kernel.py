"""Decoding of whole traces: protobuf wire format straight into columns.

Kernel module: arrays and scalars only; runs as plain Python too. The decoder does not explain what is wrong:
it returns the index of the node that it did not like, and the protobuf library has the last word on that one.

Signed 64-bit integers hold the bits of unsigned ones throughout (node ids, lengths), so that no mixed
arithmetic turns into floating point.
"""

import numpy as np

from chakra.arrays import I8, I32, I64, U8, Truth, Whole

# Rows of the attribute table: the integer columns and comm_group come first (see schema.INT_COLUMNS), then these.
IS_CPU_OP = 12
PG_NAME = 13
OPERATOR = 15
IN_SPLIT = 16

_ABSENT = -(2**63)

ENTRY_POINTS = ("decode_nodes", "frame_records")


def _varint(buf: U8, position: Whole, end: Whole) -> tuple[Whole, Whole]:
    """Read a varint; returns (value, next position), a next position of -1 if it is cut off or too long."""
    value = np.int64(0)
    shift = np.int64(0)
    while position < end:
        byte = np.int64(buf[position])
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7
        if shift >= 70:
            return value, -1
    return value, -1


def _skip(buf: U8, position: Whole, end: Whole, wire: Whole) -> Whole:
    """Position behind a field's value, -1 if it is cut off or of a wire type that current files do not
    use.
    """
    if wire == 0:
        _, position = _varint(buf, position, end)
        return position
    if wire == 1:
        position += 8
    elif wire == 5:
        position += 4
    elif wire == 2:
        length, position = _varint(buf, position, end)
        if position < 0 or length < 0:
            return -1
        position += length
    else:
        return -1
    if position > end:
        return -1
    return position


def _grown(array: I64) -> I64:
    """A copy of twice the length; the caller fills the rest."""
    bigger = np.empty(2 * len(array) + 16, array.dtype)
    for k in range(len(array)):  # a slice assignment compiles the text of its error along: a second
        bigger[k] = array[k]
    return bigger


def frame_records(buf: U8) -> tuple[I64, I64, Whole]:
    """Bounds of all length-delimited messages: (starts, ends, offset of a broken length or -1)."""
    size = len(buf)
    starts = np.empty(size // 64 + 64, np.int64)
    ends = np.empty(size // 64 + 64, np.int64)
    count = 0
    position: Whole = 0
    while position < size:
        begin = position
        length: Whole = np.int64(buf[position])
        position += 1
        if length >= 128:
            length, position = _varint(buf, begin, min(size, begin + 5))
        if position < 0 or position + length > size:
            return starts[:count], ends[:count], begin
        if count == len(starts):
            starts = _grown(starts)
            ends = _grown(ends)
        starts[count] = position
        position += length
        ends[count] = position
        count += 1
    return starts[:count], ends[:count], -1


def _hash(buf: U8, start: Whole, end: Whole) -> Whole:
    """Hash of some bytes, 32 bits."""
    value = np.int64(2166136261)
    for position in range(start, end):
        value = ((value ^ np.int64(buf[position])) * 16777619) & 0xFFFFFFFF
    return value ^ (value >> 15)


def _same(buf: U8, start: Whole, end: Whole, other: U8, other_start: Whole, other_end: Whole) -> bool:
    """Whether two runs of bytes are equal."""
    if end - start != other_end - other_start:
        return False
    for k in range(end - start):  # noqa: SIM110 - a loop compiles, a generator does not
        if buf[start + k] != other[other_start + k]:
            return False
    return True


def _slot(
    buf: U8, start: Whole, end: Whole, value: Whole, table: I32, starts: I64, ends: I64, hashes: I64
) -> Whole:
    """Where a string is, or belongs, in an open-addressing table of codes."""
    mask = len(table) - 1
    slot = value & mask
    while table[slot] >= 0:
        code = table[slot]
        if hashes[code] == value and _same(buf, start, end, buf, starts[code], ends[code]):
            return slot
        slot = (slot + 1) & mask
    return slot


def _rehashed(hashes: I64, count: Whole, size: Whole) -> I32:
    """A table of codes of the given size (a power of two)."""
    table = np.full(size, -1, np.int32)
    for code in range(count):
        slot = hashes[code] & (size - 1)
        while table[slot] >= 0:
            slot = (slot + 1) & (size - 1)
        table[slot] = code
    return table


def _known(
    buf: U8, start: Whole, end: Whole, names: U8, name_starts: I64, name_ends: I64, lookup: I32
) -> Whole:
    """Row of an attribute that has a column, -1 for others. ``lookup`` is probed by length and outer
    bytes.
    """
    length = end - start
    if length < 3:
        return -1
    mask = len(lookup) - 1
    slot = (length * 31 + np.int64(buf[start]) * 7 + np.int64(buf[end - 1]) * 3) & mask
    while lookup[slot] >= 0:
        row = lookup[slot]
        if _same(buf, start, end, names, name_starts[row], name_ends[row]):
            return row
        slot = (slot + 1) & mask
    return -1


def _fixed(buf: U8, position: Whole, size: Whole) -> Whole:
    """Little-endian unsigned number of ``size`` bytes, as the bits of a signed 64-bit one."""
    value = np.int64(0)
    for k in range(size):
        value |= np.int64(buf[position + k]) << np.int64(8 * k)
    return value


def _integer(buf: U8, field: Whole, start: Whole, value: Whole) -> tuple[Whole, Truth]:
    """Value of an integer member (by field number): (value, whether a column can hold it).

    ``value`` is what the varint said, for those members that are one.
    """
    if field == 19 or field == 23:
        value = _fixed(buf, start, 4)
        if field == 23 and value >= 0x80000000:
            value -= 0x100000000
        return value, True
    if field == 21 or field == 25:
        value = _fixed(buf, start, 8)
        return value, value != _ABSENT and (field == 25 or value >= 0)
    if field == 7 or field == 11 or field == 15:
        value &= 0xFFFFFFFF
        if field == 7 and value >= 0x80000000:
            value -= 0x100000000
        elif field == 15:
            value = (value >> 1) ^ -(value & 1)
        return value, True
    if field == 17:
        value = ((value >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(value & 1)
    return value, value != _ABSENT and (field != 13 or value >= 0)


def _is_integer_field(field: Whole) -> Truth:
    return field >= 7 and field <= 25 and field % 2 == 1


def _wire_of_value(field: Whole) -> int:
    """Wire type of each member of AttributeProto's oneof."""
    if field % 2 == 0 or field > 27:
        return 2
    if field == 3 or field == 21 or field == 25:
        return 1
    if field == 5 or field == 19 or field == 23:
        return 5
    return 0


def _bool_list(buf: U8, position: Whole, end: Whole) -> Whole:
    """A list of up to 61 bools as bits with a 1 above the last, -1 if it is anything else."""
    bits = np.int64(0)
    count = 0
    while position < end:
        tag, position = _varint(buf, position, end)
        if position < 0:
            return -1
        if tag == 10:
            length, position = _varint(buf, position, end)
            if position < 0 or length < 0 or position + length > end:
                return -1
            stop = position + length
        elif tag == 8:
            stop = position + 1
        else:
            return -1
        while position < stop:
            value, position = _varint(buf, position, end if tag == 8 else stop)
            if position < 0 or count > 60:
                return -1
            if value != 0:
                bits |= np.int64(1) << np.int64(count)
            count += 1
    return bits | (np.int64(1) << np.int64(count))


def decode_nodes(
    buf: U8,
    starts: I64,
    ends: I64,
    names: U8,
    name_starts: I64,
    name_ends: I64,
    lookup: I32,
    ids: I64,
    types: U8,
    name_codes: I32,
    times: I64,
    ints: I64,
    cpu: I8,
    pg_codes: I32,
    dim_codes: I32,
    operator_codes: I32,
    splits: I8,
    ctrl_offsets: I64,
    data_offsets: I64,
) -> tuple[int, I64, I64, I64, I64, I64, bool]:
    """Decode all nodes into the arrays of the second line, filled beforehand with 0, -1 or ABSENT.

    Returns (index of a node to look at or -1, ctrl ids, data ids, starts and ends of the distinct strings
    that name_codes, pg_codes and operator_codes index, distinct bool lists, whether some string is not ASCII).
    Nodes with split sizes are marked only: taking their lists along costs all others a third of their time.
    """
    n = len(starts)
    ctrl = np.empty(n + 16, np.int64)
    data = np.empty(2 * n + 16, np.int64)
    n_ctrl = 0
    n_data = 0
    text_starts = np.empty(1024, np.int64)
    text_ends = np.empty(1024, np.int64)
    hashes = np.empty(1024, np.int64)
    table = np.full(2048, -1, np.int32)
    n_text = 0
    dims = np.empty(16, np.int64)
    n_dims = 0
    not_ascii = False
    bad = -1
    for i in range(n):
        position = starts[i]
        end = ends[i]
        name_start = position
        name_end = position
        group_start: Whole = np.int64(0)
        group_end: Whole = np.int64(-1)
        involved: Whole = np.int64(-1)
        work_start: Whole = np.int64(0)
        work_end: Whole = np.int64(-1)
        while position < end:
            tag: Whole = np.int64(buf[position])
            position += 1
            if tag >= 128:
                tag, position = _varint(buf, position - 1, end)
            field = tag >> 3
            wire = tag & 7
            if position < 0 or field <= 0 or field == 11 or (field >= 13 and field <= 20) or tag > 0xFFFFFFFF:
                bad = i
                break
            if wire == 0:
                value, position = _varint(buf, position, end)
                if position < 0:
                    bad = i
                    break
                if field == 1:
                    ids[i] = value
                elif field == 3:
                    if value < 0 or value > 7:
                        bad = i
                        break
                    types[i] = value
                elif field == 6 or field == 7:
                    if value < 0:
                        bad = i
                        break
                    times[field - 6, i] = value
                elif field == 4:
                    if n_ctrl == len(ctrl):
                        ctrl = _grown(ctrl)
                    ctrl[n_ctrl] = value
                    n_ctrl += 1
                elif field == 5:
                    if n_data == len(data):
                        data = _grown(data)
                    data[n_data] = value
                    n_data += 1
                continue
            if wire != 2:
                position = _skip(buf, position, end, wire)
                if position < 0:
                    bad = i
                    break
                continue
            if position < end and buf[position] < 128:
                length: Whole = np.int64(buf[position])
                position += 1
            else:
                length, position = _varint(buf, position, end)
            if position < 0 or length < 0 or position + length > end:
                bad = i
                break
            stop = position + length
            if field == 2:
                name_start = position
                name_end = stop
            elif field == 4:
                while position < stop:
                    value, position = _varint(buf, position, stop)
                    if position < 0:
                        bad = i
                        break
                    if n_ctrl == len(ctrl):
                        ctrl = _grown(ctrl)
                    ctrl[n_ctrl] = value
                    n_ctrl += 1
            elif field == 5:
                while position < stop:
                    value, position = _varint(buf, position, stop)
                    if position < 0:
                        bad = i
                        break
                    if n_data == len(data):
                        data = _grown(data)
                    data[n_data] = value
                    n_data += 1
            elif field == 10:
                # What every writer emits: the name, then one value, nothing else. Anything else takes the
                # loop below.
                chosen: Whole = np.int64(0)
                attr_start = position
                attr_end = position
                value_start = position
                value_end = position
                number: Whole = np.int64(0)
                begin = position
                if position + 2 < stop and buf[position] == 10 and buf[position + 1] < 128:
                    attr_start = position + 2
                    attr_end = attr_start + np.int64(buf[position + 1])
                    if attr_end + 1 < stop:
                        inner: Whole = np.int64(buf[attr_end])
                        position = attr_end + 1
                        if inner >= 128:
                            inner, position = _varint(buf, attr_end, stop)
                        chosen = inner >> 3
                        value_start = position
                        if position < 0 or chosen < 3 or chosen > 32 or inner & 7 != _wire_of_value(chosen):
                            position = -1
                        elif inner & 7 == 0:
                            if position < stop and buf[position] < 128:
                                number = np.int64(buf[position])
                                position += 1
                            else:
                                number, position = _varint(buf, position, stop)
                        else:
                            position = _skip(buf, position, stop, inner & 7)
                        value_end = position
                if position != stop:
                    position = begin
                    chosen = np.int64(0)
                    attr_start = position
                    attr_end = position
                while position < stop:
                    inner, position = _varint(buf, position, stop)
                    inner_field = inner >> 3
                    if position < 0 or inner_field <= 0 or inner > 0xFFFFFFFF:
                        bad = i
                        break
                    begin = position
                    position = _skip(buf, position, stop, inner & 7)
                    if position < 0:
                        bad = i
                        break
                    if inner_field == 1 and inner & 7 == 2:
                        length, attr_start = _varint(buf, begin, stop)
                        attr_end = position
                    elif inner_field > 2 and inner_field < 33 and inner & 7 == _wire_of_value(inner_field):
                        if chosen != 0:  # members that follow each other may have to be merged
                            bad = i
                            break
                        chosen = inner_field
                        value_start = begin
                        value_end = position
                        if inner & 7 == 0:
                            number, position = _varint(buf, begin, stop)
                if bad >= 0:
                    break
                row = _known(buf, attr_start, attr_end, names, name_starts, name_ends, lookup)
                if row >= 0:
                    if row <= IS_CPU_OP:
                        if row == IS_CPU_OP and chosen == 27:
                            cpu[i] = 1 if number != 0 else 0
                        else:
                            if not _is_integer_field(chosen):
                                bad = i
                                break
                            value, fits = _integer(buf, chosen, value_start, number)
                            if not fits:
                                bad = i
                                break
                            if row == IS_CPU_OP:
                                cpu[i] = 1 if value != 0 else 0
                            else:
                                ints[row, i] = value
                    elif row == PG_NAME:
                        if chosen != 29:
                            bad = i
                            break
                        length, group_start = _varint(buf, value_start, value_end)
                        group_end = value_end
                    elif row == OPERATOR:
                        work_end = np.int64(-1)
                        if chosen == 29:
                            length, work_start = _varint(buf, value_start, value_end)
                            work_end = value_end
                    elif row >= IN_SPLIT:
                        if chosen < 8 or chosen > 26 or chosen % 2 != 0:
                            bad = i
                            break
                        splits[i] = 1
                    else:
                        if chosen != 28:
                            bad = i
                            break
                        length, value_start = _varint(buf, value_start, value_end)
                        bits = _bool_list(buf, value_start, value_end)
                        if bits < 0:
                            bad = i
                            break
                        involved = bits
            if bad >= 0:
                break
            position = stop
        if bad >= 0:
            break
        if involved >= 0:
            code = 0
            while code < n_dims and dims[code] != involved:
                code += 1
            if code == n_dims:
                if n_dims == len(dims):
                    dims = _grown(dims)
                dims[n_dims] = involved
                n_dims += 1
            dim_codes[i] = code
        for which in range(3):
            if which == 1:
                if group_end < 0:
                    continue
                name_start = group_start
                name_end = group_end
            elif which == 2:
                if work_end < 0:
                    break
                name_start = work_start
                name_end = work_end
            value = _hash(buf, name_start, name_end)
            slot = _slot(buf, name_start, name_end, value, table, text_starts, text_ends, hashes)
            if table[slot] < 0:
                for k in range(name_start, name_end):
                    if buf[k] >= 128:
                        not_ascii = True
                if n_text == len(text_starts):
                    text_starts = _grown(text_starts)
                    text_ends = _grown(text_ends)
                    hashes = _grown(hashes)
                text_starts[n_text] = name_start
                text_ends[n_text] = name_end
                hashes[n_text] = value
                code = n_text
                n_text += 1
                if 2 * n_text > len(table):
                    table = _rehashed(hashes, n_text, 2 * len(table))
                else:
                    table[slot] = code
            else:
                code = table[slot]
            if which == 0:
                name_codes[i] = code
            elif which == 1:
                pg_codes[i] = code
            else:
                operator_codes[i] = code
        ctrl_offsets[i + 1] = n_ctrl
        data_offsets[i + 1] = n_data
    return (
        bad, ctrl[:n_ctrl], data[:n_data], text_starts[:n_text], text_ends[:n_text], dims[:n_dims], not_ascii,
    )  # fmt: skip
