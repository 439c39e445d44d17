"""Paths on networks of single links, for any number of NPUs: only pairs that exchange messages are looked for.

Receiver by receiver; those between NPUs at the edge by classes of switches (`twins.py`, `hops.py`).
"""

from typing import Any

import numpy as np

from chakra.arrays import I64, bounds, distinct, ranges
from chakra.errors import ConfigError
from chakra.io.limits import MAX_LINKED_NPUS
from chakra.io.readable import counted
from chakra.jit import compiled, worth_compiling
from chakra.replay.config.model import Links, Network
from chakra.replay.networks.flow.found import Found
from chakra.replay.networks.flow.graph import Graph
from chakra.replay.networks.flow.hops import walked_by_twins
from chakra.replay.networks.flow.nearest import Distances, SearchKernel
from chakra.replay.networks.flow.paths import Paths, common_parts, distinct_pairs
from chakra.replay.networks.flow.search import FAR
from chakra.replay.networks.flow.sections import Sections, in_sections
from chakra.replay.networks.flow.slowest import with_slowest
from chakra.replay.networks.flow.twins import MOST_WAYS, joined_by_twins
from chakra.replay.networks.routes import SPLITTING, given_routes, pick_next

KERNEL = "chakra.replay.networks.flow.search"
#: links looked at from which compiled code pays: loaded, in the cache, to be compiled first
COMPILE_FROM = (20_000, 150_000, 5_000_000)
#: how often the links are looked at where all equal paths count: distances, numbers of paths, links on them
SPRAYED = 3
#: equal paths among which an adaptive flow chooses
MOST_CHOICES = 16


def link_paths(network: Network, pairs: I64) -> Paths:
    """Routes of the pairs of NPUs that exchange messages.

    Parameters
    ----------
    network
        With `links`.
    pairs
        Sending and receiving NPU, shape (pairs, 2).

    Raises
    ------
    ConfigError
        When a pair has no route, or a sprayed one too many, or there are more NPUs than are looked at.
    """
    return link_sections(network, pairs).paths() if _sprayed(network) else _searched(network, pairs)


def link_sections(network: Network, pairs: I64) -> Sections:
    """The same, in sections that pairs share; a pair has one route."""
    if not _sprayed(network):
        return in_sections(_searched(network, pairs))
    links = _links(network)
    keys = distinct_pairs(pairs, network.npus)
    found, left = _given(network, links, keys)
    graph = Graph(network, links)
    joined = joined_by_twins(graph, left, *np.divmod(keys[left], network.npus), _kernel)
    _check_ways(network.source, joined.most)
    left = left[~np.isin(left, joined.pair)]
    if len(left):
        _Search(network, links, graph, keys, left, found).run()
    whole, _ = common_parts(found.totals.union(distinct(joined.of).tolist()))
    others = with_slowest(found.paths(keys, network.npus, whole), links)
    # the pairs that were searched for one by one have sections of their own
    apart = np.ones(len(keys), bool)
    apart[joined.pair] = False
    rest = np.flatnonzero(apart)
    uses = np.ones(len(keys), np.int64)
    uses[joined.pair] = np.diff(joined.start)
    start = bounds(uses)
    section = np.empty(int(start[-1]), np.int64)
    section[start[rest]] = len(joined.begin) - 1 + np.arange(len(rest))
    section[ranges(start[joined.pair], np.diff(joined.start))] = joined.section
    latency = others.latency_ns.copy()
    latency[joined.pair] = joined.latency_ns
    return Sections(
        src=others.src,
        dst=others.dst,
        latency_ns=latency,
        start=start,
        section=section,
        begin=np.concatenate([joined.begin, joined.begin[-1] + others.start[rest + 1]]),
        link=np.concatenate([joined.link, others.link]),
        weight=np.concatenate([-(-joined.ways * whole // joined.of), others.weight]),
        whole=whole,
        bytes_per_ns=others.bytes_per_ns,
    )


def _sprayed(network: Network) -> bool:
    return network.links is not None and network.links.ecmp == "spray"


def _links(network: Network) -> Links:
    """The links, of a network of which routes are looked for."""
    links = network.links
    if links is None:
        raise ValueError("the network has building blocks, not links")
    n = network.npus
    if n > MAX_LINKED_NPUS:
        raise ConfigError(
            f"{network.source}: {counted(n, 'NPU')}; a network of single links has at most {MAX_LINKED_NPUS}, "
            "larger ones are "
            "described by building blocks"
        )
    return links


def _searched(network: Network, pairs: I64) -> Paths:
    """Routes of pairs, receiver by receiver."""
    links = _links(network)
    keys = distinct_pairs(pairs, network.npus)
    found, left = _given(network, links, keys)
    if len(left):
        graph = Graph(network, links)
        if links.ecmp not in SPLITTING:
            left = walked_by_twins(graph, links.ecmp, keys, left, found, _kernel)
        if len(left):
            _Search(network, links, graph, keys, left, found).run()
    whole, _ = common_parts(found.totals)
    return with_slowest(found.paths(keys, network.npus, whole), links)


def _given(network: Network, links: Links, keys: I64) -> tuple[Found, I64]:
    """Routes that the network's file gives, and the numbers of the pairs that have none."""
    given = given_routes(network, links, keys)
    found = Found(links, len(keys))
    left = np.arange(len(keys))
    if given:
        place = {int(key): i for i, key in enumerate(keys.tolist())}
        for key, route in given.items():
            found.add_one(place[key], route)
        left = left[~np.isin(keys, np.fromiter(given, np.int64, len(given)))]
    return found, left


def _kernel(looked_at: int) -> SearchKernel:
    """The search, compiled where so many links are looked at that it pays."""
    if worth_compiling(KERNEL, *COMPILE_FROM, looked_at):
        kernel: SearchKernel = compiled(KERNEL)
        return kernel
    from chakra.replay.networks.flow import search

    return search


def _check_ways(source: str, ways: int) -> None:
    if ways > MOST_WAYS:
        raise ConfigError(
            f"{source}: ecmp: spray: more than {MOST_WAYS:,} equal paths between two NPUs; use another ecmp"
        )


class _Search:
    """Shortest paths of pairs of NPUs over the links of a network."""

    def __init__(self, network: Network, links: Links, g: Graph, keys: I64, pairs: I64, found: Found) -> None:
        self.source, self.ecmp, self.keys, self.found = network.source, links.ecmp, keys, found
        self.graph = g
        self.pair = pairs
        self.real_src, self.real_dst = np.divmod(keys[pairs], network.npus)
        self.src, self.dst = g.stand[self.real_src], g.stand[self.real_dst]
        self.distances = Distances(g, g.into, g.equal)
        self.dist = self.distances.dist
        self.ways, self.paths, self.frontier = (np.zeros(g.vertices + 1, np.int64) for _ in range(3))
        self.place, self.count = (np.zeros(g.vertices, np.int64) for _ in range(2))
        self.out_link, self.out_ways = (np.zeros(len(g.into.item) + 1, np.int64) for _ in range(2))
        self.core = (g.out.start, g.out.item, g.head, g.length, g.closed)
        self.kernel: Any = None

    def run(self) -> None:
        """Look for the routes of all pairs, receiver after receiver."""
        order = np.lexsort((self.src, self.dst))
        edges = np.flatnonzero(np.diff(self.dst[order], prepend=-1))
        looked_at = len(edges) * len(self.graph.into.item) * (SPRAYED if self.ecmp == "spray" else 1)
        self.kernel = _kernel(looked_at)
        for group in np.split(order, edges[1:]):
            self._towards(int(self.dst[group[0]]), group)

    def _towards(self, to: int, group: I64) -> None:
        """Routes of pairs that have a receiver in common; those of equal ends lie together."""
        g = self.graph
        own = g.out.of(np.array([to]))
        senders = distinct(self.src[group])
        within = bool((senders == to).any())
        marked = senders[senders != to]
        if within:
            marked = distinct(np.concatenate([marked, g.head[own]]))
        reached = self.distances.towards(self.kernel, to, marked)
        if within:  # out of the NPU and back to those for which it stands: over the nearest of its neighbours
            far = np.minimum(g.length[own] + self.dist[g.head[own]], FAR)
            own = own[(far == far.min(initial=FAR)) & (far < FAR)]
        lost = group[np.where(self.src[group] == to, len(own) == 0, self.dist[self.src[group]] >= FAR)]
        if len(lost):
            a, b = int(self.real_src[lost[0]]), int(self.real_dst[lost[0]])
            raise ConfigError(f"{self.source}: there is no route from NPU {a} to NPU {b}")
        if self.ecmp == "spray":
            self._spray(to, group, own, reached)
        elif self.ecmp == "adaptive":
            self._choices(to, group, own)
        else:
            self._walk(to, group, own, np.sort(reached))
        self.distances.forget(reached)

    def _walk(self, to: int, group: I64, own: I64, reached: I64) -> None:
        """One route for each pair: hop by hop, all pairs of a receiver together."""
        g = self.graph
        link = g.out.of(reached)
        head, tail = g.head[link], g.tail[link]
        good = (self.dist[tail] == self.dist[head] + g.length[link]) & ((g.closed[head] == 0) | (head == to))
        link = np.concatenate([link[good], own])
        tail = g.tail[link]
        begins = np.flatnonzero(np.diff(tail[: len(link) - len(own)], prepend=-1))
        place, count = (
            self.place,
            self.count,
        )  # of other vertices they are of a receiver before: nobody comes there
        place[tail[begins]] = begins
        count[tail[begins]] = np.diff(np.append(begins, len(link) - len(own)))
        place[to], count[to] = len(link) - len(own), len(own)
        mine, here, left = group, self.src[group], self.real_dst[group]
        vertex = self.real_src[group]
        step = 0
        while len(mine):
            pick = pick_next(self.ecmp, self.keys[self.pair[mine]], vertex, left, count[here])
            left = left // count[here]
            hop = link[place[here] + pick]
            shown = g.first_links(hop, self.real_src[mine]) if step == 0 else hop
            here = g.head[hop]
            going = here != to
            last = np.flatnonzero(~going)
            shown[last] = g.last_links(shown[last], self.real_dst[mine[last]]) if step else shown[last]
            self.found.add(self.pair[mine], step, shown)
            mine, here, left = mine[going], here[going], left[going]
            vertex = here
            step += 1

    def _spray(self, to: int, group: I64, own: I64, reached: I64) -> None:
        g = self.graph
        self.kernel.count_paths(*self.core, to, self.dist, reached, len(reached), self.paths)
        _check_ways(self.source, int(self.paths[reached].max()))
        edges = np.flatnonzero(np.diff(self.src[group], prepend=-1))
        for part in np.split(group, edges[1:]):
            src = int(self.src[part[0]])
            if src == to:
                link, ways = self._spray_own(to, own)
                total = int(self.paths[g.head[own]].sum())
            else:
                k = self._sprayed(src, to, 0)
                link, ways, total = self.out_link[:k].copy(), self.out_ways[:k].copy(), int(self.paths[src])
            rows = np.broadcast_to(link, (len(part), len(link))).copy()
            first, last = np.flatnonzero(g.tail[link] == src), np.flatnonzero(g.head[link] == to)
            rows[:, first] = g.first_links(rows[:, first], self.real_src[part][:, None])
            rows[:, last] = g.last_links(rows[:, last], self.real_dst[part][:, None])
            self.found.add_sprayed(self.pair[part], rows, ways, total)

    def _sprayed(self, src: int, to: int, at: int) -> int:
        return int(
            self.kernel.spray(
                *self.core,
                src,
                to,
                self.dist,
                self.paths,
                self.ways,
                self.frontier,
                self.out_link,
                self.out_ways,
                at,
            )
        )

    def _spray_own(self, to: int, own: I64) -> tuple[I64, I64]:
        """Links out of an NPU and back to those for which it stands, and how many paths use each."""
        k = 0
        for link in own.tolist():
            k = self._sprayed(int(self.graph.head[link]), to, k)
        link = np.concatenate([own, self.out_link[:k]])
        ways = np.concatenate([self.paths[self.graph.head[own]], self.out_ways[:k]])
        distinct, place = np.unique(link, return_inverse=True)
        total = np.zeros(len(distinct), np.int64)
        np.add.at(total, place.reshape(-1), ways)
        return distinct, total

    def _choices(self, to: int, group: I64, own: I64) -> None:
        """The first equal paths of each pair, among which its flows choose."""
        g = self.graph
        start = np.zeros(MOST_CHOICES + 1, np.int64)
        stack = np.zeros(g.vertices + 1, np.int64)
        room = np.zeros((MOST_CHOICES + 1) * (g.vertices + 1), np.int64)
        edges = np.flatnonzero(np.diff(self.src[group], prepend=-1))
        for part in np.split(group, edges[1:]):
            src = int(self.src[part[0]])
            routes: list[list[int]] = []
            for first in own.tolist() if src == to else [-1]:
                begin = src if first < 0 else int(g.head[first])
                k = self.kernel.enumerate_paths(
                    *self.core, begin, to, MOST_CHOICES, self.dist, stack, room, start
                )
                paths = [room[start[i] : start[i + 1]].tolist() for i in range(k)]
                routes += [path if first < 0 else [first, *path] for path in paths]
            for i in part.tolist():
                for choice, route in enumerate(routes[:MOST_CHOICES]):
                    mine = np.array(route, np.int64)
                    mine[:1] = g.first_links(mine[:1], self.real_src[i : i + 1])
                    if len(mine) > 1:
                        mine[-1:] = g.last_links(mine[-1:], self.real_dst[i : i + 1])
                    self.found.add_choice(int(self.pair[i]), choice, mine)
