"""Collectives with unequal shares: which bytes each message of an algorithm carries.

An algorithm moves blocks: in an all-to-all one for each pair of members, otherwise one for each member. With unequal
shares its messages are the same ones, each as long as the blocks in it. Rounds take place although there is nothing to
send: the message then has 0 bytes. Only `direct` without a window, in which nobody waits for a turn, leaves it out. All
members form one flat ring, as those of process groups do, since what a member of a dimension hands on would depend on
where it lies.

Rule for what is a number per collective (the time of a collective library; algorithms of which it is unknown which
blocks a message carries; the shared memory bus): the collective counts as the even one whose members bring as many bytes
through their ports as the member with most, in or out, does here.
"""

from collections.abc import Iterator

import numpy as np

from chakra.arrays import I64
from chakra.errors import ConfigError
from chakra.io.readable import counted, counted_text
from chakra.replay.collectives import registry
from chakra.replay.collectives.algorithms import Algorithm, Family
from chakra.replay.collectives.call import Uneven
from chakra.replay.collectives.steps import LAST_OF_ROUND, REDUCES, Do, Link, Steps
from chakra.replay.config.model import CollectiveKind

#: messages of one phase that are written down at most
MOST_MESSAGES = 1 << 23
#: algorithms of ASTRA-sim that become tables of steps: name there, for any that is not `direct`
RING, HALVING_DOUBLING = "ring", "halvingDoubling"

Round = tuple[I64, I64, I64]
"""Sources, destinations and bytes of the messages of one round."""


def even_bytes(do: Do, sizes: I64) -> int:
    """Bytes that enter the even collective whose ports carry what the busiest one does, or a byte per member more."""
    n = len(sizes)
    if do is Do.ALL_TO_ALL:
        own = np.diagonal(sizes)
        busiest = int(max((sizes.sum(axis=1) - own).max(), (sizes.sum(axis=0) - own).max()))
        return -(-busiest * n // (n - 1))
    busiest = int(sizes.sum() - sizes.min())
    return -(-busiest // (n - 1)) if do is Do.ALL_GATHER else -(-busiest * n // (n - 1))


def call_bytes(kind: CollectiveKind, do: Do, sizes: I64) -> int:
    """`even_bytes` as comm_size of a kind."""
    size = even_bytes(do, sizes)
    return size * len(sizes) if kind is CollectiveKind.SCATTER else size


def pair_bytes(do: Do, sizes: I64) -> I64:
    """Bytes of the block from each member to each, (n, n), where all members exchange blocks directly; none to itself."""
    n = len(sizes)
    if do is Do.ALL_TO_ALL:
        out = sizes.copy()
    elif do is Do.ALL_GATHER:
        out = np.repeat(sizes[:, None], n, axis=1)
    else:
        out = np.repeat(sizes[None, :], n, axis=0)
    np.fill_diagonal(out, 0)
    return np.asarray(out, np.int64)


def is_open(algorithm: Algorithm, n: int) -> bool:
    """Whether all of an algorithm's messages leave at once, so that empty ones may be left out."""
    return algorithm.family is Family.DIRECT and algorithm.window_in(n) == n - 1


def chunks_of(sizes: I64, splits: int) -> list[I64]:
    """Sizes of the chunks: every block is cut into as many parts, which differ by at most one byte."""
    many = max(1, min(splits, int(sizes.max())))
    each, more = sizes // many, sizes % many
    return [each + (more > k) for k in range(many)]


def as_table(algorithm: Algorithm) -> Algorithm:
    """The algorithm on one flat ring, as unequal shares have it: `direct` as it is, others as tables of steps."""
    if algorithm.family is Family.DIRECT:
        return Algorithm(Family.DIRECT, True, algorithm.window)
    names = {Family.RING: RING, Family.HALVING_DOUBLING: HALVING_DOUBLING}
    return Algorithm(Family.STEPS, True, steps=names.get(algorithm.family, algorithm.steps))


def uneven_steps(name: str, do: Do, uneven: Uneven, whole: int) -> Steps | None:
    """Schedule of an algorithm with unequal shares; None if it is unknown which blocks its messages carry.

    Parameters
    ----------
    name
        Algorithm, as `as_table` names it.
    do
        What the phase does.
    uneven
        Its shares.
    whole
        Bytes that the phase is said to be of: a message's share of them is its bytes.

    Raises
    ------
    ConfigError
        If the schedule has more messages than are written down.
    """
    sizes = uneven.sizes
    n = len(sizes)
    rounds: Iterator[Round] | None
    if name == RING:
        many = n * (n - 1) * (n if do is Do.ALL_TO_ALL else 2) // 2
        if many > MOST_MESSAGES:
            raise ConfigError(
                f"ring: an uneven {do.name} of {counted(n, 'member')} has {counted_text(many, 'message')}; use "
                "direct for unequal shares"
            )
        rounds = _ring_all_to_all(sizes) if do is Do.ALL_TO_ALL else _ring(sizes, gather=do is Do.ALL_GATHER)
    elif name == HALVING_DOUBLING:
        rounds = _exchanges(_halving_doubling(n), sizes, gather=do is Do.ALL_GATHER, blocks=None)
    else:
        rounds = _of_table(registry.steps(name, do, n, max(whole, 1), Link(0.0, 1.0)), do, sizes)
    if rounds is None:
        return None
    # shares that stay where they are leave nothing to move, and messages are nothing of one byte as well
    return _steps(n, rounds, max(whole, 1), reduces=do is Do.REDUCE_SCATTER)


def _steps(n: int, rounds: Iterator[Round], whole: int, *, reduces: bool) -> Steps:
    parts = []
    for source, target, size in rounds:
        rows = np.zeros((len(source), 4), np.int64)
        rows[:, 0], rows[:, 1], rows[:, 2] = source, target, size
        rows[:, 3] = REDUCES if reduces else 0
        rows[-1, 3] |= LAST_OF_ROUND
        parts.append(rows)
    return Steps(n, np.concatenate(parts) if parts else np.zeros((0, 4), np.int64), whole)


def _ring(sizes: I64, *, gather: bool) -> Iterator[Round]:
    """All-gather: a member hands on what it received in the round before. Reduce-scatter: partial sums of a block."""
    n = len(sizes)
    index = np.arange(n)
    for k in range(n - 1):
        yield index, (index + 1) % n, sizes[(index - k - (0 if gather else 1)) % n]


def _ring_all_to_all(sizes: I64) -> Iterator[Round]:
    """After h rounds of hops a member hands on what its h-th predecessor sends to those behind the member."""
    n = len(sizes)
    index = np.arange(n)
    for hop in range(n - 1):
        source = (index - hop) % n
        for distance in range(hop + 1, n):
            yield index, (index + 1) % n, sizes[source, (source + distance) % n]


def _halving_doubling(n: int) -> list[tuple[I64, I64]]:
    """Ends of the messages of halving-doubling's all-gather."""
    index = np.arange(n)
    levels = n.bit_length() - 1
    return [(index, index ^ (1 << (levels - 1 - p))) for p in range(levels)]


def _exchanges(
    rounds: list[tuple[I64, I64]], sizes: I64, *, gather: bool, blocks: list[I64] | None
) -> Iterator[Round] | None:
    """Messages of an all-gather that carry what the receiver lacks; a reduce-scatter is an all-gather backwards.

    `rounds` are those of the all-gather. `blocks` says how many blocks each message has in the algorithm's own table:
    None is returned if it is another number than what the receiver lacks.
    """
    n = len(sizes)
    has = np.eye(n, dtype=bool)
    out: list[Round] = []
    for k, (source, target) in enumerate(rounds):
        content = has[source] & ~has[target]
        if blocks is not None and (content.sum(axis=1) != blocks[k]).any():
            return None
        out.append((source, target, content @ sizes))
        np.logical_or.at(has, target, content)
    if not has.all():
        return None
    if not gather:
        out = [(target, source, size) for source, target, size in reversed(out)]
    return iter(out)


def _of_table(steps: Steps, do: Do, sizes: I64) -> Iterator[Round] | None:
    """Messages of a table of steps, by the blocks that they must carry."""
    ends = np.flatnonzero(steps.messages[:, 3] & LAST_OF_ROUND) + 1
    rounds = np.split(steps.messages, ends[:-1])
    n = steps.n
    if do is Do.ALL_TO_ALL:
        return _bruck(rounds, sizes)
    gather = do is Do.ALL_GATHER
    unit = steps.whole if gather else steps.whole // n
    if steps.whole % (1 if gather else n) or any((rows[:, 2] % unit).any() for rows in rounds):
        return None
    if gather:
        ends_of = [(rows[:, 0], rows[:, 1]) for rows in rounds]
    else:
        rounds = rounds[::-1]
        ends_of = [(rows[:, 1], rows[:, 0]) for rows in rounds]
    return _exchanges(ends_of, sizes, gather=gather, blocks=[rows[:, 2] // unit for rows in rounds])


def _bruck(rounds: list[I64], sizes: I64) -> Iterator[Round] | None:
    """An all-to-all whose messages over a distance 2^k carry all that has bit k in the distance to its target."""
    n = len(sizes)
    index = np.arange(n)
    at = sizes.copy()  # bytes at each member by target
    np.fill_diagonal(at, 0)
    out: list[Round] = []
    for rows in rounds:
        source, target = rows[:, 0], rows[:, 1]
        step = (target - source) % n
        if (step & (step - 1)).any():
            return None
        moved = np.where(((index[None, :] - source[:, None]) % n) & step[:, None], at[source], 0)
        out.append((source, target, moved.sum(axis=1)))
        at[source] -= moved
        np.add.at(at, target, moved)
    np.fill_diagonal(at, 0)
    return iter(out) if not at.any() else None
