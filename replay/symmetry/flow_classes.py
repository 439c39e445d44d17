"""Classes of NPUs, links and flows that max-min sharing cannot tell apart, by colour refinement.

An equitable partition: NPUs of a class run alike and have alike flows, flows of a class have alike ends and cross the
same numbers of links of each class, and links of a class are crossed by the same numbers of flows of each class. Flows of
a class that start together then get the same rates and end together: in each round of filling, links of a class are full
together. So one NPU of each class is simulated, with one flow for each of its class, and links count what all bring.
Whole numbers make that exact, not nearly so: sums over a class are the sums over its members.
"""

import itertools
from dataclasses import dataclass

import numpy as np

from chakra.arrays import I64, U64, AnyArray, bounds, distinct, ranges
from chakra.replay.config.model import Network
from chakra.replay.networks.flow.mixing import Lists, between, mix
from chakra.replay.networks.flow.paths import Paths, key_width
from chakra.replay.networks.flow.sections import Sections
from chakra.replay.symmetry.classes import MOST_ROUNDS, Partition, booked_dims, partition, row_codes
from chakra.replay.symmetry.flow_roles import Talk
from chakra.replay.symmetry.rings_used import RingsUsed
from chakra.replay.workload.communicators import Membership
from chakra.replay.workload.model import Workload

#: classes of pairs on links that are counted at a time
ROWS_AT_ONCE = 4_000_000


@dataclass(frozen=True, slots=True)
class Folded:
    """A network as its classes see it.

    Attributes
    ----------
    partition
        Classes of NPUs.
    paths
        Of the first NPU of each class: `src` is the class, `dst` the NPU, links are classes.
    pair
        Number of each pair of `paths` among all pairs.
    link_of
        Class of each link.
    """

    partition: Partition
    paths: Paths
    pair: I64
    link_of: I64


def fold(
    workload: Workload,
    membership: Membership,
    network: Network,
    usage: RingsUsed,
    said: Talk,
    routes: Sections,
    begin: I64 | None = None,
) -> Folded | None:
    """The coarsest classes that can be told; None where every NPU is a class of its own, or where that is not found soon.

    Parameters
    ----------
    said
        Who sends to whom, in which roles.
    routes
        The one route of each of these pairs.
    begin
        Classes lie within those that have equal numbers here.
    """
    graph = _Graph(said, routes, network)
    npu = np.asarray(workload.program_of, np.int64)
    if begin is not None:
        npu = row_codes(np.stack([npu, begin], axis=1))
    for _ in range(MOST_ROUNDS):
        classes = partition(workload, membership, network, usage, npu)
        if classes.n_classes == workload.npus:
            return None
        colours = graph.refine(classes.class_of)
        if colours is None:
            return None
        if colours.n_npus == classes.n_classes:
            return graph.quotient(classes, colours)
        npu = colours.npu
    return None


@dataclass(frozen=True, slots=True)
class _Colours:
    npu: I64
    link: I64
    pair: I64
    n_npus: int


class _Graph:
    """Pairs of NPUs, the sections that each uses, and the links of these."""

    def __init__(self, said: Talk, routes: Sections, network: Network) -> None:
        npus = network.npus
        self.routes, self.npus = routes, npus
        self.links = len(routes.bytes_per_ns)
        width = key_width(routes.dst, npus)
        keys = routes.src * width + routes.dst
        #: numbers of switches, each unlike everything else
        self.ports = np.arange(npus, width)
        place = np.searchsorted(keys, said.src * width + said.dst)
        most = int(said.role.max(initial=0)) + 1
        place, role = np.divmod(distinct(place * most + said.role), most)
        #: with the dimensions that are booked: an NPU stands for others in books, too
        self.role = mix(Lists(place, len(keys)).sums(mix(role)), _booked(routes, network))
        self.pair = np.repeat(np.arange(len(keys)), np.diff(routes.start))
        self.by_source, self.by_target = Lists(routes.src, npus), Lists(routes.dst, width)
        self.users = Lists(routes.section, len(routes.begin) - 1)
        self.section = np.repeat(np.arange(len(routes.begin) - 1), np.diff(routes.begin))
        self.hops = Lists(routes.link, self.links)
        #: what stands for a weight: odd, so that no digit of what it is multiplied by is lost
        self.share = mix(routes.weight) | np.uint64(1)

    def refine(self, npu: I64) -> _Colours | None:
        """Refine colours of NPUs, links and pairs until none of them splits any more; None where that takes too long."""
        r = self.routes
        of_npu, of_link = mix(npu), mix(r.bytes_per_ns.view(np.uint64))
        one, two = (mix(np.full(1, way)) | np.uint64(1) for way in (1, 2))
        counts = (_different(of_npu), _different(of_link))
        for _ in range(MOST_ROUNDS):
            section = between(of_link[r.link] * self.share, r.begin)
            crossed = between(section[r.section], r.start)
            ends = np.concatenate([of_npu, mix(self.ports)])
            pair = mix(self.role, r.latency_ns, of_npu[r.src], ends[r.dst], crossed)
            used = self.users.sums(pair[self.pair])
            of_link = mix(of_link, self.hops.sums(used[self.section] * self.share))
            sent = self.by_source.sums(pair * one)
            heard = self.by_target.sums(pair * two)[: self.npus]
            of_npu = mix(of_npu, sent, heard)
            now = (_different(of_npu), _different(of_link))
            if now == counts:  # pairs that are alike stay so, as nothing that they touch was split
                return _Colours(_codes(of_npu), _codes(of_link), _codes(pair), now[0])
            counts = now
        return None

    def quotient(self, classes: Partition, colours: _Colours) -> Folded:
        """The network of the classes, from one NPU, link and pair of each."""
        link_of, pair_of = colours.link, colours.pair
        first_link = _first(link_of)
        kinds = _count(pair_of)
        link, pair, total = self._carried(pair_of, kinds)
        self._check(link, pair, total, link_of, first_link)
        mine = first_link[link_of[link]] == link
        pair, entry, total = pair[mine], link_of[link[mine]], total[mine]
        order = np.lexsort((entry, pair))
        start = bounds(np.bincount(pair, minlength=kinds))
        of_class = _Routes(start, entry[order], total[order], self.routes.latency_ns[_first(pair_of)])
        mine, found = self._of_first_npus(classes, pair_of, of_class, first_link)
        return Folded(classes, found, mine, link_of)

    def _carried(self, pair_of: I64, kinds: int) -> tuple[I64, I64, I64]:
        """Classes of the pairs that each link carries, and their weights in all: link, class, sum; ascending."""
        r = self.routes
        key, users = _summed(r.section * kinds + pair_of[self.pair], np.ones(len(self.pair), np.int64))
        section, kind = np.divmod(key, kinds)
        begin = np.searchsorted(section, np.arange(len(r.begin)))
        of_section = np.diff(begin)
        # hops in the order of their links, some links at a time
        hop = self.hops.order
        rows = bounds(of_section[self.section[hop]])[self.hops.start]
        edges = np.flatnonzero(np.diff(rows[:-1] // ROWS_AT_ONCE, prepend=-1))
        out: list[tuple[I64, I64]] = []
        for low, high in itertools.pairwise([*edges.tolist(), self.links]):
            mine = hop[self.hops.start[low] : self.hops.start[high]]
            count = of_section[self.section[mine]]
            at = ranges(begin[self.section[mine]], count)
            out.append(
                _summed(
                    np.repeat(r.link[mine], count) * kinds + kind[at],
                    np.repeat(r.weight[mine], count) * users[at],
                )
            )
        keys, sums = (np.concatenate([np.zeros(0, np.int64), *column]) for column in zip(*out, strict=True))
        return *np.divmod(keys, kinds), sums

    def _check(self, link: I64, pair: I64, total: I64, link_of: I64, first: I64) -> None:
        """Links of a class are alike to the last flow; hashes have not hidden a difference."""
        begin = np.searchsorted(link, np.arange(self.links + 1))
        count = np.diff(begin)
        like = first[link_of]
        if not np.array_equal(count, count[like]):
            raise AssertionError("links of a class carry unequal numbers of classes of flows")
        at = np.arange(len(link)) - begin[link] + begin[like[link]]
        if not (np.array_equal(pair, pair[at]) and np.array_equal(total, total[at])):
            raise AssertionError("links of a class carry unlike flows")

    def _of_first_npus(
        self, classes: Partition, pair_of: I64, routes: "_Routes", first_link: I64
    ) -> tuple[I64, Paths]:
        """Pairs of the NPUs that are simulated, and their paths: a row for each class of pairs."""
        p = self.routes
        number = np.full(self.npus, -1, np.int64)
        number[classes.representative] = np.arange(classes.n_classes)
        mine = np.flatnonzero(number[p.src] >= 0)
        mine = mine[np.lexsort((p.dst[mine], number[p.src[mine]]))]
        kind = pair_of[mine]
        count = routes.start[kind + 1] - routes.start[kind]
        start = bounds(count)
        at = ranges(routes.start[kind], count)
        return mine, Paths(
            src=number[p.src[mine]],
            dst=p.dst[mine],
            first=np.arange(len(mine) + 1),
            latency_ns=routes.latency_ns[kind],
            start=start,
            link=routes.link[at],
            weight=routes.weight[at],
            whole=p.whole,
            bytes_per_ns=p.bytes_per_ns[first_link],
        )


@dataclass(frozen=True, slots=True)
class _Routes:
    start: I64
    link: I64
    weight: I64
    latency_ns: I64


def _booked(routes: Sections, network: Network) -> I64:
    """Bits of the dimensions in which messages of each pair are booked; none of those to switches."""
    out = np.zeros(len(routes.src), np.int64)
    inside = np.flatnonzero(routes.dst < network.npus)
    booked = booked_dims(network, routes.src[inside], routes.dst[inside])
    out[inside] = booked @ (1 << np.arange(len(network.dims)))
    return out


def _different(values: U64) -> int:
    """How many different values there are."""
    return int(np.count_nonzero(np.diff(np.sort(values)))) + min(len(values), 1)


def _codes(values: AnyArray) -> I64:
    """Number of each distinct value."""
    _, codes = np.unique(values, return_inverse=True)
    out: I64 = codes.reshape(-1).astype(np.int64)
    return out


def _count(codes: I64) -> int:
    return int(codes.max(initial=-1)) + 1


def _first(codes: I64) -> I64:
    """The first that has each number."""
    _, first = np.unique(codes, return_index=True)
    return first.astype(np.int64)


def _summed(key: I64, values: I64) -> tuple[I64, I64]:
    """Distinct keys, ascending, and the sum of the values of each."""
    order = np.argsort(key)
    key = key[order]
    begin = np.flatnonzero(np.diff(key, prepend=-1))
    return key[begin], np.add.reduceat(values[order], begin) if len(key) else values
