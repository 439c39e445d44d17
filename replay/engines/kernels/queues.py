"""Queues of a dimension: which of them a phase takes, where a stream enters it, and who starts next.

Source: replay semantics, sections 3.4 and 7.3. An engine starts what `next_waiting` hands it, in its own way.
"""

from chakra.replay.engines.kernels import codes as K
from chakra.replay.engines.kernels import layout as L
from chakra.replay.engines.kernels.layout import State

ENTRY_POINTS = ()
ALLOCATES = False


def take_code(s: State, npu: int, phase: int) -> int:
    """Queue, direction and tree of a phase, advancing the cursors: queue << 2 | anticlockwise << 1 | second tree."""
    m = s.m
    me = L.NPU_BASE + npu * L.NPU_ROW
    queues = m[L.C_QUEUES]
    dim = m[phase + L.PH_DIM]
    at = m[me + L.N_CURSORS] + dim * L.CURSORS
    rule = m[phase + L.PH_RULE]
    half = queues // 2
    place = 0
    back = 0
    if rule == K.QUEUE_ANY:
        place = m[at]
        m[at] = place + 1 if place + 1 < queues else 0
        back = 1 if queues > 1 and place >= half else 0
    elif rule == K.QUEUE_FIRST:
        place = m[at + 1]
        m[at + 1] = place + 1 if place + 1 < half else 0
    elif rule == K.QUEUE_LAST:
        place = half + m[at + 2]
        m[at + 2] = m[at + 2] + 1 if place + 1 < queues else 0
        back = 1
    tree = 0
    if m[phase + L.PH_FAMILY] == K.ALG_TREE:
        count = at + 3 + m[phase + L.PH_KIND]
        tree = m[count]
        m[count] = 1 - tree
    return (m[me + L.N_QUEUES] + (dim * queues + place) * L.QUEUE_ROW) << 2 | back << 1 | tree


def enter_queue(s: State, x: int) -> None:
    """Put a stream into the queue of its phase, where the scheduling policy says."""
    m = s.m
    queue = m[m[x + L.S_CODES] + m[x + L.S_PHASE]] >> 2
    m[x + L.S_QUEUE] = queue
    m[x + L.S_NEXT] = L.NIL
    at = m[queue + L.Q_HEAD]
    if at == L.NIL:
        m[queue + L.Q_HEAD] = x
        m[queue + L.Q_TAIL] = x
        return
    last = m[queue + L.Q_TAIL]
    if m[L.C_ORDER] == K.ORDER_FIFO and m[last + L.S_RANK] >= m[x + L.S_RANK]:
        m[last + L.S_NEXT] = x
        m[queue + L.Q_TAIL] = x
        return
    before = place_in_queue(s, x, queue)
    if before == L.NIL:
        m[x + L.S_NEXT] = at
        m[queue + L.Q_HEAD] = x
        return
    m[x + L.S_NEXT] = m[before + L.S_NEXT]
    m[before + L.S_NEXT] = x
    if before == last:
        m[queue + L.Q_TAIL] = x


def place_in_queue(s: State, x: int, queue: int) -> int:
    """The waiting stream behind which another one enters; NIL: it becomes the first."""
    m = s.m
    order = m[L.C_ORDER]
    row = m[x + L.S_ROW]
    do = m[row + L.PH_DO]
    before = L.NIL
    at = m[queue + L.Q_HEAD]
    if order == K.ORDER_FIFO or do == K.DO_ALL_REDUCE or do == K.DO_ALL_TO_ALL:
        while at != L.NIL and m[at + L.S_RANK] >= m[x + L.S_RANK]:
            before = at
            at = m[at + L.S_NEXT]
        return before
    if order == K.ORDER_RG:
        # a pair that alternates between the two is passed, and the entry right after a running one
        last = -1
        if m[queue + L.Q_RUNNING] > 0:
            last = m[m[at + L.S_ROW] + L.PH_DO]
            before = at
            at = m[at + L.S_NEXT]
        while at != L.NIL:
            earlier = last
            last = m[m[at + L.S_ROW] + L.PH_DO]
            alternate = (last == K.DO_REDUCE_SCATTER and earlier == K.DO_ALL_GATHER) or (
                last == K.DO_ALL_GATHER and earlier == K.DO_REDUCE_SCATTER
            )
            if not alternate and m[at + L.S_RANK] <= m[x + L.S_RANK]:
                break
            before = at
            at = m[at + L.S_NEXT]
        return before
    field = L.PH_BYTES if order == K.ORDER_SMALLEST_FIRST else L.PH_LEFT
    while at != L.NIL and m[m[at + L.S_ROW] + field] < m[row + field]:
        before = at
        at = m[at + L.S_NEXT]
    return before


def take_first(s: State, queue: int) -> int:
    """The first waiting stream of a queue, which now runs."""
    m = s.m
    x = m[queue + L.Q_HEAD]
    m[queue + L.Q_HEAD] = m[x + L.S_NEXT]
    if m[x + L.S_NEXT] == L.NIL:
        m[queue + L.Q_TAIL] = L.NIL
    m[queue + L.Q_RUNNING] += 1
    return x


def next_waiting(s: State, queue: int) -> int:
    """The next stream of a queue that has a place for it, which now runs; NIL: none."""
    m = s.m
    if m[queue + L.Q_HEAD] == L.NIL or m[queue + L.Q_RUNNING] >= m[L.C_STREAMS]:
        return L.NIL
    return take_first(s, queue)


def next_blocked(s: State, queue: int) -> int:
    """The next queue from `queue` on in which a stream waits; NIL: none (C13)."""
    m = s.m
    end = m[L.C_QUEUE_ROWS] + m[L.C_NPUS] * m[L.C_DIMS] * m[L.C_QUEUES] * L.QUEUE_ROW
    while queue < end:
        if m[queue + L.Q_HEAD] != L.NIL:
            return queue
        queue += L.QUEUE_ROW
    return L.NIL
