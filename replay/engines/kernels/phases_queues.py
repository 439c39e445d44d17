"""Streams of the phase-level kernel: the queues of a dimension, and starting the phases that wait in them.

Source: replay semantics, sections 3.4, 4.8 and 7.3.
"""

from chakra.arrays import I64
from chakra.replay.engines.kernels import phases_layout as L
from chakra.replay.engines.kernels.phases_ends import eval_phase, find_duration
from chakra.replay.engines.kernels.phases_heaps import push_in_order
from chakra.replay.engines.kernels.phases_layout import Net

ENTRY_POINTS = ()
ALLOCATES = False


def choose_queue(m: I64, t: I64, a: int, dim: int, rule: int) -> int:
    """Next queue of a dimension by the rule's round robin; times two, plus one if anticlockwise (section 3.4)."""
    nq = t[L.RU_QUEUES]
    half = nq // 2
    cell = (a * t[L.RU_DIMS] + dim) * 3 + rule
    turn = m[t[L.ST_CURSOR] + cell]
    m[t[L.ST_CURSOR] + cell] = turn + 1
    if nq == 1:
        return (dim * nq) * 2 + (1 if rule == L.QUEUE_LAST else 0)
    if rule == L.QUEUE_ANY:
        q = turn % nq
        return (dim * nq + q) * 2 + (0 if q < half else 1)
    if rule == L.QUEUE_FIRST:
        return (dim * nq + turn % max(half, 1)) * 2
    return (dim * nq + half + turn % (nq - half)) * 2 + 1


def phase_of(m: I64, t: I64, stream: int) -> int:
    """Cell of a stream's current phase."""
    return int(m[t[L.ST_ST_FIRST] + stream] + L.PH_CELLS * m[t[L.ST_ST_PHASE] + stream])


def goes_before(m: I64, t: I64, stream: int, other: int) -> bool:
    """Whether a stream is served before another one that already waits (section 7.3)."""
    f = phase_of(m, t, stream)
    h = phase_of(m, t, other)
    if t[L.RU_ORDER] == L.ORDER_SMALLEST_FIRST:
        return m[h + L.PH_SIZE] >= m[f + L.PH_SIZE]
    return m[h + L.PH_LEFT] >= m[f + L.PH_LEFT]


def rank_of(m: I64, t: I64, stream: int) -> int:
    """Priority of a stream's collective."""
    return int(m[t[L.ST_CTX_RANK] + stream // t[L.RU_MAX_CHUNKS]])


def enter_queue(m: I64, t: I64, a: int, stream: int) -> None:
    """Put a stream into the queue of its current phase, where the scheduling policy says (section 7.3)."""
    q = a * t[L.RU_DIMS] * t[L.RU_QUEUES] + (
        m[t[L.ST_ST_QUEUE] + stream * t[L.RU_MAX_PHASES] + m[t[L.ST_ST_PHASE] + stream]] >> 2
    )
    do = m[phase_of(m, t, stream) + L.PH_DO]
    mine = rank_of(m, t, stream)
    before = -1
    at = m[t[L.ST_Q_HEAD] + q]
    if t[L.RU_ORDER] == L.ORDER_FIFO or do in (L.DO_ALL_REDUCE, L.DO_ALL_TO_ALL):
        if at >= 0 and t[L.RU_ORDER] == L.ORDER_FIFO and rank_of(m, t, m[t[L.ST_Q_TAIL] + q]) >= mine:
            before = m[t[L.ST_Q_TAIL] + q]
            at = -1
        while at >= 0 and rank_of(m, t, at) >= mine:
            before = at
            at = m[t[L.ST_ST_NEXT] + at]
    elif t[L.RU_ORDER] == L.ORDER_RG:
        last = -1
        if at >= 0 and m[t[L.ST_Q_BUSY] + q] > 0:
            last = m[phase_of(m, t, at) + L.PH_DO]
            before = at
            at = m[t[L.ST_ST_NEXT] + at]
        while at >= 0:
            earlier = last
            last = m[phase_of(m, t, at) + L.PH_DO]
            alternate = (last == L.DO_REDUCE_SCATTER and earlier == L.DO_ALL_GATHER) or (
                last == L.DO_ALL_GATHER and earlier == L.DO_REDUCE_SCATTER
            )
            if not alternate and rank_of(m, t, at) <= mine:
                break
            before = at
            at = m[t[L.ST_ST_NEXT] + at]
    else:
        while at >= 0 and not goes_before(m, t, stream, at):
            before = at
            at = m[t[L.ST_ST_NEXT] + at]
    m[t[L.ST_ST_NEXT] + stream] = at
    if before < 0:
        m[t[L.ST_Q_HEAD] + q] = stream
    else:
        m[t[L.ST_ST_NEXT] + before] = stream
    if at < 0:
        m[t[L.ST_Q_TAIL] + q] = stream


def start_waiting(m: I64, t: I64, net: Net, a: int, queue: int) -> None:
    """Start waiting streams of a queue while it runs fewer than it may."""
    q = a * t[L.RU_DIMS] * t[L.RU_QUEUES] + queue
    while m[t[L.ST_Q_BUSY] + q] < t[L.RU_RUNNING] and m[t[L.ST_Q_HEAD] + q] >= 0:
        start_first(m, t, net, a, q)


def start_first(m: I64, t: I64, net: Net, a: int, q: int) -> None:
    """Start the first stream that waits in queue q (counted over all actors)."""
    stream = m[t[L.ST_Q_HEAD] + q]
    m[t[L.ST_Q_HEAD] + q] = m[t[L.ST_ST_NEXT] + stream]
    if m[t[L.ST_Q_HEAD] + q] < 0:
        m[t[L.ST_Q_TAIL] + q] = -1
    m[t[L.ST_Q_BUSY] + q] += 1
    start_phase(m, t, net, a, stream)


def relieve(m: I64, t: I64, net: Net) -> bool:
    """Everything waits: start the first waiting stream of each queue, one more than the queue runs (C13)."""
    started = False
    queues = t[L.RU_DIMS] * t[L.RU_QUEUES]
    for q in range(t[L.RU_ACTORS] * queues):
        if m[t[L.ST_Q_HEAD] + q] >= 0:
            start_first(m, t, net, q // queues, q)
            started = True
    return started


def start_phase(m: I64, t: I64, net: Net, a: int, stream: int) -> None:
    """A stream starts its current phase; the last member to start computes when everybody ends."""
    now = m[t[L.ST_SCALARS] + L.SC_NOW]
    ctx = stream // t[L.RU_MAX_CHUNKS]
    chunk = stream % t[L.RU_MAX_CHUNKS]
    inst = m[t[L.ST_CTX_INST] + ctx]
    plan = m[t[L.ST_INST_PLAN] + inst]
    k = m[t[L.ST_ST_PHASE] + stream]
    f = phase_of(m, t, stream)
    # an NPU's phases that end together do so in the order in which that NPU started them, whoever started last
    m[t[L.ST_ST_SEQ] + stream] = m[t[L.ST_SCALARS] + L.SC_SEQ]
    m[t[L.ST_SCALARS] + L.SC_SEQ] += 1
    group = m[t[L.ST_CTX_GROUP] + ctx]
    comm = m[t[L.AC_GROUP_COMM] + group]
    member = m[t[L.AC_GROUP_MEMBER] + group]
    members = m[t[L.CO_ACTORS] + comm]
    m[t[L.ST_DIM_BYTES] + a * t[L.RU_DIMS] + m[f + L.PH_DIM]] += m[f + L.PH_SENT]
    ring = m[
        t[L.CO_RING_OF] + m[t[L.CO_VIEW_RING] + m[t[L.CO_VIEW_START] + comm] + m[f + L.PH_VIEW]] + member
    ]
    row = m[t[L.ST_INST_BLOCK] + inst] + (chunk * m[t[L.PL_PHASES] + plan] + k) * members
    m[t[L.ST_POOL] + row + member] = now
    count = row + m[t[L.PL_CHUNKS] + plan] * m[t[L.PL_PHASES] + plan] * members + m[t[L.CO_RING_INDEX] + ring]
    m[t[L.ST_POOL] + count] += 1
    if m[t[L.ST_POOL] + count] < m[t[L.CO_RING_ACTORS] + ring]:
        return
    anticlockwise = (m[t[L.ST_ST_QUEUE] + stream * t[L.RU_MAX_PHASES] + k] >> 1) & 1
    second_tree = m[t[L.ST_ST_QUEUE] + stream * t[L.RU_MAX_PHASES] + k] & 1
    if m[f + L.PH_TAU] == L.TAU_UNKNOWN:
        find_duration(m, t, net, f, ring)
    if m[t[L.CO_RING_ACTORS] + ring] == 1 and m[f + L.PH_TAU] >= 0:
        end = now + m[f + L.PH_TAU]
        push_in_order(
            m, t, end, end - m[f + L.PH_LAST], m[t[L.ST_ST_SEQ] + stream], L.EV_PHASE | a << 2 | stream << 32
        )
        return
    n = m[t[L.CO_RING_SIZE] + ring]
    pos0 = m[t[L.CO_RING_START] + ring]
    x = m[t[L.ST_SCRATCH] : t[L.ST_SCRATCH] + t[L.RU_SCRATCH]]
    equal = m[f + L.PH_TAU] >= 0
    for i in range(n):
        x[i] = m[t[L.ST_POOL] + row + m[t[L.CO_RING_ACTOR] + pos0 + i]]
        if x[i] != now:
            equal = False
    last = m[f + L.PH_LAST]
    if equal or m[f + L.PH_ALG] == L.ALG_NONE:
        for i in range(n):
            x[i] = now + m[f + L.PH_TAU]
    else:
        last = eval_phase(m, t, net, f, n, pos0, -1 if anticlockwise == 1 else 1, second_tree)
    # every actor of the ring has its own stream for this chunk; a position's actor may stand at several positions
    for i in range(n):
        x[i] = max(x[i], now)  # a root may be done before the last member starts; it leaves with it
        other = m[t[L.CO_RING_ACTOR] + pos0 + i]
        if m[t[L.ST_POOL] + row + other] < 0:
            continue
        m[t[L.ST_POOL] + row + other] = -1
        b = m[t[L.CO_MEMBER_ACTOR] + m[t[L.CO_MEMBER] + comm] + other]
        stream_b = stream_of(m, t, b, inst, chunk)
        push_in_order(
            m,
            t,
            x[i],
            max(x[i] - last, now),
            m[t[L.ST_ST_SEQ] + stream_b],
            L.EV_PHASE | b << 2 | stream_b << 32,
        )


def stream_of(m: I64, t: I64, a: int, inst: int, chunk: int) -> int:
    """The stream in which actor a runs a chunk of a collective instance."""
    ctx = a * t[L.RU_CONTEXTS]
    while m[t[L.ST_CTX_INST] + ctx] != inst:
        ctx += 1
    return ctx * t[L.RU_MAX_CHUNKS] + chunk
