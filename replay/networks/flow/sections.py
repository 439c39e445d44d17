"""Routes in sections that many pairs have in common: what a sprayed flow crosses between two switches is said once.

A sprayed flow of a large tree crosses hundreds of links, most of which its neighbours cross, too, in the same shares. So
a route is a few sections, and a section a list of links: their number grows with switches, not with pairs.
"""

from dataclasses import dataclass

import numpy as np

from chakra.arrays import F64, I64, bounds, ranges
from chakra.replay.networks.flow.paths import Paths


@dataclass(frozen=True, slots=True)
class Sections:
    """Routes of pairs of NPUs, one for each.

    Attributes
    ----------
    src, dst, latency_ns
        Of each pair, as of `Paths`.
    start, section
        Sections of pair p: section[start[p]:start[p + 1]].
    begin, link, weight
        Links of section s and the share of a flow that each carries, in parts of `whole`: begin[s] to begin[s + 1].
    whole, bytes_per_ns
        As of `Paths`.
    """

    src: I64
    dst: I64
    latency_ns: I64
    start: I64
    section: I64
    begin: I64
    link: I64
    weight: I64
    whole: int
    bytes_per_ns: F64

    def hops_of(self, pair: I64) -> tuple[I64, I64, I64]:
        """How many links each of some pairs crosses; these links, pair after pair; and their weights."""
        section = self.section[ranges(self.start[pair], np.diff(self.start)[pair])]
        each = np.diff(self.begin)[section]
        at = ranges(self.begin[section], each)
        uses = np.diff(self.start)[pair]
        return totals(each, bounds(uses)), self.link[at], self.weight[at]

    def alone(self) -> F64:
        """Bytes per ns of a flow of each pair that has its links to itself."""
        speed = self.bytes_per_ns[self.link] * self.whole / self.weight
        return least(least(speed, self.begin)[self.section], self.start)

    def paths(self) -> Paths:
        """The same, pair after pair."""
        count, link, weight = self.hops_of(np.arange(len(self.src)))
        return Paths(
            src=self.src,
            dst=self.dst,
            first=np.arange(len(self.src) + 1),
            latency_ns=self.latency_ns,
            start=bounds(count),
            link=link,
            weight=weight,
            whole=self.whole,
            bytes_per_ns=self.bytes_per_ns,
        )


def in_sections(p: Paths) -> Sections:
    """Routes of pairs that have one each, every route a section."""
    number = np.arange(len(p.src))
    return Sections(
        src=p.src,
        dst=p.dst,
        latency_ns=p.latency_ns,
        start=np.arange(len(p.src) + 1),
        section=number,
        begin=p.start,
        link=p.link,
        weight=p.weight,
        whole=p.whole,
        bytes_per_ns=p.bytes_per_ns,
    )


def totals(values: I64, start: I64) -> I64:
    """Sum of each list of values."""
    out: I64 = np.diff(bounds(values)[start])
    return out


def least(values: F64, start: I64) -> F64:
    """Least value of each list; infinite where there is none."""
    out: F64 = np.minimum.reduceat(np.append(values, np.inf), np.minimum(start[:-1], len(values)))
    out[np.diff(start) == 0] = np.inf
    return out
