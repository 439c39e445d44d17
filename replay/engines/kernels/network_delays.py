"""Networks without contention: a message is there after a delay (replay semantics, section 5.3)."""

from chakra.replay.engines.kernels import messages_layout as L
from chakra.replay.engines.kernels.layout import State
from chakra.replay.engines.kernels.messages_events import schedule
from chakra.replay.engines.kernels.packets import crossing_ns, hops_between

#: nothing here is compiled for its own sake, only as part of `messages.run`
ENTRY_POINTS = ()
ALLOCATES = False


def booked_bytes(s: State, message: int) -> int:
    """Bytes of a message that dimensions are booked: what the workload sends, and no requests of rendezvous."""
    kind = s.m[message + L.KIND]
    return 0 if kind == L.MSG_CONTROL or kind == L.MSG_P2P_CONTROL else s.m[message + L.M_SIZE]


def counted_delay(s: State, message: int, src: int) -> int:
    """Delay of a message without contention, ns, as `free_delay` has it.

    Its bytes count in each dimension in which its ends differ, whether or not they take time there.
    """
    m = s.m
    dst, size, booked = m[message + L.M_DST], m[message + L.M_SIZE], booked_bytes(s, message)
    n_dims = m[L.C_DIMS]
    charge = m[L.C_CHARGE]
    here, there = m[L.C_COORDS] + src * n_dims, m[L.C_COORDS] + dst * n_dims
    row = m[L.C_DIM_ROWS]
    delay = 0
    crossed = 0
    for k in range(n_dims):
        if m[here + k] != m[there + k]:
            hops = hops_between(s, row, m[here + k], m[there + k])
            m[row + L.D_BYTES] += booked
            m[row + L.D_BYTE_HOPS] += booked * hops
            if charge != L.CHARGE_LOWEST or crossed == 0:
                part = crossing_ns(s, k, hops, size)
                delay = part if charge == L.CHARGE_HIGHEST else delay + part
            crossed += 1
        row += L.DIM_ROW
    return delay


def book(s: State, src: int, dst: int, size: int, first: int, step: int) -> None:
    """Book a message between two NPUs, in words from `first` on, `step` apart, one for each dimension.

    Building blocks are booked in each dimension in which the ends differ, also where links of theirs have failed.
    Dimensions of single links are names, and a message belongs to the highest.
    """
    m = s.m
    n_dims = m[L.C_DIMS]
    here, there = m[L.C_COORDS] + src * n_dims, m[L.C_COORDS] + dst * n_dims
    for k in range(n_dims - 1, -1, -1):
        if m[here + k] != m[there + k]:
            m[first + k * step] += size
            if m[L.C_EVERY_DIM] == 0:
                return


def book_message(s: State, message: int, src: int) -> None:
    """Book a message where all NPUs have one account."""
    m = s.m
    book(s, src, m[message + L.M_DST], booked_bytes(s, message), m[L.C_DIM_ROWS] + L.D_BYTES, L.DIM_ROW)


def route_delay(s: State, src: int, dst: int, size: int) -> int:
    """Delay over a graph's route without contention, ns: all latencies, and the bandwidth of the slowest link.

    Links of building blocks are those of their dimensions, each of which takes its time, as `counted_delay` has it.
    """
    m = s.m
    pair = src * m[L.C_NPUS] + dst
    delay = 0
    latency = 0.0
    slowest = 0.0
    part = 0
    for at in range(m[m[L.C_ROUTE_START] + pair], m[m[L.C_ROUTE_START] + pair + 1]):
        if m[m[at] + L.L_PART] != part:
            part = m[m[at] + L.L_PART]
            if m[L.C_CHARGE] == L.CHARGE_ALL:
                delay += int(latency + (size / slowest if slowest > 0.0 else 0.0))
                latency = 0.0
                slowest = 0.0
        link_class = m[m[at] + L.L_CLASS]
        latency += s.f[L.F_SPEED + 2 * link_class]
        bandwidth = s.f[L.F_SPEED + 2 * link_class + 1]
        if slowest == 0.0 or bandwidth < slowest:
            slowest = bandwidth
    return delay + int(latency + (size / slowest if slowest > 0.0 else 0.0))


def slowest_link(s: State, src: int, dst: int, size: int) -> int:
    """Time for which a message keeps the slowest link of its route busy, ns."""
    m = s.m
    pair = src * m[L.C_NPUS] + dst
    slowest = 0.0
    for at in range(m[m[L.C_ROUTE_START] + pair], m[m[L.C_ROUTE_START] + pair + 1]):
        bandwidth = s.f[L.F_SPEED + 2 * m[m[at] + L.L_CLASS] + 1]
        if slowest == 0.0 or bandwidth < slowest:
            slowest = bandwidth
    return int(size / slowest) if slowest > 0.0 else 0


def send_by_delay(s: State, message: int, src: int) -> None:
    """Send a message over building blocks."""
    m = s.m
    dst = m[message + L.M_DST]
    m[message + L.M_AT] = dst
    m[message + L.M_HOPS] = 1
    schedule(s, m[L.C_NOW] + counted_delay(s, message, src), message)


def over_switch_by_delay(s: State, message: int, src: int, dim: int, up: int, down: int) -> None:
    """Send a message to the switch of a dimension and back; it cuts through, so that the longer part is what counts."""
    m = s.m
    m[message + L.M_AT] = src
    m[message + L.M_HOPS] = 1
    row = m[L.C_DIM_ROWS] + dim * L.DIM_ROW
    m[row + L.D_BYTES] += up
    m[row + L.D_BYTE_HOPS] += up + down
    schedule(s, m[L.C_NOW] + crossing_ns(s, dim, 2, max(up, down)), message)


def send_by_route_delay(s: State, message: int, src: int) -> None:
    """Send a message over its route of single links."""
    m = s.m
    dst, size = m[message + L.M_DST], m[message + L.M_SIZE]
    m[message + L.M_AT] = dst
    m[message + L.M_HOPS] = 1
    book_message(s, message, src)
    schedule(s, m[L.C_NOW] + route_delay(s, src, dst, size), message)
