"""Ends of one phase in the phase-level kernel: which algorithm computes them, and durations kept for equal phases."""

from chakra.arrays import I64
from chakra.replay.kernels.phases_algorithms import (
    equal_start_time,
    eval_chain,
    eval_credits,
    eval_direct_open,
    eval_steps,
    eval_tree,
)
from chakra.replay.kernels.phases_layout import (
    ALG_DIRECT,
    ALG_STEPS,
    ALG_TREE,
    CO_RING_NPU,
    CO_RING_SIZE,
    CO_RING_START,
    DO_ALL_REDUCE,
    MEMO,
    PH_ALG,
    PH_CYCLE,
    PH_DO,
    PH_ENDPOINT,
    PH_LAST,
    PH_SAME,
    PH_SIZE,
    PH_TABLE,
    PH_TAU,
    PH_WINDOW,
    RU_SCRATCH,
    RU_SCRATCH_HEAP,
    RU_TREES,
    ST_MEMO,
    ST_SCRATCH,
    ST_SCRATCH_HEAP,
    Net,
)

ENTRY_POINTS = ()
ALLOCATES = False


def find_duration(m: I64, t: I64, net: Net, f: int, ring: int) -> None:
    """Fill in the duration of a phase that was made during the run."""
    same, size = m[f + PH_SAME], m[f + PH_SIZE]
    cell = t[ST_MEMO] + 4 * ((size * 7919 + same * 104729) % MEMO)
    if m[cell] != same or m[cell + 1] != size:
        scratch = m[t[ST_SCRATCH] : t[ST_SCRATCH] + t[RU_SCRATCH]]
        m[cell + 2] = equal_start_time(
            net,
            m[f + PH_ALG],
            m[f + PH_DO],
            m[t[CO_RING_SIZE] + ring],
            size,
            m[f + PH_ENDPOINT],
            m[f + PH_WINDOW],
            m[f + PH_CYCLE],
            m,
            t[CO_RING_NPU] + m[t[CO_RING_START] + ring],
            True,
            scratch,
            scratch[2:],
            m[t[ST_SCRATCH_HEAP] : t[ST_SCRATCH_HEAP] + t[RU_SCRATCH_HEAP]],
        )
        m[cell] = same
        m[cell + 1] = size
        m[cell + 3] = scratch[0]
    m[f + PH_TAU] = m[cell + 2]
    m[f + PH_LAST] = m[cell + 3]


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
    x = m[t[ST_SCRATCH] : t[ST_SCRATCH] + t[RU_SCRATCH]]
    work = x[n:]
    alg = m[f + PH_ALG]
    if alg == ALG_TREE:
        tree = m[f + PH_TABLE] + second_tree * 2 * n
        return eval_tree(
            net,
            n,
            m[f + PH_SIZE],
            m[f + PH_ENDPOINT],
            m,
            t[RU_TREES] + tree,
            m,
            t[CO_RING_NPU] + pos0,
            x,
            work,
        )
    if alg == ALG_STEPS:
        return eval_steps(
            net,
            n,
            m[f + PH_SIZE],
            m[f + PH_ENDPOINT],
            m,
            t[RU_TREES] + m[f + PH_TABLE],
            m[f + PH_CYCLE],
            m[f + PH_WINDOW],
            t[CO_RING_NPU] + pos0,
            x,
            work,
        )
    if alg == ALG_DIRECT and (m[f + PH_DO] == DO_ALL_REDUCE or m[f + PH_WINDOW] < n - 1):
        heap = m[t[ST_SCRATCH_HEAP] : t[ST_SCRATCH_HEAP] + t[RU_SCRATCH_HEAP]]
        return eval_credits(
            net,
            alg,
            m[f + PH_DO],
            n,
            m[f + PH_SIZE],
            m[f + PH_ENDPOINT],
            m[f + PH_WINDOW],
            m[f + PH_CYCLE],
            step,
            m,
            t[CO_RING_NPU] + pos0,
            n,
            x,
            work,
            heap,
        )
    if alg == ALG_DIRECT:
        return eval_direct_open(
            net,
            m[f + PH_DO],
            n,
            m[f + PH_SIZE],
            m[f + PH_ENDPOINT],
            m,
            t[CO_RING_NPU] + pos0,
            x,
            work,
        )
    return eval_chain(
        net,
        alg,
        m[f + PH_DO],
        n,
        m[f + PH_SIZE],
        m[f + PH_ENDPOINT],
        m[f + PH_CYCLE],
        step,
        m,
        t[CO_RING_NPU] + pos0,
        x,
        work,
    )
