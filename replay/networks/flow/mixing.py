"""Numbers for rows, and for multisets of numbers, that are equal for equal ones and look random otherwise."""

import numpy as np

from chakra.arrays import I64, U64, AnyArray, bounds


def mix(*columns: AnyArray) -> U64:
    """A number per row that looks random, equal for equal rows: the finaliser of SplitMix64 (Steele et al., 2014)."""
    out = np.full(len(columns[0]), 0x9E3779B97F4A7C15, np.uint64)
    for column in columns:
        out = (out ^ column.astype(np.uint64)) * np.uint64(0xD1B54A32D192ED03)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            out = (out ^ (out >> np.uint64(shift))) * np.uint64(factor)
        out ^= out >> np.uint64(31)
    return out


class Lists:
    """Things by what each is of."""

    def __init__(self, of: I64, n: int) -> None:
        self.order = np.argsort(of, kind="stable")
        self.start = bounds(np.bincount(of, minlength=n))

    def sums(self, values: U64) -> U64:
        """Sum of the values of each list, modulo 2^64: a number for a multiset of numbers that look random."""
        return between(values[self.order], self.start)


def between(values: U64, start: I64) -> U64:
    """Sums of lists that lie one behind the other, modulo 2^64."""
    out = np.zeros(len(values) + 1, np.uint64)
    np.cumsum(values, out=out[1:])
    return out[start[1:]] - out[start[:-1]]
