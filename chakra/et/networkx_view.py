"""A trace as a NetworkX graph."""

from typing import TYPE_CHECKING

import numpy as np

from chakra.et.schema import NodeType

if TYPE_CHECKING:
    import networkx as nx

    from chakra.et.trace import Trace


def to_networkx(trace: "Trace") -> "nx.DiGraph[int]":
    """The dependency graph; see `Trace.to_networkx`."""
    import networkx as nx

    graph: nx.DiGraph[int] = nx.DiGraph(source=trace.source)
    ids = trace.ids.tolist()
    names, table = trace.name_codes.tolist(), trace.name_table
    kinds = [kind.name for kind in NodeType]
    types, durations = trace.types.tolist(), trace.durations_ns().tolist()
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
