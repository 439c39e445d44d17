"""Message-level engine: every message of every collective, link by link, in ASTRA-sim's order of events.

`run` takes up to a budget of events and goes back to its caller, which shows progress, makes the arrays longer where
the kernel ran out of room, and calls it again. Source: replay semantics, sections 2 to 5.
"""

from chakra.replay.kernels.messages_bus import after_received, bus_received, bus_sent, leave_unit
from chakra.replay.kernels.messages_events import close_bucket, end_bundle, free_row, next_bucket
from chakra.replay.kernels.messages_layout import (
    B_HEAD,
    B_TAIL,
    BQ_LATER,
    BQ_P,
    BQ_STREAM,
    BQ_TREE,
    BUDGET,
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
    TM_NODE,
    TM_REDUCE,
    TM_SERVER,
    TM_TREE,
    TM_TREE_REDUCE,
    State,
)
from chakra.replay.kernels.messages_network import hop, release_link
from chakra.replay.kernels.messages_p2p import arrive_control as arrive_request
from chakra.replay.kernels.messages_p2p import arrive_unpaired, issued_at, send_eager
from chakra.replay.kernels.messages_streams import (
    arrive_control,
    arrive_data,
    credit,
    custom_done,
    enter_phase,
    go_data,
    join_queue,
    leave_phase,
    received,
    reduce_packet,
    start_first,
    start_waiting,
    tree_reduce,
    tree_step,
)
from chakra.replay.kernels.messages_workload import close_instance, complete, issue_pass, leave_server

ENTRY_POINTS = ("run",)


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
    last = phase == m[plan + P_PHASES]
    if last:
        m[x + S_PHASE] = phase
        head = x - m[x + S_CHUNK] * m[plan + P_WIDTH]
        m[head + S_LEFT] -= 1
        if m[head + S_LEFT] == 0:
            npu, node = m[head + S_NPU], m[head + S_NODE]
            m[instance + I_ENDED] += 1
            if m[instance + I_ENDED] == m[instance + I_MEMBERS]:
                close_instance(s, instance)
            complete(s, npu, node)
    else:
        enter_phase(s, x, phase)
        join_queue(s, x)
    m[queue + Q_RUNNING] -= 1
    start_waiting(s, queue)
    if not last:
        start_waiting(s, m[x + S_QUEUE])


def end_request(s: State, request: int) -> None:
    """A send or receive ends."""
    m = s.m
    npu, node, stream = m[request + R_NPU], m[request + R_NODE], m[request + R_STREAM]
    free_row(s, request)
    if stream == NIL:
        complete(s, npu, node)
    elif custom_done(s, stream, node):
        end_phase(s, stream)


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
            end_request(s, send)
        else:
            free_row(s, message)
            end_request(s, send)
            end_request(s, receive)
    else:
        arrive_request(s, message)


def run_timer(s: State, npu: int, what: int, a: int, b: int) -> None:
    """A timer expired."""
    if what == TM_CREDIT:
        if credit(s, a):
            end_phase(s, a)
    elif what == TM_REDUCE:
        reduce_packet(s, a, b)
    elif what == TM_NODE:
        complete(s, npu, a)
    elif what == TM_TREE:
        if tree_step(s, a):
            end_phase(s, a)
    elif what == TM_TREE_REDUCE:
        tree_reduce(s, a)
    elif what == TM_SERVER:
        leave_server(s, b)
        complete(s, npu, a)
    elif what == TM_CUSTOM:
        if custom_done(s, a, b):
            end_phase(s, a)
    elif what == TM_BUS_SENT:
        bus_sent(s, a)
    elif what == TM_BUS_REDUCED:
        leave_unit(s, a)
    else:
        row = bus_received(s, a)
        if row != NIL:
            leave_bus(s, row)
            after_received(s, a)


def leave_bus(s: State, row: int) -> None:
    """A packet's way over the shared bus is over."""
    m = s.m
    x, p, tree, later = m[row + BQ_STREAM], m[row + BQ_P], m[row + BQ_TREE], m[row + BQ_LATER]
    free_row(s, row)
    if later:
        if tree:
            tree_reduce(s, x)
        else:
            reduce_packet(s, x, p)
    elif (tree and tree_step(s, x)) or (not tree and credit(s, x)):
        end_phase(s, x)


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
            end_request(s, event)
        else:
            send_eager(s, event)
    elif kind == EV_STREAM_GO:
        go_data(s, event)
    else:
        x = m[event + M_OWNER]
        free_row(s, event)
        received(s, x)


def run(s: State) -> int:
    """Simulate until the end, the end of the budget or of the room; returns a status."""
    m = s.m
    room = len(m) - m[C_MARGIN]
    budget = m[C_BUDGET]
    m[C_STATUS] = DONE
    events = 0
    status = DONE
    while True:
        if m[C_TOP] > room:
            status = GROW
            break
        if m[C_STATUS] == MISMATCH:
            status = MISMATCH
            break
        if events >= budget:
            status = BUDGET
            break
        events += 1
        bundle = m[C_BUNDLE]
        if bundle != NIL:
            timer = m[bundle + T_HEAD]
            if timer == NIL:
                end_bundle(s, bundle)
                m[C_BUNDLE] = NIL
                continue
            after = m[timer + NEXT]
            m[bundle + T_HEAD] = after
            if after == NIL:
                m[bundle + T_TAIL] = NIL
            what, a, b = m[timer + T_WHAT], m[timer + T_A], m[timer + T_B]
            free_row(s, timer)
            run_timer(s, m[bundle + T_NPU], what, a, b)
            continue
        if m[C_STARTED] < m[C_NPUS]:
            npu = m[C_STARTED]
            m[C_STARTED] = npu + 1
            issue_pass(s, npu)
            continue
        bucket = m[C_BUCKET]
        event = NIL
        if bucket != NIL:
            event = m[bucket + B_HEAD]
        if event == NIL:
            if bucket != NIL:
                close_bucket(s)
            if m[C_HEAP_N] > 0:
                next_bucket(s)
                continue
            if m[C_UNFINISHED] == 0:
                break
            if m[C_RELIEVE] and relieve(s):
                m[C_RELIEVED] += 1
                continue
            status = STALLED
            break
        after = m[event + NEXT]
        m[bucket + B_HEAD] = after
        if after == NIL:
            m[bucket + B_TAIL] = NIL
        if m[event + KIND] == EV_TIMERS:
            m[C_BUNDLE] = event
            run_timer(s, m[event + T_NPU], m[event + T_WHAT], m[event + T_A], m[event + T_B])
        else:
            run_event(s, event)
    m[C_EVENTS] += events
    return status
