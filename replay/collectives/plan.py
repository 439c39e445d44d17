"""How a collective is cut: chunks, and the phases that every chunk goes through.

Source: replay semantics, sections 3.1 and 3.2; corrections C1, C3 and C4 of `differences.md`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from chakra.replay.collectives.algorithms import Algorithm, Family
from chakra.replay.config.model import CollectiveKind

#: view of a communicator that is one flat ring of all its members
FLAT = -1


class Do(IntEnum):
    """What a phase does to the data, numbered as in the kernels."""

    ALL_REDUCE = 0
    REDUCE_SCATTER = 1
    ALL_GATHER = 2
    ALL_TO_ALL = 3


class Rule(IntEnum):
    """Which of a dimension's queues a phase may use, numbered as in the kernels."""

    ANY = 0
    FIRST = 1
    LAST = 2


NATIVE = {
    CollectiveKind.ALL_REDUCE: Do.ALL_REDUCE,
    CollectiveKind.REDUCE_SCATTER: Do.REDUCE_SCATTER,
    CollectiveKind.ALL_GATHER: Do.ALL_GATHER,
    CollectiveKind.ALL_TO_ALL: Do.ALL_TO_ALL,
}


@dataclass(frozen=True, slots=True)
class Phase:
    """One algorithm on one logical ring of a communicator."""

    #: network dimension whose rings are used, or `FLAT`
    view: int
    #: dimension whose queues are used
    dim: int
    rule: Rule
    algorithm: Algorithm
    do: Do
    #: members of the ring
    size: int
    #: bytes entering the phase
    bytes: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A collective, cut: `chunks[i]` says which of `variants` chunk i goes through."""

    kind: CollectiveKind
    chunks: tuple[int, ...]
    variants: tuple[tuple[Phase, ...], ...]


def chunk_sizes(kind: CollectiveKind, size: int, splits: int, npus: int, *, compat: bool) -> list[int]:
    """Bytes of each chunk of a collective of `size` bytes.

    By default min(splits, size) chunks whose sizes differ by at most one byte (C3). With `compat`, chunks of
    size // splits bytes, at least `npus` unless the collective is an all-gather, the last one rounded up.
    """
    if compat:
        chunk = size // splits
        if kind is not CollectiveKind.ALL_GATHER and npus > chunk:
            chunk = npus
            size = splits * chunk
        if chunk > 0:
            return [chunk] * -(-size // chunk)
    n = min(splits, size)
    if n == 0:
        return []
    each, more = divmod(size, n)
    return [each + 1] * more + [each] * (n - more)


def leaving(do: Do, algorithm: Algorithm, entering: int, size: int, *, least: int) -> int:
    """Bytes that leave a phase on a ring of `size` members."""
    if algorithm.family is Family.TREE:
        return entering
    if do is Do.REDUCE_SCATTER:
        return max(entering // size, least)
    if do is Do.ALL_GATHER:
        return entering * size
    return entering


def phase_order(
    do: Do, dims: Sequence[int], optimization: str, *, order: Sequence[int] | None = None
) -> list[tuple[int, Do, Rule]]:
    """(dimension, operation, queue rule) of every phase, in order.

    `order` is a scheduler's order of the dimensions (inter-dimension scheduling); by default they ascend, and an
    all-gather descends.
    """
    if do is Do.ALL_REDUCE and (optimization == "localBWAware" or order is not None):
        up = list(dims if order is None else order)
        if order is None:
            phases = [(d, Do.REDUCE_SCATTER, Rule.FIRST) for d in up[:-1]]
            phases.append((up[-1], Do.ALL_REDUCE, Rule.FIRST))
            phases += [(d, Do.ALL_GATHER, Rule.LAST) for d in reversed(up[:-1])]
            return phases
        return [(d, Do.REDUCE_SCATTER, Rule.FIRST) for d in up] + [
            (d, Do.ALL_GATHER, Rule.LAST) for d in reversed(up)
        ]
    if order is not None:
        return [(d, do, Rule.ANY) for d in order]
    if do is Do.ALL_GATHER:
        return [(d, do, Rule.ANY) for d in sorted(dims, reverse=True)]
    return [(d, do, Rule.ANY) for d in sorted(dims)]


def make_phases(
    do: Do,
    chunk: int,
    algorithms: Sequence[tuple[int, Algorithm, int]],
    optimization: str,
    *,
    least: int,
    order: Sequence[int] | None = None,
) -> tuple[Phase, ...]:
    """Phases of a chunk of `chunk` bytes.

    `algorithms` lists (dimension, algorithm, ring size) of every dimension that takes part; a flat algorithm's ring
    is the whole communicator. `least` is the smallest size of a message.
    """
    by_dim = {dim: (algorithm, size) for dim, algorithm, size in algorithms}
    phases = []
    entering = chunk
    for dim, what, rule in phase_order(do, list(by_dim), optimization, order=order):
        algorithm, size = by_dim[dim]
        view = FLAT if algorithm.flat else dim
        phases.append(Phase(view, dim, rule, algorithm, what, size, entering))
        entering = leaving(what, algorithm, entering, size, least=least)
    return tuple(phases)
