"""How much of a link is used over time: sums over intervals that grow with the run, so that a link has few of them.

The intervals of a link are one row: how long they are, 2 to the power of the first word in ns, and behind it the use of
each, in ns times 2^SHARE_BITS (`lost` places fewer where intervals are longer than an hour). They begin at 1 ns; a tick
beyond the last makes them longer, and neighbours one.
"""

from chakra.replay.engines.kernels import layout as L
from chakra.replay.engines.kernels.layout import State

#: nothing here is compiled for its own sake, only as part of `messages.run`
ENTRY_POINTS = ()
ALLOCATES = False

#: the whole of a link is 2 to this
SHARE_BITS = 20
WHOLE = 1 << SHARE_BITS
#: binary places of an interval's ns up to which all places of its use fit 64 bits
LONG_BITS = 42


def lost(bits: int) -> int:
    """Binary places that the use of intervals of 2^bits ns lacks, so that it fits 64 bits."""
    return max(bits - LONG_BITS, 0)


def widen(s: State, use: int, tick: int) -> None:
    """Make a link's intervals so long that a tick lies in them."""
    m = s.m
    n = m[L.C_USE_N]
    more = 0
    while tick >> (m[use] + more) >= n:
        more += 1
    fewer = lost(m[use] + more) - lost(m[use])
    m[use] += more
    first = use + 1
    for k in range(n):
        part = m[first + k] >> fewer
        m[first + k] = 0
        m[first + (k >> more)] += part


def add_use(s: State, use: int, start: int, end: int, share: int) -> None:
    """A link is used from one tick to another, by so much of what it can carry (`WHOLE`: all of it)."""
    m = s.m
    if end <= start:
        return
    if (end - 1) >> m[use] >= m[L.C_USE_N]:
        widen(s, use, end - 1)
    shift = m[use]
    less = lost(shift)
    bins = use + 1
    first, last = start >> shift, (end - 1) >> shift
    if first == last:
        m[bins + first] += ((end - start) >> less) * share
        return
    m[bins + first] += ((((first + 1) << shift) - start) >> less) * share
    for k in range(first + 1, last):
        m[bins + k] += share << (shift - less)
    m[bins + last] += ((end - (last << shift)) >> less) * share
