"""The interactive page in a real, headless Chromium."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from viz_browser import Page, find_chromium
from viz_traces import make_trace

from chakra.viz import draw, from_trace

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(find_chromium() is None, reason="no Chromium installed"),
]


#: Where an element is on the page; braces doubled for str.format.
_ON_PAGE = """(() => {{
    const box = document.getElementById("view").getBoundingClientRect(), at = chakra.place({});
    return at && [box.left + at[0], box.top + at[1]];
}})()"""


def layers(count: int) -> tuple[list[str], list[list[int]]]:
    names = ["embed </script><b>"]
    for i in range(count):
        names += [f"layer{i}.norm", f"layer{i}.attention", f"layer{i}.mlp", f"layer{i}.reduce"]
    return names, [[], *([i] for i in range(len(names) - 1))]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    folder = tmp_path_factory.mktemp("page")
    names, data = layers(12_500)
    draw(from_trace(make_trace(names, data), "fifty thousand <nodes>"), folder / "big.html")
    with Page(f"file://{folder / 'big.html'}", folder / "profile") as opened:
        opened.wait("window.chakra !== undefined")
        yield opened


def test_it_opens_from_disk_alone_and_without_errors(page: Page, tmp_path: Path) -> None:
    assert page.problems == []
    assert len(page.requests) == 1
    assert page.requests[0].startswith("file://")
    assert page.value("document.title") == "fifty thousand <nodes>"
    assert page.value("chakra.nodes") == 50_001
    assert page.value("chakra.boxes()") < 300
    assert len(page.screenshot(tmp_path / "first.png")) > 10_000


def test_fifty_thousand_nodes_expand_pan_and_zoom_in_time(page: Page, tmp_path: Path) -> None:
    page.value("chakra.openAll()")
    assert page.value("chakra.boxes()") == 50_001
    assert page.value("chakra.edges()") == 50_000
    assert page.value("chakra.layoutMs()") < 5_000
    assert page.value("chakra.paint()") < 1_000
    before = page.value("chakra.place(0)")
    page.mouse("mousePressed", 300, 300, button="left", clickCount=1)
    page.mouse("mouseMoved", 380, 330, button="left")
    page.mouse("mouseReleased", 380, 330, button="left", clickCount=1)
    after = page.value("chakra.place(0)")
    assert [round(b - a) for a, b in zip(before, after, strict=True)] == [80, 30]
    zoom = page.value("chakra.zoom()")
    page.mouse("mouseWheel", 400, 400, deltaX=0, deltaY=-300)
    page.wait(f"chakra.zoom() > {zoom}")
    assert len(page.screenshot(tmp_path / "all.png")) > 10_000
    page.value("chakra.closeAll()")
    assert page.value("chakra.boxes()") < 300


def test_search_reveals_a_node_inside_closed_groups(page: Page) -> None:
    page.value("chakra.closeAll()")
    page.value("document.getElementById('query').value = 'layer7777.mlp'")
    page.value("document.getElementById('search').requestSubmit()")
    page.wait("chakra.chosen() === 'layer7777.mlp'")
    assert page.value("document.getElementById('status').textContent") == "match 1 of 1"
    details = page.value("document.getElementById('details').textContent")
    assert "layer7777.attention" in details
    assert "layer7777.reduce" in details
    x, y = page.value("chakra.place(31111)")  # 1 + 4 * 7777 + 2
    assert 0 < x < 1400
    assert 0 < y < 900
    page.value("document.getElementById('query').value = 'nothing like it'")
    page.value("document.getElementById('search').requestSubmit()")
    assert page.value("document.getElementById('status').textContent") == "no match"


def test_hover_shows_details_and_double_click_expands(page: Page) -> None:
    page.value("chakra.closeAll()")
    page.value("chakra.reveal(0)")
    x, y = page.value(_ON_PAGE.format(0))
    page.mouse("mouseMoved", x, y)
    page.wait("!document.getElementById('tip').hidden")
    assert "embed </script><b>" in page.value("document.getElementById('tip').textContent")
    page.value("chakra.closeAll()")
    boxes = page.value("chakra.boxes()")
    group = page.value("chakra.nodes + chakra.groups - 1")
    place = _ON_PAGE.format(group)
    x, y = page.value(place)
    page.click(x, y, count=2)
    page.wait(f"chakra.boxes() > {boxes}")


def recording(folder: Path) -> Path:
    """A step of 21 alike stretches among 400 other operators, each behind the one before."""
    names = [f"op_{chr(97 + i % 23)}{i}" if i % 20 else "step" for i in range(400)]
    names[200:200] = ["gap", "COMM_COLL_NODE_layer_64_1_mlp0_FWD_ALLGATHER", "clone"] * 21
    data: list[list[int]] = [[], *([i] for i in range(len(names) - 1))]
    draw(from_trace(make_trace(names, data), "recording"), folder / "recording.html")
    return folder / "recording.html"


@pytest.mark.parametrize("width", [390, 1400])
def test_it_opens_at_a_size_that_can_be_read(width: int, tmp_path: Path) -> None:
    """Labels of 8 px at a zoom of 1.1 and more; the canvas has the width of a telephone, the help lies below it."""
    url = f"file://{recording(tmp_path)}"
    with Page(url, tmp_path / "profile", width=width) as opened:
        opened.wait("window.chakra !== undefined")
        assert opened.problems == []
        assert opened.value("chakra.zoom()") >= 1.1
        assert opened.value("chakra.boxes()") <= 40
        x, y = opened.value("chakra.place(0) || chakra.place(chakra.nodes)") or (1, 1)
        assert 0 < x < width
        assert 0 < y < 900
        wide, tall, panel = opened.value(
            "[document.getElementById('view').clientWidth, document.getElementById('view').clientHeight,"
            "document.getElementById('details').clientHeight]"
        )
        assert wide == width if width < 800 else wide > 1000
        assert tall > 500
        assert panel < 120 or width > 800


def test_it_is_dark_on_a_dark_screen_and_bright_on_paper(tmp_path: Path) -> None:
    """The canvas's own ground, read back from its pixels."""
    ground = "[...document.getElementById('view').getContext('2d').getImageData(2, 2, 1, 1).data].slice(0, 3)"
    with Page(f"file://{recording(tmp_path)}", tmp_path / "profile") as opened:
        opened.wait("window.chakra !== undefined")
        opened.value("chakra.paint()")
        assert opened.value(ground) == [255, 255, 255]
        features = [{"name": "prefers-color-scheme", "value": "dark"}]
        opened.call("Emulation.setEmulatedMedia", features=features)
        opened.value("chakra.paint()")
        assert opened.value(ground) == [20, 23, 27]
        opened.value("window.dispatchEvent(new Event('beforeprint'))")
        assert opened.value(ground) == [255, 255, 255]
        opened.value("window.dispatchEvent(new Event('afterprint'))")
        assert opened.value(ground) == [20, 23, 27]


def test_names_without_their_type_stand_in_two_lines(tmp_path: Path) -> None:
    with Page(f"file://{recording(tmp_path)}", tmp_path / "profile") as opened:
        opened.wait("window.chakra !== undefined")
        assert opened.value("halves('layer_64_1_mlp0_FWD_ALLGATHER')") == [
            "layer_64_1_mlp0_",
            "FWD_ALLGATHER",
        ]
        assert opened.value("halves('embedding')") == ["embedding"]
        coll = opened.value("G.kindStyles.findIndex(style => style.legend === 'collective')")
        prefix = opened.value(f"G.kindStyles[{coll}].prefix")
        assert prefix == "COMM_COLL_NODE_"


@pytest.mark.shared
def test_the_reference_traces_page(tmp_path: Path, shared: Path) -> None:
    from chakra.viz import read_graph

    draw(read_graph(shared / "data/chakra/feeder_chakra.0.et.gz"), tmp_path / "feeder.html")
    with Page(f"file://{tmp_path / 'feeder.html'}", tmp_path / "profile") as opened:
        opened.wait("window.chakra !== undefined")
        opened.value("chakra.openAll()")
        assert opened.value("chakra.boxes()") == 3874
        assert opened.value("chakra.edges()") > 180_000
        assert opened.value("chakra.paint()") < 2_000
        assert opened.problems == []
