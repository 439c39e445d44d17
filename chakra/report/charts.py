"""Charts as inline SVG. Areas differ in pattern as well as in colour, so that a black-and-white print can be
read."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

import numpy as np
from markupsafe import Markup, escape

from chakra.arrays import F64
from chakra.io.readable import duration_text, percent_text, printable
from chakra.report.npu_groups import NpuGroup

#: Fill, line colour and pattern of each part of the account; the pattern is drawn on top of the fill.
LOOKS: Final[dict[str, tuple[str, str, str]]] = {
    "compute_ns": ("#0072b2", "#ffffff", ""),
    "cpu_ns": ("#56b4e9", "#003a5c", "M0,6L6,0"),
    "transfer_ns": ("#e69f00", "#5c3f00", "M0,0L6,6M6,0L0,6"),
    "waiting_ns": ("#ffffff", "#b3261e", "M0,3H6"),
    "memory_ns": ("#cc79a7", "#4f1f3a", "M3,0V6"),
    "idle_ns": ("#eeeeee", "#888888", "M3,3h0.8"),
    #: of comparisons: the host in a call that waits for the device
    "host_wait_ns": ("#e3f0fa", "#0072b2", "M0,3H6M3,0V6"),
}
#: characters of a label in the 162 units left of a chart: of this font none but a row of capitals is wider
_LABEL: Final = 24
#: more room for labels that begin with a pipeline stage, px
_STAGED: Final = 96
_FONT: Final = 'font-family="Helvetica,Arial,sans-serif" font-size="11"'


@dataclass(frozen=True, slots=True)
class Frame:
    """The room that a chart is drawn in, px: a page holds each chart in two, and a screen shows the one that fits it.

    Attributes
    ----------
    shown
        Class of the picture; the page's style shows it on screens of its width.
    labels
        Room for labels on the left of what is drawn; where there is none, they stand above.
    width
        Of what is drawn.
    most_ticks
        Marks of the axis at most.
    """

    shown: str
    labels: float
    width: float
    most_ticks: int

    @property
    def above(self) -> bool:
        """Whether labels stand above what they name."""
        return not self.labels


#: a window, paper; a telephone of 320 px and more, at the letters' size
FRAMES: Final = (Frame("broad", 170.0, 700.0, 8), Frame("slim", 0.0, 216.0, 3))


def framed(draw: Callable[[Frame], str]) -> Markup:
    """A chart in every frame."""
    return Markup("".join(draw(frame) for frame in FRAMES))


def opened(width: float, height: float, title: str, shown: str = "") -> str:
    kind = f' class="{shown}"' if shown else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" role="img"{kind} {_FONT}><title>{escape(printable(title))}</title>'
    )


def patterns() -> Markup:
    """The pattern definitions that all charts of a page share."""
    parts = ['<svg width="0" height="0" aria-hidden="true" style="position:absolute"><defs>']
    for key, (fill, ink, path) in LOOKS.items():
        line = (
            f'<path d="{path}" stroke="{ink}" stroke-width="1.1" fill="none" stroke-linecap="round"/>'
            if path
            else ""
        )
        parts.append(
            f'<pattern id="p-{key}" width="6" height="6" patternUnits="userSpaceOnUse">'
            f'<rect width="6" height="6" fill="{fill}"/>{line}</pattern>'
        )
    return Markup("".join(parts) + "</defs></svg>")


def swatch(key: str) -> Markup:
    """A legend's sample of a part."""
    return Markup(
        f'<svg width="22" height="12" aria-hidden="true"><rect x="0.5" y="0.5" width="21" height="11" '
        f'class="part" fill="url(#p-{key})"/></svg>'
    )


def account_chart(groups: Sequence[NpuGroup], end_ns: int, words: dict[str, str]) -> Markup:
    """A stacked bar of the time account for every group of NPUs, with a scale in time units."""
    return framed(lambda frame: _account(frame, groups, end_ns, words))


def _account(frame: Frame, groups: Sequence[NpuGroup], end_ns: int, words: dict[str, str]) -> str:
    # beside a bar stands its time: 76 px hold the longest text
    left, step, bar = (14.0, 40.0, 17) if frame.above else (frame.labels, 24.0, 3)
    most = 40 if frame.above else _LABEL
    if not frame.above and any(group.stage for group in groups):
        left, most = left + _STAGED, _LABEL + _STAGED // 6
    scale = frame.width / max(end_ns, 1)
    height = len(groups) * step + 34
    out = [opened(left + frame.width + 76, height, "Where each NPU's time went", frame.shown)]
    out.append(axis(left, frame.width, len(groups) * step, end_ns, frame.most_ticks))
    for row, group in enumerate(groups):
        y = row * step + bar
        label = group.row_label(most)
        if frame.above:
            out.append(f'<text x="{left}" y="{y - 4}" class="halo">{escape(label)}</text>')
        else:
            out.append(f'<text x="{left - 8}" y="{y + 13}" text-anchor="end">{escape(label)}</text>')
        x = left
        for key, value in group.parts.items():
            if value <= 0:
                continue
            share = percent_text(value / max(group.finish_ns, 1))
            text = f"{group.label}: {words.get(key, key)} {duration_text(value)} ({share})"
            out.append(
                f'<rect x="{x:.2f}" y="{y}" width="{value * scale:.2f}" height="17" fill="url(#p-{key})" '
                f'class="part" stroke-width="0.6"><title>{escape(text)}</title></rect>'
            )
            x += value * scale
        out.append(f'<text x="{left + group.finish_ns * scale + 5:.1f}" y="{y + 13}">{group.finish}</text>')
    return "".join(out) + "</svg>"


def round_ticks(end_ns: int, most: int = 8) -> list[int]:
    """Times at 1, 2 or 5 times a power of ten ns, equally far apart from 0 on, at most `most` + 1 of them.

    >>> round_ticks(995_449_570)
    [0, 200000000, 400000000, 600000000, 800000000]
    >>> round_ticks(3), round_ticks(0)
    ([0, 1, 2, 3], [0])
    """
    steps = (digit * 10**power for power in count() for digit in (1, 2, 5))
    step = next(step for step in steps if end_ns // step <= most)
    return list(range(0, end_ns + 1, step))


def value_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten that hold `low` and `high` between them, about `most` of them.

    >>> value_ticks(3, 47)
    [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]
    >>> value_ticks(7, 7)
    [7.0]
    """
    if not high > low:
        return [float(low)]
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(digit * power for digit in (1, 2, 5, 10) if digit * power >= rough)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [k * step for k in range(first, last + 1)]


def axis(left: float, width: float, height: float, end_ns: int, most: int = 8) -> str:
    out = []
    for tick in round_ticks(end_ns, most):
        x = left + width * tick / max(end_ns, 1)
        out.append(f'<path class="tick" d="M{x:.1f},0V{height + 4:.1f}"/>')
        out.append(
            f'<text x="{x:.1f}" y="{height + 18:.1f}" text-anchor="middle">{duration_text(tick)}</text>'
        )
    return "".join(out)


def share_bar(share: float, words: str) -> Markup:
    """A small bar for a share between 0 and 1, with its value in words for those who do not see it."""
    part = min(max(share, 0.0), 1.0)
    return Markup(
        f'<svg width="122" height="12" role="img"><title>{escape(words)}</title><rect x="0.5" y="0.5" '
        f'width="121" height="11" '
        f'class="empty"/><rect x="1" y="1" width="{120 * part:.1f}" height="10" class="full"/>'
        f"</svg>"
    )


def line_chart(x: F64, y: F64, *, title: str, x_end_ns: int, y_label: str) -> Markup:
    """A step line of a quantity over time; at most 2000 points are drawn, peaks kept."""
    x, y = _thinned(x, y, 1000)
    return framed(lambda frame: _line(frame, x, y, title, x_end_ns, y_label))


def _line(frame: Frame, x: F64, y: F64, title: str, x_end_ns: int, y_label: str) -> str:
    left, height = 70.0, 170.0
    top = float(y.max(initial=0.0)) or 1.0
    px = left + x / max(x_end_ns, 1) * frame.width
    py = 10 + (1 - y / top) * height
    path = [f"M{px[0]:.1f},{py[0]:.1f}"] if len(px) else []
    path += [f"H{a:.1f}V{b:.1f}" for a, b in zip(px[1:].tolist(), py[1:].tolist(), strict=True)]
    right = left + frame.width
    marks = axis(left, frame.width, height, x_end_ns, frame.most_ticks)
    out = [
        opened(right + 20, height + 44, title, frame.shown),
        f'<g transform="translate(0,10)">{marks}</g>',
    ]
    out.append(f'<path d="{"".join(path)}H{right:.1f}" class="line" fill="none" stroke-width="1.6"/>')
    out.append(f'<text x="{left - 6}" y="16" text-anchor="end">{escape(y_label)}</text>')
    out.append(f'<text x="{left - 6}" y="{height + 12:.0f}" text-anchor="end">0</text>')
    return "".join(out) + "</svg>"


@dataclass(frozen=True, slots=True)
class Spot:
    """A circle of a scatter chart: where it is, its words, where it leads, and whether the line joins it."""

    x: float
    y: float
    words: str
    link: str
    joined: bool


def scatter(
    spots: Sequence[Spot], x_label: str, y_label: str, texts: Callable[[Sequence[float]], list[str]]
) -> Markup:
    """Circles by two quantities; those that are joined are full, with a line of steps through them.

    Parameters
    ----------
    spots
        The circles, at least one.
    x_label, y_label
        The quantities, with their units.
    texts
        Marks of an axis as text.
    """
    return framed(lambda frame: _scatter(frame, spots, (x_label, y_label), texts))


def _scatter(
    frame: Frame,
    spots: Sequence[Spot],
    labels: tuple[str, str],
    texts: Callable[[Sequence[float]], list[str]],
) -> str:
    x_label, y_label = labels
    left, top, width, height = 80.0, 14.0, frame.width, 300.0
    marks = [
        value_ticks(min(values), max(values), most)
        for values, most in (([s.x for s in spots], min(frame.most_ticks, 6)), ([s.y for s in spots], 6))
    ]

    def part(value: float, axis: int) -> float:
        low, high = marks[axis][0], marks[axis][-1]
        return (value - low) / (high - low) if high > low else 0.5

    def at(x: float, y: float) -> tuple[float, float]:
        return left + width * part(x, 0), top + height * (1 - part(y, 1))

    below, middle = top + height, (marks[0][0], marks[1][0])
    out = [opened(left + width + 24, below + 50, f"{y_label} against {x_label}", frame.shown)]
    for mark, text in zip(marks[0], texts(marks[0]), strict=True):
        x, _ = at(mark, middle[1])
        out.append(f'<path class="tick" d="M{x:.1f},{top}V{below + 4}"/>')
        out.append(f'<text x="{x:.1f}" y="{below + 18}" text-anchor="middle">{escape(text)}</text>')
    for mark, text in zip(marks[1], texts(marks[1]), strict=True):
        _, y = at(middle[0], mark)
        out.append(f'<path class="tick" d="M{left - 4},{y:.1f}H{left + width}"/>')
        out.append(f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{escape(text)}</text>')
    out.append(f'<text x="{left + width / 2}" y="{below + 40}" text-anchor="middle">{escape(x_label)}</text>')
    turned = f'transform="translate(14,{top + height / 2}) rotate(-90)" text-anchor="middle"'
    out.append(f"<text {turned}>{escape(y_label)}</text>")
    line = [at(x, y) for x, y in sorted((spot.x, spot.y) for spot in spots if spot.joined)]
    if len(line) > 1:
        steps = "".join(f"H{x:.1f}V{y:.1f}" for x, y in line[1:])
        out.append(
            f'<path class="line" fill="none" stroke-width="1.6" d="M{line[0][0]:.1f},{line[0][1]:.1f}{steps}"/>'
        )
    # those of the line last: others would cover them
    for spot in sorted(spots, key=lambda spot: spot.joined):
        x, y = at(spot.x, spot.y)
        out.append(
            f'<a href="{escape(spot.link)}"><circle class="{"full" if spot.joined else "circle"}" cx="{x:.1f}" '
            f'cy="{y:.1f}" r="5"><title>{escape(spot.words)}</title></circle></a>'
        )
    return "".join(out) + "</svg>"


def _thinned(x: F64, y: F64, buckets: int) -> tuple[F64, F64]:
    if len(x) <= 2 * buckets:
        return x, y
    edges = np.linspace(0, len(x), buckets + 1).astype(int)
    keep: set[int] = {0, len(x) - 1}
    for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        keep.update((a + int(np.argmin(y[a:b])), a + int(np.argmax(y[a:b]))))
    order = np.array(sorted(keep))
    return x[order], y[order]
