"""What `--backend ns3` says and refuses before anything is simulated; ns-3 itself is not needed."""

import importlib.util
import platform
import sys
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench_packets import collective
from packet_runs import pair, sends, star, system

from chakra.cli.main import entry
from chakra.errors import ConfigError, UsageError
from chakra.replay import simulate
from chakra.replay.config import dump_network, load_network
from chakra.replay.config.model import Packets
from chakra.replay.config.packet_keys import DCTCP_THRESHOLD, PACKET_KEYS
from chakra.replay.config.packets import queue_of, threshold_of
from chakra.replay.config.values_in_effect import values_in_effect
from chakra.replay.networks.ns3 import library, network
from chakra.replay.networks.ns3.network import Ns3Network, estimate, with_packets

ROOT = Path(__file__).resolve().parents[2]
BLOCKS = {"topology": ["Ring"], "npus_count": [4], "bandwidth": [50], "latency": [500]}
Version = namedtuple("Version", "major minor micro")


def without(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """As if packages were not installed."""
    real = importlib.util.find_spec

    def find_spec(name: str, package: str | None = None) -> Any:
        return None if name in names else real(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)


def test_a_missing_wheel_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch, "ns3", "cppyy")
    monkeypatch.setattr(sys, "version_info", Version(3, 12, 1))
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    traces = ROOT / "traces" / "allreduce_ring8"
    command = ["replay", "-w", str(traces / "workload"), "-s", str(traces / "system.json")]
    with pytest.raises(SystemExit) as stop:
        entry([*command, "-n", str(traces / "network.yml"), "--backend", "ns3"])
    out, err = capsys.readouterr()
    assert (stop.value.code, out) == (2, "")
    assert err.strip() == (
        "chakra: error: backend: 'ns3' needs the package ns3, which is not installed: "
        'pip install "chakra-replay[ns3]"'
    )


@pytest.mark.parametrize(
    ("version", "system_name", "machine", "said"),
    [
        (
            (3, 14, 0),
            "linux",
            "x86_64",
            "with Python 3.11, 3.12, 3.13; there is no wheel for this Python 3.14",
        ),
        ((3, 12, 0), "linux", "aarch64", "on Linux on x86-64; there is no wheel for linux on aarch64"),
        ((3, 12, 0), "darwin", "arm64", "on Linux on x86-64; there is no wheel for darwin on arm64"),
    ],
)
def test_where_there_is_no_wheel_that_is_said(
    monkeypatch: pytest.MonkeyPatch, version: tuple[int, int, int], system_name: str, machine: str, said: str
) -> None:
    without(monkeypatch, "ns3")
    monkeypatch.setattr(sys, "version_info", Version(*version))
    monkeypatch.setattr(sys, "platform", system_name)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    with pytest.raises(UsageError) as caught:
        library.require_ns3()
    assert str(caught.value).endswith(f'pip install "chakra-replay[ns3]" {said}')


def test_another_package_of_that_name_is_told_from_the_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ns3", "cppyy"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match="has no libraries and headers of ns-3"):
        library.require_ns3()


def test_the_wheel_is_asked_for_before_the_traces_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "ns3")
    with pytest.raises(UsageError, match="needs the package ns3"):
        simulate("no/such/traces", system(), BLOCKS, backend="ns3")


def test_what_packets_cannot_go_on_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "require_ns3", lambda: None)
    with pytest.raises(ConfigError, match="packets are simulated for at most 1024"):
        with_packets(load_network(BLOCKS | {"npus_count": [2048]}))
    with pytest.raises(
        ConfigError, match=r"1047552 links, a direction each; packets are simulated on at most 131072"
    ):
        with_packets(load_network(BLOCKS | {"topology": ["FullyConnected"], "npus_count": [1024]}))
    for ecmp in ("spray", "adaptive"):
        with pytest.raises(
            ConfigError, match=f"ecmp '{ecmp}' sends the packets of a message on several ways"
        ):
            with_packets(load_network(star(4) | {"ecmp": ecmp}))
    with pytest.raises(UsageError, match="ASTRA-sim has no packets"):
        simulate(collective(4, "all_reduce", 1), system(), BLOCKS, backend="ns3", compat="astra-sim")
    made = with_packets(load_network(BLOCKS))
    assert isinstance(made.outside, Ns3Network)
    with pytest.raises(UsageError, match="is simulated by another package"):
        with_packets(made)


@pytest.mark.parametrize(
    ("described", "told"),
    [
        (
            star(4, bandwidth=1e6),
            "a link of 1e+06 GB/s; packets are simulated on links of 1e-06 to 100000 GB/s",
        ),
        (star(4, bandwidth=1e90), "a link of 1e+90 GB/s; packets"),
        (star(4, bandwidth=1e-9), "a link of 1e-09 GB/s; packets"),
        (
            star(4, latency=1e6) | {"packets": {"transport": "lossless", "buffer": 100_000}},
            "packets: key 'buffer' must be 2,201,591 bytes at least, for what the link 0-hub still sends after",
        ),
    ],
)
def test_links_that_packets_cannot_have_are_told_before_a_run(described: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        with_packets(load_network(described))
    assert str(caught.value).startswith(f"<network>: {told}")


@pytest.mark.parametrize(
    ("packets", "told"),
    [
        ({"transport": "roce"}, "key 'transport' must be one of tcp, dctcp, lossless"),
        ({"mtu": 100}, "key 'mtu' must be a whole number of bytes from 256 to 65535"),
        ({"mtuu": 1500}, "key 'mtuu' is unknown; did you mean 'mtu'?"),
        ({"buffer": 9000}, "key 'buffer' must hold two packets at least, 18000 bytes"),
        ({"largest_window": 4096}, "key 'largest_window' must be a packet at least, 9000 bytes (mtu)"),
        (
            {"initial_window": 8 << 20},
            "key 'initial_window' must not exceed largest_window, which is 4194304",
        ),
        ({"transport": "dctcp", "queue": "droptail"}, "key 'queue' must be red with transport dctcp"),
        (
            {"transport": "dctcp", "ecn_threshold": 0},
            "key 'ecn_threshold' must be above 0 with transport dctcp",
        ),
        ({"ecn_threshold": 1000}, "key 'ecn_threshold' needs 'queue: red'"),
        ({"transport": "dctcp", "buffer": 50_000}, "key 'buffer' marks from 97500 bytes on"),
        ({"transport": "lossless", "seed": 2}, "key 'seed' has no meaning with transport lossless"),
        ({"transport": "lossless", "largest_window": 1 << 20}, "key 'largest_window' has no meaning"),
    ],
)
@pytest.mark.parametrize("described", [BLOCKS, star(4)])
def test_settings_that_make_no_sense_are_told_in_one_line(
    described: dict[str, Any], packets: dict[str, Any], told: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_network({**described, "packets": packets})
    assert str(caught.value).startswith("<network>: packets: ")
    assert told in str(caught.value)
    (tmp_path / "n.yml").write_text(
        dump_network(load_network(described)) + f"packets: {packets}\n".replace("'", "")
    )
    with pytest.raises(ConfigError, match=r"n\.yml:\d+: packets: "):
        load_network(tmp_path / "n.yml")


def test_defaults_that_follow_from_the_transport() -> None:
    assert (queue_of(Packets()), threshold_of(Packets())) == ("droptail", 0)
    dctcp = Packets(transport="dctcp")
    assert (queue_of(dctcp), threshold_of(dctcp)) == ("red", DCTCP_THRESHOLD)
    assert load_network(BLOCKS).packets == load_network(BLOCKS | {"packets": {}}).packets == Packets()


@pytest.mark.parametrize("described", [BLOCKS, star(4)])
def test_settings_survive_a_file(described: dict[str, Any], tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "transport": "dctcp",
        "mtu": 4096,
        "seed": 7,
        "initial_window": 100_000,
        "queue": "red",
    }
    made = load_network({**described, "packets": given})
    (tmp_path / "n.yml").write_text(dump_network(made))
    again = load_network(tmp_path / "n.yml")
    assert again.packets == made.packets == Packets(**given)
    assert again.dims == made.dims


@pytest.mark.parametrize("described", [BLOCKS, star(4)])
def test_check_config_shows_every_setting_with_its_value(described: dict[str, Any]) -> None:
    rows = {
        row.key: row
        for row in values_in_effect("network", {**described, "packets": {"transport": "dctcp"}}).rows
    }
    assert {f"packets.{key.name}" for key in PACKET_KEYS} < set(rows)
    assert (rows["packets.queue"].value, rows["packets.queue"].source) == ("red", "default")
    assert rows["packets.ecn_threshold"].value == DCTCP_THRESHOLD
    assert rows["packets.transport"].source == "<network>: packets"
    assert not [row for row in values_in_effect("network", described).rows if row.key.startswith("packets.")]


def test_astra_sim_ignores_the_key() -> None:
    made = load_network(BLOCKS | {"packets": {"transport": "roce"}}, compat="astra-sim")
    assert made.packets == Packets()


def test_a_run_of_hours_is_refused_with_its_estimate() -> None:
    """A message of 1 TB over two links is a hundred million packets."""
    linked = load_network(star(2))
    pairs = np.array([[0, 1], [1, 0], [0, 0]])
    found = estimate(linked, pairs, 10**12)
    assert found.packets == -(-(10**12) // 8948)
    assert found.hops == 2
    assert found.seconds > 3600
    with pytest.raises(
        UsageError,
        match=r"would take about [\d.]+ hours here .* over 2.0 links each\): allow it with --long-run",
    ):
        Ns3Network(linked).expect(pairs, 10**12)
    Ns3Network(linked, long_run=True).expect(pairs, 10**12)
    Ns3Network(linked).expect(pairs, 10**9)


def test_lossless_packets_are_cheaper_and_hops_cost() -> None:
    pairs = np.array([[0, 1]])
    tcp = estimate(load_network(star(2)), pairs, 1 << 30).seconds
    assert estimate(load_network(pair()), pairs, 1 << 30).seconds < tcp
    assert estimate(load_network(star(2, {"transport": "lossless"})), pairs, 1 << 30).seconds < tcp / 10


class Told:
    """A network that notes what it is told before a run, and refuses it."""

    def __init__(self, dims: Any) -> None:
        self.name, self.dims = "told", dims
        self.pairs: set[tuple[int, int]] = set()
        self.total_bytes = 0

    def expect(self, pairs: Any, total_bytes: int) -> None:
        self.pairs = {(a, b) for a, b in pairs.tolist() if a != b}
        self.total_bytes = total_bytes
        raise UsageError("this is enough")

    def begin(self) -> Any:
        raise AssertionError("the run was refused")


@pytest.mark.parametrize(
    ("kind", "algorithm", "per_npu"),
    [
        ("all_reduce", "ring", 2 * 7 / 8),
        ("all_gather", "ring", 7),
        ("reduce_scatter", "direct", 7 / 8),
        ("all_reduce", "halvingDoubling", 2 * 7 / 8),
        ("all_reduce", "rabenseifner", 2 * 7 / 8),
        ("all_to_all", "direct", 7 / 8),
    ],
)
def test_a_network_is_told_what_it_will_carry(kind: str, algorithm: str, per_npu: float) -> None:
    """Bytes of all NPUs, by what each algorithm sends of a message."""
    size = 1 << 20
    told = Told(load_network(BLOCKS | {"npus_count": [8]}).dims)
    named = {f"{name}-implementation": [algorithm] for name in ("all-reduce", "reduce-scatter", "all-to-all")}
    if algorithm in ("halvingDoubling", "rabenseifner"):
        named |= {"reduce-scatter-implementation": ["ring"], "all-to-all-implementation": ["ring"]}
    with pytest.raises(UsageError, match=r"^this is enough"):
        simulate(collective(8, kind, size), system(**named, **{"preferred-dataset-splits": 4}), told)
    assert told.total_bytes == pytest.approx(8 * per_npu * size, rel=0.01)
    assert (0, 1) in told.pairs


def test_single_messages_count_as_sent() -> None:
    told = Told(load_network(BLOCKS | {"npus_count": [4]}).dims)
    with pytest.raises(UsageError, match=r"^this is enough"):
        simulate(sends(4, [(0, 1, 100), (2, 3, 1000), (0, 3, 7)]), system(), told)
    assert told.total_bytes == 1107
    assert {(0, 1), (2, 3), (0, 3)} <= told.pairs


@pytest.mark.parametrize("backend", ["unaware", "aware", "flow"])
def test_other_backends_say_that_packets_have_no_effect(backend: Any) -> None:
    """Where the file says something of packets that is not the default; times are those without it."""
    plain = simulate(collective(4, "all_reduce", 1 << 16), system(), BLOCKS, backend=backend)
    said = simulate(
        collective(4, "all_reduce", 1 << 16), system(), BLOCKS | {"packets": {"mtu": 4096}}, backend=backend
    )
    assert [text for text in said.warnings if "packets" in text] == [
        f"<network>: key 'packets' has no effect: backend '{backend}' has no packets (--backend ns3)"
    ]
    assert said.finish_ns.tolist() == plain.finish_ns.tolist()
    assert not [text for text in plain.warnings if "packets" in text]
