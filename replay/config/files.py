"""Reading JSON and YAML configuration files into plain values that remember their line.

Nothing here knows a key: the modules beside this one say what the values mean. Of two equal keys in a JSON
file ASTRA-sim takes the last; here a repeated key is an error, because one of the two values is not what its
author thinks it is.
"""

import json
import math
import os
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

from chakra.errors import ConfigError
from chakra.io.files import UNKNOWN, kind_of, read_raw, unusable_json
from chakra.io.limits import MAX_CONFIG_BYTES, MAX_YAML_VALUES

Source: TypeAlias = str | os.PathLike[str] | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Entry:
    """A value and the line it stands on; `line` is None where the source is a dict or a JSON file."""

    value: Any
    line: int | None = None


def read_text(path: str | os.PathLike[str]) -> str:
    """Text of a UTF-8 file (a byte order mark is dropped); raises ConfigError naming the file."""
    name = os.fspath(path)
    data = read_raw(name, error=ConfigError, most=MAX_CONFIG_BYTES)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        kind = kind_of(data[: 1 << 16])
        hint = "" if kind == UNKNOWN else f"; its content is that of this kind: {kind}"
        raise ConfigError(f"{name}: not a text file (byte {error.start} is not UTF-8){hint}") from None


def read_json(path: str | os.PathLike[str], *, last_wins: bool = False) -> dict[str, Entry]:
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


_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
#: a plain `key: [ a, b ]  # comment` line whose items need no YAML rules; the rest goes to the YAML reader
_PLAIN_LINE = re.compile(r"([a-z_]+): +\[ *([A-Za-z0-9.+-]+(?: *, *[A-Za-z0-9.+-]+)*) *\] *(?: #.*)?")
_PLAIN_BLANK = re.compile(r" *(?:#.*)?")


def scalar(text: str) -> Any:
    """Value of an unquoted YAML 1.2 scalar; digits after a leading zero stay text (YAML 1.1: octal)."""
    if _INTEGER.fullmatch(text):
        return int(text) if len(text) < 400 else text
    if _FLOAT.fullmatch(text) and not re.match(r"[-+]?0[0-9]", text):
        return float(text)
    return {"true": True, "false": False, "null": None, "~": None, "": None}.get(text.strip(), text)


def read_yaml(path: str | os.PathLike[str]) -> dict[Any, Entry]:
    """Entries of a YAML 1.2 mapping file, with line numbers.

    Raises
    ------
    ConfigError
        with file and line where the file is not YAML, repeats a key, or is not a mapping
    """
    name = os.fspath(path)
    text = read_text(name)
    plain = _read_plain(text)
    return _read_general(name, text) if plain is None else plain


def _read_plain(text: str) -> dict[Any, Entry] | None:
    """The usual network file, read without a YAML library (25 ms to import); None where it is not that."""
    entries: dict[Any, Entry] = {}
    if not text.isascii() or "\r" in text:
        return None
    for number, line in enumerate(text.split("\n"), 1):
        if _PLAIN_BLANK.fullmatch(line):
            continue
        match = _PLAIN_LINE.fullmatch(line)
        if match is None or match[1] in entries or not isinstance(scalar(match[1]), str):
            return None
        items = [item.strip(" ") for item in match[2].split(",")]
        if any(item[0] == "-" and not _FLOAT.fullmatch(item) for item in items):
            return None  # "-" and "---" are indicators
        entries[match[1]] = Entry([scalar(item) for item in items], number)
    return entries or None


def composed(text: str) -> tuple[Any, Any]:
    """Root node of a YAML text (None: empty) and the YAML reader that can construct it."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import ReusedAnchorWarning

    yaml = YAML(typ="safe", pure=True)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", ReusedAnchorWarning
        )  # the last of equal anchors counts, as YAML has it
        return yaml.compose(text), yaml


def _read_general(name: str, text: str) -> dict[Any, Entry]:
    """Any YAML mapping, by way of the composed nodes, which keep the lines and the text of the scalars."""
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        root, _ = composed(text)
        if root is None:
            raise ConfigError(f"{name}: the file is empty")
        if root.id != "mapping":
            line = root.start_mark.line + 1
            raise ConfigError(f"{name}:{line}: expected `key: value` lines, found a {root.id}")
        refuse_growth(root, name)
        entries: dict[Any, Entry] = {}
        known: dict[Any, Any] = {}
        for key_node, value_node in root.value:
            line = key_node.start_mark.line + 1
            key = _value(name, key_node, known)
            if isinstance(key, (list, dict)):
                raise ConfigError(f"{name}:{line}: a key must be a word or a number")
            if key in entries:
                raise ConfigError(
                    f"{name}:{line}: key '{shortened(key)}' is given twice (first on line {entries[key].line})"
                )
            entries[key] = Entry(_value(name, value_node, known), line)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        problem = " ".join(str(part) for part in (error.context, error.problem) if part)
        raise ConfigError(f"{name}{place}: not valid YAML: {problem}") from None
    except (YAMLError, RecursionError, ValueError) as error:
        deep = isinstance(error, RecursionError) or not str(error)
        reason = "nested too deeply" if deep else str(error).splitlines()[0]
        raise ConfigError(f"{name}: not valid YAML: {reason}") from None
    return entries


def refuse_growth(root: Any, source: str) -> None:
    """Refuse a composed YAML node whose aliases, once written out, stand for too many values, or for themselves."""
    size = _expanded_size(root)
    if math.isinf(size):
        raise ConfigError(f"{source}: nested without end: an alias stands inside what it names")
    if size > MAX_YAML_VALUES:
        raise ConfigError(f"{source}: its aliases stand for more than {MAX_YAML_VALUES} values")


def _expanded_size(root: Any) -> float:
    """Values that a composed YAML node stands for once its aliases are written out; infinite if it holds itself."""
    sizes: dict[int, float] = {}
    stack = [(root, False)]
    while stack:
        node, done = stack.pop()
        if node.id == "scalar":
            sizes[id(node)] = 1
            continue
        inner = node.value if node.id == "sequence" else [part for pair in node.value for part in pair]
        if done:
            sizes[id(node)] = 1 + sum(sizes[id(part)] for part in inner)
        elif id(node) not in sizes:
            sizes[id(node)] = math.inf  # as long as its parts are not known: a part that is the node itself
            stack.append((node, True))
            stack += [(part, False) for part in inner]
    return sizes[id(root)]


def _value(name: str, node: Any, known: dict[Any, Any], depth: int = 0) -> Any:
    """Plain value of a composed node.

    An alias is the node it names, so ``known`` keeps the values: nine lines of aliases may stand for 10^9 of them.
    """
    if depth > 20:
        raise ConfigError(f"{name}:{node.start_mark.line + 1}: nested too deeply")
    if node.id == "scalar":
        return node.value if node.style in ("'", '"', "|", ">") else scalar(node.value)
    if node in known:
        return known[node]
    value: Any
    if node.id == "sequence":
        value = [_value(name, item, known, depth + 1) for item in node.value]
    else:
        value = {
            str(_value(name, key, known, depth + 1)): _value(name, item, known, depth + 1)
            for key, item in node.value
        }
    known[node] = value
    return value


def describe(value: Any) -> str:
    """A value as a message shows it: short, in JSON's words."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, (list, tuple)):
        return "a list" if value else "an empty list"
    if value is None or isinstance(value, (bool, str)):
        shown = json.dumps(value, ensure_ascii=False)
        return shown if len(shown) <= 60 else shown[:56] + '..."'
    shown = str(value)
    return shown if len(shown) <= 40 else shown[:36] + "..."


def shortened(key: object) -> str:
    """A key as a message shows it."""
    text = str(key)
    return text if len(text) <= 60 else text[:56] + "..."


def nearest(word: str, choices: list[str]) -> str:
    """`; did you mean 'x'?` or nothing."""
    import difflib

    if len(word) > 100:  # no key, and slow to compare
        return ""
    folded = {choice.lower(): choice for choice in choices}
    close = difflib.get_close_matches(word.lower(), list(folded), n=1, cutoff=0.6)
    return f"; did you mean '{folded[close[0]]}'?" if close else ""
