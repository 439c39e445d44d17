"""Designs that are equally good: no prediction tells figures apart that differ by less than steps of one job do."""

from collections.abc import Sequence

from chakra.io.readable import counted
from chakra.sweep.metrics import METRICS
from chakra.sweep.store import Outcome
from chakra.sweep.study import Study

#: share by which figures of equally good designs differ at most: far below any error of a prediction, and below what
#: a measured step varies by
EQUAL = 1e-3
#: what decides among equally good designs, first what counts most, and how it is said of the first of them
_THRIFT = (("cost_per_hour", "costs least"), ("npus", "has the fewest NPUs"))


def by_merit(study: Study, outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Outcomes with the objective, best first; of those that are as good as the best, the cheapest first.

    Parameters
    ----------
    study
        The study.
    outcomes
        Outcomes of its points that have the objective; equal ones keep their order.
    """
    best = sorted(outcomes, key=lambda o: o.metrics[study.objective], reverse=METRICS[study.objective])
    equal = tied(study, best)
    return [*sorted(equal, key=_thrift), *best[len(equal) :]]


def tied(study: Study, best: Sequence[Outcome]) -> list[Outcome]:
    """Designs as good as the best one, which is among them, in their order; none without designs.

    Parameters
    ----------
    study
        The study.
    best
        Good points, best first.
    """
    if not best:
        return []
    values = [outcome.metrics[study.objective] for outcome in best]
    top = max(values) if METRICS[study.objective] else min(values)
    return [o for o, value in zip(best, values, strict=True) if abs(value - top) <= EQUAL * abs(top)]


def thrift(designs: Sequence[Outcome]) -> str:
    """What the first of some designs is better in than all others, in words; empty: they cost the same."""
    for name, words in _THRIFT:
        values = [outcome.metrics.get(name) for outcome in designs]
        known = [value for value in values if value is not None]
        if len(known) == len(values) and len(set(known)) > 1:
            return words if known[0] < min(known[1:]) else ""
    return ""


def tie_note(study: Study, best: Sequence[Outcome]) -> list[str]:
    """Which designs are as good as the best one, for people; nothing where it is alone.

    Parameters
    ----------
    study
        The study.
    best
        Good points, best first.
    """
    equal = tied(study, best)
    if len(equal) < 2:
        return []
    words = thrift(equal)
    apart = f"{100 * EQUAL:g} % or less apart in {study.objective}"
    first = f"; the first {words}" if words else ""
    return [f"{counted(len(equal), 'design')} are equally good, {apart}: ranks 1 to {len(equal)}{first}"]


def _thrift(outcome: Outcome) -> tuple[float, ...]:
    return tuple(outcome.metrics.get(name, float("inf")) for name, _ in _THRIFT)
