"""Point-to-point messages: pairing sends with receives, eager and rendezvous (replay semantics, 5.1 and 5.2).

A *channel* is a distinct (tag, source, destination, size), numbered by the front; the j-th send of a channel pairs
with its j-th receive. Control messages of the rendezvous protocol have channels without the size. Custom collectives
use the same channels.
"""

from chakra.replay.kernels.messages_events import free_row, schedule, take_row
from chakra.replay.kernels.messages_layout import (
    C_NOW,
    C_RENDEZVOUS,
    CH_RECV,
    CH_RECV_LAST,
    CH_SEND,
    CH_SEND_LAST,
    EV_REQUEST,
    KIND,
    M_DST,
    M_OWNER,
    M_P,
    M_SIZE,
    M_X,
    M_Y,
    MSG_P2P,
    MSG_P2P_CONTROL,
    N_NODES,
    NIL,
    NODE_STATE,
    NPU_BASE,
    NPU_ROW,
    NS_ISSUE,
    NS_PARTNER,
    P2P_CHANNEL,
    P2P_CONTROL,
    P2P_PEER,
    R_CHANNEL,
    R_CONTROL,
    R_NEXT,
    R_NODE,
    R_NPU,
    R_PEER,
    R_SIZE,
    R_STREAM,
    R_WHAT,
    RQ_RECV,
    RQ_SEND,
    State,
)
from chakra.replay.kernels.messages_network import launch

#: nothing here is compiled for its own sake, only as part of `messages.run`
ENTRY_POINTS = ()
ALLOCATES = False

#: bytes of a control message
CONTROL_SIZE = 8192


def issued_at(s: State, request: int) -> int:
    """When the workload node of a request was issued; -1 for a custom collective's."""
    m = s.m
    if m[request + R_STREAM] != NIL:
        return -1
    return m[
        m[NPU_BASE + m[request + R_NPU] * NPU_ROW + N_NODES] + NODE_STATE * m[request + R_NODE] + NS_ISSUE
    ]


def note_partner(s: State, request: int, tick: int) -> None:
    """Note when the send of a workload node's receive was issued."""
    m = s.m
    if m[request + R_STREAM] == NIL and m[request + R_WHAT] == RQ_RECV:
        m[
            m[NPU_BASE + m[request + R_NPU] * NPU_ROW + N_NODES]
            + NODE_STATE * m[request + R_NODE]
            + NS_PARTNER
        ] = tick


def offer(s: State, channel: int, message: int) -> None:
    """A message sets out on a channel: pair it with the oldest waiting receive, or let it wait for one."""
    m = s.m
    request = m[channel + CH_RECV]
    m[message + M_X] = request
    m[message + M_Y] = 0
    if request != NIL:
        m[channel + CH_RECV] = m[request + R_NEXT]
        if m[request + R_NEXT] == NIL:
            m[channel + CH_RECV_LAST] = NIL
        note_partner(s, request, issued_at(s, m[message + M_OWNER]))
        return
    m[message + M_P] = NIL
    last = m[channel + CH_SEND_LAST]
    if last == NIL:
        m[channel + CH_SEND] = message
    else:
        m[last + M_P] = message
    m[channel + CH_SEND_LAST] = message


def accept(s: State, channel: int, request: int) -> None:
    """Post a request for the next message of a channel; if that has arrived, the request ends at the end of this tick."""
    m = s.m
    message = m[channel + CH_SEND]
    if message == NIL:
        m[request + R_NEXT] = NIL
        last = m[channel + CH_RECV_LAST]
        if last == NIL:
            m[channel + CH_RECV] = request
        else:
            m[last + R_NEXT] = request
        m[channel + CH_RECV_LAST] = request
        return
    m[channel + CH_SEND] = m[message + M_P]
    if m[message + M_P] == NIL:
        m[channel + CH_SEND_LAST] = NIL
    if m[message + M_Y]:
        note_partner(s, request, m[message + M_SIZE])
        free_row(s, message)
        m[request + KIND] = EV_REQUEST
        schedule(s, m[C_NOW], request)
    else:
        note_partner(s, request, issued_at(s, m[message + M_OWNER]))
        m[message + M_X] = request


def arrive_unpaired(s: State, message: int, tick: int) -> None:
    """A message arrived before its receive was posted; keep the tick at which its send was issued."""
    m = s.m
    m[message + M_Y] = 1
    m[message + M_SIZE] = tick


def new_request(s: State, npu: int, node: int, stream: int, what: int, size: int, channel: int) -> int:
    """A posted send or receive; `channel` is its row of `p2p`."""
    m = s.m
    row = take_row(s)
    m[row + R_NPU] = npu
    m[row + R_NODE] = node
    m[row + R_STREAM] = stream
    m[row + R_SIZE] = size
    m[row + R_WHAT] = what
    m[row + R_CHANNEL] = m[channel + P2P_CHANNEL]
    m[row + R_CONTROL] = m[channel + P2P_CONTROL]
    m[row + R_PEER] = m[channel + P2P_PEER]
    return row


def new_message(s: State, request: int, kind: int, size: int) -> int:
    """A message of a request to its peer."""
    m = s.m
    row = take_row(s)
    m[row + KIND] = kind
    m[row + M_DST] = m[request + R_PEER]
    m[row + M_SIZE] = size
    m[row + M_OWNER] = request
    return row


def send_eager(s: State, request: int) -> None:
    """Let the data of a send request leave."""
    m = s.m
    message = new_message(s, request, MSG_P2P, m[request + R_SIZE])
    offer(s, m[request + R_CHANNEL], message)
    launch(s, message, m[request + R_NPU])


def post(s: State, request: int) -> None:
    """Issue a send or a receive; under rendezvous a receive first asks for the data (5.2)."""
    m = s.m
    what = m[request + R_WHAT]
    if not m[C_RENDEZVOUS]:
        if what == RQ_SEND:
            send_eager(s, request)
        else:
            accept(s, m[request + R_CHANNEL], request)
    elif what == RQ_SEND:
        accept(s, m[request + R_CONTROL], request)
    else:
        message = new_message(s, request, MSG_P2P_CONTROL, CONTROL_SIZE)
        offer(s, m[request + R_CONTROL], message)
        launch(s, message, m[request + R_NPU])


def arrive_control(s: State, message: int) -> None:
    """A control message arrived: the receive is posted, then the data leave if their send was issued."""
    m = s.m
    receive = m[message + M_OWNER]
    accept(s, m[receive + R_CHANNEL], receive)
    send = m[message + M_X]
    if send == NIL:
        arrive_unpaired(s, message, -1)
    else:
        free_row(s, message)
        send_eager(s, send)
