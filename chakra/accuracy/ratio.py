"""How far the ratio of two predicted steps may be off: what pairs of measured rows say of designs that are compared.

Two designs for one model on one machine share errors, of the operator times for one, which cancel in their ratio. How
much is left was counted on pairs of rows of one family, machine, framework, size of the element type and model, by what
the two rows differ in (`Unlike`). Of steps of unlike models or machines nothing is taken to cancel.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

from chakra.accuracy.interval import (
    BITS,
    LEAST_ROWS,
    SHARE,
    Interval,
    Job,
    NothingNear,
    Residual,
    interval_of,
    residuals,
)
from chakra.arguments import checked
from chakra.io.readable import counted_text


class Unlike(IntEnum):
    """In what two steps of one model on one machine differ, the least first: the last that holds counts."""

    #: NPUs or the batch alone
    SIZE = 0
    #: also the pipeline's stages or the micro-batch
    STAGES = 1
    #: also how a layer is split (tp, cp, ep), or something of which there are no pairs of measured rows
    SPLIT = 2


#: what pairs of measured rows of each kind differ in, and what jobs differ in for which they are taken
_WORDS: Mapping[Unlike, tuple[str, str]] = {
    Unlike.SIZE: ("NPUs or batch", "NPUs or batch alone"),
    Unlike.STAGES: ("pp or micro-batch", "pp or micro-batch"),
    Unlike.SPLIT: ("tp", "tp, cp, ep or anything else"),
}
#: degrees that split a layer
_SPLITS = ("tp", "cp", "ep")
#: logarithm of the factor by which ratios of jobs that are nobody's measured rows may be off besides; chosen with whole
#: families left out (`pair_coverage`)
_UNSEEN = 0.07


@dataclass(frozen=True, slots=True)
class RatioInterval:
    """Between which factors of the predicted ratio of two steps, the second over the first, the measured one is expected.

    Attributes
    ----------
    low, high
        The factors.
    unlike
        In what the jobs differ; None for jobs of unlike models or machines.
    pairs
        Pairs of measured rows that say so; 0 where the intervals of both steps were put together.
    """

    low: float
    high: float
    unlike: Unlike | None
    pairs: int

    @property
    def basis(self) -> str:
        """What the factors rest on, in words."""
        if self.unlike is None:
            return "the intervals of both steps"
        return f"{counted_text(self.pairs, 'pair')} of measured rows that differ in {_WORDS[self.unlike][0]}"

    @property
    def differing(self) -> str:
        """In what jobs differ for which the factors are taken, in words."""
        return "machine or model" if self.unlike is None else _WORDS[self.unlike][1]

    @checked
    def tells(self, ratio: float) -> bool:
        """Whether the second step takes longer than the first for all that is known.

        Parameters
        ----------
        ratio
            The predicted ratio of the steps, the second over the first.
        """
        return ratio * self.low > 1


@dataclass(frozen=True, slots=True)
class PairCoverage:
    """How intervals of ratios fared for pairs of a family that they had not seen.

    Attributes
    ----------
    family
        Its name; empty for all pairs.
    unlike
        In what the two rows of a pair differ; None for all of them.
    pairs
        Pairs of its rows.
    inside
        Share of the pairs whose measured ratio lies inside the interval.
    factor
        The upper end of the interval, the lower one is its inverse; None for all pairs, whose intervals differ.
    """

    family: str
    unlike: Unlike | None
    pairs: int
    inside: float
    factor: float | None

    @property
    def words(self) -> str:
        """What the pairs differ in, in words; empty for all of them."""
        return "" if self.unlike is None else _WORDS[self.unlike][0]


class _Pair(NamedTuple):
    """Two rows that are compared: their family, in what they differ, by how much the logarithm of their ratio was off."""

    family: str
    unlike: Unlike
    off: float


@checked
def ratio_of(
    first: Job, second: Job, *, otherwise: bool = False, rows: Iterable[Residual] | None = None
) -> RatioInterval | NothingNear:
    """Between which factors of the predicted ratio of two steps the measured one is expected with 90 %.

    Parameters
    ----------
    first, second
        The jobs.
    otherwise
        Whether they differ in more than their fields, the batch left out: in the network, in recomputation.
    rows
        Measured rows to go by instead of those that ship; those that constants were tuned on are left out.

    Returns
    -------
    RatioInterval | NothingNear
        The interval, or why nothing measured is near one of the two.

    Examples
    --------
    >>> job = Job("dgx-a100", "megatron-2022", "bf16", npus=64, parameters=7e9, tp=4)
    >>> wide = ratio_of(job, Job("dgx-a100", "megatron-2022", "bf16", npus=64, parameters=7e9, tp=8))
    >>> narrow = ratio_of(job, Job("dgx-a100", "megatron-2022", "bf16", npus=128, parameters=7e9, tp=4))
    >>> 1 < narrow.high < wide.high, narrow.basis.endswith("rows that differ in NPUs or batch")
    (True, True)
    """
    held = None if rows is None else list(rows)
    near = [interval_of(job, held) for job in (first, second)]
    for found in near:
        if isinstance(found, NothingNear):
            return found
    if _kin(first) != _kin(second):
        return _independent([found for found in near if isinstance(found, Interval)])
    unlike = Unlike.SPLIT if otherwise else _unlike(first, second)
    factor, pairs = _shipped_factor(unlike) if held is None else _factor_of(_pairs(held), unlike)
    if pairs < LEAST_ROWS:
        return _independent([found for found in near if isinstance(found, Interval)])
    return RatioInterval(1 / factor, factor, unlike, pairs)


@checked
def pair_coverage(rows: Iterable[Residual] | None = None) -> list[PairCoverage]:
    """How many measured ratios intervals hold that were made without the rows of the family.

    All pairs first, then by family and by what the rows of a pair differ in, those with 20 pairs or more.

    Parameters
    ----------
    rows
        Measured rows instead of those that ship.
    """
    pairs = _shipped_pairs() if rows is None else _pairs(list(rows))
    found: list[PairCoverage] = []
    counted = held = 0
    for family in dict.fromkeys(pair.family for pair in pairs):
        for unlike in Unlike:
            own = [pair for pair in pairs if pair.unlike is unlike and pair.family == family]
            factor, others = _factor_of([pair for pair in pairs if pair.family != family], unlike)
            if len(own) < LEAST_ROWS or others < LEAST_ROWS:
                continue
            inside = sum(abs(pair.off) <= math.log(factor) for pair in own)
            found.append(PairCoverage(family, unlike, len(own), inside / len(own), factor))
            counted, held = counted + len(own), held + inside
    return [PairCoverage("", None, counted, held / counted, None), *found] if counted else []


def _independent(near: Sequence[Interval]) -> RatioInterval:
    """The interval of a ratio of steps that are off independently of each other: distances add up as squares."""
    first, second = near
    middle = second.median / first.median
    down = math.hypot(math.log(second.median / second.low), math.log(first.high / first.median))
    up = math.hypot(math.log(second.high / second.median), math.log(first.median / first.low))
    return RatioInterval(middle * math.exp(-down), middle * math.exp(up), None, 0)


def _factor_of(pairs: Sequence[_Pair], unlike: Unlike) -> tuple[float, int]:
    """By which factor measured ratios of a kind of pairs are off at most, for the stated share of them and one pair more.

    It is wider by what any job differs by from measured rows. Beside it stands the number of these pairs.
    """
    offs = sorted(abs(pair.off) for pair in pairs if pair.unlike is unlike)
    if not offs:
        return 1.0, 0
    place = min(math.ceil((len(offs) + 1) * SHARE), len(offs))
    return math.exp(math.hypot(offs[place - 1], _UNSEEN)), len(offs)


def _kin(job: Job) -> tuple[object, ...]:
    """What two jobs have in common whose errors cancel in part: machine, framework, kind of element, model."""
    return (
        job.machine,
        job.framework,
        BITS.get(job.dtype),
        f"{job.parameters:.3g}",
        job.experts,
        job.states,
    )


def _unlike(first: Job, second: Job) -> Unlike:
    if any(getattr(first, name) != getattr(second, name) for name in _SPLITS):
        return Unlike.SPLIT
    if (first.pp, first.micro_batch) != (second.pp, second.micro_batch):
        return Unlike.STAGES
    return Unlike.SIZE


def _pairs(rows: Sequence[Residual]) -> list[_Pair]:
    groups: dict[tuple[object, ...], list[Residual]] = {}
    for row in rows:
        if not (row.tuned or row.job.states):
            groups.setdefault((row.family, *_kin(row.job)), []).append(row)
    return [
        _Pair(one.family, _unlike(one.job, other.job), math.log(one.ratio / other.ratio))
        for group in groups.values()
        for one, other in combinations(group, 2)
    ]


@lru_cache(maxsize=1)
def _shipped_pairs() -> list[_Pair]:
    return _pairs(residuals())


@lru_cache(maxsize=len(Unlike))
def _shipped_factor(unlike: Unlike) -> tuple[float, int]:
    return _factor_of(_shipped_pairs(), unlike)
