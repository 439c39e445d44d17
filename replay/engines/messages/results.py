"""Reads the message-level kernel's array after a run."""

import numpy as np

from chakra.arrays import I64
from chakra.replay.config.model import Topology
from chakra.replay.engines.kernels import messages_layout as lay
from chakra.replay.engines.messages.model import (
    CollectiveRecord,
    EngineResult,
    LinkStats,
    Mismatch,
    Stall,
    WaitingCollective,
    WaitingMessage,
)
from chakra.replay.engines.messages.tables import Tables
from chakra.replay.networks.interface import LinkUse


def read_result(
    t: Tables, m: I64, status: int, jit: bool, outside_links: tuple[LinkUse, ...] = ()
) -> EngineResult:
    """Results of a run from the kernel's array, and from what an outside network says of its links."""
    npu = m[lay.NPU_BASE : lay.NPU_BASE + len(t.actors) * lay.NPU_ROW].reshape(-1, lay.NPU_ROW)
    first = int(m[lay.C_DIM_ROWS])
    dims = m[first : first + len(t.model.dims) * lay.DIM_ROW].reshape(-1, lay.DIM_ROW)
    total = int(t.node_start[-1])
    states = m[t.states : t.states + total * lay.NODE_STATE].reshape(-1, lay.NODE_STATE)
    waiting = _waiting_messages(t, m)
    stall = mismatch = None
    if status == lay.STALLED:
        stall = Stall(
            unfinished=np.flatnonzero(npu[:, lay.N_FINISH] < 0),
            collectives=_waiting_collectives(t, m),
            messages=waiting,
        )
    elif status == lay.MISMATCH:
        mismatch = Mismatch(int(m[lay.C_ERROR_NPU]), int(m[lay.C_ERROR_NODE]))
    return EngineResult(
        finish_ns=npu[:, lay.N_FINISH].copy(),
        node_start=t.node_start,
        issue_ns=states[:, lay.NS_ISSUE].copy(),
        node_finish_ns=states[:, lay.NS_FINISH].copy(),
        partner_ns=states[:, lay.NS_PARTNER].copy(),
        collectives=_records(t, m),
        links=_link_stats(t, m) if t.model.aware else None,
        outside_links=outside_links,
        dim_bytes=dims[:, lay.D_BYTES].copy(),
        dim_byte_hops=dims[:, lay.D_BYTE_HOPS].copy(),
        events=int(m[lay.C_EVENTS]),
        hops=int(m[lay.C_MESSAGES]),
        relieved=int(m[lay.C_RELIEVED]),
        compiled=jit,
        stall=stall,
        mismatch=mismatch,
        unreceived=tuple(w for w in waiting if w.is_send),
    )


def _records(t: Tables, m: I64) -> tuple[CollectiveRecord, ...]:
    out = []
    number = {row: k for k, row in enumerate(t.plan_row)}
    group = {row: k for k, row in enumerate(t.group_row)}
    at = int(m[m[lay.C_FIRST_RECORD] + lay.RC_NEXT])
    while at != lay.NIL:
        plan = number[int(m[at + lay.RC_PLAN])]
        row = m[at : at + lay.REC_ROW].tolist()
        out.append(
            CollectiveRecord(
                collective=plan,
                group=group[row[lay.RC_GROUP]],
                ordinal=row[lay.RC_ORDINAL],
                start_ns=row[lay.RC_START],
                ready_ns=row[lay.RC_READY],
                end_ns=row[lay.RC_END],
            )
        )
        at = row[lay.RC_NEXT]
    return tuple(out)


def _link_stats(t: Tables, m: I64) -> LinkStats:
    end = t.first_link + t.links * lay.LINK_ROW
    rows = m[t.first_link : end].reshape(-1, lay.LINK_ROW)
    n = len(t.actors)
    dim, src, dst = (np.full(t.links, -1, np.int64) for _ in range(3))
    if t.model.graph is not None:
        src[:] = dst[:] = np.arange(t.links)
    stride = 1
    for k, (first, count) in enumerate(t.link_ranges):
        kind, size = t.model.dims[k].topology, t.model.dims[k].npus
        own = slice(first, first + count)
        dim[own] = k
        npu = np.arange(n)
        at = npu // stride % size
        if kind is Topology.FULLY_CONNECTED:
            src[own] = np.repeat(npu, size)
            dst[own] = (npu[:, None] + (np.arange(size)[None, :] - at[:, None]) * stride).reshape(-1)
        elif kind is Topology.RING:
            src[own] = np.repeat(npu, 2)
            dst[first : first + count : 2] = npu + ((at + 1) % size - at) * stride
            dst[first + 1 : first + count : 2] = npu + ((at - 1) % size - at) * stride
        else:
            src[first : first + count : 2] = npu
            dst[first + 1 : first + count : 2] = npu
        stride *= size
    used = np.flatnonzero(rows[:, lay.L_MESSAGES] > 0)
    return LinkStats(
        dim[used],
        src[used],
        dst[used],
        rows[used, lay.L_BYTES],
        rows[used, lay.L_MESSAGES],
        rows[used, lay.L_BUSY_NS],
        rows[used, lay.L_QUEUED_NS],
    )


def _waiting_collectives(t: Tables, m: I64) -> tuple[WaitingCollective, ...]:
    out = []
    number = {row: k for k, row in enumerate(t.plan_row)}
    for k, group in enumerate(t.groups):
        at = int(m[t.group_row[k] + lay.G_FIRST])
        while at != lay.NIL:
            ordinal = int(m[at + lay.I_ORDINAL])
            has = [int(m[t.membership[k, npu] + 2]) > ordinal for npu in group]
            out.append(
                WaitingCollective(
                    collective=number[int(m[at + lay.I_PLAN])],
                    group=k,
                    ordinal=ordinal,
                    issued=tuple(npu for npu, issued in zip(group, has, strict=True) if issued),
                    missing=tuple(npu for npu, issued in zip(group, has, strict=True) if not issued),
                )
            )
            at = int(m[at + lay.NEXT])
    return tuple(out)


def _waiting_messages(t: Tables, m: I64) -> tuple[WaitingMessage, ...]:
    """Posted sends and receives that found no partner, receives first."""
    out: list[WaitingMessage] = []
    end = t.channels + t.n_channels * lay.CHANNEL_ROW
    rows = m[t.channels : end].reshape(-1, lay.CHANNEL_ROW)
    for channel in np.flatnonzero(rows[:, lay.CH_SEND] | rows[:, lay.CH_RECV]).tolist():
        control = not (t.p2p[:, lay.P2P_CHANNEL] == channel).any()
        column = lay.P2P_CONTROL if control else lay.P2P_CHANNEL
        key = t.keys[np.flatnonzero(t.p2p[:, column] == channel)[0]].tolist()
        tag, src, dst, size = key
        at = int(rows[channel, lay.CH_RECV])
        while at != lay.NIL:
            node = -1 if m[at + lay.R_STREAM] else int(m[at + lay.R_NODE])
            send = bool(m[at + lay.R_WHAT] == lay.RQ_SEND)
            ends = (src, dst) if send else (dst, src)
            out.append(WaitingMessage(ends[0], node, send, ends[1], tag, int(m[at + lay.R_SIZE])))
            at = int(m[at + lay.R_NEXT])
        at = int(rows[channel, lay.CH_SEND])
        while at != lay.NIL:
            ends = (dst, src) if control else (src, dst)
            out.append(WaitingMessage(ends[0], -1, not control, ends[1], tag, size))
            at = int(m[at + lay.M_P])
    return tuple(sorted(out, key=lambda w: w.is_send))
