"""Choosing how to decode and encode: the protobuf library for small traces, compiled kernels for big ones.

Loading the kernels costs about half a second once in a process, a node about 7 microseconds through protobuf
and 0.4 through a kernel. So a single small trace never waits for numba, while many small ones in a row soon
use it. (The kernel module as plain Python is slower than protobuf: it serves the tests.)
"""

import sys
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple, cast

import numpy as np

from chakra.arrays import I8, I32, I64, U8
from chakra.et import decode_protobuf
from chakra.et.columns import Columns, Records, StringPool
from chakra.et.operators import ATTRIBUTE as OPERATOR
from chakra.et.schema import ABSENT, IN_SPLIT, INT_COLUMNS, OUT_SPLIT
from chakra.et.splits import SplitColumns
from chakra.et.wire import explain_length, parse_node, split_records
from chakra.schemas.protolib import MAX_LENGTH_BYTES

# The kernel checks every position against the end of its record by itself, so numba's own bounds check (which
# nearly doubles the time) stays off; tests run damaged files through a copy with bounds checks.

#: Nodes above which a kernel pays: it must be compiled first (two seconds), numba must be loaded first (half a
#: second), only the kernel must (a tenth), or it is there already.
COLD_THRESHOLD = 250_000
KERNEL_THRESHOLD = 50_000
NUMBA_THRESHOLD = 15_000
LOADED_THRESHOLD = 300

DECODE_KERNEL = "chakra.et._decode_kernel"
ENCODE_KERNEL = "chakra.et._encode_kernel"
_OTHER_KNOWN = ("comm_group", "is_cpu_op", "pg_name", "involved_dim", OPERATOR, IN_SPLIT, OUT_SPLIT)
#: Nodes that came through the slow path so far; many small traces together are worth the kernels too.
_slow_nodes = [0]
#: Kernel modules in use.
_loaded: set[str] = set()


def kernels_for(module: str, n_nodes: int) -> ModuleType | None:
    """A kernel module compiled, if coding ``n_nodes`` nodes is worth it, else None."""
    from chakra.jit import compiled, is_cached

    if module in _loaded:
        worth = n_nodes >= LOADED_THRESHOLD
    else:
        nodes = n_nodes + _slow_nodes[0]
        least = NUMBA_THRESHOLD if "numba" in sys.modules else KERNEL_THRESHOLD
        worth = nodes >= least and (nodes >= COLD_THRESHOLD or is_cached(module))
    if not worth:
        _slow_nodes[0] += n_nodes
        return None
    _loaded.add(module)
    kernels: ModuleType = compiled(module)
    return kernels


#: Bytes of a file above which its framing is worth a kernel that is loaded anyway.
_BIG_FILE_BYTES = 1 << 20


def frame(data: U8, source: str) -> tuple[I64, I64]:
    """Bounds of all messages of a file, the metadata first.

    Raises
    ------
    TraceError
        With the byte offset where the framing breaks.
    """
    from chakra.jit import compiled, is_cached

    if len(data) < _BIG_FILE_BYTES or DECODE_KERNEL not in _loaded:
        # A big file may hold few nodes; if it turns out to hold many, little was lost.
        loaded = DECODE_KERNEL in _loaded
        ready = loaded or (len(data) >= _BIG_FILE_BYTES and is_cached(DECODE_KERNEL))
        bounds = split_records(data.data, source, KERNEL_THRESHOLD if ready else COLD_THRESHOLD)
        if bounds is not None:
            return np.array(bounds[0], np.int64), np.array(bounds[1], np.int64)
    starts, ends, broken = compiled(DECODE_KERNEL).frame_records(readable(data))
    if broken >= 0:
        tail = data[broken : broken + MAX_LENGTH_BYTES].tobytes()
        raise explain_length(tail, len(data) - int(broken), source, int(broken), len(starts))
    return starts.copy(), ends.copy()


def decode_records(records: Records, source: str) -> Columns:
    """Decode all nodes into columns.

    Raises
    ------
    TraceError
        See `chakra.et.decode_protobuf.decode`.
    """
    kernels = kernels_for(DECODE_KERNEL, len(records.starts))
    if kernels is None:
        return decode_protobuf.decode(records, source)
    return decode_compiled(kernels, records, source)


def readable(data: U8) -> U8:
    """A plain view of read-only bytes that kernels take: always the same array type, or they compile
    again.
    """
    view = np.asarray(data).view(np.ndarray)
    if view.flags.writeable:
        view = view.view()
        view.flags.writeable = False
    return view


class KnownNames(NamedTuple):
    """Names of the attributes with columns, as the kernel takes them: bytes, bounds, and a hash table to find them."""

    text: U8
    starts: I64
    ends: I64
    lookup: I32


@cache
def known_names() -> KnownNames:
    """The table, made once."""
    encoded = [name.encode() for name in (*INT_COLUMNS, *_OTHER_KNOWN)]
    ends = np.cumsum([len(name) for name in encoded], dtype=np.int64)
    starts = ends - np.array([len(name) for name in encoded], np.int64)
    lookup = np.full(64, -1, np.int32)
    for row, name in enumerate(encoded):
        slot = (len(name) * 31 + name[0] * 7 + name[-1] * 3) & 63
        while lookup[slot] >= 0:
            slot = (slot + 1) & 63
        lookup[slot] = row
    return KnownNames(np.frombuffer(bytearray(b"".join(encoded)), np.uint8), starts, ends, lookup)


def decode_compiled(kernels: ModuleType, records: Records, source: str) -> Columns:
    """Decode with the (compiled or plain) kernel module; the protobuf path decides on whatever it does not
    like.
    """
    n = len(records.starts)
    rows = len(INT_COLUMNS)
    ids = np.zeros(n, np.int64)
    types = np.zeros(n, np.uint8)
    times = np.zeros((2, n), np.int64)
    ints = np.full((rows + 1, n), ABSENT, np.int64)
    cpu = np.full(n, -1, np.int8)
    names, groups = np.zeros(n, np.int32), np.full(n, -1, np.int32)
    dim_codes, operators = np.full(n, -1, np.int32), np.full(n, -1, np.int32)
    splits = np.zeros(n, np.int8)
    ctrl_offsets, data_offsets = np.zeros(n + 1, np.int64), np.zeros(n + 1, np.int64)
    bad, ctrl, data, text_starts, text_ends, dims, not_ascii = kernels.decode_nodes(
        *(readable(records.data), records.starts, records.ends, *known_names()),
        *(
            ids,
            types,
            names,
            times,
            ints,
            cpu,
            groups,
            dim_codes,
            operators,
            splits,
            ctrl_offsets,
            data_offsets,
        ),
    )
    if bad >= 0:
        # Either this node is bad, and the message is made here, or it is unusual and protobuf decodes the
        # file.
        node = parse_node(records, int(bad), source)
        decode_protobuf.check_node(node, records, int(bad), source)
        decode_protobuf.known_attributes(node, source)
        return decode_protobuf.decode(records, source)
    pool = StringPool(records.data, text_starts, text_ends)
    if not_ascii:
        try:
            _ = pool.strings
        except UnicodeDecodeError:
            return decode_protobuf.decode(records, source)
    name, group, operator = _split_pool(pool, names, groups, operators)
    group = _with_comm_group(group, ints[rows])
    return Columns(
        ids=ids.view(np.uint64),
        types=types,
        name_codes=name.codes,
        name_pool=name.pool,
        start_micros=times[0],
        duration_micros=times[1],
        ctrl_offsets=ctrl_offsets,
        ctrl_ids=np.ascontiguousarray(ctrl).view(np.uint64),
        data_offsets=data_offsets,
        data_ids=np.ascontiguousarray(data).view(np.uint64),
        is_cpu_op=cpu,
        pg_codes=group.codes,
        pg_pool=group.pool,
        dim_codes=dim_codes,
        dim_table=tuple(_bools(int(bits)) for bits in dims),
        operator_codes=operator.codes,
        operator_pool=operator.pool,
        **_split_columns(records, splits, source),
        **cast("dict[str, Any]", dict(zip(INT_COLUMNS, ints, strict=False))),
    )


def _split_columns(records: Records, marked: I8, source: str) -> dict[str, Any]:
    """Columns of split sizes; the protobuf library reads the lists of the nodes that the kernel has marked."""
    out = SplitColumns()
    for index in np.flatnonzero(marked).tolist():
        found = decode_protobuf.known_attributes(parse_node(records, index, source), source)
        out.add(index, found.in_split, found.out_split)
    return out.columns()


def _renumbered(codes: I32, size: int) -> tuple[I32, I64]:
    """Codes numbered by first use (-1 stays), and the old code of each new one."""
    first = np.full(size, len(codes), np.int64)
    # Of repeated indices the last assignment stays: going backward, that is the first use.
    chosen = np.flatnonzero(codes >= 0)[::-1]
    first[codes[chosen]] = chosen
    used = np.flatnonzero(first < len(codes))
    old = used[np.argsort(first[used])]
    new = np.full(size + 1, -1, np.int32)
    new[old] = np.arange(len(old), dtype=np.int32)
    return new[codes], old


class _Texts(NamedTuple):
    """A column of texts: codes (-1: none) and what they stand for."""

    codes: I32
    pool: StringPool


def _split_pool(pool: StringPool, names: I32, *others: I32) -> tuple[_Texts, ...]:
    """Names and other texts as columns with tables of their own; the kernel puts all into one."""
    if all(not len(codes) or codes.max() < 0 for codes in others):
        return (_Texts(names, pool), *(_Texts(codes, StringPool.of(())) for codes in others))
    columns = []
    for codes in (names, *others):
        codes, old = _renumbered(codes, len(pool))
        columns.append(_Texts(codes, StringPool(pool.data, pool.starts[old], pool.ends[old])))
    return tuple(columns)


def _with_comm_group(groups: _Texts, comm_group: I64) -> _Texts:
    """Groups of older files: the number in attribute comm_group, as text, where there is no pg_name."""
    codes = groups.codes
    where = np.flatnonzero((comm_group != ABSENT) & (codes < 0))
    if not len(where):
        return groups
    texts = list(groups.pool.strings)
    table = {text: code for code, text in enumerate(texts)}
    values, inverse = np.unique(comm_group[where], return_inverse=True)
    translation = [table.setdefault(str(value), len(table)) for value in values.tolist()]
    codes = codes.copy()
    codes[where] = np.array(translation, np.int32)[inverse]
    codes, old = _renumbered(codes, len(table))
    names = list(table)
    return _Texts(codes, StringPool.of(tuple(names[code] for code in old)))


def _bools(bits: int) -> tuple[bool, ...]:
    return tuple(bool(bits >> k & 1) for k in range(bits.bit_length() - 1))
