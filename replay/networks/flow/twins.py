"""Sprayed routes between NPUs at the edge, searched for once for each two classes of switches that are twins.

Twins are vertices with links of equal length to and from the same neighbours, as the leaf switches of a pod. Exchanging
two of them changes nothing of the graph, and no shortest path from or to one of them leads through another: a step from
the vertex before straight to the end would be shorter. So the routes between two vertices are those between the first of
their classes, but for the links at both ends; and those links, the links between, and the two of the NPUs themselves are
sections (`sections.py`) that many pairs share.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from chakra.arrays import F64, I64, bounds, distinct, ranges
from chakra.replay.networks.flow.graph import Csr, Graph, csr_of
from chakra.replay.networks.flow.nearest import Distances, SearchKernel
from chakra.replay.networks.flow.search import FAR
from chakra.replay.networks.flow.sections import totals
from chakra.replay.networks.flow.slowest import slowest_ways

#: equal paths of a sprayed flow, so that products of two such numbers fit 64 bits
MOST_WAYS = 1 << 31
#: parts of a route that lie between switches: from the first to the last, to inner ones, between these, from them
DIRECT, UP, INNER, DOWN = range(4)
#: how often the links are looked at: distances, numbers of paths, links on them
LOOKS = 3


@dataclass(frozen=True, slots=True)
class Joined:
    """Routes of some pairs.

    Attributes
    ----------
    pair
        Their numbers, ascending; the others have to be searched for elsewhere.
    latency_ns
        Of each, that of the slowest of its paths.
    start, section
        Sections of each.
    begin, link, ways, of
        Links of each section; `ways` of `of` paths of a pair use each.
    most
        Largest number of paths of all pairs; where that is too large (`MOST_WAYS`) no pairs are joined.
    """

    pair: I64
    latency_ns: I64
    start: I64
    section: I64
    begin: I64
    link: I64
    ways: I64
    of: I64
    most: int


class Twins:
    """Vertices that forward, in classes of twins.

    Attributes
    ----------
    out, into
        Links between them by vertex, in an order in which links of twins correspond.
    place_out, place_in
        Which of its vertex's links each link is.
    class_of
        Class of each vertex; -1 of those that do not forward.
    first, second
        Two members of each class; -1: there is no second.
    equal
        Whether all links are equally long.
    """

    def __init__(self, g: Graph) -> None:
        forwards = g.closed == 0
        link = np.flatnonzero(forwards[g.tail] & forwards[g.head])
        tail, head, length = g.tail[link], g.head[link], g.length[link]
        near_out, near_in = link[np.lexsort((length, head))], link[np.lexsort((length, tail))]
        self.out, self.into = (
            csr_of(g.tail[near_out], near_out, g.vertices),
            csr_of(g.head[near_in], near_in, g.vertices),
        )
        self.place_out, self.place_in = _places(self.out, len(g.tail)), _places(self.into, len(g.tail))
        self.equal = len(link) == 0 or bool((length == length[0]).all())
        self.class_of = np.full(g.vertices, -1, np.int64)
        numbers: dict[tuple[bytes, bytes], int] = {}
        first: list[int] = []
        second: list[int] = []
        there = np.stack([g.head[self.out.item], g.length[self.out.item]], axis=1)
        back = np.stack([g.tail[self.into.item], g.length[self.into.item]], axis=1)
        for vertex in np.flatnonzero(forwards).tolist():
            near = (
                there[self.out.start[vertex] : self.out.start[vertex + 1]].tobytes(),
                back[self.into.start[vertex] : self.into.start[vertex + 1]].tobytes(),
            )
            code = self.class_of[vertex] = numbers.setdefault(near, len(first))
            if code == len(first):
                first.append(vertex)
                second.append(-1)
            elif second[code] < 0:
                second[code] = vertex
        self.first, self.second = np.array(first, np.int64), np.array(second, np.int64)

    def ends_of(self, kinds: I64) -> tuple[I64, I64]:
        """Two vertices of each kind: those of the first two members of the classes (`Ports`)."""
        source, target = np.divmod(kinds // 2, len(self.first))
        return np.where(source == target, self.second[source], self.first[source]), self.first[target]

    def between(self, g: Graph, leaves: I64, arrives: I64, link: I64) -> I64:
        """The links between two vertices each that are what `link` is between twins of theirs."""
        ends = g.tail[self.out.item] * g.vertices + g.head[self.out.item]
        first = np.searchsorted(ends, g.tail[link] * g.vertices + g.head[link])
        place = self.out.start[g.tail[link]] + self.place_out[link] - first
        out: I64 = self.out.item[np.searchsorted(ends, leaves * g.vertices + arrives) + place]
        return out


def _places(csr: Csr, links: int) -> I64:
    out = np.zeros(links, np.int64)
    out[csr.item] = ranges(np.zeros(len(csr.start) - 1, np.int64), np.diff(csr.start))
    return out


class _Ways:
    """Shortest paths between two vertices of each of several kinds.

    Kinds are those of `Ports`.

    Attributes
    ----------
    begin, end
        The two vertices of each kind whose paths are known; others' are like theirs.
    dist, of
        Length and number of the paths of each kind.
    start, link, ways, part
        Links of kind k, start[k] to start[k + 1]: how many paths use each, and which part of the route it is.
    """

    def __init__(self, g: Graph, twins: Twins, kinds: I64, kernel_for: Callable[[int], SearchKernel]) -> None:
        one = kinds % 2
        self.begin, self.end = twins.ends_of(kinds)
        self.dist = np.where(one == 1, 0, FAR)
        self.of = np.ones(len(kinds), np.int64)
        search = _Core(g, twins)
        empty = np.zeros(0, np.int64)
        found = [(empty, empty)] * len(kinds)
        apart = np.flatnonzero(one == 0)
        ends = distinct(self.end[apart])
        kernel = kernel_for(len(ends) * len(twins.out.item) * LOOKS)
        for to in ends.tolist():
            mine = apart[self.end[apart] == to]
            ways = search.towards(kernel, to, self.begin[mine])
            for kind, (dist, of, link, uses) in zip(mine.tolist(), ways, strict=True):
                self.dist[kind], self.of[kind], found[kind] = dist, of, (link, uses)
        self.start = bounds(np.array([len(link) for link, _ in found], np.int64))
        self.link = np.concatenate([empty, *(link for link, _ in found)])
        self.ways = np.concatenate([empty, *(uses for _, uses in found)])
        kind = np.repeat(np.arange(len(kinds)), np.diff(self.start))
        leaves, arrives = g.tail[self.link] == self.begin[kind], g.head[self.link] == self.end[kind]
        self.part = np.where(leaves, np.where(arrives, DIRECT, UP), np.where(arrives, DOWN, INNER))

    def of_part(self, part: int) -> tuple[I64, I64, I64]:
        """Where the links of each kind begin that are of a part; these links; how many paths use each."""
        mine = self.part == part
        before = bounds(mine.astype(np.int64))
        return before[self.start], self.link[mine], self.ways[mine]


class _Core:
    """The search over the vertices that forward."""

    def __init__(self, g: Graph, twins: Twins) -> None:
        self._graph, self._twins = g, twins
        self._distances = Distances(g, twins.into, twins.equal)
        self._room = [np.zeros(g.vertices + 1, np.int64) for _ in range(3)]
        self._link, self._uses = (np.zeros(len(twins.out.item) + 1, np.int64) for _ in range(2))

    def towards(self, kernel: SearchKernel, to: int, begin: I64) -> Iterator[tuple[int, int, I64, I64]]:
        """Length and number of the paths from vertices to one, their links, and how many use each."""
        g, twins, dist = self._graph, self._twins, self._distances.dist
        paths, ways, frontier = self._room
        reached = self._distances.towards(kernel, to, distinct(begin))
        core = (twins.out.start, twins.out.item, g.head, g.length, g.closed)
        kernel.count_paths(*core, to, dist, reached, len(reached), paths)
        most = int(paths[reached].max())
        for src in begin.tolist():
            n = 0
            if dist[src] < FAR and most <= MOST_WAYS:
                n = kernel.spray(*core, src, to, dist, paths, ways, frontier, self._link, self._uses, 0)
            # the largest number of all where one is too large: sums of such may be anything
            of = int(paths[src]) if most <= MOST_WAYS else most
            yield int(dist[src]), of if dist[src] < FAR else 1, self._link[:n].copy(), self._uses[:n].copy()
        self._distances.forget(reached)


def joined_by_twins(
    g: Graph, pair: I64, src: I64, dst: I64, kernel_for: Callable[[int], SearchKernel]
) -> Joined:
    """Routes of the pairs that twins tell: of NPUs at the edge, with one best way to leave and to arrive.

    Parameters
    ----------
    pair
        Numbers of the pairs, ascending.
    src, dst
        NPUs of each.
    kernel_for
        The search, for so many links that are looked at.
    """
    pair, src, dst = g.at_edge(pair, src, dst)
    twins = Twins(g)
    keys, like = np.unique(g.stand[src] * g.vertices + g.stand[dst], return_inverse=True)
    ports = Ports(g, twins, *np.divmod(keys, g.vertices))
    ways = _Ways(g, twins, ports.kinds, kernel_for)
    port_out, port_in, kind = ports.best(ways.dist)
    like = like.reshape(-1)
    most = int(ways.of.max(initial=1))
    mine = (kind[like] >= 0) & (most <= MOST_WAYS)
    pair, src, dst, like = pair[mine], src[mine], dst[mine], like[mine]
    first, last = (
        g.all_out.item[g.all_out.start[src] + port_out[like]],
        g.all_in.item[g.all_in.start[dst] + port_in[like]],
    )
    return _put_together(g, twins, ways, pair, first, last, kind[like], most)


class Ports:
    """The links by which the route of each pair may leave and arrive.

    A kind of way between is the classes of both its ends and whether they are one vertex: class * classes + class, times
    2, plus 1.

    Attributes
    ----------
    kinds
        All that there are, ascending.
    """

    def __init__(self, g: Graph, twins: Twins, src: I64, dst: I64) -> None:
        self._pairs = len(src)
        kinds, near = [np.full((0, len(src)), -1, np.int64)], [np.full((0, len(src)), FAR, np.int64)]
        self._ports: list[tuple[int, int]] = []
        out, into = np.diff(g.all_out.start)[src], np.diff(g.all_in.start)[dst]
        for k in range(int(out.max(initial=0))):
            for j in range(int(into.max(initial=0))):
                there = (out > k) & (into > j)
                leave = g.all_out.item[np.where(there, g.all_out.start[src] + k, 0)]
                arrive = g.all_in.item[np.where(there, g.all_in.start[dst] + j, 0)]
                a, b = g.head[leave], g.tail[arrive]
                kind = (twins.class_of[a] * len(twins.first) + twins.class_of[b]) * 2 + (a == b)
                kinds.append(np.where(there, kind, -1)[None])
                near.append(np.where(there, g.length[leave] + g.length[arrive], FAR)[None])
                self._ports.append((k, j))
        self._kind, self._near = np.concatenate(kinds), np.concatenate(near)
        known = distinct(self._kind)
        self.kinds: I64 = known[known >= 0]

    def best(self, dist: I64) -> tuple[I64, I64, I64]:
        """Which of its links each pair leaves and arrives by, and the number of its kind among `kinds`.

        The number is -1 where there is no route, or where several links are equally good.

        Parameters
        ----------
        dist
            Length of the way between of each kind; `FAR` where there is none.
        """
        if not self._ports:
            none = np.full(self._pairs, -1, np.int64)
            return none, none, none
        number = np.searchsorted(self.kinds, self._kind)
        far = np.append(dist, FAR)[np.where(self._kind >= 0, number, len(self.kinds))]
        total = np.where(far < FAR, self._near + far, FAR)
        best = np.argmin(total, axis=0)
        least = total.min(axis=0)
        one = ((total == least).sum(axis=0) == 1) & (least < FAR)
        leave, arrive = np.array(self._ports, np.int64)[best].T
        return leave, arrive, np.where(one, number[best, np.arange(self._pairs)], -1)


def _put_together(
    g: Graph, twins: Twins, ways: _Ways, pair: I64, first: I64, last: I64, kind: I64, most: int
) -> Joined:
    """Routes from their first and last links and the kind of the way between."""
    a, b = g.head[first], g.tail[last]
    made = _Made(len(pair))
    made.add_single(first)
    for part in (DIRECT, UP, INNER, DOWN):
        start, link, uses = ways.of_part(part)
        key = kind
        if part in (DIRECT, UP):
            key = key * g.vertices + a
        if part in (DIRECT, DOWN):
            key = key * g.vertices + b
        key = made.add(np.where(start[kind + 1] > start[kind], key, -1))
        arrives = leaves = key
        if part in (DIRECT, DOWN):
            key, arrives = np.divmod(key, g.vertices)
        if part in (DIRECT, UP):
            key, leaves = np.divmod(key, g.vertices)
        count = start[key + 1] - start[key]
        at = ranges(start[key], count)
        mine, leaves, arrives = link[at], np.repeat(leaves, count), np.repeat(arrives, count)
        if part == UP:
            mine = twins.out.item[twins.out.start[leaves] + twins.place_out[mine]]
        elif part == DOWN:
            mine = twins.into.item[twins.into.start[arrives] + twins.place_in[mine]]
        elif part == DIRECT:
            mine = twins.between(g, leaves, arrives, mine)
        made.put(count, mine, uses[at], np.repeat(ways.of[key], count))
    made.add_single(last)
    latency = (
        g.latency_ns[first]
        + made.between(g, (kind * g.vertices + a) * g.vertices + b, a, b)
        + g.latency_ns[last]
    )
    return made.joined(pair, np.floor(latency + 1e-6).astype(np.int64), most)


class _Made:
    """Sections as they are made: for each place of a route those of all pairs."""

    def __init__(self, pairs: int) -> None:
        self._column: list[I64] = []
        self._pairs = pairs
        self._sections = 0
        self._count, self._link, self._ways, self._of = ([np.zeros(0, np.int64)] for _ in range(4))

    def add(self, key: I64) -> I64:
        """Pairs with equal keys have a section in common, those with -1 have none; returns the different keys."""
        has = key >= 0
        distinct, place = np.unique(key[has], return_inverse=True)
        column = np.full(self._pairs, -1, np.int64)
        column[has] = self._sections + place.reshape(-1)
        self._column.append(column)
        self._sections += len(distinct)
        return distinct

    def put(self, count: I64, link: I64, ways: I64, of: I64) -> None:
        """The links of the sections that were added last."""
        for rows, new in ((self._count, count), (self._link, link), (self._ways, ways), (self._of, of)):
            rows.append(new)

    def add_single(self, link: I64) -> None:
        """Sections of a link each, which all paths use."""
        distinct = self.add(link)
        one = np.ones(len(distinct), np.int64)
        self.put(one, distinct, one, one)

    def between(self, g: Graph, key: I64, begin: I64, end: I64) -> F64:
        """Latency of the slowest way between the switches at both ends, the same for equal keys."""
        _, first, like = np.unique(key, return_index=True, return_inverse=True)
        table = np.stack(self._column[1:-1], axis=1)[first]
        number = bounds(np.concatenate(self._count))
        section = table[table >= 0]
        count = np.diff(number)[section]
        start = bounds(totals(count, bounds((table >= 0).sum(axis=1))))
        link = np.concatenate(self._link)[ranges(number[section], count)]
        return slowest_ways(begin[first], end[first], start, link, g.latency_ns, g.tail, g.head)[
            like.reshape(-1)
        ]

    def joined(self, pair: I64, latency_ns: I64, most: int) -> Joined:
        """All pairs."""
        table = np.stack(self._column, axis=1)
        return Joined(
            pair=pair,
            latency_ns=latency_ns,
            start=bounds((table >= 0).sum(axis=1)),
            section=table[table >= 0],
            begin=bounds(np.concatenate(self._count)),
            link=np.concatenate(self._link),
            ways=np.concatenate(self._ways),
            of=np.concatenate(self._of),
            most=most,
        )
