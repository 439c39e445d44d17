"""YAML documents that ship with the package, a folder for each kind: presets of machines, of costs, of frameworks."""

from functools import lru_cache
from importlib import resources
from typing import Any

from chakra.io.yaml import parse_document

_SUFFIX = ".yml"


@lru_cache(maxsize=16)
def shipped_names(folder: str) -> tuple[str, ...]:
    """Names of the documents in a folder of the package ``chakra``, sorted."""
    entries = resources.files("chakra").joinpath(folder).iterdir()
    return tuple(
        sorted(entry.name.removesuffix(_SUFFIX) for entry in entries if entry.name.endswith(_SUFFIX))
    )


def shipped_document(folder: str, name: str) -> dict[str, Any]:
    """One of them, by its name.

    Raises
    ------
    ConfigError
        It is no YAML that can be read.
    """
    file = name + _SUFFIX
    text = resources.files("chakra").joinpath(folder, file).read_text(encoding="utf-8")
    document: dict[str, Any] = parse_document(text, file)
    return document
