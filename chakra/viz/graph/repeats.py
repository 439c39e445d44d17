"""Finding repeated stretches in a sequence: layers, micro-batches, steps."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from chakra.arrays import I64

#: Distances tried in one round; a round costs this many comparisons of the whole sequence.
_CANDIDATES: Final = 24
_ROUNDS: Final = 40


@dataclass(frozen=True, slots=True)
class Repeat:
    """``count`` copies of ``period`` elements in a row, from position ``start`` of the sequence."""

    start: int
    period: int
    count: int


def find_repeats(tokens: I64) -> list[Repeat]:
    """The repeats of the shortest period that is worth folding, without overlaps, in order.

    Folding them and asking again finds repeats of repeats. A single element counts from four copies on, a
    longer stretch from two copies on if they cover six elements.

    Parameters
    ----------
    tokens
        (n,) int64: equal numbers for elements that look alike.
    """
    for period in sorted(_periods(tokens)):
        found = _with_period(tokens, period)
        if found:
            return found
    return []


def _periods(tokens: I64) -> list[int]:
    """Distances between an element and the next like it, those that most elements have."""
    n = len(tokens)
    order = np.argsort(tokens, kind="stable")
    same = tokens[order][1:] == tokens[order][:-1]
    distances = np.diff(order)[same]
    distances = distances[distances <= n // 2]
    if not len(distances):
        return []
    counts = np.bincount(distances)
    common = np.argsort(-counts, kind="stable")[:_CANDIDATES]
    # Tokens that occur several times in a layer hide the layer's period: their distances are shorter. The
    # period is then a distance over which a rare token repeats.
    total = np.bincount(np.unique(tokens, return_inverse=True)[1])[np.unique(tokens, return_inverse=True)[1]]
    rare = np.diff(order)[same & (total[order][1:] <= max(2, int(np.median(total))))]
    rare = rare[rare <= n // 2]
    extra = np.argsort(-np.bincount(rare), kind="stable")[:_CANDIDATES] if len(rare) else common
    return [int(p) for p in {*common.tolist(), *extra.tolist()} if p > 0]


def _with_period(tokens: I64, period: int) -> list[Repeat]:
    n = len(tokens)
    alike = tokens[period:] == tokens[:-period]
    edges = np.flatnonzero(np.diff(np.r_[False, alike, False].astype(np.int8)))
    found: list[Repeat] = []
    busy = 0
    for start, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        begin = max(start, busy)
        count = (end - begin) // period + 1
        if count < (4 if period == 1 else 2) or count * period < 6 or begin + count * period > n:
            continue
        found.append(Repeat(begin, period, count))
        busy = begin + count * period
    return found


def rounds() -> int:
    """How often folding asks again at most; nesting deeper than this does not occur."""
    return _ROUNDS
