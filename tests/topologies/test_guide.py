"""What docs/guides/networks.md says that a message costs, for every topology and both backends."""

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chakra.builder import TraceBuilder
from chakra.replay import simulate
from chakra.replay.config import load_network
from chakra.replay.topologies import dragonfly, fat_tree, rail_optimised, torus

ROOT = Path(__file__).resolve().parents[2]
SYSTEM: dict[str, Any] = {"all-reduce-implementation": ["ring"]}


def took(network: Any, src: int, dst: int, size: int, backend: str) -> int:
    """Time of one message when nothing else is under way."""
    npus = load_network(network).npus
    traces = []
    for rank in range(npus):
        builder = TraceBuilder(rank=rank)
        if rank == src:
            builder.send(dst, size_bytes=size)
        elif rank == dst:
            builder.recv(src, size_bytes=size)
        else:
            builder.compute(duration_ns=1)
        traces.append(builder.build())
    return int(simulate(traces, SYSTEM, network, backend=backend).finish_ns[dst])


@pytest.mark.parametrize("size", [1000, 1 << 20])
@pytest.mark.parametrize(
    "dims",
    [
        [("Ring", 5, 50, 500.5)],
        [("FullyConnected", 4, 30, 100)],
        [("Switch", 4, 25, 250)],
        [("Ring", 4, 50, 500), ("Switch", 2, 25, 700)],
        [("FullyConnected", 3, 40, 10), ("Ring", 3, 10, 20)],
    ],
)
def test_building_blocks(dims: list[tuple[str, int, float, float]], size: int) -> None:
    network = dict(
        zip(
            ("topology", "npus_count", "bandwidth", "latency"),
            map(list, zip(*dims, strict=True)),
            strict=True,
        )
    )
    npus = math.prod(count for _, count, _, _ in dims)
    for src, dst in [(0, d) for d in range(1, npus)] + [(npus - 1, 0), (1, npus - 1)]:
        free = linked = 0
        a, b = src, dst
        for topology, count, bandwidth, latency in dims:
            away = (b - a) % count
            hops = (
                {"Ring": min(away, count - away), "FullyConnected": 1, "Switch": 2}[topology] if away else 0
            )
            rate = bandwidth * (1 << 30) / 1e9
            free += int(hops * latency + size / rate) if hops else 0
            linked += hops * int(latency + size / rate)
            a, b = a // count, b // count
        assert took(network, src, dst, size, "unaware") == free, (src, dst)
        assert took(network, src, dst, size, "aware") == linked, (src, dst)


def test_single_links() -> None:
    """Unaware: latencies of the route and the slowest link; aware: link after link."""
    network = {
        "npus_count": [2],
        "links": [[0, "a", 50, 500], ["a", "b", 10, 300], ["b", 1, 25, 100]],
    }
    size = 1 << 20
    rates = [bandwidth * (1 << 30) / 1e9 for bandwidth in (50, 10, 25)]
    assert took(network, 0, 1, size, "unaware") == int(900 + size / min(rates))
    wanted = sum(int(latency + size / rate) for latency, rate in zip((500, 300, 100), rates, strict=True))
    assert took(network, 0, 1, size, "aware") == wanted


def grid(shape: list[int], wrap: bool) -> Callable[[int, int], int]:
    def links(a: int, b: int) -> int:
        total = 0
        for size in shape:
            away = abs(a % size - b % size)
            total += min(away, size - away) if wrap else away
            a, b = a // size, b // size
        return total

    return links


def in_rails(a: int, b: int) -> int:
    return 2 if a // 4 == b // 4 or a % 4 == b % 4 else 4


def in_tree(a: int, b: int) -> int:
    return 2 if a // 4 == b // 4 else 4


def in_dragonfly(a: int, b: int) -> int:
    """3 groups of 2 routers of 2 NPUs; one link between every two groups."""
    ra, rb = a // 2, b // 2
    ga, gb = ra // 2, rb // 2
    if ra == rb:
        return 2
    if ga == gb:
        return 3
    ends = [g * 2 + (other - g - 1) % 3 for g, other in ((ga, gb), (gb, ga))]
    return 3 + (ra != ends[0]) + (rb != ends[1])


@pytest.mark.parametrize(
    ("network", "links"),
    [
        (torus([4, 3], bandwidth_gibps=1e6, latency_ns=1000), grid([4, 3], True)),
        (torus([4, 3], bandwidth_gibps=1e6, latency_ns=1000, wrap=False), grid([4, 3], False)),
        (fat_tree([4, 2], bandwidth_gibps=1e6, latency_ns=1000), in_tree),
        (
            rail_optimised(
                2, 4, node_bandwidth_gibps=1e6, node_latency_ns=1000, bandwidth_gibps=1e6, latency_ns=1000
            ),
            in_rails,
        ),
        (
            rail_optimised(
                2,
                4,
                node_bandwidth_gibps=1e6,
                node_latency_ns=1000,
                bandwidth_gibps=1e6,
                latency_ns=1000,
                spines=2,
            ),
            in_rails,
        ),
        (dragonfly(3, 2, 2, bandwidth_gibps=1e6, latency_ns=1000), in_dragonfly),
    ],
    ids=["torus", "mesh", "fat tree", "rails", "rails and spines", "dragonfly"],
)
def test_links_on_the_way(network: Any, links: Callable[[int, int], int]) -> None:
    """A message of one byte takes the latency of every link on its way."""
    pairs = list(itertools.combinations(range(network.npus), 2))
    for a, b in pairs:
        assert took(network, a, b, 1, "unaware") == 1000 * links(a, b), (a, b)
