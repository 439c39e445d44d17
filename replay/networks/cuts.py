"""Cuts between the members of a group: how fast bytes can leave parts of a network, and enter them.

Whatever an algorithm does, what has to get from one part of the members to the others crosses the links between them.
The parts of each kind of cut share nothing:

- each member;
- the NPUs that are equal in some dimensions, such as those of a machine, whose ports are what leaves it. On lists of
  links with the switches that lead to them alone, and with those that are nearest to them alone, up to any number of
  links away: a port may be a vertex;
- the two halves of each ring, a dimension's lines all cut at once: two links lead out of a half of a line;
- on lists of links what hangs together below a level of switches, such as the machines at a leaf or the leaves of a
  pod: the level's links are what leaves it.

Only links on ways between members count, as `chakra.replay.networks.first_links` finds them; of building blocks those
that messages take through one dimension after the other.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from chakra.arrays import F64, I64, components, distinct
from chakra.replay.config.model import Dimension, Links, LinkTopology, Network, Topology
from chakra.replay.networks.first_links import FirstLinks
from chakra.replay.symmetry.classes import coordinates


@dataclass(frozen=True, slots=True)
class Cut:
    """Parts of a network that hold the members of a group.

    Attributes
    ----------
    part
        Number of the part that holds each member.
    out_gibps, into_gibps
        GB/s of 2^30 B/s of the links that lead from each part towards other members, and from these into it.
    """

    part: I64
    out_gibps: F64
    into_gibps: F64

    @property
    def members(self) -> I64:
        """Members in each part."""
        return np.bincount(self.part)

    def splits(self, domains: I64) -> bool:
        """Whether members of one domain lie in several parts; numbers of the members' domains."""
        pairs = np.unique(np.stack([domains, self.part]), axis=1)
        return bool(pairs.shape[1] > len(distinct(domains)))


def sets_of_dims(dims: int) -> list[tuple[int, ...]]:
    """Sets of dimensions in which the NPUs of a part are equal: from one on to the last, and one alone."""
    onward = [tuple(range(k, dims)) for k in range(dims)]
    return list(dict.fromkeys([*onward, *((k,) for k in range(dims))]))


# -- building blocks -----------------------------------------------------------------------------------------------------


def block_cuts(network: Network, members: I64) -> list[Cut]:
    """Cuts of building blocks between members, the first between each of them and the others."""
    where = coordinates(network, members)
    ways = [lanes(dim.topology, where[:, k], dim.npus) for k, dim in enumerate(network.dims)]
    cuts = []
    for equal in sets_of_dims(len(network.dims)):
        parts, part = np.unique(where[:, equal], axis=0, return_inverse=True)
        part = part.reshape(-1)
        if len(parts) < 2:
            continue
        one = np.unique(part, return_index=True)[1]
        out, into = np.zeros(len(parts)), np.zeros(len(parts))
        for k in equal:
            lines_out, lines_in = _lines(where, part, k, equal)
            leaves, enters = ways[k]
            gibps = network.dims[k].bandwidth_gibps
            out += lines_out * leaves[one] * gibps
            into += lines_in * enters[one] * gibps
        cuts.append(Cut(part, out, into))
    cuts += [
        cut
        for k, dim in enumerate(network.dims)
        if dim.topology is Topology.RING and (cut := _ring_halves(where, k, dim)) is not None
    ]
    return cuts


def _lines(where: I64, part: I64, k: int, equal: Sequence[int]) -> tuple[I64, I64]:
    """Lines of dimension k that messages out of each part take, and those into it; parts are equal in some dimensions."""
    # messages go through one dimension after the other: at dimension k they are where they are going in those below it,
    # and where they come from in those above
    parts = int(part.max()) + 1
    below = [j for j in range(k) if j not in equal]
    above = [j for j in range(k + 1, where.shape[1]) if j not in equal]
    inside = [_places(where[:, some], part, parts) for some in (below, above)]
    outside = [_places_of_others(where[:, some], part, parts) for some in (below, above)]
    return outside[0] * inside[1], inside[0] * outside[1]


def _ring_halves(where: I64, k: int, dim: Dimension) -> Cut | None:
    """The members on the one half of the places that they have on a ring, and those on the other; None: too few places.

    Two places, or three, have no cut but those of each place.
    """
    places, which = np.unique(where[:, k], return_inverse=True)
    if len(places) < 4:
        return None
    half = len(places) // 2
    part = (which.reshape(-1) >= half).astype(np.int64)
    # links that join the halves: in their middle, and round the ring
    middle = int(places[half] - places[half - 1])
    around = int(places[0] - places[-1]) % dim.npus
    up, down = _way(np.array([middle, around]), dim.npus)
    leaves = np.array([up[0] + down[1], down[0] + up[1]])
    lines_out, lines_in = _lines(where, part, k, [k])
    return Cut(part, lines_out * leaves * dim.bandwidth_gibps, lines_in * leaves[::-1] * dim.bandwidth_gibps)


def _way(ahead: I64, n: int) -> tuple[I64, I64]:
    """Whether messages between neighbours so many places apart on a ring take the links between them, up and down."""
    # the shorter way round, ascending on a tie
    return (2 * ahead <= n).astype(np.int64), (2 * ahead < n).astype(np.int64)


def _places(where: I64, part: I64, parts: int) -> I64:
    """How many different rows each part has."""
    if not where.shape[1]:
        return np.ones(parts, np.int64)
    return np.bincount(np.unique(np.column_stack([part, where]), axis=0)[:, 0], minlength=parts)


def _places_of_others(where: I64, part: I64, parts: int) -> I64:
    """How many different rows there are outside each part."""
    if not where.shape[1]:
        return np.full(parts, int(parts > 1))
    rows, number = np.unique(where, axis=0, return_inverse=True)
    pairs = np.unique(np.stack([number.reshape(-1), part], axis=1), axis=0)
    alone = np.bincount(pairs[:, 0], minlength=len(rows)) == 1
    return len(rows) - np.bincount(pairs[alone[pairs[:, 0]], 1], minlength=parts)


def lanes(topology: Topology | LinkTopology, at: I64, n: int) -> tuple[I64, I64]:
    """Links of a dimension of n positions over which each member sends to other positions, and receives from them."""
    places, which = np.unique(at, return_inverse=True)
    which = which.reshape(-1)
    if len(places) < 2:
        return np.zeros(len(at), np.int64), np.zeros(len(at), np.int64)
    if topology is Topology.FULLY_CONNECTED:
        every = np.full(len(at), len(places) - 1)
        return every, every
    if topology is not Topology.RING:
        return np.ones(len(at), np.int64), np.ones(len(at), np.int64)
    up, down = _way((np.roll(places, -1) - places) % n, n)
    return (up + np.roll(down, 1))[which], (np.roll(up, 1) + down)[which]


# -- lists of links ------------------------------------------------------------------------------------------------------


class LinkCuts:
    """Cuts of a network that is given link by link."""

    def __init__(self, network: Network, links: Links, first: FirstLinks) -> None:
        self._network, self._first = network, first
        self._vertices = network.npus + len(links.vertices)
        self._tail = np.array([x.src for x in links.links], np.int64)
        self._head = np.array([x.dst for x in links.links], np.int64)
        self._gibps = np.array([x.bandwidth_gibps for x in links.links], np.float64)

    def within(self, groups: Sequence[I64]) -> list[list[Cut]]:
        """Cuts between the members of groups, the first of each between every member and the others."""
        out = []
        for members, found in zip(groups, self._first.within(groups), strict=True):
            tail, head = self._tail[found.links], self._head[found.links]
            gibps = self._gibps[found.links]
            into = _sums(head, gibps, self._vertices)[members]
            cuts = [Cut(np.arange(len(members)), found.sent_gibps, into)]
            for part in self._parts:
                leaves, enters = part[tail], part[head]
                crosses = leaves != enters
                out_of, into_of = (
                    _sums(some[chosen := crosses & (some >= 0)], gibps[chosen], self._vertices)
                    for some in (leaves, enters)
                )
                held, held_by = np.unique(part[members], return_inverse=True)
                if len(held) > 1:
                    cuts.append(Cut(held_by.reshape(-1), out_of[held], into_of[held]))
            out.append(cuts)
        return out

    @cached_property
    def _parts(self) -> list[I64]:
        """Number of the part that each vertex lies in, -1 for none, of each kind of parts but each NPU alone."""
        npus = self._network.npus
        known = {np.arange(npus).tobytes(): np.zeros(0, np.int64)}
        for part in (*self._of_dims(), *self._of_halves(), *self._of_levels()):
            shown = part if (part[npus:] >= 0).any() else part[:npus]
            known.setdefault(shown.tobytes(), part)
        return [part for part in known.values() if len(part)]

    @cached_property
    def _level(self) -> I64:
        """Links between each vertex and the NPU that is nearest."""
        level = np.full(self._vertices, self._vertices)
        level[: self._network.npus] = 0
        before = -1
        while before != (before := int(level.sum())):
            np.minimum.at(level, self._head, level[self._tail] + 1)
            np.minimum.at(level, self._tail, level[self._head] + 1)
        return level

    def _of_dims(self) -> Iterator[I64]:
        """NPUs that are equal in some dimensions, with the switches that lead to no others, and with those up to a level
        whose nearest NPUs all are.
        """
        npus, level = self._network.npus, self._level
        switched = np.minimum(self._tail, self._head) >= npus
        joined = components(self._vertices, self._tail[switched], self._head[switched])
        where = coordinates(self._network, np.arange(npus))
        for equal in sets_of_dims(len(self._network.dims)):
            lowest, highest = np.full(self._vertices, self._vertices), np.full(self._vertices, -1)
            lowest[:npus] = highest[:npus] = np.unique(where[:, equal], axis=0, return_inverse=True)[
                1
            ].reshape(-1)
            if highest.max() == 0:
                continue
            part = np.where(level == 0, lowest, -1)
            yield part
            first, last = lowest.copy(), highest.copy()
            for npu, other in ((self._tail, self._head), (self._head, self._tail)):
                port = (npu < npus) & (other >= npus)
                np.minimum.at(first, joined[other[port]], lowest[npu[port]])
                np.maximum.at(last, joined[other[port]], highest[npu[port]])
            alone = (first == last)[joined] & (level > 0)
            if alone.any():
                yield np.where(alone, first[joined], part)
            for above in range(1, int(level.max()) + 1):
                for near, far in ((self._tail, self._head), (self._head, self._tail)):
                    up = (level[near] == above - 1) & (level[far] == above)
                    np.minimum.at(lowest, far[up], lowest[near[up]])
                    np.maximum.at(highest, far[up], highest[near[up]])
                own = (level == above) & (lowest == highest)
                if not own.any():
                    break
                part = np.where(own, lowest, part)
                yield part

    def _of_halves(self) -> Iterator[I64]:
        """The two halves of the NPUs along each dimension, where links join NPUs: on rings and meshes few cross."""
        npus = self._network.npus
        if not ((self._tail < npus) & (self._head < npus)).any():
            return
        where = coordinates(self._network, np.arange(npus))
        for k, dim in enumerate(self._network.dims):
            if dim.npus >= 4:
                part = np.full(self._vertices, -1)
                part[:npus] = where[:, k] >= dim.npus // 2
                yield part

    def _of_levels(self) -> Iterator[I64]:
        """What links below a level join."""
        level = self._level
        for below in range(int(level.max())):
            joined = (level[self._tail] <= below) & (level[self._head] <= below)
            lowest = components(self._vertices, self._tail[joined], self._head[joined])
            held = distinct(lowest[: self._network.npus])
            if len(held) < 2:
                return
            part = np.full(self._vertices, -1)
            part[held] = np.arange(len(held))
            part = part[lowest]
            yield np.where(level <= below, part, -1)


def _sums(number: I64, gibps: F64, count: int) -> F64:
    """Sums of bandwidths by number."""
    return np.bincount(number, gibps, minlength=count).astype(np.float64)
