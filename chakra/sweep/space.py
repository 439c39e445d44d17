"""Parameters of a study and the points of its space: crossed, sampled, or asked for by an optimiser."""

import itertools
import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from chakra.arguments import check_fields, checked
from chakra.errors import ConfigError
from chakra.io.readable import counted
from chakra.io.shown import describe
from chakra.replay.config.key import Key, Required, UnfitError
from chakra.sweep.keys import COUNT, LOG, RANGE, RANGE_KEYS, STEP, VALUES
from chakra.sweep.values import MAX_POINTS

T = TypeVar("T")

Point = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A named parameter with either listed values or a range.

    ``low`` and ``high`` are inclusive. ``step`` counts from ``low``; ``count`` spreads that many values evenly (on a
    logarithmic scale with ``log``). A range of whole numbers has step 1 unless said otherwise.

    Attributes
    ----------
    name
        ``SECTION.KEY`` or ``platform``.
    values
        Listed values.
    low, high
        Ends of a range.
    step
        Distance of the values of a range.
    count
        Number of the values of a range.
    log
        Whether they lie on a logarithmic scale.
    """

    name: str
    values: tuple[Any, ...] = ()
    low: float = 0
    high: float = 0
    step: float | None = None
    count: int | None = None
    log: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        if self.values:
            return
        wrong = ""
        if not -math.inf < self.low <= self.high < math.inf:
            wrong = f"range must be [low, high] with low <= high, not [{self.low}, {self.high}]"
        elif self._span() == math.inf:
            wrong = (
                f"range must have a width that a floating-point number holds, not [{self.low}, {self.high}]"
            )
        elif self.step is not None and not 0 < self.step < math.inf:
            wrong = f"step must be a number above 0, not {self.step}"
        elif self.count is not None and not 1 <= self.count <= MAX_POINTS:
            wrong = f"count must be a whole number from 1 to {MAX_POINTS}, not {self.count}"
        elif self.log and self.low <= 0:
            wrong = "a logarithmic scale needs a range above 0"
        if wrong:
            raise ConfigError(f"parameter {self.name}: {wrong}")

    @property
    def whole(self) -> bool:
        """Whether a range has whole numbers only."""
        numbers = (self.low, self.high, *([] if self.step is None else [self.step]))
        return all(isinstance(number, int) for number in numbers)

    @property
    def _stepped(self) -> bool:
        """Whether values are given one by one, by a step or by a count, rather than any of a range."""
        return bool(self.values) or self.step is not None or self.count is not None

    def listed(self) -> tuple[Any, ...]:
        """All values, for crossing.

        Raises
        ------
        ConfigError
            A range of real numbers without step or count, or of more than `MAX_POINTS` values.
        """
        total = self.size()
        if self.values:
            return self.values
        if self.count is not None:
            return tuple(dict.fromkeys(self._spread(self.count)))
        step = 1 if self.step is None else self.step
        return tuple(self.low + i * step for i in range(total))

    def size(self) -> int:
        """Number of the values to cross (a count may be of fewer different ones), without listing them.

        Raises
        ------
        ConfigError
            As `listed`.
        """
        if self.values or self.count is not None:
            return len(self.values) or self.count or 0
        if self.step is None and not self.whole:
            raise ConfigError(
                f"parameter {self.name}: crossing a range of real numbers needs a step or a count"
            )
        steps = self._span() / (self.step or 1) + 1e-9
        if steps >= MAX_POINTS:
            shown = f"{steps + 1:.0f}" if steps < 1e15 else f"{steps:.1e}"
            raise ConfigError(f"parameter {self.name}: {shown} values: more than {MAX_POINTS}")
        return int(steps) + 1

    def _span(self) -> float:
        """Width of a range; infinite where a floating-point number cannot hold it."""
        try:
            return float(self.high) - float(self.low)
        except OverflowError:  # a whole number of more than 308 digits
            return math.inf

    def _spread(self, count: int) -> Iterator[Any]:
        for i in range(count):
            share = i / (count - 1) if count > 1 else 0.0
            if self.log:
                value = math.exp(math.log(self.low) + share * (math.log(self.high) - math.log(self.low)))
            else:
                value = self.low + share * (self.high - self.low)
            yield round(value) if self.whole else value

    @checked
    def sample(self, rng: random.Random) -> Any:
        """One value, every one equally likely (on a logarithmic scale with ``log``)."""
        return self._sample(rng, self._choices())

    def _choices(self) -> tuple[Any, ...]:
        return self.listed() if self._stepped else ()

    def _sample(self, rng: random.Random, choices: tuple[Any, ...]) -> Any:
        if choices:
            return rng.choice(choices)
        if self.log:
            value = math.exp(rng.uniform(math.log(self.low), math.log(self.high)))
            return round(value) if self.whole else value
        return rng.randint(int(self.low), int(self.high)) if self.whole else rng.uniform(self.low, self.high)


def parameter_from(name: str, value: object, source: str) -> Parameter:
    """A parameter of a study file: a list, ``{values: [...]}``, or ``{range: [low, high], step, count, log}``.

    Raises
    ------
    ConfigError
        Anything else, with the parameter's name.
    """
    where = f"{source}: parameter {name}"
    if isinstance(value, list):
        value = {VALUES.name: value}
    if not isinstance(value, dict):
        raise ConfigError(
            f"{where}: must be a list, {{values: [...]}} or {{range: [low, high]}}, not {describe(value)}"
        )
    unknown = set(value) - {key.name for key in RANGE_KEYS}
    if unknown or (VALUES.name in value) == (RANGE.name in value):
        raise ConfigError(
            f"{where}: needs either 'values' or 'range' (with step, count, log), not {sorted(map(str, value))}"
        )
    values = read_key(VALUES, value, where)
    return _range_from(name, value, source) if values is None else Parameter(name, values)


def read_key(key: Key[T], document: Mapping[object, object], where: str) -> T:
    """The value of a key of a study, or of a part of it that `where` names.

    Raises
    ------
    ConfigError
        A value that it does not take.
    """
    if key.name not in document and not isinstance(key.default, Required):
        return key.default
    value = document.get(key.name)
    try:
        return key.reader.read(value)
    except UnfitError as unfit:
        told = unfit.told_in_words(value)
        raise ConfigError(f"{where}: {key.name}{'' if told.startswith(':') else ' '}{told}") from None


def _range_from(name: str, value: Mapping[object, object], source: str) -> Parameter:
    """A range of a study file; rules of its numbers stand in `Parameter`, which does not know the file."""
    where = f"{source}: parameter {name}"
    low, high = read_key(RANGE, value, where) or (0, 0)
    step, count, log = (
        read_key(STEP, value, where),
        read_key(COUNT, value, where),
        read_key(LOG, value, where),
    )
    if log and (low <= 0 or step is not None):
        raise ConfigError(
            f"{where}: {LOG.name} must be true or false, and needs a range above 0 without step"
        )
    if step is not None and count is not None:
        raise ConfigError(f"{where}: give step or count, not both")
    try:
        return Parameter(name, (), low, high, step, count, log)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None


def check_space(parameters: tuple[Parameter, ...], source: str, *, crossed: bool) -> None:
    """Refuse parameters with too many values to list, or that cannot be crossed, before anything is listed.

    Raises
    ------
    ConfigError
        Naming the study.
    """
    try:
        total = math.prod(p.size() for p in parameters if crossed or p._stepped)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None
    if crossed and total > MAX_POINTS:
        raise ConfigError(f"{source}: {counted(total, 'combination')}: more than {MAX_POINTS}")


def grid(parameters: tuple[Parameter, ...]) -> Iterator[Point]:
    """Every combination; the last parameter varies fastest.

    Raises
    ------
    ConfigError
        More combinations than :data:`MAX_POINTS`.
    """
    lists = [parameter.listed() for parameter in parameters]
    total = math.prod(len(values) for values in lists)
    if total > MAX_POINTS:
        raise ConfigError(f"{counted(total, 'combination')}: more than {MAX_POINTS}")
    names = [parameter.name for parameter in parameters]
    for values in itertools.product(*lists):
        yield dict(zip(names, values, strict=True))


def sampled(parameters: tuple[Parameter, ...], samples: int, seed: int) -> Iterator[Point]:
    """``samples`` different random points (fewer if the space has no more)."""
    rng = random.Random(seed)
    seen: set[str] = set()
    choices = [parameter._choices() for parameter in parameters]
    if all(choices):
        samples = min(samples, math.prod(len(set(map(repr, values))) for values in choices))
    for _ in range(20 * samples):
        if len(seen) == samples:
            return
        point = {p.name: p._sample(rng, values) for p, values in zip(parameters, choices, strict=True)}
        key = repr(point)
        if key not in seen:
            seen.add(key)
            yield point
