"""Traces that say of themselves what the converter of profiles says."""

from collections.abc import Mapping

import numpy as np

from chakra.et import Trace
from chakra.et.read import decode_trace
from chakra.rescale.edit import Edits, edited
from chakra.schemas.protolib import encode_varint


def saying(trace: Trace, said: Mapping[str, int]) -> Trace:
    """The trace with more metadata."""
    records = edited(trace, Edits()).records
    metadata = trace.metadata
    for name, value in said.items():
        metadata.attr.add(name=name, int64_val=value)
    head = metadata.SerializeToString()
    body = records.data[records.meta_end :].tobytes()
    return decode_trace(np.frombuffer(encode_varint(len(head)) + head + body, np.uint8), "<memory>")
