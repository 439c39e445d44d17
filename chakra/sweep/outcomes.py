"""Outcomes of points: what is cached is taken, the rest is run and recorded."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from chakra.sweep.executors import Runner
from chakra.sweep.expressions import expression
from chakra.sweep.metrics import METRICS
from chakra.sweep.point import point_key, run_point
from chakra.sweep.space import Point
from chakra.sweep.store import Outcome, Store
from chakra.sweep.study import Study

#: seconds from which on a point's result document is kept for its page, so that it is not run twice
SLOW_S = 2.0

#: called with (points done, points in all, the last outcome)
Progress = Callable[[int, int, Outcome], None]


def run_points(
    study: Study,
    store: Store,
    run: Runner,
    points: Sequence[Point],
    *,
    retry_failed: bool = False,
    documents: bool = False,
) -> Iterator[tuple[int, Outcome]]:
    """Outcomes of these points with their index, cached ones first; points with equal inputs are run once.

    With `documents`, the results of slow ones are kept in the store.
    """
    asked = {"document_from_s": SLOW_S} if documents else {}
    waiting: dict[str, list[int]] = {}
    tasks: list[dict[str, Any]] = []
    keys: list[str] = []
    for index, point in enumerate(points):
        merged = study.merged(point)
        key = point_key(merged, needs_memory=study.needs_memory)
        found = store.find(key, point)
        if found is not None and not (retry_failed and found.status == "failed"):
            yield index, constrained(study, found)
            continue
        if key not in waiting:
            tasks.append({"merged": merged, "needs_memory": study.needs_memory, **asked})
            keys.append(key)
        waiting.setdefault(key, []).append(index)
    for task, result in run(run_point, tasks):
        for index in waiting[keys[task]]:
            outcome = store.put(keys[task], points[index], tasks[task]["merged"], result)
            yield index, constrained(study, outcome)


def constrained(study: Study, outcome: Outcome) -> Outcome:
    """The outcome, infeasible if a constraint on results is not met or asks for a figure that the point does not have."""
    if not outcome.ok:
        return outcome
    names: Mapping[str, Any] = {**study.names(outcome.point), **outcome.metrics}
    for text in study.constraints:
        asked = expression(text, f"{study.source}: constraints")
        if not asked.names & METRICS.keys():
            continue
        lacking = sorted(asked.names - names.keys())
        reason = f"constraint not met: {text}"
        if lacking:
            reason = f"constraint cannot be met: {text}: the point has no {lacking[0]}"
        if lacking or not asked.value(names):
            return Outcome(
                outcome.key, outcome.point, "infeasible", outcome.metrics, reason, outcome.cached
            )  # fmt: skip
    return outcome
