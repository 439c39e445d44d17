"""At which rate a node's members send to other nodes on single links: that of the slowest way between their own nodes.

A library cuts its data into equal parts, one for each port, so the slowest decides. Links that no member of a group uses
are no part of its time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from chakra.arrays import F64, I64
from chakra.replay.config.model import Dimension, LinkTopology, Network
from chakra.replay.networks.flow.link_paths import link_paths
from chakra.replay.networks.flow.paths import Paths


def node_of(network: Network, most: int) -> tuple[int, list[Dimension], list[Dimension]]:
    """NPUs of a node, the dimensions inside nodes, and those between them.

    Parameters
    ----------
    network
        The network.
    most
        NPUs that a node has at most.
    """
    node, inner, outer = 1, list[Dimension](), list(network.dims)
    while outer and node * outer[0].npus <= most:
        node *= outer[0].npus
        inner.append(outer.pop(0))
    listed = network.links is not None and network.dims[0].topology is LinkTopology.LINKS
    if listed and node < most and network.npus % most == 0:
        node = most  # dimensions of a list of links are names; what is joined is in the links
    return node, inner, outer


def port_rates(network: Network, node_npus: int, most_gbps: float) -> "PortRates":
    """The rates of a network's ports.

    Parameters
    ----------
    network, node_npus, most_gbps
        As `PortRates` has them.
    """
    faults, links = network.faults, network.links
    if links is None or faults is None or not faults.failed:
        return PortRates(network, node_npus, most_gbps)
    left = {(link.src, link.dst): link for link in links.links}
    all_links = tuple(left.get((link.src, link.dst), link) for link in faults.before.links)
    whole = replace(network, links=replace(faults.before, links=all_links))
    return PortRates(network, node_npus, most_gbps, PortRates(whole, node_npus, most_gbps))


@dataclass(frozen=True, slots=True)
class PortRates:
    """Rates of ports of groups of NPUs.

    Attributes
    ----------
    network
        With `links`.
    node_npus
        NPUs of a node: neighbouring numbers.
    most_gbps
        What no port exceeds, 10^9 B/s.
    unbroken
        Where links have failed: rates with these as they were. A port that others take over is no faster than it was,
        even where its messages spread over all of theirs.
    """

    network: Network
    node_npus: int
    most_gbps: float = float("inf")
    unbroken: "PortRates | None" = None
    _known: dict[bytes, float] = field(default_factory=dict, compare=False)

    def gbps(self, npus: I64) -> float:
        """Rate of a port of a group whose members lie on several nodes, 10^9 B/s.

        Parameters
        ----------
        npus
            The members, in any order.

        Raises
        ------
        ConfigError
            When a pair of members has no route, or one over too many ways.
        """
        members = np.sort(np.asarray(npus, np.int64))
        key = members.tobytes()
        if key not in self._known:
            self.learn([members])
        return self._known[key]

    def learn(self, groups: Sequence[I64]) -> None:
        """Look for the ways of all groups at once, each pair of NPUs once; a group of one node has none.

        Parameters
        ----------
        groups
            Members of each.

        Raises
        ------
        ConfigError
            As for `gbps`.
        """
        ordered = [np.sort(np.asarray(one, np.int64)) for one in groups]
        several = [one for one in ordered if one[0] // self.node_npus != one[-1] // self.node_npus]
        if not several:
            return
        pairs = [np.array(list(self._onward(one)), np.int64) for one in several]
        if self.unbroken is not None:
            self.unbroken.learn(several)
        paths = link_paths(self.network, np.concatenate(pairs))
        rate, npus = _alone(paths), self.network.npus
        keys = paths.src * npus + paths.dst
        for one, own in zip(several, pairs, strict=True):
            found = rate[np.searchsorted(keys, own[:, 0] * npus + own[:, 1])]
            most = self.most_gbps if self.unbroken is None else self.unbroken.gbps(one)
            self._known[one.tobytes()] = min(most, float(found.min()))

    def _onward(self, members: I64) -> Iterator[tuple[int, int]]:
        """From each member to that in its place of the next node, around all nodes."""
        _, first = np.unique(members // self.node_npus, return_index=True)
        nodes = np.split(members, first[1:])
        for node, after in zip(nodes, [*nodes[1:], nodes[0]], strict=True):
            for place in range(max(len(node), len(after))):
                yield int(node[place % len(node)]), int(after[place % len(after)])


def _alone(p: Paths) -> F64:
    """Bytes per ns of each pair's messages that are alone: of its fastest route, of whose links the slowest decides."""
    count = np.diff(p.start)
    narrow = np.full(len(count), np.inf)
    # a link that all ways share carries all: its bandwidth is not rounded
    speed = p.bytes_per_ns[p.link] * (p.whole / p.weight)
    np.minimum.at(narrow, np.repeat(np.arange(len(count)), count), speed)
    return np.asarray(np.maximum.reduceat(narrow, p.first[:-1]), np.float64)
