"""Custom algorithms: a program of sends, receives and timers on each member (replay semantics, 4.6)."""

from chakra.replay.engines.kernels import messages_layout as L
from chakra.replay.engines.kernels.messages_events import set_timer
from chakra.replay.engines.kernels.messages_layout import State
from chakra.replay.engines.kernels.messages_p2p import new_request, post

#: nothing here is compiled for its own sake, only as part of `messages.run`
ENTRY_POINTS = ()
ALLOCATES = False


def custom_call(s: State, x: int) -> int:
    """Where the program of a custom collective's member is described: first node, nodes, first channel."""
    m = s.m
    plan = m[m[x + L.S_INSTANCE] + L.I_PLAN]
    return m[plan + L.P_CUSTOM] + 3 * m[x + L.S_MEMBER]


def custom_issue(s: State, x: int, node: int) -> None:
    """Issue one node of a custom algorithm; there are no slots."""
    m = s.m
    call = custom_call(s, x)
    row = m[call] + node * L.NODE_ROW
    npu = m[x + L.S_NPU]
    op = m[row + L.O_OP]
    if op == L.OP_TIMER:
        set_timer(s, npu, m[L.C_NOW] + m[row + L.O_NS], L.TM_CUSTOM, x, node)
        return
    what = L.RQ_SEND if op == L.OP_SEND else L.RQ_RECV
    channel = m[call + 2] + L.P2P_ROW * m[row + L.O_INDEX]
    post(s, new_request(s, npu, node, x, what, m[row + L.O_SIZE], channel))


def custom_start(s: State, x: int) -> None:
    """Issue the nodes without parents, in ascending order."""
    m = s.m
    call = custom_call(s, x)
    first, n = m[call], m[call + 1]
    for node in range(n):
        m[x + L.S_LIST + 1 + node] = 0
    for node in range(n):
        row = first + node * L.NODE_ROW
        for at in range(m[row + L.O_CHILD], m[row + L.O_CHILD_END]):
            m[x + L.S_LIST + 1 + m[at]] += 1
    m[x + L.S_TOTAL] = n
    for node in range(n):
        if m[x + L.S_LIST + 1 + node] == 0:
            custom_issue(s, x, node)


def custom_done(s: State, x: int, node: int) -> bool:
    """A node ended and frees its children; True if it was the last."""
    m = s.m
    row = m[custom_call(s, x)] + node * L.NODE_ROW
    m[x + L.S_TOTAL] -= 1
    for at in range(m[row + L.O_CHILD], m[row + L.O_CHILD_END]):
        child = m[at]
        m[x + L.S_LIST + 1 + child] -= 1
        if m[x + L.S_LIST + 1 + child] == 0:
            custom_issue(s, x, child)
    return m[x + L.S_TOTAL] == 0
