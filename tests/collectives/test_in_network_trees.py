"""Trees of switches on networks given link by link: which links a collective uses, and how much each carries."""

from collections import Counter
from typing import Any

import networkx as nx
import pytest
from collective_runs import ENDPOINT, network, one, system
from hypothesis import given, settings
from hypothesis import strategies as st

from chakra.builder import Workload
from chakra.errors import ConfigError
from chakra.replay import simulate
from chakra.replay.collectives.in_network import port_bytes
from chakra.replay.collectives.steps import Do
from chakra.replay.config import dump_network, load_network
from chakra.replay.config.model import Switches
from chakra.replay.networks.flow.trees import Trees

KINDS = ("ALL_REDUCE", "REDUCE_SCATTER", "ALL_GATHER")
UNIT = (1 << 30) / 1e9


def links_of(
    edges: list[tuple[Any, Any]], npus: int, gibps: float = 50, latency: float = 500
) -> dict[str, Any]:
    return {
        "npus_count": [npus],
        "links": [[a, b, gibps, latency] for a, b in edges],
        "switches": "reduces",
    }


def carried(kind: str, size: int, n: int, below: int) -> tuple[int, int]:
    """Bytes of a link with so many members below it, towards the root and back."""
    part = -(-size // n)
    return {
        "ALL_REDUCE": (size, size),
        "REDUCE_SCATTER": (size, below * part),
        "ALL_GATHER": (below * size, n * size),
    }[kind]


@st.composite
def trees(draw: st.DrawFn) -> tuple[list[tuple[Any, Any]], int]:
    """A random tree of switches with NPUs at any of them."""
    switches = draw(st.integers(1, 6))
    edges: list[tuple[Any, Any]] = [(f"s{draw(st.integers(0, k - 1))}", f"s{k}") for k in range(1, switches)]
    npus = draw(st.integers(2, 9))
    return edges + [(k, f"s{draw(st.integers(0, switches - 1))}") for k in range(npus)], npus


@given(trees(), st.sampled_from(KINDS), st.integers(1, 1 << 24), st.data())
@settings(max_examples=80, deadline=None)
def test_each_link_of_a_tree_carries_what_its_members_need(
    shape: tuple[list[tuple[Any, Any]], int], kind: str, size: int, data: st.DataObject
) -> None:
    """Any tree and any group: removing a link says who is below it. Nothing else carries a byte, and the time fits."""
    edges, npus = shape
    members = sorted(data.draw(st.sets(st.integers(0, npus - 1), min_size=2)))
    workload = Workload(npus)
    group = workload.add_group(members)
    for rank in range(npus):
        if rank in members:
            workload.builder(rank).collective(kind, size_bytes=size, group=group)
        else:
            workload.builder(rank).compute(duration_ns=1)
    result = simulate(workload, system(["inNetwork"]), links_of(edges, npus), backend="flow")
    books = {(row["from"], row["to"]): row["bytes"] for row in result.links}
    graph: nx.Graph[Any] = nx.Graph(edges)
    used = set().union(
        *(set(map(frozenset, nx.utils.pairwise(nx.shortest_path(graph, members[0], m)))) for m in members)
    )
    assert {frozenset(way) for way in books} == used
    most = 0
    for way in used:
        a, b = tuple(way)
        cut = graph.copy()
        cut.remove_edge(a, b)
        here = nx.node_connected_component(cut, a)
        counts = len([m for m in members if m in here]), len([m for m in members if m not in here])
        ways = (books[a, b], books[b, a])
        n = len(members)
        # the root lies on one side or the other
        towards, away = carried(kind, size, n, counts[0]), carried(kind, size, n, counts[1])
        assert ways in (towards, away[::-1])
        most = max(most, *ways)
    depth = max(nx.single_source_shortest_path_length(graph, members[0]).values())
    took = int(result.finish_ns[members[0]])
    alone = 2 * ENDPOINT + most / (50 * UNIT)
    assert alone + 2 * 500 <= took <= alone + 2 * 500 * (depth + 1) + 2
    assert len({int(result.finish_ns[m]) for m in members}) == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [2, 5])
def test_a_star_is_a_switch(kind: str, n: int) -> None:
    """One vertex in the middle: times and bytes are those of the building block."""
    traces = [one(kind, 3_000_001)] * n
    star = simulate(
        traces, system(["inNetwork"], 3), links_of([(k, "s") for k in range(n)], n), backend="flow"
    )
    able = {**network(["Switch"], [n]), "switches": ["reduces"]}
    block = simulate(traces, system(["inNetwork"], 3), able, backend="flow")
    assert star.finish_ns.tolist() == block.finish_ns.tolist()
    assert [row["bytes"] for row in star.links] == [row["bytes"] for row in block.links]
    up, _ = port_bytes(Do[kind], 3_000_001, n)
    assert star.dimensions[0]["bytes_per_npu"] == up


def two_levels(leaves: int, each: int, spines: int) -> list[tuple[Any, Any]]:
    edges: list[tuple[Any, Any]] = [
        (leaf * each + k, f"leaf{leaf}") for leaf in range(leaves) for k in range(each)
    ]
    return edges + [(f"leaf{leaf}", f"spine{spine}") for leaf in range(leaves) for spine in range(spines)]


def test_trees_of_many_groups_spread_over_spines() -> None:
    """Groups across leaves that take a spine each run beside each other without sharing a link."""
    leaves, each, spines = 4, 4, 4
    edges, size = two_levels(leaves, each, spines), 1 << 24
    workload = Workload(leaves * each)
    groups = [workload.add_group([leaf * each + k for leaf in range(leaves)]) for k in range(each)]
    for rank in range(leaves * each):
        workload.builder(rank).collective("ALL_REDUCE", size_bytes=size, group=groups[rank % each])
    result = simulate(workload, system(["inNetwork"]), links_of(edges, leaves * each), backend="flow")
    roots = Counter(row["to"] for row in result.links if str(row["to"]).startswith("spine"))
    assert roots == {f"spine{k}": leaves for k in range(spines)}
    exact = 2 * ENDPOINT + size / (50 * UNIT) + 4 * 500
    assert result.finish_ns.tolist() == [pytest.approx(exact, abs=1)] * 16
    assert not result.raw.partition.n_classes < 16


def test_logical_dimensions_have_trees_of_their_own() -> None:
    """Two dimensions over a fat tree: inside leaves, then across; every NIC carries both phases."""
    edges, size = two_levels(2, 4, 2), 1 << 22
    net = {**links_of(edges, 8), "npus_count": [4, 2]}
    result = simulate([one("ALL_REDUCE", size)] * 8, system(["inNetwork"] * 2), net, backend="flow")
    books = {(row["from"], row["to"]): row["bytes"] for row in result.links}
    assert all(books[k, f"leaf{k // 4}"] == 2 * size for k in range(8))
    assert [row["bytes_per_npu"] for row in result.dimensions] == [size, size]
    across = sum(size for (a, b), size in books.items() if str(b).startswith("spine"))
    assert across == 8 * size


def test_no_switch_joins_a_ring_of_npus() -> None:
    edges: list[tuple[Any, Any]] = [(k, (k + 1) % 4) for k in range(4)]
    with pytest.raises(
        ConfigError, match="no switch joins the NPUs 0, 1, 2, 3 over links that run both ways"
    ):
        simulate([one("ALL_REDUCE", 4096)] * 4, system(["inNetwork"]), links_of(edges, 4), backend="flow")


def test_ways_are_shortest_and_links_are_shared_by_nobody_twice() -> None:
    loaded = load_network(links_of(two_levels(3, 2, 2), 6))
    branches = Trees(loaded).of([0, 1, 2, 5])
    assert [len(branch.up) for branch in branches] == [2, 1, 2, 2]
    assert [branch.below for branch in branches] == [(1, 2), (1,), (1, 1), (1, 1)]
    every = [k for branch in branches for k in (*branch.up, *branch.down)]
    assert len(every) == len(set(every))
    assert [branch.latency_ns for branch in branches] == [2000] * 4


def test_files_keep_the_word(tmp_path: Any) -> None:
    loaded = load_network(links_of([(0, "s"), (1, "s")], 2))
    path = tmp_path / "network.yml"
    path.write_text(dump_network(loaded))
    again = load_network(path)
    assert again.links is not None
    assert again.links.switches is Switches.REDUCES
    for wrong in (["reduces"], "sharp", True):
        with pytest.raises(ConfigError, match="'switches' must be one of plain, multicasts, reduces"):
            load_network({**links_of([(0, "s"), (1, "s")], 2), "switches": wrong})
