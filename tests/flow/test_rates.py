"""Rates and times of flows, by laws and against the reference."""

from fractions import Fraction
from itertools import pairwise
from typing import Any

import networkx as nx
import numpy as np
import pytest
from flow_worlds import World, every_pair, link_networks, starts_on
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import Flow, arrivals

from chakra.builder import Workload
from chakra.replay import simulate
from chakra.replay.config import load_network
from chakra.replay.config.model import Network
from chakra.replay.networks.flow import slowest
from chakra.replay.networks.flow.link_paths import link_paths
from chakra.replay.networks.flow.paths import block_paths
from chakra.replay.networks.routes import link_graph

LARGEST = 1_000_003


def world(network: Network, *, cap: float = 0.0) -> World:
    """Flows between all pairs of a network of links."""
    adaptive = network.links is not None and network.links.ecmp == "adaptive"
    paths = link_paths(network, every_pair(network.npus))
    return World(paths, network.npus, LARGEST, cap=cap, adaptive=adaptive)


def pair_of(one: World, src: int, dst: int) -> int:
    """Number of a pair."""
    return int(np.flatnonzero((one.paths.src == src) & (one.paths.dst == dst))[0])


@settings(max_examples=150, deadline=None)
@given(st.data(), link_networks(), st.sampled_from([0.0, 5.0]))
def test_times_are_those_of_the_reference(data: st.DataObject, network: Network, cap: float) -> None:
    starts = data.draw(starts_on(network.npus))
    one = world(network, cap=cap)
    assert network.links is not None
    capacity = [Fraction(link.bytes_per_ns) for link in network.links.links]
    flows = []
    for tick, src, dst, size in starts:
        pair = pair_of(one, src, dst)
        latency = int(one.paths.latency_ns[one.paths.first[pair]])
        flows.append(Flow(tick, size, one.shares_of_links(pair), latency))
    exact = arrivals(flows, capacity, Fraction(cap) if cap else None)
    for time, reference in zip(one.arrivals(starts), exact, strict=True):
        # flows end at whole ns, and what one takes too long another has less or more
        assert abs(time - reference) <= 1 + len(starts)


@settings(max_examples=150, deadline=None)
@given(st.data(), link_networks(ecmp=("hash", "first", "spray", "adaptive")))
def test_no_link_is_above_its_capacity_and_every_flow_has_a_full_link(
    data: st.DataObject, network: Network
) -> None:
    starts = data.draw(starts_on(network.npus, 12))
    one = world(network)
    for _ in one.run(starts):
        loads = one.loads()
        assert all(load <= capacity for capacity, load, _ in loads)
        full = {
            k for k, (capacity, load, flows) in enumerate(loads) if capacity - load <= flows * one.paths.whole
        }
        for rate, links in one.routes_with_flows():
            assert rate > 0
            assert full & links, "a flow without a bottleneck"


@settings(max_examples=60, deadline=None)
@given(link_networks(ecmp=("hash", "first", "destination")))
def test_routes_are_those_of_messages(network: Network) -> None:
    pairs = every_pair(network.npus)
    paths, graph = link_paths(network, pairs), link_graph(network, pairs)
    for p, (src, dst) in enumerate(zip(paths.src.tolist(), paths.dst.tolist(), strict=True)):
        key = src * network.npus + dst
        route = graph.routes[graph.route_start[key] : graph.route_start[key + 1]].tolist()
        assert paths.link[paths.start[p] : paths.start[p + 1]].tolist() == route


@settings(max_examples=60, deadline=None)
@given(st.data(), link_networks(ecmp=("spray",)))
def test_sprayed_flows_do_not_depend_on_names(data: st.DataObject, network: Network) -> None:
    starts = data.draw(starts_on(network.npus))
    order = data.draw(st.permutations(range(network.npus)))
    links = network.links
    assert links is not None
    name = [*order, *links.vertices]
    renamed = load_network(
        {
            "npus_count": [network.npus],
            "links": [
                {
                    "from": name[x.src],
                    "to": name[x.dst],
                    "bandwidth": x.bandwidth_gibps,
                    "latency": x.latency_ns,
                }
                | {"directed": True}
                for x in reversed(links.links)
            ],
            "ecmp": "spray",
        }
    )
    moved = [(tick, order[src], order[dst], size) for tick, src, dst, size in starts]
    assert world(renamed).arrivals(moved) == world(network).arrivals(starts)


@pytest.mark.parametrize("flows", [1, 2, 3, 7])
def test_flows_into_one_port_share_it(flows: int) -> None:
    """Incast: n equal flows take n times as long as one, which cuts through: one transfer, all latencies."""
    net = {"topology": ["Switch"], "npus_count": [8], "bandwidth": [50], "latency": [500]}
    network = load_network(net)
    one = World(block_paths(network, every_pair(8)), 8, 1 << 30)
    size = 1 << 20
    time = size * flows / (50 * 2**30 / 1e9)
    for tick in one.arrivals([(0, k + 1, 0, size) for k in range(flows)]):
        assert 0 <= tick - 1000 - time <= 1


def test_what_an_unequal_flow_leaves_goes_to_the_others() -> None:
    """Bertsekas and Gallager's example: 0 to 1 over a slow link leaves the shared one to the flow beside it."""
    links = [
        [0, "a", 100, 0],
        ["a", 1, 10, 0],
        ["a", 2, 100, 0],
        ["b", "a", 50, 0],
        [3, "b", 100, 0],
        [4, "b", 100, 0],
    ]
    network = load_network({"npus_count": [5], "links": links})
    one = world(network)
    size = 1_000_000
    slow, fast = one.arrivals([(0, 3, 1, size), (0, 4, 2, size)])
    beta = 2**30 / 1e9
    assert abs(fast - size / (40 * beta)) <= 1
    assert abs(slow - size / (10 * beta)) <= 1


def test_an_adaptive_flow_takes_the_way_that_is_free() -> None:
    links = [[0, "a", 100, 0], [1, "a", 100, 0], ["a", "u", 10, 0], ["a", "v", 10, 0], ["u", "b", 10, 0]]
    links += [["v", "b", 10, 0], ["b", 2, 100, 0], ["b", 3, 100, 0]]
    network = load_network({"npus_count": [4], "links": links, "ecmp": "adaptive"})
    size = 1_000_000
    alone = size / (10 * 2**30 / 1e9)
    for tick in world(network).arrivals([(0, 0, 2, size), (0, 1, 3, size)]):
        assert abs(tick - alone) <= 1
    three = world(network).arrivals([(0, 0, 2, size), (0, 1, 3, size), (0, 0, 3, size)])
    assert max(abs(tick - want * alone) for tick, want in zip(three, (2, 1, 2), strict=True)) <= 2


@settings(max_examples=100, deadline=None)
@given(st.data(), st.integers(2, 6), st.integers(1, 4), st.integers(1, 3), st.booleans())
def test_a_sprayed_message_is_there_when_its_slowest_way_has_brought_its_last_byte(
    data: st.DataObject, npus: int, spines: int, leaves: int, small: bool
) -> None:
    """Latencies by the shortest paths that networkx lists, on leaves, spines and links between leaves."""
    names: list[tuple[Any, Any]] = [(npu, f"leaf{npu % leaves}") for npu in range(npus)]
    names += [(f"leaf{leaf}", f"spine{spine}") for leaf in range(leaves) for spine in range(spines)]
    names += data.draw(
        st.lists(st.sampled_from([(0, 1), (0, "leaf1"), ("leaf0", "leaf1"), (1, "spine0")]), unique=True)
    )
    names = [pair for pair in dict.fromkeys(names) if leaves > 1 or "leaf1" not in pair]
    latency = {pair: data.draw(st.sampled_from([0.0, 1.0, 300.75, 500.0, 3000.0])) for pair in names}
    links = [[*pair, 10, latency[pair]] for pair in names]
    network = load_network({"npus_count": [npus], "links": links, "ecmp": "spray"})
    graph = nx.Graph(names)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slowest, "TOGETHER", 1 if small else slowest.TOGETHER)
        paths = link_paths(network, every_pair(npus))
    for src, dst, told in zip(paths.src.tolist(), paths.dst.tolist(), paths.latency_ns.tolist(), strict=True):
        if src == dst:
            continue
        ways = nx.all_shortest_paths(graph, src, dst)
        sums = [
            sum(latency[pair] if pair in latency else latency[pair[::-1]] for pair in pairwise(way))
            for way in ways
        ]
        assert told == int(max(sums)), (src, dst, sums)


@pytest.mark.parametrize("fast", [1e7, 1e9, 1e12, 1e15, 1e90])
@pytest.mark.parametrize("slow", [1e-3, 0.1, 50.0])
def test_a_link_without_bound_costs_the_slow_ones_nothing(fast: float, slow: float) -> None:
    """Three flows leave one fast port over slow links: each has its own; two that enter by one share it."""
    links = [[0, "a", fast, 1], ["a", 1, slow, 1], ["a", 2, slow, 1], ["a", 3, slow, 1]]
    one = world(load_network({"npus_count": [4], "links": links, "ecmp": "first"}))
    size = 1_000_000
    alone = size / (slow * 2**30 / 1e9) + 2
    for tick in one.arrivals([(0, 0, end, size) for end in (1, 2, 3)]):
        assert 0 <= tick - alone <= 1 + alone / 1e6
    for tick in one.arrivals([(0, 0, 1, size), (0, 2, 1, size)]):
        assert 0 <= tick - (2 * alone - 2) <= 1 + alone / 1e6


def test_the_use_of_a_link_without_bound_is_of_what_it_has() -> None:
    workload = Workload(2)
    workload.builder(0).send(1, size_bytes=1 << 20)
    workload.builder(1).recv(0, size_bytes=1 << 20)
    net = {"npus_count": [2], "links": [[0, "a", 1e9, 0], ["a", 1, 5e5, 0]]}
    use = simulate(workload, {}, net, backend="flow").link_use
    shares = {row["from"]: row["share"][0] for row in use["links"]}
    assert shares["a"] > 0.5
    assert shares[0] < 0.001


@settings(max_examples=60, deadline=None)
@given(st.data(), link_networks(ecmp=("spray", "hash")), st.sampled_from([2.0, 3.0, 10.0]))
def test_alone_a_flow_takes_its_closed_form(data: st.DataObject, network: Network, factor: float) -> None:
    one = world(network)
    src = data.draw(st.integers(0, network.npus - 1))
    dst = (src + data.draw(st.integers(1, network.npus - 1))) % network.npus
    pair = pair_of(one, src, dst)
    shares = one.shares_of_links(pair)
    rate = min(Fraction(float(one.paths.bytes_per_ns[k])) / share for k, share in shares.items())
    size = int(1000 * factor)
    (tick,) = one.arrivals([(7, src, dst, size)])
    exact = 7 + size / rate + int(one.paths.latency_ns[one.paths.first[pair]])
    assert 0 <= tick - exact + Fraction(1, 1000) <= Fraction(1002, 1000)
