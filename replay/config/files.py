"""Reading JSON configuration files, and what a loader takes: a path, or a dict with the same keys.

Nothing here knows a key: the modules beside this one say what the values mean. Of two equal keys in a JSON
file ASTRA-sim takes the last; here a repeated key is an error, because one of the two values is not what its
author thinks it is.
"""

import json
import os
import re
from collections.abc import Mapping
from typing import Any, NoReturn, TypeAlias

from chakra.errors import ConfigError
from chakra.io.files import unusable_json
from chakra.io.shown import describe, shortened
from chakra.io.text import read_text
from chakra.io.yaml import Entry

Source: TypeAlias = str | os.PathLike[str] | Mapping[str, Any]


def read_json(path: str | os.PathLike[str], *, last_wins: bool = False) -> dict[object, Entry]:
    """Entries of a JSON object file.

    Parameters
    ----------
    last_wins
        of two equal keys take the second, as ASTRA-sim does, instead of refusing the file

    Raises
    ------
    ConfigError
        with file, line and column where the file is not JSON, repeats a key, or is not an object
    """
    name = os.fspath(path)
    text = read_text(name)

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(items)
        if len(found) < len(items) and not last_wins:
            once: set[str] = set()
            twice = next(key for key, _ in items if key in once or once.add(key))  # type: ignore[func-returns-value]
            raise ConfigError(
                f"{name}{_line_of_repeat(text, twice)}: key '{shortened(twice)}' is given twice"
            )
        return found

    def constant(word: str) -> NoReturn:
        raise ConfigError(f"{name}: {word} is not a JSON value")

    try:
        value = json.loads(text, object_pairs_hook=pairs, parse_constant=constant)
    except json.JSONDecodeError as error:
        hint = ""
        if not text.lstrip().startswith(("{", "[")) and re.search(r"^[\w-]+:\s", text, re.MULTILINE):
            hint = "; a text system file of ASTRA-sim 1.0 is converted by `chakra convert config`"
        raise ConfigError(
            f"{name}:{error.lineno}:{error.colno}: not valid JSON: {_plain(error.msg)}{hint}"
        ) from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{name}: not usable JSON: {unusable_json(error)}") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{name}: expected a JSON object {{...}}, found {describe(value)}")
    return {key: Entry(item) for key, item in value.items()}


def _plain(message: str) -> str:
    """The decoder's message in the middle of a sentence."""
    return message[:1].lower() + message[1:]


def _line_of_repeat(text: str, key: str) -> str:
    """`:LINE` of the second place where a key stands, or nothing if escapes hide it."""
    places = [m.start() for m in re.finditer(re.escape(json.dumps(key)) + r"\s*:", text)]
    return f":{text.count(chr(10), 0, places[1]) + 1}" if len(places) > 1 else ""
