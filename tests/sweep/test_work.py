"""Designs whose steps do different amounts of work are not ranked by the step without a word."""

import pytest

from chakra.sweep import run_point, study_from
from chakra.sweep.store import Outcome
from chakra.sweep.study import Study
from chakra.sweep.table import result_notes
from chakra.sweep.work import work_note


def study(workload: dict[str, object], objective: str = "step_ms") -> Study:
    given = {"model": "gpt2-small", "layers": 2, "npus": 8, "seq": 512, **workload}
    return study_from(
        {
            "workload": given,
            "platform": "hgx-h100",
            "parameters": {"workload.tp": [1, 4]},
            "objective": objective,
        },
        "s.yml",
    )


def outcomes(of: Study) -> list[Outcome]:
    found = []
    for point in of.points():
        done = run_point(of.merged(point))
        found.append(Outcome(str(point), point, done["status"], done["metrics"]))
    return found


@pytest.mark.parametrize("objective", ["step_ms", "exposed_ms"])
def test_steps_of_unequal_batches_are_told(objective: str) -> None:
    """Two micro-batches of one sequence of 512 tokens for each of 8 or 2 replicas."""
    made = study({"micro-batches": 2}, objective)
    ran = outcomes(made)
    [note] = work_note(made, ran)
    assert note == (
        f"steps of the designs do not do the same: 2,048 to 8,192 tokens, so that {objective} does not tell which design "
        "is faster; rank by tokens_per_s, or give all of them one workload.global-batch"
    )
    assert note in result_notes(made, ran, ran)
    assert work_note(made, ran[:1]) == []
    assert work_note(study({"micro-batches": 2}, "tokens_per_s"), ran) == []


def test_steps_of_one_batch_are_compared_as_they_are() -> None:
    made = study({"global-batch": 16})
    assert work_note(made, outcomes(made)) == []


def test_samples_count_where_tokens_are_not_known() -> None:
    """Two samples in 100 ms, three in 150: 20 a second each, which no ranking by the step shows."""
    ran = [
        Outcome("a", {}, "ok", {"step_ms": 100.0, "samples_per_s": 20.0}),
        Outcome("b", {}, "ok", {"step_ms": 150.0, "samples_per_s": 20.0}),
    ]
    [note] = work_note(study({}), ran)
    assert ": 2 to 3 samples, so that" in note
    assert "rank by samples_per_s" in note
    unknown = [Outcome("a", {}, "ok", {"step_ms": 100.0}), Outcome("b", {}, "ok", {"step_ms": 150.0})]
    assert work_note(study({}), unknown) == []
