"""Bruck's algorithms: ceil(log2 n) steps for any number of members, all of which do the same.

All-to-all: in step k every member sends the blocks whose distance to their target has bit k set to the member 2^k
further on. All-gather: it sends all it has, at most what is missing, to the member 2^k before it. Reduce-scatter is the
all-gather backwards; all-reduce is both, with the fewest bytes and 2 ceil(log2 n) steps.

Source: Bruck, Ho, Kipnis, Upfal, Weathersby, "Efficient Algorithms for All-to-All Communications in Multiport
Message-Passing Systems", IEEE TPDS 8(11), 1997, doi:10.1109/71.642949; the mirrored reduce-scatter: Traeff, "Optimal,
Non-pipelined Reduce-scatter and Allreduce Algorithms", arXiv:2410.14234.
"""

import numpy as np

from chakra.arrays import I64
from chakra.replay.collectives.recursive_doubling import rows
from chakra.replay.collectives.steps import Do, Link, StepAlgorithm, Steps, Symmetry, from_arrays


def gather_rounds(n: int, *, backwards: bool) -> list[I64]:
    """Rounds of the all-gather in shares of one shard; `backwards`: of the mirrored reduce-scatter."""
    index = np.arange(n)
    rounds = []
    step = 1
    while step < n:
        share = min(step, n - step)
        to = (index - step) % n if not backwards else (index + step) % n
        rounds.append(rows(index, to, share, backwards))
        step *= 2
    return rounds[::-1] if backwards else rounds


def schedule(do: Do, n: int, size_bytes: int, link: Link) -> Steps:
    """Rounds of one phase."""
    del size_bytes, link
    if do is Do.ALL_GATHER:
        return from_arrays(n, gather_rounds(n, backwards=False), 1, Symmetry.CYCLIC)
    if do is Do.REDUCE_SCATTER:
        return from_arrays(n, gather_rounds(n, backwards=True), n, Symmetry.CYCLIC)
    if do is Do.ALL_REDUCE:
        both = gather_rounds(n, backwards=True) + gather_rounds(n, backwards=False)
        return from_arrays(n, both, n, Symmetry.CYCLIC)
    index = np.arange(n)
    rounds = []
    step = 1
    while step < n:
        rounds.append(rows(index, (index + step) % n, int((index & step > 0).sum()), False))
        step *= 2
    return from_arrays(n, rounds, n, Symmetry.CYCLIC)


ALGORITHM = StepAlgorithm(
    name="bruck",
    kinds=frozenset({Do.ALL_REDUCE, Do.REDUCE_SCATTER, Do.ALL_GATHER, Do.ALL_TO_ALL}),
    schedule=schedule,
    summary="ceil(log2 n) steps for any n, all members alike",
    formula="all-to-all, b_k = blocks with bit k set: e + sum_{k=0..ceil(log2 n)-1} (l_{2^k}(b_k d/n) + e)",
    source="Bruck et al. 1997, doi:10.1109/71.642949; Traeff 2024, arXiv:2410.14234",
)
