"""Timers of compute nodes and collectives that slow each other down, in the message-level engine.

A timer cannot be withdrawn; one that means nothing any more is let pass, by its number.
"""

from chakra.replay.engines.kernels import messages_layout as L
from chakra.replay.engines.kernels.layout import State
from chakra.replay.engines.kernels.messages_events import set_timer
from chakra.replay.engines.kernels.overlap import (
    begin_collective,
    begin_work,
    computing_changed,
    end_collective,
    member_npu,
    messages_there,
)

#: nothing here is compiled for its own sake, only as part of `messages.run`
ENTRY_POINTS = ()
ALLOCATES = False


def next_number(s: State) -> int:
    """Number of a timer."""
    s.m[L.C_SEQUENCE] += 1
    return s.m[L.C_SEQUENCE]


def time_works(s: State, npu: int) -> None:
    """Set the timers of an NPU's compute nodes whose ends have moved."""
    m = s.m
    me = L.NPU_BASE + npu * L.NPU_ROW
    first = m[me + L.N_WORKS]
    for at in range(first, first + m[me + L.N_WORKS_N] * L.WORK_ROW, L.WORK_ROW):
        if m[at + L.W_EVENT] == L.NO_EVENT:
            m[at + L.W_EVENT] = next_number(s)
            set_timer(s, npu, m[at + L.W_END], L.TM_WORK, m[at + L.W_NODE], m[at + L.W_EVENT])


def time_collective(s: State, i: int) -> None:
    """Set the timer of a collective whose end has moved; its first member's NPU has it."""
    m = s.m
    if m[i + L.I_EVENT] == L.NO_EVENT and m[i + L.I_MOVING] == 0:
        m[i + L.I_EVENT] = next_number(s)
        set_timer(s, member_npu(s, i, 0), m[i + L.I_END], L.TM_BESIDE, i, m[i + L.I_EVENT])


def time_members(s: State, i: int) -> None:
    """Set the timers of compute nodes on a collective's members."""
    for member in range(s.m[s.m[i + L.I_GROUP] + L.G_N]):
        time_works(s, member_npu(s, i, member))


def start_work(s: State, npu: int, node: int, ns: int) -> None:
    """A compute node starts."""
    begin_work(s, npu, node, ns)
    time_works(s, npu)


def start_beside(s: State, x: int, ns: int, moving: int) -> None:
    """All members have started a collective, one of whose streams is x."""
    i = s.m[x + L.S_INSTANCE]
    begin_collective(s, i, ns, moving)
    time_collective(s, i)
    time_members(s, i)


def moved_beside(s: State, x: int) -> None:
    """All messages of a collective have come, one of whose streams is x."""
    i = s.m[x + L.S_INSTANCE]
    messages_there(s, i)
    time_collective(s, i)


def end_beside(s: State, i: int, number: int) -> bool:
    """A timer of a collective; True if it has ended."""
    if not end_collective(s, i, number):
        return False
    time_members(s, i)
    return True


def tell_collectives(s: State, npu: int) -> None:
    """An NPU's pass is over: its collectives go on at another rate if it has begun or ceased to compute."""
    m = s.m
    if not computing_changed(s, npu):
        return
    me = L.NPU_BASE + npu * L.NPU_ROW
    first = m[me + L.N_BESIDES]
    for at in range(first, first + m[me + L.N_BESIDES_N]):
        time_collective(s, m[at])
