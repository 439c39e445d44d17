"""Time of the message-level engine: events in order of (tick, scheduling), and timers bundled per NPU.

Events of one tick form a first-in-first-out bucket; a binary heap orders the distinct ticks. Runs alike on many NPUs
put hundreds of events into a tick, so most events cost a list append. Source of the order: replay semantics, section 5.5.
"""

from chakra.replay.engines.kernels import messages_layout as L
from chakra.replay.engines.kernels.layout import State

#: nothing here is compiled for its own sake, only as part of `messages.run`
ENTRY_POINTS = ()
ALLOCATES = False


def take_row(s: State) -> int:
    """A free row of the pool; the caller of the step made sure that there are enough."""
    m = s.m
    row = m[L.C_FREE]
    if row != L.NIL:
        m[L.C_FREE] = m[row + L.NEXT]
    else:
        row = m[L.C_TOP]
        m[L.C_TOP] = row + L.ROW
    return row


def free_row(s: State, row: int) -> None:
    """Give a row back."""
    m = s.m
    m[row + L.NEXT] = m[L.C_FREE]
    m[L.C_FREE] = row


def hash_tick(tick: int, mask: int) -> int:
    """Chain of a tick."""
    return (tick ^ (tick >> 9) ^ (tick >> 18)) & mask


def open_bucket(s: State, tick: int) -> int:
    """The bucket of a tick, made if there is none."""
    m = s.m
    place = hash_tick(tick, m[L.C_HASH_MASK])
    bucket = m[m[L.C_HASH] + place]
    while bucket != L.NIL:
        if m[bucket + L.B_TICK] == tick:
            return bucket
        bucket = m[bucket + L.NEXT]
    bucket = take_row(s)
    m[bucket + L.NEXT] = m[m[L.C_HASH] + place]
    m[m[L.C_HASH] + place] = bucket
    m[bucket + L.B_TICK] = tick
    m[bucket + L.B_HEAD] = L.NIL
    m[bucket + L.B_TAIL] = L.NIL
    heap = m[L.C_HEAP]
    i = m[L.C_HEAP_N]
    m[L.C_HEAP_N] = i + 1
    while i > 0:
        up = (i - 1) >> 1
        if m[heap + 2 * up] <= tick:
            break
        m[heap + 2 * i] = m[heap + 2 * up]
        m[heap + 2 * i + 1] = m[heap + 2 * up + 1]
        i = up
    m[heap + 2 * i] = tick
    m[heap + 2 * i + 1] = bucket
    return bucket


def schedule(s: State, tick: int, row: int) -> None:
    """Put an event behind all events that were scheduled for the same tick before."""
    m = s.m
    if tick == m[L.C_LAST_TICK]:
        bucket = m[L.C_LAST_BUCKET]
    else:
        bucket = open_bucket(s, tick)
        m[L.C_LAST_TICK] = tick
        m[L.C_LAST_BUCKET] = bucket
    m[row + L.NEXT] = L.NIL
    tail = m[bucket + L.B_TAIL]
    if tail == L.NIL:
        m[bucket + L.B_HEAD] = row
    else:
        m[tail + L.NEXT] = row
    m[bucket + L.B_TAIL] = row


def close_bucket(s: State) -> None:
    """Forget the running bucket, which is empty."""
    m = s.m
    bucket = m[L.C_BUCKET]
    place = hash_tick(m[bucket + L.B_TICK], m[L.C_HASH_MASK])
    at = m[m[L.C_HASH] + place]
    if at == bucket:
        m[m[L.C_HASH] + place] = m[bucket + L.NEXT]
    else:
        while m[at + L.NEXT] != bucket:
            at = m[at + L.NEXT]
        m[at + L.NEXT] = m[bucket + L.NEXT]
    if m[L.C_LAST_BUCKET] == bucket:
        m[L.C_LAST_TICK] = -1
    free_row(s, bucket)
    m[L.C_BUCKET] = L.NIL


def next_bucket(s: State) -> None:
    """Make the earliest tick the running one."""
    m = s.m
    heap = m[L.C_HEAP]
    m[L.C_NOW] = m[heap]
    m[L.C_BUCKET] = m[heap + 1]
    n = m[L.C_HEAP_N] - 1
    m[L.C_HEAP_N] = n
    tick = m[heap + 2 * n]
    bucket = m[heap + 2 * n + 1]
    i = 0
    down = 1
    while down < n:
        if down + 1 < n and m[heap + 2 * down + 2] < m[heap + 2 * down]:
            down += 1
        if tick <= m[heap + 2 * down]:
            break
        m[heap + 2 * i] = m[heap + 2 * down]
        m[heap + 2 * i + 1] = m[heap + 2 * down + 1]
        i = down
        down = 2 * i + 1
    m[heap + 2 * i] = tick
    m[heap + 2 * i + 1] = bucket


def set_timer(s: State, npu: int, tick: int, what: int, a: int, b: int) -> None:
    """Call `what`(a, b) on an NPU at a tick.

    Timers of one NPU that expire together form one event, placed where the first of them was set. An NPU's bundles
    are a list in order of time, searched from the latest, which is nearly always the right place.
    """
    m = s.m
    me = L.NPU_BASE + npu * L.NPU_ROW
    at = m[me + L.N_LAST_BUNDLE]
    while at != L.NIL and m[at + L.T_TICK] > tick:
        at = m[at + L.T_PREV]
    row = take_row(s)
    m[row + L.T_WHAT] = what
    m[row + L.T_A] = a
    m[row + L.T_B] = b
    if at != L.NIL and m[at + L.T_TICK] == tick:
        m[row + L.NEXT] = L.NIL
        tail = m[at + L.T_TAIL]
        if tail == L.NIL:
            m[at + L.T_HEAD] = row
        else:
            m[tail + L.NEXT] = row
        m[at + L.T_TAIL] = row
        return
    m[row + L.KIND] = L.EV_TIMERS
    m[row + L.T_TICK] = tick
    m[row + L.T_NPU] = npu
    m[row + L.T_HEAD] = L.NIL
    m[row + L.T_TAIL] = L.NIL
    m[row + L.T_PREV] = at
    if at == L.NIL:
        succ = m[me + L.N_FIRST_BUNDLE]
        m[me + L.N_FIRST_BUNDLE] = row
    else:
        succ = m[at + L.T_SUCC]
        m[at + L.T_SUCC] = row
    m[row + L.T_SUCC] = succ
    if succ == L.NIL:
        m[me + L.N_LAST_BUNDLE] = row
    else:
        m[succ + L.T_PREV] = row
    schedule(s, tick, row)


def end_bundle(s: State) -> None:
    """Forget the running bundle, whose timers have all run."""
    m = s.m
    bundle = m[L.C_BUNDLE]
    m[L.C_BUNDLE] = L.NIL
    me = L.NPU_BASE + m[bundle + L.T_NPU] * L.NPU_ROW
    before, after = m[bundle + L.T_PREV], m[bundle + L.T_SUCC]
    if before == L.NIL:
        m[me + L.N_FIRST_BUNDLE] = after
    else:
        m[before + L.T_SUCC] = after
    if after == L.NIL:
        m[me + L.N_LAST_BUNDLE] = before
    else:
        m[after + L.T_PREV] = before
    free_row(s, bundle)
