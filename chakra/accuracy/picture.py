"""Predicted over measured as an SVG picture: one point a row, one colour a family, logarithmic axes."""

import math
from collections.abc import Callable, Sequence
from html import escape

from chakra.accuracy.cases import Quantity
from chakra.accuracy.predictions import Prediction

_SIZE, _MARGIN, _LEGEND = 460, 56, 230
#: colours that people with usual forms of colour blindness tell apart (Okabe and Ito)
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999")


def picture_text(predictions: Sequence[Prediction]) -> str:
    """The picture of all step times: on the diagonal a prediction is right; the grey band is 10 % about it."""
    shown = [
        item for item in predictions if item.predicted is not None and item.case.quantity is Quantity.STEP
    ]
    values = [value for item in shown for value in (item.predicted or 1.0, item.case.measured)] or [1.0]
    low = 10 ** math.floor(math.log10(min(values)))
    high = 10 ** math.ceil(math.log10(max(values)) + 1e-9)
    scale = (_SIZE - 2 * _MARGIN) / max(1.0, math.log10(high / low))

    def x(value: float) -> float:
        return _MARGIN + math.log10(value / low) * scale

    def y(value: float) -> float:
        return _SIZE - x(value)

    band = (
        f"M{x(low):.1f} {y(low * 1.1):.1f} L{x(high / 1.1):.1f} {y(high):.1f} L{x(high):.1f} {y(high):.1f} "
        f"L{x(high):.1f} {y(high / 1.1):.1f} L{x(low * 1.1):.1f} {y(low):.1f} L{x(low):.1f} {y(low):.1f} Z"
    )
    box = f"0 0 {_SIZE + _LEGEND} {_SIZE}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" font-family="sans-serif" font-size="12" role="img">',
        "<title>Predicted over measured step times</title>",
        f'<rect width="{_SIZE + _LEGEND}" height="{_SIZE}" fill="white"/>',
        f'<path d="{band}" fill="#dddddd"/>',
    ]
    parts += _axes(low, high, x, y)
    families = list(dict.fromkeys(item.case.family for item in shown))
    for item in shown:
        colour = _COLOURS[families.index(item.case.family) % len(_COLOURS)]
        parts.append(
            f'<circle cx="{x(item.case.measured):.1f}" cy="{y(item.predicted or 1.0):.1f}" r="2.5" fill="{colour}" '
            'fill-opacity="0.6"/>'
        )
    for number, family in enumerate(families):
        colour = _COLOURS[number % len(_COLOURS)]
        top = _MARGIN + 18 * number
        parts.append(f'<circle cx="{_SIZE}" cy="{top}" r="4" fill="{colour}"/>')
        parts.append(f'<text x="{_SIZE + 10}" y="{top + 4}">{escape(family)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _axes(low: float, high: float, x: Callable[[float], float], y: Callable[[float], float]) -> list[str]:
    parts = []
    value = low
    while value <= high * 1.001:
        parts.append(f'<path d="M{x(value):.1f} {y(low):.1f} V{y(high):.1f}" stroke="#eeeeee"/>')
        parts.append(f'<path d="M{x(low):.1f} {y(value):.1f} H{x(high):.1f}" stroke="#eeeeee"/>')
        parts.append(
            f'<text x="{x(value):.1f}" y="{y(low) + 16:.1f}" text-anchor="middle">{value:g} s</text>'
        )
        parts.append(
            f'<text x="{x(low) - 6:.1f}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g} s</text>'
        )
        value *= 10
    middle = math.sqrt(low * high)
    parts.append(f'<text x="{x(middle):.1f}" y="{y(low) + 36:.1f}" text-anchor="middle">measured</text>')
    parts.append(
        f'<text transform="translate(14 {y(middle):.1f}) rotate(-90)" text-anchor="middle">predicted</text>'
    )
    return parts
