"""Nodes of the traces: ready sets, slots, issue passes, and what is issued (replay semantics, 2)."""

from chakra.replay.kernels.messages_events import free_row, set_timer, take_row
from chakra.replay.kernels.messages_layout import (
    C_DIMS,
    C_ERROR_NODE,
    C_ERROR_NPU,
    C_NOW,
    C_QUEUES,
    C_REC_TOP,
    C_REPEAT,
    C_SLOTS,
    C_STATUS,
    C_ST_TOP,
    C_UNFINISHED,
    G_FIRST,
    G_LAST,
    G_N,
    I_BASE,
    I_ENDED,
    I_GROUP,
    I_ISSUED,
    I_MEMBERS,
    I_ORDINAL,
    I_PLAN,
    I_RECORD,
    MISMATCH,
    MODE_INSTANT,
    MODE_TOGETHER,
    NEXT,
    NIL,
    NODE_ROW,
    NPU_ROW,
    N_CALLS,
    N_FINISH,
    N_NODES,
    N_P2P,
    N_PROGRAM,
    N_READY,
    N_RUNNING,
    N_SERVER,
    OP_COLLECTIVE,
    OP_RECV,
    OP_SEND,
    OP_SERVER,
    OP_TIMER,
    O_CHILD,
    O_CHILD_END,
    O_INDEX,
    O_NS,
    O_OP,
    O_SIZE,
    O_SLOT,
    P2P_ROW,
    PHASE_ROW,
    PH_ALGORITHM,
    PH_DIM,
    PH_RULE,
    P_BLOCK,
    P_CHUNK,
    P_CHUNKS,
    P_CLASS,
    P_COUNTER,
    P_MODE,
    P_PHASE,
    P_PHASES,
    P_WIDTH,
    RC_END,
    RC_GROUP,
    RC_ORDINAL,
    RC_PLAN,
    RC_READY,
    RC_START,
    REC_ROW,
    RQ_RECV,
    RQ_SEND,
    RULE_ANY,
    RULE_FIRST,
    RULE_FIXED,
    R_NODE,
    R_NPU,
    R_SIZE,
    SLOT_ROW,
    SL_BASE,
    SL_FREE,
    SL_N,
    S_BYTES,
    S_CHUNK,
    S_EARLY,
    S_INSTANCE,
    S_LEFT,
    S_LIST,
    S_MEMBER,
    S_NODE,
    S_NPU,
    S_PHASE,
    S_QUEUE,
    State,
    TM_NODE,
    TM_SERVER,
    TREE,
)
from chakra.replay.kernels.messages_p2p import new_request, post
from chakra.replay.kernels.messages_streams import enter_phase, join_queue, start_waiting

#: nothing here is compiled for its own sake, only as part of `messages.run`
ENTRY_POINTS = ()

#: cursors of a dimension: any, first, last, then one tree counter per kind of collective
CURSORS = 13


# --- ready nodes ---------------------------------------------------------------------------------------------------


def add_ready(s: State, npu: int, node: int) -> None:
    """A node's parents have finished."""
    me = npu * NPU_ROW
    slot = s.nodes[s.npu[me + N_PROGRAM] + node * NODE_ROW + O_SLOT]
    at = (npu * s.c[C_SLOTS] + slot) * SLOT_ROW
    ready, base = s.ready, s.slots[at + SL_BASE]
    i = s.slots[at + SL_N]
    s.slots[at + SL_N] = i + 1
    s.npu[me + N_READY] += 1
    while i > 0:
        up = (i - 1) >> 1
        if ready[base + up] < node:
            break
        ready[base + i] = ready[base + up]
        i = up
    ready[base + i] = node


def pop_ready(s: State, npu: int, slot: int) -> None:
    """Remove the lowest ready node of a slot."""
    at = (npu * s.c[C_SLOTS] + slot) * SLOT_ROW
    ready, base = s.ready, s.slots[at + SL_BASE]
    n = s.slots[at + SL_N] - 1
    s.slots[at + SL_N] = n
    s.npu[npu * NPU_ROW + N_READY] -= 1
    node = ready[base + n]
    i = 0
    down = 1
    while down < n:
        if down + 1 < n and ready[base + down + 1] < ready[base + down]:
            down += 1
        if node < ready[base + down]:
            break
        ready[base + i] = ready[base + down]
        i = down
        down = 2 * i + 1
    ready[base + i] = node


def free_children(s: State, npu: int, node: int) -> None:
    """A node has finished: children without other parents become ready."""
    me = npu * NPU_ROW
    row = s.npu[me + N_PROGRAM] + node * NODE_ROW
    base = s.npu[me + N_NODES]
    for at in range(s.nodes[row + O_CHILD], s.nodes[row + O_CHILD_END]):
        child = s.children[at]
        s.pending[base + child] -= 1
        if s.pending[base + child] == 0:
            add_ready(s, npu, child)


def issue_pass(s: State, npu: int) -> None:
    """Issue ready nodes in ascending order while their slots are free; repeat if zero-time nodes freed others (C10).

    A pass sees the nodes that were ready when it began: children of the zero-time nodes that it finishes are freed
    behind it.
    """
    c, slots = s.c, s.slots
    me = npu * NPU_ROW
    n_slots = c[C_SLOTS]
    first = npu * n_slots * SLOT_ROW
    base = s.npu[me + N_NODES]
    program = s.npu[me + N_PROGRAM]
    again = s.npu[me + N_READY] > 0
    while again:
        zero = -1  # list of finished zero-time nodes, linked through `pending`
        while True:
            node = -1
            slot = -1
            for k in range(n_slots):
                at = first + k * SLOT_ROW
                if slots[at + SL_N] > 0 and slots[at + SL_FREE] > 0:
                    candidate = s.ready[slots[at + SL_BASE]]
                    if node < 0 or candidate < node:
                        node = candidate
                        slot = k
            if node < 0:
                break
            pop_ready(s, npu, slot)
            s.issue[base + node] = c[C_NOW]
            if issue(s, npu, node, program + node * NODE_ROW):
                slots[first + slot * SLOT_ROW + SL_FREE] -= 1
                s.npu[me + N_RUNNING] += 1
            else:
                s.finish[base + node] = c[C_NOW]
                s.partner[base + node] = c[C_NOW]
                s.pending[base + node] = zero
                zero = node
        again = zero >= 0 and c[C_REPEAT] != 0
        while zero >= 0:
            node = zero
            zero = s.pending[base + node]
            s.pending[base + node] = 0
            free_children(s, npu, node)
    if s.npu[me + N_READY] == 0 and s.npu[me + N_RUNNING] == 0 and s.npu[me + N_FINISH] < 0:
        s.npu[me + N_FINISH] = c[C_NOW]
        c[C_UNFINISHED] -= 1


def complete(s: State, npu: int, node: int) -> None:
    """A node of the workload ends: its slot and its children are free, and an issue pass follows."""
    me = npu * NPU_ROW
    slot = s.nodes[s.npu[me + N_PROGRAM] + node * NODE_ROW + O_SLOT]
    s.finish[s.npu[me + N_NODES] + node] = s.c[C_NOW]
    s.npu[me + N_RUNNING] -= 1
    s.slots[(npu * s.c[C_SLOTS] + slot) * SLOT_ROW + SL_FREE] += 1
    free_children(s, npu, node)
    issue_pass(s, npu)


def issue(s: State, npu: int, node: int, row: int) -> bool:
    """Issue a node; False if it takes no time."""
    nodes, me = s.nodes, npu * NPU_ROW
    op = nodes[row + O_OP]
    if op == OP_TIMER:
        set_timer(s, npu, s.c[C_NOW] + nodes[row + O_NS], TM_NODE, node, 0)
        return True
    if op == OP_COLLECTIVE:
        return issue_collective(s, npu, node, s.npu[me + N_CALLS] + 2 * nodes[row + O_INDEX])
    if op == OP_SEND or op == OP_RECV:
        channel = s.npu[me + N_P2P] + P2P_ROW * nodes[row + O_INDEX]
        if op == OP_SEND:
            s.partner[s.npu[me + N_NODES] + node] = s.c[C_NOW]
        what = RQ_SEND if op == OP_SEND else RQ_RECV
        post(s, new_request(s, npu, node, NIL, what, nodes[row + O_SIZE], channel))
        return True
    if op == OP_SERVER:
        enter_server(s, npu, node, nodes[row + O_NS])
        return True
    return False


# --- memory servers ------------------------------------------------------------------------------------------------


def enter_server(s: State, npu: int, node: int, service: int) -> None:
    """A memory access starts, or waits for its server's earlier ones."""
    server = s.npu[npu * NPU_ROW + N_SERVER]
    if s.servers[server] == 0:
        s.servers[server] = 1
        set_timer(s, npu, s.c[C_NOW] + service, TM_SERVER, node, server)
        return
    row = take_row(s)
    s.ent[row + R_NPU] = npu
    s.ent[row + R_NODE] = node
    s.ent[row + R_SIZE] = service
    s.ent[row + NEXT] = NIL
    tail = s.servers[server + 2]
    if tail == NIL:
        s.servers[server + 1] = row
    else:
        s.ent[tail + NEXT] = row
    s.servers[server + 2] = row


def leave_server(s: State, server: int) -> None:
    """A memory access ends: the next one starts."""
    row = s.servers[server + 1]
    if row == NIL:
        s.servers[server] = 0
        return
    after = s.ent[row + NEXT]
    s.servers[server + 1] = after
    if after == NIL:
        s.servers[server + 2] = NIL
    npu = s.ent[row + R_NPU]
    set_timer(s, npu, s.c[C_NOW] + s.ent[row + R_SIZE], TM_SERVER, s.ent[row + R_NODE], server)
    free_row(s, row)


# --- collectives ---------------------------------------------------------------------------------------------------


def open_instance(s: State, plan: int, group: int, ordinal: int) -> int:
    """The collective that is the `ordinal`-th of its group; made when the first member issues it."""
    ent, groups = s.ent, s.groups
    at = groups[group + G_FIRST]
    while at != NIL:
        if ent[at + I_ORDINAL] == ordinal:
            return at
        at = ent[at + NEXT]
    at = take_row(s)
    ent[at + NEXT] = NIL
    last = groups[group + G_LAST]
    if last == NIL:
        groups[group + G_FIRST] = at
    else:
        ent[last + NEXT] = at
    groups[group + G_LAST] = at
    members = groups[group + G_N]
    ent[at + I_GROUP] = group
    ent[at + I_ORDINAL] = ordinal
    ent[at + I_PLAN] = plan
    ent[at + I_ISSUED] = 0
    ent[at + I_ENDED] = 0
    ent[at + I_MEMBERS] = members
    record = s.c[C_REC_TOP]
    s.c[C_REC_TOP] = record + REC_ROW + 2 * s.plans[plan + P_PHASES]
    ent[at + I_RECORD] = record
    s.records[record + RC_PLAN] = plan
    s.records[record + RC_GROUP] = group
    s.records[record + RC_ORDINAL] = ordinal
    s.records[record + RC_START] = s.c[C_NOW]
    s.records[record + RC_READY] = -1
    s.records[record + RC_END] = -1
    for k in range(2 * s.plans[plan + P_PHASES]):
        s.records[record + REC_ROW + k] = -1
    size_class = s.plans[plan + P_CLASS]
    block = s.blocks[size_class]
    if block != NIL:
        s.blocks[size_class] = s.st[block]
    else:
        block = s.c[C_ST_TOP]
        s.c[C_ST_TOP] = block + s.plans[plan + P_BLOCK]
    ent[at + I_BASE] = block
    width = s.plans[plan + P_WIDTH]
    for k in range(members * s.plans[plan + P_CHUNKS]):
        s.st[block + k * width + S_PHASE] = -1
        s.st[block + k * width + S_EARLY] = NIL
    return at


def close_instance(s: State, instance: int) -> None:
    """The last member has ended a collective."""
    ent, groups = s.ent, s.groups
    group = ent[instance + I_GROUP]
    s.records[ent[instance + I_RECORD] + RC_END] = s.c[C_NOW]
    before = NIL
    at = groups[group + G_FIRST]
    while at != instance:
        before = at
        at = ent[at + NEXT]
    after = ent[instance + NEXT]
    if before == NIL:
        groups[group + G_FIRST] = after
    else:
        ent[before + NEXT] = after
    if after == NIL:
        groups[group + G_LAST] = before
    size_class = s.plans[ent[instance + I_PLAN] + P_CLASS]
    s.st[ent[instance + I_BASE]] = s.blocks[size_class]
    s.blocks[size_class] = ent[instance + I_BASE]
    free_row(s, instance)


def note_all_issued(s: State, instance: int) -> None:
    """The last member has issued a collective: tell the others' nodes."""
    ent, st = s.ent, s.st
    plan = ent[instance + I_PLAN]
    s.records[ent[instance + I_RECORD] + RC_READY] = s.c[C_NOW]
    step = s.plans[plan + P_CHUNKS] * s.plans[plan + P_WIDTH]
    for member in range(ent[instance + I_MEMBERS]):
        x = ent[instance + I_BASE] + member * step
        npu = st[x + S_NPU]
        s.partner[s.npu[npu * NPU_ROW + N_NODES] + st[x + S_NODE]] = s.c[C_NOW]


def next_queue(s: State, npu: int, phase: int, counter: int) -> int:
    """Queue, direction and tree of a phase, advancing the cursors (3.4): queue << 2 | anticlockwise << 1 | tree."""
    cursors, queues = s.cursors, s.c[C_QUEUES]
    dim = s.plans[phase + PH_DIM]
    at = (npu * s.c[C_DIMS] + dim) * CURSORS
    rule = s.plans[phase + PH_RULE]
    first = max(queues // 2, 1)
    place = 0
    back = 0
    if rule == RULE_ANY:
        place = cursors[at]
        cursors[at] = (place + 1) % queues
        back = 1 if queues > 1 and place >= queues // 2 else 0
    elif rule == RULE_FIRST:
        place = cursors[at + 1]
        cursors[at + 1] = (place + 1) % first
    elif rule != RULE_FIXED:
        start = queues // 2
        place = start + cursors[at + 2]
        cursors[at + 2] = (cursors[at + 2] + 1) % (queues - start)
        back = 1
    tree = 0
    if s.plans[phase + PH_ALGORITHM] == TREE:
        tree = cursors[at + 3 + counter] & 1
        cursors[at + 3 + counter] += 1
    return ((npu * s.c[C_DIMS] + dim) * queues + place) << 2 | back << 1 | tree


def issue_collective(s: State, npu: int, node: int, call: int) -> bool:
    """Issue a collective: chunk after chunk joins its first phase's queue. False if it ends at once."""
    st, plans, ent = s.st, s.plans, s.ent
    plan = s.calls[call]
    mine = s.calls[call + 1]
    group = s.memberships[mine]
    member = s.memberships[mine + 1]
    ordinal = s.memberships[mine + 2]
    s.memberships[mine + 2] = ordinal + 1
    mode = plans[plan + P_MODE]
    if mode == MODE_INSTANT:
        return False
    instance = open_instance(s, plan, group, ordinal)
    if ent[instance + I_PLAN] != plan:
        s.c[C_STATUS] = MISMATCH
        s.c[C_ERROR_NPU] = npu
        s.c[C_ERROR_NODE] = node
        return True
    chunks, width, phases = plans[plan + P_CHUNKS], plans[plan + P_WIDTH], plans[plan + P_PHASES]
    head = ent[instance + I_BASE] + member * chunks * width
    st[head + S_LEFT] = chunks
    st[head + S_NODE] = node
    st[head + S_NPU] = npu
    ent[instance + I_ISSUED] += 1
    if ent[instance + I_ISSUED] == ent[instance + I_MEMBERS]:
        note_all_issued(s, instance)
    if mode == MODE_TOGETHER:
        if ent[instance + I_ISSUED] == ent[instance + I_MEMBERS]:
            for k in range(ent[instance + I_MEMBERS]):
                x = ent[instance + I_BASE] + k * chunks * width
                set_timer(s, st[x + S_NPU], s.c[C_NOW], TM_NODE, st[x + S_NODE], 0)
            close_instance(s, instance)
        return True
    for chunk in range(chunks):
        x = head + chunk * width
        st[x + S_NPU] = npu
        st[x + S_INSTANCE] = instance
        st[x + S_CHUNK] = chunk
        st[x + S_MEMBER] = member
        st[x + S_BYTES] = s.chunks[plans[plan + P_CHUNK] + chunk]
        for k in range(phases):
            st[x + S_LIST + k] = next_queue(
                s, npu, plans[plan + P_PHASE] + k * PHASE_ROW, plans[plan + P_COUNTER]
            )
        enter_phase(s, x, 0)
        join_queue(s, x)
        start_waiting(s, st[x + S_QUEUE])
    return True
