"""Where the NPUs and switches of a network stand in its picture, from the rows of a result's links.

NPUs and switches are *vertices*. Vertices that stand beside each other share a *box* where a row has too many, and links
between the same two boxes are one *cable*, so that a network of thousands stays a picture.
"""

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from chakra.io.digits import is_whole
from chakra.io.readable import count_text, printable, shortened
from chakra.report.document import Run
from chakra.report.tables import share_of
from chakra.timeline.lenient import number

#: boxes in a row, in a circle, and on a side of a grid
MOST_BOXES: Final = 32
MOST_SIDE: Final = 16
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
    """Vertices that are drawn as one, and where; `inside` are the links between them."""

    x: float
    y: float
    width: float
    height: float
    name: str
    label: str
    members: int
    npus: bool
    inside: list[Wire] = field(default_factory=list)

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
    """Links of a result, without those whose ends the document does not name."""
    shapes = _shapes(run)
    out = []
    for row, link in enumerate(run.table("links")):
        start, end = _vertex(link, "from", shapes, run.npus), _vertex(link, "to", shapes, run.npus)
        if start is not None and end is not None:
            out.append(Wire(start, end, share_of(link, run.end_ns), row))
    return out


def _shapes(run: Run) -> list[tuple[str, int]]:
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


def picture_of(run: Run, wires: Sequence[Wire]) -> Picture:
    """The picture of a run's network: rows of switches above the NPUs, or without switches a grid or a circle."""
    switches = any(isinstance(end, str) for wire in wires for end in (wire.start, wire.end))
    sizes = [npus for _, npus in _shapes(run) if npus > 1]
    if switches:
        boxes, place, captions, height, step = _rows(run.npus, wires)
    elif len(sizes) > 1:
        boxes, place, captions, height, step = _grid(sizes)
    else:
        boxes, place, captions, height, step = _circle(run.npus)
    cables: defaultdict[tuple[int, int], list[Wire]] = defaultdict(list)
    for wire in wires:
        a, b = place[wire.start], place[wire.end]
        if a == b:
            boxes[a].inside.append(wire)
        else:
            cables[min(a, b), max(a, b)].append(wire)
    return Picture(boxes, dict(cables), place, captions, WIDTH, height, step)


Placed = tuple[list[Box], dict[Vertex, int], list[tuple[str, float]], float, float]


def _rows(npus: int, wires: Sequence[Wire]) -> Placed:
    """NPUs below, switches above those that they join, one row for each kind of name."""
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
    rows: defaultdict[tuple[int, str], list[Vertex]] = defaultdict(list)
    for vertex in {end: None for wire in wires for end in (wire.start, wire.end)}:
        if isinstance(vertex, str):
            rows[level.get(vertex, 1), _DIGITS.sub("#", vertex)].append(vertex)
    floors: list[list[Vertex]] = [list(range(npus))]
    floors += [
        sorted(rows[key], key=lambda vertex: (centre.get(vertex, 0.0), _natural(vertex)))
        for key in sorted(rows)
    ]
    boxes: list[Box] = []
    place: dict[Vertex, int] = {}
    captions = []
    gap, least = 92.0, WIDTH
    for floor, vertices in enumerate(floors):
        y = 34.0 + gap * (len(floors) - 1 - floor)
        each = _box_size(len(vertices), MOST_BOXES)
        groups = [vertices[at : at + each] for at in range(0, len(vertices), each)]
        step = (WIDTH - LEFT) / len(groups)
        least = min(least, step)
        width = min(step - 4.0, 64.0)
        for at, group in enumerate(groups):
            x = LEFT + step * (at + 0.5) - width / 2
            place |= dict.fromkeys(group, len(boxes))
            boxes.append(_box(group, x, y, width, 22.0))
        captions.append((_caption(vertices, each), y + 15.0))
    return boxes, place, captions, 34.0 + gap * (len(floors) - 1) + 40.0, least


def _grid(sizes: Sequence[int]) -> Placed:
    """NPUs as a plane: the first dimension from left to right, the others downwards."""
    across, down = sizes[0], math.prod(sizes[1:])
    wide, high = _box_size(across, MOST_SIDE), _box_size(down, MOST_SIDE)
    columns, lines = -(-across // wide), -(-down // high)
    step_x, step_y = min((WIDTH - LEFT) / columns, 110.0), 52.0
    boxes: list[Box] = []
    place: dict[Vertex, int] = {}
    for line in range(lines):
        for column in range(columns):
            group = [
                y * across + x
                for y in range(line * high, min((line + 1) * high, down))
                for x in range(column * wide, min((column + 1) * wide, across))
            ]
            place |= dict.fromkeys(group, len(boxes))
            at = LEFT + column * step_x + 8.0, 30.0 + line * step_y
            boxes.append(_box(group, *at, min(step_x - 26.0, 48.0), 22.0))
    captions = [(_caption(list(range(across * down)), wide * high), 45.0)]
    return boxes, place, captions, 30.0 + lines * step_y + 16.0, step_x


def _circle(npus: int) -> Placed:
    """NPUs in a circle, the first on top."""
    each = _box_size(npus, MOST_BOXES)
    groups = [list(range(at, min(at + each, npus))) for at in range(0, npus, each)]
    boxes: list[Box] = []
    place: dict[Vertex, int] = {}
    for at, group in enumerate(groups):
        angle = 2 * math.pi * at / len(groups) - math.pi / 2
        x, y = LEFT + 240.0 + 200.0 * math.cos(angle), 225.0 + 190.0 * math.sin(angle)
        place |= dict.fromkeys(group, len(boxes))
        boxes.append(_box(group, x - 16.0, y - 10.0, 32.0, 20.0))
    return boxes, place, [(_caption(list(range(npus)), each), 35.0)], 450.0, WIDTH


def _box(group: Sequence[Vertex], x: float, y: float, width: float, height: float) -> Box:
    first, last = str(group[0]), str(group[-1])
    npus = isinstance(group[0], int)
    word = "NPU" if npus else "switch"
    if len(group) == 1:
        name = f"{word} {first}"
    else:
        name = f"{len(group)} {word}{'s' if npus else 'es'}, {first} to {last}"
    label = first if len(first) * 5.0 <= width else ""
    return Box(x, y, width, height, name, label, len(group), npus)


def _box_size(count: int, most: int) -> int:
    """How many share a box: the smallest divisor that leaves at most `most` boxes, if one is near; else rounded up.

    >>> _box_size(4096, 32), _box_size(20, 32), _box_size(37, 32)
    (128, 1, 2)
    """
    least = max(-(-count // most), 1)
    return next((each for each in range(least, 2 * least + 1) if count % each == 0), least)


def _caption(vertices: Sequence[Vertex], each: int) -> str:
    first = vertices[0]
    what = "NPUs" if isinstance(first, int) else shortened(_DIGITS.sub("#", first), 14)
    return f"{count_text(len(vertices))} {what}" + (f", {each} a box" if each > 1 else "")


def _natural(vertex: Vertex) -> tuple[tuple[int, str], ...]:
    """A key that puts L1.10 behind L1.9."""
    parts = re.split(r"([0-9]+)", str(vertex))
    return tuple(
        (len(part), part) if is_whole(part := word.lstrip("0") or word[:1]) else (0, word) for word in parts
    )
