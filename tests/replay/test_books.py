"""Books of bytes: the same from both engines and in closed form, and as many bytes as the algorithms send."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_strategies import Setting, collective_traces, settings_of_systems, workloads

from chakra.builder import TraceBuilder, Workload
from chakra.et import Trace
from chakra.replay import ReplayResult, simulate


def run(setting: Setting, traces: list[Trace], **options: Any) -> ReplayResult:
    return simulate(
        traces,
        setting.system,
        setting.network,
        memory=setting.memory,
        comm_groups=setting.groups or None,
        **options,
    )


@given(st.data())
@settings(max_examples=120, deadline=None)
def test_both_engines_book_the_same_bytes(data: st.DataObject) -> None:
    setting = data.draw(settings_of_systems())
    traces = data.draw(workloads(setting))
    chosen, every = run(setting, traces), run(setting, traces, engine="messages")
    for mine, theirs in zip(chosen.dimensions, every.dimensions, strict=True):
        assert mine["bytes_per_npu"] == pytest.approx(theirs["bytes_per_npu"], rel=1e-12)


@given(st.data())
@settings(max_examples=120, deadline=None)
def test_links_do_not_depend_on_the_engine(data: st.DataObject) -> None:
    setting = data.draw(settings_of_systems())
    kind = data.draw(st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]))
    single = {**setting.system, "active-chunks-per-dimension": 1}
    alone = Setting(setting.network, single, setting.memory)
    traces = collective_traces(alone, kind, data.draw(st.integers(64, 100_000)))
    chosen = run(alone, traces, backend="aware")
    every = run(alone, traces, backend="aware", engine="messages")
    assert chosen.finish_ns.tolist() == every.finish_ns.tolist()
    assert chosen.links == every.links
    assert chosen.links


@pytest.mark.parametrize("backend", ["unaware", "aware"])
def test_a_group_across_nodes_is_booked_where_it_sends(backend: str) -> None:
    """Eight pairs {k, k + 8} on two nodes of eight: nothing inside the nodes, 64 MiB an NPU between them."""
    workload = Workload(16)
    pairs = [workload.add_group([k, k + 8]) for k in range(8)]
    for rank in range(16):
        workload.builder(rank).collective("all_reduce", size_bytes=1 << 26, group=pairs[rank % 8])
    network = {
        "topology": ["Switch", "Switch"], "npus_count": [8, 2], "bandwidth": [300, 25], "latency": [500, 2000]
    }  # fmt: skip
    result = simulate(workload, {"all-reduce-implementation": ["ring", "ring"]}, network, backend=backend)
    assert [row["bytes_per_npu"] for row in result.dimensions] == [0, 1 << 26]


@pytest.mark.parametrize("backend", ["unaware", "aware"])
def test_a_flat_ring_is_booked_on_the_dimensions_that_it_crosses(backend: str) -> None:
    """oneRing on 4 x 2: all 8 edges of the ring cross dimension 0, two of them dimension 1 as well."""
    builder = TraceBuilder()
    builder.collective("all_reduce", size_bytes=1 << 20)
    network = {
        "topology": ["Ring", "Ring"],
        "npus_count": [4, 2],
        "bandwidth": [50, 50],
        "latency": [500, 500],
    }
    result = simulate(
        [builder.build()] * 8, {"all-reduce-implementation": ["oneRing"]}, network, backend=backend
    )
    edge = 14 * (1 << 17)
    assert [row["bytes_per_npu"] * 8 for row in result.dimensions] == [8 * edge, 2 * edge]


@pytest.mark.parametrize("late_ns", [0, 1])
@pytest.mark.parametrize("options", [{}, {"fold": False}, {"engine": "messages"}])
def test_links_hold_what_a_ring_sends(late_ns: int, options: dict[str, Any]) -> None:
    traces = []
    for rank in range(4):
        builder = TraceBuilder(rank, 4)
        start = builder.compute("w", duration_ns=10 + late_ns * (rank == 3))
        builder.collective("all_reduce", size_bytes=1 << 20, after=start)
        traces.append(builder.build())
    network = {"topology": ["Ring"], "npus_count": [4], "bandwidth": [50], "latency": [500]}
    system = {"all-reduce-implementation": ["ring"]}
    links = simulate(traces, system, network, backend="aware", **options).records("links")
    assert [(row["from"], row["to"], row["bytes"]) for row in links] == [
        (rank, (rank + 1) % 4, 6 << 18) for rank in range(4)
    ]


@pytest.mark.parametrize(
    "name", ["bruck", "rabenseifner", "recursiveDoubling", "pipelinedTree", "binomialTree"]
)
@pytest.mark.parametrize("size", [3, 4, 5])
def test_tables_of_steps_of_groups_are_booked_message_by_message(name: str, size: int) -> None:
    """A group that crosses both dimensions: the books of both engines agree, to what integer division leaves."""
    ranks = [0, 3, 5, 6, 7][:size]
    traces = []
    for rank in range(8):
        builder = TraceBuilder(rank, 8)
        builder.compute("w", duration_ns=1)
        if rank in ranks:
            builder.collective("all_reduce", size_bytes=100_003, group="g")
        traces.append(builder.build())
    network = {
        "topology": ["Ring", "Switch"],
        "npus_count": [4, 2],
        "bandwidth": [50, 20],
        "latency": [5, 50],
    }
    system = {"all-reduce-implementation": [name]}
    chosen, every = (
        simulate(traces, system, network, comm_groups={"g": ranks}, engine=engine).dimensions
        for engine in ("phases", "messages")
    )
    for mine, theirs in zip(chosen, every, strict=True):
        assert mine["bytes_per_npu"] == pytest.approx(theirs["bytes_per_npu"], abs=1)
        assert theirs["bytes_per_npu"] > 0
