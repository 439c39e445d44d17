"""PDF and PNG of a drawing: its SVG, set on a page by Typst.

The library shapes text of every script, embeds what it uses of the fonts, and asks no network. Names are set in Arimo,
which comes with the program and has the widths of Helvetica that the layout counts with; what Arimo lacks is taken
from the extra ``fonts`` and from the fonts of the machine; what they lack is written as escapes.
"""

import re
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from chakra.io.readable import shortened
from chakra.viz.formats.svg import svg_text
from chakra.viz.layout.scene import Scene, label_chars

if TYPE_CHECKING:
    import typst

#: A page may be 14,400 units wide at most (PDF 1.7, annex C); larger drawings are scaled to fit.
_MAX_PAGE: Final = 14_400.0
#: Pixels a picture may have; larger scenes are drawn smaller, and without labels once those would be
#: unreadable.
_MAX_PIXELS: Final = 50_000_000
#: Pixels a point from which on labels are readable.
_READABLE: Final = 0.75
#: The page: the drawing and nothing else. No date, so that equal scenes give equal bytes.
_PAGE: Final = b"""
#set document(title: sys.inputs.title, date: none)
#set page(width: auto, height: auto, margin: 0pt)
#image(bytes(sys.inputs.svg), format: "svg", alt: sys.inputs.title, width: float(sys.inputs.width) * 1pt)
"""
#: Packages whose fonts are used where they are installed; the first is a dependency.
_FONT_PACKAGES: Final = {"fontpkg_arimo": "files", "manimgx_fonts": ".", "manimgx_fonts_cjk": "."}
#: What the library says, under a standard that demands a glyph for everything, of a character that no font has.
_NO_GLYPH: Final = re.compile(r'the text `"(?:\\u\{([0-9a-f]+)\}|(.))"` could not be displayed')


def with_escapes(scene: Scene) -> tuple[Scene, str]:
    """The drawing with escapes for characters that no font here has a glyph for, and these characters."""
    texts = [caption.text for caption in scene.captions] + [
        line for mark in scene.marks for line in mark.lines
    ]
    lacking = _without_glyph("".join(sorted({char for text in texts if not text.isascii() for char in text})))
    if not lacking:
        return scene, ""
    table = str.maketrans({char: char.encode("unicode_escape").decode("ascii") for char in lacking})
    marks = [
        replace(
            mark,
            lines=tuple(shortened(line.translate(table), label_chars(mark.width)) for line in mark.lines),
        )
        for mark in scene.marks
    ]
    captions = [replace(caption, text=caption.text.translate(table)) for caption in scene.captions]
    return replace(scene, marks=marks, captions=captions), lacking


def _without_glyph(chars: str) -> str:
    import typst

    # each in a box of its own: how they would stand together in a line is not asked
    page = b'#set text(font: "Arimo")\n#for char in sys.inputs.chars.codepoints() { box(char) }'
    try:
        typst.compile(
            page,
            format="pdf",
            pdf_standards="a-2b",
            font_paths=_fonts(),
            sys_inputs={"chars": chars},
        )
    except typst.TypstError as error:
        found = _NO_GLYPH.findall(error.diagnostic)
        if not found:
            raise
        return "".join(dict.fromkeys(chr(int(number, 16)) if number else char for number, char in found))
    return ""


def pdf_bytes(scene: Scene) -> bytes:
    """One vector page; equal scenes give equal bytes on one machine."""
    scale = min(1.0, _MAX_PAGE / max(scene.width, scene.height))
    return _set(scene, scene.width * scale, "pdf", 72.0)


def png_bytes(scene: Scene) -> bytes:
    """The picture, two pixels a point where it fits 50 million pixels."""
    scale = scale_of(scene)
    if not labels_fit(scene):
        scene = replace(scene, marks=[replace(mark, lines=()) for mark in scene.marks])
    return _set(scene, scene.width, "png", 72.0 * scale)


def scale_of(scene: Scene) -> float:
    """Pixels a point: 2, 1 or less, so that the picture has a bearable size."""
    fit = (_MAX_PIXELS / max(scene.width * scene.height, 1.0)) ** 0.5
    return 2.0 if fit >= 2 else 1.0 if fit >= 1 else fit


def labels_fit(scene: Scene) -> bool:
    """Whether the labels of a PNG are large enough to be read; they are left out otherwise."""
    return scale_of(scene) >= _READABLE


def _set(scene: Scene, width: float, kind: Literal["pdf", "png"], dots_per_inch: float) -> bytes:
    import typst

    inputs = {"svg": svg_text(scene), "title": scene.title, "width": f"{width:.3f}"}
    made = typst.compile(_PAGE, format=kind, ppi=dots_per_inch, font_paths=_fonts(), sys_inputs=inputs)
    assert isinstance(made, bytes), "one page"
    return made


@cache
def _fonts() -> "typst.Fonts":
    import typst

    places = ((find_spec(package), folder) for package, folder in _FONT_PACKAGES.items())
    folders = [str(Path(place.origin).parent / folder) for place, folder in places if place and place.origin]
    return typst.Fonts(font_paths=folders)
