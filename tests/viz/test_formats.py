"""Every format holds every node, both kinds of edges, and names as odd as they come."""

import json
import re
import struct
import xml.etree.ElementTree as ET
import zlib

import networkx as nx
import pygraphviz
from hypothesis import given, settings
from viz_strategies import graphs

from chakra.viz import Graph, dot_text, graphml_text, html_text
from chakra.viz.formats.pdf import pdf_bytes
from chakra.viz.formats.png import png_bytes
from chakra.viz.formats.svg import svg_text
from chakra.viz.graph.fold import fold
from chakra.viz.layout.layers import layered
from chakra.viz.layout.scene import scene_of
from chakra.viz.style import EDGE_STYLES, KIND_STYLES, EdgeKind, Kind
from chakra.viz.text import printable

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
    assert sorted(g.get("id") for g in boxes) == sorted(f"n{i}" for i in graph.ids.tolist())
    tips = {g.get("id"): g.findtext(f"{SVG}title") or "" for g in boxes}
    for ident, name in zip(graph.ids.tolist(), graph.names, strict=True):
        shown = "\n".join(printable(line) for line in name.split("\n"))
        assert tips[f"n{ident}"].startswith(shown or "(no name)")
    drawn = sum(len(g.findall(f"{SVG}path")) for g in root.iter(f"{SVG}g") if g.get("data-kind"))
    legend = len(set(graph.edge_kinds.tolist()))
    assert drawn == graph.n_edges + legend


@settings(max_examples=30, deadline=None)
@given(graphs(most=8))
def test_pdf_and_png_are_whole(graph: Graph) -> None:
    scene = scene_of(graph, layered(graph))
    pdf = pdf_bytes(scene)
    assert pdf == pdf_bytes(scene)
    place = int(re.search(rb"startxref\n(\d+)\n%%EOF\n$", pdf)[1])  # type: ignore[index]
    table = pdf[place:].split(b"trailer")[0].splitlines()[2:]
    for number, line in enumerate(table[1:], 1):
        assert pdf[int(line[:10]) :].startswith(b"%d 0 obj" % number)
    content = zlib.decompress(re.search(rb"stream\n(.*?)\nendstream", pdf, re.DOTALL)[1])  # type: ignore[index]
    assert content.count(b" c S\n") == len(scene.links)
    assert content.count(b"BT ") == len(scene.captions) + sum(len(mark.lines) for mark in scene.marks)
    png = png_bytes(scene)
    width, height = struct.unpack(">II", png[16:24])
    assert (width, height) == (round(scene.width * 2), round(scene.height * 2))
    size = struct.unpack(">I", png[33:37])[0]
    assert len(zlib.decompress(png[41 : 41 + size])) == height * (1 + 3 * width)
    assert zlib.crc32(png[37 : 41 + size]) == struct.unpack(">I", png[41 + size : 45 + size])[0]


def test_pdf_text_that_the_font_lacks_is_shown_escaped_and_kept_for_search() -> None:
    from chakra.viz.layout.scene import Caption, Scene

    scene = Scene(100, 50, "t", captions=[Caption(1, 10, "漢 (é) \\ …")])
    pdf = pdf_bytes(scene)
    content = zlib.decompress(re.search(rb"stream\n(.*?)\nendstream", pdf, re.DOTALL)[1])  # type: ignore[index]
    assert b"(\\\\u6f22 \\(\xe9\\) \\\\ \x85)" in content
    assert "漢 (é) \\ …".encode("utf-16-be").hex().upper().encode() in content
