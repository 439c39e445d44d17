"""Streams of the phase-level engine: starting a phase, and when it ends on each member.

Source: replay semantics, sections 4.8 and 9.
"""

from chakra.replay.engines.kernels import codes as K
from chakra.replay.engines.kernels import phases_layout as L
from chakra.replay.engines.kernels.layout import State
from chakra.replay.engines.kernels.packets import free_delay, uneven_reduction
from chakra.replay.engines.kernels.phases_algorithms import (
    eval_chain,
    eval_credits,
    eval_direct_open,
    eval_steps,
    eval_tree,
    leaves,
    set_duration,
)
from chakra.replay.engines.kernels.phases_events import push_in_order
from chakra.replay.engines.kernels.phases_overlap import start_beside
from chakra.replay.engines.kernels.queues import next_blocked, next_waiting, take_first

ENTRY_POINTS = ()
ALLOCATES = False


def find_duration(s: State, f: int, npus: int) -> None:
    """Fill in the duration of a phase that was made during the run."""
    m = s.m
    same, size = m[f + L.PH_SAME], m[f + L.PH_BYTES]
    kept = m[L.C_MEMO] + L.MEMO_ROW * ((size * 7919 + same * 104729) % L.MEMO)
    if m[kept + L.ME_SAME] != same or m[kept + L.ME_BYTES] != size:
        set_duration(s, f, npus, True)
        m[kept + L.ME_SAME] = same
        m[kept + L.ME_BYTES] = size
        m[kept + L.ME_TAU] = m[f + L.PH_TAU]
        m[kept + L.ME_LAST] = m[f + L.PH_LAST]
    m[f + L.PH_TAU] = m[kept + L.ME_TAU]
    m[f + L.PH_LAST] = m[kept + L.ME_LAST]


def eval_phase(s: State, f: int, npus: int, code: int) -> int:
    """Ends of a phase whose members did not start together, from and to the table at C_SCRATCH."""
    m = s.m
    family = m[f + L.PH_FAMILY]
    step = -1 if code & 2 else 1
    if family == K.ALG_TREE:
        return eval_tree(s, f, npus, m[f + L.PH_TREE] + (code & 1) * 2 * m[f + L.PH_N])
    if family == K.ALG_STEPS:
        return eval_steps(s, f, npus)
    if family == K.ALG_DIRECT:
        if m[f + L.PH_DO] == K.DO_ALL_REDUCE or m[f + L.PH_WINDOW] < m[f + L.PH_N] - 1:
            return eval_credits(s, f, npus, step, m[f + L.PH_N])
        return eval_direct_open(s, f, npus)
    return eval_chain(s, f, npus, step)


def count_bytes(s: State, x: int, size: int) -> None:
    """A stream's NPU sends so many bytes into the dimension of its phase."""
    m = s.m
    m[m[L.NPU_BASE + m[x + L.S_NPU] * L.NPU_ROW + L.N_DIM_BYTES] + m[m[x + L.S_ROW] + L.PH_DIM]] += size


def count_tree(s: State, x: int, tree: int, places: int) -> None:
    """Bytes of a double binary tree: all of the data go up and down every edge."""
    m = s.m
    step, size = m[x + L.S_STEP], m[m[x + L.S_ROW] + L.PH_BYTES]
    first = x - m[x + L.S_MEMBER] * step
    for i in range(m[m[x + L.S_ROW] + L.PH_N]):
        if m[tree + i] >= 0:
            count_bytes(s, first + m[places + i] * step, size)
            count_bytes(s, first + m[places + m[tree + i]] * step, size)


def start_sparse(s: State, x: int, ring: int) -> None:
    """A member starts a direct phase in which some pairs exchange nothing: whoever waits for nobody else now ends.

    All members are distinct actors, in the order of their positions. The last word of a stream is 1 from its start on and
    2 when its end is known.
    """
    m = s.m
    f, step, me = m[x + L.S_ROW], m[x + L.S_STEP], m[x + L.S_MEMBER]
    n, e, sizes, npus = m[f + L.PH_N], m[f + L.PH_ENDPOINT], m[f + L.PH_SIZES], m[ring + L.RG_NPUS]
    mark = m[m[m[x + L.S_INSTANCE] + L.I_PLAN] + L.P_WIDTH] - 1
    first = x - me * step
    m[x + mark] = 1
    for i in range(n):
        y = first + i * step
        if (i != me and m[sizes + me * n + i] < 0) or m[y + mark] != 1:
            continue
        posted = m[y + L.S_START] + e
        latest = posted
        for j in range(n):
            size = m[sizes + j * n + i]
            if size < 0 or latest < 0:
                continue
            z = first + j * step
            if m[z + mark] == 0:
                latest = -1
                continue
            sent = leaves(s, m[npus + j], m[npus + i], m[z + L.S_START] + e, posted)
            latest = max(latest, sent + free_delay(s, m[npus + j], m[npus + i], size))
        if latest < 0:
            continue
        m[y + mark] = 2
        r = uneven_reduction(s, f, i) if m[f + L.PH_DO] == K.DO_REDUCE_SCATTER else 0
        m[y + L.S_BEGAN] = -1
        push_in_order(s, latest + e + r, latest, m[y + L.S_SEQUENCE], L.EVENT_PHASE | y << 2)


def start_phase(s: State, x: int) -> None:
    """A stream starts its current phase; the last member to start computes when everybody ends."""
    m = s.m
    now = m[L.C_NOW]
    f = m[x + L.S_ROW]
    group = m[m[x + L.S_INSTANCE] + L.I_GROUP]
    step = m[x + L.S_STEP]
    # an NPU's phases that end together do so in the order in which that NPU started them, whoever started last
    m[x + L.S_SEQUENCE] = m[L.C_SEQUENCE]
    m[L.C_SEQUENCE] += 1
    m[x + L.S_START] = now
    count_bytes(s, x, m[f + L.PH_SENT])
    view = m[f + L.PH_VIEW] if m[f + L.PH_VIEW] >= 0 else m[group + L.G_FLAT]
    ring = m[m[m[group + L.G_VIEWS] + view] + m[x + L.S_MEMBER]]
    first = x - m[x + L.S_MEMBER] * step
    count = first + m[ring + L.RG_INDEX] * step + m[x + L.S_COUNTS] - x + m[x + L.S_PHASE]
    m[count] += 1
    if m[count] < m[ring + L.RG_MEMBERS]:
        if m[f + L.PH_TAU] == L.TAU_SPARSE:
            start_sparse(s, x, ring)
        return
    if m[f + L.PH_BESIDE] != 0:
        start_beside(s, m[x + L.S_INSTANCE], m[f + L.PH_TAU])
        return
    if m[f + L.PH_TAU] <= L.TAU_UNKNOWN:
        if m[f + L.PH_TAU] == L.TAU_SPARSE:
            start_sparse(s, x, ring)
            return
        find_duration(s, f, m[ring + L.RG_NPUS])
    equal = m[f + L.PH_TAU] >= 0
    last = m[f + L.PH_LAST]
    if equal and m[ring + L.RG_MEMBERS] == 1:
        end = now + m[f + L.PH_TAU]
        m[x + L.S_BEGAN] = now
        push_in_order(s, end, end - last, m[x + L.S_SEQUENCE], L.EVENT_PHASE | x << 2)
        return
    n, places, ends = m[f + L.PH_N], m[ring + L.RG_PLACES], m[L.C_SCRATCH]
    for i in range(n):
        start = m[first + m[places + i] * step + L.S_START]
        m[ends + i] = start
        if start != now:
            equal = False
    equal = equal or m[f + L.PH_FAMILY] == K.ALG_NONE
    if equal:
        for i in range(n):
            m[ends + i] = now + m[f + L.PH_TAU]
    else:
        code = m[m[x + L.S_CODES] + m[x + L.S_PHASE]]
        last = eval_phase(s, f, m[ring + L.RG_NPUS], code)
        if m[f + L.PH_FAMILY] == K.ALG_TREE:
            count_tree(s, x, m[f + L.PH_TREE] + (code & 1) * 2 * n, places)
    # every member of the ring has its own stream for this chunk; a member may stand at several positions
    for i in range(n):
        y = first + m[places + i] * step
        if m[y + L.S_START] < 0:
            continue
        m[y + L.S_START] = -1
        m[y + L.S_BEGAN] = now if equal else -1
        end = max(m[ends + i], now)  # a root may be done before the last member starts; it leaves with it
        push_in_order(s, end, max(end - last, now), m[y + L.S_SEQUENCE], L.EVENT_PHASE | y << 2)


def note_end(s: State, x: int) -> None:
    """Count a phase that ends on an NPU together with another one, if what follows depends on which is first.

    What was registered for one tick at one tick runs in the order of registration. Alike phases of one direction that
    began together register in the order in which they began; which of two others did first is decided by their last
    messages, whose events this engine does not have. It matters where both go on to the same queue, or one ends a
    collective.
    """
    m = s.m
    me = L.NPU_BASE + m[x + L.S_NPU] * L.NPU_ROW
    f = m[x + L.S_ROW]
    after = L.NIL
    if m[f + L.PH_LEFT] > 1:
        after = m[m[x + L.S_CODES] + m[x + L.S_PHASE] + 1] >> 2
    elif m[m[x + L.S_HEAD] + L.S_LEFT] > 1:
        after = m[x + L.S_QUEUE]
    queue = m[x + L.S_QUEUE]
    began, size = m[x + L.S_BEGAN], m[f + L.PH_BYTES]
    same = m[f + L.PH_SAME] << 2 | m[m[x + L.S_CODES] + m[x + L.S_PHASE]] & 3
    if m[me + L.N_END_TICK] == m[L.C_NOW] and m[me + L.N_END_SET] == m[L.C_SET]:
        alike = began >= 0 and began == m[me + L.N_END_BEGAN]
        if not alike or same != m[me + L.N_END_SAME] or size != m[me + L.N_END_BYTES]:
            before, there = m[me + L.N_END_QUEUE], m[me + L.N_END_NEXT]
            if after == L.NIL or there == L.NIL or after in (there, before) or queue == there:
                m[L.C_TIES] += 1
    m[me + L.N_END_TICK] = m[L.C_NOW]
    m[me + L.N_END_SET] = m[L.C_SET]
    m[me + L.N_END_BEGAN] = began
    m[me + L.N_END_SAME] = same
    m[me + L.N_END_BYTES] = size
    m[me + L.N_END_QUEUE] = queue
    m[me + L.N_END_NEXT] = after


def start_waiting(s: State, queue: int) -> None:
    """Start waiting streams of a queue while it runs fewer than it may."""
    x = next_waiting(s, queue)
    while x != L.NIL:
        start_phase(s, x)
        x = next_waiting(s, queue)


def relieve(s: State) -> bool:
    """Everything waits: start the first waiting stream of each queue, one more than the queue runs (C13)."""
    queue = next_blocked(s, s.m[L.C_QUEUE_ROWS])
    if queue == L.NIL:
        return False
    while queue != L.NIL:
        start_phase(s, take_first(s, queue))
        queue = next_blocked(s, queue + L.QUEUE_ROW)
    return True
