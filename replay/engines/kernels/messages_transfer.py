"""Messages of native collectives: logical rings, inboxes, sends and receives (replay semantics, sections 4.2 and 5.2).

A message carries its packet number, and the receiver's p-th receive takes packet p: every native algorithm posts its
receives in packet order. An inbox holds what arrived before its receive was posted.
"""

from chakra.replay.engines.kernels import codes as K
from chakra.replay.engines.kernels import messages_layout as L
from chakra.replay.engines.kernels.layout import State
from chakra.replay.engines.kernels.messages_events import free_row, schedule, take_row
from chakra.replay.engines.kernels.network import send

#: nothing here is compiled for its own sake, only as part of `messages.run`
ENTRY_POINTS = ()
ALLOCATES = False


#: messages carry packet << PHASE_SHIFT | phase
PHASE_SHIFT = 6
PHASE_MASK = 63
#: packets of an inbox word: 32
WORD_SHIFT = 5
WORD_MASK = 31


def ring_npu(s: State, x: int, index: int) -> int:
    """NPU at a position of a stream's logical ring."""
    m = s.m
    stride = m[x + L.S_RING_STRIDE]
    if stride == 0:
        return m[m[x + L.S_RING_BASE] + index]
    return m[x + L.S_RING_BASE] + index * stride


def twin(s: State, x: int, index: int, npu: int) -> int:
    """The stream of the same chunk on the member at a position of the ring."""
    m = s.m
    if m[x + L.S_RING_PLACES] != L.NIL:
        member = m[m[x + L.S_RING_PLACES] + index]
    else:
        member = index if m[x + L.S_RING_STRIDE] == 0 else npu
    return x + (member - m[x + L.S_MEMBER]) * m[x + L.S_STEP]


def inbox_word(s: State, x: int, p: int, control: int) -> int:
    """Where packet p's bit lies; `control` is 1 for control messages."""
    m = s.m
    return m[x + L.S_INBOX] + control * m[x + L.S_BITS] + (p >> WORD_SHIFT)


def arrived_early(s: State, x: int, p: int, control: int) -> bool:
    """Whether packet p is in the inbox. A ring has one source, whose messages stay in order: a count is enough."""
    m = s.m
    if m[x + L.S_ALGORITHM] == K.ALG_RING:
        return m[x + L.S_ARRIVED + control] > p
    if m[x + L.S_ALGORITHM] == K.ALG_TREE:
        return (m[x + L.S_EDGES_ARRIVED + control] >> p) & 1 != 0
    return (m[inbox_word(s, x, p, control)] >> (p & WORD_MASK)) & 1 != 0


def put_in_inbox(s: State, x: int, p: int, control: int) -> None:
    """Remember that packet p arrived."""
    m = s.m
    if m[x + L.S_ALGORITHM] == K.ALG_RING:
        m[x + L.S_ARRIVED + control] += 1
    elif m[x + L.S_ALGORITHM] == K.ALG_TREE:
        m[x + L.S_EDGES_ARRIVED + control] |= 1 << p
    else:
        m[inbox_word(s, x, p, control)] |= 1 << (p & WORD_MASK)


def send_data(s: State, x: int, index: int, p: int, p_there: int, size: int) -> None:
    """Issue the send of a packet to a position of the ring, where it is packet `p_there`."""
    m = s.m
    if m[L.C_RENDEZVOUS] and not arrived_early(s, x, p, 1):
        return  # the control message will become the data
    npu = ring_npu(s, x, index)
    row = take_row(s)
    m[row + L.M_DST] = npu
    m[row + L.M_SIZE] = size
    m[row + L.MD_STREAM] = twin(s, x, index, npu)
    m[row + L.MD_PACKET] = p_there << PHASE_SHIFT | m[x + L.S_PHASE]
    if m[L.C_RENDEZVOUS]:
        m[row + L.KIND] = L.EV_STREAM_GO
        m[row + L.MD_SENDER] = m[x + L.S_NPU]
        schedule(s, m[L.C_NOW], row)
    else:
        m[row + L.KIND] = L.MSG_DATA
        send(s, row, m[x + L.S_NPU])


def go_data(s: State, row: int) -> None:
    """The data of a send whose control message had arrived leave."""
    m = s.m
    m[row + L.KIND] = L.MSG_DATA
    send(s, row, m[row + L.MD_SENDER])


def post_receive(s: State, x: int, index: int, p: int, p_there: int, size: int) -> None:
    """Post the receive of packet p, which its sender at a position of the ring calls `p_there`."""
    m = s.m
    if m[L.C_RENDEZVOUS]:
        npu = ring_npu(s, x, index)
        row = take_row(s)
        m[row + L.KIND] = L.MSG_CONTROL
        m[row + L.M_DST] = npu
        m[row + L.M_SIZE] = L.CONTROL_BYTES
        m[row + L.MC_STREAM] = twin(s, x, index, npu)
        m[row + L.MC_PACKETS] = (p_there << PHASE_SHIFT | m[x + L.S_PHASE]) << 24 | p
        m[row + L.MC_ASKER] = x
        m[row + L.MC_BYTES] = size
        send(s, row, m[x + L.S_NPU])
    elif arrived_early(s, x, p, 0):
        row = take_row(s)
        m[row + L.KIND] = L.EV_STREAM_RECEIVED
        m[row + L.RC_STREAM] = x
        schedule(s, m[L.C_NOW], row)


def arrive_control(s: State, row: int) -> None:
    """A control message arrived at the data's sender: the data leave if their send was issued."""
    m = s.m
    x = m[row + L.MC_STREAM]
    code = m[row + L.MC_PACKETS] >> 24
    p, phase = code >> PHASE_SHIFT, code & PHASE_MASK
    now_in = m[x + L.S_PHASE]
    if now_in < phase:
        m[row + L.NEXT] = m[x + L.S_EARLY]
        m[x + L.S_EARLY] = row
        return
    issued = now_in > phase
    if not issued:
        if m[x + L.S_ALGORITHM] == K.ALG_TREE:
            issued = (m[x + L.S_EDGES_SENT] >> p) & 1 != 0
        else:
            issued = p < m[x + L.S_SENT]
        put_in_inbox(s, x, p, 1)
    if not issued:
        free_row(s, row)
        return
    y, there, size = m[row + L.MC_ASKER], m[row + L.MC_PACKETS] & 0xFFFFFF, m[row + L.MC_BYTES]
    src = m[row + L.M_DST]
    m[row + L.KIND] = L.MSG_DATA
    m[row + L.M_DST] = m[y + L.S_NPU]
    m[row + L.M_SIZE] = size
    m[row + L.MD_STREAM] = y
    m[row + L.MD_PACKET] = there << PHASE_SHIFT | phase
    send(s, row, src)


def arrive_data(s: State, row: int) -> bool:
    """Data arrived at a stream; True if a posted receive takes them now."""
    m = s.m
    x = m[row + L.MD_STREAM]
    p, phase = m[row + L.MD_PACKET] >> PHASE_SHIFT, m[row + L.MD_PACKET] & PHASE_MASK
    if m[x + L.S_PHASE] != phase:
        m[row + L.NEXT] = m[x + L.S_EARLY]
        m[x + L.S_EARLY] = row
        return False
    free_row(s, row)
    if m[x + L.S_ALGORITHM] == K.ALG_TREE:
        posted = (m[x + L.S_POSTED] >> p) & 1 != 0
    else:
        posted = p < m[x + L.S_SENT]
    if not posted or m[x + L.S_ALGORITHM] == K.ALG_RING:
        put_in_inbox(s, x, p, 0)
    return posted


def sort_early(s: State, x: int) -> None:
    """Move the messages of the phase that a stream just joined to its inboxes."""
    m = s.m
    row = m[x + L.S_EARLY]
    m[x + L.S_EARLY] = L.NIL
    while row != L.NIL:
        after = m[row + L.NEXT]
        control = 1 if m[row + L.KIND] == L.MSG_CONTROL else 0
        code = m[row + L.MC_PACKETS] >> 24 if control else m[row + L.MD_PACKET]
        if code & PHASE_MASK == m[x + L.S_PHASE]:
            put_in_inbox(s, x, code >> PHASE_SHIFT, control)
            free_row(s, row)
        else:
            m[row + L.NEXT] = m[x + L.S_EARLY]
            m[x + L.S_EARLY] = row
        row = after
