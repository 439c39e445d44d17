"""Channels of point-to-point messages between actors."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from chakra.arrays import I64, bounds
from chakra.errors import WorkloadError
from chakra.replay.checks.partners import tags_of
from chakra.replay.engines.kernels.layout import CONTROL_BYTES
from chakra.replay.options import RunOptions
from chakra.replay.symmetry.classes import Partition
from chakra.replay.workload.model import Program, Workload

#: sending and receiving NPU, bytes -> ns of a message
Delay = Callable[[int, int, int], int]


class UnfoldableError(Exception):
    """The classes do not describe the point-to-point messages one to one; every NPU must be simulated."""


@dataclass(frozen=True, slots=True)
class Channels:
    """Channels of point-to-point messages: equal source, destination, tag and size (section 5.1)."""

    #: channel of every message of every actor; those of actor a begin at message_start[a]
    of_message: I64
    message_start: I64
    #: per channel: actors, delay of a message and of a request on the way back (-1: none), first place in its queue
    src: I64
    dst: I64
    delay_ns: I64
    back_ns: I64
    start: I64


#: columns of the rows of messages; the first five say which channel it is
_SRC_ACTOR, _DST_ACTOR, _PLACE, _TAG, _BYTES, _SRC, _DST, _IS_SEND = range(8)


def message_channels(
    workload: Workload, classes: Partition, programs: Sequence[Program], delay_ns: Delay, options: RunOptions
) -> Channels:
    """Channels between actors, whose programs are given, on a network without contention.

    Raises
    ------
    UnfoldableError
        If the messages of classes do not pair up.
    WorkloadError
        For a peer that the network does not have.
    """
    message_start = bounds([len(program.p2p_peer) for program in programs])[:-1]
    rows = _message_rows(workload, classes, programs, options)
    if not len(rows):
        none = np.zeros(0, np.int64)
        return Channels(
            none, message_start, src=none, dst=none, delay_ns=none, back_ns=none, start=bounds([])
        )
    distinct, first, inverse = np.unique(rows[:, :_SRC], axis=0, return_index=True, return_inverse=True)
    inverse = inverse.reshape(-1).astype(np.int64)
    is_send = rows[:, _IS_SEND] == 1
    sends = np.bincount(inverse[is_send], minlength=len(distinct))
    receives = np.bincount(inverse[~is_send], minlength=len(distinct))
    if classes.n_classes < workload.npus and not np.array_equal(sends, receives):
        raise UnfoldableError
    ends = rows[first][:, [_SRC, _DST]].tolist()
    forth = [
        delay_ns(src, dst, size) for (src, dst), size in zip(ends, distinct[:, _BYTES].tolist(), strict=True)
    ]
    back = [delay_ns(dst, src, CONTROL_BYTES) if options.rendezvous else -1 for src, dst in ends]
    return Channels(
        inverse,
        message_start,
        src=np.ascontiguousarray(distinct[:, _SRC_ACTOR]),
        dst=np.ascontiguousarray(distinct[:, _DST_ACTOR]),
        delay_ns=np.array(forth, np.int64),
        back_ns=np.array(back, np.int64),
        start=bounds(np.maximum(sends, receives)),
    )


def _message_rows(
    workload: Workload, classes: Partition, programs: Sequence[Program], options: RunOptions
) -> I64:
    """A row per message of every actor, as the actor sees it."""
    class_of, npu_of = classes.class_of, classes.representative
    n = workload.npus
    peers = workload.peers
    rows: list[I64] = []
    for a, program in enumerate(programs):
        npu, count = int(npu_of[a]), len(program.p2p_peer)
        if not count:
            continue
        peer = peers.of(npu)[program.p2p_peer]
        bad = np.flatnonzero((peer < 0) | (peer >= n))
        if len(bad):
            raise WorkloadError(
                f"{program.trace.source}: NPU {npu} sends to or receives from rank {int(peer[bad[0]])}, "
                f"but the system has NPUs 0 to {n - 1}"
            )
        send = program.p2p_is_send
        own = np.full(count, npu)
        source, target = np.where(send, own, peer), np.where(send, peer, own)
        columns = {
            _SRC_ACTOR: np.where(send, a, class_of[source]),
            _DST_ACTOR: np.where(send, class_of[target], a),
            # actors of one class stand for many pairs of NPUs: what they share is the distance
            _PLACE: (target - source) % n if classes.n_classes < n else target,
            _TAG: tags_of(program, astra=options.astra),
            _BYTES: program.p2p_bytes,
            _SRC: source,
            _DST: target,
            _IS_SEND: send,
        }
        rows.append(np.stack([columns[k] for k in range(len(columns))], axis=1))
    return np.concatenate(rows) if rows else np.zeros((0, 8), np.int64)
