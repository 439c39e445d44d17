"""Network files: what is read, and what a wrong file is told."""

import math
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chakra.builder import TraceBuilder
from chakra.errors import ConfigError
from chakra.io.yaml import general_entries, plain_entries
from chakra.replay import simulate
from chakra.replay.config import Dimension, Network, Topology, dump_network, load_network

GOOD: dict[str, list[Any]] = {
    "topology": ["Ring"],
    "npus_count": [8],
    "bandwidth": [50.0],
    "latency": [500.0],
}


def test_a_file_and_the_same_dict_are_equal(tmp_path: Path) -> None:
    path = tmp_path / "network.yml"
    path.write_text(
        "topology: [ Ring, Switch ]  # two\nnpus_count: [4, 2]\nbandwidth: [50, 1e2]\nlatency: [.5, 0]\n"
    )
    network = load_network(path)
    assert network.dims == (Dimension(Topology.RING, 4, 50.0, 0.5), Dimension(Topology.SWITCH, 2, 100.0, 0.0))
    assert network.npus == 8
    assert network.source == str(path)
    assert load_network(network) is network
    assert (
        load_network(
            {
                "topology": ["Ring", "Switch"],
                "npus_count": [4, 2],
                "bandwidth": [50, 100],
                "latency": [0.5, 0],
            }
        ).dims
        == network.dims
    )


def test_block_style_and_crlf_are_yaml_too(tmp_path: Path) -> None:
    path = tmp_path / "n.yml"
    path.write_bytes(
        b"topology:\r\n  - Ring\r\nnpus_count: [8]\r\nbandwidth: ['50']\r\nlatency:\r\n- 500\r\n"
    )
    with pytest.raises(ConfigError, match=r"n\.yml:4: key 'bandwidth' entry 0 .* found \"50\""):
        load_network(path)
    path.write_bytes(path.read_bytes().replace(b"'50'", b"50"))
    assert load_network(path).dims == load_network(GOOD).dims


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"topology": ["ring"]},
            "key 'topology' entry 0 must be one of .* found \"ring\"; did you mean 'Ring'",
        ),
        ({"topology": ["Switsch"]}, "did you mean 'Switch'"),
        ({"topology": [7]}, "found 7"),
        ({"topology": "Ring"}, "'topology' must be a list of topologies.* found \"Ring\""),
        ({"topology": []}, "empty list"),
        ({"npus_count": [0]}, "'npus_count' entry 0 .* at least 1, found 0"),
        ({"npus_count": [8.0]}, "found 8.0"),
        ({"npus_count": [True]}, "found true"),
        ({"npus_count": ["8"]}, 'found "8"'),
        ({"npus_count": [8, 8]}, "has 2 entries, but 'topology' has 1"),
        ({"npus_count": [2**40]}, "'npus_count' entry 0"),
        ({"bandwidth": [0]}, "'bandwidth' entry 0 must be a number of GB/s above 0, found 0"),
        ({"bandwidth": [-1]}, "found -1"),
        ({"bandwidth": [math.inf]}, "found inf"),
        ({"bandwidth": [math.nan]}, "found nan"),
        ({"bandwidth": [10**400]}, "'bandwidth'"),
        ({"bandwidth": ["tbd"]}, 'found "tbd"'),
        ({"bandwidth": [None]}, "found null"),
        ({"bandwidth": 50}, "must be a list"),
        ({"latency": [-0.5]}, "'latency' entry 0 must be a number of ns, 0 or more, found -0.5"),
        ({"latencies": [1]}, "key 'latencies' is unknown; did you mean 'latency'"),
        ({"dimensions-count": 1}, "chakra convert config"),
    ],
)
def test_wrong_values_name_the_key(change: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_network({**GOOD, **change})


@pytest.mark.parametrize("key", sorted(GOOD))
def test_every_key_is_needed(key: str) -> None:
    with pytest.raises(ConfigError, match=f"<network>: key '{key}' is missing"):
        load_network({k: v for k, v in GOOD.items() if k != key})


def test_too_many_npus() -> None:
    with pytest.raises(ConfigError, match="more than"):
        load_network({k: v * 5 for k, v in {**GOOD, "npus_count": [1000]}.items()})


def test_unknown_keys_are_ignored_as_head_does() -> None:
    """C14."""
    assert load_network({**GOOD, "comment": "x"}, compat="astra-sim").npus == 8
    with pytest.raises(ConfigError, match="compat must be"):
        load_network(GOOD, compat="astrasim")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "n.yml: the file is empty"),
        ("# only a comment\n", "the file is empty"),
        ("- Ring\n", "n.yml:1: expected `key: value` lines, found a sequence"),
        (
            "topology: [ Ring ]\ntopology: [ Ring ]\n",
            "n.yml:2: key 'topology' is given twice .first on line 1",
        ),
        ("topology: [ Ring\n", "n.yml:2:1: not valid YAML"),
        ("topology: &a [ *a ]\n", "not valid YAML|nested"),
        ("? [1]\n: 2\n", "n.yml:1: a key must be"),
        (
            "topology: [ Ring ]\nnpus_count: [ 010 ]\nbandwidth: [ 1 ]\nlatency: [ 1 ]\n",
            'n.yml:2: .* found "010"',
        ),
        ("topology: [ Ring ]\nnpus_count: [ 0x8 ]\nbandwidth: [ 1 ]\nlatency: [ 1 ]\n", 'found "0x8"'),
        ("topology: [ Ring ]\nnpus_count: [ 8 ]\nbandwidth: [ .inf ]\nlatency: [ 1 ]\n", "'bandwidth'"),
        ("a: " + "[" * 3000, "not valid YAML|nested"),
        ("a: \x01\n", "not valid YAML"),
    ],
)
def test_wrong_files_name_the_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "n.yml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        load_network(path)
    assert "\n" not in str(caught.value)


def test_aliases_of_aliases_are_refused(tmp_path: Path) -> None:
    """Nineteen lines that stand for 2 * 9**18 values: expanding them would not end."""
    lines = ["a0: &a0 [x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 19)]
    path = tmp_path / "network.yml"
    path.write_text("\n".join(lines))
    with pytest.raises(ConfigError, match="its aliases stand for more than"):
        load_network(path)


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yml: cannot be read: No such file"):
        load_network(tmp_path / "none.yml")
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load_network(tmp_path)
    (tmp_path / "bin.yml").write_bytes(b"a\xff\xfe")
    with pytest.raises(ConfigError, match="byte 1 is not UTF-8"):
        load_network(tmp_path / "bin.yml")


dimensions = st.builds(
    Dimension,
    st.sampled_from(Topology),
    st.integers(2, 9),
    st.floats(1e-6, 1e9),
    st.floats(0, 1e9),
)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(dimensions, min_size=1, max_size=6))
def test_a_written_network_reads_back(
    tmp_path_factory: pytest.TempPathFactory, dims: list[Dimension]
) -> None:
    path = tmp_path_factory.getbasetemp() / "written.yml"
    path.write_text(dump_network(Network(tuple(dims))))
    assert load_network(path).dims == tuple(dims)


TOKENS = st.sampled_from(
    [
        "a",
        "Ring",
        "1",
        "1.5",
        "1e9",
        "-",
        "-1",
        "+",
        ".5",
        "5.",
        "010",
        "true",
        "null",
        "~",
        "no",
        "---",
        "...",
        "#x",
        ".",
    ]
)
LINES = st.one_of(
    st.builds(
        lambda key, gap, items, pad, tail: f"{key}:{gap}[{pad}{', '.join(items)}{pad}]{tail}",
        st.sampled_from(["a", "b", "on", "null", "a b"]),
        st.sampled_from([" ", "", "  "]),
        st.lists(TOKENS, max_size=4),
        st.sampled_from(["", " "]),
        st.sampled_from(["", " # c", "# c", "#", " ", "]"]),
    ),
    st.sampled_from(["", "# c", "   # c", "  ", "a: b", "\t", "- x", "a: &x [1]"]),
)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(LINES, max_size=5))
def test_the_fast_reader_equals_the_yaml_library(lines: list[str]) -> None:
    """Whatever the fast reader accepts, the YAML library reads as the same entries on the same lines."""
    text = "\n".join(lines)
    plain = plain_entries(text)
    if plain is not None:
        general = general_entries("x", text)
        assert repr(plain) == repr(general)


@pytest.mark.parametrize("topology", ["Ring", "Switch", "FullyConnected"])
@pytest.mark.parametrize("backend", ["unaware", "aware"])
def test_a_machine_of_one_npu(topology: str, backend: Literal["unaware", "aware"]) -> None:
    """Its computes take their time, and a collective of one member ends at once; ASTRA-sim refuses the file."""
    one = {"topology": [topology], "npus_count": [1], "bandwidth": [50], "latency": [500]}
    builder = TraceBuilder()
    first = builder.compute("first", duration_micros=5)
    reduced = builder.collective("all_reduce", size_bytes=1 << 20, after=first)
    builder.compute("second", duration_micros=7, after=reduced)
    result = simulate([builder.build()], {"all-reduce-implementation": ["ring"]}, one, backend=backend)
    assert result.finish_ns.tolist() == [12_000]
    assert result.to_dict(nodes=True)["dimensions"][0]["bytes_per_npu"] == 0
    with pytest.raises(ConfigError, match="at least 2, found 1"):
        load_network(one, compat="astra-sim")


def test_one_npu_in_one_of_several_dimensions_is_refused() -> None:
    several = {"topology": ["Ring"] * 2, "npus_count": [1, 4], "bandwidth": [50] * 2, "latency": [500] * 2}
    with pytest.raises(ConfigError, match="entry 0 must be a whole number of NPUs, at least 2, found 1"):
        load_network(several)
