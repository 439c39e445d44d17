"""Time of the message-level engine: events in order of (tick, scheduling), and timers bundled per NPU.

Events of one tick form a first-in-first-out bucket; a binary heap orders the distinct ticks. Runs alike on many NPUs
put hundreds of events into a tick, so most events cost a list append. Source of the order: replay semantics, 5.5.
"""

from chakra.replay.kernels.messages_layout import (
    B_HEAD,
    B_TAIL,
    B_TICK,
    C_BUCKET,
    C_FREE,
    C_HASH_MASK,
    C_HEAP_N,
    C_LAST_BUCKET,
    C_LAST_TICK,
    C_NOW,
    C_TOP,
    EV_TIMERS,
    KIND,
    NEXT,
    NIL,
    NPU_ROW,
    N_FIRST_BUNDLE,
    N_LAST_BUNDLE,
    ROW,
    State,
    T_A,
    T_B,
    T_HEAD,
    T_NPU,
    T_PREV,
    T_SUCC,
    T_TAIL,
    T_TICK,
    T_WHAT,
)

#: nothing here is compiled for its own sake, only as part of `messages.run`
ENTRY_POINTS = ()


def take_row(s: State) -> int:
    """A free row of the pool; the caller of the step made sure that there are enough."""
    row = s.c[C_FREE]
    if row != NIL:
        s.c[C_FREE] = s.ent[row + NEXT]
    else:
        row = s.c[C_TOP]
        s.c[C_TOP] = row + ROW
    return row


def free_row(s: State, row: int) -> None:
    """Give a row back."""
    s.ent[row + NEXT] = s.c[C_FREE]
    s.c[C_FREE] = row


def hash_tick(tick: int, mask: int) -> int:
    """Chain of a tick."""
    return (tick ^ (tick >> 9) ^ (tick >> 18)) & mask


def open_bucket(s: State, tick: int) -> int:
    """The bucket of a tick, made if there is none."""
    c, ent, heap, hashed = s.c, s.ent, s.heap, s.hashed
    place = hash_tick(tick, c[C_HASH_MASK])
    bucket = hashed[place]
    while bucket != NIL:
        if ent[bucket + B_TICK] == tick:
            return bucket
        bucket = ent[bucket + NEXT]
    bucket = take_row(s)
    ent[bucket + NEXT] = hashed[place]
    hashed[place] = bucket
    ent[bucket + B_TICK] = tick
    ent[bucket + B_HEAD] = NIL
    ent[bucket + B_TAIL] = NIL
    i = c[C_HEAP_N]
    c[C_HEAP_N] = i + 1
    while i > 0:
        up = (i - 1) >> 1
        if heap[2 * up] <= tick:
            break
        heap[2 * i] = heap[2 * up]
        heap[2 * i + 1] = heap[2 * up + 1]
        i = up
    heap[2 * i] = tick
    heap[2 * i + 1] = bucket
    return bucket


def schedule(s: State, tick: int, row: int) -> None:
    """Put an event behind all events that were scheduled for the same tick before."""
    c, ent = s.c, s.ent
    if tick == c[C_LAST_TICK]:
        bucket = c[C_LAST_BUCKET]
    else:
        bucket = open_bucket(s, tick)
        c[C_LAST_TICK] = tick
        c[C_LAST_BUCKET] = bucket
    ent[row + NEXT] = NIL
    tail = ent[bucket + B_TAIL]
    if tail == NIL:
        ent[bucket + B_HEAD] = row
    else:
        ent[tail + NEXT] = row
    ent[bucket + B_TAIL] = row


def close_bucket(s: State) -> None:
    """Forget the running bucket, which is empty."""
    c, ent, hashed = s.c, s.ent, s.hashed
    bucket = c[C_BUCKET]
    place = hash_tick(ent[bucket + B_TICK], c[C_HASH_MASK])
    at = hashed[place]
    if at == bucket:
        hashed[place] = ent[bucket + NEXT]
    else:
        while ent[at + NEXT] != bucket:
            at = ent[at + NEXT]
        ent[at + NEXT] = ent[bucket + NEXT]
    if c[C_LAST_BUCKET] == bucket:
        c[C_LAST_TICK] = -1
    free_row(s, bucket)
    c[C_BUCKET] = NIL


def next_bucket(s: State) -> None:
    """Make the earliest tick the running one."""
    c, heap = s.c, s.heap
    c[C_NOW] = heap[0]
    c[C_BUCKET] = heap[1]
    n = c[C_HEAP_N] - 1
    c[C_HEAP_N] = n
    tick = heap[2 * n]
    bucket = heap[2 * n + 1]
    i = 0
    down = 1
    while down < n:
        if down + 1 < n and heap[2 * down + 2] < heap[2 * down]:
            down += 1
        if tick <= heap[2 * down]:
            break
        heap[2 * i] = heap[2 * down]
        heap[2 * i + 1] = heap[2 * down + 1]
        i = down
        down = 2 * i + 1
    heap[2 * i] = tick
    heap[2 * i + 1] = bucket


def set_timer(s: State, npu: int, tick: int, what: int, a: int, b: int) -> None:
    """Call `what`(a, b) on an NPU at a tick.

    Timers of one NPU that expire together form one event, placed where the first of them was set. An NPU's bundles
    are a list in order of time, searched from the latest, which is nearly always the right place.
    """
    ent = s.ent
    me = npu * NPU_ROW
    at = s.npu[me + N_LAST_BUNDLE]
    while at != NIL and ent[at + T_TICK] > tick:
        at = ent[at + T_PREV]
    row = take_row(s)
    ent[row + T_WHAT] = what
    ent[row + T_A] = a
    ent[row + T_B] = b
    if at != NIL and ent[at + T_TICK] == tick:
        ent[row + NEXT] = NIL
        tail = ent[at + T_TAIL]
        if tail == NIL:
            ent[at + T_HEAD] = row
        else:
            ent[tail + NEXT] = row
        ent[at + T_TAIL] = row
        return
    ent[row + KIND] = EV_TIMERS
    ent[row + T_TICK] = tick
    ent[row + T_NPU] = npu
    ent[row + T_HEAD] = NIL
    ent[row + T_TAIL] = NIL
    ent[row + T_PREV] = at
    if at == NIL:
        succ = s.npu[me + N_FIRST_BUNDLE]
        s.npu[me + N_FIRST_BUNDLE] = row
    else:
        succ = ent[at + T_SUCC]
        ent[at + T_SUCC] = row
    ent[row + T_SUCC] = succ
    if succ == NIL:
        s.npu[me + N_LAST_BUNDLE] = row
    else:
        ent[succ + T_PREV] = row
    schedule(s, tick, row)


def end_bundle(s: State, bundle: int) -> None:
    """Forget a bundle that has run."""
    ent = s.ent
    me = ent[bundle + T_NPU] * NPU_ROW
    before, after = ent[bundle + T_PREV], ent[bundle + T_SUCC]
    if before == NIL:
        s.npu[me + N_FIRST_BUNDLE] = after
    else:
        ent[before + T_SUCC] = after
    if after == NIL:
        s.npu[me + N_LAST_BUNDLE] = before
    else:
        ent[after + T_PREV] = before
    free_row(s, bundle)
