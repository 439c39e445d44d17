"""Typed access to the entries of one configuration: every check names file, key and, if known, line."""

import contextlib
import math
import os
import struct
from collections.abc import Callable, Iterable, Mapping
from numbers import Real
from typing import Any

from chakra.errors import ConfigError
from chakra.io.files import kind_of_keys
from chakra.io.nearest import nearest
from chakra.io.shown import describe, shortened
from chakra.io.yaml import Entry, read_entries
from chakra.replay.config.files import Source, read_json
from chakra.replay.config.keys import ALL_KEYS

#: ASTRA-sim keeps integers of the system file in 32 bits
MAX_INT = 2**31 - 1


def reads_like_head(compat: str | None) -> bool:
    """Whether files are read as ASTRA-sim HEAD reads them; checks the mode's name."""
    if compat not in (None, "astra-sim", "astra-sim-1.0"):
        raise ConfigError(f"compat must be None, 'astra-sim' or 'astra-sim-1.0', found {describe(compat)}")
    return compat == "astra-sim"


class Section:
    """The entries of one file or dict.

    Parameters
    ----------
    source
        path or ``<kind>``, for messages
    entries
        key -> value with its line
    as_head
        read values as ASTRA-sim HEAD does (C14: numbers for booleans, unknown keys ignored)
    """

    __slots__ = ("as_head", "entries", "source")

    def __init__(self, source: str, entries: dict[Any, Entry], as_head: bool) -> None:
        self.source = source
        self.entries = entries
        self.as_head = as_head

    @classmethod
    def of(cls, src: Source, *, kind: str, compat: str | None, yaml: bool = False) -> "Section":
        """Section of a path or of a plain dict; `kind` names a dict in messages."""
        as_head = reads_like_head(compat)
        if isinstance(src, Mapping):
            return cls(f"<{kind}>", {key: Entry(value) for key, value in src.items()}, as_head)
        if not isinstance(src, (str, os.PathLike)):
            raise ConfigError(f"<{kind}>: expected a path or a dict, found {type(src).__name__}")
        entries = read_entries(src) if yaml else read_json(src, last_wins=as_head)
        return cls(os.fspath(src), entries, as_head)

    def error(self, key: object, problem: str) -> ConfigError:
        """A ConfigError about one key, for the caller to raise."""
        entry = self.entries.get(key)
        line = f":{entry.line}" if entry is not None and entry.line else ""
        return ConfigError(f"{self.source}{line}: key '{shortened(key)}' {problem}")

    def _other_kind(self) -> str:
        """What else a file is that has none of a configuration's keys; empty if nobody knows."""
        ours = any(set(self.entries) & set(keys) for keys in ALL_KEYS.values())
        return "" if ours else kind_of_keys(self.entries)

    def refuse_unknown(self, known: Iterable[str]) -> None:
        """Unknown keys are errors with the nearest match; ASTRA-sim ignores them (C14)."""
        if self.as_head:
            return
        names = sorted(known)
        other = self._other_kind()
        if other:
            raise ConfigError(f"{self.source}: this is a {other}, not a configuration file")
        for key in self.entries:
            if key not in names:
                raise self.error(key, f"is unknown{self._hint(key, names)}")

    def _hint(self, key: object, names: list[str]) -> str:
        """What an unknown key may have been meant for."""
        owners = [kind for kind, keys in ALL_KEYS.items() if key in keys]
        if owners:
            return f" here: it belongs to a {owners[0]} file"
        return nearest(str(key), names) or f"; known keys: {', '.join(names)}"

    def given(self, key: str) -> bool:
        """Whether the key is in the file."""
        return key in self.entries

    def integer(
        self, key: str, default: int | None, *, minimum: int = 0, maximum: int = MAX_INT, unit: str = ""
    ) -> int:
        """A whole number; a fraction is dropped as in ASTRA-sim. `default` None: the key is required."""
        if key not in self.entries:
            if default is None:
                raise self.error(key, "is missing")
            return default
        value = self.entries[key].value
        if isinstance(value, bool) and self.as_head:
            value = int(value)
        what = f"must be a whole number{' of ' + unit if unit else ''} from {minimum} to {maximum}"
        number = _truncated(value)
        if number is None or value < minimum or number > maximum:
            raise self.error(key, f"{what}, found {describe(value)}")
        return number

    def number(self, key: str, default: float, *, above_zero: bool = False, unit: str = "") -> float:
        """A finite number, not negative."""
        if key not in self.entries:
            return default
        value = self.entries[key].value
        bound = "above 0" if above_zero else "of 0 or more"
        what = f"must be a finite number {bound}{' (' + unit + ')' if unit else ''}"
        return finite(value, above_zero, lambda shown: self.error(key, f"{what}, found {shown}"))

    def single(self, key: str) -> float:
        """L, o, g, G: kept in single precision and widened again, 0 where absent (replay semantics, section 1.3)."""
        if self.as_head and isinstance(self.entries.get(key, Entry(None)).value, bool):
            return float(self.entries[key].value)
        value = self.number(key, 0.0)
        if value > 3.4e38:
            raise self.error(key, f"must fit single precision, found {describe(value)}")
        return float(struct.unpack("f", struct.pack("f", value))[0])

    def switch(self, key: str) -> bool:
        """A boolean, false where absent. ASTRA-sim takes everything but the number 0 for true (C14)."""
        if key not in self.entries:
            return False
        value = self.entries[key].value
        if self.as_head:
            return isinstance(value, bool) or not isinstance(value, (int, float)) or value != 0
        if isinstance(value, bool) or (isinstance(value, (int, float)) and value in (0, 1)):
            return bool(value)
        raise self.error(key, f"must be true or false (or 1 or 0), found {describe(value)}")

    def word(self, key: str, default: str, choices: Mapping[str, str]) -> str:
        """One of a closed set of words; `choices` maps every accepted spelling to the word meant."""
        if key not in self.entries:
            return default
        value = self.entries[key].value
        if isinstance(value, str) and value in choices:
            return choices[value]
        hint = nearest(value, list(choices)) if isinstance(value, str) else ""
        raise self.error(key, f"must be one of {', '.join(choices)}, found {describe(value)}{hint}")

    def text(self, key: str, default: str) -> str:
        """Any text."""
        if key not in self.entries:
            return default
        value = self.entries[key].value
        if not isinstance(value, str) or not value:
            raise self.error(key, f"must be a text, found {describe(value)}")
        return value

    def items(self, key: str, what: str) -> list[Any]:
        """A list; the key is required."""
        if key not in self.entries:
            raise self.error(key, f"is missing; it must be a list of {what}")
        value = self.entries[key].value
        if not isinstance(value, (list, tuple)):
            raise self.error(key, f"must be a list of {what}, such as [ ... ], found {describe(value)}")
        return list(value)


def _truncated(value: Any) -> int | None:
    """The whole part of a finite number; None for everything else."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    try:
        return int(value) if is_number else None
    except (ValueError, OverflowError):
        return None


def finite(value: Any, above_zero: bool, error: Callable[[str], ConfigError]) -> float:
    """The value as a float if it is a finite number in range; else the error for its description."""
    number = -1.0
    if not isinstance(value, bool) and isinstance(value, Real):
        with contextlib.suppress(OverflowError):
            number = float(value)
    if not math.isfinite(number) or number < 0 or (above_zero and number == 0):
        raise error(describe(value))
    return number
