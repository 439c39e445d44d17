"""Constants of operator times that ship with the package (``chakra/presets/compute``)."""

import json
from collections.abc import Mapping
from functools import lru_cache
from importlib import resources
from typing import Any

from chakra.arguments import checked
from chakra.errors import UsageError
from chakra.io.nearest import nearest
from chakra.io.yaml import parse_document
from chakra.replay.compute.parameters import ComputeParameters, changed, compute_parameters_from

_FOLDER = "presets/compute"


@lru_cache(maxsize=1)
def names_with_operator_times() -> tuple[str, ...]:
    """Machines whose operator times ship with the package, sorted."""
    folder = resources.files("chakra").joinpath(_FOLDER)
    return tuple(sorted(e.name.removesuffix(".yml") for e in folder.iterdir() if e.name.endswith(".yml")))


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
    text = resources.files("chakra").joinpath(_FOLDER, f"{name}.yml").read_text(encoding="utf-8")
    made = compute_parameters_from(parse_document(text, f"{name}.yml"), name)
    given = json.loads(changes)
    return changed(made, given, f"{name} with changes") if given else made
