"""Changes of a draft: idle streams, graphs without the host, host nodes without a match."""

import numpy as np

from chakra.arrays import I64
from chakra.converters.pytorch.graph.columns import Draft, append, from_node
from chakra.converters.pytorch.graph.linked_graph import (
    E_LAUNCH,
    E_STREAM,
    E_TENSOR,
    E_WAIT,
    NODE_DEVICE_GAP,
    NODE_UNMATCHED,
)
from chakra.converters.pytorch.match.pair import Pairing
from chakra.converters.pytorch.match.region import Region
from chakra.converters.pytorch.read.device import DeviceTrace
from chakra.converters.pytorch.read.host import HostTrace
from chakra.converters.pytorch.time.host_time import Pieces
from chakra.converters.pytorch.time.sync import stream_keys
from chakra.et.idle_nodes import DEVICE_GAP

#: Idleness of a stream that nothing explains and no host wait holds, from which on it becomes a node.
DEVICE_GAP_NS = 100_000


def add_device_gaps(
    draft: Draft, device: DeviceTrace, held: I64, first_ns: int, n_host: int, n_device: int, least_ns: int
) -> None:
    """Nodes for unexplained idleness of streams behind the last operation that the host waits for.

    Up to there a host's wait holds what the device lost (launch latency, other users of the device); behind
    it nothing would, and the replay would end early. ``held`` are the device operations that the host waits
    for.
    """
    rows = np.arange(n_host, n_host + n_device)
    ready = np.full(n_host + n_device, first_ns if n_host == 0 else -1, np.int64)
    ends = draft.start + draft.duration
    for source, target, kind in draft.edges:
        if kind in (E_LAUNCH, E_STREAM, E_WAIT):
            ok = (source >= 0) & (target >= 0)
            np.maximum.at(ready, target[ok], ends[source[ok]])
    key = draft.stream_key[rows]
    awaited = np.full(int(key.max(initial=0)) + 1, -1, np.int64)
    if len(held):
        np.maximum.at(awaited, stream_keys(device)[held], device.device.start[held])
    start = draft.start[rows]
    # Only a stream that outlives the host decides when the replay ends.
    host_end = int(ends[:n_host].max(initial=-1))
    stream_end = np.full(len(awaited), -1, np.int64)
    np.maximum.at(stream_end, key, ends[rows])
    awaited[stream_end <= host_end] = 1 << 62
    # Nothing comes before what was launched before the window: until it starts, the device does what is not in it.
    early = (ready[rows] < 0) & (start > first_ns)
    ready[rows[early]] = first_ns
    idle = (ready[rows] >= 0) & (start - ready[rows] >= least_ns) & (start > awaited[key])
    found = rows[idle | early]
    k = len(found)
    if not k:
        return
    new = n_host + n_device + np.arange(k)
    instead = np.arange(n_host + n_device)
    instead[found] = new
    # What the operation depends on, the gap depends on; the operation follows the gap.
    draft.edges = [
        (source, np.where(target >= 0, instead[target], target), kind) for source, target, kind in draft.edges
    ]
    draft.edges.append((new, found, E_STREAM))
    append(
        draft,
        k,
        {
            "kind": NODE_DEVICE_GAP,
            "name": device.names.code(DEVICE_GAP),
            "device_row": draft.device_row[found],
            "stream_key": draft.stream_key[found],
            "start": ready[found],
            "hold": draft.start[found] - first_ns,
            "rank": 1,
            "chain_group": draft.chain_group[found],
        },
    )


def only_device(draft: Draft, n_host: int) -> Draft:
    """Leave the host out. What a device operation waited for there becomes idleness of its stream (gap nodes)."""
    edges = []
    for source, target, kind in draft.edges:
        if kind in (E_STREAM, E_WAIT, E_TENSOR):
            ok = (source >= n_host) & (target >= n_host)
            edges.append((source[ok] - n_host, target[ok] - n_host, kind))
    return from_node(draft, n_host, edges)


def with_unmatched(
    draft: Draft, host: HostTrace, pairing: Pairing, device: DeviceTrace, region: Region, pieces: Pieces
) -> Draft:
    """Add host nodes without a match as zero-time nodes, where the next matched node of their thread
    starts.
    """
    nodes = host.nodes
    rows = np.flatnonzero((pairing.op < 0) & (nodes.root == 0))
    matched = np.flatnonzero((pairing.op >= 0) & (region.index[pairing.op] >= 0))
    if not len(rows) or not len(matched):
        return draft
    span = int(nodes.id.max()) + 1
    keys = nodes.tid[matched] * span + nodes.id[matched]
    order = np.argsort(keys)
    matched, keys = matched[order], keys[order]
    at = np.searchsorted(keys, nodes.tid[rows] * span + nodes.id[rows])
    ok = at < len(keys)
    ok[ok] = nodes.tid[matched[at[ok]]] == nodes.tid[rows[ok]]
    rows, at = rows[ok], at[ok]
    follower = region.index[pairing.op[matched[at]]]
    start = region.start[follower]
    k = len(rows)
    parent_id = nodes.parent[rows]
    where = np.minimum(np.searchsorted(nodes.id, parent_id), len(nodes.id) - 1)
    op = np.where(nodes.id[where] == parent_id, pairing.op[where], -1)
    index = np.where(op >= 0, region.index[op], -1)
    append(
        draft,
        k,
        {
            "kind": NODE_UNMATCHED,
            "name": nodes.name[rows],
            "host_row": rows,
            "thread": region.thread[follower],
            "start": start,
            "parent": np.where(index >= 0, pieces.node_of_op[index], -1),
            "chain_group": int(draft.chain_group.max()) + 1 + np.arange(k),
        },
    )
    return draft
