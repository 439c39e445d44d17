"""Ends of one phase in the phase-level kernel: which algorithm computes them, and durations kept for equal phases."""

from chakra.arrays import I64
from chakra.replay.engines.kernels import phases_layout as L
from chakra.replay.engines.kernels.phases_algorithms import (
    equal_start_time,
    eval_chain,
    eval_credits,
    eval_direct_open,
    eval_steps,
    eval_tree,
)
from chakra.replay.engines.kernels.phases_layout import Net

ENTRY_POINTS = ()
ALLOCATES = False


def find_duration(m: I64, t: I64, net: Net, f: int, ring: int) -> None:
    """Fill in the duration of a phase that was made during the run."""
    same, size = m[f + L.PH_SAME], m[f + L.PH_SIZE]
    cell = t[L.ST_MEMO] + 4 * ((size * 7919 + same * 104729) % L.MEMO)
    if m[cell] != same or m[cell + 1] != size:
        scratch = m[t[L.ST_SCRATCH] : t[L.ST_SCRATCH] + t[L.RU_SCRATCH]]
        m[cell + 2] = equal_start_time(
            net,
            m[f + L.PH_ALG],
            m[f + L.PH_DO],
            m[t[L.CO_RING_SIZE] + ring],
            size,
            m[f + L.PH_ENDPOINT],
            m[f + L.PH_WINDOW],
            m[f + L.PH_CYCLE],
            m,
            t[L.CO_RING_NPU] + m[t[L.CO_RING_START] + ring],
            True,
            scratch,
            scratch[2:],
            m[t[L.ST_SCRATCH_HEAP] : t[L.ST_SCRATCH_HEAP] + t[L.RU_SCRATCH_HEAP]],
        )
        m[cell] = same
        m[cell + 1] = size
        m[cell + 3] = scratch[0]
    m[f + L.PH_TAU] = m[cell + 2]
    m[f + L.PH_LAST] = m[cell + 3]


def eval_phase(
    m: I64,
    t: I64,
    net: Net,
    f: int,
    n: int,
    pos0: int,
    step: int,
    second_tree: int,
) -> int:
    """Ends of a phase whose members did not start together, from and to the first n cells of the scratch table."""
    x = m[t[L.ST_SCRATCH] : t[L.ST_SCRATCH] + t[L.RU_SCRATCH]]
    work = x[n:]
    alg = m[f + L.PH_ALG]
    if alg == L.ALG_TREE:
        tree = m[f + L.PH_TABLE] + second_tree * 2 * n
        return eval_tree(
            net,
            n,
            m[f + L.PH_SIZE],
            m[f + L.PH_ENDPOINT],
            m,
            t[L.RU_TREES] + tree,
            m,
            t[L.CO_RING_NPU] + pos0,
            x,
            work,
        )
    if alg == L.ALG_STEPS:
        return eval_steps(
            net,
            n,
            m[f + L.PH_SIZE],
            m[f + L.PH_ENDPOINT],
            m,
            t[L.RU_TREES] + m[f + L.PH_TABLE],
            m[f + L.PH_CYCLE],
            m[f + L.PH_WINDOW],
            t[L.CO_RING_NPU] + pos0,
            x,
            work,
        )
    if alg == L.ALG_DIRECT and (m[f + L.PH_DO] == L.DO_ALL_REDUCE or m[f + L.PH_WINDOW] < n - 1):
        heap = m[t[L.ST_SCRATCH_HEAP] : t[L.ST_SCRATCH_HEAP] + t[L.RU_SCRATCH_HEAP]]
        return eval_credits(
            net,
            alg,
            m[f + L.PH_DO],
            n,
            m[f + L.PH_SIZE],
            m[f + L.PH_ENDPOINT],
            m[f + L.PH_WINDOW],
            m[f + L.PH_CYCLE],
            step,
            m,
            t[L.CO_RING_NPU] + pos0,
            n,
            x,
            work,
            heap,
        )
    if alg == L.ALG_DIRECT:
        return eval_direct_open(
            net,
            m[f + L.PH_DO],
            n,
            m[f + L.PH_SIZE],
            m[f + L.PH_ENDPOINT],
            m,
            t[L.CO_RING_NPU] + pos0,
            x,
            work,
        )
    return eval_chain(
        net,
        alg,
        m[f + L.PH_DO],
        n,
        m[f + L.PH_SIZE],
        m[f + L.PH_ENDPOINT],
        m[f + L.PH_CYCLE],
        step,
        m,
        t[L.CO_RING_NPU] + pos0,
        x,
        work,
    )
