"""One route for each pair: hop by hop among all shortest paths, as the rule of `ecmp` picks at each vertex."""

import dataclasses

import numpy as np
import pytest
from flow_worlds import every_pair, link_networks
from hypothesis import given, settings
from hypothesis import strategies as st
from switch_layers import layers, shortest_paths

from chakra.platforms import cluster
from chakra.replay import topologies
from chakra.replay.config import load_network
from chakra.replay.config.model import Network
from chakra.replay.networks.flow import search
from chakra.replay.networks.flow.link_paths import link_paths
from chakra.replay.networks.routes import pick_next

PICKED = ("hash", "destination", "first")


def picked(network: Network, src: int, dst: int, ecmp: str) -> list[int]:
    """The route of a pair: of the links by which shortest paths go on at a vertex, in the file's order, one is picked."""
    assert network.links is not None
    links = network.links.links
    paths, here, left, route = shortest_paths(network, src, dst), src, dst, list[int]()
    while here != dst:
        onward = sorted({k for path in paths for k in path if links[k].src == here})
        row = [np.array([x]) for x in (src * network.npus + dst, here, left, len(onward))]
        route.append(onward[int(pick_next(ecmp, *row)[0])])
        left //= len(onward)
        here = links[route[-1]].dst
    return route


def check(network: Network, ecmp: str) -> None:
    assert network.links is not None
    network = dataclasses.replace(network, links=dataclasses.replace(network.links, ecmp=ecmp))
    paths = link_paths(network, every_pair(network.npus))
    assert (paths.weight == paths.whole).all()
    for p, (src, dst) in enumerate(zip(paths.src.tolist(), paths.dst.tolist(), strict=True)):
        found = paths.link[paths.start[p] : paths.start[p + 1]].tolist()
        assert found == picked(network, src, dst, ecmp)


@settings(max_examples=200, deadline=None)
@given(layers(), st.sampled_from(PICKED))
def test_routes_over_layers_of_switches(network: Network, ecmp: str) -> None:
    check(network, ecmp)


@settings(max_examples=100, deadline=None)
@given(link_networks(ecmp=("hash",)), st.sampled_from(PICKED))
def test_routes_over_random_graphs(network: Network, ecmp: str) -> None:
    check(network, ecmp)


@pytest.mark.parametrize("ecmp", PICKED)
@pytest.mark.parametrize("down", [[4, 4, 2], [3, 2, 3], [2, 8]])
def test_routes_over_fat_trees(down: list[int], ecmp: str) -> None:
    check(topologies.fat_tree(down, oversubscription=2.0, bandwidth_gibps=50.0, latency_ns=500.0), ecmp)


@pytest.mark.parametrize("machines", [64, 128])
def test_distances_are_searched_for_by_pods_and_not_by_receivers(
    machines: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = load_network(cluster(f"{machines}x hgx-h100 over 400G fat tree of 16 ports").network())
    searches: list[int] = []
    search_once = search.search

    def counted(*given: object) -> int:
        searches.append(0)
        return search_once(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(search, "search", counted)
    monkeypatch.setattr("chakra.replay.networks.flow.link_paths.worth_compiling", lambda *_: False)
    npus = np.arange(network.npus)
    link_paths(network, np.stack([npus, (npus + network.npus // 2) % network.npus], axis=1))
    # a leaf has a machine, a pod eight of them: each pod is searched from for the ports and for the ways, and the
    # switches inside machines once
    assert 0 < len(searches) <= 2 * machines // 8 + 1
