"""State of a run: one array of integers, and where each field lies in a row. What both engines have.

A *handle* is the index of a row's first word, so a field is ``m[handle + FIELD]``; `NIL` is no row. First come the
scalars of the run, then the rows of the NPUs, then tables of fixed size, then the pool, which only grows.

A row is declared once, by `row`: the names of its fields in order, with the number of fields, so that sizes and offsets
follow from the list and a forgotten name fails at import. Every field means one thing; where two algorithms never use a
row at once, a second name for the same word says so (``S_ROUNDS = S_TOTAL``).

`phases_layout` and `messages_layout` add what one engine has, and hold all names of this module, too: a kernel imports
the one that it needs as ``L``.

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
        C_OVERLAP,  # computing and a library's collectives slow each other down
        C_RATE_COMPUTING,  # while a collective runs beside it
        C_RATE_COLLECTIVE,  # while a member computes beside it
        C_HAPPENED,  # message engine: tick of the last event that meant something
        # message engine: time
        C_FREE,  # first free row of the pool
        C_HEAP,  # binary heap in order of time: ticks and their buckets, or events (phase engine)
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
        C_EVERY_DIM,  # a message is booked in every dimension in which its ends differ, not in the highest only
        C_ROUTE_START,
        C_FLOW,  # head of the tables of flows that share links
        C_USE_N,  # intervals in which the use of each link is summed
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
        C_HEAP_ROOM,  # events at which those that mean nothing any more are taken out
        C_SET,  # when the running event was registered
        C_TIES,  # ends of phases at one tick whose order only messages tell
        C_LANES,
        C_MEMO,  # table of durations of phases that were made during the run
        C_SCRATCH,  # table for phases that are evaluated member by member
        C_CREDITS,  # heap of such a phase's credits
    ),
) = row(73)
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
        N_P2P,  # message engine: first row of its point-to-point nodes
        N_LANES,  # phase engine: table: number of the lane of each message
        N_SERVER,  # its memory server
        N_DIM_BYTES,  # phase engine: table of bytes sent into each dimension
        N_FIRST_BUNDLE,  # message engine: its timer bundles in order of time
        N_LAST_BUNDLE,
        N_WORKS,  # table: compute nodes that run, where collectives slow them down
        N_WORKS_N,
        N_COUNTED,  # tick up to which what they have done is counted
        N_COMPUTES,  # 1 if some run, as far as its collectives know
        N_BESIDES,  # table: instances of collectives that run on it
        N_BESIDES_N,
        N_END_TICK,  # phase engine: its latest end of a phase
        N_END_SET,  # when that end was registered
        N_END_BEGAN,  # of that phase: S_BEGAN, PH_SAME and PH_BYTES
        N_END_SAME,
        N_END_BYTES,
        N_END_QUEUE,  # that its stream left
        N_END_NEXT,  # that its stream went on to, NIL: the collective ended there
    ),
) = row(33)

# a compute node that runs, where collectives slow it down
(
    WORK_ROW,
    (
        W_NODE,
        W_LEFT,  # in 1 / ONE ns
        W_END,  # tick, at the rate that holds
        W_EVENT,  # the event that ends it, NO_EVENT: none yet
    ),
) = row(4)
#: the rate of what runs alone
ONE = 10_000
NO_EVENT = -1

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
        G_VIEWS,  # classes: per dimension, then for the flat one: table of the rings that its members are on
        G_FLAT,  # classes: number of the flat view
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
        I_LEFT,  # where computing slows it down: what is left in 1 / ONE ns; of messages: what it has fallen behind
        I_COUNTED,  # tick up to which that is counted
        I_COMPUTING,  # members whose NPU computes
        I_MOVING,  # its messages are under way
        I_END,  # tick, at the rate that holds
        I_EVENT,  # the event that ends it, NO_EVENT: none yet
    ),
) = row(13)

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
        PH_AS_ASTRA,  # messages have ASTRA-sim's sizes (C23)
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
        PH_SIZES,  # direct: bytes from each member to each (-1: no message), where shares are unequal; NIL: all alike
        PH_TREE,  # phase engine: parents in tree X, tree Y follows
        PH_STEPS,  # phase engine: messages of a table of steps, and how many
        PH_STEPS_N,
        PH_WHOLE,  # parts of the data of which a message of a table of steps carries some
        PH_ROUNDS,  # message engine: the same table by member: first row and number of rows of each
        PH_DELAY,  # message engine: from the last start of a joint phase to its first messages, or its end
        PH_BESIDE,  # a library's collective that computing beside it slows down
    ),
) = row(27)
FLAT = -1

TAU_DIFFERS = -1  # members end apart
TAU_UNKNOWN = -2  # not computed yet
TAU_SPARSE = -3  # members end apart, and need not wait for all: some receive nothing from some

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
