"""Networks of single links: reading, routes, faults, and equality with the building blocks."""

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chakra.builder import TraceBuilder, Workload
from chakra.cli.main import run
from chakra.errors import ConfigError, UsageError
from chakra.et import Trace
from chakra.platforms import cluster
from chakra.replay import simulate
from chakra.replay.config import Network, dump_network, load_network, load_system
from chakra.replay.networks.blocks import block_links, parse_slow
from chakra.replay.networks.routes import link_graph
from chakra.replay.topologies import dragonfly, fat_tree, rail_optimised, torus, with_faults

SYSTEM = {
    f"{kind}-implementation": ["ring"]
    for kind in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
}
STAR: dict[str, Any] = {"npus_count": [4], "links": [[i, "hub", 50, 500] for i in range(4)]}


def collective(kind: str, npus: int, size: int = 65536) -> list[Trace]:
    work = Workload(npus)
    work.run(lambda b: b.collective(kind, size_bytes=size), uniform=True)
    return work.traces()


def messages(npus: int, pairs: list[tuple[int, int]]) -> list[Trace]:
    work = Workload(npus)

    def program(b: TraceBuilder) -> None:
        b.metadata("idle")
        for tag, (src, dst) in enumerate(pairs):
            if src == b.rank:
                b.send(dst, size_bytes=40_000, tag=tag)
            if dst == b.rank:
                b.recv(src, size_bytes=40_000, tag=tag)

    work.run(program)
    return work.traces()


def dims_system(algorithm: str, count: int) -> dict[str, Any]:
    return {key: [algorithm] * count for key in SYSTEM}


BLOCKS = st.lists(
    st.tuples(st.sampled_from(["Ring", "Switch", "FullyConnected"]), st.sampled_from([2, 3, 4])),
    min_size=1,
    max_size=2,
)


@settings(max_examples=12, deadline=None)
@given(
    BLOCKS,
    st.sampled_from(["ring", "direct"]),
    st.sampled_from(["all-reduce", "all-to-all"]),
    st.sampled_from(["aware", "unaware"]),
)
def test_links_of_blocks_are_the_blocks(
    blocks: list[tuple[str, int]], algorithm: str, kind: str, backend: str
) -> None:
    """A link with its full bandwidth given as slow changes nothing, in either backend."""
    network = {
        "topology": [t for t, _ in blocks],
        "npus_count": [n for _, n in blocks],
        "bandwidth": [50, 25][: len(blocks)],
        "latency": [500, 700][: len(blocks)],
    }
    net = load_network(network)
    links = block_links(net)
    first = links.links[0]
    names = [*map(str, range(net.npus)), *links.vertices]
    same = {f"{names[first.src]}-{names[first.dst]}": 1.0}
    work = collective(kind, net.npus)
    system = dims_system(algorithm, len(blocks))
    block = simulate(work, system, network, backend=backend, engine="messages")
    single = simulate(work, system, network, backend=backend, slow_links=same)
    assert single.finish_ns.tolist() == block.finish_ns.tolist()
    assert [d["bytes_per_npu"] for d in single.dimensions] == [d["bytes_per_npu"] for d in block.dimensions]


@settings(max_examples=10, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 5)).filter(lambda p: p[0] != p[1]), min_size=1, max_size=6
    )
)
def test_messages_over_two_dimensions_take_the_same_links(pairs: list[tuple[int, int]]) -> None:
    network = {
        "topology": ["Ring", "Switch"],
        "npus_count": [3, 2],
        "bandwidth": [50, 25],
        "latency": [500, 700],
    }
    work = messages(6, pairs)
    system = dims_system("ring", 2)
    block = simulate(work, system, network, backend="aware", engine="messages")
    single = simulate(work, system, network, backend="aware", slow_links={"0-1": 1.0})
    assert single.finish_ns.tolist() == block.finish_ns.tolist()


def test_a_star_of_links_is_a_switch() -> None:
    switch = {"topology": ["Switch"], "npus_count": [4], "bandwidth": [50], "latency": [500]}
    for backend in ("aware", "unaware"):
        one = simulate(collective("all-reduce", 4), SYSTEM, STAR, backend=backend)
        two = simulate(collective("all-reduce", 4), SYSTEM, switch, backend=backend)
        assert one.finish_ns.tolist() == two.finish_ns.tolist()
    aware = simulate(collective("all-reduce", 4), SYSTEM, STAR, backend="aware")
    assert {(link["from"], link["to"]) for link in aware.links} >= {(0, "hub"), ("hub", 3)}


def test_a_slow_link_takes_its_share_and_a_failed_one_a_detour() -> None:
    ring = {"topology": ["Ring"], "npus_count": [4], "bandwidth": [50], "latency": [500]}
    work = messages(4, [(0, 1)])
    serial = 40_000 / (50 * 2**30 / 1e9)
    assert simulate(work, SYSTEM, ring, slow_links={"0-1": 0.5}).finish_ns[1] == int(500 + 2 * serial)
    assert simulate(work, SYSTEM, ring, fail_links=["0-1"]).finish_ns[1] == int(1500 + serial)
    hops = simulate(work, SYSTEM, ring, fail_links=["1-0"], backend="aware")
    assert {(link["from"], link["to"]) for link in hops.links} == {(0, 3), (3, 2), (2, 1)}


def test_equal_paths_are_spread_and_always_the_same() -> None:
    net = fat_tree([4, 4], [1, 4], bandwidth_gibps=50, latency_ns=500)
    pairs = np.array([(a, b) for a in range(4) for b in range(4, 16)])
    first, second = link_graph(net, pairs), link_graph(net, pairs)
    assert first.routes.tolist() == second.routes.tolist()
    assert net.links is not None
    tops = {
        net.links.vertices[net.links.links[link].dst - net.npus]
        for link in first.routes.tolist()
        if net.links.links[link].dst >= net.npus
    }
    assert {"L2.0.0", "L2.0.1", "L2.0.2", "L2.0.3"} <= tops


@settings(max_examples=25, deadline=None)
@given(st.integers(3, 9), st.data())
def test_routes_are_shortest_paths(n: int, data: st.DataObject) -> None:
    """NetworkX says how long a shortest path is; ours is a path of that length."""
    edges = {(i, i + 1) for i in range(n - 1)} | set(
        data.draw(
            st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda e: e[0] < e[1]))
        )
    )
    routing = data.draw(st.sampled_from(["hops", "latency"]))
    latency = {edge: data.draw(st.sampled_from([0, 100, 250.5])) for edge in sorted(edges)}
    graph: nx.Graph[int] = nx.Graph(routing=routing)
    for (a, b), ns in latency.items():
        graph.add_edge(a, b, bandwidth=10, latency=ns)
    net = load_network(graph)
    table = link_graph(net, np.array([(a, b) for a in range(n) for b in range(n)]))
    assert net.links is not None
    for a in range(n):
        for b in range(n):
            where = slice(int(table.route_start[a * n + b]), int(table.route_start[a * n + b + 1]))
            path = [net.links.links[link] for link in table.routes[where].tolist()]
            assert [a, *(link.dst for link in path)] == [*(link.src for link in path), b]
            if routing == "hops":
                assert len(path) == nx.shortest_path_length(graph, a, b)
            else:
                want = nx.shortest_path_length(graph, a, b, weight="latency")
                assert sum(link.latency_ns for link in path) == pytest.approx(want)


def test_given_routes_are_taken() -> None:
    text = {**STAR, "links": [*STAR["links"], [0, 1, 1, 10]], "routes": [[0, "hub", 1]]}
    serial = 40_000 / (50 * 2**30 / 1e9)
    assert simulate(messages(4, [(0, 1)]), SYSTEM, text).finish_ns[1] == int(1000 + serial)
    back = simulate(messages(4, [(1, 0)]), SYSTEM, text).finish_ns[0]
    assert back == int(10 + 40_000 / (2**30 / 1e9))


@pytest.mark.parametrize(
    "made",
    [
        fat_tree([4, 2, 2], bandwidth_gibps=50, latency_ns=500, oversubscription=[2, 1]),
        rail_optimised(
            3, 2, node_bandwidth_gibps=400, node_latency_ns=100, bandwidth_gibps=50, latency_ns=500, spines=2
        ),
        rail_optimised(
            2, 4, node_bandwidth_gibps=400, node_latency_ns=100, bandwidth_gibps=50, latency_ns=500
        ),
        torus([3, 2, 4], bandwidth_gibps=50, latency_ns=500),
        torus([3, 3], bandwidth_gibps=50, latency_ns=500, wrap=False),
        dragonfly(5, 2, 2, bandwidth_gibps=50, latency_ns=500, global_latency_ns=2000),
    ],
    ids=["fat-tree", "rails+spines", "rails", "torus", "mesh", "dragonfly"],
)
def test_builders_write_files_that_read_back_and_run(made: Network, tmp_path: Path) -> None:
    path = tmp_path / "network.yml"
    path.write_text(dump_network(made))
    back = load_network(path)
    assert (back.dims, back.links) == (made.dims, made.links)
    result = simulate(
        collective("all-reduce", made.npus), dims_system("ring", len(made.dims)), path, backend="aware"
    )
    assert (result.finish_ns > 0).all()
    assert result.links


def test_a_fat_tree_shares_what_oversubscription_leaves() -> None:
    net = fat_tree([8, 2], [1, 4], bandwidth_gibps=50, latency_ns=500, oversubscription=2)
    assert net.links is not None
    up = [x for x in net.links.links if x.src >= net.npus and x.dst >= net.npus and x.src < net.npus + 2]
    assert len(up) == 8
    assert sum(x.bandwidth_gibps for x in up) == 2 * 8 * 50 / 2


def test_a_mesh_has_no_closing_links_and_a_dragonfly_one_link_per_pair_of_groups() -> None:
    mesh, ring = (torus([4, 3], bandwidth_gibps=1, latency_ns=1, wrap=w) for w in (False, True))
    assert mesh.links is not None
    assert ring.links is not None
    assert len(mesh.links.links) == 2 * (3 * 3 + 4 * 2)
    assert len(ring.links.links) == 2 * 2 * 12
    fly = dragonfly(7, 3, 1, bandwidth_gibps=1, latency_ns=1)
    assert fly.links is not None
    between = {
        frozenset(v.split(".")[0] for v in (fly.links.vertices[x.src - 21], fly.links.vertices[x.dst - 21]))
        for x in fly.links.links
        if x.src >= 21 and x.dst >= 21
    }
    assert len([pair for pair in between if len(pair) == 2]) == 7 * 6 // 2


@pytest.mark.parametrize(
    "words",
    [
        "fat-tree --down 4,2",
        "rail --nodes 2 --npus-per-node 2",
        "torus --shape 2x2",
        "dragonfly --groups 3 --routers 2 --npus-per-router 1",
    ],
)
def test_sprayed_topologies_differ_in_that_alone(words: str, tmp_path: Path) -> None:
    made = []
    for k, more in enumerate(([], ["--sprayed"])):
        path = tmp_path / f"{k}.yml"
        assert run(["topology", *words.split(), *more, "-o", str(path), "--quiet"]) in (0, None)
        made.append(load_network(path).links)
    plain, sprayed = made
    assert plain is not None
    assert plain.ecmp == "hash"
    assert sprayed == replace(plain, ecmp="spray")


def test_graphml_is_read_as_the_graph(tmp_path: Path) -> None:
    graph: nx.Graph[int | str] = nx.Graph()
    for i in range(4):
        graph.add_edge(i, "hub", bandwidth=50.0, latency=500.0)
    nx.write_graphml(graph, tmp_path / "star.graphml")
    read, listed = load_network(tmp_path / "star.graphml").links, load_network(STAR).links
    assert read is not None
    assert listed is not None
    assert set(read.links) == set(listed.links)
    assert read.vertices == listed.vertices
    (tmp_path / "bad.graphml").write_text("<graphml")
    with pytest.raises(ConfigError, match=r"bad.graphml: not a GraphML file"):
        load_network(tmp_path / "bad.graphml")
    (tmp_path / "bomb.graphml").write_text('<!DOCTYPE x [<!ENTITY a "b">]><graphml/>')
    with pytest.raises(ConfigError, match="DOCTYPE"):
        load_network(tmp_path / "bomb.graphml")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"links": [[0, 1, 50, 500]]}, "NPU 2 cannot be reached from NPU 0"),
        ({"links": [*STAR["links"], ["hub", 0, 1, 1]]}, "from vertex 'hub' to NPU 0 twice"),
        (
            {"links": [[0, "hub", -1, 500]]},
            "entry 0: 'bandwidth' must be a number of GB/s, above 0, found -1",
        ),
        ({"links": [[0, "hub", 1, -5]]}, "'latency' must be a number of ns, 0 or more, found -5"),
        ({"links": [[0, "hub", 1, float("nan")]]}, "'latency' must be"),
        ({"links": [[0, "hub"]]}, "'bandwidth' is missing"),
        ({"links": [[0, 0, 1, 1]]}, "joins NPU 0 with itself"),
        ({"links": [[0, 9, 1, 1]]}, "NPU 9 is not one of the 4 NPUs"),
        ({"links": [[0]]}, "entry 0 must be"),
        ({"links": [{"from": 0, "too": 1}]}, "'too' is unknown; did you mean 'to'"),
        ({"links": []}, "empty list"),
        ({"links": 3}, "must be a list of links"),
        ({"npus_count": [1]}, "at least 2"),
        ({"topology": ["Ring"]}, "'topology' is unknown"),
        ({"routes": [[0, "hup", 1]]}, "no link has the vertex 'hup'; did you mean 'hub'"),
        ({"routes": [[0, 1]]}, "there is no link from NPU 0 to NPU 1"),
        ({"routes": [["hub", 1]]}, "two different NPUs"),
        ({"routing": "fast"}, "must be one of hops, latency"),
        ({"npus_forward": "no"}, "must be true or false"),
    ],
)
def test_wrong_files_are_one_line(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match="<network>") as caught:
        load_network({**STAR, **change})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (
            lambda: with_faults(load_network(STAR), ["0-1"]),
            "there is no such link in <network>; links of 0: 0-hub",
        ),
        (lambda: with_faults(load_network(STAR), ["0:1"]), "expected A-B"),
        (lambda: with_faults(load_network(STAR), ["0-hub"]), "once the failed links are gone"),
        (lambda: with_faults(load_network(STAR), [], {"0-hub": 0.0}), "must be above 0"),
        (lambda: with_faults(load_network(STAR), [], {"0-hub": 1.0, "hub-0": 2.0}), "given twice"),
        (lambda: parse_slow(["0-hub"]), "expected A-B=FACTOR"),
        (lambda: fat_tree([0], bandwidth_gibps=1, latency_ns=1), "at least 1"),
        (lambda: torus([10**5, 10**5], bandwidth_gibps=1, latency_ns=1), "at most"),
        (lambda: simulate(collective("all-reduce", 4), SYSTEM, STAR, engine="phases"), "link"),
        (
            lambda: simulate(
                collective("all-reduce", 4),
                {**SYSTEM, "active-chunks-per-dimension": 2},
                {"topology": ["Ring"], "npus_count": [4], "bandwidth": [50], "latency": [500]},
                backend="aware",
                engine="phases",
            ),
            "engine: 'phases' cannot run this exactly: several chunks at a time share links",
        ),
    ],
)
def test_wrong_options_are_one_line(act: Callable[[], object], message: str) -> None:
    with pytest.raises((UsageError, ConfigError)) as caught:
        act()
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("words", "source", "listed"),
    [
        ("2x hgx-h100 over 400G", "NVIDIA HGX H100 8-GPU over 400G", "0-sw0.0, 0-sw1.0"),
        (
            "2x hgx-h100 over 400G rails of 64 ports",
            "NVIDIA HGX H100 8-GPU over 400G rails of 64 ports",
            "0-m0.0.0, 0-leaf0.0",
        ),
    ],
)
def test_a_link_that_is_not_there_on_a_machine_in_words(words: str, source: str, listed: str) -> None:
    machine = cluster(words)
    with pytest.raises(UsageError) as caught:
        with_faults(load_network(machine.network()), ["0-1"])
    assert str(caught.value) == f"--fail-link 0-1: there is no such link in {source}; links of 0: {listed}"
    assert load_system(machine.system()).source == source
    # a copy and one that went to another process keep the name
    assert load_network(pickle.loads(pickle.dumps(machine.network()))).source == source
