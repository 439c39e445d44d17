"""How far predictions are from what was measured: by family, and the order of layouts of one model."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from chakra.accuracy.predictions import Prediction
from chakra.arguments import checked
from chakra.arrays import F64

#: layouts of one model and machine that an order is looked for in
LEAST_LAYOUTS = 4


@dataclass(frozen=True, slots=True)
class FamilyScore:
    """Errors of a family of rows; relative to the measured value.

    Attributes
    ----------
    family
        Its name.
    quantity
        What was measured.
    rows
        Rows predicted.
    mean, median, p90
        Mean, median and 90th percentile of the absolute errors.
    signed
        Mean of the signed errors: below 0 where predictions are too fast.
    spearman
        Mean rank correlation of predicted and measured times within the layouts of one model on one machine with one
        batch, weighted by their number; NaN where no model has enough.
    """

    family: str
    quantity: str
    rows: int
    mean: float
    median: float
    signed: float
    p90: float
    spearman: float


@checked
def scores(predictions: Iterable[Prediction]) -> list[FamilyScore]:
    """Scores of all families, in the order of their first rows.

    Parameters
    ----------
    predictions
        From `chakra.accuracy.predict`; those that failed are left out.
    """
    groups: dict[tuple[str, str], list[Prediction]] = {}
    for prediction in predictions:
        if prediction.predicted is not None:
            key = (prediction.case.family, prediction.case.quantity.value)
            groups.setdefault(key, []).append(prediction)
    return [_score(family, quantity, group) for (family, quantity), group in groups.items()]


def _score(family: str, quantity: str, group: Sequence[Prediction]) -> FamilyScore:
    errors = np.array([prediction.error for prediction in group])
    size = np.abs(errors)
    return FamilyScore(
        family, quantity, len(group), float(size.mean()), float(np.median(size)), float(errors.mean()),
        float(np.quantile(size, 0.9)), _order(group),
    )  # fmt: skip


def _order(group: Sequence[Prediction]) -> float:
    """Mean Spearman correlation within what differs in layout alone."""
    layouts: dict[tuple[object, ...], list[Prediction]] = {}
    for prediction in group:
        case = prediction.case
        key = (case.model, case.machine, case.request.seq, case.request.global_batch, case.row.precision)
        layouts.setdefault(key, []).append(prediction)
    found = [(len(alike), _spearman(alike)) for alike in layouts.values() if len(alike) >= LEAST_LAYOUTS]
    found = [(number, value) for number, value in found if np.isfinite(value)]
    if not found:
        return float("nan")
    return float(np.average([value for _, value in found], weights=[number for number, _ in found]))


def _spearman(group: Sequence[Prediction]) -> float:
    predicted = np.array([prediction.predicted for prediction in group], dtype=np.float64)
    measured = np.array([prediction.case.measured for prediction in group])
    return spearman(predicted, measured)


def spearman(first: F64, second: F64) -> float:
    """Rank correlation; equal values have the mean of their ranks. NaN where one does not vary."""
    ranks = [_ranks(values) for values in (first, second)]
    if any(np.ptp(rank) == 0 for rank in ranks):
        return float("nan")
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def _ranks(values: F64) -> F64:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks: F64 = ((ends - counts + ends - 1) / 2)[inverse.reshape(-1)]
    return ranks
