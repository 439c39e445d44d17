"""Nodes of the traces: ready sets, slots, issue passes, and what is issued (replay semantics, 2)."""

from chakra.replay.engines.kernels import messages_layout as L
from chakra.replay.engines.kernels.messages_events import free_row, set_timer, take_row
from chakra.replay.engines.kernels.messages_layout import State
from chakra.replay.engines.kernels.messages_p2p import new_request, post
from chakra.replay.engines.kernels.messages_streams import enter_phase, join_queue, start_waiting

#: nothing here is compiled for its own sake, only as part of `messages.run`
ENTRY_POINTS = ()
ALLOCATES = False

#: cursors of a dimension: any, first, last, then one tree counter per kind of collective
CURSORS = 13


# --- ready nodes ---------------------------------------------------------------------------------------------------


def add_ready(s: State, npu: int, node: int) -> None:
    """A node's parents have finished."""
    m = s.m
    me = L.NPU_BASE + npu * L.NPU_ROW
    slot = m[m[me + L.N_PROGRAM] + node * L.NODE_ROW + L.O_SLOT]
    at = m[L.NPU_BASE + npu * L.NPU_ROW + L.N_SLOTS] + slot * L.SLOT_ROW
    base = m[at + L.SL_BASE]
    i = m[at + L.SL_N]
    m[at + L.SL_N] = i + 1
    m[me + L.N_READY] += 1
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
    at = m[L.NPU_BASE + npu * L.NPU_ROW + L.N_SLOTS] + slot * L.SLOT_ROW
    base = m[at + L.SL_BASE]
    n = m[at + L.SL_N] - 1
    m[at + L.SL_N] = n
    m[L.NPU_BASE + npu * L.NPU_ROW + L.N_READY] -= 1
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
    me = L.NPU_BASE + npu * L.NPU_ROW
    row = m[me + L.N_PROGRAM] + node * L.NODE_ROW
    base = m[me + L.N_NODES]
    for at in range(m[row + L.O_CHILD], m[row + L.O_CHILD_END]):
        child = m[at]
        m[base + L.NODE_STATE * child + L.NS_PENDING] -= 1
        if m[base + L.NODE_STATE * child + L.NS_PENDING] == 0:
            add_ready(s, npu, child)


def issue_pass(s: State, npu: int) -> None:
    """Issue ready nodes in ascending order while their slots are free; repeat if zero-time nodes freed others (C10).

    A pass sees the nodes that were ready when it began: children of the zero-time nodes that it finishes are freed
    behind it.
    """
    m = s.m
    me = L.NPU_BASE + npu * L.NPU_ROW
    n_slots = m[L.C_SLOTS]
    first = m[me + L.N_SLOTS]
    base = m[me + L.N_NODES]
    program = m[me + L.N_PROGRAM]
    again = m[me + L.N_READY] > 0
    while again:
        zero = -1  # list of finished zero-time nodes, linked through `pending`
        while True:
            node = -1
            slot = -1
            for k in range(n_slots):
                at = first + k * L.SLOT_ROW
                if m[at + L.SL_N] > 0 and m[at + L.SL_FREE] > 0:
                    candidate = m[m[at + L.SL_BASE]]
                    if node < 0 or candidate < node:
                        node = candidate
                        slot = k
            if node < 0:
                break
            pop_ready(s, npu, slot)
            m[base + L.NODE_STATE * node + L.NS_ISSUE] = m[L.C_NOW]
            if issue(s, npu, node, program + node * L.NODE_ROW):
                m[first + slot * L.SLOT_ROW + L.SL_FREE] -= 1
                m[me + L.N_RUNNING] += 1
            else:
                m[base + L.NODE_STATE * node + L.NS_FINISH] = m[L.C_NOW]
                m[base + L.NODE_STATE * node + L.NS_PARTNER] = m[L.C_NOW]
                m[base + L.NODE_STATE * node + L.NS_PENDING] = zero
                zero = node
        again = zero >= 0 and m[L.C_REPEAT] != 0
        while zero >= 0:
            node = zero
            zero = m[base + L.NODE_STATE * node + L.NS_PENDING]
            m[base + L.NODE_STATE * node + L.NS_PENDING] = 0
            free_children(s, npu, node)
    if m[me + L.N_READY] == 0 and m[me + L.N_RUNNING] == 0 and m[me + L.N_FINISH] < 0:
        m[me + L.N_FINISH] = m[L.C_NOW]
        m[L.C_UNFINISHED] -= 1


def complete(s: State, npu: int, node: int) -> None:
    """A node of the workload ends: its slot and its children are free. The caller makes an issue pass."""
    m = s.m
    me = L.NPU_BASE + npu * L.NPU_ROW
    slot = m[m[me + L.N_PROGRAM] + node * L.NODE_ROW + L.O_SLOT]
    m[m[me + L.N_NODES] + L.NODE_STATE * node + L.NS_FINISH] = m[L.C_NOW]
    m[me + L.N_RUNNING] -= 1
    m[m[me + L.N_SLOTS] + slot * L.SLOT_ROW + L.SL_FREE] += 1
    free_children(s, npu, node)


def issue(s: State, npu: int, node: int, row: int) -> bool:
    """Issue a node; False if it takes no time."""
    m = s.m
    me = L.NPU_BASE + npu * L.NPU_ROW
    op = m[row + L.O_OP]
    if op == L.OP_TIMER:
        set_timer(s, npu, m[L.C_NOW] + m[row + L.O_NS], L.TM_NODE, node, 0)
        return True
    if op == L.OP_COLLECTIVE:
        return issue_collective(s, npu, node, m[me + L.N_CALLS] + 2 * m[row + L.O_INDEX])
    if L.OP_SEND <= op <= L.OP_RECV:
        channel = m[me + L.N_P2P] + L.P2P_ROW * m[row + L.O_INDEX]
        if op == L.OP_SEND:
            m[m[me + L.N_NODES] + L.NODE_STATE * node + L.NS_PARTNER] = m[L.C_NOW]
        what = L.RQ_SEND if op == L.OP_SEND else L.RQ_RECV
        post(s, new_request(s, npu, node, L.NIL, what, m[row + L.O_SIZE], channel))
        return True
    if op == L.OP_SERVER:
        enter_server(s, npu, node, m[row + L.O_NS])
        return True
    return False


# --- memory servers ------------------------------------------------------------------------------------------------


def enter_server(s: State, npu: int, node: int, service: int) -> None:
    """A memory access starts, or waits for its server's earlier ones."""
    m = s.m
    server = m[L.NPU_BASE + npu * L.NPU_ROW + L.N_SERVER]
    if m[server] == 0:
        m[server] = 1
        set_timer(s, npu, m[L.C_NOW] + service, L.TM_SERVER, node, server)
        return
    row = take_row(s)
    m[row + L.R_NPU] = npu
    m[row + L.R_NODE] = node
    m[row + L.R_SIZE] = service
    m[row + L.NEXT] = L.NIL
    tail = m[server + 2]
    if tail == L.NIL:
        m[server + 1] = row
    else:
        m[tail + L.NEXT] = row
    m[server + 2] = row


def leave_server(s: State, server: int) -> None:
    """A memory access ends: the next one starts."""
    m = s.m
    row = m[server + 1]
    if row == L.NIL:
        m[server] = 0
        return
    after = m[row + L.NEXT]
    m[server + 1] = after
    if after == L.NIL:
        m[server + 2] = L.NIL
    npu = m[row + L.R_NPU]
    set_timer(s, npu, m[L.C_NOW] + m[row + L.R_SIZE], L.TM_SERVER, m[row + L.R_NODE], server)
    free_row(s, row)


# --- collectives ---------------------------------------------------------------------------------------------------


def open_instance(s: State, plan: int, group: int, ordinal: int) -> int:
    """The collective that is the `ordinal`-th of its group; made when the first member issues it."""
    m = s.m
    at = m[group + L.G_FIRST]
    while at != L.NIL:
        if m[at + L.I_ORDINAL] == ordinal:
            return at
        at = m[at + L.NEXT]
    at = take_row(s)
    m[at + L.NEXT] = L.NIL
    last = m[group + L.G_LAST]
    if last == L.NIL:
        m[group + L.G_FIRST] = at
    else:
        m[last + L.NEXT] = at
    m[group + L.G_LAST] = at
    members = m[group + L.G_N]
    m[at + L.I_GROUP] = group
    m[at + L.I_ORDINAL] = ordinal
    m[at + L.I_PLAN] = plan
    m[at + L.I_ISSUED] = 0
    m[at + L.I_ENDED] = 0
    m[at + L.I_MEMBERS] = members
    record = m[L.C_TOP]
    m[L.C_TOP] = record + L.REC_ROW
    m[record + L.RC_NEXT] = L.NIL
    m[m[L.C_LAST_RECORD] + L.RC_NEXT] = record
    m[L.C_LAST_RECORD] = record
    m[at + L.I_RECORD] = record
    m[record + L.RC_PLAN] = plan
    m[record + L.RC_GROUP] = group
    m[record + L.RC_ORDINAL] = ordinal
    m[record + L.RC_START] = m[L.C_NOW]
    m[record + L.RC_READY] = -1
    m[record + L.RC_END] = -1
    size_class = m[plan + L.P_CLASS]
    block = m[size_class]
    if block != L.NIL:
        m[size_class] = m[block]
    else:
        block = m[L.C_TOP]
        m[L.C_TOP] = block + m[plan + L.P_BLOCK]
    m[at + L.I_BASE] = block
    width = m[plan + L.P_WIDTH]
    for k in range(members * m[plan + L.P_CHUNKS]):
        m[block + k * width + L.S_PHASE] = -1
        m[block + k * width + L.S_EARLY] = L.NIL
        for word in range(block + (k + 1) * width - m[plan + L.P_JOINT], block + (k + 1) * width):
            m[word] = 0
    return at


def close_instance(s: State, instance: int) -> None:
    """The last member has ended a collective."""
    m = s.m
    group = m[instance + L.I_GROUP]
    m[m[instance + L.I_RECORD] + L.RC_END] = m[L.C_NOW]
    before = L.NIL
    at = m[group + L.G_FIRST]
    while at != instance:
        before = at
        at = m[at + L.NEXT]
    after = m[instance + L.NEXT]
    if before == L.NIL:
        m[group + L.G_FIRST] = after
    else:
        m[before + L.NEXT] = after
    if after == L.NIL:
        m[group + L.G_LAST] = before
    size_class = m[m[instance + L.I_PLAN] + L.P_CLASS]
    m[m[instance + L.I_BASE]] = m[size_class]
    m[size_class] = m[instance + L.I_BASE]
    free_row(s, instance)


def note_all_issued(s: State, instance: int) -> None:
    """The last member has issued a collective: tell the others' nodes."""
    m = s.m
    plan = m[instance + L.I_PLAN]
    m[m[instance + L.I_RECORD] + L.RC_READY] = m[L.C_NOW]
    step = m[plan + L.P_CHUNKS] * m[plan + L.P_WIDTH]
    for member in range(m[instance + L.I_MEMBERS]):
        x = m[instance + L.I_BASE] + member * step
        npu = m[x + L.S_NPU]
        m[m[L.NPU_BASE + npu * L.NPU_ROW + L.N_NODES] + L.NODE_STATE * m[x + L.S_NODE] + L.NS_PARTNER] = m[
            L.C_NOW
        ]


def next_queue(s: State, npu: int, phase: int, counter: int) -> int:
    """Queue, direction and tree of a phase, advancing the cursors (3.4): queue << 2 | anticlockwise << 1 | tree."""
    m = s.m
    me = L.NPU_BASE + npu * L.NPU_ROW
    queues = m[L.C_QUEUES]
    dim = m[phase + L.PH_DIM]
    at = m[me + L.N_CURSORS] + dim * CURSORS
    rule = m[phase + L.PH_RULE]
    first = max(queues // 2, 1)
    place = 0
    back = 0
    if rule == L.RULE_ANY:
        place = m[at]
        m[at] = (place + 1) % queues
        back = 1 if queues > 1 and place >= queues // 2 else 0
    elif rule == L.RULE_FIRST:
        place = m[at + 1]
        m[at + 1] = (place + 1) % first
    elif rule != L.RULE_FIXED:
        start = queues // 2
        place = start + m[at + 2]
        m[at + 2] = (m[at + 2] + 1) % (queues - start)
        back = 1
    tree = 0
    if m[phase + L.PH_ALGORITHM] == L.TREE:
        tree = m[at + 3 + counter] & 1
        m[at + 3 + counter] += 1
    return (m[me + L.N_QUEUES] + (dim * queues + place) * L.QUEUE_ROW) << 2 | back << 1 | tree


def issue_collective(s: State, npu: int, node: int, call: int) -> bool:
    """Issue a collective: chunk after chunk joins its first phase's queue. False if it ends at once."""
    m = s.m
    plan = m[call]
    mine = m[call + 1]
    group = m[mine]
    member = m[mine + 1]
    ordinal = m[mine + 2]
    m[mine + 2] = ordinal + 1
    mode = m[plan + L.P_MODE]
    if mode == L.MODE_INSTANT:
        return False
    instance = open_instance(s, plan, group, ordinal)
    if m[instance + L.I_PLAN] != plan:
        m[L.C_STATUS] = L.MISMATCH
        m[L.C_ERROR_NPU] = npu
        m[L.C_ERROR_NODE] = node
        return True
    chunks, width, phases = m[plan + L.P_CHUNKS], m[plan + L.P_WIDTH], m[plan + L.P_PHASES]
    head = m[instance + L.I_BASE] + member * chunks * width
    m[head + L.S_LEFT] = chunks
    m[head + L.S_NODE] = node
    m[head + L.S_NPU] = npu
    m[instance + L.I_ISSUED] += 1
    if m[instance + L.I_ISSUED] == m[instance + L.I_MEMBERS]:
        note_all_issued(s, instance)
    if mode == L.MODE_TOGETHER:
        if m[instance + L.I_ISSUED] == m[instance + L.I_MEMBERS]:
            for k in range(m[instance + L.I_MEMBERS]):
                x = m[instance + L.I_BASE] + k * chunks * width
                set_timer(s, m[x + L.S_NPU], m[L.C_NOW], L.TM_NODE, m[x + L.S_NODE], 0)
            close_instance(s, instance)
        return True
    for chunk in range(chunks):
        x = head + chunk * width
        m[x + L.S_NPU] = npu
        m[x + L.S_INSTANCE] = instance
        m[x + L.S_CHUNK] = chunk
        m[x + L.S_MEMBER] = member
        m[x + L.S_TWIN] = m[instance + L.I_BASE] + chunk * width
        m[x + L.S_STEP] = chunks * width
        m[x + L.S_LEAST] = m[plan + L.P_LEAST]
        m[x + L.S_INBOX] = x + L.S_LIST + phases
        m[x + L.S_BITS] = m[plan + L.P_BITS]
        m[x + L.S_BYTES] = m[m[plan + L.P_CHUNK] + chunk]
        for k in range(phases):
            m[x + L.S_LIST + k] = next_queue(
                s, npu, m[plan + L.P_PHASE] + k * L.PHASE_ROW, m[plan + L.P_COUNTER]
            )
        enter_phase(s, x, 0)
        join_queue(s, x)
        start_waiting(s, m[x + L.S_QUEUE])
    return True
