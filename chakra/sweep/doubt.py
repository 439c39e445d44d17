"""Designs that predictions do not tell from the best one, and what that rests on.

Errors that two designs share cancel when they are compared, so that the interval of the ratio of their steps counts
(`chakra.accuracy.ratio_of`), not that of either step: where it holds 1, either may be the faster one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from chakra.accuracy.interval import SHARE, Interval, NothingNear, interval_of
from chakra.accuracy.ratio import RatioInterval, Unlike, ratio_of
from chakra.io.readable import beside_prediction, counted, counted_text, figure_text, verb
from chakra.sweep.metrics import METRICS, OF_TIME
from chakra.sweep.store import Outcome
from chakra.sweep.study import Study

#: parameters that a `Job` holds, or that make a batch larger; of the others there are no pairs of measured rows
_OF_JOB = frozenset(
    f"workload.{name}"
    for name in ("npus", "dp", "tp", "cp", "ep", "pp", "micro-batch", "micro-batches", "global-batch")
)


@dataclass(frozen=True, slots=True)
class Doubt:
    """What is known of the best design's step, and which others may be as good.

    Attributes
    ----------
    interval
        The interval of its step as factors of it, or why it has none; None where none was asked for.
    near
        Designs that are not told from it, best first.
    unknown
        Number of designs that cannot be compared, as nothing measured is near them.
    rests_on
        Intervals of ratios that decided, without those that are there twice: that of the least difference first.
    """

    interval: Interval | NothingNear | None
    near: tuple[Outcome, ...]
    unknown: int
    rests_on: tuple[RatioInterval, ...]


def doubt_of(study: Study, best: Sequence[Outcome]) -> Doubt:
    """Which designs predictions do not tell from the best one.

    Only an objective that follows from the step's time says so: there is no interval of memory or of NPUs.

    Parameters
    ----------
    study
        The study.
    best
        Good points, best first.
    """
    first = best[0] if best else None
    if first is None or first.job is None:
        reason = first.no_job if first is not None else ""
        return Doubt(NothingNear(reason) if reason else None, (), 0, ())
    interval = interval_of(first.job)
    if isinstance(interval, NothingNear) or study.objective not in OF_TIME:
        return Doubt(interval, (), 0, ())
    near: list[Outcome] = []
    used: dict[Unlike | None, RatioInterval] = {}
    unknown = 0
    for outcome in best[1:]:
        ratio = (
            None
            if outcome.job is None
            else ratio_of(first.job, outcome.job, otherwise=_otherwise(first, outcome))
        )
        if not isinstance(ratio, RatioInterval):
            unknown += 1
            continue
        # of unlike machines each pair has its own
        used.setdefault(ratio.unlike, ratio)
        if not ratio.tells(_times_worse(study.objective, first, outcome)):
            near.append(outcome)
    order = [*Unlike, None]
    return Doubt(interval, tuple(near), unknown, tuple(used[kind] for kind in order if kind in used))


def doubt_notes(doubt: Doubt, best: Sequence[Outcome]) -> list[str]:
    """What the interval of the best design's step is, and which designs are not told from it, and why; for people.

    Nothing where it has no interval, as of all that is no step of a measured framework.

    Parameters
    ----------
    doubt
        From `doubt_of`.
    best
        Good points, best first.
    """
    if not isinstance(doubt.interval, Interval):
        return []
    lines = [f"the best design's step has {interval_words(doubt.interval, best[0])}"]
    if doubt.rests_on:
        lines.append(f"{near_words(len(doubt.near))}. {rule_words(doubt)}")
    return [*lines, *unknown_note(doubt)]


def unknown_note(doubt: Doubt) -> list[str]:
    """How many designs cannot be compared with the best one; for people. Nothing where all can.

    Parameters
    ----------
    doubt
        From `doubt_of`.
    """
    if not doubt.unknown:
        return []
    has = verb(doubt.unknown, "has", "have")
    return [
        f"{counted(doubt.unknown, 'design')} {has} no interval, so that nothing tells whether it is worse"
    ]


def interval_words(interval: Interval, outcome: Outcome) -> str:
    """Within which times a design's step would be measured, and on which rows that rests.

    Parameters
    ----------
    interval
        The interval of its step, as factors of it.
    outcome
        The design.
    """
    step = outcome.metrics["step_ms"]
    ends = f"{figure_text(interval.low * step)} to {figure_text(interval.high * step)} ms"
    grounds = (*interval.differs, beside_prediction(interval.low, interval.high, 1))
    rows = "; ".join(
        [f"{interval.family}, {counted_text(interval.rows, 'measured row')}", *filter(None, grounds)]
    )
    return f"a {100 * SHARE:g} % interval of {ends} ({rows})"


def near_words(count: int) -> str:
    """How many designs are not told from the best one."""
    if not count:
        return "every other design is told from the best one"
    others = "1 other design" if count == 1 else f"{counted_text(count, 'other design')}"
    return f"{others} cannot be told from the best one"


def rule_words(doubt: Doubt) -> str:
    """From which ratio on a design is told from the best one, by what it differs in, and what that rests on."""
    parts = [
        f"{ratio.differing} {'by ' if ratio.unlike is None else f'from {1 / ratio.low:.2f}x on, by '}{ratio.basis}"
        for ratio in doubt.rests_on
    ]
    return f"What differs, and from which ratio on designs are told apart with {100 * SHARE:g} %: {'; '.join(parts)}"


def _times_worse(objective: str, best: Outcome, other: Outcome) -> float:
    """The ratio of a design's time to that of the best one, by an objective that follows from it."""
    ahead, behind = best.metrics[objective], other.metrics[objective]
    return ahead / behind if METRICS[objective] else behind / ahead


def _otherwise(first: Outcome, second: Outcome) -> bool:
    """Whether two designs differ in a parameter of which there are no pairs of measured rows."""
    names = {*first.point, *second.point}
    return any(
        first.point.get(name) != second.point.get(name)
        for name in names
        if name.replace("_", "-") not in _OF_JOB
    )
