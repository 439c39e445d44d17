"""Rows whose source does not print the micro-batch: predicted with each that may have been, as a range.

One rule for all such rows: micro-batches of `MICRO_BATCHES` that the layout and the batch allow, everything else as it is
printed. A range says how much the missing value matters; it counts for no error.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from chakra.accuracy.cases import Case, read_case
from chakra.accuracy.predictions import Prediction, predict
from chakra.accuracy.table import Measured
from chakra.arguments import checked

#: sequences of a micro-batch that are tried
MICRO_BATCHES = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class RangePrediction:
    """What a row is predicted to take, whatever its micro-batch was.

    Attributes
    ----------
    cases
        The row with each micro-batch, in their order.
    predicted
        Seconds of a step with each.
    """

    cases: tuple[Case, ...]
    predicted: tuple[float, ...]

    @property
    def low(self) -> float:
        """The least time, s."""
        return min(self.predicted)

    @property
    def high(self) -> float:
        """The greatest time, s."""
        return max(self.predicted)


@checked
def range_cases(row: Measured, *, framework: str | None = None) -> tuple[Case, ...]:
    """A row without a micro-batch with each that fits it; none for rows that print one, or lack something else.

    Parameters
    ----------
    row
        A row.
    framework
        Name of a framework profile instead of the one that the row names.
    """
    if row.micro_batch:
        return ()
    tried = (read_case(replace(row, micro_batch=str(size)), framework=framework) for size in MICRO_BATCHES)
    return tuple(case for case in tried if isinstance(case, Case))


@checked
def predict_range(cases: Iterable[Case]) -> RangePrediction | None:
    """The range of a row; None where no prediction can be made.

    Parameters
    ----------
    cases
        From `range_cases`.
    """
    made: list[Prediction] = [one for one in predict(cases) if one.predicted is not None]
    if not made:
        return None
    return RangePrediction(
        tuple(one.case for one in made), tuple(one.predicted for one in made if one.predicted is not None)
    )
