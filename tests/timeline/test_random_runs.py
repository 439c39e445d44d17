"""Timelines of random replays: every node that ran is there with its ticks, on rows that nest, with matching arrows."""

import random
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from chakra.builder import TraceBuilder
from chakra.et import NodeType, Trace
from chakra.replay import simulate
from chakra.timeline import from_document, from_result
from chakra.timeline.lanes import half_overlaps

SYSTEM: dict[str, Any] = {
    "scheduling-policy": "LIFO",
    "endpoint-delay": 10,
    "active-chunks-per-dimension": 1,
    "preferred-dataset-splits": 2,
    "all-reduce-implementation": ["ring"],
    "all-gather-implementation": ["ring"],
    "reduce-scatter-implementation": ["ring"],
    "all-to-all-implementation": ["direct"],
    "collective-optimization": "localBWAware",
    "local-mem-bw": 50,
}
NETWORK = {"topology": ["Ring"], "npus_count": [4], "bandwidth": [50.0], "latency": [500.0]}


def random_traces(seed: int) -> list[Trace]:
    """Four ranks with equal collectives in equal order, compute between them, and a message around the ring."""
    shape = random.Random(seed)
    steps = [shape.choice(["compute", "cpu", "collective", "ring"]) for _ in range(shape.randint(1, 10))]
    traces = []
    for rank in range(4):
        own = random.Random(seed * 7 + rank)
        builder = TraceBuilder(rank)
        last: Any = None
        joined: Any = None
        for number, step in enumerate(steps):
            after = [last] if last is not None and own.random() < 0.7 else []
            if step == "collective":
                # One after the other on every rank, as real communicators demand.
                ctrl = [joined] if joined is not None else []
                joined = last = builder.collective(
                    "ALL_REDUCE", name=f"c{number}", size_bytes=1000 * (number + 1), ctrl=ctrl, after=after
                )
            elif step == "ring":
                builder.send((rank + 1) % 4, name=f"s{number}", size_bytes=512, tag=number, after=after)
                builder.recv((rank - 1) % 4, name=f"r{number}", size_bytes=512, tag=number)
            else:
                last = builder.compute(
                    f"k{number}", duration_micros=own.randint(1, 9), cpu=step == "cpu", after=after
                )
        traces.append(builder.build())
    return traces


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_rows_nest_and_slices_equal_the_ticks_over_random_runs(seed: int) -> None:
    traces = random_traces(seed)
    result = simulate(traces, SYSTEM, NETWORK)
    timeline = from_result(result)
    assert half_overlaps(timeline) == 0
    ranks = np.array([row.rank for row in timeline.rows])[timeline.row]
    for npu in range(4):
        ids, issue, finish = result.node_ticks(npu)
        wanted = sorted(zip(ids.tolist(), issue.tolist(), (finish - issue).tolist(), strict=True))
        mine = ranks == npu
        columns = (timeline.node[mine], timeline.start_ns[mine], timeline.duration_ns[mine])
        assert sorted(zip(*(column.tolist() for column in columns), strict=True)) == wanted
    sends = sum(int((trace.types == NodeType.COMM_SEND).sum()) for trace in traces)
    collectives = int((traces[0].types == NodeType.COMM_COLL).sum())
    assert timeline.n_flows == sends + 3 * collectives
    # The document alone, without the traces, gives the same slices.
    again = from_document(result.to_dict(nodes=True))
    assert sorted(again.start_ns.tolist()) == sorted(timeline.start_ns.tolist())
    assert half_overlaps(again) == 0
