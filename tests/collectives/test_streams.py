"""Several collectives in flight, priorities, queues that block each other, and collectives with a root."""

from typing import Any

import numpy as np
import pytest
from collective_runs import ENDPOINT, message_ns, network, one, run, system
from hypothesis import given, settings
from hypothesis import strategies as st

from chakra.builder import TraceBuilder
from chakra.generate.plan.training import StepPlan, build_workload
from chakra.generate.request.transformers import TransformerRequest
from chakra.platforms.cluster import cluster
from chakra.replay import simulate

AG = "ALL_GATHER"


def many(sizes: list[int], priorities: list[int] | None = None) -> Any:
    """A trace with independent all-gathers."""
    builder = TraceBuilder(rank=0)
    for i, size in enumerate(sizes):
        builder.collective(AG, size_bytes=size, priority=priorities[i] if priorities else None)
    return builder.build()


def ring_ns(size: int, n: int) -> int:
    return ENDPOINT + (n - 1) * (message_ns(size) + ENDPOINT)


def test_streams_in_flight_share_the_queues() -> None:
    """N collectives in flight: with as many queues they run at once, with one queue one after the other."""
    n, sizes = 4, [1000, 2000, 3000, 4000]
    net, made = network(["FullyConnected"], [n]), system(["ring"])
    each = [ring_ns(size, n) for size in sizes]

    def time(streams: int, queues: int) -> int:
        result = simulate([many(sizes)] * n, made, net, comm_streams=streams, queues_per_dim=queues)
        return int(result.finish_ns.max())

    assert time(1, 1) == time(1, 4) == time(4, 1) == sum(each)
    assert time(4, 4) == max(each)
    assert time(2, 2) == max(each[0] + each[2], each[1] + each[3])


def test_explicit_priority_goes_first() -> None:
    """comm_priority orders the chunks that wait; equal ones go in the order of issue."""
    n = 4
    trace = many([1000] * 4, [0, 1, 5, 1])
    result = simulate([trace] * n, system(["ring"]), network(["FullyConnected"], [n]), comm_streams=4)
    ids, _, finish = result.node_ticks(0)
    order = [int(i) for _, i in sorted(zip(finish.tolist(), ids.tolist(), strict=True))]
    # the first one runs already when the others are issued
    assert [i - min(order) for i in order] == [0, 2, 1, 3]


def test_priorities_keep_npus_apart() -> None:
    """NPUs whose traces differ in priorities only are not one class; the run ends."""
    n = 4
    traces = [many([1000] * 3, [0, i % 2, 1 - i % 2]) for i in range(n)]
    net, made = network(["FullyConnected"], [n]), system(["ring"])
    one, every = (simulate(traces, made, net, comm_streams=3, fold=f).finish_ns for f in (True, False))
    assert np.array_equal(one, every)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_runs_always_end(data: st.DataObject) -> None:
    """3-D all-reduces with unequal starts, few queues and several in flight end (C13), after the last start."""
    splits = data.draw(st.integers(1, 5))
    made = system(
        ["ring"] * 3,
        splits,
        collective_optimization="localBWAware",
        intra_dimension_scheduling=data.draw(
            st.sampled_from(["FIFO", "RG", "SCF", "lessRemainingPhaseFirst"])
        ),
    )
    net = network(["Ring"] * 3, [2, 2, 2], latency=data.draw(st.permutations([1.0, 50.0, 5000.0])))
    calls = data.draw(st.integers(1, 4))
    traces, starts = [], []
    for _ in range(8):
        builder = TraceBuilder(rank=0)
        last = 0
        for _ in range(calls):
            start = data.draw(st.integers(0, 30_000))
            last = max(last, start)
            wait = builder.compute(duration_ns=start)
            builder.collective("ALL_REDUCE", size_bytes=10_000, after=wait)
        traces.append(builder.build())
        starts.append(last)
    result = simulate(traces, made, net, comm_streams=data.draw(st.integers(1, 4)))
    assert result.finish_ns.min() >= max(starts)
    assert np.array_equal(sum(result.account.values()), result.finish_ns)


def test_scatter_takes_the_largest_size() -> None:
    """The root gives the whole buffer, the others the part that they get."""
    n, whole = 8, 1_000_000
    net, made = network(["Switch"], [n]), system(["ring"])
    mixed = [one("SCATTER", whole)] + [one("SCATTER", whole // n)] * (n - 1)
    same = simulate([one("SCATTER", whole)] * n, made, net).finish_ns
    assert np.array_equal(simulate(mixed, made, net).finish_ns, same)
    assert np.array_equal(simulate(mixed, made, net, fold=False).finish_ns, same)
    # the root's port is busy with n - 1 parts
    assert same.max() >= (n - 1) * whole // n / (50 * (1 << 30) / 1e9)


@pytest.mark.parametrize("kind", ["BROADCAST", "REDUCE"])
@pytest.mark.parametrize(("n", "size"), [(2, 1000), (8, 1000), (8, 100_000_000), (7, 1 << 20), (64, 1 << 28)])
def test_rooted_collectives_take_the_cheaper_tree(kind: str, n: int, size: int) -> None:
    """Binomial tree for small data, others for large; never below the bandwidth; no key of the system file needed."""
    net = network(["Switch"], [n])
    result = simulate([one(kind, size)] * n, {"endpoint-delay": ENDPOINT}, net)
    row = result.collectives[0]
    assert row["transfer_ns"] >= row["bound_ns"] - 100
    assert len(set(result.finish_ns.tolist())) == 1
    # with one algorithm named, each takes its own time; the one that was chosen is the fastest
    times = {
        name: int(simulate([one(kind, size)] * n, system([name]), net).finish_ns.max())
        for name in ("binomialTree", "chain", "scatterAllGather")
    }
    assert times[row["algorithm"]] == row["transfer_ns"] <= 1.02 * min(times.values())


@pytest.mark.parametrize("topology", ["Ring", "Switch", "FullyConnected"])
@pytest.mark.parametrize("size", [100, 100_000, 100_000_000])
def test_the_choice_sees_distances(topology: str, size: int) -> None:
    """On a ring far partners cost hops, which speaks for the chain."""
    times = {
        name: int(run("BROADCAST", name, 16, size, topology).finish_ns.max())
        for name in ("binomialTree", "chain", "scatterAllGather")
    }
    assert run("BROADCAST", "ring", 16, size, topology).finish_ns.max() <= 1.02 * min(times.values())


def test_rooted_collectives_by_name() -> None:
    n, d = 8, 1 << 20
    result = run("BROADCAST", "binomialTree", n, d)
    assert result.finish_ns.max() == ENDPOINT + 3 * (message_ns(d) + ENDPOINT)
    result = run("REDUCE", "binomialTree", n, d, local_mem_bw=50)
    reduction = 3 * int(d / 50e9 * 1e9)
    assert result.finish_ns.max() == ENDPOINT + 3 * (message_ns(d) + ENDPOINT + reduction)


def test_rooted_collectives_on_the_congested_network() -> None:
    """A pipelined chain on a ring shares no link: the same time with and without contention."""
    linked = run("BROADCAST", "chain", 8, 1 << 20, "Ring", backend="aware")
    assert np.array_equal(linked.finish_ns, run("BROADCAST", "chain", 8, 1 << 20, "Ring").finish_ns)


def test_unequal_starts_of_a_broadcast() -> None:
    """All members leave together, the algorithm's time after the last start."""
    traces = []
    for start in (0, 5000, 300, 90):
        builder = TraceBuilder(rank=0)
        wait = builder.compute(duration_ns=start)
        builder.collective("BROADCAST", size_bytes=1000, after=wait)
        traces.append(builder.build())
    net = network(["Switch"], [4])
    together = simulate([one("BROADCAST", 1000)] * 4, system(["ring"]), net).finish_ns.max()
    assert simulate(traces, system(["ring"]), net).finish_ns.tolist() == [5000 + together] * 4


def _library_ns(workload: Any, **options: Any) -> int:
    """Time on two machines of 8 H100s with NCCL's times."""
    machine = cluster("hgx-h100", 16)
    return int(simulate(workload, machine.system(), machine.network(), **options).finish_ns.max())


def test_a_librarys_collectives_do_not_take_turns_on_a_dimension() -> None:
    """Two in flight take as long as the longer one (docs/guides/collective-library.md), whatever queues there are."""
    sizes = [1 << 26, 1 << 24]
    alone = [_library_ns([many([size])] * 16) for size in sizes]
    both = [many(sizes)] * 16
    assert _library_ns(both) == sum(alone)
    assert (
        _library_ns(both, comm_streams=2) == _library_ns(both, comm_streams=2, queues_per_dim=2) == max(alone)
    )


@pytest.mark.parametrize("backend", ["unaware", "flow", "aware"])
def test_a_librarys_collectives_on_different_links_do_not_wait_for_each_other(backend: str) -> None:
    """One inside machines and one between them share no link: both in flight take as long as the longer one.

    On the same links they take longer than one of them where links are shared.
    """
    groups = {
        "inside0": [*range(8)],
        "inside1": [*range(8, 16)],
        **{f"across{k}": [k, k + 8] for k in range(8)},
    }

    def traces(sizes: dict[str, int]) -> list[Any]:
        made = []
        for rank in range(16):
            builder = TraceBuilder(rank=rank)
            names = {
                "inside": f"inside{rank // 8}",
                "across": f"across{rank % 8}",
                "again": f"across{rank % 8}",
            }
            for where, size in sizes.items():
                builder.collective(AG, size_bytes=size, group=names[where])
            made.append(builder.build())
        return made

    def time(**sizes: int) -> int:
        return _library_ns(traces(sizes), comm_groups=groups, comm_streams=2, backend=backend)

    inside, across = time(inside=1 << 25), time(across=1 << 24)
    assert time(inside=1 << 25, across=1 << 24) == max(inside, across)
    shared = time(across=1 << 24, again=1 << 24)
    assert shared == across if backend == "unaware" else 1.9 * across < shared < 2.1 * across


def test_streams_of_a_generated_workload_run_side_by_side_where_a_library_has_the_times() -> None:
    """A trace of ``--comm-order stream`` has all its streams in flight, and only there: NCCL's communicators do."""
    given = {
        "layers": 4, "hidden": 2048, "heads": 16, "seq": 1024, "vocabulary": 8192, "npus": 16, "tp": 8, "global-batch": 2,
        "exposed": "tp", "bucket-mb": 10,
    }  # fmt: skip

    def plan(order: str) -> StepPlan:
        return TransformerRequest.from_mapping({**given, "comm-order": order}).plan()

    chained, apart = (build_workload(plan(order)) for order in ("program", "stream"))
    assert _library_ns(apart) == _library_ns(apart, comm_streams=2) < _library_ns(chained)
    # a machine without a library keeps its one engine, and so does ASTRA-sim
    made, net = system(["ring"]), network(["FullyConnected"], [16])
    modes: list[dict[str, Any]] = [{}, {"compat": "astra-sim"}]
    for options in modes:
        one, two = (
            simulate(apart, made, net, comm_streams=streams, queues_per_dim=2, **options)
            for streams in (1, 2)
        )
        assert one.finish_ns.max() > two.finish_ns.max()
