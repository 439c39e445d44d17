"""Ring, direct and halving-doubling: one machine of armed packets and credits (replay semantics, 4.1 and 4.2)."""

from chakra.replay.kernels.messages_bus import bus_request
from chakra.replay.kernels.messages_events import set_timer
from chakra.replay.kernels.messages_layout import (
    ALL_GATHER,
    ALL_REDUCE,
    C_NOW,
    DIRECT,
    HALVING_DOUBLING,
    REDUCE_SCATTER,
    S_ALGORITHM,
    S_ARMED,
    S_BYTES,
    S_CREDITS,
    S_CYCLE,
    S_DELAY,
    S_DIRECTION,
    S_DO,
    S_INDEX,
    S_LEAST,
    S_NPU,
    S_ODD,
    S_PLACE,
    S_RECEIVED,
    S_REDUCE,
    S_RING_N,
    S_SENT,
    S_SIZE,
    S_TOTAL,
    S_WINDOW,
    TM_CREDIT,
    TM_REDUCE,
    State,
)
from chakra.replay.kernels.messages_transfer import post_receive, reduction, send_data

#: nothing here is compiled for its own sake, only as part of `messages.run`
ENTRY_POINTS = ()
ALLOCATES = False


def packet_size(s: State, x: int, p: int) -> int:
    """Bytes of packet p; halving-doubling's last one is armed but not sent, and may be empty."""
    m = s.m
    if m[x + S_ALGORITHM] != HALVING_DOUBLING:
        return m[x + S_SIZE]
    entering = m[x + S_BYTES]
    if m[x + S_DO] == ALL_GATHER:
        size = entering << p
    else:
        levels = m[x + S_TOTAL] >> 1
        if m[x + S_DO] == REDUCE_SCATTER or p < levels:
            size = entering >> (p + 1)
        else:
            size = 2 * (entering >> (levels + 1)) << (p - levels)
    return max(size, m[x + S_LEAST]) if p < m[x + S_TOTAL] else size


def arm(s: State, x: int) -> None:
    """Start the local delay of the next packet."""
    m = s.m
    p = m[x + S_ARMED]
    m[x + S_ARMED] = p + 1
    window, cycle = m[x + S_WINDOW], m[x + S_CYCLE]
    place = m[x + S_PLACE]
    plain = place < window
    reduce = not plain and (
        m[x + S_DO] == REDUCE_SCATTER or (m[x + S_DO] == ALL_REDUCE and m[x + S_ODD] == 0)
    )
    if place + 1 < cycle:
        m[x + S_PLACE] = place + 1
    else:
        m[x + S_PLACE] = 0
        m[x + S_ODD] ^= 1
    npu = m[x + S_NPU]
    if m[x + S_DELAY] < 0:
        bus_request(
            s, npu, x, p, packet_size(s, x, p), plain, reduce, not plain and place < cycle - window, False
        )
    elif reduce:
        set_timer(s, npu, m[C_NOW] + m[x + S_DELAY], TM_REDUCE, x, p)
    else:
        set_timer(s, npu, m[C_NOW] + m[x + S_DELAY], TM_CREDIT, x, p)


def reduce_packet(s: State, x: int, p: int) -> None:
    """The reduction of a packet starts; its end is a credit."""
    m = s.m
    time = m[x + S_REDUCE]
    if m[x + S_ALGORITHM] == HALVING_DOUBLING:
        time = reduction(s, packet_size(s, x, p))
    set_timer(s, m[x + S_NPU], m[C_NOW] + time, TM_CREDIT, x, p)


def send_next(s: State, x: int) -> bool:
    """Send the oldest armed packet and post its receive; False if there is none, or no credit."""
    m = s.m
    p = m[x + S_SENT]
    if p >= m[x + S_TOTAL] or p >= m[x + S_ARMED] or m[x + S_CREDITS] == 0:
        return False
    m[x + S_SENT] = p + 1
    m[x + S_CREDITS] -= 1
    n, index = m[x + S_RING_N], m[x + S_INDEX]
    algorithm = m[x + S_ALGORITHM]
    if algorithm == HALVING_DOUBLING:
        levels = m[x + S_TOTAL]
        do = m[x + S_DO]
        if do == ALL_REDUCE:
            levels >>= 1
        up = do == REDUCE_SCATTER or (do == ALL_REDUCE and p < levels)
        step = p if up else (levels - 1 - p if do == ALL_GATHER else 2 * levels - 1 - p)
        to = index ^ (1 << step)
        source = to
    else:
        distance = 1
        if algorithm == DIRECT:
            distance = p + 1 if p < n - 1 else p + 2 - n
        distance *= m[x + S_DIRECTION]
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
    m[x + S_CREDITS] += 1
    half = m[x + S_RING_N] - 1
    if m[x + S_ALGORITHM] == DIRECT and m[x + S_DO] == ALL_REDUCE and m[x + S_SENT] >= half:
        if m[x + S_RECEIVED] < half:
            return False
        for _ in range(m[x + S_WINDOW]):
            if not send_next(s, x):
                break
    else:
        send_next(s, x)
    return m[x + S_SENT] == m[x + S_TOTAL] and m[x + S_CREDITS] == m[x + S_WINDOW]
