"""Exact integers of nanoseconds out of decimal microseconds.

A double holds 1.7e15 microseconds only to a quarter of a microsecond, so time stamps are parsed from their
digits.
"""

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

import numpy as np

from chakra.arrays import I64
from chakra.io.digits import exact_number

#: Marks a time stamp that is no number.
BAD_TIME = -(1 << 62)


def nanoseconds(texts: Sequence[bytes]) -> I64:
    """Nanoseconds of time stamps in microseconds, given as the bytes of JSON numbers.

    Digits past the third decimal are rounded (half up). ``BAD_TIME`` where the text is no number.
    """
    if not texts:
        return np.zeros(0, np.int64)
    packed = np.array(texts, dtype=np.bytes_)
    width = packed.dtype.itemsize
    matrix = packed.view(np.uint8).reshape(len(texts), width)
    total = np.zeros(len(texts), np.int64)
    decimals = np.zeros(len(texts), np.int64)
    in_fraction = np.zeros(len(texts), np.bool_)
    negative = matrix[:, 0] == ord("-")
    odd = np.zeros(len(texts), np.bool_)
    if width > 20:
        odd |= matrix[:, 20:].any(axis=1)
    for column in range(min(width, 20)):
        byte = matrix[:, column]
        digit = (byte >= 48) & (byte <= 57)
        dot = byte == ord(".")
        odd |= ~(digit | dot | (byte == 0)) if column else ~(digit | negative)
        take = digit & ~(in_fraction & (decimals >= 3))
        total = np.where(take, total * 10 + (byte.astype(np.int64) - 48), total)
        extra = digit & in_fraction & (decimals == 3)
        total += extra & (byte >= 53)
        decimals += digit & in_fraction
        in_fraction |= dot
    scale = np.array([1000, 100, 10, 1], np.int64)[np.minimum(decimals, 3)]
    out = total * scale
    out[negative] *= -1
    for i in np.flatnonzero(odd).tolist():
        out[i] = _slow(texts[i])
    return out


def _slow(text: bytes) -> int:
    try:
        value = exact_number(text.strip(b'" \t').decode("ascii", "replace"))
        if abs(value) > Decimal(1 << 60):
            return BAD_TIME
        return int((value * 1000).to_integral_value())
    except (ValueError, InvalidOperation):
        return BAD_TIME
