"""How a collective is cut: chunks, and the phases that every chunk goes through.

Source: replay semantics, sections 3.1, 3.2, 7.1 and 7.2; corrections C1, C3 and C4 of `differences.md`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from chakra.replay.collectives.algorithms import Algorithm, Family
from chakra.replay.collectives.call import Uneven
from chakra.replay.collectives.steps import Do as Do
from chakra.replay.config.model import CollectiveKind
from chakra.replay.engines.kernels import codes
from chakra.replay.options import OLD_MODEL as OLD_MODEL

#: view of a communicator that is one flat ring of all its members
FLAT = -1


class Rule(IntEnum):
    """Which of a dimension's queues a phase may use (section 3.4)."""

    ANY = codes.QUEUE_ANY
    FIRST = codes.QUEUE_FIRST
    LAST = codes.QUEUE_LAST
    #: the dimension's first queue, without moving on (custom algorithms)
    FIXED = codes.QUEUE_FIXED


class Schedule(IntEnum):
    """Who chooses the order in which a chunk takes the dimensions (section 7.2)."""

    PLAN = codes.SCHEDULE_PLAN
    ROUND_ROBIN = codes.SCHEDULE_ROUND_ROBIN
    GREEDY = codes.SCHEDULE_GREEDY
    FLEX = codes.SCHEDULE_FLEX


class QueueOrder(IntEnum):
    """Where a stream enters among those that wait (section 7.3)."""

    FIFO = codes.ORDER_FIFO
    SMALLEST_FIRST = codes.ORDER_SMALLEST_FIRST
    LESS_REMAINING_PHASE_FIRST = codes.ORDER_LESS_REMAINING
    RG = codes.ORDER_RG


#: intra-dimension-scheduling in system files
QUEUE_ORDERS = {
    "FIFO": QueueOrder.FIFO,
    "RG": QueueOrder.RG,
    "smallestFirst": QueueOrder.SMALLEST_FIRST,
    "lessRemainingPhaseFirst": QueueOrder.LESS_REMAINING_PHASE_FIRST,
}


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
    #: unequal shares; `bytes` are then those of the even phase that is as long for the busiest member
    sizes: Uneven | None = None
    #: messages have ASTRA-sim's sizes, where halving-doubling's all-reduce may lose bytes on its way back (C23)
    as_astra: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """A collective, cut: `chunks[i]` says which of `variants` chunk i goes through.

    With `Schedule.ROUND_ROBIN` that is the first of as many variants as there are dimensions. With the greedy schedules
    the variants give the sizes of the chunks only, and phases are copies of `templates`: per dimension that takes
    part, the phases that scatter and that gather; `do` says which of them a chunk goes through.
    """

    kind: CollectiveKind
    chunks: tuple[int, ...]
    variants: tuple[tuple[Phase, ...], ...]
    schedule: Schedule = Schedule.PLAN
    templates: tuple[tuple[Phase, Phase], ...] = ()
    #: whether members have unequal shares
    uneven: bool = False
    #: what a greedy schedule lays out, which is that of the native kind that gives the cost
    do: Do = Do.ALL_REDUCE


def chunk_sizes(
    kind: CollectiveKind, size: int, splits: int, npus: int, *, compat: bool, old: bool = False
) -> list[int]:
    """Bytes of each chunk of a collective of `size` bytes.

    By default min(splits, size) chunks whose sizes differ by at most one byte (C3). With `compat`, chunks of
    size // splits bytes, at least `npus` unless the collective is an all-gather, the last one rounded up. With `old`
    (ASTRA-sim 1.0 of 2023) chunks of size // splits bytes and a shorter last one.
    """
    if old and size >= splits:
        chunk, rest = size // splits, size % splits
        return [chunk] * splits + [chunk] * (rest // chunk) + ([rest % chunk] if rest % chunk else [])
    if compat and not old:
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
    do: Do,
    dims: Sequence[int],
    optimization: str,
    *,
    turn: int = 0,
    of: int = 1,
    split: bool = False,
    old: bool = False,
) -> list[tuple[int, Do, Rule]]:
    """(dimension, operation, queue rule) of every phase, in order.

    Dimensions ascend, and descend for an all-gather; `turn` rotates that order of all `of` dimensions of the network
    to the left. An all-reduce becomes a reduce-scatter and an all-gather on every dimension with `split`, with an
    all-reduce on the last dimension under localBWAware. `old`: any queue of the dimension will do (1.0).
    """
    every = list(range(max(of, *(d + 1 for d in dims))))
    if do is Do.ALL_GATHER:
        every.reverse()
    turn %= len(every)
    order = [d for d in every[turn:] + every[:turn] if d in set(dims)]
    if do is not Do.ALL_REDUCE or not (split or optimization == "localBWAware"):
        return [(d, do, Rule.ANY) for d in order]
    first, last = (Rule.ANY, Rule.ANY) if old else (Rule.FIRST, Rule.LAST)
    if split:
        return [(d, Do.REDUCE_SCATTER, first) for d in order] + [
            (d, Do.ALL_GATHER, last) for d in reversed(order)
        ]
    phases = [(d, Do.REDUCE_SCATTER, first) for d in order[:-1]]
    phases.append((order[-1], Do.ALL_REDUCE, first))
    return phases + [(d, Do.ALL_GATHER, last) for d in reversed(order[:-1])]


def make_phases(
    chunk: int,
    algorithms: Sequence[tuple[int, Algorithm, int]],
    order: Sequence[tuple[int, Do, Rule]],
    *,
    least: int,
    as_astra: bool,
) -> tuple[Phase, ...]:
    """Phases of a chunk of `chunk` bytes, in the order that `phase_order` gives.

    `algorithms` lists (dimension, algorithm, ring size) of every dimension that takes part; a flat algorithm's ring
    is the whole communicator. `least` is the smallest size of a message; `as_astra` says whether sizes
    are ASTRA-sim's.
    """
    by_dim = {dim: (algorithm, size) for dim, algorithm, size in algorithms}
    phases = []
    entering = chunk
    for dim, what, rule in order:
        algorithm, size = by_dim[dim]
        view = FLAT if algorithm.flat else dim
        phases.append(Phase(view, dim, rule, algorithm, what, size, entering, as_astra=as_astra))
        entering = leaving(what, algorithm, entering, size, least=least)
    return tuple(phases)


def library_sent(phase: Phase) -> int:
    """Bytes that each member of a collective library's ring sends."""
    kind = CollectiveKind(phase.algorithm.kind)
    if kind in (CollectiveKind.BARRIER, CollectiveKind.BROADCAST, CollectiveKind.REDUCE):
        return 0 if kind is CollectiveKind.BARRIER else phase.bytes
    rounds = 2 if kind is CollectiveKind.ALL_REDUCE else 1
    return rounds * (phase.size - 1) * phase.bytes // phase.size


def library_phase(plan: Plan) -> Phase | None:
    """The phase of a plan that is a collective of a library, if it is one."""
    phase = plan.variants[0][0] if plan.variants and plan.variants[0] else None
    return phase if phase is not None and phase.algorithm.family is Family.LIBRARY else None
