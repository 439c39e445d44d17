"""Readers of what a parameter of a study may take: listed values, or the ends, step and count of a range."""

import math
from dataclasses import dataclass
from typing import TypeAlias

from chakra.io.shown import describe
from chakra.replay.config.key import Schema, UnfitError

#: a grid with more points is surely a mistake
MAX_POINTS = 1_000_000

#: a value of a parameter, as YAML gives it
Value: TypeAlias = "bool | int | float | str | list[object]"


def is_number(value: object) -> bool:
    """Whether a value of a file is a finite number that arithmetic can hold."""
    return (type(value) is int and abs(value) < 1 << 63) or (type(value) is float and math.isfinite(value))


@dataclass(frozen=True, slots=True)
class Listed:
    """Listed values."""

    allowed: str = "list"
    missing: str = ""

    def read(self, value: object, compat: str | None = None) -> tuple[Value, ...]:
        """The values."""
        if not isinstance(value, list) or not value:
            raise UnfitError("must be a non-empty list", "")
        for item in value:
            if not isinstance(item, bool | int | float | str | list) or item != item:
                raise UnfitError(f": {describe(item)} is not a plain value", "")
        seen: set[object] = set()
        for item in value:
            if (same := _comparable(item)) in seen:
                raise UnfitError(f": {describe(item)} is listed twice", "")
            seen.add(same)
        return tuple(value)

    def schema(self) -> Schema:
        """A list of plain values and lists."""
        item = {"type": ["boolean", "number", "string", "array"]}
        return {"type": "array", "items": item, "minItems": 1, "uniqueItems": True}


def _comparable(value: object) -> object:
    """A value that equals those of equal meaning alone: 1 and 1.0 are the same number, true and 1 are not."""
    if isinstance(value, list):
        return tuple(_comparable(item) for item in value)
    if isinstance(value, dict):
        return ("map", *((key, _comparable(item)) for key, item in value.items()))
    return (type(value).__name__, value) if isinstance(value, bool) else value


@dataclass(frozen=True, slots=True)
class Bounds:
    """Both ends of a range; whole numbers stay whole."""

    allowed: str = "[low, high], low <= high"
    missing: str = ""

    def read(self, value: object, compat: str | None = None) -> tuple[float, float]:
        """Low and high."""
        if (
            isinstance(value, list)
            and len(value) == 2
            and all(map(is_number, value))
            and value[0] <= value[1]
        ):
            return value[0], value[1]
        raise UnfitError("must be [low, high] with low <= high", str(value)[:60])

    def schema(self) -> Schema:
        """Two numbers; their order no schema says."""
        return {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}


@dataclass(frozen=True, slots=True)
class Step:
    """Distance of the values of a range; a whole number stays whole."""

    allowed: str = "number above 0"
    missing: str = ""

    def read(self, value: object, compat: str | None = None) -> float:
        """The distance."""
        if isinstance(value, (int, float)) and is_number(value) and value > 0:
            return value
        raise UnfitError("must be a number above 0")

    def schema(self) -> Schema:
        """A number above 0."""
        return {"type": "number", "exclusiveMinimum": 0}
