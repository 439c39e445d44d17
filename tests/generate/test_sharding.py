"""Hybrid sharding: shards within a copy of the model, sums of shards across copies."""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chakra.errors import UsageError
from chakra.generate import MoeRequest, TransformerRequest, build_workload, summarize
from chakra.generate.parallel import ParallelConfig, RankLayout
from chakra.generate.verify.check import check_step
from chakra.generate.verify.step_totals import StageSummary
from chakra.replay import simulate

BASE: dict[str, Any] = {
    "model": "", "layers": 4, "hidden": 32, "heads": 8, "vocabulary": 64, "seq": 32, "bucket-mb": 0.01
}  # fmt: skip
EXPERTS: dict[str, Any] = {**BASE, "experts": 8, "experts-per-token": 2, "moe-ffn": 48}
ORDERS = ("tp-cp-ep-dp-pp", "pp-dp-tp-cp-ep", "tp-cp-dp-ep-pp", "dp-cp-ep-tp-pp")


@st.composite
def requests(draw: st.DrawFn) -> TransformerRequest:
    shard = draw(st.sampled_from([1, 2, 4]))
    cp = draw(st.sampled_from([1, 2]))
    options = {
        "tp": draw(st.sampled_from([1, 2])), "cp": cp, "pp": draw(st.sampled_from([1, 2])), "shard": shard,
        "dp": shard * draw(st.sampled_from([1, 2, 3])), "zero": draw(st.sampled_from([1, 2, 3])),
        "reshard": draw(st.booleans()), "reduce-once": draw(st.booleans()), "overlap": draw(st.booleans()),
        "micro-batches": draw(st.integers(1, 3)), "order": draw(st.sampled_from(ORDERS)),
        "comm-order": draw(st.sampled_from(["program", "stream"])), "sp": draw(st.booleans()),
        "schedule": draw(st.sampled_from(["1f1b", "zb-h1"])),
    }  # fmt: skip
    if draw(st.booleans()):
        ep = draw(st.sampled_from([n for n in (1, 2, 4, 8) if cp * shard % n == 0]))
        return MoeRequest.from_mapping({**EXPERTS, **options, "ep": ep})
    return TransformerRequest.from_mapping({**BASE, **options})


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(requests())
def test_bytes_are_those_of_the_closed_forms(request: TransformerRequest) -> None:
    checks = check_step(request, request.plan())
    assert [check for check in checks if not check.passed] == []
    names = [check.name for check in checks]
    parallel = request.parallel()
    assert any("shards across copies" in name for name in names) == (parallel.rdp > 1)
    if parallel.sdp > 1:
        assert any("reduce-scatter" in name for name in names)


@given(
    st.sampled_from(ORDERS),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(1, 2),
    st.data(),
)
def test_copies_and_shards_make_up_the_replicas(
    order: str, cp: int, shard: int, copies: int, tp: int, data: st.DataObject
) -> None:
    ep = data.draw(st.sampled_from([n for n in range(1, cp * shard + 1) if cp * shard % n == 0]))
    config = ParallelConfig(tp=tp, cp=cp, ep=ep, dp=shard * copies, pp=2, order=order, shard=shard)
    layout = RankLayout(config)
    for axes in (["sdp"], ["rdp"], ["sdp", "cp"], ["esdp"], ["ep"], ["edp"], ["ep", "esdp"]):
        table = layout.table(axes)
        assert table.shape[1] == config.size(axes)
        assert sorted(table.reshape(-1).tolist()) == list(range(config.world))
    # ranks that share experts, and those that share a copy, stay on one copy; the copies of a shard hold one shard each
    copy = layout.coordinates["rdp"]
    for axes in (["sdp", "cp"], ["ep"], ["esdp"]):
        assert (copy[layout.table(axes)] == copy[layout.table(axes)][:, :1]).all()
    for row in layout.table(["rdp"]):
        assert sorted(copy[row].tolist()) == list(range(copies))
        for axis in ("tp", "cp", "sdp", "ep", "esdp", "pp"):
            assert len(np.unique(layout.coordinates[axis][row])) == 1
    whole = {frozenset(row.tolist()) for row in layout.table(["edp"])}
    for row in layout.table(["esdp"]):
        assert any(set(row.tolist()) <= members for members in whole)


def only_stage(**options: Any) -> StageSummary:
    (stage,) = summarize(TransformerRequest.from_mapping({**BASE, **options}).plan())
    return stage


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_all_ranks_in_one_copy_is_plain_zero(zero: int) -> None:
    plain = TransformerRequest.from_mapping({**BASE, "dp": 4, "zero": zero})
    whole = TransformerRequest.from_mapping({**BASE, "dp": 4, "zero": zero, "shard": 4})
    a, b = build_workload(plain.plan()), build_workload(whole.plan())
    for mine, theirs in zip(a.traces, b.traces, strict=True):
        assert mine.n_nodes == theirs.n_nodes
        assert all(mine.node_proto(i) == theirs.node_proto(i) for i in range(mine.n_nodes))
    assert a.groups.keys() == b.groups.keys()


def test_memory_is_that_of_a_shard_and_the_optimizer_works_on_it() -> None:
    """16 + 4 bytes a parameter among the ranks of a copy, however many copies there are."""
    one = only_stage(dp=4, zero=3)
    for copies in (2, 3):
        more = only_stage(dp=4 * copies, zero=3, shard=4)
        assert more.memory == one.memory
        assert more.other_ops == one.other_ops
    assert only_stage(dp=8, zero=3).memory.states * 2 == one.memory.states


def test_a_copy_on_each_rank_reduces_as_replicas_do() -> None:
    found = {(t.group, t.kind): t.size_bytes for t in only_stage(dp=4, zero=3, shard=1).traffic}
    plain = {(t.group, t.kind): t.size_bytes for t in only_stage(dp=4).traffic}
    assert found == {("rdp", "ALL_REDUCE"): plain["dp", "ALL_REDUCE"]}


def test_shards_are_summed_behind_their_reduce_scatter() -> None:
    """A replay takes it, and each all-reduce waits for the reduce-scatter that makes what it sums."""
    request = TransformerRequest.from_mapping({**BASE, "dp": 8, "zero": 3, "shard": 4})
    workload = build_workload(request.plan())
    (trace,) = workload.traces
    names = [trace.node(i).name for i in range(trace.n_nodes)]
    place = {int(node): i for i, node in enumerate(trace.ids)}
    sums = [i for i, name in enumerate(names) if name.endswith("grads.all_reduce")]
    assert len(sums) == 6
    for i in sums:
        before = [names[place[dep]] for dep in trace.node(i).data_deps]
        assert before == [names[i].replace("all_reduce", "reduce_scatter")]
        [scatter] = [place[dep] for dep in trace.node(i).data_deps]
        assert trace.comm_size[i] * 4 == trace.comm_size[scatter]
    rings = {
        f"{kind}-implementation": ["ring", "ring"] for kind in ("all-reduce", "all-gather", "reduce-scatter")
    }
    result = simulate(
        workload, {"roofline-enabled": 1, "local-mem-bw": 100, "peak-perf": 10, **rings},
        {"topology": ["Ring", "Switch"], "npus_count": [4, 2], "bandwidth": [50.0, 5.0], "latency": [500.0, 500.0]},
    )  # fmt: skip
    assert len(set(result.finish_ns.tolist())) == 1


@pytest.mark.parametrize(("options", "message"), [
    ({"dp": 4, "zero": 3, "shard": 3}, r"shard must be a divisor of dp \(4\), not 3"),
    ({"dp": 4, "zero": 3, "shard": 0}, "shard must be a divisor of dp"),
    ({"dp": 4, "shard": 2}, "it needs zero 1, 2 or 3"),
    ({"dp": 8, "zero": 1, "shard": 2, "ep": 4}, r"ep=4 must divide cp\*shard=2"),
])  # fmt: skip
def test_shards_that_do_not_fit_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        MoeRequest.from_mapping({**EXPERTS, **options}).plan()
