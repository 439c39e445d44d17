"""DualPipe: micro-batches from both ends, two copies of every part, and communication beside computation."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from generated_ranks import messages, ranks_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chakra.errors import ConfigError, UsageError
from chakra.generate import MoeRequest, TransformerRequest, build_workload, summarize
from chakra.generate.model.presets import transformer
from chakra.generate.schedule.pipeline import (
    ActionTimes,
    Phase,
    ScheduleKind,
    bubble,
    build_schedule,
    check_schedule,
    placed,
    run_schedule,
)
from chakra.generate.verify import closed_forms as closed
from chakra.generate.verify.check import check_step
from chakra.generate.verify.step_totals import total_parameters
from chakra.replay import simulate
from chakra.replay.checks.run import check_workload

BASE: dict[str, Any] = {
    "model": "", "layers": 4, "hidden": 32, "heads": 8, "vocabulary": 64, "seq": 32, "bucket-mb": 0.01,
    "peak-tflops": 0.01, "mem-gbps": 10.0, "schedule": "dualpipe", "pp": 4, "micro-batches": 8,
}  # fmt: skip
EXPERTS: dict[str, Any] = {**BASE, "experts": 8, "experts-per-token": 2, "moe-ffn": 48}
SYSTEM = {
    "all-reduce-implementation": ["ring"], "all-gather-implementation": ["ring"],
    "reduce-scatter-implementation": ["ring"], "all-to-all-implementation": ["direct"],
}  # fmt: skip
KIND = ScheduleKind.DUALPIPE
FOLDED = ScheduleKind.DUALPIPEV


@settings(deadline=None)
@given(st.integers(1, 5), st.integers(0, 6), st.integers(1, 30), st.integers(0, 30), st.integers(0, 30))
def test_bubble_and_activations_are_those_of_the_closed_forms(
    half: int, more: int, weight: int, longer: int, forward: int
) -> None:
    """For tW <= tI <= tf <= tI + tW; a stage never holds more than P + 1 micro-batches."""
    stages, micro_batches = 2 * half, 4 * half + 2 * more
    times = ActionTimes(weight + longer + min(forward, weight), weight + longer, weight)
    schedule, placement = build_schedule(KIND, stages, micro_batches), placed(KIND, stages)
    check_schedule(schedule, micro_batches, placement=placement)
    run = run_schedule(schedule, times, placement=placement)
    assert run.longest_bubble == bubble(KIND, stages, times)
    assert set(run.in_flight) == {stages + 1}


@settings(deadline=None)
@given(st.integers(1, 6), st.integers(0, 6), st.integers(1, 30), st.integers(0, 30), st.integers(0, 30))
def test_the_folded_one_has_half_the_stages_and_their_idle_time(
    stages: int, more: int, weight: int, longer: int, forward: int
) -> None:
    """DualPipeV, times per chunk: (P-1)(tf+tI-tW), and 2P + 1 chunks in flight."""
    micro_batches = 2 * stages + more
    times = ActionTimes(weight + longer + min(forward, weight), weight + longer, weight)
    schedule, placement = build_schedule(FOLDED, stages, micro_batches), placed(FOLDED, stages)
    check_schedule(schedule, micro_batches, placement=placement)
    run = run_schedule(schedule, times, placement=placement)
    assert run.longest_bubble == (stages - 1) * (times.forward + times.input - times.weight)
    assert run.longest_bubble == bubble(FOLDED, stages, times)
    assert set(run.in_flight) == {2 * stages + 1}


def test_the_folded_one_is_half_of_the_other() -> None:
    """Phases of stage p are those of stage p of twice as many stages and micro-batches."""
    whole, half = build_schedule(KIND, 8, 20), build_schedule(FOLDED, 4, 10)
    for stage in range(4):
        assert [(a.phase, a.chunk, a.beside, a.micro_batch % 10) for a in whole[stage]] == [
            (a.phase, a.chunk, a.beside, a.micro_batch) for a in half[stage]
        ]


def test_a_folded_stage_holds_both_ends_once() -> None:
    placement = placed(FOLDED, 2)
    assert [placement.layers("abcd", stage) for stage in range(2)] == [("a", "d"), ("b", "c")]
    # the last stage goes on with what it has
    assert placement.beyond(1, 0, 1) == (1, 1)


def test_stages_hold_both_ends() -> None:
    placement = placed(KIND, 4)
    assert [placement.layers("abcd", stage) for stage in range(4)] == [
        ("a", "d"), ("b", "c"), ("c", "b"), ("d", "a"),
    ]  # fmt: skip
    assert placement.beyond(1, 0, 1) == (2, 0)
    assert placement.beyond(1, 1, 1) == (0, 1)
    assert placement.beyond(0, 1, 1) is None


@st.composite
def requests(draw: st.DrawFn) -> TransformerRequest:
    pp = draw(st.sampled_from([2, 4]))
    dp = draw(st.sampled_from([1, 2, 4]))
    folded = draw(st.booleans())
    if folded:
        pp //= 2 if pp == 4 else 1
    options = {
        "schedule": "dualpipev" if folded else "dualpipe", "pp": pp,
        "micro-batches": 2 * pp + (1 if folded else 2) * draw(st.integers(0, 2)), "dp": dp,
        "tp": draw(st.sampled_from([1, 2])),
        "sp": draw(st.booleans()), "zero": draw(st.integers(0, 1)), "overlap": draw(st.booleans()),
        "comm-order": draw(st.sampled_from(["program", "stream"])), "host": draw(st.sampled_from(["none", "ahead"])),
        "recompute": draw(st.sampled_from(["none", "full"])), "iterations": draw(st.sampled_from([1, 2])),
        "exposed": draw(st.sampled_from(["", "tp", "dp,pp"])), "fuse": draw(st.booleans()),
        "order": draw(st.sampled_from(["tp-cp-ep-dp-pp", "pp-dp-tp-cp-ep"])), "cp": draw(st.sampled_from([1, 2])),
    }  # fmt: skip
    if dp > 1 and draw(st.booleans()):
        load = draw(st.sampled_from(["uniform", "zipf:1.2", "zipf:20"]))
        shard = draw(st.sampled_from([None, dp])) if options["zero"] else None
        return MoeRequest.from_mapping({**EXPERTS, **options, "ep": dp, "expert-load": load, "shard": shard})
    return TransformerRequest.from_mapping({**BASE, **options})


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(requests())
def test_closed_forms_hold(request: TransformerRequest) -> None:
    checks = check_step(request, request.plan())
    assert [check for check in checks if not check.passed] == []
    both = any(check.name.startswith("gradients of both copies") for check in checks)
    assert both is (request.schedule is KIND)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(requests())
def test_messages_match_and_the_step_ends(request: TransformerRequest) -> None:
    workload = build_workload(request.plan())
    traces, groups = ranks_of(workload)
    assert list(check_workload(traces, groups, len(traces))) == []
    for trace in traces:
        offsets, parents = trace.parents()
        child = np.repeat(np.arange(trace.n_nodes), np.diff(offsets))
        assert (parents < child).all()
    sent, received = messages(traces)
    assert sent == received
    assert all(count == 1 for count in sent.values())
    assert time_ns(workload) > 0


def time_ns(workload: Any, bandwidth: float = 5.0) -> int:
    network = {
        "topology": ["Switch"], "npus_count": [workload.npus], "bandwidth": [bandwidth], "latency": [100.0]
    }  # fmt: skip
    return int(simulate(workload, SYSTEM, network).finish_ns.max())


def moe(**options: Any) -> Any:
    return MoeRequest.from_mapping({**EXPERTS, "dp": 4, "ep": 4, **options}).plan()


def test_exchanges_with_experts_go_on_beside_computation() -> None:
    """The forward and backward of a pair hide each other's all-to-all, so a slow network costs less than one by one."""
    many = {"micro-batches": 32}
    pairs, exposed = build_workload(moe(**many)), build_workload(moe(**many, exposed="tp"))
    assert time_ns(pairs, 1000) == pytest.approx(time_ns(exposed, 1000), rel=0.02)
    saved = time_ns(exposed, 1.0) - time_ns(pairs, 1.0)
    assert saved > 0.1 * (time_ns(exposed, 1.0) - time_ns(exposed, 1000))


@pytest.mark.parametrize("pipeline", [{"pp": 1}, {"pp": 2, "vp": 2}])
def test_paired_passes_hide_exchanges_and_keep_their_work(pipeline: dict[str, int]) -> None:
    options: dict[str, Any] = {
        **EXPERTS,
        "dp": 4,
        "ep": 4,
        "micro-batches": 16,
        "schedule": "1f1b",
        **pipeline,
    }
    plain, paired = (MoeRequest.from_mapping({**options, "paired": on}) for on in (False, True))
    assert [check for check in check_step(paired, paired.plan()) if not check.passed] == []
    slow, hidden = (time_ns(build_workload(request.plan()), 1.0) for request in (plain, paired))
    fast, same = (time_ns(build_workload(request.plan()), 1000) for request in (plain, paired))
    if pipeline["pp"] == 1:
        assert same == pytest.approx(fast, rel=0.02)
    assert slow - hidden > 0.1 * (slow - fast)


def test_nodes_of_a_pair_alternate_and_keep_their_work() -> None:
    workload = build_workload(moe())
    trace = workload.traces[0]
    names = [trace.node(i).name for i in range(trace.n_nodes)]
    row = build_schedule(KIND, 4, 8)[0]
    forward, backward = next(both for both in pairwise(row) if both[0].beside)
    labels = tuple(f"{one.phase}{one.micro_batch}.{one.chunk} " for one in (forward, backward))
    pair = [name.split()[0] for name in names if name.startswith(labels)]
    assert pair != sorted(pair)
    assert pair != sorted(pair, reverse=True)
    one, two = (summarize(moe(**more)) for more in ({}, {"exposed": "tp"}))
    assert [(s.nodes, s.matmul_flops, s.traffic, s.memory) for s in one] == [
        (s.nodes, s.matmul_flops, s.traffic, s.memory) for s in two
    ]


def test_a_folded_pipeline_keeps_one_copy_of_tied_embeddings() -> None:
    """Both are on the first stage, which needs no exchange for them; the last one sends nothing to itself."""
    plan = TransformerRequest.from_mapping(
        {"model": "gpt2-small", "layers": 8, "pp": 2, "schedule": "dualpipev", "micro-batches": 4}
    ).plan()
    assert total_parameters(plan) == closed.parameters(replace(transformer("gpt2-small"), layers=8))
    traces, _ = ranks_of(build_workload(plan))
    assert not [trace for trace in traces if "embed" in trace.pg_table]
    sent, received = messages(traces)
    assert sent == received
    assert {pair[:2] for pair in sent} == {(0, 1), (1, 0)}
    # four micro-batches each way, there and back
    assert sum(sent.values()) == 4 * 2 * 2


def test_memory_of_a_folded_stage_is_that_of_its_two_parts_alone() -> None:
    folded, plain = (summarize(moe(schedule=kind, pp=pp)) for kind, pp in (("dualpipev", 2), ("1f1b", 4)))
    assert [s.memory.states for s in folded] == [
        plain[a].memory.states + plain[b].memory.states for a, b in ((0, 3), (1, 2))
    ]


def test_memory_holds_two_parts() -> None:
    dual, plain = summarize(moe()), summarize(moe(schedule="1f1b"))
    assert [s.memory.states for s in dual] == [
        a.memory.states + b.memory.states for a, b in zip(plain, plain[::-1], strict=True)
    ]


def test_a_file_spells_the_schedule_out(tmp_path: Path) -> None:
    """The built-in order written as a file gives the same trace."""
    file = tmp_path / "dual.csv"
    text = ""
    for row in build_schedule(KIND, 4, 8):
        cells = ""
        for action in row:
            cells += f"{action.phase}{action.micro_batch}.{action.chunk}{'+' if action.beside else ','}"
        text += cells + "\n"
    file.write_text(text, encoding="utf-8")
    built, listed = (build_workload(moe(**more)) for more in ({}, {"schedule-file": str(file)}))
    for a, b in zip(built.traces, listed.traces, strict=True):
        assert [a.node_proto(i) for i in range(a.n_nodes)] == [b.node_proto(i) for i in range(b.n_nodes)]
    file.write_text(text.replace("F0.0,", "F4.0,", 1), encoding="utf-8")
    with pytest.raises(ConfigError, match="a micro-batch that goes the other way"):
        moe(**{"schedule-file": str(file)})
    for wrong in ("B0+F1", "F0+", "F0+B0+B1", "F0+I0"):
        file.write_text(wrong, encoding="utf-8")
        with pytest.raises(ConfigError, match="is not an action such as F0, or a forward and a backward"):
            moe(**{"schedule-file": str(file)})


def test_phases_beside_each_other_are_forward_and_backward() -> None:
    for row in build_schedule(KIND, 6, 14):
        for action, following in pairwise(row):
            if action.beside:
                assert (action.phase, following.phase) == (Phase.FORWARD, Phase.BACKWARD)
                assert action.chunk != following.chunk


@pytest.mark.parametrize(("options", "message"), [
    ({"pp": 3, "layers": 3}, "even numbers of stages and micro-batches, not 3 and 8"),
    ({"micro-batches": 9}, "even numbers of stages and micro-batches, not 4 and 9"),
    ({"micro-batches": 6}, "at least two micro-batches for each stage: not 4 and 6"),
    ({"zero": 2, "dp": 2}, "zero must be 0 or 1"),
    ({"vp": 2, "layers": 8}, "vp must be 1"),
    ({"schedule": "dualpipev", "layers": 8, "micro-batches": 7}, "two micro-batches for each stage: not 7 for 4 stages"),
    ({"schedule": "dualpipev", "layers": 8, "vp": 2}, "two chunks on each stage already: vp must be 1"),
    ({"schedule": "dualpipev", "layers": 8, "dp": 2, "zero": 2}, "zero must be 0 or 1"),
    ({"schedule": "dualpipev", "pp": 1}, "dualpipev folds a pipeline: pp must be at least 2"),
    ({"schedule": "dualpipev", "layers": 8, "encoder-layers": 8}, "the schedule not dualpipev"),
])  # fmt: skip
def test_what_dualpipe_cannot_do_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        TransformerRequest.from_mapping({**BASE, **options}).plan()
