"""Classes of NPUs, links and flows that max-min sharing cannot tell apart, by colour refinement.

An equitable partition: NPUs of a class run alike and have alike flows, flows of a class have alike ends and cross the
same numbers of links of each class, and links of a class are crossed by the same numbers of flows of each class. Flows of
a class that start together then get the same rates and end together: in each round of filling, links of a class are full
together. So one NPU of each class is simulated, with one flow for each of its class, and links count what all bring.
Whole numbers make that exact, not nearly so: sums over a class are the sums over its members.
"""

from dataclasses import dataclass

import numpy as np

from chakra.arrays import I64, U64, AnyArray
from chakra.replay.config.model import Network
from chakra.replay.networks.flow.paths import Paths, key_width
from chakra.replay.symmetry.classes import Partition, partition, row_codes
from chakra.replay.symmetry.flow_roles import Talk
from chakra.replay.symmetry.rings_used import RingsUsed
from chakra.replay.workload.communicators import Membership
from chakra.replay.workload.model import Workload


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
    paths: Paths,
    begin: I64 | None = None,
) -> Folded | None:
    """The coarsest classes that can be told; None where every NPU is a class of its own.

    Parameters
    ----------
    said
        Who sends to whom, in which roles.
    paths
        The one route of each of these pairs.
    begin
        Classes lie within those that have equal numbers here.
    """
    graph = _Graph(said, paths, network.npus)
    npu = np.asarray(workload.program_of, np.int64)
    if begin is not None:
        npu = row_codes(np.stack([npu, begin], axis=1))
    while True:
        classes = partition(workload, membership, network, usage, npu)
        if classes.n_classes == workload.npus:
            return None
        colours = graph.refine(classes.class_of)
        if colours.n_npus == classes.n_classes:
            break
        npu = colours.npu
    return graph.quotient(classes, colours)


@dataclass(frozen=True, slots=True)
class _Colours:
    npu: I64
    link: I64
    pair: I64
    n_npus: int


class _Graph:
    """Pairs of NPUs, and the links that each crosses."""

    def __init__(self, said: Talk, paths: Paths, npus: int) -> None:
        self.paths, self.npus = paths, npus
        self.links = len(paths.bytes_per_ns)
        width = key_width(paths.dst, npus)
        keys = paths.src * width + paths.dst
        #: numbers of switches, each unlike everything else
        self.ports = np.arange(npus, width)
        place = np.searchsorted(keys, said.src * width + said.dst)
        most = int(said.role.max(initial=0)) + 1
        place, role = np.divmod(np.unique(place * most + said.role), most)
        self.role = _sums(place, _mix(role), len(keys))
        self.pair = np.repeat(np.arange(len(keys)), np.diff(paths.start))

    def refine(self, npu: I64) -> _Colours:
        """Refine colours of NPUs, links and pairs until none of them splits any more."""
        p = self.paths
        link = _codes(p.bytes_per_ns.view(np.uint64))
        counts = (0, 0, 0)
        while True:
            crossed = _sums(self.pair, _mix(link[p.link], p.weight), len(p.src))
            ends = np.concatenate([npu, self.ports])
            pair = _codes(_mix(self.role, p.latency_ns, npu[p.src], ends[p.dst], crossed))
            carried = _sums(p.link, _mix(pair[self.pair], p.weight), self.links)
            link = _codes(_mix(link, carried))
            sent = _sums(p.src, _mix(pair, np.full(len(pair), 1)), self.npus)
            heard = _sums(p.dst, _mix(pair, np.full(len(pair), 2)), len(ends))[: self.npus]
            npu = _codes(_mix(npu, sent, heard))
            now = (_count(npu), _count(link), _count(pair))
            if now == counts:
                return _Colours(npu, link, pair, now[0])
            counts = now

    def quotient(self, classes: Partition, colours: _Colours) -> Folded:
        """The network of the classes, from one NPU, link and pair of each."""
        p, link_of, pair_of = self.paths, colours.link, colours.pair
        first_link = _first(link_of)
        # pairs of each class that the links of each class carry, by weight
        kinds = _count(pair_of)
        key, total = _summed(p.link * kinds + pair_of[self.pair], p.weight)
        link, pair = np.divmod(key, kinds)
        self._check(link, pair, total, link_of, first_link)
        mine = first_link[link_of[link]] == link
        pair, entry, total = pair[mine], link_of[link[mine]], total[mine]
        order = np.lexsort((entry, pair))
        start = np.zeros(kinds + 1, np.int64)
        np.cumsum(np.bincount(pair, minlength=kinds), out=start[1:])
        of_class = _Routes(start, entry[order], total[order], p.latency_ns[_first(pair_of)])
        mine, found = self._of_first_npus(classes, pair_of, of_class, first_link)
        return Folded(classes, found, mine, link_of)

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
        p = self.paths
        number = np.full(self.npus, -1, np.int64)
        number[classes.representative] = np.arange(classes.n_classes)
        mine = np.flatnonzero(number[p.src] >= 0)
        mine = mine[np.lexsort((p.dst[mine], number[p.src[mine]]))]
        kind = pair_of[mine]
        count = routes.start[kind + 1] - routes.start[kind]
        start = np.zeros(len(mine) + 1, np.int64)
        np.cumsum(count, out=start[1:])
        at = np.arange(int(start[-1])) + np.repeat(routes.start[kind] - start[:-1], count)
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


def _mix(*columns: AnyArray) -> U64:
    """A number per row that looks random, equal for equal rows: the finaliser of SplitMix64 (Steele et al., 2014)."""
    out = np.full(len(columns[0]), 0x9E3779B97F4A7C15, np.uint64)
    for column in columns:
        out = (out ^ column.astype(np.uint64)) * np.uint64(0xD1B54A32D192ED03)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            out = (out ^ (out >> np.uint64(shift))) * np.uint64(factor)
        out ^= out >> np.uint64(31)
    return out


def _sums(of: I64, values: U64, n: int) -> U64:
    """Sums of values by what they are of, modulo 2^64: a number for a multiset."""
    out = np.zeros(n, np.uint64)
    np.add.at(out, of, values)
    return out


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
    distinct, place = np.unique(key, return_inverse=True)
    out = np.zeros(len(distinct), np.int64)
    np.add.at(out, place.reshape(-1), values)
    return distinct, out
