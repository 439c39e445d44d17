"""Readers of values that many keys share: numbers, words, texts, lists; see `chakra.replay.config.key`."""

import contextlib
import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from numbers import Integral, Real
from typing import Generic, TypeVar

from chakra.io.nearest import nearest
from chakra.io.shown import describe
from chakra.replay.config.key import Key, Reader, Schema, UnfitError, object_schema

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

#: ASTRA-sim keeps integers of the system file in 32 bits
MAX_INT = 2**31 - 1
#: largest number that a double holds
MAX_NUMBER = 1.7976931348623157e308
#: largest quantity of a configuration, in any unit: what is computed of a few of them stays finite
MOST_QUANTITY = 1e90
#: largest number that C++ writes into a float of four bytes without overflow, with room for rounding
MAX_SINGLE = 3.4e38
#: slowest rate, and the step in which rates are counted
SLOWEST = 0.0001


def reads_as_head(compat: str | None) -> bool:
    """Whether values are read as ASTRA-sim HEAD reads them."""
    return compat == "astra-sim"


def finite_or_none(value: object) -> float | None:
    """The value as a float if it is a number, finite and not negative."""
    number = -1.0
    if not isinstance(value, bool) and isinstance(value, Real):
        with contextlib.suppress(OverflowError):
            number = float(value)
    return number if math.isfinite(number) and number >= 0 else None


def whole_part(value: object) -> int | None:
    """The whole part of a finite number; None for everything else."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    if isinstance(value, Integral):
        return int(value)
    number = float(value)
    return int(number) if math.isfinite(number) else None


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number; a fraction is dropped, as in ASTRA-sim, and `of` names the unit in messages."""

    least: int = 0
    most: int = MAX_INT
    of: str = ""
    missing: str = ""

    @property
    def allowed(self) -> str:
        return f"whole number, {self.least} or more"

    def read(self, value: object, compat: str | None = None) -> int:
        if isinstance(value, bool) and reads_as_head(compat):
            value = int(value)
        number = whole_part(value)
        if number is None or not isinstance(value, Real) or value < self.least or number > self.most:
            raise UnfitError(
                f"must be a whole number{' of ' + self.of if self.of else ''} from {self.least} to {self.most}"
            )
        return number

    def schema(self) -> Schema:
        return {"type": "number", "minimum": self.least, "exclusiveMaximum": self.most + 1}


@dataclass(frozen=True, slots=True)
class Count:
    """A whole number, written as one: 8.0 is none, as in ASTRA-sim's network files."""

    rule: str
    least: int = 0
    most: int = MAX_INT
    missing: str = ""

    @property
    def allowed(self) -> str:
        return f"whole number, {self.least} or more"

    def read(self, value: object, compat: str | None = None) -> int:
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise UnfitError(self.rule)
        number = int(value)
        if not self.least <= number <= self.most:
            raise UnfitError(self.rule)
        return number

    def schema(self) -> Schema:
        return {"type": "integer", "minimum": self.least, "maximum": self.most}


@dataclass(frozen=True, slots=True)
class Number:
    """A finite number, not negative.

    Attributes
    ----------
    above_zero
        Whether 0 is refused.
    of
        Unit as messages name it.
    rule
        Message of its own, instead of the usual one.
    zero_as_head
        Whether ASTRA-sim takes a 0 all the same.
    """

    above_zero: bool = False
    of: str = ""
    rule: str = ""
    zero_as_head: bool = False
    missing: str = ""

    @property
    def allowed(self) -> str:
        return "number above 0" if self.above_zero else "number, 0 or more"

    def read(self, value: object, compat: str | None = None) -> float:
        number = finite_or_none(value)
        zero_taken = not self.above_zero or (self.zero_as_head and reads_as_head(compat))
        if number is None or (number == 0 and not zero_taken):
            bound = "of 0 or more" if zero_taken else "above 0"
            raise UnfitError(
                self.rule or f"must be a finite number {bound}{f' ({self.of})' if self.of else ''}"
            )
        if number > MOST_QUANTITY:
            raise UnfitError(f"must be at most {MOST_QUANTITY:g}")
        return number

    def schema(self) -> Schema:
        return {
            "type": "number",
            "exclusiveMinimum" if self.above_zero else "minimum": 0,
            "maximum": MOST_QUANTITY,
        }


@dataclass(frozen=True, slots=True)
class Rate:
    """A share of full speed."""

    missing: str = ""

    @property
    def allowed(self) -> str:
        return f"number from {SLOWEST} to 1"

    def read(self, value: object, compat: str | None = None) -> float:
        number = finite_or_none(value)
        if number is None or not SLOWEST <= number <= 1:
            raise UnfitError(f"must be a number from {SLOWEST} to 1")
        return number

    def schema(self) -> Schema:
        return {"type": "number", "minimum": SLOWEST, "maximum": 1}


@dataclass(frozen=True, slots=True)
class Single:
    """A number kept in single precision and widened again (replay semantics, section 1.3): L, o, g, G."""

    missing: str = ""

    @property
    def allowed(self) -> str:
        return "number, 0 or more"

    def read(self, value: object, compat: str | None = None) -> float:
        if isinstance(value, bool) and reads_as_head(compat):
            return float(value)
        number = Number().read(value, compat)
        if number > MAX_SINGLE:
            raise UnfitError("must fit single precision", describe(number))
        return float(struct.unpack("f", struct.pack("f", number))[0])

    def schema(self) -> Schema:
        return {"type": "number", "minimum": 0, "maximum": MAX_SINGLE}


@dataclass(frozen=True, slots=True)
class WholeSingle(Single):
    """A number that ASTRA-sim keeps in single precision and then without its fraction."""

    def read(self, value: object, compat: str | None = None) -> int:
        return int(Single(self.missing).read(value, compat))


@dataclass(frozen=True, slots=True)
class Switch:
    """A boolean, also as 1 or 0. ASTRA-sim takes everything but the number 0 for true (C14)."""

    missing: str = ""

    @property
    def allowed(self) -> str:
        return "true, false, 1 or 0"

    def read(self, value: object, compat: str | None = None) -> bool:
        if reads_as_head(compat):
            return isinstance(value, bool) or not isinstance(value, (int, float)) or value != 0
        if isinstance(value, (bool, int, float)) and value in (0, 1):
            return bool(value)
        raise UnfitError("must be true or false (or 1 or 0)")

    def schema(self) -> Schema:
        return {"enum": [True, False, 1, 0]}


@dataclass(frozen=True, slots=True)
class OneSwitch(Switch):
    """A boolean that ASTRA-sim reads as a number, of which only 1 switches on."""

    def read(self, value: object, compat: str | None = None) -> bool:
        if reads_as_head(compat):
            return Whole(least=-(2**31)).read(value, compat) == 1
        return Switch(self.missing).read(value, compat)


@dataclass(frozen=True, slots=True)
class Flag:
    """true or false and nothing else; `rule` and `found` as in `UnfitError`."""

    rule: str = "must be true or false"
    found: str | None = None
    missing: str = ""

    @property
    def allowed(self) -> str:
        return "true or false"

    def read(self, value: object, compat: str | None = None) -> bool:
        if not isinstance(value, bool):
            raise UnfitError(self.rule, self.found)
        return value

    def schema(self) -> Schema:
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class Word(Generic[T_co]):
    """One of a closed set of words; `choices` maps every accepted spelling to what is meant."""

    choices: Mapping[str, T_co]
    rule: str = ""
    missing: str = ""

    @property
    def allowed(self) -> str:
        return ", ".join(self.choices)

    def read(self, value: object, compat: str | None = None) -> T_co:
        if isinstance(value, str) and value in self.choices:
            return self.choices[value]
        hint = nearest(value, self.choices) if isinstance(value, str) else ""
        raise UnfitError(self.rule or f"must be one of {', '.join(self.choices)}", hint=hint)

    def schema(self) -> Schema:
        return {"enum": list(self.choices)}


def words(*choices: str) -> Word[str]:
    """A reader of words that mean themselves."""
    return Word(dict(zip(choices, choices, strict=True)))


MemberT = TypeVar("MemberT", bound=Enum)


def members(kind: type[MemberT]) -> Word[MemberT]:
    """A reader of the values of an enumeration."""
    return Word({str(member.value): member for member in kind})


@dataclass(frozen=True, slots=True)
class Text:
    """A text.

    Attributes
    ----------
    rule
        What is right, for messages.
    says
        Words for what is allowed.
    pattern
        Regular expression that is found in a right one.
    found
        As in `UnfitError`.
    """

    rule: str = "must be a text"
    says: str = "text"
    pattern: str = "."
    found: str | None = None
    missing: str = ""

    @property
    def allowed(self) -> str:
        return self.says

    def read(self, value: object, compat: str | None = None) -> str:
        if not isinstance(value, str) or not re.search(self.pattern, value, re.DOTALL):
            raise UnfitError(self.rule, self.found)
        return value

    def schema(self) -> Schema:
        return {"type": "string", "pattern": self.pattern if self.pattern != "." else r"[\s\S]"}


@dataclass(frozen=True, slots=True)
class Title:
    """A text for people; a number, as in ``study: 2026``, is one."""

    rule: str = "must be a text"
    allowed: str = "text"
    missing: str = ""

    def read(self, value: object, compat: str | None = None) -> str:
        if not isinstance(value, (str, int, float)):
            raise UnfitError(self.rule)
        return str(value)

    def schema(self) -> Schema:
        return {"type": ["string", "number", "boolean"]}


@dataclass(frozen=True, slots=True)
class ListOf(Generic[T_co]):
    """A list of values of one kind.

    Attributes
    ----------
    item
        What each entry may be.
    what
        Plural of the entries, for messages.
    empty
        What is wrong with an empty list; None where it is taken.
    says
        Words for what is allowed, instead of those of `item`.
    example
        A right value, for messages.
    """

    item: Reader[T_co]
    what: str
    empty: str | None = None
    says: str = ""
    example: str = "[ ... ]"

    @property
    def allowed(self) -> str:
        return self.says or "list of " + self.item.allowed.replace("number", "numbers", 1)

    @property
    def missing(self) -> str:
        return f"; it must be a list of {self.what}"

    def read(self, value: object, compat: str | None = None) -> tuple[T_co, ...]:
        if not isinstance(value, (list, tuple)):
            raise UnfitError(f"must be a list of {self.what}, such as {self.example}")
        if not value and self.empty is not None:
            raise UnfitError(f"is an empty list: {self.empty}", "")
        return tuple(self.entry(i, item, compat) for i, item in enumerate(value))

    def entry(self, i: int, item: object, compat: str | None) -> T_co:
        """One entry; its error says which."""
        try:
            return self.item.read(item, compat)
        except UnfitError as unfit:
            raise unfit.of_entry(i, item) from None

    def schema(self) -> Schema:
        made: Schema = {"type": "array", "items": self.item.schema()}
        return made if self.empty is None else {**made, "minItems": 1}


@dataclass(frozen=True, slots=True)
class Anything:
    """A value that a function of its own reads; `allowed` and `shape` say what that takes."""

    allowed: str
    shape: Schema = field(default_factory=dict)
    missing: str = ""

    def read(self, value: object, compat: str | None = None) -> object:
        return value

    def schema(self) -> Schema:
        return dict(self.shape)


@dataclass(frozen=True, slots=True)
class Named:
    """A map of names to values of any kind."""

    allowed: str = "map"
    missing: str = ""

    def read(self, value: object, compat: str | None = None) -> Mapping[str, object]:
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise UnfitError("must be a map of names to values")
        return value

    def schema(self) -> Schema:
        return {"type": "object"}


@dataclass(frozen=True, slots=True)
class MapOf:
    """A map of keys, which the loader reads one by one."""

    keys: tuple[Key[object], ...]
    allowed: str
    rule: str
    missing: str = ""

    def read(self, value: object, compat: str | None = None) -> Mapping[object, object]:
        if not isinstance(value, Mapping):
            raise UnfitError(self.rule, "")
        return value

    def schema(self) -> Schema:
        return object_schema(self.keys)


@dataclass(frozen=True, slots=True)
class MapsOf:
    """A list of such maps, one or more."""

    keys: tuple[Key[object], ...]
    allowed: str
    rule: str
    missing: str = ""

    def read(self, value: object, compat: str | None = None) -> list[object]:
        if not isinstance(value, list) or not value:
            raise UnfitError(self.rule, "")
        return value

    def schema(self) -> Schema:
        return {"type": "array", "items": object_schema(self.keys), "minItems": 1}
