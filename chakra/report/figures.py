"""Figures for notebooks and papers, through matplotlib (the extra ``plot``)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from chakra.arguments import checked
from chakra.errors import UsageError
from chakra.io.readable import counted, verb
from chakra.report.document import Run, part_words
from chakra.report.npu_groups import npu_groups
from chakra.timeline.model import CATEGORIES, Timeline
from chakra.viz.graph.graph import Graph
from chakra.viz.layout.layers import layered
from chakra.viz.layout.scene import scene_of
from chakra.viz.style import EDGE_STYLES, KIND_STYLES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Colour and hatch of each part of the account and category: readable in black and white.
_PARTS: Final = {
    "compute_ns": ("#0072b2", ""),
    "cpu_ns": ("#56b4e9", "///"),
    "transfer_ns": ("#e69f00", "xxx"),
    "waiting_ns": ("#ffffff", "---"),
    "memory_ns": ("#cc79a7", "|||"),
    "idle_ns": ("#eeeeee", "..."),
}
_CATEGORY_PARTS: Final = dict(
    zip(CATEGORIES, ("cpu_ns", "compute_ns", "transfer_ns", "memory_ns", "idle_ns"), strict=True)
)
#: Boxes of a graph that a figure can hold, and slices of a timeline.
_MOST_BOXES: Final = 2_000
_MOST_SLICES: Final = 50_000


def _new(width: float, height: float) -> tuple["Figure", Any]:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UsageError("figures need matplotlib: pip install 'chakra-replay[plot]'") from None
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


@checked
def graph_figure(graph: Graph) -> "Figure":
    """A graph as a figure, laid out in levels and lanes; fold or select larger ones first.

    Parameters
    ----------
    graph
        At most 2,000 boxes.

    Raises
    ------
    UsageError
        If matplotlib is absent or the graph has more than 2,000 boxes.
    """
    if graph.n_nodes > _MOST_BOXES:
        raise UsageError(
            f"{graph.title}: {counted(graph.n_nodes, 'box')} {verb(graph.n_nodes, 'is', 'are')} too many for a "
            f"figure ({_MOST_BOXES}); fold it first"
        )
    figure, axes = _new(*_inches(graph))
    from matplotlib.patches import PathPatch, Polygon
    from matplotlib.path import Path

    layout = layered(graph)
    curve = [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4]
    scene = scene_of(graph, layout)
    for link in scene.links:
        look = EDGE_STYLES[link.kind]
        points = np.array(link.curve).reshape(4, 2)
        style: object = (0, look.dash) if look.dash else "-"
        axes.add_patch(
            PathPatch(Path(points, curve), fill=False, color=look.stroke, lw=0.7, ls=style, zorder=1)
        )
        axes.annotate(
            "",
            points[3],
            points[2] * 0.05 + points[3] * 0.95,
            arrowprops={"arrowstyle": "-|>", "color": look.stroke, "lw": 0.5},
        )
    for mark in scene.marks:
        kind = KIND_STYLES[mark.kind]
        corners = [(mark.x + px * mark.width, mark.y + py * mark.height) for px, py in kind.outline]
        dashes = "--" if kind.dashed else "-"
        axes.add_patch(
            Polygon(corners, facecolor=kind.fill, edgecolor=kind.stroke, lw=0.8, ls=dashes, zorder=2)
        )
        text = "\n".join(mark.lines).replace("$", r"\$")
        axes.text(
            mark.x + mark.width / 2,
            mark.y + mark.height / 2,
            text,
            ha="center",
            va="center",
            fontsize=5,
            zorder=3,
        )
    for caption in scene.captions:
        weight = "bold" if caption.bold else "normal"
        axes.text(
            caption.x, caption.y, caption.text.replace("$", r"\$"), fontsize=caption.size * 0.7, weight=weight
        )
    axes.set_xlim(0, scene.width)
    axes.set_ylim(scene.height, 0)
    axes.set_axis_off()
    return figure


def _inches(graph: Graph) -> tuple[float, float]:
    layout = layered(graph)
    return min(max(layout.width / 110, 5), 60), min(max((layout.height + 80) / 110, 2), 60)


@checked
def timeline_figure(timeline: Timeline) -> "Figure":
    """A timeline as a figure, a bar a slice; filter larger ones first.

    Parameters
    ----------
    timeline
        At most 50,000 slices.

    Raises
    ------
    UsageError
        If matplotlib is absent or the timeline has more than 50,000 slices.
    """
    if timeline.n_slices > _MOST_SLICES:
        raise UsageError(
            f"{counted(timeline.n_slices, 'slice')} {verb(timeline.n_slices, 'is', 'are')} too many for a figure "
            f"({_MOST_SLICES}); filter the timeline "
            f"first"
        )
    figure, axes = _new(10, 1 + 0.28 * len(timeline.rows))
    order = sorted(
        range(len(timeline.rows)), key=lambda i: (timeline.rows[i].rank, timeline.rows[i].place, i)
    )
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    for code, word in enumerate(CATEGORIES):
        chosen = timeline.category == code
        if chosen.any():
            colour, hatch = _PARTS[_CATEGORY_PARTS[word]]
            axes.barh(
                place[timeline.row[chosen]],
                timeline.duration_ns[chosen] / 1000,
                left=timeline.start_ns[chosen] / 1000,
                color=colour, hatch=hatch, edgecolor="#222222", linewidth=0.4, label=word,
            )  # fmt: skip
    labels = [f"{timeline.process_name(timeline.rows[i].rank)} {timeline.rows[i].name}" for i in order]
    axes.set_yticks(range(len(order)), labels)
    axes.invert_yaxis()
    axes.set_xlabel("time (µs)")
    figure.legend(loc="outside lower center", ncols=5, frameon=False)
    return figure


@checked
def account_figure(runs: Run | Sequence[Run]) -> "Figure":
    """The time account of one run, a bar for each group of NPUs, or of several, a bar for each run's mean.

    Parameters
    ----------
    runs
        One run, or several to compare.

    Raises
    ------
    UsageError
        If matplotlib is absent.
    """
    rows: list[tuple[str, dict[str, float]]]
    if isinstance(runs, Run):
        rows = [(group.label, dict(group.parts)) for group in npu_groups(runs)[0]]
    else:
        rows = [
            (run.name, {key: float(values.mean()) for key, values in run.account.items()}) for run in runs
        ]
    several = [runs] if isinstance(runs, Run) else runs
    figure, axes = _new(9, 1.2 + 0.35 * len(rows))
    left = np.zeros(len(rows))
    for key, word in part_words(several).items():
        values = np.array([parts.get(key, 0.0) for _, parts in rows]) / 1000
        if values.any():
            colour, hatch = _PARTS[key]
            axes.barh(
                range(len(rows)),
                values,
                left=left,
                color=colour,
                hatch=hatch,
                edgecolor="#222222",
                linewidth=0.5,
                label=word,
            )
            left += values
    axes.set_yticks(range(len(rows)), [label for label, _ in rows])
    axes.invert_yaxis()
    axes.set_xlabel("time (µs)")
    figure.legend(loc="outside lower center", ncols=6, frameon=False)
    return figure
