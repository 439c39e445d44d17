"""SVG text from a scene, without any library; PDF and PNG are made of it (``pdf_and_png``)."""

from collections.abc import Iterator
from html import escape

from chakra.viz.layout.scene import LABEL_SIZE, LINE_STEP, Link, Mark, Scene, first_baseline
from chakra.viz.style import EDGE_STYLES, KIND_STYLES, EdgeKind


def svg_text(scene: Scene) -> str:
    """The whole document; boxes have their full text as tooltips, edges of one look share one path."""
    return "".join(svg_pieces(scene))


def svg_pieces(scene: Scene) -> Iterator[str]:
    """The document piece by piece, for writing big drawings without holding them twice."""
    w, h = f"{scene.width:.0f}", f"{scene.height:.0f}"
    yield '<?xml version="1.0" encoding="UTF-8"?>\n'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" width="{w}" height="{h}" viewBox="0 0 {w} {h}"'
    yield ' role="img">\n'
    yield f"<title>{escape(scene.title)}</title>\n<defs>\n"
    yield _style()
    for edge, line in EDGE_STYLES.items():
        yield (
            f'<marker id="a{int(edge)}" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="7" '
            f'markerHeight="7" '
            f'markerUnits="userSpaceOnUse" orient="auto"><path d="M0,0.8L8,4L0,7.2z" fill="{line.stroke}"/>'
            f"</marker>\n"
        )
    yield '</defs>\n<rect width="100%" height="100%" fill="#ffffff"/>\n<g class="rule">\n'
    for rule in scene.rules:
        yield f'<path d="M{rule.x0:.0f},{rule.y0:.0f}L{rule.x1:.0f},{rule.y1:.0f}"/>\n'
    yield "</g>\n"
    for edge in EdgeKind:
        chosen = [link for link in scene.links if link.kind == edge]
        if chosen:
            yield f'<g class="e{int(edge)}" data-kind="{EDGE_STYLES[edge].word}">\n'
            for link in chosen:
                yield _link(link)
            yield "</g>\n"
    for mark in scene.marks:
        yield _mark(mark)
    yield '<g class="caption">\n'
    for caption in scene.captions:
        bold = "font-weight:bold;" if caption.bold else ""
        size = "" if caption.size == LABEL_SIZE else f"font-size:{caption.size:g}px"
        style = f' style="{bold}{size}"' if bold or size else ""
        yield f'<text x="{caption.x:.1f}" y="{caption.y:.1f}"{style}>{escape(caption.text)}</text>\n'
    yield "</g>\n</svg>\n"


def _style() -> str:
    rules = [
        f"text{{font:{LABEL_SIZE:g}px Arimo,Helvetica,Arial,'DejaVu Sans',sans-serif;fill:#111111}}",
        ".m text{text-anchor:middle}.rule path{stroke:#bbbbbb;stroke-width:0.7;fill:none}",
        ".m:hover polygon{stroke-width:2.4}",
    ]
    for kind, box in KIND_STYLES.items():
        dash = ";stroke-dasharray:3 2" if box.dashed else ""
        rules.append(f".k{int(kind)} polygon{{fill:{box.fill};stroke:{box.stroke};stroke-width:1{dash}}}")
    for edge, line in EDGE_STYLES.items():
        dash = f";stroke-dasharray:{' '.join(f'{d:g}' for d in line.dash)}" if line.dash else ""
        look = f"fill:none;stroke:{line.stroke};stroke-width:0.8;marker-end:url(#a{int(edge)}){dash}"
        rules.append(f".e{int(edge)} path{{{look}}}")
    rules.append("path.far{stroke-width:0.5;stroke-opacity:0.55}")
    return "<style>" + "\n".join(rules) + "</style>\n"


def _link(link: Link) -> str:
    a, b, c, d, e, f, g, h = link.curve
    width = "" if link.width == 0.8 else f' style="stroke-width:{link.width:.1f}"'
    width = ' class="far"' if link.faint else width
    return f'<path d="M{a:.1f},{b:.1f}C{c:.1f},{d:.1f} {e:.1f},{f:.1f} {g:.1f},{h:.1f}"{width}/>\n'


def _outline(mark: Mark, dx: float = 0.0, dy: float = 0.0) -> str:
    shape = KIND_STYLES[mark.kind].outline
    return " ".join(
        f"{mark.x + dx + px * mark.width:.1f},{mark.y + dy + py * mark.height:.1f}" for px, py in shape
    )


def _mark(mark: Mark) -> str:
    parts = [f'<g class="m k{int(mark.kind)}" id="{mark.ident}"><title>{escape(mark.tooltip)}</title>']
    if mark.stacked:
        parts.append(f'<polygon points="{_outline(mark, 3, 3)}"/>')
    parts.append(f'<polygon points="{_outline(mark)}"/>')
    x = mark.x + mark.width / 2
    base = first_baseline(mark)
    for number, line in enumerate(mark.lines):
        parts.append(f'<text x="{x:.1f}" y="{base + LINE_STEP * number:.1f}">{escape(line)}</text>')
    return "".join(parts) + "</g>\n"
