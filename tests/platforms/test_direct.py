"""Tori of machines and dragonflies in words: what is joined, how wide, how many ports, and how long a message takes."""

import time
from collections import Counter
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakra.accuracy.measured_machine import unlike_network
from chakra.builder import Workload
from chakra.errors import UsageError
from chakra.platforms import cluster
from chakra.platforms.cluster import counted_npus
from chakra.platforms.direct import Dragonfly, Torus
from chakra.platforms.fabric import Fabric, Inside, Shape
from chakra.replay import simulate
from chakra.replay.config import load_network
from chakra.replay.config.model import Topology

#: bytes per ns of 400 Gb/s
PORT = 50.0


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=3).filter(lambda sides: prod(sides) > 1),
    st.integers(1, 3),
)
def test_a_torus_joins_neighbours_of_equal_place(sides: list[int], each: int) -> None:
    """As networkx has it: a periodic grid for each place in a machine; an NPU's links share its port."""
    torus = Torus(tuple(sides))
    found: nx.Graph[int] = nx.Graph()
    for a, b, share in torus.links(range(torus.machines), each):
        assert not found.has_edge(a, b)
        found.add_edge(a, b, share=share)
    # the last axis of the grid varies fastest
    wanted: nx.Graph[Any] = nx.Graph(nx.grid_graph(sides, periodic=True))
    wanted.remove_edges_from(list(nx.selfloop_edges(wanted)))
    machine = {place: number for number, place in enumerate(sorted(wanted))}
    edges = {
        frozenset((machine[a] * each + k, machine[b] * each + k))
        for a, b in wanted.edges
        for k in range(each)
    }
    assert {frozenset(edge) for edge in found.edges} == edges
    for npu in range(torus.machines * each):
        assert sum(found[npu][other]["share"] for other in found[npu]) == pytest.approx(1)


@given(st.integers(3, 40), st.integers(1, 60), st.integers(1, 3))
def test_a_dragonfly_has_its_ports_and_joins_all(ports: int, machines: int, each: int) -> None:
    """Groups are full meshes, every two are joined by equally many cables, and no router has more than its ports."""
    down = (ports + 1) // 4
    if down < each or machines > (2 * down * down + 1) * 2 * down * (down // each):
        with pytest.raises(UsageError, match=r"no room|at most"):
            Dragonfly(ports, machines, each)
        return
    built = Dragonfly(ports, machines, each)
    used: Counter[str] = Counter()
    between: Counter[tuple[str, str]] = Counter()
    joined: nx.Graph[str] = nx.Graph()
    joined.add_nodes_from(built.router(k) for k in range(built.groups * built.routers))
    for a, b, cables in built.links():
        used[a] += cables
        used[b] += cables
        joined.add_edge(a, b)
        between[a.split(".")[0], b.split(".")[0]] += cables
    assert all(count + built.block * each <= ports for count in used.values())
    assert sum(used.values()) == 2 * built.cables
    assert built.groups * built.routers * built.block >= machines
    inside = [count for (a, b), count in between.items() if a == b]
    assert all(count == built.routers * (built.routers - 1) // 2 for count in inside)
    across = [count for (a, b), count in between.items() if a != b]
    assert len(across) == built.groups * (built.groups - 1) // 2
    assert len(set(across)) <= 1
    # local, global, local
    assert nx.diameter(joined) <= 3


def test_the_textbook_dragonfly() -> None:
    """Kim et al., ISCA 2008: p = h = 2, a = 4 gives 9 groups, 36 routers of 7 ports, 72 NPUs."""
    built = Dragonfly(7, 36, 2)
    assert (built.groups, built.routers, built.between, built.cables) == (9, 4, 1, 9 * 6 + 36)
    with pytest.raises(UsageError, match="37 machines, but at most 36 can be joined"):
        Dragonfly(7, 37, 2)


@pytest.mark.parametrize(
    ("words", "switches", "cables", "gbps"),
    [
        # three cables a GPU and axis, of a sixth of the port
        ("hgx-h100 over 400G torus 8x8x8", {}, 3 * 4096, 66.667),
        # a ring of four machines: two links a GPU
        ("hgx-h100 over 400G torus 4", {}, 32, 200),
        # 2 machines at a router, 32 routers a group: 8 groups, 8 * 32 * 31 / 2 cables in them, 512 / 7 between two
        ("512x hgx-h100 over 400G dragonfly of 64 ports", {"router": 256}, 4096 + 3968 + 73 * 28, 400),
        # one group, of as many routers as there are machines for
        ("8x hgx-h100 over 400G dragonfly of 64 ports", {"router": 4}, 64 + 6, 400),
    ],
)
def test_what_they_are_built_of(words: str, switches: dict[str, int], cables: int, gbps: float) -> None:
    network = load_network(cluster(words).network())
    assert network.links is not None
    built = network.links.built_of
    assert built is not None
    assert (dict(built.switches), built.cables) == (switches, cables)
    assert built.port_gbps == pytest.approx(gbps, abs=1e-3)
    assert [dim.npus for dim in network.dims] == [8, network.npus // 8]


def test_a_torus_counts_its_machines() -> None:
    assert counted_npus("hgx-h100 over 400G torus 2x3x4") == 192
    assert cluster("hgx-h100 over 400G torus 2x3x4").network()["npus_count"] == [8, 24]
    assert cluster("24x hgx-h100 over 400G torus 2x3x4", 192).network()["npus_count"] == [8, 24]
    for words, npus in (("9x hgx-h100 over 400G torus 2x2x2", None), ("hgx-h100 over 400G torus 2x2x2", 16)):
        with pytest.raises(UsageError, match="a torus of 2x2x2 has 8 machines, not"):
            cluster(words, npus).network()


def took(words: str, dst: int, size: int) -> int:
    """Nanoseconds of one message from NPU 0, without the library."""
    machine = cluster(words)
    network = load_network(machine.network())
    workload = Workload(network.npus)
    for rank in range(network.npus):
        workload.builder(rank).compute(duration_ns=1)
    workload.builder(0).send(dst, size_bytes=size)
    workload.builder(dst).recv(0, size_bytes=size)
    system = {"peak-perf": 1, "local-mem-bw": 1, "endpoint-delay": 0}
    return int(simulate(workload, system, network).finish_ns.max())


@pytest.mark.parametrize(
    ("words", "dst", "hops", "rate"),
    [
        # a step along the first axis, and one around the end of the second
        ("hgx-h100 over 400G torus 4x4x2", 8, 1, PORT / 5),
        ("hgx-h100 over 400G torus 4x4x2", 8 * 12, 1, PORT / 5),
        # two along the first, two along the second, one along the third
        ("hgx-h100 over 400G torus 4x4x2", 8 * (2 + 8 + 16), 5, PORT / 5),
        # at one router; at two of a group; the last router of another group
        ("4x hgx-h100 over 400G dragonfly of 64 ports", 8, 2, PORT),
        ("4x hgx-h100 over 400G dragonfly of 64 ports", 16, 3, PORT),
    ],
)
def test_a_message_takes_its_hops_and_its_bytes(words: str, dst: int, hops: int, rate: float) -> None:
    size = 1 << 20
    assert took(words, dst, size) == pytest.approx(1000 * hops + size / rate, abs=2)


def test_machines_lie_where_a_file_says(tmp_path: Path) -> None:
    """The second machine of four in a ring is opposite the first."""
    path = tmp_path / "places.txt"
    path.write_text("0 2 1 3")
    assert took(f"hgx-h100 over 400G torus 4 places {path}", 8, 1000) - 2000 == pytest.approx(
        1000 / 25, abs=1
    )
    assert took("hgx-h100 over 400G torus 4", 8, 1000) - 1000 == pytest.approx(1000 / 25, abs=1)


def test_dragonfly_machines_are_spread_over_routers() -> None:
    """Two machines a router, side by side or dealt out over the four routers that eight machines need."""
    box = [Inside(Topology.SWITCH, 8, 400.0, 900.0)]
    for spread, router in ((False, "group0.router1"), (True, "group0.router2")):
        links = Fabric(Shape.DRAGONFLY, 64, spread=spread).network(
            box, 8, rate_gibps=50.0, latency_ns=1000.0
        )["links"]
        assert next(b for a, b, *_ in links if a == 16 and b.startswith("group")) == router


@pytest.mark.parametrize(
    "words", ["hgx-h100 over 400G torus 2x2x2", "8x hgx-h100 over 400G dragonfly of 64 ports"]
)
def test_no_measured_step_ran_on_one(words: str) -> None:
    """The same machines under a fat tree are like those that were measured."""
    reason = unlike_network(load_network(cluster(words).network()), "hgx-h100")
    assert (
        reason
        == "machines or switches are joined to others beside them, and those of measured steps by switches above"
    )
    tree = load_network(cluster("8x hgx-h100 over 400G fat tree of 64 ports").network())
    assert unlike_network(tree, "hgx-h100") is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "hgx-h100 over 400G torus",
            "'torus' needs the machines along each dimension, such as 'torus 8x8x8'",
        ),
        ("hgx-h100 over 400G torus 8x8x8 of 64 ports", "has no switches, and so no ports of them"),
        (
            "hgx-h100 over 400G torus 1x1",
            "a torus of 1x1: sides are whole numbers from 1 on, and one is above 1",
        ),
        ("hgx-h100 over 400G torus 0x4", "a torus of 0x4: sides are whole numbers from 1 on"),
        ("hgx-h100 over 400G torus 2x2 oversubscribed 2", "nothing can be oversubscribed"),
        ("hgx-h100 over 400G torus 2x2 spread", "all of its machines belong to the job"),
        ("hgx-h100 over 400G torus 2x2 within 9 machines", "all of its machines belong to the job"),
        ("hgx-h100 over 400G torus 2x2 rails", "torus and rails are two shapes"),
        ("8x hgx-h100 over 400G dragonfly", "add such as 'of 64 ports'"),
        ("8x hgx-h100 over 400G dragonfly of 16 ports", "no room for the 8 interfaces of a machine"),
        ("8x hgx-h100 over 400G dragonfly of 64 ports oversubscribed 2", "nothing can be oversubscribed"),
        ("8x hgx-h100 over 400G dragonfly fat tree of 64 ports", "dragonfly and fat tree are two shapes"),
    ],
)
def test_words_that_make_none(words: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        cluster(words).network()
    assert message in str(caught.value)


def test_ring_of_places_is_walked_once() -> None:
    """Eight machines in a ring: each joined to the next, the last to the first."""
    links = {(a // 2, b // 2) for a, b, _ in Torus((8,)).links(range(8), 2)}
    assert links == {*pairwise(range(8)), (7, 0)}


@given(
    st.sampled_from(Shape),
    st.sampled_from([8, 15, 33, 64]),
    st.integers(1, 60),
    st.sampled_from([1, 2, 8]),
    st.sampled_from([1.0, 2.0]),
)
def test_links_are_counted_as_they_are_made(
    shape: Shape, ports: int, total: int, each: int, ratio: float
) -> None:
    """Machines of other jobs included."""
    torus = shape is Shape.TORUS
    machines = total if torus else max(1, total // 2)
    try:
        fabric = Fabric(
            shape,
            min(total - 1, 2) if torus else ports,
            ratio,
            within=None if torus else total,
            sides=(total,) if torus else (),
        )
        rows = list(fabric._outside_links(machines, each))
    except UsageError:
        return
    assert fabric._links_outside(machines, each) == len(rows) == len({(a, b) for a, b, _ in rows})


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (
            "hgx-h100 over 400G torus 999999",
            "7,999,992 NPUs; a network given link by link has at most 131,072",
        ),
        (
            "20000x hgx-h100 over 400G rail-only of 65536 ports",
            "160,000 NPUs; a network given link by link has",
        ),
        # groups of 64 routers: 1,016 full meshes, and as many cables between two as fit (2 * 32 * 32 // 1015)
        (
            "2x hgx-h100 over 400G dragonfly of 128 ports within 260000 machines",
            f"{16 + 1016 * 64 * 63 // 2 + 2 * 1016 * 1015 // 2:,} links; a list of links has at most 2,000,000",
        ),
        (
            "2x hgx-h100 over 400G fat tree of 1024 ports within 9999999 machines spread",
            "links; a list of links has",
        ),
    ],
)
def test_what_is_too_large_is_refused_before_it_is_made(words: str, problem: str) -> None:
    start = time.process_time()
    with pytest.raises(UsageError, match=problem):
        cluster(words).network()
    assert time.process_time() - start < 10


def test_a_torus_has_its_sides_once() -> None:
    with pytest.raises(UsageError, match="a torus is given twice"):
        cluster("hgx-h100 over 400G torus 2x2 torus 4x4")
