"""Long lists of plain rows in YAML maps, such as the links of a network, read without a YAML library.

It takes 50 us a value, so that a list of 100,000 links took half a minute. Rows are taken out of the text, whose other
lines keep their numbers, and so the library's messages theirs.
"""

import re
from collections.abc import Callable
from typing import Any, TypeAlias

from chakra.io.limits import MAX_YAML_VALUES

#: rows of values
Rows: TypeAlias = list[list[Any]]

_KEY = re.compile(r"([a-z_]+): *(?: #[ -~]*)?")
#: a list of unquoted words and numbers, which need no YAML rules
_ROW = re.compile(r"( *)- +\[ *([A-Za-z0-9._+-]+(?: *, *[A-Za-z0-9._+-]+)*) *\] *(?: #[ -~]*)?")
_BLANK = re.compile(r" *(?:#.*)?")
#: a key and its value on one line, without what may go on in the next one
_OTHER = re.compile(r"""[a-z_]+: [^"'|>&*!%@`]*""")
_NUMBER = re.compile(r"-[0-9.]")
#: what ends a line in YAML, too
_BREAK = re.compile("[\r\x85\u2028\u2029]")


def without_rows(text: str, value_of: Callable[[str], Any]) -> tuple[str, dict[str, Rows]]:
    """The text with empty lists for those of plain rows, and the rows of each by key.

    A text that is more than keys with values of one line and such lists is left as it is.

    Parameters
    ----------
    text
        A map.
    value_of
        Value of an unquoted scalar.
    """
    if _BREAK.search(text):
        return text, {}
    lines = text.split("\n")
    found: dict[str, Rows] = {}
    known: dict[str, Any] = {}
    rows: Rows | None = None
    key, indent, count = "", None, 0
    for number, line in enumerate(lines):
        row = _ROW.fullmatch(line) if rows is not None else None
        if row is not None and rows is not None:
            items = [item.strip(" ") for item in row[2].split(",")]
            count += len(items) + 1
            if indent not in (None, row[1]) or count > MAX_YAML_VALUES // 2:
                return text, {}
            indent = row[1]
            for item in items:
                if item not in known:
                    if item[0] == "-" and not _NUMBER.match(item):
                        return text, {}  # an indicator
                    known[item] = value_of(item)
            rows.append([known[item] for item in items])
            lines[number] = ""
        elif not _BLANK.fullmatch(line):
            head = _KEY.fullmatch(line)
            if head is None and (not _OTHER.fullmatch(line) or not _closed(line)):
                return text, {}
            key, indent, rows = (head[1] if head else ""), None, None
            if head is not None:
                if key in found:
                    return text, {}
                rows = found[key] = []
    found = {key: rows for key, rows in found.items() if rows}
    for number, line in enumerate(lines):
        head = _KEY.fullmatch(line)
        if head is not None and head[1] in found:
            lines[number] = f"{head[1]}: []"
    return "\n".join(lines), found


def _closed(line: str) -> bool:
    """Whether brackets end on the line."""
    return line.count("[") == line.count("]") and line.count("{") == line.count("}")
