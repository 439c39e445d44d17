"""Numbers out of documents that anybody may have written."""

import numpy as np

from chakra.arrays import F64


def number(value: object, default: float = 0.0) -> float:
    """A number of the document below 2**63, else ``default`` (also for infinities and NaN)."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 2**63:
        return default
    return float(value)


def numbers(value: object) -> F64:
    """A list of numbers of the document as float64; empty if it is none."""
    if not isinstance(value, list):
        return np.zeros(0)
    return np.array([number(item) for item in value], np.float64)
