"""Messages on the network: delays without contention, or links that serve one message at a time.

Source: replay semantics, 5.3 (unaware) and 5.4 (aware: store and forward, whole messages, first in, first out).
"""

from chakra.replay.kernels.messages_events import schedule
from chakra.replay.kernels.messages_layout import (
    C_COORDS,
    C_DIM_ROWS,
    C_DIMS,
    C_MESSAGES,
    C_NET,
    C_NOW,
    C_NPUS,
    C_ROUTE_START,
    C_SUM_DIMS,
    D_BYTE_HOPS,
    D_BYTES,
    D_LINKS,
    D_N,
    D_STRIDE,
    D_TOPOLOGY,
    DIM_ROW,
    F_SPEED,
    L_BUSY,
    L_BUSY_NS,
    L_BYTES,
    L_CLASS,
    L_HEAD,
    L_MESSAGES,
    L_ONWARD,
    L_QUEUED_NS,
    L_SERIAL,
    L_SIZE,
    L_TAIL,
    L_TOTAL,
    LINK_ROW,
    M_AT,
    M_DST,
    M_HOPS,
    M_LINK,
    M_SIZE,
    M_VIA,
    NET_AWARE,
    NET_GRAPH,
    NET_GRAPH_UNAWARE,
    NET_UNAWARE,
    NEXT,
    NIL,
    TOPO_FULL,
    TOPO_RING,
    TOPO_SWITCH,
    State,
)

#: nothing here is compiled for its own sake, only as part of `messages.run`
ENTRY_POINTS = ()
ALLOCATES = False


def free_delay(s: State, src: int, dst: int, size: int) -> int:
    """Delay of a message without contention, ns (5.3, correction C5)."""
    m = s.m
    n_dims = m[C_DIMS]
    delay = 0
    for k in range(n_dims):
        a = m[m[C_COORDS] + src * n_dims + k]
        b = m[m[C_COORDS] + dst * n_dims + k]
        if a == b:
            continue
        row = m[C_DIM_ROWS] + k * DIM_ROW
        hops = 1
        if m[row + D_TOPOLOGY] == TOPO_RING:
            hops = abs(b - a)
            hops = min(hops, m[row + D_N] - hops)
        elif m[row + D_TOPOLOGY] == TOPO_SWITCH:
            hops = 2
        m[row + D_BYTES] += size
        m[row + D_BYTE_HOPS] += size * hops
        delay += int(hops * s.f[F_SPEED + 2 * k] + size / s.f[F_SPEED + 2 * k + 1])
        if not m[C_SUM_DIMS]:
            break
    return delay


def count_bytes(s: State, src: int, dst: int, size: int) -> None:
    """Count a message on single links for the lowest logical dimension in which its ends differ."""
    m = s.m
    n_dims = m[C_DIMS]
    for k in range(n_dims):
        if m[m[C_COORDS] + src * n_dims + k] != m[m[C_COORDS] + dst * n_dims + k]:
            m[m[C_DIM_ROWS] + k * DIM_ROW + D_BYTES] += size
            return


def route_delay(s: State, src: int, dst: int, size: int) -> int:
    """Delay over a graph's route without contention: all latencies, and the bandwidth of the slowest link, ns."""
    m = s.m
    pair = src * m[C_NPUS] + dst
    latency = 0.0
    slowest = 0.0
    for at in range(m[m[C_ROUTE_START] + pair], m[m[C_ROUTE_START] + pair + 1]):
        link_class = m[m[at] + L_CLASS]
        latency += s.f[F_SPEED + 2 * link_class]
        bandwidth = s.f[F_SPEED + 2 * link_class + 1]
        if slowest == 0.0 or bandwidth < slowest:
            slowest = bandwidth
    return int(latency + (size / slowest if slowest > 0.0 else 0.0))


def occupancy(s: State, src: int, dst: int, size: int) -> int:
    """Time for which a message keeps the slowest link of its way busy, ns."""
    m = s.m
    if src == dst:
        return 0
    if m[C_NET] == NET_GRAPH or m[C_NET] == NET_GRAPH_UNAWARE:
        pair = src * m[C_NPUS] + dst
        slowest = 0.0
        for at in range(m[m[C_ROUTE_START] + pair], m[m[C_ROUTE_START] + pair + 1]):
            bandwidth = s.f[F_SPEED + 2 * m[m[at] + L_CLASS] + 1]
            if slowest == 0.0 or bandwidth < slowest:
                slowest = bandwidth
        return int(size / slowest) if slowest > 0.0 else 0
    n_dims = m[C_DIMS]
    longest = 0
    for k in range(n_dims):
        if m[m[C_COORDS] + src * n_dims + k] != m[m[C_COORDS] + dst * n_dims + k]:
            longest = max(longest, int(size / s.f[F_SPEED + 2 * k + 1]))
    return longest


def start_link(s: State, link: int, message: int) -> None:
    """Put a message on an idle link: its arrival is scheduled before the link's release (5.5)."""
    m = s.m
    now = m[C_NOW]
    size = m[message + M_SIZE]
    if size != m[link + L_SIZE]:
        link_class = m[link + L_CLASS]
        transfer = size / s.f[F_SPEED + 2 * link_class + 1]
        m[link + L_SIZE] = size
        m[link + L_SERIAL] = int(transfer)
        m[link + L_TOTAL] = int(s.f[F_SPEED + 2 * link_class] + transfer)
    serial = m[link + L_SERIAL]
    m[link + L_BUSY] = 1
    m[link + L_BYTES] += size
    m[link + L_BUSY_NS] += serial
    m[link + L_MESSAGES] += 1
    schedule(s, now + m[link + L_TOTAL], message)
    schedule(s, now + serial, link)


def enter_link(s: State, link: int, message: int) -> None:
    """A message reaches a link: it starts, or waits behind the others."""
    m = s.m
    m[message + M_LINK] = link
    if m[link + L_BUSY] == 0:
        start_link(s, link, message)
        return
    m[link + L_QUEUED_NS] -= m[C_NOW]
    m[message + NEXT] = NIL
    tail = m[link + L_TAIL]
    if tail == NIL:
        m[link + L_HEAD] = message
    else:
        m[tail + NEXT] = message
    m[link + L_TAIL] = message


def release_link(s: State, link: int) -> None:
    """A link has sent its message and takes the next."""
    m = s.m
    message = m[link + L_HEAD]
    if message == NIL:
        m[link + L_BUSY] = 0
        return
    m[link + L_HEAD] = m[message + NEXT]
    if m[message + NEXT] == NIL:
        m[link + L_TAIL] = NIL
    m[link + L_QUEUED_NS] += m[C_NOW]
    start_link(s, link, message)


def enter_dimension(s: State, message: int) -> None:
    """Start the part of a message's way that lies in the lowest dimension where it is not at its destination."""
    m = s.m
    n_dims = m[C_DIMS]
    at = m[message + M_AT]
    dst = m[message + M_DST]
    k = 0
    here = m[m[C_COORDS] + at * n_dims]
    there = m[m[C_COORDS] + dst * n_dims]
    while here == there:
        k += 1
        here = m[m[C_COORDS] + at * n_dims + k]
        there = m[m[C_COORDS] + dst * n_dims + k]
    row = m[C_DIM_ROWS] + k * DIM_ROW
    n = m[row + D_N]
    after = at + (there - here) * m[row + D_STRIDE]
    first = m[row + D_LINKS]
    size = m[message + M_SIZE]
    m[message + M_AT] = after
    m[message + M_VIA] = NIL
    hops = 1
    if m[row + D_TOPOLOGY] == TOPO_RING:
        hops = there - here
        if hops < 0:
            hops += n
        link = first + 2 * at * LINK_ROW
        if 2 * hops > n:
            hops = n - hops
            link += LINK_ROW
    elif m[row + D_TOPOLOGY] == TOPO_FULL:
        link = first + (at * n + there) * LINK_ROW
    else:
        hops = 2
        link = first + 2 * at * LINK_ROW
        m[message + M_VIA] = first + (2 * after + 1) * LINK_ROW
    m[message + M_HOPS] = hops
    m[row + D_BYTES] += size
    m[row + D_BYTE_HOPS] += size * hops
    enter_link(s, link, message)


def launch(s: State, message: int, src: int) -> None:
    """Send a message off from `src`; M_DST and M_SIZE are set."""
    m = s.m
    net = m[C_NET]
    dst = m[message + M_DST]
    if net == NET_AWARE and src != dst:
        m[message + M_AT] = src
        enter_dimension(s, message)
        return
    if net == NET_GRAPH and src != dst:
        pair = src * m[C_NPUS] + dst
        at = m[m[C_ROUTE_START] + pair]
        m[message + M_AT] = dst
        m[message + M_VIA] = at
        m[message + M_HOPS] = m[m[C_ROUTE_START] + pair + 1] - at
        count_bytes(s, src, dst, m[message + M_SIZE])
        enter_link(s, m[at], message)
        return
    m[message + M_AT] = dst
    m[message + M_HOPS] = 1
    size = m[message + M_SIZE]
    delay = 0
    if src != dst:
        if net == NET_UNAWARE:
            delay = free_delay(s, src, dst, size)
        else:
            count_bytes(s, src, dst, size)
            delay = route_delay(s, src, dst, size)
    schedule(s, m[C_NOW] + delay, message)


def hop(s: State, message: int) -> bool:
    """A message reached the end of a link; True if that is its destination, else it goes on."""
    m = s.m
    m[C_MESSAGES] += 1
    hops = m[message + M_HOPS] - 1
    m[message + M_HOPS] = hops
    if hops > 0:
        via = m[message + M_VIA]
        if m[C_NET] == NET_GRAPH:
            m[message + M_VIA] = via + 1
            via = m[via + 1]
        elif via == NIL:
            via = m[m[message + M_LINK] + L_ONWARD]
        enter_link(s, via, message)
        return False
    if m[message + M_AT] == m[message + M_DST]:
        return True
    enter_dimension(s, message)
    return False
