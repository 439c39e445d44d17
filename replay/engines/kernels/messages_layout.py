"""State of the message-level engine: one array of integers, and where each field lies in a row.

A *handle* is the index of a row's first word, so a field is `m[handle + FIELD]`; `NIL` is no row. Behind scalars and
tables of fixed size lies the pool, which only grows: rows of `ROW` words with a free list, blocks of streams with a
free list per size, and records. Rows that can be events (links, messages, timer bundles, completions) keep in word 0
the next event of the same tick, so scheduling moves no data.

One array, because every array that a compiled function takes costs it seven arguments and much time to compile. It may
be a Python list: the same kernels run as plain Python, and a list is several times faster to index than NumPy.
"""

from typing import Any, NamedTuple


class State(NamedTuple):
    """Everything that a run reads and writes."""

    #: int64: scalars (C_...), NPU rows, tables, then the pool
    m: Any
    #: float64: see the F_ constants
    f: Any


NIL = 0

# --- scalars -------------------------------------------------------------------------------------------------------
C_NOW = 0
C_FREE = 1  # first free row of the pool
C_TOP = 2  # first word of the pool that was never used
C_HEAP_N = 3
C_LAST_TICK = 4  # tick and bucket of the last scheduling
C_LAST_BUCKET = 5
C_BUCKET = 6  # bucket that is running
C_BUNDLE = 7  # timer bundle that is running
C_BUDGET = 8  # events until control goes back to the caller
C_STATUS = 9
C_NPUS = 10
C_STARTED = 11  # NPUs that had their first issue pass
C_UNFINISHED = 12
C_HEAP = 13  # binary heap of distinct ticks: (tick, bucket) pairs
C_HASH = 14  # hash table of ticks: first bucket of each chain
C_MARGIN = 15  # words that one step may take from the pool
C_LAST_RECORD = 16
C_FIRST_RECORD = 17
C_DIMS = 18
C_NET = 19  # NET_ constants
C_SUM_DIMS = 20  # charge a message in every dimension that it crosses (unaware)
C_RENDEZVOUS = 21
C_REPEAT = 22  # repeat the issue pass after zero-time nodes
C_RELIEVE = 23  # start waiting streams when everything is blocked
C_SLOTS = 24
C_QUEUES = 25  # queues per dimension
C_STREAMS = 26  # K: streams that a queue runs at once
C_BUS = 27
C_BUS_L = 28
C_BUS_O = 29
C_BUS_G = 30
C_BUS_REDUCE = 31
C_EVENTS = 32  # events so far
C_RELIEVED = 33
C_HASH_MASK = 34
C_MESSAGES = 35  # hops so far
C_ERROR_NPU = 36
C_ERROR_NODE = 37
C_DIM_ROWS = 38
C_COORDS = 39
C_ROUTE_START = 40
C_BUS_ENDS = 41
C_QUEUE_ROWS = 42
C_ACTIONS = 43
ACTIONS = 44  # stack of what is to be done before the next event: (what, a, b)
C_CLEAR = 64  # network outside: tick up to which it has said what ends
C_UNTIL = 65  # tick up to which it is to run; tick at which what it hands back has ended
C_MAIL = 66  # messages for the network outside, or back from it
C_MAIL_N = 67
C_MAIL_MARK = 68  # so many must be handed over before the next step
C_ENDED = 69  # messages that it has handed back
NPU_BASE = 80

# actions
ACT_NODE = 1  # a node of an NPU ends
ACT_STREAM = 2  # a stream ends a phase
ACT_LEAVE = 3  # a stream has left a queue and joined another
ACT_REQUEST = 4  # a send or receive ends
ACT_TIMER = 5  # what a timer would do
ACT_BUS = 6  # ends of a bus may go on

NET_UNAWARE = 0
NET_AWARE = 1
NET_GRAPH = 2  # aware, links from route tables
NET_GRAPH_UNAWARE = 3
NET_OUTSIDE = 4  # simulated by somebody else, to whom messages are handed in batches

#: later than every tick of a run
NEVER = 1 << 62

DONE = 0
BUDGET = 1
GROW = 2
STALLED = 3
MISMATCH = 4  # members of a group issued different collectives
HAND_OVER = 5  # the network outside is to take what lies in the mailbox
AWAIT = 6  # and to run until something ends, or to C_UNTIL

F_REDUCE_BW = 0  # bytes per s of the local memory; 0: reductions take no time
F_BUS_G = 1
F_INNER_G = 2
F_SPEED = 4  # latency and bytes per ns of each link class

# --- rows of the pool ----------------------------------------------------------------------------------------------
ROW = 12
NEXT = 0
KIND = 1

# kinds of events; messages are the kinds from MSG_FIRST on
EV_TIMERS = 1
EV_LINK = 2
EV_STREAM_RECEIVED = 3  # a receive whose message had already arrived
EV_STREAM_GO = 4  # rendezvous: a send whose control message had already arrived
EV_REQUEST = 5  # the same two, point to point
MSG_FIRST = 8
MSG_DATA = 8
MSG_CONTROL = 9
MSG_P2P = 10
MSG_P2P_CONTROL = 11

# bucket: all events of one tick, in order of scheduling
B_TICK = 1
B_HEAD = 2
B_TAIL = 3

# timer bundle: timers of one NPU that expire at one tick; the first timer is in the row itself
T_TICK = 2
T_PREV = 3
T_SUCC = 4
T_NPU = 5
T_HEAD = 6
T_TAIL = 7
T_WHAT = 8
T_A = 9
T_B = 10

# timers
TM_NODE = 1  # a node ends
TM_CREDIT = 2
TM_REDUCE = 3
TM_TREE = 4
TM_TREE_REDUCE = 5
TM_SERVER = 6
TM_CUSTOM = 7
TM_BUS_SENT = 8
TM_BUS_RECEIVED = 9
TM_BUS_REDUCED = 10
TM_STEP = 11  # the next round of a table of steps begins
TM_JOINT_END = 13  # all members of a joint phase have ended it
TM_STEP_SENT = 12  # a round's messages have passed the member's links

# link
LINK_ROW = 16
L_BUSY = 2
L_HEAD = 3
L_TAIL = 4
L_ONWARD = 5  # next link of a ring in the same direction
L_CLASS = 6
L_SIZE = 7  # size whose two delays are remembered
L_SERIAL = 8
L_TOTAL = 9
L_BYTES = 10
L_BUSY_NS = 11
L_QUEUED_NS = 12
L_MESSAGES = 13

# message
M_AT = 2  # NPU where the current dimension's part ends (before: where it began)
M_DST = 3
M_SIZE = 4
M_OWNER = 5  # stream that gets it; p2p: send request
M_P = 6  # packet * 64 + phase; p2p: next in the channel
M_LINK = 7
M_HOPS = 8  # hops left in this dimension
M_VIA = 9  # switch: link down; graph: where in the route
M_X = 10  # control: stream that waits for the data; p2p: receive request
M_Y = 11  # control: bytes of the data; p2p: 1 once arrived

# message for a network outside
MAIL_ROW = 5
ML_MESSAGE = 0
ML_SRC = 1
ML_DST = 2
ML_BYTES = 3
ML_START = 4

# request: a posted send or receive, or a memory access in a server's queue
R_NPU = 2
R_NODE = 3  # local node of the program
R_STREAM = 4  # custom collective's stream, NIL: a node of the workload
R_SIZE = 5
R_PEER = 6
R_CHANNEL = 7
R_CONTROL = 8
R_WHAT = 9
R_NEXT = 10  # next in a channel
RQ_RECV = 0
RQ_SEND = 1

# collective in progress
I_GROUP = 2
I_ORDINAL = 3
I_PLAN = 4
I_BASE = 5
I_ISSUED = 6
I_ENDED = 7
I_RECORD = 8
I_MEMBERS = 9

# shared-bus request
BQ_SIZE = 2
BQ_REDUCE = 3
BQ_BACK = 4
BQ_STREAM = 5
BQ_P = 6
BQ_LATER = 7  # reduction of section 4.1 still to come
BQ_STAGE = 8
BQ_INNER_BACK = 9
BQ_TREE = 10
STAGE_SEND = 0
STAGE_REDUCE = 1
STAGE_RETIRE = 2

BUS_ROW = 12
BE_STATE = 0
BE_PREVIOUS = 1
BE_LAST = 2
BE_SENDS = 3
BE_OUT_HEAD = 4  # of a list: its tail is the next word
BE_IN_HEAD = 6  # likewise
BE_IN_N = 8
BE_UNIT_HEAD = 9  # likewise
BE_UNIT_BUSY = 11
BUS_FREE = 0
BUS_SENDING = 1
BUS_RECEIVING = 2

# --- NPU, nodes ----------------------------------------------------------------------------------------------------
NPU_ROW = 16
N_PROGRAM = 0  # first node row of its program
N_NODES = 1  # first of its nodes' states
N_READY = 2
N_RUNNING = 3
N_FIRST_BUNDLE = 4
N_LAST_BUNDLE = 5
N_CALLS = 6
N_P2P = 7
N_FINISH = 8
N_SERVER = 9
N_SLOTS = 10
N_QUEUES = 11
N_CURSORS = 12

# state of a node on an NPU: parents that have not finished; ticks of issue and finish, and when the last partner had
# issued (-1: not yet)
NODE_STATE = 4
NS_PENDING = 0
NS_ISSUE = 1
NS_FINISH = 2
NS_PARTNER = 3

SLOT_ROW = 3
SL_FREE = 0
SL_N = 1
SL_BASE = 2

QUEUE_ROW = 3
Q_RUNNING = 0
Q_HEAD = 1
Q_TAIL = 2

NODE_ROW = 7
O_OP = 0
O_SLOT = 1
O_NS = 2
O_CHILD = 3
O_CHILD_END = 4
O_SIZE = 5
O_INDEX = 6  # call, or ordinal among the point-to-point nodes

OP_TIMER = 0
OP_ZERO = 1
OP_COLLECTIVE = 2
OP_SEND = 3
OP_RECV = 4
OP_SERVER = 5

# --- collectives ---------------------------------------------------------------------------------------------------
P_CHUNKS = 0
P_CHUNK = 1
P_PHASES = 2
P_PHASE = 3
P_DELAY = 4
P_BUS = 5
P_LEAST = 6
P_CLASS = 7
P_MODE = 8
P_WIDTH = 9  # words of a stream row
P_BITS = 10  # words of an inbox
P_COUNTER = 11  # tree counter of this kind of collective
P_CUSTOM = 12  # first (program, nodes, first p2p row) triple, one per member
P_BLOCK = 13  # words of a stream block
P_JOINT = 14  # words at the end of a stream row: per phase, members of the ring that have started and ended

MODE_NATIVE = 0
MODE_CUSTOM = 1
MODE_TOGETHER = 2  # ends for everybody when the last member has issued
MODE_INSTANT = 3

PHASE_ROW = 9
PH_DIM = 0
PH_ALGORITHM = 1
PH_DO = 2
PH_RULE = 3
PH_RING = 4
PH_WINDOW = 5
PH_SUB = 6
PH_STEPS = 7  # per chunk: where its table of steps lies
PH_JOINT = 8  # all members of the ring start with the last one and end with the last one

RING = 1
DIRECT = 2
HALVING_DOUBLING = 3
TREE = 4
CUSTOM = 5
STEPS = 6

ALL_REDUCE = 0
REDUCE_SCATTER = 1
ALL_GATHER = 2
ALL_TO_ALL = 3
BROADCAST = 4
REDUCE = 5

# table of steps: least denominator of shares, then per member its first row and number of rows
ST_WHOLE = 0
ST_MEMBERS = 1
# row: a round in which the member takes part. -1: it does not send, or not receive
STEP_ROW = 7
SR_TO = 0
SR_TO_ROW = 1  # the receiver's row of the message
SR_SHARE = 2
SR_FROM = 3
SR_FROM_ROW = 4
SR_FROM_SHARE = 5
SR_REDUCES = 6

RULE_ANY = 0
RULE_FIRST = 1
RULE_LAST = 2
RULE_FIXED = 3  # queue 0 of the dimension, no cursor

RING_DIM = 0
RING_FLAT = 1
RING_GROUP = 2

MEMBERSHIP_ROW = 3
G_N = 0
G_MEMBERS = 1
G_FIRST = 2  # its collectives in progress
G_LAST = 3

P2P_ROW = 3
P2P_CHANNEL = 0
P2P_CONTROL = 1
P2P_PEER = 2

CHANNEL_ROW = 4
CH_SEND = 0
CH_SEND_LAST = 1
CH_RECV = 2
CH_RECV_LAST = 3

DIM_ROW = 6
D_TOPOLOGY = 0
D_N = 1
D_STRIDE = 2
D_LINKS = 3
D_BYTES = 4
D_BYTE_HOPS = 5
TOPO_RING = 0
TOPO_SWITCH = 1
TOPO_FULL = 2

# stream: one chunk of one collective on one member
S_NPU = 0
S_INSTANCE = 1
S_PHASE = 2  # -1: not issued here yet; number of phases: ended
S_ALGORITHM = 3
S_DO = 4
S_TOTAL = 5  # messages of the phase; custom: nodes left; steps: rounds
S_WINDOW = 6
S_CYCLE = 7  # steps: the chunk's table
S_ARMED = 8  # steps: what the running round waits for
S_SENT = 9
S_RECEIVED = 10
S_CREDITS = 11
S_DELAY = 12
S_SIZE = 13  # bytes of a message (ring, direct)
S_REDUCE = 14  # its reduction, ns
S_RING_N = 15
S_INDEX = 16
S_RING_BASE = 17
S_RING_STRIDE = 18  # 0: the ring is a list of members
S_DIRECTION = 19
S_ARRIVED = 20  # ring: messages arrived; tree: inbox mask
S_CONTROLS = 21  # the same for control messages
S_BYTES = 22  # bytes entering the phase
S_EARLY = 23  # messages of later phases
S_NEXT = 24
S_QUEUE = 25
S_CHUNK = 26
S_MEMBER = 27
S_LEFT = 28  # first chunk: chunks left
S_NODE = 29  # first chunk: node of the workload
S_TREE = 30  # which of the two trees; posted receives
S_POSTED = 31
S_TWIN = 32  # the same chunk's stream of member 0, and words between members
S_STEP = 33
S_PLACE = 34  # of the next packet to be armed in its cycle; number of the cycle modulo 2
S_ODD = 35
S_LEAST = 36  # least bytes of a message
S_INBOX = 37  # first word of the inbox
S_BITS = 38  # words of an inbox
S_LIST = 40  # queue of each phase, then inboxes; custom: queue, then parents that each node waits for

REC_ROW = 8
RC_PLAN = 0
RC_GROUP = 1
RC_ORDINAL = 2
RC_START = 3
RC_READY = 4
RC_END = 5
RC_NEXT = 6
