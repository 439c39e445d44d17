"""Latency of flows that use several ways at once: their last byte comes over the slowest."""

from dataclasses import replace

import numpy as np

from chakra.arrays import F64, I64
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
    vertices = int(max(tail.max(), head.max())) + 1
    pair = np.searchsorted(p.first, rest, side="right") - 1
    out = p.latency_ns.copy()
    size = max(TOGETHER // vertices, 1)
    late = np.full(size * vertices, -np.inf)
    for k in range(0, len(rest), size):
        some, ends = rest[k : k + size], pair[k : k + size]
        row = np.arange(len(some)) * vertices
        count = p.start[some + 1] - p.start[some]
        offset = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
        link = p.link[np.repeat(p.start[some], count) + offset]
        at = np.repeat(row, count)
        late[row + p.src[ends]] = 0.0
        _spread(late, at + tail[link], at + head[link], latency[link])
        out[some] = np.floor(late[row + p.dst[ends]] + 1e-6).astype(np.int64)
        late[at + tail[link]] = late[at + head[link]] = -np.inf
    return replace(p, latency_ns=out)


def _spread(late: F64, begin: I64, end: I64, latency: F64) -> None:
    """Latest arrivals at all ends of links, from where they are known; ways have no loops, so this ends."""
    while True:
        before = late[end]
        np.maximum.at(late, end, late[begin] + latency)
        if np.array_equal(before, late[end]):
            return
