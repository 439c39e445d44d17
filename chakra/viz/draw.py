"""Drawing a graph to a file: which layout, which format, how large is too large."""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from chakra.arguments import check_fields, checked
from chakra.errors import UsageError
from chakra.io.files import PathLike, atomic_bytes, atomic_text
from chakra.io.readable import counted, verb
from chakra.viz.formats.dot import dot_pieces, dot_text
from chakra.viz.formats.graphml import graphml_pieces
from chakra.viz.formats.graphviz_worker import HOW_TO_GET_IT, NO_GRAPHVIZ
from chakra.viz.formats.html import html_text
from chakra.viz.formats.pdf_and_png import labels_fit, pdf_bytes, png_bytes, with_escapes
from chakra.viz.formats.svg import svg_text
from chakra.viz.graph.fold import Folding, fold
from chakra.viz.graph.fold_tree import folded, opened_within
from chakra.viz.graph.graph import Graph
from chakra.viz.graph.reduce import transitively_reduced
from chakra.viz.layout.layers import layered
from chakra.viz.layout.scene import scene_of

FORMATS: Final = ("pdf", "svg", "png", "dot", "graphml", "html")
LayoutName = Literal["auto", "own", "dot"]

#: Nodes and edges that a picture may have without folding, unless the caller raises it.
PLAIN_LIMIT: Final = 20_000
#: The same for the interactive page, whose browser holds everything at once.
HTML_LIMIT: Final = 200_000
_EDGES_PER_NODE: Final = 10
#: Seconds that Graphviz may be given.
MAX_SECONDS: Final = 1e6
#: Above this, a picture is made but a smaller one is suggested.
_SUGGEST_ABOVE: Final = 2_000
#: ``auto`` asks Graphviz up to this many nodes and edges (a second or so); ``dot`` is warned about and
#: refused above.
_DOT_NODES, _DOT_EDGES = 150, 400
_DOT_WARN, _DOT_REFUSE = 2_000, 5_000
#: Folded pictures with more boxes than this keep all edges.
_REDUCE_UP_TO: Final = 4_000
_PARTS: Final = "--around ID --hops K, --critical-path, --only comm, --window BEGIN:END"
_SUGGESTIONS: Final = f"--fold, {_PARTS}, or an .html file, which folds by itself"


@dataclass(frozen=True, slots=True)
class DrawOptions:
    """How to draw.

    Attributes
    ----------
    fold
        Way of folding; None draws every node (an html page always folds, and can be unfolded in the browser).
    boxes
        Boxes a folded picture should have at most.
    layout
        ``dot`` (Graphviz), ``own`` (levels and lanes, linear time) or ``auto`` (Graphviz for small graphs).
    limit
        Nodes above which drawing is refused; None for the format's own limit.
    budget_s
        Seconds that Graphviz may take before the own layout takes over (or, with ``dot``, before it is an
        error).
    all_edges
        Keep, in a folded picture, edges that a longer path already implies.
    """

    fold: Folding | None = None
    boxes: int = 150
    layout: LayoutName = "auto"
    limit: int | None = None
    budget_s: float = 20.0
    all_edges: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        if self.boxes < 1 or (self.limit is not None and self.limit < 0):
            raise UsageError(
                f"boxes must be at least 1 and limit at least 0, not {self.boxes} and {self.limit}"
            )
        if not 0 <= self.budget_s <= MAX_SECONDS:
            raise UsageError(f"budget_s: {self.budget_s} is not a number from 0 to {MAX_SECONDS:g}")


@dataclass(slots=True)
class Drawing:
    """What was drawn: boxes and edges in the file, and remarks for the user.

    Attributes
    ----------
    path
        The file.
    boxes, edges
        How many it shows.
    remarks
        What the user should know, a line each.
    """

    path: str
    boxes: int
    edges: int
    remarks: list[str] = field(default_factory=list)


@checked
def draw(graph: Graph, path: PathLike, options: DrawOptions | None = None) -> Drawing:
    """Draw a graph to a file whose suffix says the format (pdf, svg, png, dot, graphml or html).

    Parameters
    ----------
    graph
        The graph.
    path
        File to write.
    options
        Folding, layout and limits.

    Raises
    ------
    UsageError
        If the suffix is unknown, the graph is too large to draw plainly, Graphviz was asked for and is
        absent, too slow or refused, or the file cannot be written.
    """
    options = options or DrawOptions()
    picture = format_of(path)
    if picture == "html":
        return _draw_html(graph, path, options)
    remarks: list[str] = []
    if options.fold is not None:
        graph = _folded(graph, options, remarks)
    if picture in ("dot", "graphml"):
        pieces = dot_pieces(graph) if picture == "dot" else graphml_pieces(graph)
        with atomic_text(path) as file:
            file.writelines(pieces)
        return Drawing(os.fspath(path), graph.n_nodes, graph.n_edges, remarks)
    _refuse_large(graph, options.limit or PLAIN_LIMIT, path, "are drawn plainly (--limit)", _SUGGESTIONS)
    if graph.n_nodes > _SUGGEST_ABOVE and options.fold is None:
        remarks.append(
            f"{counted(graph.n_nodes, 'box')} {verb(graph.n_nodes, 'is', 'are')} hard to read; smaller "
            f"pictures: {_SUGGESTIONS}"
        )
    data = _by_graphviz(graph, picture, options, remarks)
    if data is None:
        data = _by_own_layout(graph, picture, remarks)
    with atomic_bytes(path, compress=False) as out:
        out.write(data)
    return Drawing(os.fspath(path), graph.n_nodes, graph.n_edges, remarks)


def format_of(path: PathLike) -> str:
    """The format that a file's suffix asks for.

    Raises
    ------
    UsageError
        If it is none of ``FORMATS``.
    """
    suffix = Path(path).suffix.lower().removeprefix(".")
    if suffix not in FORMATS:
        raise UsageError(f"{path}: unknown suffix; the name must end in one of .{', .'.join(FORMATS)}")
    return suffix


def _draw_html(graph: Graph, path: PathLike, options: DrawOptions) -> Drawing:
    within = f"--limit {graph.n_nodes} for a large page, --fold with an .svg file, {_PARTS}"
    _refuse_large(graph, options.limit or HTML_LIMIT, path, "a page holds (--limit)", within)
    tree = fold(graph, options.fold or Folding.AUTO, options.boxes)
    with atomic_text(path) as file:
        file.write(html_text(graph, tree))
    return Drawing(
        os.fspath(path),
        graph.n_nodes,
        graph.n_edges,
        [f"{counted(tree.n_groups, 'group')} can be expanded in the page"],
    )


def _folded(graph: Graph, options: DrawOptions, remarks: list[str]) -> Graph:
    assert options.fold is not None
    tree = fold(graph, options.fold, options.boxes)
    # Asked for one way of folding, the picture is folded that way; left to itself, no more than is needed.
    opened = opened_within(tree, options.boxes) if options.fold == Folding.AUTO else None
    small = folded(graph, tree, opened)
    if not options.all_edges and small.n_nodes <= _REDUCE_UP_TO:
        reduced = transitively_reduced(small)
        if reduced.n_edges < small.n_edges:
            left = small.n_edges - reduced.n_edges
            remarks.append(
                f"{counted(left, 'edge')} that longer paths imply {verb(left, 'is', 'are')} left out "
                f"(--all-edges keeps {verb(left, 'it', 'them')})"
            )
        small = reduced
    return small


def _refuse_large(graph: Graph, limit: int, path: PathLike, held: str, instead: str) -> None:
    for count, bound, what in (
        (graph.n_nodes, limit, "nodes"),
        (graph.n_edges, limit * _EDGES_PER_NODE, "edges"),
    ):
        if count > bound:
            raise UsageError(
                f"{path}: {graph.title} has {count:,} {what}, more than the {bound:,} that {held}; try {instead}"
            )


def _without_date(picture: bytes) -> bytes:
    """A PDF without the time of its making, so that equal graphs give equal files; same length, so offsets hold."""
    return re.sub(
        rb"(/CreationDate \(D:)[^)]*",
        lambda found: found[1] + b"19700101000000Z".ljust(len(found[0]) - len(found[1])),
        picture,
    )


def _by_own_layout(graph: Graph, picture: str, remarks: list[str]) -> bytes:
    scene = scene_of(graph, layered(graph))
    if picture != "svg":
        scene, lacking = with_escapes(scene)
        if lacking:
            few = lacking if len(lacking) <= 10 else f"{lacking[:10]}…"
            remarks.append(
                f"no font here has {few}: drawn as escapes (pip install 'chakra-replay[fonts]' has them)"
            )
    if picture == "png" and not labels_fit(scene):
        remarks.append(
            "the picture is too large for readable labels; they are left out (svg, pdf and html keep them)"
        )
    writers: dict[str, Callable[[], bytes]] = {
        "svg": lambda: svg_text(scene).encode(),
        "pdf": lambda: pdf_bytes(scene),
        "png": lambda: png_bytes(scene),
    }
    return writers[picture]()


def _by_graphviz(graph: Graph, picture: str, options: DrawOptions, remarks: list[str]) -> bytes | None:
    """The picture as Graphviz lays it out; None where the own layout is to be used."""
    asked = options.layout == "dot"
    if options.layout == "own" or (not asked and (graph.n_nodes > _DOT_NODES or graph.n_edges > _DOT_EDGES)):
        return None
    if graph.n_nodes > _DOT_REFUSE:
        raise UsageError(
            f"--layout dot: {counted(graph.n_nodes, 'node')} would take dot hours (at most {_DOT_REFUSE}); use --layout "
            f"own, or "
            f"{_SUGGESTIONS}"
        )
    if graph.n_nodes > _DOT_WARN:
        remarks.append(
            f"dot may need minutes for {counted(graph.n_nodes, 'node')}; --layout own takes a second"
        )
    with tempfile.TemporaryDirectory(prefix="chakra-") as folder:
        out = Path(folder) / f"picture.{picture}"
        command = [sys.executable, "-m", "chakra.viz.formats.graphviz_worker", picture, str(out)]
        try:
            done = subprocess.run(
                command,
                input=dot_text(graph).encode(),
                capture_output=True,
                timeout=options.budget_s,
                env={**os.environ, "TZ": "UTC"},  # a time zone would change the length of a PDF's date
                check=False,
            )
        except subprocess.TimeoutExpired:
            problem = f"dot did not finish within {options.budget_s:g} s (--budget)"
        else:
            if done.returncode == 0 and out.exists() and out.stat().st_size:
                return _without_date(out.read_bytes())
            problem = HOW_TO_GET_IT if done.returncode == NO_GRAPHVIZ else "dot failed"
    if asked:
        raise UsageError(f"--layout dot: {problem}; --layout own needs no Graphviz")
    remarks.append(f"{problem}; drawn with the own layout")
    return None
