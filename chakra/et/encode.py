"""Encoding columns into the bytes of a file."""

from dataclasses import dataclass
from types import ModuleType

import numpy as np
import numpy.typing as npt

from chakra.arrays import I32, I64, U8, U64
from chakra.et.codec import ENCODE_KERNEL, kernels_for
from chakra.et.schema import ABSENT
from chakra.schemas.et_def_pb2 import AttributeProto, GlobalMetadata, IOInfo, Node
from chakra.schemas.protolib import encode_varint


@dataclass(frozen=True, slots=True)
class AttributeColumn:
    """One attribute of all nodes.

    Attributes
    ----------
    name
        The attribute's name.
    member
        Scalar integer or bool member of AttributeProto (``int64_val``), or ``message`` for a table.
    values
        int64 values with ``ABSENT``, or int32 indices into ``table`` with -1.
    table
        Distinct messages of the ``message`` form.
    """

    name: str
    member: str
    values: npt.NDArray[np.generic]
    table: tuple[AttributeProto, ...] | None


@dataclass(frozen=True, slots=True)
class Encodable:
    """Everything that goes into a file; arrays have one entry a node, tables are (codes, distinct values)."""

    metadata: GlobalMetadata
    ids: U64
    types: U8
    names: tuple[I32, tuple[str, ...]]
    ctrl: tuple[I64, U64]
    data: tuple[I64, U64]
    start_micros: I64
    duration_micros: I64
    inputs: tuple[I32, tuple[IOInfo, ...]] | None
    outputs: tuple[I32, tuple[IOInfo, ...]] | None
    attributes: tuple[AttributeColumn, ...]


#: How the kernel writes each integer member: 0 varint, 1 zigzag, 4 and 8 fixed size.
_WIRE_KINDS = {
    **dict.fromkeys(("int32_val", "int64_val", "uint32_val", "uint64_val", "bool_val"), 0),
    **dict.fromkeys(("sint32_val", "sint64_val"), 1),
    **dict.fromkeys(("fixed32_val", "sfixed32_val"), 4),
    **dict.fromkeys(("fixed64_val", "sfixed64_val"), 8),
}

#: Field tags of Node that come before a message.
_INPUTS_TAG, _OUTPUTS_TAG, _ATTR_TAG = b"\x42", b"\x4a", b"\x52"


def encode(source: Encodable) -> bytes:
    """The bytes of the file: metadata record, then one record a node."""
    kernels = kernels_for(ENCODE_KERNEL, len(source.ids))
    return encode_protobuf(source) if kernels is None else encode_compiled(kernels, source)


class _Blobs:
    """Encoded pieces one after the other, found by number."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def add(self, pieces: list[bytes]) -> int:
        """Append pieces; returns the number of the first."""
        self.pieces.extend(pieces)
        return len(self.pieces) - len(pieces)

    def arrays(self) -> tuple[U8, I64, I64]:
        """All bytes, and where each piece begins and ends."""
        sizes = np.fromiter((len(piece) for piece in self.pieces), np.int64, len(self.pieces))
        ends = np.cumsum(sizes, dtype=np.int64)
        return np.frombuffer(bytearray(b"".join(self.pieces)), np.uint8), ends - sizes, ends


def encode_compiled(kernels: ModuleType, source: Encodable) -> bytes:
    """Encode with the (compiled or plain) kernel module; gives the same bytes as `encode_protobuf`."""
    n = len(source.ids)
    blobs = _Blobs()
    message_rows: list[npt.NDArray[np.generic]] = []
    message_base: list[int] = []
    for side, tag in ((source.inputs, _INPUTS_TAG), (source.outputs, _OUTPUTS_TAG)):
        codes, table = side if side is not None else (np.full(n, -1, np.int32), ())
        message_rows.append(codes)
        message_base.append(blobs.add([tag + _record(message.SerializeToString()) for message in table]))
    ints: list[npt.NDArray[np.generic]] = []
    kinds, rows, prefixes = [], [], []
    for item in source.attributes:
        if item.table is not None:
            kinds.append(-1)
            rows.append(len(message_rows))
            message_rows.append(item.values)
            message_base.append(blobs.add([_ATTR_TAG + _record(m.SerializeToString()) for m in item.table]))
            prefixes.append(b"")
        else:
            kinds.append(_WIRE_KINDS[item.member])
            rows.append(len(ints))
            ints.append(item.values)
            prefixes.append(_value_prefix(item.name, item.member))
    prefix_base = blobs.add(prefixes)
    name_base = blobs.add([text.encode() for text in source.names[1]])
    blob_bytes, blob_starts, blob_ends = blobs.arrays()
    deps, sizes = np.zeros((2, n), np.int64), np.zeros(n, np.int64)
    columns = (
        *(source.ids.view(np.int64), source.types, source.names[0]),
        *(source.ctrl[0], source.ctrl[1].view(np.int64), source.data[0], source.data[1].view(np.int64)),
        np.stack([source.start_micros, source.duration_micros]),
        *(np.stack(message_rows).astype(np.int32, copy=False), np.array(message_base, np.int64)),
        np.stack(ints).astype(np.int64, copy=False) if ints else np.zeros((0, n), np.int64),
        *(
            np.array(kinds, np.int64),
            np.array(rows, np.int64),
            blob_starts,
            blob_ends,
            name_base,
            prefix_base,
        ),
        *(deps, sizes),
    )
    kernels.node_sizes(*columns)
    lengths = np.ones(n, np.int64)
    for bits in (7, 14, 21, 28):
        lengths += sizes >= 1 << bits
    head = _record(source.metadata.SerializeToString(deterministic=True))
    out = np.empty(len(head) + int(sizes.sum() + lengths.sum()), np.uint8)
    out[: len(head)] = np.frombuffer(head, np.uint8)
    kernels.write_nodes(*columns, blob_bytes, out, len(head))
    return out.tobytes()


def _value_prefix(name: str, member: str) -> bytes:
    """What an encoded integer attribute begins with: its name and the tag of its value."""
    sample = AttributeProto(name=name)
    setattr(sample, member, 1)
    whole = sample.SerializeToString()
    size = {4: 4, 8: 8}.get(_WIRE_KINDS[member], 1)
    return whole[:-size]


def encode_protobuf(source: Encodable) -> bytes:
    """Encode node by node with the protobuf library: for small traces, and as the kernel's reference in tests."""
    pieces = [_record(source.metadata.SerializeToString(deterministic=True))]
    ids, types = source.ids.tolist(), source.types.tolist()
    starts, durations = source.start_micros.tolist(), source.duration_micros.tolist()
    names, name_table = source.names[0].tolist(), source.names[1]
    ctrl_offsets, ctrl_ids = source.ctrl[0].tolist(), source.ctrl[1].tolist()
    data_offsets, data_ids = source.data[0].tolist(), source.data[1].tolist()
    attributes = [(item, item.values.tolist()) for item in source.attributes]
    for i, node_id in enumerate(ids):
        node = Node(
            id=node_id,
            name=name_table[names[i]],
            type=types[i],
            ctrl_deps=ctrl_ids[ctrl_offsets[i] : ctrl_offsets[i + 1]],
            data_deps=data_ids[data_offsets[i] : data_offsets[i + 1]],
            start_time_micros=starts[i],
            duration_micros=durations[i],
        )
        for side, field in ((source.inputs, node.inputs), (source.outputs, node.outputs)):
            if side is not None and side[0][i] >= 0:
                field.CopyFrom(side[1][side[0][i]])
        for item, values in attributes:
            value = values[i]
            if item.table is not None:
                if value >= 0:
                    node.attr.append(item.table[value])
            elif value != ABSENT:
                node.attr.add(name=item.name, **{item.member: value})
        pieces.append(_record(node.SerializeToString()))
    return b"".join(pieces)


def _record(payload: bytes) -> bytes:
    return encode_varint(len(payload)) + payload
