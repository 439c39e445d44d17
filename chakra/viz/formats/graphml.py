"""GraphML text of a graph, for Gephi, yEd and NetworkX."""

from collections.abc import Iterator
from typing import Final

from chakra.arguments import checked
from chakra.io.markup import XML_DECLARATION, closing, element, empty, escaped, nested, opening
from chakra.io.readable import printable
from chakra.viz.graph.graph import Graph
from chakra.viz.style import EDGE_STYLES, KIND_STYLES, Kind

_NODE_KEYS: Final = (
    ("name", "string"),
    ("kind", "string"),
    ("ident", "string"),  # ids are unsigned 64-bit, more than a GraphML long holds
    ("note", "string"),
    ("lane", "string"),
    ("duration_ns", "long"),
    ("bytes", "long"),
    ("members", "long"),
    ("colour", "string"),
)


@checked
def graphml_text(graph: Graph) -> str:
    """The graph as GraphML; both kinds of edges between the same two nodes are two edges.

    Parameters
    ----------
    graph
        The graph.
    """
    return "".join(graphml_pieces(graph))


def graphml_pieces(graph: Graph) -> Iterator[str]:
    """The GraphML text piece by piece."""
    yield f"{XML_DECLARATION}{opening('graphml', {'xmlns': 'http://graphml.graphdrawing.org/xmlns'})}\n"
    keys = [(name, "node", name, kind) for name, kind in _NODE_KEYS]
    keys += [("edge_kind", "edge", "kind", "string"), ("count", "edge", "count", "long")]
    for name, owner, shown, kind in (*keys, ("title", "graph", "title", "string")):
        yield empty("key", {"id": name, "for": owner, "attr.name": shown, "attr.type": kind}) + "\n"
    yield f"{opening('graph', {'id': 'trace', 'edgedefault': 'directed'})}\n"
    yield f"{element('data', printable(graph.title), {'key': 'title'})}\n"
    starts = [opening("data", {"key": key}) for key, _ in _NODE_KEYS]
    end = closing("data")
    for node in range(graph.n_nodes):
        look = KIND_STYLES[Kind(int(graph.kinds[node]))]
        values = (
            escaped(printable(graph.names[node])),
            look.word,
            graph.ids[node],
            escaped(printable(graph.notes[node])),
            escaped(printable(graph.lane_names[graph.lanes[node]])),
            graph.duration_ns[node],
            graph.size_bytes[node],
            graph.members[node],
            look.fill,
        )
        data = "".join([f"{start}{value}{end}" for start, value in zip(starts, values, strict=True)])
        yield nested("node", data, {"id": f"n{node}"}) + "\n"
    edges = zip(
        graph.src.tolist(),
        graph.dst.tolist(),
        graph.edge_kinds.tolist(),
        graph.edge_counts.tolist(),
        strict=True,
    )
    words = {
        int(kind): element("data", style.word, {"key": "edge_kind"}) for kind, style in EDGE_STYLES.items()
    }
    for number, (src, dst, kind, count) in enumerate(edges):
        data = words[kind] + element("data", count, {"key": "count"})
        yield nested("edge", data, {"id": f"e{number}", "source": f"n{src}", "target": f"n{dst}"}) + "\n"
    yield f"{closing('graph')}\n{closing('graphml')}\n"
