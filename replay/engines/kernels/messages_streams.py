"""Phases of streams in the message-level engine: set up, started, moved on (replay semantics, sections 3 and 4)."""

from chakra.replay.engines.kernels import codes as K
from chakra.replay.engines.kernels import messages_layout as L
from chakra.replay.engines.kernels.layout import State
from chakra.replay.engines.kernels.messages_credit import arm
from chakra.replay.engines.kernels.messages_custom import custom_start
from chakra.replay.engines.kernels.messages_steps import (
    barrier,
    custom_begins,
    step_part,
    steps_begin,
)
from chakra.replay.engines.kernels.messages_switch import switch_begins
from chakra.replay.engines.kernels.messages_transfer import sort_early
from chakra.replay.engines.kernels.messages_tree import tree_delay, tree_start
from chakra.replay.engines.kernels.packets import phase_packet, reduction, uneven_reduction
from chakra.replay.engines.kernels.queues import next_waiting

#: nothing here is compiled for its own sake, only as part of `messages.run`
ENTRY_POINTS = ()
ALLOCATES = False


def received(s: State, x: int) -> None:
    """A message was received: it arms the next packet, or moves the tree or the round on."""
    m = s.m
    m[x + L.S_RECEIVED] += 1
    if m[x + L.S_ALGORITHM] == K.ALG_TREE:
        tree_delay(s, x, False)
    elif m[x + L.S_ALGORITHM] == K.ALG_STEPS:
        step_part(s, x)
    else:
        arm(s, x)


def set_ring(s: State, x: int) -> None:
    """Set a stream's logical ring for a phase."""
    m = s.m
    phase = m[x + L.S_ROW]
    npu = m[x + L.S_NPU]
    m[x + L.S_RING_N] = m[phase + L.PH_N]
    m[x + L.S_RING_PARTS] = m[phase + L.PH_N]
    m[x + L.S_RING_PLACES] = L.NIL
    dim = m[phase + L.PH_VIEW]
    group = m[m[x + L.S_INSTANCE] + L.I_GROUP]
    if m[group + L.G_VIEWS] != L.NIL:
        view = dim if dim >= 0 else m[group + L.G_FLAT]
        ring = m[m[m[group + L.G_VIEWS] + view] + m[x + L.S_MEMBER]]
        m[x + L.S_RING_PARTS] = m[ring + L.RG_PARTS]
        m[x + L.S_RING_PLACES] = m[ring + L.RG_PLACES]
        m[x + L.S_RING_BASE] = m[ring + L.RG_NPUS]
        m[x + L.S_RING_STRIDE] = 0
        m[x + L.S_INDEX] = m[ring + L.RG_INDEX]
    elif dim < 0:
        m[x + L.S_RING_BASE] = m[group + L.G_MEMBERS]
        m[x + L.S_RING_STRIDE] = 0
        m[x + L.S_INDEX] = m[x + L.S_MEMBER]
    else:
        stride = m[m[L.C_DIM_ROWS] + dim * L.DIM_ROW + L.D_STRIDE]
        index = m[m[L.C_COORDS] + npu * m[L.C_DIMS] + dim]
        m[x + L.S_RING_BASE] = npu - index * stride
        m[x + L.S_RING_STRIDE] = stride
        m[x + L.S_INDEX] = index


def enter_phase(s: State, x: int) -> None:
    """Set a stream up for its phase, before it joins the phase's queue."""
    m = s.m
    phase = m[x + L.S_ROW]
    plan = m[m[x + L.S_INSTANCE] + L.I_PLAN]
    algorithm = m[phase + L.PH_FAMILY]
    code = m[m[x + L.S_CODES] + m[x + L.S_PHASE]]
    set_ring(s, x)
    m[x + L.S_ALGORITHM] = algorithm
    m[x + L.S_DO] = m[phase + L.PH_DO]
    m[x + L.S_BYTES] = m[phase + L.PH_BYTES]
    m[x + L.S_TOTAL] = m[phase + L.PH_PACKETS]
    m[x + L.S_WINDOW] = m[phase + L.PH_WINDOW]
    m[x + L.S_CYCLE] = m[phase + L.PH_WINDOW] + m[phase + L.PH_CYCLE]
    m[x + L.S_ARMED] = 0
    m[x + L.S_SENT] = 0
    m[x + L.S_RECEIVED] = 0
    m[x + L.S_CREDITS] = 0
    m[x + L.S_ARRIVED] = 0
    m[x + L.S_CONTROLS] = 0
    m[x + L.S_POSTED] = 0
    m[x + L.S_PLACE] = 0
    m[x + L.S_ODD] = 0
    m[x + L.S_DELAY] = -1 if m[L.C_BUS] and m[plan + L.P_BUS] else m[phase + L.PH_ENDPOINT]
    m[x + L.S_TREE] = code & 1
    m[x + L.S_DIRECTION] = -1 if code & 2 else 1
    m[x + L.S_BITS] = m[plan + L.P_BITS]
    m[x + L.S_INBOX] = m[x + L.S_CODES] + m[plan + L.P_PHASES]
    if algorithm == K.ALG_CUSTOM or algorithm == K.ALG_NONE or algorithm == K.ALG_SWITCH:
        return
    if algorithm == K.ALG_STEPS:
        member = m[phase + L.PH_ROUNDS] + m[x + L.S_INDEX] * L.MEMBER_ROW
        m[x + L.S_TABLE] = m[member + L.MR_FIRST]
        m[x + L.S_ROUNDS] = m[member + L.MR_N]
    else:
        whole = algorithm == K.ALG_TREE
        m[x + L.S_SIZE] = m[x + L.S_BYTES] if whole else phase_packet(s, phase, 0)
        m[x + L.S_REDUCE] = reduction(s, m[x + L.S_SIZE])
        if m[phase + L.PH_SIZES] != L.NIL:
            m[x + L.S_REDUCE] = uneven_reduction(s, phase, m[x + L.S_INDEX])
    if algorithm != K.ALG_RING and algorithm != K.ALG_TREE:
        first = m[x + L.S_INBOX]
        for at in range(first, first + 2 * m[x + L.S_BITS]):
            m[at] = 0
    if m[x + L.S_EARLY] != L.NIL:
        sort_early(s, x)


def start_stream(s: State, x: int) -> None:
    """A stream gets a place in its queue: its phase begins."""
    m = s.m
    algorithm = m[x + L.S_ALGORITHM]
    if algorithm == K.ALG_TREE:
        tree_start(s, x)
    elif algorithm == K.ALG_CUSTOM:
        if custom_begins(s, x):
            custom_start(s, x)
    elif algorithm == K.ALG_STEPS:
        steps_begin(s, x)
    elif algorithm == K.ALG_NONE:
        barrier(s, x)
    elif algorithm == K.ALG_SWITCH:
        switch_begins(s, x)
    else:
        for _ in range(m[x + L.S_WINDOW]):
            arm(s, x)


def start_waiting(s: State, queue: int) -> None:
    """Start waiting streams while the queue has places."""
    x = next_waiting(s, queue)
    while x != L.NIL:
        start_stream(s, x)
        x = next_waiting(s, queue)
