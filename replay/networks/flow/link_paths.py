"""Paths on networks of single links, for any number of NPUs: only pairs that exchange messages are looked for.

NPUs that lie on no way between others and hang on the same switches by equal links reach others in the same way: one of
them is searched for, and the others' first and last links take the place of its own.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from chakra.arrays import I64, AnyArray
from chakra.errors import ConfigError
from chakra.io.limits import MAX_LINKED_NPUS
from chakra.jit import compiled, worth_compiling
from chakra.replay.config.model import Links, Network
from chakra.replay.networks.flow.found import Found
from chakra.replay.networks.flow.paths import Paths, distinct_pairs
from chakra.replay.networks.flow.slowest import with_slowest
from chakra.replay.networks.routes import given_routes, pick_next, weights

KERNEL = "chakra.replay.networks.flow.search"
#: links looked at from which compiled code pays: loaded, in the cache, to be compiled first
COMPILE_FROM = (20_000, 150_000, 5_000_000)
#: how often the links are looked at where all equal paths count: distances, numbers of paths, links on them
SPRAYED = 3
#: equal paths among which an adaptive flow chooses
MOST_CHOICES = 16
#: links of an NPU up to which NPUs are looked at whether they are alike
MOST_PORTS = 64
#: equal paths of a sprayed flow, so that products of two such numbers fit 64 bits
MOST_WAYS = 1 << 31
#: longer than every way
FAR = 1 << 62


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
    links = network.links
    if links is None:
        raise ValueError("the network has building blocks, not links")
    n = network.npus
    if n > MAX_LINKED_NPUS:
        raise ConfigError(
            f"{network.source}: {n} NPUs; a network of single links has at most {MAX_LINKED_NPUS}, larger ones are "
            "described by building blocks"
        )
    keys = distinct_pairs(pairs, n)
    given = given_routes(network, links, keys)
    found = Found(links, len(keys))
    place = {int(key): i for i, key in enumerate(keys.tolist())} if given else {}
    for key, route in given.items():
        found.add_one(place[key], route)
    open_pairs = np.arange(len(keys))
    if given:
        open_pairs = open_pairs[~np.isin(keys, np.fromiter(given, np.int64, len(given)))]
    if len(open_pairs):
        _Search(network, links, keys, open_pairs, found).run()
    return with_slowest(found.paths(keys, n), links)


@dataclass(frozen=True, slots=True)
class _Csr:
    """Links by a vertex, in the order of the file: those of v are item[start[v]:start[v + 1]]."""

    start: I64
    item: I64

    def of(self, vertices: I64) -> I64:
        """Links of vertices, vertex after vertex."""
        count = self.start[vertices + 1] - self.start[vertices]
        offset = np.repeat(self.start[vertices] - (np.cumsum(count) - count), count)
        out: I64 = self.item[np.arange(int(count.sum())) + offset]
        return out


def _csr(of: I64, items: I64, vertices: int) -> _Csr:
    order = np.argsort(of, kind="stable")
    start = np.zeros(vertices + 1, np.int64)
    np.cumsum(np.bincount(of, minlength=vertices), out=start[1:])
    return _Csr(start, items[order])


class _Graph:
    """Links by vertex, all of them and those of the vertices that are searched.

    Attributes
    ----------
    stand
        NPU that stands for each NPU in the search; other vertices stand for themselves.
    """

    def __init__(self, network: Network, links: Links) -> None:
        n = network.npus
        self.npus, self.vertices = n, n + len(links.vertices)
        self.tail = np.array([x.src for x in links.links], np.int64)
        self.head = np.array([x.dst for x in links.links], np.int64)
        self.length = weights(network)
        self.equal = bool((self.length == 1).all())
        number = np.arange(len(self.tail))
        self.all_out, self.all_in = (
            _csr(self.tail, number, self.vertices),
            _csr(self.head, number, self.vertices),
        )
        self.place_out, self.place_in = _places(self.all_out, self.tail), _places(self.all_in, self.head)
        ends = self._ends(links)
        self.stand = self._stand(ends)
        self.closed = np.zeros(self.vertices, np.int64)
        self.closed[:n] = ends | (not links.npus_forward)
        kept = self.stand == np.arange(self.vertices)
        core = np.flatnonzero(kept[self.tail] & kept[self.head])
        self.into = _csr(self.head[core], core, self.vertices)
        self.out = _csr(self.tail[core], core, self.vertices)

    def _ends(self, links: Links) -> AnyArray:
        """NPUs that lie on no way between others: they do not forward, or have one neighbour; and that is a switch."""
        n = self.npus
        out, into = np.diff(self.all_out.start)[:n], np.diff(self.all_in.start)[:n]
        beside = np.zeros(self.vertices, bool)
        both = (self.tail < n) & (self.head < n)
        beside[self.tail[both]] = beside[self.head[both]] = True
        if not links.npus_forward:
            few: AnyArray = ~beside[:n] & (out <= MOST_PORTS) & (into <= MOST_PORTS)
            return few
        single: AnyArray = (out == 1) & (into == 1) & ~beside[:n]
        to, back = np.zeros(self.vertices, np.int64), np.zeros(self.vertices, np.int64)
        to[self.tail], back[self.head] = self.head, self.tail
        single &= to[:n] == back[:n]
        return single

    def _stand(self, ends: AnyArray) -> I64:
        """Who stands for whom: the first of the NPUs with equal links to the same switches in the same order."""
        stand = np.arange(self.vertices)
        npus = np.flatnonzero(ends)
        if len(npus):
            columns = []
            for csr, other in ((self.all_out, self.head), (self.all_in, self.tail)):
                count = csr.start[npus + 1] - csr.start[npus]
                for k in range(int(count.max())):
                    link = csr.item[np.minimum(csr.start[npus] + k, len(csr.item) - 1)]
                    columns += [
                        np.where(count > k, other[link], -1),
                        np.where(count > k, self.length[link], -1),
                    ]
            rows = np.stack(columns, axis=1)
            _, first, code = np.unique(rows, axis=0, return_index=True, return_inverse=True)
            stand[npus] = npus[first[code.reshape(-1)]]
        return stand

    def first_links(self, link: I64, src: I64) -> I64:
        """The links of NPUs `src` that are what `link` is to those that stand for them."""
        out: I64 = self.all_out.item[self.all_out.start[src] + self.place_out[link]]
        return out

    def last_links(self, link: I64, dst: I64) -> I64:
        """The same for links that end at NPUs `dst`."""
        out: I64 = self.all_in.item[self.all_in.start[dst] + self.place_in[link]]
        return out


def _places(csr: _Csr, of: I64) -> I64:
    """Which of its vertex's links each link is."""
    out = np.empty(len(of), np.int64)
    out[csr.item] = np.arange(len(of)) - csr.start[of[csr.item]]
    return out


class _Search:
    """Shortest paths of pairs of NPUs over the links of a network."""

    def __init__(self, network: Network, links: Links, keys: I64, pairs: I64, found: Found) -> None:
        self.source, self.ecmp, self.keys, self.found = network.source, links.ecmp, keys, found
        self.graph = g = _Graph(network, links)
        self.pair = pairs
        self.real_src, self.real_dst = np.divmod(keys[pairs], network.npus)
        self.src, self.dst = g.stand[self.real_src], g.stand[self.real_dst]
        self.dist = np.full(g.vertices, FAR, np.int64)
        self.queue, self.queued, self.wanted, self.ways, self.paths, self.frontier = (
            np.zeros(g.vertices + 1, np.int64) for _ in range(6)
        )
        self.place, self.count = (np.zeros(g.vertices, np.int64) for _ in range(2))
        self.out_link, self.out_ways = (np.zeros(len(g.into.item) + 1, np.int64) for _ in range(2))
        self.core = (g.out.start, g.out.item, g.head, g.length, g.closed)
        self.kernel: Any = None

    def run(self) -> None:
        """Look for the routes of all pairs, receiver after receiver."""
        order = np.lexsort((self.src, self.dst))
        bounds = np.flatnonzero(np.diff(self.dst[order], prepend=-1))
        looked_at = len(bounds) * len(self.graph.into.item) * (SPRAYED if self.ecmp == "spray" else 1)
        if worth_compiling(KERNEL, *COMPILE_FROM, looked_at):
            self.kernel = compiled(KERNEL)
        else:
            from chakra.replay.networks.flow import search

            self.kernel = search
        for group in np.split(order, bounds[1:]):
            self._towards(int(self.dst[group[0]]), group)

    def _towards(self, to: int, group: I64) -> None:
        """Routes of pairs that have a receiver in common; those of equal ends lie together."""
        g = self.graph
        own = g.out.of(np.array([to]))
        senders = np.unique(self.src[group])
        within = bool((senders == to).any())
        marked = senders[senders != to]
        if within:
            marked = np.union1d(marked, g.head[own])
        self.wanted[marked] = 1
        n = self.kernel.search(
            g.into.start, g.into.item, g.tail, g.length, g.closed, to, self.wanted, len(marked), g.equal,
            self.dist, self.queue, self.queued,
        )  # fmt: skip
        self.wanted[marked] = 0
        reached = self.queue[:n] if g.equal else np.flatnonzero(self.dist < FAR)
        if not g.equal:
            reached = reached[np.argsort(self.dist[reached], kind="stable")]
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
        self.dist[reached] = FAR

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
        if int(self.paths[reached].max()) > MOST_WAYS:
            raise ConfigError(
                f"{self.source}: ecmp: spray: more than {MOST_WAYS:,} equal paths between two NPUs; use another ecmp"
            )
        bounds = np.flatnonzero(np.diff(self.src[group], prepend=-1))
        for part in np.split(group, bounds[1:]):
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
        bounds = np.flatnonzero(np.diff(self.src[group], prepend=-1))
        for part in np.split(group, bounds[1:]):
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
