"""Which links the flows of each pair of NPUs use: one path, the first few equal ones, or a share of all of them."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import lcm

import numpy as np

from chakra.arrays import F64, I64, bounds, distinct, ranges
from chakra.replay.config.model import Network, Topology
from chakra.replay.networks.flow.trees import Trees

#: weights of paths are in parts of at most this; more equal paths get weights that are rounded up
MOST_PARTS = 1 << 20


@dataclass(frozen=True, slots=True)
class Paths:
    """Routes of pairs of NPUs.

    Attributes
    ----------
    src, dst
        Sending and receiving NPU of each pair; pairs ascend by (src, dst). Beyond the NPUs' numbers stand the ports of
        switches (`with_ports`).
    first
        Route r of pair p: first[p] <= r < first[p + 1].
    latency_ns
        Of each route, the sum of its links, whole ns.
    start, link, weight
        Links of route r, and the share of a flow that each carries, in parts of `whole`: start[r] to start[r + 1].
    whole
        Parts of a weight of 1.
    bytes_per_ns
        Of each link.
    """

    src: I64
    dst: I64
    first: I64
    latency_ns: I64
    start: I64
    link: I64
    weight: I64
    whole: int
    bytes_per_ns: F64


def alone_on_first(p: Paths) -> F64:
    """Bytes per ns of a flow of each pair that is alone, on its first route."""
    count = np.diff(p.start)
    narrow = np.full(len(count), np.inf)
    np.minimum.at(
        narrow, np.repeat(np.arange(len(count)), count), p.bytes_per_ns[p.link] * p.whole / p.weight
    )
    out: F64 = narrow[p.first[:-1]]
    return out


def alone_and_back(src: I64, dst: I64, alone: F64, npus: int) -> tuple[F64, F64]:
    """Bytes per ns of a flow of each pair that is alone, which is given, and of one on the way back.

    A way back that is not among the pairs is as fast as the way there.
    """
    width = key_width(dst, npus)
    keys, other = src * width + dst, dst * width + src
    at = np.minimum(np.searchsorted(keys, other), max(len(keys) - 1, 0))
    return alone, np.where(keys[at] == other, alone[at], alone) if len(keys) else alone


def key_width(dst: I64, npus: int) -> int:
    """What numbers of senders are multiplied by in keys of pairs: more than any receiver."""
    return max(npus, int(dst.max(initial=-1)) + 1)


def port(network: Network, tree: int, *, back: bool, weighted: bool = False) -> int:
    """The number that stands for a switch, or a tree of them, as receiver of an NPU's flow, or `back` as its sender.

    On building blocks the tree is the number of the dimension. `weighted`: each link carries as often the flow's bytes as
    there are members below it.
    """
    return network.npus + 4 * tree + 2 * weighted + back


def with_ports(p: Paths, network: Network, pairs: I64) -> Paths:
    """Paths with those between NPUs and the switches of building blocks, pairs of an NPU and a `port`; one link each.

    What passes a switch is there after the latencies of both ways, whichever of the two takes longer.
    """
    width = key_width(pairs[:, 1], network.npus)
    npu, ends = np.divmod(distinct(pairs[:, 0] * width + pairs[:, 1]), width)
    dim, back = np.divmod(ends - network.npus, 4)
    own = [network.npus * (d.npus if d.topology is Topology.FULLY_CONNECTED else 2) for d in network.dims]
    first = np.cumsum([0, *own])[dim]
    latency = np.array([int(2 * d.latency_ns) for d in network.dims], np.int64)[dim]
    one = np.ones(len(npu), np.int64)
    return joined(p, npu, ends, latency, one, first + 2 * npu + back, one)


def with_trees(p: Paths, network: Network, rings: Iterable[tuple[int, I64]]) -> Paths:
    """Paths with those of the trees that carry out collectives of rings (tree's number, NPUs)."""
    trees = Trees(network)
    rows: list[tuple[int, int, int]] = []
    count: list[int] = []
    link: list[int] = []
    weight: list[int] = []
    for number, members in rings:
        for npu, branch in zip(members.tolist(), trees.of(members.tolist()), strict=True):
            for back, hops in ((False, branch.up), (True, branch.down)):
                for weighted in (False, True):
                    end = port(network, number, back=back, weighted=weighted)
                    rows.append((npu, end, branch.latency_ns))
                    count.append(len(hops))
                    link += hops
                    weight += branch.below if weighted else (1,) * len(hops)
    src, dst, latency = np.array(rows, np.int64).reshape(-1, 3).T
    return joined(p, src, dst, latency, *(np.array(each, np.int64) for each in (count, link, weight)))


def joined(p: Paths, src: I64, dst: I64, latency_ns: I64, count: I64, link: I64, weight: I64) -> Paths:
    """Paths, and further pairs with one route each, of `count` links one behind the other."""
    routes = np.diff(p.first)
    more = np.ones(len(src), np.int64)
    every = np.concatenate([p.src, src]), np.concatenate([p.dst, dst])
    order = np.lexsort((every[1], every[0]))
    # routes and hops in the order of their pairs
    of_pair = np.concatenate([routes, more])
    begin = np.cumsum(of_pair) - of_pair
    first = bounds(of_pair[order])
    route = ranges(begin[order], of_pair[order])
    hops = np.concatenate([np.diff(p.start), count])
    at = np.cumsum(hops) - hops
    start = bounds(hops[route])
    hop = ranges(at[route], hops[route])
    return Paths(
        src=every[0][order],
        dst=every[1][order],
        first=first,
        latency_ns=np.concatenate([p.latency_ns, latency_ns])[route],
        start=start,
        link=np.concatenate([p.link, link])[hop],
        weight=np.concatenate([p.weight, weight * p.whole])[hop],
        whole=p.whole,
        bytes_per_ns=p.bytes_per_ns,
    )


def distinct_pairs(pairs: I64, npus: int) -> I64:
    """Keys src * npus + dst of the different pairs of different NPUs, ascending."""
    keys = distinct(pairs[:, 0] * npus + pairs[:, 1])
    out: I64 = keys[keys // npus != keys % npus]
    return out


def one_route_each(keys: I64, npus: int, owner: I64, link: I64, latency_ns: F64, bytes_per_ns: F64) -> Paths:
    """Paths of pairs with one route: `owner` says whose each hop is (index into `keys`, ascending)."""
    count = np.bincount(owner, minlength=len(keys))
    start = bounds(count)
    total = np.bincount(owner, latency_ns[link], minlength=len(keys))
    return Paths(
        src=keys // npus,
        dst=keys % npus,
        first=np.arange(len(keys) + 1),
        latency_ns=total.astype(np.int64),
        start=start,
        link=link,
        weight=np.ones(len(link), np.int64),
        whole=1,
        bytes_per_ns=bytes_per_ns,
    )


def block_paths(network: Network, pairs: I64) -> Paths:
    """Paths over building blocks: one dimension after the other, the lowest first (replay semantics, section 5.4).

    Links are numbered dimension by dimension as the message engine's `NetworkRows` does: two per NPU (a ring's next
    and previous, a switch's up and down), or one for each NPU and position of a fully connected dimension.
    """
    n = network.npus
    keys = distinct_pairs(pairs, n)
    here, there = keys // n, keys % n
    mine = np.arange(len(keys))
    owner: list[I64] = []
    link: list[I64] = []
    latency: list[F64] = []
    speed: list[F64] = []
    first = 0
    stride = 1
    for dim in network.dims:
        size = dim.npus
        a, b = here // stride % size, there // stride % size
        after = here + (b - a) * stride
        apart = a != b
        own = n * size if dim.topology is Topology.FULLY_CONNECTED else 2 * n
        if dim.topology is Topology.RING:
            _add_ring(first, stride, size, mine[apart], here[apart], (b - a)[apart], owner, link)
        elif dim.topology is Topology.FULLY_CONNECTED:
            owner.append(mine[apart])
            link.append((first + here * size + b)[apart])
        else:
            owner += [mine[apart], mine[apart]]
            link += [(first + 2 * here)[apart], (first + 2 * after + 1)[apart]]
        latency.append(np.full(own, float(dim.latency_ns)))
        speed.append(np.full(own, dim.bytes_per_ns))
        here = after
        stride *= size
        first += own
    who = np.concatenate([np.zeros(0, np.int64), *owner])
    order = np.argsort(who, kind="stable")
    hops = np.concatenate([np.zeros(0, np.int64), *link])[order]
    return one_route_each(keys, n, who[order], hops, np.concatenate(latency), np.concatenate(speed))


def _add_ring(
    first: int, stride: int, size: int, mine: I64, here: I64, ahead: I64, owner: list[I64], link: list[I64]
) -> None:
    """Hops along a ring, the shorter way round, ascending on a tie."""
    ahead = ahead % size
    back = 2 * ahead > size
    hops = np.where(back, size - ahead, ahead)
    way = np.where(back, -1, 1)
    at = here // stride % size
    base = here - at * stride
    for k in range(int(hops.max(initial=0))):
        going = hops > k
        position = (at + k * way) % size
        owner.append(mine[going])
        link.append((first + 2 * (base + position * stride) + back)[going])


def common_parts(totals: Iterable[int]) -> tuple[int, bool]:
    """Parts that weights are counted in, for so many equal paths; and whether all weights are whole numbers of them."""
    whole = 1
    for total in totals:
        whole = lcm(whole, total)
        if whole > MOST_PARTS:
            return MOST_PARTS, False
    return whole, True
