"""`chakra check-config`: every value with unit, default, source and meaning."""

import json
import re
import time
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chakra.replay.config.keys import LINK_KEYS, MEMORY_KEYS, NETWORK_KEYS, SYSTEM_KEYS
from chakra.replay.config.values_in_effect import values_in_effect
from chakra.sweep.keys import STUDY_KEYS, workload_keys

Chakra = Callable[..., Any]


def test_every_key_is_printed_once(chakra: Chakra, ring8: Path) -> None:
    (ring8 / "memory.json").write_text('{"memory-type": "MEMORY_POOL", "remote-mem-latency": 100.5}')
    (ring8 / "groups.json").write_text('{"tp": [0, 1], "dp": [1, 0]}')
    outcome = chakra("check-config", "groups.json", "network.yml", "memory.json", "system.json")
    assert (outcome.code, outcome.err) == (0, "")
    words = [line.split()[0] for line in outcome.out.splitlines() if re.match(r"  \S", line)]
    for key in (*NETWORK_KEYS, *SYSTEM_KEYS, *MEMORY_KEYS):
        assert words.count(key.name) == 1, key.name
    assert "'remote-mem-latency' counts as 100" in outcome.out
    assert "bandwidth   [50] GB/s of 2^30 B/s  [network.yml:3; default: required]" in outcome.out
    assert "tp: 2 ranks: 0, 1" in outcome.out


def test_json_form(chakra: Chakra, ring8: Path) -> None:
    document = json.loads(chakra("check-config", "-s", "system.json", "--format=json").out)
    assert document["schema"] == "chakra.check-config/1"
    rows = {row["key"]: row for row in document["files"][0]["values"]}
    assert rows["preferred-dataset-splits"]["value"] == 4
    assert rows["preferred-dataset-splits"]["source"] == "system.json"
    assert (rows["peak-perf"]["value"], rows["peak-perf"]["source"]) == (None, "default")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("system.json", '{"schedulin-policy": "LIFO"}', "did you mean 'scheduling-policy'"),
        ("system.json", '{"all-reduce-implementation": ["ring", "ring"]}', "names 2 algorithms"),
        ("network.yml", "topology: Ring\n", "network.yml:1: key 'topology' must be a list"),
    ],
)
def test_wrong_files(chakra: Chakra, ring8: Path, name: str, text: str, message: str) -> None:
    (ring8 / name).write_text(text)
    outcome = chakra("check-config", "system.json", "network.yml")
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err


@pytest.mark.parametrize("option", [(), ("-n",)])
def test_a_network_of_links_is_read_and_made_once(
    chakra: Chakra, ring8: Path, monkeypatch: pytest.MonkeyPatch, option: tuple[str, ...]
) -> None:
    """Files of 100,000 links take seconds to read; they were read four times."""
    from chakra.io import yaml
    from chakra.replay.config import links, network, section

    (ring8 / "links.yml").write_text(
        "npus_count: [4]\nlinks: [[0, 1, 50, 500], [1, 2, 50, 500], [2, 3, 50, 500]]\n"
    )
    count = {"read": 0, "made": 0}

    def counted(name: str, of: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            if name == "made" or str(given[0]).endswith("links.yml"):
                count[name] += 1
            return of(*given, **named)

        return call

    read = counted("read", yaml.read_entries)
    monkeypatch.setattr(yaml, "read_entries", read)
    monkeypatch.setattr(section, "read_entries", read)
    monkeypatch.setattr(network, "links_network", counted("made", links.links_network))
    outcome = chakra("check-config", "-s", "system.json", *option, "links.yml")
    assert (outcome.code, outcome.err) == (0, "")
    assert count == {"read": 1, "made": 1}


def test_usage(chakra: Chakra, ring8: Path) -> None:
    assert "name a file" in chakra("check-config").err
    assert "are both network files" in chakra("check-config", "network.yml", "-n", "network.yml").err


def test_notes_say_what_may_not_be_meant(et: SimpleNamespace) -> None:
    from chakra.replay.config import load_network

    two = {"topology": ["Ring", "Switch"], "npus_count": [6, 4], "bandwidth": [1, 1], "latency": [0, 0]}
    network = load_network(two)
    values = {
        "all-reduce-implementation": ["halvingDoubling"],
        "all-gather-implementation": ["oneRing", "ring"],
        "endpoint-delay": 10.7,
        "boost-mode": 1,
        "G": 0.5,
    }
    notes = "\n".join(values_in_effect("system", values, network=network).notes)
    assert "halvingDoubling on 6 NPUs (dimension 0), not a power of two" in notes
    assert "dimensions 1 take no part" in notes
    assert "oneRing spans all NPUs" in notes
    assert "'endpoint-delay' counts as 10" in notes
    assert "'boost-mode' has no effect" in notes
    assert "L, o, g and G have no effect" in notes
    assert "no algorithm for reduce-scatter-implementation, all-to-all-implementation" in notes
    head = "\n".join(values_in_effect("system", {"x": 1, "trace-enabled": False}, compat="astra-sim").notes)
    assert "'x' is ignored" in head
    assert "'trace-enabled' is false, which ASTRA-sim takes for true" in head
    assert values_in_effect("network", two).notes[0].startswith("24 NPUs")
    assert values_in_effect("memory", {}).rows[0].value == "NO_MEMORY_EXPANSION"


def test_every_kind_of_file_is_known_by_its_content(chakra: Chakra, ring8: Path) -> None:
    """Links, GraphML, studies, platforms, custom algorithms per node, speed factors: each key with value and default."""
    files = {
        "star.yml": "npus_count: [2]\nbandwidth: 50\nlatency: 500\n"
        "links:\n- [0, hub]\n- {from: hub, to: 1, bandwidth: 9}\n",
        "study.yml": "workload: {kind: mlp, dp: 2}\nplatform: hgx-h100\nparameters: {workload.micro-batch: [1, 2, 4]}\n",
        "nodes.yml": "3: algorithms/star\n",
        "scale.txt": "# slow\n6-7 1.5\n",
    }
    for name, text in files.items():
        (ring8 / name).write_text(text)
    out = chakra("check-config", "star.yml").out
    for of_links in LINK_KEYS:
        assert re.search(rf"^  {of_links.name} ", out, re.MULTILINE), of_links.name
    assert "bandwidth     50 GB/s of 2^30 B/s  [star.yml:2; default: none]" in out
    assert "ecmp          hash  [default: hash]" in out
    assert "2 NPUs and 1 switch; 4 links" in out
    assert "links of 9 to 50 GB/s of 2^30 B/s, 500 ns; every NPU can send 9 GB/s or more" in out

    out = chakra("check-config", "study.yml", "nodes.yml").out
    for key in (*STUDY_KEYS, *workload_keys("mlp")):
        assert key.name in out
    assert "workload.micro-batch        [1, 2, 4]" in " ".join(
        out.split("  [study.yml:3")[0].splitlines()[-1:]
    )
    assert "workload.dp                 2  [study.yml:1" in out
    assert "note: 3 points" in out
    assert "node 3: custom algorithm algorithms/star" in out

    out = chakra("check-config", "scale.txt", "network.yml").out
    assert "NPU 6: compute times x 1.5" in out
    assert "NPU 5" not in out
    assert "network that has the NPUs" in chakra("check-config", "scale.txt").err


def test_what_a_study_varies_stands_once_in_its_place(chakra: Chakra, ring8: Path) -> None:
    (ring8 / "study.yml").write_text(
        "workload: {kind: transformer, layers: 4}\n"
        "system: {preferred-dataset-splits: 4}\n"
        "parameters: {workload.tp: [4, 8], platform: [hgx-h100, hgx-b200], system.preferred-dataset-splits: [1, 2],\n"
        "             network.dim0.latency: [1, 2]}\n"
    )
    [part] = json.loads(chakra("check-config", "study.yml", "--format", "json").out)["files"]
    keys = [row["key"] for row in part["values"]]
    assert len(set(keys)) == len(keys)
    rows = {row["key"]: row for row in part["values"]}
    assert rows["workload.tp"]["value"] == [4, 8]
    assert (rows["workload.tp"]["default"], rows["workload.tp"]["source"]) == ("1", "study.yml:3")
    assert keys.index("workload.tp") < keys.index("system.preferred-dataset-splits") < keys.index("method")
    assert rows["platform"]["value"] == ["hgx-h100", "hgx-b200"]
    assert rows["system.preferred-dataset-splits"]["value"] == [1, 2]
    assert rows["network.dim0.latency"]["value"] == [1, 2]


def test_every_preset_is_explained(chakra: Chakra, ring8: Path) -> None:
    folder = resources.files("chakra").joinpath("presets")
    presets = sorted((path for path in folder.iterdir() if path.is_file()), key=lambda path: path.name)
    for preset in presets:
        (ring8 / preset.name).write_text(preset.read_text(encoding="utf-8"))
    outcome = chakra("check-config", *(preset.name for preset in presets))
    assert outcome.code == 0
    assert outcome.out.count("platform: ") == len(presets)
    assert outcome.out.count("accelerator.peak_tflops") == len(presets)
    assert "989 10^12 dense 16-bit op/s" in outcome.out
    assert "datasheet: NVIDIA H100 datasheet (dense BF16)" in " ".join(outcome.out.split())


def test_graphml_is_a_network(chakra: Chakra, ring8: Path) -> None:
    nx = pytest.importorskip("networkx")
    graph = nx.Graph()
    graph.add_edge(0, "hub", bandwidth=50.0, latency=500.0)
    graph.add_edge(1, "hub", bandwidth=50.0, latency=500.0)
    nx.write_graphml(graph, ring8 / "star.graphml")
    out = chakra("check-config", "star.graphml").out
    assert "network: star.graphml" in out
    assert "4 links" in out


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.yml", "npus_count: [2]\nlinks: [[0, 1, 50, 500]]\nroutng: hops\n", "did you mean 'routing'"),
        ("a.yml", "npus_count: [2]\nlinks: [[0, 1]]\n", "'bandwidth' is missing"),
        ("a.yml", "workload: {kind: mlp, widhts: [1]}\nplatform: hgx-h100\n", "did you mean 'widths'"),
        ("a.yml", "workload: {kind: toaster}\nplatform: hgx-h100\n", 'no workload "toaster"; there are: '),
        ("a.yml", "workload: {kind: mlp}\nplatform: hgx-h100\nobjectve: x\n", "unknown key 'objectve'"),
        ("a.yml", "accelerator: {}\ndims: []\n", "name must be a text"),
        (
            "a.yml",
            "name: x\ntitle: x\naccelerator: {name: x, peak_tflop: 3}\ndims: []\n",
            "did you mean 'peak_tflops'",
        ),
        ("a.yml", "3: [x]\n", "must map to a path prefix"),
        ("a.yml", "- 3\n", "expected `key: value` lines"),
        ("a.graphml", "<nonsense", "not a GraphML file"),
        ("a.txt", "nonsense\n", "expected `NPU factor`"),
        ("a.json", "", "a.json"),
        ("missing.yml", None, "missing.yml: cannot be read"),
    ],
)
def test_wrong_files_of_every_kind(
    chakra: Chakra, ring8: Path, name: str, text: str | None, message: str
) -> None:
    if text is not None:
        (ring8 / name).write_text(text)
    outcome = (
        chakra("check-config", name, "-n", "network.yml") if name == "a.txt" else chakra("check-config", name)
    )
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err
    assert outcome.err.count("\n") == 1


@pytest.mark.parametrize(
    ("parameters", "note"),
    [
        ("workload.micro-batch: {range: [1, 4]}", "note: 4 points"),
        ("workload.micro-batch: {range: [1, 8], count: 4, log: true}", "1 to 8, 4 values, logarithmic"),
        ("workload.micro-batch: {range: [1, 9], step: 4}", "1 to 9 in steps of 4"),
        (
            "network.dim0.latency: {range: [0, 999999]}",
            "note: up to 1000000 points before constraints",
        ),
        ("network.dim0.latency: {range: [1, 9], count: 1000000}", "note: up to 1000000 points"),
    ],
)
def test_large_studies_are_counted_not_listed(
    chakra: Chakra, ring8: Path, parameters: str, note: str
) -> None:
    text = f"workload: {{kind: mlp}}\nplatform: hgx-h100\nparameters:\n  {parameters}\n"
    (ring8 / "study.yml").write_text(text)
    start = time.monotonic()
    outcome = chakra("check-config", "study.yml")
    assert outcome.code == 0
    assert note in outcome.out
    assert time.monotonic() - start < 10


def test_a_study_of_too_many_points_is_refused(chakra: Chakra, ring8: Path) -> None:
    """Before it is run, with the file and the number."""
    ranges = "{network.dim0.latency: {range: [1, 1000]}, network.dim0.bandwidth: {range: [1, 1001]}}"
    text = f"workload: {{kind: mlp}}\nplatform: hgx-h100\nparameters: {ranges}\n"
    (ring8 / "study.yml").write_text(text)
    outcome = chakra("check-config", "study.yml")
    assert outcome.code == 2
    assert "study.yml: 1001000 combinations: more than 1000000" in outcome.err


def test_a_range_that_cannot_be_crossed_is_told(chakra: Chakra, ring8: Path) -> None:
    text = (
        "workload: {kind: mlp}\nplatform: hgx-h100\nparameters:\n  network.dim0.latency: {range: [0.5, 1]}\n"
    )
    (ring8 / "study.yml").write_text(text)
    assert "needs a step or a count" in chakra("check-config", "study.yml").err
