"""Recursive doubling for any number of members.

All-reduce: with p the greatest power of two and r = n - p, the first r pairs fold (the even one sends all to the odd
one), p members exchange all d bytes over distances 1, 2, ..., p/2, and the pairs unfold. Step count log2 p, plus 2 off
powers of two. All-gather: members exchange what they have, distances 1, 2, ...; off powers of two the first pairs merge
their shards first and the rest arrives at the end. Reduce-scatter is the all-gather backwards.

Source: Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in MPICH", IJHPCA 19(1), 2005,
doi:10.1177/1094342005051521.
"""

import numpy as np

from chakra.arrays import I64
from chakra.replay.collectives.steps import Do, Link, StepAlgorithm, Steps, Symmetry, from_arrays


def core_members(n: int) -> tuple[I64, int]:
    """Positions that stay after the first n - p pairs have folded into their odd ones, and the number of pairs."""
    p = 1 << (n.bit_length() - 1)
    pairs = n - p
    return np.concatenate([np.arange(1, 2 * pairs, 2), np.arange(2 * pairs, n)]).astype(np.int64), pairs


def rows(source: I64, target: I64, share: I64 | int, reduces: bool) -> I64:
    """One round as an array."""
    width = np.broadcast_to(np.asarray(share, np.int64), source.shape)
    return np.stack([source, target, width, np.full(len(source), int(reduces))], axis=1).astype(np.int64)


def gather_rounds(n: int, *, backwards: bool) -> list[I64]:
    """Rounds of an all-gather in shares of one shard; `backwards`: of the reduce-scatter that mirrors it."""
    core, pairs = core_members(n)
    even, odd = np.arange(0, 2 * pairs, 2), np.arange(1, 2 * pairs, 2)
    have = np.ones(len(core), np.int64)
    have[:pairs] = 2
    rounds = [rows(even, odd, 1, False)] if pairs else []
    index = np.arange(len(core))
    distance = 1
    while distance < len(core):
        partner = index ^ distance
        rounds.append(rows(core, core[partner], have, False))
        have = have + have[partner]
        distance *= 2
    if pairs:
        rounds.append(rows(odd, even, n - 1, False))
    if not backwards:
        return rounds
    return [rows(r[:, 1], r[:, 0], r[:, 2], True) for r in reversed(rounds)]


def schedule(do: Do, n: int, size_bytes: int, link: Link) -> Steps:
    """Rounds of one phase."""
    del size_bytes, link
    symmetry = Symmetry.XOR if n & (n - 1) == 0 else Symmetry.NONE
    if do is Do.ALL_GATHER:
        return from_arrays(n, gather_rounds(n, backwards=False), 1, symmetry)
    if do is Do.REDUCE_SCATTER:
        return from_arrays(n, gather_rounds(n, backwards=True), n, symmetry)
    core, pairs = core_members(n)
    even, odd = np.arange(0, 2 * pairs, 2), np.arange(1, 2 * pairs, 2)
    rounds = [rows(even, odd, 1, True)] if pairs else []
    index = np.arange(len(core))
    distance = 1
    while distance < len(core):
        rounds.append(rows(core, core[index ^ distance], 1, True))
        distance *= 2
    if pairs:
        rounds.append(rows(odd, even, 1, False))
    return from_arrays(n, rounds, 1, symmetry)


ALGORITHM = StepAlgorithm(
    name="recursiveDoubling",
    kinds=frozenset({Do.ALL_REDUCE, Do.REDUCE_SCATTER, Do.ALL_GATHER}),
    schedule=schedule,
    summary="exchange everything with partners at doubling distances; least latency, most bytes",
    formula="all-reduce, n = 2^L: e + L (l(d) + e + r(d))",
    source="Thakur, Rabenseifner, Gropp 2005, doi:10.1177/1094342005051521",
)
