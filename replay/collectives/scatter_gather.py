"""Broadcast as scatter and all-gather, reduce as reduce-scatter and gather: for large data on many members.

Broadcast: a binomial tree scatters blocks of d/n (in each step the upper half of what a member holds goes to the middle
of its range), then Bruck's all-gather. 2 ceil(log2 n) steps and 2 (n - 1)/n of the data for any n. Reduce is the same
backwards. Member 0 is the root.

Source: Barnett et al., "Interprocessor Collective Communication Library (InterCom)", SHPCC 1994,
doi:10.1109/SHPCC.1994.296665; Thakur, Rabenseifner, Gropp 2005, doi:10.1177/1094342005051521.
"""

import numpy as np

from chakra.arrays import I64
from chakra.replay.collectives import bruck
from chakra.replay.collectives.recursive_doubling import rows
from chakra.replay.collectives.steps import Do, Link, StepAlgorithm, Steps, from_arrays


def scatter_rounds(n: int) -> list[I64]:
    """Rounds of the binomial scatter in blocks of d/n."""
    rounds = []
    half = 1 << max((n - 1).bit_length() - 1, 0)
    while half:
        source = np.arange(0, n - half, 2 * half)
        rounds.append(rows(source, source + half, np.minimum(2 * half, n - source) - half, False))
        half //= 2
    return rounds


def schedule(do: Do, n: int, size_bytes: int, link: Link) -> Steps:
    """Rounds of one phase."""
    del size_bytes, link
    if do is Do.BROADCAST:
        return from_arrays(n, scatter_rounds(n) + bruck.gather_rounds(n, backwards=False), n)
    gather = [rows(r[:, 1], r[:, 0], r[:, 2], False) for r in reversed(scatter_rounds(n))]
    return from_arrays(n, bruck.gather_rounds(n, backwards=True) + gather, n)


ALGORITHM = StepAlgorithm(
    name="scatterAllGather",
    kinds=frozenset({Do.BROADCAST, Do.REDUCE}),
    schedule=schedule,
    summary="scatter down a binomial tree, then all-gather; for large data on many members",
    formula="broadcast, n = 2^L: e + 2 sum_{k=1..L} (l(d/2^k) + e)",
    source="Barnett et al. 1994, doi:10.1109/SHPCC.1994.296665; Thakur et al. 2005",
)
