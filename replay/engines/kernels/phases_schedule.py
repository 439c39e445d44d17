"""Chunks that choose their dimensions during a run: round robin and greedy (replay semantics, section 7.2)."""

from chakra.arrays import I64
from chakra.replay.engines.kernels import phases_layout as L
from chakra.replay.engines.kernels.phases_layout import Net

ENTRY_POINTS = ()
ALLOCATES = False


def take_turns(m: I64, t: I64, plan: int, out: int) -> None:
    """Round robin over the dimensions: the order of the dimensions rotates by one with every chunk.

    `m[out:]` gets the number of chunks and the first phase of each.
    """
    dims = t[L.RU_DIMS]
    turn = m[t[L.ST_ORDERED] + dims + 1]
    chunks = m[t[L.PL_CHUNKS] + plan]
    m[out] = chunks
    for chunk in range(chunks):
        variant = m[t[L.PL_VARIANT] + m[t[L.PL_CHUNK_START] + plan] + chunk] + (turn + chunk) % dims
        m[out + 1 + chunk] = m[t[L.PL_VARIANT_PHASE] + variant]
    m[t[L.ST_ORDERED] + dims + 1] = turn + chunks


def balance(m: I64, t: I64, net: Net, plan: int, out: int) -> None:
    """Greedy schedule (Themis): each chunk starts with the least loaded dimension (section 7.2).

    `m[out:]` gets the number of chunks, the first phase of each, and the phases.
    """
    dims = t[L.RU_DIMS]
    order = t[L.ST_ORDERED]
    if m[order + dims] != m[t[L.ST_SCALARS] + L.SC_NOW]:
        m[order + dims] = m[t[L.ST_SCALARS] + L.SC_NOW]
        for k in range(dims):
            net.load[k] = 0.0
    template = m[t[L.PL_TEMPLATE] + plan]
    gather = m[t[L.PL_KIND] + plan] == L.DO_ALL_GATHER
    flex = m[t[L.PL_SCHEDULE] + plan] == L.SCHEDULE_FLEX
    variant0 = t[L.PL_VARIANT] + m[t[L.PL_CHUNK_START] + plan]
    left = m[t[L.PL_BYTES] + plan]
    row = out + 1 + m[t[L.PL_CHUNKS] + plan]
    chunk = 0
    while left > 0:
        wanted = m[m[t[L.PL_VARIANT_PHASE] + m[variant0 + chunk]] + L.PH_SIZE]
        for i in range(1, dims):
            dim = m[order + i]
            j = i
            while j > 0 and net.load[m[order + j - 1]] > net.load[dim]:
                m[order + j] = m[order + j - 1]
                j -= 1
            m[order + j] = dim
        if gather:
            reverse(m, order, dims)
        gap = load_gap(m, net, order, dims, template, gather)
        size = wanted
        natural = gap < wanted // 16
        if flex:
            natural = gap < wanted
            size = wanted if natural else gap
        size = min(size, left)
        left -= size
        if natural:
            for i in range(dims):
                m[order + i] = i
            if gather:
                reverse(m, order, dims)
        m[out + 1 + chunk] = row
        chunk += 1
        row = lay_phases(m, net, order, dims, template, m[t[L.PL_KIND] + plan], size, row)
    m[out] = chunk


def reverse(m: I64, first: int, n: int) -> None:
    """Turn n cells round."""
    for i in range(n // 2):
        m[first + i], m[first + n - 1 - i] = m[first + n - 1 - i], m[first + i]


def load_gap(m: I64, net: Net, order: int, dims: int, template: int, gather: bool) -> int:
    """Bytes of a chunk that would bring the least loaded dimension level with the most loaded one."""
    i = 0
    while m[template + 3 * m[order + i]] == 0:
        i += 1
    first = m[order + i]
    last = m[order + dims - 1]
    if not gather:
        n = m[template + 3 * first]
        return int(abs(net.load[last] - net.load[first]) * net.share[first] / ((n - 1) / n) * 1048576.0)
    z = dims - 1
    while m[template + 3 * m[order + z]] == 0:
        z -= 1
    last = m[order + z]
    n = m[template + 3 * last]
    gap = int(abs(net.load[last] - net.load[first]) * net.share[last] / (n - 1) * 1048576.0)
    for k in range(i, z):
        gap //= max(m[template + 3 * m[order + k]], 1)
    return gap


def lay_phases(m: I64, net: Net, order: int, dims: int, template: int, do: int, size: int, row: int) -> int:
    """Write the phases of a chunk in the order of the dimensions and add to their loads; returns the next free cell."""
    involved = 0
    for i in range(dims):
        if m[template + 3 * m[order + i]] > 0:
            involved += 1
    left = 2 * involved if do == L.DO_ALL_REDUCE else involved
    moved = size
    for i in range(dims):
        dim = m[order + i]
        n = m[template + 3 * dim]
        if n == 0:
            continue
        if do == L.DO_ALL_GATHER:
            net.load[dim] += moved / 1048576.0 * (n - 1) / net.share[dim]
            row = lay_phase(m, m[template + 3 * dim + 2], size, left, row)
            size *= n
            moved *= n
        else:
            net.load[dim] += moved / 1048576.0 * ((n - 1) / n) / net.share[dim]
            row = lay_phase(m, m[template + 3 * dim + 1], size, left, row)
            size = max(size // n, net.min_bytes)
            moved //= n
        left -= 1
    if do == L.DO_ALL_REDUCE:
        for i in range(dims - 1, -1, -1):
            dim = m[order + i]
            n = m[template + 3 * dim]
            if n > 0:
                row = lay_phase(m, m[template + 3 * dim + 2], size, left, row)
                size *= n
                left -= 1
    return row


def lay_phase(m: I64, template: int, size: int, left: int, row: int) -> int:
    """Write a phase of `size` bytes; returns the next free cell."""
    for k in range(L.PH_CELLS):
        m[row + k] = m[template + k]
    m[row + L.PH_SIZE] = size
    m[row + L.PH_LEFT] = left
    n = m[template + L.PH_SENT]  # a template's members
    if m[row + L.PH_DO] == L.DO_ALL_GATHER:
        m[row + L.PH_SENT] = size * (n - 1)
    else:
        m[row + L.PH_SENT] = size // n * (n - 1)
    return row + L.PH_CELLS
