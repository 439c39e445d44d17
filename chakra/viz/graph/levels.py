"""Topological order and levels of a graph, by a compiled kernel where the graph is large."""

import importlib
from types import ModuleType
from typing import Final

import numpy as np

from chakra.arrays import I32, I64, bounds
from chakra.jit import compiled
from chakra.viz.graph.graph import Graph

#: Below this many nodes and edges the kernel runs as plain Python: compiling costs more than it saves.
_PLAIN: Final = 60_000


def csr(n: int, owner: I32, value: I32) -> tuple[I64, I32]:
    """Edges grouped by owner: offsets (n + 1,) and values, in the edges' order."""
    order = np.argsort(owner, kind="stable")
    offsets = bounds(np.bincount(owner, minlength=n))
    return offsets, value[order]


def order_and_levels(graph: Graph) -> tuple[I64, I32]:
    """A topological order of the nodes and every node's level; cycles are cut at their lowest index."""
    offsets, children = csr(graph.n_nodes, graph.src, graph.dst)
    kernel: ModuleType
    if graph.n_nodes + graph.n_edges < _PLAIN:
        kernel = importlib.import_module("chakra.viz.graph._levels_kernel")
    else:
        kernel = compiled("chakra.viz.graph._levels_kernel")
    waiting = np.bincount(graph.dst, minlength=graph.n_nodes).astype(np.int64)
    order, level = kernel.order_and_levels(offsets, children, waiting)
    return order, level
