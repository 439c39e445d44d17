"""Texts of presets: YAML with a line for each entry, and values as JSON, which is YAML, on one line."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from chakra.io.yaml_text import block_text, entry_text


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
            lines.append(block_text(key, value, quoted=True))
        else:
            lines.append(entry_text(key, value, quoted=True))
    return "\n".join(lines) + "\n"
