"""What the readers of both kinds of file share."""

import difflib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from chakra.errors import ConfigError
from chakra.io.files import read_bytes


@dataclass(frozen=True, slots=True)
class ConvertedConfig:
    """A configuration in today's form.

    Attributes
    ----------
    kind
        "network" or "system".
    content
        Keys and values as the file of today has them.
    text
        The file: YAML for a network, JSON for a system.
    notes
        What was dropped or changed, one sentence each.
    """

    kind: str
    content: Mapping[str, object]
    text: str
    notes: tuple[str, ...]


def read_text(path: str | os.PathLike[str]) -> str:
    """Text of a UTF-8 file (may be gzipped).

    Raises
    ------
    ConfigError
        If it cannot be read or is not text.
    """
    try:
        return read_bytes(path, error=ConfigError).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{os.fspath(path)}: byte {error.start}: not text (UTF-8 expected)") from None


def key_lines(text: str, source: str) -> list[tuple[int, str, str]]:
    """(line number, key, value) of every line ``key: value``; blank lines and ``#`` comments are skipped.

    Raises
    ------
    ConfigError
        Naming the line that is not of this form.
    """
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        match = re.fullmatch(r"([\w-]{1,60})\s*:\s*(.{1,500})", stripped)
        if match is None:
            raise ConfigError(f"{source}: line {number}: {stripped[:60]!r} is not of the form 'key: value'")
        found.append((number, match[1], match[2]))
    if not found:
        raise ConfigError(f"{source}: is empty")
    return found


def plain(value: float) -> float | int:
    """Whole numbers without a decimal point."""
    return int(value) if float(value).is_integer() else value


def error_at(source: str, key: str, message: str) -> ConfigError:
    """Error about the value of a key."""
    return ConfigError(f"{source}: key '{key}' {message}")


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word that is most like ``word``, as the end of a message; empty if none is."""
    close = difflib.get_close_matches(word, list(known), 1, 0.6)
    return f"; did you mean {close[0]}?" if close else ""
