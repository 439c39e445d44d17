"""Workload layer of the phase-level kernel: which nodes are issued, and what each kind of node does when it is.

Source: replay semantics, section 2.
"""

from chakra.arrays import I64
from chakra.replay.kernels.phases_heaps import pop_ready, push_event, push_ready
from chakra.replay.kernels.phases_layout import (
    AC_CALL,
    AC_CALL_GROUP,
    AC_CALL_PLAN,
    AC_CHANNEL,
    AC_COMM,
    AC_GROUP,
    AC_GROUP_COMM,
    AC_NODE,
    AC_P2P,
    AC_PROGRAM,
    AC_SERVER,
    AC_SLOT,
    ALG_TREE,
    CO_ACTORS,
    CO_CHAN_BACK,
    CO_CHAN_DELAY,
    CO_CHAN_START,
    CO_INSTANCE,
    DONE,
    EV_ARRIVAL,
    EV_NODE,
    LAST_ISSUED,
    MISMATCH,
    OP_COLLECTIVE,
    OP_RECV,
    OP_SEND,
    OP_TIMER,
    OP_ZERO,
    PH_ALG,
    PH_CELLS,
    PH_DIM,
    PH_KIND,
    PH_LEFT,
    PH_RULE,
    PL_BLOCK,
    PL_CHUNK_START,
    PL_CHUNKS,
    PL_PHASES,
    PL_SCHEDULE,
    PL_VARIANT,
    PL_VARIANT_PHASE,
    PR_CALL,
    PR_CHILD,
    PR_CHILD_START,
    PR_COMM,
    PR_DUR,
    PR_HEAP_START,
    PR_OP,
    PR_ORDINAL,
    PR_PRIORITY,
    PR_SLOT,
    PR_SLOT_CAP,
    PR_SLOT_START,
    PR_START,
    RU_BY_ID,
    RU_CONTEXTS,
    RU_DIMS,
    RU_FIRST,
    RU_KINDS,
    RU_MAX_CHUNKS,
    RU_MAX_PHASES,
    RU_REPEAT_PASS,
    SC_BUMP,
    SC_ERR_ACTOR,
    SC_ERR_INSTANCE,
    SC_ERR_NODE,
    SC_NODES_DONE,
    SC_NOW,
    SCHEDULE_NONE,
    SCHEDULE_ROUND_ROBIN,
    ST_ARRIVED,
    ST_BUSY,
    ST_COMM_INSTANCE,
    ST_COMM_READY,
    ST_CTX_GROUP,
    ST_CTX_INST,
    ST_CTX_LEFT,
    ST_CTX_NODE,
    ST_CTX_RANK,
    ST_DEFERRED,
    ST_DONE,
    ST_FINISH,
    ST_FREE,
    ST_GROUP_COUNT,
    ST_INST_BLOCK,
    ST_INST_ISSUED,
    ST_INST_PLAN,
    ST_INST_READY,
    ST_ISSUE,
    ST_ISSUED,
    ST_LEFT,
    ST_ORDER,
    ST_ORDER_N,
    ST_POOL,
    ST_POSTED,
    ST_POSTED_N,
    ST_POSTED_NODE,
    ST_READY,
    ST_READY_N,
    ST_RUNNING,
    ST_SCALARS,
    ST_SENT,
    ST_SENT_N,
    ST_SENT_NODE,
    ST_SERVER_FREE,
    ST_ST_FIRST,
    ST_ST_PHASE,
    ST_ST_QUEUE,
    ST_TREE_COUNT,
    Net,
)
from chakra.replay.kernels.phases_queues import choose_queue, enter_queue, start_waiting
from chakra.replay.kernels.phases_schedule import balance, take_turns

ENTRY_POINTS = ()
ALLOCATES = False


def make_ready(m: I64, t: I64, a: int, node: int) -> None:
    """All parents of a node have ended: put it where its slot looks for work."""
    p = m[t[AC_PROGRAM] + a]
    s = m[t[PR_SLOT] + m[t[PR_START] + p] + node]
    cell = m[t[AC_SLOT] + a] + s
    base = m[t[AC_NODE] + a] + m[t[PR_HEAP_START] + m[t[PR_SLOT_START] + p] + s]
    push_ready(m, t[ST_READY] + base, m[t[ST_READY_N] + cell], node)
    m[t[ST_READY_N] + cell] += 1


def end_node(m: I64, t: I64, a: int, node: int, deferred: int) -> int:
    """A node ends now. Its children become ready, or are kept in `deferred` (count given and returned; -1: not kept)."""
    now = m[t[ST_SCALARS] + SC_NOW]
    p = m[t[AC_PROGRAM] + a]
    g = m[t[PR_START] + p] + node
    m[t[ST_FINISH] + m[t[AC_NODE] + a] + node] = now
    m[t[ST_BUSY] + m[t[AC_SLOT] + a] + m[t[PR_SLOT] + g]] -= 1
    m[t[ST_RUNNING] + a] -= 1
    m[t[ST_SCALARS] + SC_NODES_DONE] += 1
    left0 = m[t[AC_NODE] + a]
    for k in range(m[t[PR_CHILD_START] + g], m[t[PR_CHILD_START] + g + 1]):
        c = m[t[PR_CHILD] + k]
        rest = m[t[ST_LEFT] + left0 + c] - 1
        m[t[ST_LEFT] + left0 + c] = rest
        if rest == 0:
            if deferred >= 0:
                m[t[ST_DEFERRED] + deferred] = c
                deferred += 1
            else:
                make_ready(m, t, a, c)
    return deferred


def issue_pass(m: I64, t: I64, net: Net, a: int) -> int:
    """Issue ready nodes in ascending id while their slots are free (section 2.1). Returns a status."""
    p = m[t[AC_PROGRAM] + a]
    first_slot = m[t[PR_SLOT_START] + p]
    slots = m[t[PR_SLOT_START] + p + 1] - first_slot
    now = m[t[ST_SCALARS] + SC_NOW]
    while True:
        deferred = 0
        while True:
            best = -1
            best_slot = -1
            for s in range(slots):
                cell = m[t[AC_SLOT] + a] + s
                if m[t[ST_READY_N] + cell] > 0 and m[t[ST_BUSY] + cell] < m[t[PR_SLOT_CAP] + first_slot + s]:
                    top = m[t[ST_READY] + m[t[AC_NODE] + a] + m[t[PR_HEAP_START] + first_slot + s]]
                    if best < 0 or top < best:
                        best = top
                        best_slot = s
            if best < 0:
                break
            cell = m[t[AC_SLOT] + a] + best_slot
            node = pop_ready(
                m,
                t[ST_READY] + m[t[AC_NODE] + a] + m[t[PR_HEAP_START] + first_slot + best_slot],
                m[t[ST_READY_N] + cell],
            )
            m[t[ST_READY_N] + cell] -= 1
            m[t[ST_BUSY] + cell] += 1
            m[t[ST_RUNNING] + a] += 1
            m[t[ST_ISSUE] + m[t[AC_NODE] + a] + node] = now
            m[t[ST_ORDER] + m[t[AC_NODE] + a] + m[t[ST_ORDER_N] + a]] = node
            m[t[ST_ORDER_N] + a] += 1
            g = m[t[PR_START] + p] + node
            op = m[t[PR_OP] + g]
            if op == OP_TIMER:
                push_event(m, t, now + m[t[PR_DUR] + g], now, EV_NODE | a << 2 | node << 32)
            elif op == OP_ZERO:
                deferred = end_node(m, t, a, node, deferred)
            elif op == OP_COLLECTIVE:
                status = issue_collective(m, t, net, a, node)
                if status != DONE:
                    return status
            elif op == OP_SEND:
                issue_send(m, t, a, node)
            elif op == OP_RECV:
                issue_recv(m, t, a, node)
            else:
                server = m[t[AC_SERVER] + a]
                begin = max(now, m[t[ST_SERVER_FREE] + server])
                m[t[ST_SERVER_FREE] + server] = begin + m[t[PR_DUR] + g]
                push_event(m, t, begin + m[t[PR_DUR] + g], now, EV_NODE | a << 2 | node << 32)
        for k in range(deferred):
            make_ready(m, t, a, m[t[ST_DEFERRED] + k])
        if deferred == 0 or not t[RU_REPEAT_PASS]:
            break
    if m[t[ST_RUNNING] + a] == 0 and m[t[ST_DONE] + a] < 0:
        idle = True
        for s in range(slots):
            if m[t[ST_READY_N] + m[t[AC_SLOT] + a] + s] > 0:
                idle = False
        if idle:
            m[t[ST_DONE] + a] = now
    return DONE


def issue_send(m: I64, t: I64, a: int, node: int) -> None:
    """A send leaves at once (eager) or when the receiver has asked for it (rendezvous)."""
    now = m[t[ST_SCALARS] + SC_NOW]
    g = m[t[PR_START] + m[t[AC_PROGRAM] + a]] + node
    ch = m[t[AC_CHANNEL] + m[t[AC_P2P] + a] + m[t[PR_CALL] + g]]
    j = m[t[ST_SENT_N] + ch]
    m[t[ST_SENT_N] + ch] = j + 1
    cell = m[t[CO_CHAN_START] + ch] + j
    m[t[ST_SENT] + cell] = now
    m[t[ST_SENT_NODE] + cell] = node
    m[t[ST_COMM_READY] + m[t[AC_COMM] + a] + m[t[PR_COMM] + g]] = now
    if m[t[CO_CHAN_BACK] + ch] < 0:
        push_event(m, t, now + m[t[CO_CHAN_DELAY] + ch], now, EV_ARRIVAL | ch << 2 | j << 32)
    elif m[t[ST_POSTED] + cell] >= 0:
        leave = max(now, m[t[ST_POSTED] + cell] + m[t[CO_CHAN_BACK] + ch])
        push_event(m, t, leave + m[t[CO_CHAN_DELAY] + ch], leave, EV_ARRIVAL | ch << 2 | j << 32)


def issue_recv(m: I64, t: I64, a: int, node: int) -> None:
    """A receive is posted; it ends with the arrival, or now if the message is already here."""
    now = m[t[ST_SCALARS] + SC_NOW]
    g = m[t[PR_START] + m[t[AC_PROGRAM] + a]] + node
    ch = m[t[AC_CHANNEL] + m[t[AC_P2P] + a] + m[t[PR_CALL] + g]]
    j = m[t[ST_POSTED_N] + ch]
    m[t[ST_POSTED_N] + ch] = j + 1
    cell = m[t[CO_CHAN_START] + ch] + j
    m[t[ST_POSTED] + cell] = now
    m[t[ST_POSTED_NODE] + cell] = node
    if m[t[ST_ARRIVED] + cell] >= 0:
        m[t[ST_COMM_READY] + m[t[AC_COMM] + a] + m[t[PR_COMM] + g]] = m[t[ST_SENT] + cell]
        push_event(m, t, now, now, EV_NODE | a << 2 | node << 32)
    elif m[t[CO_CHAN_BACK] + ch] >= 0 and m[t[ST_SENT] + cell] >= 0:
        leave = max(m[t[ST_SENT] + cell], now + m[t[CO_CHAN_BACK] + ch])
        push_event(m, t, leave + m[t[CO_CHAN_DELAY] + ch], leave, EV_ARRIVAL | ch << 2 | j << 32)


def issue_collective(m: I64, t: I64, net: Net, a: int, node: int) -> int:
    """Find or open the instance, create one stream per chunk, and put the streams into their first queues."""
    now = m[t[ST_SCALARS] + SC_NOW]
    g = m[t[PR_START] + m[t[AC_PROGRAM] + a]] + node
    call = m[t[AC_CALL] + a] + m[t[PR_CALL] + g]
    plan = m[t[AC_CALL_PLAN] + call]
    group = m[t[AC_GROUP] + a] + m[t[AC_CALL_GROUP] + call]
    comm = m[t[AC_GROUP_COMM] + group]
    ordinal = m[t[PR_ORDINAL] + g] if t[RU_BY_ID] else m[t[ST_GROUP_COUNT] + group]
    inst = m[t[CO_INSTANCE] + comm] + ordinal
    m[t[ST_GROUP_COUNT] + group] += 1
    m[t[ST_COMM_INSTANCE] + m[t[AC_COMM] + a] + m[t[PR_COMM] + g]] = inst
    members = m[t[CO_ACTORS] + comm]
    cells = m[t[PL_CHUNKS] + plan] * m[t[PL_PHASES] + plan] * members
    if m[t[ST_INST_PLAN] + inst] < 0:
        m[t[ST_INST_PLAN] + inst] = plan
        block = m[t[ST_FREE] + plan]
        if block >= 0:
            m[t[ST_FREE] + plan] = m[t[ST_POOL] + block]
        else:
            block = m[t[ST_SCALARS] + SC_BUMP]
            m[t[ST_SCALARS] + SC_BUMP] = block + m[t[PL_BLOCK] + plan]
        m[t[ST_INST_BLOCK] + inst] = block
        for k in range(block + cells, block + 2 * cells):
            m[t[ST_POOL] + k] = 0
        if m[t[PL_SCHEDULE] + plan] == SCHEDULE_ROUND_ROBIN:
            take_turns(m, t, plan, t[ST_POOL] + block + 2 * cells)
        elif m[t[PL_SCHEDULE] + plan] != SCHEDULE_NONE:
            balance(m, t, net, plan, t[ST_POOL] + block + 2 * cells)
    elif m[t[ST_INST_PLAN] + inst] != plan:
        m[t[ST_SCALARS] + SC_ERR_ACTOR] = a
        m[t[ST_SCALARS] + SC_ERR_NODE] = node
        m[t[ST_SCALARS] + SC_ERR_INSTANCE] = inst
        return MISMATCH
    m[t[ST_INST_ISSUED] + inst] += 1
    if m[t[ST_INST_ISSUED] + inst] == members:
        m[t[ST_INST_READY] + inst] = now
    ctx = a * t[RU_CONTEXTS]
    while m[t[ST_CTX_INST] + ctx] >= 0:
        ctx += 1
    m[t[ST_CTX_INST] + ctx] = inst
    m[t[ST_CTX_NODE] + ctx] = node
    m[t[ST_CTX_GROUP] + ctx] = group
    issued = m[t[ST_ISSUED] + a]
    m[t[ST_ISSUED] + a] = issued + 1
    m[t[ST_CTX_RANK] + ctx] = (m[t[PR_PRIORITY] + g] << 32) + (
        issued if t[RU_FIRST] == LAST_ISSUED else -issued
    )
    chosen = -1
    chunks = m[t[PL_CHUNKS] + plan]
    if m[t[PL_SCHEDULE] + plan] != SCHEDULE_NONE:
        chosen = t[ST_POOL] + m[t[ST_INST_BLOCK] + inst] + 2 * cells
        chunks = m[chosen]
    m[t[ST_CTX_LEFT] + ctx] = chunks
    for chunk in range(chunks):
        stream = ctx * t[RU_MAX_CHUNKS] + chunk
        if chosen >= 0:
            f = m[chosen + 1 + chunk]
        else:
            f = m[t[PL_VARIANT_PHASE] + m[t[PL_VARIANT] + m[t[PL_CHUNK_START] + plan] + chunk]]
        m[t[ST_ST_FIRST] + stream] = f
        m[t[ST_ST_PHASE] + stream] = 0
        for k in range(m[f + PH_LEFT]):
            q = choose_queue(m, t, a, m[f + PH_DIM], m[f + PH_RULE]) * 2
            if m[f + PH_ALG] == ALG_TREE:
                cell = (a * t[RU_KINDS] + m[f + PH_KIND]) * t[RU_DIMS] + m[f + PH_DIM]
                q += m[t[ST_TREE_COUNT] + cell] & 1
                m[t[ST_TREE_COUNT] + cell] += 1
            m[t[ST_ST_QUEUE] + stream * t[RU_MAX_PHASES] + k] = q
            f += PH_CELLS
        enter_queue(m, t, a, stream)
        start_waiting(m, t, net, a, m[t[ST_ST_QUEUE] + stream * t[RU_MAX_PHASES]] >> 2)
    return DONE
