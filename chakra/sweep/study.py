"""Study files: what is fixed, what varies, what counts.

::

    study: gpt3-on-1024-h100
    workload: {kind: transformer, model: gpt3-175b, npus: 1024, global-batch: 1536, fuse: true}
    platform: hgx-h100 over 400G rail-optimised fat tree      # any words of chakra platform
    network: {dim1.bandwidth: 40}                             # replaces the platform's, or a file's path
    cost-per-npu-hour: 2.5                                    # any currency
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
from typing import Any, TypeVar

from chakra.arguments import checked
from chakra.errors import ConfigError, UsageError
from chakra.io.yaml import read_document
from chakra.replay.config.key import Key
from chakra.sweep.expressions import expression, plain_name
from chakra.sweep.keys import (
    CONSTRAINTS,
    METHOD,
    NETWORK,
    OBJECTIVE,
    PARAMETERS,
    PARETO,
    PLATFORM,
    PRICE,
    REPLAY,
    STUDY,
    STUDY_KEYS,
    SYSTEM,
    WORKLOAD,
)
from chakra.sweep.method import Method
from chakra.sweep.metrics import METRICS
from chakra.sweep.space import (
    Parameter,
    Point,
    check_space,
    grid,
    parameter_from,
    read_key,
    sampled,
)

#: parameters whose values are files, and what a platform gives without them
FILES = (NETWORK.name, SYSTEM.name)
SECTIONS = (WORKLOAD.name, NETWORK.name, SYSTEM.name, REPLAY.name)

T = TypeVar("T")


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
    price
        What an NPU costs in an hour, or that by machine; None: costs are not asked for.
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
    price: float | Mapping[str, float] | None = None

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
            asked = expression(text, f"{self.source}: constraints")
            if asked.names <= names.keys() and not asked.value(names):
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
        out["price"] = self.price
        for section in SECTIONS:
            given = out[section]
            out[section] = (
                dict(given) if isinstance(given, dict) else {} if given is None else {"file": given}
            )
        for name, value in point.items():
            section, _, key = name.partition(".")
            if name in FILES:
                key = "file"
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
def study_from(document: object, source: str) -> Study:
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
    known = sorted(key.name for key in STUDY_KEYS)
    unknown = sorted(str(key) for key in document if key not in known)
    if unknown:
        raise ConfigError(f"{source}: unknown key {unknown[0]!r}; known keys: {', '.join(known)}")

    def read(key: Key[T]) -> T:
        return read_key(key, document, source)

    fixed = {key.name: read(key) for key in (WORKLOAD, PLATFORM, NETWORK, SYSTEM, REPLAY)}
    parameters = _parameters(read(PARAMETERS), source)
    _check_machine(fixed, parameters, source)
    constraints = read(CONSTRAINTS)
    texts = tuple(item for item in constraints if item != "memory")
    conditions = [expression(text, f"{source}: {CONSTRAINTS.name}") for text in texts]
    objective, pareto, price = read(OBJECTIVE), read(PARETO), read(PRICE)
    costs = {name for name in METRICS if "cost_" in name}
    asked = {objective, *pareto, *(name for one in conditions for name in one.names)} & costs
    if asked and price is None:
        raise ConfigError(f"{source}: {min(asked)} needs a price: {PRICE.name}")
    method = read(METHOD)
    check_space(parameters, source, crossed=method.kind == "grid")
    return Study(
        read(STUDY) or Path(source).stem, fixed, parameters, method, "memory" in constraints, texts,
        objective, pareto, source, price,
    )  # fmt: skip


def _check_machine(fixed: Mapping[str, object], parameters: tuple[Parameter, ...], source: str) -> None:
    """A machine is there: a platform, given or varied, or files."""
    varied = {parameter.name for parameter in parameters}
    given = varied | {name for name, value in fixed.items() if value is not None}
    if not given & {PLATFORM.name, NETWORK.name, f"{NETWORK.name}.file"}:
        raise ConfigError(f"{source}: needs a platform, or network and system files")


def _parameters(given: object, source: str) -> tuple[Parameter, ...]:
    out = []
    for name, value in given.items() if isinstance(given, dict) else ():
        section, dot, key = str(name).partition(".")
        if name not in (PLATFORM.name, *FILES) and (section not in SECTIONS or not dot or not key):
            raise ConfigError(
                f"{source}: parameter {name!r} must be 'platform', 'network' or 'system', or start with "
                f"{'., '.join(SECTIONS)}."
            )
        out.append(parameter_from(str(name), value, source))
    return tuple(out)
