"""How far predicted training times are from measured ones: rows, what is made of them, scores, and intervals.

A row of a table of measured steps names hardware, model, layout and framework; :func:`read_case` makes a generated
workload on a preset of it, by one rule for all rows, or says why it cannot. :func:`predict` replays cases, and
:func:`scores` says how far they are off.
"""

from chakra.accuracy.cases import Case, Quantity, Unread, read_case
from chakra.accuracy.machines import Machine
from chakra.accuracy.predict import Prediction, predict, predict_case
from chakra.accuracy.score import FamilyScore, scores
from chakra.accuracy.table import Measured, measured_rows, read_table

__all__ = [
    "Case",
    "FamilyScore",
    "Machine",
    "Measured",
    "Prediction",
    "Quantity",
    "Unread",
    "measured_rows",
    "predict",
    "predict_case",
    "read_case",
    "read_table",
    "scores",
]
