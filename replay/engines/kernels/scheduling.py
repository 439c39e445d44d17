"""Chunks that choose their dimensions during a run: round robin and greedy (replay semantics, section 7.2)."""

from chakra.replay.engines.kernels import codes as K
from chakra.replay.engines.kernels import layout as L
from chakra.replay.engines.kernels.layout import State

ENTRY_POINTS = ()
ALLOCATES = False


def take_turns(s: State, plan: int, out: int) -> None:
    """Round robin over the dimensions: the order of the dimensions rotates by one with every chunk.

    `m[out:]` gets the first phase of each chunk.
    """
    m = s.m
    turn = m[L.C_TURN]
    chunks = m[plan + L.P_CHUNKS]
    for chunk in range(chunks):
        variant = m[m[plan + L.P_CHUNK_VARIANTS] + chunk] + (turn + chunk) % m[L.C_DIMS]
        m[out + chunk] = m[m[plan + L.P_VARIANTS] + variant]
    m[L.C_TURN] = turn + chunks


def balance(s: State, plan: int, out: int) -> int:
    """Greedy schedule (Themis): each chunk starts with the least loaded dimension.

    `m[out:]` gets the first phase of each chunk, then the phases. Returns the number of chunks.
    """
    m = s.m
    dims = m[L.C_DIMS]
    order = m[L.C_LISTED]
    loads = m[L.C_LOADS]
    if m[L.C_DECIDED] != m[L.C_NOW]:
        m[L.C_DECIDED] = m[L.C_NOW]
        for k in range(dims):
            s.f[loads + k] = 0.0
    gather = m[plan + L.P_DO] == K.DO_ALL_GATHER
    left = m[plan + L.P_BYTES]
    row = out + m[plan + L.P_CHUNKS]
    chunk = 0
    while left > 0:
        wanted = m[m[m[plan + L.P_VARIANTS] + m[m[plan + L.P_CHUNK_VARIANTS] + chunk]] + L.PH_BYTES]
        for i in range(1, dims):
            dim = m[order + i]
            j = i
            while j > 0 and s.f[loads + m[order + j - 1]] > s.f[loads + dim]:
                m[order + j] = m[order + j - 1]
                j -= 1
            m[order + j] = dim
        if gather:
            reverse(s, order, dims)
        gap = load_gap(s, plan, gather)
        natural = gap < wanted // 16
        size = wanted
        if m[plan + L.P_SCHEDULE] == K.SCHEDULE_FLEX:
            natural = gap < wanted
            size = wanted if natural else gap
        size = min(size, left)
        left -= size
        if natural:
            for i in range(dims):
                m[order + i] = i
            if gather:
                reverse(s, order, dims)
        m[out + chunk] = row
        chunk += 1
        row = lay_phases(s, plan, size, row)
    return chunk


def reverse(s: State, first: int, n: int) -> None:
    """Turn n cells round."""
    m = s.m
    for i in range(n // 2):
        kept = m[first + i]
        m[first + i] = m[first + n - 1 - i]
        m[first + n - 1 - i] = kept


def members_in(s: State, plan: int, place: int) -> int:
    """Members of the ring of the dimension at a place of the list; 0 if it takes no part."""
    m = s.m
    return m[m[plan + L.P_TEMPLATES] + L.TEMPLATE_ROW * m[m[L.C_LISTED] + place] + L.TE_N]


def load_gap(s: State, plan: int, gather: bool) -> int:
    """Bytes of a chunk that would bring the least loaded dimension level with the most loaded one."""
    m = s.m
    dims, order, loads = m[L.C_DIMS], m[L.C_LISTED], m[L.C_LOADS]
    i = 0
    while members_in(s, plan, i) == 0:
        i += 1
    first = m[order + i]
    z = dims - 1
    if gather:
        while members_in(s, plan, z) == 0:
            z -= 1
    last = m[order + z]
    apart = abs(s.f[loads + last] - s.f[loads + first])
    if not gather:
        n = members_in(s, plan, i)
        return int(apart * s.f[loads + dims + first] / ((n - 1) / n) * 1048576.0)
    gap = int(apart * s.f[loads + dims + last] / (members_in(s, plan, z) - 1) * 1048576.0)
    for k in range(i, z):
        gap //= max(members_in(s, plan, k), 1)
    return gap


def lay_phases(s: State, plan: int, size: int, row: int) -> int:
    """Write the phases of a chunk in the order of the dimensions and add to their loads; returns the next free cell."""
    m = s.m
    dims, order, loads = m[L.C_DIMS], m[L.C_LISTED], m[L.C_LOADS]
    do = m[plan + L.P_DO]
    left = 0
    for i in range(dims):
        if members_in(s, plan, i) > 0:
            left += 2 if do == K.DO_ALL_REDUCE else 1
    moved = size
    for i in range(dims):
        n = members_in(s, plan, i)
        if n == 0:
            continue
        dim = m[order + i]
        template = m[plan + L.P_TEMPLATES] + L.TEMPLATE_ROW * dim
        if do == K.DO_ALL_GATHER:
            s.f[loads + dim] += moved / 1048576.0 * (n - 1) / s.f[loads + dims + dim]
            row = lay_phase(s, m[template + L.TE_GATHER], size, left, row)
            size *= n
            moved *= n
        else:
            s.f[loads + dim] += moved / 1048576.0 * ((n - 1) / n) / s.f[loads + dims + dim]
            row = lay_phase(s, m[template + L.TE_SCATTER], size, left, row)
            size = max(size // n, 1)
            moved //= n
        left -= 1
    if do == K.DO_ALL_REDUCE:
        for i in range(dims - 1, -1, -1):
            n = members_in(s, plan, i)
            if n > 0:
                template = m[plan + L.P_TEMPLATES] + L.TEMPLATE_ROW * m[order + i]
                row = lay_phase(s, m[template + L.TE_GATHER], size, left, row)
                size *= n
                left -= 1
    return row


def lay_phase(s: State, template: int, size: int, left: int, row: int) -> int:
    """Write a phase of `size` bytes; returns the next free cell."""
    m = s.m
    for k in range(L.PHASE_ROW):
        m[row + k] = m[template + k]
    m[row + L.PH_BYTES] = size
    m[row + L.PH_LEFT] = left
    n = m[row + L.PH_N]
    m[row + L.PH_SENT] = (size if m[row + L.PH_DO] == K.DO_ALL_GATHER else size // n) * (n - 1)
    return row + L.PHASE_ROW
