"""Reading YAML 1.2: plain values, the line of every key, one-line errors.

Scalars are those of the core schema's decimal forms: ``1e9`` is a number; ``010``, ``0x8``, ``.nan`` and dates, which
readers take for different values, stay text. A key that stands twice in a map is an error, wherever the map stands.

Two forms of a file: `read_entries` for maps of keys whose lines messages name (network files), `read_document` for values
of any shape (studies, platforms, requests), where tags and merge keys, which are a program's business or no part of
YAML 1.2, are refused.
"""

import contextlib
import math
import os
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

from chakra.errors import ConfigError
from chakra.io.digits import decimal_number, signed_whole_number
from chakra.io.limits import MAX_DOCUMENT_BYTES, MAX_YAML_VALUES
from chakra.io.shown import shortened
from chakra.io.text import read_text
from chakra.io.yaml_rows import without_rows

if TYPE_CHECKING:
    from ruamel.yaml.error import MarkedYAMLError
    from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

#: what a YAML or JSON file holds once it is read: None, bool, int, float, str, list, dict
Plain: TypeAlias = Any

#: deeper brackets are no description of anything, and slow to refuse later
MAX_BRACKETS = 50
#: deepest value of a map of entries
MAX_DEPTH = 20

_CORE_TAGS = tuple(
    f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "seq", "map", "timestamp")
)


@dataclass(frozen=True, slots=True)
class Entry:
    """A value and the line of its key; `line` is None where the source is a dict or a JSON file."""

    value: Plain
    line: int | None = None


def read_entries(path: str | os.PathLike[str]) -> dict[Plain, Entry]:
    """Entries of a file that is a map, with line numbers.

    Raises
    ------
    ConfigError
        With file and line where the file is not YAML, repeats a key, or is not a map.
    """
    name = os.fspath(path)
    text = read_text(name)
    entries = plain_entries(text)
    return entries_with_rows(name, text) if entries is None else entries


def read_document(path: str | os.PathLike[str]) -> Plain:
    """Value of a file of any shape; None for an empty one.

    Raises
    ------
    ConfigError
        Not readable, too large, or not YAML; with the line where that is known.
    """
    return parse_document(read_text(path, most=MAX_DOCUMENT_BYTES), os.fspath(path))


def parse_document(text: str, source: str) -> Plain:
    """Value of a YAML text; `source` begins messages.

    Raises
    ------
    ConfigError
        As `read_document`.
    """
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    depth = 0
    for character in text:
        depth += (character in "[{") - (character in "]}")
        if depth > MAX_BRACKETS:
            raise ConfigError(f"{source}: brackets nested more than {MAX_BRACKETS} deep")
    try:
        root = _composed(text)
        if root is None:
            return None
        refuse_growth(root, source)
        _refuse_programs(root, source)
        return _Values(source, " line {}:", MAX_BRACKETS).of(root)
    except MarkedYAMLError as error:
        line = f" line {error.problem_mark.line + 1}:" if error.problem_mark else ""
        raise ConfigError(f"{source}:{line} {error.problem or 'not YAML'}") from None
    except (YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{source}: not YAML: {_reason(error)}") from None


_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
#: a plain `key: [ a, b ]  # comment` line whose items need no YAML rules; the rest goes to the YAML reader
_PLAIN_LINE = re.compile(r"([a-z_]+): +\[ *([A-Za-z0-9.+-]+(?: *, *[A-Za-z0-9.+-]+)*) *\] *(?: #.*)?")
_PLAIN_BLANK = re.compile(r" *(?:#.*)?")
_WORDS = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys(("null", "Null", "NULL", "~", ""), None),
}


def scalar(text: str) -> Plain:
    """Value of an unquoted YAML 1.2 scalar; digits after a leading zero stay text (YAML 1.1: octal)."""
    if _INTEGER.fullmatch(text):
        return signed_whole_number(text) if len(text) < 400 else text
    if _FLOAT.fullmatch(text) and not re.match(r"[-+]?0[0-9]", text):
        # more than a float holds stays a text, which no reader of numbers takes
        with contextlib.suppress(ValueError):
            return decimal_number(text)
    return _WORDS.get(text.strip(), text)


def plain_entries(text: str) -> dict[Plain, Entry] | None:
    """The usual network file, read without a YAML library (25 ms to import); None where it is not that."""
    entries: dict[Plain, Entry] = {}
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


def entries_with_rows(name: str, text: str) -> dict[Plain, Entry]:
    """The same as `general_entries`, in a hundredth of the time for long lists of plain rows."""
    rest, rows = without_rows(text, scalar)
    entries = general_entries(name, rest)
    for word, values in rows.items():
        key = scalar(word)
        entries[key] = Entry(values, entries[key].line)
    return entries


def general_entries(name: str, text: str) -> dict[Plain, Entry]:
    """Entries of any YAML map, by way of the composed nodes, which keep the lines and the text of the scalars."""
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        root = _composed(text)
        if root is None:
            raise ConfigError(f"{name}: the file is empty")
        if not _is_map(root):
            kind = "sequence" if _is_list(root) else "scalar"
            raise ConfigError(f"{name}:{_line(root)}: expected `key: value` lines, found a {kind}")
        refuse_growth(root, name)
        return _Values(name, "{}:", MAX_DEPTH).entries(root)
    except MarkedYAMLError as error:
        raise ConfigError(f"{name}{_place(error)}: not valid YAML: {_problem(error)}") from None
    except (YAMLError, RecursionError, ValueError) as error:
        raise ConfigError(f"{name}: not valid YAML: {_reason(error)}") from None


def _place(error: "MarkedYAMLError") -> str:
    mark = error.problem_mark or error.context_mark
    return f":{mark.line + 1}:{mark.column + 1}" if mark else ""


def _problem(error: "MarkedYAMLError") -> str:
    return " ".join(str(part) for part in (error.context, error.problem) if part)


def _reason(error: Exception) -> str:
    deep = isinstance(error, RecursionError) or not str(error)
    return "nested too deeply" if deep else str(error).splitlines()[0]


def _composed(text: str) -> "Node | None":
    """Root node of a YAML text; None for an empty one."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import ReusedAnchorWarning

    with warnings.catch_warnings():
        # the last of equal anchors counts, as YAML has it
        warnings.simplefilter("ignore", ReusedAnchorWarning)
        root: Node | None = YAML(typ="safe", pure=True).compose(text)
    return root


def _line(node: "Node") -> int:
    return int(node.start_mark.line) + 1


def _is_map(node: "Node") -> "TypeGuard[MappingNode]":
    from ruamel.yaml.nodes import MappingNode

    return isinstance(node, MappingNode)


def _is_list(node: "Node") -> "TypeGuard[SequenceNode]":
    from ruamel.yaml.nodes import SequenceNode

    return isinstance(node, SequenceNode)


def _is_scalar(node: "Node") -> "TypeGuard[ScalarNode]":
    from ruamel.yaml.nodes import ScalarNode

    return isinstance(node, ScalarNode)


def _inner(node: "Node") -> "list[Node]":
    """Nodes right below a list or map."""
    if _is_map(node):
        return [part for pair in node.value for part in pair]
    return list(node.value) if _is_list(node) else []


def refuse_growth(root: "Node", source: str) -> None:
    """Refuse a composed node whose aliases, once written out, stand for too many values, or for themselves.

    Raises
    ------
    ConfigError
        Naming the source.
    """
    size = _expanded_size(root)
    if math.isinf(size):
        raise ConfigError(f"{source}: nested without end: an alias stands inside what it names")
    if size > MAX_YAML_VALUES:
        raise ConfigError(f"{source}: its aliases stand for more than {MAX_YAML_VALUES} values")


def _expanded_size(root: "Node") -> float:
    """Values that a composed node stands for once its aliases are written out; infinite if it holds itself."""
    sizes: dict[int, float] = {}
    stack = [(root, False)]
    while stack:
        node, done = stack.pop()
        inner = _inner(node)
        if done:
            sizes[id(node)] = 1 + sum(sizes[id(part)] for part in inner)
        elif id(node) not in sizes:
            # as long as its parts are not known: a part that is the node itself
            sizes[id(node)] = math.inf
            stack.append((node, True))
            stack += [(part, False) for part in inner]
    return sizes[id(root)]


def _nodes(root: "Node") -> "Iterator[Node]":
    """Every node once."""
    waiting, seen = [root], {id(root)}
    while waiting:
        node = waiting.pop()
        yield node
        new = [part for part in _inner(node) if id(part) not in seen]
        seen.update(map(id, new))
        waiting += new


def _refuse_programs(root: "Node", source: str) -> None:
    """Refuse tags, which would make objects, and merge keys, which are not part of YAML 1.2."""
    for node in _nodes(root):
        if str(node.tag) not in _CORE_TAGS and node.tag != "tag:yaml.org,2002:merge":
            raise ConfigError(
                f"{source}: line {_line(node)}: could not determine a constructor for the tag '{node.tag}'"
            )
        if _is_map(node):
            for key, _ in node.value:
                if _is_scalar(key) and key.value == "<<" and not key.style:
                    raise ConfigError(
                        f"{source}: line {_line(key)}: merge keys (<<) are not part of YAML 1.2: repeat the entries"
                    )


class _Values:
    """Plain values of composed nodes.

    An alias is the node it names, so the values are kept by node: nine lines of aliases may stand for 10^9 of them.
    """

    def __init__(self, source: str, line: str, deepest: int) -> None:
        self.source = source
        #: how a message says the line
        self.line = line
        self.deepest = deepest
        self.known: dict[int, Plain] = {}

    def error(self, line: int, problem: str) -> ConfigError:
        return ConfigError(f"{self.source}:{self.line.format(line)} {problem}")

    def entries(self, node: "MappingNode", depth: int = 0) -> dict[Plain, Entry]:
        found: dict[Plain, Entry] = {}
        for key_node, value_node in node.value:
            line = _line(key_node)
            key = self.of(key_node, depth)
            if isinstance(key, (list, dict)):
                raise self.error(line, "a key must be a word or a number")
            if key in found:
                raise self.error(
                    line, f"key '{shortened(key)}' is given twice (first on line {found[key].line})"
                )
            found[key] = Entry(self.of(value_node, depth), line)
        return found

    def of(self, node: "Node", depth: int = 0) -> Plain:
        if depth > self.deepest:
            raise self.error(_line(node), "nested too deeply")
        if _is_scalar(node):
            return node.value if node.style in ("'", '"', "|", ">") else scalar(node.value)
        if id(node) not in self.known:
            if _is_list(node):
                self.known[id(node)] = [self.of(item, depth + 1) for item in node.value]
            elif _is_map(node):
                inner = self.entries(node, depth + 1)
                self.known[id(node)] = {key: entry.value for key, entry in inner.items()}
        return self.known[id(node)]
