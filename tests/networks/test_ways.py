"""Single links without contention: NPUs whose messages take equally long are simulated once, with the same times."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from library_runs import system

from chakra.builder import TraceBuilder, Workload
from chakra.platforms import cluster
from chakra.replay import simulate
from chakra.replay.config import load_network
from chakra.replay.networks.ways import Ways

#: two leaves, joined by a slow and by a quick spine; links of unequal latency and bandwidth
LINKS: dict[str, Any] = {
    "npus_count": [4],
    "npus_forward": False,
    "links": [
        [0, "a", 50, 500], [1, "a", 25, 500.75], [2, "b", 50, 500], [3, "b", 50, 500], ["a", "b", 40, 300.5],
    ],
}  # fmt: skip
GIB = (1 << 30) / 1e9


def exchange(size_bytes: int) -> Workload:
    """NPUs 0 and 1 send to 2 and 3."""
    workload = Workload(4)
    for rank in range(2):
        workload.builder(rank).send(rank + 2, size_bytes=size_bytes)
        workload.builder(rank + 2).recv(rank, size_bytes=size_bytes)
    return workload


@pytest.mark.parametrize("rendezvous", [False, True])
def test_a_message_takes_all_latencies_and_the_time_of_the_slowest_link(rendezvous: bool) -> None:
    """NPU 0: 500 + 300.5 + 500 ns at 40 GB/s; NPU 1: 500.75 + 300.5 + 500 ns at 25 GB/s; a request has 8 KiB."""
    size = 1 << 20
    result = simulate(exchange(size), {}, LINKS, rendezvous=rendezvous)
    expected = [int(1300.5 + size / (40 * GIB)), int(1301.25 + size / (25 * GIB))]
    back = [int(1300.5 + 8192 / (40 * GIB)), int(1301.25 + 8192 / (25 * GIB))] if rendezvous else [0, 0]
    assert result.finish_ns[2:].tolist() == [a + b for a, b in zip(expected, back, strict=True)]
    assert result.raw.engine == "phases"


def test_kinds_of_ways_are_those_that_messages_can_tell_apart() -> None:
    ways = Ways(load_network(LINKS), np.array([(a, b) for a in range(4) for b in range(4)]))
    kinds = ways.kinds(np.array([0, 0, 1, 0, 2, 2]), np.array([2, 3, 2, 1, 3, 2]))
    assert kinds[0] == kinds[1]
    assert len({*kinds.tolist()}) == 5
    assert kinds[5] == -1
    assert ways.delay_ns(2, 2, 1 << 30) == 0


def both(workload: Workload, net: Any, machine: Any, **options: Any) -> tuple[Any, Any]:
    """As the run chooses, and with every message."""
    groups = workload.groups
    chosen = simulate(workload, machine, net, comm_groups=groups, **options)
    return chosen, simulate(workload, machine, net, comm_groups=groups, engine="messages", **options)


@st.composite
def networks(draw: st.DrawFn) -> dict[str, Any]:
    """Sixteen NPUs behind one to three switches each, alike or not; dimensions may say nothing of machines of eight."""
    alike = draw(st.booleans())
    rate = st.just(50.0) if alike else st.sampled_from([25.0, 50.0])
    latency = st.just(500.0) if alike else st.sampled_from([100.0, 500.25])
    leaves = draw(st.integers(1, 3))
    links: list[Any] = [[npu, f"leaf{npu % leaves}", draw(rate), draw(latency)] for npu in range(16)]
    links += [[npu, f"box{npu // 8}", 400, 100] for npu in range(16)]
    links += [[f"leaf{k}", f"spine{s}", draw(rate), draw(latency)] for k in range(leaves) for s in range(2)]
    return {
        "npus_count": draw(st.sampled_from([[16], [8, 2], [4, 4]])),
        "links": links,
        "npus_forward": draw(st.booleans()),
        "ecmp": draw(st.sampled_from(["hash", "first", "destination"])),
    }


@st.composite
def jobs(draw: st.DrawFn) -> Workload:
    """Collectives of groups and of all, and messages to a neighbour."""
    workload = Workload(16)
    size = draw(st.sampled_from([2, 4, 8]))
    order = draw(st.sampled_from(["blocks", "strided", "mixed"]))
    npus = np.arange(16).reshape(-1, size) if order != "strided" else np.arange(16).reshape(size, -1).T
    if order == "mixed":
        npus = np.array(draw(st.permutations(range(16)))).reshape(-1, size)
    names: dict[int, str] = {}
    for row in npus.tolist():
        names.update(dict.fromkeys(row, workload.add_group(sorted(row))))
    shift = draw(st.integers(1, 15))
    kinds = draw(st.lists(st.sampled_from(["all_reduce", "all_to_all", "broadcast"]), min_size=1, max_size=3))
    uneven = draw(st.integers(1, 3))
    everybody = draw(st.booleans())

    def program(b: TraceBuilder) -> None:
        last: Any = b.compute("f", duration_micros=1 + b.rank % uneven)
        for kind in kinds:
            last = b.collective(kind, size_bytes=1 << 20, group=names[b.rank], after=last)
            sent = b.send((b.rank + shift) % 16, size_bytes=65536, after=last)
            last = [sent, b.recv((b.rank - shift) % 16, size_bytes=65536, after=last)]
        if everybody:
            b.collective("all_reduce", size_bytes=1 << 16, after=last)

    workload.run(program)
    return workload


@settings(max_examples=40, deadline=None)
@given(jobs(), networks(), st.booleans())
def test_classes_take_the_times_of_every_message(
    workload: Workload, net: dict[str, Any], rendezvous: bool
) -> None:
    chosen, every = both(workload, net, system(), rendezvous=rendezvous)
    assert (chosen.raw.engine, every.raw.engine) == ("phases", "messages")
    assert chosen.finish_ns.tolist() == every.finish_ns.tolist()
    assert chosen.to_dict()["dimensions"] == every.to_dict()["dimensions"]
    assert chosen.to_dict()["collectives"] == every.to_dict()["collectives"]


def test_groups_that_lie_on_other_machines_take_other_times() -> None:
    """One dimension of sixteen, machines of eight: a pair within a machine, and a pair of two, are unlike."""
    workload = Workload(16)
    pairs = [(0, 1), (2, 3), (4, 5), (6, 8), (7, 9), (10, 11), (12, 13), (14, 15)]
    names = {npu: workload.add_group(pair) for pair in pairs for npu in pair[:1]}
    names |= {pair[1]: names[pair[0]] for pair in pairs}
    workload.run(lambda b: b.collective("all_reduce", size_bytes=1 << 24, group=names[b.rank]))
    net = {"npus_count": [16], "links": [[npu, "hub", 50, 500] for npu in range(16)]}
    chosen, every = both(workload, net, system())
    assert chosen.finish_ns.tolist() == every.finish_ns.tolist()
    within, across = (int(chosen.finish_ns[npu]) for npu in (0, 6))
    assert across > within
    assert chosen.raw.partition.n_classes == 2


def test_npus_of_a_cluster_are_simulated_once() -> None:
    """Eight machines at switches with ports: the first and the last of a pipeline, and those between."""
    workload = Workload(64)
    for rank in range(64):
        builder = workload.builder(rank)
        last: Any = builder.compute("f", duration_micros=5)
        if rank >= 8:
            last = builder.recv(rank - 8, size_bytes=1 << 20, after=last)
        if rank < 56:
            builder.send(rank + 8, size_bytes=1 << 20, after=last)
    machine = cluster("8x hgx-h100 over 400G rails of 64 ports")
    result = simulate(workload, machine.system(), machine.network())
    assert result.raw.engine == "phases"
    assert result.raw.partition.n_classes <= 8


def test_native_algorithms_have_every_message_simulated() -> None:
    """How far members are from each other, the phase-level engine knows on building blocks only."""
    workload = Workload(4)
    workload.run(lambda b: b.collective("all_reduce", size_bytes=4096), uniform=True)
    machine = {"all-reduce-implementation": ["ring"]}
    assert simulate(workload, machine, LINKS).raw.engine == "messages"
