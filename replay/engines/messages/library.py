"""Collectives of a library in the message-level engine: their messages as programs of their members, and their delay.

A collective begins when its last member starts it and ends for all at once. Where messages never meet, it is the
library's time and nothing else. On a network whose links are shared its bytes travel as messages
(`chakra.replay.collectives.library.messages`), after a delay of what the library's time holds beyond them: the time less
that of the same messages when nothing else is under way. That is measured, by a run of each collective alone, so that it
holds for every network, with all that the collective's own messages do to each other.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from chakra.arrays import I64, bounds
from chakra.io.readable import counted
from chakra.replay.collectives.library.in_effect import PlacedLibrary
from chakra.replay.collectives.library.messages import WINDOW, Lane, pair_roles
from chakra.replay.engines.messages.alone import Alone, LibraryCall
from chakra.replay.engines.outcome import RawRun
from chakra.replay.engines.scenario import Scenario
from chakra.replay.workload.custom import CustomProgram
from chakra.replay.workload.model import Op

#: tags of messages between members, which no trace has: the number of the collective is added
FIRST_TAG = 1 << 62
#: delay of a collective that is run alone: its members then send in the order in which they do after any other delay
ALONE_NS = 1
_NO_NODES = np.zeros(0, np.int64)


class MemberPrograms:
    """Parts of a collective's members, for all communicators on which it has the same messages."""

    def __init__(self, found: Sequence[Lane], members: int) -> None:
        self._found, self._members = found, members
        self._programs = programs_of(found, members)

    @cached_property
    def _role(self) -> dict[tuple[int, int], int]:
        """Number of the role of each pair."""
        made = pair_roles(self._found, self._members)
        ends = zip(made.source.tolist(), made.target.tolist(), strict=True)
        numbers: dict[object, int] = {}
        roles = [numbers.setdefault(role, len(numbers)) for role in made.role]
        return dict(zip(ends, roles, strict=True))

    def of(self, positions: Iterable[int], tag: int) -> tuple[CustomProgram, ...]:
        """Programs of the members at some positions, in a collective whose messages have a tag of their own."""
        mine = (self._programs[k] for k in positions)
        return tuple(replace(one, p2p_tag=one.p2p_tag + tag) for one in mine)

    def roles(self, position: int) -> I64:
        """The role of the pair of each message of a member."""
        program = self._programs[position]
        moved = program.op[program.op != Op.TIMER] == Op.SEND
        partners = program.partner.tolist()
        ends = [
            (position, other) if sent else (other, position)
            for sent, other in zip(moved, partners, strict=True)
        ]
        return np.array([self._role[pair] for pair in ends], np.int64)


def programs_of(found: Sequence[Lane], members: int) -> tuple[CustomProgram, ...]:
    """Each member's part: receives from all lanes, and sends, of which so many in each lane are under way at a time."""
    source = np.concatenate([np.full(len(lane.target), lane.source) for lane in found] or [_NO_NODES])
    target = np.concatenate([lane.target for lane in found] or [_NO_NODES])
    size = np.concatenate([lane.size for lane in found] or [_NO_NODES])
    by_target = np.argsort(target, kind="stable")
    first = np.searchsorted(target[by_target], np.arange(members + 1))
    lanes_of: list[list[Lane]] = [[] for _ in range(members)]
    for lane in found:
        lanes_of[lane.source].append(lane)
    programs = []
    for member in range(members):
        mine = by_target[first[member] : first[member + 1]]
        programs.append(_program(source[mine], size[mine], lanes_of[member]))
    return tuple(programs)


def _program(source: I64, size: I64, own: Sequence[Lane]) -> CustomProgram:
    """One member's receives, then its lanes. A member without messages does nothing, which takes no time."""
    if not len(source) and not own:
        still = np.zeros(1, np.int64)
        return CustomProgram(
            np.full(1, Op.TIMER, np.int64), still, np.zeros(2, np.int64), *(_NO_NODES for _ in range(4))
        )
    receives = len(source)
    lengths = [len(lane.target) for lane in own]
    n = receives + sum(lengths)
    op = np.full(n, Op.RECV, np.int64)
    op[receives:] = Op.SEND
    has_child = np.zeros(n, bool)
    at = receives
    for length in lengths:
        has_child[at : at + max(length - WINDOW, 0)] = True
        at += length
    start = bounds(has_child)
    partner = np.concatenate([source, *(lane.target for lane in own)])
    sizes = np.concatenate([size, *(lane.size for lane in own)])
    children = np.flatnonzero(has_child) + WINDOW
    return CustomProgram(op, np.zeros(n, np.int64), start, children, partner, sizes, np.zeros(n, np.int64))


@dataclass(frozen=True, slots=True)
class Delays:
    """Delays of a run's collectives.

    Attributes
    ----------
    ns
        From the last member's start to a collective's first messages, or to its end if it has none, ns.
    longest
        Of the collectives whose messages alone take longer than the library does: how many, and the largest ratio.
    """

    ns: list[int]
    longest: tuple[int, float] = (0, 1.0)

    def notes(self) -> tuple[str, ...]:
        """What the user should know."""
        count, ratio = self.longest
        if not count:
            return ()
        what = f"{count} of {counted(len(self.ns), 'distinct collective')}, up to {ratio:.2f} times its time"
        return (
            f"the links of this network need longer than the library for {what}: those take what they need",
        )


def delays_of(
    calls: Sequence[LibraryCall],
    scenario: Scenario,
    library: PlacedLibrary,
    run: Callable[[Scenario], RawRun] | None,
) -> Delays:
    """How long a run's collectives wait before they send.

    Parameters
    ----------
    run
        Runs a scenario whose collectives wait `ALONE_NS`; None where messages never meet.
    """
    times = [library.phase_ns(item.phase, item.npus) for item in calls]
    if run is None or not calls:
        return Delays(times)
    places = [item.place(scenario.network) for item in calls]
    number = {place: k for k, place in enumerate(dict.fromkeys(places))}
    distinct = {number[place]: item for place, item in zip(places, calls, strict=True)}
    alone = Alone([distinct[k] for k in range(len(distinct))], scenario)
    found = [time - ALONE_NS for time in alone.times_ns(run(alone.scenario))]
    moving = [found[number[place]] for place in places]
    over = [moved / time for time, moved in zip(times, moving, strict=True) if moved > time]
    delays = [max(time - moved, 0) for time, moved in zip(times, moving, strict=True)]
    return Delays(delays, (len(over), max(over, default=1.0)))
