"""Heaps of the phase-level kernel: events in order of time, and ready nodes of a slot in order of id.

Ties. Events are ordered by (tick, registration tick, sequence): the order in which an event list that serves equal
ticks first-come-first-served would run them (replay semantics, section 5.5).
"""

from chakra.arrays import I64
from chakra.replay.engines.kernels import phases_layout as L

ENTRY_POINTS = ()
ALLOCATES = False


def push_event(m: I64, t: I64, tick: int, reg: int, what: int) -> None:
    """Insert an event at `tick`, registered at `reg`."""
    seq = m[t[L.ST_SCALARS] + L.SC_SEQ]
    m[t[L.ST_SCALARS] + L.SC_SEQ] = seq + 1
    push_in_order(m, t, tick, reg, seq, what)


def push_in_order(m: I64, t: I64, tick: int, reg: int, seq: int, what: int) -> None:
    """Insert an event that has its sequence number already; the order of events of equal sequence does not matter."""
    scalars = t[L.ST_SCALARS]
    heap = t[L.ST_HEAP]
    i = m[scalars + L.SC_HEAP]
    m[scalars + L.SC_HEAP] = i + 1
    while i > 0:
        up = heap + 4 * ((i - 1) >> 1)
        if m[up] < tick or (m[up] == tick and (m[up + 1] < reg or (m[up + 1] == reg and m[up + 2] <= seq))):
            break
        at = heap + 4 * i
        m[at] = m[up]
        m[at + 1] = m[up + 1]
        m[at + 2] = m[up + 2]
        m[at + 3] = m[up + 3]
        i = (i - 1) >> 1
    at = heap + 4 * i
    m[at] = tick
    m[at + 1] = reg
    m[at + 2] = seq
    m[at + 3] = what


def event_before(m: I64, a: int, b: int) -> bool:
    """Whether the event at cell a comes before the one at cell b."""
    if m[a] != m[b]:
        return bool(m[a] < m[b])
    if m[a + 1] != m[b + 1]:
        return bool(m[a + 1] < m[b + 1])
    return bool(m[a + 2] < m[b + 2])


def pop_event(m: I64, t: I64) -> int:
    """Remove the first event; its tick goes to SC_NOW, its description is returned."""
    scalars = t[L.ST_SCALARS]
    heap = t[L.ST_HEAP]
    n = m[scalars + L.SC_HEAP] - 1
    m[scalars + L.SC_HEAP] = n
    m[scalars + L.SC_NOW] = m[heap]
    what = m[heap + 3]
    last = heap + 4 * n
    i = 0
    while 2 * i + 1 < n:
        child = heap + 4 * (2 * i + 1)
        step = 1
        if 2 * i + 2 < n and event_before(m, child + 4, child):
            child += 4
            step = 2
        if event_before(m, last, child):
            break
        at = heap + 4 * i
        m[at] = m[child]
        m[at + 1] = m[child + 1]
        m[at + 2] = m[child + 2]
        m[at + 3] = m[child + 3]
        i = 2 * i + step
    at = heap + 4 * i
    m[at] = m[last]
    m[at + 1] = m[last + 1]
    m[at + 2] = m[last + 2]
    m[at + 3] = m[last + 3]
    return int(what)


def push_ready(ready: I64, base: int, n: int, node: int) -> None:
    """Insert `node` into the ready heap of `n` entries at `base` (least id first)."""
    i = n
    while i > 0:
        up = (i - 1) >> 1
        if ready[base + up] < node:
            break
        ready[base + i] = ready[base + up]
        i = up
    ready[base + i] = node


def pop_ready(ready: I64, base: int, n: int) -> int:
    """Remove the least node of the ready heap of `n` entries at `base`."""
    node = ready[base]
    last = ready[base + n - 1]
    m = n - 1
    i = 0
    while True:
        child = 2 * i + 1
        if child >= m:
            break
        if child + 1 < m and ready[base + child + 1] < ready[base + child]:
            child += 1
        if last < ready[base + child]:
            break
        ready[base + i] = ready[base + child]
        i = child
    ready[base + i] = last
    return int(node)
