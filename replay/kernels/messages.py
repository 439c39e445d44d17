"""Message-level engine: every message of every collective, link by link, in ASTRA-sim's order of events.

`run` takes up to a budget of events and goes back to its caller, which shows progress, makes the arrays longer where
the kernel ran out of room, and calls it again. Source: replay semantics, sections 2 to 5.
"""

from chakra.replay.kernels.messages_bus import after_received, bus_received, bus_sent, leave_unit
from chakra.replay.kernels.messages_events import close_bucket, end_bundle, free_row, next_bucket
from chakra.replay.kernels.messages_layout import (
    BQ_LATER,
    BQ_P,
    BQ_STREAM,
    BQ_TREE,
    BUDGET,
    B_HEAD,
    B_TAIL,
    C_BUCKET,
    C_BUDGET,
    C_BUNDLE,
    C_DIMS,
    C_ENT_MARGIN,
    C_EVENTS,
    C_HEAP_N,
    C_NPUS,
    C_QUEUES,
    C_REC_MARGIN,
    C_REC_TOP,
    C_RELIEVE,
    C_RELIEVED,
    C_STARTED,
    C_STATUS,
    C_ST_MARGIN,
    C_ST_TOP,
    C_TOP,
    C_UNFINISHED,
    DONE,
    EV_LINK,
    EV_REQUEST,
    EV_STREAM_GO,
    EV_TIMERS,
    GROW_ENT,
    GROW_REC,
    GROW_ST,
    I_ENDED,
    I_MEMBERS,
    I_PLAN,
    KIND,
    MISMATCH,
    MSG_CONTROL,
    MSG_DATA,
    MSG_FIRST,
    MSG_P2P,
    M_OWNER,
    M_X,
    NEXT,
    NIL,
    P_PHASES,
    P_WIDTH,
    QUEUE_ROW,
    Q_HEAD,
    Q_RUNNING,
    RQ_RECV,
    R_NODE,
    R_NPU,
    R_STREAM,
    R_WHAT,
    STALLED,
    S_CHUNK,
    S_INSTANCE,
    S_LEFT,
    S_NODE,
    S_NPU,
    S_PHASE,
    S_QUEUE,
    State,
    TM_BUS_REDUCED,
    TM_BUS_SENT,
    TM_CREDIT,
    TM_CUSTOM,
    TM_NODE,
    TM_REDUCE,
    TM_SERVER,
    TM_TREE,
    TM_TREE_REDUCE,
    T_A,
    T_B,
    T_HEAD,
    T_NPU,
    T_TAIL,
    T_WHAT,
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
    st, ent = s.st, s.ent
    leave_phase(s, x)
    queue = st[x + S_QUEUE]
    instance = st[x + S_INSTANCE]
    plan = ent[instance + I_PLAN]
    phase = st[x + S_PHASE] + 1
    last = phase == s.plans[plan + P_PHASES]
    if last:
        st[x + S_PHASE] = phase
        head = x - st[x + S_CHUNK] * s.plans[plan + P_WIDTH]
        st[head + S_LEFT] -= 1
        if st[head + S_LEFT] == 0:
            npu, node = st[head + S_NPU], st[head + S_NODE]
            ent[instance + I_ENDED] += 1
            if ent[instance + I_ENDED] == ent[instance + I_MEMBERS]:
                close_instance(s, instance)
            complete(s, npu, node)
    else:
        enter_phase(s, x, phase)
        join_queue(s, x)
    q = queue * QUEUE_ROW
    s.queues[q + Q_RUNNING] -= 1
    start_waiting(s, queue)
    if not last:
        start_waiting(s, st[x + S_QUEUE])


def end_request(s: State, request: int) -> None:
    """A send or receive ends."""
    ent = s.ent
    npu, node, stream = ent[request + R_NPU], ent[request + R_NODE], ent[request + R_STREAM]
    free_row(s, request)
    if stream == NIL:
        complete(s, npu, node)
    elif custom_done(s, stream, node):
        end_phase(s, stream)


def arrive(s: State, message: int, kind: int) -> None:
    """A message has reached its destination. The sender's end of it comes before the receiver's (5.5)."""
    ent = s.ent
    if kind == MSG_DATA:
        x = ent[message + M_OWNER]
        if arrive_data(s, message):
            received(s, x)
    elif kind == MSG_CONTROL:
        arrive_control(s, message)
    elif kind == MSG_P2P:
        send, receive = ent[message + M_OWNER], ent[message + M_X]
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
    ent = s.ent
    x, p, tree, later = ent[row + BQ_STREAM], ent[row + BQ_P], ent[row + BQ_TREE], ent[row + BQ_LATER]
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
    any_started = False
    for queue in range(s.c[C_NPUS] * s.c[C_DIMS] * s.c[C_QUEUES]):
        if s.queues[queue * QUEUE_ROW + Q_HEAD] != NIL:
            start_first(s, queue)
            any_started = True
    return any_started


def run_event(s: State, event: int) -> None:
    """One event, except a bundle of timers."""
    kind = s.ent[event + KIND]
    if kind >= MSG_FIRST:
        if hop(s, event):
            arrive(s, event, kind)
    elif kind == EV_LINK:
        release_link(s, event)
    elif kind == EV_REQUEST:
        if s.ent[event + R_WHAT] == RQ_RECV:
            end_request(s, event)
        else:
            send_eager(s, event)
    elif kind == EV_STREAM_GO:
        go_data(s, event)
    else:
        x = s.ent[event + M_OWNER]
        free_row(s, event)
        received(s, x)


def run(s: State) -> int:
    """Simulate until the end, the end of the budget or of the room; returns a status."""
    c, ent = s.c, s.ent
    room = len(ent) - c[C_ENT_MARGIN]
    st_room = len(s.st) - c[C_ST_MARGIN]
    rec_room = len(s.records) - c[C_REC_MARGIN]
    budget = c[C_BUDGET]
    c[C_STATUS] = DONE
    events = 0
    status = DONE
    while True:
        if c[C_TOP] > room:
            status = GROW_ENT
            break
        if c[C_ST_TOP] > st_room:
            status = GROW_ST
            break
        if c[C_REC_TOP] > rec_room:
            status = GROW_REC
            break
        if c[C_STATUS] == MISMATCH:
            status = MISMATCH
            break
        if events >= budget:
            status = BUDGET
            break
        events += 1
        bundle = c[C_BUNDLE]
        if bundle != NIL:
            timer = ent[bundle + T_HEAD]
            if timer == NIL:
                end_bundle(s, bundle)
                c[C_BUNDLE] = NIL
                continue
            after = ent[timer + NEXT]
            ent[bundle + T_HEAD] = after
            if after == NIL:
                ent[bundle + T_TAIL] = NIL
            what, a, b = ent[timer + T_WHAT], ent[timer + T_A], ent[timer + T_B]
            free_row(s, timer)
            run_timer(s, ent[bundle + T_NPU], what, a, b)
            continue
        if c[C_STARTED] < c[C_NPUS]:
            npu = c[C_STARTED]
            c[C_STARTED] = npu + 1
            issue_pass(s, npu)
            continue
        bucket = c[C_BUCKET]
        event = NIL
        if bucket != NIL:
            event = ent[bucket + B_HEAD]
        if event == NIL:
            if bucket != NIL:
                close_bucket(s)
            if c[C_HEAP_N] > 0:
                next_bucket(s)
                continue
            if c[C_UNFINISHED] == 0:
                break
            if c[C_RELIEVE] and relieve(s):
                c[C_RELIEVED] += 1
                continue
            status = STALLED
            break
        after = ent[event + NEXT]
        ent[bucket + B_HEAD] = after
        if after == NIL:
            ent[bucket + B_TAIL] = NIL
        if ent[event + KIND] == EV_TIMERS:
            c[C_BUNDLE] = event
            run_timer(s, ent[event + T_NPU], ent[event + T_WHAT], ent[event + T_A], ent[event + T_B])
        else:
            run_event(s, event)
    c[C_EVENTS] += events
    return status
