"""Generated workloads replay: without a stall, in one class per stage, and with the schedules' exact times."""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chakra.errors import UsageError
from chakra.generate import MlpRequest, TransformerRequest, build_workload
from chakra.generate.model.ir import Edge, Layer, Operator, OpKind, Work
from chakra.generate.model.stage_model import StageModel
from chakra.generate.parallel import ParallelConfig
from chakra.generate.plan.compute import ComputeModel
from chakra.generate.plan.options import TrainingOptions
from chakra.generate.plan.template import EmitOptions
from chakra.generate.plan.training import plan_step
from chakra.generate.schedule.pipeline import (
    ActionTimes,
    ScheduleKind,
    bubble,
    build_schedule,
    placed,
    run_schedule,
)
from chakra.replay import simulate

SYSTEM = {
    "endpoint-delay": 10,
    "preferred-dataset-splits": 2,
    "all-reduce-implementation": ["ring"],
    "all-gather-implementation": ["ring"],
    "reduce-scatter-implementation": ["ring"],
    "all-to-all-implementation": ["direct1"],
    "local-mem-bw": 2000,
}


def network(npus: int, inner: int = 0) -> dict[str, Any]:
    """One switch, or two dimensions of which the inner has ``inner`` NPUs and is faster."""
    if inner > 1 and npus % inner == 0 and npus > inner:
        return {
            "topology": ["Switch", "Switch"],
            "npus_count": [inner, npus // inner],
            "bandwidth": [200, 20],
            "latency": [300, 900],
        }
    return {"topology": ["Switch"], "npus_count": [npus], "bandwidth": [50], "latency": [500]}


def replay(workload: Any, inner: int = 0, **options: Any) -> Any:
    system = dict(SYSTEM)
    if inner > 1 and workload.npus % inner == 0 and workload.npus > inner:
        for key in list(system):
            if key.endswith("implementation"):
                system[key] = [*system[key], *system[key]]  # type: ignore[misc]
    return simulate(workload, system, network(workload.npus, inner), **options)


@st.composite
def requests(draw: st.DrawFn) -> dict[str, Any]:
    """Random small parallelisations of small dense and MoE models: all degrees, schedules, shardings and overlaps."""
    power = st.sampled_from([1, 2, 4])
    moe = draw(st.booleans())
    out: dict[str, Any] = {
        "tp": draw(power), "cp": draw(power), "dp": draw(power), "pp": draw(power),
        "micro-batch": draw(st.integers(1, 2)), "model": "", "layers": 8, "hidden": 64, "heads": 16,
        "kv-heads": 16, "vocabulary": 100, "seq": 64,
        "sp": draw(st.booleans()), "zero": draw(st.integers(0, 3)), "overlap": draw(st.booleans()),
        "comm-order": draw(st.sampled_from(["program", "stream"])), "fuse": draw(st.booleans()),
        "recompute": draw(st.sampled_from(["none", "selective", "full"])),
        "context": draw(st.sampled_from(["ring", "all-gather", "ulysses"])), "bucket-mb": 0.05,
        "reshard": draw(st.booleans()), "reduce-once": draw(st.booleans()), "prefetch": draw(st.integers(0, 2)),
        "order": draw(st.sampled_from(["tp-cp-ep-dp-pp", "pp-dp-ep-cp-tp", "dp-tp-cp-pp-ep"])),
        "peak-tflops": 1.0, "mem-gbps": 100.0,
    }  # fmt: skip
    if moe:
        out |= {"experts": 8, "experts-per-token": 2, "moe-ffn": 64, "gated": True}
        out["ep"] = draw(st.sampled_from([n for n in (1, 2, 4, 8) if out["cp"] * out["dp"] % n == 0]))
    kind = draw(st.sampled_from(list(ScheduleKind)))
    out["schedule"] = kind.value
    out["vp"] = 2 if kind is ScheduleKind.INTERLEAVED and out["pp"] > 1 else 1
    out["micro-batches"] = out["pp"] * draw(st.integers(1, 2)) if out["vp"] > 1 else draw(st.integers(1, 4))
    if kind is ScheduleKind.INTERLEAVED:
        out["micro-batches"] = out["pp"] * draw(st.integers(1, 2))
    if kind is ScheduleKind.DUALPIPE:
        out |= {"pp": max(2, out["pp"]), "zero": out["zero"] % 2}
        out["micro-batches"] = 2 * out["pp"] + 2 * draw(st.integers(0, 1))
    if kind is ScheduleKind.DUALPIPEV:
        out |= {"pp": 2, "zero": out["zero"] % 2}
        out["micro-batches"] = 4 + draw(st.integers(0, 2))
    return out


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(requests())
def test_random_parallelisations_replay_without_a_stall(options: dict[str, Any]) -> None:
    request = TransformerRequest.from_mapping(options)
    if request.parallel().world == 1:
        return
    workload = build_workload(request.plan())
    result = replay(workload)
    assert not result.partial
    assert result.finish_ns.min() > 0
    for index in range(len(workload.traces)):
        finish = result.finish_ns[np.asarray(workload.trace_of) == index]
        # on one switch ranks with equal traces behave alike
        assert (finish == finish[0]).all()


def uniform(stages: int, chunks: int, times: ActionTimes) -> StageModel:
    """Chunks that take exactly ``times`` at 10^9 operations per second, with messages of no bytes."""
    op = Operator(
        "op", OpKind.GEMM, (Edge(-1, 0),), Work(times.forward), Work(times.input), Work(times.weight)
    )
    return StageModel(tuple((Layer("unit", (op,)),) for _ in range(stages * chunks)), 2, 4)


IDEAL = {"topology": ["FullyConnected"], "bandwidth": [1000], "latency": [0]}


def run_uniform(
    kind: ScheduleKind, stages: int, micro_batches: int, times: ActionTimes, chunks: int = 1, steps: int = 1
) -> Any:
    parallel = ParallelConfig(pp=stages, vp=chunks)
    training = TrainingOptions(micro_batches=micro_batches, schedule=kind, iterations=steps)
    emit = EmitOptions(compute=ComputeModel(1e9, 1e9))
    workload = build_workload(plan_step(uniform(stages, chunks, times), parallel, training, emit))
    return simulate(workload, SYSTEM, {**IDEAL, "npus_count": [stages]})


@pytest.mark.parametrize("kind", list(ScheduleKind))
@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("times", [ActionTimes(700, 800, 500), ActionTimes(1000, 1000, 1000)], ids=str)
def test_replay_gives_each_schedule_its_time_to_the_nanosecond(
    kind: ScheduleKind, stages: int, times: ActionTimes
) -> None:
    if kind is ScheduleKind.DUALPIPE:
        stages += stages % 2
    twice = kind in (ScheduleKind.INTERLEAVED, ScheduleKind.DUALPIPEV)
    micro_batches, chunks = 3 * stages, 2 if twice else 1
    result = run_uniform(kind, stages, micro_batches, times, chunks)
    schedule, placement = build_schedule(kind, stages, micro_batches, chunks), placed(kind, stages, chunks)
    expected = run_schedule(schedule, times, chunks, placement)
    assert result.finish_ns.tolist() == list(expected.end)
    work = micro_batches * chunks * (times.forward + times.input + times.weight)
    starts = list(expected.start)
    idle = max(finish - start - work for finish, start in zip(result.finish_ns.tolist(), starts, strict=True))
    assert idle == bubble(kind, stages, times)
    # what ranks wait for their neighbours, at the ends of the step too, is all that they do not work
    assert result.pipeline.bubble_ns.tolist() == [expected.makespan - work] * stages
    assert result.pipeline.share == pytest.approx(1 - work / expected.makespan)


@pytest.mark.parametrize("steps", [2, 5])
@pytest.mark.parametrize("kind", [ScheduleKind.GPIPE, ScheduleKind.ONE_F_ONE_B])
def test_steps_of_a_pipeline_follow_each_other(kind: ScheduleKind, steps: int) -> None:
    """The first stage ends a step last and begins the next one: N*(M + P - 1)*(tf + tb)."""
    result = run_uniform(kind, 4, 6, ActionTimes(700, 800, 500), steps=steps)
    assert result.finish_ns.max() == steps * (6 + 4 - 1) * 2000


RENDEZVOUS = [
    {"schedule": kind, "pp": pp, "micro-batches": micro_batches, "tp": tp}
    for kind in ("gpipe", "1f1b", "zb-h1", "zb-h2", "dualpipe", "dualpipev")
    for pp in (2, 3, 4, 6)
    for micro_batches, tp in ((2 * pp, 1), (2 * pp + 2, 2))
    if kind != "dualpipe" or pp % 2 == 0
] + [
    {"schedule": kind, "pp": 4, "micro-batches": 8, "tp": 2, "encoder-layers": 12, "encoder-stages": stages}
    for kind in ("gpipe", "1f1b", "zb-h1", "zb-h2")
    for stages in (1, 2, 3)
]  # fmt: skip


@pytest.mark.parametrize("options", RENDEZVOUS, ids=lambda one: "-".join(map(str, one.values())))
def test_sends_that_wait_for_receives_cost_nothing_where_communication_is_free(
    options: dict[str, Any],
) -> None:
    request = TransformerRequest.from_mapping({
        "model": "", "layers": 12, "hidden": 32, "heads": 8, "vocabulary": 64, "seq": 32,
        "peak-tflops": 0.01, "mem-gbps": 10.0, **options,
    })  # fmt: skip
    workload = build_workload(request.plan())
    free = {"topology": ["Switch"], "npus_count": [workload.npus], "bandwidth": [1e5], "latency": [0]}
    system = {**SYSTEM, "endpoint-delay": 0}
    eager, waiting, alone = (
        int(simulate(workload, system, free, rendezvous=waits, comm_streams=streams).finish_ns.max())
        for waits, streams in ((False, 4), (True, 4), (True, 1))
    )
    assert waiting <= 1.001 * eager
    # with one communication at a time, a send that waits holds up collectives of tp
    assert alone <= (1.05 if workload.npus > request.pp else 1.001) * eager


def test_makespan_is_never_below_the_ideal_on_a_real_network() -> None:
    options = {
        "model": "gpt2-small",
        "tp": 2,
        "pp": 4,
        "micro-batches": 8,
        "peak-tflops": 100.0,
        "mem-gbps": 1000.0,
    }
    plan = TransformerRequest.from_mapping(options).plan()
    workload = build_workload(plan)
    result = replay(workload, inner=2)
    busiest = max(int(t.durations_ns().sum()) for t in workload.traces)
    assert result.finish_ns.max() > busiest


def test_reductions_do_not_hold_up_the_pipeline() -> None:
    """All stages reduce at the same time, so a step grows by one stage's reductions, not by one for each stage."""
    base = {
        "model": "gpt2-small",
        "tp": 1,
        "pp": 4,
        "micro-batches": 4,
        "peak-tflops": 100.0,
        "mem-gbps": 1000.0,
    }

    def step(**more: Any) -> Any:
        workload = build_workload(TransformerRequest.from_mapping({**base, **more}).plan())
        return workload, int(replay(workload).finish_ns.max())

    _, alone = step(dp=1)
    workload, together = step(dp=2)
    longest = 0
    for trace in workload.traces:
        reductions = trace.comm_size[trace.comm_type == 0]
        # a ring of two on a switch of 50 GB/s, and the latency of every chunk's messages
        longest = max(longest, int((reductions / 53.7 + 5000).sum()))
    assert alone < together < alone + 1.3 * longest


def test_permuting_the_rank_order_changes_groups_but_not_the_time_on_one_switch() -> None:
    base = {
        "model": "gpt2-small",
        "tp": 2,
        "pp": 2,
        "dp": 2,
        "micro-batches": 4,
        "peak-tflops": 100.0,
        "mem-gbps": 1000.0,
    }
    times = set()
    for order in ("tp-cp-ep-dp-pp", "pp-dp-tp-cp-ep", "dp-pp-cp-ep-tp"):
        workload = build_workload(TransformerRequest.from_mapping({**base, "order": order}).plan())
        times.add(int(replay(workload).finish_ns.max()))
    assert len(times) == 1


def test_overlap_is_never_slower_here() -> None:
    base = {
        "model": "gpt2-small", "dp": 4, "micro-batches": 2, "zero": 3, "peak-tflops": 100.0, "mem-gbps": 1000.0
    }  # fmt: skip
    times = [
        int(
            replay(
                build_workload(TransformerRequest.from_mapping({**base, "overlap": overlap}).plan())
            ).finish_ns.max()
        )
        for overlap in (True, False)
    ]
    assert times[0] < times[1]


def test_equal_ranks_are_one_class_at_scale() -> None:
    request = TransformerRequest.from_mapping(
        {"model": "gpt3-175b", "tp": 8, "pp": 8, "npus": 102_400, "micro-batches": 8, "fuse": True, "peak-tflops": 989.0,
         "mem-gbps": 3350.0}
    )  # fmt: skip
    workload = build_workload(request.plan(), names=False)
    assert (len(workload.traces), workload.npus) == (8, 102_400)
    result = replay(workload, inner=8)
    assert result.raw.partition.n_classes == 8
    assert result.finish_ns.shape == (102_400,)


@pytest.mark.parametrize("mode", ["prefill", "decode", "serve"])
def test_inference_replays(mode: str) -> None:
    request = TransformerRequest.from_mapping(
        {"model": "llama2-7b", "layers": 4, "mode": mode, "tp": 2, "pp": 2, "dp": 2, "seq": 32, "micro-batches": 2,
         "peak-tflops": 100.0, "mem-gbps": 1000.0, **({} if mode == "prefill" else {"decode-steps": 3})}
    )  # fmt: skip
    assert replay(build_workload(request.plan())).finish_ns.min() > 0


def test_mlp_replays() -> None:
    request = MlpRequest(tp=2, pp=2, dp=2, micro_batches=3, peak_tflops=100.0, mem_gbps=1000.0)
    assert replay(build_workload(request.plan())).finish_ns.min() > 0


def test_a_ring_of_context_ranks_has_three_traces_a_stage() -> None:
    workload = build_workload(
        TransformerRequest.from_mapping({"model": "gpt2-small", "cp": 8, "tp": 1}).plan()
    )
    assert len(workload.traces) == 3
    assert sorted(np.bincount(workload.trace_of).tolist()) == [1, 1, 6]


def test_unknown_parameters_are_named_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="unknown parameter 'micro-batchs'; did you mean 'micro-batches'"):
        TransformerRequest.from_mapping({"micro-batchs": 2})
