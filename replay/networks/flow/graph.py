"""A network given link by link as the search for routes sees it.

NPUs that lie on no way between others and hang on the same switches by equal links reach others in the same way: one of
them stands for all, and the others' first and last links take the place of its own.
"""

from dataclasses import dataclass

import numpy as np

from chakra.arrays import I64, AnyArray, bounds, ranges
from chakra.replay.config.model import Links, Network
from chakra.replay.networks.routes import weights

#: links of an NPU up to which NPUs are looked at whether they are alike
MOST_PORTS = 64
#: links of an NPU at the edge up to which each of its links is tried with each of the other's
FEW_PORTS = 8


@dataclass(frozen=True, slots=True)
class Csr:
    """Links by a vertex, in the order of the file: those of v are item[start[v]:start[v + 1]]."""

    start: I64
    item: I64

    def of(self, vertices: I64) -> I64:
        """Links of vertices, vertex after vertex."""
        count = self.start[vertices + 1] - self.start[vertices]
        out: I64 = self.item[ranges(self.start[vertices], count)]
        return out


def csr_of(of: I64, items: I64, vertices: int) -> Csr:
    """Links by the vertex that each is `of`, in their order."""
    order = np.argsort(of, kind="stable")
    start = bounds(np.bincount(of, minlength=vertices))
    return Csr(start, items[order])


class Graph:
    """Links by vertex, all of them and those of the vertices that are searched.

    Attributes
    ----------
    tail, head, length, latency_ns
        Of each link: its vertices, its length to the search, and how long it takes.
    ends
        NPUs that lie on no way between others, and whose neighbours are switches.
    stand
        NPU that stands for each NPU in the search; other vertices stand for themselves.
    closed
        1 of vertices that may only begin or end a path.
    """

    def __init__(self, network: Network, links: Links) -> None:
        n = network.npus
        self.npus, self.vertices = n, n + len(links.vertices)
        self.tail = np.array([x.src for x in links.links], np.int64)
        self.head = np.array([x.dst for x in links.links], np.int64)
        self.latency_ns = np.array([x.latency_ns for x in links.links], np.float64)
        self.length = weights(network)
        self.equal = bool((self.length == 1).all())
        number = np.arange(len(self.tail))
        self.all_out, self.all_in = (
            csr_of(self.tail, number, self.vertices),
            csr_of(self.head, number, self.vertices),
        )
        self.place_out, self.place_in = _places(self.all_out, self.tail), _places(self.all_in, self.head)
        self.ends = self._ends(links)
        self.stand = self._stand(self.ends)
        self.closed = np.zeros(self.vertices, np.int64)
        self.closed[:n] = self.ends | (not links.npus_forward)
        kept = self.stand == np.arange(self.vertices)
        core = np.flatnonzero(kept[self.tail] & kept[self.head])
        self.into = csr_of(self.head[core], core, self.vertices)
        self.out = csr_of(self.tail[core], core, self.vertices)

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

    def at_edge(self, pair: I64, src: I64, dst: I64) -> tuple[I64, I64, I64]:
        """Of pairs those with two `ends` that have few links: numbers of the pairs, and their NPUs."""
        few = self.ends & (np.diff(self.all_out.start)[: self.npus] <= FEW_PORTS)
        few &= np.diff(self.all_in.start)[: self.npus] <= FEW_PORTS
        mine = few[src] & few[dst]
        return pair[mine], src[mine], dst[mine]

    def first_links(self, link: I64, src: I64) -> I64:
        """The links of NPUs `src` that are what `link` is to those that stand for them."""
        out: I64 = self.all_out.item[self.all_out.start[src] + self.place_out[link]]
        return out

    def last_links(self, link: I64, dst: I64) -> I64:
        """The same for links that end at NPUs `dst`."""
        out: I64 = self.all_in.item[self.all_in.start[dst] + self.place_in[link]]
        return out


def _places(csr: Csr, of: I64) -> I64:
    """Which of its vertex's links each link is."""
    out = np.empty(len(of), np.int64)
    out[csr.item] = np.arange(len(of)) - csr.start[of[csr.item]]
    return out
