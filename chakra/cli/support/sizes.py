"""Sizes on the command line: bytes, or a number with a unit."""

import re
from fractions import Fraction
from typing import TYPE_CHECKING

import rich_click as click

from chakra.errors import UsageError
from chakra.io.digits import exact_number

if TYPE_CHECKING:
    _IntBase = click.ParamType[int]
else:
    _IntBase = click.ParamType  # no subscript before click 8.2


def parse_size(text: str) -> int:
    """Bytes from a number with an optional unit (kB, MB, GB of 10^3; KiB, MiB, GiB of 2^10; K, M, G are 2^10
    too).

    >>> parse_size("1MiB"), parse_size("64 kB"), parse_size("12")
    (1048576, 64000, 12)

    Raises
    ------
    UsageError
        If the text is no size, or not a whole number of bytes.
    """
    match = re.fullmatch(
        r"\s*([0-9]{1,30}(?:\.[0-9]{1,30})?)\s*([kKMGT]?)(i?B?|)\s*", text.upper().replace("I", "i")
    )
    if match is None or (match[3] == "i") or (match[3] == "iB" and not match[2]):
        raise UsageError(f"{text!r} is not a size; write bytes (1048576) or a unit (1MiB, 64kB, 1.5GB)")
    base = 1000 if match[3] == "B" and match[2] else 1024
    value = Fraction(exact_number(match[1])) * base ** (
        "kMGT".index(match[2].replace("K", "k")) + 1 if match[2] else 0
    )
    if value.denominator != 1:
        raise UsageError(f"{text!r} is not a whole number of bytes")
    return int(value)


class Size(_IntBase):
    """An option that is a size: an integer, bytes."""

    name = "size"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Bytes; a default is a number already."""
        return value if isinstance(value, int) else parse_size(value)
