"""Max-min fair rates of flows: progressive filling in whole numbers (Bertsekas and Gallager, Data Networks, 6.5.2).

Computed for the component only that the links touched by a start or an end belong to: flows and links that no chain of
shared links joins with them keep their rates. In each round the links with the smallest share left are full, all of
them together, and their flows keep that share; so rates depend on no order.
"""

from chakra.replay.engines.kernels import flow_rows as R
from chakra.replay.engines.kernels import messages_layout as L
from chakra.replay.engines.kernels.layout import State
from chakra.replay.engines.kernels.link_use import SHARE_BITS, add_use

#: nothing here is compiled for its own sake, only as part of `messages.run`
ENTRY_POINTS = ()
ALLOCATES = False


def before(s: State, a: int, b: int) -> bool:
    """Whether route a comes before route b in the heap: by the end of their first flows, then by number."""
    m = s.m
    if m[a + R.FR_END] != m[b + R.FR_END]:
        return m[a + R.FR_END] < m[b + R.FR_END]
    return a < b


def sift(s: State, route: int) -> None:
    """Move a route in the heap to where the end of its first flow belongs."""
    m = s.m
    head = m[L.C_FLOW]
    heap, n = m[head + R.FH_HEAP], m[head + R.FH_HEAP_N]
    i = m[route + R.FR_PLACE]
    while i > 0:
        up = m[heap + ((i - 1) >> 1)]
        if before(s, up, route):
            break
        m[heap + i] = up
        m[up + R.FR_PLACE] = i
        i = (i - 1) >> 1
    down = 2 * i + 1
    while down < n:
        below = m[heap + down]
        if down + 1 < n and before(s, m[heap + down + 1], below):
            down += 1
            below = m[heap + down]
        if before(s, route, below):
            break
        m[heap + i] = below
        m[below + R.FR_PLACE] = i
        i = down
        down = 2 * i + 1
    m[heap + i] = route
    m[route + R.FR_PLACE] = i


def put_in_heap(s: State, route: int) -> None:
    """A route has flows."""
    m = s.m
    head = m[L.C_FLOW]
    n = m[head + R.FH_HEAP_N]
    m[head + R.FH_HEAP_N] = n + 1
    m[m[head + R.FH_HEAP] + n] = route
    m[route + R.FR_PLACE] = n
    sift(s, route)


def take_from_heap(s: State, route: int) -> None:
    """A route has no flows any more."""
    m = s.m
    head = m[L.C_FLOW]
    n = m[head + R.FH_HEAP_N] - 1
    m[head + R.FH_HEAP_N] = n
    last = m[m[head + R.FH_HEAP] + n]
    place = m[route + R.FR_PLACE]
    m[route + R.FR_PLACE] = -1
    if last != route:
        m[m[head + R.FH_HEAP] + place] = last
        m[last + R.FR_PLACE] = place
        sift(s, last)


def advance(s: State, route: int) -> None:
    """Take what a route's flows have sent since the last time from what they have left."""
    m = s.m
    sent = m[route + R.FR_RATE] * (m[L.C_NOW] - m[route + R.FR_SINCE])
    m[route + R.FR_SINCE] = m[L.C_NOW]
    if sent == 0:
        return
    message = m[route + R.FR_FIRST]
    while message != L.NIL:
        m[message + L.M_AT] -= sent
        message = m[message + L.NEXT]


def plan_end(s: State, route: int) -> None:
    """When the first flow of a route ends at its rate: the first whole ns at which nothing is left."""
    m = s.m
    left = m[m[route + R.FR_FIRST] + L.M_AT]
    m[route + R.FR_END] = m[L.C_NOW] - (-left // m[route + R.FR_RATE]) if left > 0 else m[L.C_NOW]
    sift(s, route)


def touch(s: State, route: int) -> None:
    """Flows have started or ended on a route: its links' component has to be computed again."""
    m = s.m
    head = m[L.C_FLOW]
    first = m[route + R.FR_ENTRY]
    for entry in range(first, first + m[route + R.FR_ENTRIES] * R.FLOW_ENTRY, R.FLOW_ENTRY):
        link = m[entry + R.FE_LINK]
        if m[link + R.FL_TOUCHED] == 0:
            m[link + R.FL_TOUCHED] = 1
            n = m[head + R.FH_TOUCHED_N]
            m[head + R.FH_TOUCHED_N] = n + 1
            m[m[head + R.FH_TOUCHED] + n] = link


def note_use(s: State, link: int) -> None:
    """Count what a link has carried since rates on it were last computed, for its use over time."""
    m = s.m
    use, since = m[link + R.FL_USE], m[link + R.FL_KNOWN]
    if use == L.NIL:
        return
    m[link + R.FL_KNOWN] = m[L.C_NOW]
    capacity = m[link + R.FL_CAPACITY]
    load = capacity - m[link + R.FL_LEFT] + m[link + R.FL_WEIGHT] * m[m[L.C_FLOW] + R.FH_CAP]
    if load <= 0:
        return
    if capacity >> (2 * SHARE_BITS) > 0:
        add_use(s, use, since, m[L.C_NOW], load // (capacity >> SHARE_BITS))
    else:
        add_use(s, use, since, m[L.C_NOW], (load << SHARE_BITS) // capacity)


def reach_link(s: State, link: int) -> None:
    """A link belongs to the component, if it has flows."""
    m = s.m
    head = m[L.C_FLOW]
    m[link + R.FL_TOUCHED] = 0
    if m[link + R.FL_STAMP] == m[head + R.FH_STAMP] or m[link + R.FL_FIRST] == L.NIL:
        return
    m[link + R.FL_STAMP] = m[head + R.FH_STAMP]
    note_use(s, link)
    m[link + R.FL_LEFT] = m[link + R.FL_CAPACITY]
    m[link + R.FL_WEIGHT] = 0
    n = m[head + R.FH_LIVE_N]
    m[head + R.FH_LIVE_N] = n + 1
    m[m[head + R.FH_LIVE] + n] = link


def collect(s: State) -> None:
    """Links and routes of the component of the touched links, and the weight of all flows on each link."""
    m = s.m
    head = m[L.C_FLOW]
    m[head + R.FH_STAMP] += 1
    m[head + R.FH_LIVE_N] = 0
    m[head + R.FH_MEMBERS_N] = 0
    for k in range(m[head + R.FH_TOUCHED_N]):
        reach_link(s, m[m[head + R.FH_TOUCHED] + k])
    m[head + R.FH_TOUCHED_N] = 0
    k = 0
    while k < m[head + R.FH_LIVE_N]:
        entry = m[m[m[head + R.FH_LIVE] + k] + R.FL_FIRST]
        k += 1
        while entry != L.NIL:
            route = m[entry + R.FE_ROUTE]
            entry = m[entry + R.FE_NEXT]
            if m[route + R.FR_STAMP] != m[head + R.FH_STAMP]:
                m[route + R.FR_STAMP] = m[head + R.FH_STAMP]
                reach_route(s, route)


def reach_route(s: State, route: int) -> None:
    """A route with flows belongs to the component, and so do its links."""
    m = s.m
    head = m[L.C_FLOW]
    m[route + R.FR_NEW] = -1
    n = m[head + R.FH_MEMBERS_N]
    m[head + R.FH_MEMBERS_N] = n + 1
    m[m[head + R.FH_MEMBERS] + n] = route
    flows, first = m[route + R.FR_FLOWS], m[route + R.FR_ENTRY]
    for entry in range(first, first + m[route + R.FR_ENTRIES] * R.FLOW_ENTRY, R.FLOW_ENTRY):
        link = m[entry + R.FE_LINK]
        reach_link(s, link)
        m[link + R.FL_WEIGHT] += m[entry + R.FE_WEIGHT] * flows


def least_share(s: State) -> int:
    """The smallest share that a link has left for each of its flows; the links that have it are the tight ones.

    Links all of whose flows have their rates leave the list. 0: no link is left.
    """
    m = s.m
    head = m[L.C_FLOW]
    live, tight = m[head + R.FH_LIVE], m[head + R.FH_TIGHT]
    least = 0
    kept = 0
    full = 0
    for k in range(m[head + R.FH_LIVE_N]):
        link = m[live + k]
        weight = m[link + R.FL_WEIGHT]
        if weight == 0:
            continue
        m[live + kept] = link
        kept += 1
        share = max(m[link + R.FL_LEFT] // weight, 1)
        if least == 0 or share < least:
            least = share
            full = 0
        if share == least:
            m[tight + full] = link
            full += 1
    m[head + R.FH_LIVE_N] = kept
    m[tight + full] = L.NIL
    return least


def settle(s: State, route: int, rate: int) -> None:
    """Give a route its rate, and take it from what its links have left."""
    m = s.m
    m[route + R.FR_NEW] = rate
    flows, first = m[route + R.FR_FLOWS], m[route + R.FR_ENTRY]
    for entry in range(first, first + m[route + R.FR_ENTRIES] * R.FLOW_ENTRY, R.FLOW_ENTRY):
        link = m[entry + R.FE_LINK]
        weight = m[entry + R.FE_WEIGHT] * flows
        m[link + R.FL_LEFT] -= rate * weight
        m[link + R.FL_WEIGHT] -= weight


def fill(s: State) -> None:
    """Rates of the routes of the component, round after round."""
    m = s.m
    head = m[L.C_FLOW]
    cap = m[head + R.FH_CAP]
    share = least_share(s)
    while share > 0 and (cap == 0 or share < cap):
        at = m[head + R.FH_TIGHT]
        while m[at] != L.NIL:
            entry = m[m[at] + R.FL_FIRST]
            at += 1
            while entry != L.NIL:
                route = m[entry + R.FE_ROUTE]
                entry = m[entry + R.FE_NEXT]
                if m[route + R.FR_NEW] < 0:
                    settle(s, route, share)
        share = least_share(s)


def share_links(s: State) -> None:
    """Compute the rates of all flows in the component of the touched links, and when they will end."""
    m = s.m
    head = m[L.C_FLOW]
    if m[head + R.FH_TOUCHED_N] == 0:
        return
    collect(s)
    fill(s)
    members = m[head + R.FH_MEMBERS]
    n = m[head + R.FH_MEMBERS_N]
    m[head + R.FH_SOLVED] += 1
    m[head + R.FH_VISITED] += n
    m[L.C_BUDGET] -= n  # each is as much work as an event
    for k in range(n):
        route = m[members + k]
        rate = m[route + R.FR_NEW]
        if rate < 0:
            rate = m[head + R.FH_CAP]
        if rate != m[route + R.FR_RATE]:  # at the same rate its first flow ends when it would have
            advance(s, route)
            m[route + R.FR_RATE] = rate
            plan_end(s, route)
