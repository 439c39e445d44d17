"""Routes on a network that is given link by link.

Shortest paths by hops or latency; among equal ones each vertex picks the next link by a hash of the message's ends, as
switches do for flows (equal-cost multi-path), so that a pair always takes the same way and different pairs spread.
"""

import itertools
from dataclasses import dataclass

import numpy as np

from chakra.arrays import F64, I64, AnyArray, bounds, distinct, rows_by
from chakra.errors import ConfigError
from chakra.io.limits import MAX_ROUTED_NPUS
from chakra.io.readable import counted
from chakra.replay.config.model import Links, Network, Topology

FAR = np.int64(1) << 62
#: ways of choosing among equal paths that only flows have
SPLITTING = ("spray", "adaptive")


@dataclass(frozen=True, slots=True)
class LinkGraph:
    """An arbitrary network: links and one route per ordered pair of NPUs."""

    #: per link
    latency_ns: F64
    bytes_per_ns: F64
    #: links of pair (a, b): routes[route_start[a * npus + b]:route_start[a * npus + b + 1]]
    route_start: I64
    routes: I64
    #: per link, as `parts_of_links` has it
    part: I64


def link_graph(network: Network, pairs: I64) -> LinkGraph:
    """The links of a network, and the routes of the pairs of NPUs that exchange messages.

    Parameters
    ----------
    network
        With `links`.
    pairs
        Sending and receiving NPU, shape (pairs, 2); pairs of an NPU with itself need no route.

    Raises
    ------
    ConfigError
        When a pair has no route, or there are more NPUs than a table of routes is made for.
    """
    links = _links(network)
    n = network.npus
    if n > MAX_ROUTED_NPUS:
        raise ConfigError(
            f"{network.source}: {counted(n, 'NPU')}; a network of single links has at most {MAX_ROUTED_NPUS} unless "
            "the backend is "
            "flow (--backend flow)"
        )
    refuse_splitting(network)
    keys = distinct(pairs[:, 0] * n + pairs[:, 1])
    keys = keys[keys // n != keys % n]
    given = given_routes(network, links, keys)
    open_keys = keys[~np.isin(keys, np.fromiter(given, np.int64, len(given)))] if given else keys
    owner, step, link = _shortest(network, links, open_keys)
    if given:
        owner = np.concatenate([owner, *(np.full(len(r), key) for key, r in given.items())])
        step = np.concatenate([step, *(np.arange(len(r)) for r in given.values())])
        link = np.concatenate([link, *(np.array(r, np.int64) for r in given.values())])
    order = np.lexsort((step, owner))
    start = bounds(np.bincount(owner, minlength=n * n))
    return LinkGraph(
        latency_ns=np.array([x.latency_ns for x in links.links], np.float64),
        bytes_per_ns=np.array([x.bytes_per_ns for x in links.links], np.float64),
        route_start=start,
        routes=link[order].astype(np.int64),
        part=parts_of_links(network),
    )


def parts_of_links(network: Network) -> I64:
    """(links,) equal numbers for links of a route that a message takes time for once, where it waits for nothing.

    Building blocks charge a message in every dimension that it crosses, and so do they where their links are listed
    because some are slow or gone. A list of other links charges it once.
    """
    links = _links(network)
    if not links.dimension_ordered:
        return np.zeros(len(links.links), np.int64)
    return dimensions_of_links(network, links)


def refuse_splitting(network: Network) -> None:
    """Refuse a network whose messages may take several routes, where each takes one.

    Raises
    ------
    ConfigError
        Naming the other ways of choosing among equal paths.
    """
    links = _links(network)
    if links.ecmp in SPLITTING:
        raise ConfigError(
            f"{network.source}: ecmp {links.ecmp!r} ('sprayed' in words for a fabric) is for flows, which take all equal "
            "paths at once: use --backend flow (of a study, replay: {backend: flow}), or one of hash, first, destination"
        )


def _links(network: Network) -> Links:
    if network.links is None:
        raise ValueError("the network has building blocks, not links")
    return network.links


def given_routes(network: Network, links: Links, keys: I64) -> dict[int, list[int]]:
    """Links of the routes that the file gives or that the building blocks imply, without those over missing links."""
    if not links.routes and not links.dimension_ordered:
        return {}
    number = {(x.src, x.dst): i for i, x in enumerate(links.links)}
    n = network.npus
    wanted = set(keys.tolist())
    routes = {r[0] * n + r[-1]: r for r in links.routes}
    if links.dimension_ordered:
        routes = {key: dimension_route(network, key // n, key % n) for key in wanted}
    out = {}
    for key, route in routes.items():
        hops = [number.get(hop, -1) for hop in itertools.pairwise(route)]
        if key in wanted and -1 not in hops:
            out[key] = hops
    return out


def dimension_route(network: Network, src: int, dst: int) -> tuple[int, ...]:
    """Vertices between two NPUs of building blocks: one dimension after the other, the lowest first.

    Within a dimension the route is that of replay semantics, section 5.4. Vertices are numbered as
    `chakra.replay.networks.blocks.block_links` does.
    """
    route = [src]
    here, stride, switch = src, 1, network.npus
    for dim in network.dims:
        a, b = here // stride % dim.npus, dst // stride % dim.npus
        row = here // (stride * dim.npus) * stride + here % stride
        if a != b and dim.topology is Topology.RING:
            ahead = (b - a) % dim.npus
            way = 1 if 2 * ahead <= dim.npus else -1
            while a != b:
                after = (a + way) % dim.npus
                here += (after - a) * stride
                a = after
                route.append(here)
        elif a != b:
            if dim.topology is Topology.SWITCH:
                route.append(switch + row)
            here += (b - a) * stride
            route.append(here)
        if dim.topology is Topology.SWITCH:
            switch += network.npus // dim.npus
        stride *= dim.npus
    return tuple(route)


def weights(network: Network) -> I64:
    """Length of each link, in whole numbers, so that equal paths are equal.

    1 hop; or its latency in ps, and then hops; or whether it leaves a machine, and then hops.
    """
    links = _links(network)
    if links.routing == "hops":
        return np.ones(len(links.links), np.int64)
    if links.routing == "inside":
        return np.where(_inside(network, links), 1, 1 << 10)
    ps = np.array([min(round(x.latency_ns * 1000), 1 << 40) for x in links.links], np.int64)
    return ps * (1 << 10) + 1


def _inside(network: Network, links: Links) -> AnyArray:
    """Which links lie inside a machine: NPUs that differ in other dimensions than the last, and what only they reach."""
    return dimensions_of_links(network, links) < len(network.dims) - 1


def dimensions_of_links(network: Network, links: Links) -> I64:
    """(links,) the lowest dimension k with both ends among the NPUs that are equal above k and what only they reach.

    What a switch reaches is what it reaches through others, too: a leaf switch of machines and its spines join machines,
    a switch inside a machine does not.
    """
    src = np.array([x.src for x in links.links], np.int64)
    dst = np.array([x.dst for x in links.links], np.int64)
    vertices = network.npus + len(links.vertices)
    npus = np.arange(network.npus)
    ends = np.concatenate([src, dst]), np.concatenate([dst, src])
    switch = ends[0] >= network.npus
    here, there = ends[0][switch], ends[1][switch]
    found = np.full(len(src), len(network.dims) - 1, np.int64)
    each = np.cumprod([dim.npus for dim in network.dims])
    for k in reversed(range(len(network.dims) - 1)):
        lowest, highest = np.full(vertices, vertices, np.int64), np.full(vertices, -1, np.int64)
        lowest[npus] = highest[npus] = npus // each[k]
        # what switches reach through one another, until nothing is new: the groups of each connected part of them
        known = -1
        while known != (known := int(highest.sum() - lowest.sum())):
            np.minimum.at(lowest, here, lowest[there])
            np.maximum.at(highest, here, highest[there])
        whole = (lowest == highest) & (lowest >= 0)
        found[whole[src] & whole[dst] & (lowest[src] == lowest[dst])] = k
    return found


def distances(src: I64, dst: I64, weight: I64, to: int, n_vertices: int, closed: AnyArray) -> I64:
    """Length of the shortest path from every vertex to one; `closed` vertices may only begin or end a path."""
    dist = np.full(n_vertices, FAR, np.int64)
    dist[to] = 0
    usable = ~closed[dst] | (dst == to)
    tail, head, length = src[usable], dst[usable], weight[usable]
    while True:
        before = dist.copy()
        reached = dist[head] < FAR
        np.minimum.at(dist, tail[reached], dist[head[reached]] + length[reached])
        if (dist == before).all():
            return dist


def _shortest(network: Network, links: Links, keys: I64) -> tuple[I64, I64, I64]:
    """Pair, position in its route, and link of every hop of the pairs' routes."""
    n = network.npus
    order = np.argsort(np.array([x.src for x in links.links], np.int64), kind="stable")
    src = np.array([x.src for x in links.links], np.int64)[order]
    dst = np.array([x.dst for x in links.links], np.int64)[order]
    weight = weights(network)[order]
    n_vertices = n + len(links.vertices)
    closed = np.zeros(n_vertices, bool)
    closed[:n] = not links.npus_forward
    found: list[tuple[I64, I64, I64]] = []
    for to, places in rows_by(keys % n).items():
        dist = distances(src, dst, weight, to, n_vertices, closed)
        mine = keys[places]
        here = mine // n
        lost = dist[here] >= FAR
        if lost.any():
            raise ConfigError(
                f"{network.source}: there is no route from NPU {int(here[lost][0])} to NPU {to}"
            )
        on_path = np.flatnonzero(
            (dist[dst] < FAR) & (dist[src] == dist[dst] + weight) & (~closed[dst] | (dst == to))
        )
        count = np.bincount(src[on_path], minlength=n_vertices)
        first = np.cumsum(count) - count
        left = np.full(len(mine), to)
        step = 0
        while len(mine):
            pick = pick_next(links.ecmp, mine, here, left, count[here])
            left = left // count[here]
            hop = on_path[first[here] + pick]
            found.append((mine, np.full(len(mine), step), order[hop]))
            going = dst[hop] != to
            mine, here, left = mine[going], dst[hop][going], left[going]
            step += 1
    empty = np.zeros(0, np.int64)
    if not found:
        return empty, empty, empty
    return (
        np.concatenate([f[0] for f in found]),
        np.concatenate([f[1] for f in found]),
        np.concatenate([f[2] for f in found]),
    )


def pick_next(ecmp: str, pair: I64, vertex: I64, left: I64, count: I64) -> I64:
    """Which of `count` equal next links each pair takes at a vertex; `left` is what "destination" has not used yet."""
    if ecmp == "hash":
        return path_hash(pair, vertex) % count
    return left % count if ecmp == "destination" else np.zeros(len(vertex), np.int64)


def path_hash(pair: I64, vertex: I64) -> I64:
    """A number per pair of NPUs and vertex that looks random: the finaliser of SplitMix64 (Steele et al., 2014)."""
    x = pair.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + vertex.astype(np.uint64) * np.uint64(
        0xD1B54A32D192ED03
    )
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    out: I64 = ((x ^ (x >> np.uint64(31))) >> np.uint64(1)).astype(np.int64)
    return out
