"""What a study comes to: every key with the value in effect, its unit, default and origin."""

import math
import os
from dataclasses import replace
from enum import Enum

from chakra.errors import ConfigError, UsageError
from chakra.generate.request.base import Request
from chakra.generate.request.frameworks import framework
from chakra.generate.request.requests import REQUESTS
from chakra.generate.request.transformers import TransformerRequest
from chakra.io.readable import counted, number_text
from chakra.io.shown import describe
from chakra.io.yaml import read_entries
from chakra.replay.config.key import Key
from chakra.replay.config.values_in_effect import FileInEffect, ValueInEffect
from chakra.sweep.keys import (
    CONSTRAINTS,
    FILES,
    KIND,
    METHOD,
    PARAMETERS,
    STUDY_KEYS,
    WORKLOAD,
    WORKLOAD_KEYS,
    workload_keys,
)
from chakra.sweep.preflight import check_study
from chakra.sweep.space import Parameter
from chakra.sweep.study import SECTIONS, Study, load_study


def values_in_effect(path: str | os.PathLike[str]) -> FileInEffect:
    """Every key of a study file.

    Parameters
    ----------
    path
        The file.

    Raises
    ------
    ConfigError
        As `load_study` and `check_study`.
    """
    source = os.fspath(path)
    study = load_study(source)
    check_study(study)
    lines = {name: entry.line for name, entry in read_entries(source).items()}
    rows: list[ValueInEffect] = []
    for key in STUDY_KEYS:
        line = lines.get(key.name)
        origin = f"{source}:{line}" if line else source if key.name in lines else "default"
        value = key.of(study)
        parts: list[tuple[str, object]] = [(key.name, value)]
        if key is WORKLOAD and isinstance(value, dict):
            rows += _workload(value, origin, source)
            continue
        if key.name in SECTIONS and isinstance(value, dict):
            parts = [(f"{key.name}.{name}", _plain(item)) for name, item in value.items()]
        elif key is PARAMETERS and study.parameters:
            _vary(rows, study.parameters, origin)
            continue
        elif key is METHOD:
            parts = [(key.name, str(study.method))]
        elif key is CONSTRAINTS:
            parts = [(key.name, [*(["memory"] * study.needs_memory), *study.constraints] or None)]
        rows += [ValueInEffect.of(key, item, origin, name=name) for name, item in parts]
    return FileInEffect("study", source, tuple(rows), _notes(study))


def _vary(rows: list[ValueInEffect], parameters: tuple[Parameter, ...], origin: str) -> None:
    """Put what parameters take into the rows of their keys, in place of values that no point has; others are appended."""
    at = {row.key: i for i, row in enumerate(rows)}
    for parameter in parameters:
        name, value = parameter.name, _values(parameter)
        i = at.get(name.replace("_", "-"))
        if i is None:
            rows.append(ValueInEffect.of(PARAMETERS, value, origin, name=name))
        else:
            rows[i] = replace(rows[i], value=value, source=origin)


def _workload(given: dict[str, object], origin: str, source: str) -> list[ValueInEffect]:
    """All parameters of the workload, those that the file leaves at their default, too."""
    keys: list[Key[object]] = list(WORKLOAD_KEYS)
    said: dict[str, tuple[object, str]] = {}
    if FILES.name not in given:
        kind = str(given.get(KIND.name, KIND.default))
        if kind not in REQUESTS:
            raise ConfigError(f"{source}: workload.kind: {kind!r} is not one of {', '.join(REQUESTS)}")
        keys += workload_keys(kind)
        try:
            request = REQUESTS[kind].from_mapping(
                {name: value for name, value in given.items() if name != KIND.name}
            )
        except UsageError as error:
            raise ConfigError(f"{source}: workload: {error}") from None
        said = _of_framework(request)
    named = {str(name).replace("_", "-"): value for name, value in given.items()}
    rows: list[ValueInEffect] = []
    value: object
    for key in keys:
        if key.name in named:
            value, where = _plain(named[key.name]), origin
        elif FILES.name in given:
            continue
        elif key.field in said:
            value, where = said[key.field]
        else:
            value, where = _default(key), "default"
        rows.append(ValueInEffect.of(key, value, where, name=f"{WORKLOAD.name}.{key.name}"))
    return rows


def _of_framework(request: Request) -> dict[str, tuple[object, str]]:
    """Parameters that the workload's framework sets, by field: the value in effect, and whose it is."""
    if not isinstance(request, TransformerRequest) or not request.framework:
        return {}
    profile = framework(request.framework)
    found = {}
    for name in profile.values_at(request.zero):
        value = getattr(request, name, None)
        plain = value.value if isinstance(value, Enum) else value
        found[name] = (plain, f"framework {profile.name}")
    return found


def _default(key: Key[object]) -> str | None:
    """A default in words; None where nothing stands for the value."""
    return None if key.default_in_words == "none" else key.default_in_words


def _plain(value: object) -> object:
    """A value as it is shown: lists of plain values; what is nested (nine lines may stand for 10^9 values) in words."""
    if isinstance(value, list):
        return [describe(item) if isinstance(item, list | dict) else item for item in value[:1000]]
    return describe(value) if isinstance(value, dict) else value


def _values(parameter: Parameter) -> object:
    """What a parameter takes, in short."""
    if parameter.values:
        return _plain(list(parameter.values))
    how = f" in steps of {number_text(parameter.step)}" if parameter.step is not None else ""
    how += f", {counted(parameter.count, 'value')}" if parameter.count is not None else ""
    return f"{number_text(parameter.low)} to {number_text(parameter.high)}{how}{', logarithmic' if parameter.log else ''}"


def _notes(study: Study) -> tuple[str, ...]:
    """How many points there are; they are counted one by one only where that is quick."""
    method = study.method
    if method.kind != "grid":
        return (f"{counted(method.number, 'point')}, {method.kind}",)
    most = math.prod(parameter.size() for parameter in study.parameters)
    if most > 100_000:
        return (f"up to {counted(most, 'point')} before constraints",)
    total = math.prod(len(parameter.listed()) for parameter in study.parameters)
    left = sum(1 for _ in study.points())
    return (f"{counted(total, 'point')}" + (f", of which constraints leave {left}" if left < total else ""),)
