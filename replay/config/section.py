"""The entries of one configuration, read by keys: every error names file, key and, if known, line."""

import os
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from chakra.errors import ConfigError
from chakra.io.files import kind_of_keys
from chakra.io.nearest import nearest
from chakra.io.shown import describe, shortened
from chakra.io.yaml import Entry, read_entries
from chakra.replay.config.files import Source, read_json
from chakra.replay.config.key import IGNORED, Key, Required, UnfitError
from chakra.replay.config.keys import ALL_KEYS
from chakra.replay.config.readers import reads_as_head

T = TypeVar("T")


class Described(dict[str, Any]):
    """The entries of a configuration that was made, as of a machine in words, with a name that messages have.

    Parameters
    ----------
    source
        What the configuration is called.
    entries
        Its keys and values.
    """

    def __init__(self, source: str, entries: Mapping[str, Any]) -> None:
        super().__init__(entries)
        self.source = source

    def __reduce__(self) -> tuple[type["Described"], tuple[str, dict[str, Any]]]:
        return Described, (self.source, dict(self))


def checked_mode(compat: str | None) -> str | None:
    """The mode that files are read in; checks its name."""
    if compat not in (None, "astra-sim", "astra-sim-1.0"):
        raise ConfigError(f"compat must be None, 'astra-sim' or 'astra-sim-1.0', found {describe(compat)}")
    return compat


class Section:
    """The entries of one file or dict.

    Parameters
    ----------
    source
        path or ``<kind>``, for messages
    entries
        key -> value with its line
    compat
        None, or the version of ASTRA-sim that values are read like (C14: numbers for booleans, unknown keys ignored)
    """

    __slots__ = ("as_head", "compat", "entries", "source")

    def __init__(self, source: str, entries: Mapping[object, Entry], compat: str | None) -> None:
        self.source = source
        self.entries = entries
        self.compat = checked_mode(compat)
        self.as_head = reads_as_head(compat)

    @classmethod
    def of(cls, src: "Source | Section", *, kind: str, compat: str | None, yaml: bool = False) -> "Section":
        """Section of a path or of a plain dict; `kind` names a dict in messages. One that is read stays as it is."""
        checked_mode(compat)
        if isinstance(src, Section):
            return src
        if isinstance(src, Mapping):
            source = src.source if isinstance(src, Described) else f"<{kind}>"
            return cls(source, {key: Entry(value) for key, value in src.items()}, compat)
        if not isinstance(src, (str, os.PathLike)):
            raise ConfigError(f"<{kind}>: expected a path or a dict, found {type(src).__name__}")
        if yaml:
            return cls(os.fspath(src), read_entries(src), compat)
        return cls(os.fspath(src), read_json(src, last_wins=reads_as_head(compat)), compat)

    def error(self, key: object, problem: str) -> ConfigError:
        """A ConfigError about one key, for the caller to raise."""
        entry = self.entries.get(key)
        line = f":{entry.line}" if entry is not None and entry.line else ""
        return ConfigError(f"{self.source}{line}: key '{shortened(key)}' {problem}")

    def origin(self, key: Key[object]) -> str:
        """Where a value comes from: file and line, or ``default``."""
        entry = self.entries.get(key.name)
        if entry is None:
            return "default"
        return f"{self.source}:{entry.line}" if entry.line else self.source

    def _other_kind(self) -> str:
        """What else a file is that has none of a configuration's keys; empty if nobody knows."""
        ours = any(set(self.entries) & set(keys) for keys in ALL_KEYS.values())
        return "" if ours else kind_of_keys(self.entries)

    def refuse_unknown(self, keys: Iterable[Key[object]]) -> None:
        """Unknown keys are errors with the nearest match; ASTRA-sim ignores them (C14)."""
        if self.as_head:
            return
        names = sorted(key.name for key in keys)
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

    def given(self, key: Key[object]) -> bool:
        """Whether the key is in the file."""
        return key.name in self.entries

    def raw(self, key: Key[object]) -> object:
        """The value as the file says it; None where it does not."""
        entry = self.entries.get(key.name)
        return None if entry is None else entry.value

    def read(self, key: Key[T]) -> T:
        """The value of a key; its default where it is not given, or where ASTRA-sim ignores it."""
        entry = self.entries.get(key.name)
        if entry is None or (self.as_head and key.compat == IGNORED):
            if isinstance(key.default, Required):
                raise self.error(key.name, f"is missing{key.reader.missing}")
            return key.default
        try:
            return key.reader.read(entry.value, self.compat)
        except UnfitError as unfit:
            raise self.error(key.name, unfit.told(entry.value)) from None

    def fields(self, keys: Iterable[Key[object]]) -> dict[str, Any]:
        """Every value by its field, for the class that holds them; ``a.b`` stands as `b` in a dict of `a`."""
        found: dict[str, Any] = {}
        for key in keys:
            owner, _, name = key.field.rpartition(".")
            (found.setdefault(owner, {}) if owner else found)[name] = self.read(key)
        return found
