"""What a study comes to: every key with the value in effect, its unit, default and origin."""

import math
import os
from typing import Any

from chakra.errors import ConfigError, UsageError
from chakra.generate.request.requests import REQUESTS
from chakra.io.shown import describe
from chakra.io.yaml import read_entries
from chakra.replay.config.values_in_effect import Explanation, Row
from chakra.sweep.keys import STUDY_KEYS, WORKLOAD_KEYS, workload_keys
from chakra.sweep.preflight import check_study
from chakra.sweep.space import Parameter
from chakra.sweep.study import SECTIONS, Study, load_study


def explain_study(path: str | os.PathLike[str]) -> Explanation:
    """Explain a study file; raises ConfigError as `load_study` does."""
    source = os.fspath(path)
    study = load_study(source)
    check_study(study)
    lines = {key: entry.line for key, entry in read_entries(source).items()}
    values: dict[str, Any] = {key.name: study.fixed.get(key.name) for key in STUDY_KEYS}
    method = study.method
    values |= {
        "study": study.name,
        "parameters": None,
        "method": method.kind
        if method.kind == "grid"
        else f"{method.kind}: {method.number}, seed: {method.seed}"
        + (f", batch: {method.batch}" if method.kind == "optuna" else ""),
        "constraints": [*(["memory"] if study.needs_memory else []), *study.constraints] or None,
        "objective": study.objective,
        "pareto": list(study.pareto),
    }
    rows = []
    for key in STUDY_KEYS:
        line = lines.get(key.name)
        origin = f"{source}:{line}" if line else source if key.name in lines else "default"
        value = values[key.name]
        parts: list[tuple[str, Any]] = [(key.name, value)]
        if key.name == "workload" and isinstance(value, dict):
            rows += _workload(value, origin, source)
            continue
        if key.name in SECTIONS and isinstance(value, dict):
            parts = [(f"{key.name}.{name}", _plain(item)) for name, item in value.items()]
        elif key.name == "parameters" and study.parameters:
            parts = [(parameter.name, _values(parameter)) for parameter in study.parameters]
        rows += [
            Row(name, item, key.unit, key.default, origin, key.meaning, key.allowed) for name, item in parts
        ]
    return Explanation("study", source, tuple(rows), _notes(study))


def _workload(given: dict[str, Any], origin: str, source: str) -> list[Row]:
    """All parameters of the workload, those that the file leaves at their default, too."""
    keys = list(WORKLOAD_KEYS)
    if "files" not in given:
        kind = given.get("kind", "transformer")
        if kind not in REQUESTS:
            raise ConfigError(f"{source}: workload.kind: {kind!r} is not one of {', '.join(REQUESTS)}")
        keys += workload_keys(kind)
        try:
            REQUESTS[kind].from_mapping({name: value for name, value in given.items() if name != "kind"})
        except UsageError as error:
            raise ConfigError(f"{source}: workload: {error}") from None
    named = {str(name).replace("_", "-"): value for name, value in given.items()}
    return [
        Row(
            f"workload.{key.name}",
            _plain(named[key.name])
            if key.name in named
            else (None if key.default == "none" else key.default),
            key.unit,
            key.default,
            origin if key.name in named else "default",
            key.meaning,
            key.allowed,
        )
        for key in keys
        if key.name in named or "files" not in given
    ]


def _plain(value: Any) -> Any:
    """A value as it is shown: lists of plain values; what is nested (nine lines may stand for 10^9 values) in words."""
    if isinstance(value, list):
        return [describe(item) if isinstance(item, list | dict) else item for item in value[:1000]]
    return describe(value) if isinstance(value, dict) else value


def _values(parameter: Parameter) -> Any:
    """What a parameter takes, in short."""
    if parameter.values:
        return _plain(list(parameter.values))
    how = f" in steps of {parameter.step:g}" if parameter.step is not None else ""
    how += f", {parameter.count} values" if parameter.count is not None else ""
    return f"{parameter.low:g} to {parameter.high:g}{how}{', logarithmic' if parameter.log else ''}"


def _notes(study: Study) -> tuple[str, ...]:
    """How many points there are; they are counted one by one only where that is quick."""
    method = study.method
    if method.kind != "grid":
        return (f"{method.number} points, {method.kind}",)
    most = math.prod(parameter.size() for parameter in study.parameters)
    if most > 100_000:
        return (f"up to {most} points before constraints",)
    total = math.prod(len(parameter.listed()) for parameter in study.parameters)
    left = sum(1 for _ in study.points())
    return (f"{total} points" + (f", of which constraints leave {left}" if left < total else ""),)
