"""Small traces for drawing."""

from collections.abc import Sequence

import networkx as nx

from chakra.et import Trace, TraceColumns
from chakra.viz import Graph


def make_trace(
    names: Sequence[str],
    data: Sequence[Sequence[int]],
    ctrl: Sequence[Sequence[int]] = (),
    types: Sequence[int] = (),
    micros: Sequence[int] = (),
) -> Trace:
    """A trace whose node i has id i, and waits for the ids in ``data[i]`` and ``ctrl[i]``."""
    n = len(names)
    columns = TraceColumns(n)
    columns.ids[:] = range(n)
    columns.types[:] = list(types) or [4] * n
    columns.duration_micros[:] = list(micros) or [1] * n
    columns.set_names(list(names))
    columns.set_data_deps(*_csr(data, n))
    columns.set_ctrl_deps(*_csr(ctrl or [()] * n, n))
    return columns.build()


def _csr(lists: Sequence[Sequence[int]], n: int) -> tuple[list[int], list[int]]:
    offsets = [0]
    for item in lists:
        offsets.append(offsets[-1] + len(item))
    assert len(offsets) == n + 1
    return offsets, [value for item in lists for value in item]


def digraph(graph: Graph) -> "nx.DiGraph[int]":
    """The graph as NetworkX has it."""
    made: nx.DiGraph[int] = nx.DiGraph()
    made.add_nodes_from(range(graph.n_nodes))
    made.add_edges_from(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))
    return made
