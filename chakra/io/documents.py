"""Documents that commands write: strict JSON, in one place.

Figures that are no finite numbers are null (`document_text`) or refused (all others): NaN and infinity are not JSON.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping

#: one value as a line of JSON
Line = Callable[[object], str]

_HIDDEN = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def document_text(
    value: object,
    indent: int | None = None,
    *,
    default: Callable[[object], object] | None = None,
    sort_keys: bool = False,
) -> str:
    """A document as JSON (RFC 8259), which knows no NaN and no infinity: a figure that there is not is null.

    Parameters
    ----------
    value
        Plain data.
    indent
        Spaces of each level; None: one line.
    default
        What stands for a value that JSON has no form for; None: such values are refused.
    sort_keys
        Whether keys stand in the order of the alphabet.

    Examples
    --------
    >>> document_text({"mean": float("nan"), "rows": [1, float("inf")]})
    '{"mean": null, "rows": [1, null]}'
    """
    return json.dumps(_finite(value), indent=indent, allow_nan=False, default=default, sort_keys=sort_keys)


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def ascii_text(value: object) -> str:
    """One line of JSON in ASCII; names cut in the middle of a character stay what they are, as escapes."""
    return json.dumps(value, allow_nan=False)


def json_text(value: object) -> str:
    """One line of JSON with letters as they are, but what commands a terminal or turns text around as escapes."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return _HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def lined_text(
    document: Mapping[str, object], *, indent: int = 2, entries: bool = False, line: Line = ascii_text
) -> str:
    """An object with a line for each key, short and yet readable.

    Parameters
    ----------
    document
        Keys and plain values.
    indent
        Spaces before a key.
    entries
        Whether the entries of lists and maps below a key have lines of their own, too.
    line
        How a value becomes a line.

    Examples
    --------
    >>> print(lined_text({"a": [0, 1], "b": [2]}), end="")
    {
      "a": [0, 1],
      "b": [2]
    }
    """
    return "".join(_lined(document, indent, indent, line, line if not entries else None)) + "\n"


def _lined(
    value: Mapping[str, object] | list[object], indent: int, step: int, line: Line, inner: Line | None
) -> Iterator[str]:
    """A map or list with a line for each entry; without ``inner``, maps and lists in it are written so as well."""
    ends, heads, items = (
        ("{}", [f"{line(key)}: " for key in value], list(value.values()))
        if isinstance(value, Mapping)
        else ("[]", [""] * len(value), value)
    )
    yield ends[0]
    separator = "\n"
    for head, item in zip(heads, items, strict=True):
        yield separator + " " * indent + head
        if inner is None and isinstance(item, dict | list) and item:
            yield from _lined(item, indent + step, step, line, line)
        else:
            yield line(item)
        separator = ",\n"
    yield "\n" + " " * (indent - step) + ends[1]


def streamed(
    head: Mapping[str, object], key: str, items: Iterable[str], line: Line = ascii_text
) -> Iterator[str]:
    """An object whose last key holds a list of any length, piece by piece, an item a line.

    Parameters
    ----------
    head
        What stands before the list, a key a line.
    key
        The list's key.
    items
        Its items, as JSON.
    line
        How a value of ``head`` becomes a line.
    """
    yield "{"
    for name, value in head.items():
        yield f"{line(name)}: {line(value)},\n"
    yield f"{line(key)}: ["
    separator = "\n"
    for item in items:
        yield separator + item
        separator = ",\n"
    yield "\n]}\n"


def with_first_key(text: str, key: str, value: object) -> str:
    """The text of an object with another key before its first one; the rest, which may be large, is not decoded."""
    begin = text.index("{") + 1
    rest = text[begin:]
    comma = "" if rest.lstrip().startswith("}") else ","
    return f"{text[:begin]}\n  {ascii_text(key)}: {ascii_text(value)}{comma}{rest}"
