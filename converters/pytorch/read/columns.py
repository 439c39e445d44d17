"""Growing columns: lists per piece of a file, joined into one array at the end."""

import gc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from chakra.arrays import I64
from chakra.io.digits import signed_whole_number


@contextmanager
def collector_off() -> Iterator[None]:
    """Switch the garbage collector off: decoding makes many objects and no cycles, and its passes cost more."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class Names:
    """Texts and their codes; one table is shared by host and device trace so that names compare as
    numbers.
    """

    __slots__ = ("codes", "texts")

    def __init__(self) -> None:
        self.codes: dict[str, int] = {}
        self.texts: list[str] = []

    def code(self, text: str) -> int:
        """Code of ``text``; a new one when it was not seen before."""
        code = self.codes.get(text)
        if code is None:
            code = len(self.texts)
            self.codes[text] = code
            self.texts.append(text)
        return code

    def encode(self, texts: Iterable[str]) -> I64:
        """Codes of many texts."""
        codes = self.codes
        out = []
        for text in texts:
            code = codes.get(text)
            out.append(self.code(text) if code is None else code)
        return np.array(out, np.int64)


class Growing:
    """Columns of int64 that grow by pieces."""

    __slots__ = ("_parts", "names")

    def __init__(self, *names: str) -> None:
        self.names = names
        self._parts: dict[str, list[I64]] = {name: [] for name in names}

    def add(self, **columns: I64) -> None:
        """Append one piece; every column has the same length."""
        for name in self.names:
            self._parts[name].append(columns[name])

    def joined(self) -> dict[str, I64]:
        """All pieces of all columns, joined."""
        empty = np.zeros(0, np.int64)
        out = {}
        for name in self.names:
            out[name] = np.concatenate(self._parts[name]) if self._parts[name] else empty
            self._parts[name] = []
        return out


def integers(values: Sequence[object], default: int) -> I64:
    """Column of integers out of decoded JSON values; what is no integer becomes ``default``."""
    try:
        column = np.array([default if v is None else v for v in values], np.int64)
    except (TypeError, ValueError, OverflowError):
        column = None
    if column is None or column.ndim != 1:  # lists of equal length make a matrix
        return np.array([to_integer(v, default) for v in values], np.int64)
    return column


def to_integer(value: Any, default: int) -> int:
    """``value`` as an int64 (unsigned 64-bit numbers keep their bits); ``default`` when it is not a
    number.
    """
    try:
        number = signed_whole_number(value.strip()) if isinstance(value, str) else int(value)
    except (TypeError, ValueError, OverflowError):
        return default
    if number >= 1 << 63:
        number -= 1 << 64
    return number if -(1 << 63) <= number < 1 << 63 else default
