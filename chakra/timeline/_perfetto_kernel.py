"""Kernel: encode slices as Perfetto track events, straight into bytes (run compiled or as plain Python).

Field numbers are those of perfetto's trace_packet.proto and track_event.proto; a tag is number << 3 | wire
type.
"""

from chakra.arrays import I32, I64, U8

ENTRY_POINTS = ("encode",)
ALLOCATES = False

_PACKET = 0x0A  # Trace.packet
_TIMESTAMP = 0x40  # TracePacket.timestamp
_SEQUENCE = 0x50  # TracePacket.trusted_packet_sequence_id
_FLAGS = 0x68  # TracePacket.sequence_flags
_TRACK_EVENT = 0x5A  # TracePacket.track_event
_TYPE = 0x48  # TrackEvent.type
_TRACK = 0x58  # TrackEvent.track_uuid
_NAME = 0x50  # TrackEvent.name_iid
_CATEGORY = 0x18  # TrackEvent.category_iids
_ANNOTATION = 0x22  # TrackEvent.debug_annotations
_FLOW = 0xF9  # TrackEvent.flow_ids: field 47, fixed 64 bits; second byte 0x02
_FLOW_END = 0x81  # TrackEvent.terminating_flow_ids: field 48; second byte 0x03


def put_varint(out: U8, at: int, value: int) -> int:
    """Write a non-negative number of up to 63 bits; the new position."""
    while value > 127:
        out[at] = (value & 127) | 128
        value >>= 7
        at += 1
    out[at] = value
    return at + 1


def varint_size(value: int) -> int:
    """Bytes that `put_varint` writes."""
    size = 1
    while value > 127:
        value >>= 7
        size += 1
    return size


def put_head(out: U8, at: int, time: int, event_size: int) -> int:
    """Write a packet up to its event of ``event_size`` bytes; the new position."""
    size = 1 + varint_size(time) + 2 + 2 + 1 + varint_size(event_size) + event_size
    out[at] = _PACKET
    at = put_varint(out, at + 1, size)
    out[at] = _TIMESTAMP
    at = put_varint(out, at + 1, time)
    out[at] = _SEQUENCE
    out[at + 1] = 1
    out[at + 2] = _FLAGS
    out[at + 3] = 2
    out[at + 4] = _TRACK_EVENT
    return put_varint(out, at + 5, event_size)


def put_flows(out: U8, at: int, tag: int, second: int, flows: I64, low: int, high: int) -> int:
    """Write flow ids ``flows[low:high]`` + 1 as fixed 64-bit numbers; the new position."""
    for k in range(low, high):
        out[at] = tag
        out[at + 1] = second
        value = flows[k] + 1
        for byte in range(8):
            out[at + 2 + byte] = (value >> (8 * byte)) & 255
        at += 10
    return at


def encode(
    row: I32,
    start: I64,
    duration: I64,
    name: I32,
    category: I32,
    node: I64,
    out_offsets: I64,
    out_flows: I64,
    in_offsets: I64,
    in_flows: I64,
    stack: I64,
    out: U8,
) -> int:
    """Write begin and end packets of all slices, row after row; the number of bytes.

    Slices come sorted by row, start, end descending, and nest on their row. The end packet carries the flows
    that arrive, so that an arrow never precedes its source.
    """
    n = len(row)
    at = 0
    depth = 0
    for i in range(n + 1):
        while depth > 0:
            k = stack[depth - 1]
            end = start[k] + duration[k]
            if i < n and row[i] == row[k] and start[i] < end:
                break
            low, high = in_offsets[k], in_offsets[k + 1]
            track = row[k] + 1
            at = put_head(out, at, end, 2 + 1 + varint_size(track) + 10 * (high - low))
            out[at] = _TYPE
            out[at + 1] = 2
            out[at + 2] = _TRACK
            at = put_varint(out, at + 3, track)
            at = put_flows(out, at, _FLOW_END, 3, in_flows, low, high)
            depth -= 1
        if i == n:
            break
        low, high = out_offsets[i], out_offsets[i + 1]
        track = row[i] + 1
        size = 2 + 1 + varint_size(track) + 1 + varint_size(name[i] + 1) + 2 + 10 * (high - low)
        annotation = 0
        if node[i] >= 0:
            annotation = 2 + 1 + varint_size(node[i])
            size += 2 + annotation
        at = put_head(out, at, start[i], size)
        out[at] = _TYPE
        out[at + 1] = 1
        out[at + 2] = _TRACK
        at = put_varint(out, at + 3, track)
        out[at] = _NAME
        at = put_varint(out, at + 1, name[i] + 1)
        out[at] = _CATEGORY
        out[at + 1] = category[i] + 1
        at += 2
        if annotation:
            out[at] = _ANNOTATION
            out[at + 1] = annotation
            out[at + 2] = 0x08  # DebugAnnotation.name_iid
            out[at + 3] = 1
            out[at + 4] = 0x18  # DebugAnnotation.uint_value
            at = put_varint(out, at + 5, node[i])
        at = put_flows(out, at, _FLOW, 2, out_flows, low, high)
        stack[depth] = i
        depth += 1
    return at
