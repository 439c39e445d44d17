"""Phase-level replay kernel: messages of a collective need no events.

On a network without contention a phase (one algorithm on one logical ring) is a function of the instants at which its
members start it. So the event loop knows nodes, streams and point-to-point messages only; when the last member of a
phase has started, all members' ends are computed in one step (replay semantics, sections 4.8 and 9).

Everything is simulated for *actors*. An actor stands for a class of NPUs that behave alike
(`chakra.replay.symmetry.classes`); a ring's table of positions says which actor stands at each position, so a ring of
1024 equal NPUs has one actor.

All arrays are flat; 64-bit integers unless said otherwise. Times are ns, sizes bytes. The modules `phases*` are kernel
modules (see `chakra.jit`): plain Python over arrays, compiled as a whole for large inputs. Each has one layer, and
calls those above it in this list only: `phases_layout` (tables), `phases_heaps` (events, ready nodes),
`phases_algorithms` (messages of an algorithm), `phases_ends` (ends of one phase), `phases_queues` (streams),
`phases_schedule` (chunks that choose their dimensions), `phases_workload` (nodes), and this one, the loop.
"""

from chakra.arrays import I64
from chakra.replay.engines.kernels import phases_layout as L
from chakra.replay.engines.kernels.phases_heaps import pop_event
from chakra.replay.engines.kernels.phases_layout import Net
from chakra.replay.engines.kernels.phases_queues import enter_queue, phase_of, relieve, start_waiting
from chakra.replay.engines.kernels.phases_workload import end_node, issue_pass, make_ready

ENTRY_POINTS = ("run",)
ALLOCATES = False


def end_phase(m: I64, t: I64, net: Net, a: int, stream: int) -> int:
    """A stream's phase ends on an actor; the order of actions is section 3.4's. Returns a status."""
    ctx = stream // t[L.RU_MAX_CHUNKS]
    inst = m[t[L.ST_CTX_INST] + ctx]
    plan = m[t[L.ST_INST_PLAN] + inst]
    k = m[t[L.ST_ST_PHASE] + stream]
    queue = m[t[L.ST_ST_QUEUE] + stream * t[L.RU_MAX_PHASES] + k] >> 2
    last = m[phase_of(m, t, stream) + L.PH_LEFT] == 1
    if last:
        m[t[L.ST_CTX_LEFT] + ctx] -= 1
        if m[t[L.ST_CTX_LEFT] + ctx] == 0:
            node = m[t[L.ST_CTX_NODE] + ctx]
            m[t[L.ST_CTX_INST] + ctx] = -1
            m[t[L.ST_INST_ENDED] + inst] += 1
            if (
                m[t[L.ST_INST_ENDED] + inst]
                == m[t[L.CO_ACTORS] + m[t[L.AC_GROUP_COMM] + m[t[L.ST_CTX_GROUP] + ctx]]]
            ):
                m[t[L.ST_POOL] + m[t[L.ST_INST_BLOCK] + inst]] = m[t[L.ST_FREE] + plan]
                m[t[L.ST_FREE] + plan] = m[t[L.ST_INST_BLOCK] + inst]
            end_node(m, t, a, node, -1)
            status = issue_pass(m, t, net, a)
            if status != L.DONE:
                return status
    m[t[L.ST_Q_BUSY] + a * t[L.RU_DIMS] * t[L.RU_QUEUES] + queue] -= 1
    if not last:
        m[t[L.ST_ST_PHASE] + stream] = k + 1
        enter_queue(m, t, a, stream)
    start_waiting(m, t, net, a, queue)
    if not last:
        start_waiting(m, t, net, a, m[t[L.ST_ST_QUEUE] + stream * t[L.RU_MAX_PHASES] + k + 1] >> 2)
    return L.DONE


def run(
    m: I64,
    t: I64,
    net: Net,
    reserve: int,
    budget: int,
) -> int:
    """Run at most `budget` events; `reserve` is the room in the pool that one event may need. Returns a status."""
    sc = m[t[L.ST_SCALARS] : t[L.ST_SCALARS] + L.SC_SIZE]
    while sc[L.SC_STARTED] < t[L.RU_ACTORS]:
        if len(m) - t[L.ST_POOL] - sc[L.SC_BUMP] < reserve:
            return L.GROW_POOL
        a = sc[L.SC_STARTED]
        sc[L.SC_STARTED] = a + 1
        p = m[t[L.AC_PROGRAM] + a]
        for node in range(m[t[L.PR_START] + p + 1] - m[t[L.PR_START] + p]):
            if m[t[L.ST_LEFT] + m[t[L.AC_NODE] + a] + node] == 0:
                make_ready(m, t, a, node)
        status = issue_pass(m, t, net, a)
        if status != L.DONE:
            return status
    while True:
        if sc[L.SC_HEAP] == 0:
            if not (t[L.RU_RELIEVE] and relieve(m, t, net)):
                break
            sc[L.SC_RELIEVED] += 1
            continue
        if budget <= 0:
            return L.PAUSED
        if len(m) - t[L.ST_POOL] - sc[L.SC_BUMP] < reserve:
            return L.GROW_POOL
        budget -= 1
        sc[L.SC_EVENTS] += 1
        what = pop_event(m, t)
        kind = what & 3
        a = (what >> 2) & 0x3FFFFFFF
        arg = what >> 32
        if kind == L.EV_PHASE:
            status = end_phase(m, t, net, a, arg)
            if status != L.DONE:
                return status
            continue
        if kind == L.EV_NODE:
            end_node(m, t, a, arg, -1)
        else:
            cell = m[t[L.CO_CHAN_START] + a] + arg
            m[t[L.ST_ARRIVED] + cell] = sc[L.SC_NOW]
            channel = a
            a = m[t[L.CO_CHAN_SRC] + channel]
            end_node(m, t, a, m[t[L.ST_SENT_NODE] + cell], -1)
            if m[t[L.ST_POSTED] + cell] >= 0:
                status = issue_pass(m, t, net, a)
                if status != L.DONE:
                    return status
                a = m[t[L.CO_CHAN_DST] + channel]
                node = m[t[L.ST_POSTED_NODE] + cell]
                m[
                    t[L.ST_COMM_READY]
                    + m[t[L.AC_COMM] + a]
                    + m[t[L.PR_COMM] + m[t[L.PR_START] + m[t[L.AC_PROGRAM] + a]] + node]
                ] = m[t[L.ST_SENT] + cell]
                end_node(m, t, a, node, -1)
        status = issue_pass(m, t, net, a)
        if status != L.DONE:
            return status
    return L.DONE
