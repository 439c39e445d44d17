"""Joining a host trace and a device trace into one graph."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from chakra.arrays import I64, Bool
from chakra.converters.pytorch import comm as communication
from chakra.converters.pytorch.attach import Attachment, attach, nest_ops, without_launch
from chakra.converters.pytorch.device import DeviceTrace, Ops, profiler_steps
from chakra.converters.pytorch.graph import (
    COMP,
    E_CHAIN,
    E_FORK,
    E_JOIN,
    E_LAUNCH,
    E_STREAM,
    E_SYNC,
    E_WAIT,
    Comm,
    Draft,
    Graph,
    finish,
    host_ranks,
)
from chakra.converters.pytorch.host import HostTrace
from chakra.converters.pytorch.pair import Pairing, pair
from chakra.converters.pytorch.sync import SyncEdges, classify, find_waits, stream_keys
from chakra.converters.pytorch.timeline import (
    CUT_JOIN,
    CUT_PLAIN,
    CUT_SYNC,
    NODE_JOIN,
    NODE_SYNC,
    Bursts,
    Pieces,
    cut_time,
    find_bursts,
    node_before,
    sort_cuts,
)
from chakra.errors import ConversionError

NODE_DEVICE, NODE_UNMATCHED, NODE_DEVICE_GAP = 4, 5, 6
#: Idleness of a stream that nothing explains and no host wait holds, from which on it becomes a node.
DEVICE_GAP_NS = 100_000
#: A launch is cut out of its piece when the device began this long before the piece ends.
LAUNCH_CUT_NS = 5_000


@dataclass(frozen=True, slots=True)
class LinkOptions:
    """How to link.

    Attributes
    ----------
    gaps
        ``node``, ``fold`` or ``drop``: what becomes of time on a thread that no operator covers.
    add_unmatched
        Operators of the device trace without host node become nodes too.
    step
        Only this ProfilerStep.
    window_ns
        Only operators that start within (from, to), ns since the first event.
    gpu_only
        Only device nodes (with the host's effect on them lost).
    cpu_comm
        ``comm``: communication of CPU back ends (gloo) becomes communication nodes; ``comp``: stays CPU time.
    """

    gaps: str = "node"
    add_unmatched: bool = False
    step: int | None = None
    window_ns: tuple[int, int] | None = None
    gpu_only: bool = False
    cpu_comm: str = "comm"


@dataclass(slots=True)
class Linked:
    """A linked trace and the account of how it came about."""

    graph: Graph
    host: HostTrace | None
    device: DeviceTrace
    pairing: Pairing | None
    attachment: Attachment
    active: Bool
    """Operators of the device trace that became nodes."""
    kept: Bool
    """Device operations that became nodes."""
    thread_numbers: I64
    """``tid`` of every thread of the device trace."""
    waits: SyncEdges
    bursts: Bursts
    moved_ns: int
    """Self time of operators that was moved in front of their children."""
    gaps_dropped_ns: int
    groups: communication.Groups
    first_ns: int
    """Start of the matched region, ns since the first event."""
    measured_ns: int
    """Span of the matched region: first start to last end of matched operators and attached device
    operations.
    """
    steps: dict[int, tuple[int, int]]
    counts: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def link(
    host: HostTrace | None,
    device: DeviceTrace,
    options: LinkOptions | None = None,
    rank: int = 0,
    pairing: Pairing | None = None,
) -> Linked:
    """Link the traces of one rank.

    Parameters
    ----------
    host
        Host trace; None builds the graph from the device trace alone (nesting gives the call tree).
    device
        Device trace that shares the host trace's name table. Operators that overlap by the file's resolution
        are clipped in place.
    rank
        Global rank, for peers of point-to-point communication.
    pairing
        Matched operators, when they are known already (linked files).

    Raises
    ------
    ConversionError
        Nothing matches, the step or window is empty, or the device trace has no host activity.
    """
    options = options or LinkOptions()
    if not len(device.ops.name):
        device.ops = _calls_as_ops(device)
    if pairing is None and host is not None:
        pairing = pair(host, device)
    parent = nest_ops(device)
    attachment = attach(device, parent)
    steps = profiler_steps(device)
    active = _active(device, pairing, options, steps)
    if not active.any():
        raise ConversionError(f"{device.source}: no operator inside the chosen step or window")
    return _build(host, device, options, rank, pairing, attachment, steps, active)


def _calls_as_ops(device: DeviceTrace) -> Ops:
    """A trace without operators (GPU-only profiles): the host calls stand in for them."""
    calls = device.calls
    n = len(calls.name)
    zero, none = np.zeros(n, np.int64), np.full(n, -1, np.int64)
    order = np.lexsort((-(calls.end - calls.start), calls.start, calls.thread))
    return Ops(
        calls.name[order], calls.thread[order], calls.start[order], calls.end[order].copy(), zero, zero.copy(),
        zero.copy(), none, np.zeros(n, np.bool_), none.copy(), none.copy(),
    )  # fmt: skip


def _active(
    device: DeviceTrace, pairing: Pairing | None, options: LinkOptions, steps: dict[int, tuple[int, int]]
) -> Bool:
    ops = device.ops
    active = np.ones(len(ops.name), np.bool_)
    if pairing is not None and not options.add_unmatched:
        active = pairing.node >= 0
    elif pairing is not None:
        matched = pairing.node >= 0
        first, last = ops.start[matched].min(), ops.end[matched].max()
        active = matched | ((ops.start >= first) & (ops.end <= last))
    if options.step is not None:
        if options.step not in steps:
            known = ", ".join(map(str, steps)) or "none"
            raise ConversionError(
                f"{device.source}: no ProfilerStep#{options.step}; steps in the trace: {known}"
            )
        begin, end = steps[options.step]
        active &= (ops.start >= begin) & (ops.end <= end)
    if options.window_ns is not None:
        begin, end = options.window_ns
        active &= (ops.start >= begin) & (ops.start < end)
    return active


def _nearest_active(rows: I64, active: Bool, parent: I64) -> I64:
    """Innermost active operator at or above each row; -1 where none."""
    out = rows.copy()
    while True:
        up = (out >= 0) & ~active[out]
        if not up.any():
            return out
        out[up] = parent[out[up]]


class _Region:
    """The active operators as a table of their own (rows renumbered), and the device operations kept with
    them.
    """

    def __init__(self, device: DeviceTrace, attachment: Attachment, active: Bool) -> None:
        ops = device.ops
        self.rows = np.flatnonzero(active)
        self.index = np.full(len(ops.name), -1, np.int64)
        self.index[self.rows] = np.arange(len(self.rows))
        parent = _nearest_active(attachment.parent[self.rows], active, attachment.parent)
        self.parent = np.where(parent >= 0, self.index[parent], -1)
        self.thread, self.start, self.end = ops.thread[self.rows], ops.start[self.rows], ops.end[self.rows]
        self.annotation = ops.annotation[self.rows]
        self.first, self.last = int(self.start.min()), int(self.end.max())
        n_threads = len(device.threads)
        self.thread_first = np.full(n_threads, 1 << 62, np.int64)
        self.thread_last = np.full(n_threads, -1, np.int64)
        np.minimum.at(self.thread_first, self.thread, self.start)
        np.maximum.at(self.thread_last, self.thread, self.end)
        self._keep(device, attachment, active)

    def _keep(self, device: DeviceTrace, attachment: Attachment, active: Bool) -> None:
        """Which device operations belong to the region, and the active operator each hangs on."""
        gpu, calls = device.device, device.calls
        op = _nearest_active(attachment.op, active, attachment.parent)
        self.device_op = np.where(op >= 0, self.index[op], -1)
        has_call = attachment.call >= 0
        call = np.maximum(attachment.call, 0)
        launch = np.where(has_call, calls.start[call] if len(calls.start) else 0, gpu.start)
        thread = np.where(has_call, calls.thread[call] if len(calls.thread) else -1, -1)
        on_thread = has_call & (launch >= self.thread_first[thread]) & (launch <= self.thread_last[thread])
        elsewhere = has_call & (self.thread_last[thread] < 0) & (launch >= self.first) & (launch <= self.last)
        early, self.orphans = without_launch(device, attachment, self.first)
        orphan = (attachment.call < 0) & (attachment.op < 0) & ~early & (gpu.start <= self.last)
        self.kept = (self.device_op >= 0) | on_thread | elsewhere | orphan
        self.early = int(early.sum())
        self.orphans = int(orphan.sum())
        self.outside_op = int(((on_thread & (self.device_op < 0)) | elsewhere).sum())
        self.launch_thread = np.where(on_thread | (self.device_op >= 0), thread, -1)
        self.launch = launch


def _build(
    host: HostTrace | None,
    device: DeviceTrace,
    options: LinkOptions,
    rank: int,
    pairing: Pairing | None,
    attachment: Attachment,
    steps: dict[int, tuple[int, int]],
    active: Bool,
) -> Linked:
    region = _Region(device, attachment, active)
    groups = communication.groups_of(host, device)
    records = communication.device_communication(host, device, pairing, attachment, region.kept, groups, rank)
    is_comm = np.zeros(len(device.device.name), np.bool_)
    is_comm[list(records.members)] = True
    waits = find_waits(device, attachment.call, region.kept, is_comm)
    bursts = _bursts(host, device, pairing, region, attachment)
    pieces = _cut(device, options, region, waits, bursts, attachment)
    moved_ns, dropped_ns = pieces.moved_ns, pieces.dropped_ns
    draft = _draft(
        host, device, options, pairing, attachment, region, waits, bursts, pieces, records, rank, groups
    )
    del pieces
    graph = finish(draft)
    del draft
    measured = _span(device, region)
    linked = Linked(
        graph=graph,
        host=host,
        device=device,
        pairing=pairing,
        attachment=attachment,
        active=active,
        kept=region.kept,
        thread_numbers=_thread_numbers(host, device, pairing),
        waits=waits,
        bursts=bursts,
        moved_ns=moved_ns,
        gaps_dropped_ns=dropped_ns,
        groups=groups,
        first_ns=region.first,
        measured_ns=measured,
        steps=steps,
        warnings=list(host.warnings if host else []) + groups.warnings + records.warnings,
    )
    linked.counts = {
        "operators": int(active.sum()),
        "device_ops_attached": int((region.device_op[region.kept] >= 0).sum()),
        "device_ops_outside_operators": region.outside_op,
        "device_ops_without_launch": region.orphans,
        "device_ops_before_window": region.early,
        "device_ops_left_out": int((~region.kept).sum()) - region.early,
    }
    return linked


def _span(device: DeviceTrace, region: _Region) -> int:
    attached = region.kept & (region.device_op >= 0)
    first, last = region.first, region.last
    if attached.any():
        first = min(first, int(device.device.start[attached].min()))
        last = max(last, int(device.device.end[attached].max()))
    return last - first


def _thread_numbers(host: HostTrace | None, device: DeviceTrace, pairing: Pairing | None) -> I64:
    """``tid`` of each thread: the host trace's number where one thread has most of its operators, else a new
    one.
    """
    n = len(device.threads)
    out = np.zeros(n, np.int64)
    taken: set[int] = set()
    if host is not None and pairing is not None:
        matched = np.flatnonzero(pairing.node >= 0)
        tid, thread = host.nodes.tid[pairing.node[matched]], device.ops.thread[matched]
        pairs, counts = np.unique(np.stack([tid, thread]), axis=1, return_counts=True)
        for i in np.argsort(-counts, kind="stable"):
            number, which = int(pairs[0, i]), int(pairs[1, i])
            if out[which] == 0 and number not in taken and number > 0:
                out[which] = number
                taken.add(number)
    number = max(taken, default=0)
    for which in range(n):
        if out[which] == 0:
            number += 1
            out[which] = number
    return out


def _bursts(
    host: HostTrace | None,
    device: DeviceTrace,
    pairing: Pairing | None,
    region: _Region,
    attachment: Attachment,
) -> Bursts:
    cause = np.full(len(region.rows), -1, np.int64)
    if host is not None and pairing is not None:
        node = pairing.node[region.rows]
        forward = np.where(node >= 0, host.nodes.fw_parent[node], 0)
        rows = np.flatnonzero(forward > 0)
        ids = host.nodes.id
        at = np.minimum(np.searchsorted(ids, forward[rows]), len(ids) - 1)
        source = np.where(ids[at] == forward[rows], pairing.op[at], -1)
        cause[rows] = np.where(source >= 0, device.ops.thread[source], -1)
        # The engine's wrapper around a backward operator has no forward parent itself: take the first
        # child's.
        up = region.parent[rows]
        rows, up = rows[up >= 0], up[up >= 0]
        inherit = cause[up] < 0
        cause[up[inherit]] = cause[rows[inherit]]
    names = device.names.texts
    codes = [
        c
        for c in np.unique(device.calls.name).tolist()
        if classify(names[c]) in ("device", "stream", "event")
    ]
    rows = np.flatnonzero(np.isin(device.calls.name, codes))
    return find_bursts(
        region.thread,
        region.start,
        region.end,
        region.parent,
        cause,
        (device.calls.thread[rows], device.calls.start[rows]),
    )


def _cut(
    device: DeviceTrace,
    options: LinkOptions,
    region: _Region,
    waits: SyncEdges,
    bursts: Bursts,
    attachment: Attachment,
) -> Pieces:
    calls, gpu = device.calls, device.device
    call_rows, inverse = np.unique(waits.host_call, return_inverse=True)
    until = calls.start[call_rows].copy()
    np.maximum.at(until, inverse, gpu.end[waits.host_source])
    until = np.minimum(until, calls.end[call_rows])
    none = np.full(len(bursts.first), -1, np.int64)
    row = np.arange(len(bursts.first))
    waiting = bursts.last >= 0
    launches = _launch_cuts(device, region, attachment, call_rows)
    empty = np.full(len(launches[0]), -1, np.int64)
    cuts = sort_cuts(
        [
            (calls.thread[call_rows], calls.start[call_rows], until, CUT_SYNC, call_rows),
            (
                bursts.source_thread[waiting], bursts.start[waiting], bursts.waited_until[waiting], CUT_JOIN,
                row[waiting],
            ),
            (
                bursts.source_thread[~waiting], bursts.start[~waiting], bursts.start[~waiting], CUT_PLAIN,
                none[~waiting],
            ),
            (launches[0], launches[1], launches[1], CUT_PLAIN, empty),
        ]
    )  # fmt: skip
    skip = np.zeros(len(region.rows), np.int64)
    skip[bursts.first[bursts.first >= 0]] = 1
    return cut_time(region.thread, region.start, region.end, region.annotation, cuts, skip, options.gaps)


def _launch_cuts(
    device: DeviceTrace, region: _Region, attachment: Attachment, blocking: I64
) -> tuple[I64, I64]:
    """Where to cut behind launches whose device operation ran on while the same piece of host time went on.

    Without the cut the operation would wait for all of the piece in a replay. Only the first operation of a
    call matters, and only if the piece lasts clearly longer.
    """
    gpu, calls = device.device, device.calls
    rows = np.flatnonzero(region.kept & (region.launch_thread >= 0))
    rows = rows[~np.isin(attachment.call[rows], blocking)]
    if not len(rows):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    thread, launch = region.launch_thread[rows], region.launch[rows]
    at = np.minimum(calls.end[attachment.call[rows]], np.maximum(gpu.start[rows], launch))
    span = int(max(region.end.max(), launch.max())) + 2
    bounds = np.sort(np.concatenate([region.thread * span + region.start, region.thread * span + region.end]))
    following = bounds[np.minimum(np.searchsorted(bounds, thread * span + at, "right"), len(bounds) - 1)]
    left = following - (thread * span + at)
    wanted = (left > LAUNCH_CUT_NS) & (left < span) & (gpu.start[rows] - at < left)
    keys = np.unique(thread[wanted] * span + at[wanted])
    return keys // span, keys % span


def _draft(
    host: HostTrace | None,
    device: DeviceTrace,
    options: LinkOptions,
    pairing: Pairing | None,
    attachment: Attachment,
    region: _Region,
    waits: SyncEdges,
    bursts: Bursts,
    pieces: Pieces,
    records: communication.Records,
    rank: int,
    groups: communication.Groups,
) -> Draft:
    ops, gpu, calls = device.ops, device.device, device.calls
    gap_name = device.names.code("gap")
    wait_name = device.names.code("wait for thread")
    n_host = len(pieces.kind)
    device_rows, member = records.expand(np.flatnonzero(region.kept))
    n_device = len(device_rows)
    op_row = np.where(pieces.op >= 0, region.rows[pieces.op], -1)
    is_op = pieces.node_of_op
    host_name = np.where(op_row >= 0, ops.name[op_row], gap_name)
    host_name = np.where(
        pieces.kind == NODE_SYNC, calls.name[pieces.ref] if len(calls.name) else 0, host_name
    )
    host_name = np.where(pieces.kind == NODE_JOIN, wait_name, host_name)
    host_name = np.where((pieces.kind == 3), gap_name, host_name)
    late = (pieces.kind == NODE_SYNC) | (pieces.kind == NODE_JOIN)
    et_row = np.full(n_host, -1, np.int64)
    head = pieces.kind == 0
    if pairing is not None:
        et_row[head] = pairing.node[op_row[head]]
    parent_op = np.where(head, region.parent[np.maximum(pieces.op, 0)], pieces.op)
    host_parent = np.where(parent_op >= 0, is_op[parent_op], -1)
    if host is not None and pairing is not None:
        host_parent = _tree_parents(host, pairing, region, pieces, et_row, host_parent)
    keys = stream_keys(device)
    device_index = np.full(len(gpu.name), -1, np.int64)
    device_index[device_rows[::-1]] = n_host + np.arange(n_device)[::-1]
    last_index = np.full(len(gpu.name), -1, np.int64)
    last_index[device_rows] = n_host + np.arange(n_device)
    types = np.full(n_device, COMP, np.int64)
    comm: dict[int, Comm] = {}
    durations = gpu.end[device_rows] - gpu.start[device_rows]
    for i in np.flatnonzero(np.isin(device_rows, list(records.members))).tolist():
        info = records.members[int(device_rows[i])][int(member[i])]
        types[i] = info.kind
        comm[n_host + i] = info
        if member[i]:
            durations[i] = 0
    device_parent = np.where(region.device_op[device_rows] >= 0, is_op[region.device_op[device_rows]], -1)
    chain = _chain_edges(pieces.thread)
    edges = [(chain[0], chain[1], E_CHAIN)]
    edges += _launch_edges(region, attachment, waits, pieces, device_rows, n_host)
    edges += _stream_edges(keys, device_rows, member, n_host)
    edges.append(_sync_edges(waits, pieces, last_index))
    edges.append((last_index[waits.stream_source], device_index[waits.stream_target], E_WAIT))
    edges += _burst_edges(bursts, pieces, region)
    batch = np.isin(device_rows, [r for r, m in records.members.items() if len(m) > 1])
    n_threads = len(device.threads)
    stream_group = n_threads + keys[device_rows]
    single = n_threads + int(keys.max(initial=0)) + 1 + np.arange(n_device)
    host_types = np.full(n_host, COMP, np.int64)
    if options.cpu_comm == "comm" and host is not None:
        found, issued = communication.cpu_communication(host, device, et_row, op_row, groups, rank)
        for i, info in found.items():
            host_types[i] = info.kind
            comm[i] = info
        if pairing is not None:
            edges = _issue_order(edges, issued, device, pairing, region, pieces)
    join = np.concatenate
    minus = np.full(n_device, -1, np.int64)
    draft = Draft(
        kind=join([pieces.kind, np.full(n_device, NODE_DEVICE)]),
        type=join([host_types, types]),
        name=join([host_name, gpu.name[device_rows]]),
        op=join([op_row, minus]),
        host_row=join([et_row, minus]),
        device_row=join([np.full(n_host, -1), device_rows]),
        thread=join([pieces.thread, minus]),
        stream_key=join([np.full(n_host, -1), keys[device_rows]]),
        start=join([pieces.start, gpu.start[device_rows]]),
        duration=join([pieces.duration, durations]),
        hold=join([np.where(late, pieces.target_end - region.first, -1), minus]),
        rank=join([host_ranks(pieces.thread, pieces.start, late), np.ones(n_device, np.int64)]),
        parent=join([host_parent, device_parent]),
        chain_group=join([pieces.thread, np.where(batch, single, stream_group)]),
        edges=edges,
        comm=comm,
    )
    if options.gaps != "drop":
        felt = np.isin(waits.host_call, pieces.ref[pieces.kind == NODE_SYNC])
        _add_device_gaps(draft, device, waits.host_source[felt], region.first, n_host, n_device)
    if options.gpu_only:
        return _only_device(draft, n_host)
    if host is not None and pairing is not None:
        return _with_unmatched(draft, host, pairing, device, region, pieces)
    return draft


def _tree_parents(
    host: HostTrace, pairing: Pairing, region: _Region, pieces: Pieces, et_row: I64, fallback: I64
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


def _chain_edges(thread: I64) -> tuple[I64, I64]:
    rows = np.flatnonzero(thread[1:] == thread[:-1]) if len(thread) else np.zeros(0, np.int64)
    return rows, rows + 1


def _launch_edges(
    region: _Region, attachment: Attachment, waits: SyncEdges, pieces: Pieces, device_rows: I64, n_host: int
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


def _stream_edges(keys: I64, device_rows: I64, member: I64, n_host: int) -> list[tuple[I64, I64, int]]:
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


def _sync_edges(waits: SyncEdges, pieces: Pieces, last_index: I64) -> tuple[I64, I64, int]:
    """From awaited device operations to the host node behind the wait."""
    rows = np.flatnonzero(pieces.kind == NODE_SYNC)
    order = rows[np.argsort(pieces.ref[rows])]
    calls = pieces.ref[order]
    if not len(order):
        return np.zeros(0, np.int64), np.zeros(0, np.int64), E_SYNC
    at = np.minimum(np.searchsorted(calls, waits.host_call), len(calls) - 1)
    hit = calls[at] == waits.host_call
    return last_index[waits.host_source[hit]], order[at[hit]], E_SYNC


def _burst_edges(bursts: Bursts, pieces: Pieces, region: _Region) -> list[tuple[I64, I64, int]]:
    starts = bursts.first >= 0
    source = node_before(pieces, bursts.source_thread[starts], bursts.start[starts], inclusive=False)
    edges = [(source, pieces.node_of_op[bursts.first[starts]], E_FORK)]
    joins = np.flatnonzero(pieces.kind == NODE_JOIN)
    row = pieces.ref[joins]
    last = node_before(pieces, bursts.thread[row], bursts.waited_until[row], inclusive=False)
    edges.append((last, joins, E_JOIN))
    return edges


def _add_device_gaps(
    draft: Draft, device: DeviceTrace, held: I64, first_ns: int, n_host: int, n_device: int
) -> None:
    """Nodes for unexplained idleness of streams behind the last operation that the host waits for.

    Up to there a host's wait holds what the device lost (launch latency, other users of the device); behind
    it nothing would, and the replay would end early. ``held`` are the device operations that the host waits
    for.
    """
    rows = np.arange(n_host, n_host + n_device)
    ready = np.full(n_host + n_device, -1, np.int64)
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
    found = rows[(ready[rows] >= 0) & (start - ready[rows] > DEVICE_GAP_NS) & (start > awaited[key])]
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
    join = np.concatenate
    minus = np.full(k, -1, np.int64)
    draft.hold = join([draft.hold, draft.start[found] - first_ns])
    draft.start = join([draft.start, ready[found]])
    draft.kind = join([draft.kind, np.full(k, NODE_DEVICE_GAP)])
    draft.type = join([draft.type, np.full(k, COMP)])
    draft.name = join([draft.name, np.full(k, device.names.code("device gap"))])
    draft.op, draft.host_row = join([draft.op, minus]), join([draft.host_row, minus])
    draft.device_row = join([draft.device_row, draft.device_row[found]])
    draft.thread = join([draft.thread, minus])
    draft.stream_key = join([draft.stream_key, draft.stream_key[found]])
    draft.duration = join([draft.duration, np.zeros(k, np.int64)])
    draft.rank = join([draft.rank, np.ones(k, np.int64)])
    draft.parent = join([draft.parent, minus])
    draft.chain_group = join([draft.chain_group, draft.chain_group[found]])


def _issue_order(
    edges: list[tuple[I64, I64, int]],
    issued: dict[int, int],
    device: DeviceTrace,
    pairing: Pairing,
    region: _Region,
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


def _only_device(draft: Draft, n_host: int) -> Draft:
    """Leave the host out; what a device operation waits for on the host is gone with it."""
    keep = slice(n_host, None)
    edges = []
    for source, target, kind in draft.edges:
        if kind in (E_STREAM, E_WAIT):
            ok = (source >= n_host) & (target >= n_host)
            edges.append((source[ok] - n_host, target[ok] - n_host, kind))
    return Draft(
        kind=draft.kind[keep], type=draft.type[keep], name=draft.name[keep], op=draft.op[keep],
        host_row=draft.host_row[keep], device_row=draft.device_row[keep], thread=draft.thread[keep],
        stream_key=draft.stream_key[keep], start=draft.start[keep], duration=draft.duration[keep],
        hold=draft.hold[keep], rank=draft.rank[keep], parent=np.full(len(draft.kind) - n_host, -1, np.int64),
        chain_group=draft.chain_group[keep], edges=edges,
        comm={i - n_host: c for i, c in draft.comm.items() if i >= n_host},
    )  # fmt: skip


def _with_unmatched(
    draft: Draft, host: HostTrace, pairing: Pairing, device: DeviceTrace, region: _Region, pieces: Pieces
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
    minus = np.full(k, -1, np.int64)
    parent_id = nodes.parent[rows]
    where = np.minimum(np.searchsorted(nodes.id, parent_id), len(nodes.id) - 1)
    op = np.where(nodes.id[where] == parent_id, pairing.op[where], -1)
    index = np.where(op >= 0, region.index[op], -1)
    join = np.concatenate
    draft.parent = join([draft.parent, np.where(index >= 0, pieces.node_of_op[index], -1)])
    draft.kind = join([draft.kind, np.full(k, NODE_UNMATCHED)])
    draft.type = join([draft.type, np.full(k, COMP)])
    draft.name = join([draft.name, nodes.name[rows]])
    draft.op = join([draft.op, minus])
    draft.host_row = join([draft.host_row, rows])
    draft.device_row = join([draft.device_row, minus])
    draft.thread = join([draft.thread, region.thread[follower]])
    draft.stream_key = join([draft.stream_key, minus])
    draft.start = join([draft.start, start])
    draft.duration = join([draft.duration, np.zeros(k, np.int64)])
    draft.hold = join([draft.hold, minus])
    draft.rank = join([draft.rank, np.zeros(k, np.int64)])
    draft.chain_group = join([draft.chain_group, int(draft.chain_group.max()) + 1 + np.arange(k)])
    return draft
