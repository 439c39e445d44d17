"""Events of compute nodes and collectives that slow each other down, in the phase-level engine.

Events cannot be withdrawn, so one that means nothing any more waits for its turn in the heap; when they fill it, all of
them are taken out at once.
"""

from chakra.replay.engines.kernels import phases_layout as L
from chakra.replay.engines.kernels.layout import State
from chakra.replay.engines.kernels.overlap import (
    begin_collective,
    begin_work,
    computing_changed,
    end_collective,
    member_npu,
)
from chakra.replay.engines.kernels.phases_events import push_in_order

ENTRY_POINTS = ()
ALLOCATES = False

#: which of the two an event is of, and where its NPU or instance begins
OF_COLLECTIVE = 4
OF_SHIFT = 3
NPU_MASK = 0x1FFFFFFF


def push_beside(s: State, tick: int, what: int) -> int:
    """Set an event; returns its number."""
    m = s.m
    if m[L.C_HEAP_N] >= m[L.C_HEAP_ROOM]:
        drop_events(s)
    sequence = m[L.C_SEQUENCE]
    m[L.C_SEQUENCE] = sequence + 1
    push_in_order(s, tick, m[L.C_NOW], sequence, L.EVENT_BESIDE | what)
    return sequence


def drop_events(s: State) -> None:
    """Take out all events that mean nothing any more. Order is a matter of what stands in an event, so none changes."""
    m = s.m
    n, heap = m[L.C_HEAP_N], m[L.C_HEAP]
    m[L.C_HEAP_N] = 0
    for k in range(n):
        at = heap + L.EVENT_ROW * k
        tick, reg, sequence, what = m[at], m[at + L.E_SET], m[at + L.E_SEQUENCE], m[at + L.E_WHAT]
        if what & 3 != L.EVENT_BESIDE or counts(s, what, sequence):
            push_in_order(s, tick, reg, sequence, what)


def counts(s: State, what: int, sequence: int) -> bool:
    """Whether an event is the one that ends its compute node or collective."""
    m = s.m
    if what & OF_COLLECTIVE:
        return m[(what >> OF_SHIFT) + L.I_EVENT] == sequence
    me = L.NPU_BASE + ((what >> OF_SHIFT) & NPU_MASK) * L.NPU_ROW
    first = m[me + L.N_WORKS]
    for at in range(first, first + m[me + L.N_WORKS_N] * L.WORK_ROW, L.WORK_ROW):
        if m[at + L.W_NODE] == what >> 32:
            return m[at + L.W_EVENT] == sequence
    return False


def push_works(s: State, npu: int) -> None:
    """Set the events of an NPU's compute nodes whose ends have moved."""
    m = s.m
    me = L.NPU_BASE + npu * L.NPU_ROW
    first = m[me + L.N_WORKS]
    for at in range(first, first + m[me + L.N_WORKS_N] * L.WORK_ROW, L.WORK_ROW):
        if m[at + L.W_EVENT] == L.NO_EVENT:
            m[at + L.W_EVENT] = push_beside(s, m[at + L.W_END], npu << OF_SHIFT | m[at + L.W_NODE] << 32)


def push_collective(s: State, i: int) -> None:
    """Set the event of a collective whose end has moved."""
    m = s.m
    if m[i + L.I_EVENT] == L.NO_EVENT and m[i + L.I_MOVING] == 0:
        m[i + L.I_EVENT] = push_beside(s, m[i + L.I_END], OF_COLLECTIVE | i << OF_SHIFT)


def start_work(s: State, npu: int, node: int, ns: int) -> None:
    """A compute node starts."""
    begin_work(s, npu, node, ns)
    push_works(s, npu)


def start_beside(s: State, i: int, ns: int) -> None:
    """All members have started a collective that takes so many ns alone."""
    begin_collective(s, i, ns, 0)
    push_collective(s, i)
    push_members(s, i)


def push_members(s: State, i: int) -> None:
    """Set the events of compute nodes on a collective's members."""
    for member in range(s.m[s.m[i + L.I_GROUP] + L.G_N]):
        push_works(s, member_npu(s, i, member))


def end_beside(s: State, i: int, sequence: int) -> bool:
    """An event of a collective; if it has ended, its members end their phases, each in its turn."""
    m = s.m
    if not end_collective(s, i, sequence):
        return False
    push_members(s, i)
    plan = m[i + L.I_PLAN]
    step = m[plan + L.P_CHUNKS] * m[plan + L.P_WIDTH]
    for member in range(m[m[i + L.I_GROUP] + L.G_N]):
        x = m[i + L.I_BLOCK] + member * step
        push_in_order(s, m[L.C_NOW], m[L.C_NOW], m[x + L.S_SEQUENCE], L.EVENT_PHASE | x << 2)
    return True


def tell_collectives(s: State, npu: int) -> None:
    """An NPU's pass is over: its collectives go on at another rate if it has begun or ceased to compute."""
    m = s.m
    if not computing_changed(s, npu):
        return
    me = L.NPU_BASE + npu * L.NPU_ROW
    first = m[me + L.N_BESIDES]
    for at in range(first, first + m[me + L.N_BESIDES_N]):
        push_collective(s, m[at])
