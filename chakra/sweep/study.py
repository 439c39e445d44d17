"""Study files: what is fixed, what varies, what counts.

::

    study: gpt3-on-1024-h100
    workload: {kind: transformer, model: gpt3-175b, npus: 1024, global-batch: 1536, fuse: true}
    platform: hgx-h100 over 400G rail-optimised fat tree      # any words of chakra platform
    network: {dim1.bandwidth: 40}                             # replaces the platform's, or a file's path
    system: {preferred-dataset-splits: 4}                     # keys of the system file, or a file's path
    replay: {comm-streams: 4}                                 # options of simulate
    parameters:
      workload.tp: [1, 2, 4, 8]
      workload.pp: {range: [1, 16], count: 5, log: true}
    method: {random: 200, seed: 1}                            # or grid (default), or {optuna: 100, seed: 1}
    constraints: [memory, "workload_tp * workload_pp <= 128"]
    objective: step_ms
    pareto: [step_ms, memory_gb]
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chakra.arguments import check_fields, checked
from chakra.errors import ConfigError, UsageError
from chakra.io.shown import describe
from chakra.io.yaml import read_document
from chakra.sweep.expressions import Expression, plain_name
from chakra.sweep.keys import STUDY_KEYS
from chakra.sweep.space import MAX_POINTS, Parameter, Point, check_space, grid, parameter_from, sampled

#: metrics of a point and whether more is better
METRICS: dict[str, bool] = {
    "step_ms": False,
    "exposed_ms": False,
    "memory_gb": False,
    "samples_per_s": True,
    "tokens_per_s": True,
    "flops_utilisation": True,
    "npus": False,
}
_KEYS = {key.name for key in STUDY_KEYS}
SECTIONS = ("workload", "network", "system", "replay")


@dataclass(frozen=True, slots=True)
class Method:
    """How points are chosen: ``grid``, ``random`` (``number`` samples) or ``optuna`` (``number`` trials).

    Attributes
    ----------
    kind
        "grid", "random" or "optuna".
    number
        Samples or trials.
    seed
        Seed of what is random.
    """

    kind: str = "grid"
    number: int = 0
    seed: int = 0
    #: Optuna: points asked for at a time; part of the study, so that the number of workers changes nothing
    batch: int = 8

    def __post_init__(self) -> None:
        check_fields(self)
        if self.kind not in ("grid", "random", "optuna"):
            raise UsageError(f"kind: {self.kind!r} is not one of grid, random, optuna")
        if min(self.number, self.seed) < 0 or self.batch < 1:
            raise UsageError("number and seed must be at least 0, batch at least 1")


@dataclass(frozen=True, slots=True)
class Study:
    """A study file's content, checked.

    ``fixed`` holds the sections as given; ``needs_memory`` says whether the memory constraint applies.

    Attributes
    ----------
    name
        Title.
    fixed
        Sections of the file: workload, platform, network, system, replay.
    parameters
        What varies.
    method
        How points are chosen.
    needs_memory
        Whether peak memory limits the points.
    constraints
        Comparisons that a point must meet.
    objective
        Metric that ranks the points.
    pareto
        The two metrics of the front.
    source
        File, for messages.
    """

    name: str
    fixed: Mapping[str, Any]
    parameters: tuple[Parameter, ...]
    method: Method
    needs_memory: bool
    constraints: tuple[str, ...]
    objective: str
    pareto: tuple[str, str]
    source: str

    def points(self) -> Iterator[Point]:
        """Points of a grid or random study, without those that a constraint on parameters excludes.

        Raises
        ------
        ConfigError
            Called for an optimised study, or a constraint that cannot be evaluated.
        """
        if self.method.kind == "grid":
            points = grid(self.parameters)
        elif self.method.kind == "random":
            points = sampled(self.parameters, self.method.number, self.method.seed)
        else:
            raise ConfigError(f"{self.source}: an optimised study has no list of points")
        return (point for point in points if self.admits(point))

    @checked
    def admits(self, point: Point) -> bool:
        """Whether a point meets all constraints on parameters (those on results are checked after the run)."""
        names = self.names(point)
        for text in self.constraints:
            expression = Expression(text, f"{self.source}: constraints")
            if expression.names <= names.keys() and not expression.value(names):
                return False
        return True

    @checked
    def names(self, point: Point) -> dict[str, Any]:
        """Values that expressions may use: every fixed and varied plain parameter, also without its section."""
        values = {}
        for section in SECTIONS:
            given = self.fixed.get(section)
            if isinstance(given, dict):
                values.update({f"{section}.{key}": value for key, value in given.items()})
        values.update(point)
        out = {}
        for name, value in values.items():
            out[plain_name(name)] = value
            out.setdefault(plain_name(name.split(".", 1)[-1]), value)
        return out

    @checked
    def merged(self, point: Point) -> dict[str, Any]:
        """The sections with a point's values in place: all that a run of this point depends on.

        Raises
        ------
        UsageError
            A name that is in no section.
        """
        out: dict[str, Any] = {key: self.fixed.get(key) for key in ("platform", *SECTIONS)}
        for section in SECTIONS:
            given = out[section]
            out[section] = (
                dict(given) if isinstance(given, dict) else {} if given is None else {"file": given}
            )
        for name, value in point.items():
            section, _, key = name.partition(".")
            if section not in ("platform", *SECTIONS):
                raise UsageError(f"point: {name!r} is neither 'platform' nor in a section of {self.source}")
            if section == "platform":
                out["platform"] = value
            else:
                out[section][key] = value
        return out


@checked
def load_study(path: str | Path) -> Study:
    """Read and check a study file.

    Parameters
    ----------
    path
        The YAML file.

    Raises
    ------
    ConfigError
        Not YAML, an unknown key, or a value that makes no sense; with the key.
    """
    return study_from(read_document(Path(path)), str(path))


@checked
def study_from(document: Any, source: str) -> Study:
    """A study from a plain document; see :func:`load_study`.

    Parameters
    ----------
    document
        What a study file holds.
    source
        What it is called in messages.

    Raises
    ------
    ConfigError
        Naming the key and what would be right.
    """
    if not isinstance(document, dict):
        raise ConfigError(f"{source}: a study is a map with 'workload', 'parameters' and more")
    unknown = sorted(str(key) for key in set(document) - _KEYS)
    if unknown:
        raise ConfigError(f"{source}: unknown key {unknown[0]!r}; known keys: {', '.join(sorted(_KEYS))}")
    for section in SECTIONS:
        if not isinstance(document.get(section, {}), dict | str):
            raise ConfigError(f"{source}: {section} must be a map or the path of a file")
    workload = document.get("workload")
    if not isinstance(workload, dict):
        raise ConfigError(
            f"{source}: workload must be a map with 'kind', or with 'files' (a prefix or manifest)"
        )
    if not isinstance(document.get("platform", ""), str):
        raise ConfigError(f"{source}: platform must be a text")
    parameters = _parameters(document, source)
    if (
        "platform" not in document
        and "network" not in document
        and not any(p.name == "platform" for p in parameters)
    ):
        raise ConfigError(f"{source}: needs a platform, or network and system files")
    constraints = document.get("constraints", [])
    if not isinstance(constraints, list) or not all(isinstance(item, str) for item in constraints):
        raise ConfigError(f"{source}: constraints must be a list of texts")
    texts = tuple(item for item in constraints if item != "memory")
    for text in texts:
        Expression(text, f"{source}: constraints")
    objective = _metric(document.get("objective", "step_ms"), f"{source}: objective")
    pareto = document.get("pareto", ["step_ms", "memory_gb"])
    if not isinstance(pareto, list) or len(pareto) != 2:
        raise ConfigError(f"{source}: pareto must be a list of two metrics")
    first, second = (_metric(name, f"{source}: pareto") for name in pareto)
    method = _method(document.get("method", "grid"), source)
    check_space(parameters, source, crossed=method.kind == "grid")
    return Study(
        str(document.get("study", Path(source).stem)),
        {key: document.get(key) for key in ("platform", *SECTIONS)},
        parameters, method, "memory" in constraints, texts, objective,
        (first, second), source,
    )  # fmt: skip


def _parameters(document: Mapping[str, Any], source: str) -> tuple[Parameter, ...]:
    given = document.get("parameters", {})
    if not isinstance(given, dict):
        raise ConfigError(f"{source}: parameters must be a map")
    out = []
    for name, value in given.items():
        section, dot, key = str(name).partition(".")
        if name != "platform" and (section not in SECTIONS or not dot or not key):
            raise ConfigError(
                f"{source}: parameter {name!r} must be 'platform' or start with {'., '.join(SECTIONS)}."
            )
        out.append(parameter_from(str(name), value, source))
    return tuple(out)


def _metric(name: Any, where: str) -> str:
    if not isinstance(name, str) or name not in METRICS:
        raise ConfigError(f"{where}: {describe(name)} is not one of {', '.join(METRICS)}")
    return str(name)


def _method(value: Any, source: str) -> Method:
    if value == "grid":
        return Method()
    kinds = ("random", "optuna")
    if isinstance(value, dict):
        unknown = sorted(str(key) for key in set(value) - {"seed", "batch", *kinds})
        chosen = [kind for kind in kinds if kind in value]
        numbers = [value.get(key, default) for key, default in (("seed", 0), ("batch", 8))]
        if not unknown and len(chosen) == 1:
            number = value[chosen[0]]
            if (
                type(number) is int
                and 1 <= number <= MAX_POINTS
                and all(type(x) is int and x >= 0 for x in numbers)
                and numbers[1]
            ):
                return Method(chosen[0], number, numbers[0], numbers[1])
    raise ConfigError(
        f"{source}: method must be grid, {{random: SAMPLES, seed: N}} or {{optuna: TRIALS, seed: N, batch: N}}, "
        f"not {describe(value)}"
    )
