"""Texts of presets: YAML with a line for each entry, and values as JSON, which is YAML, on one line."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def preset_text(
    heading: Sequence[str], document: Mapping[str, Any], opened: Callable[[Mapping[str, Any]], bool]
) -> str:
    """A document as the text of a preset.

    Parameters
    ----------
    heading
        Lines of comment.
    document
        Keys and plain values.
    opened
        Whether a map has a line for each of its entries; the others stand on one line.
    """
    lines = [f"# {line}" for line in heading]
    for key, value in document.items():
        if isinstance(value, dict) and opened(value):
            lines.append(f"{key}:")
            lines += [f"  {inner}: {_on_one_line(entry)}" for inner, entry in value.items()]
        else:
            lines.append(f"{key}: {_on_one_line(value)}")
    return "\n".join(lines) + "\n"


def _on_one_line(value: object) -> str:
    """A value without quotes around the keys of a map."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_on_one_line(entry)}" for key, entry in value.items()) + "}"
    return json.dumps(value)
