"""Point-to-point messages of a run, by the dimensions in which their ends differ.

Conservation: counts and bytes are those of the send nodes that have ended, each once, and what a row says that crosses a
dimension is what the messages put into the books of that dimension.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from chakra.arrays import I64, AnyArray
from chakra.replay.config.model import Network
from chakra.replay.engines.outcome import RawRun
from chakra.replay.symmetry.classes import booked_dims
from chakra.replay.workload.model import Op, Program, Workload


@dataclass(frozen=True, slots=True)
class MessageRow:
    """Messages between NPUs that differ in the same dimensions: those that a message is booked in.

    Attributes
    ----------
    dims
        The dimensions; none of messages that an NPU sends itself.
    count, bytes
        Messages that were sent, and bytes of all of them.
    longest_ns
        Longest transfer: from when both ends had started to the end of a receive.
    transfer_ns, waiting_ns
        Of all receives: transfer, and before that waiting for the sender.
    """

    dims: tuple[int, ...]
    count: int
    bytes: int
    longest_ns: int
    transfer_ns: int
    waiting_ns: int


def message_rows(
    workload: Workload, network: Network, raw: RawRun, programs: Sequence[Program]
) -> list[MessageRow]:
    """Rows by dimensions, the lowest first."""
    found: dict[tuple[int, ...], AnyArray] = {}
    for actor, program in enumerate(programs):
        npus = raw.partition.members[actor]
        for slot, figures in _by_peer(raw, program, actor):
            crossed = booked_dims(network, npus, workload.peers.at(npus, slot))
            kinds, count = np.unique(crossed, axis=0, return_counts=True)
            for kind, alike in zip(kinds, count.tolist(), strict=True):
                row = found.setdefault(tuple(np.flatnonzero(kind).tolist()), np.zeros(len(figures), np.int64))
                row[_LONGEST] = max(row[_LONGEST], figures[_LONGEST])
                row[_SUMS] += figures[_SUMS] * alike
    return [
        MessageRow(dims, *(int(figure) for figure in found[dims][[*_SUMS[:2], _LONGEST, *_SUMS[2:]]]))
        for dims in sorted(found)
    ]


def message_bytes(rows: Sequence[MessageRow], dims: int) -> I64:
    """Bytes of messages per dimension, over all NPUs."""
    total = np.zeros(dims, np.int64)
    for row in rows:
        total[list(row.dims)] += row.bytes
    return total


#: figures of a peer: count and bytes of sends, transfer and waiting of receives; the longest transfer
_SUMS = np.arange(4)
_LONGEST = 4


def _by_peer(raw: RawRun, program: Program, actor: int) -> list[tuple[int, I64]]:
    """Places of the NPUs that an actor exchanges messages with among its peers, and the figures of each."""
    nodes = np.flatnonzero((program.op == Op.SEND) | (program.op == Op.RECV))
    finish = raw.finish_ns[raw.nodes(actor)][nodes]
    nodes, finish = nodes[finish >= 0], finish[finish >= 0]
    if not len(nodes):
        return []
    issue = raw.issue_ns[raw.nodes(actor)][nodes]
    ready = raw.comm_ready_ns[int(raw.comm_start[actor]) + program.comm[nodes]]
    message = program.call[nodes]
    sends = program.op[nodes] == Op.SEND
    begun = np.clip(ready, issue, finish)
    transfer, waiting = np.where(sends, 0, finish - begun), np.where(sends, 0, begun - issue)
    size = np.where(sends, program.p2p_bytes[message], 0)
    slots, which = np.unique(program.p2p_peer[message], return_inverse=True)
    figures = np.zeros((len(slots), 5), np.int64)
    np.add.at(
        figures, which.reshape(-1), np.stack([sends, size, transfer, waiting, np.zeros_like(size)], axis=1)
    )
    np.maximum.at(figures[:, _LONGEST], which.reshape(-1), transfer)
    return list(zip(slots.tolist(), figures, strict=True))
