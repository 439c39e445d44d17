"""Time of the message-level engine: events in order of (tick, scheduling), and timers bundled per NPU.

Events of one tick form a first-in-first-out bucket; a binary heap orders the distinct ticks. Runs alike on many NPUs
put hundreds of events into a tick, so most events cost a list append. Source of the order: replay semantics, 5.5.
"""

from chakra.replay.kernels.messages_layout import (
    B_HEAD,
    B_TAIL,
    B_TICK,
    C_BUCKET,
    C_BUNDLE,
    C_FREE,
    C_HASH,
    C_HASH_MASK,
    C_HEAP,
    C_HEAP_N,
    C_LAST_BUCKET,
    C_LAST_TICK,
    C_NOW,
    C_TOP,
    EV_TIMERS,
    KIND,
    N_FIRST_BUNDLE,
    N_LAST_BUNDLE,
    NEXT,
    NIL,
    NPU_BASE,
    NPU_ROW,
    ROW,
    T_A,
    T_B,
    T_HEAD,
    T_NPU,
    T_PREV,
    T_SUCC,
    T_TAIL,
    T_TICK,
    T_WHAT,
    State,
)

#: nothing here is compiled for its own sake, only as part of `messages.run`
ENTRY_POINTS = ()
ALLOCATES = False


def take_row(s: State) -> int:
    """A free row of the pool; the caller of the step made sure that there are enough."""
    m = s.m
    row = m[C_FREE]
    if row != NIL:
        m[C_FREE] = m[row + NEXT]
    else:
        row = m[C_TOP]
        m[C_TOP] = row + ROW
    return row


def free_row(s: State, row: int) -> None:
    """Give a row back."""
    m = s.m
    m[row + NEXT] = m[C_FREE]
    m[C_FREE] = row


def hash_tick(tick: int, mask: int) -> int:
    """Chain of a tick."""
    return (tick ^ (tick >> 9) ^ (tick >> 18)) & mask


def open_bucket(s: State, tick: int) -> int:
    """The bucket of a tick, made if there is none."""
    m = s.m
    place = hash_tick(tick, m[C_HASH_MASK])
    bucket = m[m[C_HASH] + place]
    while bucket != NIL:
        if m[bucket + B_TICK] == tick:
            return bucket
        bucket = m[bucket + NEXT]
    bucket = take_row(s)
    m[bucket + NEXT] = m[m[C_HASH] + place]
    m[m[C_HASH] + place] = bucket
    m[bucket + B_TICK] = tick
    m[bucket + B_HEAD] = NIL
    m[bucket + B_TAIL] = NIL
    heap = m[C_HEAP]
    i = m[C_HEAP_N]
    m[C_HEAP_N] = i + 1
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
    if tick == m[C_LAST_TICK]:
        bucket = m[C_LAST_BUCKET]
    else:
        bucket = open_bucket(s, tick)
        m[C_LAST_TICK] = tick
        m[C_LAST_BUCKET] = bucket
    m[row + NEXT] = NIL
    tail = m[bucket + B_TAIL]
    if tail == NIL:
        m[bucket + B_HEAD] = row
    else:
        m[tail + NEXT] = row
    m[bucket + B_TAIL] = row


def close_bucket(s: State) -> None:
    """Forget the running bucket, which is empty."""
    m = s.m
    bucket = m[C_BUCKET]
    place = hash_tick(m[bucket + B_TICK], m[C_HASH_MASK])
    at = m[m[C_HASH] + place]
    if at == bucket:
        m[m[C_HASH] + place] = m[bucket + NEXT]
    else:
        while m[at + NEXT] != bucket:
            at = m[at + NEXT]
        m[at + NEXT] = m[bucket + NEXT]
    if m[C_LAST_BUCKET] == bucket:
        m[C_LAST_TICK] = -1
    free_row(s, bucket)
    m[C_BUCKET] = NIL


def next_bucket(s: State) -> None:
    """Make the earliest tick the running one."""
    m = s.m
    heap = m[C_HEAP]
    m[C_NOW] = m[heap]
    m[C_BUCKET] = m[heap + 1]
    n = m[C_HEAP_N] - 1
    m[C_HEAP_N] = n
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
    me = NPU_BASE + npu * NPU_ROW
    at = m[me + N_LAST_BUNDLE]
    while at != NIL and m[at + T_TICK] > tick:
        at = m[at + T_PREV]
    row = take_row(s)
    m[row + T_WHAT] = what
    m[row + T_A] = a
    m[row + T_B] = b
    if at != NIL and m[at + T_TICK] == tick:
        m[row + NEXT] = NIL
        tail = m[at + T_TAIL]
        if tail == NIL:
            m[at + T_HEAD] = row
        else:
            m[tail + NEXT] = row
        m[at + T_TAIL] = row
        return
    m[row + KIND] = EV_TIMERS
    m[row + T_TICK] = tick
    m[row + T_NPU] = npu
    m[row + T_HEAD] = NIL
    m[row + T_TAIL] = NIL
    m[row + T_PREV] = at
    if at == NIL:
        succ = m[me + N_FIRST_BUNDLE]
        m[me + N_FIRST_BUNDLE] = row
    else:
        succ = m[at + T_SUCC]
        m[at + T_SUCC] = row
    m[row + T_SUCC] = succ
    if succ == NIL:
        m[me + N_LAST_BUNDLE] = row
    else:
        m[succ + T_PREV] = row
    schedule(s, tick, row)


def end_bundle(s: State) -> None:
    """Forget the running bundle, whose timers have all run."""
    m = s.m
    bundle = m[C_BUNDLE]
    m[C_BUNDLE] = NIL
    me = NPU_BASE + m[bundle + T_NPU] * NPU_ROW
    before, after = m[bundle + T_PREV], m[bundle + T_SUCC]
    if before == NIL:
        m[me + N_FIRST_BUNDLE] = after
    else:
        m[before + T_SUCC] = after
    if after == NIL:
        m[me + N_LAST_BUNDLE] = before
    else:
        m[after + T_PREV] = before
    free_row(s, bundle)
