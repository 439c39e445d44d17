"""What each kind of node does in the message-level engine when it is issued (replay semantics, section 2)."""

from chakra.replay.engines.kernels import codes as K
from chakra.replay.engines.kernels import messages_layout as L
from chakra.replay.engines.kernels.instances import join_instance, open_stream
from chakra.replay.engines.kernels.layout import State
from chakra.replay.engines.kernels.messages_events import free_row, set_timer, take_row
from chakra.replay.engines.kernels.messages_overlap import start_work, tell_collectives
from chakra.replay.engines.kernels.messages_p2p import new_request, post
from chakra.replay.engines.kernels.messages_streams import enter_phase, start_waiting
from chakra.replay.engines.kernels.nodes import (
    comm_row,
    comm_state,
    end_pass,
    end_zero_node,
    next_node,
    row_of,
)
from chakra.replay.engines.kernels.queues import enter_queue

#: nothing here is compiled for its own sake, only as part of `messages.run`
ENTRY_POINTS = ()
ALLOCATES = False


def issue_pass(s: State, npu: int) -> None:
    """Issue ready nodes while their slots are free."""
    again = True
    while again:
        deferred = 0
        node = next_node(s, npu)
        while node >= 0:
            row = row_of(s, npu, node)
            if s.m[row + L.O_OP] == K.OP_ZERO:
                deferred = end_zero_node(s, npu, node, deferred)
            else:
                issue(s, npu, node, row)
            node = next_node(s, npu)
        again = end_pass(s, npu, deferred)
    if s.m[L.C_OVERLAP] != 0:
        tell_collectives(s, npu)


def issue(s: State, npu: int, node: int, row: int) -> None:
    """Issue a node that takes time."""
    m = s.m
    op = m[row + L.O_OP]
    if op == K.OP_TIMER:
        set_timer(s, npu, m[L.C_NOW] + m[row + L.O_NS], L.TM_NODE, node, 0)
    elif op == K.OP_COLLECTIVE:
        issue_collective(s, npu, node)
    elif op == K.OP_COMPUTE:
        start_work(s, npu, node, m[row + L.O_NS])
    elif op == K.OP_SERVER:
        enter_server(s, npu, node, m[row + L.O_NS])
    else:
        message = m[L.NPU_BASE + npu * L.NPU_ROW + L.N_P2P]
        message += L.P2P_ROW * m[comm_row(s, npu, node) + L.K_INDEX]
        if op == K.OP_SEND:
            m[comm_state(s, npu, node) + L.CS_PARTNER] = m[L.C_NOW]
            post(s, new_request(s, npu, node, L.NIL, L.RQ_SEND, message))
        else:
            post(s, new_request(s, npu, node, L.NIL, L.RQ_RECV, message))


# --- memory servers ------------------------------------------------------------------------------------------------


def enter_server(s: State, npu: int, node: int, service: int) -> None:
    """A memory access starts, or waits for its server's earlier ones.

    The phase-level engine knows the end at once; here a timer is set when the access starts, which decides its place
    among the events of its tick.
    """
    m = s.m
    server = m[L.NPU_BASE + npu * L.NPU_ROW + L.N_SERVER]
    if m[server + L.SV_BUSY] == 0:
        m[server + L.SV_BUSY] = 1
        set_timer(s, npu, m[L.C_NOW] + service, L.TM_SERVER, node, server)
        return
    row = take_row(s)
    m[row + L.AC_NPU] = npu
    m[row + L.AC_NODE] = node
    m[row + L.AC_NS] = service
    m[row + L.NEXT] = L.NIL
    tail = m[server + L.SV_TAIL]
    if tail == L.NIL:
        m[server + L.SV_HEAD] = row
    else:
        m[tail + L.NEXT] = row
    m[server + L.SV_TAIL] = row


def leave_server(s: State, server: int) -> None:
    """A memory access ends: the next one starts."""
    m = s.m
    row = m[server + L.SV_HEAD]
    if row == L.NIL:
        m[server + L.SV_BUSY] = 0
        return
    after = m[row + L.NEXT]
    m[server + L.SV_HEAD] = after
    if after == L.NIL:
        m[server + L.SV_TAIL] = L.NIL
    npu = m[row + L.AC_NPU]
    set_timer(s, npu, m[L.C_NOW] + m[row + L.AC_NS], L.TM_SERVER, m[row + L.AC_NODE], server)
    free_row(s, row)


# --- collectives ---------------------------------------------------------------------------------------------------


def issue_collective(s: State, npu: int, node: int) -> None:
    """One stream per chunk enters its first queue."""
    m = s.m
    head = join_instance(s, npu, node)
    if head == L.NIL:
        return
    for chunk in range(m[m[head + L.S_INSTANCE] + L.I_CHUNKS]):
        x = open_stream(s, head, chunk)
        enter_phase(s, x)
        enter_queue(s, x)
        start_waiting(s, m[x + L.S_QUEUE])
