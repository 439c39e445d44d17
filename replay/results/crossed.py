"""What messages cross: over which bandwidth NPUs send into each dimension and to the members of a group, how far it is.

The rules keep the law that no dimension is busy for more than all the time:

- *Building blocks*, also with failed or slow links: a message crosses every dimension in which its ends differ, and
  is booked in each of them. Their links are those of the dimension out of all NPUs, as fast as they are; bandwidth and
  latency are a link's, as the file gives them.
- *Lists of links* have dimensions in name only, so a message belongs to one: the highest in which its ends differ.
  GPUs of a machine are joined by dimension 0, machines by dimension 1, and a message to another place in another machine
  need not take a link of dimension 0. Links, bandwidth and latency: `chakra.replay.networks.first_links`.
- *Networks of other packages* are booked as lists of links are; their dimensions are what they state.

What is booked in all dimensions comes to the bytes that NPUs send on lists of links, and to these times the dimensions
that each message crosses on building blocks. Both are the same in the last dimension, and where messages stay in one.

Within a group an NPU can send over the links that its shortest ways to the other members begin with, on all networks: two
of a ring, one to each other member of a full mesh, one of a switch, in each dimension in which members differ. What
parts of a group can send to the rest: `chakra.replay.networks.cuts`.
"""

from collections import Counter
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from chakra.arrays import F64, I64
from chakra.replay.config.model import LinkTopology, Network, Topology, bytes_per_ns
from chakra.replay.networks.cuts import Cut, LinkCuts, block_cuts, lanes
from chakra.replay.networks.first_links import FirstLinks
from chakra.replay.symmetry.classes import coordinates


def unequal_entry(speeds: Sequence[tuple[float, int]]) -> dict[str, list[dict[str, float]]]:
    """Bandwidths that differ as a key of a document; nothing where there are none."""
    rows: list[dict[str, float]] = [{"bandwidth_gibps": speed, "count": count} for speed, count in speeds]
    return {"unequal": rows} if rows else {}


class Crossed:
    """Bandwidths and latencies of the dimensions and groups of a network, as its messages meet them."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self._listed = network.dims[0].topology is LinkTopology.LINKS

    @cached_property
    def _first(self) -> FirstLinks | None:
        links = self.network.links
        return None if links is None else FirstLinks(self.network, links)

    def bandwidth_gibps(self, k: int) -> float:
        """GB/s of 2^30 B/s of a link of a dimension; of a list of links, what the slowest NPU can send into it."""
        if not self._listed or self._first is None:
            return self.network.dims[k].bandwidth_gibps
        return float(self._first.directions.npu_gibps[:, k].min())

    def unequal(self, k: int) -> list[tuple[float, int]]:
        """Bandwidths into a dimension that differ, GB/s of 2^30 B/s, most first, and how often each is there.

        Of a list of links those of its NPUs, of building blocks those of the links out of NPUs. Empty where all are one.
        """
        if self._listed:
            speeds = [] if self._first is None else self._first.directions.npu_gibps[:, k].tolist()
        else:
            speeds = [speed for dim, speed in self._out_of_npus if dim == k]
        # sums over links in another order differ in their last digits
        found = Counter(round(speed, 6) for speed in speeds)
        return sorted(found.items(), reverse=True) if len(found) > 1 else []

    def latency_ns(self, k: int) -> float:
        """Latency of a hop of a dimension, ns; of a list of links, mean of ways between NPUs that differ in it alone."""
        if not self._listed or self._first is None:
            return self.network.dims[k].latency_ns
        return float(self._first.directions.latency_ns[k])

    def all_bytes_per_ns(self, k: int) -> float:
        """Bandwidth of all links of a dimension together, one direction each."""
        if self._listed and self._first is not None:
            return bytes_per_ns(float(self._first.directions.all_gibps[k]))
        if self.network.links is not None:
            return bytes_per_ns(float(self._by_dimension[k]))
        dim = self.network.dims[k]
        links, _ = lanes(dim.topology, np.arange(dim.npus), dim.npus)
        return float(links.sum()) * (self.network.npus // dim.npus) * dim.bytes_per_ns

    @cached_property
    def _by_dimension(self) -> F64:
        """GB/s of the links out of all NPUs that each dimension of building blocks has left."""
        out = np.zeros(len(self.network.dims))
        for k, speed in self._out_of_npus:
            out[k] += speed
        return out

    @cached_property
    def _out_of_npus(self) -> list[tuple[int, float]]:
        """Dimension and GB/s of each link out of an NPU that building blocks have left; none where all are there."""
        network = self.network
        found: list[tuple[int, float]] = []
        switches = [
            k
            for k, dim in enumerate(network.dims)
            if dim.topology is Topology.SWITCH
            for _ in range(network.npus // dim.npus)
        ]
        for link in network.links.links if network.links is not None else ():
            if link.src >= network.npus:
                continue
            if link.dst >= network.npus:
                k = switches[link.dst - network.npus]
            else:
                ends = coordinates(network, np.array([link.src, link.dst]))
                k = int(np.flatnonzero(ends[0] != ends[1])[0])
            found.append((k, link.bandwidth_gibps))
        return found

    def cuts(self, groups: Sequence[I64]) -> list[list[Cut]]:
        """Cuts between the members of groups given by the numbers of their NPUs."""
        if self._first is not None and self.network.links is not None:
            return LinkCuts(self.network, self.network.links, self._first).within(groups)
        return [block_cuts(self.network, members) for members in groups]
