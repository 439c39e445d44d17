"""Ring, direct and halving-doubling: a machine of packets and credits (replay semantics, sections 4.1 and 4.2)."""

from chakra.replay.engines.kernels import codes as K
from chakra.replay.engines.kernels import messages_layout as L
from chakra.replay.engines.kernels.layout import State
from chakra.replay.engines.kernels.messages_bus import bus_request
from chakra.replay.engines.kernels.messages_events import set_timer
from chakra.replay.engines.kernels.messages_transfer import post_receive, send_data
from chakra.replay.engines.kernels.packets import phase_packet, phase_partner, reduction, uneven_packet

#: nothing here is compiled for its own sake, only as part of `messages.run`
ENTRY_POINTS = ()
ALLOCATES = False


def packet_size(s: State, x: int, p: int) -> int:
    """Bytes of packet p, which all but halving-doubling send alike."""
    m = s.m
    if m[x + L.S_ALGORITHM] != K.ALG_HALVING_DOUBLING:
        return m[x + L.S_SIZE]
    return phase_packet(s, m[x + L.S_ROW], p)


def arm(s: State, x: int) -> None:
    """Start the local delay of the next packet."""
    m = s.m
    p = m[x + L.S_ARMED]
    m[x + L.S_ARMED] = p + 1
    window, cycle = m[x + L.S_WINDOW], m[x + L.S_CYCLE]
    place = m[x + L.S_PLACE]
    plain = place < window
    reduce = not plain and (
        m[x + L.S_DO] == K.DO_REDUCE_SCATTER or (m[x + L.S_DO] == K.DO_ALL_REDUCE and m[x + L.S_ODD] == 0)
    )
    if place + 1 < cycle:
        m[x + L.S_PLACE] = place + 1
    else:
        m[x + L.S_PLACE] = 0
        m[x + L.S_ODD] ^= 1
    npu = m[x + L.S_NPU]
    if m[x + L.S_DELAY] < 0:
        bus_request(
            s, npu, x, p, packet_size(s, x, p), plain, reduce, not plain and place < cycle - window, False
        )
    elif reduce:
        set_timer(s, npu, m[L.C_NOW] + m[x + L.S_DELAY], L.TM_REDUCE, x, p)
    else:
        set_timer(s, npu, m[L.C_NOW] + m[x + L.S_DELAY], L.TM_CREDIT, x, p)


def reduce_packet(s: State, x: int, p: int) -> None:
    """The reduction of a packet starts; its end is a credit."""
    m = s.m
    time = m[x + L.S_REDUCE]
    if m[x + L.S_ALGORITHM] == K.ALG_HALVING_DOUBLING:
        time = reduction(s, packet_size(s, x, p))
    set_timer(s, m[x + L.S_NPU], m[L.C_NOW] + time, L.TM_CREDIT, x, p)


def exchange_uneven(s: State, x: int, p: int, to: int, source: int) -> None:
    """Send packet p and post its receive where shares are unequal; what is empty is not sent, and is here at once."""
    m = s.m
    row, index = m[x + L.S_ROW], m[x + L.S_INDEX]
    size = uneven_packet(s, row, index, to)
    if size >= 0:
        send_data(s, x, to, p, p, size)
    size = uneven_packet(s, row, source, index)
    if size >= 0:
        post_receive(s, x, source, p, p, size)
    else:
        m[x + L.S_RECEIVED] += 1
        arm(s, x)


def send_next(s: State, x: int) -> bool:
    """Send the oldest armed packet and post its receive; False if there is none, or no credit."""
    m = s.m
    p = m[x + L.S_SENT]
    if p >= m[x + L.S_TOTAL] or p >= m[x + L.S_ARMED] or m[x + L.S_CREDITS] == 0:
        return False
    m[x + L.S_SENT] = p + 1
    m[x + L.S_CREDITS] -= 1
    row, index, direction = m[x + L.S_ROW], m[x + L.S_INDEX], m[x + L.S_DIRECTION]
    to = phase_partner(s, row, p, index, direction)
    source = phase_partner(s, row, p, index, -direction)
    if m[row + L.PH_SIZES] != L.NIL:
        exchange_uneven(s, x, p, to, source)
        return True
    size = packet_size(s, x, p)
    send_data(s, x, to, p, p, size)
    post_receive(s, x, source, p, p, size)
    return True


def credit(s: State, x: int) -> bool:
    """A local delay ended; True if the phase ends with it."""
    m = s.m
    m[x + L.S_CREDITS] += 1
    half = m[x + L.S_RING_N] - 1
    if m[x + L.S_ALGORITHM] == K.ALG_DIRECT and m[x + L.S_DO] == K.DO_ALL_REDUCE and m[x + L.S_SENT] >= half:
        if m[x + L.S_RECEIVED] < half:
            return False
        for _ in range(m[x + L.S_WINDOW]):
            if not send_next(s, x):
                break
    else:
        send_next(s, x)
    return m[x + L.S_SENT] == m[x + L.S_TOTAL] and m[x + L.S_CREDITS] == m[x + L.S_WINDOW]
