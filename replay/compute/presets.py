"""Constants of operator times that ship with the package (``chakra/presets/compute``)."""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from chakra.arguments import checked
from chakra.errors import UsageError
from chakra.io.nearest import nearest
from chakra.io.shipped import shipped_document, shipped_names
from chakra.replay.compute.parameters import ComputeParameters, changed, compute_parameters_from

_FOLDER = "presets/compute"


def names_with_operator_times() -> tuple[str, ...]:
    """Machines whose operator times ship with the package, sorted."""
    return shipped_names(_FOLDER)


@checked
def compute_parameters(name: str, changes: Mapping[str, Any] | None = None) -> ComputeParameters:
    """Constants of the operator times of a preset's accelerator.

    Parameters
    ----------
    name
        Name of the preset.
    changes
        Constants that replace the preset's, by the keys of its file: ``{"memory": {"efficiency": 0.8}}``.

    Raises
    ------
    UsageError
        No such preset, or none with operator times.
    ConfigError
        A change that does not fit.
    """
    return _preset(name, json.dumps(changes or {}, sort_keys=True))


@lru_cache(maxsize=64)
def _preset(name: str, changes: str) -> ComputeParameters:
    if name not in names_with_operator_times():
        raise UsageError(
            f"no operator times for {name!r}{nearest(name, names_with_operator_times())}; there are: "
            f"{', '.join(names_with_operator_times())}"
        )
    made = compute_parameters_from(shipped_document(_FOLDER, name), name)
    given = json.loads(changes)
    return changed(made, given, f"{name} with changes") if given else made
