"""Operator times of a framework's program: constants that replace a machine's (``chakra/presets/frameworks``)."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from chakra.io.shipped import shipped_document, shipped_names
from chakra.replay.compute.parameters import merged

_FOLDER = "presets/frameworks"
#: key of what holds on every machine, and of what holds on some
_ALL, _MACHINES = "operators", "machines"


def frameworks_with_times() -> tuple[str, ...]:
    """Frameworks that have constants of their own, sorted."""
    return shipped_names(_FOLDER)


def framework_changes(framework: str, machine: str) -> Mapping[str, Any]:
    """Constants of a machine that a framework's program replaces; none for a framework that is not known."""
    if framework not in frameworks_with_times():
        return {}
    document = framework_document(framework)
    changes: Mapping[str, Any] = document.get(_ALL) or {}
    return merged(changes, (document.get(_MACHINES) or {}).get(machine) or {})


@lru_cache(maxsize=16)
def framework_document(framework: str) -> dict[str, Any]:
    """The file of a framework's constants: ``operators`` on every machine, ``machines`` by preset."""
    return shipped_document(_FOLDER, framework)
