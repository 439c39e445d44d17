"""Which blocks of data every message of a collective's schedule carries.

The engine knows of a message who sends it, who receives it, how many bytes it has and whether they are reduced. All of
that is taken from the engine here. What it need not know is *which* blocks these bytes are: the functions of this module
say so, one rule per algorithm, for pictures and for other forms of the algorithms.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from chakra.replay.collectives import registry
from chakra.replay.collectives.algorithms import Algorithm, Family
from chakra.replay.collectives.in_network import port_bytes
from chakra.replay.collectives.pipelined_tree import two_trees
from chakra.replay.collectives.steps import LAST_OF_ROUND, REDUCES, Do, Link
from chakra.replay.config.algorithms import IN_NETWORK
from chakra.replay.engines.kernels import packets as kernel

#: a block of the data, or (from, to) of an all-to-all
Block = Any


@dataclass(frozen=True, slots=True)
class Message:
    """One message: `share` is its size as a part of the bytes that enter the phase."""

    src: int
    dst: int
    blocks: tuple[Block, ...]
    reduces: bool
    share: Fraction


@dataclass(frozen=True, slots=True)
class Schedule:
    """A collective of `n` members in steps; `blocks` are what the data of one member are cut into.

    With `switch` the member of number n is the switch that joins the others.
    """

    name: str
    do: Do
    n: int
    blocks: tuple[Block, ...]
    steps: tuple[tuple[Message, ...], ...]
    switch: bool = False


def by_switch(do: Do, n: int) -> Schedule:
    """What a switch does: it reduces or gathers what all members send it, and each gets its part of the result."""
    gathers, every = do is Do.ALL_GATHER, tuple(range(n))
    whole = 1 if gathers else n
    up, down = port_bytes(do, whole, n)  # in blocks
    sent = [Message(i, n, (i,) if gathers else every, not gathers, Fraction(up, whole)) for i in range(n)]
    back = [Message(n, i, (i,) if down == 1 else every, False, Fraction(down, whole)) for i in range(n)]
    return Schedule(IN_NETWORK, do, n, every, (tuple(sent), tuple(back)), switch=True)


def _matching(n: int, i: int, mask: int) -> tuple[int, ...]:
    """Blocks whose number agrees with i in the bits of a mask."""
    return tuple(b for b in range(n) if (b ^ i) & mask == 0)


# --------------------------------------------------------------------------------------------------------------
# ASTRA-sim's algorithms: partners and sizes are those of the kernels


def native(algorithm: Algorithm, do: Do, n: int) -> Schedule:
    """Schedule of ring, direct or halvingDoubling, step by step as if all messages took the same time."""
    family, window = int(algorithm.family), algorithm.window_in(n)
    rule = {Family.RING: _ring, Family.DIRECT: _direct, Family.HALVING_DOUBLING: _halving}[algorithm.family]
    count = kernel.packet_count(family, do, n)
    whole = 2 * n * n
    steps: dict[int, list[Message]] = {}
    for p in range(count):
        size = Fraction(kernel.packet_bytes(family, do, n, count, whole, p, False), whole)
        for i in range(n):
            dst = kernel.packet_partner(family, do, n, count, p, i, 1)
            reduces = do is Do.REDUCE_SCATTER or (do is Do.ALL_REDUCE and p < count // 2)
            message = Message(i, dst, rule(do, n, p, i, dst), reduces, size)
            # direct: the second round of an all-reduce waits for the first (its "hold")
            turn, place = divmod(p, n - 1) if do is Do.ALL_REDUCE else (0, p)
            step = turn * -(-(n - 1) // window) + place // window if algorithm.family is Family.DIRECT else p
            steps.setdefault(step, []).append(message)
    every = _pairs(n) if do is Do.ALL_TO_ALL else tuple(range(n))
    return Schedule(algorithm.name, do, n, every, tuple(tuple(steps[k]) for k in sorted(steps)))


def _pairs(n: int) -> tuple[tuple[int, int], ...]:
    return tuple((i, j) for i in range(n) for j in range(n))


def _ring(do: Do, n: int, p: int, i: int, dst: int) -> tuple[Block, ...]:
    if do is Do.ALL_TO_ALL:
        # pass s (n - 1 - s messages) forwards what has come s steps and has further to go, the farthest first
        passed, k = 0, p
        while k >= n - 1 - passed:
            k -= n - 1 - passed
            passed += 1
        src = (i - passed) % n
        return ((src, (src + n - 1 - k) % n),)
    if do is Do.ALL_REDUCE and p >= n - 1:
        return ((i + 1 - (p - (n - 1))) % n,)
    return ((i - p) % n,)


def _direct(do: Do, n: int, p: int, i: int, dst: int) -> tuple[Block, ...]:
    if do is Do.ALL_TO_ALL:
        return ((i, dst),)
    return (dst,) if do is Do.REDUCE_SCATTER or (do is Do.ALL_REDUCE and p < n - 1) else (i,)


def _halving(do: Do, n: int, p: int, i: int, dst: int) -> tuple[Block, ...]:
    offset = i ^ dst
    if do is Do.REDUCE_SCATTER or (do is Do.ALL_REDUCE and offset == 1 << p and p < n.bit_length() - 1):
        return _matching(n, dst, 2 * offset - 1)
    return _matching(n, i, 2 * offset - 1)


# --------------------------------------------------------------------------------------------------------------
# Tables of steps: rows are those of the registry


def table(name: str, do: Do, n: int, *, segments: int = 1) -> Schedule:
    """Schedule of an algorithm that is a table of steps; a pipeline gets a size that makes it cut `segments`."""
    link = Link(1000.0, 1.0)
    # `best_segments` the other way round: a pipeline of `depth` rounds, and as many more per segment as it has parts
    depth = {"chain": max(n - 2, 1), "pipelinedTree": max((n - 1).bit_length(), 1) / 2}.get(name)
    size = 1 << 20 if depth is None else max(round(1000 * segments**2 / depth), 2)
    made = registry.steps(name, do, n, size, link)
    rounds: list[list[tuple[int, int, int, bool]]] = [[]]
    for src, dst, share, flags in made.messages.tolist():
        rounds[-1].append((src, dst, share, bool(flags & REDUCES)))
        if flags & LAST_OF_ROUND:
            rounds.append([])
    rounds.pop()
    shards = do is Do.ALL_GATHER and name in ("bruck", "rabenseifner", "recursiveDoubling")
    blocks: tuple[Block, ...] = tuple(range(n if shards else made.whole))
    if do is Do.ALL_TO_ALL:
        blocks = _pairs(n)
    rule = _RULES[name](do, n, made.whole)
    steps = tuple(
        tuple(
            Message(src, dst, rule(k, src, dst, share, reduces), reduces, Fraction(share, made.whole))
            for src, dst, share, reduces in step
        )
        for k, step in enumerate(rounds)
    )
    return Schedule(name, do, n, blocks, steps)


#: (step, source, destination, share, reduces) -> blocks
_Rule = Callable[[int, int, int, int, bool], tuple[Block, ...]]


def _whole_rule(do: Do, n: int, whole: int) -> _Rule:
    """Everything travels together."""
    return lambda k, src, dst, share, reduces: tuple(range(whole))


def _doubling_rule(do: Do, n: int, whole: int) -> _Rule:
    """Recursive halving and doubling (n = 2^L): halves by distance; all-reduce of one undivided block."""
    if do is Do.ALL_REDUCE:
        return _whole_rule(do, n, whole)
    return lambda k, src, dst, share, reduces: _matching(n, dst if reduces else src, -(src ^ dst))


def _rabenseifner_rule(do: Do, n: int, whole: int) -> _Rule:
    return lambda k, src, dst, share, reduces: _matching(n, dst if reduces else src, -(src ^ dst))


def _bruck_rule(do: Do, n: int, whole: int) -> _Rule:
    if do is Do.ALL_TO_ALL:

        def items(k: int, src: int, dst: int, share: int, reduces: bool) -> tuple[Block, ...]:
            # a block that has j to go has gone j's lower bits already
            return tuple(
                ((src - (j & ((1 << k) - 1))) % n, (src - (j & ((1 << k) - 1)) + j) % n)
                for j in range(n)
                if j >> k & 1
            )

        return items
    return lambda k, src, dst, share, reduces: tuple(
        ((dst if reduces else src) + b) % n for b in range(share)
    )


def _scatter_rule(do: Do, n: int, whole: int) -> _Rule:
    steps = (n - 1).bit_length()
    gather = _bruck_rule(do, n, whole)

    def blocks(k: int, src: int, dst: int, share: int, reduces: bool) -> tuple[Block, ...]:
        if do is Do.BROADCAST and k < steps:
            return tuple(range(dst, dst + share))
        if do is Do.REDUCE and k >= steps:
            return tuple(range(src, src + share))
        return gather(k, src, dst, share, reduces)

    return blocks


def _chain_rule(do: Do, n: int, whole: int) -> _Rule:
    """The k-th message over a link carries segment k, upwards last segment first."""
    sent: dict[tuple[int, int], int] = {}

    def blocks(k: int, src: int, dst: int, share: int, reduces: bool) -> tuple[Block, ...]:
        count = sent.get((src, dst), 0)
        sent[src, dst] = count + 1
        return (whole - 1 - count if reduces else count,)

    return blocks


def _pipelined_rule(do: Do, n: int, whole: int) -> _Rule:
    """Block 2 s + t is segment s of tree t; an edge carries its segments in order."""
    edges: dict[tuple[int, int, bool], list[int]] = {}
    for tree, parents in enumerate(two_trees(n)):
        for i, parent in enumerate(parents):
            if parent >= 0:
                edges.setdefault((i, parent, True), []).append(tree)
                edges.setdefault((parent, i, False), []).append(tree)
    sent: dict[tuple[int, int, bool], int] = {}

    def blocks(k: int, src: int, dst: int, share: int, reduces: bool) -> tuple[Block, ...]:
        edge = (src, dst, reduces)
        segment, turn = divmod(sent.get(edge, 0), len(edges[edge]))
        sent[edge] = sent.get(edge, 0) + 1
        return (2 * segment + edges[edge][turn],)

    return blocks


_RULES: dict[str, Callable[[Do, int, int], _Rule]] = {
    "rabenseifner": _rabenseifner_rule,
    "recursiveDoubling": _doubling_rule,
    "bruck": _bruck_rule,
    "binomialTree": _whole_rule,
    "chain": _chain_rule,
    "scatterAllGather": _scatter_rule,
    "pipelinedTree": _pipelined_rule,
}
