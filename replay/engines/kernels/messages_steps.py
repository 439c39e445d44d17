"""Tables of steps: rounds in which a member sends at most one message and receives at most one.

A member enters its next round when what it received is there and both messages have passed its links, after the
endpoint delay and the reduction of what it received: the rule of `chakra.replay.collectives.steps`, with the network's
own delays, so that messages wait for each other on links.
"""

from chakra.replay.engines.kernels import messages_layout as L
from chakra.replay.engines.kernels.layout import State
from chakra.replay.engines.kernels.messages_events import set_timer
from chakra.replay.engines.kernels.messages_overlap import end_beside, moved_beside, start_beside
from chakra.replay.engines.kernels.messages_transfer import post_receive, ring_npu, send_data, twin
from chakra.replay.engines.kernels.network import occupancy
from chakra.replay.engines.kernels.packets import reduction, step_bytes

#: nothing here is compiled for its own sake, only as part of `messages.run`
ENTRY_POINTS = ()
ALLOCATES = False


def step_size(s: State, x: int, share: int) -> int:
    """Bytes of a message that carries a share of the bytes that enter the phase."""
    m = s.m
    return step_bytes(m[x + L.S_BYTES], share, m[m[x + L.S_ROW] + L.PH_WHOLE])


def steps_begin(s: State, x: int) -> None:
    """The phase of a stream begins: its first round follows after the endpoint delay.

    Members of a joint phase wait for the last one: traces do not name the root of a broadcast or reduce, so that all are
    charged alike.
    """
    m = s.m
    if m[m[x + L.S_ROW] + L.PH_JOINT] == 0:
        set_timer(s, m[x + L.S_NPU], m[L.C_NOW] + m[x + L.S_DELAY], L.TM_STEP, x, 0)
    elif joint_member(s, x, 0):
        for index in range(m[x + L.S_RING_PARTS]):
            y = twin(s, x, index, ring_npu(s, x, index))
            set_timer(s, m[y + L.S_NPU], m[L.C_NOW] + m[y + L.S_DELAY], L.TM_STEP, y, 0)


def joint_member(s: State, x: int, end: int) -> bool:
    """Count a member that starts (`end` = 1: ends) a joint phase; True for the last one of its ring."""
    m = s.m
    leader = twin(s, x, 0, ring_npu(s, x, 0))
    at = leader + m[x + L.S_COUNTS] - x + 2 * m[x + L.S_PHASE] + end
    m[at] += 1
    return m[at] == m[x + L.S_RING_PARTS]


def barrier(s: State, x: int) -> None:
    """A member starts a phase without messages, which ends for all of its ring a while after the last one's start."""
    m = s.m
    if not joint_member(s, x, 0):
        return
    delay = m[m[x + L.S_ROW] + L.PH_DELAY]
    if m[m[x + L.S_ROW] + L.PH_BESIDE] != 0:
        start_beside(s, x, delay, 0)
    else:
        for_all(s, x, delay, L.TM_JOINT_END)


def custom_begins(s: State, x: int) -> bool:
    """A member starts a phase that is a program of sends and receives; True if it issues the first of them now.

    Members of a joint phase wait for the last one, and for what a collective takes before it sends.
    """
    m = s.m
    if m[m[x + L.S_ROW] + L.PH_JOINT] == 0:
        return True
    if joint_member(s, x, 0):
        for_all(s, x, m[m[x + L.S_ROW] + L.PH_DELAY], L.TM_CUSTOM_START)
        if m[m[x + L.S_ROW] + L.PH_BESIDE] != 0:
            start_beside(s, x, 0, 1)
    return False


def for_all(s: State, x: int, after: int, what: int) -> None:
    """Set a timer for each member of a stream's ring."""
    m = s.m
    for index in range(m[x + L.S_RING_PARTS]):
        y = twin(s, x, index, ring_npu(s, x, index))
        set_timer(s, m[y + L.S_NPU], m[L.C_NOW] + after, what, y, 0)


def steps_end(s: State, x: int) -> bool:
    """A stream has done its part; True if it leaves the phase now. Joint members all leave with the last one."""
    m = s.m
    if m[m[x + L.S_ROW] + L.PH_JOINT] == 0:
        return True
    if joint_member(s, x, 1):
        if m[m[x + L.S_ROW] + L.PH_BESIDE] != 0:
            moved_beside(s, x)
        else:
            for_all(s, x, 0, L.TM_JOINT_END)
    return False


def slowed_end(s: State, i: int, number: int) -> None:
    """A timer of a collective that computing beside it slows down: if it has ended, all members end their phases."""
    m = s.m
    if end_beside(s, i, number):
        for_all(s, m[i + L.I_BLOCK], 0, L.TM_JOINT_END)


def step(s: State, x: int) -> bool:
    """Send and post the messages of the next round; True if there is none, so that the phase ends."""
    m = s.m
    k = m[x + L.S_ROUND]
    if k == m[x + L.S_ROUNDS]:
        return True
    m[x + L.S_ROUND] = k + 1
    npu = m[x + L.S_NPU]
    row = m[x + L.S_TABLE] + k * L.STEP_ROW
    to, source = m[row + L.SR_TO], m[row + L.SR_FROM]
    m[x + L.S_AWAITED] = 1 if source < 0 else 2
    busy = 0
    if to >= 0:
        size = step_size(s, x, m[row + L.SR_SHARE])
        busy = occupancy(s, npu, ring_npu(s, x, to), size, False)
        send_data(s, x, to, k, m[row + L.SR_TO_ROW], size)
    if source >= 0:
        size = step_size(s, x, m[row + L.SR_FROM_SHARE])
        busy = max(busy, occupancy(s, npu, ring_npu(s, x, source), size, True))
        post_receive(s, x, source, k, m[row + L.SR_FROM_ROW], size)
    set_timer(s, npu, m[L.C_NOW] + busy, L.TM_STEP_SENT, x, 0)
    return False


def step_part(s: State, x: int) -> None:
    """The running round's message was received, or its messages have passed the links; after both, the next round."""
    m = s.m
    m[x + L.S_AWAITED] -= 1
    if m[x + L.S_AWAITED] > 0:
        return
    row = m[x + L.S_TABLE] + (m[x + L.S_ROUND] - 1) * L.STEP_ROW
    wait = m[x + L.S_DELAY]
    if m[row + L.SR_REDUCES]:
        wait += reduction(s, step_size(s, x, m[row + L.SR_FROM_SHARE]))
    set_timer(s, m[x + L.S_NPU], m[L.C_NOW] + wait, L.TM_STEP, x, 0)
