"""Operator times of a framework's program: constants that replace a machine's (``chakra/presets/frameworks``)."""

from collections.abc import Mapping
from functools import lru_cache
from importlib import resources
from typing import Any

from chakra.io.yaml import parse_document
from chakra.replay.compute.parameters import merged

_FOLDER = "presets/frameworks"
#: key of what holds on every machine, and of what holds on some
_ALL, _MACHINES = "operators", "machines"


@lru_cache(maxsize=1)
def frameworks_with_times() -> tuple[str, ...]:
    """Frameworks that have constants of their own, sorted."""
    folder = resources.files("chakra").joinpath(_FOLDER)
    return tuple(sorted(e.name.removesuffix(".yml") for e in folder.iterdir() if e.name.endswith(".yml")))


def framework_changes(framework: str, machine: str) -> Mapping[str, Any]:
    """Constants of a machine that a framework's program replaces; none for a framework that is not known."""
    if framework not in frameworks_with_times():
        return {}
    document = _document(framework)
    changes: Mapping[str, Any] = document.get(_ALL) or {}
    return merged(changes, (document.get(_MACHINES) or {}).get(machine) or {})


@lru_cache(maxsize=16)
def _document(framework: str) -> dict[str, Any]:
    text = resources.files("chakra").joinpath(_FOLDER, f"{framework}.yml").read_text(encoding="utf-8")
    document: dict[str, Any] = parse_document(text, f"{framework}.yml")
    return document
