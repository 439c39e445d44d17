"""Links of a report: where vertices stand, what is drawn, what the numbers are."""

import json
import re
import xml.etree.ElementTree as ET
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_sample import sample

from chakra.builder import TraceBuilder, Workload
from chakra.replay import simulate, topologies
from chakra.report import Run, report_html, run_of
from chakra.report.fabric import Fabric, fabric_of
from chakra.report.network_picture import drawn_wires, fabric_of_run, network_picture, use_chart
from chakra.report.wiring import MOST_CABLES, WIDTH, Box, picture_of, wires_of

SPEED: dict[str, Any] = {"bandwidth_gibps": 50.0, "latency_ns": 500.0}
RINGS = {f"{kind}-implementation": ["ring"] for kind in ("all-reduce", "all-gather")}


def replayed(network: Any, npus: int, members: range, backend: str = "flow", **options: Any) -> Run:
    """A ring all-reduce of some NPUs, as the document of its result."""
    workload = Workload(npus)
    name = workload.add_group(list(members))

    def program(b: TraceBuilder) -> None:
        if b.rank in members:
            b.collective("all_reduce", size_bytes=1 << 22, group=name)
        else:
            b.compute(duration_ns=1)

    workload.run(program)
    rings = RINGS
    if isinstance(network, dict):
        rings = {name: ["ring"] * len(network["npus_count"]) for name in RINGS}
    result = simulate(workload, rings, network, backend=backend, **options)
    return run_of(json.loads(json.dumps(result.to_dict())), "run")


def svg(run: Run) -> ET.Element:
    picture = network_picture(run, drawn_wires(run))
    assert picture is not None
    return ET.fromstring(picture)


def boxes_of(run: Run) -> list[Box]:
    picture = picture_of(run, wires_of(run))
    assert picture is not None
    return picture.boxes


def classes(root: ET.Element, kind: str) -> list[str]:
    """Classes of all elements that have one."""
    return [name for item in root.iter() if kind in (name := item.get("class", "")).split()]


def test_a_fat_tree_stands_in_rows_and_its_full_links_are_wide() -> None:
    """NPUs, leaves and spines; as many lines as pairs that are joined by a used link, in the colour of their load."""
    run = replayed(topologies.fat_tree([4, 4], oversubscription=2.0, **SPEED), 16, range(0, 16, 4))
    wires = wires_of(run)
    picture = picture_of(run, wires)
    assert picture is not None
    heights = {box.y for box in picture.boxes}
    assert len(heights) == 3
    assert [box.label for box in picture.boxes if box.y == max(heights)] == [str(npu) for npu in range(16)]
    assert {box.label[:2] for box in picture.boxes if box.y == min(heights)} == {"L2"}
    root = svg(run)
    assert len(classes(root, "link")) == len(picture.cables)
    full = [min(4, int(5 * max(wire.share for wire in among))) for among in picture.cables.values()]
    assert sorted(classes(root, "link")) == sorted(f"link u{k}" for k in full)
    assert len(classes(root, "npu")) == 16


def test_shares_are_of_bytes_where_the_bandwidth_is_told() -> None:
    """On flow a link is busy while it carries any flow, however slow."""
    document = sample()
    document["links"] = [
        {"dim": 0, "from": 0, "to": 1, "bytes": 9_000_000, "busy_ns": 900_000, "queued_ns": 0} | more
        for more in ({"bandwidth_gibps": 1e9 / 2**30 * 100}, {})
    ]
    assert [wire.share for wire in wires_of(run_of(document, "run"))] == pytest.approx([0.1, 1.0])


def test_switches_of_building_blocks_are_those_of_the_rows() -> None:
    """A link to -1 ends at the switch of its dimension and row; dimension 1 of 4 x 3 has four."""
    network = {
        "topology": ["Ring", "Switch"],
        "npus_count": [4, 3],
        "bandwidth": [100, 50],
        "latency": [1, 1],
    }
    run = replayed(network, 12, range(12), "aware", engine="messages")
    switches = {end for wire in wires_of(run) for end in (wire.start, wire.end) if isinstance(end, str)}
    assert switches == {f"dim1.switch{row}" for row in range(4)}
    for wire in wires_of(run):
        ends = {wire.start, wire.end}
        npu = next(end for end in ends if isinstance(end, int))
        assert all(isinstance(end, int) or end == f"dim1.switch{npu % 4}" for end in ends)


def test_a_torus_is_a_grid_and_a_ring_a_circle() -> None:
    """Without switches: the first dimension from left to right; one dimension in a circle."""
    run = replayed(topologies.torus([4, 3], **SPEED), 12, range(12))
    boxes = boxes_of(run)
    assert len({box.x for box in boxes}) == 4
    assert len({box.y for box in boxes}) == 3
    assert all(box.label == str(k) for k, box in enumerate(boxes))
    ring = {"topology": ["Ring"], "npus_count": [6], "bandwidth": [50], "latency": [500]}
    boxes = boxes_of(replayed(ring, 6, range(6)))
    assert len({(round(box.x), round(box.y)) for box in boxes}) == 6


def test_numbers_on_the_picture_are_those_of_the_chart() -> None:
    """Every row of the chart has its number on the line of its link."""
    run = replayed(topologies.fat_tree([4, 4], oversubscription=2.0, **SPEED), 16, range(0, 16, 3))
    chart = use_chart(run, numbered=True)
    assert chart is not None
    broad, slim = (
        [item.text or "" for item in picture.iter() if item.tag.endswith("text")]
        for picture in ET.fromstring(f"<both>{chart}</both>")
    )
    rows, again = (
        [int(found[1]) for text in texts if (found := re.match(r"(\d+): .* → ", text))]
        for texts in (broad, slim)
    )
    assert rows == again
    assert rows == list(range(1, len(rows) + 1))
    assert len(rows) >= 3
    shown = [item.text or "" for item in svg(run).iter() if item.get("class") == "number"]
    assert not {"…"} & set("".join(shown))
    assert sorted(int(part) for text in shown for part in text.split()) == rows


def test_a_page_says_why_there_is_no_use_over_time() -> None:
    """Closed forms, and networks outside."""
    network = {"topology": ["Ring"], "npus_count": [4], "bandwidth": [50], "latency": [500]}
    closed = report_html([replayed(network, 4, range(4), "aware")])
    assert "computed in closed form" in closed
    assert 'id="link-use"' not in closed
    run = replayed(network, 4, range(4), "aware", engine="messages")
    assert 'id="link-use"' in report_html([run])
    assert "simulated outside" in report_html([run_of(sample() | {"backend": "outside"}, "run")])
    assert "65,536 links" in report_html([run_of(sample() | {"backend": "ns3"}, "run")])
    without = run_of(sample() | {"links": []}, "run")
    assert network_picture(without, drawn_wires(without)) is None


def folded(run: Run) -> tuple[list[str], dict[str, tuple[int, float, float]], Fabric]:
    """Levels in words, from the top; and of each kind of links how many, the mean and the greatest share."""
    fabric = fabric_of(run, wires_of(run))
    kinds = {
        fabric.name(bundle): (len(bundle.wires), bundle.mean, bundle.busiest.share)
        for bundle in fabric.bundles
    }
    assert sum(count for count, _, _ in kinds.values()) == len(run.table("links"))
    return [level.label for level in fabric.levels], kinds, fabric


def test_thousands_of_npus_are_folded() -> None:
    """4,096 NPUs: four levels and three kinds of links; no wiring, and a page below 150 kB."""
    tree = topologies.fat_tree([8, 32, 16], oversubscription=2.0, **SPEED)
    run = replayed(tree, 4096, range(0, 4096, 16))
    levels, kinds, _ = folded(run)
    assert [level.split(" ", 1)[1] for level in levels] == [
        "switches L3.0.#",
        "switches L2.#.#",
        "switches L1.#.0",
        "NPUs",
    ]
    assert levels[-1] == "4,096 NPUs"
    assert list(kinds) == ["L2.#.# ↔ L3.0.#", "L1.#.0 ↔ L2.#.#", "NPU ↔ L1.#.0"]
    assert kinds["NPU ↔ L1.#.0"][0] == 512  # two directions of the 256 NPUs that communicate
    assert network_picture(run, drawn_wires(run)) is None
    assert len(report_html([run])) < 150_000


def test_a_ring_on_rails_loads_the_rails_as_much_as_its_bytes() -> None:
    """8 nodes of 8: the ring of each dimension takes all S bytes, of which every link carries 2 S 7/8."""
    network = topologies.rail_optimised(8, 8, node_bandwidth_gibps=400, node_latency_ns=300, **SPEED)
    workload = Workload(64)
    workload.run(lambda b: b.collective("all_reduce", size_bytes=1 << 24))
    result = simulate(workload, {name: ["ring", "ring"] for name in RINGS}, network, backend="flow")
    run = run_of(json.loads(json.dumps(result.to_dict())), "run")
    levels, kinds, fabric = folded(run)
    assert levels == ["8 switches rail#", "64 NPUs", "8 switches node#"]
    assert fabric.node_npus == 8
    gib = 2**30 / 1e9
    moved = 2 * (1 << 24) * 7 / 8
    for name, speed in (("NPU ↔ rail#", 50.0), ("NPU ↔ node#", 400.0)):
        count, mean, most = kinds[name]
        assert count == 128
        assert mean == pytest.approx(moved / (speed * gib * run.end_ns))
        assert most == pytest.approx(mean)
    picture = fabric_of_run(run, drawn_wires(run))
    assert picture is not None
    texts = [item.text for item in ET.fromstring(f"<both>{picture}</both>").iter() if item.text]
    assert texts.count("8 nodes of 8 NPUs") == 2  # on a window and on a telephone
    assert texts.count("128 links of 50 GiB/s") == 2


def test_a_torus_and_a_dragonfly_have_a_kind_of_links_for_each_way() -> None:
    """Links of NPUs by the dimension in which they differ, of switches by the first number."""
    torus = topologies.torus([4, 4], **SPEED)
    workload = Workload(16)
    workload.run(lambda b: b.collective("all_reduce", size_bytes=1 << 20))
    result = simulate(workload, {name: ["ring", "ring"] for name in RINGS}, torus, backend="flow")
    levels, kinds, _ = folded(run_of(json.loads(json.dumps(result.to_dict())), "run"))
    assert levels == ["16 NPUs"]
    assert set(kinds) == {"NPU ↔ NPU, dim 0 of 4", "NPU ↔ NPU, dim 1 of 4"}
    levels, kinds, _ = folded(replayed(topologies.dragonfly(9, 4, 2, **SPEED), 72, range(72)))
    assert levels == ["36 switches g#.r#", "72 NPUs"]
    assert set(kinds) == {
        "g#.r# ↔ g#.r#, from one g to another",
        "g#.r# ↔ g#.r#, within one g",
        "NPU ↔ g#.r#",
    }
    assert kinds["NPU ↔ g#.r#"][0] == 144


def test_dimensions_of_switches_are_kinds_of_their_own() -> None:
    """The inner one inside nodes of 4, the outer one above; a single switch above its NPUs."""
    network = {
        "topology": ["Switch", "Switch"],
        "npus_count": [4, 3],
        "bandwidth": [100, 50],
        "latency": [1, 1],
    }
    levels, kinds, fabric = folded(replayed(network, 12, range(12), "aware"))
    assert levels == ["4 switches dim1.switch#", "12 NPUs", "3 switches dim0.switch#"]
    assert set(kinds) == {"NPU ↔ dim0.switch#", "NPU ↔ dim1.switch#"}
    assert fabric.node_npus == 4
    single = {"topology": ["Switch"], "npus_count": [8], "bandwidth": [100], "latency": [1]}
    levels, _, fabric = folded(replayed(single, 8, range(8), "aware"))
    assert levels == ["1 switch dim0.switch0", "8 NPUs"]
    assert fabric.node_npus == 0


def test_a_small_network_is_drawn_link_by_link_too() -> None:
    run = replayed(topologies.fat_tree([4, 4], oversubscription=2.0, **SPEED), 16, range(16))
    page = report_html([run])
    assert 'id="each-link"' in page
    assert 0 < len(classes(svg(run), "link")) <= MOST_CABLES


WORD = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "dim": st.integers(-1, 2) | st.none(),
                "from": st.integers(-2, 5) | WORD | st.none() | st.booleans(),
                "to": st.integers(-2, 5) | WORD | st.lists(st.integers(), max_size=2),
                "bytes": st.integers(0, 10**9) | st.none(),
                "busy_ns": st.integers(0, 10**9),
                "queued_ns": st.just(0),
            },
            optional={"bandwidth_gibps": st.floats(0, 1000) | WORD},
        ),
        max_size=8,
    ),
    st.none()
    | st.fixed_dictionaries(
        {
            "interval_ns": st.integers(-1, 10**6) | WORD,
            "mean": st.lists(st.floats(0, 2), max_size=4),
            "links": st.lists(
                st.fixed_dictionaries(
                    {
                        "from": st.integers(-1, 5) | WORD,
                        "to": st.integers(-1, 5) | WORD | st.lists(st.integers(), max_size=1),
                        "alike": st.integers(0, 4) | WORD,
                        "share": st.lists(st.floats(-1, 2) | WORD, max_size=4),
                    }
                ),
                max_size=4,
            ),
        }
    ),
)
def test_any_document_gives_a_picture_or_none(links: list[dict[str, Any]], use: Any) -> None:
    """Hostile ends and figures: well-formed, all boxes on the sheet, nothing that a page could take for code."""
    run = run_of(sample() | {"links": links, "link_use": use}, "run")
    wires = drawn_wires(run)
    network = network_picture(run, wires)
    for made in (network, fabric_of_run(run, wires), use_chart(run, numbered=network is not None)):
        if made is not None:
            ET.fromstring(f"<both>{made}</both>")
    for box in boxes_of(run):
        assert box.x >= 0
        assert box.x + box.width <= WIDTH
    report_html([run])
