"""Who sends how much to whom in a phase: what books of bytes per dimension and per link are kept from.

The same messages as those that the engines time (replay semantics, section 4.2), without their times.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from chakra.arrays import I64
from chakra.replay.collectives.algorithms import Family
from chakra.replay.collectives.in_network import port_bytes
from chakra.replay.collectives.library.choice import EXCHANGES
from chakra.replay.collectives.library.in_effect import PlacedLibrary
from chakra.replay.collectives.plan import Phase, library_sent
from chakra.replay.collectives.steps import Do, Steps
from chakra.replay.collectives.uneven import pair_bytes
from chakra.replay.config.model import CollectiveKind
from chakra.replay.engines.kernels import packets
from chakra.replay.engines.phases.durations import tree_tables


@dataclass(frozen=True, slots=True)
class Messages:
    """Equal or unequal messages of one round, or of one kind: positions on the ring, bytes, and how often."""

    source: I64
    target: I64
    #: bytes of each message
    size: I64
    #: how often each of them is sent
    count: int = 1

    @property
    def total_bytes(self) -> int:
        """Bytes of all of them."""
        return int(self.size.sum()) * self.count


def phase_messages(phase: Phase, steps: Steps | None = None) -> Iterator[Messages]:
    """All messages of a phase on one ring; clockwise, where an algorithm has a direction.

    Parameters
    ----------
    phase
        The phase.
    steps
        Its schedule, if the algorithm is a table of steps.
    """
    n, d, do = phase.size, phase.bytes, phase.do
    index = np.arange(n)
    if steps is not None:
        share = steps.messages[:, 2]
        size = d // steps.whole * share + -(-(d % steps.whole * share) // steps.whole)
        yield Messages(steps.messages[:, 0], steps.messages[:, 1], size)
        return
    if phase.algorithm.family in (Family.NONE, Family.CUSTOM) or n < 2:
        return
    if phase.sizes is not None:
        # a library's, too: what it sends to whom is not known, but how much
        source, target = np.nonzero(pairs := pair_bytes(do, phase.sizes.sizes))
        yield Messages(source, target, pairs[source, target])
        return
    if phase.algorithm.family is Family.TREE:
        parent = tree_tables(n)[:n]
        child = np.flatnonzero(parent >= 0)
        size = np.full(len(child), d)
        yield Messages(child, parent[child], size)
        yield Messages(parent[child], child, size)
        return
    if phase.algorithm.family is Family.LIBRARY:
        # a ring's: what the library's algorithm sends between which members depends on where they lie
        # (`library_messages`)
        yield Messages(index, (index + 1) % n, np.full(n, library_sent(phase)))
        return
    if phase.algorithm.family is Family.SWITCH:
        # into the switch that joins the members; what comes out of it is nobody's
        yield Messages(index, (index + 1) % n, np.full(n, port_bytes(do, d, n)[0]))
        return
    family, number = int(phase.algorithm.family), int(do)
    sent = packets.packet_count(family, number, n)
    if phase.algorithm.family is Family.HALVING_DOUBLING:
        for p in range(sent):
            target = np.array([packets.packet_partner(family, number, n, sent, p, i, 1) for i in range(n)])
            yield Messages(
                index, target, np.full(n, packets.packet_bytes(family, number, n, sent, d, p, phase.as_astra))
            )
        return
    size = np.full(n, packets.packet_bytes(family, number, n, sent, d, 0, phase.as_astra))
    if phase.algorithm.family is Family.RING:
        yield Messages(index, (index + 1) % n, size, sent)
        return
    for k in range(1, n):
        yield Messages(index, (index + k) % n, size, 2 if do is Do.ALL_REDUCE else 1)


def library_messages(library: PlacedLibrary, phase: Phase, npus: I64) -> Iterator[Messages]:
    """All messages of a collective of a library, between the places of its members `npus`.

    Those of the backends on which messages share links (`chakra.replay.collectives.library.messages`).
    """
    kind = CollectiveKind(phase.algorithm.kind)
    if phase.sizes is not None and kind in EXCHANGES:
        yield from phase_messages(phase)
        return
    sent: dict[tuple[int, int], int] = {}
    for lane in library.lanes(kind, phase.bytes, npus):
        for target, size in zip(lane.target.tolist(), lane.size.tolist(), strict=True):
            sent[lane.source, target] = sent.get((lane.source, target), 0) + size
    pairs = np.array(list(sent), np.int64).reshape(-1, 2)
    yield Messages(pairs[:, 0], pairs[:, 1], np.array(list(sent.values()), np.int64))
