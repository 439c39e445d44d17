"""One key of a configuration file, with everything that reading, checking, explaining and documenting it need.

A `Key` names its rule as a `Reader`, which says what a value may be three times over: as a function that reads it, as
words, and as JSON Schema. The tables of keys are `chakra.replay.config.keys`, `chakra.platforms.keys`,
`chakra.sweep.keys` and `chakra.generate.request.parameters`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

from chakra.io.shown import describe

T_co = TypeVar("T_co", covariant=True)

#: a JSON Schema, or a part of one
Schema: TypeAlias = dict[str, object]


class UnfitError(ValueError):
    """A value that a reader does not take.

    Attributes
    ----------
    rule
        What would be right, as it follows the name of the key: ``must be a text``.
    found
        What was found, in words; None for the value as it is, empty where the rule says it.
    hint
        A word that was probably meant, as `nearest` says it.
    """

    def __init__(self, rule: str, found: str | None = None, hint: str = "") -> None:
        super().__init__(rule)
        self.rule, self.found, self.hint = rule, found, hint

    def told(self, value: object) -> str:
        """Rule, what was found, and the hint."""
        return f"{self._told(describe(value), 'found')}{self.hint}"

    def told_in_words(self, value: object) -> str:
        """Rule, and what was found, as messages about studies have it."""
        return self._told(describe(value), "not")

    def told_plainly(self, value: object) -> str:
        """Rule, and the value as Python writes it."""
        return self._told(repr(value), "not")

    def _told(self, shown: str, joined: str) -> str:
        found = shown if self.found is None else self.found
        return f"{self.rule}, {joined} {found}" if found else self.rule

    def of_entry(self, i: int, value: object) -> "UnfitError":
        """The same of an entry of a list."""
        return self._of(f"entry {i}", value)

    def of_part(self, name: str, value: object) -> "UnfitError":
        """The same of a part of a map."""
        return self._of(repr(name), value)

    def _of(self, place: str, value: object) -> "UnfitError":
        return UnfitError(
            f"{place} {self.rule}", describe(value) if self.found is None else self.found, self.hint
        )


class Reader(Protocol[T_co]):
    """What a value may be."""

    @property
    def allowed(self) -> str:
        """In words: type and bounds, or the words of a closed set."""
        ...

    @property
    def missing(self) -> str:
        """What follows ``is missing`` where a required key is; may be empty."""
        ...

    def read(self, value: object, compat: str | None = None) -> T_co:
        """The value of an entry of a file; raises `UnfitError`.

        Parameters
        ----------
        value
            As JSON or YAML gives it.
        compat
            None, or "astra-sim" or "astra-sim-1.0": read as ASTRA-sim does.
        """
        ...

    def schema(self) -> Schema:
        """JSON Schema of the values that are taken where `compat` is None."""
        ...


class Required(Enum):
    """Stands for the default of a key that has none."""

    REQUIRED = "required"


REQUIRED: Final = Required.REQUIRED
#: what `Key.compat` says of a key that ASTRA-sim does not know
IGNORED: Final = "ignored"


@dataclass(frozen=True, slots=True)
class Key(Generic[T_co]):
    """One key.

    Attributes
    ----------
    name
        As files write it.
    reader
        What a value may be.
    default
        Value where the key is not given, as the reader would give it; None where nothing stands for it.
    unit
        Unit of the value.
    field
        Where the value goes: a field of what the loader returns; a dot leads into a field of a field.
    meaning
        What it says.
    default_said
        Words for a default of None, or a remark on another one.
    compat
        What ``compat="astra-sim"`` reads differently.
    """

    name: str
    reader: Reader[T_co]
    default: T_co | Required
    unit: str
    field: str
    meaning: str
    default_said: str = ""
    compat: str = ""

    @property
    def allowed(self) -> str:
        """What a value may be, in words."""
        return self.reader.allowed

    @property
    def required(self) -> bool:
        """Whether a file must give it."""
        return self.default is REQUIRED

    @property
    def default_in_words(self) -> str:
        """The default as tables show it."""
        if self.default is None and self.default_said:
            return self.default_said
        value = in_words(plain(self.default))
        return f"{value}: {self.default_said}" if self.default_said else value

    def of(self, owner: object) -> object:
        """The value in effect of a loaded configuration, as a file would say it; the default where it has none."""
        value = owner
        for part in self.field.split("."):
            value = value.get(part) if isinstance(value, Mapping) else getattr(value, part, None)
        return plain(self.default if value is None else value)

    def of_each(self, owners: Iterable[object]) -> list[object]:
        """The value of a list with an entry for each owner."""
        return [self.of(owner) for owner in owners]

    def schema(self) -> Schema:
        """JSON Schema of the value, with meaning and default."""
        unit = f" ({self.unit})" if self.unit else ""
        made: Schema = {**self.reader.schema(), "description": self.meaning + unit}
        if self.default is not REQUIRED and self.default is not None:
            made["default"] = plain(self.default)
        return made


def plain(value: object) -> object:
    """A value as JSON would write it."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value if value is None or isinstance(value, (bool, int, float, str, dict)) else str(value)


def in_words(value: object) -> str:
    """A plain value as tables show it."""
    if value is None or value == "":
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ", ".join(map(in_words, value)) or "none"
    return f"{value:g}" if isinstance(value, float) and value.is_integer() and value < 1e15 else str(value)


def object_schema(keys: Iterable[Key[object]]) -> Schema:
    """JSON Schema of a map of these keys and no others."""
    keys = tuple(keys)
    required = [key.name for key in keys if key.required]
    made: Schema = {
        "type": "object",
        "properties": {key.name: key.schema() for key in keys},
        "additionalProperties": False,
    }
    return {**made, "required": required} if required else made
