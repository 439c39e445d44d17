"""The folded network of a report as inline SVG: levels below each other, beside their links the figures of these."""

from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from chakra.io.markup import closing, element, empty, escaped, nested
from chakra.io.readable import percent_text, shortened
from chakra.report.charts import Frame, framed, opened
from chakra.report.fabric import NPUS, Bundle, Fabric
from chakra.report.wiring import Vertex

#: share from which a line is as wide, ascending
STEPS: Final = (0.0, 0.2, 0.4, 0.6, 0.8)
#: heights of a level's box, of the words at the foot of a node's frame, and between levels that no links join, px
_BOX: Final = 30.0
_FOOT: Final = 22.0
_APART: Final = 18.0


@dataclass(frozen=True, slots=True)
class _Sheet:
    """Where things stand across a frame, px: boxes, names of links, bars with their figures; and rows' heights."""

    boxes: tuple[float, float]
    names: float
    bars: tuple[float, float]
    figures: float
    width: float
    row: float


_BROAD: Final = _Sheet((54.0, 190.0), 276.0, (520.0, 170.0), 702.0, 960.0, 46.0)
_SLIM: Final = _Sheet((14.0, 230.0), 44.0, (44.0, 100.0), 152.0, 316.0, 84.0)


def fabric_picture(fabric: Fabric) -> Markup:
    """The folded network, and of each kind of links how busy they were and which was busiest.

    Parameters
    ----------
    fabric
        The network.
    """
    return framed(lambda frame: _drawn(frame, fabric))


def link_legend() -> Markup:
    """Samples of lines by the share of the bandwidth that was used."""
    bounds = [*STEPS, 1.0]
    out = []
    for k in range(len(STEPS)):
        line = empty("path", {"class": f"link u{k}", "d": "M1,6H33"})
        sample = nested("svg", line, {"width": 34, "height": 12, "aria-hidden": "true"})
        words = f"{100 * bounds[k]:.0f} to {100 * bounds[k + 1]:.0f} %"
        out.append(nested("span", sample + escaped(words)))
    return Markup("".join(out))


def step_of(share: float) -> int:
    """Which of the widths of lines a share has.

    Parameters
    ----------
    share
        Share of the bandwidth that was used.
    """
    return max(k for k, least in enumerate(STEPS) if share >= least) if share > 0 else 0


def vertex_name(vertex: Vertex) -> str:
    """An NPU or a switch as links are called by.

    Parameters
    ----------
    vertex
        The end of a link.
    """
    return f"{NPUS} {vertex}" if isinstance(vertex, int) else vertex


def _drawn(frame: Frame, fabric: Fabric) -> str:
    sheet = _SLIM if frame.above else _BROAD
    tops, rows, height = _places(fabric, sheet, beside=not frame.above)
    out = [opened(sheet.width, height, "The network by kinds of links, and how busy they were", frame.shown)]
    bottoms = [top + high for top, high in tops]
    inside = [k for k, level in enumerate(fabric.levels) if level.floor <= 0]
    left, wide = sheet.boxes
    if len(inside) > 1:
        out.append(_node(fabric, sheet, tops[inside[0]][0], bottoms[inside[-1]]))
    lanes = 0
    for bundle, y in zip(fabric.bundles, rows, strict=True):
        kind = f"link u{step_of(bundle.busiest.share)}"
        middle = y + sheet.row / 2
        if bundle.upper == bundle.lower:
            path, begins = _loop(sheet, tops[bundle.upper], middle, below=frame.above)
        elif bundle.lower == bundle.upper + 1:
            begins = left + wide / 2 if not frame.above else left + 10
            path = f"M{begins:.1f},{bottoms[bundle.upper]:.1f}V{tops[bundle.lower][0]:.1f}"
        else:  # around the levels between
            lanes += 1
            begins = left - 8.0 * lanes
            a, b = bottoms[bundle.upper] - _BOX / 2, tops[bundle.lower][0] + _BOX / 2
            path = f"M{left:.1f},{a:.1f}H{begins:.1f}V{b:.1f}H{left:.1f}"
        words = f"{fabric.name(bundle)}: {bundle.count_in_words}, {_busy(bundle)}"
        out.append(nested("path", element("title", words), {"class": kind, "d": path}))
        if not frame.above:
            out.append(
                empty("path", {"class": "lead", "d": f"M{begins + 6:.1f},{middle:.1f}H{sheet.names - 8:.1f}"})
            )
        out += _figures(fabric, bundle, sheet, y, below=frame.above)
    for level, (top, high) in zip(fabric.levels, tops, strict=True):
        kind = "npu" if level.kind == NPUS else "switch"
        box = {"class": kind, **_at(left, top), "width": f"{wide:.1f}", "height": f"{high:.1f}", "rx": 4}
        out += [
            empty("rect", box),
            _text(shortened(level.label, 34), left + wide / 2, top + high / 2 + 4, "middle"),
        ]
    return "".join([*out, closing("svg")])


def _places(
    fabric: Fabric, sheet: _Sheet, *, beside: bool
) -> tuple[list[tuple[float, float]], list[float], float]:
    """Top and height of each level's box, top of each bundle's row, and the height of all.

    Links inside a level stand beside its box, or below it.
    """
    tops: list[tuple[float, float]] = []
    rows = dict.fromkeys(range(len(fabric.bundles)), 0.0)
    framed_nodes = any(level.floor < 0 for level in fabric.levels)
    y = 8.0
    for place in range(len(fabric.levels)):
        own = [k for k, bundle in enumerate(fabric.bundles) if bundle.upper == bundle.lower == place]
        down = [k for k, bundle in enumerate(fabric.bundles) if bundle.upper == place != bundle.lower]
        high = max(_BOX, len(own) * sheet.row) if beside else _BOX
        tops.append((y, high))
        first = y + (high - len(own) * sheet.row) / 2 if beside else y + high
        for at, k in enumerate(own):
            rows[k] = first + at * sheet.row
        y += high if beside else high + len(own) * sheet.row
        for k in down:
            rows[k] = y
            y += sheet.row
        if not down:
            y += _APART
    return tops, list(rows.values()), y + (_FOOT if framed_nodes else 0.0)


def _node(fabric: Fabric, sheet: _Sheet, top: float, bottom: float) -> str:
    """A frame around what nodes are made of."""
    left, wide = sheet.boxes
    # figures stand beside the boxes, or below them, inside the frame
    right = left + wide + 8 if sheet.names > left + wide else sheet.width - 2
    if fabric.node_npus:
        npus = next(level.count for level in fabric.levels if level.kind == NPUS)
        words = f"{npus // fabric.node_npus:,} nodes of {fabric.node_npus} NPUs"
    else:
        words = "inside nodes"
    box = {"class": "node", **_at(left - 8, top - 8), "width": f"{right - left + 8:.1f}", "rx": 6}
    size = {"height": f"{bottom - top + 8 + _FOOT:.1f}"}
    return empty("rect", box | size) + _text(words, left + wide / 2, bottom + _FOOT - 7, "middle")


def _loop(sheet: _Sheet, box: tuple[float, float], middle: float, *, below: bool) -> tuple[str, float]:
    """A line that leaves a box and comes back, and where it is farthest from it."""
    left, wide = sheet.boxes
    if below:
        x, y = left + 10, box[0] + box[1]
        return (
            f"M{x - 6:.1f},{y:.1f}C{x - 10:.1f},{y + 26:.1f},{x + 10:.1f},{y + 26:.1f},{x + 6:.1f},{y:.1f}",
            x,
        )
    x, far = left + wide, left + wide + 22
    return (
        f"M{x:.1f},{middle - 7:.1f}C{far:.1f},{middle - 12:.1f},{far:.1f},{middle + 12:.1f},{x:.1f},{middle + 7:.1f}",
        left + wide + 14,
    )


def _figures(fabric: Fabric, bundle: Bundle, sheet: _Sheet, y: float, *, below: bool) -> list[str]:
    """Name and number of a bundle's links; their mean as a bar, with a mark at the busiest."""
    name, count = fabric.name(bundle), bundle.count_in_words
    start, width = sheet.bars
    bar = y + 42 if below else y + 11
    busiest = bundle.busiest
    mark = start + width * min(max(busiest.share, 0.0), 1.0)
    full = width * min(max(bundle.mean, 0.0), 1.0)
    ends = f"busiest {vertex_name(busiest.start)} → {vertex_name(busiest.end)}"
    size = {"height": 11}
    return [
        _text(shortened(name, 44), sheet.names, y + (17 if below else 19), kind="strong"),
        _text(count, sheet.names, y + (32 if below else 34)),
        empty("rect", {"class": "empty", **_at(start, bar), "width": f"{width:.1f}", **size}),
        empty("rect", {"class": "full", **_at(start, bar), "width": f"{full:.1f}", **size}),
        empty("path", {"class": "mark", "d": f"M{mark:.1f},{bar - 3:.1f}v17"}),
        _text(_busy(bundle), sheet.figures, bar + 9.5, kind="strong"),
        _text(shortened(ends, 46), *((sheet.names, y + 68) if below else (start, y + 38))),
    ]


def _busy(bundle: Bundle) -> str:
    return f"mean {percent_text(bundle.mean)}, busiest {percent_text(bundle.busiest.share)}"


def _at(x: float, y: float) -> dict[str, object]:
    return {"x": f"{x:.1f}", "y": f"{y:.1f}"}


def _text(words: str, x: float, y: float, anchor: str = "start", kind: str = "") -> str:
    given = ({"class": kind} if kind else {}) | _at(x, y)
    return element("text", words, given | ({"text-anchor": anchor} if anchor != "start" else {}))
