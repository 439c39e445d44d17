"""System files: values, defaults, both modes, messages."""

import contextlib
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chakra.errors import ConfigError
from chakra.replay.config import (
    CollectiveKind,
    SharedBus,
    System,
    check_fit,
    load_network,
    load_per_node_custom,
    load_system,
)
from chakra.replay.config.keys import SYSTEM_KEYS

SWITCHES = {
    "roofline-enabled": "roofline",
    "trace-enabled": "trace_enabled",
    "replay-only": "replay_only",
    "track-local-mem": "track_local_mem",
}
ROOFLINE = {"peak-perf": 900, "local-mem-bw": 1600}


@pytest.mark.parametrize("compat", [None, "astra-sim", "astra-sim-1.0"])
def test_absent_keys_have_the_documented_defaults(compat: str | None) -> None:
    """C14, D21."""
    system = load_system({}, compat=compat)
    assert system == System(source="<system>")
    assert (system.scheduling_policy, system.collective_optimization) == ("LIFO", "baseline")
    assert (system.endpoint_delay_ns, system.endpoint_delay_given) == (10, False)
    assert (system.active_chunks, system.splits, system.local_reduction_delay) == (1, 1, 1)
    assert system.peak_perf_tflops is None


def test_a_full_file(tmp_path: Path) -> None:
    values = {
        "scheduling-policy": "FIFO",
        "endpoint-delay": 37,
        "active-chunks-per-dimension": 2,
        "preferred-dataset-splits": 4,
        "all-reduce-implementation": ["ring", "direct007"],
        "all-to-all-implementation": ["oneDirect12"],
        "all-gather-implementation-custom": ["folder/ag"],
        "per-node-custom-implementation": "nodes.yaml",
        "collective-optimization": "localBWAware",
        "local-mem-bw": 1600.5,
        "peak-perf": 900,
        "roofline-enabled": True,
        "trace-enabled": 1,
        "model-shared-bus": 1,
        "L": 10.9,
        "o": 5,
        "g": 5,
        "G": 0.01,
        "local-reduction-delay": 7,
        "inter-dimension-scheduling": "themis",
        "intra-dimension-scheduling": "SCF",
        "boost-mode": 0,
        "local-mem-trace-filename": "m",
    }
    path = tmp_path / "system.json"
    path.write_text("\ufeff" + json.dumps(values), encoding="utf-8")
    system = load_system(path)
    assert system.implementations == {
        CollectiveKind.ALL_REDUCE: ("ring", "direct7"),
        CollectiveKind.ALL_TO_ALL: ("oneDirect12",),
    }
    assert system.custom == {CollectiveKind.ALL_GATHER: "folder/ag"}
    assert system.per_node_custom == "nodes.yaml"
    assert system.endpoint_delay_given
    assert system.shared_bus == SharedBus(10, 5, 5, struct.unpack("f", struct.pack("f", 0.01))[0])
    assert system.inter_dimension_scheduling == "offlineGreedy"
    assert system.intra_dimension_scheduling == "smallestFirst"
    head = load_system(path, compat="astra-sim")
    assert (head.inter_dimension_scheduling, head.intra_dimension_scheduling) == ("ascending", "FIFO")
    assert load_system(system) is system


@pytest.mark.parametrize(("key", "name"), sorted(SWITCHES.items()))
@pytest.mark.parametrize(
    ("value", "default", "head"),
    [
        (True, True, True),
        (False, False, True),
        (1, True, True),
        (0, False, False),
        (0.0, False, False),
        (2, None, True),
        (None, None, True),
        ("no", None, True),
    ],
)
def test_switches(key: str, name: str, value: Any, default: bool | None, head: bool) -> None:
    """C14: booleans are booleans; ASTRA-sim switches on for everything but the number 0."""
    assert getattr(load_system({**ROOFLINE, key: value}, compat="astra-sim"), name) is head
    if default is None:
        with pytest.raises(ConfigError, match=f"key '{key}' must be true or false"):
            load_system({**ROOFLINE, key: value})
    else:
        assert getattr(load_system({**ROOFLINE, key: value}), name) is default


@pytest.mark.parametrize(("value", "on"), [(True, True), (1, True), (False, False), (0, False)])
def test_the_shared_bus_switch(value: Any, on: bool) -> None:
    for compat in (None, "astra-sim"):
        assert (load_system({"model-shared-bus": value}, compat=compat).shared_bus is not None) is on
    assert load_system({"model-shared-bus": 2}, compat="astra-sim").shared_bus is None


@given(st.floats(0, 1e30))
def test_bus_numbers_have_single_precision(value: float) -> None:
    bus = load_system({"model-shared-bus": True, "L": value, "G": value}).shared_bus
    assert bus is not None
    single = struct.unpack("f", struct.pack("f", value))[0]
    assert (bus.latency, bus.gap_per_byte) == (int(single), single)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"schedulling-policy": "LIFO"}, "'schedulling-policy' is unknown; did you mean 'scheduling-policy'"),
        ({"npus_count": 1}, "'npus_count' is unknown here: it belongs to a network file"),
        ({"zzzz": 1}, "'zzzz' is unknown; known keys: G, L, active-chunks"),
        (
            {"scheduling-policy": "lifo"},
            "must be one of LIFO, FIFO, EXPLICIT, found \"lifo\"; did you mean 'LIFO'",
        ),
        ({"scheduling-policy": 3}, "found 3"),
        ({"endpoint-delay": -1}, "'endpoint-delay' must be a whole number of ns from 0"),
        ({"endpoint-delay": True}, "found true"),
        ({"endpoint-delay": "10"}, 'found "10"'),
        ({"endpoint-delay": 1e300}, "found 1e\\+300"),
        ({"endpoint-delay": 10**500}, "'endpoint-delay'"),
        ({"endpoint-delay": float("nan")}, "found nan"),
        ({"endpoint-delay": 2**31}, "found 2147483648"),
        ({"active-chunks-per-dimension": 0}, "from 1 to"),
        ({"preferred-dataset-splits": 0.5}, "from 1 to .* found 0.5"),
        ({"local-mem-bw": -1}, "'local-mem-bw' must be a finite number of 0 or more .GB/s., found -1"),
        ({"local-mem-bw": False}, "found false"),
        ({"peak-perf": 0}, "'peak-perf' must be a finite number above 0 .TFLOP/s., found 0"),
        ({"roofline-enabled": 1, "local-mem-bw": 1}, "'peak-perf' is missing"),
        ({"roofline-enabled": 1, "peak-perf": 1}, "'local-mem-bw' must be above 0"),
        ({"G": 1e39}, "'G' must fit single precision"),
        ({"L": -1}, "'L' must be"),
        ({"all-reduce-implementation": "ring_ring"}, r"such as \[\"ring\", \"ring\"\]"),
        (
            {"all-reduce-implementation": ["Ring"]},
            "has \"Ring\", which is not an algorithm; did you mean 'ring'",
        ),
        ({"all-reduce-implementation": ["direct0"]}, "window of 0"),
        ({"all-reduce-implementation": ["direct123456"]}, "not an algorithm"),
        ({"all-reduce-implementation": ["direct-1"]}, "not an algorithm"),
        ({"all-reduce-implementation": [1]}, "has 1, which"),
        ({"all-reduce-implementation": None}, "must be a list"),
        ({"all-reduce-implementation": []}, "is an empty list"),
        ({"all-reduce-implementation-custom": []}, "exactly one path prefix.* found a list of 0"),
        ({"all-reduce-implementation-custom": "x"}, 'found "x"'),
        ({"per-node-custom-implementation": 3}, "must be a text, found 3"),
        ({"inter-dimension-scheduling": "roundrobin"}, "did you mean 'roundRobin'"),
        ({"intra-dimension-scheduling": "LIFO"}, "'intra-dimension-scheduling' must be one of FIFO"),
        ({"boost-mode": "x"}, "'boost-mode'"),
        ({"local-mem-trace-filename": ""}, "must be a text"),
    ],
)
def test_wrong_values_name_the_key(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load_system(values)
    assert str(caught.value).startswith("<system>: key '")


def test_compat_reads_as_head_does() -> None:
    """C14: unknown keys ignored, C++ conversions of numbers, windows read by their first digits."""
    system = load_system(
        {
            "x": 1,
            "boost-mode": "?",
            "endpoint-delay": 7.9,
            "active-chunks-per-dimension": True,
            "all-reduce-implementation": ["direct2abc", "oneDirect00003"],
            "all-gather-implementation": [],
            "inter-dimension-scheduling": "anything",
        },
        compat="astra-sim",
    )
    assert system.endpoint_delay_ns == 7
    assert system.active_chunks == 1
    assert system.implementations == {CollectiveKind.ALL_REDUCE: ("direct2", "oneDirect3")}


def test_fractions_are_dropped_in_both_modes() -> None:
    assert load_system({"endpoint-delay": 7.9}).endpoint_delay_ns == 7


def test_joined_algorithm_lists_of_1_0() -> None:
    """Replay semantics, section 7.1."""
    system = load_system({"all-reduce-implementation": "ring_halvingDoubling"}, compat="astra-sim-1.0")
    assert system.implementations[CollectiveKind.ALL_REDUCE] == ("ring", "halvingDoubling")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "s.json:1:1: not valid JSON"),
        ('{"L": 1,}', r"s\.json:1:[89]: not valid JSON"),
        ('{"L": 1}}', r"s\.json:1:9: not valid JSON: extra data"),
        ("[]", "expected a JSON object .* found an empty list"),
        ("7", "found 7"),
        ('{"L": NaN}', "NaN is not a JSON value"),
        ('{"L": 1,\n"o": 2,\n"L": 3}', r"s\.json:3: key 'L' is given twice"),
        ('{"L": ' + "9" * 5000 + "}", "not usable JSON|single precision"),
        ("[" * 100000, "not usable JSON|not valid JSON"),
        ("scheduling-policy: LIFO\nendpoint-delay: 10\n", "chakra convert config"),
    ],
)
def test_wrong_files_name_the_place(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "s.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        load_system(path)
    assert "\n" not in str(caught.value)


def test_of_two_equal_keys_head_takes_the_last(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text('{"preferred-dataset-splits": 2, "preferred-dataset-splits": 3}')
    assert load_system(path, compat="astra-sim").splits == 3


def test_a_longer_algorithm_list_than_dimensions() -> None:
    network = load_network({"topology": ["Ring"], "npus_count": [4], "bandwidth": [1], "latency": [1]})
    check_fit(network, load_system({"all-reduce-implementation": ["ring"]}))
    with pytest.raises(ConfigError, match="names 2 algorithms, but the network"):
        check_fit(network, load_system({"all-reduce-implementation": ["ring", "ring"]}))


def test_per_node_custom_maps(tmp_path: Path) -> None:
    path = tmp_path / "nodes.yaml"
    path.write_text("3: a/b\n4: 'c'\n")
    assert load_per_node_custom(str(path)) == {3: "a/b", 4: "c"}
    for text, message in (("x: a\n", "nodes.yaml:1: key 'x'"), ("1: a\n2: [b]\n", "nodes.yaml:2: key '2'")):
        path.write_text(text)
        with pytest.raises(ConfigError, match=message):
            load_per_node_custom(str(path))


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=5,
)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    st.dictionaries(st.sampled_from([key.name for key in SYSTEM_KEYS]), JSON_VALUES, max_size=6),
    st.sampled_from([None, "astra-sim", "astra-sim-1.0"]),
)
def test_any_values_load_or_raise_a_config_error(values: dict[str, Any], compat: str | None) -> None:
    system = None
    with contextlib.suppress(ConfigError):
        system = load_system(values, compat=compat)
    assert system is None or (
        system.splits >= 1 and system.active_chunks >= 1 and system.endpoint_delay_ns >= 0
    )


def test_names_of_step_tables_are_those_of_the_registry() -> None:
    """The configuration knows the names without importing the algorithms."""
    from chakra.replay.collectives import registry
    from chakra.replay.config.algorithms import STEP_ALGORITHMS

    assert tuple(registry.OURS) == STEP_ALGORITHMS
