"""Encoding columns into the bytes of a file."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from chakra.arrays import I32, I64, U8, U64
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


def encode(source: Encodable) -> bytes:
    """The bytes of the file: metadata record, then one record a node."""
    return encode_protobuf(source)


def encode_protobuf(source: Encodable) -> bytes:
    """Encode node by node with the protobuf library: the path for small traces and the twin of the kernel."""
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
