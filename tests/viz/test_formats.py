"""Every format holds every node, both kinds of edges, and names as odd as they come."""

import io
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import networkx as nx
import PIL.Image
import pygraphviz
import pypdfium2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from viz_strategies import graphs
from viz_traces import make_trace

from chakra.io.readable import printable
from chakra.viz import DrawOptions, Graph, dot_text, draw, from_trace, graphml_text, html_text
from chakra.viz.formats.pdf_and_png import labels_fit, pdf_bytes, png_bytes, scale_of, with_escapes
from chakra.viz.formats.svg import svg_text
from chakra.viz.graph.fold import fold
from chakra.viz.layout.layers import layered
from chakra.viz.layout.scene import Caption, Mark, Scene, label_chars, scene_of
from chakra.viz.style import EDGE_STYLES, KIND_STYLES, EdgeKind, Kind, rgb

SVG = "{http://www.w3.org/2000/svg}"


def _edges(graph: Graph) -> list[tuple[str, str, str]]:
    rows = zip(graph.src.tolist(), graph.dst.tolist(), graph.edge_kinds.tolist(), strict=True)
    return sorted((f"n{a}", f"n{b}", EDGE_STYLES[EdgeKind(kind)].word) for a, b, kind in rows)


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_dot_parses_back(graph: Graph) -> None:
    parsed = pygraphviz.AGraph(string=dot_text(graph, legend=False), strict=False)
    assert sorted(
        (a, b, parsed.get_edge(a, b, key).attr["kind"]) for a, b, key in parsed.edges(keys=True)
    ) == _edges(graph)
    for i in range(graph.n_nodes):
        attr = parsed.get_node(f"n{i}").attr
        # A DOT string keeps its backslashes doubled for the renderer.
        assert (attr["name"] or "").replace("\\\\", "\\") == printable(graph.names[i])
        assert attr["ident"] == str(graph.ids[i])
        assert attr["kind"] == KIND_STYLES[Kind(int(graph.kinds[i]))].word


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_graphml_parses_back(graph: Graph) -> None:
    parsed = nx.parse_graphml(graphml_text(graph), force_multigraph=True)
    assert sorted((a, b, attr["kind"]) for a, b, attr in parsed.edges(data=True)) == _edges(graph)
    for i in range(graph.n_nodes):
        attr = parsed.nodes[f"n{i}"]
        assert (attr["name"] or "") == printable(graph.names[i])
        assert attr["ident"] == str(graph.ids[i])
        assert attr["duration_ns"] == graph.duration_ns[i]


@settings(max_examples=40, deadline=None)
@given(graphs())
def test_the_page_holds_the_graph_as_json_that_no_name_can_break_out_of(graph: Graph) -> None:
    page = html_text(graph, fold(graph))
    bodies = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert len(bodies) == 1
    data = json.loads(bodies[0])
    assert [data["nameTable"][code] for code in data["names"]] == [printable(name) for name in graph.names]
    assert data["ids"] == [str(i) for i in graph.ids.tolist()]
    kinds = [EDGE_STYLES[EdgeKind(kind)].word for kind in data["edgeKinds"]]
    found = sorted(
        (f"n{a}", f"n{b}", kind) for a, b, kind in zip(data["src"], data["dst"], kinds, strict=True)
    )
    assert found == _edges(graph)
    assert page.count("<script") == 2
    assert not re.search(r"https?://(?!www\.w3\.org)", re.sub(re.escape(bodies[0]), "", page))


@settings(max_examples=40, deadline=None)
@given(graphs())
def test_svg_is_xml_with_every_box_edge_and_full_name(graph: Graph) -> None:
    root = ET.fromstring(svg_text(scene_of(graph, layered(graph))))
    boxes = [g for g in root.iter(f"{SVG}g") if (g.get("id") or "").startswith("n")]
    assert sorted(g.get("id", "") for g in boxes) == sorted(f"n{i}" for i in graph.ids.tolist())
    tips = {g.get("id"): g.findtext(f"{SVG}title") or "" for g in boxes}
    for ident, name in zip(graph.ids.tolist(), graph.names, strict=True):
        shown = "\n".join(printable(line) for line in name.split("\n"))
        assert tips[f"n{ident}"].startswith(shown or "(no name)")
    drawn = sum(len(g.findall(f"{SVG}path")) for g in root.iter(f"{SVG}g") if g.get("data-kind"))
    legend = len(set(graph.edge_kinds.tolist()))
    assert drawn == graph.n_edges + legend


def _page(pdf: bytes) -> tuple[str, tuple[float, float]]:
    """Text and size of the one page of a PDF."""
    document = pypdfium2.PdfDocument(pdf)
    assert len(document) == 1
    page = document[0]
    return page.get_textpage().get_text_bounded(), page.get_size()


@settings(max_examples=20, deadline=None)
@given(graphs(most=8))
def test_pdf_and_png_are_whole(graph: Graph) -> None:
    scene = scene_of(graph, layered(graph))
    pdf = pdf_bytes(scene)
    assert pdf == pdf_bytes(scene)
    text, size = _page(pdf)
    assert size == pytest.approx((scene.width, scene.height), abs=1)
    for caption in scene.captions:
        if caption.text.isascii():
            assert "".join(caption.text.split()) in "".join(text.split())
    png = png_bytes(scene)
    assert png == png_bytes(scene)
    picture = PIL.Image.open(io.BytesIO(png))
    assert picture.size == pytest.approx((scene.width * 2, scene.height * 2), abs=2)
    colours = {pixel for _, pixel in picture.convert("RGB").getcolors(1 << 24) or []}
    for mark in scene.marks:
        assert rgb(KIND_STYLES[mark.kind].fill) in colours


def test_names_of_many_scripts_are_drawn_and_are_text_in_the_pdf() -> None:
    names = ["Größe", "∂W·x → Σ", "переслать", "Ελλάδα", "שלום", "(é) \\ … <b>&amp;"]
    scene = Scene(400, 200, "граф", captions=[Caption(5, 20 + 20 * i, name) for i, name in enumerate(names)])
    document = pypdfium2.PdfDocument(pdf_bytes(scene))
    text = document[0].get_textpage().get_text_bounded()
    for name in names:
        assert name in text or name[::-1] in text  # from right to left the order in the file is the reader's
    assert document.get_metadata_dict()["Title"] == "граф"
    assert with_escapes(scene) == (scene, "")


def test_a_character_that_no_font_has_is_an_escape_and_is_named(tmp_path: Path) -> None:
    nobody = "\U0003f123"  # no character of Unicode, so that no font of any machine has it
    mark = Mark(10, 40, 120, 40, Kind.COMP, (f"Größe {nobody} 7", f"ф{nobody * 20}"), "tip", "n1")
    scene = Scene(400, 200, "t", marks=[mark], captions=[Caption(5, 20, f"ф{nobody}")])
    shown, lacking = with_escapes(scene)
    assert lacking == nobody
    assert shown.captions[0].text == "ф\\U0003f123"
    assert shown.marks[0].lines[0] == "Größe \\U0003f123 7"
    assert len(shown.marks[0].lines[1]) == label_chars(120)
    drawing = draw(
        from_trace(make_trace([f"a{nobody}b"], [[]])), tmp_path / "o.pdf", DrawOptions(layout="own")
    )
    assert any("[fonts]" in remark for remark in drawing.remarks)
    assert r"a\U0003f123b" in _page((tmp_path / "o.pdf").read_bytes())[0]


def test_a_picture_that_would_have_too_many_pixels_is_smaller_and_has_no_labels() -> None:
    mark = Mark(10, 40, 2000, 500, Kind.COMP, ("a label",), "tip", "n1")
    for width, height, pixels in ((2500, 1000, 2.0), (9000, 4000, 1.0), (20_000, 10_000, 0.5)):
        scene = Scene(width, height, "t", marks=[mark])
        assert scale_of(scene) == pixels
        assert labels_fit(scene) == (pixels >= 0.75)
        picture = PIL.Image.open(io.BytesIO(png_bytes(scene)))
        assert picture.size == pytest.approx((width * pixels, height * pixels), abs=2)
        inner = [round(pixels * edge) for edge in (500, 150, 1500, 450)]
        box = picture.convert("RGB").crop((inner[0], inner[1], inner[2], inner[3]))
        assert (box.getcolors() == [(box.width * box.height, rgb(KIND_STYLES[Kind.COMP].fill))]) == (
            pixels < 0.75
        )
    assert _page(pdf_bytes(Scene(28_800, 10_000, "t", marks=[mark])))[1] == pytest.approx(
        (14_400, 5_000), abs=1
    )


@settings(max_examples=60, deadline=None)
@given(st.text(min_size=1, max_size=40))
def test_any_name_can_be_drawn(name: str) -> None:
    text = printable(name)
    scene, lacking = with_escapes(Scene(100, 30, text, captions=[Caption(5, 20, text)]))
    assert set(lacking) <= set(text)
    assert pdf_bytes(scene).startswith(b"%PDF")
    assert with_escapes(scene) == (scene, "")
