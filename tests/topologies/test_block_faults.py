"""Building blocks with slow and failed links: what their whole links take, and never less."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chakra.builder import Workload
from chakra.errors import ConfigError, UsageError
from chakra.replay import ReplayResult, simulate
from chakra.replay.config import load_network
from chakra.replay.networks.blocks import block_links
from chakra.replay.topologies import with_faults

MIB = 1 << 20
#: two switches of two NPUs inside, two outside
TWO_BY_TWO: dict[str, Any] = {
    "topology": ["Switch", "Switch"], "npus_count": [2, 2], "bandwidth": [50, 50], "latency": [500, 700],
}  # fmt: skip


def message(src: int, dst: int, npus: int, size: int = MIB) -> Workload:
    """One message, alone."""
    workload = Workload(npus)
    workload.builder(src).send(dst, size_bytes=size)
    workload.builder(dst).recv(src, size_bytes=size)
    for rank in set(range(npus)) - {src, dst}:
        workload.builder(rank).compute(duration_micros=0)
    return workload


@pytest.mark.parametrize("engine", ["phases", "messages"])
@pytest.mark.parametrize(
    ("faults", "right_ns"),
    [
        # 1 MiB takes 19,531.25 ns on each link; two hops of 500 ns, then two of 700
        ({}, 20_531 + 20_931),
        ({"slow_links": {"3-sw1.1": 1.0}}, 20_531 + 20_931),
        ({"slow_links": {"3-sw1.1": 0.5}}, 20_531 + 40_462),
        ({"slow_links": {"0-sw0.0": 0.25}}, 79_125 + 20_931),
        # round by the other switches: 0 - sw1.0 - 2 - sw0.1 - 3
        ({"fail_links": ["0-sw0.0"]}, 20_931 + 20_531),
    ],
)
def test_a_message_takes_its_time_in_every_dimension(
    engine: Any, faults: dict[str, Any], right_ns: int
) -> None:
    result = simulate(message(0, 3, 4), {}, TWO_BY_TWO, engine=engine, **faults)
    assert int(result.finish_ns.max()) == right_ns


@st.composite
def runs(draw: st.DrawFn) -> tuple[Workload, dict[str, Any], dict[str, Any], list[str]]:
    """A collective or a message, a system, building blocks, and some links of these."""
    dims = draw(st.integers(1, 3))
    sizes = [draw(st.integers(2, 4)) for _ in range(dims)]
    network: dict[str, Any] = {
        "topology": [draw(st.sampled_from(["Ring", "Switch", "FullyConnected"])) for _ in range(dims)],
        "npus_count": sizes,
        "bandwidth": [draw(st.sampled_from([10, 50, 200])) for _ in range(dims)],
        "latency": [draw(st.sampled_from([0, 100, 1000])) for _ in range(dims)],
    }
    loaded = load_network(network)
    npus = loaded.npus
    if draw(st.booleans()):
        src, dst = draw(st.lists(st.integers(0, npus - 1), min_size=2, max_size=2, unique=True))
        workload = message(src, dst, npus)
    else:
        kind = draw(st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]))
        ranks = draw(st.lists(st.integers(0, npus - 1), min_size=2, unique=True).map(sorted))
        workload = Workload(npus)
        group = workload.add_group(ranks)
        for rank in range(npus):
            if rank in ranks:
                workload.builder(rank).collective(kind, size_bytes=MIB, group=group)
            else:
                workload.builder(rank).compute(duration_micros=0)
    algorithm = draw(st.sampled_from(["ring", "direct"]))
    system = {
        f"{kind}-implementation": [algorithm] * dims
        for kind in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
    }
    links = block_links(loaded)
    names = [*map(str, range(npus)), *links.vertices]
    some = sorted({"-".join((names[x.src], names[x.dst])) for x in links.links if x.src < x.dst})
    return (
        workload,
        system,
        network,
        draw(st.lists(st.sampled_from(some), min_size=1, max_size=2, unique=True)),
    )


def ends(run: tuple[Workload, dict[str, Any], dict[str, Any], list[str]], **faults: Any) -> list[int]:
    """When each NPU finishes, ns."""
    workload, system, network, _ = run
    result: ReplayResult = simulate(workload, system, network, **faults)
    return [int(end) for end in result.finish_ns]


few = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@few
@given(run=runs(), backend=st.sampled_from(["unaware", "aware"]), factor=st.sampled_from([0.9, 0.5, 0.01]))
def test_slow_links_take_no_less_and_whole_ones_as_much(run: Any, backend: str, factor: float) -> None:
    links = run[-1]
    healthy = ends(run, backend=backend)
    assert ends(run, backend=backend, slow_links=dict.fromkeys(links, 1.0)) == healthy
    if backend == "unaware":  # where links are shared, who is late makes room for others
        slow = ends(run, slow_links=dict.fromkeys(links, factor))
        slower = ends(run, slow_links=dict.fromkeys(links, factor / 3))
        assert all(a <= b <= c for a, b, c in zip(healthy, slow, slower, strict=True))


@few
@given(run=runs())
def test_ways_around_failed_links_take_no_less(run: Any) -> None:
    try:
        failed = ends(run, fail_links=run[-1])
    except ConfigError:  # an NPU cannot be reached
        return
    assert all(a <= b for a, b in zip(ends(run), failed, strict=True))


RING: dict[str, Any] = {"topology": ["Ring"], "npus_count": [4], "bandwidth": [50], "latency": [500]}


@pytest.mark.parametrize(
    ("fail", "slow", "said"),
    [
        (["0-1", "1-0"], {}, "--fail-link 1-0: this link is given twice"),
        ([], {"0-1": 0.5, "1 - 0": 0.5}, "--slow-link 1 - 0: this link is given twice"),
        (["1-0"], {"0-1": 0.5}, "--slow-link 0-1: --fail-link 1-0 takes this link out"),
    ],
)
def test_a_link_has_one_fault(fail: list[str], slow: dict[str, float], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        with_faults(load_network(RING), fail, slow)
    assert str(caught.value) == said


def test_equal_faults_are_told_equally_however_they_were_asked_for() -> None:
    network = load_network(TWO_BY_TWO)
    one = with_faults(network, [" sw0.0-0 "], {"3-sw1.1": 0.5, "sw1.0-2": 0.25}).faults
    other = with_faults(network, ["0-sw0.0"], {"2-sw1.0": 0.25, "sw1.1-3": 0.5}).faults
    assert one is not None
    assert other is not None
    assert one.entries() == other.entries()
    assert one.entries() == {"failed_links": ["0-sw0.0"], "slow_links": {"2-sw1.0": 0.25, "3-sw1.1": 0.5}}


def test_names_with_hyphens_that_may_mean_two_links_are_refused() -> None:
    links = [[0, "a", 50, 0], [1, "a", 50, 0], ["a", "b-c", 50, 0], ["a-b", "c", 50, 0], ["a", "c", 50, 0]]
    network = load_network({"npus_count": [2], "links": links})
    with pytest.raises(UsageError) as caught:
        with_faults(network, ["a-b-c"])
    assert str(caught.value) == "--fail-link a-b-c: may be the link from 'a' to 'b-c' or 'a-b' to 'c'"
