"""Trees of switches that carry collectives out, on networks given link by link.

The root is the switch that is nearest to the farthest member, then nearest to all; each member's way up is a shortest one
that NPUs do not forward. Among equals the lowest member's number chooses, so that trees of many groups spread. A member
stands for the links of its way that no member before it uses: all members together use each link of the tree once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from chakra.arrays import I64
from chakra.errors import ConfigError
from chakra.replay.config.algorithms import IN_NETWORK
from chakra.replay.config.model import Network


@dataclass(frozen=True, slots=True)
class Branch:
    """What a member of a group stands for in its tree.

    Attributes
    ----------
    up, down
        Numbers of links towards the root and back.
    below
        Members below each of them.
    latency_ns
        Of the member's whole way to the root and back.
    """

    up: tuple[int, ...]
    down: tuple[int, ...]
    below: tuple[int, ...]
    latency_ns: int


class Trees:
    """Trees of groups on one network."""

    def __init__(self, network: Network) -> None:
        assert network.links is not None, "trees are for networks given link by link"
        self._network, self._links = network, network.links.links
        self._away: dict[int, I64] = {}

    @cached_property
    def _number(self) -> dict[tuple[int, int], int]:
        return {(link.src, link.dst): k for k, link in enumerate(self._links)}

    @cached_property
    def _near(self) -> list[list[int]]:
        """Neighbours of each vertex over links that run both ways."""
        links = self._network.links
        assert links is not None
        out: list[list[int]] = [[] for _ in range(self._network.npus + len(links.vertices))]
        for a, b in self._number:
            if (b, a) in self._number:
                out[a].append(b)
        return [sorted(near) for near in out]

    def _hops(self, start: int) -> I64:
        """Hops from a vertex to all others, over switches; -1: there is no way."""
        if start not in self._away:
            found = np.full(len(self._near), -1, np.int64)
            found[start] = 0
            edge = [start]
            while edge:
                after: list[int] = []
                for here in edge:
                    if here < self._network.npus and here != start:
                        continue
                    for there in self._near[here]:
                        if found[there] < 0:
                            found[there] = found[here] + 1
                            after.append(there)
                edge = after
            self._away[start] = found
        return self._away[start]

    def _from_npu(self, npu: int) -> I64:
        """Hops from an NPU; many NPUs have one switch, whose hops are known after the first."""
        near = self._near[npu]
        if len(near) != 1 or near[0] < self._network.npus:
            return self._hops(npu)
        away = self._hops(near[0])
        return np.where(away < 0, away, away + 1)

    def of(self, members: Sequence[int]) -> list[Branch]:
        """The branch of each member, in their order.

        Raises
        ------
        ConfigError
            If no switch joins all members over links that run both ways.
        """
        npus, turn = self._network.npus, min(members)
        away = np.stack([self._from_npu(member) for member in members])[:, npus:]
        joined = (away >= 0).all(axis=0)
        if not joined.any():
            raise ConfigError(
                f"{self._network.source}: algorithm {IN_NETWORK!r}: no switch joins the NPUs "
                f"{', '.join(map(str, sorted(members)[:8]))} over links that run both ways"
            )
        far, all_ways = away.max(axis=0), away.sum(axis=0)
        nearest = joined & (far == far[joined].min())
        best = np.flatnonzero(nearest & (all_ways == all_ways[nearest].min()))
        root = npus + int(best[turn % len(best)])
        ways = [self._way(member, root, turn) for member in members]
        below: dict[tuple[int, int], int] = {}
        for way in ways:
            for hop in way:
                below[hop] = below.get(hop, 0) + 1
        done: set[tuple[int, int]] = set()
        out = []
        for way in ways:
            own = [hop for hop in way if hop not in done]
            done.update(own)
            up = tuple(self._number[hop] for hop in own)
            down = tuple(self._number[b, a] for a, b in own)
            both = [k for a, b in way for k in (self._number[a, b], self._number[b, a])]
            latency = int(sum(self._links[k].latency_ns for k in both))
            out.append(Branch(up, down, tuple(below[hop] for hop in own), latency))
        return out

    def _way(self, member: int, root: int, turn: int) -> list[tuple[int, int]]:
        """Hops from a member to the root; all that come to a vertex go on alike."""
        away, here, out = self._hops(root), member, []
        while here != root:
            npus = self._network.npus
            nearer = [v for v in self._near[here] if v >= npus and away[v] == away[here] - 1]
            there = nearer[turn % len(nearer)]
            out.append((here, there))
            here = there
        return out
