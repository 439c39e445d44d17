"""Collectives: streams, their phases and queues (replay semantics, 3).

A *stream* is one chunk of a collective on one member; the streams of a collective lie in one block, ordered by member
and chunk, so a message knows its receiver's stream before that has been issued.
"""

from chakra.replay.engines.kernels import messages_layout as L
from chakra.replay.engines.kernels.messages_credit import arm
from chakra.replay.engines.kernels.messages_custom import custom_start
from chakra.replay.engines.kernels.messages_layout import State
from chakra.replay.engines.kernels.messages_steps import step_part, steps_begin
from chakra.replay.engines.kernels.messages_transfer import reduction, sort_early
from chakra.replay.engines.kernels.messages_tree import tree_delay, tree_start

#: nothing here is compiled for its own sake, only as part of `messages.run`
ENTRY_POINTS = ()
ALLOCATES = False


def received(s: State, x: int) -> None:
    """A message was received: it arms the next packet, or moves the tree or the round on."""
    m = s.m
    m[x + L.S_RECEIVED] += 1
    if m[x + L.S_ALGORITHM] == L.TREE:
        tree_delay(s, x, False)
    elif m[x + L.S_ALGORITHM] == L.STEPS:
        step_part(s, x)
    else:
        arm(s, x)


def phase_row(s: State, x: int) -> int:
    """Description of the phase that a stream is in."""
    m = s.m
    plan = m[m[x + L.S_INSTANCE] + L.I_PLAN]
    return m[plan + L.P_PHASE] + m[x + L.S_PHASE] * L.PHASE_ROW


def set_ring(s: State, x: int, phase: int) -> None:
    """Set a stream's logical ring for a phase."""
    m = s.m
    npu = m[x + L.S_NPU]
    ring = m[phase + L.PH_RING]
    if ring == L.RING_GROUP:
        group = m[m[x + L.S_INSTANCE] + L.I_GROUP]
        m[x + L.S_RING_N] = m[group + L.G_N]
        m[x + L.S_RING_BASE] = m[group + L.G_MEMBERS]
        m[x + L.S_RING_STRIDE] = 0
        m[x + L.S_INDEX] = m[x + L.S_MEMBER]
    elif ring == L.RING_FLAT:
        group = m[m[x + L.S_INSTANCE] + L.I_GROUP]
        m[x + L.S_RING_N] = m[group + L.G_N]
        m[x + L.S_RING_BASE] = 0
        m[x + L.S_RING_STRIDE] = 1
        m[x + L.S_INDEX] = npu
    else:
        dim = m[phase + L.PH_DIM]
        row = m[L.C_DIM_ROWS] + dim * L.DIM_ROW
        stride = m[row + L.D_STRIDE]
        index = m[m[L.C_COORDS] + npu * m[L.C_DIMS] + dim]
        m[x + L.S_RING_N] = m[row + L.D_N]
        m[x + L.S_RING_BASE] = npu - index * stride
        m[x + L.S_RING_STRIDE] = stride
        m[x + L.S_INDEX] = index


def enter_phase(s: State, x: int, phase_index: int) -> None:
    """Set a stream up for a phase, before it joins the phase's queue."""
    m = s.m
    m[x + L.S_PHASE] = phase_index
    phase = phase_row(s, x)
    plan = m[m[x + L.S_INSTANCE] + L.I_PLAN]
    algorithm = m[phase + L.PH_ALGORITHM]
    do = m[phase + L.PH_DO]
    set_ring(s, x, phase)
    n = m[x + L.S_RING_N]
    entering = m[x + L.S_BYTES]
    m[x + L.S_ALGORITHM] = algorithm
    m[x + L.S_DO] = do
    m[x + L.S_ARMED] = 0
    m[x + L.S_SENT] = 0
    m[x + L.S_RECEIVED] = 0
    m[x + L.S_CREDITS] = 0
    m[x + L.S_ARRIVED] = 0
    m[x + L.S_CONTROLS] = 0
    m[x + L.S_POSTED] = 0
    m[x + L.S_WINDOW] = 1
    m[x + L.S_PLACE] = 0
    m[x + L.S_ODD] = 0
    m[x + L.S_DELAY] = -1 if m[L.C_BUS] and m[plan + L.P_BUS] else m[plan + L.P_DELAY]
    code = m[x + L.S_LIST + phase_index]
    m[x + L.S_TREE] = code & 1
    m[x + L.S_DIRECTION] = -1 if code & 2 else 1
    m[x + L.S_QUEUE] = code >> 2
    least = m[x + L.S_LEAST]
    if algorithm == L.CUSTOM:
        return
    if algorithm == L.TREE:
        m[x + L.S_SIZE] = max(entering, least)
    elif algorithm == L.STEPS:
        m[x + L.S_CYCLE] = m[m[phase + L.PH_STEPS] + m[x + L.S_CHUNK]]
        m[x + L.S_TOTAL] = m[m[x + L.S_CYCLE] + L.ST_MEMBERS + 2 * m[x + L.S_INDEX] + 1]
    else:
        size = entering if do == L.ALL_GATHER else entering // n
        m[x + L.S_SIZE] = max(size, least)
        if algorithm == L.HALVING_DOUBLING:
            levels = 0
            while 2 << levels <= n:
                levels += 1
            m[x + L.S_TOTAL] = 2 * levels if do == L.ALL_REDUCE else levels
            m[x + L.S_CYCLE] = levels
        elif algorithm == L.RING:
            m[x + L.S_TOTAL] = n - 1
            if do == L.ALL_REDUCE:
                m[x + L.S_TOTAL] = 2 * (n - 1)
            elif do != L.ALL_GATHER and do != L.REDUCE_SCATTER:
                m[x + L.S_TOTAL] = n * (n - 1) // 2
            m[x + L.S_CYCLE] = n
        else:
            m[x + L.S_TOTAL] = 2 * (n - 1) if do == L.ALL_REDUCE else n - 1
            window = m[phase + L.PH_WINDOW]
            if window == 0 or window > n - 1:
                window = n - 1
            m[x + L.S_WINDOW] = window
            m[x + L.S_CYCLE] = window + ((n - 1) * window if m[phase + L.PH_SUB] else window)
    if algorithm != L.STEPS:
        m[x + L.S_REDUCE] = reduction(s, m[x + L.S_SIZE])
    if algorithm != L.RING and algorithm != L.TREE:
        first = m[x + L.S_INBOX]
        for at in range(first, first + 2 * m[x + L.S_BITS]):
            m[at] = 0
    if m[x + L.S_EARLY] != L.NIL:
        sort_early(s, x)


def leave_phase(s: State, x: int) -> None:
    """Bytes that leave a phase."""
    m = s.m
    n = m[x + L.S_RING_N]
    if m[x + L.S_ALGORITHM] != L.TREE and m[x + L.S_ALGORITHM] != L.CUSTOM:
        if m[x + L.S_DO] == L.REDUCE_SCATTER:
            m[x + L.S_BYTES] = max(m[x + L.S_BYTES] // n, m[x + L.S_LEAST])
        elif m[x + L.S_DO] == L.ALL_GATHER:
            m[x + L.S_BYTES] *= n


def start_stream(s: State, x: int) -> None:
    """A stream gets a place in its queue: its phase begins."""
    m = s.m
    algorithm = m[x + L.S_ALGORITHM]
    if algorithm == L.TREE:
        tree_start(s, x)
    elif algorithm == L.CUSTOM:
        custom_start(s, x)
    elif algorithm == L.STEPS:
        steps_begin(s, x, m[phase_row(s, x) + L.PH_JOINT] != 0)
    else:
        for _ in range(m[x + L.S_WINDOW]):
            arm(s, x)


def start_first(s: State, queue: int) -> None:
    """Start the first waiting stream of a queue."""
    m = s.m
    x = m[queue + L.Q_HEAD]
    m[queue + L.Q_HEAD] = m[x + L.S_NEXT]
    if m[x + L.S_NEXT] == L.NIL:
        m[queue + L.Q_TAIL] = L.NIL
    m[queue + L.Q_RUNNING] += 1
    start_stream(s, x)


def start_waiting(s: State, queue: int) -> None:
    """Start waiting streams while the queue has places."""
    m = s.m
    while m[queue + L.Q_HEAD] != L.NIL and m[queue + L.Q_RUNNING] < m[L.C_STREAMS]:
        start_first(s, queue)


def join_queue(s: State, x: int) -> None:
    """A stream joins the back of its phase's queue."""
    m = s.m
    queue = m[x + L.S_QUEUE]
    m[x + L.S_NEXT] = L.NIL
    tail = m[queue + L.Q_TAIL]
    if tail == L.NIL:
        m[queue + L.Q_HEAD] = x
    else:
        m[tail + L.S_NEXT] = x
    m[queue + L.Q_TAIL] = x
