"""Phase-level replay kernel: messages of a collective need no events.

On a network without contention a phase (one algorithm on one logical ring) is a function of the instants at which its
members start it. So the event loop knows nodes, streams and point-to-point messages only; when the last member of a
phase has started, all members' ends are computed in one step (replay semantics, sections 4.8 and 9).

Everything is simulated for *actors*. An actor stands for a class of NPUs that behave alike (`chakra.replay.classes`);
a ring's table of positions says which actor stands at each position, so a ring of 1024 equal NPUs has one actor.

All arrays are flat; 64-bit integers unless said otherwise. Times are ns, sizes bytes. The module is a kernel module
(see `chakra.kernels`): plain Python over arrays, compiled as a whole for large inputs.

Ties. Events are ordered by (tick, registration tick, sequence): the order in which an event list that serves equal
ticks first-come-first-served would run them (replay semantics, section 5.5).
"""

from chakra.arrays import I64
from chakra.replay.kernels.phases_algorithms import (
    equal_start_time,
    eval_chain,
    eval_credits,
    eval_direct_open,
    eval_steps,
    eval_tree,
)
from chakra.replay.kernels.phases_layout import (
    AC_CALL,
    AC_CALL_GROUP,
    AC_CALL_PLAN,
    AC_CHANNEL,
    AC_COMM,
    AC_GROUP,
    AC_GROUP_COMM,
    AC_GROUP_MEMBER,
    AC_NODE,
    AC_P2P,
    AC_PROGRAM,
    AC_SERVER,
    AC_SLOT,
    ALG_DIRECT,
    ALG_NONE,
    ALG_STEPS,
    ALG_TREE,
    CO_ACTORS,
    CO_CHAN_BACK,
    CO_CHAN_DELAY,
    CO_CHAN_DST,
    CO_CHAN_SRC,
    CO_CHAN_START,
    CO_INSTANCE,
    CO_MEMBER,
    CO_MEMBER_ACTOR,
    CO_RING_ACTOR,
    CO_RING_ACTORS,
    CO_RING_INDEX,
    CO_RING_NPU,
    CO_RING_OF,
    CO_RING_SIZE,
    CO_RING_START,
    CO_VIEW_RING,
    CO_VIEW_START,
    DO_ALL_GATHER,
    DO_ALL_REDUCE,
    DO_ALL_TO_ALL,
    DO_REDUCE_SCATTER,
    DONE,
    EV_ARRIVAL,
    EV_NODE,
    EV_PHASE,
    GROW_POOL,
    LAST_ISSUED,
    MEMO,
    MISMATCH,
    OP_COLLECTIVE,
    OP_RECV,
    OP_SEND,
    OP_TIMER,
    OP_ZERO,
    ORDER_FIFO,
    ORDER_RG,
    ORDER_SMALLEST_FIRST,
    PAUSED,
    PH_ALG,
    PH_CELLS,
    PH_CYCLE,
    PH_DIM,
    PH_DO,
    PH_ENDPOINT,
    PH_KIND,
    PH_LAST,
    PH_LEFT,
    PH_RULE,
    PH_SAME,
    PH_SENT,
    PH_SIZE,
    PH_TABLE,
    PH_TAU,
    PH_VIEW,
    PH_WINDOW,
    PL_BLOCK,
    PL_BYTES,
    PL_CHUNK_START,
    PL_CHUNKS,
    PL_KIND,
    PL_PHASES,
    PL_SCHEDULE,
    PL_TEMPLATE,
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
    QUEUE_ANY,
    QUEUE_FIRST,
    QUEUE_LAST,
    RU_ACTORS,
    RU_BY_ID,
    RU_CONTEXTS,
    RU_DIMS,
    RU_FIRST,
    RU_KINDS,
    RU_MAX_CHUNKS,
    RU_MAX_PHASES,
    RU_ORDER,
    RU_QUEUES,
    RU_RELIEVE,
    RU_REPEAT_PASS,
    RU_RUNNING,
    RU_SCRATCH,
    RU_SCRATCH_HEAP,
    RU_TREES,
    SC_BUMP,
    SC_ERR_ACTOR,
    SC_ERR_INSTANCE,
    SC_ERR_NODE,
    SC_EVENTS,
    SC_HEAP,
    SC_NODES_DONE,
    SC_NOW,
    SC_RELIEVED,
    SC_SEQ,
    SC_SIZE,
    SC_STARTED,
    SCHEDULE_FLEX,
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
    ST_CURSOR,
    ST_DEFERRED,
    ST_DIM_BYTES,
    ST_DONE,
    ST_FINISH,
    ST_FREE,
    ST_GROUP_COUNT,
    ST_HEAP,
    ST_INST_BLOCK,
    ST_INST_ENDED,
    ST_INST_ISSUED,
    ST_INST_PLAN,
    ST_INST_READY,
    ST_ISSUE,
    ST_ISSUED,
    ST_LEFT,
    ST_MEMO,
    ST_ORDER,
    ST_ORDER_N,
    ST_ORDERED,
    ST_POOL,
    ST_POSTED,
    ST_POSTED_N,
    ST_POSTED_NODE,
    ST_Q_BUSY,
    ST_Q_HEAD,
    ST_Q_TAIL,
    ST_READY,
    ST_READY_N,
    ST_RUNNING,
    ST_SCALARS,
    ST_SCRATCH,
    ST_SCRATCH_HEAP,
    ST_SENT,
    ST_SENT_N,
    ST_SENT_NODE,
    ST_SERVER_FREE,
    ST_ST_FIRST,
    ST_ST_NEXT,
    ST_ST_PHASE,
    ST_ST_QUEUE,
    ST_ST_SEQ,
    ST_TREE_COUNT,
    TAU_UNKNOWN,
    Net,
)

ENTRY_POINTS = ("run",)

# --------------------------------------------------------------------------------------------------------------
# Heaps


def push_event(m: I64, t: I64, tick: int, reg: int, what: int) -> None:
    """Insert an event at `tick`, registered at `reg`."""
    seq = m[t[ST_SCALARS] + SC_SEQ]
    m[t[ST_SCALARS] + SC_SEQ] = seq + 1
    push_in_order(m, t, tick, reg, seq, what)


def push_in_order(m: I64, t: I64, tick: int, reg: int, seq: int, what: int) -> None:
    """Insert an event that has its sequence number already; the order of events of equal sequence does not matter."""
    scalars = t[ST_SCALARS]
    heap = t[ST_HEAP]
    i = m[scalars + SC_HEAP]
    m[scalars + SC_HEAP] = i + 1
    while i > 0:
        up = heap + 4 * ((i - 1) >> 1)
        if m[up] < tick or (m[up] == tick and (m[up + 1] < reg or (m[up + 1] == reg and m[up + 2] <= seq))):
            break
        at = heap + 4 * i
        m[at] = m[up]
        m[at + 1] = m[up + 1]
        m[at + 2] = m[up + 2]
        m[at + 3] = m[up + 3]
        i = (i - 1) >> 1
    at = heap + 4 * i
    m[at] = tick
    m[at + 1] = reg
    m[at + 2] = seq
    m[at + 3] = what


def event_before(m: I64, a: int, b: int) -> bool:
    """Whether the event at cell a comes before the one at cell b."""
    if m[a] != m[b]:
        return bool(m[a] < m[b])
    if m[a + 1] != m[b + 1]:
        return bool(m[a + 1] < m[b + 1])
    return bool(m[a + 2] < m[b + 2])


def pop_event(m: I64, t: I64) -> int:
    """Remove the first event; its tick goes to SC_NOW, its description is returned."""
    scalars = t[ST_SCALARS]
    heap = t[ST_HEAP]
    n = m[scalars + SC_HEAP] - 1
    m[scalars + SC_HEAP] = n
    m[scalars + SC_NOW] = m[heap]
    what = m[heap + 3]
    last = heap + 4 * n
    i = 0
    while 2 * i + 1 < n:
        child = heap + 4 * (2 * i + 1)
        step = 1
        if 2 * i + 2 < n and event_before(m, child + 4, child):
            child += 4
            step = 2
        if event_before(m, last, child):
            break
        at = heap + 4 * i
        m[at] = m[child]
        m[at + 1] = m[child + 1]
        m[at + 2] = m[child + 2]
        m[at + 3] = m[child + 3]
        i = 2 * i + step
    at = heap + 4 * i
    m[at] = m[last]
    m[at + 1] = m[last + 1]
    m[at + 2] = m[last + 2]
    m[at + 3] = m[last + 3]
    return int(what)


def push_ready(ready: I64, base: int, n: int, node: int) -> None:
    """Insert `node` into the ready heap of `n` entries at `base` (least id first)."""
    i = n
    while i > 0:
        up = (i - 1) >> 1
        if ready[base + up] < node:
            break
        ready[base + i] = ready[base + up]
        i = up
    ready[base + i] = node


def pop_ready(ready: I64, base: int, n: int) -> int:
    """Remove the least node of the ready heap of `n` entries at `base`."""
    node = ready[base]
    last = ready[base + n - 1]
    m = n - 1
    i = 0
    while True:
        child = 2 * i + 1
        if child >= m:
            break
        if child + 1 < m and ready[base + child + 1] < ready[base + child]:
            child += 1
        if last < ready[base + child]:
            break
        ready[base + i] = ready[base + child]
        i = child
    ready[base + i] = last
    return int(node)


# --------------------------------------------------------------------------------------------------------------
# Workload layer


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


# --------------------------------------------------------------------------------------------------------------
# System layer: streams and queues


def choose_queue(m: I64, t: I64, a: int, dim: int, rule: int) -> int:
    """Next queue of a dimension by the rule's round robin; times two, plus one if anticlockwise (section 3.4)."""
    nq = t[RU_QUEUES]
    half = nq // 2
    cell = (a * t[RU_DIMS] + dim) * 3 + rule
    turn = m[t[ST_CURSOR] + cell]
    m[t[ST_CURSOR] + cell] = turn + 1
    if nq == 1:
        return (dim * nq) * 2 + (1 if rule == QUEUE_LAST else 0)
    if rule == QUEUE_ANY:
        q = turn % nq
        return (dim * nq + q) * 2 + (0 if q < half else 1)
    if rule == QUEUE_FIRST:
        return (dim * nq + turn % max(half, 1)) * 2
    return (dim * nq + half + turn % (nq - half)) * 2 + 1


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


def take_turns(m: I64, t: I64, plan: int, out: int) -> None:
    """Round robin over the dimensions: the order of the dimensions rotates by one with every chunk.

    `m[out:]` gets the number of chunks and the first phase of each.
    """
    dims = t[RU_DIMS]
    turn = m[t[ST_ORDERED] + dims + 1]
    chunks = m[t[PL_CHUNKS] + plan]
    m[out] = chunks
    for chunk in range(chunks):
        variant = m[t[PL_VARIANT] + m[t[PL_CHUNK_START] + plan] + chunk] + (turn + chunk) % dims
        m[out + 1 + chunk] = m[t[PL_VARIANT_PHASE] + variant]
    m[t[ST_ORDERED] + dims + 1] = turn + chunks


def balance(m: I64, t: I64, net: Net, plan: int, out: int) -> None:
    """Greedy schedule (Themis): each chunk starts with the least loaded dimension (section 7.2).

    `m[out:]` gets the number of chunks, the first phase of each, and the phases.
    """
    dims = t[RU_DIMS]
    order = t[ST_ORDERED]
    if m[order + dims] != m[t[ST_SCALARS] + SC_NOW]:
        m[order + dims] = m[t[ST_SCALARS] + SC_NOW]
        for k in range(dims):
            net.load[k] = 0.0
    template = m[t[PL_TEMPLATE] + plan]
    gather = m[t[PL_KIND] + plan] == DO_ALL_GATHER
    flex = m[t[PL_SCHEDULE] + plan] == SCHEDULE_FLEX
    variant0 = t[PL_VARIANT] + m[t[PL_CHUNK_START] + plan]
    left = m[t[PL_BYTES] + plan]
    row = out + 1 + m[t[PL_CHUNKS] + plan]
    chunk = 0
    while left > 0:
        wanted = m[m[t[PL_VARIANT_PHASE] + m[variant0 + chunk]] + PH_SIZE]
        for i in range(1, dims):
            dim = m[order + i]
            j = i
            while j > 0 and net.load[m[order + j - 1]] > net.load[dim]:
                m[order + j] = m[order + j - 1]
                j -= 1
            m[order + j] = dim
        if gather:
            reverse(m, order, dims)
        gap = load_gap(m, net, order, dims, template, gather)
        size = wanted
        natural = gap < wanted // 16
        if flex:
            natural = gap < wanted
            size = wanted if natural else gap
        size = min(size, left)
        left -= size
        if natural:
            for i in range(dims):
                m[order + i] = i
            if gather:
                reverse(m, order, dims)
        m[out + 1 + chunk] = row
        chunk += 1
        row = lay_phases(m, net, order, dims, template, m[t[PL_KIND] + plan], size, row)
    m[out] = chunk


def reverse(m: I64, first: int, n: int) -> None:
    """Turn n cells round."""
    for i in range(n // 2):
        m[first + i], m[first + n - 1 - i] = m[first + n - 1 - i], m[first + i]


def load_gap(m: I64, net: Net, order: int, dims: int, template: int, gather: bool) -> int:
    """Bytes of a chunk that would bring the least loaded dimension level with the most loaded one."""
    i = 0
    while m[template + 3 * m[order + i]] == 0:
        i += 1
    first = m[order + i]
    last = m[order + dims - 1]
    if not gather:
        n = m[template + 3 * first]
        return int(abs(net.load[last] - net.load[first]) * net.share[first] / ((n - 1) / n) * 1048576.0)
    z = dims - 1
    while m[template + 3 * m[order + z]] == 0:
        z -= 1
    last = m[order + z]
    n = m[template + 3 * last]
    gap = int(abs(net.load[last] - net.load[first]) * net.share[last] / (n - 1) * 1048576.0)
    for k in range(i, z):
        gap //= max(m[template + 3 * m[order + k]], 1)
    return gap


def lay_phases(m: I64, net: Net, order: int, dims: int, template: int, do: int, size: int, row: int) -> int:
    """Write the phases of a chunk in the order of the dimensions and add to their loads; returns the next free cell."""
    involved = 0
    for i in range(dims):
        if m[template + 3 * m[order + i]] > 0:
            involved += 1
    left = 2 * involved if do == DO_ALL_REDUCE else involved
    moved = size
    for i in range(dims):
        dim = m[order + i]
        n = m[template + 3 * dim]
        if n == 0:
            continue
        if do == DO_ALL_GATHER:
            net.load[dim] += moved / 1048576.0 * (n - 1) / net.share[dim]
            row = lay_phase(m, m[template + 3 * dim + 2], size, left, row)
            size *= n
            moved *= n
        else:
            net.load[dim] += moved / 1048576.0 * ((n - 1) / n) / net.share[dim]
            row = lay_phase(m, m[template + 3 * dim + 1], size, left, row)
            size = max(size // n, net.min_bytes)
            moved //= n
        left -= 1
    if do == DO_ALL_REDUCE:
        for i in range(dims - 1, -1, -1):
            dim = m[order + i]
            n = m[template + 3 * dim]
            if n > 0:
                row = lay_phase(m, m[template + 3 * dim + 2], size, left, row)
                size *= n
                left -= 1
    return row


def lay_phase(m: I64, template: int, size: int, left: int, row: int) -> int:
    """Write a phase of `size` bytes; returns the next free cell."""
    for k in range(PH_CELLS):
        m[row + k] = m[template + k]
    m[row + PH_SIZE] = size
    m[row + PH_LEFT] = left
    n = m[template + PH_SENT]  # a template's members
    if m[row + PH_DO] == DO_ALL_GATHER:
        m[row + PH_SENT] = size * (n - 1)
    else:
        m[row + PH_SENT] = size // n * (n - 1)
    return row + PH_CELLS


def phase_of(m: I64, t: I64, stream: int) -> int:
    """Cell of a stream's current phase."""
    return int(m[t[ST_ST_FIRST] + stream] + PH_CELLS * m[t[ST_ST_PHASE] + stream])


def goes_before(m: I64, t: I64, stream: int, other: int) -> bool:
    """Whether a stream is served before another one that already waits (section 7.3)."""
    f = phase_of(m, t, stream)
    h = phase_of(m, t, other)
    if t[RU_ORDER] == ORDER_SMALLEST_FIRST:
        return m[h + PH_SIZE] >= m[f + PH_SIZE]
    return m[h + PH_LEFT] >= m[f + PH_LEFT]


def rank_of(m: I64, t: I64, stream: int) -> int:
    """Priority of a stream's collective."""
    return int(m[t[ST_CTX_RANK] + stream // t[RU_MAX_CHUNKS]])


def enter_queue(m: I64, t: I64, a: int, stream: int) -> None:
    """Put a stream into the queue of its current phase, where the scheduling policy says (section 7.3)."""
    q = a * t[RU_DIMS] * t[RU_QUEUES] + (
        m[t[ST_ST_QUEUE] + stream * t[RU_MAX_PHASES] + m[t[ST_ST_PHASE] + stream]] >> 2
    )
    do = m[phase_of(m, t, stream) + PH_DO]
    mine = rank_of(m, t, stream)
    before = -1
    at = m[t[ST_Q_HEAD] + q]
    if t[RU_ORDER] == ORDER_FIFO or do in (DO_ALL_REDUCE, DO_ALL_TO_ALL):
        if at >= 0 and t[RU_ORDER] == ORDER_FIFO and rank_of(m, t, m[t[ST_Q_TAIL] + q]) >= mine:
            before = m[t[ST_Q_TAIL] + q]
            at = -1
        while at >= 0 and rank_of(m, t, at) >= mine:
            before = at
            at = m[t[ST_ST_NEXT] + at]
    elif t[RU_ORDER] == ORDER_RG:
        last = -1
        if at >= 0 and m[t[ST_Q_BUSY] + q] > 0:
            last = m[phase_of(m, t, at) + PH_DO]
            before = at
            at = m[t[ST_ST_NEXT] + at]
        while at >= 0:
            earlier = last
            last = m[phase_of(m, t, at) + PH_DO]
            alternate = (last == DO_REDUCE_SCATTER and earlier == DO_ALL_GATHER) or (
                last == DO_ALL_GATHER and earlier == DO_REDUCE_SCATTER
            )
            if not alternate and rank_of(m, t, at) <= mine:
                break
            before = at
            at = m[t[ST_ST_NEXT] + at]
    else:
        while at >= 0 and not goes_before(m, t, stream, at):
            before = at
            at = m[t[ST_ST_NEXT] + at]
    m[t[ST_ST_NEXT] + stream] = at
    if before < 0:
        m[t[ST_Q_HEAD] + q] = stream
    else:
        m[t[ST_ST_NEXT] + before] = stream
    if at < 0:
        m[t[ST_Q_TAIL] + q] = stream


def start_waiting(m: I64, t: I64, net: Net, a: int, queue: int) -> None:
    """Start waiting streams of a queue while it runs fewer than it may."""
    q = a * t[RU_DIMS] * t[RU_QUEUES] + queue
    while m[t[ST_Q_BUSY] + q] < t[RU_RUNNING] and m[t[ST_Q_HEAD] + q] >= 0:
        start_first(m, t, net, a, q)


def start_first(m: I64, t: I64, net: Net, a: int, q: int) -> None:
    """Start the first stream that waits in queue q (counted over all actors)."""
    stream = m[t[ST_Q_HEAD] + q]
    m[t[ST_Q_HEAD] + q] = m[t[ST_ST_NEXT] + stream]
    if m[t[ST_Q_HEAD] + q] < 0:
        m[t[ST_Q_TAIL] + q] = -1
    m[t[ST_Q_BUSY] + q] += 1
    start_phase(m, t, net, a, stream)


def relieve(m: I64, t: I64, net: Net) -> bool:
    """Everything waits: start the first waiting stream of each queue, one more than the queue runs (C13)."""
    started = False
    queues = t[RU_DIMS] * t[RU_QUEUES]
    for q in range(t[RU_ACTORS] * queues):
        if m[t[ST_Q_HEAD] + q] >= 0:
            start_first(m, t, net, q // queues, q)
            started = True
    return started


def start_phase(m: I64, t: I64, net: Net, a: int, stream: int) -> None:
    """A stream starts its current phase; the last member to start computes when everybody ends."""
    now = m[t[ST_SCALARS] + SC_NOW]
    ctx = stream // t[RU_MAX_CHUNKS]
    chunk = stream % t[RU_MAX_CHUNKS]
    inst = m[t[ST_CTX_INST] + ctx]
    plan = m[t[ST_INST_PLAN] + inst]
    k = m[t[ST_ST_PHASE] + stream]
    f = phase_of(m, t, stream)
    # an NPU's phases that end together do so in the order in which that NPU started them, whoever started last
    m[t[ST_ST_SEQ] + stream] = m[t[ST_SCALARS] + SC_SEQ]
    m[t[ST_SCALARS] + SC_SEQ] += 1
    group = m[t[ST_CTX_GROUP] + ctx]
    comm = m[t[AC_GROUP_COMM] + group]
    member = m[t[AC_GROUP_MEMBER] + group]
    members = m[t[CO_ACTORS] + comm]
    m[t[ST_DIM_BYTES] + a * t[RU_DIMS] + m[f + PH_DIM]] += m[f + PH_SENT]
    ring = m[t[CO_RING_OF] + m[t[CO_VIEW_RING] + m[t[CO_VIEW_START] + comm] + m[f + PH_VIEW]] + member]
    row = m[t[ST_INST_BLOCK] + inst] + (chunk * m[t[PL_PHASES] + plan] + k) * members
    m[t[ST_POOL] + row + member] = now
    count = row + m[t[PL_CHUNKS] + plan] * m[t[PL_PHASES] + plan] * members + m[t[CO_RING_INDEX] + ring]
    m[t[ST_POOL] + count] += 1
    if m[t[ST_POOL] + count] < m[t[CO_RING_ACTORS] + ring]:
        return
    anticlockwise = (m[t[ST_ST_QUEUE] + stream * t[RU_MAX_PHASES] + k] >> 1) & 1
    second_tree = m[t[ST_ST_QUEUE] + stream * t[RU_MAX_PHASES] + k] & 1
    if m[f + PH_TAU] == TAU_UNKNOWN:
        find_duration(m, t, net, f, ring)
    if m[t[CO_RING_ACTORS] + ring] == 1 and m[f + PH_TAU] >= 0:
        end = now + m[f + PH_TAU]
        push_in_order(
            m, t, end, end - m[f + PH_LAST], m[t[ST_ST_SEQ] + stream], EV_PHASE | a << 2 | stream << 32
        )
        return
    n = m[t[CO_RING_SIZE] + ring]
    pos0 = m[t[CO_RING_START] + ring]
    x = m[t[ST_SCRATCH] : t[ST_SCRATCH] + t[RU_SCRATCH]]
    equal = m[f + PH_TAU] >= 0
    for i in range(n):
        x[i] = m[t[ST_POOL] + row + m[t[CO_RING_ACTOR] + pos0 + i]]
        if x[i] != now:
            equal = False
    last = m[f + PH_LAST]
    if equal or m[f + PH_ALG] == ALG_NONE:
        for i in range(n):
            x[i] = now + m[f + PH_TAU]
    else:
        last = eval_phase(m, t, net, f, n, pos0, -1 if anticlockwise == 1 else 1, second_tree)
    # every actor of the ring has its own stream for this chunk; a position's actor may stand at several positions
    for i in range(n):
        x[i] = max(x[i], now)  # a root may be done before the last member starts; it leaves with it
        other = m[t[CO_RING_ACTOR] + pos0 + i]
        if m[t[ST_POOL] + row + other] < 0:
            continue
        m[t[ST_POOL] + row + other] = -1
        b = m[t[CO_MEMBER_ACTOR] + m[t[CO_MEMBER] + comm] + other]
        stream_b = stream_of(m, t, b, inst, chunk)
        push_in_order(
            m,
            t,
            x[i],
            max(x[i] - last, now),
            m[t[ST_ST_SEQ] + stream_b],
            EV_PHASE | b << 2 | stream_b << 32,
        )


def find_duration(m: I64, t: I64, net: Net, f: int, ring: int) -> None:
    """Fill in the duration of a phase that was made during the run."""
    same, size = m[f + PH_SAME], m[f + PH_SIZE]
    cell = t[ST_MEMO] + 4 * ((size * 7919 + same * 104729) % MEMO)
    if m[cell] != same or m[cell + 1] != size:
        scratch = m[t[ST_SCRATCH] : t[ST_SCRATCH] + t[RU_SCRATCH]]
        m[cell + 2] = equal_start_time(
            net,
            m[f + PH_ALG],
            m[f + PH_DO],
            m[t[CO_RING_SIZE] + ring],
            size,
            m[f + PH_ENDPOINT],
            m[f + PH_WINDOW],
            m[f + PH_CYCLE],
            m,
            t[CO_RING_NPU] + m[t[CO_RING_START] + ring],
            True,
            scratch,
            scratch[2:],
            m[t[ST_SCRATCH_HEAP] : t[ST_SCRATCH_HEAP] + t[RU_SCRATCH_HEAP]],
        )
        m[cell] = same
        m[cell + 1] = size
        m[cell + 3] = scratch[0]
    m[f + PH_TAU] = m[cell + 2]
    m[f + PH_LAST] = m[cell + 3]


def eval_phase(
    m: I64,
    t: I64,
    net: Net,
    f: int,
    n: int,
    pos0: int,
    step: int,
    second_tree: int,
) -> int:
    """Ends of a phase whose members did not start together, from and to the first n cells of State.scratch."""
    x = m[t[ST_SCRATCH] : t[ST_SCRATCH] + t[RU_SCRATCH]]
    work = x[n:]
    alg = m[f + PH_ALG]
    if alg == ALG_TREE:
        tree = m[f + PH_TABLE] + second_tree * 2 * n
        return eval_tree(
            net,
            n,
            m[f + PH_SIZE],
            m[f + PH_ENDPOINT],
            m,
            t[RU_TREES] + tree,
            m,
            t[CO_RING_NPU] + pos0,
            x,
            work,
        )
    if alg == ALG_STEPS:
        return eval_steps(
            net,
            n,
            m[f + PH_SIZE],
            m[f + PH_ENDPOINT],
            m,
            t[RU_TREES] + m[f + PH_TABLE],
            m[f + PH_CYCLE],
            m[f + PH_WINDOW],
            t[CO_RING_NPU] + pos0,
            x,
            work,
        )
    if alg == ALG_DIRECT and (m[f + PH_DO] == DO_ALL_REDUCE or m[f + PH_WINDOW] < n - 1):
        heap = m[t[ST_SCRATCH_HEAP] : t[ST_SCRATCH_HEAP] + t[RU_SCRATCH_HEAP]]
        return eval_credits(
            net,
            alg,
            m[f + PH_DO],
            n,
            m[f + PH_SIZE],
            m[f + PH_ENDPOINT],
            m[f + PH_WINDOW],
            m[f + PH_CYCLE],
            step,
            m,
            t[CO_RING_NPU] + pos0,
            n,
            x,
            work,
            heap,
        )
    if alg == ALG_DIRECT:
        return eval_direct_open(
            net,
            m[f + PH_DO],
            n,
            m[f + PH_SIZE],
            m[f + PH_ENDPOINT],
            m,
            t[CO_RING_NPU] + pos0,
            x,
            work,
        )
    return eval_chain(
        net,
        alg,
        m[f + PH_DO],
        n,
        m[f + PH_SIZE],
        m[f + PH_ENDPOINT],
        m[f + PH_CYCLE],
        step,
        m,
        t[CO_RING_NPU] + pos0,
        x,
        work,
    )


def stream_of(m: I64, t: I64, a: int, inst: int, chunk: int) -> int:
    """The stream in which actor a runs a chunk of a collective instance."""
    ctx = a * t[RU_CONTEXTS]
    while m[t[ST_CTX_INST] + ctx] != inst:
        ctx += 1
    return ctx * t[RU_MAX_CHUNKS] + chunk


def end_phase(m: I64, t: I64, net: Net, a: int, stream: int) -> int:
    """A stream's phase ends on an actor; the order of actions is section 3.4's. Returns a status."""
    ctx = stream // t[RU_MAX_CHUNKS]
    inst = m[t[ST_CTX_INST] + ctx]
    plan = m[t[ST_INST_PLAN] + inst]
    k = m[t[ST_ST_PHASE] + stream]
    queue = m[t[ST_ST_QUEUE] + stream * t[RU_MAX_PHASES] + k] >> 2
    last = m[phase_of(m, t, stream) + PH_LEFT] == 1
    if last:
        m[t[ST_CTX_LEFT] + ctx] -= 1
        if m[t[ST_CTX_LEFT] + ctx] == 0:
            node = m[t[ST_CTX_NODE] + ctx]
            m[t[ST_CTX_INST] + ctx] = -1
            m[t[ST_INST_ENDED] + inst] += 1
            if m[t[ST_INST_ENDED] + inst] == m[t[CO_ACTORS] + m[t[AC_GROUP_COMM] + m[t[ST_CTX_GROUP] + ctx]]]:
                m[t[ST_POOL] + m[t[ST_INST_BLOCK] + inst]] = m[t[ST_FREE] + plan]
                m[t[ST_FREE] + plan] = m[t[ST_INST_BLOCK] + inst]
            end_node(m, t, a, node, -1)
            status = issue_pass(m, t, net, a)
            if status != DONE:
                return status
    m[t[ST_Q_BUSY] + a * t[RU_DIMS] * t[RU_QUEUES] + queue] -= 1
    if not last:
        m[t[ST_ST_PHASE] + stream] = k + 1
        enter_queue(m, t, a, stream)
    start_waiting(m, t, net, a, queue)
    if not last:
        start_waiting(m, t, net, a, m[t[ST_ST_QUEUE] + stream * t[RU_MAX_PHASES] + k + 1] >> 2)
    return DONE


# --------------------------------------------------------------------------------------------------------------
# The loop


def run(
    m: I64,
    t: I64,
    net: Net,
    reserve: int,
    budget: int,
) -> int:
    """Run at most `budget` events; `reserve` is the room in the pool that one event may need. Returns a status."""
    sc = m[t[ST_SCALARS] : t[ST_SCALARS] + SC_SIZE]
    while sc[SC_STARTED] < t[RU_ACTORS]:
        if len(m) - t[ST_POOL] - sc[SC_BUMP] < reserve:
            return GROW_POOL
        a = sc[SC_STARTED]
        sc[SC_STARTED] = a + 1
        p = m[t[AC_PROGRAM] + a]
        for node in range(m[t[PR_START] + p + 1] - m[t[PR_START] + p]):
            if m[t[ST_LEFT] + m[t[AC_NODE] + a] + node] == 0:
                make_ready(m, t, a, node)
        status = issue_pass(m, t, net, a)
        if status != DONE:
            return status
    while True:
        if sc[SC_HEAP] == 0:
            if not (t[RU_RELIEVE] and relieve(m, t, net)):
                break
            sc[SC_RELIEVED] += 1
            continue
        if budget <= 0:
            return PAUSED
        if len(m) - t[ST_POOL] - sc[SC_BUMP] < reserve:
            return GROW_POOL
        budget -= 1
        sc[SC_EVENTS] += 1
        what = pop_event(
            m,
            t,
        )
        kind = what & 3
        a = (what >> 2) & 0x3FFFFFFF
        arg = what >> 32
        if kind == EV_PHASE:
            status = end_phase(m, t, net, a, arg)
            if status != DONE:
                return status
            continue
        if kind == EV_NODE:
            end_node(m, t, a, arg, -1)
        else:
            cell = m[t[CO_CHAN_START] + a] + arg
            m[t[ST_ARRIVED] + cell] = sc[SC_NOW]
            channel = a
            a = m[t[CO_CHAN_SRC] + channel]
            end_node(m, t, a, m[t[ST_SENT_NODE] + cell], -1)
            if m[t[ST_POSTED] + cell] >= 0:
                status = issue_pass(m, t, net, a)
                if status != DONE:
                    return status
                a = m[t[CO_CHAN_DST] + channel]
                node = m[t[ST_POSTED_NODE] + cell]
                m[
                    t[ST_COMM_READY]
                    + m[t[AC_COMM] + a]
                    + m[t[PR_COMM] + m[t[PR_START] + m[t[AC_PROGRAM] + a]] + node]
                ] = m[t[ST_SENT] + cell]
                end_node(m, t, a, node, -1)
        status = issue_pass(m, t, net, a)
        if status != DONE:
            return status
    return DONE
