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

from typing import NamedTuple

from chakra.arrays import F64, I32, I64

# What a node does when it is issued.
OP_TIMER = 0  # ends after its duration
OP_ZERO = 1  # ends inside the issue pass
OP_COLLECTIVE = 2
OP_SEND = 3
OP_RECV = 4
OP_SERVER = 5  # waits for a FIFO server (pooled remote memory), then its duration

# Algorithms of a phase.
ALG_NONE = 0  # a barrier: ends when the last member starts
ALG_RING = 1
ALG_DIRECT = 2
ALG_HALVING_DOUBLING = 3
ALG_TREE = 4

# What a phase does to the data.
DO_ALL_REDUCE = 0
DO_REDUCE_SCATTER = 1
DO_ALL_GATHER = 2
DO_ALL_TO_ALL = 3

# Which of a dimension's queues a phase may use (replay semantics, section 3.4).
QUEUE_ANY = 0
QUEUE_FIRST = 1
QUEUE_LAST = 2

# Where a stream is inserted among those waiting (replay semantics, section 7.3).
ORDER_FIFO = 0
ORDER_SMALLEST_FIRST = 1
ORDER_LESS_REMAINING = 2

EV_NODE = 0
EV_PHASE = 1
EV_ARRIVAL = 2

# Why `run` returned.
DONE = 0
PAUSED = 1
GROW_POOL = 2
MISMATCH = 3

# Cells of State.scalars.
SC_NOW = 0
SC_SEQ = 1
SC_HEAP = 2  # events in the heap
SC_BUMP = 3  # first never-used cell of the pool
SC_EVENTS = 4
SC_STARTED = 5  # the passes at tick 0 have run
SC_NODES_DONE = 6
SC_ERR_ACTOR = 7
SC_ERR_NODE = 8
SC_ERR_INSTANCE = 9
SC_SIZE = 16

TOPO_RING = 0
TOPO_SWITCH = 1
TOPO_FULL = 2

CONTROL_BYTES = 8192  # of a rendezvous request


class Program(NamedTuple):
    """Distinct traces, one after the other; nodes in ascending id. `start[p]` is program p's first node."""

    start: I64
    op: I64
    slot: I64  # slot of the node within its program; -1 never
    dur: I64
    child_start: I64  # (nodes + 1,) into child
    child: I32  # index within the program
    comm: I64  # index of a communication node among those of its program, -1 for others
    call: I64  # collectives: index of the call description within the program; p2p: index within the program
    slot_start: I64  # (programs + 1,) first slot of each program
    slot_cap: I64  # nodes that a slot runs at once
    heap_start: I64  # per slot: first cell of its ready heap, relative to the actor's nodes


class Actors(NamedTuple):
    """One entry per actor, and tables that start there."""

    program: I64
    node: I64  # first cell in State.left, State.issue, ...
    slot: I64  # first cell in State.busy, State.ready
    comm: I64  # first cell in State.comm_ready, State.comm_instance
    call: I64  # first cell in call_plan, call_group (one per call of the program)
    p2p: I64  # first cell in channel (one per p2p node of the program)
    group: I64  # first cell in member tables (one per group name used by the program)
    call_plan: I64
    call_group: I64  # which of the actor's groups the call uses
    group_comm: I64  # communicator of the actor's group
    group_member: I64  # the actor's index among the communicator's actors
    channel: I64
    server: I64  # FIFO server of the actor's memory accesses


class Comms(NamedTuple):
    """Communicators, their views (logical rings) and the channels of point-to-point messages."""

    actors: I64  # distinct actors of each communicator
    instance: I64  # first collective instance of each communicator
    view: I64  # first view of each communicator
    view_ring: I64  # per view: first cell in ring_of (one per actor of the communicator)
    ring_of: I64  # ring of an actor in a view (global ring number)
    ring_start: I64  # per ring: first cell in ring_actor / ring_npu
    ring_size: I64  # positions
    ring_actors: I64  # distinct actors
    ring_index: I64  # index of the ring within its view, counted in the communicator's counters
    ring_actor: I64  # per position: index among the communicator's actors
    ring_npu: I64  # per position: NPU number
    member: I64  # per communicator: first cell in member_actor
    member_actor: I64  # actor number
    chan_src: I64
    chan_dst: I64
    chan_delay: I64
    chan_back: I64  # delay of a rendezvous request, -1: eager
    chan_start: I64  # first cell in State.sent, State.posted


class Plans(NamedTuple):
    """How collectives are cut: plan -> chunks -> variant -> phases."""

    chunks: I64
    phases: I64  # phases of every variant of the plan (the largest)
    chunk_start: I64  # first cell in variant
    variant: I64  # variant of each chunk
    variant_phase: I64  # per variant: first phase
    variant_phases: I64
    view: I64  # per phase: view of the communicator
    dim: I64  # whose queues are used
    rule: I64
    alg: I64
    do: I64
    size: I64  # d, bytes entering the phase
    window: I64
    cycle: I64  # Z
    endpoint: I64  # e
    tau: I64  # duration when all members start together and the ring looks alike from each; -1: not so
    last: I64  # length of the final timer in that case
    tree_start: I64  # trees: first cell of the parent table for tree X; tree Y follows after ring size
    kind: I64  # collective kind, for the alternation of trees
    sent: I64  # bytes that each member sends


class Net(NamedTuple):
    """The network, for delays between two NPUs."""

    topo: I64
    size: I64
    lat: F64
    rate: F64  # bytes per ns
    sum_dims: bool  # charge every dimension in which the ends differ, not only the lowest
    min_bytes: int  # least size of a collective's message
    reduce_rate: float  # local memory bandwidth in bytes per s, 0: reductions are free
    rendezvous: bool


class Rules(NamedTuple):
    """Switches of the workload and system layers."""

    dims: int
    queues: int  # per dimension
    running: int  # streams that a queue runs at once
    contexts: int  # collectives in flight per actor
    max_chunks: int
    max_phases: int
    kinds: int
    repeat_pass: bool  # children of zero-time nodes are issued at once
    order: int
    trees: I64  # parent tables (see Plans.tree_start)


class State(NamedTuple):
    """Everything that changes; with it `run` can be left and entered again."""

    scalars: I64
    left: I32  # unfinished parents per actor and node
    issue: I64
    finish: I64
    heap_time: I64
    heap_reg: I64
    heap_seq: I64
    heap_what: I64  # type, actor, argument
    ready: I32  # ready heaps
    ready_n: I64
    busy: I64
    running: I64  # nodes in flight per actor
    done: I64  # finish time per actor, -1
    deferred: I32
    order: I32  # nodes in issue order
    order_n: I64
    group_count: I64  # collectives issued per actor and group
    comm_ready: I64  # when the last member, or the sender, had issued
    comm_instance: I64
    inst_plan: I64
    inst_block: I64
    inst_issued: I64
    inst_ended: I64
    inst_ready: I64
    pool: I64
    free: I64  # per plan: head of the list of free blocks
    ctx_inst: I64
    ctx_node: I64
    ctx_group: I64
    ctx_left: I64  # streams not yet ended
    st_phase: I64  # per actor, context, chunk: current phase
    st_next: I64  # next stream waiting in the same queue
    st_queue: I64  # per stream and phase: queue * 4 + anticlockwise * 2 + second tree
    q_head: I64
    q_tail: I64
    q_busy: I64
    cursor: I64  # per actor, dimension, rule
    tree_count: I64  # per actor, kind, dimension
    sent: I64  # per channel and ordinal: -1, or the tick of the send
    sent_node: I64
    arrived: I64
    posted: I64
    posted_node: I64
    sent_n: I64
    posted_n: I64
    server_free: I64
    dim_bytes: I64  # per actor and dimension
    scratch: I64  # for phases that are evaluated member by member
    scratch_heap: I64


# --------------------------------------------------------------------------------------------------------------
# Heaps


def push_event(st: State, tick: int, reg: int, what: int) -> None:
    """Insert an event at `tick`, registered at `reg`."""
    n = st.scalars[SC_HEAP]
    st.scalars[SC_HEAP] = n + 1
    seq = st.scalars[SC_SEQ]
    st.scalars[SC_SEQ] = seq + 1
    time, regs, seqs, whats = st.heap_time, st.heap_reg, st.heap_seq, st.heap_what
    i = n
    while i > 0:
        up = (i - 1) >> 1
        t = time[up]
        if t < tick or (t == tick and regs[up] <= reg):
            break
        time[i] = t
        regs[i] = regs[up]
        seqs[i] = seqs[up]
        whats[i] = whats[up]
        i = up
    time[i] = tick
    regs[i] = reg
    seqs[i] = seq
    whats[i] = what


def pop_event(st: State) -> int:
    """Remove the first event; its tick goes to SC_NOW, its description is returned."""
    time, regs, seqs, whats = st.heap_time, st.heap_reg, st.heap_seq, st.heap_what
    n = st.scalars[SC_HEAP] - 1
    st.scalars[SC_HEAP] = n
    st.scalars[SC_NOW] = time[0]
    what = whats[0]
    t, r, s, w = time[n], regs[n], seqs[n], whats[n]
    i = 0
    while True:
        child = 2 * i + 1
        if child >= n:
            break
        right = child + 1
        if right < n and (
            time[right] < time[child]
            or (
                time[right] == time[child]
                and (
                    regs[right] < regs[child] or (regs[right] == regs[child] and seqs[right] < seqs[child])
                )
            )
        ):
            child = right
        if t < time[child] or (
            t == time[child] and (r < regs[child] or (r == regs[child] and s < seqs[child]))
        ):
            break
        time[i] = time[child]
        regs[i] = regs[child]
        seqs[i] = seqs[child]
        whats[i] = whats[child]
        i = child
    time[i] = t
    regs[i] = r
    seqs[i] = s
    whats[i] = w
    return what


def push_ready(ready: I32, base: int, n: int, node: int) -> None:
    """Insert `node` into the ready heap of `n` entries at `base` (least id first)."""
    i = n
    while i > 0:
        up = (i - 1) >> 1
        if ready[base + up] < node:
            break
        ready[base + i] = ready[base + up]
        i = up
    ready[base + i] = node


def pop_ready(ready: I32, base: int, n: int) -> int:
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
# Network


def dim_hops(topo: int, size: int, a: int, b: int) -> int:
    """Hops between positions a and b of one dimension."""
    if topo == TOPO_SWITCH:
        return 2
    if topo == TOPO_FULL:
        return 1
    forward = (b - a) % size
    return min(forward, size - forward)


def delay(net: Net, src: int, dst: int, size: int) -> int:
    """Delay in ns of a message of `size` bytes (replay semantics, section 5.3; correction C5)."""
    total = 0
    for k in range(len(net.size)):
        n = net.size[k]
        a = src % n
        b = dst % n
        if a != b:
            total += int(dim_hops(net.topo[k], n, a, b) * net.lat[k] + size / net.rate[k])
            if not net.sum_dims:
                return total
        src //= n
        dst //= n
    return total


# --------------------------------------------------------------------------------------------------------------
# Algorithms: which packets there are (replay semantics, section 4.2)


def log2_floor(n: int) -> int:
    """Exponent of the greatest power of two that is not above n."""
    e = 0
    while (n >> (e + 1)) > 0:
        e += 1
    return e


def packet_count(alg: int, do: int, n: int) -> int:
    """Messages that each member sends in a phase."""
    if alg == ALG_HALVING_DOUBLING:
        levels = log2_floor(n)
        return 2 * levels if do == DO_ALL_REDUCE else levels
    if do == DO_ALL_REDUCE:
        return 2 * (n - 1)
    if alg == ALG_RING and do == DO_ALL_TO_ALL:
        return n * (n - 1) // 2
    return n - 1


def packet_bytes(alg: int, do: int, n: int, d: int, p: int, least: int) -> int:
    """Size of packet p, also of those past the last one."""
    if alg == ALG_HALVING_DOUBLING:
        levels = log2_floor(n)
        if do == DO_ALL_GATHER:
            size = d << p
        elif do == DO_ALL_REDUCE and p >= levels:
            size = (2 * (d >> (levels + 1))) << (p - levels)
        else:
            size = d >> (p + 1)
    elif do == DO_ALL_GATHER:
        size = d
    else:
        size = d // n
    return max(size, least)


def packet_partner(alg: int, do: int, n: int, p: int, i: int, step: int) -> int:
    """Position that member i sends packet p to; `step` is the direction, +1 or -1. Sources mirror destinations."""
    if alg == ALG_RING:
        return (i + step) % n
    if alg == ALG_DIRECT:
        return (i + (1 + p % (n - 1)) * step) % n
    levels = log2_floor(n)
    up = do == DO_REDUCE_SCATTER or (do == DO_ALL_REDUCE and p < levels)
    return i ^ (1 << (p % levels) if up else 1 << (levels - 1 - p % levels))


def packet_source(alg: int, do: int, n: int, p: int, i: int, step: int) -> int:
    """Position from which member i receives packet p."""
    if alg == ALG_HALVING_DOUBLING:
        return packet_partner(alg, do, n, p, i, step)
    return packet_partner(alg, do, n, p, i, -step)


def packet_reduces(do: int, p: int, window: int, cycle: int) -> bool:
    """Whether a reduction follows the endpoint delay of packet p (section 4.1)."""
    if p % (window + cycle) < window:
        return False
    return do == DO_REDUCE_SCATTER or (do == DO_ALL_REDUCE and (p // (window + cycle)) % 2 == 0)


def reduction(net: Net, size: int) -> int:
    """Time to reduce `size` bytes: three accesses to local memory."""
    if net.reduce_rate <= 0.0:
        return 0
    return 3 * int(size / net.reduce_rate * 1000000000.0)


# --------------------------------------------------------------------------------------------------------------
# Phases, evaluated when all starts are known. `starts[base + i]` is member i's start; ends go to `ends[base + i]` and the
# length of each member's final timer to `ends[base + n + i]`. A phase of one member (all others alike) has span 1.


def eval_chain(
    net: Net, alg: int, do: int, n: int, d: int, e: int, cycle: int, step: int, npu: I64, npu0: int, x: I64, y: I64
) -> int:
    """Ring and halving-doubling: one packet at a time, so a recurrence over packets.

    `x` holds the starts in its first n cells and the ends afterwards; `y` is scratch. Returns the last timer.
    """
    packets = packet_count(alg, do, n)
    least = net.min_bytes
    for i in range(n):
        x[i] += e
    last = e
    for k in range(packets):
        size = packet_bytes(alg, do, n, d, k, least)
        r = 0
        if packet_reduces(do, k + 1, 1, cycle):
            r = reduction(net, packet_bytes(alg, do, n, d, k + 1, least))
        last = r if r > 0 else e
        for i in range(n):
            j = packet_source(alg, do, n, k, i, step)
            sent = x[j]
            if net.rendezvous:
                sent = max(sent, x[i] + delay(net, npu[npu0 + i], npu[npu0 + j], CONTROL_BYTES))
            came = sent + delay(net, npu[npu0 + j], npu[npu0 + i], size)
            y[i] = max(came, x[i]) + e + r
        for i in range(n):
            x[i] = y[i]
    return last


def eval_direct_open(
    net: Net, do: int, n: int, d: int, e: int, npu: I64, npu0: int, x: I64, y: I64
) -> int:
    """Direct with an unlimited window, anything but all-reduce: everybody sends at once, ends with the last arrival."""
    size = packet_bytes(ALG_DIRECT, do, n, d, 0, net.min_bytes)
    r = reduction(net, size) if do == DO_REDUCE_SCATTER else 0
    for i in range(n):
        x[i] += e
    for i in range(n):
        latest = x[i]
        for j in range(n):
            if j != i:
                sent = x[j]
                if net.rendezvous:
                    sent = max(sent, x[i] + delay(net, npu[npu0 + i], npu[npu0 + j], CONTROL_BYTES))
                latest = max(latest, sent + delay(net, npu[npu0 + j], npu[npu0 + i], size))
        y[i] = latest + e + r
    for i in range(n):
        x[i] = y[i]
    return r if r > 0 else e


def receipt(net: Net, src: int, dst: int, size: int, sent: int, posted: int) -> int:
    """Instant at which a message that was sent and whose receive was posted is received (section 5.2)."""
    if net.rendezvous:
        return max(sent, posted + delay(net, dst, src, CONTROL_BYTES)) + delay(net, src, dst, size)
    return max(sent + delay(net, src, dst, size), posted)


def credit_push(heap: I64, n: int, key: int, what: int) -> None:
    """Insert (key, what) into a heap of pairs with n entries."""
    i = n
    while i > 0:
        up = (i - 1) >> 1
        if heap[2 * up] < key or (heap[2 * up] == key and heap[2 * up + 1] <= what):
            break
        heap[2 * i] = heap[2 * up]
        heap[2 * i + 1] = heap[2 * up + 1]
        i = up
    heap[2 * i] = key
    heap[2 * i + 1] = what


def credit_pop(heap: I64, n: int) -> None:
    """Drop the first of n pairs; the caller has read it."""
    m = n - 1
    key, what = heap[2 * m], heap[2 * m + 1]
    i = 0
    while True:
        child = 2 * i + 1
        if child >= m:
            break
        right = child + 1
        if right < m and (
            heap[2 * right] < heap[2 * child]
            or (heap[2 * right] == heap[2 * child] and heap[2 * right + 1] < heap[2 * child + 1])
        ):
            child = right
        if key < heap[2 * child] or (key == heap[2 * child] and what < heap[2 * child + 1]):
            break
        heap[2 * i] = heap[2 * child]
        heap[2 * i + 1] = heap[2 * child + 1]
        i = child
    heap[2 * i] = key
    heap[2 * i + 1] = what


def eval_credits(
    net: Net,
    alg: int,
    do: int,
    n: int,
    d: int,
    e: int,
    window: int,
    cycle: int,
    step: int,
    npu: I64,
    npu0: int,
    span: int,
    x: I64,
    work: I64,
    heap: I64,
) -> int:
    """The credit machine in time order (section 4.1), for any family: members are real (span n) or all alike (span 1).

    `work` needs 5 * span + span * packets cells, `heap` twice span * (2 * window + 2 * packets + 2).
    Ends replace the starts in `x`. Returns the length of the final timer.
    """
    packets = packet_count(alg, do, n)
    least = net.min_bytes
    hold = alg == ALG_DIRECT and do == DO_ALL_REDUCE
    armed, sent, spare, got, total = 0, span, 2 * span, 3 * span, 4 * span
    instant = 5 * span  # when a member sent packet p; it posts the receive of its own packet p then, too
    for i in range(instant + span * packets):
        work[i] = 0 if i < instant else -1
    n_heap = 0
    for i in range(span):
        for p in range(window):
            wait = e
            if packet_reduces(do, p, window, cycle):
                wait += reduction(net, packet_bytes(alg, do, n, d, p, least))
            credit_push(heap, n_heap, x[i] + wait, span + i)
            n_heap += 1
        work[armed + i] = window
        x[i] = -1
    while n_heap > 0:
        now = heap[0]
        what = heap[1]
        credit_pop(heap, n_heap)
        n_heap -= 1
        if what < span:  # a message is received: arm the next packet
            i = what
            work[got + i] += 1
            p = work[armed + i]
            work[armed + i] = p + 1
            wait = e
            if packet_reduces(do, p, window, cycle):
                wait += reduction(net, packet_bytes(alg, do, n, d, p, least))
            credit_push(heap, n_heap, now + wait, span + i)
            n_heap += 1
            continue
        i = what - span
        work[spare + i] += 1
        work[total + i] += 1
        burst = 1
        if hold and work[sent + i] >= n - 1:
            burst = window if work[got + i] >= n - 1 else 0
        while burst > 0 and work[spare + i] > 0 and work[sent + i] < min(packets, work[armed + i]):
            burst -= 1
            p = work[sent + i]
            work[sent + i] = p + 1
            work[spare + i] -= 1
            work[instant + i * packets + p] = now
            size = packet_bytes(alg, do, n, d, p, least)
            to = packet_partner(alg, do, n, p, i, step)
            a = to if span > 1 else 0
            other = work[instant + a * packets + p]
            if other >= 0:  # the receiver has posted: the message i -> to is complete
                credit_push(heap, n_heap, receipt(net, npu[npu0 + i], npu[npu0 + to], size, now, other), a)
                n_heap += 1
            source = packet_source(alg, do, n, p, i, step)
            if span > 1:
                other = work[instant + source * packets + p]
                if other >= 0:  # the sender has sent: the message source -> i is complete
                    credit_push(heap, n_heap, receipt(net, npu[npu0 + source], npu[npu0 + i], size, other, now), i)
                    n_heap += 1
        if work[total + i] == packets + window:
            x[i] = now
    if packet_reduces(do, packets + window - 1, window, cycle):
        r = reduction(net, packet_bytes(alg, do, n, d, packets + window - 1, least))
        if r > 0:
            return r
    return e


def eval_tree(
    net: Net, n: int, d: int, e: int, trees: I64, tree0: int, npu: I64, npu0: int, x: I64, work: I64
) -> int:
    """Double binary tree: an all-reduce of d bytes up and down one tree (section 4.3).

    `trees[tree0 + i]` is the parent of position i, -1 for the root; `trees[tree0 + n + k]` lists positions so that
    children come before parents. `x`: starts, then ends. `work`: 2n cells.
    """
    r = reduction(net, d)
    up, have = 0, n
    for i in range(n):
        work[up + i] = x[i]
        work[have + i] = 0
    for k in range(n):
        i = trees[tree0 + n + k]
        parent = trees[tree0 + i]
        if parent < 0:
            continue
        # a leaf sends after the endpoint delay, an inner position after its second child, the delay and a reduction
        ready = work[up + i] + e + (r if work[have + i] > 0 else 0)
        work[up + i] = ready
        sent = ready
        if net.rendezvous:
            sent = max(sent, x[parent] + delay(net, npu[npu0 + parent], npu[npu0 + i], CONTROL_BYTES))
        work[up + parent] = max(work[up + parent], sent + delay(net, npu[npu0 + i], npu[npu0 + parent], d))
        work[have + parent] += 1
    for k in range(n - 1, -1, -1):
        i = trees[tree0 + n + k]
        parent = trees[tree0 + i]
        if parent < 0:
            x[i] = work[up + i] + e + r
            continue
        sent = x[parent]  # the parent sends down when it ends
        if net.rendezvous:
            sent = max(sent, work[up + i] + delay(net, npu[npu0 + i], npu[npu0 + parent], CONTROL_BYTES))
        came = max(sent + delay(net, npu[npu0 + parent], npu[npu0 + i], d), work[up + i])
        x[i] = came + e + (r if work[have + i] > 0 else 0)
    return r if r > 0 else e


def equal_start_time(
    net: Net,
    alg: int,
    do: int,
    n: int,
    d: int,
    e: int,
    window: int,
    cycle: int,
    npu: I64,
    npu0: int,
    plain: bool,
    out: I64,
    work: I64,
    heap: I64,
) -> int:
    """Duration of a phase whose members start together on a ring that looks alike from each member.

    Ring and open direct have closed forms, the others follow one member (sections 4.7 and 9). `plain` says that the
    ring lies in one dimension, so the longest way is the one to the opposite member. The length of the final timer
    goes to out[0].
    """
    least = net.min_bytes
    if alg == ALG_NONE:
        out[0] = 0
        return 0
    if alg == ALG_RING and not net.rendezvous:
        size = packet_bytes(alg, do, n, d, 0, least)
        step = delay(net, npu[npu0], npu[npu0 + 1], size) + e
        r = reduction(net, size)
        packets = packet_count(alg, do, n)
        reductions = n - 1 if do == DO_ALL_REDUCE or do == DO_REDUCE_SCATTER else 0
        out[0] = r if do == DO_REDUCE_SCATTER and r > 0 else e
        return e + packets * step + reductions * r
    if alg == ALG_DIRECT and do != DO_ALL_REDUCE and window == n - 1:
        size = packet_bytes(alg, do, n, d, 0, least)
        r = reduction(net, size) if do == DO_REDUCE_SCATTER else 0
        longest = 0
        for k in range(n // 2 if plain else 1, n // 2 + 1 if plain else n):
            there = delay(net, npu[npu0], npu[npu0 + k], size)
            if net.rendezvous:
                there += delay(net, npu[npu0 + k], npu[npu0], CONTROL_BYTES)
            longest = max(longest, there)
        out[0] = r if r > 0 else e
        return e + longest + e + r
    out[1] = 0
    out[0] = eval_credits(net, alg, do, n, d, e, window, cycle, 1, npu, npu0, 1, out[1:2], work, heap)
    return out[1]


# --------------------------------------------------------------------------------------------------------------
# Workload layer


def make_ready(pr: Program, ac: Actors, st: State, a: int, node: int) -> None:
    """All parents of a node have ended: put it where its slot looks for work."""
    p = ac.program[a]
    s = pr.slot[pr.start[p] + node]
    cell = ac.slot[a] + s
    base = ac.node[a] + pr.heap_start[pr.slot_start[p] + s]
    push_ready(st.ready, base, st.ready_n[cell], node)
    st.ready_n[cell] += 1


def end_node(pr: Program, ac: Actors, st: State, a: int, node: int, deferred: int) -> int:
    """A node ends now. Its children become ready, or are kept in `deferred` (count given and returned; -1: not kept)."""
    now = st.scalars[SC_NOW]
    p = ac.program[a]
    g = pr.start[p] + node
    st.finish[ac.node[a] + node] = now
    st.busy[ac.slot[a] + pr.slot[g]] -= 1
    st.running[a] -= 1
    st.scalars[SC_NODES_DONE] += 1
    left0 = ac.node[a]
    for k in range(pr.child_start[g], pr.child_start[g + 1]):
        c = pr.child[k]
        rest = st.left[left0 + c] - 1
        st.left[left0 + c] = rest
        if rest == 0:
            if deferred >= 0:
                st.deferred[deferred] = c
                deferred += 1
            else:
                make_ready(pr, ac, st, a, c)
    return deferred


def issue_pass(
    pr: Program, ac: Actors, co: Comms, pl: Plans, net: Net, ru: Rules, st: State, a: int
) -> int:
    """Issue ready nodes in ascending id while their slots are free (section 2.1). Returns a status."""
    p = ac.program[a]
    first_slot = pr.slot_start[p]
    slots = pr.slot_start[p + 1] - first_slot
    now = st.scalars[SC_NOW]
    while True:
        deferred = 0
        while True:
            best = -1
            best_slot = -1
            for s in range(slots):
                cell = ac.slot[a] + s
                if st.ready_n[cell] > 0 and st.busy[cell] < pr.slot_cap[first_slot + s]:
                    top = st.ready[ac.node[a] + pr.heap_start[first_slot + s]]
                    if best < 0 or top < best:
                        best = top
                        best_slot = s
            if best < 0:
                break
            cell = ac.slot[a] + best_slot
            node = pop_ready(st.ready, ac.node[a] + pr.heap_start[first_slot + best_slot], st.ready_n[cell])
            st.ready_n[cell] -= 1
            st.busy[cell] += 1
            st.running[a] += 1
            st.issue[ac.node[a] + node] = now
            st.order[ac.node[a] + st.order_n[a]] = node
            st.order_n[a] += 1
            g = pr.start[p] + node
            op = pr.op[g]
            if op == OP_TIMER:
                push_event(st, now + pr.dur[g], now, EV_NODE | a << 2 | node << 32)
            elif op == OP_ZERO:
                deferred = end_node(pr, ac, st, a, node, deferred)
            elif op == OP_COLLECTIVE:
                status = issue_collective(pr, ac, co, pl, net, ru, st, a, node)
                if status != DONE:
                    return status
            elif op == OP_SEND:
                issue_send(pr, ac, co, st, a, node)
            elif op == OP_RECV:
                issue_recv(pr, ac, co, st, a, node)
            else:
                server = ac.server[a]
                begin = max(now, st.server_free[server])
                st.server_free[server] = begin + pr.dur[g]
                push_event(st, begin + pr.dur[g], now, EV_NODE | a << 2 | node << 32)
        for k in range(deferred):
            make_ready(pr, ac, st, a, st.deferred[k])
        if deferred == 0 or not ru.repeat_pass:
            break
    if st.running[a] == 0 and st.done[a] < 0:
        idle = True
        for s in range(slots):
            if st.ready_n[ac.slot[a] + s] > 0:
                idle = False
        if idle:
            st.done[a] = now
    return DONE


def issue_send(pr: Program, ac: Actors, co: Comms, st: State, a: int, node: int) -> None:
    """A send leaves at once (eager) or when the receiver has asked for it (rendezvous)."""
    now = st.scalars[SC_NOW]
    g = pr.start[ac.program[a]] + node
    ch = ac.channel[ac.p2p[a] + pr.call[g]]
    j = st.sent_n[ch]
    st.sent_n[ch] = j + 1
    cell = co.chan_start[ch] + j
    st.sent[cell] = now
    st.sent_node[cell] = node
    st.comm_ready[ac.comm[a] + pr.comm[g]] = now
    if co.chan_back[ch] < 0:
        push_event(st, now + co.chan_delay[ch], now, EV_ARRIVAL | ch << 2 | j << 32)
    elif st.posted[cell] >= 0:
        leave = max(now, st.posted[cell] + co.chan_back[ch])
        push_event(st, leave + co.chan_delay[ch], leave, EV_ARRIVAL | ch << 2 | j << 32)


def issue_recv(pr: Program, ac: Actors, co: Comms, st: State, a: int, node: int) -> None:
    """A receive is posted; it ends with the arrival, or now if the message is already here."""
    now = st.scalars[SC_NOW]
    g = pr.start[ac.program[a]] + node
    ch = ac.channel[ac.p2p[a] + pr.call[g]]
    j = st.posted_n[ch]
    st.posted_n[ch] = j + 1
    cell = co.chan_start[ch] + j
    st.posted[cell] = now
    st.posted_node[cell] = node
    if st.arrived[cell] >= 0:
        st.comm_ready[ac.comm[a] + pr.comm[g]] = st.sent[cell]
        push_event(st, now, now, EV_NODE | a << 2 | node << 32)
    elif co.chan_back[ch] >= 0 and st.sent[cell] >= 0:
        leave = max(st.sent[cell], now + co.chan_back[ch])
        push_event(st, leave + co.chan_delay[ch], leave, EV_ARRIVAL | ch << 2 | j << 32)


# --------------------------------------------------------------------------------------------------------------
# System layer: streams and queues


def choose_queue(ru: Rules, st: State, a: int, dim: int, rule: int) -> int:
    """Next queue of a dimension by the rule's round robin; times two, plus one if anticlockwise (section 3.4)."""
    nq = ru.queues
    half = nq // 2
    cell = (a * ru.dims + dim) * 3 + rule
    turn = st.cursor[cell]
    st.cursor[cell] = turn + 1
    if nq == 1:
        return (dim * nq) * 2 + (1 if rule == QUEUE_LAST else 0)
    if rule == QUEUE_ANY:
        q = turn % nq
        return (dim * nq + q) * 2 + (0 if q < half else 1)
    if rule == QUEUE_FIRST:
        return (dim * nq + turn % max(half, 1)) * 2
    return (dim * nq + half + turn % (nq - half)) * 2 + 1


def issue_collective(
    pr: Program, ac: Actors, co: Comms, pl: Plans, net: Net, ru: Rules, st: State, a: int, node: int
) -> int:
    """Find or open the instance, create one stream per chunk, and put the streams into their first queues."""
    now = st.scalars[SC_NOW]
    g = pr.start[ac.program[a]] + node
    call = ac.call[a] + pr.call[g]
    plan = ac.call_plan[call]
    group = ac.group[a] + ac.call_group[call]
    comm = ac.group_comm[group]
    inst = co.instance[comm] + st.group_count[group]
    st.group_count[group] += 1
    st.comm_instance[ac.comm[a] + pr.comm[g]] = inst
    members = co.actors[comm]
    if st.inst_plan[inst] < 0:
        st.inst_plan[inst] = plan
        cells = pl.chunks[plan] * pl.phases[plan] * members
        block = st.free[plan]
        if block >= 0:
            st.free[plan] = st.pool[block]
        else:
            block = st.scalars[SC_BUMP]
            st.scalars[SC_BUMP] = block + 2 * cells
        st.inst_block[inst] = block
        for k in range(block + cells, block + 2 * cells):
            st.pool[k] = 0
    elif st.inst_plan[inst] != plan:
        st.scalars[SC_ERR_ACTOR] = a
        st.scalars[SC_ERR_NODE] = node
        st.scalars[SC_ERR_INSTANCE] = inst
        return MISMATCH
    st.inst_issued[inst] += 1
    if st.inst_issued[inst] == members:
        st.inst_ready[inst] = now
    ctx = a * ru.contexts
    while st.ctx_inst[ctx] >= 0:
        ctx += 1
    st.ctx_inst[ctx] = inst
    st.ctx_node[ctx] = node
    st.ctx_group[ctx] = group
    st.ctx_left[ctx] = pl.chunks[plan]
    for chunk in range(pl.chunks[plan]):
        variant = pl.variant[pl.chunk_start[plan] + chunk]
        stream = ctx * ru.max_chunks + chunk
        st.st_phase[stream] = 0
        for k in range(pl.variant_phases[variant]):
            f = pl.variant_phase[variant] + k
            q = choose_queue(ru, st, a, pl.dim[f], pl.rule[f]) * 2
            if pl.alg[f] == ALG_TREE:
                cell = (a * ru.kinds + pl.kind[f]) * ru.dims + pl.dim[f]
                q += st.tree_count[cell] & 1
                st.tree_count[cell] += 1
            st.st_queue[stream * ru.max_phases + k] = q
        enter_queue(pl, ru, st, a, stream)
        start_waiting(ac, co, pl, net, ru, st, a, st.st_queue[stream * ru.max_phases] >> 2)
    return DONE


def phase_of(pl: Plans, ru: Rules, st: State, stream: int) -> int:
    """Phase number of a stream's current phase."""
    plan = st.inst_plan[st.ctx_inst[stream // ru.max_chunks]]
    variant = pl.variant[pl.chunk_start[plan] + stream % ru.max_chunks]
    return pl.variant_phase[variant] + st.st_phase[stream]


def goes_before(pl: Plans, ru: Rules, st: State, stream: int, other: int) -> bool:
    """Whether a stream is served before another one that already waits (section 7.3)."""
    f = phase_of(pl, ru, st, stream)
    h = phase_of(pl, ru, st, other)
    if ru.order == ORDER_SMALLEST_FIRST:
        return pl.size[h] >= pl.size[f]
    plan = st.inst_plan[st.ctx_inst[stream // ru.max_chunks]]
    plan2 = st.inst_plan[st.ctx_inst[other // ru.max_chunks]]
    mine = pl.variant_phases[pl.variant[pl.chunk_start[plan] + stream % ru.max_chunks]] - st.st_phase[stream]
    theirs = pl.variant_phases[pl.variant[pl.chunk_start[plan2] + other % ru.max_chunks]] - st.st_phase[other]
    return theirs >= mine


def enter_queue(pl: Plans, ru: Rules, st: State, a: int, stream: int) -> None:
    """Append a stream to the queue of its current phase, or insert it where the scheduling policy says."""
    q = a * ru.dims * ru.queues + (st.st_queue[stream * ru.max_phases + st.st_phase[stream]] >> 2)
    f = phase_of(pl, ru, st, stream)
    fifo = ru.order == ORDER_FIFO or pl.do[f] == DO_ALL_REDUCE or pl.do[f] == DO_ALL_TO_ALL
    before = -1
    at = st.q_head[q]
    if fifo:
        before = st.q_tail[q]
        at = -1
    else:
        while at >= 0 and not goes_before(pl, ru, st, stream, at):
            before = at
            at = st.st_next[at]
    st.st_next[stream] = at
    if before < 0:
        st.q_head[q] = stream
    else:
        st.st_next[before] = stream
    if at < 0:
        st.q_tail[q] = stream


def start_waiting(
    ac: Actors, co: Comms, pl: Plans, net: Net, ru: Rules, st: State, a: int, queue: int
) -> None:
    """Start waiting streams of a queue while it runs fewer than it may."""
    q = a * ru.dims * ru.queues + queue
    while st.q_busy[q] < ru.running and st.q_head[q] >= 0:
        stream = st.q_head[q]
        st.q_head[q] = st.st_next[stream]
        if st.q_head[q] < 0:
            st.q_tail[q] = -1
        st.q_busy[q] += 1
        start_phase(ac, co, pl, net, ru, st, a, stream)


def start_phase(
    ac: Actors, co: Comms, pl: Plans, net: Net, ru: Rules, st: State, a: int, stream: int
) -> None:
    """A stream starts its current phase; the last member to start computes when everybody ends."""
    now = st.scalars[SC_NOW]
    ctx = stream // ru.max_chunks
    chunk = stream % ru.max_chunks
    inst = st.ctx_inst[ctx]
    plan = st.inst_plan[inst]
    k = st.st_phase[stream]
    f = pl.variant_phase[pl.variant[pl.chunk_start[plan] + chunk]] + k
    group = st.ctx_group[ctx]
    comm = ac.group_comm[group]
    member = ac.group_member[group]
    members = co.actors[comm]
    st.dim_bytes[a * ru.dims + pl.dim[f]] += pl.sent[f]
    ring = co.ring_of[co.view_ring[co.view[comm] + pl.view[f]] + member]
    row = st.inst_block[inst] + (chunk * pl.phases[plan] + k) * members
    st.pool[row + member] = now
    count = row + pl.chunks[plan] * pl.phases[plan] * members + co.ring_index[ring]
    st.pool[count] += 1
    if st.pool[count] < co.ring_actors[ring]:
        return
    anticlockwise = (st.st_queue[stream * ru.max_phases + k] >> 1) & 1
    second_tree = st.st_queue[stream * ru.max_phases + k] & 1
    if co.ring_actors[ring] == 1 and pl.tau[f] >= 0:
        end = now + pl.tau[f]
        push_event(st, end, end - pl.last[f], EV_PHASE | a << 2 | stream << 32)
        return
    n = co.ring_size[ring]
    pos0 = co.ring_start[ring]
    x = st.scratch
    equal = pl.tau[f] >= 0
    for i in range(n):
        x[i] = st.pool[row + co.ring_actor[pos0 + i]]
        if x[i] != now:
            equal = False
    last = pl.last[f]
    if equal or pl.alg[f] == ALG_NONE:
        for i in range(n):
            x[i] = now + pl.tau[f]
    else:
        last = eval_phase(co, pl, net, ru, st, f, n, pos0, -1 if anticlockwise == 1 else 1, second_tree)
    # every actor of the ring has its own stream for this chunk; a position's actor may stand at several positions
    for i in range(n):
        other = co.ring_actor[pos0 + i]
        if st.pool[row + other] < 0:
            continue
        st.pool[row + other] = -1
        b = co.member_actor[co.member[comm] + other]
        stream_b = stream_of(ru, st, b, inst, chunk)
        push_event(st, x[i], max(x[i] - last, now), EV_PHASE | b << 2 | stream_b << 32)


def eval_phase(
    co: Comms, pl: Plans, net: Net, ru: Rules, st: State, f: int, n: int, pos0: int, step: int, second_tree: int
) -> int:
    """Ends of a phase whose members did not start together, from and to the first n cells of State.scratch."""
    x = st.scratch
    work = st.scratch[n:]
    alg = pl.alg[f]
    if alg == ALG_TREE:
        tree = pl.tree_start[f] + second_tree * 2 * n
        return eval_tree(net, n, pl.size[f], pl.endpoint[f], ru.trees, tree, co.ring_npu, pos0, x, work)
    if alg == ALG_DIRECT and (pl.do[f] == DO_ALL_REDUCE or pl.window[f] < n - 1):
        return eval_credits(
            net, alg, pl.do[f], n, pl.size[f], pl.endpoint[f], pl.window[f], pl.cycle[f], step, co.ring_npu, pos0, n, x, work, st.scratch_heap
        )  # fmt: skip
    if alg == ALG_DIRECT:
        return eval_direct_open(net, pl.do[f], n, pl.size[f], pl.endpoint[f], co.ring_npu, pos0, x, work)
    return eval_chain(
        net, alg, pl.do[f], n, pl.size[f], pl.endpoint[f], pl.cycle[f], step, co.ring_npu, pos0, x, work
    )


def stream_of(ru: Rules, st: State, a: int, inst: int, chunk: int) -> int:
    """The stream in which actor a runs a chunk of a collective instance."""
    ctx = a * ru.contexts
    while st.ctx_inst[ctx] != inst:
        ctx += 1
    return ctx * ru.max_chunks + chunk


def end_phase(
    pr: Program, ac: Actors, co: Comms, pl: Plans, net: Net, ru: Rules, st: State, a: int, stream: int
) -> int:
    """A stream's phase ends on an actor; the order of actions is section 3.4's. Returns a status."""
    ctx = stream // ru.max_chunks
    inst = st.ctx_inst[ctx]
    plan = st.inst_plan[inst]
    k = st.st_phase[stream]
    queue = st.st_queue[stream * ru.max_phases + k] >> 2
    last = k + 1 == pl.variant_phases[pl.variant[pl.chunk_start[plan] + stream % ru.max_chunks]]
    if last:
        st.ctx_left[ctx] -= 1
        if st.ctx_left[ctx] == 0:
            node = st.ctx_node[ctx]
            st.ctx_inst[ctx] = -1
            st.inst_ended[inst] += 1
            if st.inst_ended[inst] == co.actors[ac.group_comm[st.ctx_group[ctx]]]:
                st.pool[st.inst_block[inst]] = st.free[plan]
                st.free[plan] = st.inst_block[inst]
            end_node(pr, ac, st, a, node, -1)
            status = issue_pass(pr, ac, co, pl, net, ru, st, a)
            if status != DONE:
                return status
    st.q_busy[a * ru.dims * ru.queues + queue] -= 1
    if not last:
        st.st_phase[stream] = k + 1
        enter_queue(pl, ru, st, a, stream)
    start_waiting(ac, co, pl, net, ru, st, a, queue)
    if not last:
        start_waiting(ac, co, pl, net, ru, st, a, st.st_queue[stream * ru.max_phases + k + 1] >> 2)
    return DONE


# --------------------------------------------------------------------------------------------------------------
# The loop


def run(
    pr: Program, ac: Actors, co: Comms, pl: Plans, net: Net, ru: Rules, st: State, reserve: int, budget: int
) -> int:
    """Run at most `budget` events; `reserve` is the room in the pool that one event may need. Returns a status."""
    sc = st.scalars
    while sc[SC_STARTED] < len(ac.program):
        if len(st.pool) - sc[SC_BUMP] < reserve:
            return GROW_POOL
        a = sc[SC_STARTED]
        sc[SC_STARTED] = a + 1
        p = ac.program[a]
        for node in range(pr.start[p + 1] - pr.start[p]):
            if st.left[ac.node[a] + node] == 0:
                make_ready(pr, ac, st, a, node)
        status = issue_pass(pr, ac, co, pl, net, ru, st, a)
        if status != DONE:
            return status
    while sc[SC_HEAP] > 0:
        if budget <= 0:
            return PAUSED
        if len(st.pool) - sc[SC_BUMP] < reserve:
            return GROW_POOL
        budget -= 1
        sc[SC_EVENTS] += 1
        what = pop_event(st)
        kind = what & 3
        a = (what >> 2) & 0x3FFFFFFF
        arg = what >> 32
        if kind == EV_PHASE:
            status = end_phase(pr, ac, co, pl, net, ru, st, a, arg)
            if status != DONE:
                return status
            continue
        if kind == EV_NODE:
            end_node(pr, ac, st, a, arg, -1)
        else:
            cell = co.chan_start[a] + arg
            st.arrived[cell] = sc[SC_NOW]
            channel = a
            a = co.chan_src[channel]
            end_node(pr, ac, st, a, st.sent_node[cell], -1)
            if st.posted[cell] >= 0:
                status = issue_pass(pr, ac, co, pl, net, ru, st, a)
                if status != DONE:
                    return status
                a = co.chan_dst[channel]
                node = st.posted_node[cell]
                st.comm_ready[ac.comm[a] + pr.comm[pr.start[ac.program[a]] + node]] = st.sent[cell]
                end_node(pr, ac, st, a, node, -1)
        status = issue_pass(pr, ac, co, pl, net, ru, st, a)
        if status != DONE:
            return status
    return DONE
