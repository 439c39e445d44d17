"""Events of the phase-level engine, a heap in order of time.

Ties. Events are ordered by (tick, registration tick, sequence): the order in which an event list that serves equal
ticks first-come-first-served would run them (replay semantics, section 5.5).
"""

from chakra.replay.engines.kernels import phases_layout as L
from chakra.replay.engines.kernels.layout import State

ENTRY_POINTS = ()
ALLOCATES = False


def push_event(s: State, tick: int, reg: int, what: int) -> None:
    """Insert an event at `tick`, registered at `reg`."""
    sequence = s.m[L.C_SEQUENCE]
    s.m[L.C_SEQUENCE] = sequence + 1
    push_in_order(s, tick, reg, sequence, what)


def push_in_order(s: State, tick: int, reg: int, sequence: int, what: int) -> None:
    """Insert an event that has its sequence number already; the order of events of equal sequence does not matter."""
    m = s.m
    heap = m[L.C_HEAP]
    i = m[L.C_HEAP_N]
    m[L.C_HEAP_N] = i + 1
    while i > 0:
        up = heap + L.EVENT_ROW * ((i - 1) >> 1)
        if m[up] < tick or (
            m[up] == tick
            and (m[up + L.E_SET] < reg or (m[up + L.E_SET] == reg and m[up + L.E_SEQUENCE] <= sequence))
        ):
            break
        at = heap + L.EVENT_ROW * i
        m[at] = m[up]
        m[at + L.E_SET] = m[up + L.E_SET]
        m[at + L.E_SEQUENCE] = m[up + L.E_SEQUENCE]
        m[at + L.E_WHAT] = m[up + L.E_WHAT]
        i = (i - 1) >> 1
    at = heap + L.EVENT_ROW * i
    m[at] = tick
    m[at + L.E_SET] = reg
    m[at + L.E_SEQUENCE] = sequence
    m[at + L.E_WHAT] = what


def event_before(s: State, a: int, b: int) -> bool:
    """Whether the event at cell a comes before the one at cell b."""
    m = s.m
    if m[a] != m[b]:
        return m[a] < m[b]
    if m[a + L.E_SET] != m[b + L.E_SET]:
        return m[a + L.E_SET] < m[b + L.E_SET]
    return m[a + L.E_SEQUENCE] < m[b + L.E_SEQUENCE]


def pop_event(s: State) -> int:
    """Remove the first event; its tick goes to C_NOW, its registration to C_SET, its description is returned."""
    m = s.m
    heap = m[L.C_HEAP]
    n = m[L.C_HEAP_N] - 1
    m[L.C_HEAP_N] = n
    m[L.C_NOW] = m[heap + L.E_TICK]
    m[L.C_SET] = m[heap + L.E_SET]
    what = m[heap + L.E_WHAT]
    last = heap + L.EVENT_ROW * n
    at = heap
    i = 0
    while 2 * i + 1 < n:
        child = heap + L.EVENT_ROW * (2 * i + 1)
        i = 2 * i + 1
        if i + 1 < n and event_before(s, child + L.EVENT_ROW, child):
            child += L.EVENT_ROW
            i += 1
        if event_before(s, last, child):
            break
        m[at] = m[child]
        m[at + L.E_SET] = m[child + L.E_SET]
        m[at + L.E_SEQUENCE] = m[child + L.E_SEQUENCE]
        m[at + L.E_WHAT] = m[child + L.E_WHAT]
        at = child
    m[at] = m[last]
    m[at + L.E_SET] = m[last + L.E_SET]
    m[at + L.E_SEQUENCE] = m[last + L.E_SEQUENCE]
    m[at + L.E_WHAT] = m[last + L.E_WHAT]
    return what
