"""Remote-memory and communicator-group files."""

from pathlib import Path
from typing import Any

import pytest

from chakra.errors import ConfigError
from chakra.replay.config import (
    Memory,
    MemoryKind,
    check_fit,
    load_groups,
    load_memory,
    load_network,
    load_system,
)

PER_NODE = {"memory-type": "PER_NODE_MEMORY_EXPANSION", "num-nodes": 2, "num-npus-per-node": 2}


def test_memory_defaults() -> None:
    assert load_memory(None) == Memory()
    assert load_memory({}) == Memory()
    assert load_memory({}, compat="astra-sim").kind is MemoryKind.NONE


def test_memory_numbers_are_truncated() -> None:
    memory = load_memory({"memory-type": "MEMORY_POOL", "remote-mem-latency": 100.9, "remote-mem-bw": 50.9})
    assert (memory.kind, memory.latency_ns, memory.bytes_per_ns) == (MemoryKind.POOL, 100, 50)
    assert load_memory(memory) is memory


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"memory-type": "CXL"}, "'memory-type' must be one of NO_MEMORY_EXPANSION"),
        ({"memory-type": "MEMORY_POOLS"}, "did you mean 'MEMORY_POOL'"),
        ({"remote-mem-latency": -1}, "'remote-mem-latency' must be a whole number of ns from 0"),
        ({"remote-mem-bw": "50"}, 'found "50"'),
        ({"remote-mem-bandwidth": 50}, "is unknown; did you mean 'remote-mem-bw'"),
        ({**PER_NODE, "num-nodes": 0}, "'num-nodes' must be a whole number from 1"),
        ({"memory-type": "PER_NODE_MEMORY_EXPANSION", "num-nodes": 1}, "'num-npus-per-node' is missing"),
    ],
)
def test_wrong_memory_names_the_key(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_memory(values)


def test_every_npu_needs_a_memory_node() -> None:
    network = load_network({"topology": ["Ring"], "npus_count": [8], "bandwidth": [1], "latency": [1]})
    with pytest.raises(ConfigError, match="serves 4 NPUs, but the network has 8"):
        check_fit(network, load_system({}), load_memory(PER_NODE))
    check_fit(network, load_system({}), load_memory({**PER_NODE, "num-nodes": 4}))


def test_any_string_names_a_group() -> None:
    """C18; the order of the ranks is kept."""
    assert load_groups({"tp": [3, 1], "7": (0, 2), "empty": [0]}) == {
        "tp": (3, 1),
        "7": (0, 2),
        "empty": (0,),
    }
    numbered: dict[Any, Any] = {5: [0, 1]}
    assert load_groups(numbered) == {"5": (0, 1)}


def test_compat_group_names_are_leading_integers() -> None:
    """C18."""
    assert load_groups({"7b": [0, 1], " 8": [2, 3], "tp": [4]}, compat="astra-sim") == {
        "7": (0, 1),
        "8": (2, 3),
        "tp": (4,),
    }
    assert load_groups({"1": [0], "1b": [2]}, compat="astra-sim") == {"1": (2,)}
    with pytest.raises(ConfigError, match="numbered from 1"):
        load_groups({"-3": [0]}, compat="astra-sim")


def test_digits_of_group_names_are_those_of_ascii_and_as_many_as_there_are() -> None:
    """A superscript two and 5,000 digits are more than `int` takes, and ended in an internal error."""
    from chakra.replay.workload.bindings import group_name

    names = {
        "²": "²",
        "1²": "1",
        "+07b": "7",
        "-0": "",
        "-012": "-12",
        "9" * 5000 + "x": "9" * 5000,
        "٣": "٣",
    }
    assert {name: group_name(name, astra=True) for name in names} == names


def test_no_groups(tmp_path: Path) -> None:
    """C22: only the exact word means none; ASTRA-sim takes any path that contains it."""
    assert load_groups(None) == {}
    assert load_groups("empty") == {}
    path = tmp_path / "nonempty.json"
    path.write_text('{"1": [0, 1]}')
    assert load_groups(path) == {"1": (0, 1)}
    assert load_groups(path, compat="astra-sim") == {}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"0": [0]}, "<groups>: key '0' cannot be defined: this name stands for the group of all ranks"),
        ({"": [0]}, "key '' cannot be defined"),
        ({"a": []}, "must be a list of ranks, found an empty list"),
        ({"a": 3}, "found 3"),
        ({"a": [0, 0]}, "has rank 0 twice"),
        ({"a": [-1]}, "found -1 in it"),
        ({"a": [True]}, "found true in it"),
        ({"a": ["1"]}, 'found "1" in it'),
        ({"a": [8]}, r"has rank 8, but the network has 8 NPUs \(0 to 7\)"),
        ({True: [0]}, "must be a text"),
    ],
)
def test_wrong_groups_name_the_group(values: dict[Any, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_groups(values, npus=8)


def test_a_group_file_that_is_not_an_object(tmp_path: Path) -> None:
    path = tmp_path / "g.json"
    path.write_text("[[0, 1]]")
    with pytest.raises(ConfigError, match=r"g\.json: expected a JSON object"):
        load_groups(path)
    path.write_text('{"a": [0],\n "a": [1]}')
    with pytest.raises(ConfigError, match=r"g\.json:2: key 'a' is given twice"):
        load_groups(path)
