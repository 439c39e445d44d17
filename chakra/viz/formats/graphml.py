"""GraphML text of a graph, for Gephi, yEd and NetworkX; written without any library."""

from collections.abc import Iterator
from html import escape
from typing import Final

from chakra.arguments import checked
from chakra.io.readable import printable
from chakra.viz.graph.graph import Graph
from chakra.viz.style import EDGE_STYLES, KIND_STYLES, EdgeKind, Kind

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
    yield '<?xml version="1.0" encoding="UTF-8"?>\n<graphml xmlns="http://graphml.graphdrawing.org/xmlns">\n'
    for name, kind in _NODE_KEYS:
        yield f'<key id="{name}" for="node" attr.name="{name}" attr.type="{kind}"/>\n'
    yield '<key id="edge_kind" for="edge" attr.name="kind" attr.type="string"/>\n'
    yield '<key id="count" for="edge" attr.name="count" attr.type="long"/>\n'
    yield '<key id="title" for="graph" attr.name="title" attr.type="string"/>\n'
    yield f'<graph id="trace" edgedefault="directed">\n<data key="title">{_text(graph.title)}</data>\n'
    for node in range(graph.n_nodes):
        look = KIND_STYLES[Kind(int(graph.kinds[node]))]
        values = (
            _text(graph.names[node]),
            look.word,
            str(graph.ids[node]),
            _text(graph.notes[node]),
            _text(graph.lane_names[graph.lanes[node]]),
            str(graph.duration_ns[node]),
            str(graph.size_bytes[node]),
            str(graph.members[node]),
            look.fill,
        )
        data = "".join(
            f'<data key="{key}">{value}</data>' for (key, _), value in zip(_NODE_KEYS, values, strict=True)
        )
        yield f'<node id="n{node}">{data}</node>\n'
    edges = zip(
        graph.src.tolist(),
        graph.dst.tolist(),
        graph.edge_kinds.tolist(),
        graph.edge_counts.tolist(),
        strict=True,
    )
    for number, (src, dst, kind, count) in enumerate(edges):
        yield (
            f'<edge id="e{number}" source="n{src}" target="n{dst}">'
            f'<data key="edge_kind">{EDGE_STYLES[EdgeKind(kind)].word}</data><data key="count">{count}</data>'
            f"</edge>\n"
        )
    yield "</graph>\n</graphml>\n"


def _text(text: str) -> str:
    return escape(printable(text))
