"""Custom algorithms: a program of sends, receives and timers on each member (replay semantics, section 4.6)."""

from chakra.replay.engines.kernels import codes as K
from chakra.replay.engines.kernels import messages_layout as L
from chakra.replay.engines.kernels.layout import State
from chakra.replay.engines.kernels.messages_events import set_timer
from chakra.replay.engines.kernels.messages_p2p import new_request, post

#: nothing here is compiled for its own sake, only as part of `messages.run`
ENTRY_POINTS = ()
ALLOCATES = False


def custom_call(s: State, x: int) -> int:
    """Where the program of a custom collective's member is described: first node, nodes, first channel."""
    m = s.m
    plan = m[m[x + L.S_INSTANCE] + L.I_PLAN]
    return m[plan + L.P_CUSTOM] + L.CUSTOM_ROW * m[x + L.S_MEMBER]


def custom_issue(s: State, x: int, node: int) -> None:
    """Issue one node of a custom algorithm; there are no slots."""
    m = s.m
    call = custom_call(s, x)
    row = m[call + L.CU_PROGRAM] + node * L.NODE_ROW
    npu = m[x + L.S_NPU]
    op = m[row + L.O_OP]
    if op == K.OP_TIMER:
        set_timer(s, npu, m[L.C_NOW] + m[row + L.O_NS], L.TM_CUSTOM, x, node)
        return
    what = L.RQ_SEND if op == K.OP_SEND else L.RQ_RECV
    index = m[m[call + L.CU_COMMS] + m[row + L.O_COMM] * L.COMM_ROW + L.K_INDEX]
    post(s, new_request(s, npu, node, x, what, m[call + L.CU_MESSAGES] + L.P2P_ROW * index))


def custom_start(s: State, x: int) -> None:
    """Issue the nodes without parents, in ascending order."""
    m = s.m
    call = custom_call(s, x)
    first, n = m[call + L.CU_PROGRAM], m[call + L.CU_NODES]
    pending = m[x + L.S_PENDING]
    for node in range(n):
        m[pending + node] = 0
    for at in range(m[first + L.O_CHILD], m[first + n * L.NODE_ROW + L.O_CHILD]):
        m[pending + m[at]] += 1
    m[x + L.S_NODES_LEFT] = n
    for node in range(n):
        if m[pending + node] == 0:
            custom_issue(s, x, node)


def custom_done(s: State, x: int, node: int) -> bool:
    """A node ended and frees its children; True if it was the last."""
    m = s.m
    row = m[custom_call(s, x) + L.CU_PROGRAM] + node * L.NODE_ROW
    pending = m[x + L.S_PENDING]
    m[x + L.S_NODES_LEFT] -= 1
    for at in range(m[row + L.O_CHILD], m[row + L.NODE_ROW + L.O_CHILD]):
        child = m[at]
        m[pending + child] -= 1
        if m[pending + child] == 0:
            custom_issue(s, x, child)
    return m[x + L.S_NODES_LEFT] == 0
