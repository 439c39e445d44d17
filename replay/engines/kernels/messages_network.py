"""Messages on the network: delays without contention, or links that serve one message at a time.

Source: replay semantics, 5.3 (unaware) and 5.4 (aware: store and forward, whole messages, first in, first out).
"""

from chakra.replay.engines.kernels import messages_layout as L
from chakra.replay.engines.kernels.messages_events import schedule
from chakra.replay.engines.kernels.messages_layout import State

#: nothing here is compiled for its own sake, only as part of `messages.run`
ENTRY_POINTS = ()
ALLOCATES = False


def free_delay(s: State, src: int, dst: int, size: int) -> int:
    """Delay of a message without contention, ns (5.3, correction C5)."""
    m = s.m
    n_dims = m[L.C_DIMS]
    delay = 0
    for k in range(n_dims):
        a = m[m[L.C_COORDS] + src * n_dims + k]
        b = m[m[L.C_COORDS] + dst * n_dims + k]
        if a == b:
            continue
        row = m[L.C_DIM_ROWS] + k * L.DIM_ROW
        hops = 1
        if m[row + L.D_TOPOLOGY] == L.TOPO_RING:
            hops = abs(b - a)
            hops = min(hops, m[row + L.D_N] - hops)
        elif m[row + L.D_TOPOLOGY] == L.TOPO_SWITCH:
            hops = 2
        m[row + L.D_BYTES] += size
        m[row + L.D_BYTE_HOPS] += size * hops
        delay += int(hops * s.f[L.F_SPEED + 2 * k] + size / s.f[L.F_SPEED + 2 * k + 1])
        if not m[L.C_SUM_DIMS]:
            break
    return delay


def count_bytes(s: State, src: int, dst: int, size: int) -> None:
    """Count a message on single links for the lowest logical dimension in which its ends differ."""
    m = s.m
    n_dims = m[L.C_DIMS]
    for k in range(n_dims):
        if m[m[L.C_COORDS] + src * n_dims + k] != m[m[L.C_COORDS] + dst * n_dims + k]:
            m[m[L.C_DIM_ROWS] + k * L.DIM_ROW + L.D_BYTES] += size
            return


def route_delay(s: State, src: int, dst: int, size: int) -> int:
    """Delay over a graph's route without contention: all latencies, and the bandwidth of the slowest link, ns."""
    m = s.m
    pair = src * m[L.C_NPUS] + dst
    latency = 0.0
    slowest = 0.0
    for at in range(m[m[L.C_ROUTE_START] + pair], m[m[L.C_ROUTE_START] + pair + 1]):
        link_class = m[m[at] + L.L_CLASS]
        latency += s.f[L.F_SPEED + 2 * link_class]
        bandwidth = s.f[L.F_SPEED + 2 * link_class + 1]
        if slowest == 0.0 or bandwidth < slowest:
            slowest = bandwidth
    return int(latency + (size / slowest if slowest > 0.0 else 0.0))


def occupancy(s: State, src: int, dst: int, size: int) -> int:
    """Time for which a message keeps the slowest link of its way busy, ns."""
    m = s.m
    if src == dst:
        return 0
    if m[L.C_NET] == L.NET_GRAPH or m[L.C_NET] == L.NET_GRAPH_UNAWARE:
        pair = src * m[L.C_NPUS] + dst
        slowest = 0.0
        for at in range(m[m[L.C_ROUTE_START] + pair], m[m[L.C_ROUTE_START] + pair + 1]):
            bandwidth = s.f[L.F_SPEED + 2 * m[m[at] + L.L_CLASS] + 1]
            if slowest == 0.0 or bandwidth < slowest:
                slowest = bandwidth
        return int(size / slowest) if slowest > 0.0 else 0
    n_dims = m[L.C_DIMS]
    longest = 0
    for k in range(n_dims):
        if m[m[L.C_COORDS] + src * n_dims + k] != m[m[L.C_COORDS] + dst * n_dims + k]:
            longest = max(longest, int(size / s.f[L.F_SPEED + 2 * k + 1]))
    return longest


def start_link(s: State, link: int, message: int) -> None:
    """Put a message on an idle link: its arrival is scheduled before the link's release (5.5)."""
    m = s.m
    now = m[L.C_NOW]
    size = m[message + L.M_SIZE]
    if size != m[link + L.L_SIZE]:
        link_class = m[link + L.L_CLASS]
        transfer = size / s.f[L.F_SPEED + 2 * link_class + 1]
        m[link + L.L_SIZE] = size
        m[link + L.L_SERIAL] = int(transfer)
        m[link + L.L_TOTAL] = int(s.f[L.F_SPEED + 2 * link_class] + transfer)
    serial = m[link + L.L_SERIAL]
    m[link + L.L_BUSY] = 1
    m[link + L.L_BYTES] += size
    m[link + L.L_BUSY_NS] += serial
    m[link + L.L_MESSAGES] += 1
    schedule(s, now + m[link + L.L_TOTAL], message)
    schedule(s, now + serial, link)


def enter_link(s: State, link: int, message: int) -> None:
    """A message reaches a link: it starts, or waits behind the others."""
    m = s.m
    m[message + L.M_LINK] = link
    if m[link + L.L_BUSY] == 0:
        start_link(s, link, message)
        return
    m[link + L.L_QUEUED_NS] -= m[L.C_NOW]
    m[message + L.NEXT] = L.NIL
    tail = m[link + L.L_TAIL]
    if tail == L.NIL:
        m[link + L.L_HEAD] = message
    else:
        m[tail + L.NEXT] = message
    m[link + L.L_TAIL] = message


def release_link(s: State, link: int) -> None:
    """A link has sent its message and takes the next."""
    m = s.m
    message = m[link + L.L_HEAD]
    if message == L.NIL:
        m[link + L.L_BUSY] = 0
        return
    m[link + L.L_HEAD] = m[message + L.NEXT]
    if m[message + L.NEXT] == L.NIL:
        m[link + L.L_TAIL] = L.NIL
    m[link + L.L_QUEUED_NS] += m[L.C_NOW]
    start_link(s, link, message)


def enter_dimension(s: State, message: int) -> None:
    """Start the part of a message's way that lies in the lowest dimension where it is not at its destination."""
    m = s.m
    n_dims = m[L.C_DIMS]
    at = m[message + L.M_AT]
    dst = m[message + L.M_DST]
    k = 0
    here = m[m[L.C_COORDS] + at * n_dims]
    there = m[m[L.C_COORDS] + dst * n_dims]
    while here == there:
        k += 1
        here = m[m[L.C_COORDS] + at * n_dims + k]
        there = m[m[L.C_COORDS] + dst * n_dims + k]
    row = m[L.C_DIM_ROWS] + k * L.DIM_ROW
    n = m[row + L.D_N]
    after = at + (there - here) * m[row + L.D_STRIDE]
    first = m[row + L.D_LINKS]
    size = m[message + L.M_SIZE]
    m[message + L.M_AT] = after
    m[message + L.M_VIA] = L.NIL
    hops = 1
    if m[row + L.D_TOPOLOGY] == L.TOPO_RING:
        hops = there - here
        if hops < 0:
            hops += n
        link = first + 2 * at * L.LINK_ROW
        if 2 * hops > n:
            hops = n - hops
            link += L.LINK_ROW
    elif m[row + L.D_TOPOLOGY] == L.TOPO_FULL:
        link = first + (at * n + there) * L.LINK_ROW
    else:
        hops = 2
        link = first + 2 * at * L.LINK_ROW
        m[message + L.M_VIA] = first + (2 * after + 1) * L.LINK_ROW
    m[message + L.M_HOPS] = hops
    m[row + L.D_BYTES] += size
    m[row + L.D_BYTE_HOPS] += size * hops
    enter_link(s, link, message)


def launch(s: State, message: int, src: int) -> None:
    """Send a message off from `src`; M_DST and M_SIZE are set."""
    m = s.m
    net = m[L.C_NET]
    dst = m[message + L.M_DST]
    if net == L.NET_AWARE and src != dst:
        m[message + L.M_AT] = src
        enter_dimension(s, message)
        return
    if net == L.NET_GRAPH and src != dst:
        pair = src * m[L.C_NPUS] + dst
        at = m[m[L.C_ROUTE_START] + pair]
        m[message + L.M_AT] = dst
        m[message + L.M_VIA] = at
        m[message + L.M_HOPS] = m[m[L.C_ROUTE_START] + pair + 1] - at
        count_bytes(s, src, dst, m[message + L.M_SIZE])
        enter_link(s, m[at], message)
        return
    m[message + L.M_AT] = dst
    m[message + L.M_HOPS] = 1
    size = m[message + L.M_SIZE]
    delay = 0
    if src != dst:
        if net == L.NET_UNAWARE:
            delay = free_delay(s, src, dst, size)
        else:
            count_bytes(s, src, dst, size)
            delay = route_delay(s, src, dst, size)
    schedule(s, m[L.C_NOW] + delay, message)


def hop(s: State, message: int) -> bool:
    """A message reached the end of a link; True if that is its destination, else it goes on."""
    m = s.m
    m[L.C_MESSAGES] += 1
    hops = m[message + L.M_HOPS] - 1
    m[message + L.M_HOPS] = hops
    if hops > 0:
        via = m[message + L.M_VIA]
        if m[L.C_NET] == L.NET_GRAPH:
            m[message + L.M_VIA] = via + 1
            via = m[via + 1]
        elif via == L.NIL:
            via = m[m[message + L.M_LINK] + L.L_ONWARD]
        enter_link(s, via, message)
        return False
    if m[message + L.M_AT] == m[message + L.M_DST]:
        return True
    enter_dimension(s, message)
    return False
