"""Message-level engine: every message of every collective, link by link, in ASTRA-sim's order of events.

`run` takes up to a budget of events and goes back to its caller, which shows progress, makes the arrays longer where
the kernel ran out of room, and calls it again. Source: replay semantics, sections 2 to 5.
"""

from chakra.replay.kernels.messages_bus import after_received, bus_received, bus_sent, leave_unit
from chakra.replay.kernels.messages_credit import credit, reduce_packet
from chakra.replay.kernels.messages_custom import custom_done
from chakra.replay.kernels.messages_events import close_bucket, end_bundle, free_row, next_bucket
from chakra.replay.kernels.messages_layout import (
    ACT_BUS,
    ACT_LEAVE,
    ACT_NODE,
    ACT_REQUEST,
    ACT_STREAM,
    ACT_TIMER,
    ACTIONS,
    B_HEAD,
    B_TAIL,
    BQ_LATER,
    BQ_P,
    BQ_STREAM,
    BQ_TREE,
    BUDGET,
    C_ACTIONS,
    C_BUCKET,
    C_BUDGET,
    C_BUNDLE,
    C_DIMS,
    C_EVENTS,
    C_HEAP_N,
    C_MARGIN,
    C_NPUS,
    C_QUEUE_ROWS,
    C_QUEUES,
    C_RELIEVE,
    C_RELIEVED,
    C_STARTED,
    C_STATUS,
    C_TOP,
    C_UNFINISHED,
    DONE,
    EV_LINK,
    EV_REQUEST,
    EV_STREAM_GO,
    EV_TIMERS,
    GROW,
    I_ENDED,
    I_MEMBERS,
    I_PLAN,
    KIND,
    M_OWNER,
    M_X,
    MISMATCH,
    MSG_CONTROL,
    MSG_DATA,
    MSG_FIRST,
    MSG_P2P,
    NEXT,
    NIL,
    P_PHASES,
    P_WIDTH,
    PH_JOINT,
    Q_HEAD,
    Q_RUNNING,
    QUEUE_ROW,
    R_NODE,
    R_NPU,
    R_STREAM,
    R_WHAT,
    RQ_RECV,
    S_CHUNK,
    S_INSTANCE,
    S_LEFT,
    S_NODE,
    S_NPU,
    S_PHASE,
    S_QUEUE,
    STALLED,
    T_A,
    T_B,
    T_HEAD,
    T_NPU,
    T_TAIL,
    T_WHAT,
    TM_BUS_REDUCED,
    TM_BUS_SENT,
    TM_CREDIT,
    TM_CUSTOM,
    TM_JOINT_END,
    TM_NODE,
    TM_REDUCE,
    TM_SERVER,
    TM_STEP,
    TM_STEP_SENT,
    TM_TREE,
    TM_TREE_REDUCE,
    State,
)
from chakra.replay.kernels.messages_network import hop, release_link
from chakra.replay.kernels.messages_p2p import arrive_control as arrive_request
from chakra.replay.kernels.messages_p2p import arrive_unpaired, issued_at, send_eager
from chakra.replay.kernels.messages_steps import step, step_part, steps_end
from chakra.replay.kernels.messages_streams import (
    enter_phase,
    join_queue,
    leave_phase,
    phase_row,
    received,
    start_first,
    start_waiting,
)
from chakra.replay.kernels.messages_transfer import arrive_control, arrive_data, go_data
from chakra.replay.kernels.messages_tree import tree_reduce, tree_step
from chakra.replay.kernels.messages_workload import close_instance, complete, issue_pass, leave_server

ENTRY_POINTS = ("run",)
ALLOCATES = False


def later(s: State, what: int, a: int, b: int) -> None:
    """Put an action on the stack: the last one put there is done first, before any other event."""
    m = s.m
    n = m[C_ACTIONS]
    m[C_ACTIONS] = n + 1
    m[ACTIONS + 3 * n] = what
    m[ACTIONS + 3 * n + 1] = a
    m[ACTIONS + 3 * n + 2] = b


def end_phase(s: State, x: int) -> None:
    """A stream ends a phase (order of actions: 3.4).

    After its last phase the collective's end is signalled first, which may issue further nodes while this stream
    still counts as running; then the stream leaves its queue and joins the next one.
    """
    m = s.m
    leave_phase(s, x)
    queue = m[x + S_QUEUE]
    instance = m[x + S_INSTANCE]
    plan = m[instance + I_PLAN]
    phase = m[x + S_PHASE] + 1
    if phase < m[plan + P_PHASES]:
        enter_phase(s, x, phase)
        join_queue(s, x)
        later(s, ACT_LEAVE, queue, m[x + S_QUEUE])
        return
    later(s, ACT_LEAVE, queue, NIL)
    m[x + S_PHASE] = phase
    head = x - m[x + S_CHUNK] * m[plan + P_WIDTH]
    m[head + S_LEFT] -= 1
    if m[head + S_LEFT] == 0:
        npu, node = m[head + S_NPU], m[head + S_NODE]
        m[instance + I_ENDED] += 1
        if m[instance + I_ENDED] == m[instance + I_MEMBERS]:
            close_instance(s, instance)
        later(s, ACT_NODE, npu, node)


def end_request(s: State, request: int) -> None:
    """A send or receive ends."""
    m = s.m
    npu, node, stream = m[request + R_NPU], m[request + R_NODE], m[request + R_STREAM]
    free_row(s, request)
    if stream == NIL:
        later(s, ACT_NODE, npu, node)
    elif custom_done(s, stream, node):
        later(s, ACT_STREAM, stream, 0)


def arrive(s: State, message: int, kind: int) -> None:
    """A message has reached its destination. The sender's end of it comes before the receiver's (5.5)."""
    m = s.m
    if kind == MSG_DATA:
        x = m[message + M_OWNER]
        if arrive_data(s, message):
            received(s, x)
    elif kind == MSG_CONTROL:
        arrive_control(s, message)
    elif kind == MSG_P2P:
        send, receive = m[message + M_OWNER], m[message + M_X]
        if receive == NIL:
            arrive_unpaired(s, message, issued_at(s, send))
        else:
            free_row(s, message)
            later(s, ACT_REQUEST, receive, 0)
        later(s, ACT_REQUEST, send, 0)
    else:
        arrive_request(s, message)


def run_timer(s: State, what: int, a: int, b: int) -> None:
    """A timer of the running bundle expired."""
    m = s.m
    if what == TM_CREDIT:
        if credit(s, a):
            later(s, ACT_STREAM, a, 0)
    elif what == TM_REDUCE:
        reduce_packet(s, a, b)
    elif what == TM_NODE:
        later(s, ACT_NODE, m[m[C_BUNDLE] + T_NPU], a)
    elif what == TM_TREE:
        if tree_step(s, a):
            later(s, ACT_STREAM, a, 0)
    elif what == TM_TREE_REDUCE:
        tree_reduce(s, a)
    elif what == TM_STEP:
        if step(s, a) and steps_end(s, a, m[phase_row(s, a) + PH_JOINT] != 0):
            later(s, ACT_STREAM, a, 0)
    elif what == TM_JOINT_END:
        later(s, ACT_STREAM, a, 0)
    elif what == TM_STEP_SENT:
        step_part(s, a)
    elif what == TM_SERVER:
        leave_server(s, b)
        later(s, ACT_NODE, m[m[C_BUNDLE] + T_NPU], a)
    elif what == TM_CUSTOM:
        if custom_done(s, a, b):
            later(s, ACT_STREAM, a, 0)
    elif what == TM_BUS_SENT:
        bus_sent(s, a)
    elif what == TM_BUS_REDUCED:
        leave_unit(s, a)
    else:
        row = bus_received(s, a)
        if row != NIL:
            later(s, ACT_BUS, a, 0)
            leave_bus(s, row)


def leave_bus(s: State, row: int) -> None:
    """A packet's way over the shared bus is over: the reduction of 4.1 follows, or at once what a timer would do."""
    m = s.m
    x, p = m[row + BQ_STREAM], m[row + BQ_P]
    if m[row + BQ_LATER]:
        if m[row + BQ_TREE]:
            tree_reduce(s, x)
        else:
            reduce_packet(s, x, p)
    else:
        later(s, ACT_TIMER, TM_TREE if m[row + BQ_TREE] else TM_CREDIT, x)
    free_row(s, row)


def act(s: State) -> int:
    """Do the action on top of the stack; returns the NPU whose nodes are to be looked at, or -1."""
    m = s.m
    n = m[C_ACTIONS] - 1
    m[C_ACTIONS] = n
    what, a, b = m[ACTIONS + 3 * n], m[ACTIONS + 3 * n + 1], m[ACTIONS + 3 * n + 2]
    if what == ACT_NODE:
        complete(s, a, b)
        return a
    if what == ACT_STREAM:
        end_phase(s, a)
    elif what == ACT_LEAVE:
        m[a + Q_RUNNING] -= 1
        start_waiting(s, a)
        if b != NIL:
            start_waiting(s, b)
    elif what == ACT_REQUEST:
        end_request(s, a)
    else:
        after_received(s, a)
    return -1


def relieve(s: State) -> bool:
    """Everything waits: start the first waiting stream of each queue, one more than the queue runs (C13)."""
    m = s.m
    any_started = False
    first = m[C_QUEUE_ROWS]
    for queue in range(first, first + m[C_NPUS] * m[C_DIMS] * m[C_QUEUES] * QUEUE_ROW, QUEUE_ROW):
        if m[queue + Q_HEAD] != NIL:
            start_first(s, queue)
            any_started = True
    return any_started


def run_event(s: State, event: int) -> None:
    """One event, except a bundle of timers."""
    m = s.m
    kind = m[event + KIND]
    if kind >= MSG_FIRST:
        if hop(s, event):
            arrive(s, event, kind)
    elif kind == EV_LINK:
        release_link(s, event)
    elif kind == EV_REQUEST:
        if m[event + R_WHAT] == RQ_RECV:
            later(s, ACT_REQUEST, event, 0)
        else:
            send_eager(s, event)
    elif kind == EV_STREAM_GO:
        go_data(s, event)
    else:
        x = m[event + M_OWNER]
        free_row(s, event)
        received(s, x)


def next_timer(s: State) -> int:
    """The next timer of the running bundle."""
    m = s.m
    bundle = m[C_BUNDLE]
    timer = m[bundle + T_HEAD]
    after = m[timer + NEXT]
    m[bundle + T_HEAD] = after
    if after == NIL:
        m[bundle + T_TAIL] = NIL
    return timer


def next_event(s: State) -> int:
    """The next event of the running tick or of the next tick; NIL if there is none."""
    m = s.m
    bucket = m[C_BUCKET]
    if bucket == NIL or m[bucket + B_HEAD] == NIL:
        if bucket != NIL:
            close_bucket(s)
        if m[C_HEAP_N] == 0:
            return NIL
        next_bucket(s)
        bucket = m[C_BUCKET]
    event = m[bucket + B_HEAD]
    after = m[event + NEXT]
    m[bucket + B_HEAD] = after
    if after == NIL:
        m[bucket + B_TAIL] = NIL
    return event


def run(s: State) -> int:
    """Simulate until the end, the end of the budget or of the room; returns a status."""
    m = s.m
    room = len(m) - m[C_MARGIN]
    budget = m[C_BUDGET]
    m[C_STATUS] = DONE
    events = 0
    status = BUDGET
    while events < budget:
        if m[C_TOP] > room:
            status = GROW
            break
        if m[C_STATUS] == MISMATCH:
            status = MISMATCH
            break
        events += 1
        npu = -1
        timer = NIL
        event = NIL
        what = 0
        a = 0
        b = 0
        if m[C_ACTIONS] > 0:
            n = m[C_ACTIONS] - 1
            if m[ACTIONS + 3 * n] == ACT_TIMER:
                m[C_ACTIONS] = n
                what, a = m[ACTIONS + 3 * n + 1], m[ACTIONS + 3 * n + 2]
            else:
                npu = act(s)
        elif m[C_BUNDLE] != NIL and m[m[C_BUNDLE] + T_HEAD] != NIL:
            timer = next_timer(s)
            what, a, b = m[timer + T_WHAT], m[timer + T_A], m[timer + T_B]
            free_row(s, timer)
        elif m[C_STARTED] < m[C_NPUS]:
            npu = m[C_STARTED]
            m[C_STARTED] = npu + 1
        else:
            if m[C_BUNDLE] != NIL:
                end_bundle(s)
            event = next_event(s)
            if event == NIL:
                if m[C_UNFINISHED] == 0:
                    status = DONE
                    break
                if m[C_RELIEVE] and relieve(s):
                    m[C_RELIEVED] += 1
                    continue
                status = STALLED
                break
            if m[event + KIND] == EV_TIMERS:
                m[C_BUNDLE] = event
                what, a, b = m[event + T_WHAT], m[event + T_A], m[event + T_B]
            else:
                run_event(s, event)
        if what != 0:
            run_timer(s, what, a, b)
        elif npu >= 0:
            issue_pass(s, npu)
    m[C_EVENTS] += events
    return status
