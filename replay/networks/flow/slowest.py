"""Latency of flows that use several ways at once: their last byte comes over the slowest."""

from dataclasses import replace

import numpy as np

from chakra.arrays import F64, I64, bounds, ranges
from chakra.replay.config.model import Links
from chakra.replay.networks.flow.paths import Paths

#: vertices of all routes that are looked at together
TOGETHER = 1 << 22


def with_slowest(p: Paths, links: Links) -> Paths:
    """The paths, with the latency of the slowest of its ways for each route that has several.

    Ways of equal length may have unequal latencies. Of routes whose links all have one latency the mean, which the
    search gives, is that of each way.

    Parameters
    ----------
    p
        Routes between NPUs.
    links
        What they are made of.
    """
    latency = np.array([x.latency_ns for x in links.links], np.float64)
    filled = np.flatnonzero(np.diff(p.start))
    if not len(filled) or latency.min() == latency.max():
        return p
    own, begin = latency[p.link], p.start[filled]
    uneven = np.minimum.reduceat(own, begin) < np.maximum.reduceat(own, begin)
    parted = np.minimum.reduceat(p.weight, begin) < p.whole
    rest = filled[uneven & parted]
    if not len(rest):
        return p
    tail = np.array([x.src for x in links.links], np.int64)
    head = np.array([x.dst for x in links.links], np.int64)
    pair = np.searchsorted(p.first, rest, side="right") - 1
    count = p.start[rest + 1] - p.start[rest]
    link = p.link[ranges(p.start[rest], count)]
    out = p.latency_ns.copy()
    late = slowest_ways(p.src[pair], p.dst[pair], bounds(count), link, latency, tail, head)
    out[rest] = np.floor(late + 1e-6).astype(np.int64)
    return replace(p, latency_ns=out)


def slowest_ways(src: I64, dst: I64, start: I64, link: I64, latency: F64, tail: I64, head: I64) -> F64:
    """Latency of the slowest way between two vertices each, ns.

    Parameters
    ----------
    start, link
        Links of all ways of route r: link[start[r]:start[r + 1]].
    latency, tail, head
        Of each link.
    """
    vertices = int(max(tail.max(), head.max())) + 1
    size = max(TOGETHER // vertices, 1)
    late = np.full(size * vertices, -np.inf)
    out = np.zeros(len(src))
    for k in range(0, len(src), size):
        n = min(size, len(src) - k)
        row = np.arange(n) * vertices
        hops = link[start[k] : start[k + n]]
        at = np.repeat(row, np.diff(start[k : k + n + 1]))
        late[row + src[k : k + n]] = 0.0
        _spread(late, at + tail[hops], at + head[hops], latency[hops])
        out[k : k + n] = late[row + dst[k : k + n]]
        late[row + src[k : k + n]] = late[at + head[hops]] = -np.inf
    return out


def _spread(late: F64, begin: I64, end: I64, latency: F64) -> None:
    """Latest arrivals at all ends of links, from where they are known; ways have no loops, so this ends."""
    while True:
        before = late[end]
        np.maximum.at(late, end, late[begin] + latency)
        if np.array_equal(before, late[end]):
            return
