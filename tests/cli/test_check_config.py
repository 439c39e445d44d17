"""`chakra check-config`: every value with unit, default, source and meaning."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chakra.replay.config.explain import explain_memory, explain_network, explain_system
from chakra.replay.config.keys import MEMORY_KEYS, NETWORK_KEYS, SYSTEM_KEYS

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
    notes = "\n".join(explain_system(values, network=network).notes)
    assert "halvingDoubling on 6 NPUs (dimension 0), not a power of two" in notes
    assert "dimensions 1 take no part" in notes
    assert "oneRing spans all NPUs" in notes
    assert "'endpoint-delay' counts as 10" in notes
    assert "'boost-mode' has no effect" in notes
    assert "L, o, g and G have no effect" in notes
    assert "no algorithm for reduce-scatter-implementation, all-to-all-implementation" in notes
    head = "\n".join(explain_system({"x": 1, "trace-enabled": False}, compat="astra-sim").notes)
    assert "'x' is ignored" in head
    assert "'trace-enabled' is false, which ASTRA-sim takes for true" in head
    assert explain_network(two).notes[0].startswith("24 NPUs")
    assert explain_memory({}).rows[0].value == "NO_MEMORY_EXPANSION"
