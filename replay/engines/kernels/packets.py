"""Packets of the native algorithms, and what moving and reducing them takes on a free network.

Source: replay semantics, sections 4.1, 4.2, 5.3 and 7.1. A phase is given by its row.
"""

from chakra.replay.engines.kernels import codes as K
from chakra.replay.engines.kernels import layout as L
from chakra.replay.engines.kernels.layout import State

ENTRY_POINTS = ()
ALLOCATES = False


def packet_count(family: int, do: int, n: int) -> int:
    """Messages that each of n members sends in a phase."""
    if family == K.ALG_HALVING_DOUBLING:
        levels = 0
        while 2 << levels <= n:
            levels += 1
        return 2 * levels if do == K.DO_ALL_REDUCE else levels
    if do == K.DO_ALL_REDUCE:
        return 2 * (n - 1)
    if family == K.ALG_RING and do == K.DO_ALL_TO_ALL:
        return n * (n - 1) // 2
    return n - 1


def packet_bytes(family: int, do: int, n: int, packets: int, d: int, p: int, as_astra: bool) -> int:
    """Size of packet p of `packets`, also of those past the last one; a barrier (d = 0) moves nothing.

    Halving-doubling's all-reduce brings back what it took apart. `as_astra`: it doubles from half of what it had last,
    which is less where 2n does not divide d, and nothing below 2n bytes (C23). It arms a packet more than it sends, whose
    delay and reduction are charged: that one may be empty.
    """
    if d == 0:
        return 0
    if family != K.ALG_HALVING_DOUBLING:
        return d if do == K.DO_ALL_GATHER else max(d // n, 1)
    if do == K.DO_ALL_GATHER:
        size = d << p
    elif do == K.DO_ALL_REDUCE and p >= packets >> 1:
        levels = packets >> 1
        size = (2 * (d >> (levels + 1))) << (p - levels) if as_astra else d >> (packets - p)
    else:
        size = d >> (p + 1)
    return max(size, 1) if p < packets else size


def packet_partner(family: int, do: int, n: int, packets: int, p: int, i: int, step: int) -> int:
    """Position that member i sends packet p to; `step` is the direction, +1 or -1, of its source the opposite."""
    if family == K.ALG_HALVING_DOUBLING:
        if do == K.DO_REDUCE_SCATTER or (do == K.DO_ALL_REDUCE and p < packets >> 1):
            return i ^ (1 << p)
        return i ^ (1 << (packets - 1 - p))
    if family == K.ALG_DIRECT:
        step *= p + 1 if p < n - 1 else p + 2 - n
    to = i + step
    if to >= n:
        return to - n
    return to + n if to < 0 else to


def packet_reduces(do: int, p: int, window: int, cycle: int) -> bool:
    """Whether a reduction follows the endpoint delay of packet p; `cycle` is Z (section 4.1)."""
    if p % (window + cycle) < window:
        return False
    return do == K.DO_REDUCE_SCATTER or (do == K.DO_ALL_REDUCE and p // (window + cycle) % 2 == 0)


def phase_packet(s: State, f: int, p: int) -> int:
    """Size of packet p of the phase whose row is f."""
    m = s.m
    return packet_bytes(
        m[f + L.PH_FAMILY], m[f + L.PH_DO], m[f + L.PH_N], m[f + L.PH_PACKETS], m[f + L.PH_BYTES], p,
        m[f + L.PH_AS_ASTRA] != 0,
    )  # fmt: skip


def phase_partner(s: State, f: int, p: int, i: int, step: int) -> int:
    """Position that member i sends packet p of the phase whose row is f to."""
    m = s.m
    return packet_partner(m[f + L.PH_FAMILY], m[f + L.PH_DO], m[f + L.PH_N], m[f + L.PH_PACKETS], p, i, step)


def reduction(s: State, size: int) -> int:
    """Time to reduce `size` bytes: three accesses to local memory (1.0: section 7.1), ns."""
    if s.m[L.C_OLD] != 0:
        return 3 * (size // 500000)
    bandwidth = s.f[L.F_REDUCE_BW]
    if bandwidth <= 0.0:
        return 0
    return 3 * int(size / bandwidth * 1000000000.0)


def phase_reduction(s: State, f: int, p: int) -> int:
    """Reduction that follows the endpoint delay of packet p of the phase whose row is f; 0 if none does."""
    m = s.m
    if not packet_reduces(m[f + L.PH_DO], p, m[f + L.PH_WINDOW], m[f + L.PH_CYCLE]):
        return 0
    return reduction(s, phase_packet(s, f, p))


def uneven_packet(s: State, f: int, source: int, target: int) -> int:
    """Size of the message between two positions of a phase of unequal shares; -1 where none is sent."""
    m = s.m
    return m[m[f + L.PH_SIZES] + source * m[f + L.PH_N] + target]


def uneven_reduction(s: State, f: int, i: int) -> int:
    """Reduction of what position i receives in a reduce-scatter of unequal shares: always its own block."""
    m = s.m
    n = m[f + L.PH_N]
    other = i + 1 if i + 1 < n else 0
    return reduction(s, max(m[m[f + L.PH_SIZES] + other * n + i], 0))


def member_packet(s: State, f: int, p: int, source: int, target: int) -> int:
    """Size of packet p, which one position sends to another."""
    if s.m[f + L.PH_SIZES] == L.NIL:
        return phase_packet(s, f, p)
    return uneven_packet(s, f, source, target)


def member_reduction(s: State, f: int, p: int, i: int) -> int:
    """Reduction that follows the endpoint delay of position i's packet p; 0 if none does."""
    m = s.m
    if m[f + L.PH_SIZES] == L.NIL:
        return phase_reduction(s, f, p)
    if not packet_reduces(m[f + L.PH_DO], p, m[f + L.PH_WINDOW], m[f + L.PH_CYCLE]):
        return 0
    return uneven_reduction(s, f, i)


def step_bytes(d: int, share: int, whole: int) -> int:
    """Size of a message that carries share / whole of d bytes, rounded up."""
    if share == 0 or d == 0:
        return 0
    return max(d // whole * share + (d % whole * share + whole - 1) // whole, 1)


def hops_between(s: State, dim: int, a: int, b: int) -> int:
    """Hops between positions a and b of one dimension, given by its row."""
    topology = s.m[dim + L.D_TOPOLOGY]
    if topology == K.TOPO_SWITCH:
        return 2
    if topology == K.TOPO_FULL:
        return 1
    ahead = abs(b - a)
    return min(ahead, s.m[dim + L.D_N] - ahead)


def crossing_ns(s: State, k: int, hops: int, size: int) -> int:
    """Time of a message over so many hops of dimension k, ns; 1.0 truncates twice (section 7.1)."""
    latency, rate = s.f[L.F_SPEED + 2 * k], s.f[L.F_SPEED + 2 * k + 1]
    if s.m[L.C_OLD] != 0:
        return int(int(hops * latency) + size / rate)
    return int(hops * latency + size / rate)


def free_delay(s: State, src: int, dst: int, size: int) -> int:
    """Delay in ns of a message without contention (section 5.3; correction C5)."""
    m = s.m
    total = 0
    charge = m[L.C_CHARGE]
    row = m[L.C_DIM_ROWS]
    for k in range(m[L.C_DIMS]):
        n = m[row + L.D_N]
        a = src % n
        b = dst % n
        if a != b:
            part = crossing_ns(s, k, hops_between(s, row, a, b), size)
            if charge == L.CHARGE_LOWEST:
                return part
            total = part if charge == L.CHARGE_HIGHEST else total + part
        src //= n
        dst //= n
        row += L.DIM_ROW
    return total


def free_occupancy(s: State, src: int, dst: int, size: int) -> int:
    """Time in ns for which a message keeps the slowest dimension of its way busy."""
    m = s.m
    longest = 0
    row = m[L.C_DIM_ROWS]
    for k in range(m[L.C_DIMS]):
        n = m[row + L.D_N]
        if src % n != dst % n:
            longest = max(longest, int(size / s.f[L.F_SPEED + 2 * k + 1]))
        src //= n
        dst //= n
        row += L.DIM_ROW
    return longest
