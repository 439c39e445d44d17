"""Computing and a library's collectives that run side by side on an NPU and slow each other down.

A compute node runs at `C_RATE_COMPUTING` while at least one collective runs on its NPU, a collective at
`C_RATE_COLLECTIVE` while a node computes on any of its members; otherwise both run at `ONE`. What is left of either is
counted in units of 1 / `ONE` ns, so that it is exact however often rates change. A collective runs from its last member's
start to its end.

When a rate changes, the end of what runs moves. The event that was set for it stays where it is and means nothing any
more: `W_EVENT` and `I_EVENT` hold the number of the one that counts, `NO_EVENT` where the engine has to set one. These
functions keep the books; the engine sets the events.

Where messages are simulated, a collective's own time is known only when the last of them has come. Until then `I_LEFT`
counts what the collective has fallen behind; that much is then left to do.
"""

from chakra.replay.engines.kernels import layout as L
from chakra.replay.engines.kernels.layout import State

ENTRY_POINTS = ()
ALLOCATES = False


def ticks(left: int, rate: int) -> int:
    """Ticks in which so much is done at a rate."""
    return (left + rate - 1) // rate


# --- computing ------------------------------------------------------------------------------------------------------


def settle_works(s: State, npu: int) -> None:
    """Count what an NPU's compute nodes have done since that was last counted; before their rate or number changes."""
    m = s.m
    me = L.NPU_BASE + npu * L.NPU_ROW
    rate = m[L.C_RATE_COMPUTING] if m[me + L.N_BESIDES_N] > 0 else L.ONE
    done = (m[L.C_NOW] - m[me + L.N_COUNTED]) * rate
    m[me + L.N_COUNTED] = m[L.C_NOW]
    if done == 0:
        return
    first = m[me + L.N_WORKS]
    for at in range(first, first + m[me + L.N_WORKS_N] * L.WORK_ROW, L.WORK_ROW):
        m[at + L.W_LEFT] -= done


def set_work_ends(s: State, npu: int) -> None:
    """Move the ends of an NPU's compute nodes to where they are at the rate that holds now."""
    m = s.m
    me = L.NPU_BASE + npu * L.NPU_ROW
    rate = m[L.C_RATE_COMPUTING] if m[me + L.N_BESIDES_N] > 0 else L.ONE
    first = m[me + L.N_WORKS]
    for at in range(first, first + m[me + L.N_WORKS_N] * L.WORK_ROW, L.WORK_ROW):
        end = m[L.C_NOW] + ticks(m[at + L.W_LEFT], rate)
        if end != m[at + L.W_END]:
            m[at + L.W_END] = end
            m[at + L.W_EVENT] = L.NO_EVENT


def begin_work(s: State, npu: int, node: int, ns: int) -> None:
    """A compute node starts on an NPU."""
    m = s.m
    settle_works(s, npu)
    me = L.NPU_BASE + npu * L.NPU_ROW
    at = m[me + L.N_WORKS] + m[me + L.N_WORKS_N] * L.WORK_ROW
    m[me + L.N_WORKS_N] += 1
    m[at + L.W_NODE] = node
    m[at + L.W_LEFT] = ns * L.ONE
    m[at + L.W_END] = L.NEVER
    m[at + L.W_EVENT] = L.NO_EVENT
    set_work_ends(s, npu)


def end_work(s: State, npu: int, node: int, event: int) -> bool:
    """An event of a compute node; False if it means nothing any more, else the node has ended."""
    m = s.m
    me = L.NPU_BASE + npu * L.NPU_ROW
    first = m[me + L.N_WORKS]
    for at in range(first, first + m[me + L.N_WORKS_N] * L.WORK_ROW, L.WORK_ROW):
        if m[at + L.W_NODE] == node and m[at + L.W_EVENT] == event:
            settle_works(s, npu)
            m[me + L.N_WORKS_N] -= 1
            last = first + m[me + L.N_WORKS_N] * L.WORK_ROW
            for k in range(L.WORK_ROW):
                m[at + k] = m[last + k]
            return True
    return False


# --- collectives ----------------------------------------------------------------------------------------------------


def settle_collective(s: State, i: int) -> None:
    """Count what a collective has done since that was last counted; before its rate changes."""
    m = s.m
    rate = m[L.C_RATE_COLLECTIVE] if m[i + L.I_COMPUTING] > 0 else L.ONE
    passed = m[L.C_NOW] - m[i + L.I_COUNTED]
    m[i + L.I_COUNTED] = m[L.C_NOW]
    if m[i + L.I_MOVING] != 0:
        m[i + L.I_LEFT] += passed * (L.ONE - rate)
    else:
        m[i + L.I_LEFT] -= passed * rate


def set_collective_end(s: State, i: int) -> None:
    """Move the end of a collective to where it is at the rate that holds now."""
    m = s.m
    if m[i + L.I_MOVING] != 0:
        return
    rate = m[L.C_RATE_COLLECTIVE] if m[i + L.I_COMPUTING] > 0 else L.ONE
    end = m[L.C_NOW] + ticks(m[i + L.I_LEFT], rate)
    if end != m[i + L.I_END]:
        m[i + L.I_END] = end
        m[i + L.I_EVENT] = L.NO_EVENT


def member_npu(s: State, i: int, member: int) -> int:
    """NPU of a member of a collective that all members have started."""
    m = s.m
    plan = m[i + L.I_PLAN]
    return m[m[i + L.I_BLOCK] + member * m[plan + L.P_CHUNKS] * m[plan + L.P_WIDTH] + L.S_NPU]


def begin_collective(s: State, i: int, ns: int, moving: int) -> None:
    """All members have started a collective of so many ns; or, `moving`, one whose messages tell."""
    m = s.m
    m[i + L.I_COUNTED] = m[L.C_NOW]
    m[i + L.I_LEFT] = ns * L.ONE
    m[i + L.I_MOVING] = moving
    m[i + L.I_END] = L.NEVER
    m[i + L.I_EVENT] = L.NO_EVENT
    computing = 0
    for member in range(m[m[i + L.I_GROUP] + L.G_N]):
        npu = member_npu(s, i, member)
        me = L.NPU_BASE + npu * L.NPU_ROW
        computing += m[me + L.N_COMPUTES]
        settle_works(s, npu)
        m[m[me + L.N_BESIDES] + m[me + L.N_BESIDES_N]] = i
        m[me + L.N_BESIDES_N] += 1
        set_work_ends(s, npu)
    m[i + L.I_COMPUTING] = computing
    set_collective_end(s, i)


def messages_there(s: State, i: int) -> None:
    """The last message of a collective has come: what it has fallen behind is left."""
    settle_collective(s, i)
    s.m[i + L.I_MOVING] = 0
    set_collective_end(s, i)


def end_collective(s: State, i: int, event: int) -> bool:
    """An event of a collective; False if it means nothing any more, else it has ended."""
    m = s.m
    if m[i + L.I_EVENT] != event:
        return False
    m[i + L.I_EVENT] = L.NO_EVENT
    for member in range(m[m[i + L.I_GROUP] + L.G_N]):
        npu = member_npu(s, i, member)
        me = L.NPU_BASE + npu * L.NPU_ROW
        settle_works(s, npu)
        m[me + L.N_BESIDES_N] -= 1
        at = m[me + L.N_BESIDES]
        last = at + m[me + L.N_BESIDES_N]
        while m[at] != i:
            at += 1
        m[at] = m[last]
        set_work_ends(s, npu)
    return True


def computing_changed(s: State, npu: int) -> bool:
    """Whether an NPU has begun or ceased to compute since this was last asked; its collectives' ends are then moved."""
    m = s.m
    me = L.NPU_BASE + npu * L.NPU_ROW
    computes = 1 if m[me + L.N_WORKS_N] > 0 else 0
    change = computes - m[me + L.N_COMPUTES]
    if change == 0:
        return False
    m[me + L.N_COMPUTES] = computes
    first = m[me + L.N_BESIDES]
    for at in range(first, first + m[me + L.N_BESIDES_N]):
        i = m[at]
        settle_collective(s, i)
        m[i + L.I_COMPUTING] += change
        set_collective_end(s, i)
    return True
