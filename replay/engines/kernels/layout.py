"""State of a run: one array of integers, and where each field lies in a row. Both engines use it.

A *handle* is the index of a row's first word, so a field is ``m[handle + FIELD]``; `NIL` is no row. First come the
scalars of the run, then the rows of the NPUs, then tables of fixed size, then the pool, which only grows.

A row is declared once, by `row`: the names of its fields in order, with the number of fields, so that sizes and offsets
follow from the list and a forgotten name fails at import. Every field means one thing; where two algorithms never use a
row at once, a second name for the same word says so (``S_ROUNDS = S_TOTAL``).

One array, because every array that a compiled function takes costs it seven arguments and much time to compile. It may
be a Python list: the same kernels run as plain Python, and a list is several times faster to index than NumPy.
"""

from typing import NamedTuple, Protocol


class Words(Protocol):
    """A table of integers: an int64 array, or a list in plain Python."""

    def __getitem__(self, at: int, /) -> int: ...
    def __setitem__(self, at: int, value: int, /) -> None: ...
    def __len__(self) -> int: ...


class Floats(Protocol):
    """A table of numbers: a float64 array, or a list in plain Python."""

    def __getitem__(self, at: int, /) -> float: ...
    def __setitem__(self, at: int, value: float, /) -> None: ...


class State(NamedTuple):
    """Everything that a run reads and writes."""

    m: Words
    #: see the F_ constants
    f: Floats


def row(fields: int, after: int = 0) -> tuple[int, range]:
    """Size of a row of so many fields, and their offsets; `after` so many fields of another row that it extends."""
    return after + fields, range(after, after + fields)


NIL = 0
#: later than every tick of a run
NEVER = 1 << 62

# ====================================================================================================================
# Both engines

# --- scalars --------------------------------------------------------------------------------------------------------
(
    C_SIZE,
    (
        C_NOW,
        C_STATUS,
        C_BUDGET,  # events until control goes back to the caller
        C_MARGIN,  # words that one step may take from the pool
        C_TOP,  # first word of the pool that was never used
        C_EVENTS,  # events so far
        C_NPUS,
        C_STARTED,  # NPUs that had their first issue pass
        C_UNFINISHED,  # NPUs
        C_NODES_DONE,
        C_RELIEVED,  # times that blocked queues were given one more place
        C_ERROR_NPU,
        C_ERROR_NODE,
        C_REPEAT,  # repeat the issue pass after zero-time nodes (C10)
        C_RELIEVE,  # start waiting streams when everything is blocked (C13)
        C_SLOTS,  # slots of an NPU
        C_DEFERRED,  # table: children of zero-time nodes, ready for the next pass
        C_QUEUES,  # queues per dimension
        C_STREAMS,  # K: streams that a queue runs at once
        C_QUEUE_ROWS,
        C_ORDER,  # where a stream enters a queue, ORDER_
        C_NEWEST,  # of two collectives the one that was issued last goes first
        C_BY_ID,  # collectives are matched by the order of node ids, not by that of issue
        C_TURN,  # chunks that have taken their turn so far (round robin)
        C_DECIDED,  # tick of the last decision of the greedy schedule
        C_LISTED,  # table: dimensions in the order that the greedy schedule keeps
        C_LOADS,  # table of floats: load of each dimension, then its share of bandwidth
        C_DIMS,
        C_DIM_ROWS,
        C_CHARGE,  # in which of the dimensions that it crosses a message takes time (unaware), CHARGE_
        C_OLD,  # cost model of ASTRA-sim 1.0
        C_RENDEZVOUS,
        # message engine: time
        C_FREE,  # first free row of the pool
        C_HEAP,  # binary heap of distinct ticks: (tick, bucket) pairs; of the phase engine: events
        C_HEAP_N,
        C_HASH,  # hash table of ticks: first bucket of each chain
        C_HASH_MASK,
        C_LAST_TICK,  # tick and bucket of the last scheduling
        C_LAST_BUCKET,
        C_BUCKET,  # bucket that is running
        C_BUNDLE,  # timer bundle that is running
        C_ACTIONS,  # actions on the stack
        # message engine: network and bus
        C_NET,  # NET_ constants
        C_MESSAGES,  # hops so far
        C_COORDS,
        C_ROUTE_START,
        C_CLEAR,  # network outside: tick up to which it has said what ends
        C_UNTIL,  # tick up to which it is to run; tick at which what it hands back has ended
        C_MAIL,  # messages for the network outside, or back from it
        C_MAIL_N,
        C_MAIL_MARK,  # so many must be handed over before the next step
        C_ENDED,  # messages that it has handed back
        C_BUS,
        C_BUS_ENDS,
        C_BUS_L,
        C_BUS_O,
        C_BUS_G,
        C_BUS_REDUCE,
        # phase engine
        C_SEQUENCE,  # of events
        C_LANES,
        C_MEMO,  # table of durations of phases that were made during the run
        C_SCRATCH,  # table for phases that are evaluated member by member
        C_CREDITS,  # heap of such a phase's credits
    ),
) = row(63)
ACTIONS = C_SIZE  # stack of what is to be done before the next event: (what, a, b)
NPU_BASE = ACTIONS + 3 * 8

CHARGE_LOWEST = 0
CHARGE_ALL = 1
CHARGE_HIGHEST = 2

# why `run` of a kernel returned
DONE = 0
BUDGET = 1
GROW = 2
STALLED = 3
MISMATCH = 4  # members of a group issued different collectives
HAND_OVER = 5  # the network outside is to take what lies in the mailbox
AWAIT = 6  # and to run until something ends, or to C_UNTIL

(
    F_HEAD,
    (
        F_REDUCE_BW,  # bytes per s of the local memory; 0: reductions take no time
        F_BUS_G,
        F_INNER_G,
    ),
) = row(3)
F_SPEED = F_HEAD  # latency and bytes per ns of each link class; the first classes are the dimensions

# --- NPUs and nodes -------------------------------------------------------------------------------------------------
(
    NPU_ROW,
    (
        N_PROGRAM,  # first node row of its program
        N_COMMS,  # first row of its program's communication nodes
        N_NODES,  # first of its nodes' states
        N_COMM_STATES,  # first of its communication nodes' states
        N_SLOTS,
        N_READY,  # ready nodes
        N_RUNNING,  # nodes in flight
        N_FINISH,  # tick, -1: not yet
        N_ORDER,  # table: nodes in the order of issue
        N_ISSUED,  # how many were issued
        N_CALLS,
        N_COLLECTIVES,  # collectives issued
        N_QUEUES,
        N_CURSORS,
        N_MESSAGES,  # message engine: P2P rows; phase engine: table: number of the lane of each message
        N_SERVER,
        N_DIM_BYTES,  # phase engine: table of bytes sent into each dimension
        N_FIRST_BUNDLE,  # message engine: its timer bundles in order of time
        N_LAST_BUNDLE,
    ),
) = row(19)

# a node of a program
(
    NODE_ROW,
    (
        O_OP,
        O_SLOT,
        O_NS,
        O_CHILD,  # first child; the last one is the cell before the next node's first
        O_COMM,  # index among the program's communication nodes, -1: none
    ),
) = row(5)

# a communication node of a program
(
    COMM_ROW,
    (
        K_INDEX,  # index of the call, or ordinal among the point-to-point nodes
        K_PRIORITY,  # of a collective
        K_ORDINAL,  # number of a collective among those of its group, by node id
    ),
) = row(3)

# state of a node on an NPU; ticks, -1: not yet
(
    NODE_STATE,
    (
        NS_PENDING,  # parents that have not finished
        NS_ISSUE,
        NS_FINISH,
    ),
) = row(3)
# state of a communication node on an NPU
(
    COMM_STATE,
    (
        CS_PARTNER,  # when the send had been issued; -1 for collectives
        CS_INSTANCE,  # handle of its collective's instance, NIL for messages
    ),
) = row(2)

(
    SLOT_ROW,
    (
        SL_FREE,  # nodes that it may still run
        SL_N,  # nodes in its heap of ready ones
        SL_BASE,
    ),
) = row(3)

# --- queues and streams ---------------------------------------------------------------------------------------------
(
    QUEUE_ROW,
    (
        Q_RUNNING,
        Q_HEAD,
        Q_TAIL,
    ),
) = row(3)

#: kinds of collectives, each of which alternates between the two trees on its own
KINDS = 10
#: cursors of a dimension: any, first, last; then one tree counter per kind
CURSORS = 3 + KINDS

# stream: one chunk of one collective on one member; what the engines have in common
(
    STREAM_HEAD,
    (
        S_NEXT,  # in the queue
        S_QUEUE,
        S_NPU,
        S_INSTANCE,
        S_MEMBER,
        S_PHASE,  # number of the phase; -1: not issued here yet; the number of phases: ended
        S_ROW,  # row of the phase
        S_RANK,  # priority of its collective, greatest first
        S_CODES,  # per phase: queue << 2 | anticlockwise << 1 | second tree
        S_COUNTS,  # per phase: members of the ring that have started it (kept by the ring's first member)
        S_HEAD,  # stream of the member's first chunk
        S_LEFT,  # first chunk: chunks left
        S_NODE,  # first chunk: node of the workload
        S_STEP,  # words between the members' streams of a chunk
    ),
) = row(14)

# --- collectives ----------------------------------------------------------------------------------------------------
# a communicator
(
    GROUP_ROW,
    (
        G_N,  # members (phase engine: those that are simulated)
        G_MEMBERS,  # table: their NPUs
        G_INSTANCES,  # first of its collectives
        G_VIEWS,  # phase engine: per dimension, then for the flat one: table of the rings that its members are on
        G_FLAT,  # phase engine: number of the flat view
    ),
) = row(5)

# an NPU in a communicator
(
    MEMBERSHIP_ROW,
    (
        GM_GROUP,
        GM_MEMBER,
        GM_ISSUED,  # collectives issued
    ),
) = row(3)

(
    CALL_ROW,
    (
        CA_PLAN,
        CA_MEMBERSHIP,
    ),
) = row(2)

# a collective that all members meet in
(
    INSTANCE_ROW,
    (
        I_PLAN,  # NIL: not issued yet
        I_GROUP,
        I_BLOCK,
        I_CHUNKS,
        I_ISSUED,  # members
        I_ENDED,
        I_READY,  # when the last member had issued it, -1: not yet
    ),
) = row(7)

(
    PLAN_ROW,
    (
        P_CHUNKS,  # at most
        P_CHUNK_VARIANTS,  # table: variant of each chunk
        P_VARIANTS,  # table: first phase of each variant
        P_PHASES,  # of the longest variant
        P_SCHEDULE,
        P_DO,  # what a scheduled plan does
        P_BYTES,  # of the whole collective, where it is scheduled
        P_TEMPLATES,  # per dimension that the greedy schedule chooses from: see TEMPLATE_ROW
        P_CHOSEN,  # where the first phase of each chunk and the phases lie in a block, if they are made during the run
        P_WIDTH,  # words of a stream
        P_CODES,  # where the queues of its phases lie in it
        P_COUNTS,  # words at its end that count members
        P_BLOCK,  # words of an instance
        P_CLASS,  # free blocks of that size
        P_BITS,  # message engine: words of an inbox
        P_BUS,  # message engine: the shared bus replaces the endpoint delay
        P_CUSTOM,  # message engine: per member of a custom algorithm, see CUSTOM_ROW
    ),
) = row(17)

(
    TEMPLATE_ROW,
    (
        TE_N,  # members of the ring, 0: the dimension takes no part
        TE_SCATTER,
        TE_GATHER,
    ),
) = row(3)

(
    PHASE_ROW,
    (
        PH_VIEW,  # dimension whose rings are used, or FLAT
        PH_DIM,  # dimension whose queues are used
        PH_RULE,
        PH_FAMILY,
        PH_DO,
        PH_KIND,  # of collective, for the alternation of trees
        PH_N,  # members of the ring
        PH_BYTES,  # d, entering the phase
        PH_LEFT,  # phases from this one on
        PH_WINDOW,
        PH_CYCLE,  # Z
        PH_PACKETS,  # messages that each member sends
        PH_ENDPOINT,  # e
        PH_SENT,  # bytes that each member sends
        PH_SAME,  # phases that differ in their size only share this number
        PH_TAU,  # duration when all members start together and the ring looks alike from each; or TAU_
        PH_LAST,  # length of the final timer in that case
        PH_JOINT,  # all members of the ring start with the last one and end with the last one
        PH_TREE,  # phase engine: parents in tree X, tree Y follows
        PH_STEPS,  # phase engine: messages of a table of steps, and how many
        PH_STEPS_N,
        PH_WHOLE,  # parts of the data of which a message of a table of steps carries some
        PH_ROUNDS,  # message engine: the same table by member: first row and number of rows of each
    ),
) = row(23)
FLAT = -1

TAU_DIFFERS = -1  # members end apart
TAU_UNKNOWN = -2  # not computed yet

# a dimension of the network
(
    DIM_ROW,
    (
        D_TOPOLOGY,
        D_N,
        D_STRIDE,
        D_LINKS,
        D_BYTES,
        D_BYTE_HOPS,
    ),
) = row(6)

#: bytes of a rendezvous request
CONTROL_BYTES = 8192

# ====================================================================================================================
# Phase engine

(
    STREAM_OF_PHASES,
    (
        S_START,  # when it started its phase, -1: the phase has been evaluated
        S_SEQUENCE,  # the same in the order of events
    ),
) = row(2, STREAM_HEAD)

(
    RING_ROW,
    (
        RG_INDEX,  # which of its view, counted by the stream of that member
        RG_MEMBERS,  # distinct members
        RG_PLACES,  # table: member at each position
        RG_NPUS,  # table: NPU at each position
    ),
) = row(4)

# messages of one source, destination, tag and size
(
    LANE_ROW,
    (
        LN_SRC,
        LN_DST,
        LN_NS,  # of a message
        LN_BACK_NS,  # of a rendezvous request, -1: eager
        LN_FIRST,  # first of its messages
        LN_SENT,  # messages sent so far
        LN_POSTED,  # receives posted so far
    ),
) = row(7)

# a message and its receive; ticks, -1: not yet
(
    PAIR_ROW,
    (
        PR_SENT,
        PR_SEND_NODE,
        PR_ARRIVED,
        PR_POSTED,
        PR_RECV_NODE,
    ),
) = row(5)

(
    EVENT_ROW,
    (
        E_TICK,
        E_SET,  # when it was registered
        E_SEQUENCE,
        E_WHAT,
    ),
) = row(4)
# kinds of events, in the low bits of E_WHAT
EVENT_NODE = 0
EVENT_PHASE = 1
EVENT_ARRIVAL = 2

MEMO = 1024  # durations that are kept
(
    MEMO_ROW,
    (
        ME_SAME,
        ME_BYTES,
        ME_TAU,
        ME_LAST,
    ),
) = row(4)

# ====================================================================================================================
# Message engine

# actions
ACT_NODE = 1  # a node of an NPU ends
ACT_STREAM = 2  # a stream ends a phase
ACT_LEAVE = 3  # a stream leaves a queue after its last phase
ACT_REQUEST = 4  # a send or receive ends
ACT_TIMER = 5  # what a timer would do
ACT_BUS = 6  # ends of a bus may go on
ACT_START = 7  # a stream has left a queue and joined another: both may start streams

NET_UNAWARE = 0
NET_AWARE = 1
NET_GRAPH = 2  # aware, links from route tables
NET_GRAPH_UNAWARE = 3
NET_OUTSIDE = 4  # simulated by somebody else, to whom messages are handed in batches

# --- rows of the pool -----------------------------------------------------------------------------------------------
# Rows that can be events (links, messages, timer bundles, completions) keep in word 0 the next event of the same tick,
# so scheduling moves no data.
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
TM_STEP_SENT = 12  # a round's messages have passed the member's links
TM_JOINT_END = 13  # all members of a joint phase have ended it

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
(
    MAIL_ROW,
    (
        ML_MESSAGE,
        ML_SRC,
        ML_DST,
        ML_BYTES,
        ML_START,
    ),
) = row(5)

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

(
    BUS_ROW,
    (
        BE_STATE,
        BE_PREVIOUS,
        BE_LAST,
        BE_SENDS,
        BE_OUT_HEAD,  # of a list: its tail is the next word
        BE_OUT_TAIL,
        BE_IN_HEAD,  # likewise
        BE_IN_TAIL,
        BE_IN_N,
        BE_UNIT_HEAD,  # likewise
        BE_UNIT_TAIL,
        BE_UNIT_BUSY,
    ),
) = row(12)
BUS_FREE = 0
BUS_SENDING = 1
BUS_RECEIVING = 2

# memory server
(
    SERVER_ROW,
    (
        SV_BUSY,
        SV_HEAD,
        SV_TAIL,
    ),
) = row(3)

# a point-to-point node on an NPU
(
    P2P_ROW,
    (
        P2P_CHANNEL,
        P2P_CONTROL,
        P2P_PEER,
        P2P_BYTES,
    ),
) = row(4)

(
    CHANNEL_ROW,
    (
        CH_SEND,
        CH_SEND_LAST,
        CH_RECV,
        CH_RECV_LAST,
    ),
) = row(4)

# a member of a custom collective
(
    CUSTOM_ROW,
    (
        CU_PROGRAM,  # first node row
        CU_COMMS,  # first row of its communication nodes
        CU_NODES,
        CU_MESSAGES,  # first P2P row
    ),
) = row(4)

# table of steps by member: per member its first row and number of rows
(
    MEMBER_ROW,
    (
        MR_FIRST,
        MR_N,
    ),
) = row(2)
# a round in which the member takes part; -1: it does not send, or not receive
(
    STEP_ROW,
    (
        SR_TO,
        SR_TO_ROW,  # the receiver's row of the message
        SR_SHARE,
        SR_FROM,
        SR_FROM_ROW,
        SR_FROM_SHARE,
        SR_REDUCES,
    ),
) = row(7)

(
    STREAM_OF_MESSAGES,
    (
        S_ALGORITHM,
        S_DO,
        S_TOTAL,  # messages of the phase
        S_WINDOW,
        S_CYCLE,  # packets between two equal places: window and Z
        S_ARMED,
        S_SENT,  # packets, rounds, or a set of tree edges
        S_RECEIVED,
        S_CREDITS,
        S_DELAY,  # -1: the shared bus takes its place
        S_SIZE,  # bytes of a message (ring, direct, tree)
        S_REDUCE,  # its reduction, ns
        S_RING_N,
        S_INDEX,
        S_RING_BASE,
        S_RING_STRIDE,  # 0: the ring is a list of members
        S_DIRECTION,
        S_ARRIVED,  # ring: messages arrived; tree: set of edges
        S_CONTROLS,  # the same for control messages
        S_BYTES,  # entering the phase
        S_EARLY,  # messages of later phases
        S_TREE,  # which of the two trees
        S_POSTED,  # tree: edges whose receive is posted
        S_PLACE,  # of the next packet to be armed in its cycle
        S_ODD,  # number of that cycle modulo 2
        S_INBOX,  # first word of the inbox
        S_BITS,  # words of an inbox
    ),
) = row(27, STREAM_HEAD)
# algorithms that have no packets use the words of the credit machine
S_ROUNDS = S_TOTAL  # steps: rounds of the member
S_TABLE = S_CYCLE  # steps: its first row
S_AWAITED = S_ARMED  # steps: what the running round waits for
S_NODES_LEFT = S_TOTAL  # custom
S_PENDING = S_INBOX  # custom: first of its nodes' numbers of parents that have not finished
