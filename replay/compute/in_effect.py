"""Where a run's operators take the times of a model: the one that a system file names."""

import json
from functools import lru_cache
from typing import Any

from chakra.errors import ConfigError, UsageError
from chakra.io.limits import MAX_DOCUMENT_BYTES
from chakra.io.text import read_text
from chakra.io.yaml import parse_document
from chakra.replay.compute.frameworks import framework_changes
from chakra.replay.compute.parameters import ComputeParameters, changed, compute_parameters_from
from chakra.replay.compute.presets import compute_parameters
from chakra.replay.config.model import System
from chakra.replay.options import RunOptions

#: key of a map that begins with a preset's constants
BASE = "base"


def why_no_operator_times(system: System, options: RunOptions) -> str | None:
    """Why an operator model that the system file names has no effect; None if it has, or if none is named."""
    if system.operator_model is None:
        return None
    if options.compat is not None:
        return f"compat {options.compat!r} has the compute times of ASTRA-sim"
    if options.ideal:
        return "--ideal asks for the peak"
    if system.replay_only:
        return "replay-only takes recorded times"
    return None


def operator_model(
    system: System, options: RunOptions, framework: str | None = None
) -> ComputeParameters | None:
    """The constants by which a run's operators take their times; None: they take those of the roofline.

    A preset's are those of its machine, with what the framework's program replaces; a map's own entries come last.

    Raises
    ------
    ConfigError
        Constants that are none.
    """
    if system.operator_model is None or why_no_operator_times(system, options) is not None:
        return None
    parameters = _parameters(system.operator_model, system.source, framework)
    return parameters.at(system.peak_perf_tflops, system.local_mem_bw_gbps or None)


def _parameters(text: str, source: str, framework: str | None) -> ComputeParameters:
    """Constants of a file, which may have changed since it was last read; or by name, or as JSON."""
    if text.endswith((".yml", ".yaml")) and not text.startswith("{"):
        return _parameters_of_file(read_text(text, most=MAX_DOCUMENT_BYTES), text, framework)
    return _kept_parameters(text, source, framework)


@lru_cache(maxsize=64)
def _parameters_of_file(content: str, path: str, framework: str | None) -> ComputeParameters:
    document = parse_document(content, path)
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: must be a map of constants of operator times")
    return _from_map(document, path, framework)


@lru_cache(maxsize=64)
def _kept_parameters(text: str, source: str, framework: str | None) -> ComputeParameters:
    where = f"{source}: operator-model"
    if text.startswith("{"):
        return _from_map(json.loads(text), where, framework)
    return _named(text, where, framework)


def _from_map(document: dict[str, Any], where: str, framework: str | None) -> ComputeParameters:
    rest = dict(document)
    base = rest.pop(BASE, None)
    if base is None:
        return compute_parameters_from(rest, where)
    if not isinstance(base, str):
        raise ConfigError(f"{where}: {BASE} must be the name of a preset, not {base!r}")
    return changed(_named(base, where, framework), rest, where)


def _named(name: str, where: str, framework: str | None) -> ComputeParameters:
    try:
        return compute_parameters(name, dict(framework_changes(framework, name)) if framework else None)
    except UsageError as exc:
        raise ConfigError(f"{where}: {exc}") from None
