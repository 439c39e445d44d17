"""Phase-level replay kernel: messages of a collective need no events.

On a network without contention a phase (one algorithm on one logical ring) is a function of the instants at which its
members start it. So the event loop knows nodes, streams and point-to-point messages only; when the last member of a
phase has started, all members' ends are computed in one step (replay semantics, sections 4.8 and 9).

Everything is simulated for *actors*. An actor stands for a class of NPUs that behave alike
(`chakra.replay.symmetry.classes`); a ring's table of positions says which actor stands at each position, so a ring of
1024 equal NPUs has one actor. Rows of NPUs are rows of actors here.

Kernel modules (see `chakra.jit`) are plain Python over one array, compiled as a whole for large inputs. Shared with the
message-level engine: `codes` and `layout` (numbers and rows), `nodes`, `queues`, `scheduling`, `instances`, `packets`,
`overlap`.
Of this engine: `phases_events` (the event list), `phases_algorithms` (ends of a phase), `phases_streams`,
`phases_workload`, and this one, the loop.
"""

from chakra.replay.engines.kernels import phases_layout as L
from chakra.replay.engines.kernels.instances import end_stream, in_last_phase
from chakra.replay.engines.kernels.layout import State
from chakra.replay.engines.kernels.nodes import comm_state, end_node
from chakra.replay.engines.kernels.overlap import end_work
from chakra.replay.engines.kernels.phases_events import pop_event
from chakra.replay.engines.kernels.phases_overlap import NPU_MASK, OF_COLLECTIVE, OF_SHIFT, end_beside
from chakra.replay.engines.kernels.phases_streams import note_end, relieve, start_waiting
from chakra.replay.engines.kernels.phases_workload import issue_pass
from chakra.replay.engines.kernels.queues import enter_queue

ENTRY_POINTS = ("run",)
ALLOCATES = False


def end_phase(s: State, x: int) -> None:
    """A stream ends a phase; the order of actions is section 3.4's."""
    m = s.m
    queue = m[x + L.S_QUEUE]
    if not in_last_phase(s, x):
        m[queue + L.Q_RUNNING] -= 1
        m[x + L.S_PHASE] += 1
        m[x + L.S_ROW] += L.PHASE_ROW
        enter_queue(s, x)
        start_waiting(s, queue)
        start_waiting(s, m[x + L.S_QUEUE])
        return
    npu, node = m[x + L.S_NPU], m[m[x + L.S_HEAD] + L.S_NODE]
    if end_stream(s, x):
        end_node(s, npu, node)
        issue_pass(s, npu)
    m[queue + L.Q_RUNNING] -= 1
    start_waiting(s, queue)


def arrive(s: State, lane: int, number: int) -> None:
    """A message arrives: its send ends, then its receive if that is posted."""
    m = s.m
    row = m[L.C_LANES] + lane * L.LANE_ROW
    pair = m[row + L.LN_FIRST] + number * L.PAIR_ROW
    m[pair + L.PR_ARRIVED] = m[L.C_NOW]
    end_node(s, m[row + L.LN_SRC], m[pair + L.PR_SEND_NODE])
    issue_pass(s, m[row + L.LN_SRC])
    if m[pair + L.PR_POSTED] >= 0 and m[L.C_STATUS] == L.DONE:
        npu, node = m[row + L.LN_DST], m[pair + L.PR_RECV_NODE]
        m[comm_state(s, npu, node) + L.CS_PARTNER] = m[pair + L.PR_SENT]
        end_node(s, npu, node)
        issue_pass(s, npu)


def end_slowed(s: State, what: int, sequence: int) -> bool:
    """A compute node or a collective ends that others may have slowed down; False if the event means nothing any more."""
    if what & OF_COLLECTIVE:
        return end_beside(s, what >> OF_SHIFT, sequence)
    npu = (what >> OF_SHIFT) & NPU_MASK
    if not end_work(s, npu, what >> 32, sequence):
        return False
    end_node(s, npu, what >> 32)
    issue_pass(s, npu)
    return True


def run(s: State) -> int:
    """Run until the end, the end of the budget or of the room in the pool; returns a status."""
    m = s.m
    room = len(m) - m[L.C_MARGIN]
    budget = m[L.C_BUDGET]
    while m[L.C_STATUS] == L.DONE:
        if m[L.C_TOP] > room:
            return L.GROW
        if m[L.C_STARTED] < m[L.C_NPUS]:
            npu = m[L.C_STARTED]
            m[L.C_STARTED] = npu + 1
            issue_pass(s, npu)
            continue
        if m[L.C_HEAP_N] == 0:
            if m[L.C_RELIEVE] == 0 or not relieve(s):
                return L.DONE
            m[L.C_RELIEVED] += 1
            continue
        if budget <= 0:
            return L.BUDGET
        budget -= 1
        m[L.C_EVENTS] += 1
        before = m[L.C_NOW]
        sequence = m[m[L.C_HEAP] + L.E_SEQUENCE]
        what = pop_event(s)
        if what & 3 == L.EVENT_PHASE:
            note_end(s, what >> 2)
            end_phase(s, what >> 2)
        elif what & 3 == L.EVENT_NODE:
            npu = (what >> 2) & 0x3FFFFFFF
            end_node(s, npu, what >> 32)
            issue_pass(s, npu)
        elif what & 3 == L.EVENT_BESIDE:
            if not end_slowed(s, what, sequence):
                m[L.C_NOW] = before  # nothing has happened
        else:
            arrive(s, (what >> 2) & 0x3FFFFFFF, what >> 32)
    return m[L.C_STATUS]
