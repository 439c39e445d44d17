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


def compare_clocks(parts: list[RankPart], table: GroupNumbers) -> Clocks:
    """Compare the clocks of all ranks that the collectives of groups connect with the first one."""
    times = {part.rank: _times(part, table) for part in parts if part.times}
    clocks = Clocks()
    if len(times) < 2:
        return clocks
    first = min(times)
    clocks.ahead_ns[first] = clocks.within_ns[first] = 0
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
        own = _judged(rank, known, difference, clocks)
        clocks.ahead_ns[rank] = clocks.ahead_ns[known] + own
        blur = (difference.high - difference.low + 1) // 2 if own else 0
        clocks.within_ns[rank] = clocks.within_ns[known] + max(blur, 0)
        if known in clocks.unfit:
            clocks.unfit.add(rank)
    return clocks


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
    within = (found.high - found.low) / 2e3
    clocks.notes.append(
        f"rank {rank}'s clock is {found.estimate / 1e6:,.3f} ms ahead of rank {known}'s: aligned by {found.count} common "
        f"collectives, to within {max(within, 0):,.1f} us"
    )
    return found.estimate


def _times(part: RankPart, table: GroupNumbers) -> dict[str, list[tuple[int, int, int]]]:
    """Kind, begin and end (ns) of the collectives of each group, in order."""
    out: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for (group, kind, _, _), (begin, end) in zip(part.collectives, part.times, strict=True):
        out[table.id_of(group)].append((kind, begin, end))
    return out


def _difference(
    one: dict[str, list[tuple[int, int, int]]], other: dict[str, list[tuple[int, int, int]]]
) -> _Difference | None:
    """How far the clock of ``other`` is ahead of that of ``one``; None without common collectives.

    A group of which the two recorded different collectives says nothing: which are the same cannot be told.
    """
    common = [
        (a[1:], b[1:])
        for group in sorted(one.keys() & other.keys())
        if [call[0] for call in one[group]] == [call[0] for call in other[group]]
        for a, b in zip(one[group], other[group], strict=True)
        if a[0] in _TOGETHER and a[2] >= 0 and b[2] >= 0
    ]
    if not common:
        return None
    a: I64 = np.array([pair[0] for pair in common], np.int64)
    b: I64 = np.array([pair[1] for pair in common], np.int64)
    low, high = int((b[:, 0] - a[:, 1]).max()), int((b[:, 1] - a[:, 0]).min())
    estimate = int(np.median(b[:, 1] - a[:, 1]))
    if low <= high:
        estimate = min(max(estimate, low), high)
    return _Difference(estimate, low, high, len(common))
