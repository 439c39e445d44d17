"""Clocks of several hosts, compared by the collectives that their ranks took part in.

No member of an all-reduce, all-gather, reduce-scatter, all-to-all or barrier ends before every member has begun. So each
of them bounds by how much two clocks differ, from below and from above, however long its members waited for each other.
Where no difference lies within the bounds, the clocks agree as far as anybody can tell. Else the
difference is taken from the ends, which are close together, and moved into the bounds.
"""

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from chakra.arrays import I64
from chakra.converters.pytorch.comm.across_ranks import RankPart
from chakra.converters.pytorch.comm.group_numbers import GroupNumbers
from chakra.et import CommType

#: collectives whose members all wait for all
_TOGETHER = frozenset(
    (CommType.ALL_REDUCE, CommType.ALL_GATHER, CommType.REDUCE_SCATTER, CommType.ALL_TO_ALL, CommType.BARRIER)
)
#: bounds that cross by less are taken as one value: clocks drift while a recording lasts
DRIFT_NS = 100_000
#: differences up to this are none
LEAST_NS = 1_000


@dataclass(slots=True)
class Clocks:
    """By how much each rank's clock is ahead of the first rank's."""

    ahead_ns: dict[int, int] = field(default_factory=dict)
    #: what was found, in words
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Difference:
    """How far one clock is ahead of another, ns: the estimate, its bounds, and on how many collectives it rests."""

    estimate: int
    low: int
    high: int
    count: int


def compare_clocks(parts: list[RankPart], table: GroupNumbers) -> Clocks:
    """Compare the clocks of all ranks that the collectives of groups connect with the first one."""
    times = {part.rank: _times(part, table) for part in parts if part.times}
    clocks = Clocks()
    if len(times) < 2:
        return clocks
    first = min(times)
    clocks.ahead_ns[first] = 0
    waiting = sorted(set(times) - {first})
    while waiting:
        found = [
            (difference.high - difference.low, rank, known, difference)
            for rank in waiting
            for known in clocks.ahead_ns
            if (difference := _difference(times[known], times[rank])) is not None
        ]
        if not found:
            break
        _, rank, known, difference = min(found, key=lambda item: item[:3])
        waiting.remove(rank)
        clocks.ahead_ns[rank] = clocks.ahead_ns[known] + _judged(rank, known, difference, clocks.notes)
    return clocks


def _judged(rank: int, known: int, found: _Difference, notes: list[str]) -> int:
    """The difference to correct, 0 where the clocks may be one or do not fit; says what it is."""
    if found.low - found.high > DRIFT_NS:
        notes.append(
            f"ranks {known} and {rank}: their clocks fit no common difference ({found.count} collectives): not aligned"
        )
        return 0
    if found.low - LEAST_NS <= 0 <= found.high + LEAST_NS:
        return 0
    within = (found.high - found.low) / 2e3
    notes.append(
        f"rank {rank}'s clock is {found.estimate / 1e6:,.3f} ms ahead of rank {known}'s: aligned by {found.count} common "
        f"collectives, to within {max(within, 0):,.1f} us"
    )
    return found.estimate


def _times(part: RankPart, table: GroupNumbers) -> dict[tuple[str, int], tuple[int, int]]:
    """Begin and end (ns) of each collective for which all members wait, by group and number within it."""
    ordinal: dict[str, int] = defaultdict(int)
    out = {}
    for (group, kind, _, _), (begin, end) in zip(part.collectives, part.times, strict=True):
        number = table.id_of(group)
        if kind in _TOGETHER and end >= 0:
            out[number, ordinal[number]] = (begin, end)
        ordinal[number] += 1
    return out


def _difference(
    one: dict[tuple[str, int], tuple[int, int]], other: dict[tuple[str, int], tuple[int, int]]
) -> _Difference | None:
    """How far the clock of ``other`` is ahead of that of ``one``; None without common collectives."""
    common = sorted(one.keys() & other.keys())
    if not common:
        return None
    a: I64 = np.array([one[key] for key in common], np.int64)
    b: I64 = np.array([other[key] for key in common], np.int64)
    low, high = int((b[:, 0] - a[:, 1]).max()), int((b[:, 1] - a[:, 0]).min())
    estimate = int(np.median(b[:, 1] - a[:, 1]))
    if low <= high:
        estimate = min(max(estimate, low), high)
    return _Difference(estimate, low, high, len(common))
