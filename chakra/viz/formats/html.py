"""The interactive page: one self-contained HTML file with the graph, its folds and a viewer."""

from functools import cache
from typing import TYPE_CHECKING

from chakra.arguments import checked
from chakra.io.markup import embedded_json
from chakra.io.readable import printable
from chakra.viz.graph.fold_tree import FoldTree
from chakra.viz.graph.graph import Graph
from chakra.viz.style import EDGE_STYLES, KIND_STYLES, EdgeKind, Kind, type_prefix

if TYPE_CHECKING:
    import jinja2


@checked
def html_text(graph: Graph, tree: FoldTree) -> str:
    """The whole page. It loads nothing (a content policy forbids it) and needs a browser with a canvas
    only.

    Parameters
    ----------
    graph
        The graph.
    tree
        How its nodes are grouped.
    """
    template = environment().get_template("graph.html.j2")
    return template.render(title=printable(graph.title), data=embedded_json(_data(graph, tree)))


@cache
def environment() -> "jinja2.Environment":
    """The templates of this package; everything put into them is escaped."""
    import jinja2

    return jinja2.Environment(
        loader=jinja2.PackageLoader("chakra.viz", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )


def _data(graph: Graph, tree: FoldTree) -> dict[str, object]:
    names, name_table = _interned([printable(name) for name in graph.names])
    notes, note_table = _interned([printable(note) for note in graph.notes])
    return {
        # Ids are unsigned 64-bit: text, because JavaScript's numbers end at 53 bits.
        "ids": [str(i) for i in graph.ids.tolist()],
        "kinds": graph.kinds.tolist(),
        "names": names,
        "nameTable": name_table,
        "notes": notes,
        "noteTable": note_table,
        "duration": graph.duration_ns.tolist(),
        "bytes": graph.size_bytes.tolist(),
        "lanes": graph.lanes.tolist(),
        "laneNames": [printable(name) for name in graph.lane_names],
        "members": graph.members.tolist(),
        "src": graph.src.tolist(),
        "dst": graph.dst.tolist(),
        "edgeKinds": graph.edge_kinds.tolist(),
        "edgeCounts": graph.edge_counts.tolist(),
        "parent": tree.parent.tolist(),
        "labels": [printable(label) for label in tree.labels],
        "kindStyles": [
            {
                "legend": KIND_STYLES[kind].legend,
                "prefix": type_prefix(kind),
                "fill": KIND_STYLES[kind].fill,
                "stroke": KIND_STYLES[kind].stroke,
                "dashed": KIND_STYLES[kind].dashed,
                "outline": [[round(x, 3), round(y, 3)] for x, y in KIND_STYLES[kind].outline],
            }
            for kind in Kind
        ],
        "edgeStyles": [
            {
                "word": EDGE_STYLES[edge].word,
                "legend": EDGE_STYLES[edge].legend,
                "stroke": EDGE_STYLES[edge].stroke,
                "onDark": EDGE_STYLES[edge].on_dark,
                "dash": EDGE_STYLES[edge].dash,
            }
            for edge in EdgeKind
        ],
    }


def _interned(texts: list[str]) -> tuple[list[int], list[str]]:
    table: dict[str, int] = {}
    return [table.setdefault(text, len(table)) for text in texts], list(table)
