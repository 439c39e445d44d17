"""Rows of the message-level engine, beside those that both engines have."""

from chakra.replay.engines.kernels.layout import *  # noqa: F403
from chakra.replay.engines.kernels.layout import STREAM_HEAD, row

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
NET_FLOW = 5  # flows that share links

# --- rows of the pool -----------------------------------------------------------------------------------------------
# Rows of the pool have one size. Those that can be events (links, messages, timer bundles, completions) are linked to
# the next event of the same tick by their first word, so scheduling moves no data.
(
    POOL_HEAD,
    (
        NEXT,  # in the list that the row is in
        KIND,  # of event
    ),
) = row(2)

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
MSG_SWITCH = 12  # between an NPU and the switch of a dimension

# bucket: all events of one tick, in order of scheduling
(
    BUCKET_ROW,
    (
        B_TICK,
        B_HEAD,
        B_TAIL,
    ),
) = row(3, POOL_HEAD)

# timer bundle: timers of one NPU that expire at one tick; the first timer is in the row itself
(
    BUNDLE_ROW,
    (
        T_TICK,
        T_PREV,  # bundles of the NPU in order of time
        T_SUCC,
        T_NPU,
        T_HEAD,  # timers behind the first
        T_TAIL,
        T_WHAT,  # TM_, and what it is called with
        T_A,
        T_B,
    ),
) = row(9, POOL_HEAD)

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
TM_CUSTOM_START = 14  # a member of a joint phase issues its first sends and receives
TM_WORK = 15  # a compute node that collectives slow down ends, unless its end has moved
TM_BESIDE = 16  # the same of a collective
TM_SWITCH = 17  # a member of a phase that a switch carries out sends

# link; a table, not in the pool
(
    LINK_ROW,
    (
        L_BUSY,
        L_HEAD,  # messages that wait
        L_TAIL,
        L_ONWARD,  # next link of a ring in the same direction
        L_CLASS,
        L_SIZE,  # size whose two delays are remembered
        L_SERIAL,
        L_TOTAL,
        L_BYTES,
        L_BUSY_NS,
        L_QUEUED_NS,
        L_MESSAGES,
        L_USE,  # its use over time (`link_use`), NIL: not kept
        L_PART,  # equal for links of a route that a message takes time for once, without contention
    ),
) = row(14, POOL_HEAD)

# message: what a network knows of it; the rest is its owner's
(
    MESSAGE_HEAD,
    (
        M_DST,
        M_SIZE,
        M_AT,  # NPU at which the hops end that it is on
        M_HOPS,  # hops left up to there
        M_LINK,
        M_DOWN,  # link from a switch down, NIL: not over a switch
    ),
) = row(6, POOL_HEAD)
M_ROUTE = M_DOWN  # on single links: place in its route

# data of a native collective
(
    DATA_ROW,
    (
        MD_STREAM,  # that gets them
        MD_PACKET,  # number there << 6 | phase
        MD_SENDER,  # rendezvous: NPU that they leave at the end of this tick
    ),
) = row(3, MESSAGE_HEAD)

# rendezvous: control message of a native collective, which asks for data
(
    CONTROL_ROW,
    (
        MC_STREAM,  # that sends the data
        MC_PACKETS,  # (number there << 6 | phase) << 24 | number at the asker
        MC_ASKER,  # stream that waits for the data
        MC_BYTES,  # of the data
    ),
) = row(4, MESSAGE_HEAD)

# point-to-point message: data, or under rendezvous a control message, which asks a send for them
(
    MESSAGE_ROW,
    (
        MP_REQUEST,  # that sent it
        MP_TAKER,  # request at the other end, NIL: not posted yet
        MP_NEXT,  # in its channel
        MP_ISSUED,  # when it is there before its taker: when its send was issued, -1: no matter; else UNDER_WAY
    ),
) = row(4, MESSAGE_HEAD)
UNDER_WAY = -2

# receive of a native collective's message that is there already
(
    RECEIPT_ROW,
    (RC_STREAM,),
) = row(1, POOL_HEAD)

# request: a posted send or receive
(
    REQUEST_ROW,
    (
        R_NPU,
        R_NODE,  # of the NPU's program, or of the custom algorithm
        R_STREAM,  # custom collective's stream, NIL: a node of the workload
        R_SIZE,
        R_PEER,
        R_CHANNEL,
        R_CONTROL,  # channel of control messages
        R_WHAT,
        R_NEXT,  # in a channel
    ),
) = row(9, POOL_HEAD)
RQ_RECV = 0
RQ_SEND = 1

# memory access that waits for its server
(
    ACCESS_ROW,
    (
        AC_NPU,
        AC_NODE,
        AC_NS,  # how long it takes
    ),
) = row(3, POOL_HEAD)

# packet that crosses the shared bus
(
    CROSSING_ROW,
    (
        BQ_SIZE,
        BQ_REDUCE,
        BQ_BACK,
        BQ_STREAM,
        BQ_PACKET,
        BQ_LATER,  # reduction of section 4.1 still to come
        BQ_STAGE,
        BQ_INNER_BACK,
        BQ_TREE,
    ),
) = row(9, POOL_HEAD)
STAGE_SEND = 0
STAGE_REDUCE = 1
STAGE_RETIRE = 2

ROW = max(
    BUCKET_ROW,
    BUNDLE_ROW,
    DATA_ROW,
    CONTROL_ROW,
    MESSAGE_ROW,
    RECEIPT_ROW,
    REQUEST_ROW,
    ACCESS_ROW,
    CROSSING_ROW,
)

# --- tables ---------------------------------------------------------------------------------------------------------
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

# an end of a shared bus
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

# the ring of a member of a communicator of classes, as the NPU sees it that stands for the class
(
    RING_ROW,
    (
        RG_INDEX,  # its own position
        RG_PARTS,  # members that are simulated
        RG_PLACES,  # table: member at each position
        RG_NPUS,  # table: NPU at each position
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
        S_SENT,  # packets
        S_RECEIVED,
        S_CREDITS,
        S_DELAY,  # -1: the shared bus takes its place
        S_SIZE,  # bytes of a message (ring, direct, tree)
        S_REDUCE,  # its reduction, ns
        S_RING_N,
        S_RING_PARTS,  # of its members, those that are simulated: all, or one that stands for all
        S_RING_PLACES,  # table: member that stands for each position; NIL: each for itself
        S_INDEX,
        S_RING_BASE,
        S_RING_STRIDE,  # 0: the ring is a list of members
        S_DIRECTION,
        S_ARRIVED,  # ring: messages
        S_CONTROLS,  # ring: control messages
        S_BYTES,  # entering the phase
        S_EARLY,  # messages of later phases
        S_TREE,  # which of the two trees
        S_POSTED,  # tree: edges whose receive is posted
        S_PLACE,  # of the next packet to be armed in its cycle
        S_ODD,  # number of that cycle modulo 2
        S_INBOX,  # first word of the inbox
        S_BITS,  # words of an inbox
    ),
) = row(29, STREAM_HEAD)
# algorithms that have no packets use the words of the credit machine
S_ROUNDS = S_TOTAL  # steps: rounds of the member
S_ROUND = S_SENT  # steps: rounds that it has begun
S_TABLE = S_CYCLE  # steps: its first row
S_AWAITED = S_ARMED  # steps: what the running round waits for
S_EDGES_SENT = S_SENT  # tree: set of edges
S_EDGES_ARRIVED = S_ARRIVED  # tree: set of edges; control messages likewise, behind it
S_DELAYS = S_CREDITS  # tree: local delays that have ended
S_NODES_LEFT = S_TOTAL  # custom
S_PENDING = S_INBOX  # custom: first of its nodes' numbers of parents that have not finished
