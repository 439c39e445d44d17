"""Algorithms as data: rounds of messages between the members of a ring.

A table of steps is all that the engine needs to know of an algorithm: who sends which share of the data to whom in each
round, and whether the receiver reduces it. Each member sends at most one message and receives at most one per round. The
engine's rule for the time of a round is the postal model with an endpoint delay,

    x_i(k+1) = max(x_j(k) + delay_ji(m), x_i(k) + occupancy(m)) + e + r(m),   x_i(0) = start_i + e,

where j is the member that i receives from; a member that only sends leaves when its message has passed its link. So no
member ever sends or receives faster than its links, whatever the schedule.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from functools import lru_cache

import numpy as np

from chakra.arrays import I64
from chakra.errors import ConfigError
from chakra.io.readable import counted
from chakra.replay.engines.kernels import codes

__all__ = [
    "LAST_OF_ROUND",
    "REDUCES",
    "Do",
    "Link",
    "StepAlgorithm",
    "Steps",
    "Symmetry",
    "best_segments",
    "from_arrays",
    "from_rounds",
]

#: flag of a message that the receiver adds to its own data
REDUCES = 1
#: flag of the last message of a round
LAST_OF_ROUND = 2


class Do(IntEnum):
    """What a phase does to the data."""

    ALL_REDUCE = codes.DO_ALL_REDUCE
    REDUCE_SCATTER = codes.DO_REDUCE_SCATTER
    ALL_GATHER = codes.DO_ALL_GATHER
    ALL_TO_ALL = codes.DO_ALL_TO_ALL
    BROADCAST = codes.DO_BROADCAST
    REDUCE = codes.DO_REDUCE


class Symmetry(Enum):
    """How members of a schedule resemble each other, so that one may stand for all."""

    #: members play different roles
    NONE = "none"
    #: member i does what member 0 does with every partner p replaced by (p + i) mod n
    CYCLIC = "cyclic"
    #: member i does what member 0 does with every partner p replaced by p XOR i
    XOR = "xor"


@dataclass(frozen=True, slots=True)
class Link:
    """What a message between neighbours costs, for schedules that choose how finely they cut the data.

    Attributes
    ----------
    latency_ns
        Latency of an empty message and endpoint delay, ns.
    bytes_per_ns
        Bandwidth, bytes per ns.
    """

    latency_ns: float
    bytes_per_ns: float


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """A schedule: rounds of messages, as `from_rounds` and `from_arrays` make it.

    Attributes
    ----------
    n
        Members.
    messages
        (messages, 4) int64: source, destination, share, flags (`REDUCES`, `LAST_OF_ROUND`), in rounds. A message carries
        share / whole of the bytes that enter the phase, rounded up.
    whole
        Parts of all the data.
    symmetry
        How members resemble each other.
    """

    n: int
    messages: I64
    whole: int
    symmetry: Symmetry = Symmetry.NONE

    @property
    def rounds(self) -> int:
        """Number of rounds."""
        return int((self.messages[:, 3] & LAST_OF_ROUND > 0).sum())


@dataclass(frozen=True, slots=True)
class MemberRows:
    """Steps by member: member i's rounds, those in which it takes part, are rows[start[i]:start[i + 1]].

    Columns: receiver of what it sends, that member's row of the message (counted from its first), share; the same of
    what it receives, from whom; whether it reduces that. -1 where it does not send, or does not receive.
    """

    start: I64
    rows: I64

    @property
    def most(self) -> int:
        """Rounds of the member that has most."""
        return int(np.diff(self.start).max(initial=0))


@lru_cache(maxsize=64)
def member_rows(steps: Steps) -> MemberRows:
    """Look at a schedule from each of its members."""
    source, target, share, flags = steps.messages.T
    last = flags & LAST_OF_ROUND > 0
    rounds = np.cumsum(last) - last
    many = steps.rounds
    keys, place = np.unique(
        np.concatenate([source * many + rounds, target * many + rounds]), return_inverse=True
    )
    sends, receives = np.split(place.reshape(-1), 2)
    start = np.searchsorted(keys, np.arange(steps.n + 1) * many)
    rows = np.full((len(keys), 7), -1, np.int64)
    rows[:, 6] = 0
    rows[sends, 0], rows[sends, 1], rows[sends, 2] = target, receives - start[target], share
    rows[receives, 3], rows[receives, 4], rows[receives, 5] = source, sends - start[source], share
    rows[receives, 6] = flags & REDUCES
    return MemberRows(start, rows)


@dataclass(frozen=True, slots=True)
class StepAlgorithm:
    """An algorithm that is a table of steps, under the name that system files use.

    Third parties offer objects of this class as entry points of the group ``chakra.collectives``.

    Attributes
    ----------
    name
        Name in system files.
    kinds
        What the algorithm can do.
    schedule
        ``schedule(do, n, size_bytes, link)`` returns the `Steps` of one phase of n members, which `size_bytes` enter.
    summary
        A few words.
    formula
        Time of one chunk of d bytes on n alike members, in the words of docs/reference/collective-costs.md.
    source
        Where the algorithm is described.
    """

    name: str
    kinds: frozenset[Do]
    schedule: Callable[[Do, int, int, Link], Steps]
    summary: str
    formula: str
    source: str


Message = tuple[int, int, int, bool]


def from_rounds(
    n: int, rounds: Sequence[Sequence[Message]], whole: int, symmetry: Symmetry = Symmetry.NONE
) -> Steps:
    """Steps from rounds of (source, destination, share, reduces); empty rounds are left out.

    Parameters
    ----------
    n
        Members.
    rounds
        Messages of each round; a member sends at most one and receives at most one. `reduces` says that the destination
        adds the message to its own data.
    whole
        Parts of all the data: a message carries share / whole of it.
    symmetry
        How members resemble each other.

    Raises
    ------
    ConfigError
        If a member sends or receives twice in a round, sends to itself, or a number is out of range.
    """
    rows = [np.array(messages, np.int64).reshape(-1, 4) for messages in rounds if len(messages)]
    return from_arrays(n, rows, whole, symmetry)


def from_arrays(n: int, rounds: Sequence[I64], whole: int, symmetry: Symmetry = Symmetry.NONE) -> Steps:
    """Steps from one array per round; empty rounds are left out.

    Parameters
    ----------
    n
        Members.
    rounds
        Per round (messages, 4) int64: source, destination, share, whether the destination reduces.
    whole
        Parts of all the data: a message carries share / whole of it.
    symmetry
        How members resemble each other.

    Raises
    ------
    ConfigError
        If a member sends or receives twice in a round, sends to itself, or a number is out of range.
    """
    parts = []
    for k, given in enumerate(rounds):
        rows = np.asarray(given, np.int64).copy()
        if not len(rows):
            continue
        for side, word in ((0, "sends"), (1, "receives")):
            ends = rows[:, side]
            if ends.min() < 0 or ends.max() >= n:
                raise ConfigError(f"collective schedule: round {k}: members are 0 to {n - 1}")
            members, counts = np.unique(ends, return_counts=True)
            if len(members) != len(ends):
                member = int(members[np.argmax(counts)])
                raise ConfigError(
                    f"collective schedule: round {k} (from 0): member {member} {word} "
                    f"{counted(counts.max(), 'message')}; "
                    "one is the most"
                )
        if (rows[:, 0] == rows[:, 1]).any():
            member = int(rows[np.argmax(rows[:, 0] == rows[:, 1]), 0])
            raise ConfigError(f"collective schedule: round {k} (from 0): member {member} sends to itself")
        if whole < 1 or rows[:, 2].min() < 0 or rows[:, 2].max() > whole * n:
            raise ConfigError(f"collective schedule: round {k}: shares are 0 to {whole * n} of {whole}")
        rows[:, 3] = (rows[:, 3] != 0) * REDUCES
        rows[-1, 3] |= LAST_OF_ROUND
        parts.append(rows)
    messages = np.concatenate(parts) if parts else np.zeros((0, 4), np.int64)
    return Steps(n, messages, whole, symmetry)


def best_segments(
    fill: int, each: int, parts: int, n: int, size_bytes: int, link: Link, *, most: int = 64
) -> int:
    """Segments into which a pipeline cuts each of `parts` equal parts of the data.

    A pipeline of `fill` rounds and `each` more per segment takes (fill + each s)(a + b d / (parts s)), which is least at
    s = sqrt(fill b d / (parts each a)) (a: latency, b: 1 / bandwidth). At most `most`, and so few that a schedule stays
    below a million messages.

    Parameters
    ----------
    fill
        Rounds until the first segment has passed.
    each
        Rounds of every further segment.
    parts
        Equal parts of the data that are cut.
    n
        Members.
    size_bytes
        Bytes that enter the phase.
    link
        What a message costs.
    most
        Bound of the segments.
    """
    if size_bytes <= parts or fill <= 0:
        return 1
    transfer = size_bytes / parts / link.bytes_per_ns
    best = (fill * transfer / (each * link.latency_ns)) ** 0.5 if link.latency_ns > 0 else float(most)
    return int(
        max(1, min(round(min(best, most)), most, size_bytes // parts, (1 << 20) // (2 * parts * n) or 1))
    )
