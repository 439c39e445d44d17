"""Names for the array types used in annotations, so that signatures say what the numbers are."""

from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]
I8 = npt.NDArray[np.int8]
U8 = npt.NDArray[np.uint8]
U64 = npt.NDArray[np.uint64]
F64 = npt.NDArray[np.float64]
Bool = npt.NDArray[np.bool_]
AnyArray = npt.NDArray[Any]

_Value = TypeVar("_Value", bound=np.generic)
#: a whole number in a kernel: Python's own where it runs as plain Python
Whole: TypeAlias = int | np.int64
#: a comparison of two of them
Truth: TypeAlias = bool | np.bool_


def bounds(count: npt.ArrayLike) -> I64:
    """Where each of several lists begins that lie one behind the other, and where the last ends, from their lengths."""
    lengths = np.asarray(count)
    out = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=out[1:])
    return out


def ranges(begin: I64, count: I64) -> I64:
    """begin, begin + 1, ... of each, so many, one after the other."""
    ends = np.cumsum(count)
    out: I64 = np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(begin - (ends - count), count)
    return out


def distinct(values: npt.NDArray[_Value]) -> npt.NDArray[_Value]:
    """Values that occur, ascending.

    As `numpy.unique`, whose hash table takes ten times as long as sorting where most values differ, and whose time grows
    faster than their number.
    """
    ordered = np.sort(values, axis=None)
    return ordered[changes(ordered)]


def changes(values: npt.NDArray[_Value]) -> Bool:
    """Which values differ from the one before; the first one does."""
    new = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=new[1:])
    return new


class Rows(dict[int, I64]):
    """Places of each key that occurs; those of any other are none."""

    def __missing__(self, key: int) -> I64:
        """No places."""
        return np.zeros(0, np.int64)


def rows_by(key: I64, among: I64 | None = None) -> Rows:
    """Places of each key, ascending, by the keys that occur, ascending: in one pass, however many keys there are.

    Parameters
    ----------
    key
        Key of each place.
    among
        The places that count, in the order in which those of a key are given; default: all.

    Examples
    --------
    >>> {key: rows.tolist() for key, rows in rows_by(np.array([7, 3, 7])).items()}
    {3: [1], 7: [0, 2]}
    >>> {key: rows.tolist() for key, rows in rows_by(np.array([7, 3, 7]), np.array([2, 1])).items()}
    {3: [1], 7: [2]}
    """
    order = np.argsort(key if among is None else key[among], kind="stable")
    order = order if among is None else among[order]
    ordered = key[order]
    first = np.flatnonzero(changes(ordered))
    return (
        Rows(zip(ordered[first].tolist(), np.split(order, first[1:]), strict=True)) if len(order) else Rows()
    )


def followed(to: I64) -> I64:
    """Where the way from each place ends, by the next place of each: itself where a way ends, -1 where there is none.

    In a number of passes that grows with the logarithm of the longest way.

    Raises
    ------
    ValueError
        If a way comes back to itself, other than to its end.

    Examples
    --------
    >>> followed(np.array([0, 0, 1, 2, -1, 4])).tolist()
    [0, 0, 0, 0, -1, -1]
    """
    ends = np.append(to, -1)
    for _ in range(len(ends).bit_length() + 1):
        further = ends[ends]
        if np.array_equal(further, ends):
            return ends[:-1]
        ends = further
    raise ValueError("a way never ends")


class Numbers(Protocol):
    """What a kernel reads and writes by index: an array of whole numbers or, in plain Python, a list."""

    def __len__(self) -> int:
        """How many there are."""

    def __getitem__(self, at: int, /) -> int:
        """One of them."""

    def __setitem__(self, at: int, value: int, /) -> None:
        """Change one."""


def components(count: int, a: I64, b: I64) -> I64:
    """The lowest of the numbers below `count` that each one is joined with, by pairs of joined ones, (n,) each."""
    lowest = np.arange(count)
    while True:
        found = lowest.copy()
        pair = np.minimum(lowest[a], lowest[b])
        np.minimum.at(found, a, pair)
        np.minimum.at(found, b, pair)
        found = found[found]
        if (found == lowest).all():
            return lowest
        lowest = found
