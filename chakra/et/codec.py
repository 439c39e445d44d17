"""Choosing how to decode and encode: the protobuf library for small traces, compiled kernels for big ones."""

import numpy as np

from chakra.arrays import I64, U8
from chakra.et import decode_protobuf
from chakra.et.columns import Columns, Records
from chakra.et.wire import split_records


def frame(data: U8, source: str) -> tuple[I64, I64]:
    """Bounds of all messages of a file, the metadata first.

    Raises
    ------
    TraceError
        With the byte offset where the framing breaks.
    """
    starts, ends = split_records(data.tobytes(), source)
    return np.array(starts, np.int64), np.array(ends, np.int64)


def decode_records(records: Records, source: str) -> Columns:
    """Decode all nodes into columns.

    Raises
    ------
    TraceError
        See `chakra.et.decode_protobuf.decode`.
    """
    return decode_protobuf.decode(records, source)
