"""What the ranks of a job must agree on: collectives in the same order, every message received."""

from collections import defaultdict
from dataclasses import dataclass, field

from chakra.converters.pytorch.comm.group_numbers import GroupNumbers
from chakra.converters.pytorch.comm.operations import ProcessGroups
from chakra.et import CommType

#: Collectives whose size may differ between members, since a root has more than the others.
_ROOTED = frozenset((CommType.GATHER, CommType.SCATTER, CommType.BROADCAST))
#: Collectives whose members may have unequal shares, which no node of a trace can say yet: a replay refuses them.
_SHARED = frozenset((CommType.ALL_GATHER, CommType.ALL_TO_ALL))


@dataclass(slots=True)
class RankPart:
    """What a worker tells about its rank after linking; the linked trace itself lies in ``parked``."""

    rank: int
    groups: ProcessGroups
    used_groups: list[str]
    collectives: list[tuple[str, int, int, int]]
    """(group, comm_type or -1 send / -2 recv, bytes, duration in ns) in time order."""
    peers: list[tuple[str, int, int, int]]
    """(group, source, target, bytes) of point-to-point transfers in time order."""
    summary: dict[str, object]
    parked: str
    source: str
    times: list[tuple[int, int]] = field(default_factory=list)
    """Begin and end (ns since 1970) of each of ``collectives``; the end is -1 where no device did it.
    Empty without a clock.
    """


def cross_check(parts: list[RankPart], table: GroupNumbers) -> list[str]:
    """Same number, kind, size and order of collectives of each group on all its members; every send
    received.
    """
    ranks = {part.rank for part in parts}
    out: list[str] = []
    sequences: dict[str, dict[int, list[tuple[int, int]]]] = defaultdict(dict)
    for part in parts:
        for group, kind, size, _ in part.collectives:
            sequences[table.id_of(group)].setdefault(part.rank, []).append((kind, size))
    members_of = {table.id_of(name): members for name, members in table.members.items()}
    for group, by_rank in sorted(sequences.items()):
        members = [r for r in (members_of.get(group) or sorted(ranks)) if r in ranks]
        out += _compare(group, members, by_rank)
    sent: dict[tuple[str, int, int], list[int]] = defaultdict(list)
    received: dict[tuple[str, int, int], list[int]] = defaultdict(list)
    for part in parts:
        for group, source, target, size in part.peers:
            (sent if source == part.rank else received)[table.id_of(group), source, target].append(size)
    for key in sorted(set(sent) | set(received)):
        group, source, target = key
        if source in ranks and target in ranks and sent.get(key, []) != received.get(key, []):
            out.append(
                f"group {group}: rank {source} sends {len(sent.get(key, []))} messages to rank {target}, which receives "
                f"{len(received.get(key, []))}, or their sizes differ"
            )
    return out


def _compare(group: str, members: list[int], by_rank: dict[int, list[tuple[int, int]]]) -> list[str]:
    """First difference of each member from the first one; root-dependent sizes (scatter, gather) may
    differ.
    """
    out: list[str] = []
    if not members:
        return out
    first = by_rank.get(members[0], [])
    for rank in members[1:]:
        own = by_rank.get(rank, [])
        if len(own) != len(first):
            out.append(
                f"group {group}: {len(first)} collectives on rank {members[0]}, {len(own)} on rank {rank}"
            )
            continue
        for i, (a, b) in enumerate(zip(first, own, strict=True)):
            if a[0] == b[0] and a[0] in _ROOTED:
                continue
            if a != b and a[0] == b[0] and a[0] in _SHARED:
                out.append(
                    f"group {group}: collective {i}, {CommType(a[0]).name}, has unequal shares: {a[1]:,} bytes on rank "
                    f"{members[0]}, {b[1]:,} on rank {rank}; a replay refuses it"
                )
                break
            if a != b:
                out.append(
                    f"group {group}: collective {i} is kind {a[0]} of {a[1]} bytes on rank {members[0]}, "
                    f"kind {b[0]} of {b[1]} bytes on rank {rank}"
                )
                break
    return out


def shortest_durations(parts: list[RankPart], table: GroupNumbers) -> dict[int, list[int]]:
    """Per rank, durations of its collectives: the shortest that any member recorded for the same one."""
    best: dict[tuple[str, int], int] = {}
    keys: dict[int, list[tuple[str, int]]] = {}
    for part in parts:
        ordinal: dict[str, int] = defaultdict(int)
        own = []
        for group, _, _, duration in part.collectives:
            number = table.id_of(group)
            key = (number, ordinal[number])
            ordinal[number] += 1
            own.append(key)
            best[key] = min(best.get(key, duration), duration)
        keys[part.rank] = own
    return {rank: [best[key] for key in own] for rank, own in keys.items()}
