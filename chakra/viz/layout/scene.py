"""A drawing as a list of marks, links and captions, which every picture format knows how to write."""

import math
import re
from dataclasses import dataclass, field
from typing import Final

from chakra.io.readable import counted_text, printable, shortened
from chakra.viz.graph.graph import Graph
from chakra.viz.layout.layers import NODE_HEIGHT, NODE_WIDTH, Layout
from chakra.viz.style import EDGE_STYLES, KIND_STYLES, EdgeKind, Kind, label_name

#: Font sizes in points, and the width of an average character as a share of the size (sans serif).
TITLE_SIZE: Final = 14.0
LABEL_SIZE: Final = 8.0
LINE_STEP: Final = 10.5
CHAR_WIDTH: Final = 0.56
_HEADER: Final = 34.0
_LEGEND_HEIGHT: Final = 46.0


@dataclass(frozen=True, slots=True)
class Mark:
    """A node: its box in points, kind, the lines of its label (already shortened) and the full text behind
    it."""

    x: float
    y: float
    width: float
    height: float
    kind: Kind
    lines: tuple[str, ...]
    tooltip: str
    ident: str
    stacked: bool = False


@dataclass(frozen=True, slots=True)
class Link:
    """An edge: a cubic Bézier curve by four points (x0, y0, x1, y1, ...), with an arrow at its end; far ones
    are faint."""

    curve: tuple[float, float, float, float, float, float, float, float]
    kind: EdgeKind
    width: float = 0.8
    faint: bool = False


@dataclass(frozen=True, slots=True)
class Caption:
    """A line of text that starts at (x, y), y on its base line."""

    x: float
    y: float
    text: str
    size: float = LABEL_SIZE
    bold: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    """A thin grey line."""

    x0: float
    y0: float
    x1: float
    y1: float


@dataclass(slots=True)
class Scene:
    """Everything on the page, in points; links are drawn below marks."""

    width: float
    height: float
    title: str
    rules: list[Rule] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    captions: list[Caption] = field(default_factory=list)


def scene_of(graph: Graph, layout: Layout, subtitle: str = "") -> Scene:
    """Arrange a laid-out graph on a page: header, legend of what occurs, bands with lane names, edges,
    nodes."""
    top = _HEADER + _LEGEND_HEIGHT
    scene = Scene(max(layout.width, 560.0), layout.height + top, printable(graph.title))
    heading = shortened(printable(graph.title), int(scene.width / (TITLE_SIZE * 0.62)))
    scene.captions.append(Caption(10, 20, heading, TITLE_SIZE, bold=True))
    facts = f"{counted_text(graph.n_nodes, 'box')}, {counted_text(graph.n_edges, 'edge')}"
    represented = int(graph.members.sum())
    if represented != graph.n_nodes:
        facts += f", for {counted_text(represented, 'node')}"
    scene.captions.append(Caption(10, 33, f"{facts}{'; ' + subtitle if subtitle else ''}"))
    _legend(scene, graph)
    _lanes(scene, graph, layout, top)
    _links(scene, graph, layout, top)
    for node, (x, y) in enumerate(zip(layout.x.tolist(), layout.y.tolist(), strict=True)):
        scene.marks.append(
            Mark(
                x - NODE_WIDTH / 2,
                y - NODE_HEIGHT / 2 + top,
                NODE_WIDTH,
                NODE_HEIGHT,
                Kind(int(graph.kinds[node])),
                label_lines(graph, node),
                printable_lines(graph.tooltip(node)),
                f"n{graph.ids[node]}",
                bool(graph.members[node] > 1),
            )
        )
    return scene


def label_chars(width: float) -> int:
    """Characters that a line of a label has room for in a box of some width."""
    return int((width - 12) / (LABEL_SIZE * CHAR_WIDTH))


def label_lines(graph: Graph, node: int, limit: int = label_chars(NODE_WIDTH)) -> tuple[str, ...]:
    """A node's label: its name (or id), what it stands for, and its duration, bytes and partners."""
    name = printable(label_name(graph.names[node], Kind(int(graph.kinds[node])))) or f"id {graph.ids[node]}"
    if graph.kinds[node] == Kind.MISSING and graph.members[node] == 1:
        name = f"missing: id {graph.ids[node]}"
    below = [line for line in (printable(graph.count_text(node)), printable(graph.cost_text(node))) if line]
    names = halves(name) if len(name) > limit and len(below) < 2 else (name,)
    return tuple(shortened(line, limit) for line in (*names, *below))


def halves(name: str) -> tuple[str, ...]:
    """A name in two lines, broken behind the sign between its words that is nearest to its middle; in one if it has none.

    Parameters
    ----------
    name
        The name.

    Examples
    --------
    >>> halves("layer_64_1_mlp0_FWD_ALLGATHER"), halves("embedding")
    (('layer_64_1_mlp0_', 'FWD_ALLGATHER'), ('embedding',))
    """
    breaks = [found.end() for found in re.finditer(r"[_.:/ -]+", name) if 0 < found.end() < len(name)]
    if not breaks:
        return (name,)
    at = min(breaks, key=lambda place: abs(2 * place - len(name)))
    return name[:at], name[at:]


def first_baseline(mark: Mark) -> float:
    """Base line of the first of a mark's lines, which follow each other by ``LINE_STEP``."""
    return mark.y + mark.height / 2 + 3 - LINE_STEP / 2 * (len(mark.lines) - 1)


def printable_lines(text: str) -> str:
    """Text with its line breaks kept and everything else that is unprintable escaped."""
    return "\n".join(printable(line) for line in text.split("\n"))


def _legend(scene: Scene, graph: Graph) -> None:
    """Samples of the kinds that occur, wrapped to the page's width."""
    kinds = {int(k) for k in set(graph.kinds.tolist())}
    edges = {int(k) for k in set(graph.edge_kinds.tolist())}
    x, y = 10.0, _HEADER + 8
    for kind, look in KIND_STYLES.items():
        if kind in kinds:
            scene.marks.append(Mark(x, y, 22, 11, kind, (), look.legend, f"legend-{look.word}"))
            scene.captions.append(Caption(x + 26, y + 9, look.legend))
            x, y = _advance(x, y, 34 + len(look.legend) * 4.6, scene.width)
    for edge, line in EDGE_STYLES.items():
        if edge in edges:
            middle = y + 5.5
            curve = (x, middle, x + 9, middle, x + 18, middle, x + 26, middle)
            scene.links.append(Link(curve, edge))
            scene.captions.append(Caption(x + 30, y + 9, line.legend))
            x, y = _advance(x, y, 40 + len(line.legend) * 4.6, scene.width)


def _advance(x: float, y: float, step: float, width: float) -> tuple[float, float]:
    return (x + step, y) if x + step + 130 < width else (10.0, y + 16)


def _lanes(scene: Scene, graph: Graph, layout: Layout, top: float) -> None:
    for number, band in enumerate(layout.bands):
        if number:
            scene.rules.append(Rule(10, band + top - 22, scene.width - 10, band + top - 22))
        for lane, name in zip(layout.lane_tops[number].tolist(), graph.lane_names, strict=True):
            if not math.isnan(lane):
                scene.captions.append(Caption(10, lane + top + 26, shortened(printable(name), 26), bold=True))


def _links(scene: Scene, graph: Graph, layout: Layout, top: float) -> None:
    half = NODE_WIDTH / 2
    xs, ys = layout.x, layout.y + top
    columns = (
        xs[graph.src].tolist(),
        ys[graph.src].tolist(),
        xs[graph.dst].tolist(),
        ys[graph.dst].tolist(),
        graph.edge_kinds.tolist(),
        graph.edge_counts.tolist(),
        (layout.band[graph.src] != layout.band[graph.dst]).tolist(),
    )
    for x0, y0, x3, y3, kind, count, far in zip(*columns, strict=True):
        # Parallel edges of the two kinds leave and arrive at different heights, so that both are seen.
        shift = 5.0 if kind == EdgeKind.CTRL else -3.0
        a, b, c, d = x0 + half, y0 + shift, x3 - half, y3 + shift
        reach = max(14.0, min(abs(c - a) * 0.4, 220.0))
        # An edge along one row that skips columns bows over the boxes in between.
        lift = NODE_HEIGHT * 1.15 if abs(y0 - y3) < 2 and c - a > NODE_WIDTH else 0.0
        side = lift if kind == EdgeKind.CTRL else -lift
        width = 0.8 if count == 1 else min(0.8 + 0.5 * len(str(count)), 3.0)
        scene.links.append(
            Link((a, b, a + reach, b + side, c - reach, d + side, c, d), EdgeKind(kind), width, far)
        )
