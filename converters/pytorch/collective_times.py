"""How long the collectives of a job took: from the start of the last member to the end of the last member.

Until the last member starts, the others wait, which is no time of the collective. So recordings of all members are
needed, on one clock, and what cannot be measured is left out and said.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from chakra.arrays import I64
from chakra.converters.pytorch.all_ranks.agreement import RankPart, rank_part
from chakra.converters.pytorch.all_ranks.clocks import Clocks, compare_clocks
from chakra.converters.pytorch.all_ranks.shared_devices import DeviceUse, device_use, neighbours, sharing
from chakra.converters.pytorch.comm.group_numbers import WORLD, GroupNumbers
from chakra.converters.pytorch.job import Inputs, Settings, read_and_link
from chakra.converters.pytorch.read.repeated import repeated_ids
from chakra.errors import ConversionError
from chakra.et import CommType
from chakra.io.readable import counted

#: how exactly a time must be known, as a share of it, where clocks were aligned
_EXACT = 0.1


@dataclass(frozen=True, slots=True)
class CollectiveTime:
    """A collective of a job, as its members recorded it.

    Attributes
    ----------
    kind
        Which collective.
    members
        Number of members.
    size_bytes
        What a member brings in, bytes.
    times_ns
        Time of each recorded instance, ns, in the order of the recording.
    where
        The group and its first instance, in words.
    """

    kind: CommType
    members: int
    size_bytes: int
    times_ns: tuple[int, ...]
    where: str

    @property
    def median_us(self) -> float:
        """Median of the times, us."""
        return float(np.median(self.times_ns)) / 1e3


@dataclass(slots=True)
class JobTimes:
    """Collectives of a job, and what was left out, in words."""

    collectives: list[CollectiveTime] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def collective_times(inputs: list[Inputs], told: Callable[[str], None] | None = None) -> JobTimes:
    """Times of a job's collectives.

    Parameters
    ----------
    inputs
        Recordings of all ranks.
    told
        Called with a line when a rank has been read.

    Raises
    ------
    ConversionError
        Ranks share an accelerator, recordings are of different jobs or have no clock, or no collective can be measured.
    """
    parts: list[RankPart] = []
    uses: list[DeviceUse] = []
    twice: list[str] = []
    for item in inputs:
        linked, rank = read_and_link(item, Settings())
        twice += repeated_ids(linked.device)
        parts.append(rank_part(linked, rank))
        uses.append(device_use(linked, rank))
        if told:
            told(f"read rank {rank}")
    parts.sort(key=lambda part: part.rank)
    names = [name for part in parts for name in part.used_groups]
    table = GroupNumbers([(part.source, part.groups) for part in parts], names)
    clocks = compare_clocks(parts, table)
    where = Path(parts[0].source).name + (f" and {len(parts) - 1} more" if len(parts) > 1 else "")
    job = JobTimes(notes=[*twice, *clocks.notes])
    groups = _groups(parts, table)
    _refuse_shared(where, groups, uses, clocks)
    expected = {WORLD: tuple(range(table.world))} | table.listed()
    for group, members in sorted(groups.items()):
        job.collectives += _group_times(group, members, set(expected.get(group, ())), clocks, job.notes)
    if not job.collectives:
        raise ConversionError(
            f"{where}: no collective that can be measured" + "".join(f"; {note}" for note in job.notes[:3])
        )
    return job


@dataclass(slots=True)
class _Member:
    """A rank's collectives in one group: kind, bytes and time of each, and when other work of a library ran."""

    rank: int
    #: begins and ends of all its collectives that a device ran, whatever the group, each in order
    begins: I64
    ends: I64
    calls: list[tuple[int, int, int, int]] = field(default_factory=list)

    def running(self, begin: int, end: int) -> int:
        """How many of its collectives ran at some time between."""
        started = np.searchsorted(self.begins, end, "left")
        return int(started - np.searchsorted(self.ends, begin, "right"))


def _groups(parts: list[RankPart], table: GroupNumbers) -> dict[str, list[_Member]]:
    groups: dict[str, dict[int, _Member]] = defaultdict(dict)
    for part in parts:
        times = part.times or [(0, -1)] * len(part.collectives)
        ran: I64 = np.array([time for time in times if time[1] >= 0], np.int64).reshape(-1, 2)
        begins, ends = np.sort(ran[:, 0]), np.sort(ran[:, 1])
        for (group, kind, size, _), (begin, end) in zip(part.collectives, times, strict=True):
            member = groups[table.id_of(group)].setdefault(part.rank, _Member(part.rank, begins, ends))
            member.calls.append((kind, size, begin, end))
    return {group: list(members.values()) for group, members in groups.items()}


def _refuse_shared(
    where: str, groups: dict[str, list[_Member]], uses: list[DeviceUse], clocks: Clocks
) -> None:
    # clocks that differ are those of several hosts, which share nothing
    alike = [use for use in uses if not clocks.ahead_ns.get(use.rank, 0)]
    together = [pair for group in groups.values() for pair in neighbours(member.rank for member in group)]
    # a job without collectives that could be measured is looked at as a whole, so that the reason is told
    ranks = sharing(alike, together or neighbours(use.rank for use in alike))
    if ranks:
        raise ConversionError(
            f"{where}: ranks {', '.join(map(str, ranks))} share a GPU: their kernels take turns on one device and never "
            "run side by side, so their collectives took no time that a network or library would; record a GPU a rank"
        )


def _group_times(
    group: str, members: list[_Member], expected: set[int], clocks: Clocks, notes: list[str]
) -> list[CollectiveTime]:
    """Times of the collectives of one group of which these members are expected; what stands against it is noted."""
    ranks = [member.rank for member in members]
    reason = None
    if expected and not expected <= set(ranks):
        reason = f"recordings of {len(ranks)} of its {counted(len(expected), 'member')}"
    elif len(ranks) < 2:
        reason = "one member only"
    elif any(end < 0 for member in members for _, _, _, end in member.calls):
        reason = "a recording without a clock, or collectives that ran on no device"
    elif len({len(member.calls) for member in members}) > 1:
        reason = "its members recorded unequal numbers of collectives"
    elif set(ranks) & clocks.unfit or not set(ranks) <= clocks.ahead_ns.keys():
        reason = "clocks of its members fit no common difference"
    if reason:
        notes.append(f"group {group}: left out: {reason}")
        return []
    found: dict[tuple[int, int], list[int]] = defaultdict(list)
    left: dict[str, int] = defaultdict(int)
    for number in range(len(members[0].calls)):
        made = _one(members, number, clocks)
        if isinstance(made, str):
            left[made] += 1
        else:
            found[made[:2]].append(made[2])
    notes += [
        f"group {group}: {counted(count, 'collective')} left out: {why}"
        for why, count in sorted(left.items())
    ]
    return [
        CollectiveTime(
            CommType(kind), len(members), size, tuple(times), f"group {group}, {len(times)} recorded"
        )
        for (kind, size), times in sorted(found.items())
    ]


def _one(members: list[_Member], number: int, clocks: Clocks) -> tuple[int, int, int] | str:
    """Kind, bytes and time (ns) of a group's collective; a text says why it cannot be measured."""
    calls = [member.calls[number] for member in members]
    if len({kind for kind, _, _, _ in calls}) > 1:
        return "members recorded different collectives"
    if len({size for _, size, _, _ in calls}) > 1:
        return "members have unequal shares"
    if not calls[0][1]:
        return "no bytes, or none recorded"
    ahead = [clocks.ahead_ns[member.rank] for member in members]
    begin = max(call[2] - offset for call, offset in zip(calls, ahead, strict=True))
    ends = [call[3] - offset for call, offset in zip(calls, ahead, strict=True)]
    last = max(ends)
    time = last - begin
    if min(ends) <= begin:
        return "a member ended before another had begun"
    if max(clocks.within_ns.get(member.rank, 0) for member in members) > _EXACT * time:
        return "clocks of its members are known too inexactly for so short a time"
    for member, call, offset in zip(members, calls, ahead, strict=True):
        beside = member.running(begin + offset, last + offset)
        if beside > 1 or not call[3] > call[2]:
            return "another collective of a member ran beside it"
    return calls[0][0], calls[0][1], time
