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

from chakra.arrays import F64, I64

ENTRY_POINTS = ("run", "equal_start_time")

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
ALG_STEPS = 5  # rounds of messages given as a table

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
ORDER_RG = 3

# Which dimension a chunk takes next (replay semantics, section 7.2).
SCHEDULE_NONE = 0  # the plan says
SCHEDULE_ROUND_ROBIN = 1
SCHEDULE_GREEDY = 2
SCHEDULE_FLEX = 3  # greedy, and the size of the chunk, too

# Which collective's streams go first where several are in flight.
FIRST_ISSUED = 0
LAST_ISSUED = 1

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
SC_RELIEVED = 10  # times that blocked queues were given one more place
SC_SIZE = 16

TOPO_RING = 0
TOPO_SWITCH = 1
TOPO_FULL = 2

CONTROL_BYTES = 8192  # of a rendezvous request

# Cells of the table of offsets `t`: where each table starts in the block `m`, and plain numbers (RU_*).

# Distinct traces, one after the other; nodes in ascending id. `start[p]` is program p's first node.
PR_START = 0
PR_OP = 1
PR_SLOT = 2  # slot of the node within its program; -1 never
PR_DUR = 3
PR_CHILD_START = 4  # (nodes + 1,) into child
PR_CHILD = 5  # index within the program
PR_COMM = 6  # index of a communication node among those of its program, -1 for others
PR_CALL = 7  # collectives: index of the call description within the program; p2p: index within the program
PR_SLOT_START = 8  # (programs + 1,) first slot of each program
PR_SLOT_CAP = 9  # nodes that a slot runs at once
PR_HEAP_START = 10  # per slot: first cell of its ready heap, relative to the actor's nodes

# One entry per actor, and tables that start there.
AC_PROGRAM = 11
AC_NODE = 12  # first cell in State.left, State.issue, ...
AC_SLOT = 13  # first cell in State.busy, State.ready
AC_COMM = 14  # first cell in State.comm_ready, State.comm_instance
AC_CALL = 15  # first cell in call_plan, call_group (one per call of the program)
AC_P2P = 16  # first cell in channel (one per p2p node of the program)
AC_GROUP = 17  # first cell in member tables (one per group name used by the program)
AC_CALL_PLAN = 18
AC_CALL_GROUP = 19  # which of the actor's groups the call uses
AC_GROUP_COMM = 20  # communicator of the actor's group
AC_GROUP_MEMBER = 21  # the actor's index among the communicator's actors
AC_CHANNEL = 22
AC_SERVER = 23  # FIFO server of the actor's memory accesses

# Communicators, their views (logical rings) and the channels of point-to-point messages.
CO_ACTORS = 24  # distinct actors of each communicator
CO_INSTANCE = 25  # first collective instance of each communicator
CO_VIEW_START = 26  # first view of each communicator
CO_VIEW_RING = 27  # per view: first cell in ring_of (one per actor of the communicator)
CO_RING_OF = 28  # ring of an actor in a view (global ring number)
CO_RING_START = 29  # per ring: first cell in ring_actor / ring_npu
CO_RING_SIZE = 30  # positions
CO_RING_ACTORS = 31  # distinct actors
CO_RING_INDEX = 32  # index of the ring within its view, counted in the communicator's counters
CO_RING_ACTOR = 33  # per position: index among the communicator's actors
CO_RING_NPU = 34  # per position: NPU number
CO_MEMBER = 35  # per communicator: first cell in member_actor
CO_MEMBER_ACTOR = 36  # actor number
CO_CHAN_SRC = 37
CO_CHAN_DST = 38
CO_CHAN_DELAY = 39
CO_CHAN_BACK = 40  # delay of a rendezvous request, -1: eager
CO_CHAN_START = 41  # first cell in State.sent, State.posted

# How collectives are cut: plan -> chunks -> variant -> phases.
PL_CHUNKS = 42
PL_PHASES = 43  # phases of every variant of the plan (the largest)
PL_CHUNK_START = 44  # first cell in variant
PL_VARIANT = 45  # variant of each chunk
PL_VARIANT_PHASE = 46  # per variant: cell of its first phase
PL_BLOCK = 47  # cells that an instance of the plan needs in the pool
PL_SCHEDULE = 48
PL_TEMPLATE = (
    49  # per plan: cell of its templates: (ring size or 0, reduce-scatter, all-gather) per dimension
)
PL_KIND = 50  # what a scheduled plan does, DO_*
PL_BYTES = 51  # of the whole collective, where it is scheduled

# A phase: consecutive cells, so that phases made during the run can lie anywhere.
PH_VIEW = 0  # view of the communicator
PH_DIM = 1  # whose queues are used
PH_RULE = 2
PH_ALG = 3
PH_DO = 4
PH_SIZE = 5  # d, bytes entering the phase
PH_WINDOW = 6  # steps: the divisor of sizes
PH_CYCLE = 7  # Z; steps: number of messages
PH_ENDPOINT = 8  # e
PH_TAU = 9  # duration when all members start together and the ring looks alike from each; or TAU_*
PH_LAST = 10  # length of the final timer in that case
PH_TABLE = (
    11  # trees: first cell of the parent table of tree X, tree Y follows; steps: first cell of the messages
)
PH_KIND = 12  # collective kind, for the alternation of trees
PH_SENT = 13  # bytes that each member sends
PH_LEFT = 14  # phases from this one on
PH_SAME = 15  # phases that differ in their size only share this number
PH_CELLS = 16

TAU_DIFFERS = -1  # members end apart
TAU_UNKNOWN = -2  # not computed yet

MEMO = 1024  # durations of scheduled phases that are kept

# Switches of the workload and system layers.
RU_DIMS = 62
RU_QUEUES = 63  # per dimension
RU_RUNNING = 64  # streams that a queue runs at once
RU_CONTEXTS = 65  # collectives in flight per actor
RU_MAX_CHUNKS = 66
RU_MAX_PHASES = 67
RU_KINDS = 68
RU_REPEAT_PASS = 69  # children of zero-time nodes are issued at once
RU_ORDER = 70
RU_ACTORS = 71
RU_SCRATCH = 72  # cells for phases that are evaluated member by member
RU_SCRATCH_HEAP = 73
RU_TREES = 74  # parent tables (see Plans.tree_start)

# Everything that changes; with it `run` can be left and entered again.
ST_SCALARS = 75
ST_LEFT = 76  # unfinished parents per actor and node
ST_ISSUE = 77
ST_FINISH = 78
ST_HEAP = 79  # events: tick, registration tick, sequence, description
ST_READY = 80  # ready heaps
ST_READY_N = 81
ST_BUSY = 82
ST_RUNNING = 83  # nodes in flight per actor
ST_DONE = 84  # finish time per actor, -1
ST_DEFERRED = 85
ST_ORDER = 86  # nodes in issue order
ST_ORDER_N = 87
ST_GROUP_COUNT = 88  # collectives issued per actor and group
ST_COMM_READY = 89  # when the last member, or the sender, had issued
ST_COMM_INSTANCE = 90
ST_INST_PLAN = 91
ST_INST_BLOCK = 92
ST_INST_ISSUED = 93
ST_INST_ENDED = 94
ST_INST_READY = 95
ST_POOL = 96
ST_FREE = 97  # per plan: head of the list of free blocks
ST_CTX_INST = 98
ST_CTX_NODE = 99
ST_CTX_GROUP = 100
ST_CTX_LEFT = 101  # streams not yet ended
ST_ST_PHASE = 102  # per actor, context, chunk: current phase
ST_ST_NEXT = 103  # next stream waiting in the same queue
ST_ST_QUEUE = 104  # per stream and phase: queue * 4 + anticlockwise * 2 + second tree
ST_Q_HEAD = 105
ST_Q_TAIL = 106
ST_Q_BUSY = 107
ST_CURSOR = 108  # per actor, dimension, rule
ST_TREE_COUNT = 109  # per actor, kind, dimension
ST_SENT = 110  # per channel and ordinal: -1, or the tick of the send
ST_SENT_NODE = 111
ST_ARRIVED = 112
ST_POSTED = 113
ST_POSTED_NODE = 114
ST_SENT_N = 115
ST_POSTED_N = 116
ST_SERVER_FREE = 117
ST_DIM_BYTES = 118  # per actor and dimension
ST_SCRATCH = 119  # for phases that are evaluated member by member
ST_SCRATCH_HEAP = 120
ST_ST_FIRST = 52  # per stream: cell of its first phase
ST_CTX_RANK = 53  # priority of a collective in flight, greatest first
ST_ST_SEQ = 122  # per stream: when it started its phase, in the order of events
ST_ISSUED = 54  # collectives issued per actor
ST_ORDERED = 55  # dimensions as the scheduler keeps them, the tick of its last decision, chunks so far
ST_MEMO = 56  # (same, size, duration, last timer)
PR_PRIORITY = 57  # per node: explicit priority of a collective
PR_ORDINAL = 58  # per node: number of the collective among those of its group, by node id
RU_FIRST = 59  # FIRST_ISSUED or LAST_ISSUED
RU_BY_ID = 60  # collectives are matched by PR_ORDINAL, not by order of issue
RU_RELIEVE = 61  # when all is blocked by full queues, each of them starts one more stream

TABLE_SIZE = 123


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
    old: bool  # cost model of ASTRA-sim 1.0
    share: F64  # bandwidth of each dimension over that of the first
    load: F64  # load of each dimension in the eyes of the greedy scheduler


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
            hops = dim_hops(net.topo[k], n, a, b)
            if net.old:  # two truncations, in the highest dimension where the ends differ (section 7.1)
                total = int(int(hops * net.lat[k]) + size / net.rate[k])
            else:
                total += int(hops * net.lat[k] + size / net.rate[k])
                if not net.sum_dims:
                    return total
        src //= n
        dst //= n
    return total


def occupancy(net: Net, src: int, dst: int, size: int) -> int:
    """Time in ns for which a message keeps its slowest link busy."""
    longest = 0
    for k in range(len(net.size)):
        if src % net.size[k] != dst % net.size[k]:
            longest = max(longest, int(size / net.rate[k]))
        src //= net.size[k]
        dst //= net.size[k]
    return longest


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
    """Time to reduce `size` bytes: three accesses to local memory (1.0: section 7.1)."""
    if net.old:
        return 3 * (size // 500000)
    if net.reduce_rate <= 0.0:
        return 0
    return 3 * int(size / net.reduce_rate * 1000000000.0)


# --------------------------------------------------------------------------------------------------------------
# Phases, evaluated when all starts are known. `starts[base + i]` is member i's start; ends go to `ends[base + i]` and the
# length of each member's final timer to `ends[base + n + i]`. A phase of one member (all others alike) has span 1.


def eval_chain(
    net: Net,
    alg: int,
    do: int,
    n: int,
    d: int,
    e: int,
    cycle: int,
    step: int,
    npu: I64,
    npu0: int,
    x: I64,
    y: I64,
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


def eval_direct_open(net: Net, do: int, n: int, d: int, e: int, npu: I64, npu0: int, x: I64, y: I64) -> int:
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


def packet_reduction(net: Net, alg: int, do: int, n: int, d: int, p: int, window: int, cycle: int) -> int:
    """Reduction that follows the endpoint delay of packet p; 0 if none does."""
    if not packet_reduces(do, p, window, cycle):
        return 0
    return reduction(net, packet_bytes(alg, do, n, d, p, net.min_bytes))


def receipt(net: Net, src: int, dst: int, size: int, sent: int, posted: int) -> int:
    """Instant at which a message that was sent and whose receive was posted is received (section 5.2)."""
    if net.rendezvous:
        return max(sent, posted + delay(net, dst, src, CONTROL_BYTES)) + delay(net, src, dst, size)
    return max(sent + delay(net, src, dst, size), posted)


def credit_before(heap: I64, a: int, b: int) -> bool:
    """Whether entry a of a credit heap comes before entry b."""
    if heap[3 * a] != heap[3 * b]:
        return bool(heap[3 * a] < heap[3 * b])
    if heap[3 * a + 1] != heap[3 * b + 1]:
        return bool(heap[3 * a + 1] < heap[3 * b + 1])
    return bool(heap[3 * a + 2] < heap[3 * b + 2])


def credit_swap(heap: I64, a: int, b: int) -> None:
    """Exchange two entries of a credit heap."""
    for k in range(3):
        kept = heap[3 * a + k]
        heap[3 * a + k] = heap[3 * b + k]
        heap[3 * b + k] = kept


def credit_push(heap: I64, n: int, tick: int, reg: int, what: int) -> None:
    """Insert (tick, registration tick, sequence and description) into a heap of n entries."""
    heap[3 * n] = tick
    heap[3 * n + 1] = reg
    heap[3 * n + 2] = what
    i = n
    while i > 0 and credit_before(heap, i, (i - 1) >> 1):
        credit_swap(heap, i, (i - 1) >> 1)
        i = (i - 1) >> 1


def credit_pop(heap: I64, n: int) -> None:
    """Drop the first of n entries; the caller has read it."""
    m = n - 1
    credit_swap(heap, 0, m)
    i = 0
    while 2 * i + 1 < m:
        child = 2 * i + 1
        if child + 1 < m and credit_before(heap, child + 1, child):
            child += 1
        if credit_before(heap, i, child):
            break
        credit_swap(heap, i, child)
        i = child


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

    `work` needs 5 * span + span * packets cells, `heap` three times span * (2 * window + 2 * packets + 2).
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
    seq = 0
    for i in range(span):
        for p in range(window):
            r = packet_reduction(net, alg, do, n, d, p, window, cycle)
            credit_push(heap, n_heap, x[i] + e + r, x[i] + (e if r > 0 else 0), seq * 2 * span + span + i)
            n_heap += 1
            seq += 1
        work[armed + i] = window
        x[i] = -1
    while n_heap > 0:
        now = heap[0]
        what = heap[2] % (2 * span)
        credit_pop(heap, n_heap)
        n_heap -= 1
        if what < span:  # a message is received: arm the next packet
            i = what
            work[got + i] += 1
            p = work[armed + i]
            work[armed + i] = p + 1
            r = packet_reduction(net, alg, do, n, d, p, window, cycle)
            credit_push(heap, n_heap, now + e + r, now + (e if r > 0 else 0), seq * 2 * span + span + i)
            n_heap += 1
            seq += 1
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
                got_at = receipt(net, npu[npu0 + i], npu[npu0 + to], size, now, other)
                credit_push(heap, n_heap, got_at, now, seq * 2 * span + a)
                n_heap += 1
                seq += 1
            source = packet_source(alg, do, n, p, i, step)
            if span > 1:
                other = work[instant + source * packets + p]
                if other >= 0:  # the sender has sent: the message source -> i is complete
                    got_at = receipt(net, npu[npu0 + source], npu[npu0 + i], size, other, now)
                    # an arrival was registered when it was sent; a message that is here already ends its receive now
                    credit_push(heap, n_heap, got_at, other if got_at > now else now, seq * 2 * span + i)
                    n_heap += 1
                    seq += 1
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


def step_bytes(d: int, share: int, whole: int, least: int) -> int:
    """Size of a message that carries share / whole of d bytes, rounded up."""
    if share == 0:
        return 0
    return max(d // whole * share + (d % whole * share + whole - 1) // whole, least)


def eval_steps(
    net: Net, n: int, d: int, e: int, m: I64, steps: int, count: int, whole: int, npu0: int, x: I64, work: I64
) -> int:
    """Rounds of messages: each member sends at most one and receives at most one per round.

    A member enters the next round when what it received is there and both its messages have passed its links, after
    the endpoint delay and the reduction of what it received. `m[steps:]` has (source, destination, share, flags) per
    message; flags: 1 = the destination reduces, 2 = last of its round. `x`: starts, then ends. `work`: 2n cells.
    """
    for i in range(n):
        x[i] += e
        work[i] = -1
        work[n + i] = 0
    first = steps
    for row in range(steps, steps + 4 * count, 4):
        i, j = m[row], m[row + 1]
        size = step_bytes(d, m[row + 2], whole, net.min_bytes)
        a, b = m[npu0 + i], m[npu0 + j]
        sent = x[i]
        if net.rendezvous:
            sent = max(sent, x[j] + delay(net, b, a, CONTROL_BYTES))
        busy = occupancy(net, a, b, size)
        work[i] = max(work[i], x[i] + busy)
        work[j] = max(work[j], sent + delay(net, a, b, size), x[j] + busy)
        if m[row + 3] & 1:
            work[n + j] += reduction(net, size)
        if m[row + 3] & 2:
            for done in range(first, row + 4, 4):
                for side in range(2):
                    k = m[done + side]
                    if work[k] >= 0:
                        x[k] = work[k] + e + work[n + k]
                        work[k] = -1
                        work[n + k] = 0
            first = row + 4
    return e


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
        reductions = n - 1 if do in (DO_ALL_REDUCE, DO_REDUCE_SCATTER) else 0
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
