"""Algorithms of the phase-level kernel: messages of each, and the ends of a phase from the starts of its members.

Source: replay semantics, sections 4.1 to 4.8 and 5.3.
"""

from chakra.arrays import I64
from chakra.replay.engines.kernels import phases_layout as L
from chakra.replay.engines.kernels.phases_layout import Net

ENTRY_POINTS = ("equal_start_time", "eval_steps")
ALLOCATES = False


# --------------------------------------------------------------------------------------------------------------
# Network


def dim_hops(topo: int, size: int, a: int, b: int) -> int:
    """Hops between positions a and b of one dimension."""
    if topo == L.TOPO_SWITCH:
        return 2
    if topo == L.TOPO_FULL:
        return 1
    forward = (b - a) % size
    return min(forward, size - forward)


def delay(net: Net, src: int, dst: int, size: int) -> int:
    """Delay in ns of a message of `size` bytes (replay semantics, section 5.3; correction C5)."""
    total = 0
    for k in range(len(net.size)):
        n = net.size[k]
        a = src % n
        b = dst % n
        if a != b:
            hops = dim_hops(net.topo[k], n, a, b)
            if net.old:  # two truncations, in the highest dimension where the ends differ (section 7.1)
                total = int(int(hops * net.lat[k]) + size / net.rate[k])
            else:
                total += int(hops * net.lat[k] + size / net.rate[k])
                if not net.sum_dims:
                    return total
        src //= n
        dst //= n
    return total


def occupancy(net: Net, src: int, dst: int, size: int) -> int:
    """Time in ns for which a message keeps its slowest link busy."""
    longest = 0
    for k in range(len(net.size)):
        if src % net.size[k] != dst % net.size[k]:
            longest = max(longest, int(size / net.rate[k]))
        src //= net.size[k]
        dst //= net.size[k]
    return longest


# --------------------------------------------------------------------------------------------------------------
# Algorithms: which packets there are (replay semantics, section 4.2)


def log2_floor(n: int) -> int:
    """Exponent of the greatest power of two that is not above n."""
    e = 0
    while (n >> (e + 1)) > 0:
        e += 1
    return e


def packet_count(alg: int, do: int, n: int) -> int:
    """Messages that each member sends in a phase."""
    if alg == L.ALG_HALVING_DOUBLING:
        levels = log2_floor(n)
        return 2 * levels if do == L.DO_ALL_REDUCE else levels
    if do == L.DO_ALL_REDUCE:
        return 2 * (n - 1)
    if alg == L.ALG_RING and do == L.DO_ALL_TO_ALL:
        return n * (n - 1) // 2
    return n - 1


def packet_bytes(alg: int, do: int, n: int, d: int, p: int, least: int) -> int:
    """Size of packet p, also of those past the last one; a barrier moves nothing.

    Halving-doubling arms a packet more than it sends, whose delay and reduction are charged: that one may be empty.
    """
    if d == 0:
        return 0
    if alg == L.ALG_HALVING_DOUBLING:
        levels = log2_floor(n)
        if p >= packet_count(alg, do, n):
            least = 0
        if do == L.DO_ALL_GATHER:
            size = d << p
        elif do == L.DO_ALL_REDUCE and p >= levels:
            size = (2 * (d >> (levels + 1))) << (p - levels)
        else:
            size = d >> (p + 1)
    elif do == L.DO_ALL_GATHER:
        size = d
    else:
        size = d // n
    return max(size, least)


def packet_partner(alg: int, do: int, n: int, p: int, i: int, step: int) -> int:
    """Position that member i sends packet p to; `step` is the direction, +1 or -1. Sources mirror destinations."""
    if alg == L.ALG_RING:
        return (i + step) % n
    if alg == L.ALG_DIRECT:
        return (i + (1 + p % (n - 1)) * step) % n
    levels = log2_floor(n)
    up = do == L.DO_REDUCE_SCATTER or (do == L.DO_ALL_REDUCE and p < levels)
    return i ^ (1 << (p % levels) if up else 1 << (levels - 1 - p % levels))


def packet_source(alg: int, do: int, n: int, p: int, i: int, step: int) -> int:
    """Position from which member i receives packet p."""
    if alg == L.ALG_HALVING_DOUBLING:
        return packet_partner(alg, do, n, p, i, step)
    return packet_partner(alg, do, n, p, i, -step)


def packet_reduces(do: int, p: int, window: int, cycle: int) -> bool:
    """Whether a reduction follows the endpoint delay of packet p (section 4.1)."""
    if p % (window + cycle) < window:
        return False
    return do == L.DO_REDUCE_SCATTER or (do == L.DO_ALL_REDUCE and (p // (window + cycle)) % 2 == 0)


def reduction(net: Net, size: int) -> int:
    """Time to reduce `size` bytes: three accesses to local memory (1.0: section 7.1)."""
    if net.old:
        return 3 * (size // 500000)
    if net.reduce_rate <= 0.0:
        return 0
    return 3 * int(size / net.reduce_rate * 1000000000.0)


# --------------------------------------------------------------------------------------------------------------
# Phases, evaluated when all starts are known. `starts[base + i]` is member i's start; ends go to `ends[base + i]` and the
# length of each member's final timer to `ends[base + n + i]`. A phase of one member (all others alike) has span 1.


def eval_chain(
    net: Net,
    alg: int,
    do: int,
    n: int,
    d: int,
    e: int,
    cycle: int,
    step: int,
    npu: I64,
    npu0: int,
    x: I64,
    y: I64,
) -> int:
    """Ring and halving-doubling: one packet at a time, so a recurrence over packets.

    `x` holds the starts in its first n cells and the ends afterwards; `y` is scratch. Returns the last timer.
    """
    packets = packet_count(alg, do, n)
    least = net.min_bytes
    for i in range(n):
        x[i] += e
    last = e
    for k in range(packets):
        size = packet_bytes(alg, do, n, d, k, least)
        r = 0
        if packet_reduces(do, k + 1, 1, cycle):
            r = reduction(net, packet_bytes(alg, do, n, d, k + 1, least))
        last = r if r > 0 else e
        for i in range(n):
            j = packet_source(alg, do, n, k, i, step)
            sent = x[j]
            if net.rendezvous:
                sent = max(sent, x[i] + delay(net, npu[npu0 + i], npu[npu0 + j], L.CONTROL_BYTES))
            came = sent + delay(net, npu[npu0 + j], npu[npu0 + i], size)
            y[i] = max(came, x[i]) + e + r
        for i in range(n):
            x[i] = y[i]
    return last


def eval_direct_open(net: Net, do: int, n: int, d: int, e: int, npu: I64, npu0: int, x: I64, y: I64) -> int:
    """Direct with an unlimited window, anything but all-reduce: everybody sends at once, ends with the last arrival."""
    size = packet_bytes(L.ALG_DIRECT, do, n, d, 0, net.min_bytes)
    r = reduction(net, size) if do == L.DO_REDUCE_SCATTER else 0
    for i in range(n):
        x[i] += e
    for i in range(n):
        latest = x[i]
        for j in range(n):
            if j != i:
                sent = x[j]
                if net.rendezvous:
                    sent = max(sent, x[i] + delay(net, npu[npu0 + i], npu[npu0 + j], L.CONTROL_BYTES))
                latest = max(latest, sent + delay(net, npu[npu0 + j], npu[npu0 + i], size))
        y[i] = latest + e + r
    for i in range(n):
        x[i] = y[i]
    return r if r > 0 else e


def packet_reduction(net: Net, alg: int, do: int, n: int, d: int, p: int, window: int, cycle: int) -> int:
    """Reduction that follows the endpoint delay of packet p; 0 if none does."""
    if not packet_reduces(do, p, window, cycle):
        return 0
    return reduction(net, packet_bytes(alg, do, n, d, p, net.min_bytes))


def receipt(net: Net, src: int, dst: int, size: int, sent: int, posted: int) -> int:
    """Instant at which a message that was sent and whose receive was posted is received (section 5.2)."""
    if net.rendezvous:
        return max(sent, posted + delay(net, dst, src, L.CONTROL_BYTES)) + delay(net, src, dst, size)
    return max(sent + delay(net, src, dst, size), posted)


def credit_before(heap: I64, a: int, b: int) -> bool:
    """Whether entry a of a credit heap comes before entry b."""
    if heap[3 * a] != heap[3 * b]:
        return bool(heap[3 * a] < heap[3 * b])
    if heap[3 * a + 1] != heap[3 * b + 1]:
        return bool(heap[3 * a + 1] < heap[3 * b + 1])
    return bool(heap[3 * a + 2] < heap[3 * b + 2])


def credit_swap(heap: I64, a: int, b: int) -> None:
    """Exchange two entries of a credit heap."""
    for k in range(3):
        kept = heap[3 * a + k]
        heap[3 * a + k] = heap[3 * b + k]
        heap[3 * b + k] = kept


def credit_push(heap: I64, n: int, tick: int, reg: int, what: int) -> None:
    """Insert (tick, registration tick, sequence and description) into a heap of n entries."""
    heap[3 * n] = tick
    heap[3 * n + 1] = reg
    heap[3 * n + 2] = what
    i = n
    while i > 0 and credit_before(heap, i, (i - 1) >> 1):
        credit_swap(heap, i, (i - 1) >> 1)
        i = (i - 1) >> 1


def credit_pop(heap: I64, n: int) -> None:
    """Drop the first of n entries; the caller has read it."""
    m = n - 1
    credit_swap(heap, 0, m)
    i = 0
    while 2 * i + 1 < m:
        child = 2 * i + 1
        if child + 1 < m and credit_before(heap, child + 1, child):
            child += 1
        if credit_before(heap, i, child):
            break
        credit_swap(heap, i, child)
        i = child


def eval_credits(
    net: Net,
    alg: int,
    do: int,
    n: int,
    d: int,
    e: int,
    window: int,
    cycle: int,
    step: int,
    npu: I64,
    npu0: int,
    span: int,
    x: I64,
    work: I64,
    heap: I64,
) -> int:
    """The credit machine in time order (section 4.1), for any family: members are real (span n) or all alike (span 1).

    `work` needs 5 * span + span * packets cells, `heap` three times span * (2 * window + 2 * packets + 2).
    Ends replace the starts in `x`. Returns the length of the final timer.
    """
    packets = packet_count(alg, do, n)
    least = net.min_bytes
    hold = alg == L.ALG_DIRECT and do == L.DO_ALL_REDUCE
    armed, sent, spare, got, total = 0, span, 2 * span, 3 * span, 4 * span
    instant = 5 * span  # when a member sent packet p; it posts the receive of its own packet p then, too
    for i in range(instant + span * packets):
        work[i] = 0 if i < instant else -1
    n_heap = 0
    seq = 0
    for i in range(span):
        for p in range(window):
            r = packet_reduction(net, alg, do, n, d, p, window, cycle)
            credit_push(heap, n_heap, x[i] + e + r, x[i] + (e if r > 0 else 0), seq * 2 * span + span + i)
            n_heap += 1
            seq += 1
        work[armed + i] = window
        x[i] = -1
    while n_heap > 0:
        now = heap[0]
        what = heap[2] % (2 * span)
        credit_pop(heap, n_heap)
        n_heap -= 1
        if what < span:  # a message is received: arm the next packet
            i = what
            work[got + i] += 1
            p = work[armed + i]
            work[armed + i] = p + 1
            r = packet_reduction(net, alg, do, n, d, p, window, cycle)
            credit_push(heap, n_heap, now + e + r, now + (e if r > 0 else 0), seq * 2 * span + span + i)
            n_heap += 1
            seq += 1
            continue
        i = what - span
        work[spare + i] += 1
        work[total + i] += 1
        burst = 1
        if hold and work[sent + i] >= n - 1:
            burst = window if work[got + i] >= n - 1 else 0
        while burst > 0 and work[spare + i] > 0 and work[sent + i] < min(packets, work[armed + i]):
            burst -= 1
            p = work[sent + i]
            work[sent + i] = p + 1
            work[spare + i] -= 1
            work[instant + i * packets + p] = now
            size = packet_bytes(alg, do, n, d, p, least)
            to = packet_partner(alg, do, n, p, i, step)
            a = to if span > 1 else 0
            other = work[instant + a * packets + p]
            if other >= 0:  # the receiver has posted: the message i -> to is complete
                got_at = receipt(net, npu[npu0 + i], npu[npu0 + to], size, now, other)
                credit_push(heap, n_heap, got_at, now, seq * 2 * span + a)
                n_heap += 1
                seq += 1
            source = packet_source(alg, do, n, p, i, step)
            if span > 1:
                other = work[instant + source * packets + p]
                if other >= 0:  # the sender has sent: the message source -> i is complete
                    got_at = receipt(net, npu[npu0 + source], npu[npu0 + i], size, other, now)
                    # an arrival was registered when it was sent; a message that is here already ends its receive now
                    credit_push(heap, n_heap, got_at, other if got_at > now else now, seq * 2 * span + i)
                    n_heap += 1
                    seq += 1
        if work[total + i] == packets + window:
            x[i] = now
    if packet_reduces(do, packets + window - 1, window, cycle):
        r = reduction(net, packet_bytes(alg, do, n, d, packets + window - 1, least))
        if r > 0:
            return r
    return e


def eval_tree(
    net: Net, n: int, d: int, e: int, trees: I64, tree0: int, npu: I64, npu0: int, x: I64, work: I64
) -> int:
    """Double binary tree: an all-reduce of d bytes up and down one tree (section 4.3).

    `trees[tree0 + i]` is the parent of position i, -1 for the root; `trees[tree0 + n + k]` lists positions so that
    children come before parents. `x`: starts, then ends. `work`: 2n cells.
    """
    r = reduction(net, d)
    up, have = 0, n
    for i in range(n):
        work[up + i] = x[i]
        work[have + i] = 0
    for k in range(n):
        i = trees[tree0 + n + k]
        parent = trees[tree0 + i]
        if parent < 0:
            continue
        # a leaf sends after the endpoint delay, an inner position after its second child, the delay and a reduction
        ready = work[up + i] + e + (r if work[have + i] > 0 else 0)
        work[up + i] = ready
        sent = ready
        if net.rendezvous:
            sent = max(sent, x[parent] + delay(net, npu[npu0 + parent], npu[npu0 + i], L.CONTROL_BYTES))
        work[up + parent] = max(work[up + parent], sent + delay(net, npu[npu0 + i], npu[npu0 + parent], d))
        work[have + parent] += 1
    for k in range(n - 1, -1, -1):
        i = trees[tree0 + n + k]
        parent = trees[tree0 + i]
        if parent < 0:
            x[i] = work[up + i] + e + r
            continue
        sent = x[parent]  # the parent sends down when it ends
        if net.rendezvous:
            sent = max(sent, work[up + i] + delay(net, npu[npu0 + i], npu[npu0 + parent], L.CONTROL_BYTES))
        came = max(sent + delay(net, npu[npu0 + parent], npu[npu0 + i], d), work[up + i])
        x[i] = came + e + (r if work[have + i] > 0 else 0)
    return r if r > 0 else e


def step_bytes(d: int, share: int, whole: int, least: int) -> int:
    """Size of a message that carries share / whole of d bytes, rounded up."""
    if share == 0 or d == 0:
        return 0
    return max(d // whole * share + (d % whole * share + whole - 1) // whole, least)


def eval_steps(
    net: Net, n: int, d: int, e: int, m: I64, steps: int, count: int, whole: int, npu0: int, x: I64, work: I64
) -> int:
    """Rounds of messages: each member sends at most one and receives at most one per round.

    A member enters the next round when what it received is there and both its messages have passed its links, after
    the endpoint delay and the reduction of what it received. `m[steps:]` has (source, destination, share, flags) per
    message; flags: 1 = the destination reduces, 2 = last of its round. `x`: starts, then ends. `work`: 2n cells.
    """
    for i in range(n):
        x[i] += e
        work[i] = -1
        work[n + i] = 0
    first = steps
    for row in range(steps, steps + 4 * count, 4):
        i, j = m[row], m[row + 1]
        size = step_bytes(d, m[row + 2], whole, net.min_bytes)
        a, b = m[npu0 + i], m[npu0 + j]
        sent = x[i]
        if net.rendezvous:
            sent = max(sent, x[j] + delay(net, b, a, L.CONTROL_BYTES))
        busy = occupancy(net, a, b, size)
        work[i] = max(work[i], x[i] + busy)
        work[j] = max(work[j], sent + delay(net, a, b, size), x[j] + busy)
        if m[row + 3] & 1:
            work[n + j] += reduction(net, size)
        if m[row + 3] & 2:
            for done in range(first, row + 4, 4):
                for side in range(2):
                    k = m[done + side]
                    if work[k] >= 0:
                        x[k] = work[k] + e + work[n + k]
                        work[k] = -1
                        work[n + k] = 0
            first = row + 4
    return e


def equal_start_time(
    net: Net,
    alg: int,
    do: int,
    n: int,
    d: int,
    e: int,
    window: int,
    cycle: int,
    npu: I64,
    npu0: int,
    plain: bool,
    out: I64,
    work: I64,
    heap: I64,
) -> int:
    """Duration of a phase whose members start together on a ring that looks alike from each member.

    Ring and open direct have closed forms, the others follow one member (sections 4.7 and 9). `plain` says that the
    ring lies in one dimension, so the longest way is the one to the opposite member. The length of the final timer
    goes to out[0].
    """
    least = net.min_bytes
    if alg == L.ALG_NONE:
        out[0] = 0
        return 0
    if alg == L.ALG_RING and not net.rendezvous:
        size = packet_bytes(alg, do, n, d, 0, least)
        step = delay(net, npu[npu0], npu[npu0 + 1], size) + e
        r = reduction(net, size)
        packets = packet_count(alg, do, n)
        reductions = n - 1 if do in (L.DO_ALL_REDUCE, L.DO_REDUCE_SCATTER) else 0
        out[0] = r if do == L.DO_REDUCE_SCATTER and r > 0 else e
        return e + packets * step + reductions * r
    if alg == L.ALG_DIRECT and do != L.DO_ALL_REDUCE and window == n - 1:
        size = packet_bytes(alg, do, n, d, 0, least)
        r = reduction(net, size) if do == L.DO_REDUCE_SCATTER else 0
        longest = 0
        for k in range(n // 2 if plain else 1, n // 2 + 1 if plain else n):
            there = delay(net, npu[npu0], npu[npu0 + k], size)
            if net.rendezvous:
                there += delay(net, npu[npu0 + k], npu[npu0], L.CONTROL_BYTES)
            longest = max(longest, there)
        out[0] = r if r > 0 else e
        return e + longest + e + r
    out[1] = 0
    out[0] = eval_credits(net, alg, do, n, d, e, window, cycle, 1, npu, npu0, 1, out[1:2], work, heap)
    return out[1]
