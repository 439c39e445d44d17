"""Clusters switch by switch: what the words make, that every NPU reaches every other, and that shapes differ."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakra.builder import TraceBuilder
from chakra.cli.main import run
from chakra.errors import ConfigError, UsageError
from chakra.et import Trace
from chakra.platforms import cluster, load_platform, platform_names
from chakra.platforms.fabric import Fabric, Inside, Shape
from chakra.replay import simulate
from chakra.replay.config import load_network
from chakra.replay.config.model import Links, Topology
from chakra.replay.networks.routes import link_graph

BOX = [Inside(Topology.SWITCH, 4, 100.0, 300.0)]


def graph(fabric: Fabric, machines: int) -> "nx.Graph[object]":
    out: nx.Graph[object] = nx.Graph()
    document = fabric.network(BOX, machines, rate_gibps=10.0, latency_ns=500.0)
    for a, b, bandwidth, latency in document["links"]:
        assert not out.has_edge(a, b)
        assert bandwidth > 0
        assert latency in (300.0, 500.0)
        out.add_edge(a, b, bandwidth=bandwidth)
    assert document["npus_count"] == [4, machines]
    return out


def switches(found: "nx.Graph[object]", kind: str) -> list[str]:
    return sorted(str(v) for v in found if str(v).startswith(kind))


def width(found: "nx.Graph[object]", vertex: str, towards: str) -> float:
    """Ports of a switch towards another kind of vertex."""
    total: float = sum(
        found[vertex][other]["bandwidth"] for other in found[vertex] if str(other).startswith(towards)
    )
    return total / 10


@given(
    st.sampled_from([Shape.FAT_TREE, Shape.RAILS]),
    st.integers(8, 32),
    st.sampled_from([1.0, 2.0, 3.5, 7.0]),
    st.integers(2, 40),
    st.booleans(),
)
def test_every_switch_has_its_ports_and_joins_all(
    shape: Shape, ports: int, oversubscription: float, machines: int, spread: bool
) -> None:
    """No switch is wider than its ports, uplinks are as scarce as asked for, and all NPUs are joined."""
    fabric = Fabric(shape, ports, oversubscription, spread)
    try:
        found = graph(fabric, machines)
    except UsageError as error:
        said = str(error)
        one_switch = oversubscription > 1 and shape is Shape.FAT_TREE and 4 * machines <= ports
        assert "at most" in said or "no room" in said or (one_switch and "nothing to oversubscribe" in said)
        return
    assert nx.is_connected(found)
    npus = [v for v in found if isinstance(v, int)]
    assert sorted(npus) == list(range(4 * machines))
    for leaf in switches(found, "leaf"):
        down = sum(isinstance(v, int) for v in found[leaf])
        up = width(found, leaf, "spine") + width(found, leaf, "pod")
        assert down + up <= ports + 1e-9
        if switches(found, "spine"):
            assert down <= up * oversubscription + oversubscription
        if shape is Shape.RAILS:
            assert len({v % 4 for v in found[leaf] if isinstance(v, int)}) == 1
    for spine in switches(found, "spine"):
        assert width(found, spine, "leaf") <= ports + 1e-9
    for pod in switches(found, "pod"):
        assert width(found, pod, "leaf") <= ports // 2
        assert width(found, pod, "core") * oversubscription == pytest.approx(ports // 2)


def test_where_interfaces_lie() -> None:
    """A fat tree's leaf holds whole machines, a rail's leaf one place of many; spread machines are dealt out."""
    tree = graph(Fabric(Shape.FAT_TREE, 16), 6)
    assert Counter(len([v for v in tree[leaf] if isinstance(v, int)]) for leaf in switches(tree, "leaf")) == {
        8: 3
    }
    assert {v for v in tree["leaf0.0"] if isinstance(v, int)} == set(range(8))
    rails = graph(Fabric(Shape.RAILS, 16), 6)
    assert {v for v in rails["leaf0.1"] if isinstance(v, int)} == {1, 5, 9, 13, 17, 21}
    spread = graph(Fabric(Shape.FAT_TREE, 16, spread=True), 6)
    assert {v // 4 for v in spread["leaf0.0"] if isinstance(v, int)} == {0, 3}
    only = graph(Fabric(Shape.RAIL_ONLY, 16), 6)
    assert switches(only, "spine") == []
    assert {v for v in only["rail2"] if isinstance(v, int)} == {2, 6, 10, 14, 18, 22}


def lying(fabric: Fabric, machines: int) -> list[list[int]]:
    """Machines at each leaf switch."""
    found = graph(fabric, machines)
    return [sorted({v // 4 for v in found[leaf] if isinstance(v, int)}) for leaf in switches(found, "leaf")]


def test_a_job_among_other_machines() -> None:
    """Its machines lie side by side, dealt out, in racks, or where a list says; the fabric is that of all machines."""
    whole = graph(Fabric(Shape.FAT_TREE, 16), 12)
    ways: list[tuple[dict[str, Any], list[list[int]]]] = [
        ({}, [[0, 1], [2, 3], [4], [], [], []]),
        ({"spread": True}, [[0], [1], [2], [3], [4], []]),
        ({"spread": True, "rack": 2}, [[0, 1], [2, 3], [4], [], [], []]),
        ({"places": (11, 0, 10, 4, 5)}, [[1], [], [3, 4], [], [], [0, 2]]),
    ]
    for how, expected in ways:
        fabric = Fabric(Shape.FAT_TREE, 16, within=12, **how)
        assert lying(fabric, 5) == expected
        job = graph(fabric, 5)
        for leaf in switches(job, "leaf"):
            assert width(job, leaf, "spine") == width(whole, leaf, "spine")
        assert switches(job, "spine") == switches(whole, "spine")
    assert lying(Fabric(Shape.FAT_TREE, 24, within=9, spread=True, rack=2), 8) == [
        [0, 1, 6],
        [2, 3, 7],
        [4, 5],
    ]


@given(
    st.integers(1, 30), st.integers(0, 20), st.integers(1, 5), st.sampled_from([Shape.FAT_TREE, Shape.RAILS])
)
def test_no_leaf_holds_more_machines_than_it_has_room(
    machines: int, idle: int, rack: int, shape: Shape
) -> None:
    fabric = Fabric(shape, 16, spread=True, rack=rack, within=machines + idle)
    # half of a leaf's ports lead down, unless all 4 interfaces of each machine find room at one leaf
    room = 8 if shape is Shape.RAILS else 4 if machines + idle <= 4 else 2
    if rack > room:
        with pytest.raises(
            UsageError, match=f"racks of {rack}: a leaf switch of 16 ports has room for {room} "
        ):
            graph(fabric, machines)
        return
    found = graph(fabric, machines)
    assert sorted(v for v in found if isinstance(v, int)) == list(range(4 * machines))
    for leaf in switches(found, "leaf"):
        assert sum(isinstance(v, int) for v in found[leaf]) + width(found, leaf, "spine") <= 16


@pytest.mark.parametrize(
    "name", [name for name in platform_names() if load_platform(name).dims[-1].npus is None]
)
@pytest.mark.parametrize("shape", ["fat tree", "rails"])
def test_npus_of_a_machine_talk_inside_it(name: str, shape: str) -> None:
    """Whatever the preset's inner network: no way between two of its NPUs goes through their ports."""
    machine = load_platform(name)
    if machine.node_npus == 1:
        return
    try:
        document = cluster(f"2x {name} over 400G {shape} of 160 ports").network()
    except UsageError as error:
        pytest.fail(str(error))
    network = load_network(document)
    assert isinstance(network.links, Links)
    each = machine.node_npus
    pairs = np.array([(a, b) for a in range(each) for b in range(each) if a != b])
    outside = {n for n, text in enumerate(network.links.vertices, network.npus) if text.startswith("leaf")}
    assert outside
    assert not {network.links.links[k].dst for k in np.unique(link_graph(network, pairs).routes)} & outside


def test_a_result_tells_fabrics_apart() -> None:
    """Dimensions are names there, and may be the same: what differs are the links."""
    traces = [TraceBuilder(rank=0).build()] * 16  # without nodes: a document all the same
    told = []
    for words in ("rails of 64 ports", "rails of 64 ports", "rails of 64 ports oversubscribed 2"):
        machine = cluster(f"2x hgx-h100 over 400G {words}")
        told.append(
            simulate(traces, machine.system(), machine.network()).to_dict()["inputs"]["network"]["links"]
        )
    assert told[0] == told[1] != told[2]
    plain = simulate(
        traces, {}, {"topology": ["Ring"], "npus_count": [16], "bandwidth": [50], "latency": [500]}
    )
    assert "links" not in plain.to_dict()["inputs"]["network"]


def test_a_file_of_a_fabric_is_told_as_results_tell_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """4,096 interfaces at 32 ports a leaf, as many pod switches, cores that have all 64 ports down; as many cables at
    each of three levels. The file has a vertex and a link for several cores and cables, and the switches in machines.
    """
    words = "512x hgx-h100 over 400G fat tree of 64 ports"
    out = tmp_path / "n.yml"
    assert run(["topology", "machine", words, "-o", str(out), "--format", "json"]) == 0
    said = capsys.readouterr()
    links = 2 * (4096 + 4096 + 4096 + 128)
    built = "128 leaf, 128 pod and 64 core switches of 64 ports of 400 Gb/s, 12,288 cables"
    assert said.err == f"{out}: 4,096 NPUs, outside machines {built}, {links:,} links (one per direction)\n"
    assert json.loads(said.out)["figures"] == {
        "npus": 4096, "switches": 128 + 128 + 64, "ports": 64, "cables": 3 * 4096, "directed_links": links
    }  # fmt: skip


def test_a_rail_optimised_fat_tree_is_one_of_rails() -> None:
    rails = cluster("4x hgx-h100 over 400G rails of 16 ports").network()
    for words in ("rail-optimised fat tree", "fat tree rail-optimised", "rail-optimized"):
        assert cluster(f"4x hgx-h100 over 400G {words} of 16 ports").network() == rails
    assert cluster("4x hgx-h100 over 400G fat tree of 16 ports").network() != rails


def test_a_ratio_is_one_number_over_the_other() -> None:
    half, plain = (
        cluster(f"4x hgx-h100 over 400G {words}").network() for words in ("oversubscribed 4:2", "")
    )
    assert half["bandwidth"][1] * 2 == pytest.approx(plain["bandwidth"][1])


def test_places_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "job.txt"
    path.write_text("7 0  # the first two\n3\n")
    words = f"3x hgx-h100 over 400G fat tree of 32 ports within 8 machines places {path}"
    fabric = cluster(words).fabric
    assert fabric is not None
    assert fabric.places == (7, 0, 3)
    cluster(words).network()
    for text, message in (("x", "job.txt:1: 'x' is not the place"), ("# none", "no places of machines")):
        path.write_text(text)
        with pytest.raises(ConfigError, match=message):
            cluster(words)
    for text, message in (
        ("1 1 2", "two machines at place 1"),
        ("1 2", "2 places for 3 machines"),
        ("1 2 8", "place 8 is none of the 8 machines, which count from 0"),
    ):
        path.write_text(text)
        with pytest.raises(UsageError, match=message):
            cluster(words).network()


def test_the_published_cluster_of_16384() -> None:
    """Three levels, 1:7 at the top (Llama 3, arXiv 2407.21783, section 3.3.1: full bisection below, 1:7 above)."""
    document = cluster("2048x hgx-h100 over 400G fat tree of 64 ports oversubscribed 7").network()
    assert document["npus_count"] == [8, 2048]
    ends = Counter(str(b).rstrip("0123456789.") for _, b, *_ in document["links"])
    assert set(ends) == {"m", "leaf", "pod", "core"}


def ring_of(places: list[int]) -> list[Trace]:
    """An all-reduce of 64 MiB among the NPUs of these places of each of four machines."""
    traces = []
    for npu in range(16):
        builder = TraceBuilder()
        if npu % 4 in places:
            builder.collective("all_reduce", size_bytes=64 << 20, group=str(1 + npu % 4))
        else:
            builder.compute(duration_ns=1)
        traces.append(builder.build())
    return traces


def test_rails_and_trees_differ_where_they_differ() -> None:
    """Traffic within rails crosses no spine; on an oversubscribed tree it does, and takes as much longer."""
    groups = {str(1 + place): [place + 4 * machine for machine in range(4)] for place in range(4)}
    times = {}
    for shape in (Shape.RAILS, Shape.FAT_TREE):
        network = load_network(
            Fabric(shape, 12, 4.0, spray=True).network(BOX, 4, rate_gibps=10.0, latency_ns=500.0)
        )
        result = simulate(
            ring_of([0, 1, 2, 3]),
            {"all-reduce-implementation": ["direct"]},
            network,
            comm_groups=groups,
            backend="flow",
        )
        times[shape] = int(result.finish_ns.max())
    assert 2 < times[Shape.FAT_TREE] / times[Shape.RAILS] < 4.5


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("8x hgx-h100 over 400G rail-only", "add such as 'of 64 ports'"),
        ("4x hgx-h100 over 400G rail-only fat tree of 64 ports", "rail-only and fat tree are two shapes"),
        ("4x hgx-h100 over 400G rail-only of 64 ports spread", "rail-only has one switch a rail"),
        (
            "4x hgx-h100 over 400G fat tree of 64 ports oversubscribed 2",
            "32 interfaces fit one switch, which has",
        ),
        ("8x hgx-h100 over 0G", "a port has a rate above 0"),
        ("8x hgx-h100 over 400G 800G", "a rate is given twice"),
        ("8x hgx-h100 over 400G oversubscribed 1e308", "needs a number or a ratio"),
        ("8x hgx-h100 over 400G oversubscribed 4:nan", "needs a number or a ratio"),
        ("8x hgx-h100 over 400G oversubscribed 2:4", "oversubscription must be at least 1"),
        ("8x hgx-h100 over 400G of 64 ports of 128 ports", "a number of ports is given twice"),
        ("8x hgx-h100 over 400G of 64 ports spread packed", "both say where machines lie"),
        ("8x hgx-h100 over 400G within 9 machines", "add such as 'of 64 ports'"),
        ("8x hgx-h100 over 400G fat tree of 64 ports within 7 machines", "8 machines within 7"),
        ("8x hgx-h100 over 400G fat tree of 64 ports within", "'within' needs a number, such as 'within 4'"),
        (
            "8x hgx-h100 over 400G fat tree of 64 ports racks of",
            "'racks' needs a number, such as 'racks of 4'",
        ),
        (
            "8x hgx-h100 over 400G fat tree of 16 ports racks of 2",
            "racks of 2: a leaf switch of 16 ports has room for 1 machine",
        ),
        (
            "64x hgx-h100 over 400G dragonfly of 31 ports racks of 2",
            "racks of 2: a router of 31 ports has room for 1 machine",
        ),
        ("8x hgx-h100 over 400G sprayed", "add such as 'of 64 ports'"),
        ("8x hgx-h100 over 400G fat tree of 4 ports", "no room for the 8 interfaces"),
        ("8x hgx-h100 over 400G fat tree of 1 ports", "a switch has at least 2"),
        ("128x hgx-h100 over 400G rail-only of 64 ports", "128 machines, but at most 64"),
        ("8x hgx-h100 over 400G fat tree of many ports", "'of' is not understood"),
        ("8x hgx-h100 over 400G fat tree of 999999 ports", "no switch has 999999 ports"),
    ],
)
def test_words_that_make_no_fabric(words: str, message: str) -> None:
    with pytest.raises(UsageError, match=message.replace("'", ".")):
        cluster(words).network()


def test_one_machine_has_no_fabric() -> None:
    assert cluster("1x hgx-h100 over 400G rails of 64 ports").network() == cluster("hgx-h100").network()
    assert "links" in cluster("hgx-h100 over 400G rails of 64 ports", 16).network()
