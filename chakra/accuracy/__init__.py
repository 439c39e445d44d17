"""How far predicted training times are from measured ones: rows, what is made of them, scores, and intervals.

A row of a table of measured steps names hardware, model, layout and framework; :func:`read_case` makes a generated
workload on a preset of it, by one rule for all rows, or says why it cannot. :func:`predict` replays cases, and
:func:`scores` says how far they are off. What all shipped rows were off by is kept in a table, of which
:func:`interval_of` and :func:`replay_interval` say how far another prediction may be off, and :func:`ratio_of` how far
the ratio of two.
"""

from typing import TYPE_CHECKING

from chakra.lazy import lazy_names

if TYPE_CHECKING:
    from chakra.accuracy.cases import Case, Quantity, Unread, read_case
    from chakra.accuracy.generation_ahead import AheadScore, ahead, ahead_cases, ahead_scores, with_surfaces
    from chakra.accuracy.interval import (
        FamilyCoverage,
        Interval,
        Job,
        NothingNear,
        Residual,
        coverage,
        interval_of,
        residuals,
    )
    from chakra.accuracy.machines import Machine
    from chakra.accuracy.predictions import Prediction, predict, predict_case
    from chakra.accuracy.ranges import RangePrediction, predict_range, range_cases
    from chakra.accuracy.rates import replay_rates
    from chakra.accuracy.ratio import PairCoverage, RatioInterval, Unlike, pair_coverage, ratio_of
    from chakra.accuracy.replayed import replay_interval, replay_job
    from chakra.accuracy.score import FamilyScore, scores
    from chakra.accuracy.table import Measured, measured_rows, read_table

__all__ = [
    "AheadScore",
    "Case",
    "FamilyCoverage",
    "FamilyScore",
    "Interval",
    "Job",
    "Machine",
    "Measured",
    "NothingNear",
    "PairCoverage",
    "Prediction",
    "Quantity",
    "RangePrediction",
    "RatioInterval",
    "Residual",
    "Unlike",
    "Unread",
    "ahead",
    "ahead_cases",
    "ahead_scores",
    "coverage",
    "interval_of",
    "measured_rows",
    "pair_coverage",
    "predict",
    "predict_case",
    "predict_range",
    "range_cases",
    "ratio_of",
    "read_case",
    "read_table",
    "replay_interval",
    "replay_job",
    "replay_rates",
    "residuals",
    "scores",
    "with_surfaces",
]

# importing the package stays cheap: a replay asks modules of it for little
lazy_names(
    __name__,
    {
        "AheadScore": "chakra.accuracy.generation_ahead",
        "Case": "chakra.accuracy.cases",
        "FamilyCoverage": "chakra.accuracy.interval",
        "FamilyScore": "chakra.accuracy.score",
        "Interval": "chakra.accuracy.interval",
        "Job": "chakra.accuracy.interval",
        "Machine": "chakra.accuracy.machines",
        "Measured": "chakra.accuracy.table",
        "NothingNear": "chakra.accuracy.interval",
        "PairCoverage": "chakra.accuracy.ratio",
        "Prediction": "chakra.accuracy.predictions",
        "Quantity": "chakra.accuracy.cases",
        "RangePrediction": "chakra.accuracy.ranges",
        "RatioInterval": "chakra.accuracy.ratio",
        "Residual": "chakra.accuracy.interval",
        "Unlike": "chakra.accuracy.ratio",
        "Unread": "chakra.accuracy.cases",
        "ahead": "chakra.accuracy.generation_ahead",
        "ahead_cases": "chakra.accuracy.generation_ahead",
        "ahead_scores": "chakra.accuracy.generation_ahead",
        "coverage": "chakra.accuracy.interval",
        "interval_of": "chakra.accuracy.interval",
        "measured_rows": "chakra.accuracy.table",
        "pair_coverage": "chakra.accuracy.ratio",
        "predict": "chakra.accuracy.predictions",
        "predict_case": "chakra.accuracy.predictions",
        "predict_range": "chakra.accuracy.ranges",
        "range_cases": "chakra.accuracy.ranges",
        "ratio_of": "chakra.accuracy.ratio",
        "read_case": "chakra.accuracy.cases",
        "read_table": "chakra.accuracy.table",
        "replay_interval": "chakra.accuracy.replayed",
        "replay_job": "chakra.accuracy.replayed",
        "replay_rates": "chakra.accuracy.rates",
        "residuals": "chakra.accuracy.interval",
        "scores": "chakra.accuracy.score",
        "with_surfaces": "chakra.accuracy.generation_ahead",
    },
)
