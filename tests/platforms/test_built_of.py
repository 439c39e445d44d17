"""Switches and cables of fabrics: textbook counts, and what the links that are simulated come to."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakra.builder import Workload
from chakra.errors import ConfigError, UsageError
from chakra.platforms import cluster, write_platform
from chakra.platforms.fabric import Fabric, Inside, Shape
from chakra.replay import simulate, topologies
from chakra.replay.config import load_network
from chakra.replay.config.model import Network, Topology
from chakra.replay.config.network import dump_network


@pytest.mark.parametrize("k", [4, 8, 16, 48])
def test_a_fat_tree_of_three_levels_has_the_textbook_counts(k: int) -> None:
    """Al-Fares et al., SIGCOMM 2008: k^3/4 hosts on 5k^2/4 switches of k ports; 3k^3/4 cables."""
    switches, cables = Fabric(Shape.FAT_TREE, k).built_of(k**3 // 4, 1)
    assert switches == {"leaf": k * k // 2, "pod": k * k // 2, "core": k * k // 4}
    assert sum(switches.values()) == 5 * k * k // 4
    assert cables == 3 * k**3 // 4
    with pytest.raises(UsageError, match="can be joined"):
        Fabric(Shape.FAT_TREE, k).built_of(k**3 // 4 + 1, 1)


@pytest.mark.parametrize("k", [4, 8, 64])
def test_a_fat_tree_of_two_levels_has_the_textbook_counts(k: int) -> None:
    """k^2/2 hosts on k leaves and k/2 spines of k ports; k^2 cables."""
    assert Fabric(Shape.FAT_TREE, k).built_of(k * k // 2, 1) == ({"leaf": k, "spine": k // 2}, k * k)


@pytest.mark.parametrize(
    ("words", "switches", "cables"),
    [
        # 32 interfaces at one switch
        ("4x hgx-h100 over 400G fat tree of 64 ports", {"leaf": 1}, 32),
        # 4,096 interfaces, 32 at a leaf, as many cables up and to the cores, of 64 ports each
        (
            "512x hgx-h100 over 400G fat tree of 64 ports",
            {"leaf": 128, "pod": 128, "core": 64},
            3 * 4096,
        ),
        # seven to one at the pods: 128 uplinks of each of 32 places, 7 to one 18.3: 19 cables to one core
        (
            "512x hgx-h100 over 400G fat tree of 64 ports oversubscribed 7",
            {"leaf": 128, "pod": 128, "core": 32},
            2 * 4096 + 32 * 19,
        ),
        # 8 rails of 4 leaves with 32 machines each, and 1,024 cables up
        ("128x hgx-h100 over 400G rails of 64 ports", {"leaf": 32, "spine": 16}, 2 * 1024),
        ("512x hgx-h100 over 400G rail-only of 512 ports", {"rail": 8}, 4096),
        # the fabric is that of all its machines
        ("64x hgx-h100 over 400G rails of 64 ports within 128 machines", {"leaf": 32, "spine": 16}, 2 * 1024),
    ],
)
def test_words_say_what_a_fabric_is_built_of(words: str, switches: dict[str, int], cables: int) -> None:
    network = load_network(cluster(words).network())
    assert network.links is not None
    found = network.links.built_of
    assert found is not None
    assert (dict(found.switches), found.cables, found.port_gbps) == (switches, cables, 400)
    assert found.all_switches == sum(switches.values())


@pytest.mark.parametrize("ratio", [1, 2, 3, 4, 7, 8])
@pytest.mark.parametrize(
    ("words", "interfaces"),
    [
        # a machine at a leaf, whatever is left of 16 ports
        ("8x hgx-h100 over 400G fat tree of 16 ports", 8),
        # fewer machines than a leaf of a rail has ports for
        ("8x hgx-h100 over 400G rails of 64 ports", 8),
    ],
)
def test_oversubscription_is_that_of_the_interfaces_at_a_leaf(
    words: str, interfaces: int, ratio: int
) -> None:
    document = cluster(f"{words} oversubscribed {ratio}").network()
    for leaf in {a for a, b, *_ in document["links"] if str(b).startswith("spine")}:
        up = sum(bandwidth for a, b, bandwidth, _ in document["links"] if a == leaf)
        down = sum(bandwidth for a, b, bandwidth, _ in document["links"] if b == leaf)
        assert down == pytest.approx(interfaces * 50e9 / 2**30)
        assert down / up == pytest.approx(ratio)


@given(
    st.sampled_from([shape for shape in Shape if shape is not Shape.TORUS]),
    st.sampled_from([8, 12, 16]), st.sampled_from([1.0, 2.0, 3.5]),
    st.integers(2, 60), st.sampled_from([1, 2, 4]),
)  # fmt: skip
def test_the_links_that_are_simulated_have_the_bandwidth_of_the_cables(
    shape: Shape, ports: int, oversubscription: float, machines: int, each: int
) -> None:
    """No switch has more cables than ports, and cables are those that the bandwidth of links needs, counted whole."""
    fabric = Fabric(shape, ports, 1.0 if shape in (Shape.RAIL_ONLY, Shape.DRAGONFLY) else oversubscription)
    try:
        network = fabric.network(
            [Inside(Topology.SWITCH, each, 100.0, 300.0)], machines, rate_gibps=10.0, latency_ns=500.0
        )
    except UsageError:
        with pytest.raises(UsageError):
            fabric.built_of(machines, each)
        return
    built = network["built_of"]
    outside = [(a, b, bandwidth / 10) for a, b, bandwidth, latency in network["links"] if latency == 500.0]
    ends = Counter[str]()
    for a, b, width in outside:
        for end in (a, b):
            ends[re.findall("[a-z]+", end)[-1] if isinstance(end, str) else "npu"] += width
    assert ends.pop("npu") == machines * each
    needed = sum(width for *_, width in outside)
    assert needed - 1e-6 <= built["cables"] < needed + ports / 2 + 1
    for level, count in built["switches"].items():
        assert ends.pop(level) <= count * ports + 1e-6
    assert not ends


def test_what_a_network_is_built_of_is_written_and_read_back(tmp_path: Path) -> None:
    machine = cluster("4x hgx-h100 over 400G rails of 8 ports")
    path, _ = write_platform(machine, tmp_path / "m")
    written, made = load_network(path), load_network(machine.network())
    assert written.links is not None
    assert made.links is not None
    assert written.links.built_of == made.links.built_of is not None
    assert load_network_text(dump_network(made), tmp_path).links == made.links


def load_network_text(text: str, folder: Path) -> Network:
    (folder / "n.yml").write_text(text)
    return load_network(folder / "n.yml")


WHOLE: dict[str, Any] = {"switches": {"leaf": 2}, "cables": 4, "ports": 8, "port_gbps": 400}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (7, "'built_of' must be a map of switches, cables, ports, port_gbps, found 7"),
        ({}, "'built_of' must be a map of switches, cables, ports, port_gbps, found an object"),
        ({**WHOLE, "racks": 3}, "'built_of' must be a map of switches, cables, ports, port_gbps, found an object"),
        ({**WHOLE, "switches": []}, "'built_of' 'switches' must be a map of levels to counts, found an empty list"),
        ({**WHOLE, "switches": {1: 2}}, "'built_of' 'switches' must be a map of levels to counts, found an object"),
        ({**WHOLE, "switches": {" ": 2}}, "'built_of' 'switches' must be a map of levels to counts, found an object"),
        ({**WHOLE, "switches": {"leaf": 0}}, "'built_of' 'leaf' must be a whole number from 1 to 2147483647, found 0"),
        ({**WHOLE, "cables": 1.5}, "'built_of' 'cables' must be a whole number from 1 to 2147483647, found 1.5"),
        ({**WHOLE, "ports": -1}, "'built_of' 'ports' must be a whole number from 1 to 2147483647, found -1"),
        ({**WHOLE, "port_gbps": 0}, "'built_of' 'port_gbps' must be one number of Gb/s, above 0, found 0"),
    ],
)  # fmt: skip
def test_wrong_parts_are_refused_by_name(wrong: object, said: str) -> None:
    links = [[0, "leaf0", 50, 500], [1, "leaf0", 50, 500]]
    assert load_network({"npus_count": [2], "links": links, "built_of": WHOLE}).links is not None
    with pytest.raises(ConfigError) as caught:
        load_network({"npus_count": [2], "links": links, "built_of": wrong})
    assert said in str(caught.value)


def test_a_replay_tells_switches_and_cables_and_that_no_chip_has_the_ports() -> None:
    workload = Workload(16)
    for rank in range(16):
        workload.builder(rank).compute(duration_ns=10)

    def run(words: str) -> tuple[str, list[str], dict[str, object]]:
        machine = cluster(words)
        result = simulate(workload, machine.system(), machine.network())
        return str(result), result.notes, result.to_dict()["inputs"]["network"]["built_of"]

    text, notes, built = run("2x hgx-h100 over 400G rail-only of 512 ports")
    assert "8 rail switches of 512 ports of 400 Gb/s, 16 cables" in text
    assert built == {"switches": {"rail": 8}, "cables": 16, "ports": 512, "port_gbps": 400.0}
    assert any(
        "a switch of 512 ports of 400 Gb/s is more than one chip (102.4 Tb/s in 2025)" in n for n in notes
    )
    # 51.2 Tb/s and 102.4 Tb/s are one chip
    for words in ("2x hgx-h100 over 400G rails of 128 ports", "2x hgx-h100 over 400G fat tree of 256 ports"):
        text, notes, _ = run(words)
        assert not any("more than one chip" in note for note in notes)
    assert "1 leaf switch of 256 ports" in text
    text, _, built = run("hgx-h100 over 400G torus 2")
    assert "8 cables of 400 Gb/s between NPUs, no switches" in text
    assert built == {"switches": {}, "cables": 8, "ports": 1, "port_gbps": 400.0}


def test_topologies_have_the_textbook_counts() -> None:
    """Kim et al., ISCA 2008: p = h = 2, a = 4 gives 9 groups, 36 routers of p + a - 1 + h = 7 ports, 72 NPUs."""
    fly = topologies.dragonfly(9, 4, 2, bandwidth_gibps=50, latency_ns=500)
    torus = topologies.torus([8, 8, 8], bandwidth_gibps=50, latency_ns=500)
    tree = topologies.fat_tree([2, 2, 4], bandwidth_gibps=50, latency_ns=500)
    assert [counts(one) for one in (fly, torus, tree)] == [
        (72, 36, 7, 72 + 9 * 6 + 36),
        (512, 0, 0, 3 * 512),
        # k = 4
        (16, 20, 4, 48),
    ]


def counts(network: Network) -> tuple[int, int, int, int]:
    from chakra.cli.commands.topology import figures_of

    return tuple(figures_of(network)[name] for name in ("npus", "switches", "ports", "cables"))  # type: ignore[return-value]
