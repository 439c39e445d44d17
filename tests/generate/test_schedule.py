"""Pipeline schedules: complete, free of deadlock, and with the bubbles and memory that their papers state."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakra.errors import ConfigError, UsageError
from chakra.generate.schedule.pipeline import (
    Action,
    ActionTimes,
    Phase,
    ScheduleKind,
    bubble,
    build_schedule,
    check_schedule,
    in_flight,
    read_schedule,
    run_schedule,
)

#: those of one way through the pipeline; the others have tests of their own
ONE_WAY = [kind for kind in ScheduleKind if kind not in (ScheduleKind.DUALPIPE, ScheduleKind.DUALPIPEV)]
FLAT = [kind for kind in ONE_WAY if kind is not ScheduleKind.INTERLEAVED]
TIMES = st.integers(1, 50)


@given(st.sampled_from(FLAT), st.integers(1, 9), st.integers(1, 20))
def test_every_schedule_does_all_work_once_and_ends(
    kind: ScheduleKind, stages: int, micro_batches: int
) -> None:
    schedule = build_schedule(kind, stages, micro_batches)
    check_schedule(schedule, micro_batches)
    run_schedule(schedule, ActionTimes(2, 3, 1))


@given(st.integers(2, 6), st.integers(1, 4), st.integers(1, 4))
def test_interleaved_does_all_work_once_and_ends(stages: int, rounds: int, chunks: int) -> None:
    schedule = build_schedule(ScheduleKind.INTERLEAVED, stages, rounds * stages, chunks)
    check_schedule(schedule, rounds * stages, chunks)
    run_schedule(schedule, ActionTimes(2, 3, 1), chunks)


@given(st.integers(1, 6), st.integers(1, 4), st.integers(1, 4))
def test_paired_passes_do_all_work_once_and_do_not_wait_for_each_other(
    stages: int, rounds: int, chunks: int
) -> None:
    """Of each pair the forward is of another micro-batch or chunk than the backward, whose forward went before."""
    kind = ScheduleKind.INTERLEAVED if chunks > 1 else ScheduleKind.ONE_F_ONE_B
    schedule = build_schedule(kind, stages, rounds * stages, chunks, paired=True)
    check_schedule(schedule, rounds * stages, chunks)
    run_schedule(schedule, ActionTimes(2, 3, 1), chunks)
    for stage, row in enumerate(schedule):
        pairs = [(one, row[i + 1]) for i, one in enumerate(row) if one.beside]
        for forward, backward in pairs:
            assert (forward.phase, backward.phase) == (Phase.FORWARD, Phase.BACKWARD)
            assert (forward.micro_batch, forward.chunk) != (backward.micro_batch, backward.chunk)
        if chunks == 1:
            # one forward more than without pairs goes ahead
            assert len(pairs) == max(0, rounds * stages - (stages - stage))


def test_paired_passes_of_one_stage() -> None:
    row = build_schedule(ScheduleKind.ONE_F_ONE_B, 1, 3, paired=True)[0]
    cells = [str(action) + "+" * action.beside for action in row]
    assert cells == ["F0", "F1+", "B0", "F2+", "B1", "B2"]
    with pytest.raises(
        UsageError, match="paired passes are of 1f1b and the interleaved schedule, not of gpipe"
    ):
        build_schedule(ScheduleKind.GPIPE, 2, 4, paired=True)


@given(
    st.sampled_from([ScheduleKind.GPIPE, ScheduleKind.ONE_F_ONE_B]),
    st.integers(1, 9),
    st.integers(1, 20),
    TIMES,
    TIMES,
    TIMES,
)
def test_makespan_of_gpipe_and_1f1b(
    kind: ScheduleKind, stages: int, micro_batches: int, forward: int, inputs: int, weights: int
) -> None:
    """(M+P-1)*(tf+tb), also for fewer micro-batches than stages."""
    run = run_schedule(build_schedule(kind, stages, micro_batches), ActionTimes(forward, inputs, weights))
    assert run.makespan == (micro_batches + stages - 1) * (forward + inputs + weights)


@given(st.integers(2, 6), st.integers(1, 4), st.integers(1, 4), TIMES, TIMES, TIMES)
def test_makespan_of_interleaved(
    stages: int, rounds: int, chunks: int, forward: int, inputs: int, weights: int
) -> None:
    """M*v*(tf+tb) + (P-1)*(tf+tb), times per chunk."""
    micro_batches = rounds * stages
    schedule = build_schedule(ScheduleKind.INTERLEAVED, stages, micro_batches, chunks)
    run = run_schedule(schedule, ActionTimes(forward, inputs, weights), chunks)
    assert run.makespan == (micro_batches * chunks + stages - 1) * (forward + inputs + weights)


@given(st.sampled_from(ONE_WAY), st.integers(2, 8), st.integers(1, 3), TIMES, TIMES, TIMES)
def test_bubble_of_the_first_stage(
    kind: ScheduleKind, stages: int, rounds: int, forward: int, inputs: int, weights: int
) -> None:
    zero_bubble = kind in (ScheduleKind.ZB_H1, ScheduleKind.ZB_H2)
    if zero_bubble:
        weights = min(weights, forward, inputs)
    times = ActionTimes(forward, inputs, weights)
    micro_batches = stages * (rounds + 1)
    run = run_schedule(build_schedule(kind, stages, micro_batches), times)
    assert run.longest_bubble == bubble(kind, stages, times)


@pytest.mark.parametrize("stages", [2, 4, 8])
@pytest.mark.parametrize("micro_batches", [1, 3, 8, 16])
def test_activations_in_flight(stages: int, micro_batches: int) -> None:
    """1F1B holds min(M, P - rank) micro-batches, GPipe all; ZB-H1 at most min(M, P); ZB-H2 at most 2P - 1."""

    def held(kind: ScheduleKind) -> list[int]:
        return [in_flight(row) for row in build_schedule(kind, stages, micro_batches)]

    assert held(ScheduleKind.GPIPE) == [micro_batches] * stages
    assert held(ScheduleKind.ONE_F_ONE_B) == [min(micro_batches, stages - r) for r in range(stages)]
    assert max(held(ScheduleKind.ZB_H1)) <= min(micro_batches, stages)
    assert max(held(ScheduleKind.ZB_H2)) <= min(micro_batches, 2 * stages - 1)


@pytest.mark.parametrize(("stages", "chunks"), [(2, 2), (4, 2), (4, 3), (8, 2)])
def test_interleaved_first_stage_holds_the_published_number_of_chunks(stages: int, chunks: int) -> None:
    """P*v + P - 1 chunks, or M*v when M = P."""
    many = build_schedule(ScheduleKind.INTERLEAVED, stages, 2 * stages, chunks)
    assert in_flight(many[0]) == stages * chunks + stages - 1
    few = build_schedule(ScheduleKind.INTERLEAVED, stages, stages, chunks)
    assert in_flight(few[0]) == stages * chunks


def test_interleaved_refuses_a_remainder() -> None:
    with pytest.raises(UsageError, match=r"micro-batches \(6\) to be a multiple of the pipeline size \(4\)"):
        build_schedule(ScheduleKind.INTERLEAVED, 4, 6, 2)


@pytest.mark.parametrize(("stages", "micro_batches", "chunks", "message"), [
    (0, 1, 1, "pipeline size must be at least 1, not 0"),
    (1, 0, 1, "micro-batches must be at least 1, not 0"),
    (2, 2, 2, r"virtual stages \(2\) need the interleaved schedule"),
])  # fmt: skip
def test_wrong_sizes_are_named(stages: int, micro_batches: int, chunks: int, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        build_schedule(ScheduleKind.ONE_F_ONE_B, stages, micro_batches, chunks)


def test_a_schedule_survives_a_csv_file(tmp_path: Path) -> None:
    for kind, chunks in ((ScheduleKind.ZB_H1, 1), (ScheduleKind.INTERLEAVED, 2)):
        schedule = build_schedule(kind, 3, 6, chunks)
        path = tmp_path / f"{kind}.csv"
        path.write_text("\n".join(",".join(map(str, row)) for row in schedule) + "\n")
        assert read_schedule(path, 3, 6, chunks) == schedule


@pytest.mark.parametrize(("text", "message"), [
    ("F0,B0\nF0,X0", "line 2: 'X0' is not an action"),
    ("F0,B0", "1 line with actions, but the pipeline has 2 stages"),
    ("F0,B0\nB0,F0", "deadlock"),
    ("F0,B0\nF0", "needs either B or both I and W"),
    ("F0,B0\nF0,F0,B0", "does F0 twice"),
    ("F0,B0\nF0,B0,F1", "does F1, but there are 1 micro-batch and 1 chunk"),
    ("F0,B0\nB0", "never does F0"),
])  # fmt: skip
def test_wrong_schedule_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "s.csv"
    path.write_text(text + "\n")
    with pytest.raises(ConfigError, match=message):
        read_schedule(path, 2, 1)


def test_actions_print_as_in_schedule_files() -> None:
    assert [str(Action(Phase.FORWARD, 3)), str(Action(Phase.WEIGHT, 1, 2))] == ["F3", "W1.2"]
