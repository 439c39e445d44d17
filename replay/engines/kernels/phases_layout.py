"""Rows of the phase-level engine, beside those that both engines have."""

from chakra.replay.engines.kernels.layout import *  # noqa: F403
from chakra.replay.engines.kernels.layout import STREAM_HEAD, row

# stream
(
    STREAM_OF_PHASES,
    (
        S_START,  # when it started its phase, -1: the phase has been evaluated
        S_SEQUENCE,  # the same in the order of events
        S_BEGAN,  # when all members of its ring started the phase together, -1: they did not
    ),
) = row(3, STREAM_HEAD)

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
EVENT_BESIDE = 3  # of computing, or with the next bit of a collective, that may have moved meanwhile

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

# memory server
(
    SERVER_ROW,
    (
        SV_END,  # tick at which its accesses so far end
    ),
) = row(1)
