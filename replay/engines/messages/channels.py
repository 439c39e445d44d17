"""Channels of point-to-point messages: distinct (tag, source, destination, size), in which sends meet receives in order.

Requests of the rendezvous protocol have channels of their own, without the size. Custom algorithms use the same ones.
"""

import numpy as np

from chakra.arrays import I64, AnyArray
from chakra.replay.engines.kernels import messages_layout as L
from chakra.replay.engines.state import Block
from chakra.replay.symmetry.classes import Partition


class Channels:
    """Collects the point-to-point nodes of all NPUs, then numbers their channels."""

    def __init__(self, classes: Partition) -> None:
        self._classes = classes
        self._parts: list[tuple[I64, I64, I64, I64, I64, I64]] = []
        self._count = 0

    def add(
        self, tag: I64, size: I64, sends: AnyArray, actor: int, peers: I64, role: I64 | None = None
    ) -> int:
        """Add the nodes of the program or custom algorithm of an NPU, or class; returns the number of the first.

        With `role`, ends of a message know each other by that; else by how far they are from each other.
        """
        first = self._count
        n = len(tag)
        if n:
            class_of, npu = self._classes.class_of, int(self._classes.representative[actor])
            me, other = np.full(n, actor, np.int64), class_of[peers]
            # classes stand for many pairs of NPUs: what these share is how far they are from each other
            ahead = np.where(sends, peers - npu, npu - peers) % len(class_of) if role is None else role
            source, target = np.where(sends, me, other), np.where(sends, other, me)
            self._parts.append((tag, source, target, ahead, size, peers))
            self._count += n
        return first

    def put(self, block: Block) -> int:
        """Add the rows of all nodes and channels to a block; returns where the rows of the nodes begin."""
        if not self._count:
            return block.room(0)
        tag, src, dst, ahead, size, peers = (
            np.concatenate(column) for column in zip(*self._parts, strict=True)
        )
        _, data = np.unique(np.stack([tag, src, dst, ahead, size], axis=1), axis=0, return_inverse=True)
        _, control = np.unique(np.stack([tag, src, dst, ahead], axis=1), axis=0, return_inverse=True)
        data, control = data.reshape(-1), control.reshape(-1)
        n_data = int(data.max()) + 1
        at = block.room((n_data + int(control.max()) + 1) * L.CHANNEL_ROW)
        rows = np.zeros((self._count, L.P2P_ROW), np.int64)
        rows[:, L.P2P_CHANNEL] = at + data * L.CHANNEL_ROW
        rows[:, L.P2P_CONTROL] = at + (n_data + control) * L.CHANNEL_ROW
        rows[:, L.P2P_PEER] = peers
        rows[:, L.P2P_BYTES] = size
        return block.add(rows)
