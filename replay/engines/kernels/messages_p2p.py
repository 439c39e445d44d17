"""Point-to-point messages: pairing sends with receives, eager and rendezvous (replay semantics, sections 5.1 and 5.2).

A *channel* is a distinct (tag, source, destination, size), numbered by the front; the j-th send of a channel pairs
with its j-th receive. Control messages of the rendezvous protocol have channels without the size. Custom collectives
use the same channels.
"""

from chakra.replay.engines.kernels import messages_layout as L
from chakra.replay.engines.kernels.layout import State
from chakra.replay.engines.kernels.messages_events import free_row, schedule, take_row
from chakra.replay.engines.kernels.network import send
from chakra.replay.engines.kernels.nodes import comm_state

#: nothing here is compiled for its own sake, only as part of `messages.run`
ENTRY_POINTS = ()
ALLOCATES = False


def issued_at(s: State, request: int) -> int:
    """When the workload node of a request was issued; -1 for a custom collective's."""
    m = s.m
    if m[request + L.R_STREAM] != L.NIL:
        return -1
    return m[comm_state(s, m[request + L.R_NPU], m[request + L.R_NODE]) + L.CS_PARTNER]


def note_partner(s: State, request: int, tick: int) -> None:
    """Note when the send of a workload node's receive was issued."""
    m = s.m
    if m[request + L.R_STREAM] == L.NIL and m[request + L.R_WHAT] == L.RQ_RECV:
        m[comm_state(s, m[request + L.R_NPU], m[request + L.R_NODE]) + L.CS_PARTNER] = tick


def offer(s: State, channel: int, message: int) -> None:
    """A message sets out on a channel: pair it with the oldest waiting receive, or let it wait for one."""
    m = s.m
    request = m[channel + L.CH_RECV]
    m[message + L.MP_TAKER] = request
    m[message + L.MP_ISSUED] = L.UNDER_WAY
    if request != L.NIL:
        m[channel + L.CH_RECV] = m[request + L.R_NEXT]
        if m[request + L.R_NEXT] == L.NIL:
            m[channel + L.CH_RECV_LAST] = L.NIL
        note_partner(s, request, issued_at(s, m[message + L.MP_REQUEST]))
        return
    m[message + L.MP_NEXT] = L.NIL
    last = m[channel + L.CH_SEND_LAST]
    if last == L.NIL:
        m[channel + L.CH_SEND] = message
    else:
        m[last + L.MP_NEXT] = message
    m[channel + L.CH_SEND_LAST] = message


def accept(s: State, channel: int, request: int) -> None:
    """Post a request for the next message of a channel; if that has arrived, the request ends at the end of this tick."""
    m = s.m
    message = m[channel + L.CH_SEND]
    if message == L.NIL:
        m[request + L.R_NEXT] = L.NIL
        last = m[channel + L.CH_RECV_LAST]
        if last == L.NIL:
            m[channel + L.CH_RECV] = request
        else:
            m[last + L.R_NEXT] = request
        m[channel + L.CH_RECV_LAST] = request
        return
    m[channel + L.CH_SEND] = m[message + L.MP_NEXT]
    if m[message + L.MP_NEXT] == L.NIL:
        m[channel + L.CH_SEND_LAST] = L.NIL
    if m[message + L.MP_ISSUED] != L.UNDER_WAY:
        note_partner(s, request, m[message + L.MP_ISSUED])
        free_row(s, message)
        m[request + L.KIND] = L.EV_REQUEST
        schedule(s, m[L.C_NOW], request)
    else:
        note_partner(s, request, issued_at(s, m[message + L.MP_REQUEST]))
        m[message + L.MP_TAKER] = request


def arrive_unpaired(s: State, message: int, tick: int) -> None:
    """A message arrived before its receive was posted; keep the tick at which its send was issued."""
    s.m[message + L.MP_ISSUED] = tick


def new_request(s: State, npu: int, node: int, stream: int, what: int, message: int) -> int:
    """A posted send or receive; `message` is its P2P row."""
    m = s.m
    row = take_row(s)
    m[row + L.R_NPU] = npu
    m[row + L.R_NODE] = node
    m[row + L.R_STREAM] = stream
    m[row + L.R_SIZE] = m[message + L.P2P_BYTES]
    m[row + L.R_WHAT] = what
    m[row + L.R_CHANNEL] = m[message + L.P2P_CHANNEL]
    m[row + L.R_CONTROL] = m[message + L.P2P_CONTROL]
    m[row + L.R_PEER] = m[message + L.P2P_PEER]
    return row


def new_message(s: State, request: int, kind: int, size: int) -> int:
    """A message of a request to its peer."""
    m = s.m
    row = take_row(s)
    m[row + L.KIND] = kind
    m[row + L.M_DST] = m[request + L.R_PEER]
    m[row + L.M_SIZE] = size
    m[row + L.MP_REQUEST] = request
    return row


def send_eager(s: State, request: int) -> None:
    """Let the data of a send request leave."""
    m = s.m
    message = new_message(s, request, L.MSG_P2P, m[request + L.R_SIZE])
    offer(s, m[request + L.R_CHANNEL], message)
    send(s, message, m[request + L.R_NPU])


def post(s: State, request: int) -> None:
    """Issue a send or a receive; under rendezvous a receive first asks for the data (5.2)."""
    m = s.m
    what = m[request + L.R_WHAT]
    if not m[L.C_RENDEZVOUS]:
        if what == L.RQ_SEND:
            send_eager(s, request)
        else:
            accept(s, m[request + L.R_CHANNEL], request)
    elif what == L.RQ_SEND:
        accept(s, m[request + L.R_CONTROL], request)
    else:
        message = new_message(s, request, L.MSG_P2P_CONTROL, L.CONTROL_BYTES)
        offer(s, m[request + L.R_CONTROL], message)
        send(s, message, m[request + L.R_NPU])


def arrive_control(s: State, message: int) -> None:
    """A control message arrived: the receive is posted, then the data leave if their send was issued."""
    m = s.m
    receive = m[message + L.MP_REQUEST]
    accept(s, m[receive + L.R_CHANNEL], receive)
    send = m[message + L.MP_TAKER]
    if send == L.NIL:
        arrive_unpaired(s, message, -1)
    else:
        free_row(s, message)
        send_eager(s, send)
