"""From pieces of host time and device operations to the nodes and edges of a draft graph."""

from dataclasses import dataclass

import numpy as np

from chakra.arrays import I64, Bool
from chakra.converters.pytorch.comm.on_cpu import cpu_communication
from chakra.converters.pytorch.comm.operations import Comm, ProcessGroups, Records
from chakra.converters.pytorch.graph.adjustments import (
    DEVICE_GAP_NS,
    add_device_gaps,
    only_device,
    with_unmatched,
)
from chakra.converters.pytorch.graph.columns import Draft, Given, joined
from chakra.converters.pytorch.graph.dataflow import tensor_edges
from chakra.converters.pytorch.graph.edges import (
    burst_edges,
    chain_edges,
    issue_order,
    launch_edges,
    stream_edges,
    sync_edges,
    tree_parents,
)
from chakra.converters.pytorch.graph.linked_graph import (
    E_CHAIN,
    E_TENSOR,
    E_WAIT,
    NODE_DEVICE,
    host_ranks,
)
from chakra.converters.pytorch.match.attach import Attachment
from chakra.converters.pytorch.match.pair import Pairing
from chakra.converters.pytorch.match.region import LinkOptions, Region
from chakra.converters.pytorch.read.device import DeviceTrace
from chakra.converters.pytorch.read.host import HostTrace
from chakra.converters.pytorch.time.host_time import NODE_GAP, NODE_JOIN, NODE_OP, NODE_SYNC, Bursts, Pieces
from chakra.converters.pytorch.time.sync import SyncEdges, stream_keys
from chakra.errors import ConversionError
from chakra.et import NodeType

#: name of a node that is the time of an operator behind something that it called: its parent says of which
REST = "rest of operator"


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything that was found in the traces of one rank."""

    host: HostTrace | None
    device: DeviceTrace
    options: LinkOptions
    rank: int
    pairing: Pairing | None
    attachment: Attachment
    region: Region
    groups: ProcessGroups
    records: Records
    waits: SyncEdges
    bursts: Bursts
    pieces: Pieces


@dataclass(frozen=True, slots=True)
class _HostSide:
    """Columns of the host nodes."""

    name: I64
    op_row: I64
    et_row: I64
    parent: I64
    type: I64
    late: Bool
    """Nodes behind a wait."""


@dataclass(frozen=True, slots=True)
class _DeviceSide:
    """Columns of the device nodes; a batch's operation stands once for each of its members."""

    rows: I64
    member: I64
    """Number within the batch, 0 for single operations."""
    type: I64
    duration: I64
    parent: I64
    keys: I64
    """Stream key of every device operation of the trace."""


def make_draft(parts: Parts) -> Draft:
    """Nodes and edges of one rank, not yet ordered.

    Raises
    ------
    ConversionError
        Only device nodes are asked for and there are none.
    """
    comm: dict[int, Comm] = {}
    host, issued = _host_side(parts, comm)
    device = _device_side(parts, len(host.name), comm)
    draft = _joined(parts, host, device, comm)
    draft.edges = _edges(parts, host, device, issued)
    return _finished(parts, draft, len(host.name), len(device.rows))


def _host_side(parts: Parts, comm: dict[int, Comm]) -> tuple[_HostSide, dict[int, int]]:
    """Host columns; CPU communication goes into ``comm``, with the calls that issued it as second result."""
    pieces, region, pairing, device = parts.pieces, parts.region, parts.pairing, parts.device
    n = len(pieces.kind)
    op_row = np.where(pieces.op >= 0, region.rows[pieces.op], -1)
    rest_name = device.names.code(REST)
    wait_name = device.names.code("wait for thread")
    call_name = device.calls.name[pieces.ref] if len(device.calls.name) else np.zeros(n, np.int64)
    head = pieces.kind == NODE_OP
    # time behind what an operator called is the operator's, and no gap between operators
    of_operator = pieces.op >= 0
    of_operator[of_operator] = ~region.annotation[pieces.op[of_operator]]
    name = np.where(of_operator, rest_name, device.names.code("gap"))
    for kind, names in ((NODE_OP, device.ops.name[op_row]), (NODE_SYNC, call_name), (NODE_JOIN, wait_name)):
        name = np.where(pieces.kind == kind, names, name)
    et_row = np.full(n, -1, np.int64)
    if pairing is not None:
        et_row[head] = pairing.node[op_row[head]]
    parent_op = np.where(head, region.parent[np.maximum(pieces.op, 0)], pieces.op)
    parent = np.where(parent_op >= 0, pieces.node_of_op[parent_op], -1)
    types = np.full(n, NodeType.COMP, np.int64)
    late = (pieces.kind == NODE_SYNC) | (pieces.kind == NODE_JOIN)
    issued: dict[int, int] = {}
    if parts.host is not None and pairing is not None:
        parent = tree_parents(parts.host, pairing, region, pieces, et_row, parent)
        if parts.options.cpu_comm == "comm":
            own_rows = np.where(pieces.kind == NODE_GAP, -1, op_row)
            found, issued = cpu_communication(parts.host, device, et_row, own_rows, parts.groups, parts.rank)
            nodes = np.array(list(found), np.int64)
            moves = _longest_parts(pieces, late)[pieces.op[nodes]]
            name[moves] = name[nodes]
            for node, info in zip(moves.tolist(), found.values(), strict=True):
                comm[node], types[node] = info, info.kind
    return _HostSide(name, op_row, et_row, parent, types, late), issued


def _longest_parts(pieces: Pieces, late: Bool) -> I64:
    """For each operator the longest part of its own time, which is no wait: nodes, the first of equal ones.

    What an annotation of a CPU back end names waits and transfers there; its other parts prepare and copy around the
    operators inside (an all-gather's buffer and its outputs).
    """
    own = np.flatnonzero((pieces.op >= 0) & ~late)
    order = own[np.lexsort((-own, pieces.duration[own], pieces.op[own]))]
    longest = pieces.node_of_op.copy()
    longest[pieces.op[order]] = order
    return longest


def _device_side(parts: Parts, n_host: int, comm: dict[int, Comm]) -> _DeviceSide:
    gpu, region, members = parts.device.device, parts.region, parts.records.members
    rows, member = parts.records.expand(np.flatnonzero(region.kept))
    types = np.full(len(rows), NodeType.COMP, np.int64)
    duration = gpu.end[rows] - gpu.start[rows]
    for i in np.flatnonzero(np.isin(rows, list(members))).tolist():
        info = members[int(rows[i])][int(member[i])]
        types[i] = info.kind
        comm[n_host + i] = info
    # One kernel carries a whole batch: its time counts once.
    duration[member > 0] = 0
    op = region.device_op[rows]
    parent = np.where(op >= 0, parts.pieces.node_of_op[op], -1)
    return _DeviceSide(rows, member, types, duration, parent, stream_keys(parts.device))


def _joined(parts: Parts, host: _HostSide, device: _DeviceSide, comm: dict[int, Comm]) -> Draft:
    pieces, gpu = parts.pieces, parts.device.device
    rows, n_host, n_device = device.rows, len(host.name), len(device.rows)
    key = device.keys[rows]
    batches = [row for row, members in parts.records.members.items() if len(members) > 1]
    first_stream = len(parts.device.threads)
    alone = first_stream + int(device.keys.max(initial=0)) + 1 + np.arange(n_device)
    # Without stream order the operations of a stream are no chain whose edges imply each other.
    single = np.isin(rows, batches) | (parts.options.deps == "tensors")
    held = host.late & (parts.options.gaps != "drop")
    of_host: Given = {
        "kind": pieces.kind,
        "type": host.type,
        "name": host.name,
        "op": host.op_row,
        "host_row": host.et_row,
        "thread": pieces.thread,
        "start": pieces.start,
        "duration": pieces.duration,
        "hold": np.where(held, pieces.target_end - parts.region.first, -1),
        "rank": host_ranks(pieces.thread, pieces.start, host.late),
        "parent": host.parent,
        "chain_group": pieces.thread,
    }
    of_device: Given = {
        "kind": NODE_DEVICE,
        "type": device.type,
        "name": gpu.name[rows],
        "device_row": rows,
        "stream_key": key,
        "start": gpu.start[rows],
        "duration": device.duration,
        "rank": 1,
        "parent": device.parent,
        "chain_group": np.where(single, alone, first_stream + key),
    }
    return joined([(n_host, of_host), (n_device, of_device)], comm)


def _edges(
    parts: Parts, host: _HostSide, device: _DeviceSide, issued: dict[int, int]
) -> list[tuple[I64, I64, int]]:
    pieces, region, waits = parts.pieces, parts.region, parts.waits
    n_host, rows = len(host.name), device.rows
    # A batch is waited for through its last member and waits through its first.
    first = np.full(len(parts.device.device.name), -1, np.int64)
    first[rows[::-1]] = n_host + np.arange(len(rows))[::-1]
    last = np.full(len(parts.device.device.name), -1, np.int64)
    last[rows] = n_host + np.arange(len(rows))
    source, target = chain_edges(pieces.thread)
    edges = [(source, target, E_CHAIN)]
    edges += launch_edges(region, parts.attachment, waits, pieces, rows, n_host)
    if parts.options.deps == "tensors" and parts.host is not None:
        above = device.parent
        launcher = np.where(above >= 0, host.et_row[above], -1)
        flow_source, flow_target = tensor_edges(parts.host, launcher, n_host + np.arange(len(rows)))
        edges.append((flow_source, flow_target, E_TENSOR))
    else:
        edges += stream_edges(device.keys, rows, device.member, n_host)
    edges.append(sync_edges(waits, pieces, last))
    edges.append((last[waits.stream_source], first[waits.stream_target], E_WAIT))
    edges += burst_edges(parts.bursts, pieces, region)
    if issued and parts.pairing is not None:
        edges = issue_order(edges, issued, parts.device, parts.pairing, region, pieces)
    return edges


def _finished(parts: Parts, draft: Draft, n_host: int, n_device: int) -> Draft:
    device, options, waits, pieces = parts.device, parts.options, parts.waits, parts.pieces
    if options.gpu_only:
        if not n_device:
            raise ConversionError(
                f"{device.source}: no device operation in the region: nothing is left with --gpu-only"
            )
        draft = only_device(draft, n_host)
        if options.gaps != "drop":
            add_device_gaps(draft, device, waits.host_source[:0], int(draft.start.min()), 0, n_device, 1)
        return draft
    if options.gaps != "drop" and options.deps == "order":
        felt = np.isin(waits.host_call, pieces.ref[pieces.kind == NODE_SYNC])
        held = waits.host_source[felt]
        add_device_gaps(draft, device, held, parts.region.first, n_host, n_device, DEVICE_GAP_NS)
    if parts.host is not None and parts.pairing is not None:
        return with_unmatched(draft, parts.host, parts.pairing, device, parts.region, pieces)
    return draft
