"""Routes as they are found, put together once all are there."""

import numpy as np

from chakra.arrays import I64, bounds
from chakra.replay.config.model import Links
from chakra.replay.networks.flow.paths import Paths


class Found:
    """Collects routes of pairs: hops of single routes, sprayed ones with weights, and choices."""

    def __init__(self, links: Links, pairs: int) -> None:
        self._links = links
        self._pairs = pairs
        #: hops of single routes: pairs, place in the route, link
        self._hops: list[tuple[I64, int, I64]] = []
        #: pairs with equal numbers of links, (pairs, links) links, how many of how many paths use each
        self._sprayed: list[tuple[I64, I64, I64, int]] = []
        #: pair, number of the choice, links
        self._choices: list[tuple[int, int, I64]] = []

    def add(self, pair: I64, step: int, link: I64) -> None:
        """Add the hop at a place of routes."""
        self._hops.append((pair, step, link))

    def add_sprayed(self, pair: I64, link: I64, ways: I64, of: int) -> None:
        """Add pairs that use all equal paths; `ways` of `of` use each link."""
        self._sprayed.append((pair, link, ways, of))

    def add_choice(self, pair: int, choice: int, link: I64) -> None:
        """Add one of the routes that a pair may take."""
        self._choices.append((pair, choice, link))

    def add_one(self, pair: int, route: list[int]) -> None:
        """Add the one route of a pair."""
        self._choices.append((pair, 0, np.array(route, np.int64)))

    @property
    def totals(self) -> set[int]:
        """Numbers of equal paths of sprayed pairs."""
        return {of for _, _, _, of in self._sprayed}

    def paths(self, keys: I64, n: int, whole: int) -> Paths:
        """All that were found; each pair was added in one way, or is found elsewhere and has no links here.

        `whole`: parts that weights are counted in.
        """
        routes = np.ones(self._pairs, np.int64)
        for one, choice, _ in self._choices:
            routes[one] = max(int(routes[one]), choice + 1)
        first = bounds(routes)
        count = np.zeros(int(first[-1]), np.int64)
        for pairs, step, _ in self._hops:
            count[first[pairs]] = step + 1  # in the order of steps
        for pairs, links, _, _ in self._sprayed:
            count[first[pairs]] = links.shape[1]
        for one, choice, route in self._choices:
            count[first[one] + choice] = len(route)
        start = bounds(count)
        link = np.zeros(int(start[-1]), np.int64)
        weight = np.full(len(link), whole, np.int64)
        shares = np.ones(len(link))
        for pairs, step, hop in self._hops:
            link[start[first[pairs]] + step] = hop
        for pairs, links, ways, of in self._sprayed:
            at = start[first[pairs]][:, None] + np.arange(links.shape[1])
            link[at], weight[at], shares[at] = links, -(-ways * whole // of), ways / of
        for one, choice, route in self._choices:
            begin = int(start[first[one] + choice])
            link[begin : begin + len(route)] = route
        latency = np.array([x.latency_ns for x in self._links.links], np.float64)
        route_of = np.repeat(np.arange(len(count)), count)
        # of a sprayed flow the mean of its paths, which `with_slowest` looks at
        total = np.bincount(route_of, latency[link] * shares, minlength=len(count))
        return Paths(
            src=keys // n,
            dst=keys % n,
            first=first,
            latency_ns=np.floor(total + 1e-6).astype(np.int64),
            start=start,
            link=link,
            weight=weight,
            whole=whole,
            bytes_per_ns=np.array([x.bytes_per_ns for x in self._links.links], np.float64),
        )
