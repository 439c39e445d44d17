"""Routes hop by hop between NPUs at the edge, whose distances are searched for once for each class of twins (`twins.py`).

Exchanging two twins changes nothing of the graph. So the distance of a vertex to a twin of the one that was searched
from is that to the other, but for the two themselves, which change places. One search tells the routes to all leaf
switches of a pod; which of several equal links a pair takes is looked up only where its route comes by.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from chakra.arrays import I64, bounds, distinct, ranges
from chakra.replay.networks.flow.found import Found
from chakra.replay.networks.flow.graph import Graph, csr_of
from chakra.replay.networks.flow.nearest import Distances, SearchKernel
from chakra.replay.networks.flow.search import FAR
from chakra.replay.networks.flow.twins import Ports, Twins
from chakra.replay.networks.routes import pick_next

#: how often the links are looked at: to find the best ports, and to walk
LOOKS = 2
#: links that are looked at in one go, which bounds memory
MOST_LINKS = 1 << 20


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Pairs whose routes leave and arrive by one best link each.

    Attributes
    ----------
    pair, key
        Their numbers, and sender * NPUs + receiver.
    first, last
        The links at both ends.
    receiver
        The NPU.
    """

    pair: I64
    key: I64
    first: I64
    last: I64
    receiver: I64

    def of(self, rows: I64) -> "_Pairs":
        """Some of them."""
        return _Pairs(self.pair[rows], self.key[rows], self.first[rows], self.last[rows], self.receiver[rows])


def walked_by_twins(
    g: Graph, ecmp: str, keys: I64, pair: I64, found: Found, kernel_for: Callable[[int], SearchKernel]
) -> I64:
    """Add the routes of the pairs that twins tell to `found`; returns the numbers of the others.

    Parameters
    ----------
    ecmp
        How one of several equal links is picked: `pick_next`.
    keys
        Sender * NPUs + receiver of all pairs.
    pair
        Numbers of the pairs whose routes are looked for, ascending.
    kernel_for
        The search, for so many links that are looked at.
    """
    mine, src, dst = g.at_edge(pair, *np.divmod(keys[pair], g.npus))
    twins = Twins(g)
    stands, like = np.unique(g.stand[src] * g.vertices + g.stand[dst], return_inverse=True)
    like = like.reshape(-1)
    walk = _Walk(g, twins, kernel_for)
    ports = Ports(g, twins, *np.divmod(stands, g.vertices))
    port_out, port_in, kind = ports.best(walk.lengths(ports.kinds))
    known = np.flatnonzero(kind[like] >= 0)
    src, dst, like = src[known], dst[known], like[known]
    pairs = _Pairs(
        mine[known],
        keys[mine[known]],
        g.all_out.item[g.all_out.start[src] + port_out[like]],
        g.all_in.item[g.all_in.start[dst] + port_in[like]],
        dst,
    )
    walk.add(ecmp, pairs, found)
    return pair[~np.isin(pair, pairs.pair)]


class _Walk:
    """Routes over vertices that forward, one class of twins that they lead to after the other."""

    def __init__(self, g: Graph, twins: Twins, kernel_for: Callable[[int], SearchKernel]) -> None:
        self._graph, self._twins, self._kernel_for = g, twins, kernel_for
        self._distances = Distances(g, twins.into, twins.equal)
        # in the order of the file, in which equal links are counted
        links = np.sort(twins.out.item)
        self._out = csr_of(g.tail[links], links, g.vertices)

    def lengths(self, kinds: I64) -> I64:
        """Length of the way between two vertices of each kind (`twins.Ports`)."""
        begin, end = self._twins.ends_of(kinds)
        out = np.where(kinds % 2 == 1, 0, FAR)
        apart = np.flatnonzero(kinds % 2 == 0)
        order = apart[np.argsort(end[apart], kind="stable")]
        kernel = self._kernel_for(len(distinct(end[apart])) * len(self._out.item) * LOOKS)
        for mine in _runs(order, end):
            reached = self._distances.towards(kernel, int(end[mine[0]]), distinct(begin[mine]))
            out[mine] = self._distances.dist[begin[mine]]
            self._distances.forget(reached)
        return out

    def add(self, ecmp: str, pairs: _Pairs, found: Found) -> None:
        """One route for each pair, hop by hop: all pairs whose last switches are twins together."""
        g, twins = self._graph, self._twins
        found.add(pairs.pair, 0, pairs.first)
        begin, end = g.head[pairs.first], g.tail[pairs.last]
        beside = np.flatnonzero(begin == end)
        found.add(pairs.pair[beside], 1, pairs.last[beside])
        apart = np.flatnonzero(begin != end)
        of = twins.class_of[end]
        order = apart[np.argsort(of[apart], kind="stable")]
        kernel = self._kernel_for(len(distinct(of[apart])) * len(self._out.item) * LOOKS)
        for mine in _runs(order, of):
            to = int(twins.first[of[mine[0]]])
            here, there = begin[mine], end[mine]
            # from the one that was searched from to its twin it is as far as back
            reached = self._distances.towards(kernel, to, distinct(np.where(here == to, there, here)))
            self._walk_to(ecmp, to, pairs.of(mine), found)
            self._distances.forget(reached)

    def _walk_to(self, ecmp: str, to: int, pairs: _Pairs, found: Found) -> None:
        g = self._graph
        here, end, left = g.head[pairs.first], g.tail[pairs.last], pairs.receiver
        ahead = self._distances.dist[_exchanged(here, end, to)]
        step = 1
        while len(here):
            link, count, place = self._nearer(here, end, ahead, to)
            pick = pick_next(ecmp, pairs.key, here, left, count)
            hop = link[place + pick]
            found.add(pairs.pair, step, hop)
            step += 1
            here, ahead, left = g.head[hop], ahead - g.length[hop], left // count
            done = np.flatnonzero(here == end)
            found.add(pairs.pair[done], step, pairs.last[done])
            going = np.flatnonzero(here != end)
            pairs = pairs.of(going)
            here, end, ahead, left = here[going], end[going], ahead[going], left[going]

    def _nearer(self, here: I64, end: I64, ahead: I64, to: int) -> tuple[I64, I64, I64]:
        """Links from vertices that lie on shortest ways to ends: all links, how many each has, and where they begin."""
        g, out = self._graph, self._out
        degree = out.start[here + 1] - out.start[here]
        total = bounds(degree)
        parts: list[I64] = []
        count = np.zeros(len(here), np.int64)
        begin = 0
        while begin < len(here):
            stop = max(int(np.searchsorted(total, total[begin] + MOST_LINKS, side="right")) - 1, begin + 1)
            row = np.repeat(np.arange(begin, stop), degree[begin:stop])
            link = out.item[ranges(out.start[here[begin:stop]], degree[begin:stop])]
            far = self._distances.dist[_exchanged(g.head[link], end[row], to)] + g.length[link]
            good = far == ahead[row]
            parts.append(link[good])
            count += np.bincount(row[good], minlength=len(here))
            begin = stop
        return np.concatenate(parts), count, bounds(count)[:-1]


def _exchanged(vertex: I64, end: I64, to: int) -> I64:
    """Vertices after `to` and its twin `end` have changed places."""
    return np.where(vertex == end, to, np.where(vertex == to, end, vertex))


def _runs(order: I64, value: I64) -> list[I64]:
    """Rows in an order in which equal values lie together, value after value."""
    if not len(order):
        return []
    return np.split(order, np.flatnonzero(np.diff(value[order])) + 1)
