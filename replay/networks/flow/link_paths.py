"""Paths on networks of single links, for any number of NPUs: only pairs that exchange messages are looked for.

NPUs on one switch reach others in the same way, so NPUs with a single link each way are left out of the search, which is
made from their switches.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from chakra.arrays import I64
from chakra.errors import ConfigError
from chakra.jit import compiled, worth_compiling
from chakra.replay.config.model import Links, Network
from chakra.replay.networks.flow.paths import Paths, common_parts, distinct_pairs
from chakra.replay.networks.routes import given_routes, pick_next, weights

KERNEL = "chakra.replay.networks.flow.search"
#: links looked at from which compiled code pays: loaded, in the cache, to be compiled first
COMPILE_FROM = (20_000, 500_000, 5_000_000)
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
        When a pair has no route.
    """
    links = network.links
    if links is None:
        raise ValueError("the network has building blocks, not links")
    n = network.npus
    keys = distinct_pairs(pairs, n)
    given = given_routes(network, links, keys)
    found = _Found(links, len(keys))
    place = {int(key): i for i, key in enumerate(keys.tolist())} if given else {}
    for key, route in given.items():
        found.add_one(place[key], route)
    open_pairs = np.arange(len(keys))
    if given:
        open_pairs = open_pairs[~np.isin(keys, np.fromiter(given, np.int64, len(given)))]
    if len(open_pairs):
        _Search(network, links, keys, open_pairs, found).run()
    return found.paths(keys, n)


class _Found:
    """Collects routes: pair, number among its routes, links, and how many of how many paths use each."""

    def __init__(self, links: Links, pairs: int) -> None:
        self.links = links
        self.pairs = pairs
        self.parts: list[tuple[I64, I64, I64, I64, I64, I64]] = []

    def add(self, pair: I64, choice: I64, step: I64, link: I64, ways: I64, of: I64) -> None:
        """Add hops of routes."""
        self.parts.append((pair, choice, step, link, ways, of))

    def add_one(self, pair: int, route: list[int]) -> None:
        """Add one route of a pair."""
        k = len(route)
        zero, one = np.zeros(k, np.int64), np.ones(k, np.int64)
        self.add(np.full(k, pair), zero, np.arange(k), np.array(route, np.int64), one, one)

    def paths(self, keys: I64, n: int) -> Paths:
        """All that were found."""
        empty = (np.zeros(0, np.int64),) * 6
        pair, choice, step, link, ways, of = (
            np.concatenate(column) for column in zip(*(self.parts or [empty]), strict=True)
        )
        order = np.lexsort((step, choice, pair))
        pair, choice, link, ways, of = (x[order] for x in (pair, choice, link, ways, of))
        begins = np.ones(len(pair), bool)
        begins[1:] = (pair[1:] != pair[:-1]) | (choice[1:] != choice[:-1])
        route = np.cumsum(begins) - 1
        routes = int(begins.sum())
        start = np.append(np.flatnonzero(begins), len(pair)).astype(np.int64)
        first = np.zeros(self.pairs + 1, np.int64)
        np.cumsum(np.bincount(pair[begins], minlength=self.pairs), out=first[1:])
        latency = np.array([x.latency_ns for x in self.links.links], np.float64)
        whole, _ = common_parts(np.unique(of).tolist())
        # a link is nearer to the receiver by its own latency, so a sprayed flow's latency is that of any of its paths
        total = np.bincount(route, latency[link] * ways / of, minlength=routes) if routes else np.zeros(0)
        return Paths(
            src=keys // n,
            dst=keys % n,
            first=first,
            latency_ns=np.floor(total + 1e-6).astype(np.int64),
            start=start,
            link=link,
            weight=-(-ways * whole // of),
            whole=whole,
            bytes_per_ns=np.array([x.bytes_per_ns for x in self.links.links], np.float64),
        )


@dataclass(frozen=True, slots=True)
class _Csr:
    start: I64
    item: I64


def _csr(of: I64, items: I64, vertices: int) -> _Csr:
    """Items by what they are of, in their order."""
    order = np.argsort(of, kind="stable")
    start = np.zeros(vertices + 1, np.int64)
    np.cumsum(np.bincount(of, minlength=vertices), out=start[1:])
    return _Csr(start, items[order])


class _Search:
    """Shortest paths of pairs of NPUs over the links of a network."""

    def __init__(self, network: Network, links: Links, keys: I64, pairs: I64, found: _Found) -> None:
        self.network, self.links, self.keys, self.found = network, links, keys, found
        n = network.npus
        self.vertices = n + len(links.vertices)
        self.tail = np.array([x.src for x in links.links], np.int64)
        self.head = np.array([x.dst for x in links.links], np.int64)
        self.length = weights(links)
        self.equal = bool((self.length == 1).all())
        self.closed = np.zeros(self.vertices, np.int64)
        self.closed[:n] = not links.npus_forward
        self._leave_stubs_out(n)
        src, dst = keys[pairs] // n, keys[pairs] % n
        self.pair = pairs
        #: links before and behind the searched part of each pair, -1: none
        self.before, self.behind = self.only_out[src], self.only_in[dst]
        self.src = np.where(self.before >= 0, self.head[self.before], src)
        self.dst = np.where(self.behind >= 0, self.tail[self.behind], dst)

    def _leave_stubs_out(self, n: int) -> None:
        """NPUs with one link out and one in, from and to the same vertex, lie on no way between others."""
        npu = np.arange(self.vertices) < n
        out = np.bincount(self.tail, minlength=self.vertices)
        into = np.bincount(self.head, minlength=self.vertices)
        number = np.arange(len(self.tail))
        self.only_out, self.only_in = np.full(self.vertices, -1), np.full(self.vertices, -1)
        self.only_out[self.tail], self.only_in[self.head] = number, number
        to, back = self.head[self.only_out], self.tail[self.only_in]
        stub = npu & (out == 1) & (into == 1) & (to == back) & (to >= n)
        self.only_out[~stub] = self.only_in[~stub] = -1
        core = np.flatnonzero(~stub[self.tail] & ~stub[self.head])
        self.into = _csr(self.head[core], core, self.vertices)
        self.out = _csr(self.tail[core], core, self.vertices)

    def run(self) -> None:
        """Look for the routes of all pairs, receiver after receiver."""
        at = np.zeros(len(self.pair), np.int64)
        for link in (self.before, self.behind):
            mine = np.flatnonzero(link >= 0)
            step = np.full(len(mine), -1 if link is self.before else 1 << 40)
            if self.links.ecmp != "adaptive":
                one, zero = np.ones(len(mine), np.int64), np.zeros(len(mine), np.int64)
                self.found.add(self.pair[mine], zero, step, link[mine], one, one)
        order = np.lexsort((self.src, self.dst))
        same = self.src == self.dst
        if self.links.ecmp == "adaptive":
            for i in np.flatnonzero(same).tolist():
                self.add_choices(i, np.zeros(0, np.int64), np.zeros(2, np.int64))
        order = order[~same[order]]
        bounds = np.flatnonzero(np.diff(self.dst[order], prepend=-1)) if len(order) else at[:0]
        work = len(bounds) * len(self.into.item)
        kernel: Any
        if worth_compiling(KERNEL, *COMPILE_FROM, work):
            kernel = compiled(KERNEL)
        else:
            from chakra.replay.networks.flow import search as kernel
        scratch = _Scratch(self, kernel)
        for group in np.split(order, bounds[1:]) if len(order) else []:
            scratch.towards(int(self.dst[group[0]]), group)

    def walk(self, group: I64, to: int, dist: I64, reached: I64) -> None:
        """One route for each pair: hop by hop, all pairs of a receiver together."""
        n = self.network.npus
        link = self.out_of(reached)
        head, tail = self.head[link], self.tail[link]
        good = (dist[tail] == dist[head] + self.length[link]) & ((self.closed[head] == 0) | (head == to))
        link, tail = link[good], tail[good]
        place = np.full(self.vertices, -1)
        begins = np.flatnonzero(np.diff(tail, prepend=-1))
        place[tail[begins]] = begins
        count = np.zeros(self.vertices, np.int64)
        count[tail[begins]] = np.diff(np.append(begins, len(tail)))
        mine, here = group, self.src[group]
        left = self.keys[self.pair[mine]] % n
        step = 0
        while len(mine):
            key = self.keys[self.pair[mine]]
            pick = pick_next(self.links.ecmp, key, here, left, count[here])
            left = left // count[here]
            hop = link[place[here] + pick]
            one = np.ones(len(mine), np.int64)
            self.found.add(self.pair[mine], 0 * one, step * one, hop, one, one)
            here = self.head[hop]
            going = here != to
            mine, here, left = mine[going], here[going], left[going]
            step += 1

    def out_of(self, vertices: I64) -> I64:
        """Links that begin at vertices, vertex after vertex."""
        start, count = self.out.start[vertices], self.out.start[vertices + 1] - self.out.start[vertices]
        total = int(count.sum())
        offset = np.repeat(start - (np.cumsum(count) - count), count)
        out: I64 = self.out.item[np.arange(total) + offset]
        return out

    def add_sprayed(self, group: I64, link: I64, ways: I64, of: int) -> None:
        """All pairs of equal ends use the same links."""
        m, k = len(group), len(link)
        pair = np.repeat(self.pair[group], k)
        zero = np.zeros(m * k, np.int64)
        self.found.add(
            pair, zero, np.tile(np.arange(k), m), np.tile(link, m), np.tile(ways, m), np.full(m * k, of)
        )

    def add_choices(self, i: int, link: I64, start: I64) -> None:
        """The routes that a pair may take."""
        for choice in range(len(start) - 1):
            route = link[start[choice] : start[choice + 1]].tolist()
            ends = (
                [self.before[i]] if self.before[i] >= 0 else [],
                [self.behind[i]] if self.behind[i] >= 0 else [],
            )
            whole = np.array([*ends[0], *route, *ends[1]], np.int64)
            k = len(whole)
            one = np.ones(k, np.int64)
            self.found.add(self.pair[i] * one, choice * one, np.arange(k), whole, one, one)


class _Scratch:
    """Arrays that a search writes, used again for the next receiver."""

    def __init__(self, search: _Search, kernel: Any) -> None:
        self.search, self.kernel = search, kernel
        n = search.vertices
        self.dist = np.full(n, kernel_far(), np.int64)
        self.queue, self.queued, self.wanted, self.ways, self.paths, self.frontier = (
            np.zeros(n + 1, np.int64) for _ in range(6)
        )
        self.out_link, self.out_ways = (np.zeros(len(search.into.item) + 1, np.int64) for _ in range(2))

    def towards(self, to: int, group: I64) -> None:
        """Routes of pairs that have a receiver in common; those of equal ends lie together."""
        s, kernel = self.search, self.kernel
        senders, first = np.unique(s.src[group], return_index=True)
        self.wanted[senders] = 1
        n = kernel.search(
            s.into.start, s.into.item, s.tail, s.length, s.closed, to, self.wanted, len(senders), s.equal,
            self.dist, self.queue, self.queued,
        )  # fmt: skip
        self.wanted[senders] = 0
        reached = self.queue[:n] if s.equal else np.flatnonzero(self.dist < kernel_far())
        if not s.equal:
            reached = reached[np.argsort(self.dist[reached], kind="stable")]
        self._refuse_lost(to, group)
        if s.links.ecmp == "spray":
            self._spray(to, group, senders, first, reached)
        elif s.links.ecmp == "adaptive":
            self._choices(to, group, senders, first)
        else:
            s.walk(group, to, self.dist, np.sort(reached))
        self.dist[reached] = kernel_far()

    def _refuse_lost(self, to: int, group: I64) -> None:
        s = self.search
        lost = group[self.dist[s.src[group]] >= kernel_far()]
        if len(lost):
            a, b = divmod(int(s.keys[s.pair[lost[0]]]), s.network.npus)
            raise ConfigError(f"{s.network.source}: there is no route from NPU {a} to NPU {b}")

    def _spray(self, to: int, group: I64, senders: I64, first: I64, reached: I64) -> None:
        s = self.search
        graph = (s.out.start, s.out.item, s.head, s.length, s.closed)
        self.kernel.count_paths(*graph, to, self.dist, reached, len(reached), self.paths)
        ends = np.append(first[1:], len(group))
        for src, a, b in zip(senders.tolist(), first.tolist(), ends.tolist(), strict=True):
            k = self.kernel.spray(
                *graph,
                src,
                to,
                self.dist,
                self.paths,
                self.ways,
                self.frontier,
                self.out_link,
                self.out_ways,
                0,
            )
            s.add_sprayed(
                group[a:b], self.out_link[:k].copy(), self.out_ways[:k].copy(), int(self.paths[src])
            )

    def _choices(self, to: int, group: I64, senders: I64, first: I64) -> None:
        s = self.search
        start = np.zeros(MOST_CHOICES + 1, np.int64)
        stack = np.zeros(s.vertices + 1, np.int64)
        room = np.zeros((MOST_CHOICES + 1) * (s.vertices + 1), np.int64)
        ends = np.append(first[1:], len(group))
        for src, a, b in zip(senders.tolist(), first.tolist(), ends.tolist(), strict=True):
            k = self.kernel.enumerate_paths(
                s.out.start, s.out.item, s.head, s.length, s.closed, src, to, MOST_CHOICES, self.dist, stack,
                room, start,
            )  # fmt: skip
            for i in group[a:b].tolist():
                s.add_choices(i, room, start[: k + 1])


def kernel_far() -> int:
    """Longer than every way."""
    return 1 << 62
