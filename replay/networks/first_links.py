"""Links over which the NPUs of a list of links send: those that shortest ways to others begin with, of all equal ways.

What a message really takes is one of these, whatever `ecmp` says; a route that the file gives takes the place of the
rest. Links of building blocks have the one route of these, and what goes around a fault the one that messages take.
Each NPU that is looked at is searched from once, over all links. On large networks these are a few of each kind: NPUs
whose surroundings are alike within `DEPTH` links, bandwidths apart. What is found of a link then holds for the links of
its kind, so that the bandwidths of all NPUs count.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from chakra.arrays import F64, I64, U64, AnyArray, distinct, ranges, rows_by
from chakra.replay.config.model import Links, Network
from chakra.replay.networks.flow.graph import csr_of
from chakra.replay.networks.flow.link_paths import link_paths
from chakra.replay.networks.flow.mixing import Lists, mix
from chakra.replay.networks.routes import FAR, given_routes, weights

#: links times NPUs that are searched from, up to which every NPU is
LOOKED_AT = 1 << 20
#: kinds of NPUs, and NPUs that are searched from, at most on larger networks
MOST_SEARCHED = 32
#: links that are searched at once
AT_ONCE = 1 << 19
#: links within which surroundings are compared
DEPTH = 3
#: pairs of NPUs whose routes are looked at one by one, at most
MOST_ROUTED = 1 << 16
#: marks that a word has room for
MARKS = 62


@dataclass(frozen=True, slots=True)
class Directions:
    """What NPUs send into the dimensions of a list of links over, and how long that takes.

    Attributes
    ----------
    npu_gibps
        GB/s of 2^30 B/s that each NPU can send into each dimension, (NPUs, dimensions).
    all_gibps
        Those of all links of each dimension together.
    latency_ns
        Mean latency of the ways between NPUs that differ in one dimension alone; of equal ways the quickest counts.
    """

    npu_gibps: F64
    all_gibps: F64
    latency_ns: F64


@dataclass(frozen=True, slots=True)
class _Found:
    """Links that ways begin with: the row of the search, the marks of those they lead to, and with which they leave.

    `latency_ns` are sums over those who have a mark, by row and mark; `ways` the marks to which every link of the network
    leads on a shortest way, by row and link.
    """

    row: I64
    link: I64
    marks: I64
    leaving: I64
    latency_ns: F64
    ways: I64


@dataclass(frozen=True, slots=True)
class Within:
    """What the members of a group send to each other over.

    Attributes
    ----------
    sent_gibps
        GB/s of 2^30 B/s that each member can send to the others.
    links
        All links on ways between members, ascending.
    """

    sent_gibps: F64
    links: I64


class FirstLinks:
    """Links that ways begin with, on one network."""

    def __init__(self, network: Network, links: Links) -> None:
        self._network, self._links = network, links
        self._npus, self._vertices = network.npus, network.npus + len(links.vertices)
        self._tail = np.array([x.src for x in links.links], np.int64)
        self._head = np.array([x.dst for x in links.links], np.int64)
        self._gibps = np.array([x.bandwidth_gibps for x in links.links], np.float64)
        self._latency_ns = np.array([x.latency_ns for x in links.links], np.float64)
        self._length = weights(network)
        self._out = csr_of(self._tail, np.arange(len(self._tail)), self._vertices)
        self._closed = np.zeros(self._vertices, bool)
        self._closed[: self._npus] = not links.npus_forward

    # -- answers -------------------------------------------------------------------------------------------------

    @cached_property
    def directions(self) -> Directions:
        """What NPUs can send into each dimension.

        Others of dimension k are the NPUs that differ in it and are equal above it: a message belongs to the highest
        dimension in which its ends differ. Somewhere on its way it leaves the NPUs that are equal in k and above, over
        a link of one of them behind which the next NPU is another's. These are the links of dimension k, and all that
        belongs to it crosses them. An NPU that has none sends over those that its ways begin with.
        """
        dims = len(self._network.dims)
        every = np.arange(self._npus)
        some, weight = self._some(every)
        given = self._given
        marks, leaving = np.zeros((2, len(self._tail)), np.int64)
        latency = np.zeros(dims)
        for part in self._parts(len(some)):
            highest = self._highest(some[part, None], every)
            wanted = np.where(highest < 0, 0, 1 << np.maximum(highest, 0))
            wanted |= np.where(self._alone(some[part, None], every, highest), wanted << dims, 0)
            if self._exact:
                self._take_out(wanted, some[part], given)
            found = self._search(some[part], wanted, (2 << np.maximum(highest, 0)) - 1)
            np.bitwise_or.at(marks, found.link, found.marks)
            np.bitwise_or.at(leaving, found.link, found.leaving)
            latency += (found.latency_ns[:, dims : 2 * dims] * weight[part, None]).sum(axis=0)
        marks, leaving = self._of_kinds(marks), self._of_kinds(leaving)
        for (src, _), route in given.items():
            on_way = np.array([src, *self._head[route].tolist()])
            highest = self._highest(on_way[:1], on_way)
            k = int(highest[-1])
            inside = np.flatnonzero((on_way < self._npus) & (highest < k))
            marks[route[0]] |= 1 << k
            leaving[route[int(inside[-1])]] |= 1 << k
            if self._exact and self._alone(on_way[:1], on_way[-1:], highest[-1:]).all():
                latency[k] += self._latency_ns[route].sum()
        begun, left = self._sums(marks), self._sums(leaving)
        pairs = self._npus * np.array([max(dim.npus - 1, 1) for dim in self._network.dims])
        return Directions(np.where(left > 0, left, begun), left.sum(axis=0), latency / pairs)

    def within(self, groups: Sequence[I64]) -> list[Within]:
        """What members of some groups, given by the numbers of their NPUs, send to each other over."""
        searched, like = [], []
        known: dict[tuple[bytes, bytes], int] = {}
        for number, members in enumerate(groups):
            alike = number
            if not self._exact:
                key = self._kinds[0][members].tobytes(), (members - members[0]).tobytes()
                alike = known.setdefault(key, number)
            like.append(alike)
            if alike == number:
                searched += [(int(npu), number) for npu in self._some(members)[0]]
        pairs = sum(len(members) * (len(members) - 1) for members in groups)
        if self._links.dimension_ordered and self._exact and pairs <= MOST_ROUTED:
            begun, taken = self._routed(groups)
        else:
            begun, taken = self._counted(searched, groups)
        out = []
        for members, alike in zip(groups, like, strict=True):
            link = self._out.of(members)
            here = self._of_kind_with(begun[alike])[link]
            place = np.repeat(np.arange(len(members)), np.diff(self._out.start)[members])
            sums = np.zeros(len(members))
            np.add.at(sums, place[here], self._gibps[link[here]])
            out.append(Within(sums, np.flatnonzero(self._of_kind_with(taken[alike]))))
        return out

    def _routed(self, groups: Sequence[I64]) -> tuple[dict[int, I64], dict[int, I64]]:
        """The same as `_counted` where messages have one route each: one dimension after the other, or around a fault."""
        npus = self._npus
        ends = [
            np.stack([members.repeat(len(members)), np.tile(members, len(members))]) for members in groups
        ]
        ends = [pairs[:, pairs[0] != pairs[1]] for pairs in ends]
        p = link_paths(self._network, np.concatenate(ends, axis=1).T)
        keys = p.src * npus + p.dst
        begun, taken = dict[int, I64](), dict[int, I64]()
        for number, (src, dst) in enumerate(ends):
            route = p.first[np.searchsorted(keys, src * npus + dst)]
            count = p.start[route + 1] - p.start[route]
            link = p.link[ranges(p.start[route], count)]
            begun[number] = distinct(link[self._tail[link] == np.repeat(src, count)])
            taken[number] = distinct(link)
        return begun, taken

    def _of_kind_with(self, links: I64) -> AnyArray:
        """Whether each link is of the kind of one of some links."""
        kind = self._kinds[1]
        found = np.zeros(int(kind.max(initial=0)) + 1, bool)
        found[kind[links]] = True
        return np.asarray(found[kind])

    def _counted(
        self, searched: list[tuple[int, int]], groups: Sequence[I64]
    ) -> tuple[dict[int, I64], dict[int, I64]]:
        """Links that ways from some NPUs to others of their groups begin with, and all links of these, by group."""
        searched.sort()
        turns: dict[int, int] = {}
        rows: dict[tuple[int, int], int] = {}
        group_of: list[list[int]] = []
        npu_of: list[int] = []
        for npu, number in searched:
            turn = turns[npu] = turns.get(npu, -1) + 1
            row = rows.setdefault((npu, turn // MARKS), len(rows))
            if row == len(group_of):
                group_of.append([])
                npu_of.append(npu)
            group_of[row].append(number)
        begun, taken = (defaultdict[int, list[I64]](list) for _ in range(2))
        sources = np.array(npu_of, np.int64)
        for part in self._parts(len(sources)):
            wanted = np.zeros((part.stop - part.start, self._npus), np.int64)
            for row in range(part.start, part.stop):
                for mark, number in enumerate(group_of[row]):
                    wanted[row - part.start, groups[number]] |= 1 << mark
            wanted[np.arange(len(wanted)), sources[part]] = 0
            given = self._take_out(wanted, sources[part], self._given)
            result = self._search(sources[part], wanted, np.full_like(wanted, -1))
            own = np.zeros_like(result.ways)
            own[result.row, result.link] = result.marks
            for row, route, marks in given:
                own[row, route[0]] |= marks
                result.ways[row, route] |= marks
            for row in range(part.start, part.stop):
                for mark, number in enumerate(group_of[row]):
                    for found, leads in ((begun, own), (taken, result.ways)):
                        found[number].append(np.flatnonzero(leads[row - part.start] >> mark & 1))
        return _each_once(begun), _each_once(taken)

    # -- routes that the file gives --------------------------------------------------------------------------------

    @cached_property
    def _given(self) -> dict[tuple[int, int], list[int]]:
        """Links of the routes that the file gives."""
        keys = np.array([route[0] * self._npus + route[-1] for route in self._links.routes], np.int64)
        if not len(keys):
            return {}
        found = given_routes(self._network, self._links, keys)
        return {divmod(key, self._npus): route for key, route in found.items()}

    @staticmethod
    def _take_out(
        wanted: I64, sources: I64, given: dict[tuple[int, int], list[int]]
    ) -> list[tuple[int, list[int], int]]:
        """Take the pairs that have a given route out of a search; row, links and marks of each."""
        out = []
        rows = rows_by(sources)
        for (src, dst), route in given.items():
            for row in rows[src].tolist():
                out.append((row, route, int(wanted[row, dst])))
                wanted[row, dst] = 0
        return out

    # -- who is searched from --------------------------------------------------------------------------------------

    @property
    def _exact(self) -> bool:
        """Whether every NPU is searched from."""
        return self._npus * len(self._tail) <= LOOKED_AT

    def _some(self, npus: I64) -> tuple[I64, F64]:
        """Those of some NPUs that are searched from, and how many each stands for."""
        if self._exact or len(npus) * len(self._tail) <= LOOKED_AT:
            return npus, np.ones(len(npus))
        kinds = rows_by(self._kinds[0], npus)
        each = max(min(LOOKED_AT // len(self._tail), MOST_SEARCHED) // len(kinds), 1)
        chosen, weight = [], []
        for own in kinds.values():
            few = own[distinct(np.linspace(0, len(own) - 1, each).astype(np.int64))]
            chosen.append(few)
            weight.append(np.full(len(few), len(own) / len(few)))
        return np.concatenate(chosen), np.concatenate(weight)

    @cached_property
    def _kinds(self) -> tuple[I64, I64]:
        """Kind of each NPU and of each link."""
        if self._exact:
            return np.arange(self._npus), np.arange(len(self._tail))
        differ = self._highest(self._tail, self._head)
        differ[(self._tail >= self._npus) | (self._head >= self._npus)] = -2
        label = mix(self._length, self._latency_ns.view(np.int64), differ)
        by_tail, by_head = Lists(self._tail, self._vertices), Lists(self._head, self._vertices)
        colour = self._sorts()
        npu, link = colour, mix(label, colour[self._tail], colour[self._head])
        for _ in range(DEPTH):
            before = colour
            onward, back = mix(label, before[self._head]), mix(label, before[self._tail])
            colour = mix(before, by_tail.sums(onward), by_head.sums(back))
            if len(distinct(colour[: self._npus])) > MOST_SEARCHED:
                break
            npu, link = colour, mix(label, colour[self._tail], before[self._head])
        return _codes(npu[: self._npus]), _codes(link)

    def _sorts(self) -> U64:
        """NPU or switch, and of a switch the dimensions in which the NPUs beside it differ."""
        sort = np.zeros(self._vertices, np.int64)
        sort[self._npus :] = 1
        for npu, switch in ((self._tail, self._head), (self._head, self._tail)):
            beside = np.flatnonzero((npu < self._npus) & (switch >= self._npus))
            stride = 1
            for k, dim in enumerate(self._network.dims):
                at = npu[beside] // stride % dim.npus
                low, high = np.full(self._vertices, dim.npus), np.full(self._vertices, -1)
                np.minimum.at(low, switch[beside], at)
                np.maximum.at(high, switch[beside], at)
                sort |= (low < high).astype(np.int64) << (k + 1)
                stride *= dim.npus
        return mix(sort)

    def _highest(self, a: AnyArray, b: AnyArray) -> I64:
        """Highest dimension in which NPUs differ; -1: they are the same."""
        out = np.full(np.broadcast_shapes(np.shape(a), np.shape(b)), -1, np.int64)
        stride = 1
        for k, dim in enumerate(self._network.dims):
            out[a // stride % dim.npus != b // stride % dim.npus] = k
            stride *= dim.npus
        return out

    def _alone(self, a: AnyArray, b: AnyArray, highest: AnyArray) -> AnyArray:
        """Whether the highest dimension in which NPUs differ is the only one."""
        below = np.cumprod([1, *(dim.npus for dim in self._network.dims)])[np.maximum(highest, 0)]
        return np.asarray(a % below == b % below)

    def _of_kinds(self, marks: I64) -> I64:
        """Marks of all links, where those of one kind have the same."""
        out = np.zeros(int(self._kinds[1].max(initial=0)) + 1, np.int64)
        np.bitwise_or.at(out, self._kinds[1], marks)
        return np.asarray(out[self._kinds[1]])

    def _sums(self, marks: I64) -> F64:
        """GB/s of the links that have each mark, by NPU and mark."""
        own = np.flatnonzero(self._tail < self._npus)
        return np.stack(
            [
                np.bincount(self._tail[own], self._gibps[own] * (marks[own] >> k & 1), minlength=self._npus)
                for k in range(len(self._network.dims))
            ],
            axis=1,
        )

    # -- the search ------------------------------------------------------------------------------------------------

    def _parts(self, rows: int) -> Iterator[slice]:
        """Rows that are searched together."""
        each = max(AT_ONCE // max(self._vertices, len(self._tail)), 1)
        for first in range(0, rows, each):
            yield slice(first, min(first + each, rows))

    def _search(self, sources: I64, wanted: I64, passed: I64) -> _Found:
        """Links that shortest ways from each source to the NPUs with marks begin with, and all links of these.

        Parameters
        ----------
        sources
            An NPU for each row.
        wanted
            Marks of NPUs, by row.
        passed
            Marks with which an NPU may be the next on a way that leaves, by row.
        """
        rows, vertices = len(sources), self._vertices
        dist = self._distances(sources)
        usable = ~self._closed[self._tail] | (self._tail == sources[:, None])
        near = dist.reshape(rows, vertices)
        from_here = near[:, self._tail]
        row, link = np.nonzero(usable & (from_here < FAR) & (from_here + self._length == near[:, self._head]))
        tail, head = row * vertices + self._tail[link], row * vertices + self._head[link]
        order = np.argsort(dist[tail], kind="stable")
        row, link, tail, head = row[order], link[order], tail[order], head[order]
        levels = [*pairwise([0, *(np.flatnonzero(np.diff(dist[tail])) + 1).tolist(), len(tail)])]
        late = np.full(rows * vertices, np.inf)
        late[np.arange(rows) * vertices + sources] = 0.0
        for a, b in levels:
            np.minimum.at(late, head[a:b], late[tail[a:b]] + self._latency_ns[link[a:b]])
        marks = self._flat(wanted, 0)
        leaving = np.zeros(len(marks), np.int64)
        allowed = self._flat(passed, -1)
        ends = self._head[link] < self._npus
        led = np.zeros((rows, len(self._tail)), np.int64)
        for a, b in reversed(levels):
            behind = marks[head[a:b]]
            led[row[a:b], link[a:b]] = behind
            left = np.where(ends[a:b], behind & allowed[head[a:b]], leaving[head[a:b]])
            np.bitwise_or.at(leaving, tail[a:b], left)
            np.bitwise_or.at(marks, tail[a:b], behind)
        first = np.flatnonzero(self._tail[link] == sources[row])
        behind = marks[head[first]]
        left = np.where(ends[first], behind & allowed[head[first]], leaving[head[first]])
        ways = late.reshape(rows, vertices)[:, : self._npus]
        count = max(int(wanted.max(initial=0)).bit_length(), 2 * len(self._network.dims))
        sums = np.stack([np.where(wanted >> k & 1, ways, 0.0).sum(axis=1) for k in range(count)], axis=1)
        kept = behind != 0
        return _Found(row[first][kept], link[first][kept], behind[kept], left[kept], sums, led)

    def _flat(self, of_npus: I64, of_others: int) -> I64:
        """Words of NPUs, by row, as those of all vertices, row after row."""
        out = np.full((len(of_npus), self._vertices), of_others, np.int64)
        out[:, : self._npus] = of_npus
        return out.reshape(-1)

    def _distances(self, sources: I64) -> I64:
        """Length of the shortest way from each source to every vertex, row after row."""
        vertices = self._vertices
        dist = np.full(len(sources) * vertices, FAR, np.int64)
        edge = np.arange(len(sources)) * vertices + sources
        dist[edge] = 0
        while len(edge):
            row, vertex = np.divmod(edge, vertices)
            goes_on = ~self._closed[vertex] | (vertex == sources[row])
            edge, row, vertex = edge[goes_on], row[goes_on], vertex[goes_on]
            count = self._out.start[vertex + 1] - self._out.start[vertex]
            link = self._out.of(vertex)
            far = np.repeat(dist[edge], count) + self._length[link]
            to = np.repeat(row * vertices, count) + self._head[link]
            better = far < dist[to]
            np.minimum.at(dist, to[better], far[better])
            edge = distinct(to[better])
        return dist


def _each_once(found: dict[int, list[I64]]) -> dict[int, I64]:
    """Links of each group, ascending."""
    return {number: distinct(np.concatenate(some)) for number, some in found.items()}


def _codes(values: U64) -> I64:
    """Number of each distinct value."""
    return np.unique(values, return_inverse=True)[1].reshape(-1).astype(np.int64)
