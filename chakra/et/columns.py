"""The columnar form of a trace: plain arrays, one entry a node, in file order."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from chakra.arrays import I8, I32, I64, U8, U64, AnyArray, ranges


class StringPool:
    """Distinct strings of a column, kept as UTF-8 bytes until somebody asks for them.

    Parameters
    ----------
    data
        (k,) uint8: the bytes of all strings, or a larger buffer that holds them.
    starts, ends
        (m,) int64: where each string begins and ends in ``data``.
    """

    __slots__ = ("__dict__", "data", "ends", "starts")

    def __init__(self, data: U8, starts: I64, ends: I64) -> None:
        self.data: U8 = data
        self.starts: I64 = starts
        self.ends: I64 = ends

    @classmethod
    def of(cls, strings: tuple[str, ...]) -> "StringPool":
        """Pool of strings that are already there."""
        encoded = [text.encode() for text in strings]
        sizes = np.fromiter((len(item) for item in encoded), np.int64, len(encoded))
        ends = np.cumsum(sizes, dtype=np.int64)
        pool = cls(np.frombuffer(b"".join(encoded), np.uint8), ends - sizes, ends)
        pool.__dict__["strings"] = strings
        return pool

    def __len__(self) -> int:
        return len(self.starts)

    def find(self, text: str) -> int:
        """Where a string stands, -1 if it does not; without decoding the others."""
        wanted = np.frombuffer(text.encode(), np.uint8)
        left = np.flatnonzero(self.ends - self.starts == len(wanted))
        for k, byte in enumerate(wanted):
            left = left[self.data[self.starts[left] + k] == byte]
        return int(left[0]) if len(left) else -1

    @cached_property
    def strings(self) -> tuple[str, ...]:
        """The strings themselves."""
        # Copied together first: one decode of everything is far cheaper than one for each string.
        sizes = self.ends - self.starts
        if not len(sizes):
            return ()
        joined = np.empty(int(sizes.sum()), np.uint8)
        ends = np.cumsum(sizes)
        positions = ranges(self.starts, sizes)
        np.take(self.data, positions, out=joined)
        text = joined.tobytes().decode()
        if len(text) == len(joined):  # ASCII only: byte positions are character positions
            bounds = ends.tolist()
            return tuple([text[a:b] for a, b in zip([0, *bounds[:-1]], bounds, strict=True)])
        raw = joined.tobytes()
        bounds = ends.tolist()
        return tuple([raw[a:b].decode() for a, b in zip([0, *bounds[:-1]], bounds, strict=True)])


@dataclass(frozen=True, eq=False, repr=False)
class Columns:
    """What a decoder yields; all arrays are read-only, their length is the number of nodes unless said
    otherwise.

    Attributes
    ----------
    ids, types
        uint64, uint8 (``NodeType`` values).
    name_codes, name_pool
        int32 index of each node's name among the distinct names.
    start_micros, duration_micros
        int64 microseconds, the plain fields.
    ctrl_offsets, ctrl_ids, data_offsets, data_ids
        Dependencies of node i are ``ids[offsets[i]:offsets[i + 1]]``; offsets int64 (n + 1,), ids uint64.
    is_cpu_op
        int8: -1 absent, 0, 1.
    duration_ns, comm_size
        int64 nanoseconds and bytes, ``ABSENT`` where the node does not have the attribute.
    comm_type, comm_src, comm_dst, comm_tag, comm_priority, num_ops, tensor_size, stream, tid
        int64, ``ABSENT`` where the node does not have the attribute; tensor_size in bytes.
    pg_codes, pg_pool
        int32 index of the process group's name (attribute pg_name, or comm_group of older files as text); -1
        absent.
    dim_codes, dim_table
        int32 index of the attribute involved_dim among its distinct values; -1 absent.
    operator_codes, operator_pool
        int32 index of the attribute operator (`chakra.et.operators`) among its distinct texts; -1 absent.
    split_nodes
        (k,) int64: indices, ascending, of the nodes that have split sizes (attributes in_split_bytes, out_split_bytes).
    in_split_codes, out_split_codes
        (k,) int32 index of each of these nodes' lists among the distinct ones; -1 absent.
    split_offsets, split_bytes
        int64: distinct lists of bytes per member, list c is ``split_bytes[split_offsets[c]:split_offsets[c + 1]]``.
    """

    ids: U64
    types: U8
    name_codes: I32
    name_pool: StringPool
    start_micros: I64
    duration_micros: I64
    ctrl_offsets: I64
    ctrl_ids: U64
    data_offsets: I64
    data_ids: U64
    is_cpu_op: I8
    duration_ns: I64
    comm_type: I64
    comm_size: I64
    comm_src: I64
    comm_dst: I64
    comm_tag: I64
    comm_priority: I64
    num_ops: I64
    tensor_size: I64
    stream: I64
    tid: I64
    pg_codes: I32
    pg_pool: StringPool
    dim_codes: I32
    dim_table: tuple[tuple[bool, ...], ...]
    operator_codes: I32
    operator_pool: StringPool
    split_nodes: I64
    in_split_codes: I32
    out_split_codes: I32
    split_offsets: I64
    split_bytes: I64

    def arrays(self) -> list[AnyArray]:
        """All arrays, for freezing and counting."""
        return [value for value in vars(self).values() if isinstance(value, np.ndarray)]


@dataclass(frozen=True, eq=False, repr=False)
class Records:
    """The encoded form of a trace: uncompressed bytes and where each node's message lies in them.

    Attributes
    ----------
    data
        uint8, the whole file, uncompressed.
    starts, ends
        int64 (n,): bounds of each node's message (without its length).
    meta_start, meta_end
        Bounds of the metadata message.
    """

    data: U8
    starts: I64
    ends: I64
    meta_start: int
    meta_end: int

    def message(self, index: int) -> bytes:
        """Encoded node number ``index``."""
        return self.data[self.starts[index] : self.ends[index]].tobytes()

    def offset(self, index: int) -> int:
        """Byte offset of node number ``index`` in the uncompressed file, for messages."""
        return int(self.starts[index])
