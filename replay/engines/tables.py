"""Small helpers for building the tables of a kernel."""

from typing import Any

import numpy as np

from chakra.arrays import I64


def concat(parts: list[Any], dtype: Any = np.int64) -> Any:
    """Concatenate arrays of one type; an empty list gives one zero, so that kernels always see an array."""
    return np.ascontiguousarray(np.concatenate(parts), dtype=dtype) if parts else np.zeros(1, dtype)


def ints(values: Any) -> I64:
    """Values as an array of at least one cell."""
    return np.asarray(values if len(values) else [0], np.int64)


def starts(lengths: list[int]) -> I64:
    """Running starts of consecutive stretches, with the end of the last."""
    out = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(np.asarray(lengths, np.int64), out=out[1:])
    return out
