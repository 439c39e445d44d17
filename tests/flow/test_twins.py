"""Sprayed routes by classes of switches are all shortest paths, and cost what switches do, not pairs."""

import dataclasses
from collections import Counter
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from flow_worlds import both, every_pair, link_networks
from hypothesis import given, settings
from switch_layers import layers, shortest_paths

from chakra.builder import TraceBuilder, Workload
from chakra.errors import ConfigError
from chakra.platforms import cluster
from chakra.replay import topologies
from chakra.replay.config import load_network
from chakra.replay.config.model import Network
from chakra.replay.networks.flow.link_paths import link_paths, link_sections
from chakra.replay.symmetry import flow_classes


def check(network: Network) -> None:
    """Each pair's flow is spread over all shortest paths evenly."""
    assert network.links is not None
    paths = link_paths(network, every_pair(network.npus))
    for p, (src, dst) in enumerate(zip(paths.src.tolist(), paths.dst.tolist(), strict=True)):
        routes = shortest_paths(network, src, dst)
        uses = Counter(k for route in routes for k in route)
        hops = slice(int(paths.start[p]), int(paths.start[p + 1]))
        found = {
            k: Fraction(w, paths.whole)
            for k, w in zip(paths.link[hops].tolist(), paths.weight[hops].tolist(), strict=True)
        }
        assert len(found) == hops.stop - hops.start
        assert found == {k: Fraction(n, len(routes)) for k, n in uses.items()}
        late = max(sum(network.links.links[k].latency_ns for k in route) for route in routes)
        assert int(paths.latency_ns[p]) == int(late)


@settings(max_examples=150, deadline=None)
@given(layers())
def test_all_shortest_paths_of_layers_of_switches(network: Network) -> None:
    check(network)


@settings(max_examples=100, deadline=None)
@given(link_networks(ecmp=("spray",)))
def test_all_shortest_paths_of_random_graphs(network: Network) -> None:
    check(network)


def sprayed(network: Network) -> Network:
    """The network, with all equal paths used at once."""
    assert network.links is not None
    return dataclasses.replace(network, links=dataclasses.replace(network.links, ecmp="spray"))


@pytest.mark.parametrize("down", [[4, 4, 2], [3, 2, 3], [2, 8]])
def test_all_shortest_paths_of_fat_trees(down: list[int]) -> None:
    check(sprayed(topologies.fat_tree(down, oversubscription=2.0, bandwidth_gibps=50.0, latency_ns=500.0)))


@pytest.mark.parametrize("machines", [8, 40])
def test_links_are_listed_by_switches_and_not_by_pairs(machines: int) -> None:
    network = load_network(cluster(f"{machines}x hgx-h100 over 400G fat tree of 16 ports sprayed").network())
    assert network.links is not None
    npus = np.arange(network.npus)
    pairs = np.concatenate(
        [np.stack([npus, (npus + 8 * k) % network.npus], axis=1) for k in range(1, machines)]
    )
    sections, paths = link_sections(network, pairs), link_paths(network, pairs)
    leaves = machines
    # an NPU's two links to its leaf, and per two leaves what leads up, over and down
    assert len(sections.link) <= 2 * network.npus + leaves * leaves * 64
    assert len(paths.link) > 8 * (len(sections.link) - 2 * network.npus)
    assert (np.diff(sections.start) <= 6).all()


@pytest.mark.parametrize(
    "fabric", ["fat tree of 16 ports oversubscribed 3 sprayed", "rails of 8 ports sprayed"]
)
@pytest.mark.parametrize("at_once", [7, None])
def test_machines_on_switches_fold_as_they_run(
    fabric: str, at_once: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if at_once is not None:  # what is counted in pieces, in many of them
        monkeypatch.setattr(flow_classes, "ROWS_AT_ONCE", at_once)
    network = load_network(cluster(f"8x hgx-h100 over 400G {fabric}").network())
    n = network.npus
    workload = Workload(n)
    tensor = [workload.add_group(range(8 * k, 8 * k + 8)) for k in range(n // 8)]
    data = [workload.add_group(range(k, n, 8)) for k in range(8)]

    def step(b: TraceBuilder) -> None:
        first = b.collective("all_reduce", size_bytes=1 << 20, group=tensor[b.rank // 8])
        b.send((b.rank + 16) % n, size_bytes=300_000, tag=0, after=[first])
        b.recv((b.rank - 16) % n, size_bytes=300_000, tag=0, after=[first])
        b.collective("all_reduce", size_bytes=1 << 21, group=data[b.rank % 8], after=[first])

    workload.run(step)
    system: dict[str, Any] = {"all-reduce-implementation": ["ring", "ring"], "preferred-dataset-splits": 1}
    folded, _ = both(workload, system, network)
    assert folded.raw.partition.n_classes < n // 4


@pytest.mark.parametrize("forward", [True, False])
def test_more_paths_than_are_counted_are_refused(forward: bool) -> None:
    wide = [[f"{k}.{place}" for place in range(8)] for k in range(11)]
    layers_of = [["first"], *wide, ["last"]]
    links: list[list[Any]] = [[0, "first", 10, 5], [1, "last", 10, 5]]
    links += [[a, b, 10, 5] for low, high in pairwise(layers_of) for a in low for b in high]
    network = load_network({"npus_count": [2], "links": links, "ecmp": "spray", "npus_forward": forward})
    with pytest.raises(
        ConfigError, match=r"ecmp: spray: more than 2,147,483,648 equal paths between two NPUs"
    ):
        link_paths(network, every_pair(2))
