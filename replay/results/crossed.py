"""What messages cross in each dimension: over which bandwidth an NPU sends into it, and with which latency."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from chakra.arrays import F64, I64
from chakra.replay.config.model import LinkTopology, Network, Topology
from chakra.replay.networks.flow.link_paths import link_paths

#: pairs of NPUs of a list of links whose routes are looked at, a dimension; of larger networks some NPUs, evenly spread
MOST_PAIRS = 16_384


@dataclass(frozen=True, slots=True, eq=False)
class Crossed:
    """Bandwidths and latencies of the dimensions of a network, as its messages meet them.

    Attributes
    ----------
    bytes_per_ns
        Of each link of a list of links; empty for building blocks.
    first
        By dimension and NPU looked at: the links over which the NPU sends to the others of its line.
    latency_ns
        By dimension: mean latency of the routes along it, ns.
    """

    network: Network
    bytes_per_ns: F64
    first: tuple[tuple[frozenset[int], ...], ...]
    latency_ns: tuple[float, ...]

    @classmethod
    def of(cls, network: Network) -> "Crossed":
        """What is crossed in a network: routes are looked at where it is a list of links."""
        if network.links is None or network.dims[0].topology is not LinkTopology.LINKS:
            return cls(network, np.zeros(0), (), tuple(dim.latency_ns for dim in network.dims))
        sources = np.array([link.src for link in network.links.links], np.int64)
        speeds = np.array([link.bytes_per_ns for link in network.links.links])
        most = max(dim.npus for dim in network.dims)
        looked = np.unique(
            np.linspace(0, network.npus - 1, min(network.npus, max(MOST_PAIRS // most, 1))).astype(np.int64)
        )
        first, latency, inner = [], [], 1
        for dim in network.dims:
            pairs = _line(looked, inner, dim.npus)
            inner *= dim.npus
            paths = link_paths(network, pairs) if len(pairs) else None
            found: dict[int, set[int]] = {npu: set() for npu in looked.tolist()}
            if paths is not None:
                for npu, (begin, end) in zip(paths.src.tolist(), pairwise(paths.first.tolist()), strict=True):
                    links = paths.link[paths.start[begin] : paths.start[end]]
                    found[npu].update(links[sources[links] == npu].tolist())
            first.append(tuple(frozenset(found[npu]) for npu in looked.tolist()))
            latency.append(float(paths.latency_ns.mean()) if paths is not None else 0.0)
        return cls(network, speeds, tuple(first), tuple(latency))

    def egress_bytes_per_ns(self, dims: set[int]) -> float:
        """Bandwidth with which one NPU can send into some dimensions: two links of a ring, all of a full mesh.

        Of a list of links it is that of the links that its routes begin with, of the NPU that can send least.
        """
        if self.first:
            chosen = [
                frozenset[int]().union(*parts) for parts in zip(*(self.first[k] for k in dims), strict=True)
            ]
            return min((float(self.bytes_per_ns[sorted(links)].sum()) for links in chosen), default=0.0)
        total = 0.0
        for k in dims:
            dim = self.network.dims[k]
            links = 1
            if dim.topology is Topology.RING:
                links = 1 if dim.npus == 2 else 2
            elif dim.topology is Topology.FULLY_CONNECTED:
                links = dim.npus - 1
            total += links * dim.bytes_per_ns
        return total

    def bandwidth_gibps(self, k: int) -> float:
        """GB/s of 2**30 bytes of a link of a dimension; of a list of links, what an NPU can send into it."""
        if not self.first:
            return self.network.dims[k].bandwidth_gibps
        return self.egress_bytes_per_ns({k}) * 1e9 / (1 << 30)


def _line(npus: I64, inner: int, count: int) -> I64:
    """Pairs of NPUs with the others that differ from them in one dimension only."""
    own = npus // inner % count
    others = npus[:, None] + (np.arange(count) - own[:, None]) * inner
    pairs = np.stack([np.repeat(npus, count), others.ravel()], axis=1)
    apart: I64 = pairs[pairs[:, 0] != pairs[:, 1]]
    return apart
