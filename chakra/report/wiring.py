"""Where the NPUs and switches of a small network stand in its picture, from the rows of a result's links.

NPUs and switches are *vertices*, each in a box of its own, and links between the same two are one *cable*. Networks whose
cables nobody could tell apart have no such picture: they are folded (`chakra.report.fabric`).
"""

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from chakra.io.digits import is_whole
from chakra.io.readable import count_text, printable, shortened
from chakra.report.document import Run
from chakra.report.tables import share_of
from chakra.timeline.lenient import number

#: boxes in a row, in a circle, and on a side of a grid
MOST_BOXES: Final = 32
MOST_SIDE: Final = 16
#: cables that can be told apart
MOST_CABLES: Final = 160
WIDTH: Final = 1000.0
LEFT: Final = 130.0
_DIGITS: Final = re.compile(r"[0-9]+")

#: an NPU by its number, a switch by its name
Vertex = int | str


@dataclass(frozen=True, slots=True)
class Wire:
    """A link of the document: its ends, the share of its bandwidth that was used, and its place in the document."""

    start: Vertex
    end: Vertex
    share: float
    row: int


@dataclass(slots=True)
class Box:
    """A vertex, and where it is drawn."""

    x: float
    y: float
    width: float
    height: float
    name: str
    label: str
    npu: bool

    @property
    def middle(self) -> tuple[float, float]:
        """Centre."""
        return self.x + self.width / 2, self.y + self.height / 2


@dataclass(frozen=True, slots=True)
class Picture:
    """Boxes, cables between pairs of them, the box of each vertex, captions (text, y) of rows, its
    size, and how far apart the closest neighbours in a row stand."""

    boxes: list[Box]
    cables: dict[tuple[int, int], list[Wire]]
    place: dict[Vertex, int]
    captions: list[tuple[str, float]]
    width: float
    height: float
    step: float


def wires_of(run: Run) -> list[Wire]:
    """Links of a result, without those whose ends the document does not name, or names alike."""
    shapes = dim_shapes(run)
    out = []
    for row, link in enumerate(run.table("links")):
        start, end = _vertex(link, "from", shapes, run.npus), _vertex(link, "to", shapes, run.npus)
        if start is not None and end is not None and start != end:
            out.append(Wire(start, end, share_of(link, run.end_ns), row))
    return out


def dim_shapes(run: Run) -> list[tuple[str, int]]:
    """Topology and NPUs of each dimension; none where they do not make up all NPUs."""
    inputs = run.document.get("inputs")
    network = inputs.get("network") if isinstance(inputs, Mapping) else None
    dims = network.get("dims") if isinstance(network, Mapping) else None
    found = [
        (str(dim.get("topology")), int(number(dim.get("npus"))))
        for dim in (dims if isinstance(dims, list) else [])
        if isinstance(dim, Mapping)
    ]
    return found if math.prod(npus for _, npus in found) == run.npus else []


def _vertex(
    link: Mapping[str, object], key: str, shapes: Sequence[tuple[str, int]], npus: int
) -> Vertex | None:
    """An end of a link: an NPU, a switch by its name, or the switch of a dimension that the other end belongs to."""
    value = link.get(key)
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    if 0 <= value < npus:
        return value
    other = link.get("to" if key == "from" else "from")
    dim = link.get("dim")
    if value != -1 or not isinstance(other, int) or not isinstance(dim, int) or not 0 <= dim < len(shapes):
        return None
    stride = math.prod(size for _, size in shapes[:dim])
    row = other // (stride * shapes[dim][1]) * stride + other % stride
    return f"dim{dim}.switch{row}"


def picture_of(run: Run, wires: Sequence[Wire]) -> Picture | None:
    """The picture of a run's network: rows of switches above the NPUs, or without switches a grid or a circle; None where
    rows or cables are too many."""
    switches = any(isinstance(end, str) for wire in wires for end in (wire.start, wire.end))
    sizes = [npus for _, npus in dim_shapes(run) if npus > 1]
    if len({frozenset((wire.start, wire.end)) for wire in wires}) > MOST_CABLES:
        return None
    if switches:
        placed = _rows(run.npus, wires)
    elif len(sizes) > 1:
        placed = _grid(sizes)
    else:
        placed = _circle(run.npus)
    if placed is None:
        return None
    boxes, place, captions, height, step = placed
    cables: defaultdict[tuple[int, int], list[Wire]] = defaultdict(list)
    for wire in wires:
        a, b = place[wire.start], place[wire.end]
        cables[min(a, b), max(a, b)].append(wire)
    return Picture(boxes, dict(cables), place, captions, WIDTH, height, step)


Placed = tuple[list[Box], dict[Vertex, int], list[tuple[str, float]], float, float]


def kind_of(switch: str) -> str:
    """A switch's name without its numbers; the switches of a building block's dimension are a kind of their own.

    Parameters
    ----------
    switch
        Name of the switch.

    Examples
    --------
    >>> kind_of("leaf3.0"), kind_of("dim2.switch5")
    ('leaf#.#', 'dim2.switch#')
    """
    dim, named, row = switch.partition(".switch")
    if named and is_whole(dim.removeprefix("dim")) and is_whole(row):
        return f"{dim}.switch#"
    return _DIGITS.sub("#", switch)


def heights(npus: int, wires: Sequence[Wire]) -> tuple[dict[Vertex, int], dict[Vertex, float]]:
    """How many links each vertex stands above the NPUs, and the middle of what it joins, in numbers of NPUs.

    Parameters
    ----------
    npus
        NPUs of the run.
    wires
        Its links.
    """
    beside: defaultdict[Vertex, set[Vertex]] = defaultdict(set)
    for wire in wires:
        beside[wire.start].add(wire.end)
        beside[wire.end].add(wire.start)
    level: dict[Vertex, int] = dict.fromkeys(range(npus), 0)
    centre: dict[Vertex, float] = {npu: float(npu) for npu in range(npus)}
    wave: list[Vertex] = list(range(npus))
    while wave:
        after = list(dict.fromkeys(b for a in wave for b in sorted(beside[a], key=str) if b not in level))
        for vertex in after:
            below = [centre[a] for a in beside[vertex] if a in centre]
            level[vertex] = level[wave[0]] + 1
            centre[vertex] = sum(below) / max(len(below), 1)
        wave = after
    return level, centre


def _rows(npus: int, wires: Sequence[Wire]) -> Placed | None:
    """NPUs below, switches above those that they join, one row for each kind of name."""
    level, centre = heights(npus, wires)
    rows: defaultdict[tuple[int, str], list[Vertex]] = defaultdict(list)
    for vertex in {end: None for wire in wires for end in (wire.start, wire.end)}:
        if isinstance(vertex, str):
            rows[level.get(vertex, 1), kind_of(vertex)].append(vertex)
    floors: list[list[Vertex]] = [list(range(npus))]
    floors += [
        sorted(rows[key], key=lambda vertex: (centre.get(vertex, 0.0), _natural(vertex)))
        for key in sorted(rows)
    ]
    if max(map(len, floors)) > MOST_BOXES:
        return None
    boxes: list[Box] = []
    place: dict[Vertex, int] = {}
    captions = []
    gap, least = 92.0, WIDTH
    for floor, vertices in enumerate(floors):
        y = 34.0 + gap * (len(floors) - 1 - floor)
        step = (WIDTH - LEFT) / len(vertices)
        least = min(least, step)
        width = min(step - 4.0, 64.0)
        for at, vertex in enumerate(vertices):
            place[vertex] = len(boxes)
            boxes.append(_box(vertex, LEFT + step * (at + 0.5) - width / 2, y, width, 22.0))
        captions.append((_caption(vertices), y + 15.0))
    return boxes, place, captions, 34.0 + gap * (len(floors) - 1) + 40.0, least


def _grid(sizes: Sequence[int]) -> Placed | None:
    """NPUs as a plane: the first dimension from left to right, the others downwards."""
    across, down = sizes[0], math.prod(sizes[1:])
    if max(across, down) > MOST_SIDE:
        return None
    step_x, step_y = min((WIDTH - LEFT) / across, 110.0), 52.0
    boxes = [
        _box(
            npu,
            LEFT + npu % across * step_x + 8.0,
            30.0 + npu // across * step_y,
            min(step_x - 26.0, 48.0),
            22.0,
        )
        for npu in range(across * down)
    ]
    place: dict[Vertex, int] = {npu: npu for npu in range(across * down)}
    return boxes, place, [(_caption(range(across * down)), 45.0)], 30.0 + down * step_y + 16.0, step_x


def _circle(npus: int) -> Placed | None:
    """NPUs in a circle, the first on top."""
    if npus > MOST_BOXES:
        return None
    boxes: list[Box] = []
    for npu in range(npus):
        angle = 2 * math.pi * npu / npus - math.pi / 2
        x, y = LEFT + 240.0 + 200.0 * math.cos(angle), 225.0 + 190.0 * math.sin(angle)
        boxes.append(_box(npu, x - 16.0, y - 10.0, 32.0, 20.0))
    place: dict[Vertex, int] = {npu: npu for npu in range(npus)}
    return boxes, place, [(_caption(range(npus)), 35.0)], 450.0, WIDTH


def _box(vertex: Vertex, x: float, y: float, width: float, height: float) -> Box:
    text = str(vertex)
    npu = isinstance(vertex, int)
    label = text if len(text) * 5.0 <= width else ""
    return Box(x, y, width, height, f"{'NPU' if npu else 'switch'} {text}", label, npu)


def _caption(vertices: Sequence[Vertex]) -> str:
    first = vertices[0]
    what = "NPUs" if isinstance(first, int) else shortened(kind_of(first), 14)
    return f"{count_text(len(vertices))} {what}"


def _natural(vertex: Vertex) -> tuple[tuple[int, str], ...]:
    """A key that puts L1.10 behind L1.9."""
    parts = re.split(r"([0-9]+)", str(vertex))
    return tuple(
        (len(part), part) if is_whole(part := word.lstrip("0") or word[:1]) else (0, word) for word in parts
    )
