"""What each kind of node does in the phase-level engine when it is issued (replay semantics, section 2)."""

from chakra.replay.engines.kernels import codes as K
from chakra.replay.engines.kernels import phases_layout as L
from chakra.replay.engines.kernels.instances import join_instance, open_stream
from chakra.replay.engines.kernels.layout import State
from chakra.replay.engines.kernels.nodes import (
    comm_row,
    comm_state,
    end_pass,
    end_zero_node,
    next_node,
    row_of,
)
from chakra.replay.engines.kernels.phases_events import push_event
from chakra.replay.engines.kernels.phases_overlap import start_work, tell_collectives
from chakra.replay.engines.kernels.phases_streams import start_waiting
from chakra.replay.engines.kernels.queues import enter_queue

ENTRY_POINTS = ()
ALLOCATES = False


def issue_pass(s: State, npu: int) -> None:
    """Issue ready nodes while their slots are free."""
    m = s.m
    again = True
    while again:
        deferred = 0
        node = next_node(s, npu)
        while node >= 0:
            row = row_of(s, npu, node)
            op = m[row + L.O_OP]
            if op == K.OP_TIMER:
                push_event(s, m[L.C_NOW] + m[row + L.O_NS], m[L.C_NOW], L.EVENT_NODE | npu << 2 | node << 32)
            elif op == K.OP_ZERO:
                deferred = end_zero_node(s, npu, node, deferred)
            elif op == K.OP_COLLECTIVE:
                issue_collective(s, npu, node)
                if m[L.C_STATUS] != L.DONE:
                    return
            elif op == K.OP_SEND:
                issue_send(s, npu, node)
            elif op == K.OP_RECV:
                issue_recv(s, npu, node)
            elif op == K.OP_COMPUTE:
                start_work(s, npu, node, m[row + L.O_NS])
            else:
                access_memory(s, npu, node, m[row + L.O_NS])
            node = next_node(s, npu)
        again = end_pass(s, npu, deferred)
    if m[L.C_OVERLAP] != 0:
        tell_collectives(s, npu)


def access_memory(s: State, npu: int, node: int, service: int) -> None:
    """A memory access ends after its server's earlier ones and its own time."""
    m = s.m
    server = m[L.NPU_BASE + npu * L.NPU_ROW + L.N_SERVER]
    end = max(m[L.C_NOW], m[server + L.SV_END]) + service
    m[server + L.SV_END] = end
    push_event(s, end, m[L.C_NOW], L.EVENT_NODE | npu << 2 | node << 32)


def lane_of(s: State, npu: int, node: int) -> int:
    """Number of the lane of a send or receive."""
    m = s.m
    return m[m[L.NPU_BASE + npu * L.NPU_ROW + L.N_LANES] + m[comm_row(s, npu, node) + L.K_INDEX]]


def deliver(s: State, lane: int, number: int, sent: int, posted: int) -> None:
    """A message leaves when it was sent and, under rendezvous, its receiver has asked for it; it will arrive."""
    m = s.m
    row = m[L.C_LANES] + lane * L.LANE_ROW
    leave = sent
    if m[row + L.LN_BACK_NS] >= 0:
        leave = max(sent, posted + m[row + L.LN_BACK_NS])
    push_event(s, leave + m[row + L.LN_NS], leave, L.EVENT_ARRIVAL | lane << 2 | number << 32)


def issue_send(s: State, npu: int, node: int) -> None:
    """A send leaves at once (eager) or when the receiver has asked for it (rendezvous)."""
    m = s.m
    lane = lane_of(s, npu, node)
    row = m[L.C_LANES] + lane * L.LANE_ROW
    number = m[row + L.LN_SENT]
    m[row + L.LN_SENT] = number + 1
    pair = m[row + L.LN_FIRST] + number * L.PAIR_ROW
    m[pair + L.PR_SENT] = m[L.C_NOW]
    m[pair + L.PR_SEND_NODE] = node
    m[comm_state(s, npu, node) + L.CS_PARTNER] = m[L.C_NOW]
    if m[row + L.LN_BACK_NS] < 0 or m[pair + L.PR_POSTED] >= 0:
        deliver(s, lane, number, m[L.C_NOW], m[pair + L.PR_POSTED])


def issue_recv(s: State, npu: int, node: int) -> None:
    """A receive is posted; it ends with the arrival, or now if the message is already here."""
    m = s.m
    lane = lane_of(s, npu, node)
    row = m[L.C_LANES] + lane * L.LANE_ROW
    number = m[row + L.LN_POSTED]
    m[row + L.LN_POSTED] = number + 1
    pair = m[row + L.LN_FIRST] + number * L.PAIR_ROW
    m[pair + L.PR_POSTED] = m[L.C_NOW]
    m[pair + L.PR_RECV_NODE] = node
    if m[pair + L.PR_ARRIVED] >= 0:
        m[comm_state(s, npu, node) + L.CS_PARTNER] = m[pair + L.PR_SENT]
        push_event(s, m[L.C_NOW], m[L.C_NOW], L.EVENT_NODE | npu << 2 | node << 32)
    elif m[row + L.LN_BACK_NS] >= 0 and m[pair + L.PR_SENT] >= 0:
        deliver(s, lane, number, m[pair + L.PR_SENT], m[L.C_NOW])


def issue_collective(s: State, npu: int, node: int) -> None:
    """One stream per chunk enters its first queue."""
    m = s.m
    head = join_instance(s, npu, node)
    if head == L.NIL:
        return
    for chunk in range(m[m[head + L.S_INSTANCE] + L.I_CHUNKS]):
        x = open_stream(s, head, chunk)
        enter_queue(s, x)
        start_waiting(s, m[x + L.S_QUEUE])
