"""Links of a report: the network with its most loaded links, and their use over time, as inline SVG.

Lines differ in width as well as in colour, and the most loaded links carry numbers, so that a black-and-white print can
be read; colours are variables of the page, for dark screens.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from chakra.io.markup import closing, element, empty, nested
from chakra.io.readable import count_text, counted_text, percent_text, shortened
from chakra.report.charts import Frame, axis, framed, opened
from chakra.report.document import Run
from chakra.report.fabric import fabric_of
from chakra.report.fabric_picture import fabric_picture, step_of, vertex_name
from chakra.report.tables import link_name
from chakra.report.wiring import WIDTH, Box, Picture, Wire, picture_of, wires_of
from chakra.timeline.lenient import number, numbers

#: links with a number
MOST_NUMBERED: Final = 12
#: links, beyond which a document's picture is not drawn
MOST_LINKS: Final = 500_000
#: how far apart numbers stand at least, px
_CLOSE: Final = 20.0

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Used:
    """A link, or several that are used alike: its name, and the share of its bandwidth that is used by interval."""

    name: str
    share: tuple[float, ...]
    start: object
    end: object


def drawn_wires(run: Run) -> list[Wire]:
    """The links that pictures of a run's network show; none where the document has none, or too many."""
    return wires_of(run) if 0 < len(run.table("links")) <= MOST_LINKS else []


def fabric_of_run(run: Run, wires: Sequence[Wire]) -> Markup | None:
    """The network of a run, of its `drawn_wires`, folded; None where there are none."""
    return fabric_picture(fabric_of(run, wires)) if wires else None


def network_picture(run: Run, wires: Sequence[Wire]) -> Markup | None:
    """The network of a run link by link, its `drawn_wires`, each by its load; None where there are none, or too many."""
    picture = picture_of(run, wires) if wires else None
    if picture is None:
        return None
    out = [opened(picture.width, picture.height, "The network and the load of its links")]
    out.extend(_text(shortened(text, 26), 4, y) for text, y in picture.captions)
    busiest = sorted(picture.cables.items(), key=lambda item: (-max(w.share for w in item[1]), item[0]))
    for ends, among in reversed(busiest):  # the most loaded ones on top
        text = _figures(among, f"{picture.boxes[ends[0]].name} and {picture.boxes[ends[1]].name}")
        kind = f"link u{step_of(max(w.share for w in among))}"
        out.append(nested("path", element("title", text), {"class": kind, "d": _path(picture, ends)}))
    out.extend(_drawn(box) for box in picture.boxes)
    out.extend(_badges([(place, _spot(picture, wire)) for place, wire in _numbered(run, wires)]))
    return Markup("".join([*out, closing("svg")]))


def _badges(numbers: Sequence[tuple[int, Point]]) -> Iterator[str]:
    """Numbers on the picture; those that would cover each other share a badge."""
    places: dict[Point, list[int]] = {}
    for number_of, (x, y) in numbers:
        near = ((a, b) for (a, b), found in places.items() if abs(b - y) < 16 and abs(a - x) < _reach(found))
        places.setdefault(next(near, (x, y)), []).append(number_of)
    for (x, y), found in places.items():
        words = " ".join(map(str, found[:3])) + (" …" if len(found) > 3 else "")
        wide = 8.0 + 6.2 * len(words)
        size = {"width": f"{wide:.1f}", "height": 15, "rx": 7}
        yield empty("rect", {"class": "badge", **_place(x - wide / 2, y - 8)} | size)
        yield _text(words, x, y + 3.5, "middle", "number")


def _reach(found: Sequence[int]) -> float:
    """How far from a badge another number must stand."""
    return _CLOSE + 8.0 * min(len(found), 3)


def use_chart(run: Run, *, numbered: bool) -> Markup | None:
    """How much of the most loaded links is used over time, with their numbers on the picture, if there is one.

    None where the document does not say.
    """
    use = run.document.get("link_use")
    interval = int(number(use.get("interval_ns"))) if isinstance(use, Mapping) else 0
    rows = _used(run)
    if not isinstance(use, Mapping) or interval <= 0 or not rows:
        return None
    mean = numbers(use.get("mean")).tolist()
    names = [f"{k}: {row.name}" if numbered else row.name for k, row in rows]
    shares = [row.share for _, row in rows]
    lines = [("mean of all that carry", tuple(mean)), *zip(names, shares, strict=True)]
    return framed(lambda frame: _use(frame, lines, interval, run.end_ns))


def _use(frame: Frame, lines: Sequence[tuple[str, tuple[float, ...]]], interval: int, end_ns: int) -> str:
    left, width, right, step = (14.0, 276.0, 12.0, 46.0) if frame.above else (230.0, 640.0, 130.0, 34.0)
    height = len(lines) * step
    out = [
        opened(left + width + right, height + 34, "Use of the most loaded links over time", frame.shown),
        axis(left, width, height, end_ns, frame.most_ticks),
    ]
    for row, (name, shares) in enumerate(lines):
        y = row * step + step - 4
        most, average = max(shares, default=0.0), _average(shares, interval, end_ns)
        words = f"{name}: {percent_text(average)} in the mean, {percent_text(most)} at most"
        area = _area(shares, interval, end_ns, left, width, y, 26)
        told = f"{percent_text(average)}, at most {percent_text(most)}"
        if frame.above:
            texts = [
                _text(shortened(name, 28), left, y - 30, kind="halo"),
                _text(told, left + width, y - 30, "end", "halo"),
            ]
        else:
            texts = [
                _text(shortened(name, 38), left - 8, y - 6, "end"),
                _text(told, left + width + 8, y - 6),
            ]
        out += [
            empty("path", {"class": "base", "d": f"M{left:.0f},{y:.0f}H{left + width:.0f}"}),
            nested("path", element("title", words), {"class": "area" if row else "area mean", "d": area}),
            *texts,
        ]
    return "".join([*out, closing("svg")])


def _average(shares: Sequence[float], interval: int, end_ns: int) -> float:
    """Mean over the run: the last interval ends with it."""
    spans = [
        max(min(end_ns, (k + 1) * interval) - k * interval, 1 if k == 0 else 0) for k in range(len(shares))
    ]
    return sum(a * b for a, b in zip(shares, spans, strict=True)) / max(sum(spans), 1)


def _area(
    shares: Sequence[float], interval: int, end_ns: int, left: float, width: float, base: float, high: float
) -> str:
    """Steps of a share between 0 and 1 above a line."""
    scale = width / max(end_ns, 1)
    path = [f"M{left:.0f},{base:.1f}"]
    before = None
    for k, share in enumerate(shares):
        y = base - high * min(max(share, 0.0), 1.0)
        if y != before:
            path.append(f"V{y:.1f}")
            before = y
        path.append(f"H{left + min((k + 1) * interval * scale, width):.1f}")
    return "".join(path) + f"V{base:.1f}Z"


def _used(run: Run) -> list[tuple[int, Used]]:
    """The links whose use over time the document has, numbered from 1 as on the picture."""
    use = run.document.get("link_use")
    links = use.get("links") if isinstance(use, Mapping) else None
    out = []
    for link in links if isinstance(links, list) else []:
        if not isinstance(link, Mapping):
            continue
        alike = int(number(link.get("alike"), 1))
        name = link_name(link) + (f" (+{count_text(alike - 1)})" if alike > 1 else "")
        out.append(Used(name, tuple(numbers(link.get("share")).tolist()), link.get("from"), link.get("to")))
    return list(enumerate(out[:MOST_NUMBERED], 1))


def _numbered(run: Run, wires: Sequence[Wire]) -> list[tuple[int, Wire]]:
    """The links that the picture numbers: those of the chart, else those with the greatest load."""
    rows = run.table("links")
    used = _used(run)
    if used:
        first: dict[tuple[object, object], Wire] = {}
        for wire in wires:
            first.setdefault((rows[wire.row].get("from"), rows[wire.row].get("to")), wire)
        return [(k, first[u.start, u.end]) for k, u in used if _known(first, u)]
    return list(enumerate(sorted(wires, key=lambda wire: -wire.share)[:MOST_NUMBERED], 1))


def _known(first: Mapping[tuple[object, object], Wire], used: Used) -> bool:
    return (
        all(isinstance(end, int | str) for end in (used.start, used.end)) and (used.start, used.end) in first
    )


def _figures(among: Sequence[Wire], ends: str) -> str:
    mean = sum(wire.share for wire in among) / len(among)
    most = max(among, key=lambda wire: wire.share)
    return (
        f"{ends}: {counted_text(len(among), 'link')}, {percent_text(mean)} in the mean, "
        f"{percent_text(most.share)} at most ({vertex_name(most.start)} → {vertex_name(most.end)})"
    )


def _drawn(box: Box) -> str:
    kind = "npu" if box.npu else "switch"
    x, y = box.middle
    size = {"width": f"{box.width:.1f}", "height": f"{box.height:.1f}", "rx": 3}
    shape = nested("rect", element("title", box.name), {"class": kind, **_place(box.x, box.y), **size})
    return shape + _text(box.label, x, y + 3.5, "middle", "inside")


def _place(x: float, y: float) -> dict[str, object]:
    return {"x": f"{x:.1f}", "y": f"{y:.1f}"}


def _text(words: str, x: float, y: float, anchor: str = "start", kind: str = "") -> str:
    given = ({"class": kind} if kind else {}) | _place(x, y)
    return element("text", words, given | ({"text-anchor": anchor} if anchor != "start" else {}))


def _path(picture: Picture, ends: tuple[int, int]) -> str:
    """A line between two boxes; a bow where others lie between them."""
    a, b = (picture.boxes[end] for end in ends)
    if bent := _bent(picture, a, b):
        (x0, y0), (x, y), (x1, y1) = bent
        return f"M{x0:.1f},{y0:.1f}Q{x:.1f},{y:.1f},{x1:.1f},{y1:.1f}"
    (x0, y0), (x1, y1) = a.middle, b.middle
    return f"M{x0:.1f},{y0:.1f}L{x1:.1f},{y1:.1f}"


def _bent(picture: Picture, a: Box, b: Box) -> tuple[Point, Point, Point] | None:
    """Beginning, control point and end of the bow between two boxes; None where the line is straight."""
    (x0, y0), (x1, y1) = a.middle, b.middle
    if y0 == y1 and abs(x0 - x1) > 1.5 * picture.step:
        return (x0, a.y), ((x0 + x1) / 2, a.y - _bow(x0, x1)), (x1, b.y)
    if picture.step < WIDTH and abs(x0 - x1) < 0.5 and abs(y0 - y1) > 100.0:
        side = a.x + a.width
        return (side, y0), (side + _bow(y0, y1), (y0 + y1) / 2), (side, y1)
    return None


def _bow(a: float, b: float) -> float:
    return min(14.0 + abs(a - b) / 10, 44.0)


def _spot(picture: Picture, wire: Wire) -> Point:
    """Where a link's number stands: on its cable, nearer to where the link begins."""
    boxes = picture.boxes
    a, b = boxes[picture.place[wire.start]], boxes[picture.place[wire.end]]
    if bent := _bent(picture, a, b):  # half way along the bow
        (x0, y0), (x, y), (x1, y1) = bent
        return round((x0 + 2 * x + x1) / 4, 1), round((y0 + 2 * y + y1) / 4, 1)
    (x0, y0), (x1, y1) = a.middle, b.middle
    part = 0.36
    return round(x0 + part * (x1 - x0), 1), round(y0 + part * (y1 - y0), 1)
