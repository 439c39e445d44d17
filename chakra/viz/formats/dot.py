"""DOT text of a graph: written without running any program."""

from collections.abc import Iterator

from chakra.arguments import checked
from chakra.io.readable import printable, shortened
from chakra.viz.graph.graph import Graph
from chakra.viz.layout.scene import printable_lines
from chakra.viz.style import EDGE_STYLES, KIND_STYLES, EdgeKind, Kind

_LABEL_CHARS = 60


@checked
def dot_text(graph: Graph, *, legend: bool = True) -> str:
    """The graph as DOT.

    Labels are shortened to 60 characters a line; the attributes ``name``, ``ident`` and ``kind`` hold the
    rest in full.

    Parameters
    ----------
    graph
        The graph.
    legend
        Whether to explain shapes and colours.
    """
    return "".join(dot_pieces(graph, legend=legend))


def dot_pieces(graph: Graph, *, legend: bool = True) -> Iterator[str]:
    """The DOT text piece by piece."""
    yield "digraph trace {\n"
    title = quoted(label_escaped(printable(graph.title)))
    yield f"  graph [label={title}, labelloc=t, fontname=Helvetica, rankdir=TB];\n"
    yield '  node [style=filled, fontname=Helvetica, fontsize=10, margin="0.12,0.05"];\n'
    yield "  edge [arrowsize=0.7, fontname=Helvetica];\n"
    for node in range(graph.n_nodes):
        yield _node(graph, node)
    edges = zip(
        graph.src.tolist(),
        graph.dst.tolist(),
        graph.edge_kinds.tolist(),
        graph.edge_counts.tolist(),
        strict=True,
    )
    for src, dst, kind, count in edges:
        line = EDGE_STYLES[EdgeKind(kind)]
        # The key tells readers such as PyGraphviz parallel edges apart.
        extra = f', label="{count}", fontsize=8' if count > 1 else ""
        yield (
            f'  n{src} -> n{dst} [key={line.word}, kind={line.word}, style={line.dot_style}, color="{line.stroke}", '
            f"count={count}{extra}];\n"
        )
    if legend:
        yield from _legend(graph)
    yield "}\n"


def _node(graph: Graph, node: int) -> str:
    kind = Kind(int(graph.kinds[node]))
    look = KIND_STYLES[kind]
    name = printable(graph.names[node])
    detail = printable(graph.detail(node))
    title = f"missing: id {graph.ids[node]}" if kind == Kind.MISSING and graph.members[node] == 1 else name
    title = title or f"id {graph.ids[node]}"
    label = "\\n".join(label_escaped(shortened(line, _LABEL_CHARS)) for line in (title, detail) if line)
    dashed = ', style="filled,dashed"' if look.dashed else ""
    double = ", peripheries=2" if graph.members[node] > 1 else ""
    tooltip = label_escaped(printable_lines(graph.tooltip(node))).replace("\n", "\\n")
    return (
        f"  n{node} [label={quoted(label)}, shape={look.dot_shape}, fillcolor={quoted(look.fill)}, "
        f'color="{look.stroke}"{dashed}{double}, kind={look.word}, ident="{graph.ids[node]}", '
        f"name={quoted(escaped(name))}, duration_ns={graph.duration_ns[node]}, "
        f"bytes={quoted(str(graph.size_bytes[node]))}, "
        f"members={graph.members[node]}, tooltip={quoted(tooltip)}];\n"
    )


def _legend(graph: Graph) -> Iterator[str]:
    kinds = {int(kind) for kind in set(graph.kinds.tolist())}
    yield '  subgraph cluster_legend { label="legend"; fontsize=10; color="#bbbbbb";\n'
    for kind, look in KIND_STYLES.items():
        if kind in kinds:
            dashed = ', style="filled,dashed"' if look.dashed else ""
            yield (
                f'    legend_{look.word} [label="{look.legend}", shape={look.dot_shape}, '
                f'fillcolor="{look.fill}", '
                f'color="{look.stroke}"{dashed}, fontsize=9];\n'
            )
    for edge in sorted({int(kind) for kind in set(graph.edge_kinds.tolist())}):
        line = EDGE_STYLES[EdgeKind(edge)]
        ends = " ".join(f'legend_{line.word}_{end} [label="", shape=point];' for end in "ab")
        yield f"    {{ rank=same; {ends} }}\n"
        yield (
            f'    legend_{line.word}_a -> legend_{line.word}_b [label="{line.legend}", '
            f"style={line.dot_style}, "
            f'color="{line.stroke}", fontsize=9, kind=legend];\n'
        )
    yield "  }\n"


def label_escaped(text: str) -> str:
    """Text for a DOT label, in which ampersands begin entities and a backslash means itself."""
    return escaped(text.replace("&", "&amp;"))


def escaped(text: str) -> str:
    """Text for a DOT string in which a backslash means itself."""
    return text.replace("\\", "\\\\")


def quoted(text: str) -> str:
    """A DOT string; backslash sequences in it keep their meaning."""
    return '"' + text.replace('"', '\\"') + '"'
