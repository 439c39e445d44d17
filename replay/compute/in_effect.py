"""Where a run's operators take the times of a model: the one that a system file names."""

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from chakra.errors import ChakraError, ConfigError, UsageError
from chakra.io.limits import MAX_DOCUMENT_BYTES
from chakra.io.text import read_text
from chakra.io.yaml import parse_document
from chakra.replay.compute.frameworks import framework_changes
from chakra.replay.compute.measured_products import MeasuredProducts
from chakra.replay.compute.parameters import ComputeParameters, changed, compute_parameters_from
from chakra.replay.compute.presets import compute_parameters, names_with_operator_times
from chakra.replay.compute.product_tables import has_products, read_products
from chakra.replay.config import silicon
from chakra.replay.config.keys import COLLECTIVE_TIMES, OPERATOR_TIMES
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


def product_names(system: System, options: RunOptions) -> tuple[tuple[str, ...], str]:
    """Names of measured matrix products that the options or else the system file give, and who asks for them.

    Raises
    ------
    ConfigError
        A file that cannot be read.
    """
    return measured_names(
        options, has_products, system.operator_times, f"{system.source}: {OPERATOR_TIMES.name}"
    )


def measured_names(
    options: RunOptions, fits: Callable[[str], bool], others: tuple[str, ...], source: str
) -> tuple[tuple[str, ...], str]:
    """Names of the options that fit, or else those of the system file, and who asks for them.

    Raises
    ------
    ConfigError
        A file that cannot be read.
    """
    try:
        names = tuple(name for name in options.measured if fits(name))
    except ChakraError as exc:
        raise ConfigError(f"--measured: {exc}") from None
    return (names, "--measured") if names else (others, source)


def measured_products(
    system: System, options: RunOptions, parameters: ComputeParameters | None
) -> MeasuredProducts | None:
    """Measured matrix products in place of the model's, where they are asked for; `parameters` are those of the model.

    Raises
    ------
    ConfigError
        Products that cannot be read, or a machine that is not the one that was measured.
    """
    if options.compat is not None:
        return None
    names, asked = product_names(system, options)
    if not names:
        return None
    if system.operator_model is None and not all(silicon.named(name) for name in names):
        raise ConfigError(
            f"{asked}: measured times of matrix products stand in for operator times; name a model with operator-model "
            "in the system file"
        )
    if system.operator_model is None or parameters is None:
        return None
    own = _parameters(system.operator_model, system.source, None)
    if own.at(system.peak_perf_tflops, system.local_mem_bw_gbps or None) != own:
        alone = f"; {COLLECTIVE_TIMES.name} of the system file takes measured collectives alone"
        raise ConfigError(
            f"{asked}: measured times of matrix products are those of {own.name} as it is, and peak-perf or local-mem-bw "
            f"are not its own{alone if options.measured else ''}"
        )
    known = system.operator_model in names_with_operator_times()
    return read_products(names, system.operator_model if known else own.name, asked)
