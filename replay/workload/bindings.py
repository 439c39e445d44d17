"""Which traces are one program: everything that may differ between them is bound by name.

Sources: replay semantics, section 2; correction C18 of `differences.md`.
"""

from typing import NamedTuple

import numpy as np

from chakra.arrays import I32, I64, AnyArray, bounds, ranges
from chakra.et import NodeType, Trace
from chakra.io.digits import is_whole
from chakra.replay.workload.model import Bindings


def first_use(values: AnyArray) -> tuple[AnyArray, I64]:
    """Distinct values in order of first occurrence, and for each value its index among them."""
    distinct, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    rank = np.empty(len(distinct), np.int64)
    rank[np.argsort(first, kind="stable")] = np.arange(len(distinct))
    out = np.empty_like(distinct)
    out[rank] = distinct
    return out, rank[inverse.reshape(-1)]


class Bound(NamedTuple):
    """Bindings of a trace, and per node (program order) the index of its group and of its peer (-1: none)."""

    bindings: Bindings
    group: I64
    peer: I64


def bindings_of(trace: Trace, order: I64, *, astra: bool) -> Bound:
    """What the names in a trace stand for."""
    types = trace.types[order]
    group = np.full(len(order), -1, np.int64)
    coll = np.flatnonzero(types == NodeType.COMM_COLL)
    names: tuple[str, ...] = ()
    if len(coll):
        table = [group_name(name, astra=astra) for name in trace.pg_table]
        distinct = {name: i for i, name in enumerate(dict.fromkeys(["", *table]))}
        lut = np.array([*(distinct[name] for name in table), 0], np.int64)  # last: absent, index -1
        used, inverse = first_use(lut[trace.pg_codes[order][coll]])
        group[coll] = inverse
        by_code = list(distinct)
        names = tuple(by_code[int(code)] for code in used)
    peer = np.full(len(order), -1, np.int64)
    send = types == NodeType.COMM_SEND
    p2p = np.flatnonzero(send | (types == NodeType.COMM_RECV))
    peers = np.zeros(0, np.int64)
    if len(p2p):
        values = np.where(send[p2p], trace.comm_dst[order][p2p], trace.comm_src[order][p2p])
        distinct_peers, inverse = first_use(values)
        peer[p2p] = inverse
        peers = distinct_peers.astype(np.int64)
    return Bound(Bindings(names, peers), group, peer)


def group_name(name: str, *, astra: bool) -> str:
    """The group that a `pg_name` stands for; "" is all NPUs (correction C18)."""
    if name in ("", "0"):
        return ""
    if astra:
        digits = name.lstrip()
        end = 1 if digits[:1] in ("+", "-") else 0
        while end < len(digits) and is_whole(digits[end]):
            end += 1
        if digits[:end].lstrip("+-"):
            number = digits[:end].lstrip("+-0")
            return f"-{number}" if number and digits[0] == "-" else number
    return name


def structure_key(trace: Trace, order: I64, bound: Bound, *, ids: bool) -> bytes:
    """What two traces must share to be one program: everything but the numbers of nodes, groups and peers.

    Which of the groups is all NPUs must be the same, too: only there `involved_dim` counts.
    `ids` asks for equal node ids, too (where a file names collectives by node id).
    """
    import hashlib

    digest = hashlib.blake2b(digest_size=16)
    for column in (
        trace.types,
        trace.duration_micros,
        trace.duration_ns,
        trace.is_cpu_op,
        trace.comm_type,
        trace.comm_size,
        trace.comm_tag,
        trace.comm_priority,
        trace.num_ops,
        trace.tensor_size,
        trace.stream,
        trace.tid,
        trace.dim_codes,
        trace.operator_codes,
    ):
        digest.update(np.ascontiguousarray(column[order]).tobytes())
    start, child, _ = children_in_order(trace, order)
    for column in (bound.group, bound.peer, start, child, *((trace.ids,) if ids else ())):
        digest.update(np.ascontiguousarray(column).tobytes())
    if len(trace.split_nodes):
        lists = np.full((2, trace.n_nodes), -1, np.int64)
        lists[0, trace.split_nodes] = trace.in_split_codes
        lists[1, trace.split_nodes] = trace.out_split_codes
        for column in (*lists[:, order], trace.split_offsets, trace.split_bytes):
            digest.update(np.ascontiguousarray(column).tobytes())
    digest.update(repr((trace.dim_table, trace.operator_table, bound.bindings.world)).encode())
    return digest.digest()


def children_in_order(trace: Trace, order: I64) -> tuple[I64, I32, I32]:
    """Children of every node in program order, as CSR, and the number of parents."""
    offsets, index = trace.children()
    n = trace.n_nodes
    inverse = np.empty(n, np.int32)
    inverse[order] = np.arange(n, dtype=np.int32)
    counts = np.diff(offsets)[order]
    start = bounds(counts)
    if np.array_equal(order, np.arange(n)):
        child = np.ascontiguousarray(index, dtype=np.int32)
    else:
        picks = ranges(offsets[:-1][order], counts)
        child = inverse[np.asarray(index)[picks]]
    parents = np.bincount(child, minlength=n).astype(np.int32)
    return start, child, parents
