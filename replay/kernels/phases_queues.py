"""Streams of the phase-level kernel: the queues of a dimension, and starting the phases that wait in them.

Source: replay semantics, sections 3.4, 4.8 and 7.3.
"""

from chakra.arrays import I64
from chakra.replay.kernels.phases_ends import eval_phase, find_duration
from chakra.replay.kernels.phases_heaps import push_in_order
from chakra.replay.kernels.phases_layout import (
    AC_GROUP_COMM,
    AC_GROUP_MEMBER,
    ALG_NONE,
    CO_ACTORS,
    CO_MEMBER,
    CO_MEMBER_ACTOR,
    CO_RING_ACTOR,
    CO_RING_ACTORS,
    CO_RING_INDEX,
    CO_RING_OF,
    CO_RING_SIZE,
    CO_RING_START,
    CO_VIEW_RING,
    CO_VIEW_START,
    DO_ALL_GATHER,
    DO_ALL_REDUCE,
    DO_ALL_TO_ALL,
    DO_REDUCE_SCATTER,
    EV_PHASE,
    ORDER_FIFO,
    ORDER_RG,
    ORDER_SMALLEST_FIRST,
    PH_ALG,
    PH_CELLS,
    PH_DIM,
    PH_DO,
    PH_LAST,
    PH_LEFT,
    PH_SENT,
    PH_SIZE,
    PH_TAU,
    PH_VIEW,
    PL_CHUNKS,
    PL_PHASES,
    QUEUE_ANY,
    QUEUE_FIRST,
    QUEUE_LAST,
    RU_ACTORS,
    RU_CONTEXTS,
    RU_DIMS,
    RU_MAX_CHUNKS,
    RU_MAX_PHASES,
    RU_ORDER,
    RU_QUEUES,
    RU_RUNNING,
    RU_SCRATCH,
    SC_NOW,
    SC_SEQ,
    ST_CTX_GROUP,
    ST_CTX_INST,
    ST_CTX_RANK,
    ST_CURSOR,
    ST_DIM_BYTES,
    ST_INST_BLOCK,
    ST_INST_PLAN,
    ST_POOL,
    ST_Q_BUSY,
    ST_Q_HEAD,
    ST_Q_TAIL,
    ST_SCALARS,
    ST_SCRATCH,
    ST_ST_FIRST,
    ST_ST_NEXT,
    ST_ST_PHASE,
    ST_ST_QUEUE,
    ST_ST_SEQ,
    TAU_UNKNOWN,
    Net,
)

ENTRY_POINTS = ()
ALLOCATES = False


def choose_queue(m: I64, t: I64, a: int, dim: int, rule: int) -> int:
    """Next queue of a dimension by the rule's round robin; times two, plus one if anticlockwise (section 3.4)."""
    nq = t[RU_QUEUES]
    half = nq // 2
    cell = (a * t[RU_DIMS] + dim) * 3 + rule
    turn = m[t[ST_CURSOR] + cell]
    m[t[ST_CURSOR] + cell] = turn + 1
    if nq == 1:
        return (dim * nq) * 2 + (1 if rule == QUEUE_LAST else 0)
    if rule == QUEUE_ANY:
        q = turn % nq
        return (dim * nq + q) * 2 + (0 if q < half else 1)
    if rule == QUEUE_FIRST:
        return (dim * nq + turn % max(half, 1)) * 2
    return (dim * nq + half + turn % (nq - half)) * 2 + 1


def phase_of(m: I64, t: I64, stream: int) -> int:
    """Cell of a stream's current phase."""
    return int(m[t[ST_ST_FIRST] + stream] + PH_CELLS * m[t[ST_ST_PHASE] + stream])


def goes_before(m: I64, t: I64, stream: int, other: int) -> bool:
    """Whether a stream is served before another one that already waits (section 7.3)."""
    f = phase_of(m, t, stream)
    h = phase_of(m, t, other)
    if t[RU_ORDER] == ORDER_SMALLEST_FIRST:
        return m[h + PH_SIZE] >= m[f + PH_SIZE]
    return m[h + PH_LEFT] >= m[f + PH_LEFT]


def rank_of(m: I64, t: I64, stream: int) -> int:
    """Priority of a stream's collective."""
    return int(m[t[ST_CTX_RANK] + stream // t[RU_MAX_CHUNKS]])


def enter_queue(m: I64, t: I64, a: int, stream: int) -> None:
    """Put a stream into the queue of its current phase, where the scheduling policy says (section 7.3)."""
    q = a * t[RU_DIMS] * t[RU_QUEUES] + (
        m[t[ST_ST_QUEUE] + stream * t[RU_MAX_PHASES] + m[t[ST_ST_PHASE] + stream]] >> 2
    )
    do = m[phase_of(m, t, stream) + PH_DO]
    mine = rank_of(m, t, stream)
    before = -1
    at = m[t[ST_Q_HEAD] + q]
    if t[RU_ORDER] == ORDER_FIFO or do in (DO_ALL_REDUCE, DO_ALL_TO_ALL):
        if at >= 0 and t[RU_ORDER] == ORDER_FIFO and rank_of(m, t, m[t[ST_Q_TAIL] + q]) >= mine:
            before = m[t[ST_Q_TAIL] + q]
            at = -1
        while at >= 0 and rank_of(m, t, at) >= mine:
            before = at
            at = m[t[ST_ST_NEXT] + at]
    elif t[RU_ORDER] == ORDER_RG:
        last = -1
        if at >= 0 and m[t[ST_Q_BUSY] + q] > 0:
            last = m[phase_of(m, t, at) + PH_DO]
            before = at
            at = m[t[ST_ST_NEXT] + at]
        while at >= 0:
            earlier = last
            last = m[phase_of(m, t, at) + PH_DO]
            alternate = (last == DO_REDUCE_SCATTER and earlier == DO_ALL_GATHER) or (
                last == DO_ALL_GATHER and earlier == DO_REDUCE_SCATTER
            )
            if not alternate and rank_of(m, t, at) <= mine:
                break
            before = at
            at = m[t[ST_ST_NEXT] + at]
    else:
        while at >= 0 and not goes_before(m, t, stream, at):
            before = at
            at = m[t[ST_ST_NEXT] + at]
    m[t[ST_ST_NEXT] + stream] = at
    if before < 0:
        m[t[ST_Q_HEAD] + q] = stream
    else:
        m[t[ST_ST_NEXT] + before] = stream
    if at < 0:
        m[t[ST_Q_TAIL] + q] = stream


def start_waiting(m: I64, t: I64, net: Net, a: int, queue: int) -> None:
    """Start waiting streams of a queue while it runs fewer than it may."""
    q = a * t[RU_DIMS] * t[RU_QUEUES] + queue
    while m[t[ST_Q_BUSY] + q] < t[RU_RUNNING] and m[t[ST_Q_HEAD] + q] >= 0:
        start_first(m, t, net, a, q)


def start_first(m: I64, t: I64, net: Net, a: int, q: int) -> None:
    """Start the first stream that waits in queue q (counted over all actors)."""
    stream = m[t[ST_Q_HEAD] + q]
    m[t[ST_Q_HEAD] + q] = m[t[ST_ST_NEXT] + stream]
    if m[t[ST_Q_HEAD] + q] < 0:
        m[t[ST_Q_TAIL] + q] = -1
    m[t[ST_Q_BUSY] + q] += 1
    start_phase(m, t, net, a, stream)


def relieve(m: I64, t: I64, net: Net) -> bool:
    """Everything waits: start the first waiting stream of each queue, one more than the queue runs (C13)."""
    started = False
    queues = t[RU_DIMS] * t[RU_QUEUES]
    for q in range(t[RU_ACTORS] * queues):
        if m[t[ST_Q_HEAD] + q] >= 0:
            start_first(m, t, net, q // queues, q)
            started = True
    return started


def start_phase(m: I64, t: I64, net: Net, a: int, stream: int) -> None:
    """A stream starts its current phase; the last member to start computes when everybody ends."""
    now = m[t[ST_SCALARS] + SC_NOW]
    ctx = stream // t[RU_MAX_CHUNKS]
    chunk = stream % t[RU_MAX_CHUNKS]
    inst = m[t[ST_CTX_INST] + ctx]
    plan = m[t[ST_INST_PLAN] + inst]
    k = m[t[ST_ST_PHASE] + stream]
    f = phase_of(m, t, stream)
    # an NPU's phases that end together do so in the order in which that NPU started them, whoever started last
    m[t[ST_ST_SEQ] + stream] = m[t[ST_SCALARS] + SC_SEQ]
    m[t[ST_SCALARS] + SC_SEQ] += 1
    group = m[t[ST_CTX_GROUP] + ctx]
    comm = m[t[AC_GROUP_COMM] + group]
    member = m[t[AC_GROUP_MEMBER] + group]
    members = m[t[CO_ACTORS] + comm]
    m[t[ST_DIM_BYTES] + a * t[RU_DIMS] + m[f + PH_DIM]] += m[f + PH_SENT]
    ring = m[t[CO_RING_OF] + m[t[CO_VIEW_RING] + m[t[CO_VIEW_START] + comm] + m[f + PH_VIEW]] + member]
    row = m[t[ST_INST_BLOCK] + inst] + (chunk * m[t[PL_PHASES] + plan] + k) * members
    m[t[ST_POOL] + row + member] = now
    count = row + m[t[PL_CHUNKS] + plan] * m[t[PL_PHASES] + plan] * members + m[t[CO_RING_INDEX] + ring]
    m[t[ST_POOL] + count] += 1
    if m[t[ST_POOL] + count] < m[t[CO_RING_ACTORS] + ring]:
        return
    anticlockwise = (m[t[ST_ST_QUEUE] + stream * t[RU_MAX_PHASES] + k] >> 1) & 1
    second_tree = m[t[ST_ST_QUEUE] + stream * t[RU_MAX_PHASES] + k] & 1
    if m[f + PH_TAU] == TAU_UNKNOWN:
        find_duration(m, t, net, f, ring)
    if m[t[CO_RING_ACTORS] + ring] == 1 and m[f + PH_TAU] >= 0:
        end = now + m[f + PH_TAU]
        push_in_order(
            m, t, end, end - m[f + PH_LAST], m[t[ST_ST_SEQ] + stream], EV_PHASE | a << 2 | stream << 32
        )
        return
    n = m[t[CO_RING_SIZE] + ring]
    pos0 = m[t[CO_RING_START] + ring]
    x = m[t[ST_SCRATCH] : t[ST_SCRATCH] + t[RU_SCRATCH]]
    equal = m[f + PH_TAU] >= 0
    for i in range(n):
        x[i] = m[t[ST_POOL] + row + m[t[CO_RING_ACTOR] + pos0 + i]]
        if x[i] != now:
            equal = False
    last = m[f + PH_LAST]
    if equal or m[f + PH_ALG] == ALG_NONE:
        for i in range(n):
            x[i] = now + m[f + PH_TAU]
    else:
        last = eval_phase(m, t, net, f, n, pos0, -1 if anticlockwise == 1 else 1, second_tree)
    # every actor of the ring has its own stream for this chunk; a position's actor may stand at several positions
    for i in range(n):
        x[i] = max(x[i], now)  # a root may be done before the last member starts; it leaves with it
        other = m[t[CO_RING_ACTOR] + pos0 + i]
        if m[t[ST_POOL] + row + other] < 0:
            continue
        m[t[ST_POOL] + row + other] = -1
        b = m[t[CO_MEMBER_ACTOR] + m[t[CO_MEMBER] + comm] + other]
        stream_b = stream_of(m, t, b, inst, chunk)
        push_in_order(
            m,
            t,
            x[i],
            max(x[i] - last, now),
            m[t[ST_ST_SEQ] + stream_b],
            EV_PHASE | b << 2 | stream_b << 32,
        )


def stream_of(m: I64, t: I64, a: int, inst: int, chunk: int) -> int:
    """The stream in which actor a runs a chunk of a collective instance."""
    ctx = a * t[RU_CONTEXTS]
    while m[t[ST_CTX_INST] + ctx] != inst:
        ctx += 1
    return ctx * t[RU_MAX_CHUNKS] + chunk
