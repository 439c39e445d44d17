"""Channels of point-to-point messages between actors."""

from collections.abc import Sequence

import numpy as np

from chakra.arrays import I64
from chakra.errors import WorkloadError
from chakra.replay.classes import Partition, peers_of
from chakra.replay.kernels import phases_algorithms, phases_layout
from chakra.replay.kernels.phases_layout import Net
from chakra.replay.matching import tags_of
from chakra.replay.options import RunOptions
from chakra.replay.tables import starts
from chakra.replay.workload import Program, Workload


class UnfoldableError(Exception):
    """The classes do not describe the point-to-point messages one to one; every NPU must be simulated."""


def message_channels(
    workload: Workload, classes: Partition, programs: Sequence[Program], net: Net, options: RunOptions
) -> tuple[I64, I64, dict[str, I64]]:
    """Channels of point-to-point messages: equal source, destination, tag and size (section 5.1).

    Returns the channel of every message of every actor, where each actor's begin, and the channels' tables.
    """
    class_of, npu_of = classes.class_of, classes.representative
    n = workload.npus
    peers = peers_of(workload)
    rows: list[I64] = []
    lengths: list[int] = []
    for a, program in enumerate(programs):
        npu = int(npu_of[a])
        count = len(program.p2p_peer)
        lengths.append(count)
        if not count:
            continue
        peer = peers[npu][program.p2p_peer]
        bad = np.flatnonzero((peer < 0) | (peer >= n))
        if len(bad):
            raise WorkloadError(
                f"{program.trace.source}: NPU {npu} sends to or receives from rank {int(peer[bad[0]])}, "
                f"but the system has NPUs 0 to {n - 1}"
            )
        send = program.p2p_is_send
        tag = tags_of(program, astra=options.astra)
        own = np.full(count, npu)
        source, target = np.where(send, own, peer), np.where(send, peer, own)
        rows.append(
            np.stack(
                [
                    np.where(send, a, class_of[source]),
                    np.where(send, class_of[target], a),
                    (target - source) % n if len(npu_of) < n else target,
                    tag,
                    program.p2p_bytes,
                    source,
                    target,
                    send,
                ],
                axis=1,
            )
        )
    starts_of = starts(lengths)[:-1]
    if not rows:
        empty = np.zeros(1, np.int64)
        return empty, starts_of, dict.fromkeys(("src", "dst", "delay", "back", "start"), empty)
    table = np.concatenate(rows)
    distinct, first, inverse = np.unique(table[:, :5], axis=0, return_index=True, return_inverse=True)
    inverse = inverse.reshape(-1)
    sends = np.bincount(inverse[table[:, 7] == 1], minlength=len(distinct))
    receives = np.bincount(inverse[table[:, 7] == 0], minlength=len(distinct))
    if len(npu_of) < n and not np.array_equal(sends, receives):
        raise UnfoldableError
    src_npu, dst_npu = table[first, 5], table[first, 6]
    size = distinct[:, 4]
    forth = np.array(
        [
            phases_algorithms.delay(net, int(s), int(d), int(b))
            for s, d, b in zip(src_npu, dst_npu, size, strict=True)
        ],
        np.int64,
    )
    back = np.full(len(distinct), -1, np.int64)
    if options.rendezvous:
        back = np.array(
            [
                phases_algorithms.delay(net, int(d), int(s), phases_layout.CONTROL_BYTES)
                for s, d in zip(src_npu, dst_npu, strict=True)
            ],
            np.int64,
        )
    most = np.maximum(sends, receives)
    return (
        inverse.astype(np.int64),
        starts_of,
        {
            "src": np.ascontiguousarray(distinct[:, 0]),
            "dst": np.ascontiguousarray(distinct[:, 1]),
            "delay": forth,
            "back": back,
            "start": starts(most.tolist()),
        },
    )
