"""Arrows of runs whose ranks share traces: they join the peers that ran, and the members of each group."""

from collections import Counter

from chakra.generate import TransformerRequest, build_workload
from chakra.replay import ReplayResult, simulate
from chakra.timeline import Timeline, from_document, from_result

SYSTEM = {
    f"{kind}-implementation": ["oneRing"]
    for kind in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
}
NETWORK = {"topology": ["Switch"], "npus_count": [8], "bandwidth": [100], "latency": [500]}


def arrows(timeline: Timeline) -> Counter[tuple[int, int]]:
    """How many arrows lead from rank to rank."""
    ranks = [timeline.rows[row].rank for row in timeline.row.tolist()]
    return Counter(
        (ranks[a], ranks[b])
        for a, b in zip(timeline.flow_from.tolist(), timeline.flow_to.tolist(), strict=True)
    )


def run(*, dp: int, tp: int = 1, pp: int = 1) -> ReplayResult:
    request = TransformerRequest(model="llama3-8b", layers=2, micro_batches=2, dp=dp, tp=tp, pp=pp)
    return simulate(build_workload(request.plan()), SYSTEM, NETWORK)


def test_messages_lead_to_the_peers_of_each_rank() -> None:
    """Two stages of four ranks that share a trace each: rank r sends to r + 4, and back."""
    result = run(pp=2, dp=4)
    assert len(result.workload.traces) == 2
    [row] = result.messages
    found = arrows(from_result(result))
    across = {pair: count for pair, count in found.items() if pair[0] // 4 != pair[1] // 4}
    # all groups lie within a stage, so that what leaves it is a message: an activation and its gradient a micro-batch
    assert across == {pair: 2 for rank in range(4) for pair in ((rank, rank + 4), (rank + 4, rank))}
    assert sum(across.values()) == row["count"] == 16


def test_groups_of_one_name_are_apart() -> None:
    """Four pairs of tensor-parallel ranks: an arrow for each collective of a pair, between its two members."""
    result = run(tp=2, dp=4)
    pairs = [row for row in result.collectives if row["group"] == "tp"]
    wanted = sum(row["count"] for row in pairs)
    assert {row["members"] for row in pairs} == {2}
    for timeline in (from_result(result), from_document(result.to_dict(nodes=True))):
        inside = Counter({pair: n for pair, n in arrows(timeline).items() if pair[0] // 2 == pair[1] // 2})
        assert inside.total() == wanted
        others = Counter({pair: n for pair, n in arrows(timeline).items() if pair[0] // 2 != pair[1] // 2})
        # what is left is data-parallel: ranks of equal place in their pairs
        assert {(a - b) % 2 for a, b in others} == {0}
