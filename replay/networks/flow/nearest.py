"""Distances to one vertex after the other, by the search kernel: what a search needs is made once."""

from collections.abc import Callable
from typing import Protocol

import numpy as np

from chakra.arrays import I64
from chakra.replay.networks.flow.graph import Csr, Graph
from chakra.replay.networks.flow.search import FAR


class SearchKernel(Protocol):
    """The functions of `flow.search`, compiled or not."""

    @property
    def search(self) -> Callable[..., int]:
        """Distances to a receiver."""
        ...

    @property
    def count_paths(self) -> Callable[..., None]:
        """How many shortest paths there are from each vertex."""
        ...

    @property
    def spray(self) -> Callable[..., int]:
        """Links of all shortest paths of a sender, and how much each carries."""
        ...


class Distances:
    """Distances of vertices to the one that was searched from last.

    Attributes
    ----------
    dist
        (vertices,) `FAR` of those that were not reached, and of all before `towards` and after `forget`.
    """

    def __init__(self, g: Graph, into: Csr, equal: bool) -> None:
        self.dist = np.full(g.vertices, FAR, np.int64)
        self._links = (into.start, into.item, g.tail, g.length, g.closed)
        self._equal = equal
        self._wanted, *self._room = (np.zeros(g.vertices + 1, np.int64) for _ in range(4))

    def towards(self, kernel: SearchKernel, to: int, senders: I64) -> I64:
        """Search until all senders, which are distinct, are found; returns what was reached, nearest first."""
        self._wanted[senders] = 1
        n = kernel.search(*self._links, to, self._wanted, len(senders), self._equal, self.dist, *self._room)
        self._wanted[senders] = 0
        return self._room[0][:n].copy()

    def forget(self, reached: I64) -> None:
        """Make ready for the next search."""
        self.dist[reached] = FAR
