"""Ring, direct and halving-doubling: one machine of armed packets and credits (replay semantics, 4.1 and 4.2)."""

from chakra.replay.engines.kernels import messages_layout as L
from chakra.replay.engines.kernels.messages_bus import bus_request
from chakra.replay.engines.kernels.messages_events import set_timer
from chakra.replay.engines.kernels.messages_layout import State
from chakra.replay.engines.kernels.messages_transfer import post_receive, reduction, send_data

#: nothing here is compiled for its own sake, only as part of `messages.run`
ENTRY_POINTS = ()
ALLOCATES = False


def packet_size(s: State, x: int, p: int) -> int:
    """Bytes of packet p; halving-doubling's last one is armed but not sent, and may be empty."""
    m = s.m
    if m[x + L.S_ALGORITHM] != L.HALVING_DOUBLING:
        return m[x + L.S_SIZE]
    entering = m[x + L.S_BYTES]
    if m[x + L.S_DO] == L.ALL_GATHER:
        size = entering << p
    else:
        levels = m[x + L.S_TOTAL] >> 1
        if m[x + L.S_DO] == L.REDUCE_SCATTER or p < levels:
            size = entering >> (p + 1)
        else:
            size = 2 * (entering >> (levels + 1)) << (p - levels)
    return max(size, m[x + L.S_LEAST]) if p < m[x + L.S_TOTAL] else size


def arm(s: State, x: int) -> None:
    """Start the local delay of the next packet."""
    m = s.m
    p = m[x + L.S_ARMED]
    m[x + L.S_ARMED] = p + 1
    window, cycle = m[x + L.S_WINDOW], m[x + L.S_CYCLE]
    place = m[x + L.S_PLACE]
    plain = place < window
    reduce = not plain and (
        m[x + L.S_DO] == L.REDUCE_SCATTER or (m[x + L.S_DO] == L.ALL_REDUCE and m[x + L.S_ODD] == 0)
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
    if m[x + L.S_ALGORITHM] == L.HALVING_DOUBLING:
        time = reduction(s, packet_size(s, x, p))
    set_timer(s, m[x + L.S_NPU], m[L.C_NOW] + time, L.TM_CREDIT, x, p)


def send_next(s: State, x: int) -> bool:
    """Send the oldest armed packet and post its receive; False if there is none, or no credit."""
    m = s.m
    p = m[x + L.S_SENT]
    if p >= m[x + L.S_TOTAL] or p >= m[x + L.S_ARMED] or m[x + L.S_CREDITS] == 0:
        return False
    m[x + L.S_SENT] = p + 1
    m[x + L.S_CREDITS] -= 1
    n, index = m[x + L.S_RING_N], m[x + L.S_INDEX]
    algorithm = m[x + L.S_ALGORITHM]
    if algorithm == L.HALVING_DOUBLING:
        levels = m[x + L.S_TOTAL]
        do = m[x + L.S_DO]
        if do == L.ALL_REDUCE:
            levels >>= 1
        up = do == L.REDUCE_SCATTER or (do == L.ALL_REDUCE and p < levels)
        step = p if up else (levels - 1 - p if do == L.ALL_GATHER else 2 * levels - 1 - p)
        to = index ^ (1 << step)
        source = to
    else:
        distance = 1
        if algorithm == L.DIRECT:
            distance = p + 1 if p < n - 1 else p + 2 - n
        distance *= m[x + L.S_DIRECTION]
        to = index + distance
        source = index - distance
        if to >= n:
            to -= n
        elif to < 0:
            to += n
        if source >= n:
            source -= n
        elif source < 0:
            source += n
    size = packet_size(s, x, p)
    send_data(s, x, to, p, p, size)
    post_receive(s, x, source, p, p, size)
    return True


def credit(s: State, x: int) -> bool:
    """A local delay ended; True if the phase ends with it."""
    m = s.m
    m[x + L.S_CREDITS] += 1
    half = m[x + L.S_RING_N] - 1
    if m[x + L.S_ALGORITHM] == L.DIRECT and m[x + L.S_DO] == L.ALL_REDUCE and m[x + L.S_SENT] >= half:
        if m[x + L.S_RECEIVED] < half:
            return False
        for _ in range(m[x + L.S_WINDOW]):
            if not send_next(s, x):
                break
    else:
        send_next(s, x)
    return m[x + L.S_SENT] == m[x + L.S_TOTAL] and m[x + L.S_CREDITS] == m[x + L.S_WINDOW]
