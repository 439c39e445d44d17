"""Message-level engine: every message of every collective, link by link, in ASTRA-sim's order of events.

`run` takes up to a budget of events and goes back to its caller, which shows progress, makes the arrays longer where
the kernel ran out of room, and calls it again. Source: replay semantics, sections 2 to 5.
"""

from chakra.replay.engines.kernels import messages_layout as L
from chakra.replay.engines.kernels.instances import end_stream, in_last_phase
from chakra.replay.engines.kernels.layout import State
from chakra.replay.engines.kernels.messages_bus import after_received, bus_received, bus_sent, leave_unit
from chakra.replay.engines.kernels.messages_credit import credit, reduce_packet
from chakra.replay.engines.kernels.messages_custom import custom_done, custom_start
from chakra.replay.engines.kernels.messages_events import close_bucket, end_bundle, free_row, next_bucket
from chakra.replay.engines.kernels.messages_p2p import arrive_control as arrive_request
from chakra.replay.engines.kernels.messages_p2p import arrive_unpaired, issued_at, send_eager
from chakra.replay.engines.kernels.messages_steps import slowed_end, step, step_part, steps_end
from chakra.replay.engines.kernels.messages_streams import enter_phase, received, start_stream, start_waiting
from chakra.replay.engines.kernels.messages_switch import cross, crossed
from chakra.replay.engines.kernels.messages_transfer import arrive_control, arrive_data, go_data
from chakra.replay.engines.kernels.messages_tree import tree_reduce, tree_step
from chakra.replay.engines.kernels.messages_workload import issue_pass, leave_server
from chakra.replay.engines.kernels.network import reached, wake
from chakra.replay.engines.kernels.network_outside import deliver
from chakra.replay.engines.kernels.nodes import end_node
from chakra.replay.engines.kernels.overlap import end_work
from chakra.replay.engines.kernels.queues import enter_queue, next_blocked, take_first

ENTRY_POINTS = ("run",)
ALLOCATES = False


def later(s: State, what: int, a: int, b: int) -> None:
    """Put an action on the stack: the last one put there is done first, before any other event."""
    m = s.m
    n = m[L.C_ACTIONS]
    m[L.C_ACTIONS] = n + 1
    m[L.ACTIONS + 3 * n] = what
    m[L.ACTIONS + 3 * n + 1] = a
    m[L.ACTIONS + 3 * n + 2] = b


def end_phase(s: State, x: int) -> None:
    """A stream ends a phase (order of actions: 3.4).

    After its last phase the collective's end is signalled first, which may issue further nodes while this stream
    still counts as running; then the stream leaves its queue and joins the next one.
    """
    m = s.m
    queue = m[x + L.S_QUEUE]
    if not in_last_phase(s, x):
        m[queue + L.Q_RUNNING] -= 1
        m[x + L.S_PHASE] += 1
        m[x + L.S_ROW] += L.PHASE_ROW
        enter_phase(s, x)
        enter_queue(s, x)
        later(s, L.ACT_START, queue, m[x + L.S_QUEUE])
        return
    later(s, L.ACT_LEAVE, queue, 0)
    npu, node = m[x + L.S_NPU], m[m[x + L.S_HEAD] + L.S_NODE]
    if end_stream(s, x):
        later(s, L.ACT_NODE, npu, node)


def end_request(s: State, request: int) -> None:
    """A send or receive ends."""
    m = s.m
    npu, node, stream = m[request + L.R_NPU], m[request + L.R_NODE], m[request + L.R_STREAM]
    free_row(s, request)
    if stream == L.NIL:
        later(s, L.ACT_NODE, npu, node)
    elif custom_done(s, stream, node) and steps_end(s, stream):
        later(s, L.ACT_STREAM, stream, 0)


def arrive(s: State, message: int, kind: int) -> None:
    """A message has reached its destination. The sender's end of it comes before the receiver's (5.5)."""
    m = s.m
    if kind == L.MSG_DATA:
        x = m[message + L.MD_STREAM]
        if arrive_data(s, message):
            received(s, x)
    elif kind == L.MSG_CONTROL:
        arrive_control(s, message)
    elif kind == L.MSG_P2P:
        send, receive = m[message + L.MP_REQUEST], m[message + L.MP_TAKER]
        if receive == L.NIL:
            arrive_unpaired(s, message, issued_at(s, send))
        else:
            free_row(s, message)
            later(s, L.ACT_REQUEST, receive, 0)
        later(s, L.ACT_REQUEST, send, 0)
    elif kind == L.MSG_SWITCH:
        crossed(s, message)
    else:
        arrive_request(s, message)


def run_timer(s: State, what: int, a: int, b: int) -> None:
    """A timer of the running bundle expired."""
    m = s.m
    if what == L.TM_CREDIT:
        if credit(s, a):
            later(s, L.ACT_STREAM, a, 0)
    elif what == L.TM_REDUCE:
        reduce_packet(s, a, b)
    elif what == L.TM_NODE:
        later(s, L.ACT_NODE, m[m[L.C_BUNDLE] + L.T_NPU], a)
    elif what == L.TM_TREE:
        if tree_step(s, a):
            later(s, L.ACT_STREAM, a, 0)
    elif what == L.TM_TREE_REDUCE:
        tree_reduce(s, a)
    elif what == L.TM_STEP:
        if step(s, a) and steps_end(s, a):
            later(s, L.ACT_STREAM, a, 0)
    elif what == L.TM_JOINT_END:
        later(s, L.ACT_STREAM, a, 0)
    elif what == L.TM_STEP_SENT:
        step_part(s, a)
    elif what == L.TM_SERVER:
        leave_server(s, b)
        later(s, L.ACT_NODE, m[m[L.C_BUNDLE] + L.T_NPU], a)
    elif what == L.TM_CUSTOM:
        if custom_done(s, a, b) and steps_end(s, a):
            later(s, L.ACT_STREAM, a, 0)
    elif what == L.TM_CUSTOM_START:
        custom_start(s, a)
    elif what == L.TM_WORK:
        npu = m[m[L.C_BUNDLE] + L.T_NPU]
        if end_work(s, npu, a, b):
            later(s, L.ACT_NODE, npu, a)
    elif what == L.TM_BESIDE:
        slowed_end(s, a, b)
    elif what == L.TM_SWITCH:
        cross(s, a)
    elif what == L.TM_BUS_SENT:
        bus_sent(s, a)
    elif what == L.TM_BUS_REDUCED:
        leave_unit(s, a)
    else:
        row = bus_received(s, a)
        if row != L.NIL:
            later(s, L.ACT_BUS, a, 0)
            leave_bus(s, row)


def leave_bus(s: State, row: int) -> None:
    """A packet's way over the shared bus is over: the reduction of 4.1 follows, or at once what a timer would do."""
    m = s.m
    x, p = m[row + L.BQ_STREAM], m[row + L.BQ_PACKET]
    if m[row + L.BQ_LATER]:
        if m[row + L.BQ_TREE]:
            tree_reduce(s, x)
        else:
            reduce_packet(s, x, p)
    else:
        later(s, L.ACT_TIMER, L.TM_TREE if m[row + L.BQ_TREE] else L.TM_CREDIT, x)
    free_row(s, row)


def act(s: State) -> int:
    """Do the action on top of the stack; returns the NPU whose nodes are to be looked at, or -1."""
    m = s.m
    n = m[L.C_ACTIONS] - 1
    m[L.C_ACTIONS] = n
    what, a, b = m[L.ACTIONS + 3 * n], m[L.ACTIONS + 3 * n + 1], m[L.ACTIONS + 3 * n + 2]
    if what == L.ACT_NODE:
        end_node(s, a, b)
        return a
    if what == L.ACT_STREAM:
        end_phase(s, a)
    elif what == L.ACT_LEAVE:
        m[a + L.Q_RUNNING] -= 1
        start_waiting(s, a)
    elif what == L.ACT_START:
        start_waiting(s, a)
        start_waiting(s, b)
    elif what == L.ACT_REQUEST:
        end_request(s, a)
    else:
        after_received(s, a)
    return -1


def relieve(s: State) -> bool:
    """Everything waits: start the first waiting stream of each queue, one more than the queue runs (C13)."""
    m = s.m
    queue = next_blocked(s, m[L.C_QUEUE_ROWS])
    if queue == L.NIL:
        return False
    if m[L.C_OVERLAP] != 0:
        m[L.C_NOW] = m[L.C_HAPPENED]
    while queue != L.NIL:
        start_stream(s, take_first(s, queue))
        queue = next_blocked(s, queue + L.QUEUE_ROW)
    return True


def run_event(s: State, event: int) -> None:
    """One event, except a bundle of timers."""
    m = s.m
    kind = m[event + L.KIND]
    if kind >= L.MSG_FIRST:
        if reached(s, event):
            arrive(s, event, kind)
    elif kind == L.EV_LINK:
        wake(s, event)
    elif kind == L.EV_REQUEST:
        if m[event + L.R_WHAT] == L.RQ_RECV:
            later(s, L.ACT_REQUEST, event, 0)
        else:
            send_eager(s, event)
    elif kind == L.EV_STREAM_GO:
        go_data(s, event)
    else:
        x = m[event + L.RC_STREAM]
        free_row(s, event)
        received(s, x)


def next_timer(s: State) -> int:
    """The next timer of the running bundle."""
    m = s.m
    bundle = m[L.C_BUNDLE]
    timer = m[bundle + L.T_HEAD]
    after = m[timer + L.NEXT]
    m[bundle + L.T_HEAD] = after
    if after == L.NIL:
        m[bundle + L.T_TAIL] = L.NIL
    return timer


def next_event(s: State) -> int:
    """The next event of the running tick or of the next tick.

    NIL if there is none, or if a network outside may have one before.
    """
    m = s.m
    bucket = m[L.C_BUCKET]
    if bucket == L.NIL or m[bucket + L.B_HEAD] == L.NIL:
        if bucket != L.NIL:
            close_bucket(s)
        if m[L.C_HEAP_N] == 0 or m[m[L.C_HEAP]] > m[L.C_CLEAR]:
            return L.NIL
        next_bucket(s)
        bucket = m[L.C_BUCKET]
    event = m[bucket + L.B_HEAD]
    after = m[event + L.NEXT]
    m[bucket + L.B_HEAD] = after
    if after == L.NIL:
        m[bucket + L.B_TAIL] = L.NIL
    return event


def run(s: State) -> int:
    """Simulate until the end, the end of the budget or of the room, or until a network outside has its turn.

    Returns a status.
    """
    m = s.m
    room = len(m) - m[L.C_MARGIN]
    overlap = m[L.C_OVERLAP] != 0
    if m[L.C_ENDED] > 0:
        deliver(s)
    events = 0
    status = L.BUDGET
    while events < m[L.C_BUDGET]:
        if m[L.C_TOP] > room:
            status = L.GROW
            break
        if m[L.C_STATUS] != L.DONE:
            status = m[L.C_STATUS]
            break
        events += 1
        npu = -1
        timer = L.NIL
        event = L.NIL
        what = 0
        a = 0
        b = 0
        if m[L.C_ACTIONS] > 0:
            n = m[L.C_ACTIONS] - 1
            if m[L.ACTIONS + 3 * n] == L.ACT_TIMER:
                m[L.C_ACTIONS] = n
                what, a = m[L.ACTIONS + 3 * n + 1], m[L.ACTIONS + 3 * n + 2]
            else:
                npu = act(s)
        elif m[L.C_BUNDLE] != L.NIL and m[m[L.C_BUNDLE] + L.T_HEAD] != L.NIL:
            timer = next_timer(s)
            what, a, b = m[timer + L.T_WHAT], m[timer + L.T_A], m[timer + L.T_B]
            free_row(s, timer)
        elif m[L.C_STARTED] < m[L.C_NPUS]:
            npu = m[L.C_STARTED]
            m[L.C_STARTED] = npu + 1
        else:
            if m[L.C_BUNDLE] != L.NIL:
                end_bundle(s)
            event = next_event(s)
            if event == L.NIL:
                if m[L.C_CLEAR] != L.NEVER:
                    m[L.C_UNTIL] = m[m[L.C_HEAP]] if m[L.C_HEAP_N] > 0 else L.NEVER
                    status = L.AWAIT
                    break
                if m[L.C_UNFINISHED] == 0:
                    status = L.DONE
                    break
                if m[L.C_RELIEVE] and relieve(s):
                    m[L.C_RELIEVED] += 1
                    continue
                status = L.STALLED
                break
            if m[event + L.KIND] == L.EV_TIMERS:
                m[L.C_BUNDLE] = event
                what, a, b = m[event + L.T_WHAT], m[event + L.T_A], m[event + L.T_B]
            else:
                run_event(s, event)
        if what != 0:
            run_timer(s, what, a, b)
        elif npu >= 0:
            issue_pass(s, npu)
        if overlap and what != L.TM_WORK and what != L.TM_BESIDE:
            m[L.C_HAPPENED] = m[L.C_NOW]
    m[L.C_EVENTS] += events
    return status
