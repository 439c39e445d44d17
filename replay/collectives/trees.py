"""Binomial tree and pipelined chain: broadcast, reduce, and all-reduce as reduce then broadcast. Member 0 is the root.

Binomial tree: in step k of a broadcast every member i < 2^k that has the data sends all of it to i + 2^k; ceil(log2 n)
steps, for any n. Reduce is the same backwards.

Chain: the data travel from member to member in s segments, so that all links work at once; n - 2 + s steps. The number of
segments is the one that makes the sum least (`best_segments`).

Sources: Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005, doi:10.1177/1094342005051521 (binomial); Pjesivac-Grbovic
et al., "Performance Analysis of MPI Collective Operations", Cluster Computing 10, 2007,
doi:10.1007/s10586-007-0012-0 (pipeline).
"""

from functools import lru_cache

from chakra.replay.collectives.steps import (
    Do,
    Link,
    Message,
    StepAlgorithm,
    Steps,
    best_segments,
    from_rounds,
)

KINDS = frozenset({Do.ALL_REDUCE, Do.BROADCAST, Do.REDUCE})


def mirrored(rounds: list[list[Message]]) -> list[list[Message]]:
    """The reduce that runs a broadcast backwards."""
    return [[(dst, src, share, True) for src, dst, share, _ in r] for r in reversed(rounds)]


def as_asked(do: Do, n: int, down: list[list[Message]], whole: int) -> Steps:
    """Broadcast, reduce or both, from the rounds of a broadcast."""
    rounds = [] if do is Do.BROADCAST else mirrored(down)
    if do is not Do.REDUCE:
        rounds = rounds + down
    return from_rounds(n, rounds, whole)


def binomial(do: Do, n: int, size_bytes: int, link: Link) -> Steps:
    """Rounds of one phase over a binomial tree."""
    del size_bytes, link
    down: list[list[Message]] = []
    have = 1
    while have < n:
        down.append([(i, i + have, 1, False) for i in range(min(have, n - have))])
        have *= 2
    return as_asked(do, n, down, 1)


def chain(do: Do, n: int, size_bytes: int, link: Link) -> Steps:
    """Rounds of one phase along a chain."""
    return _chain(do, n, chain_segments(n, size_bytes, link))


def chain_segments(n: int, size_bytes: int, link: Link) -> int:
    """Segments into which a chain of n members cuts its data."""
    return best_segments(n - 2, 1, 1, n, size_bytes, link)


@lru_cache(maxsize=32)
def _chain(do: Do, n: int, segments: int) -> Steps:
    down = [
        [(i, i + 1, 1, False) for i in range(max(0, k - segments + 1), min(n - 2, k) + 1)]
        for k in range(n - 2 + segments)
    ]
    return as_asked(do, n, down, segments)


BINOMIAL = StepAlgorithm(
    name="binomialTree",
    kinds=KINDS,
    schedule=binomial,
    summary="all of the data down (or up) a binomial tree; few steps, for small data",
    formula="broadcast: e + ceil(log2 n) (l(d) + e); reduce: each step + r(d); all-reduce: both",
    source="Thakur, Rabenseifner, Gropp 2005, doi:10.1177/1094342005051521",
)
CHAIN = StepAlgorithm(
    name="chain",
    kinds=KINDS,
    schedule=chain,
    summary="segments from neighbour to neighbour, all links busy; for large data",
    formula="broadcast of s segments: e + (n - 1) (l(d/s) + e) + (s - 1) (d / (s bandwidth) + e)",
    source="Pjesivac-Grbovic et al. 2007, doi:10.1007/s10586-007-0012-0",
)
