"""Operator times of a framework's program: constants that replace a machine's (``chakra/presets/frameworks``)."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from chakra.io.shipped import shipped_document, shipped_names
from chakra.replay.compute.parameters import merged

_FOLDER = "presets/frameworks"
#: key of what holds on every machine, and of what holds on some
_ALL, _MACHINES = "operators", "machines"
#: key of what the constants of a machine come from, by preset
_TUNED = "tuned-on"


def frameworks_with_times() -> tuple[str, ...]:
    """Frameworks that have constants of their own, sorted."""
    return shipped_names(_FOLDER)


def framework_changes(framework: str, machine: str) -> Mapping[str, Any]:
    """Constants of a machine that a framework's program replaces; none for a framework that is not known."""
    if framework not in frameworks_with_times():
        return {}
    changes: Mapping[str, Any] = framework_document(framework).get(_ALL) or {}
    return merged(changes, machine_changes(framework, machine))


def machine_changes(framework: str, machine: str) -> Mapping[str, Any]:
    """Constants that a framework's program replaces on one machine only; none for a framework that is not known."""
    if framework not in frameworks_with_times():
        return {}
    return (framework_document(framework).get(_MACHINES) or {}).get(machine) or {}


def machine_notes(framework: str, machine: str) -> list[str]:
    """Which constants a framework's program replaces on one machine only, and what they come from."""
    changes = machine_changes(framework, machine)
    if not changes:
        return []
    told = ", ".join(f"{family} {_constants(values)}" for family, values in changes.items())
    origin = (framework_document(framework).get(_TUNED) or {}).get(machine)
    where = f", tuned on {origin}" if origin else ""
    return [
        f"on {machine} alone the program of {framework} has {told}{where}; other machines are compared without it"
    ]


def _constants(values: object) -> str:
    """A number, or numbers by name."""
    if isinstance(values, Mapping):
        return " ".join(f"{key} {value:g}" for key, value in values.items())
    return f"{values:g}" if isinstance(values, int | float) else str(values)


@lru_cache(maxsize=16)
def framework_document(framework: str) -> dict[str, Any]:
    """The file of a framework's constants: ``operators`` on every machine, ``machines`` by preset."""
    return shipped_document(_FOLDER, framework)
