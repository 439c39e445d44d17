"""Answers about accelerators of which nobody measured a matrix product: the surfaces of one that was, at other peaks.

Every row is predicted twice: with the operator times of its own machine, and with those of another (``base``) at the
peaks, memory bandwidth and compute units of the machine's data sheet (:func:`chakra.accuracy.machines.surfaces_at`). What
the second is off by is what to expect of a generation ahead of the measurements. Collectives are always the machine's.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from chakra.accuracy.cases import Case, Quantity
from chakra.accuracy.predictions import Prediction, predict
from chakra.arguments import checked
from chakra.errors import UsageError
from chakra.replay.compute import compute_parameters, names_with_operator_times


@dataclass(frozen=True, slots=True)
class AheadScore:
    """Errors of the rows of a family on one machine, with the surfaces of another and with its own.

    Attributes
    ----------
    family, machine
        Family of the scoreboard, and preset.
    rows
        Rows predicted both ways.
    mean, signed
        Mean of the absolute and of the signed errors with the other machine's surfaces, relative to the measured value.
    own_mean, own_signed
        The same with the machine's own operator times.
    """

    family: str
    machine: str
    rows: int
    mean: float
    signed: float
    own_mean: float
    own_signed: float


@checked
def ahead_cases(cases: Iterable[Case], base: str) -> list[Case]:
    """Cases that say something about a base: step times on other machines, of rows that nothing was tuned on.

    Parameters
    ----------
    cases
        From `chakra.accuracy.read_case`.
    base
        Preset whose surfaces are taken.

    Raises
    ------
    UsageError
        No operator times of the base.
    """
    compute_parameters(base)
    known = names_with_operator_times()
    return [
        case
        for case in cases
        if case.quantity is Quantity.STEP
        and not case.row.tuned
        and case.machine.preset in known
        and case.machine.preset != base
    ]


@checked
def ahead_scores(own: Iterable[Prediction], other: Iterable[Prediction]) -> list[AheadScore]:
    """Scores by family and machine, in the order of their first rows.

    Parameters
    ----------
    own, other
        Predictions of the same cases in the same order: with their machines' operator times, and with a base's.

    Raises
    ------
    UsageError
        Predictions of different cases.
    """
    groups: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for one, two in zip(own, other, strict=True):
        if replace(one.case, machine=two.case.machine) != two.case:
            raise UsageError("the predictions to compare are not of the same cases")
        if one.predicted is not None and two.predicted is not None:
            key = one.case.family, one.case.machine.preset
            groups.setdefault(key, []).append((one.error, two.error))
    return [_score(family, machine, pairs) for (family, machine), pairs in groups.items()]


def _score(family: str, machine: str, pairs: list[tuple[float, float]]) -> AheadScore:
    own, other = np.array(pairs, np.float64).T
    return AheadScore(
        family, machine, len(pairs), float(np.abs(other).mean()), float(other.mean()), float(np.abs(own).mean()),
        float(own.mean()),
    )  # fmt: skip


@checked
def with_surfaces(case: Case, base: str) -> Case:
    """A case whose machine takes the surfaces of another at its own peaks.

    Parameters
    ----------
    case
        The case.
    base
        Preset whose surfaces are taken.
    """
    return replace(case, machine=replace(case.machine, surfaces=base))


@checked
def ahead(cases: Iterable[Case], base: str) -> list[AheadScore]:
    """Predict cases both ways and compare.

    Parameters
    ----------
    cases
        From `chakra.accuracy.read_case`.
    base
        Preset whose surfaces are taken.

    Raises
    ------
    UsageError
        No operator times of the base.
    """
    chosen = ahead_cases(cases, base)
    return ahead_scores(predict(chosen), predict(with_surfaces(case, base) for case in chosen))
