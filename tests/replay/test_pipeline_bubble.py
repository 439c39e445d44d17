"""Bubbles of pipelines: values by hand, closed forms of schedules, and accounts that add up to the step."""

from typing import Any

import pytest

from chakra.builder import Workload
from chakra.generate import TransformerRequest, build_workload
from chakra.generate.schedule.ideal import ideal_bubble_share
from chakra.generate.schedule.pipeline import ScheduleKind, build_schedule, placed
from chakra.generate.verify.totals import totals_of
from chakra.replay import ReplayResult, simulate

#: 1 MiB takes 19,531 ns on a link of 50 GB/s of 2^30 B, and 500 ns to get there
MIB, MESSAGE_NS = 1 << 20, 20_031
RING: dict[str, Any] = {"topology": ["Ring"], "npus_count": [3], "bandwidth": [50], "latency": [500]}


def check_sums(result: ReplayResult) -> None:
    """Work, exposed communication that is no bubble, idle time and the bubble are the step, of every rank."""
    found = result.pipeline
    assert found is not None
    account, step = result.account, int(result.finish_ns.max())
    ended, behind = step - result.finish_ns, found.bubble_ns - found.waiting_ns
    work = account["compute_ns"] + account["cpu_ns"] + account["memory_ns"]
    exposed = account["transfer_ns"] + account["waiting_ns"] - found.waiting_ns
    idle = account["idle_ns"] + ended - behind
    for part in (found.waiting_ns, account["waiting_ns"] - found.waiting_ns, behind, ended - behind):
        assert (part >= 0).all()
    assert (work + exposed + found.bubble_ns + idle == step).all()


def there_and_back(**options: Any) -> ReplayResult:
    """Rank 0 works 50 us for rank 1, which works 30 us for it; rank 1 has 10 us of work beside, rank 2 a step of 5 us."""
    workload = Workload(3)
    first, second = workload.builder(0), workload.builder(1)
    begun = first.compute(duration_micros=50)
    first.send(1, size_bytes=MIB, after=begun)
    back = first.recv(1, size_bytes=MIB, after=begun, tag=1)
    first.compute(duration_micros=1, after=back)
    second.compute(duration_micros=10)
    got = second.recv(0, size_bytes=MIB)
    second.send(0, size_bytes=MIB, after=second.compute(duration_micros=30, after=got), tag=1)
    workload.builder(2).compute(duration_micros=5)
    return simulate(workload, {}, RING, **options)


def test_a_bubble_is_waiting_for_the_neighbour_alone_and_the_time_after_the_own_end() -> None:
    result = there_and_back()
    returned = 50_000 + MESSAGE_NS + 30_000
    step = returned + MESSAGE_NS + 1000
    assert result.finish_ns.tolist()[0] == step
    found = result.pipeline
    assert found is not None
    # rank 0 waits from the end of its work until rank 1 sends, and sends itself in the first part of that
    assert found.bubble_ns.tolist() == [30_000, 40_000 + step - int(result.finish_ns[1]), 0]
    assert found.mean_ns == found.bubble_ns[:2].mean()
    assert found.share == found.mean_ns / step
    assert (found.stages, found.ideal_share) == (None, None)
    assert "waiting for messages, all of them" in str(result)
    assert found.waiting_ns.tolist() == [30_000, 40_000, 0]
    check_sums(result)


@pytest.mark.parametrize("backend", ["unaware", "aware", "flow"])
def test_backends_agree_on_a_bubble(backend: str) -> None:
    check_sums(there_and_back(backend=backend))


def test_a_run_without_messages_or_one_that_was_ended_has_no_bubble() -> None:
    workload = Workload(3)
    for rank in range(3):
        workload.builder(rank).compute(duration_micros=5)
    alone = simulate(workload, {}, RING)
    assert alone.pipeline is None
    assert "pipeline" not in alone.to_dict()
    assert "pipeline bubble" not in str(alone)


def generated(**options: Any) -> ReplayResult:
    request = TransformerRequest.from_mapping({
        "model": "", "layers": 8, "hidden": 64, "heads": 8, "vocabulary": 64, "seq": 32,
        "peak-tflops": 0.1, "mem-gbps": 10.0, **options,
    })  # fmt: skip
    plan = request.plan()
    workload = build_workload(plan, metadata=totals_of(request, plan).fact())
    network = {"topology": ["Switch"], "npus_count": [workload.npus], "bandwidth": [50], "latency": [500]}
    kinds = ("all-reduce", "all-gather", "reduce-scatter")
    return simulate(workload, {f"{kind}-implementation": ["ring"] for kind in kinds}, network)


@pytest.mark.parametrize(
    ("options", "ideal"),
    [
        ({"pp": 4, "micro-batches": 8}, 3 / 11),
        ({"pp": 4, "micro-batches": 8, "tp": 2, "dp": 2}, 3 / 11),
        ({"pp": 4, "micro-batches": 8, "vp": 2, "schedule": "interleaved"}, 3 / 19),
        ({"pp": 2, "micro-batches": 4, "schedule": "gpipe"}, 1 / 5),
        # tf = tI = tW: the first stage does not wait, the others begin P-1 forwards later and end as much later
        ({"pp": 4, "micro-batches": 8, "schedule": "zb-h2"}, 3 / 27),
        ({"pp": 4, "micro-batches": 8, "schedule": "zb-h1"}, 3 / 27),
        ({"pp": 4, "micro-batches": 8, "mode": "prefill"}, 3 / 11),
        ({"pp": 2, "micro-batches": 2, "mode": "serve", "decode-steps": 3}, None),
    ],
)  # fmt: skip
def test_generated_pipelines_say_their_schedules_bubble(options: dict[str, Any], ideal: float | None) -> None:
    result = generated(**options)
    found = result.pipeline
    assert found is not None
    assert found.ideal_share == (None if ideal is None else pytest.approx(ideal))
    assert found.stages == options["pp"]
    assert 0 < found.share < 1
    assert ("with equal stages and free communication" in str(result)) == (ideal is not None)
    check_sums(result)


@pytest.mark.parametrize("stages", [2, 4, 6])
@pytest.mark.parametrize("rounds", [1, 2, 5])
@pytest.mark.parametrize("kind", [ScheduleKind.GPIPE, ScheduleKind.ONE_F_ONE_B, ScheduleKind.INTERLEAVED])
def test_the_closed_form_is_what_running_the_schedule_gives(
    kind: ScheduleKind, rounds: int, stages: int
) -> None:
    chunks = 3 if kind is ScheduleKind.INTERLEAVED else 1
    schedule = build_schedule(kind, stages, rounds * stages, chunks)
    placement = placed(kind, stages, chunks)
    closed = ideal_bubble_share(schedule, placement, closed=True)
    assert ideal_bubble_share(schedule, placement) == pytest.approx(closed)
    assert closed == (stages - 1) / (rounds * stages * chunks + stages - 1)


def test_messages_within_a_stage_are_no_pipelines() -> None:
    """Rings of context parallelism: ranks of one stage, which wait for each other, but not as stages do."""
    assert generated(cp=2, dp=2, context="ring").pipeline is None
    both = generated(cp=2, pp=2, context="ring", **{"micro-batches": 4})
    assert both.pipeline is not None
    assert both.pipeline.stages == 2
    check_sums(both)


def test_prefill_and_decoding_on_ranks_of_their_own_are_two_pipelines() -> None:
    """The wait of decoding for prefill is none of a pipeline, and parts without stages have none."""
    options = {"mode": "disaggregated", "decode-steps": 4, "dp": 2}
    assert generated(**options).pipeline is None
    divided = generated(pp=2, **options)
    assert divided.pipeline is not None
    waiting = divided.account["waiting_ns"]
    assert (divided.pipeline.bubble_ns[4:] < waiting[4:]).all()
    check_sums(divided)
