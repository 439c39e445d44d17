"""Rabenseifner's all-reduce for any number of members: recursive halving, then recursive doubling.

With p the greatest power of two and r = n - p: the first r pairs exchange halves and reduce them, and the odd one
hands its half to the even one; p members scatter-reduce by halving (distances p/2, ..., 1; sizes d/2, d/4, ...) and
gather back; the even ones send the result to the odd ones. Step count 2 log2 p, plus 3 off powers of two.
Reduce-scatter and all-gather phases are recursive halving and doubling.

Source: Rabenseifner, "Optimization of Collective Reduction Operations", ICCS 2004, doi:10.1007/978-3-540-24685-5_1;
Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005, doi:10.1177/1094342005051521.
"""

import numpy as np

from chakra.replay.collectives.recursive_doubling import rows
from chakra.replay.collectives.recursive_doubling import schedule as doubling
from chakra.replay.collectives.steps import Do, Link, StepAlgorithm, Steps, Symmetry, from_arrays


def schedule(do: Do, n: int, size_bytes: int, link: Link) -> Steps:
    """Rounds of one phase."""
    if do is not Do.ALL_REDUCE:
        return doubling(do, n, size_bytes, link)
    p = 1 << (n.bit_length() - 1)
    pairs = n - p
    even, odd = np.arange(0, 2 * pairs, 2), np.arange(1, 2 * pairs, 2)
    core = np.concatenate([even, np.arange(2 * pairs, n)]).astype(np.int64)
    rounds = []
    if pairs:
        both = np.concatenate([even, odd])
        rounds.append(rows(both, np.concatenate([odd, even]), p // 2, True))
        rounds.append(rows(odd, even, p // 2, False))
    index = np.arange(p)
    share = p // 2
    while share:
        rounds.append(rows(core, core[index ^ share], share, True))
        share //= 2
    share = 1
    while share < p:
        rounds.append(rows(core, core[index ^ share], share, False))
        share *= 2
    if pairs:
        rounds.append(rows(even, odd, p, False))
    return from_arrays(n, rounds, p, Symmetry.NONE if pairs else Symmetry.XOR)


ALGORITHM = StepAlgorithm(
    name="rabenseifner",
    kinds=frozenset({Do.ALL_REDUCE, Do.REDUCE_SCATTER, Do.ALL_GATHER}),
    schedule=schedule,
    summary="recursive halving, then recursive doubling; least bytes in few steps",
    formula="all-reduce, n = 2^L: e + sum_{k=1..L} (l(d/2^k) + e + r(d/2^k)) + sum_{k=1..L} (l(d/2^k) + e)",
    source="Rabenseifner 2004, doi:10.1007/978-3-540-24685-5_1; Thakur et al. 2005",
)
