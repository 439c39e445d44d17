"""The tables that a linked JSON of ours carries under ``chakra_link``, checked: anybody may have edited them."""

import numpy as np

from chakra.arrays import I64
from chakra.errors import ConversionError
from chakra.io.readable import counted

#: microseconds that int64 nanoseconds can hold with room for sums
MAX_MICROS = 2.0**62 / 1000


def integer_table(value: object, key: str, columns: int, source: str) -> list[I64]:
    """``columns`` lists of whole numbers of equal length, as arrays.

    Raises
    ------
    ConversionError
        Naming file and key.
    """
    where = f"{source}: chakra_link: '{key}'"
    if not isinstance(value, list) or len(value) != columns or not all(isinstance(c, list) for c in value):
        raise ConversionError(f"{where} must be {counted(columns, 'list')}")
    if len({len(column) for column in value}) > 1:
        raise ConversionError(f"{where} has lists of unequal length: {[len(column) for column in value]}")
    for column in value:
        for item in column:
            if type(item) is not int or not -(2**62) < item < 2**62:
                raise ConversionError(f"{where} must hold whole numbers of 62 bits, found {str(item)[:40]!r}")
    return [np.array(column, np.int64) for column in value]


def texts(value: object, key: str, source: str) -> list[str]:
    """A list of texts.

    Raises
    ------
    ConversionError
        Naming file and key.
    """
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ConversionError(f"{source}: chakra_link: '{key}' must be a list of texts")
    return value


def thread_pairs(value: object, source: str) -> list[tuple[str, str]]:
    """The process and thread numbers of all threads.

    Raises
    ------
    ConversionError
        If it is no list of pairs.
    """
    if not isinstance(value, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in value):
        raise ConversionError(f"{source}: chakra_link: 'threads' must be a list of [process, thread] pairs")
    return [(str(a), str(b)) for a, b in value]


def check_range(column: I64, size: int, what: str, source: str) -> None:
    """Every number of ``column`` is a place in a list of ``size``.

    Raises
    ------
    ConversionError
        Naming file and the first number that is none.
    """
    outside = column[(column < 0) | (column >= size)]
    if len(outside):
        raise ConversionError(f"{source}: {what} {outside[0]} is not one of 0 to {size - 1}")


def nanoseconds(values: list[object], source: str) -> I64:
    """Nanoseconds of microseconds given as JSON numbers; exact to the third decimal below 2^43 microseconds.

    Raises
    ------
    ConversionError
        A time beyond int64 nanoseconds.
    """
    numbers = np.array(
        [v if isinstance(v, (int, float)) and not isinstance(v, bool) else 0 for v in values], np.float64
    )
    wrong = ~(np.abs(numbers) < MAX_MICROS)
    if wrong.any():
        raise ConversionError(f"{source}: a time of {numbers[wrong][0]:g} us is out of range")
    whole = np.floor(numbers)
    return (whole.astype(np.int64) * 1000) + np.rint((numbers - whole) * 1000).astype(np.int64)
