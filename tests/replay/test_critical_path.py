"""The critical path begins where the run begins and has no gap that a node of no time could tear."""

import pytest

from chakra.builder import TraceBuilder
from chakra.et import Trace
from chakra.replay import simulate

SYSTEM = {"all-reduce-implementation": ["ring"]}
NETWORK = {"topology": ["Ring"], "npus_count": [2], "bandwidth": [50], "latency": [500]}


def traces(children: int) -> list[Trace]:
    """A message, then a collective of 0 bytes that waits for its slot; `children` nodes of 0 ns follow it."""
    receiver = TraceBuilder(0, 2)
    receiver.recv(1, size_bytes=1 << 20)
    met = receiver.collective("all_reduce", size_bytes=0)
    receiver.compute("tail", duration_ns=9000, after=met)
    sender = TraceBuilder(1, 2)
    sender.send(0, size_bytes=1 << 20)
    met = sender.collective("all_reduce", size_bytes=0)
    for number in range(children):
        sender.compute(f"zero {number}", duration_ns=0, after=met, cpu=True)
    return [receiver.build(), sender.build()]


@pytest.mark.parametrize("children", [0, 1, 3])
@pytest.mark.parametrize("engine", ["phases", "messages"])
def test_nodes_of_no_time_do_not_cut_the_path(children: int, engine: str) -> None:
    path = simulate(traces(children), SYSTEM, NETWORK, engine=engine).records("critical_path")
    assert [(row["npu"], row["name"]) for row in path] == [
        (1, "send"), (1, "all_reduce"), (0, "all_reduce"), (0, "tail")
    ]  # fmt: skip
    assert path[0]["issue_ns"] == 0
    assert path[-1]["finish_ns"] == 29031


def test_the_sums_are_of_the_whole_path_however_many_nodes_are_listed() -> None:
    """6,001 times a compute node of 7 ns and a host node of 3 ns behind it, then one of 1 ms: 12,003 nodes."""
    rounds = 6001
    builder = TraceBuilder(0, 1)
    last = None
    for number in range(rounds):
        after = () if last is None else (last,)
        mine = builder.compute(f"layer{number}.fc", duration_ns=7, after=after)
        last = builder.compute(f"launch {number}", duration_ns=3, cpu=True, after=(mine,))
    builder.compute("optimizer", duration_ns=1_000_000, after=(last,) if last else ())
    run = simulate([builder.build()], SYSTEM, {**NETWORK, "npus_count": [1]})
    assert len(run.critical_path) == 10_000
    assert run.critical_path[0]["issue_ns"] == 0
    assert run.critical_path_sums == {
        "nodes": 2 * rounds + 1,
        "gaps": 0,
        "gap_ns": 0,
        "parts": [
            {"operator": "optimizer", "kind": "GPU", "count": 1, "total_ns": 1_000_000},
            {"operator": "layer#.fc", "kind": "GPU", "count": rounds, "total_ns": 7 * rounds},
            {"operator": "launch #", "kind": "CPU", "count": rounds, "total_ns": 3 * rounds},
        ],
    }
    assert run.finish_ns.tolist() == [1_000_000 + 10 * rounds]


@pytest.mark.parametrize("children", [0, 3])
@pytest.mark.parametrize("engine", ["phases", "messages"])
def test_parts_and_gaps_of_the_path_add_up_to_the_finish(children: int, engine: str) -> None:
    run = simulate(traces(children), SYSTEM, NETWORK, engine=engine)
    sums = run.critical_path_sums
    assert sums["gap_ns"] == sums["gaps"] == 0
    assert {part["operator"]: part["total_ns"] for part in sums["parts"]} == {
        "send": 20031, "tail": 9000, "all_reduce": 0
    }  # fmt: skip
    # nodes that take no time, or time that another one of the path covers, are counted
    assert sums["nodes"] == sum(part["count"] for part in sums["parts"]) == len(run.critical_path)


def test_a_node_without_parents_follows_the_one_that_held_its_slot() -> None:
    """A host node ends by chance when the accelerator is free again; the second kernel waited for the first."""
    builder = TraceBuilder(0, 1)
    builder.compute("first kernel", duration_ns=10)
    builder.compute("host", duration_ns=10, cpu=True)
    builder.compute("second kernel", duration_ns=5)
    run = simulate([builder.build()], SYSTEM, {**NETWORK, "npus_count": [1]})
    assert [(row["name"], row["finish_ns"]) for row in run.critical_path] == [
        ("first kernel", 10), ("second kernel", 15)
    ]  # fmt: skip


@pytest.mark.parametrize("engine", ["phases", "messages"])
def test_a_last_member_takes_no_time_from_what_follows_members_that_end_before_it(engine: str) -> None:
    """NPU 0 comes 1,000 ns late to a reduce-scatter and ends it 3,726 ns after NPU 2, which computes 7,000 ns then.

    NPU 2 is the last to finish. Its chain: `late` of NPU 0, the collective from then to its end on NPU 2, `after`.
    """
    ranks = []
    for rank in range(3):
        builder = TraceBuilder(rank, 3)
        before = builder.compute("late", duration_ns=1000 if rank == 0 else rank)
        met = builder.collective("reduce_scatter", size_bytes=30_000, name="met", after=before)
        builder.compute("after", duration_ns=7000 if rank == 2 else 0, after=met)
        ranks.append(builder.build())
    system = {"reduce-scatter-implementation": ["rabenseifner"], "endpoint-delay": 1}
    network = {"topology": ["Ring"], "npus_count": [3], "bandwidth": [5], "latency": [10]}
    run = simulate(ranks, system, network, engine=engine)
    ends = [row["finish_ns"] for row in run.critical_path if row["name"] == "met"]
    assert ends == [10_336, 6610]
    assert run.critical_path_sums["parts"] == [
        {"operator": "after", "kind": "GPU", "count": 1, "total_ns": 7000},
        {"operator": "met", "kind": "COMM", "count": 2, "total_ns": 5610},
        {"operator": "late", "kind": "GPU", "count": 1, "total_ns": 1000},
    ]
    assert run.finish_ns.max() == 13_610


@pytest.mark.parametrize("fold", [False, True])
def test_who_takes_no_part_in_a_collective_of_some_dimensions_is_not_waited_for(fold: bool) -> None:
    """Columns 0, 2 and 1, 3 of a 2 x 2 machine gather each for itself; NPU 3 comes late, and NPU 2 after all else.

    The last to finish is NPU 1: it waited for NPU 3 of its column (5,000 ns), not for NPU 2 (8,000 ns).
    """
    ranks = []
    for rank in range(4):
        builder = TraceBuilder(rank, 4)
        before = builder.compute("before", duration_ns=(10, 10, 8000, 5000)[rank])
        met = builder.collective("all_gather", size_bytes=6400, involved_dim=[False, True], after=before)
        builder.compute("after", duration_ns=(1, 90_000, 1, 1)[rank], after=met)
        ranks.append(builder.build())
    network = {"topology": ["Ring", "Ring"], "npus_count": [2, 2], "bandwidth": [50, 50], "latency": [10, 10]}
    system = {"all-gather-implementation": ["ring", "ring"], "endpoint-delay": 1}
    run = simulate(ranks, system, network, fold=fold)
    path = [(row["npu"], row["name"]) for row in run.critical_path]
    assert path == [(3, "before"), (3, "all_gather"), (1, "all_gather"), (1, "after")]
    sums = run.critical_path_sums
    assert {part["operator"]: part["total_ns"] for part in sums["parts"]} == {
        "before": 5000, "all_gather": int(run.finish_ns.max()) - 95_000, "after": 90_000
    }  # fmt: skip
    assert sums["gap_ns"] == 0
    # NPUs 0 and 1 wait for NPUs 2 and 3, which have their parts by then; what follows is transfer, and all waits are in
    # the table
    assert run.account["waiting_ns"].tolist() == [7990, 4990, 0, 0]
    assert run.account["transfer_ns"].tolist()[:2] == [int(run.finish_ns.max()) - 95_000] * 2
    assert [row["waiting_ns"] for row in run.collectives] == [7990 + 4990]
    came = [npu["ready_ns"][npu["names"].index("all_gather")] for npu in run.to_dict(nodes=True)["nodes"]]
    assert came == [8000, 5000, 8000, 5000]
