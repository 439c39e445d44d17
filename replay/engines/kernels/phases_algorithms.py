"""Ends of a phase from the starts of its members, when all starts are known.

Source: replay semantics, sections 4.1 to 4.8. A function gets the phase's row f and the NPUs of its ring from cell
`npus` on. The table at C_SCRATCH holds the starts in its first n cells and the ends afterwards; what lies behind them is
room to work in. Each function returns the length of the members' final timer.
"""

from chakra.replay.engines.kernels import codes as K
from chakra.replay.engines.kernels import phases_layout as L
from chakra.replay.engines.kernels.layout import State
from chakra.replay.engines.kernels.packets import (
    free_delay,
    free_occupancy,
    member_packet,
    member_reduction,
    phase_packet,
    phase_partner,
    phase_reduction,
    reduction,
    step_bytes,
    uneven_reduction,
)

ENTRY_POINTS = ("eval_steps",)
ALLOCATES = False


def leaves(s: State, src: int, dst: int, sent: int, posted: int) -> int:
    """When the data of a message leave that is sent and whose receive is posted (section 5.2)."""
    if s.m[L.C_RENDEZVOUS] == 0:
        return sent
    return max(sent, posted + free_delay(s, dst, src, L.CONTROL_BYTES))


def eval_chain(s: State, f: int, npus: int, step: int) -> int:
    """Ring and halving-doubling: one packet at a time, so a recurrence over packets."""
    m = s.m
    n, e = m[f + L.PH_N], m[f + L.PH_ENDPOINT]
    x = m[L.C_SCRATCH]
    y = x + n
    for i in range(n):
        m[x + i] += e
    last = e
    for k in range(m[f + L.PH_PACKETS]):
        size = phase_packet(s, f, k)
        r = phase_reduction(s, f, k + 1)
        last = r if r > 0 else e
        for i in range(n):
            j = phase_partner(s, f, k, i, -step)
            src, dst = m[npus + j], m[npus + i]
            came = leaves(s, src, dst, m[x + j], m[x + i]) + free_delay(s, src, dst, size)
            m[y + i] = max(came, m[x + i]) + e + r
        for i in range(n):
            m[x + i] = m[y + i]
    return last


def eval_direct_open(s: State, f: int, npus: int) -> int:
    """Direct with an unlimited window, anything but all-reduce: everybody sends at once, ends with the last arrival."""
    m = s.m
    n, e = m[f + L.PH_N], m[f + L.PH_ENDPOINT]
    if m[f + L.PH_SIZES] != L.NIL:
        return eval_uneven_open(s, f, npus)
    x = m[L.C_SCRATCH]
    y = x + n
    size = phase_packet(s, f, 0)
    r = reduction(s, size) if m[f + L.PH_DO] == K.DO_REDUCE_SCATTER else 0
    for i in range(n):
        m[x + i] += e
    for i in range(n):
        latest = m[x + i]
        dst = m[npus + i]
        for j in range(n):
            if j != i:
                src = m[npus + j]
                sent = leaves(s, src, dst, m[x + j], m[x + i])
                latest = max(latest, sent + free_delay(s, src, dst, size))
        m[y + i] = latest + e + r
    for i in range(n):
        m[x + i] = m[y + i]
    return r if r > 0 else e


def eval_uneven_open(s: State, f: int, npus: int) -> int:
    """The same with unequal shares: each pair's message is as long as its block."""
    m = s.m
    n, e, sizes = m[f + L.PH_N], m[f + L.PH_ENDPOINT], m[f + L.PH_SIZES]
    x = m[L.C_SCRATCH]
    y = x + n
    for i in range(n):
        m[x + i] += e
    for i in range(n):
        latest = m[x + i]
        dst = m[npus + i]
        for j in range(n):
            size = m[sizes + j * n + i]
            if size >= 0:
                src = m[npus + j]
                sent = leaves(s, src, dst, m[x + j], m[x + i])
                latest = max(latest, sent + free_delay(s, src, dst, size))
        r = uneven_reduction(s, f, i) if m[f + L.PH_DO] == K.DO_REDUCE_SCATTER else 0
        m[y + i] = latest + e + r
    for i in range(n):
        m[x + i] = m[y + i]
    return e


def receipt(s: State, src: int, dst: int, size: int, sent: int, posted: int) -> int:
    """Instant at which a message that was sent and whose receive was posted is received (section 5.2)."""
    return max(leaves(s, src, dst, sent, posted) + free_delay(s, src, dst, size), posted)


def credit_before(s: State, a: int, b: int) -> bool:
    """Whether the entry at cell a of a heap of credits comes before the one at cell b."""
    m = s.m
    if m[a] != m[b]:
        return m[a] < m[b]
    if m[a + 1] != m[b + 1]:
        return m[a + 1] < m[b + 1]
    return m[a + 2] < m[b + 2]


def credit_swap(s: State, a: int, b: int) -> None:
    """Exchange two entries of a heap of credits."""
    m = s.m
    for k in range(3):
        kept = m[a + k]
        m[a + k] = m[b + k]
        m[b + k] = kept


def credit_push(s: State, n: int, tick: int, reg: int, what: int) -> int:
    """Insert (tick, registration tick, sequence and description) into the heap of n entries; returns their number."""
    m = s.m
    heap = m[L.C_CREDITS]
    m[heap + 3 * n] = tick
    m[heap + 3 * n + 1] = reg
    m[heap + 3 * n + 2] = what
    i = n
    while i > 0 and credit_before(s, heap + 3 * i, heap + 3 * ((i - 1) >> 1)):
        credit_swap(s, heap + 3 * i, heap + 3 * ((i - 1) >> 1))
        i = (i - 1) >> 1
    return n + 1


def credit_pop(s: State, n: int) -> int:
    """Drop the first of n entries, which the caller has read; returns the number left."""
    heap = s.m[L.C_CREDITS]
    n -= 1
    credit_swap(s, heap, heap + 3 * n)
    i = 0
    while 2 * i + 1 < n:
        child = 2 * i + 1
        if child + 1 < n and credit_before(s, heap + 3 * child + 3, heap + 3 * child):
            child += 1
        if credit_before(s, heap + 3 * i, heap + 3 * child):
            break
        credit_swap(s, heap + 3 * i, heap + 3 * child)
        i = child
    return n


def eval_credits(s: State, f: int, npus: int, step: int, span: int) -> int:
    """The credit machine in time order (section 4.1), for any family: members are real (span n) or all alike (span 1).

    It needs 6 * span + span * packets cells, and in the heap three times span * (2 * window + 2 * packets + 2).
    """
    m = s.m
    n, e, packets, window = m[f + L.PH_N], m[f + L.PH_ENDPOINT], m[f + L.PH_PACKETS], m[f + L.PH_WINDOW]
    hold = m[f + L.PH_FAMILY] == K.ALG_DIRECT and m[f + L.PH_DO] == K.DO_ALL_REDUCE
    x, heap = m[L.C_SCRATCH], m[L.C_CREDITS]
    armed, sent, spare, got, total = x + span, x + 2 * span, x + 3 * span, x + 4 * span, x + 5 * span
    instant = x + 6 * span  # when a member sent packet p; it posts the receive of its own packet p then, too
    for at in range(armed, instant):
        m[at] = 0
    for at in range(instant, instant + span * packets):
        m[at] = -1
    n_heap = 0
    seq = 0
    for i in range(span):
        for p in range(window):
            r = member_reduction(s, f, p, i)
            n_heap = credit_push(
                s, n_heap, m[x + i] + e + r, m[x + i] + (e if r > 0 else 0), seq * 2 * span + span + i
            )
            seq += 1
        m[armed + i] = window
        m[x + i] = -1
    while n_heap > 0:
        now = m[heap]
        what = m[heap + 2] % (2 * span)
        n_heap = credit_pop(s, n_heap)
        if what < span:  # a message is received: arm the next packet
            i = what
            m[got + i] += 1
            p = m[armed + i]
            m[armed + i] = p + 1
            r = member_reduction(s, f, p, i)
            n_heap = credit_push(s, n_heap, now + e + r, now + (e if r > 0 else 0), seq * 2 * span + span + i)
            seq += 1
            continue
        i = what - span
        m[spare + i] += 1
        m[total + i] += 1
        burst = 1
        if hold and m[sent + i] >= n - 1:
            burst = window if m[got + i] >= n - 1 else 0
        while burst > 0 and m[spare + i] > 0 and m[sent + i] < min(packets, m[armed + i]):
            burst -= 1
            p = m[sent + i]
            m[sent + i] = p + 1
            m[spare + i] -= 1
            m[instant + i * packets + p] = now
            to = phase_partner(s, f, p, i, step)
            size = member_packet(s, f, p, i, to)
            a = to if span > 1 else 0
            other = m[instant + a * packets + p]
            if other >= 0:  # the receiver has posted: the message i -> to is complete
                got_at = receipt(s, m[npus + i], m[npus + to], size, now, other)
                n_heap = credit_push(s, n_heap, got_at, now, seq * 2 * span + a)
                seq += 1
            source = phase_partner(s, f, p, i, -step)
            if span > 1:
                other = m[instant + source * packets + p]
                if other >= 0:  # the sender has sent: the message source -> i is complete
                    size = member_packet(s, f, p, source, i)
                    got_at = receipt(s, m[npus + source], m[npus + i], size, other, now)
                    # an arrival was registered when it was sent; a message that is here already ends its receive now
                    n_heap = credit_push(
                        s, n_heap, got_at, other if got_at > now else now, seq * 2 * span + i
                    )
                    seq += 1
        if m[total + i] == packets + window:
            m[x + i] = now
    if m[f + L.PH_SIZES] != L.NIL:
        return e
    r = phase_reduction(s, f, packets + window - 1)
    return r if r > 0 else e


def eval_tree(s: State, f: int, npus: int, tree: int) -> int:
    """Double binary tree: an all-reduce of d bytes up and down one tree (section 4.3).

    `m[tree + i]` is the parent of position i, -1 for the root; `m[tree + n + k]` lists positions so that children
    come before parents.
    """
    m = s.m
    n, d, e = m[f + L.PH_N], m[f + L.PH_BYTES], m[f + L.PH_ENDPOINT]
    x = m[L.C_SCRATCH]
    up = x + n
    have = up + n
    r = reduction(s, d)
    for i in range(n):
        m[up + i] = m[x + i]
        m[have + i] = 0
    for k in range(n):
        i = m[tree + n + k]
        parent = m[tree + i]
        if parent < 0:
            continue
        # a leaf sends after the endpoint delay, an inner position after its second child, the delay and a reduction
        ready = m[up + i] + e + (r if m[have + i] > 0 else 0)
        m[up + i] = ready
        src, dst = m[npus + i], m[npus + parent]
        sent = leaves(s, src, dst, ready, m[x + parent])
        m[up + parent] = max(m[up + parent], sent + free_delay(s, src, dst, d))
        m[have + parent] += 1
    for k in range(n - 1, -1, -1):
        i = m[tree + n + k]
        parent = m[tree + i]
        if parent < 0:
            m[x + i] = m[up + i] + e + r
            continue
        src, dst = m[npus + parent], m[npus + i]
        sent = leaves(s, src, dst, m[x + parent], m[up + i])  # the parent sends down when it ends
        came = max(sent + free_delay(s, src, dst, d), m[up + i])
        m[x + i] = came + e + (r if m[have + i] > 0 else 0)
    return r if r > 0 else e


def eval_steps(s: State, f: int, npus: int) -> int:
    """Rounds of messages: each member sends at most one and receives at most one per round.

    A member enters the next round when what it received is there and both its messages have passed its links, after
    the endpoint delay and the reduction of what it received. PH_STEPS has (source, destination, share, flags) per
    message; flags: 1 = the destination reduces, 2 = last of its round.
    """
    m = s.m
    n, d, e = m[f + L.PH_N], m[f + L.PH_BYTES], m[f + L.PH_ENDPOINT]
    x = m[L.C_SCRATCH]
    here = x + n
    reduces = here + n
    for i in range(n):
        m[x + i] += e
        m[here + i] = -1
        m[reduces + i] = 0
    first = m[f + L.PH_STEPS]
    for row in range(first, first + 4 * m[f + L.PH_STEPS_N], 4):
        i, j = m[row], m[row + 1]
        size = step_bytes(d, m[row + 2], m[f + L.PH_WHOLE])
        a, b = m[npus + i], m[npus + j]
        sent = leaves(s, a, b, m[x + i], m[x + j])
        busy = free_occupancy(s, a, b, size)
        m[here + i] = max(m[here + i], m[x + i] + busy)
        m[here + j] = max(m[here + j], sent + free_delay(s, a, b, size), m[x + j] + busy)
        if m[row + 3] & 1:
            m[reduces + j] += reduction(s, size)
        if m[row + 3] & 2:
            for done in range(first, row + 4, 4):
                for side in range(2):
                    k = m[done + side]
                    if m[here + k] >= 0:
                        m[x + k] = m[here + k] + e + m[reduces + k]
                        m[here + k] = -1
                        m[reduces + k] = 0
            first = row + 4
    return e


def set_duration(s: State, f: int, npus: int, plain: bool) -> None:
    """Duration and final timer of a phase whose members start together on a ring that looks alike from each member.

    Ring and open direct have closed forms, the others follow one member (sections 4.7 and 9). `plain` says that the
    ring lies in one dimension, so the longest way is the one to the opposite member.
    """
    m = s.m
    n, e, do = m[f + L.PH_N], m[f + L.PH_ENDPOINT], m[f + L.PH_DO]
    family = m[f + L.PH_FAMILY]
    if family == K.ALG_NONE:
        m[f + L.PH_TAU] = 0
        m[f + L.PH_LAST] = 0
    elif family == K.ALG_RING and m[L.C_RENDEZVOUS] == 0:
        size = phase_packet(s, f, 0)
        step = free_delay(s, m[npus], m[npus + 1], size) + e
        r = reduction(s, size)
        reductions = n - 1 if do == K.DO_ALL_REDUCE or do == K.DO_REDUCE_SCATTER else 0
        m[f + L.PH_LAST] = r if do == K.DO_REDUCE_SCATTER and r > 0 else e
        m[f + L.PH_TAU] = e + m[f + L.PH_PACKETS] * step + reductions * r
    elif family == K.ALG_DIRECT and do != K.DO_ALL_REDUCE and m[f + L.PH_WINDOW] == n - 1:
        size = phase_packet(s, f, 0)
        r = reduction(s, size) if do == K.DO_REDUCE_SCATTER else 0
        longest = 0
        for k in range(n // 2 if plain else 1, n // 2 + 1 if plain else n):
            there = leaves(s, m[npus], m[npus + k], 0, 0) + free_delay(s, m[npus], m[npus + k], size)
            longest = max(longest, there)
        m[f + L.PH_LAST] = r if r > 0 else e
        m[f + L.PH_TAU] = e + longest + e + r
    else:
        m[m[L.C_SCRATCH]] = 0
        m[f + L.PH_LAST] = eval_credits(s, f, npus, 1, 1)
        m[f + L.PH_TAU] = m[m[L.C_SCRATCH]]
