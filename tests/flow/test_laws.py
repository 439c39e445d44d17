"""Laws of flows that share links, and closed forms: parallel, failed and slow links, shared interfaces, caps."""

from typing import Any

import pytest
from flow_worlds import World, every_pair, link_networks
from hypothesis import given, settings
from hypothesis import strategies as st

from chakra.builder import TraceBuilder, Workload
from chakra.replay import simulate
from chakra.replay.config import load_network
from chakra.replay.config.model import Network
from chakra.replay.networks.flow.link_paths import link_paths
from chakra.replay.topologies import with_faults

#: bytes per ns of a bandwidth of 1
UNIT = 2**30 / 1e9
SIZE = 1_000_000


def arrivals(network: Network, starts: list[tuple[int, int, int, int]], cap: float = 0.0) -> list[int]:
    """When flows (tick, src, dst, bytes) are there."""
    paths = link_paths(network, every_pair(network.npus))
    return World(paths, network.npus, 100 * SIZE, cap=cap).arrivals(starts)


def scaled(network: Network, factor: float) -> Network:
    """The network with all bandwidths times a factor."""
    links = network.links
    assert links is not None
    name = [*range(network.npus), *links.vertices]
    return load_network(
        {
            "npus_count": [network.npus],
            "links": [
                {
                    "from": name[x.src],
                    "to": name[x.dst],
                    "bandwidth": x.bandwidth_gibps * factor,
                    "latency": x.latency_ns,
                    "directed": True,
                }
                for x in links.links
            ],
            "ecmp": links.ecmp,
        }
    )


@settings(max_examples=60, deadline=None)
@given(st.data(), link_networks(), st.sampled_from([1.5, 2.0, 3.0, 7.0]))
def test_faster_links_all_by_one_factor_hurt_no_collective(
    data: st.DataObject, network: Network, factor: float
) -> None:
    """All messages of a collective start at once: none is there later when all links are faster by one factor."""
    size = data.draw(st.sampled_from([1, 4096, 1_000_003]))
    kind = data.draw(st.sampled_from(["all to all", "ring", "gather"]))
    n = network.npus
    pairs = {
        "all to all": [(a, b) for a in range(n) for b in range(n) if a != b],
        "ring": [(a, (a + 1) % n) for a in range(n)],
        "gather": [(a, 0) for a in range(1, n)],
    }[kind]
    starts = [(0, a, b, size) for a, b in pairs]
    before, after = arrivals(network, starts), arrivals(scaled(network, factor), starts)
    # flows end at whole ns: each end before a flow's own may come one later
    assert all(new <= old + len(starts) for old, new in zip(before, after, strict=True))
    assert max(after) <= max(before) + len(starts)


def test_one_faster_link_may_hurt() -> None:
    """Flow 0 crosses a link and b, 1 crosses b and c, 2 crosses c: a faster, so 1 falls behind 2, and ends alone on b."""

    def last(a: float) -> int:
        links = [
            [0, "p", a, 0], [1, "p", 100, 0], ["p", "q", 1.2, 0], ["q", 3, 100, 0], ["q", "r", 2, 0], [2, "q", 100, 0],
            ["r", 4, 100, 0],
        ]  # fmt: skip
        network = load_network({"npus_count": [5], "links": links})
        return max(arrivals(network, [(0, 0, 3, 2 * SIZE), (0, 1, 4, 10 * SIZE), (0, 2, 4, 10 * SIZE)]))

    slow, fast = last(0.2), last(2.0)
    # before: 0.2, 1 and 1 until all end; after: 0.6, 0.6, 1.4, then 1 and 1, then 1.2 for flow 1
    assert abs(slow - 10 * SIZE / UNIT) <= 5
    first, second = 2 / 0.6, (10 - 1.4 * 2 / 0.6) / 1.0
    third = (10 - 0.6 * first - second) / 1.2
    assert abs(fast - (first + second + third) * SIZE / UNIT) <= 5
    assert fast > slow


def two_paths(ecmp: str) -> dict[str, Any]:
    """Two leaves joined by two links, over a switch each, which is what parallel links are."""
    links: list[list[Any]] = [[k, "a" if k < 2 else "b", 100, 10] for k in range(4)]
    links += [["a", s, 10, 10] for s in ("u", "v")] + [[s, "b", 10, 10] for s in ("u", "v")]
    return {"npus_count": [4], "links": links, "ecmp": ecmp}


@pytest.mark.parametrize(("ecmp", "rate"), [("spray", 20.0), ("first", 10.0), ("adaptive", 10.0)])
def test_parallel_links(ecmp: str, rate: float) -> None:
    """A sprayed flow has all of them, another one of them."""
    network = load_network(two_paths(ecmp))
    paths = link_paths(network, every_pair(4))
    one = World(paths, 4, SIZE, adaptive=ecmp == "adaptive")
    (tick,) = one.arrivals([(0, 0, 2, SIZE)])
    assert 0 <= tick - 40 - SIZE / (rate * UNIT) <= 1


@pytest.mark.parametrize("ecmp", ["spray", "first", "destination", "hash"])
def test_a_failed_link_leaves_the_other_and_a_slow_one_what_it_has(ecmp: str) -> None:
    network = load_network(two_paths(ecmp))
    failed = with_faults(network, ["a-u"])
    (tick,) = arrivals(failed, [(0, 0, 2, SIZE)])
    assert 0 <= tick - 40 - SIZE / (10 * UNIT) <= 1
    slow = with_faults(network, [], {"a-u": 0.5, "a-v": 0.25})
    (tick,) = arrivals(slow, [(0, 0, 2, SIZE)])
    rates = {"spray": [5.0], "first": [5.0]}.get(ecmp, [5.0, 2.5])
    assert any(0 <= tick - 40 - SIZE / (rate * UNIT) <= 1 for rate in rates)


@pytest.mark.parametrize("sharing", [1, 2, 4])
def test_npus_that_share_an_interface(sharing: int) -> None:
    """An interface of two or four NPUs is a vertex with one link on, which they have in equal parts."""
    links: list[list[Any]] = [[k, f"nic{k // sharing}", 400, 10] for k in range(8)]
    links += [[f"nic{k}", "switch", 50, 10] for k in range(8 // sharing)]
    network = load_network({"npus_count": [8], "links": links})
    starts = [(0, k, (k + 4) % 8, SIZE) for k in range(8)]
    for tick in arrivals(network, starts):
        assert 0 <= tick - 40 - SIZE * sharing / (50 * UNIT) <= 1


@pytest.mark.parametrize("cap", [1.0, 5.0, 40.0])
def test_a_cap_for_each_flow(cap: float) -> None:
    """Two flows share a link of 20: each has 10, or its cap where that is less."""
    links = [[0, "s", 100, 10], [1, "s", 100, 10], ["s", 2, 20, 10]]
    network = load_network({"npus_count": [3], "links": links})
    rate = min(10 * UNIT, cap)
    for tick in arrivals(network, [(0, 0, 2, SIZE), (0, 1, 2, SIZE)], cap):
        assert 0 <= tick - 20 - SIZE / rate <= 1


@pytest.mark.parametrize("ecmp", ["hash", "first", "destination"])
def test_a_flow_of_any_route_alone_is_cut_through(ecmp: str) -> None:
    network = two_paths(ecmp)
    workload = Workload(4)

    def program(b: TraceBuilder) -> None:
        if b.rank == 0:
            b.send(2, size_bytes=SIZE, tag=1)
        elif b.rank == 2:
            b.recv(0, size_bytes=SIZE, tag=1)
        else:
            b.compute(duration_ns=1)

    workload.run(program)
    result = simulate(workload, {"all-reduce-implementation": ["ring"]}, network, backend="flow")
    assert 0 <= int(result.finish_ns[2]) - 40 - SIZE / (10 * UNIT) <= 1
