"""A trace as a NetworkX graph."""

from typing import TYPE_CHECKING

import numpy as np

from chakra.arrays import I64
from chakra.et.columns import Columns
from chakra.et.schema import NodeType

if TYPE_CHECKING:
    import networkx as nx


def to_networkx(trace: Columns, durations_ns: I64, source: str) -> "nx.DiGraph[int]":
    """The dependency graph of a trace's columns; see `chakra.et.Trace.to_networkx`."""
    import networkx as nx

    graph: nx.DiGraph[int] = nx.DiGraph(source=source)
    ids = trace.ids.tolist()
    names, table = trace.name_codes.tolist(), trace.name_pool.strings
    kinds = [kind.name for kind in NodeType]
    types, durations = trace.types.tolist(), durations_ns.tolist()
    graph.add_nodes_from(
        (node, {"index": i, "name": table[names[i]], "type": kinds[types[i]], "duration_ns": durations[i]})
        for i, node in enumerate(ids)
    )
    for kind, offsets, targets in (
        ("data", trace.data_offsets, trace.data_ids),
        ("ctrl", trace.ctrl_offsets, trace.ctrl_ids),
    ):
        owners = np.repeat(trace.ids, np.diff(offsets)).tolist()
        for parent, child in zip(targets.tolist(), owners, strict=True):
            if graph.has_edge(parent, child) and graph.edges[parent, child]["kind"] != kind:
                graph.edges[parent, child]["kind"] = "both"
            else:
                graph.add_edge(parent, child, kind=kind)
    return graph
