"""Links that serve one message at a time, first come, first served (replay semantics, section 5.4: store and forward)."""

from chakra.replay.engines.kernels import codes as K
from chakra.replay.engines.kernels import messages_layout as L
from chakra.replay.engines.kernels.layout import State
from chakra.replay.engines.kernels.link_use import WHOLE, add_use
from chakra.replay.engines.kernels.messages_events import schedule
from chakra.replay.engines.kernels.network_delays import book_message, booked_bytes

#: nothing here is compiled for its own sake, only as part of `messages.run`
ENTRY_POINTS = ()
ALLOCATES = False


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
    if m[link + L.L_USE] != L.NIL:
        add_use(s, m[link + L.L_USE], now, now + serial, WHOLE)
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


def enter_dimension(s: State, message: int, at: int) -> None:
    """Start the part of a message's way that lies in the lowest dimension where `at` is not its destination."""
    m = s.m
    n_dims = m[L.C_DIMS]
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
    m[message + L.M_AT] = after
    m[message + L.M_DOWN] = L.NIL
    hops = 1
    if m[row + L.D_TOPOLOGY] == K.TOPO_RING:
        hops = there - here
        if hops < 0:
            hops += n
        link = first + 2 * at * L.LINK_ROW
        if 2 * hops > n:
            hops = n - hops
            link += L.LINK_ROW
    elif m[row + L.D_TOPOLOGY] == K.TOPO_FULL:
        link = first + (at * n + there) * L.LINK_ROW
    else:
        hops = 2
        link = first + 2 * at * L.LINK_ROW
        m[message + L.M_DOWN] = first + (2 * after + 1) * L.LINK_ROW
    m[message + L.M_HOPS] = hops
    booked = booked_bytes(s, message)
    m[row + L.D_BYTES] += booked
    m[row + L.D_BYTE_HOPS] += booked * hops
    enter_link(s, link, message)


def enter_port(s: State, message: int, npu: int, dim: int, size: int, back: int) -> None:
    """Start a message between an NPU and the switch of a dimension: up to it, or with `back` = 1 down from it."""
    m = s.m
    row = m[L.C_DIM_ROWS] + dim * L.DIM_ROW
    m[message + L.M_SIZE] = size
    m[message + L.M_AT] = npu
    m[message + L.M_DOWN] = L.NIL
    m[message + L.M_HOPS] = 1
    if back == 0:
        m[row + L.D_BYTES] += size
    m[row + L.D_BYTE_HOPS] += size
    enter_link(s, m[row + L.D_LINKS] + (2 * npu + back) * L.LINK_ROW, message)


def enter_route(s: State, message: int, src: int) -> None:
    """Start a message's way over its route of single links."""
    m = s.m
    dst = m[message + L.M_DST]
    pair = src * m[L.C_NPUS] + dst
    at = m[m[L.C_ROUTE_START] + pair]
    m[message + L.M_AT] = dst
    m[message + L.M_ROUTE] = at
    m[message + L.M_HOPS] = m[m[L.C_ROUTE_START] + pair + 1] - at
    book_message(s, message, src)
    enter_link(s, m[at], message)


def next_link(s: State, message: int) -> None:
    """A message goes on to the next link of its route, or of the dimension that it is in."""
    m = s.m
    if m[L.C_NET] == L.NET_GRAPH:
        place = m[message + L.M_ROUTE] + 1
        m[message + L.M_ROUTE] = place
        link = m[place]
    else:
        link = m[message + L.M_DOWN]
        if link == L.NIL:
            link = m[m[message + L.M_LINK] + L.L_ONWARD]
    enter_link(s, link, message)
