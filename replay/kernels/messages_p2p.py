"""Point-to-point messages: pairing sends with receives, eager and rendezvous (replay semantics, 5.1 and 5.2).

A *channel* is a distinct (tag, source, destination, size), numbered by the front; the j-th send of a channel pairs
with its j-th receive. Control messages of the rendezvous protocol have channels without the size. Custom collectives
use the same channels.
"""

from chakra.replay.kernels.messages_events import free_row, schedule, take_row
from chakra.replay.kernels.messages_layout import (
    CHANNEL_ROW,
    CH_RECV,
    CH_RECV_LAST,
    CH_SEND,
    CH_SEND_LAST,
    C_NOW,
    C_RENDEZVOUS,
    EV_REQUEST,
    KIND,
    MSG_P2P,
    MSG_P2P_CONTROL,
    M_DST,
    M_OWNER,
    M_P,
    M_SIZE,
    M_X,
    M_Y,
    NIL,
    NPU_ROW,
    N_NODES,
    P2P_CHANNEL,
    P2P_CONTROL,
    P2P_PEER,
    RQ_RECV,
    RQ_SEND,
    R_CHANNEL,
    R_CONTROL,
    R_NEXT,
    R_NODE,
    R_NPU,
    R_PEER,
    R_SIZE,
    R_STREAM,
    R_WHAT,
    State,
)
from chakra.replay.kernels.messages_network import launch

#: nothing here is compiled for its own sake, only as part of `messages.run`
ENTRY_POINTS = ()

#: bytes of a control message
CONTROL_SIZE = 8192


def issued_at(s: State, request: int) -> int:
    """When the workload node of a request was issued; -1 for a custom collective's."""
    ent = s.ent
    if ent[request + R_STREAM] != NIL:
        return -1
    return s.issue[s.npu[ent[request + R_NPU] * NPU_ROW + N_NODES] + ent[request + R_NODE]]


def note_partner(s: State, request: int, tick: int) -> None:
    """Note when the send of a workload node's receive was issued."""
    ent = s.ent
    if ent[request + R_STREAM] == NIL and ent[request + R_WHAT] == RQ_RECV:
        s.partner[s.npu[ent[request + R_NPU] * NPU_ROW + N_NODES] + ent[request + R_NODE]] = tick


def offer(s: State, channel: int, message: int) -> None:
    """A message sets out on a channel: pair it with the oldest waiting receive, or let it wait for one."""
    ent, channels = s.ent, s.channels
    at = channel * CHANNEL_ROW
    request = channels[at + CH_RECV]
    ent[message + M_X] = request
    ent[message + M_Y] = 0
    if request != NIL:
        channels[at + CH_RECV] = ent[request + R_NEXT]
        if ent[request + R_NEXT] == NIL:
            channels[at + CH_RECV_LAST] = NIL
        note_partner(s, request, issued_at(s, ent[message + M_OWNER]))
        return
    ent[message + M_P] = NIL
    last = channels[at + CH_SEND_LAST]
    if last == NIL:
        channels[at + CH_SEND] = message
    else:
        ent[last + M_P] = message
    channels[at + CH_SEND_LAST] = message


def accept(s: State, channel: int, request: int) -> None:
    """Post a request for the next message of a channel; if that has arrived, the request ends at the end of this tick."""
    ent, channels = s.ent, s.channels
    at = channel * CHANNEL_ROW
    message = channels[at + CH_SEND]
    if message == NIL:
        ent[request + R_NEXT] = NIL
        last = channels[at + CH_RECV_LAST]
        if last == NIL:
            channels[at + CH_RECV] = request
        else:
            ent[last + R_NEXT] = request
        channels[at + CH_RECV_LAST] = request
        return
    channels[at + CH_SEND] = ent[message + M_P]
    if ent[message + M_P] == NIL:
        channels[at + CH_SEND_LAST] = NIL
    if ent[message + M_Y]:
        note_partner(s, request, ent[message + M_SIZE])
        free_row(s, message)
        ent[request + KIND] = EV_REQUEST
        schedule(s, s.c[C_NOW], request)
    else:
        note_partner(s, request, issued_at(s, ent[message + M_OWNER]))
        ent[message + M_X] = request


def arrive_unpaired(s: State, message: int, tick: int) -> None:
    """A message arrived before its receive was posted; keep the tick at which its send was issued."""
    s.ent[message + M_Y] = 1
    s.ent[message + M_SIZE] = tick


def new_request(s: State, npu: int, node: int, stream: int, what: int, size: int, channel: int) -> int:
    """A posted send or receive; `channel` is its row of `p2p`."""
    row = take_row(s)
    ent = s.ent
    ent[row + R_NPU] = npu
    ent[row + R_NODE] = node
    ent[row + R_STREAM] = stream
    ent[row + R_SIZE] = size
    ent[row + R_WHAT] = what
    ent[row + R_CHANNEL] = s.p2p[channel + P2P_CHANNEL]
    ent[row + R_CONTROL] = s.p2p[channel + P2P_CONTROL]
    ent[row + R_PEER] = s.p2p[channel + P2P_PEER]
    return row


def new_message(s: State, request: int, kind: int, size: int) -> int:
    """A message of a request to its peer."""
    row = take_row(s)
    s.ent[row + KIND] = kind
    s.ent[row + M_DST] = s.ent[request + R_PEER]
    s.ent[row + M_SIZE] = size
    s.ent[row + M_OWNER] = request
    return row


def send_eager(s: State, request: int) -> None:
    """Let the data of a send request leave."""
    message = new_message(s, request, MSG_P2P, s.ent[request + R_SIZE])
    offer(s, s.ent[request + R_CHANNEL], message)
    launch(s, message, s.ent[request + R_NPU])


def post(s: State, request: int) -> None:
    """Issue a send or a receive; under rendezvous a receive first asks for the data (5.2)."""
    ent = s.ent
    what = ent[request + R_WHAT]
    if not s.c[C_RENDEZVOUS]:
        if what == RQ_SEND:
            send_eager(s, request)
        else:
            accept(s, ent[request + R_CHANNEL], request)
    elif what == RQ_SEND:
        accept(s, ent[request + R_CONTROL], request)
    else:
        message = new_message(s, request, MSG_P2P_CONTROL, CONTROL_SIZE)
        offer(s, ent[request + R_CONTROL], message)
        launch(s, message, ent[request + R_NPU])


def arrive_control(s: State, message: int) -> None:
    """A control message arrived: the receive is posted, then the data leave if their send was issued."""
    ent = s.ent
    receive = ent[message + M_OWNER]
    accept(s, ent[receive + R_CHANNEL], receive)
    send = ent[message + M_X]
    if send == NIL:
        arrive_unpaired(s, message, -1)
    else:
        free_row(s, message)
        send_eager(s, send)
