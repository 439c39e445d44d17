"""Custom algorithms: a program of sends, receives and timers on each member (replay semantics, 4.6)."""

from chakra.replay.kernels.messages_events import set_timer
from chakra.replay.kernels.messages_layout import (
    C_NOW,
    I_PLAN,
    NODE_ROW,
    O_CHILD,
    O_CHILD_END,
    O_INDEX,
    O_NS,
    O_OP,
    O_SIZE,
    OP_SEND,
    OP_TIMER,
    P2P_ROW,
    P_CUSTOM,
    RQ_RECV,
    RQ_SEND,
    S_INSTANCE,
    S_LIST,
    S_MEMBER,
    S_NPU,
    S_TOTAL,
    TM_CUSTOM,
    State,
)
from chakra.replay.kernels.messages_p2p import new_request, post

#: nothing here is compiled for its own sake, only as part of `messages.run`
ENTRY_POINTS = ()
ALLOCATES = False


def custom_call(s: State, x: int) -> int:
    """Where the program of a custom collective's member is described: first node, nodes, first channel."""
    m = s.m
    plan = m[m[x + S_INSTANCE] + I_PLAN]
    return m[plan + P_CUSTOM] + 3 * m[x + S_MEMBER]


def custom_issue(s: State, x: int, node: int) -> None:
    """Issue one node of a custom algorithm; there are no slots."""
    m = s.m
    call = custom_call(s, x)
    row = m[call] + node * NODE_ROW
    npu = m[x + S_NPU]
    op = m[row + O_OP]
    if op == OP_TIMER:
        set_timer(s, npu, m[C_NOW] + m[row + O_NS], TM_CUSTOM, x, node)
        return
    what = RQ_SEND if op == OP_SEND else RQ_RECV
    channel = m[call + 2] + P2P_ROW * m[row + O_INDEX]
    post(s, new_request(s, npu, node, x, what, m[row + O_SIZE], channel))


def custom_start(s: State, x: int) -> None:
    """Issue the nodes without parents, in ascending order."""
    m = s.m
    call = custom_call(s, x)
    first, n = m[call], m[call + 1]
    for node in range(n):
        m[x + S_LIST + 1 + node] = 0
    for node in range(n):
        row = first + node * NODE_ROW
        for at in range(m[row + O_CHILD], m[row + O_CHILD_END]):
            m[x + S_LIST + 1 + m[at]] += 1
    m[x + S_TOTAL] = n
    for node in range(n):
        if m[x + S_LIST + 1 + node] == 0:
            custom_issue(s, x, node)


def custom_done(s: State, x: int, node: int) -> bool:
    """A node ended and frees its children; True if it was the last."""
    m = s.m
    row = m[custom_call(s, x)] + node * NODE_ROW
    m[x + S_TOTAL] -= 1
    for at in range(m[row + O_CHILD], m[row + O_CHILD_END]):
        child = m[at]
        m[x + S_LIST + 1 + child] -= 1
        if m[x + S_LIST + 1 + child] == 0:
            custom_issue(s, x, child)
    return m[x + S_TOTAL] == 0
