"""What each value of each parameter costs: the best design that has it against the best of all, and like with like."""

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeGuard

from chakra.arguments import checked
from chakra.io.readable import counted_text, figure_text
from chakra.sweep.metrics import METRICS
from chakra.sweep.run import ranked
from chakra.sweep.store import Outcome
from chakra.sweep.study import Study

#: more different numbers than these are put into ranges of as many designs each
MOST_VALUES = 12
RANGES = 6


@dataclass(frozen=True, slots=True)
class ValueCost:
    """A value of a parameter.

    Attributes
    ----------
    parameter
        Name of the parameter.
    value
        The value, or the range ``low to high`` in words.
    points
        Designs with it that gave a result.
    best
        Objective of the best of them; nan without one.
    loss
        By which share that is worse than the best objective of all designs: 0 for a value of the design that has it. nan
        where the best objective is 0 or less, or no design gave a result.
    alike_loss
        The same against the best of designs that are equal in all other parameters, median over those of which at least
        two gave a result; nan without such.
    """

    parameter: str
    value: object
    points: int
    best: float
    loss: float
    alike_loss: float

    def to_dict(self) -> dict[str, object]:
        """For JSON; numbers that are not there are null."""
        numbers = {name: getattr(self, name) for name in ("best", "loss", "alike_loss")}
        return {
            "parameter": self.parameter,
            "value": self.value,
            "points": self.points,
            **{name: number if math.isfinite(number) else None for name, number in numbers.items()},
        }


@checked
def sensitivity(study: Study, outcomes: Sequence[Outcome]) -> list[ValueCost]:
    """Costs of the values of all parameters that have more than one, in the order of the study.

    Parameters
    ----------
    study
        The study.
    outcomes
        Outcomes of its points.
    """
    good = ranked(study, outcomes)
    names = [parameter.name for parameter in study.parameters]
    return [cost for name in names for cost in _costs(study, name, names, outcomes, good)]


@checked
def without_effect(study: Study, outcomes: Sequence[Outcome]) -> list[str]:
    """Parameters that change no result, among designs that differ in nothing else; for people. Nothing without such.

    Parameters
    ----------
    study
        The study.
    outcomes
        Outcomes of its points.
    """
    good = [outcome for outcome in outcomes if outcome.ok]
    names = [parameter.name for parameter in study.parameters]
    found = []
    for name in names:
        groups = [alike for alike in _alike(name, names, good).values() if len(alike) > 1]
        if not groups or any(one.metrics != alike[0].metrics for alike in groups for one in alike):
            continue
        pairs = counted_text(sum(math.comb(len(alike), 2) for alike in groups), "pair")
        # the rule that holds in all of them, where there is one
        reasons = {one.idle.get(name, "") for alike in groups for one in alike}
        reason = reasons.pop() if len(reasons) == 1 else ""
        found.append(f"{name} changed nothing in any of {pairs} of designs{reason and ': '}{reason}")
    return found


def _costs(
    study: Study, name: str, names: Sequence[str], outcomes: Sequence[Outcome], good: Sequence[Outcome]
) -> Iterator[ValueCost]:
    """Costs of the values of one parameter; `good` holds the ranked outcomes, best first."""
    binned = _ranges([outcome.point.get(name) for outcome in outcomes])
    scores: dict[str, tuple[object, list[float]]] = {}
    for outcome in outcomes:
        value = binned(outcome.point.get(name))
        scores.setdefault(repr(value), (value, []))
    if len(scores) < 2:
        return
    # of equally good designs the first is the cheapest, not that with the best objective
    pick = max if METRICS[study.objective] else min
    ratios: dict[str, list[float]] = {key: [] for key in scores}
    for alike in _alike(name, names, good).values():
        best = pick(outcome.metrics[study.objective] for outcome in alike)
        for outcome in alike:
            key, score = repr(binned(outcome.point.get(name))), outcome.metrics[study.objective]
            scores[key][1].append(score)
            loss = _loss(score, best)
            if len(alike) > 1 and math.isfinite(loss):
                ratios[key].append(loss)
    best = pick((outcome.metrics[study.objective] for outcome in good), default=math.nan)
    for key, (value, own) in scores.items():
        most = pick(own, default=math.nan)
        median = statistics.median(ratios[key]) if ratios[key] else math.nan
        yield ValueCost(name, value, len(own), most, _loss(most, best), median)


def _alike(name: str, names: Sequence[str], good: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    """Designs by all parameters but one, each in the order of `good`."""
    found: dict[str, list[Outcome]] = {}
    for outcome in good:
        rest = repr([outcome.point.get(other) for other in names if other != name])
        found.setdefault(rest, []).append(outcome)
    return found


def _loss(value: float, best: float) -> float:
    """Share by which a value is worse than the best one, whichever way is better."""
    return abs(value / best - 1) if best > 0 else math.nan


def _ranges(values: Sequence[object]) -> Callable[[object], object]:
    """Puts a number into its range, in words, where there are too many different ones; any other value is itself."""
    numbers = sorted({float(value) for value in values if _is_number(value)})
    if len(numbers) <= MOST_VALUES:
        return lambda value: value
    cuts = [round(k * len(numbers) / RANGES) for k in range(RANGES + 1)]
    ends = [(numbers[a], numbers[b - 1]) for a, b in pairwise(cuts)]

    def within(value: object) -> object:
        if not _is_number(value):
            return value
        low, high = next(pair for pair in ends if value <= pair[1])
        return f"{figure_text(low)} to {figure_text(high)}"

    return within


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
