"""PDF from a scene: one vector page, standard Helvetica, no library.

Characters outside Windows-1252 are shown as escapes (the standard fonts have no glyphs for them) and carry
their true text for search and copy (``ActualText``).
"""

import zlib
from collections.abc import Iterator
from typing import Final

from chakra.viz.layout.scene import LINE_STEP, Caption, Link, Mark, Scene, first_baseline
from chakra.viz.style import EDGE_STYLES, KIND_STYLES, EdgeKind, Kind, rgb

#: A page may be 14,400 units wide at most (PDF 1.7, annex C); larger drawings are scaled to fit.
_MAX_PAGE: Final = 14_400.0
_ARROW: Final = 5.0

#: Widths of Helvetica's characters 32-126 in thousandths of the font size (Adobe's metrics of the standard
#: fonts).
_WIDTHS: Final = (
    *(
        278,
        278,
        355,
        556,
        556,
        889,
        667,
        191,
        333,
        333,
        389,
        584,
        278,
        333,
        278,
        278,
        556,
        556,
        556,
        556,
        556,
        556,
    ),
    *(
        556,
        556,
        556,
        556,
        278,
        278,
        584,
        584,
        584,
        556,
        1015,
        667,
        667,
        722,
        722,
        667,
        611,
        778,
        722,
        278,
        500,
        667,
    ),
    *(
        556,
        833,
        722,
        778,
        667,
        778,
        722,
        667,
        611,
        722,
        667,
        944,
        667,
        667,
        611,
        278,
        278,
        278,
        469,
        556,
        333,
        556,
    ),
    *(
        556,
        500,
        556,
        556,
        278,
        556,
        556,
        222,
        222,
        500,
        222,
        833,
        556,
        556,
        556,
        556,
        333,
        500,
        278,
        556,
        500,
        722,
    ),
    *(500, 500, 500, 334, 260, 334, 584),
)


def pdf_bytes(scene: Scene) -> bytes:
    """The whole document; equal scenes give equal bytes."""
    scale = min(1.0, _MAX_PAGE / max(scene.width, scene.height))
    width, height = scene.width * scale, scene.height * scale
    head = f"{scale:.6f} 0 0 {-scale:.6f} 0 {height:.3f} cm\n1 j 1 J\n"
    content = zlib.compress((head + "".join(_content(scene))).encode("latin-1"), 6)
    font = "<</Type/Font/Subtype/Type1/BaseFont/{}/Encoding/WinAnsiEncoding>>"
    title = _utf16(scene.title)
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        (
            f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 {width:.2f} {height:.2f}]/Contents 4 0 R"
            "/Resources<</Font<</F 5 0 R/B 6 0 R>>/ExtGState<</O<</CA 1>>/L<</CA 0.5>>>>>>>>"
        ).encode(),
        b"<</Filter/FlateDecode/Length %d>>\nstream\n" % len(content) + content + b"\nendstream",
        font.format("Helvetica").encode(),
        font.format("Helvetica-Bold").encode(),
        f"<</Title<{title}>/Producer(chakra)>>".encode(),
    ]
    return _file(objects)


def _file(objects: list[bytes]) -> bytes:
    pieces = [b"%PDF-1.5\n%\xe2\xe3\xcf\xd3\n"]
    places, size = [], len(pieces[0])
    for number, body in enumerate(objects, 1):
        piece = b"%d 0 obj\n" % number + body + b"\nendobj\n"
        places.append(size)
        pieces.append(piece)
        size += len(piece)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    pieces.append(b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1) + table)
    pieces.append(b"trailer\n<</Size %d/Root 1 0 R/Info 7 0 R>>\n" % (len(objects) + 1))
    pieces.append(b"startxref\n%d\n%%%%EOF\n" % size)
    return b"".join(pieces)


def _content(scene: Scene) -> Iterator[str]:
    yield "0.73 G 0.7 w\n"
    for rule in scene.rules:
        yield f"{rule.x0:.1f} {rule.y0:.1f} m {rule.x1:.1f} {rule.y1:.1f} l S\n"
    for edge in EdgeKind:
        line = EDGE_STYLES[edge]
        links = [link for link in scene.links if link.kind == edge]
        if links:
            yield f"{_colour(line.stroke)} RG {_colour(line.stroke)} rg\n"
            for link in links:
                yield _link(link, line.dash)
    yield "[] 0 d /O gs\n"
    last: Kind | None = None
    for mark in scene.marks:
        if mark.kind != last:
            look = KIND_STYLES[mark.kind]
            dash = "[3 2] 0 d" if look.dashed else "[] 0 d"
            yield f"1 w {dash} {_colour(look.stroke)} RG\n"
            last = mark.kind
        yield _mark(mark)
    yield "0.07 g\n"
    for mark in scene.marks:
        yield from _labels(mark)
    for caption in scene.captions:
        yield _text(caption)


def _link(link: Link, dash: tuple[float, ...]) -> str:
    a, b, c, d, e, f, g, h = link.curve
    length = max(((g - e) ** 2 + (h - f) ** 2) ** 0.5, 1e-9)
    ux, uy = (g - e) / length * _ARROW, (h - f) / length * _ARROW
    state = "/L gs" if link.faint else "/O gs"
    pattern = f"[{' '.join(f'{x:g}' for x in dash)}] 0 d"
    width = 0.5 if link.faint else link.width
    return (
        f"{state} {pattern} {width:.1f} w {a:.1f} {b:.1f} m {c:.1f} {d:.1f} {e:.1f} {f:.1f} {g:.1f} {h:.1f} "
        f"c S\n"
        f"{g:.1f} {h:.1f} m {g - ux - uy * 0.4:.1f} {h - uy + ux * 0.4:.1f} l "
        f"{g - ux + uy * 0.4:.1f} {h - uy - ux * 0.4:.1f} l f\n"
    )


def _mark(mark: Mark) -> str:
    fill = f"{_colour(KIND_STYLES[mark.kind].fill)} rg "
    behind = _outline(mark, 3.0) + " b\n" if mark.stacked else ""
    return fill + behind + _outline(mark, 0.0) + " b\n"


def _outline(mark: Mark, shift: float) -> str:
    points = [
        f"{mark.x + shift + px * mark.width:.1f} {mark.y + shift + py * mark.height:.1f}"
        for px, py in KIND_STYLES[mark.kind].outline
    ]
    return f"{points[0]} m " + " ".join(f"{p} l" for p in points[1:])


def _labels(mark: Mark) -> Iterator[str]:
    base = first_baseline(mark)
    for number, line in enumerate(mark.lines):
        caption = Caption(0.0, base + LINE_STEP * number, line)
        x = mark.x + mark.width / 2 - text_width(line) * caption.size / 2
        yield _text(Caption(x, caption.y, line))


def text_width(text: str) -> float:
    """Width of a text in Helvetica, for a font size of one."""
    return sum(_WIDTHS[ord(c) - 32] if 32 <= ord(c) < 127 else 556 for c in _shown(text)[0]) / 1000


def _shown(text: str) -> tuple[str, bool]:
    """What the standard fonts can show of a text, and whether that is all of it."""
    try:
        text.encode("cp1252")
    except UnicodeEncodeError:
        return "".join(c if _in_font(c) else c.encode("unicode_escape").decode("ascii") for c in text), False
    return text, True


def _in_font(char: str) -> bool:
    try:
        char.encode("cp1252")
    except UnicodeEncodeError:
        return False
    return True


def _text(caption: Caption) -> str:
    shown, whole = _shown(caption.text)
    raw = (
        shown.encode("cp1252").decode("latin-1").replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")
    )
    font = "B" if caption.bold else "F"
    body = f"BT /{font} {caption.size:g} Tf 1 0 0 -1 {caption.x:.1f} {caption.y:.1f} Tm ({raw}) Tj ET\n"
    if whole:
        return body
    return f"/Span<</ActualText<{_utf16(caption.text)}>>>BDC {body}EMC\n"


def _utf16(text: str) -> str:
    return "FEFF" + text.encode("utf-16-be", "replace").hex().upper()


def _colour(colour: str) -> str:
    return " ".join(f"{part / 255:.3f}" for part in rgb(colour))
