"""PNG from a scene, drawn with NumPy: no imaging library, no fonts."""

import struct
import zlib
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from chakra.arrays import F64
from chakra.viz.formats.glyphs import GLYPH_HEIGHT, text_mask
from chakra.viz.layout.scene import LABEL_SIZE, LINE_STEP, Link, Mark, Scene, first_baseline
from chakra.viz.style import EDGE_STYLES, KIND_STYLES, EdgeKind, Kind, rgb

Canvas = npt.NDArray[np.uint8]

#: Pixels a picture may have; larger scenes are drawn smaller, and without labels once those would be
#: unreadable.
_MAX_PIXELS: Final = 50_000_000
_INK: Final = (17, 17, 17)
_LINKS_AT_ONCE: Final = 4096


def png_bytes(scene: Scene) -> bytes:
    """The picture, two pixels a point where it fits 50 million pixels."""
    scale = scale_of(scene)
    height, width = max(1, round(scene.height * scale)), max(1, round(scene.width * scale))
    canvas: Canvas = np.full((height, width, 3), 255, np.uint8)
    for rule in scene.rules:
        y = min(round(rule.y0 * scale), height - 1)
        canvas[y, round(rule.x0 * scale) : round(rule.x1 * scale)] = 187
    for edge in EdgeKind:
        links = [link for link in scene.links if link.kind == edge]
        for start in range(0, len(links), _LINKS_AT_ONCE):
            _draw_links(canvas, links[start : start + _LINKS_AT_ONCE], edge, scale)
    for mark in scene.marks:
        _draw_mark(canvas, mark, scale)
    for caption in scene.captions:
        size = scale if caption.size <= LABEL_SIZE else scale * caption.size / LABEL_SIZE
        _draw_text(canvas, caption.text, caption.x * scale, caption.y * scale, size)
    return encode_png(canvas)


def scale_of(scene: Scene) -> float:
    """Pixels a point: 2, 1 or less, so that the picture has a bearable size."""
    fit = (_MAX_PIXELS / max(scene.width * scene.height, 1.0)) ** 0.5
    return 2.0 if fit >= 2 else 1.0 if fit >= 1 else fit


def encode_png(canvas: Canvas) -> bytes:
    """An RGB picture, (height, width, 3) bytes, as a PNG file."""
    height, width, _ = canvas.shape
    rows = np.zeros((height, 1 + width * 3), np.uint8)
    rows[:, 1:] = canvas.reshape(height, width * 3)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 6)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + tag + body + struct.pack(">I", zlib.crc32(tag + body))
        for tag, body in chunks
    )


def _draw_links(canvas: Canvas, links: list[Link], edge: EdgeKind, scale: float) -> None:
    """Splat points along all curves at once, then the arrow heads."""
    style = EDGE_STYLES[edge]
    ink = np.array(rgb(style.stroke), np.float64)
    points = np.array([link.curve for link in links]) * scale
    corners = points.reshape(-1, 4, 2)
    lengths = np.abs(np.diff(corners, axis=1)).sum(axis=(1, 2))
    samples = np.maximum((lengths * 1.2).astype(np.int64), 2)
    owner = np.repeat(np.arange(len(links)), samples)
    first = np.cumsum(samples) - samples
    t = (np.arange(len(owner)) - first[owner]) / (samples[owner] - 1)
    s = 1 - t
    xy = (
        corners[owner, 0] * (s**3)[:, None]
        + corners[owner, 1] * (3 * s * s * t)[:, None]
        + corners[owner, 2] * (3 * s * t * t)[:, None]
        + corners[owner, 3] * (t**3)[:, None]
    )
    drawn = np.ones(len(owner), np.bool_)
    if style.dash:
        drawn = (t * lengths[owner] * 0.9) % (sum(style.dash) * scale) < style.dash[0] * scale
    strength = np.where(np.array([link.faint for link in links]), 0.35, 0.85)[owner]
    _splat(canvas, xy[drawn], ink, strength[drawn])
    direction = corners[:, 3] - corners[:, 2]
    direction = direction / np.maximum(np.linalg.norm(direction, axis=1), 1e-9)[:, None]
    across = np.stack([-direction[:, 1], direction[:, 0]], axis=1)
    reach = max(3.0, 5.0 * scale)
    for back in np.arange(0.0, reach, 0.6).tolist():
        for side in np.arange(-0.4 * back, 0.4 * back + 0.3, 0.6).tolist():
            _splat(canvas, corners[:, 3] - direction * back + across * side, ink, np.ones(len(links)))


def _splat(canvas: Canvas, xy: F64, ink: F64, strength: F64) -> None:
    x, y = np.round(xy[:, 0]).astype(np.int64), np.round(xy[:, 1]).astype(np.int64)
    inside = (x >= 0) & (y >= 0) & (x < canvas.shape[1]) & (y < canvas.shape[0])
    x, y, share = x[inside], y[inside], strength[inside][:, None]
    canvas[y, x] = (canvas[y, x] * (1 - share) + ink * share).astype(np.uint8)


@cache
def _stencil(kind: Kind, width: int, height: int, stroke: float) -> tuple[F64, F64]:
    """Coverage of a shape's inside and of its outline, (height + 4, width + 4) each, two pixels of margin
    around."""
    fine = 3
    rows = (np.arange((height + 4) * fine) + 0.5) / fine - 2
    columns = (np.arange((width + 4) * fine) + 0.5) / fine - 2
    x, y = np.meshgrid(columns, rows)
    corners = [(px * (width - 1) + 0.5, py * (height - 1) + 0.5) for px, py in KIND_STYLES[kind].outline]
    inside = np.zeros(x.shape, np.bool_)
    near = np.full(x.shape, np.inf)
    for (x0, y0), (x1, y1) in zip(corners, corners[1:] + corners[:1], strict=True):
        if y0 != y1:
            crosses = ((y0 > y) != (y1 > y)) & (x < (x1 - x0) * (y - y0) / (y1 - y0) + x0)
            inside ^= crosses
        square = max((x1 - x0) ** 2 + (y1 - y0) ** 2, 1e-9)
        t = np.clip(((x - x0) * (x1 - x0) + (y - y0) * (y1 - y0)) / square, 0, 1)
        near = np.minimum(near, np.hypot(x - x0 - t * (x1 - x0), y - y0 - t * (y1 - y0)))
    line = near <= stroke / 2
    if KIND_STYLES[kind].dashed:
        line &= ((x + y) % 8) < 5
    return _coarse(inside, fine), _coarse(line, fine)


def _coarse(mask: npt.NDArray[np.bool_], fine: int) -> F64:
    rows, columns = mask.shape
    share: Any = mask.reshape(rows // fine, fine, columns // fine, fine).mean(axis=(1, 3))
    return np.asarray(share, np.float64)


def _draw_mark(canvas: Canvas, mark: Mark, scale: float) -> None:
    look = KIND_STYLES[mark.kind]
    size = max(2, round(mark.width * scale)), max(2, round(mark.height * scale))
    inside, line = _stencil(mark.kind, *size, max(1.0, scale))
    for shift in (3.0, 0.0) if mark.stacked else (0.0,):
        x, y = round((mark.x + shift) * scale) - 2, round((mark.y + shift) * scale) - 2
        _blend(canvas, inside, x, y, rgb(look.fill))
        _blend(canvas, line, x, y, rgb(look.stroke))
    base = first_baseline(mark)
    for number, text in enumerate(mark.lines):
        x_middle = (mark.x + mark.width / 2) * scale
        _draw_text(canvas, text, x_middle, (base + LINE_STEP * number) * scale, scale, centred=True)


def _draw_text(canvas: Canvas, text: str, x: float, y: float, scale: float, *, centred: bool = False) -> None:
    """Draw a line with its base line at y; glyphs are made for two pixels a point and scaled to others."""
    if scale < 0.75 or not text:
        return
    mask = text_mask(text)
    if scale != 2.0:
        mask = _resized(mask, scale / 2.0)
    base = 15 / GLYPH_HEIGHT * mask.shape[0]
    left = x - mask.shape[1] / 2 if centred else x
    _blend(canvas, mask, round(left), round(y - base), _INK)


def _resized(mask: F64, factor: float) -> F64:
    """A mask by area sampling (four samples a pixel and direction)."""
    rows, columns = max(1, round(mask.shape[0] * factor)), max(1, round(mask.shape[1] * factor))
    y = np.minimum((np.arange(rows * 4) + 0.5) / (4 * factor), mask.shape[0] - 1).astype(np.int64)
    x = np.minimum((np.arange(columns * 4) + 0.5) / (4 * factor), mask.shape[1] - 1).astype(np.int64)
    small: Any = mask[y][:, x].reshape(rows, 4, columns, 4).mean(axis=(1, 3))
    return np.asarray(small, np.float64)


def _blend(canvas: Canvas, mask: F64, x: int, y: int, colour: tuple[int, int, int]) -> None:
    top, left = max(0, -y), max(0, -x)
    bottom, right = min(mask.shape[0], canvas.shape[0] - y), min(mask.shape[1], canvas.shape[1] - x)
    if top >= bottom or left >= right:
        return
    part = mask[top:bottom, left:right, None]
    area = canvas[y + top : y + bottom, x + left : x + right]
    area[:] = (area * (1 - part) + np.array(colour) * part + 0.5).astype(np.uint8)
