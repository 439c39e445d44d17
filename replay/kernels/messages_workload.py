"""Nodes of the traces: ready sets, slots, issue passes, and what is issued (replay semantics, 2)."""

from chakra.replay.kernels.messages_events import free_row, set_timer, take_row
from chakra.replay.kernels.messages_layout import (
    C_ERROR_NODE,
    C_ERROR_NPU,
    C_LAST_RECORD,
    C_NOW,
    C_QUEUES,
    C_REPEAT,
    C_SLOTS,
    C_STATUS,
    C_TOP,
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
    N_CALLS,
    N_CURSORS,
    N_FINISH,
    N_NODES,
    N_P2P,
    N_PROGRAM,
    N_QUEUES,
    N_READY,
    N_RUNNING,
    N_SERVER,
    N_SLOTS,
    NEXT,
    NIL,
    NODE_ROW,
    NODE_STATE,
    NPU_BASE,
    NPU_ROW,
    NS_FINISH,
    NS_ISSUE,
    NS_PARTNER,
    NS_PENDING,
    O_CHILD,
    O_CHILD_END,
    O_INDEX,
    O_NS,
    O_OP,
    O_SIZE,
    O_SLOT,
    OP_COLLECTIVE,
    OP_RECV,
    OP_SEND,
    OP_SERVER,
    OP_TIMER,
    P2P_ROW,
    P_BITS,
    P_BLOCK,
    P_CHUNK,
    P_CHUNKS,
    P_CLASS,
    P_COUNTER,
    P_JOINT,
    P_LEAST,
    P_MODE,
    P_PHASE,
    P_PHASES,
    P_WIDTH,
    PH_ALGORITHM,
    PH_DIM,
    PH_RULE,
    PHASE_ROW,
    QUEUE_ROW,
    R_NODE,
    R_NPU,
    R_SIZE,
    RC_END,
    RC_GROUP,
    RC_NEXT,
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
    S_BITS,
    S_BYTES,
    S_CHUNK,
    S_EARLY,
    S_INBOX,
    S_INSTANCE,
    S_LEAST,
    S_LEFT,
    S_LIST,
    S_MEMBER,
    S_NODE,
    S_NPU,
    S_PHASE,
    S_QUEUE,
    S_STEP,
    S_TWIN,
    SL_BASE,
    SL_FREE,
    SL_N,
    SLOT_ROW,
    TM_NODE,
    TM_SERVER,
    TREE,
    State,
)
from chakra.replay.kernels.messages_p2p import new_request, post
from chakra.replay.kernels.messages_streams import enter_phase, join_queue, start_waiting

#: nothing here is compiled for its own sake, only as part of `messages.run`
ENTRY_POINTS = ()
ALLOCATES = False

#: cursors of a dimension: any, first, last, then one tree counter per kind of collective
CURSORS = 13


# --- ready nodes ---------------------------------------------------------------------------------------------------


def add_ready(s: State, npu: int, node: int) -> None:
    """A node's parents have finished."""
    m = s.m
    me = NPU_BASE + npu * NPU_ROW
    slot = m[m[me + N_PROGRAM] + node * NODE_ROW + O_SLOT]
    at = m[NPU_BASE + npu * NPU_ROW + N_SLOTS] + slot * SLOT_ROW
    base = m[at + SL_BASE]
    i = m[at + SL_N]
    m[at + SL_N] = i + 1
    m[me + N_READY] += 1
    while i > 0:
        up = (i - 1) >> 1
        if m[base + up] < node:
            break
        m[base + i] = m[base + up]
        i = up
    m[base + i] = node


def pop_ready(s: State, npu: int, slot: int) -> None:
    """Remove the lowest ready node of a slot."""
    m = s.m
    at = m[NPU_BASE + npu * NPU_ROW + N_SLOTS] + slot * SLOT_ROW
    base = m[at + SL_BASE]
    n = m[at + SL_N] - 1
    m[at + SL_N] = n
    m[NPU_BASE + npu * NPU_ROW + N_READY] -= 1
    node = m[base + n]
    i = 0
    down = 1
    while down < n:
        if down + 1 < n and m[base + down + 1] < m[base + down]:
            down += 1
        if node < m[base + down]:
            break
        m[base + i] = m[base + down]
        i = down
        down = 2 * i + 1
    m[base + i] = node


def free_children(s: State, npu: int, node: int) -> None:
    """A node has finished: children without other parents become ready."""
    m = s.m
    me = NPU_BASE + npu * NPU_ROW
    row = m[me + N_PROGRAM] + node * NODE_ROW
    base = m[me + N_NODES]
    for at in range(m[row + O_CHILD], m[row + O_CHILD_END]):
        child = m[at]
        m[base + NODE_STATE * child + NS_PENDING] -= 1
        if m[base + NODE_STATE * child + NS_PENDING] == 0:
            add_ready(s, npu, child)


def issue_pass(s: State, npu: int) -> None:
    """Issue ready nodes in ascending order while their slots are free; repeat if zero-time nodes freed others (C10).

    A pass sees the nodes that were ready when it began: children of the zero-time nodes that it finishes are freed
    behind it.
    """
    m = s.m
    me = NPU_BASE + npu * NPU_ROW
    n_slots = m[C_SLOTS]
    first = m[me + N_SLOTS]
    base = m[me + N_NODES]
    program = m[me + N_PROGRAM]
    again = m[me + N_READY] > 0
    while again:
        zero = -1  # list of finished zero-time nodes, linked through `pending`
        while True:
            node = -1
            slot = -1
            for k in range(n_slots):
                at = first + k * SLOT_ROW
                if m[at + SL_N] > 0 and m[at + SL_FREE] > 0:
                    candidate = m[m[at + SL_BASE]]
                    if node < 0 or candidate < node:
                        node = candidate
                        slot = k
            if node < 0:
                break
            pop_ready(s, npu, slot)
            m[base + NODE_STATE * node + NS_ISSUE] = m[C_NOW]
            if issue(s, npu, node, program + node * NODE_ROW):
                m[first + slot * SLOT_ROW + SL_FREE] -= 1
                m[me + N_RUNNING] += 1
            else:
                m[base + NODE_STATE * node + NS_FINISH] = m[C_NOW]
                m[base + NODE_STATE * node + NS_PARTNER] = m[C_NOW]
                m[base + NODE_STATE * node + NS_PENDING] = zero
                zero = node
        again = zero >= 0 and m[C_REPEAT] != 0
        while zero >= 0:
            node = zero
            zero = m[base + NODE_STATE * node + NS_PENDING]
            m[base + NODE_STATE * node + NS_PENDING] = 0
            free_children(s, npu, node)
    if m[me + N_READY] == 0 and m[me + N_RUNNING] == 0 and m[me + N_FINISH] < 0:
        m[me + N_FINISH] = m[C_NOW]
        m[C_UNFINISHED] -= 1


def complete(s: State, npu: int, node: int) -> None:
    """A node of the workload ends: its slot and its children are free. The caller makes an issue pass."""
    m = s.m
    me = NPU_BASE + npu * NPU_ROW
    slot = m[m[me + N_PROGRAM] + node * NODE_ROW + O_SLOT]
    m[m[me + N_NODES] + NODE_STATE * node + NS_FINISH] = m[C_NOW]
    m[me + N_RUNNING] -= 1
    m[m[me + N_SLOTS] + slot * SLOT_ROW + SL_FREE] += 1
    free_children(s, npu, node)


def issue(s: State, npu: int, node: int, row: int) -> bool:
    """Issue a node; False if it takes no time."""
    m = s.m
    me = NPU_BASE + npu * NPU_ROW
    op = m[row + O_OP]
    if op == OP_TIMER:
        set_timer(s, npu, m[C_NOW] + m[row + O_NS], TM_NODE, node, 0)
        return True
    if op == OP_COLLECTIVE:
        return issue_collective(s, npu, node, m[me + N_CALLS] + 2 * m[row + O_INDEX])
    if OP_SEND <= op <= OP_RECV:
        channel = m[me + N_P2P] + P2P_ROW * m[row + O_INDEX]
        if op == OP_SEND:
            m[m[me + N_NODES] + NODE_STATE * node + NS_PARTNER] = m[C_NOW]
        what = RQ_SEND if op == OP_SEND else RQ_RECV
        post(s, new_request(s, npu, node, NIL, what, m[row + O_SIZE], channel))
        return True
    if op == OP_SERVER:
        enter_server(s, npu, node, m[row + O_NS])
        return True
    return False


# --- memory servers ------------------------------------------------------------------------------------------------


def enter_server(s: State, npu: int, node: int, service: int) -> None:
    """A memory access starts, or waits for its server's earlier ones."""
    m = s.m
    server = m[NPU_BASE + npu * NPU_ROW + N_SERVER]
    if m[server] == 0:
        m[server] = 1
        set_timer(s, npu, m[C_NOW] + service, TM_SERVER, node, server)
        return
    row = take_row(s)
    m[row + R_NPU] = npu
    m[row + R_NODE] = node
    m[row + R_SIZE] = service
    m[row + NEXT] = NIL
    tail = m[server + 2]
    if tail == NIL:
        m[server + 1] = row
    else:
        m[tail + NEXT] = row
    m[server + 2] = row


def leave_server(s: State, server: int) -> None:
    """A memory access ends: the next one starts."""
    m = s.m
    row = m[server + 1]
    if row == NIL:
        m[server] = 0
        return
    after = m[row + NEXT]
    m[server + 1] = after
    if after == NIL:
        m[server + 2] = NIL
    npu = m[row + R_NPU]
    set_timer(s, npu, m[C_NOW] + m[row + R_SIZE], TM_SERVER, m[row + R_NODE], server)
    free_row(s, row)


# --- collectives ---------------------------------------------------------------------------------------------------


def open_instance(s: State, plan: int, group: int, ordinal: int) -> int:
    """The collective that is the `ordinal`-th of its group; made when the first member issues it."""
    m = s.m
    at = m[group + G_FIRST]
    while at != NIL:
        if m[at + I_ORDINAL] == ordinal:
            return at
        at = m[at + NEXT]
    at = take_row(s)
    m[at + NEXT] = NIL
    last = m[group + G_LAST]
    if last == NIL:
        m[group + G_FIRST] = at
    else:
        m[last + NEXT] = at
    m[group + G_LAST] = at
    members = m[group + G_N]
    m[at + I_GROUP] = group
    m[at + I_ORDINAL] = ordinal
    m[at + I_PLAN] = plan
    m[at + I_ISSUED] = 0
    m[at + I_ENDED] = 0
    m[at + I_MEMBERS] = members
    record = m[C_TOP]
    m[C_TOP] = record + REC_ROW
    m[record + RC_NEXT] = NIL
    m[m[C_LAST_RECORD] + RC_NEXT] = record
    m[C_LAST_RECORD] = record
    m[at + I_RECORD] = record
    m[record + RC_PLAN] = plan
    m[record + RC_GROUP] = group
    m[record + RC_ORDINAL] = ordinal
    m[record + RC_START] = m[C_NOW]
    m[record + RC_READY] = -1
    m[record + RC_END] = -1
    size_class = m[plan + P_CLASS]
    block = m[size_class]
    if block != NIL:
        m[size_class] = m[block]
    else:
        block = m[C_TOP]
        m[C_TOP] = block + m[plan + P_BLOCK]
    m[at + I_BASE] = block
    width = m[plan + P_WIDTH]
    for k in range(members * m[plan + P_CHUNKS]):
        m[block + k * width + S_PHASE] = -1
        m[block + k * width + S_EARLY] = NIL
        for word in range(block + (k + 1) * width - m[plan + P_JOINT], block + (k + 1) * width):
            m[word] = 0
    return at


def close_instance(s: State, instance: int) -> None:
    """The last member has ended a collective."""
    m = s.m
    group = m[instance + I_GROUP]
    m[m[instance + I_RECORD] + RC_END] = m[C_NOW]
    before = NIL
    at = m[group + G_FIRST]
    while at != instance:
        before = at
        at = m[at + NEXT]
    after = m[instance + NEXT]
    if before == NIL:
        m[group + G_FIRST] = after
    else:
        m[before + NEXT] = after
    if after == NIL:
        m[group + G_LAST] = before
    size_class = m[m[instance + I_PLAN] + P_CLASS]
    m[m[instance + I_BASE]] = m[size_class]
    m[size_class] = m[instance + I_BASE]
    free_row(s, instance)


def note_all_issued(s: State, instance: int) -> None:
    """The last member has issued a collective: tell the others' nodes."""
    m = s.m
    plan = m[instance + I_PLAN]
    m[m[instance + I_RECORD] + RC_READY] = m[C_NOW]
    step = m[plan + P_CHUNKS] * m[plan + P_WIDTH]
    for member in range(m[instance + I_MEMBERS]):
        x = m[instance + I_BASE] + member * step
        npu = m[x + S_NPU]
        m[m[NPU_BASE + npu * NPU_ROW + N_NODES] + NODE_STATE * m[x + S_NODE] + NS_PARTNER] = m[C_NOW]


def next_queue(s: State, npu: int, phase: int, counter: int) -> int:
    """Queue, direction and tree of a phase, advancing the cursors (3.4): queue << 2 | anticlockwise << 1 | tree."""
    m = s.m
    me = NPU_BASE + npu * NPU_ROW
    queues = m[C_QUEUES]
    dim = m[phase + PH_DIM]
    at = m[me + N_CURSORS] + dim * CURSORS
    rule = m[phase + PH_RULE]
    first = max(queues // 2, 1)
    place = 0
    back = 0
    if rule == RULE_ANY:
        place = m[at]
        m[at] = (place + 1) % queues
        back = 1 if queues > 1 and place >= queues // 2 else 0
    elif rule == RULE_FIRST:
        place = m[at + 1]
        m[at + 1] = (place + 1) % first
    elif rule != RULE_FIXED:
        start = queues // 2
        place = start + m[at + 2]
        m[at + 2] = (m[at + 2] + 1) % (queues - start)
        back = 1
    tree = 0
    if m[phase + PH_ALGORITHM] == TREE:
        tree = m[at + 3 + counter] & 1
        m[at + 3 + counter] += 1
    return (m[me + N_QUEUES] + (dim * queues + place) * QUEUE_ROW) << 2 | back << 1 | tree


def issue_collective(s: State, npu: int, node: int, call: int) -> bool:
    """Issue a collective: chunk after chunk joins its first phase's queue. False if it ends at once."""
    m = s.m
    plan = m[call]
    mine = m[call + 1]
    group = m[mine]
    member = m[mine + 1]
    ordinal = m[mine + 2]
    m[mine + 2] = ordinal + 1
    mode = m[plan + P_MODE]
    if mode == MODE_INSTANT:
        return False
    instance = open_instance(s, plan, group, ordinal)
    if m[instance + I_PLAN] != plan:
        m[C_STATUS] = MISMATCH
        m[C_ERROR_NPU] = npu
        m[C_ERROR_NODE] = node
        return True
    chunks, width, phases = m[plan + P_CHUNKS], m[plan + P_WIDTH], m[plan + P_PHASES]
    head = m[instance + I_BASE] + member * chunks * width
    m[head + S_LEFT] = chunks
    m[head + S_NODE] = node
    m[head + S_NPU] = npu
    m[instance + I_ISSUED] += 1
    if m[instance + I_ISSUED] == m[instance + I_MEMBERS]:
        note_all_issued(s, instance)
    if mode == MODE_TOGETHER:
        if m[instance + I_ISSUED] == m[instance + I_MEMBERS]:
            for k in range(m[instance + I_MEMBERS]):
                x = m[instance + I_BASE] + k * chunks * width
                set_timer(s, m[x + S_NPU], m[C_NOW], TM_NODE, m[x + S_NODE], 0)
            close_instance(s, instance)
        return True
    for chunk in range(chunks):
        x = head + chunk * width
        m[x + S_NPU] = npu
        m[x + S_INSTANCE] = instance
        m[x + S_CHUNK] = chunk
        m[x + S_MEMBER] = member
        m[x + S_TWIN] = m[instance + I_BASE] + chunk * width
        m[x + S_STEP] = chunks * width
        m[x + S_LEAST] = m[plan + P_LEAST]
        m[x + S_INBOX] = x + S_LIST + phases
        m[x + S_BITS] = m[plan + P_BITS]
        m[x + S_BYTES] = m[m[plan + P_CHUNK] + chunk]
        for k in range(phases):
            m[x + S_LIST + k] = next_queue(s, npu, m[plan + P_PHASE] + k * PHASE_ROW, m[plan + P_COUNTER])
        enter_phase(s, x, 0)
        join_queue(s, x)
        start_waiting(s, m[x + S_QUEUE])
    return True
