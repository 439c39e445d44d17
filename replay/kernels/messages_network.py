"""Messages on the network: delays without contention, or links that serve one message at a time.

Source: replay semantics, 5.3 (unaware) and 5.4 (aware: store and forward, whole messages, first in, first out).
"""

from chakra.replay.kernels.messages_events import schedule
from chakra.replay.kernels.messages_layout import (
    C_DIMS,
    C_MESSAGES,
    C_NET,
    C_NOW,
    C_NPUS,
    C_SUM_DIMS,
    DIM_ROW,
    D_BYTES,
    D_BYTE_HOPS,
    D_LINKS,
    D_N,
    D_STRIDE,
    D_TOPOLOGY,
    LINK_ROW,
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
    M_AT,
    M_DST,
    M_HOPS,
    M_LINK,
    M_SIZE,
    M_VIA,
    NET_AWARE,
    NET_GRAPH,
    NET_UNAWARE,
    NEXT,
    NIL,
    State,
    TOPO_FULL,
    TOPO_RING,
    TOPO_SWITCH,
)

#: nothing here is compiled for its own sake, only as part of `messages.run`
ENTRY_POINTS = ()


def free_delay(s: State, src: int, dst: int, size: int) -> int:
    """Delay of a message without contention, ns (5.3, correction C5)."""
    c, dims, coords, speed = s.c, s.dims, s.coords, s.speed
    n_dims = c[C_DIMS]
    delay = 0
    for k in range(n_dims):
        a = coords[src * n_dims + k]
        b = coords[dst * n_dims + k]
        if a == b:
            continue
        row = k * DIM_ROW
        hops = 1
        if dims[row + D_TOPOLOGY] == TOPO_RING:
            hops = abs(b - a)
            hops = min(hops, dims[row + D_N] - hops)
        elif dims[row + D_TOPOLOGY] == TOPO_SWITCH:
            hops = 2
        dims[row + D_BYTES] += size
        dims[row + D_BYTE_HOPS] += size * hops
        delay += int(hops * speed[2 * k] + size / speed[2 * k + 1])
        if not c[C_SUM_DIMS]:
            break
    return delay


def route_delay(s: State, src: int, dst: int, size: int) -> int:
    """Delay over a graph's route without contention: all latencies, and the bandwidth of the slowest link, ns."""
    pair = src * s.c[C_NPUS] + dst
    latency = 0.0
    slowest = 0.0
    for at in range(s.route_start[pair], s.route_start[pair + 1]):
        link_class = s.ent[s.routes[at] + L_CLASS]
        latency += s.speed[2 * link_class]
        bandwidth = s.speed[2 * link_class + 1]
        if slowest == 0.0 or bandwidth < slowest:
            slowest = bandwidth
    return int(latency + (size / slowest if slowest > 0.0 else 0.0))


def start_link(s: State, link: int, message: int) -> None:
    """Put a message on an idle link: its arrival is scheduled before the link's release (5.5)."""
    ent, now = s.ent, s.c[C_NOW]
    size = ent[message + M_SIZE]
    if size != ent[link + L_SIZE]:
        link_class = ent[link + L_CLASS]
        transfer = size / s.speed[2 * link_class + 1]
        ent[link + L_SIZE] = size
        ent[link + L_SERIAL] = int(transfer)
        ent[link + L_TOTAL] = int(s.speed[2 * link_class] + transfer)
    serial = ent[link + L_SERIAL]
    ent[link + L_BUSY] = 1
    ent[link + L_BYTES] += size
    ent[link + L_BUSY_NS] += serial
    ent[link + L_MESSAGES] += 1
    schedule(s, now + ent[link + L_TOTAL], message)
    schedule(s, now + serial, link)


def enter_link(s: State, link: int, message: int) -> None:
    """A message reaches a link: it starts, or waits behind the others."""
    ent = s.ent
    ent[message + M_LINK] = link
    if ent[link + L_BUSY] == 0:
        start_link(s, link, message)
        return
    ent[link + L_QUEUED_NS] -= s.c[C_NOW]
    ent[message + NEXT] = NIL
    tail = ent[link + L_TAIL]
    if tail == NIL:
        ent[link + L_HEAD] = message
    else:
        ent[tail + NEXT] = message
    ent[link + L_TAIL] = message


def release_link(s: State, link: int) -> None:
    """A link has sent its message and takes the next."""
    ent = s.ent
    message = ent[link + L_HEAD]
    if message == NIL:
        ent[link + L_BUSY] = 0
        return
    ent[link + L_HEAD] = ent[message + NEXT]
    if ent[message + NEXT] == NIL:
        ent[link + L_TAIL] = NIL
    ent[link + L_QUEUED_NS] += s.c[C_NOW]
    start_link(s, link, message)


def enter_dimension(s: State, message: int) -> None:
    """Start the part of a message's way that lies in the lowest dimension where it is not at its destination."""
    ent, dims, n_dims = s.ent, s.dims, s.c[C_DIMS]
    at = ent[message + M_AT]
    dst = ent[message + M_DST]
    k = 0
    here = s.coords[at * n_dims]
    there = s.coords[dst * n_dims]
    while here == there:
        k += 1
        here = s.coords[at * n_dims + k]
        there = s.coords[dst * n_dims + k]
    row = k * DIM_ROW
    n = dims[row + D_N]
    after = at + (there - here) * dims[row + D_STRIDE]
    first = dims[row + D_LINKS]
    size = ent[message + M_SIZE]
    ent[message + M_AT] = after
    ent[message + M_VIA] = NIL
    hops = 1
    if dims[row + D_TOPOLOGY] == TOPO_RING:
        hops = there - here
        if hops < 0:
            hops += n
        link = first + 2 * at * LINK_ROW
        if 2 * hops > n:
            hops = n - hops
            link += LINK_ROW
    elif dims[row + D_TOPOLOGY] == TOPO_FULL:
        link = first + (at * n + there) * LINK_ROW
    else:
        hops = 2
        link = first + 2 * at * LINK_ROW
        ent[message + M_VIA] = first + (2 * after + 1) * LINK_ROW
    ent[message + M_HOPS] = hops
    dims[row + D_BYTES] += size
    dims[row + D_BYTE_HOPS] += size * hops
    enter_link(s, link, message)


def launch(s: State, message: int, src: int) -> None:
    """Send a message off from `src`; M_DST and M_SIZE are set."""
    ent, c = s.ent, s.c
    net = c[C_NET]
    dst = ent[message + M_DST]
    if net == NET_AWARE and src != dst:
        ent[message + M_AT] = src
        enter_dimension(s, message)
        return
    if net == NET_GRAPH and src != dst:
        pair = src * c[C_NPUS] + dst
        at = s.route_start[pair]
        ent[message + M_AT] = dst
        ent[message + M_VIA] = at
        ent[message + M_HOPS] = s.route_start[pair + 1] - at
        enter_link(s, s.routes[at], message)
        return
    ent[message + M_AT] = dst
    ent[message + M_HOPS] = 1
    size = ent[message + M_SIZE]
    delay = 0
    if src != dst:
        delay = free_delay(s, src, dst, size) if net == NET_UNAWARE else route_delay(s, src, dst, size)
    schedule(s, c[C_NOW] + delay, message)


def hop(s: State, message: int) -> bool:
    """A message reached the end of a link; True if that is its destination, else it goes on."""
    ent = s.ent
    s.c[C_MESSAGES] += 1
    hops = ent[message + M_HOPS] - 1
    ent[message + M_HOPS] = hops
    if hops > 0:
        via = ent[message + M_VIA]
        if s.c[C_NET] == NET_GRAPH:
            ent[message + M_VIA] = via + 1
            via = s.routes[via + 1]
        elif via == NIL:
            via = ent[ent[message + M_LINK] + L_ONWARD]
        enter_link(s, via, message)
        return False
    if ent[message + M_AT] == ent[message + M_DST]:
        return True
    enter_dimension(s, message)
    return False
