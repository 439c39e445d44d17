"""Tables of the phase-level kernel: where they start in its block of integers, and the numbers that stand in them."""

from typing import NamedTuple

from chakra.arrays import F64, I64

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

# Cells of the table at ST_SCALARS.
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
AC_NODE = 12  # first cell in ST_LEFT, ST_ISSUE, ...
AC_SLOT = 13  # first cell in ST_BUSY, ST_READY_N
AC_COMM = 14  # first cell in ST_COMM_READY, ST_COMM_INSTANCE
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
CO_CHAN_START = 41  # first cell in ST_SENT, ST_POSTED

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
RU_TREES = 74  # tables of trees and steps (see PH_TABLE)

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
