"""Workload layer of the phase-level kernel: which nodes are issued, and what each kind of node does when it is.

Source: replay semantics, section 2.
"""

from chakra.arrays import I64
from chakra.replay.engines.kernels import phases_layout as L
from chakra.replay.engines.kernels.phases_heaps import pop_ready, push_event, push_ready
from chakra.replay.engines.kernels.phases_layout import Net
from chakra.replay.engines.kernels.phases_queues import choose_queue, enter_queue, start_waiting
from chakra.replay.engines.kernels.phases_schedule import balance, take_turns

ENTRY_POINTS = ()
ALLOCATES = False


def make_ready(m: I64, t: I64, a: int, node: int) -> None:
    """All parents of a node have ended: put it where its slot looks for work."""
    p = m[t[L.AC_PROGRAM] + a]
    s = m[t[L.PR_SLOT] + m[t[L.PR_START] + p] + node]
    cell = m[t[L.AC_SLOT] + a] + s
    base = m[t[L.AC_NODE] + a] + m[t[L.PR_HEAP_START] + m[t[L.PR_SLOT_START] + p] + s]
    push_ready(m, t[L.ST_READY] + base, m[t[L.ST_READY_N] + cell], node)
    m[t[L.ST_READY_N] + cell] += 1


def end_node(m: I64, t: I64, a: int, node: int, deferred: int) -> int:
    """A node ends now. Its children become ready, or are kept in `deferred` (count given and returned; -1: not kept)."""
    now = m[t[L.ST_SCALARS] + L.SC_NOW]
    p = m[t[L.AC_PROGRAM] + a]
    g = m[t[L.PR_START] + p] + node
    m[t[L.ST_FINISH] + m[t[L.AC_NODE] + a] + node] = now
    m[t[L.ST_BUSY] + m[t[L.AC_SLOT] + a] + m[t[L.PR_SLOT] + g]] -= 1
    m[t[L.ST_RUNNING] + a] -= 1
    m[t[L.ST_SCALARS] + L.SC_NODES_DONE] += 1
    left0 = m[t[L.AC_NODE] + a]
    for k in range(m[t[L.PR_CHILD_START] + g], m[t[L.PR_CHILD_START] + g + 1]):
        c = m[t[L.PR_CHILD] + k]
        rest = m[t[L.ST_LEFT] + left0 + c] - 1
        m[t[L.ST_LEFT] + left0 + c] = rest
        if rest == 0:
            if deferred >= 0:
                m[t[L.ST_DEFERRED] + deferred] = c
                deferred += 1
            else:
                make_ready(m, t, a, c)
    return deferred


def issue_pass(m: I64, t: I64, net: Net, a: int) -> int:
    """Issue ready nodes in ascending id while their slots are free (section 2.1). Returns a status."""
    p = m[t[L.AC_PROGRAM] + a]
    first_slot = m[t[L.PR_SLOT_START] + p]
    slots = m[t[L.PR_SLOT_START] + p + 1] - first_slot
    now = m[t[L.ST_SCALARS] + L.SC_NOW]
    while True:
        deferred = 0
        while True:
            best = -1
            best_slot = -1
            for s in range(slots):
                cell = m[t[L.AC_SLOT] + a] + s
                if (
                    m[t[L.ST_READY_N] + cell] > 0
                    and m[t[L.ST_BUSY] + cell] < m[t[L.PR_SLOT_CAP] + first_slot + s]
                ):
                    top = m[t[L.ST_READY] + m[t[L.AC_NODE] + a] + m[t[L.PR_HEAP_START] + first_slot + s]]
                    if best < 0 or top < best:
                        best = top
                        best_slot = s
            if best < 0:
                break
            cell = m[t[L.AC_SLOT] + a] + best_slot
            node = pop_ready(
                m,
                t[L.ST_READY] + m[t[L.AC_NODE] + a] + m[t[L.PR_HEAP_START] + first_slot + best_slot],
                m[t[L.ST_READY_N] + cell],
            )
            m[t[L.ST_READY_N] + cell] -= 1
            m[t[L.ST_BUSY] + cell] += 1
            m[t[L.ST_RUNNING] + a] += 1
            m[t[L.ST_ISSUE] + m[t[L.AC_NODE] + a] + node] = now
            m[t[L.ST_ORDER] + m[t[L.AC_NODE] + a] + m[t[L.ST_ORDER_N] + a]] = node
            m[t[L.ST_ORDER_N] + a] += 1
            g = m[t[L.PR_START] + p] + node
            op = m[t[L.PR_OP] + g]
            if op == L.OP_TIMER:
                push_event(m, t, now + m[t[L.PR_DUR] + g], now, L.EV_NODE | a << 2 | node << 32)
            elif op == L.OP_ZERO:
                deferred = end_node(m, t, a, node, deferred)
            elif op == L.OP_COLLECTIVE:
                status = issue_collective(m, t, net, a, node)
                if status != L.DONE:
                    return status
            elif op == L.OP_SEND:
                issue_send(m, t, a, node)
            elif op == L.OP_RECV:
                issue_recv(m, t, a, node)
            else:
                server = m[t[L.AC_SERVER] + a]
                begin = max(now, m[t[L.ST_SERVER_FREE] + server])
                m[t[L.ST_SERVER_FREE] + server] = begin + m[t[L.PR_DUR] + g]
                push_event(m, t, begin + m[t[L.PR_DUR] + g], now, L.EV_NODE | a << 2 | node << 32)
        for k in range(deferred):
            make_ready(m, t, a, m[t[L.ST_DEFERRED] + k])
        if deferred == 0 or not t[L.RU_REPEAT_PASS]:
            break
    if m[t[L.ST_RUNNING] + a] == 0 and m[t[L.ST_DONE] + a] < 0:
        idle = True
        for s in range(slots):
            if m[t[L.ST_READY_N] + m[t[L.AC_SLOT] + a] + s] > 0:
                idle = False
        if idle:
            m[t[L.ST_DONE] + a] = now
    return L.DONE


def issue_send(m: I64, t: I64, a: int, node: int) -> None:
    """A send leaves at once (eager) or when the receiver has asked for it (rendezvous)."""
    now = m[t[L.ST_SCALARS] + L.SC_NOW]
    g = m[t[L.PR_START] + m[t[L.AC_PROGRAM] + a]] + node
    ch = m[t[L.AC_CHANNEL] + m[t[L.AC_P2P] + a] + m[t[L.PR_CALL] + g]]
    j = m[t[L.ST_SENT_N] + ch]
    m[t[L.ST_SENT_N] + ch] = j + 1
    cell = m[t[L.CO_CHAN_START] + ch] + j
    m[t[L.ST_SENT] + cell] = now
    m[t[L.ST_SENT_NODE] + cell] = node
    m[t[L.ST_COMM_READY] + m[t[L.AC_COMM] + a] + m[t[L.PR_COMM] + g]] = now
    if m[t[L.CO_CHAN_BACK] + ch] < 0:
        push_event(m, t, now + m[t[L.CO_CHAN_DELAY] + ch], now, L.EV_ARRIVAL | ch << 2 | j << 32)
    elif m[t[L.ST_POSTED] + cell] >= 0:
        leave = max(now, m[t[L.ST_POSTED] + cell] + m[t[L.CO_CHAN_BACK] + ch])
        push_event(m, t, leave + m[t[L.CO_CHAN_DELAY] + ch], leave, L.EV_ARRIVAL | ch << 2 | j << 32)


def issue_recv(m: I64, t: I64, a: int, node: int) -> None:
    """A receive is posted; it ends with the arrival, or now if the message is already here."""
    now = m[t[L.ST_SCALARS] + L.SC_NOW]
    g = m[t[L.PR_START] + m[t[L.AC_PROGRAM] + a]] + node
    ch = m[t[L.AC_CHANNEL] + m[t[L.AC_P2P] + a] + m[t[L.PR_CALL] + g]]
    j = m[t[L.ST_POSTED_N] + ch]
    m[t[L.ST_POSTED_N] + ch] = j + 1
    cell = m[t[L.CO_CHAN_START] + ch] + j
    m[t[L.ST_POSTED] + cell] = now
    m[t[L.ST_POSTED_NODE] + cell] = node
    if m[t[L.ST_ARRIVED] + cell] >= 0:
        m[t[L.ST_COMM_READY] + m[t[L.AC_COMM] + a] + m[t[L.PR_COMM] + g]] = m[t[L.ST_SENT] + cell]
        push_event(m, t, now, now, L.EV_NODE | a << 2 | node << 32)
    elif m[t[L.CO_CHAN_BACK] + ch] >= 0 and m[t[L.ST_SENT] + cell] >= 0:
        leave = max(m[t[L.ST_SENT] + cell], now + m[t[L.CO_CHAN_BACK] + ch])
        push_event(m, t, leave + m[t[L.CO_CHAN_DELAY] + ch], leave, L.EV_ARRIVAL | ch << 2 | j << 32)


def issue_collective(m: I64, t: I64, net: Net, a: int, node: int) -> int:
    """Find or open the instance, create one stream per chunk, and put the streams into their first queues."""
    now = m[t[L.ST_SCALARS] + L.SC_NOW]
    g = m[t[L.PR_START] + m[t[L.AC_PROGRAM] + a]] + node
    call = m[t[L.AC_CALL] + a] + m[t[L.PR_CALL] + g]
    plan = m[t[L.AC_CALL_PLAN] + call]
    group = m[t[L.AC_GROUP] + a] + m[t[L.AC_CALL_GROUP] + call]
    comm = m[t[L.AC_GROUP_COMM] + group]
    ordinal = m[t[L.PR_ORDINAL] + g] if t[L.RU_BY_ID] else m[t[L.ST_GROUP_COUNT] + group]
    inst = m[t[L.CO_INSTANCE] + comm] + ordinal
    m[t[L.ST_GROUP_COUNT] + group] += 1
    m[t[L.ST_COMM_INSTANCE] + m[t[L.AC_COMM] + a] + m[t[L.PR_COMM] + g]] = inst
    members = m[t[L.CO_ACTORS] + comm]
    cells = m[t[L.PL_CHUNKS] + plan] * m[t[L.PL_PHASES] + plan] * members
    if m[t[L.ST_INST_PLAN] + inst] < 0:
        m[t[L.ST_INST_PLAN] + inst] = plan
        block = m[t[L.ST_FREE] + plan]
        if block >= 0:
            m[t[L.ST_FREE] + plan] = m[t[L.ST_POOL] + block]
        else:
            block = m[t[L.ST_SCALARS] + L.SC_BUMP]
            m[t[L.ST_SCALARS] + L.SC_BUMP] = block + m[t[L.PL_BLOCK] + plan]
        m[t[L.ST_INST_BLOCK] + inst] = block
        for k in range(block + cells, block + 2 * cells):
            m[t[L.ST_POOL] + k] = 0
        if m[t[L.PL_SCHEDULE] + plan] == L.SCHEDULE_ROUND_ROBIN:
            take_turns(m, t, plan, t[L.ST_POOL] + block + 2 * cells)
        elif m[t[L.PL_SCHEDULE] + plan] != L.SCHEDULE_NONE:
            balance(m, t, net, plan, t[L.ST_POOL] + block + 2 * cells)
    elif m[t[L.ST_INST_PLAN] + inst] != plan:
        m[t[L.ST_SCALARS] + L.SC_ERR_ACTOR] = a
        m[t[L.ST_SCALARS] + L.SC_ERR_NODE] = node
        m[t[L.ST_SCALARS] + L.SC_ERR_INSTANCE] = inst
        return L.MISMATCH
    m[t[L.ST_INST_ISSUED] + inst] += 1
    if m[t[L.ST_INST_ISSUED] + inst] == members:
        m[t[L.ST_INST_READY] + inst] = now
    ctx = a * t[L.RU_CONTEXTS]
    while m[t[L.ST_CTX_INST] + ctx] >= 0:
        ctx += 1
    m[t[L.ST_CTX_INST] + ctx] = inst
    m[t[L.ST_CTX_NODE] + ctx] = node
    m[t[L.ST_CTX_GROUP] + ctx] = group
    issued = m[t[L.ST_ISSUED] + a]
    m[t[L.ST_ISSUED] + a] = issued + 1
    m[t[L.ST_CTX_RANK] + ctx] = (m[t[L.PR_PRIORITY] + g] << 32) + (
        issued if t[L.RU_FIRST] == L.LAST_ISSUED else -issued
    )
    chosen = -1
    chunks = m[t[L.PL_CHUNKS] + plan]
    if m[t[L.PL_SCHEDULE] + plan] != L.SCHEDULE_NONE:
        chosen = t[L.ST_POOL] + m[t[L.ST_INST_BLOCK] + inst] + 2 * cells
        chunks = m[chosen]
    m[t[L.ST_CTX_LEFT] + ctx] = chunks
    for chunk in range(chunks):
        stream = ctx * t[L.RU_MAX_CHUNKS] + chunk
        if chosen >= 0:
            f = m[chosen + 1 + chunk]
        else:
            f = m[t[L.PL_VARIANT_PHASE] + m[t[L.PL_VARIANT] + m[t[L.PL_CHUNK_START] + plan] + chunk]]
        m[t[L.ST_ST_FIRST] + stream] = f
        m[t[L.ST_ST_PHASE] + stream] = 0
        for k in range(m[f + L.PH_LEFT]):
            q = choose_queue(m, t, a, m[f + L.PH_DIM], m[f + L.PH_RULE]) * 2
            if m[f + L.PH_ALG] == L.ALG_TREE:
                cell = (a * t[L.RU_KINDS] + m[f + L.PH_KIND]) * t[L.RU_DIMS] + m[f + L.PH_DIM]
                q += m[t[L.ST_TREE_COUNT] + cell] & 1
                m[t[L.ST_TREE_COUNT] + cell] += 1
            m[t[L.ST_ST_QUEUE] + stream * t[L.RU_MAX_PHASES] + k] = q
            f += L.PH_CELLS
        enter_queue(m, t, a, stream)
        start_waiting(m, t, net, a, m[t[L.ST_ST_QUEUE] + stream * t[L.RU_MAX_PHASES]] >> 2)
    return L.DONE
