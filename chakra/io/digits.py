"""Texts that are numbers: the one place where a text becomes one.

`int` and `float` take what people do not mean as numbers: ``1_0``, ``nan``, ``inf``, ``1e400``, spaces around, digits of
other scripts; and `str.isdigit` takes characters such as a superscript two, which `int` refuses. `tools/text_numbers.py`
makes the type checker refuse both for texts elsewhere.
"""

import math
import re
from decimal import Decimal

_SIGNED = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")


def is_whole(text: str, most: int | None = None) -> bool:
    """Whether a text is one or more of the digits 0 to 9 and nothing else.

    Parameters
    ----------
    text
        The text.
    most
        Digits at most; any number by default, of which `whole_number` takes 4,300.

    Examples
    --------
    >>> is_whole("042"), is_whole("²"), is_whole(""), is_whole("1" * 20, 19)
    (True, False, False, False)
    """
    return text.isascii() and text.isdigit() and (most is None or len(text) <= most)


def whole_number(text: str) -> int:
    """The number that the digits 0 to 9 of a text are; no sign and nothing else stands there.

    Raises
    ------
    ValueError
        Another text, or more than 4,300 digits.

    Examples
    --------
    >>> whole_number("042")
    42
    """
    if not is_whole(text):
        raise ValueError(f"{text[:40]!r} is not a whole number")
    return int(text)


def signed_whole_number(text: str) -> int:
    """As `whole_number`, with a sign in front or without.

    Raises
    ------
    ValueError
        Another text, or more than 4,300 digits.

    Examples
    --------
    >>> signed_whole_number("-7"), signed_whole_number("+7")
    (-7, 7)
    """
    if not _SIGNED.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is not a whole number")
    return int(text)


def decimal_number(text: str) -> float:
    """The number that a text of digits with a sign, a decimal point or an exponent of ten is.

    Raises
    ------
    ValueError
        Another text, such as ``nan``, or a number beyond what a float holds, such as ``1e400``.

    Examples
    --------
    >>> decimal_number("-1.5e3"), decimal_number(".5"), decimal_number("2.")
    (-1500.0, 0.5, 2.0)
    """
    value = float(text) if _DECIMAL.fullmatch(text) else math.nan
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]!r} is not a number")
    return value


def exact_number(text: str) -> Decimal:
    """As `decimal_number`, of any size and with every digit.

    Raises
    ------
    ValueError
        Another text.

    Examples
    --------
    >>> exact_number("0.10")
    Decimal('0.10')
    """
    if not _DECIMAL.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is not a number")
    return Decimal(text)
