"""Network and system files of ASTRA-sim 1.0 (the values of its tutorials, written down here)."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakra.converters.astra_config import convert_config, is_old_network, read_old_network
from chakra.errors import ConfigError
from chakra.replay.config import load_network, load_system


def network(**changes: Any) -> dict[str, Any]:
    value: dict[str, Any] = {
        "topology-name": "Hierarchical",
        "dimensions-count": 3,
        "topologies-per-dim": ["Ring", "FullyConnected", "Switch"],
        "dimension-type": ["N", "N", "P"],
        "units-count": [4, 8, 2],
        "links-count": [2, 7, 1],
        "link-latency": [500, 500, 700],
        "link-bandwidth": [250, 25, 12.5],
    }
    value |= {key.replace("_", "-"): item for key, item in changes.items()}
    return {key: item for key, item in value.items() if item is not None}


def written(folder: Path, content: str | dict[str, Any]) -> Path:
    path = folder / "old"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


SYSTEM = """scheduling-policy: LIFO
endpoint-delay: 10
active-chunks-per-dimension: 1
preferred-dataset-splits: 64
boost-mode: 1
all-reduce-implementation: halvingDoubling_ring_direct4
all-gather-implementation: ring_ring_ring
reduce-scatter-implementation: ring_ring_ring
all-to-all-implementation: oneDirect
collective-optimization: localBWAware
intra-dimension-scheduling: SCF
inter-dimension-scheduling: themis
"""


def test_links_become_bandwidth(tmp_path: Path) -> None:
    """Ring: an even number of links; FullyConnected: links to each neighbour; Switch: all links."""
    result = convert_config(written(tmp_path, network(links_count=[5, 14, 6])))
    assert result.content == {
        "topology": ["Ring", "FullyConnected", "Switch"],
        "npus_count": [4, 8, 2],
        "bandwidth": [1000, 50, 75],
        "latency": [500, 500, 700],
    }
    out = tmp_path / "new.yml"
    out.write_text(result.text)
    dims = load_network(out).dims
    assert [dim.bandwidth_gibps for dim in dims] == [1000, 50, 75]


def test_network_without_the_optional_keys(tmp_path: Path) -> None:
    """The tutorials' files name no topology-name, dimension-type or memory delays."""
    value = {
        "dimensions-count": 1,
        "topologies-per-dim": ["AllToAll"],
        "units-count": [8],
        "links-count": [7],
        "link-latency": [500],
        "link-bandwidth": [50],
    }
    path = written(tmp_path, value)
    assert is_old_network(path)
    assert read_old_network(path).dims[0].topology == "FullyConnected"
    assert convert_config(path).notes == ()


def test_delays_go_into_the_latency_or_are_named(tmp_path: Path) -> None:
    """A message pays two NIC latencies, on a switch also one router latency over its two hops."""
    value = network(
        nic_latency=[10, 0, 10],
        router_latency=[99, 0, 30],
        hbm_latency=[500, 500, 500],
        hbm_bandwidth=[370, 370, 370],
        hbm_scale=[0, 1, 0],
    )
    result = convert_config(written(tmp_path, value))
    assert result.content["latency"] == [520, 500, 725]
    assert len(result.notes) == 3
    assert "dimension 1: hbm-latency, hbm-bandwidth and hbm-scale have no counterpart" in result.notes[1]


def test_dimension_of_one_npu_is_dropped(tmp_path: Path) -> None:
    result = convert_config(written(tmp_path, network(units_count=[4, 1, 2], links_count=[2, 1, 1])))
    assert result.content["npus_count"] == [4, 2]
    assert "dimension 1 of one NPU was dropped" in result.notes[0]


def test_congestion_network_of_the_2023_tutorial(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "# Network\ntopology: Switch  # one word\nnpus_count: [64]\nbandwidth: [50]\nlatency: [500.5]\n",
    )
    assert convert_config(path).content == {
        "topology": ["Switch"],
        "npus_count": [64],
        "bandwidth": [50],
        "latency": [500.5],
    }


def test_system(tmp_path: Path) -> None:
    """Lists are split, scheduling names are today's, dropped keys are named, reductions cost what 1.0
    charges."""
    result = convert_config(written(tmp_path, SYSTEM))
    assert result.kind == "system"
    assert json.loads(result.text) == {
        "scheduling-policy": "LIFO",
        "endpoint-delay": 10,
        "active-chunks-per-dimension": 1,
        "preferred-dataset-splits": 64,
        "all-reduce-implementation": ["halvingDoubling", "ring", "direct4"],
        "all-gather-implementation": ["ring", "ring", "ring"],
        "reduce-scatter-implementation": ["ring", "ring", "ring"],
        "all-to-all-implementation": ["oneDirect"],
        "collective-optimization": "localBWAware",
        "intra-dimension-scheduling": "smallestFirst",
        "inter-dimension-scheduling": "offlineGreedy",
        "local-mem-bw": 500000,
    }
    assert any("boost-mode" in note for note in result.notes)
    assert load_system(result.content).splits == 64


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (network(links_count=[1, 7, 1]), r"'links-count' entry 0 is 1; a Ring of 4 needs at least 2 links"),
        (
            network(links_count=[2, 6, 1]),
            r"'links-count' entry 1 is 6; a FullyConnected of 8 needs at least 7 links",
        ),
        (network(topology_name="torus"), r"'topology-name' is 'torus'; only 'Hierarchical'"),
        (
            network(topologies_per_dim=["Ring", "Mesh", "Switch"]),
            r"'topologies-per-dim' entry 1 must be one of Ring",
        ),
        (
            network(units_count=[4, 8]),
            r"'units-count' must be a list with one entry for each of the 3 .*has 2 entries",
        ),
        (
            network(units_count=[4, 8.5, 2]),
            r"'units-count' entry 1 must be a whole number, at least 1, but is 8.5",
        ),
        (network(link_latency=None), r"'link-latency' is missing"),
        (network(link_latency=[1, "x", 2]), r"'link-latency' entry 1 must be a number"),
        (network(link_bandwidth=[1, 0, 2]), r"'link-bandwidth' entry 1 must be above 0"),
        (network(dimensions_count=True), r"'dimensions-count' must be the number of dimensions"),
        (network(link_latencies=[1]), r"'link-latencies' is not a key .*did you mean link-latency\?"),
        (network(units_count=[1, 1, 1]), r"describes a single NPU"),
        ("[1, 2]", "is a JSON object"),
        ('{"a": }', r"line 1 column 7: not valid JSON"),
        ('{"preferred-dataset-splits": 4}', "is a system file of ASTRA-sim 2.0 already"),
        ("", "is empty"),
        ("DATA\n1\n", "is a text workload; `chakra convert text` converts it"),
        (SYSTEM + "what is this\n", r"line 13: 'what is this' is not of the form 'key: value'"),
        (
            SYSTEM + "endpoint-dely: 4\n",
            r"line 13: key 'endpoint-dely' is not a key .*did you mean endpoint-delay\?",
        ),
        (SYSTEM + "endpoint-delay: 4\n", r"line 13: key 'endpoint-delay' is given twice"),
        (SYSTEM.replace("delay: 10", "delay: ten"), r"'endpoint-delay' must be a whole number, but is 'ten'"),
        (
            SYSTEM.replace("LIFO", "LILO"),
            r"'scheduling-policy' must be one of LIFO, FIFO, EXPLICIT, but is 'LILO'",
        ),
        (SYSTEM.replace("ring_direct4", "rung_direct4"), r"has 'rung', which is not one of ring"),
        ("num-npus: 8\nnum-packages: 4\n", "Garnet network simulator"),
        ("endpoint-delay: 4\n", "holds no algorithms"),
        (
            "topology: Switch\nnpus_count: [64, 2]\nbandwidth: [50]\nlatency: [1]\n",
            r"'npus_count' must be a list",
        ),
        (
            "topology: [Moon]\nnpus_count: [64]\nbandwidth: [50]\nlatency: [1]\n",
            r"'topology' entry 0 must be one of",
        ),
    ],
)
def test_wrong_files(tmp_path: Path, content: str | dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        convert_config(written(tmp_path, content))
    assert "\n" not in str(caught.value)


@given(st.text(max_size=80))
def test_any_text_is_converted_or_refused(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "any.txt"
    path.write_text(text, encoding="utf-8", errors="replace")
    refusal = ""
    try:
        convert_config(path)
    except ConfigError as error:
        refusal = str(error)
    assert "\n" not in refusal
