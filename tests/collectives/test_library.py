"""The model of collective libraries: what runs, how long it takes, and that parameters survive being written."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from chakra.errors import ConfigError, UsageError
from chakra.platforms.collectives import collective_parameters, names_with_parameters, parameters_text
from chakra.replay.collectives.library import (
    Algorithm,
    Communicator,
    Forced,
    MachineParameters,
    Protocol,
    library_time,
    link_bytes,
    parameters_from,
    parameters_to,
)
from chakra.replay.collectives.library.published import CEILINGS
from chakra.replay.config.model import CollectiveKind as Kind

ROOT = Path(__file__).parents[2]
MIB = 1 << 20
RINGS = (Kind.ALL_REDUCE, Kind.ALL_GATHER, Kind.REDUCE_SCATTER)


def node(ranks: int) -> Communicator:
    return Communicator(ranks, ranks)


def chosen(machine: str, kind: Kind, size: int, comm: Communicator) -> str:
    return str(library_time(kind, size, comm, collective_parameters(machine)).choice)


@pytest.mark.parametrize(
    ("size", "choice"),
    [(32768, "Ring/LL"), (MIB, "Ring/LL"), (2 * MIB, "NVLS/Simple"), (16 << 30, "NVLS/Simple")],
)
def test_an_h200_of_eight_changes_from_ring_to_nvls_where_nccl_does(size: int, choice: str) -> None:
    """As printed for NCCL 2.27.7 on 8 H200 (stas00/ml-engineering, network/README.md)."""
    assert chosen("hgx-h200", Kind.ALL_REDUCE, size, node(8)) == choice


@pytest.mark.parametrize(
    ("ranks", "algorithm"),
    [(2, "Ring"), (3, "Ring"), (4, "Ring"), (5, "NVLS"), (6, "NVLS"), (7, "NVLS"), (8, "NVLS")],
)
def test_nvls_begins_with_five_ranks_of_an_h200(ranks: int, algorithm: str) -> None:
    """As printed for 8 GiB on 4 to 8 H200 (stas00/ml-engineering, network/README.md)."""
    assert chosen("hgx-h200", Kind.ALL_REDUCE, 8 << 30, node(ranks)).startswith(algorithm + "/")


def test_two_h100_nodes_run_nvls_tree_and_two_a100_nodes_a_ring() -> None:
    """As the maintainers say in NVIDIA/nccl-tests #309; an A100's switch cannot reduce."""
    assert chosen("hgx-h100", Kind.ALL_REDUCE, 1 << 30, Communicator(16, 8, 50.0)) == "NVLSTree/Simple"
    assert chosen("dgx-a100", Kind.ALL_REDUCE, 1 << 30, Communicator(16, 8, 25.0)) == "Ring/Simple"


def test_one_rank_a_node_uses_pat_for_small_gathers_only() -> None:
    comm = Communicator(64, 1, 50.0)
    assert chosen("hgx-h100", Kind.ALL_GATHER, 1024, comm) == "PAT/Simple"
    assert chosen("hgx-h100", Kind.ALL_REDUCE, 1024, comm).startswith("Tree/")


def test_a_forced_algorithm_and_protocol_are_run() -> None:
    machine = collective_parameters("hgx-h100")
    forced = library_time(
        Kind.ALL_REDUCE, 64 * MIB, node(8), machine, Forced(Algorithm.RING, Protocol.SIMPLE)
    )
    assert str(forced.choice) == "Ring/Simple"
    assert forced.time_ns > library_time(Kind.ALL_REDUCE, 64 * MIB, node(8), machine).time_ns
    tree = library_time(Kind.ALL_REDUCE, 64 * MIB, node(8), machine, Forced(Algorithm.TREE))
    assert tree.choice.algorithm is Algorithm.TREE


def test_fewer_channels_take_as_much_longer_once_bandwidth_counts() -> None:
    machine = collective_parameters("hgx-h100")
    full = library_time(Kind.ALL_GATHER, 1 << 30, node(8), machine)
    half = library_time(Kind.ALL_GATHER, 1 << 30, node(8), machine, Forced(channels=12))
    assert (full.choice.channels, half.choice.channels) == (24, 12)
    assert half.time_ns / full.time_ns == pytest.approx(2, rel=0.1)


@pytest.mark.parametrize(
    ("kind", "size", "comm", "choice"),
    [
        (Kind.ALL_REDUCE, 512 << 10, node(8), "Ring/LL"),
        (Kind.ALL_REDUCE, (512 << 10) + 1, node(8), "Ring/Simple"),
        (Kind.ALL_GATHER, 8 * 98304, node(8), "Ring/LL"),
        (Kind.REDUCE_SCATTER, 8 * 655360 + 1, node(8), "Ring/Simple"),
        (Kind.ALL_REDUCE, 1024, Communicator(16, 8, 50.0), "Tree/LL"),
        (Kind.ALL_REDUCE, (256 << 20) - 1, Communicator(16, 8, 50.0), "Tree/Simple"),
        (Kind.ALL_REDUCE, 256 << 20, Communicator(16, 8, 50.0), "Ring/Simple"),
        (Kind.ALL_GATHER, 1 << 30, Communicator(16, 8, 50.0), "Ring/Simple"),
        (Kind.ALL_TO_ALL, 1 << 30, node(8), "SendRecv/Simple"),
    ],
)
def test_rccl_takes_what_its_tables_say_by_size(
    kind: Kind, size: int, comm: Communicator, choice: str
) -> None:
    assert chosen("mi300x", kind, size, comm) == choice


def test_rccl_is_held_to_what_it_has_and_refuses_the_rest() -> None:
    machine, pair = collective_parameters("mi300x"), Communicator(16, 8, 50.0)
    for forced in (Forced(Algorithm.RING), Forced(Algorithm.TREE), Forced(protocol=Protocol.LL)):
        made = library_time(Kind.ALL_REDUCE, MIB, pair, machine, forced)
        assert forced.algorithm in (None, made.choice.algorithm)
        assert forced.protocol in (None, made.choice.protocol)
    for forced in (Forced(Algorithm.NVLS), Forced(protocol=Protocol.LL128), Forced(Algorithm.PAT)):
        with pytest.raises(UsageError, match="rccl has no all_reduce with"):
            library_time(Kind.ALL_REDUCE, MIB, pair, machine, forced)


@pytest.mark.parametrize("kind", [*RINGS, Kind.ALL_TO_ALL])
def test_ranks_of_a_mesh_have_a_link_to_each_other_member(kind: Kind) -> None:
    """Two of eight MI300X share one of seven links: a seventh of the bandwidth of a ring of all."""
    machine, size = collective_parameters("mi300x"), 1 << 34

    def bus(ranks: int) -> float:
        time = library_time(kind, size, node(ranks), machine).time_ns
        steps = 2 * (ranks - 1) if kind is Kind.ALL_REDUCE else ranks - 1
        return size * steps / ranks / time

    for ranks in (2, 4):
        assert bus(ranks) / bus(8) == pytest.approx((ranks - 1) / 7, rel=0.1 if ranks == 4 else 0.3)
    assert bus(8) < 336


@pytest.mark.parametrize("protocol", list(Protocol))
@pytest.mark.parametrize("algorithm", [Algorithm.RING, Algorithm.TREE, Algorithm.NVLS_TREE])
def test_fewer_channels_are_slower_on_several_nodes_too(algorithm: Algorithm, protocol: Protocol) -> None:
    """A quarter of the channels moves a quarter of the bytes; what takes time at any size stays."""
    machine, comm = collective_parameters("hgx-h100"), Communicator(32, 8, 50.0)
    if algorithm is Algorithm.NVLS_TREE and protocol is not Protocol.SIMPLE:
        return
    full = 16 if algorithm is Algorithm.NVLS_TREE else 24

    def time(size: int, channels: int) -> int:
        forced = Forced(algorithm, protocol, channels)
        return library_time(Kind.ALL_REDUCE, size, comm, machine, forced).time_ns

    moved = {channels: time(1 << 33, channels) - time(1 << 32, channels) for channels in (full // 4, full)}
    assert moved[full // 4] / moved[full] == pytest.approx(4, rel=0.01)
    assert time(8, full // 4) == pytest.approx(time(8, full), rel=0.01)


@pytest.mark.parametrize(
    "change",
    [{"launch_us": 1e308}, {"simple_hop_us": 1e300}, {"copy_gbps": 1e-300}, {"simple_gbps": (1e-308,)}],
)
def test_costs_beyond_measure_are_refused_in_one_line(change: dict[str, Any]) -> None:
    machine = collective_parameters("hgx-h100")
    costs = replace(machine.rings[Kind.ALL_REDUCE], **change)
    absurd = replace(machine, rings={**machine.rings, Kind.ALL_REDUCE: costs})
    with pytest.raises(UsageError, match="all_reduce of 1,048,576 bytes on 8 ranks takes more than a year"):
        library_time(Kind.ALL_REDUCE, MIB, node(8), absurd, Forced(Algorithm.RING, Protocol.SIMPLE))


@pytest.mark.parametrize(
    ("machine", "kind", "comm", "forced"),
    [
        ("dgx-a100", Kind.ALL_REDUCE, node(8), Forced(Algorithm.NVLS)),
        ("hgx-h100", Kind.ALL_GATHER, node(8), Forced(Algorithm.TREE)),
        ("hgx-h100", Kind.ALL_REDUCE, node(8), Forced(Algorithm.NVLS, Protocol.LL)),
        ("hgx-h100", Kind.ALL_REDUCE, Communicator(16, 8, 50.0), Forced(Algorithm.COLLNET_DIRECT)),
        ("hgx-b200", Kind.ALL_REDUCE, node(8), Forced(protocol=Protocol.LL128)),
    ],
)
def test_what_a_machine_lacks_cannot_be_forced(
    machine: str, kind: Kind, comm: Communicator, forced: Forced
) -> None:
    with pytest.raises(
        UsageError, match=f"nccl has no {kind.lower()} with {forced.algorithm or forced.protocol}"
    ):
        library_time(kind, MIB, comm, collective_parameters(machine), forced)


def test_switches_that_reduce_offer_collnet() -> None:
    comm = Communicator(64, 8, 50.0, in_network=True)
    machine = collective_parameters("hgx-h100")
    for algorithm in (Algorithm.COLLNET_DIRECT, Algorithm.COLLNET_CHAIN):
        assert library_time(Kind.ALL_REDUCE, MIB, comm, machine, Forced(algorithm)).time_ns > 0


@pytest.mark.parametrize("generation", list(CEILINGS))
def test_what_a_generation_has_no_bandwidth_for_does_not_run(generation: Any) -> None:
    machine = replace(collective_parameters("hgx-h100"), generation=generation)
    for comm in (node(8), Communicator(32, 8, 50.0)):
        assert library_time(Kind.ALL_REDUCE, MIB, comm, machine).time_ns > 0


@pytest.mark.parametrize("machine", names_with_parameters())
@pytest.mark.parametrize(
    "kind", [*RINGS, Kind.ALL_TO_ALL, Kind.BROADCAST, Kind.REDUCE, Kind.GATHER, Kind.SCATTER]
)
def test_a_larger_collective_takes_longer_as_long_as_the_same_runs(machine: str, kind: Kind) -> None:
    parameters = collective_parameters(machine)
    for comm in (node(2), node(8), Communicator(32, 8, 50.0)):
        times = [library_time(kind, 1 << power, comm, parameters) for power in range(9, 34)]
        assert all(t.time_ns > 1000 for t in times)
        for small, large in pairwise(times):
            if small.choice == large.choice and "Tree" not in str(small.choice):
                assert small.time_ns <= large.time_ns


@pytest.mark.parametrize("kind", list(Kind))
def test_every_kind_has_a_time_and_none_for_one_rank(kind: Kind) -> None:
    machine = collective_parameters("hgx-h100")
    assert library_time(kind, MIB, node(8), machine).time_ns > 0
    assert library_time(kind, MIB, node(1), machine).time_ns == 0
    assert (library_time(kind, 0, node(8), machine).time_ns > 0) == (kind is Kind.BARRIER)


def test_large_collectives_come_near_their_bandwidth() -> None:
    machine = collective_parameters("hgx-h200")
    size = 1 << 33
    times = {kind: library_time(kind, size, node(8), machine).time_ns for kind in RINGS}
    bus = {kind: size * (2 if kind is Kind.ALL_REDUCE else 1) * 7 / 8 / time for kind, time in times.items()}
    # measured: 473.1, 361.4 and 362.9 GB/s (stas00/ml-engineering; all-reduce at 8 GiB, the others at 16 GiB)
    assert bus[Kind.ALL_REDUCE] == pytest.approx(473.1, rel=0.1)
    assert bus[Kind.ALL_GATHER] == pytest.approx(361.4, rel=0.1)
    assert bus[Kind.REDUCE_SCATTER] == pytest.approx(362.9, rel=0.1)


@pytest.mark.parametrize("name", names_with_parameters())
def test_parameters_survive_being_written_and_are_few(name: str) -> None:
    machine = collective_parameters(name)
    assert parameters_from(parameters_to(machine), name) == machine
    assert parameters_text(machine).count("\n") > 10 + 6 * len(machine.rings)
    for kind, entry in parameters_to(machine).items():
        if isinstance(entry, dict):
            numbers = [v for key, v in entry.items() if key != "error"]
            assert sum(len(v) if isinstance(v, list) else 1 for v in numbers) <= 12, kind


def document() -> dict[str, object]:
    return parameters_to(collective_parameters("hgx-h100"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"colour": 1}, "'colour' is not a key"),
        ({"levels": None}, "levels"),
        ({"levels": [8, 4], "search_gbps": [1, 1]}, "ascending"),
        ({"levels": [0]}, "whole numbers above 0"),
        ({"search_gbps": [0.0]}, "search_gbps must be numbers above 0"),
        ({"search_gbps": [-1.0]}, "search_gbps must be numbers above 0"),
        ({"search_gbps": [float("inf")]}, "search_gbps"),
        ({"channels": 0}, "channels must be at least 1"),
        ({"channels": -1}, "channels must be at least 1"),
        ({"node_ranks": 0}, "node_ranks must be at least 1"),
        ({"nvls_link_gbps": -1.0}, "nvls_link_gbps must be a number of at least 0"),
        ({"nvls_link_gbps": float("inf")}, "nvls_link_gbps"),
        ({"search_gbps": [1, 2]}, "as many values"),
        ({"generation": "maxwell"}, "generation"),
        ({"bytes": 3}, "two sizes"),
        ({"all_gather": 3}, "map of costs"),
        ({"all_gather": {"launch_us": 1}}, "missing"),
        ({"all_to_all": {"launch_us": -1, "peer_us": 1, "spread_us": 1, "fill_us": 1, "gbps": [1], "copy_gbps": 1}},
         "launch_us must be a number above 0"),
    ],
)  # fmt: skip
def test_parameters_that_do_not_fit_are_refused_in_one_line(change: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        parameters_from({**document(), **change}, "hgx-h100")
    assert "hgx-h100" in str(caught.value)
    missing = {key: value for key, value in document().items() if key not in change}
    if set(change) & {"levels", "generation"}:
        with pytest.raises(ConfigError, match="is missing"):
            parameters_from(missing, "hgx-h100")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((7, 2), "equally many"), ((8, 0), "equally many"), ((16, 8), "rate of a network port"),
     ((16, 8, float("inf")), "finite"), ((16, 8, 50.0, 0, float("inf")), "finite"),
     ((8, 8, -1.0), "negative"), ((16, 8, 50.0, 0, -1.0), "negative")],
)  # fmt: skip
def test_communicators_that_cannot_be_are_refused(arguments: tuple[float, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Communicator(*arguments)  # type: ignore[arg-type]


def test_shared_ports_carry_the_bytes_of_all_ranks() -> None:
    own, shared = Communicator(16, 8, 50.0), Communicator(16, 8, 50.0, nics=2)
    machine = collective_parameters("hgx-h100")
    for kind in (*RINGS, Kind.ALL_TO_ALL):
        choice = library_time(kind, 1 << 30, own, machine).choice
        assert link_bytes(kind, 1 << 30, shared, choice)[1] == 4 * link_bytes(kind, 1 << 30, own, choice)[1]
        slow = library_time(kind, 1 << 30, shared, machine).time_ns
        assert slow > 2.5 * library_time(kind, 1 << 30, own, machine).time_ns


def test_bytes_on_links_of_a_ring_a_tree_and_an_exchange() -> None:
    machine = collective_parameters("hgx-h100")
    ring = library_time(Kind.ALL_GATHER, 1 << 30, node(8), machine).choice
    assert link_bytes(Kind.ALL_GATHER, 1 << 30, node(8), ring) == ((1 << 30) * 7 // 8, 0)
    pair = Communicator(16, 8, 50.0)
    tree = library_time(Kind.ALL_REDUCE, 1 << 30, pair, machine).choice
    assert link_bytes(Kind.ALL_REDUCE, 1 << 30, pair, tree) == (1 << 30, (1 << 30) // 8)
    exchange = library_time(Kind.ALL_TO_ALL, 1 << 30, pair, machine).choice
    assert link_bytes(Kind.ALL_TO_ALL, 1 << 30, pair, exchange) == ((1 << 30) * 7 // 16, (1 << 30) // 2)


def test_a_machine_without_measured_costs_falls_back_on_what_the_library_predicts() -> None:
    bare: MachineParameters = replace(collective_parameters("hgx-h100"), rings={}, exchange=None)
    for kind in (*RINGS, Kind.ALL_TO_ALL):
        ours = library_time(kind, 1 << 28, node(8), bare).time_ns
        assert ours == pytest.approx(
            library_time(kind, 1 << 28, node(8), collective_parameters("hgx-h100")).time_ns, rel=0.35
        )


def test_why_a_newer_machine_is_slower_between_nodes() -> None:
    """Each row of the guide: LL128 and the chunks of NVLS are all that tells B200 from H100 over the same ports."""
    page = (ROOT / "docs" / "guides" / "collective-library.md").read_text(encoding="utf-8")
    table = page.split("<!-- machines between nodes -->")[1].split("<!-- end -->")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.strip().splitlines()[2:]]
    units = {"MiB": MIB, "GiB": 1 << 30}
    older, newer = (collective_parameters(name) for name in ("hgx-h100", "hgx-b200"))
    assert len(rows) == 5
    for what, size, *told in rows:
        kind = Kind.ALL_REDUCE if what.startswith("all-reduce") else Kind.ALL_GATHER
        comm = Communicator(64, 8, nic_gbps=50.0) if "64 ranks" in what else Communicator(8, 1, nic_gbps=50.0)
        count, unit = size.split()
        found = [
            library_time(kind, int(count) * units[unit], comm, machine)
            for machine in (older, newer, replace(newer, ll128=True))
        ]
        shown = [
            f"{time.time_ns / 1e3:,.1f} {time.choice.algorithm}/{time.choice.protocol}" for time in found[:2]
        ]
        assert told == [*shown, f"{found[2].time_ns / 1e3:,.1f}"]
