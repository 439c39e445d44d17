"""Collectives: streams, their phases and queues (replay semantics, 3).

A *stream* is one chunk of a collective on one member; the streams of a collective lie in one block, ordered by member
and chunk, so a message knows its receiver's stream before that has been issued.
"""

from chakra.replay.kernels.messages_credit import arm
from chakra.replay.kernels.messages_custom import custom_start
from chakra.replay.kernels.messages_layout import (
    ALL_GATHER,
    ALL_REDUCE,
    C_BUS,
    C_COORDS,
    C_DIM_ROWS,
    C_DIMS,
    C_STREAMS,
    CUSTOM,
    D_N,
    D_STRIDE,
    DIM_ROW,
    G_MEMBERS,
    G_N,
    HALVING_DOUBLING,
    I_GROUP,
    I_PLAN,
    NIL,
    P_BUS,
    P_DELAY,
    P_PHASE,
    PH_ALGORITHM,
    PH_DIM,
    PH_DO,
    PH_JOINT,
    PH_RING,
    PH_STEPS,
    PH_SUB,
    PH_WINDOW,
    PHASE_ROW,
    Q_HEAD,
    Q_RUNNING,
    Q_TAIL,
    REDUCE_SCATTER,
    RING,
    RING_FLAT,
    RING_GROUP,
    S_ALGORITHM,
    S_ARMED,
    S_ARRIVED,
    S_BITS,
    S_BYTES,
    S_CHUNK,
    S_CONTROLS,
    S_CREDITS,
    S_CYCLE,
    S_DELAY,
    S_DIRECTION,
    S_DO,
    S_EARLY,
    S_INBOX,
    S_INDEX,
    S_INSTANCE,
    S_LEAST,
    S_LIST,
    S_MEMBER,
    S_NEXT,
    S_NPU,
    S_ODD,
    S_PHASE,
    S_PLACE,
    S_POSTED,
    S_QUEUE,
    S_RECEIVED,
    S_REDUCE,
    S_RING_BASE,
    S_RING_N,
    S_RING_STRIDE,
    S_SENT,
    S_SIZE,
    S_TOTAL,
    S_TREE,
    S_WINDOW,
    ST_MEMBERS,
    STEPS,
    TREE,
    State,
)
from chakra.replay.kernels.messages_steps import step_part, steps_begin
from chakra.replay.kernels.messages_transfer import reduction, sort_early
from chakra.replay.kernels.messages_tree import tree_delay, tree_start

#: nothing here is compiled for its own sake, only as part of `messages.run`
ENTRY_POINTS = ()
ALLOCATES = False


def received(s: State, x: int) -> None:
    """A message was received: it arms the next packet, or moves the tree or the round on."""
    m = s.m
    m[x + S_RECEIVED] += 1
    if m[x + S_ALGORITHM] == TREE:
        tree_delay(s, x, False)
    elif m[x + S_ALGORITHM] == STEPS:
        step_part(s, x)
    else:
        arm(s, x)


def phase_row(s: State, x: int) -> int:
    """Description of the phase that a stream is in."""
    m = s.m
    plan = m[m[x + S_INSTANCE] + I_PLAN]
    return m[plan + P_PHASE] + m[x + S_PHASE] * PHASE_ROW


def set_ring(s: State, x: int, phase: int) -> None:
    """Set a stream's logical ring for a phase."""
    m = s.m
    npu = m[x + S_NPU]
    ring = m[phase + PH_RING]
    if ring == RING_GROUP:
        group = m[m[x + S_INSTANCE] + I_GROUP]
        m[x + S_RING_N] = m[group + G_N]
        m[x + S_RING_BASE] = m[group + G_MEMBERS]
        m[x + S_RING_STRIDE] = 0
        m[x + S_INDEX] = m[x + S_MEMBER]
    elif ring == RING_FLAT:
        group = m[m[x + S_INSTANCE] + I_GROUP]
        m[x + S_RING_N] = m[group + G_N]
        m[x + S_RING_BASE] = 0
        m[x + S_RING_STRIDE] = 1
        m[x + S_INDEX] = npu
    else:
        dim = m[phase + PH_DIM]
        row = m[C_DIM_ROWS] + dim * DIM_ROW
        stride = m[row + D_STRIDE]
        index = m[m[C_COORDS] + npu * m[C_DIMS] + dim]
        m[x + S_RING_N] = m[row + D_N]
        m[x + S_RING_BASE] = npu - index * stride
        m[x + S_RING_STRIDE] = stride
        m[x + S_INDEX] = index


def enter_phase(s: State, x: int, phase_index: int) -> None:
    """Set a stream up for a phase, before it joins the phase's queue."""
    m = s.m
    m[x + S_PHASE] = phase_index
    phase = phase_row(s, x)
    plan = m[m[x + S_INSTANCE] + I_PLAN]
    algorithm = m[phase + PH_ALGORITHM]
    do = m[phase + PH_DO]
    set_ring(s, x, phase)
    n = m[x + S_RING_N]
    entering = m[x + S_BYTES]
    m[x + S_ALGORITHM] = algorithm
    m[x + S_DO] = do
    m[x + S_ARMED] = 0
    m[x + S_SENT] = 0
    m[x + S_RECEIVED] = 0
    m[x + S_CREDITS] = 0
    m[x + S_ARRIVED] = 0
    m[x + S_CONTROLS] = 0
    m[x + S_POSTED] = 0
    m[x + S_WINDOW] = 1
    m[x + S_PLACE] = 0
    m[x + S_ODD] = 0
    m[x + S_DELAY] = -1 if m[C_BUS] and m[plan + P_BUS] else m[plan + P_DELAY]
    code = m[x + S_LIST + phase_index]
    m[x + S_TREE] = code & 1
    m[x + S_DIRECTION] = -1 if code & 2 else 1
    m[x + S_QUEUE] = code >> 2
    least = m[x + S_LEAST]
    if algorithm == CUSTOM:
        return
    if algorithm == TREE:
        m[x + S_SIZE] = max(entering, least)
    elif algorithm == STEPS:
        m[x + S_CYCLE] = m[m[phase + PH_STEPS] + m[x + S_CHUNK]]
        m[x + S_TOTAL] = m[m[x + S_CYCLE] + ST_MEMBERS + 2 * m[x + S_INDEX] + 1]
    else:
        size = entering if do == ALL_GATHER else entering // n
        m[x + S_SIZE] = max(size, least)
        if algorithm == HALVING_DOUBLING:
            levels = 0
            while 2 << levels <= n:
                levels += 1
            m[x + S_TOTAL] = 2 * levels if do == ALL_REDUCE else levels
            m[x + S_CYCLE] = levels
        elif algorithm == RING:
            m[x + S_TOTAL] = n - 1
            if do == ALL_REDUCE:
                m[x + S_TOTAL] = 2 * (n - 1)
            elif do != ALL_GATHER and do != REDUCE_SCATTER:
                m[x + S_TOTAL] = n * (n - 1) // 2
            m[x + S_CYCLE] = n
        else:
            m[x + S_TOTAL] = 2 * (n - 1) if do == ALL_REDUCE else n - 1
            window = m[phase + PH_WINDOW]
            if window == 0 or window > n - 1:
                window = n - 1
            m[x + S_WINDOW] = window
            m[x + S_CYCLE] = window + ((n - 1) * window if m[phase + PH_SUB] else window)
    if algorithm != STEPS:
        m[x + S_REDUCE] = reduction(s, m[x + S_SIZE])
    if algorithm != RING and algorithm != TREE:
        first = m[x + S_INBOX]
        for at in range(first, first + 2 * m[x + S_BITS]):
            m[at] = 0
    if m[x + S_EARLY] != NIL:
        sort_early(s, x)


def leave_phase(s: State, x: int) -> None:
    """Bytes that leave a phase."""
    m = s.m
    n = m[x + S_RING_N]
    if m[x + S_ALGORITHM] != TREE and m[x + S_ALGORITHM] != CUSTOM:
        if m[x + S_DO] == REDUCE_SCATTER:
            m[x + S_BYTES] = max(m[x + S_BYTES] // n, m[x + S_LEAST])
        elif m[x + S_DO] == ALL_GATHER:
            m[x + S_BYTES] *= n


def start_stream(s: State, x: int) -> None:
    """A stream gets a place in its queue: its phase begins."""
    m = s.m
    algorithm = m[x + S_ALGORITHM]
    if algorithm == TREE:
        tree_start(s, x)
    elif algorithm == CUSTOM:
        custom_start(s, x)
    elif algorithm == STEPS:
        steps_begin(s, x, m[phase_row(s, x) + PH_JOINT] != 0)
    else:
        for _ in range(m[x + S_WINDOW]):
            arm(s, x)


def start_first(s: State, queue: int) -> None:
    """Start the first waiting stream of a queue."""
    m = s.m
    x = m[queue + Q_HEAD]
    m[queue + Q_HEAD] = m[x + S_NEXT]
    if m[x + S_NEXT] == NIL:
        m[queue + Q_TAIL] = NIL
    m[queue + Q_RUNNING] += 1
    start_stream(s, x)


def start_waiting(s: State, queue: int) -> None:
    """Start waiting streams while the queue has places."""
    m = s.m
    while m[queue + Q_HEAD] != NIL and m[queue + Q_RUNNING] < m[C_STREAMS]:
        start_first(s, queue)


def join_queue(s: State, x: int) -> None:
    """A stream joins the back of its phase's queue."""
    m = s.m
    queue = m[x + S_QUEUE]
    m[x + S_NEXT] = NIL
    tail = m[queue + Q_TAIL]
    if tail == NIL:
        m[queue + Q_HEAD] = x
    else:
        m[tail + S_NEXT] = x
    m[queue + Q_TAIL] = x
