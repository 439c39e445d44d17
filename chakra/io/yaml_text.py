"""Writing YAML 1.2: plain values on one line each, which `chakra.io.yaml` and other readers take for the same values."""

import math
import re
from collections.abc import Mapping, Sequence

from chakra.io.documents import json_text

_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
#: words that readers of YAML 1.1 or 1.2 take for other values
_WORDS = frozenset(("true", "false", "null", "yes", "no", "on", "off", "y", "n"))


def word_text(word: str) -> str:
    """A text: as it is where no reader takes that for anything else, or else in quotes.

    >>> word_text("nvlink"), word_text("on"), word_text("a: b")
    ('nvlink', '"on"', '"a: b"')
    """
    return word if _BARE.fullmatch(word) and word.lower() not in _WORDS else json_text(word)


def flow_text(value: object, *, quoted: bool = False) -> str:
    """A value on one line.

    Parameters
    ----------
    value
        Plain data.
    quoted
        Whether texts other than keys always stand in quotes.

    Raises
    ------
    ValueError
        For NaN and infinity: readers disagree on how those are written.

    Examples
    --------
    >>> flow_text({"from": 0, "to": "spine", "speeds": [1.5, None]})
    '{from: 0, to: spine, speeds: [1.5, null]}'
    """
    if isinstance(value, dict):
        entries = (f"{word_text(key)}: {flow_text(entry, quoted=quoted)}" for key, entry in value.items())
        return "{" + ", ".join(entries) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(flow_text(entry, quoted=quoted) for entry in value) + "]"
    if isinstance(value, str) and not quoted:
        return word_text(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is no number of YAML's core schema that all readers know")
    return json_text(value)


def entry_text(key: str, value: object, comment: str = "", *, quoted: bool = False) -> str:
    """A line ``key: value``, without its end; lists as network files have them.

    >>> entry_text("npus_count", [8, 2])
    'npus_count: [ 8, 2 ]'
    """
    shown = flow_text(value, quoted=quoted)
    if isinstance(value, list | tuple) and not quoted:
        shown = f"[ {shown[1:-1]} ]"
    return f"{word_text(key)}: {shown}" + (f"  # {comment}" if comment else "")


def block_text(
    key: str, value: Sequence[object] | Mapping[str, object], *, quoted: bool = False, comment: str = ""
) -> str:
    """A list or map with a line for each entry, without the end of the last line."""
    head = f"{word_text(key)}:" + (f"  # {comment}" if comment else "")
    rows = (
        [f"- {flow_text(entry, quoted=quoted)}" for entry in value]
        if not isinstance(value, Mapping)
        else [f"  {entry_text(inner, entry, quoted=quoted)}" for inner, entry in value.items()]
    )
    return "\n".join([head, *rows])
