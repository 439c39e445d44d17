"""How far a predicted time may be off: an interval from what the nearest measured rows were off by.

A table that ships holds, for every row that was predicted, the job and predicted over measured. Rows are grouped by
family, machine, framework, bits of the element type and kind of model; an interval is that of the nearest group, wider by
a stated amount for everything in which the job differs from it. The amounts are the same for all groups and were chosen
with whole families left out (:func:`coverage`).
"""

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib import resources
from statistics import median

from chakra.arguments import checked
from chakra.io.digits import decimal_number, whole_number
from chakra.io.readable import counted

#: share of measured times that an interval shall hold
SHARE = 0.9
#: fewer rows have no quantiles for that share: their extremes are taken, and widened
LEAST_ROWS = 20
#: families that are large enough for a share to be counted
COUNTED_ROWS = 50
#: a job is of another size beyond this factor outside the rows' range of NPUs or parameters
SIZE_FACTOR = 2.0
#: beyond this factor outside it nothing is near
SIZE_LIMIT = 32.0
#: what differs -> logarithm of the factor by which an interval is wider on either side; they add up as squares. The first
#: always counts: a job is nobody's measured row. That of the size is the amount at `SIZE_LIMIT`: from `SIZE_FACTOR` on it
#: grows with the logarithm of how far the job lies outside.
WIDENING: Mapping[str, float] = {
    "source": 0.06,
    "few rows": 0.12,
    "parallelism": 0.06,
    "size": 0.255,
    "framework": 0.06,
    "accelerator": 0.12,
    "generation": 0.18,
    "element type": 0.15,
    "experts": 0.24,
}
#: degrees of a job that intervals ask for
_DEGREES = ("tp", "cp", "ep", "pp")
#: presets of which rows are measured, and those that share a generation with one
_GENERATIONS: Mapping[str, str] = {
    "dgx-a100": "A100", "hgx-h100": "Hopper", "hgx-h200": "Hopper", "hgx-b200": "Blackwell", "hgx-b300": "Blackwell",
    "gb200-nvl72": "Blackwell", "gb300-nvl72": "Blackwell",
}  # fmt: skip
#: presets that are a generation's, of which rows are measured or nearly so
MACHINES = frozenset(_GENERATIONS)
#: bits of the element types that rows were measured in
BITS: Mapping[str, int] = {"bf16": 16, "fp16": 16, "fp8": 8, "mxfp8": 8, "nvfp4": 4}
_TABLE = "accuracy/residuals.csv"


@dataclass(frozen=True, slots=True)
class Job:
    """What an interval depends on.

    Attributes
    ----------
    machine
        Preset whose operator times count.
    framework
        Name of the framework profile.
    dtype
        Element type of the matrix products.
    npus
        NPUs of the job.
    parameters
        Parameters of the model, experts included.
    tp, cp, ep, pp
        Parallel degrees.
    experts
        Whether the model is a mixture of experts.
    states
        Whether it has state-space layers; of such jobs too few were measured, and they say nothing of others.
    micro_batch
        Samples of a micro-batch. No interval of a step depends on it, but that of a ratio of two steps does.
    """

    machine: str
    framework: str | None
    dtype: str
    npus: int
    parameters: float
    tp: int = 1
    cp: int = 1
    ep: int = 1
    pp: int = 1
    experts: bool = False
    states: bool = False
    micro_batch: int = 1


def job_from(value: object) -> Job | None:
    """A job from what `dataclasses.asdict` makes of one, as documents hold it; None for anything else.

    Parameters
    ----------
    value
        The value.
    """
    usual = asdict(Job("", "", "", npus=1, parameters=1.0))
    if not isinstance(value, Mapping) or value.keys() != usual.keys():
        return None
    for name, like in usual.items():
        given = value[name]
        if isinstance(like, int | float) and not isinstance(like, bool):
            kinds = int | float if isinstance(like, float) else int
            if not isinstance(given, kinds) or isinstance(given, bool) or not 0 < given < math.inf:
                return None
        elif type(given) is not type(like) and not (name == "framework" and given is None):
            return None
    return Job(**value)


@dataclass(frozen=True, slots=True)
class Residual:
    """A measured row and what its prediction was.

    Attributes
    ----------
    family
        Its family on the scoreboard.
    job
        Its job.
    ratio
        Predicted over measured time.
    tuned
        Whether constants were tuned on it; such rows count for no interval.
    """

    family: str
    job: Job
    ratio: float
    tuned: bool = False


@dataclass(frozen=True, slots=True)
class Interval:
    """Between which factors of a predicted time the measured one is expected.

    Attributes
    ----------
    low, high
        The factors.
    median
        Measured over predicted of the nearest rows: the middle one.
    family
        Family of the nearest rows.
    rows
        How many there are.
    differs
        In what the job differs from them, in words.
    """

    low: float
    high: float
    median: float
    family: str
    rows: int
    differs: tuple[str, ...]

    @property
    def width(self) -> float:
        """The upper factor over the lower one."""
        return self.high / self.low


@dataclass(frozen=True, slots=True)
class NothingNear:
    """Why there is no interval.

    Attributes
    ----------
    reason
        The reason.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class FamilyCoverage:
    """How intervals fared for a family whose rows none of them had seen.

    Attributes
    ----------
    family
        Its name; empty for all rows.
    rows
        Its rows that nothing was tuned on.
    inside, below, above
        Shares of the rows that were measured inside the interval, below and above it.
    width
        Geometric mean of the intervals' upper over lower ends.
    """

    family: str
    rows: int
    inside: float
    below: float
    above: float
    width: float


class _Group:
    """Rows of one family that an interval is made of: what they share, and what they were off by, as logarithms."""

    def __init__(self, family: str, rows: Sequence[Residual], used: frozenset[str] | None = None) -> None:
        self.family = family
        #: degrees that every row has, and no others; None where rows differ in them
        self.used = used
        self.job = rows[0].job
        self.logs = sorted(-math.log(row.ratio) for row in rows)
        self.npus = _range(row.job.npus for row in rows)
        self.parameters = _range(row.job.parameters for row in rows)
        self.degrees = {name: max(getattr(row.job, name) for row in rows) for name in _DEGREES}

    def differences(self, job: Job) -> dict[str, str]:
        """Keys of `WIDENING` that count for a job, with words for people."""
        own = self.job
        found = {"source": ""}
        if job.machine != own.machine:
            kin = _GENERATIONS[job.machine] == _GENERATIONS[own.machine]
            found["accelerator" if kin else "generation"] = f"measured on {own.machine}"
        if job.framework != own.framework:
            found["framework"] = f"measured with {own.framework}"
        if BITS[job.dtype] != BITS[own.dtype]:
            found["element type"] = f"measured in {own.dtype}"
        if job.experts != own.experts:
            found["experts"] = f"measured with{'' if own.experts else 'out'} experts"
        unlike = [name for name, most in self.degrees.items() if getattr(job, name) > 1 and most == 1]
        if unlike:
            found["parallelism"] = f"measured without {', '.join(unlike)}"
        sizes = []
        if not _within(job.npus, self.npus):
            sizes.append(f"{_span(self.npus)} NPUs")
        if not _within(job.parameters, self.parameters):
            sizes.append(f"{_span((self.parameters[0] / 1e9, self.parameters[1] / 1e9))} billion parameters")
        if sizes:
            found["size"] = f"measured with {' and '.join(sizes)}"
        if len(self.logs) < LEAST_ROWS:
            found["few rows"] = f"only {counted(len(self.logs), 'row')}"
        return found

    def too_far(self, job: Job) -> bool:
        """Whether a job is so different, in size or in what it spreads over ranks, that the rows say nothing about it."""
        if self.used is not None and self.used != _used(job):
            return True
        ends = ((job.npus, self.npus), (job.parameters, self.parameters))
        return not all(_within(value, measured, SIZE_LIMIT) for value, measured in ends)

    def distance(self, job: Job) -> float:
        """Sum of the squares of what widens an interval for a job."""
        amounts = {name: WIDENING[name] for name in self.differences(job)}
        far = max(_beyond(job.npus, self.npus), _beyond(job.parameters, self.parameters))
        amounts["size"] = (
            WIDENING["size"] * math.log(max(far / SIZE_FACTOR, 1)) / math.log(SIZE_LIMIT / SIZE_FACTOR)
        )
        # equal sums in another order are equal
        return round(sum(amount**2 for amount in amounts.values()), 12)

    def interval(self, job: Job) -> Interval:
        """Quantiles of the rows with one row more, wider by the distance on either side."""
        count = len(self.logs)
        # of count rows and the one to come, this many at most lie beyond either end
        place = math.ceil((count + 1) * (1 + SHARE) / 2)
        low, high = self.logs[max(count - place, 0)], self.logs[min(place, count) - 1]
        middle, wider = median(self.logs), math.sqrt(self.distance(job))
        words = tuple(text for text in self.differences(job).values() if text)
        return Interval(
            math.exp(middle - math.hypot(middle - low, wider)),
            math.exp(middle + math.hypot(high - middle, wider)),
            math.exp(middle), self.family, count, words,
        )  # fmt: skip


@lru_cache(maxsize=1)
def residuals() -> tuple[Residual, ...]:
    """Rows of the table that ships: step times alone."""
    text = resources.files("chakra").joinpath(_TABLE).read_text(encoding="utf-8")
    rows = csv.reader(text.splitlines())
    next(rows)
    return tuple(_residual(*row) for row in rows)


@lru_cache(maxsize=1024)
def _job(*cells: str) -> Job:
    """A job from its cells: many rows share one, which differ in batches."""
    machine, framework, dtype, npus, parameters, *degrees, experts, states = cells
    tp, cp, ep, pp, micro_batch = map(whole_number, degrees)
    return Job(
        machine, framework, dtype, whole_number(npus), decimal_number(parameters), tp, cp, ep, pp,
        experts == "1", states == "1", micro_batch,
    )  # fmt: skip


def _residual(family: str, *cells: str) -> Residual:
    return Residual(family, _job(*cells[:-2]), decimal_number(cells[-2]), cells[-1] == "1")


@checked
def interval_of(job: Job, rows: Iterable[Residual] | None = None) -> Interval | NothingNear:
    """Between which factors of its predicted time a job's measured one is expected with 90 %.

    Parameters
    ----------
    job
        The job.
    rows
        Measured rows to go by instead of those that ship; those that constants were tuned on are left out.

    Returns
    -------
    Interval | NothingNear
        The interval, or why nothing measured is near.

    Examples
    --------
    >>> found = interval_of(Job("dgx-a100", "fsdp1", "bf16", npus=64, parameters=7e9))
    >>> found.family, found.low < 1 < found.high
    ('llm-foundry', True)
    >>> interval_of(Job("dgx-a100", None, "bf16", npus=64, parameters=7e9)).reason
    'no framework is named'
    """
    return _nearest(job, _groups(rows) if rows is not None else _shipped_groups())


def _nearest(job: Job, groups: Sequence[_Group]) -> Interval | NothingNear:
    if job.framework is None:
        return NothingNear("no framework is named")
    if job.machine not in _GENERATIONS:
        return NothingNear(f"no step was measured on a machine like {job.machine}")
    if job.states:
        return NothingNear("too few steps of models with state-space layers were measured")
    if job.dtype not in BITS:
        return NothingNear(f"no step was measured in {job.dtype}")
    if not groups:
        return NothingNear("there are no measured rows")
    near = [group for group in groups if not group.too_far(job)]
    if not near:
        return NothingNear(
            f"no step was measured with nearly {counted(job.npus, 'NPU')} and {job.parameters / 1e9:.3g} billion "
            "parameters"
        )
    # of groups equally near one of rows that use the same degrees, then the largest one
    return min(near, key=lambda group: (group.distance(job), group.used is None, -len(group.logs))).interval(
        job
    )


def _groups(rows: Iterable[Residual]) -> list[_Group]:
    found: dict[tuple[object, ...], list[Residual]] = {}
    for row in rows:
        if not (row.tuned or row.job.states):
            job = row.job
            key = (row.family, job.machine, job.framework, BITS[job.dtype], job.experts)
            found.setdefault(key, []).append(row)
    groups: list[_Group] = []
    for (family, *_), group in found.items():
        groups.append(_Group(str(family), group))
        alike: dict[frozenset[str], list[Residual]] = {}
        for row in group:
            alike.setdefault(_used(row.job), []).append(row)
        large = ((used, part) for used, part in alike.items() if LEAST_ROWS <= len(part) < len(group))
        groups += [_Group(str(family), part, used) for used, part in large]
    return groups


def _used(job: Job) -> frozenset[str]:
    """Degrees above 1: what a step communicates, and so what its time may be off by."""
    return frozenset(name for name in _DEGREES if getattr(job, name) > 1)


@lru_cache(maxsize=1)
def _shipped_groups() -> list[_Group]:
    return _groups(residuals())


@checked
def coverage(rows: Iterable[Residual] | None = None) -> list[FamilyCoverage]:
    """How many measured times intervals hold that were made without the rows of the family.

    All rows first, then family by family.

    Parameters
    ----------
    rows
        Measured rows instead of those that ship.
    """
    held = [row for row in (residuals() if rows is None else rows) if not (row.tuned or row.job.states)]
    families = list(dict.fromkeys(row.family for row in held))
    found: list[FamilyCoverage] = []
    everywhere: list[tuple[float, Interval]] = []
    for family in families:
        groups = _groups(row for row in held if row.family != family)
        made: dict[Job, Interval | NothingNear] = {}
        pairs: list[tuple[float, Interval]] = []
        for row in held:
            if row.family != family:
                continue
            if row.job not in made:
                made[row.job] = _nearest(row.job, groups)
            one = made[row.job]
            if isinstance(one, Interval):
                pairs.append((1 / row.ratio, one))
        if pairs:
            found.append(_coverage(family, pairs))
            everywhere += pairs
    return [_coverage("", everywhere), *found] if everywhere else []


def _coverage(family: str, pairs: Sequence[tuple[float, Interval]]) -> FamilyCoverage:
    count = len(pairs)
    below = sum(factor < one.low for factor, one in pairs)
    above = sum(factor > one.high for factor, one in pairs)
    width = math.exp(sum(math.log(one.width) for _, one in pairs) / count)
    return FamilyCoverage(family, count, (count - below - above) / count, below / count, above / count, width)


def _range(values: Iterable[float]) -> tuple[float, float]:
    held = list(values)
    return min(held), max(held)


def _within(value: float, ends: tuple[float, float], factor: float = SIZE_FACTOR) -> bool:
    return ends[0] / factor <= value <= ends[1] * factor


def _beyond(value: float, ends: tuple[float, float]) -> float:
    """The factor by which a value lies outside a range; 1 inside."""
    return max(ends[0] / value, value / ends[1], 1.0)


def _span(ends: tuple[float, float]) -> str:
    low, high = (f"{end:.3g}" if end < 1000 else f"{end:,.0f}" for end in ends)
    return low if low == high else f"{low} to {high}"
