"""Phase-level replay kernel: messages of a collective need no events.

On a network without contention a phase (one algorithm on one logical ring) is a function of the instants at which its
members start it. So the event loop knows nodes, streams and point-to-point messages only; when the last member of a
phase has started, all members' ends are computed in one step (replay semantics, sections 4.8 and 9).

Everything is simulated for *actors*. An actor stands for a class of NPUs that behave alike (`chakra.replay.classes`);
a ring's table of positions says which actor stands at each position, so a ring of 1024 equal NPUs has one actor.

All arrays are flat; 64-bit integers unless said otherwise. Times are ns, sizes bytes. The modules `phases*` are kernel
modules (see `chakra.kernels`): plain Python over arrays, compiled as a whole for large inputs. Each has one layer, and
calls those above it in this list only: `phases_layout` (tables), `phases_heaps` (events, ready nodes),
`phases_algorithms` (messages of an algorithm), `phases_ends` (ends of one phase), `phases_queues` (streams),
`phases_schedule` (chunks that choose their dimensions), `phases_workload` (nodes), and this one, the loop.
"""

from chakra.arrays import I64
from chakra.replay.kernels.phases_heaps import pop_event
from chakra.replay.kernels.phases_layout import (
    AC_COMM,
    AC_GROUP_COMM,
    AC_NODE,
    AC_PROGRAM,
    CO_ACTORS,
    CO_CHAN_DST,
    CO_CHAN_SRC,
    CO_CHAN_START,
    DONE,
    EV_NODE,
    EV_PHASE,
    GROW_POOL,
    PAUSED,
    PH_LEFT,
    PR_COMM,
    PR_START,
    RU_ACTORS,
    RU_DIMS,
    RU_MAX_CHUNKS,
    RU_MAX_PHASES,
    RU_QUEUES,
    RU_RELIEVE,
    SC_BUMP,
    SC_EVENTS,
    SC_HEAP,
    SC_NOW,
    SC_RELIEVED,
    SC_SIZE,
    SC_STARTED,
    ST_ARRIVED,
    ST_COMM_READY,
    ST_CTX_GROUP,
    ST_CTX_INST,
    ST_CTX_LEFT,
    ST_CTX_NODE,
    ST_FREE,
    ST_INST_BLOCK,
    ST_INST_ENDED,
    ST_INST_PLAN,
    ST_LEFT,
    ST_POOL,
    ST_POSTED,
    ST_POSTED_NODE,
    ST_Q_BUSY,
    ST_SCALARS,
    ST_SENT,
    ST_SENT_NODE,
    ST_ST_PHASE,
    ST_ST_QUEUE,
    Net,
)
from chakra.replay.kernels.phases_queues import enter_queue, phase_of, relieve, start_waiting
from chakra.replay.kernels.phases_workload import end_node, issue_pass, make_ready

ENTRY_POINTS = ("run",)
ALLOCATES = False


def end_phase(m: I64, t: I64, net: Net, a: int, stream: int) -> int:
    """A stream's phase ends on an actor; the order of actions is section 3.4's. Returns a status."""
    ctx = stream // t[RU_MAX_CHUNKS]
    inst = m[t[ST_CTX_INST] + ctx]
    plan = m[t[ST_INST_PLAN] + inst]
    k = m[t[ST_ST_PHASE] + stream]
    queue = m[t[ST_ST_QUEUE] + stream * t[RU_MAX_PHASES] + k] >> 2
    last = m[phase_of(m, t, stream) + PH_LEFT] == 1
    if last:
        m[t[ST_CTX_LEFT] + ctx] -= 1
        if m[t[ST_CTX_LEFT] + ctx] == 0:
            node = m[t[ST_CTX_NODE] + ctx]
            m[t[ST_CTX_INST] + ctx] = -1
            m[t[ST_INST_ENDED] + inst] += 1
            if m[t[ST_INST_ENDED] + inst] == m[t[CO_ACTORS] + m[t[AC_GROUP_COMM] + m[t[ST_CTX_GROUP] + ctx]]]:
                m[t[ST_POOL] + m[t[ST_INST_BLOCK] + inst]] = m[t[ST_FREE] + plan]
                m[t[ST_FREE] + plan] = m[t[ST_INST_BLOCK] + inst]
            end_node(m, t, a, node, -1)
            status = issue_pass(m, t, net, a)
            if status != DONE:
                return status
    m[t[ST_Q_BUSY] + a * t[RU_DIMS] * t[RU_QUEUES] + queue] -= 1
    if not last:
        m[t[ST_ST_PHASE] + stream] = k + 1
        enter_queue(m, t, a, stream)
    start_waiting(m, t, net, a, queue)
    if not last:
        start_waiting(m, t, net, a, m[t[ST_ST_QUEUE] + stream * t[RU_MAX_PHASES] + k + 1] >> 2)
    return DONE


def run(
    m: I64,
    t: I64,
    net: Net,
    reserve: int,
    budget: int,
) -> int:
    """Run at most `budget` events; `reserve` is the room in the pool that one event may need. Returns a status."""
    sc = m[t[ST_SCALARS] : t[ST_SCALARS] + SC_SIZE]
    while sc[SC_STARTED] < t[RU_ACTORS]:
        if len(m) - t[ST_POOL] - sc[SC_BUMP] < reserve:
            return GROW_POOL
        a = sc[SC_STARTED]
        sc[SC_STARTED] = a + 1
        p = m[t[AC_PROGRAM] + a]
        for node in range(m[t[PR_START] + p + 1] - m[t[PR_START] + p]):
            if m[t[ST_LEFT] + m[t[AC_NODE] + a] + node] == 0:
                make_ready(m, t, a, node)
        status = issue_pass(m, t, net, a)
        if status != DONE:
            return status
    while True:
        if sc[SC_HEAP] == 0:
            if not (t[RU_RELIEVE] and relieve(m, t, net)):
                break
            sc[SC_RELIEVED] += 1
            continue
        if budget <= 0:
            return PAUSED
        if len(m) - t[ST_POOL] - sc[SC_BUMP] < reserve:
            return GROW_POOL
        budget -= 1
        sc[SC_EVENTS] += 1
        what = pop_event(m, t)
        kind = what & 3
        a = (what >> 2) & 0x3FFFFFFF
        arg = what >> 32
        if kind == EV_PHASE:
            status = end_phase(m, t, net, a, arg)
            if status != DONE:
                return status
            continue
        if kind == EV_NODE:
            end_node(m, t, a, arg, -1)
        else:
            cell = m[t[CO_CHAN_START] + a] + arg
            m[t[ST_ARRIVED] + cell] = sc[SC_NOW]
            channel = a
            a = m[t[CO_CHAN_SRC] + channel]
            end_node(m, t, a, m[t[ST_SENT_NODE] + cell], -1)
            if m[t[ST_POSTED] + cell] >= 0:
                status = issue_pass(m, t, net, a)
                if status != DONE:
                    return status
                a = m[t[CO_CHAN_DST] + channel]
                node = m[t[ST_POSTED_NODE] + cell]
                m[
                    t[ST_COMM_READY]
                    + m[t[AC_COMM] + a]
                    + m[t[PR_COMM] + m[t[PR_START] + m[t[AC_PROGRAM] + a]] + node]
                ] = m[t[ST_SENT] + cell]
                end_node(m, t, a, node, -1)
        status = issue_pass(m, t, net, a)
        if status != DONE:
            return status
    return DONE
