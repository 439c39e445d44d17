"""Tables of steps with every message simulated: equal to the rounds' rule without contention, later with it."""

import math
from typing import Any

import numpy as np
import pytest
from collective_runs import ENDPOINT, KEYS, message_ns, network, one, run, system
from hypothesis import given, settings
from hypothesis import strategies as st

from chakra.builder import TraceBuilder
from chakra.errors import ConfigError
from chakra.replay import simulate
from chakra.replay.collectives import registry
from chakra.replay.collectives.steps import Do, Link, member_rows

ABLE = {
    kind: [name for name, algorithm in registry.OURS.items() if Do[kind] in algorithm.kinds]
    for kind in (*KEYS, "BROADCAST", "REDUCE")
}
LINK = Link(510.0, 53.687)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_both_engines_agree_without_contention(data: st.DataObject) -> None:
    """Several dimensions, chunks, starts, reductions, rendezvous: the phase-level engine's times, to the cycle."""
    kind = data.draw(st.sampled_from(sorted(ABLE)))
    npus = data.draw(st.lists(st.integers(2, 6), min_size=1, max_size=3).filter(lambda n: math.prod(n) <= 30))
    topologies = [data.draw(st.sampled_from(["Ring", "FullyConnected", "Switch"])) for _ in npus]
    names = [data.draw(st.sampled_from([*ABLE[kind], "ring"])) for _ in npus]
    made = system(
        names,
        data.draw(st.integers(1, 3)),
        active_chunks_per_dimension=data.draw(st.integers(1, 2)),
        **({"local_mem_bw": 50} if data.draw(st.booleans()) else {}),
    )
    net = network(topologies, npus, latency=[data.draw(st.sampled_from([0, 100, 500])) for _ in npus])
    size = data.draw(st.sampled_from([1, 7, 1000, 65536, 1_234_567]))
    traces = []
    for _ in range(math.prod(npus)):
        builder = TraceBuilder()
        start = builder.compute(duration_ns=data.draw(st.sampled_from([0, 123, 1000, 5000])))
        first = builder.collective(kind, size_bytes=size, after=start)
        builder.collective(kind, size_bytes=size, after=first)
        traces.append(builder.build())
    rendezvous = data.draw(st.booleans())
    phases, messages = (
        simulate(traces, made, net, engine=engine, rendezvous=rendezvous).finish_ns
        for engine in ("phases", "messages")
    )
    assert np.array_equal(phases, messages)


@pytest.mark.parametrize("kind", sorted(ABLE))
@pytest.mark.parametrize("topology", ["FullyConnected", "Ring", "Switch"])
def test_links_only_add_time(kind: str, topology: str) -> None:
    """Equal where every pair has a link of its own; elsewhere whole messages are passed on, and wait."""
    for name in ABLE[kind]:
        free = run(kind, name, 8, 100_000, topology).finish_ns
        linked = run(kind, name, 8, 100_000, topology, backend="aware").finish_ns
        if topology == "FullyConnected":
            assert np.array_equal(free, linked), name
        else:
            assert (free <= linked).all(), name


def test_opposite_members_of_a_ring_of_four() -> None:
    """Recursive doubling: a round between neighbours, then one over two links, whole messages at each."""
    d = 1 << 20
    way = message_ns(d)
    result = run("ALL_REDUCE", "recursiveDoubling", 4, d, "Ring", backend="aware")
    assert set(result.finish_ns.tolist()) == {ENDPOINT + way + ENDPOINT + 2 * way + ENDPOINT}


def test_chunks_at_a_time_share_links() -> None:
    """Two chunks of half the size move through the same links: never before the bandwidth allows it."""
    d = 1 << 24
    net, keys = network(["Ring"], [4]), {"splits": 2, "active_chunks_per_dimension": 2}
    both = simulate([one("ALL_REDUCE", d)] * 4, system(["rabenseifner"], **keys), net, backend="aware")
    free = simulate([one("ALL_REDUCE", d)] * 4, system(["rabenseifner"], **keys), net)
    assert both.finish_ns.min() > free.finish_ns.max()
    busiest = max(link["bytes"] for link in both.links)
    assert both.finish_ns.max() >= busiest / (50 * (1 << 30) / 1e9)


@pytest.mark.parametrize("kind", ["BROADCAST", "REDUCE"])
def test_members_of_a_rooted_collective_leave_together(kind: str) -> None:
    """Traces name no root: the algorithm's time on the links, after the last start, for everybody."""
    net, made = network(["Ring"], [8]), system(["chain"])
    starts = [0, 5000, 300, 90, 0, 0, 2, 1]
    traces = []
    for start in starts:
        builder = TraceBuilder()
        builder.collective(kind, size_bytes=100_000, after=builder.compute(duration_ns=start))
        traces.append(builder.build())
    alone = simulate([one(kind, 100_000)] * 8, made, net, backend="aware").finish_ns
    assert len(set(alone.tolist())) == 1
    late = simulate(traces, made, net, backend="aware").finish_ns
    assert late.tolist() == [5000 + int(alone[0])] * 8
    # a chain's messages go from neighbour to neighbour, so that none waits
    assert np.array_equal(alone, simulate([one(kind, 100_000)] * 8, made, net).finish_ns)


def test_groups_and_single_links() -> None:
    """A process group on part of a ring, and the same ring link by link."""
    members = [0, 2, 3, 5, 6]
    traces = []
    for rank in range(8):
        builder = TraceBuilder()
        if rank in members:
            builder.collective("ALL_REDUCE", size_bytes=10_000, group="g")
        else:
            builder.compute(duration_ns=1)
        traces.append(builder.build())
    made, net = system(["bruck"]), network(["Ring"], [8])
    given: dict[str, Any] = {"comm_groups": {"g": members}}
    free = simulate(traces, made, net, engine="phases", **given)
    assert np.array_equal(free.finish_ns, simulate(traces, made, net, engine="messages", **given).finish_ns)
    linked = simulate(traces, made, net, backend="aware", **given)
    assert (linked.finish_ns >= free.finish_ns).all()
    assert (linked.finish_ns > free.finish_ns).any()


def test_the_shared_bus_knows_astra_sims_algorithms_only() -> None:
    bus = {"model-shared-bus": 1, "L": 1, "o": 1, "g": 1, "G": 0.1}
    made = {**system(["rabenseifner"]), **bus}
    with pytest.raises(ConfigError, match=r"rabenseifner.*shared memory bus.*use ring"):
        simulate([one("ALL_REDUCE", 1000)] * 4, made, network(["Ring"], [4]))
    # broadcasts go as the half of scatter + all-gather that all members see
    ring = {**system(["ring"]), **bus}
    whole = simulate([one("BROADCAST", 4000)] * 4, ring, network(["Ring"], [4])).finish_ns
    part = simulate([one("ALL_GATHER", 1000)] * 4, ring, network(["Ring"], [4])).finish_ns
    assert np.array_equal(whole, part)


@pytest.mark.parametrize("name", sorted(registry.OURS))
@pytest.mark.parametrize("n", [2, 5, 8])
def test_members_rows_hold_each_message_twice(name: str, n: int) -> None:
    """Once at its sender, once at its receiver, each naming the other's row; a member's rounds are in order."""
    algorithm = registry.OURS[name]
    for do in algorithm.kinds:
        steps = algorithm.schedule(do, n, 1 << 20, LINK)
        table = member_rows(steps)
        rows = [table.rows[table.start[i] : table.start[i + 1]].tolist() for i in range(n)]
        sent = [(i, k, row) for i, mine in enumerate(rows) for k, row in enumerate(mine) if row[0] >= 0]
        assert len(sent) == len(steps.messages) == sum(row[3] >= 0 for mine in rows for row in mine)
        for i, k, (to, at, share, *_) in sent:
            assert rows[to][at][3:6] == [i, k, share]
        assert table.most <= steps.rounds
