"""Edges of the linked graph: thread order, launches, stream order, waits, calls between threads."""

import numpy as np

from chakra.arrays import I64
from chakra.converters.pytorch.graph.linked_graph import E_FORK, E_JOIN, E_LAUNCH, E_STREAM, E_SYNC
from chakra.converters.pytorch.match.attach import Attachment
from chakra.converters.pytorch.match.pair import Pairing
from chakra.converters.pytorch.match.region import Region
from chakra.converters.pytorch.read.device import DeviceTrace
from chakra.converters.pytorch.read.host import HostTrace
from chakra.converters.pytorch.time.host_time import NODE_JOIN, NODE_SYNC, Bursts, Pieces, node_before
from chakra.converters.pytorch.time.sync import SyncEdges


def tree_parents(
    host: HostTrace, pairing: Pairing, region: Region, pieces: Pieces, et_row: I64, fallback: I64
) -> I64:
    """Node of the host trace's own parent of each operator node; where it has none in the graph, none."""
    nodes = host.nodes
    out = fallback.copy()
    rows = np.flatnonzero(et_row >= 0)
    parent_id = nodes.parent[et_row[rows]]
    at = np.minimum(np.searchsorted(nodes.id, parent_id), len(nodes.id) - 1)
    known = nodes.id[at] == parent_id
    op = np.where(known, pairing.op[at], -1)
    index = np.where(op >= 0, region.index[op], -1)
    # A parent on another thread (gloo's workers) may still run when its child starts: no control edge then;
    # the start of the burst says what the child depends on.
    near = (index >= 0) & (region.thread[index] == pieces.thread[rows])
    out[rows] = np.where(near, pieces.node_of_op[index], np.where(index >= 0, -1, fallback[rows]))
    return out


def chain_edges(thread: I64) -> tuple[I64, I64]:
    rows = np.flatnonzero(thread[1:] == thread[:-1]) if len(thread) else np.zeros(0, np.int64)
    return rows, rows + 1


def launch_edges(
    region: Region, attachment: Attachment, waits: SyncEdges, pieces: Pieces, device_rows: I64, n_host: int
) -> list[tuple[I64, I64, int]]:
    """From the host node that ran when a device operation was launched."""
    thread, time = region.launch_thread[device_rows], region.launch[device_rows]
    blocking = np.isin(attachment.call[device_rows], waits.host_call)
    source = np.where(
        blocking,
        node_before(pieces, thread, time, inclusive=False),
        node_before(pieces, thread, time, inclusive=True),
    )
    return [(source, n_host + np.arange(len(device_rows)), E_LAUNCH)]


def stream_edges(keys: I64, device_rows: I64, member: I64, n_host: int) -> list[tuple[I64, I64, int]]:
    """Order on each stream. Members of one batch (one kernel for several transfers) stand beside each
    other.
    """
    order = np.argsort(keys[device_rows], kind="stable")
    first = order[member[order] == 0]
    key = keys[device_rows[first]]
    rows = np.flatnonzero(key[1:] == key[:-1]) if len(first) else np.zeros(0, np.int64)
    source, target = first[rows], first[rows + 1]
    edges = [(n_host + source, n_host + target, E_STREAM)]
    extra = np.flatnonzero(member > 0)
    if len(extra):
        leader = extra - member[extra]
        before = np.full(len(device_rows), -1, np.int64)
        after = np.full(len(device_rows), -1, np.int64)
        before[target], after[source] = source, target
        has = before[leader] >= 0
        edges.append((n_host + before[leader][has], n_host + extra[has], E_STREAM))
        has = after[leader] >= 0
        edges.append((n_host + extra[has], n_host + after[leader][has], E_STREAM))
    return edges


def sync_edges(waits: SyncEdges, pieces: Pieces, last_index: I64) -> tuple[I64, I64, int]:
    """From awaited device operations to the host node behind the wait."""
    rows = np.flatnonzero(pieces.kind == NODE_SYNC)
    order = rows[np.argsort(pieces.ref[rows])]
    calls = pieces.ref[order]
    if not len(order):
        return np.zeros(0, np.int64), np.zeros(0, np.int64), E_SYNC
    at = np.minimum(np.searchsorted(calls, waits.host_call), len(calls) - 1)
    hit = calls[at] == waits.host_call
    return last_index[waits.host_source[hit]], order[at[hit]], E_SYNC


def burst_edges(bursts: Bursts, pieces: Pieces, region: Region) -> list[tuple[I64, I64, int]]:
    starts = bursts.first >= 0
    source = node_before(pieces, bursts.source_thread[starts], bursts.start[starts], inclusive=False)
    edges = [(source, pieces.node_of_op[bursts.first[starts]], E_FORK)]
    joins = np.flatnonzero(pieces.kind == NODE_JOIN)
    row = pieces.ref[joins]
    last = node_before(pieces, bursts.thread[row], bursts.waited_until[row], inclusive=False)
    edges.append((last, joins, E_JOIN))
    return edges


def issue_order(
    edges: list[tuple[I64, I64, int]],
    issued: dict[int, int],
    device: DeviceTrace,
    pairing: Pairing,
    region: Region,
    pieces: Pieces,
) -> list[tuple[I64, I64, int]]:
    """Let communication that worker threads do (gloo) start from the call that issued it.

    The workers take up several collectives at once, in an order that differs between ranks; all ranks issue
    them in the same order.
    """
    nodes, threads, times = [], [], []
    for node, row in issued.items():
        op = int(pairing.op[row])
        if op >= 0 and region.index[op] >= 0 and device.ops.thread[op] != pieces.thread[node]:
            nodes.append(node)
            threads.append(int(device.ops.thread[op]))
            times.append(min(int(device.ops.end[op]), int(pieces.start[node])))
    if not nodes:
        return edges
    target = np.array(nodes, np.int64)
    source = node_before(pieces, np.array(threads, np.int64), np.array(times, np.int64), inclusive=False)
    target, source = target[source >= 0], source[source >= 0]
    kept = [
        (s[~np.isin(t, target)], t[~np.isin(t, target)], kind) if kind == E_FORK else (s, t, kind)
        for s, t, kind in edges
    ]
    return [*kept, (source, target, E_FORK)]
