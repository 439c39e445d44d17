"""Messages as flows that share links max-min fairly and cut through, as `docs/guides/networks.md` describes flows.

A message starts sending at once, at the rate that all flows get (`flow_sharing`), and is there when its last byte has
left and passed the latencies of its route. Starts of one tick are computed together at the tick's end, ends when they
come; what a tick starts and ends takes no time from anybody else in it, so their order does not matter.
"""

from chakra.replay.engines.kernels import flow_rows as R
from chakra.replay.engines.kernels import messages_layout as L
from chakra.replay.engines.kernels.flow_sharing import (
    advance,
    note_use,
    put_in_heap,
    share_links,
    sift,
    take_from_heap,
    touch,
)
from chakra.replay.engines.kernels.layout import State
from chakra.replay.engines.kernels.messages_events import free_row, schedule, take_row
from chakra.replay.engines.kernels.network_delays import book, booked_bytes

#: nothing here is compiled for its own sake, only as part of `messages.run`
ENTRY_POINTS = ()
ALLOCATES = False


def find_pair(s: State, src: int, dst: int) -> int:
    """Row of the routes between two NPUs; they are there for every pair that the workload's plans name."""
    m = s.m
    head = m[L.C_FLOW]
    starts, pairs = m[head + R.FH_PAIR_START], m[head + R.FH_PAIRS]
    low, high = m[starts + src], m[starts + src + 1] - 1
    while low < high:
        middle = (low + high) >> 1
        if m[pairs + middle * R.FLOW_PAIR + R.FP_DST] < dst:
            low = middle + 1
        else:
            high = middle
    return pairs + low * R.FLOW_PAIR


def load_of(s: State, route: int) -> float:
    """Flows per capacity of the most loaded link of a route."""
    m = s.m
    first = m[route + R.FR_ENTRY]
    most = 0.0
    for at in range(first, first + m[route + R.FR_ENTRIES] * R.FLOW_ENTRY, R.FLOW_ENTRY):
        link = m[at + R.FE_LINK]
        weight = 0
        entry = m[link + R.FL_FIRST]
        while entry != L.NIL:
            weight += m[entry + R.FE_WEIGHT] * m[m[entry + R.FE_ROUTE] + R.FR_FLOWS]
            entry = m[entry + R.FE_NEXT]
        most = max(most, weight / m[link + R.FL_CAPACITY])
    return most


def choose_route(s: State, src: int, dst: int) -> int:
    """The route of a message: the least loaded of those of its ends, the first of them on a tie."""
    m = s.m
    head = m[L.C_FLOW]
    pair = find_pair(s, src, dst)
    route, n = m[pair + R.FP_ROUTE], m[pair + R.FP_ROUTES]
    if m[head + R.FH_ADAPTIVE] == 0 or n == 1:
        return route
    best = route
    least = load_of(s, route)
    for _ in range(n - 1):
        route += R.FLOW_ROUTE
        load = load_of(s, route)
        if load < least:
            best = route
            least = load
    return best


def join_links(s: State, route: int) -> None:
    """A route has its first flow: its entries join the lists of their links."""
    m = s.m
    first = m[route + R.FR_ENTRY]
    for entry in range(first, first + m[route + R.FR_ENTRIES] * R.FLOW_ENTRY, R.FLOW_ENTRY):
        link = m[entry + R.FE_LINK]
        after = m[link + R.FL_FIRST]
        m[entry + R.FE_NEXT] = after
        m[entry + R.FE_PREV] = L.NIL
        if after == L.NIL:
            m[link + R.FL_SINCE] = m[L.C_NOW]
        else:
            m[after + R.FE_PREV] = entry
        m[link + R.FL_FIRST] = entry


def leave_links(s: State, route: int) -> None:
    """A route has no flows any more: its entries leave the lists of their links."""
    m = s.m
    first = m[route + R.FR_ENTRY]
    for entry in range(first, first + m[route + R.FR_ENTRIES] * R.FLOW_ENTRY, R.FLOW_ENTRY):
        link = m[entry + R.FE_LINK]
        after, previous = m[entry + R.FE_NEXT], m[entry + R.FE_PREV]
        if after != L.NIL:
            m[after + R.FE_PREV] = previous
        if previous != L.NIL:
            m[previous + R.FE_NEXT] = after
        else:
            m[link + R.FL_FIRST] = after
            if after == L.NIL:
                m[link + R.FL_BUSY_NS] += m[L.C_NOW] - m[link + R.FL_SINCE]
                note_use(s, link)
                m[link + R.FL_LEFT] = m[link + R.FL_CAPACITY]
                m[link + R.FL_WEIGHT] = 0


def count_on_links(s: State, route: int, size: int) -> None:
    """Add a message to what its links carry."""
    m = s.m
    whole = m[m[L.C_FLOW] + R.FH_WHOLE]
    first = m[route + R.FR_ENTRY]
    for entry in range(first, first + m[route + R.FR_ENTRIES] * R.FLOW_ENTRY, R.FLOW_ENTRY):
        link = m[entry + R.FE_LINK]
        weight = m[entry + R.FE_WEIGHT]
        parts = m[link + R.FL_PARTS] + size % whole * weight
        m[link + R.FL_BYTES] += size // whole * weight + parts // whole
        m[link + R.FL_PARTS] = parts % whole
        m[link + R.FL_MESSAGES] += 1


def start_flow(s: State, message: int, src: int) -> None:
    """A message leaves `src`. One to the NPU itself is there at the end of this tick."""
    m = s.m
    head = m[L.C_FLOW]
    dst = m[message + L.M_DST]
    npu = m[m[head + R.FH_NPUS] + src]
    m[message + L.M_HOPS] = 1
    if npu == dst:
        m[message + L.M_AT] = dst
        schedule(s, m[L.C_NOW], message)
        return
    book(s, npu, dst, booked_bytes(s, message), m[head + R.FH_SENT] + src * m[L.C_DIMS], 1)
    start_on(s, message, choose_route(s, src, dst))


def start_port(s: State, message: int, src: int, dim: int, tree: int, size: int, kind: int) -> None:
    """A message from an NPU up to a switch; bit 0 of `kind`: down from it, bit 1: once for each member below a link."""
    m = s.m
    head = m[L.C_FLOW]
    m[message + L.M_HOPS] = 1
    m[message + L.M_SIZE] = size
    if kind & 1 == 0:
        m[m[head + R.FH_SENT] + src * m[L.C_DIMS] + dim] += size
    start_on(s, message, m[find_pair(s, src, m[head + R.FH_PORTS] + 4 * tree + kind) + R.FP_ROUTE])


def start_on(s: State, message: int, route: int) -> None:
    """A message begins to flow on a route."""
    m = s.m
    head = m[L.C_FLOW]
    size = m[message + L.M_SIZE]
    count_on_links(s, route, size)
    m[message + L.M_ROUTE] = route
    left = size << m[head + R.FH_SHIFT]
    m[message + L.M_AT] = left
    if left == 0 or m[route + R.FR_ENTRIES] == 0:
        m[message + L.M_AT] = m[message + L.M_DST]
        schedule(s, m[L.C_NOW] + m[route + R.FR_LATENCY], message)
        return
    add_flow(s, route, message)
    touch(s, route)
    if m[head + R.FH_SHARING] != m[L.C_NOW]:
        m[head + R.FH_SHARING] = m[L.C_NOW]
        plan_wake(s, m[L.C_NOW])


def add_flow(s: State, route: int, message: int) -> None:
    """Put a message among the flows of its route, which are ordered by what they have left."""
    m = s.m
    m[route + R.FR_FLOWS] += 1
    if m[route + R.FR_FLOWS] == 1:
        m[route + R.FR_SINCE] = m[L.C_NOW]
        m[route + R.FR_RATE] = 0
        m[route + R.FR_END] = L.NEVER
        m[route + R.FR_FIRST] = message
        m[message + L.NEXT] = L.NIL
        join_links(s, route)
        put_in_heap(s, route)
        return
    advance(s, route)
    m[route + R.FR_RATE] = 0  # so that its end is planned anew
    left = m[message + L.M_AT]
    at = m[route + R.FR_FIRST]
    if m[at + L.M_AT] > left:
        m[message + L.NEXT] = at
        m[route + R.FR_FIRST] = message
        return
    after = m[at + L.NEXT]
    while after != L.NIL and m[after + L.M_AT] <= left:
        at = after
        after = m[at + L.NEXT]
    m[message + L.NEXT] = after
    m[at + L.NEXT] = message


def plan_wake(s: State, tick: int) -> None:
    """Have the network woken at a tick."""
    row = take_row(s)
    s.m[row + L.KIND] = L.EV_LINK
    schedule(s, tick, row)


def end_flows(s: State, route: int) -> None:
    """Flows of a route that have nothing left are sent; they are there after the latency of the route."""
    m = s.m
    advance(s, route)
    there = m[L.C_NOW] + m[route + R.FR_LATENCY]
    touch(s, route)
    message = m[route + R.FR_FIRST]
    while message != L.NIL and m[message + L.M_AT] <= 0:
        after = m[message + L.NEXT]
        m[route + R.FR_FLOWS] -= 1
        m[message + L.M_AT] = m[message + L.M_DST]
        schedule(s, there, message)
        message = after
    m[route + R.FR_FIRST] = message
    if message == L.NIL:
        take_from_heap(s, route)
        leave_links(s, route)
        m[route + R.FR_RATE] = 0
    else:  # the others get a rate, and with it an end, in the same call of `wake_flows`
        m[route + R.FR_RATE] = 0
        m[route + R.FR_END] = L.NEVER
        sift(s, route)


def wake_flows(s: State, row: int) -> None:
    """A planned end has come, or flows have started at this tick."""
    m = s.m
    free_row(s, row)
    head = m[L.C_FLOW]
    now = m[L.C_NOW]
    if m[head + R.FH_SHARING] == now:
        m[head + R.FH_SHARING] = -1
    if m[head + R.FH_PLAN] <= now:
        m[head + R.FH_PLAN] = L.NEVER
    heap = m[head + R.FH_HEAP]
    while m[head + R.FH_HEAP_N] > 0 and m[m[heap] + R.FR_END] <= now:
        end_flows(s, m[heap])
    share_links(s)
    if m[head + R.FH_HEAP_N] > 0 and m[m[heap] + R.FR_END] < m[head + R.FH_PLAN]:
        m[head + R.FH_PLAN] = m[m[heap] + R.FR_END]
        plan_wake(s, m[head + R.FH_PLAN])


def flow_occupancy(s: State, npu: int, partner: int, size: int, back: bool) -> int:
    """Time for which a message to a partner (`back`: from it) keeps its narrowest link busy when it is alone, ns."""
    m = s.m
    head = m[L.C_FLOW]
    if m[m[head + R.FH_NPUS] + npu] == partner:
        return 0
    pair = find_pair(s, npu, partner)
    rate = m[pair + R.FP_BACK] if back else m[pair + R.FP_ALONE]
    return -(-(size << m[head + R.FH_SHIFT]) // rate)
