"""Tables of steps: rounds in which a member sends at most one message and receives at most one.

A member enters its next round when what it received is there and both messages have passed its links, after the
endpoint delay and the reduction of what it received: the rule of `chakra.replay.collectives.steps`, with the network's
own delays, so that messages wait for each other on links.
"""

from chakra.replay.kernels.messages_events import set_timer
from chakra.replay.kernels.messages_layout import (
    C_NOW,
    I_PLAN,
    P_JOINT,
    P_WIDTH,
    S_ARMED,
    S_BYTES,
    S_CYCLE,
    S_DELAY,
    S_INDEX,
    S_INSTANCE,
    S_LEAST,
    S_NPU,
    S_PHASE,
    S_RING_N,
    S_SENT,
    S_TOTAL,
    SR_FROM,
    SR_FROM_ROW,
    SR_FROM_SHARE,
    SR_REDUCES,
    SR_SHARE,
    SR_TO,
    SR_TO_ROW,
    ST_MEMBERS,
    ST_WHOLE,
    STEP_ROW,
    TM_JOINT_END,
    TM_STEP,
    TM_STEP_SENT,
    State,
)
from chakra.replay.kernels.messages_network import occupancy
from chakra.replay.kernels.messages_transfer import post_receive, reduction, ring_npu, send_data, twin

#: nothing here is compiled for its own sake, only as part of `messages.run`
ENTRY_POINTS = ()
ALLOCATES = False


def step_size(s: State, x: int, share: int) -> int:
    """Bytes of a message that carries a share of the bytes that enter the phase, rounded up."""
    m = s.m
    if share == 0:
        return 0
    entering, whole = m[x + S_BYTES], m[m[x + S_CYCLE] + ST_WHOLE]
    size = entering // whole * share + (entering % whole * share + whole - 1) // whole
    return max(size, m[x + S_LEAST])


def steps_begin(s: State, x: int, joint: bool) -> None:
    """The phase of a stream begins: its first round follows after the endpoint delay.

    Members of a joint phase wait for the last one: traces do not name the root of a broadcast or reduce, so that all are
    charged alike.
    """
    m = s.m
    if not joint:
        set_timer(s, m[x + S_NPU], m[C_NOW] + m[x + S_DELAY], TM_STEP, x, 0)
    elif joint_member(s, x, 0):
        for index in range(m[x + S_RING_N]):
            y = twin(s, x, index, ring_npu(s, x, index))
            set_timer(s, m[y + S_NPU], m[C_NOW] + m[y + S_DELAY], TM_STEP, y, 0)


def joint_member(s: State, x: int, end: int) -> bool:
    """Count a member that starts (`end` = 1: ends) a joint phase; True for the last one of its ring."""
    m = s.m
    plan = m[m[x + S_INSTANCE] + I_PLAN]
    leader = twin(s, x, 0, ring_npu(s, x, 0))
    at = leader + m[plan + P_WIDTH] - m[plan + P_JOINT] + 2 * m[x + S_PHASE] + end
    m[at] += 1
    return m[at] == m[x + S_RING_N]


def steps_end(s: State, x: int, joint: bool) -> bool:
    """A stream has done its last round; True if it leaves the phase now. Joint members all leave with the last one."""
    m = s.m
    if joint and joint_member(s, x, 1):
        for index in range(m[x + S_RING_N]):
            y = twin(s, x, index, ring_npu(s, x, index))
            set_timer(s, m[y + S_NPU], m[C_NOW], TM_JOINT_END, y, 0)
    return not joint


def step(s: State, x: int) -> bool:
    """Send and post the messages of the next round; True if there is none, so that the phase ends."""
    m = s.m
    k = m[x + S_SENT]
    if k == m[x + S_TOTAL]:
        return True
    m[x + S_SENT] = k + 1
    npu = m[x + S_NPU]
    row = m[m[x + S_CYCLE] + ST_MEMBERS + 2 * m[x + S_INDEX]] + k * STEP_ROW
    to, source = m[row + SR_TO], m[row + SR_FROM]
    m[x + S_ARMED] = 1 if source < 0 else 2
    busy = 0
    if to >= 0:
        size = step_size(s, x, m[row + SR_SHARE])
        busy = occupancy(s, npu, ring_npu(s, x, to), size)
        send_data(s, x, to, k, m[row + SR_TO_ROW], size)
    if source >= 0:
        size = step_size(s, x, m[row + SR_FROM_SHARE])
        busy = max(busy, occupancy(s, ring_npu(s, x, source), npu, size))
        post_receive(s, x, source, k, m[row + SR_FROM_ROW], size)
    set_timer(s, npu, m[C_NOW] + busy, TM_STEP_SENT, x, 0)
    return False


def step_part(s: State, x: int) -> None:
    """The running round's message was received, or its messages have passed the links; after both, the next round."""
    m = s.m
    m[x + S_ARMED] -= 1
    if m[x + S_ARMED] > 0:
        return
    row = m[m[x + S_CYCLE] + ST_MEMBERS + 2 * m[x + S_INDEX]] + (m[x + S_SENT] - 1) * STEP_ROW
    wait = m[x + S_DELAY]
    if m[row + SR_REDUCES]:
        wait += reduction(s, step_size(s, x, m[row + SR_FROM_SHARE]))
    set_timer(s, m[x + S_NPU], m[C_NOW] + wait, TM_STEP, x, 0)
