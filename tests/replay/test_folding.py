"""Cases in which folding equal NPUs into classes needs care."""

from typing import Any

import pytest

from chakra.builder import TraceBuilder
from chakra.et import Trace
from chakra.replay import simulate

SYSTEM = {"preferred-dataset-splits": 1}


def network(*npus: int, latency: float, bandwidth: float = 50.0) -> dict[str, Any]:
    """Rings."""
    n = len(npus)
    return {
        "topology": ["Ring"] * n,
        "npus_count": list(npus),
        "bandwidth": [bandwidth] * n,
        "latency": [latency] * n,
    }


@pytest.mark.parametrize("compat", [None, "astra-sim"])
def test_groups_whose_distances_differ_somewhere(compat: str | None) -> None:
    groups = {"1": [0, 1, 2, 4], "2": [6, 7, 5, 3]}
    traces: list[Trace] = []
    for rank in range(8):
        builder = TraceBuilder(rank)
        builder.collective("all_reduce", size_bytes=64, group="1" if rank in groups["1"] else "2")
        traces.append(builder.build())
    system = {**SYSTEM, "all-reduce-implementation": ["ring"] * 3}
    times = [
        simulate(
            traces,
            system,
            network(2, 2, 2, latency=0.0, bandwidth=10.0),
            comm_groups=groups,
            compat=compat,
            **how,
        ).finish_ns.tolist()
        for how in ({}, {"fold": False}, {"engine": "messages"})
    ]
    assert times[0] == times[1] == times[2]


def test_events_of_messages_that_tie() -> None:
    """NPU 0 hears that its message arrived before it hears from the last NPU; the others the other way round."""
    n = 4

    def trace(rank: int) -> Trace:
        b = TraceBuilder(rank)
        after, before = (rank + 1) % n, (rank - 1) % n
        sent, got = b.send(after, size_bytes=1000), b.recv(before, size_bytes=1000)
        large = b.send(after, size_bytes=1 << 20, tag=1, after=[got])
        small = b.send(after, size_bytes=4096, tag=2, after=[sent])
        b.compute(duration_micros=50, after=[large])
        b.compute(duration_micros=50, after=[small])
        b.recv(before, size_bytes=1 << 20, tag=1)
        b.recv(before, size_bytes=4096, tag=2)
        return b.build()

    traces = [trace(rank) for rank in range(n)]
    system = {**SYSTEM, "all-reduce-implementation": ["ring"]}
    net = network(n, latency=500.0)
    folded, unfolded, messages = (
        simulate(traces, system, net, compat="astra-sim", **how).finish_ns.tolist()
        for how in ({}, {"fold": False}, {"engine": "messages"})
    )
    assert folded == unfolded == messages
    assert len(set(folded)) == 2
