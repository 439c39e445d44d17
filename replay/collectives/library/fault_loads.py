"""How long a library's collective needs at least where links have failed or are slow, on networks that share no links.

Its messages, each over its way, put so many bytes on each link; the link that takes longest for its own is the time. It
counts where faults made it longer than it was: else the time of the library stands, which was measured on whole links.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from chakra.arrays import F64, I64, ranges
from chakra.replay.collectives.library.messages import Lane
from chakra.replay.config.model import Faults, Network
from chakra.replay.networks.flow.link_paths import link_paths


@dataclass(frozen=True, slots=True)
class FaultLoads:
    """Times that links with faults need for the bytes of one collective.

    Attributes
    ----------
    network
        With `links`, some of which have failed or are slow.
    faults
        Which, and the links as they were.
    """

    network: Network
    faults: Faults
    _shares: dict[bytes, tuple["_Shares", "_Shares"]] = field(default_factory=dict, compare=False)

    def longer_ns(self, lanes: Sequence[Lane], npus: I64) -> int:
        """Time of the busiest link, ns; 0 where faults do not make it longer.

        Parameters
        ----------
        lanes
            Messages of the collective, by positions of members.
        npus
            NPUs of the members.

        Raises
        ------
        ConfigError
            When a pair of members has no route, or one over too many ways.
        """
        if not lanes:
            return 0
        n = self.network.npus
        source = np.concatenate([np.full(len(lane.target), lane.source) for lane in lanes])
        target = np.concatenate([lane.target for lane in lanes])
        size = np.concatenate([lane.size for lane in lanes])
        keys, place = np.unique(npus[source] * n + npus[target], return_inverse=True)
        sent = np.bincount(place.reshape(-1), size, minlength=len(keys)).astype(np.float64)
        known = keys.tobytes()
        if known not in self._shares:
            pairs = np.stack(np.divmod(keys, n), axis=1)
            whole = replace(self.network, links=self.faults.before)
            self._shares[known] = _shares(whole, pairs), _shares(self.network, pairs)
        before, now = (shares.longest_ns(sent) for shares in self._shares[known])
        # no less than the bytes need, but for what computing it rounds off
        return math.ceil(now * (1 - 1e-12)) if now > before else 0


@dataclass(frozen=True, slots=True)
class _Shares:
    """Which share of each pair's bytes crosses which link, and how fast that is."""

    pair: I64
    link: I64
    share: F64
    bytes_per_ns: F64

    def longest_ns(self, sent: F64) -> float:
        """Time of the busiest link, where each pair sends so many bytes."""
        load = np.bincount(self.link, sent[self.pair] * self.share, minlength=len(self.bytes_per_ns))
        return float((load / self.bytes_per_ns).max(initial=0.0))


def _shares(network: Network, pairs: I64) -> _Shares:
    """Of pairs in ascending order; of those that choose among routes the first counts."""
    p = link_paths(network, pairs)
    first = p.first[:-1]
    count = p.start[first + 1] - p.start[first]
    at = ranges(p.start[first], count)
    return _Shares(
        np.repeat(np.arange(len(first)), count), p.link[at], p.weight[at] / p.whole, p.bytes_per_ns
    )
