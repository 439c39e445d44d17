"""How long messages take over single links where none of them waits: ⌊sum of latencies + bytes / least bandwidth⌋, ns.

Links of building blocks, some of which are slow or gone, take that in every dimension, one after the other. Ways are
those of `chakra.replay.networks.flow.link_paths`, one for each pair of NPUs that is asked for. Pairs whose ways have
equal latencies and bandwidths cannot be told apart by any message, and are of one kind.
"""

import numpy as np

from chakra.arrays import I64
from chakra.replay.config.model import Network
from chakra.replay.networks.flow.link_paths import link_paths
from chakra.replay.networks.flow.paths import distinct_pairs
from chakra.replay.networks.routes import parts_of_links, refuse_splitting


class Ways:
    """Ways between some pairs of NPUs.

    Parameters
    ----------
    network
        With `links`.
    pairs
        Sending and receiving NPU, shape (pairs, 2).
    charged_once
        Whether a message takes its time once, on building blocks, too.

    Raises
    ------
    ConfigError
        When a pair has no route, or messages would take several at once.
    """

    def __init__(self, network: Network, pairs: I64, *, charged_once: bool = False) -> None:
        refuse_splitting(network)
        self._npus = network.npus
        self._keys = distinct_pairs(pairs, network.npus)
        paths = link_paths(network, pairs)
        count = np.diff(paths.start)
        route = np.repeat(np.arange(len(count)), count)
        part = parts_of_links(network)[paths.link]
        begins = np.diff(route, prepend=-1) != 0
        if not charged_once:
            begins |= np.diff(part, prepend=-1) != 0
        # of each route its parts, one after the other; a shorter one ends in parts that take no time
        number = np.cumsum(begins) - 1
        first = np.searchsorted(route, np.arange(len(count)))
        place = number - number[first[route]] if len(route) else number
        shape = len(count), int(place.max(initial=0)) + 1
        latency = np.array([x.latency_ns for x in network.links.links] if network.links else [], np.float64)
        # summed up link after link, as the message-level engine does
        self._latency_ns = np.zeros(shape)
        np.add.at(self._latency_ns, (route, place), latency[paths.link])
        self._bytes_per_ns = np.full(shape, np.inf)
        np.minimum.at(self._bytes_per_ns, (route, place), paths.bytes_per_ns[paths.link])
        speeds = np.concatenate([self._latency_ns, self._bytes_per_ns], axis=1)
        self._kind: I64 = np.unique(speeds, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)

    def kinds(self, src: I64, dst: I64) -> I64:
        """Kind of the way of each pair, all of which were asked for; -1 from an NPU to itself."""
        out = np.full(src.shape, -1, np.int64)
        apart = src != dst
        out[apart] = self._kind[np.searchsorted(self._keys, (src * self._npus + dst)[apart])]
        return out

    def delay_ns(self, src: int, dst: int, size_bytes: int) -> int:
        """Time of a message of a pair that was asked for, ns."""
        if src == dst:
            return 0
        pair = int(np.searchsorted(self._keys, src * self._npus + dst))
        parts = self._latency_ns[pair] + size_bytes / self._bytes_per_ns[pair]
        return int(np.floor(parts).sum())
