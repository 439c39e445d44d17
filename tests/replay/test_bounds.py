"""Bounds of collectives: values by hand on machines with ports, and no time below them on any network."""

import contextlib
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chakra.builder import Workload
from chakra.errors import ConfigError
from chakra.replay import ReplayResult, simulate
from chakra.replay.config import load_network
from chakra.replay.config.model import Network
from chakra.replay.networks.blocks import block_links
from chakra.replay.results.formatting import format_text
from chakra.replay.topologies import with_faults
from chakra.report import run_of
from chakra.report.tables import collectives

#: bytes per ns of a GB/s of 2^30 B/s
GIB = (1 << 30) / 1e9
#: shares of groups of up to 16 are whole
SIZE = 720_720
KINDS = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
)


FLAT = {f"{kind.replace('_', '-')}-implementation": ["oneDirect"] for kind in KINDS[:4]}


def run(
    network: Any,
    npus: int,
    kind: str,
    groups: list[list[int]],
    size: int = SIZE,
    system: dict[str, Any] | None = None,
    backend: str = "flow",
) -> ReplayResult:
    workload = Workload(npus)
    for members in groups:
        group = workload.add_group(members) if len(members) < npus else None
        for rank in members:
            workload.builder(rank).collective(kind, size_bytes=size, group=group)
    for rank in sorted(set(range(npus)).difference(*groups)):
        workload.builder(rank).compute(duration_ns=1)
    return simulate(workload, FLAT | (system or {}), network, backend=backend)


def blocks(count: int = 2, each: int = 8) -> dict[str, Any]:
    """Machines whose NPUs have 900 GB/s to a switch inside, and a port of 50 GB/s each."""
    return {
        "topology": ["Switch", "Switch"], "npus_count": [each, count], "bandwidth": [900, 50], "latency": [100, 500]
    }  # fmt: skip


def listed(count: int = 2, each: int = 8, share: int = 1) -> dict[str, Any]:
    """The same link by link; `share` neighbouring NPUs have a port together, which is a vertex of its own."""
    n = count * each
    links: list[list[Any]] = [[npu, f"inside{npu // each}", 900, 50] for npu in range(n)]
    links += [[npu, f"port{npu // share}", 400, 1] for npu in range(n)]
    links += [[f"port{port}", "leaf", 50, 250] for port in range(n // share)]
    return {"npus_count": [each, count], "links": links, "routing": "inside", "npus_forward": False}


def own_leaves(count: int = 2, each: int = 8) -> dict[str, Any]:
    """The same where each machine has a leaf of its own, below a spine; it has room for all ports."""
    n = count * each
    links: list[list[Any]] = [[npu, f"inside{npu // each}", 900, 50] for npu in range(n)]
    links += [[npu, f"leaf{npu // each}", 50, 125] for npu in range(n)]
    links += [[f"leaf{machine}", "spine", 50 * each, 125] for machine in range(count)]
    return {"npus_count": [each, count], "links": links, "routing": "inside", "npus_forward": False}


@pytest.mark.parametrize(
    "network", [blocks(), listed(), own_leaves()], ids=["blocks", "listed", "own leaves"]
)
@pytest.mark.parametrize(
    ("kind", "groups", "share"),
    [
        # sizes over GB/s: what a machine sends, over its eight ports
        ("all_reduce", [[*range(16)]], 1 / (8 * 50)),
        ("all_gather", [[*range(16)]], 8 / (8 * 50)),
        ("reduce_scatter", [[*range(16)]], 8 / 16 / (8 * 50)),
        ("all_to_all", [[*range(16)]], 8 * 8 / 16 / (8 * 50)),
        ("broadcast", [[*range(16)]], 1 / (8 * 50)),
        ("reduce", [[*range(16)]], 1 / (8 * 50)),
        # two ports of each machine, and one
        ("all_reduce", [[k, k + 1, k + 8, k + 9] for k in range(0, 8, 2)], 1 / (2 * 50)),
        ("all_to_all", [[k, k + 1, k + 8, k + 9] for k in range(0, 8, 2)], 2 * 2 / 4 / (2 * 50)),
        ("all_reduce", [[k, k + 8] for k in range(8)], 1 / 50),
        # four of one machine and one of the other: one port takes all in
        ("all_reduce", [[0, 1, 2, 3, 8]], 1 / 50),
        ("all_to_all", [[0, 1, 2, 3, 8]], 4 / 5 / 50),
        # inside one
        ("all_to_all", [[*range(8)]], 7 / 8 / 900),
    ],
)
def test_ports_of_a_machine_count(network: Any, kind: str, groups: list[list[int]], share: float) -> None:
    for row in run(network, 16, kind, groups).collectives:
        assert row["bound_ns"] == pytest.approx(share * SIZE / GIB)


def test_many_machines_send_what_no_cut_alone_says() -> None:
    """A sum of 8 machines: 2 * 7 sizes leave machines of 8 ports, and none of them must send more than one."""
    for network in (blocks(8), listed(8), own_leaves(8)):
        row = run(network, 64, "all_reduce", [[*range(64)]]).collectives[0]
        assert row["bound_ns"] == pytest.approx(2 * 7 / (8 * 8 * 50) * SIZE / GIB)


def test_npus_that_share_a_port() -> None:
    """Four NPUs with two ports a machine: sums leave over both; NPUs 0 and 1 have one, as has NPU 0 alone."""
    network = listed(2, 4, share=2)
    for members, ports in (([*range(8)], 2), ([0, 1, 4, 5], 1), ([0, 4], 1)):
        row = run(network, 8, "all_reduce", [members]).collectives[0]
        assert row["bound_ns"] == pytest.approx(1 / (ports * 50) * SIZE / GIB)


def test_the_root_lies_where_it_takes_least() -> None:
    """Of a star whose NPU 3 has 10 of 100 GB/s: as root it gets three blocks, as another it sends one."""
    links: list[list[Any]] = [[npu, "s", 10 if npu == 3 else 100, 100] for npu in range(4)]
    network = {"npus_count": [4], "links": links}
    for kind, share in (
        ("gather", 1 / 10),
        ("scatter", 1 / 4 / 10),
        ("broadcast", 1 / 100),
        ("reduce", 1 / 100),
    ):
        row = run(network, 4, kind, [[*range(4)]]).collectives[0]
        # a broadcast is rooted at the slow one, which then sends all
        wanted = 1 / 10 if kind in ("broadcast", "reduce") else share
        assert row["bound_ns"] == pytest.approx(wanted * SIZE / GIB)


@pytest.mark.parametrize("algorithm", ["NVLSTree", "Ring"])
def test_switches_of_machines_reduce_inside_them_alone(algorithm: str) -> None:
    """Between four machines a sum takes 2 * 3 sizes over 4 * 8 ports, whoever reduces inside."""
    library = {
        "collective-library": "nccl",
        "collective-costs": "hgx-h100",
        "collective-algorithm": algorithm,
    }
    row = run(blocks(4), 32, "all_reduce", [[*range(32)]], 1 << 28, library).collectives[0]
    assert row["library_algorithm"] == algorithm
    assert row["bound_ns"] == pytest.approx(2 * 3 / (4 * 8 * 50) * (1 << 28) / GIB)
    inside = run(
        blocks(4), 32, "all_reduce", [[*range(8)]], 1 << 28, {**library, "collective-algorithm": "NVLS"}
    )
    # each sends its data once; a part of it is reduced by the switch
    assert inside.collectives[0]["bound_ns"] == pytest.approx((1 << 28) / 900 / GIB)


# -- laws ------------------------------------------------------------------------------------------------------------


def ring_links(npus_count: list[int]) -> dict[str, Any]:
    """A torus link by link: 10 GB/s to the neighbours in each dimension."""
    n = int(np.prod(npus_count))
    where = np.stack(np.unravel_index(np.arange(n), npus_count[::-1]))[::-1]
    links = []
    for k, size in enumerate(npus_count):
        ahead = where.copy()
        ahead[k] = (ahead[k] + 1) % size
        there = np.ravel_multi_index(tuple(ahead[::-1]), npus_count[::-1])
        links += [[int(a), int(b), 10, 100] for a, b in enumerate(there)]
    return {"npus_count": npus_count, "links": links}


def rings(npus_count: list[int]) -> dict[str, Any]:
    """The same of building blocks."""
    dims = len(npus_count)
    return {
        "topology": ["Ring"] * dims, "npus_count": npus_count, "bandwidth": [10] * dims, "latency": [100] * dims
    }  # fmt: skip


@pytest.mark.parametrize("torus", [rings, ring_links])
@pytest.mark.parametrize(
    ("npus_count", "share"),
    [
        # half of the NPUs send a half of their bytes to the other half, over two links of each line
        ([8], 4 * 4 / 8 / 2),
        ([16], 8 * 8 / 16 / 2),
        ([4, 6], 12 * 12 / 24 / (2 * 4)),
        ([8, 4], 16 * 16 / 32 / (2 * 4)),
    ],
)
def test_halves_of_a_ring_count(torus: Any, npus_count: list[int], share: float) -> None:
    """An exchange of all on a torus: what its bisection lets through."""
    n = int(np.prod(npus_count))
    system = {"all-to-all-implementation": ["oneDirect"], "endpoint-delay": 0}
    row = run(torus(npus_count), n, "all_to_all", [[*range(n)]], 1 << 24, system).collectives[0]
    assert row["bound_ns"] == pytest.approx(share * (1 << 24) / (10 * GIB))
    # messages half-way round go up only, which leaves some links of an even ring idle at last
    assert row["bound_ns"] <= row["transfer_ns"] < 1.35 * row["bound_ns"]


@st.composite
def networks(draw: st.DrawFn) -> dict[str, Any]:
    """Building blocks in one to three dimensions, or links: machines with ports, leaves, spines; some are slower."""
    if draw(st.booleans()):
        dims = draw(st.integers(1, 3))
        return {
            "topology": [draw(st.sampled_from(["Ring", "FullyConnected", "Switch"])) for _ in range(dims)],
            "npus_count": [draw(st.integers(2, 4 if dims > 1 else 9)) for _ in range(dims)],
            "bandwidth": [draw(st.sampled_from([3, 20, 50])) for _ in range(dims)],
            "latency": [draw(st.sampled_from([1, 100])) for _ in range(dims)],
        }
    each, count, share = draw(st.sampled_from([(2, 3, 1), (2, 4, 2), (4, 2, 1), (4, 2, 2), (4, 3, 4)]))
    links = listed(count, each, share)["links"]
    if draw(st.booleans()):  # machines at two leaves, joined by two spines
        joined = [
            [a, f"leaf{int(a[4:]) * share // each % 2}", 50, ns] for a, b, _, ns in links if b == "leaf"
        ]
        links = [row for row in links if row[1] != "leaf"] + joined
        links += [[f"leaf{leaf}", f"spine{spine}", 30, 100] for leaf in range(2) for spine in range(2)]
    slow = draw(st.dictionaries(st.integers(0, len(links) - 1), st.sampled_from([3, 7, 33]), max_size=3))
    return {
        "npus_count": [each, count],
        "links": [[a, b, slow.get(i, speed), ns] for i, (a, b, speed, ns) in enumerate(links)],
        "routing": draw(st.sampled_from(["hops", "latency", "inside"])),
        "npus_forward": draw(st.booleans()),
    }


@st.composite
def faulty(draw: st.DrawFn, machine: Network) -> Network:
    """Building blocks with a link that has failed, where all NPUs are still reached, or is slow or whole."""
    links = block_links(machine)
    names = [*map(str, range(machine.npus)), *links.vertices]
    link = draw(st.sampled_from(links.links))
    name = f"{names[link.src]}-{names[link.dst]}"
    if draw(st.booleans()):
        with contextlib.suppress(ConfigError):
            return with_faults(machine, fail=[name])
    return with_faults(machine, slow={name: draw(st.sampled_from([0.1, 1.0]))})


@pytest.mark.parametrize("slow", [{}, {"3-2": 1.0}, {"1-0": 0.5}])
def test_links_of_building_blocks_have_their_routes(slow: dict[str, float]) -> None:
    """NPU 1 of a 2 x 2 torus sends to NPUs 0 and 2 over its link to NPU 0, though NPU 3 leads to 2, too."""
    torus = {"topology": ["Ring"] * 2, "npus_count": [2, 2], "bandwidth": [10] * 2, "latency": [100] * 2}
    [row] = run(with_faults(load_network(torus), slow=slow), 4, "reduce_scatter", [[0, 1, 2]]).collectives
    speed = 5 if "1-0" in slow else 10
    assert row["bound_ns"] == pytest.approx(SIZE * 2 / 3 / (speed * GIB))


@pytest.mark.parametrize("backend", ["unaware", "aware", "flow"])
def test_a_way_around_a_failed_port_is_that_of_one_port(backend: str) -> None:
    """NPU 0 of a machine of four sends through another's port, not through those of all three others."""
    machine = with_faults(load_network(blocks(each=4)), fail=["0-sw1.0"])
    [row] = run(machine, 8, "all_gather", [[0, 4]], backend=backend).collectives
    assert row["bound_ns"] == pytest.approx(SIZE / (50 * GIB))


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_nothing_is_faster_than_its_bound(data: st.DataObject) -> None:
    """Every kind, groups of any shape; messages take whole ns on each link of `aware`, rounded down."""
    network = data.draw(networks())
    n = int(np.prod(network["npus_count"]))
    kind = data.draw(st.sampled_from(KINDS))
    members = data.draw(st.lists(st.integers(0, n - 1), min_size=2, max_size=n, unique=True).map(sorted))
    if data.draw(st.booleans()):
        members = list(range(n))
    implementation = data.draw(st.sampled_from(["ring", "direct", "oneRing", "oneDirect"]))
    system = {
        f"{name.replace('_', '-')}-implementation": [implementation]
        * (1 if implementation.startswith("one") else len(network["npus_count"]))
        for name in KINDS[:4]
    }
    machine = load_network(network)
    if machine.links is None and data.draw(st.booleans()):
        machine = data.draw(faulty(machine))
    for backend in ("aware", "flow"):
        result = run(machine, n, kind, [members], system=system, backend=backend)
        [row] = result.collectives
        rounds = 2 * n * len(network["npus_count"]) * (n if "irect" in implementation else 1)
        assert row["bound_ns"] <= row["transfer_ns"] + rounds, backend


def test_a_collective_of_some_dimensions_says_who_exchanges() -> None:
    """Each two NPUs of a machine by themselves: S/2 of either's bytes in, and S/2 out, twice, over 100 GB/s."""
    workload = Workload(8)
    workload.run(lambda b: b.collective("all_reduce", size_bytes=SIZE, involved_dim=[True, False]))
    network = {
        "topology": ["Switch", "Switch"], "npus_count": [2, 4], "bandwidth": [100, 50], "latency": [500, 700]
    }  # fmt: skip
    result = simulate(workload, {"all-reduce-implementation": ["ring", "ring"]}, network)
    (row,) = result.collectives
    assert (row["members"], row["exchanging"]) == (8, 2)
    assert row["bound_ns"] == pytest.approx(SIZE / 100 / GIB)
    assert row["busbw_gbps"] == pytest.approx(row["algbw_gbps"] * 2 * (2 - 1) / 2)
    assert re.search(r"ALL_REDUCE +ring +2 of 8 +720,720 ", format_text(result.to_dict()))
    assert [line[3] for line in collectives(run_of(result.to_dict(), "x")).rows] == ["2 of 8"]
    workload = Workload(8)
    workload.run(lambda b: b.collective("all_reduce", size_bytes=SIZE))
    (row,) = simulate(workload, {"all-reduce-implementation": ["ring", "ring"]}, network).collectives
    assert "exchanging" not in row


def test_an_exchange_over_ports_takes_its_bound() -> None:
    """All ports busy all the time: what is longer than the bound is latency."""
    system = {"all-to-all-implementation": ["oneDirect"], "endpoint-delay": 0}
    row = run(listed(), 16, "all_to_all", [[*range(16)]], 1 << 26, system).collectives[0]
    assert row["bound_ns"] == pytest.approx((1 << 26) / 100 / GIB)
    assert row["bound_ns"] <= row["transfer_ns"] < 1.01 * row["bound_ns"]


@pytest.mark.parametrize(("late_ns", "told"), [(1_000_000, True), (0, False)])
def test_a_late_member_meets_bytes_that_are_there(late_ns: int, told: bool) -> None:
    """Two of three members have sent theirs over 50 GB/s before the third begins, from when times count."""
    workload = Workload(4)
    group = workload.add_group([1, 2, 3])

    def step(builder: Any) -> None:
        begun = builder.compute("begin", duration_ns=late_ns if builder.rank == 2 else 0)
        if builder.rank:
            builder.collective("all_gather", size_bytes=1 << 20, after=begun, group=group)

    workload.run(step)
    network = {
        "topology": ["Switch", "Switch"],
        "npus_count": [2, 2],
        "bandwidth": [400, 50],
        "latency": [500, 700],
    }
    system = {
        "all-gather-implementation": ["ring", "ring"],
        "endpoint-delay": 10,
        "preferred-dataset-splits": 1,
    }
    result = simulate(workload, system, network, backend="flow")
    (row,) = result.collectives
    assert row["bound_ns"] == 2 * 2**20 / 50 / 2**30 * 1e9
    assert (row["transfer_ns"] < row["bound_ns"]) is told
    assert ("those that started earlier had sent bytes by then" in format_text(result.to_dict())) is told
