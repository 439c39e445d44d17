"""Clocks of several hosts, compared by the collectives that their ranks took part in.

No member of an all-reduce, all-gather, reduce-scatter, all-to-all or barrier ends before every member has begun. So each
of them bounds by how much two clocks differ, from below and from above, however long its members waited for each other.
Where no difference lies within the bounds, the clocks agree as far as anybody can tell. Else the
difference is taken from the ends, which are close together, and moved into the bounds.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from chakra.arrays import I64, Bool
from chakra.converters.pytorch.all_ranks.agreement import RankPart
from chakra.converters.pytorch.comm.group_numbers import GroupNumbers
from chakra.et import CommType
from chakra.io.readable import counted

#: collectives whose members all wait for all
_TOGETHER = frozenset(
    (CommType.ALL_REDUCE, CommType.ALL_GATHER, CommType.REDUCE_SCATTER, CommType.ALL_TO_ALL, CommType.BARRIER)
)
#: bounds that cross by less are taken as one value: clocks drift while a recording lasts
DRIFT_NS = 100_000
#: differences up to this are none
LEAST_NS = 1_000
#: later than any time, ns
_NEVER = 1 << 62
#: kind, begin and end (ns) of the collectives of each group, in order
_Times: TypeAlias = dict[str, list[tuple[int, int, int]]]


@dataclass(slots=True)
class Clocks:
    """By how much each rank's clock is ahead of the first rank's."""

    ahead_ns: dict[int, int] = field(default_factory=dict)
    #: how far what was put back may still be off; 0 where the clocks agree as far as anybody can tell
    within_ns: dict[int, int] = field(default_factory=dict)
    #: ranks whose clocks fit no common difference
    unfit: set[int] = field(default_factory=set)
    #: what was found, in words
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Difference:
    """How far one clock is ahead of another, ns: the estimate, its bounds, and on how many collectives it rests."""

    estimate: int
    low: int
    high: int
    count: int

    @property
    def within(self) -> int:
        """How far the estimate may be off: it lies anywhere between the bounds."""
        return max(self.high - self.estimate, self.estimate - self.low, 0)


def compare_clocks(parts: list[RankPart], table: GroupNumbers) -> Clocks:
    """Compare the clocks of all ranks that the collectives of groups connect with the first one.

    Ranks are joined one by one, each to the one already joined with which its difference is known best (Prim's
    algorithm): a rank that is joined is compared once with those that are not.
    """
    times = {part.rank: _times(part, table) for part in parts if part.times}
    clocks = Clocks()
    if len(times) < 2:
        return clocks
    ranks = sorted(times)
    groups = _Shared([times[rank] for rank in ranks])
    least: I64 = np.full(len(ranks), _NEVER)  # width of the best difference to a rank that is joined
    nearest: I64 = np.zeros(len(ranks), np.int64)
    waiting: Bool = np.ones(len(ranks), np.bool_)
    joined = 0
    clocks.ahead_ns[ranks[0]] = clocks.within_ns[ranks[0]] = 0
    while True:
        waiting[joined] = False
        width = groups.width(joined)
        better: Bool = waiting & (
            (width < least) | ((width == least) & (width < _NEVER) & (joined < nearest))
        )
        least[better], nearest[better] = width[better], joined
        rest = np.flatnonzero(waiting)
        if not len(rest):
            break
        joined = int(rest[np.argmin(least[rest])])
        if least[joined] == _NEVER:
            break
        known = int(nearest[joined])
        _join(ranks[joined], ranks[known], _difference(times[ranks[known]], times[ranks[joined]]), clocks)
    return clocks


def _join(rank: int, known: int, found: _Difference, clocks: Clocks) -> None:
    """Put a rank's clock beside one that is known."""
    own = _judged(rank, known, found, clocks)
    clocks.ahead_ns[rank] = clocks.ahead_ns[known] + own
    clocks.within_ns[rank] = clocks.within_ns[known] + (found.within if own else 0)
    if known in clocks.unfit:
        clocks.unfit.add(rank)


class _Shared:
    """Which ranks, by place, recorded the same collectives of a group, and when: a table for each such set of ranks."""

    def __init__(self, times: list[_Times]) -> None:
        alike: dict[tuple[str, tuple[int, ...]], list[int]] = defaultdict(list)
        for place, groups in enumerate(times):
            for group, calls in groups.items():
                alike[group, tuple(kind for kind, _, _ in calls)].append(place)
        self.count = len(times)
        #: per rank, its tables and its row in each
        self.of_rank: list[list[tuple[int, int]]] = [[] for _ in times]
        #: places of the ranks, and when each of their collectives began and ended
        self.tables: list[tuple[I64, I64, I64]] = []
        for (group, kinds), places in alike.items():
            columns = [number for number, kind in enumerate(kinds) if kind in _TOGETHER]
            if len(places) < 2 or not columns:
                continue
            recorded: I64 = np.array(
                [[times[place][group][n][1:] for n in columns] for place in places], np.int64
            )
            for row, place in enumerate(places):
                self.of_rank[place].append((len(self.tables), row))
            self.tables.append(
                (np.array(places, np.int64), recorded[:, :, 0].copy(), recorded[:, :, 1].copy())
            )

    def width(self, place: int) -> I64:
        """How far the bounds of each rank's difference from this one lie apart; ``_NEVER`` where nothing bounds it."""
        low: I64 = np.full(self.count, -_NEVER)
        high: I64 = np.full(self.count, _NEVER)
        bounded: Bool = np.zeros(self.count, np.bool_)
        for number, row in self.of_rank[place]:
            places, begin, end = self.tables[number]
            told: Bool = (end >= 0) & (end[row] >= 0)
            bounded[places] |= told.any(axis=1)
            low[places] = np.maximum(low[places], np.where(told, begin - end[row], -_NEVER).max(axis=1))
            high[places] = np.minimum(high[places], np.where(told, end - begin[row], _NEVER).min(axis=1))
        out: I64 = np.full(self.count, _NEVER)
        out[bounded] = high[bounded] - low[bounded]
        return out


def _judged(rank: int, known: int, found: _Difference, clocks: Clocks) -> int:
    """The difference to correct, 0 where the clocks may be one or do not fit; says what it is."""
    if found.low - found.high > DRIFT_NS:
        clocks.unfit.add(rank)
        clocks.notes.append(
            f"ranks {known} and {rank}: their clocks fit no common difference "
            f"({counted(found.count, 'collective')}): not aligned"
        )
        return 0
    if found.low - LEAST_NS <= 0 <= found.high + LEAST_NS:
        return 0
    clocks.notes.append(
        f"rank {rank}'s clock is {found.estimate / 1e6:,.3f} ms ahead of rank {known}'s: aligned by {found.count} common "
        f"collectives, to within {found.within / 1e3:,.1f} us"
    )
    return found.estimate


def _times(part: RankPart, table: GroupNumbers) -> _Times:
    out: _Times = defaultdict(list)
    for (group, kind, _, _), (begin, end) in zip(part.collectives, part.times, strict=True):
        out[table.id_of(group)].append((kind, begin, end))
    return out


def _difference(one: _Times, other: _Times) -> _Difference:
    """How far the clock of ``other`` is ahead of that of ``one``, which have collectives in common.

    A group of which the two recorded different collectives says nothing: which are the same cannot be told.
    """
    common = [
        (a[1:], b[1:])
        for group in sorted(one.keys() & other.keys())
        if [call[0] for call in one[group]] == [call[0] for call in other[group]]
        for a, b in zip(one[group], other[group], strict=True)
        if a[0] in _TOGETHER and a[2] >= 0 and b[2] >= 0
    ]
    a: I64 = np.array([pair[0] for pair in common], np.int64)
    b: I64 = np.array([pair[1] for pair in common], np.int64)
    low, high = int((b[:, 0] - a[:, 1]).max()), int((b[:, 1] - a[:, 0]).min())
    estimate = int(np.median(b[:, 1] - a[:, 1]))
    if low <= high:
        estimate = min(max(estimate, low), high)
    return _Difference(estimate, low, high, len(common))
