"""What the ranks of a job must agree on: collectives in the same order, every message received."""

from collections import defaultdict
from dataclasses import dataclass, field

from chakra.converters.pytorch.all_ranks.device_turns import Occupied
from chakra.converters.pytorch.all_ranks.job_replay import RankGraph
from chakra.converters.pytorch.comm.group_numbers import WORLD, GroupNumbers
from chakra.converters.pytorch.comm.operations import ProcessGroups
from chakra.converters.pytorch.link import Linked
from chakra.converters.pytorch.read.split_sizes import EQUAL, Shares
from chakra.converters.pytorch.write.link_summary import summarize
from chakra.et import CommType, NodeType
from chakra.et.same_collective import Differs, Side, agree
from chakra.io.rank_files import missing_ranks
from chakra.io.readable import counted

#: kinds in which each rank's record has its own share only: of what goes in, and of what comes out
_GATHERS, _SCATTERS = (CommType.ALL_GATHER,), (CommType.REDUCE_SCATTER, CommType.SCATTER)


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
    shares: list[Shares] = field(default_factory=list)
    """Shares of each of ``collectives``; empty if all are equal."""
    graph: RankGraph | None = None
    """For a replay of all ranks together, where asked for."""
    occupied: Occupied | None = None
    """When it occupies its accelerators, in a job of several ranks with clocks."""


def rank_part(linked: Linked, rank: int, parked: str = "") -> RankPart:
    """What the other ranks need to know of a linked rank; ``parked`` is where the rank itself lies."""
    collectives, peers, times, shares = [], [], [], []
    gpu, clock = linked.device.device, linked.device.first_ns
    for i in sorted(linked.graph.comm):
        comm = linked.graph.comm[i]
        if comm.kind == NodeType.COMM_COLL:
            collectives.append((comm.group, comm.comm_type, comm.size, int(linked.graph.duration[i])))
            shares.append(comm.shares)
            row = int(linked.graph.device_row[i])
            times.append((clock + int(linked.graph.start[i]), clock + int(gpu.end[row]) if row >= 0 else -1))
        else:
            ends = (rank, comm.peer) if comm.kind == NodeType.COMM_SEND else (comm.peer, rank)
            peers.append((comm.group, *ends, comm.size))
    return RankPart(
        rank, linked.groups, [c.group for c in linked.graph.comm.values()], collectives, peers,
        summarize(linked, rank), parked, linked.device.source,
        times if clock else [], shares,
    )  # fmt: skip


def lacking(parts: list[RankPart], table: GroupNumbers) -> tuple[list[int], str]:
    """Ranks of the recorded job, by the size that the recordings give it, that no trace is of, and a warning that names
    them.
    """
    here = {part.rank: "" for part in parts}
    ranks = sorted(set(range(table.world)) - set(here))
    count, shown = missing_ranks(here, table.world)
    said = (
        f"the recorded job has {counted(table.world, 'rank')}, of which {count} have no trace here: {shown}; "
    )
    # what --replicate can do: the first ranks, block by block
    first = sorted(here) == list(range(len(here))) and table.world % max(len(here), 1) == 0
    if first:
        return ranks, (
            f"{said}a replay of these traces alone is a smaller job (--replicate on a machine of all ranks repeats them)"
        )
    gap = next(n for n in range(len(here) + 1) if n not in here)
    whole = next((n for n in range(gap, 0, -1) if table.world % n == 0), 0)
    return ranks, f"{said}a replay needs a trace of each rank" + (
        f", or those of the first {counted(whole, 'rank')} alone (--replicate on a machine of all ranks repeats them)"
        if whole
        else ", or those of the first ones alone, with --replicate on a machine of all ranks"
    )


def fill_members(parts: list[RankPart]) -> list[str]:
    """Give groups whose members no recording lists the ranks that use them, if they are as many as the group is large.

    Returns a warning for each group that stays without.
    """
    known = {name for part in parts for name, ranks in part.groups.ranks.items() if ranks}
    users: dict[str, set[int]] = defaultdict(set)
    sizes: dict[str, int] = {}
    world = max((part.groups.world for part in parts), default=0)
    for part in parts:
        for name in set(part.used_groups) - known - {"", WORLD}:
            users[name].add(part.rank)
            sizes[name] = max(sizes.get(name, 0), part.groups.sizes.get(name, 0))
    by_rank = {part.rank: part for part in parts}
    out = []
    for name, ranks in sorted(users.items()):
        members = tuple(range(world)) if 0 < sizes[name] == world else tuple(sorted(ranks))
        if len(members) == sizes[name]:
            for rank in by_rank.keys() & set(members):
                by_rank[rank].groups.add(name, members)
            continue
        said = f"{counted(sizes[name], 'rank')}" if sizes[name] else "an unknown number of ranks"
        out.append(
            f"group {name!r} of {said}: no recording lists its members, and it is used by rank"
            f"{'s' * (len(ranks) > 1)} {', '.join(map(str, sorted(ranks)[:8]))}{', ...' * (len(ranks) > 8)}; "
            "add them to the group file"
        )
    return out


def cross_check(parts: list[RankPart], table: GroupNumbers) -> list[str]:
    """Same number, kind, size and order of collectives of each group on all its members; every send
    received.
    """
    ranks = {part.rank for part in parts}
    out: list[str] = []
    sequences: dict[str, dict[int, list[Side]]] = defaultdict(dict)
    for part in parts:
        shares = part.shares or [EQUAL] * len(part.collectives)
        for (group, kind, size, _), share in zip(part.collectives, shares, strict=True):
            side = Side(CommType(kind), size, share.in_split, share.out_split)
            sequences[table.id_of(group)].setdefault(part.rank, []).append(side)
    members_of = table.listed()
    for group, by_rank in sorted(sequences.items()):
        everybody = members_of.get(group) or tuple(range(table.world)) or sorted(ranks)
        members = [r for r in everybody if r in ranks]
        out += _compare(group, members, by_rank, whole=len(members) == len(everybody))
    sent: dict[tuple[str, int, int], list[int]] = defaultdict(list)
    received: dict[tuple[str, int, int], list[int]] = defaultdict(list)
    for part in parts:
        for group, source, target, size in part.peers:
            (sent if source == part.rank else received)[table.id_of(group), source, target].append(size)
    for key in sorted(set(sent) | set(received)):
        group, source, target = key
        if source in ranks and target in ranks and sent.get(key, []) != received.get(key, []):
            out.append(
                f"group {group}: rank {source} sends {counted(len(sent.get(key, [])), 'message')} to rank {target}, "
                "which receives "
                f"{len(received.get(key, []))}, or their sizes differ"
            )
    return out


def _compare(group: str, members: list[int], by_rank: dict[int, list[Side]], *, whole: bool) -> list[str]:
    """Members that run another number of collectives than the first one, and the first collective that is not one.

    Where traces of members are missing, split sizes cannot be compared: they name all members.
    """
    out: list[str] = []
    if not members:
        return out
    count = len(by_rank.get(members[0], []))
    for rank in members[1:]:
        own = len(by_rank.get(rank, []))
        if own != count:
            out.append(
                f"group {group}: {counted(count, 'collective')} on rank {members[0]}, {own} on rank {rank}"
            )
    if out:
        return out
    for i in range(count):
        sides = [by_rank[rank][i] for rank in members]
        if not whole and any(side.in_split or side.out_split for side in sides):
            continue
        found = agree(sides)
        if isinstance(found, Differs):
            a, b = sides[found.one], sides[found.other]
            text = (
                f"group {group}: collective {i} is {a.kind.name} of {a.size_bytes:,} bytes on rank "
                f"{members[found.one]}, {b.kind.name} of {b.size_bytes:,} bytes on rank {members[found.other]}: "
                f"{found.why}"
            )
            return [text]
    return out


def put_shares_together(parts: list[RankPart], table: GroupNumbers) -> None:
    """Give every rank the shares that only all members of a group know together.

    An all-gather is uneven if members bring in different sizes, and each takes out the sum of them; a reduce-scatter or
    scatter if they take different sizes out.
    """
    places: dict[tuple[str, int], dict[int, int]] = defaultdict(dict)  # (group, number) -> rank -> place
    by_rank = {part.rank: part for part in parts}
    for part in parts:
        count: dict[str, int] = defaultdict(int)
        for place, (group, kind, _, _) in enumerate(part.collectives):
            number = table.id_of(group)
            if part.shares and kind in _GATHERS + _SCATTERS:
                places[number, count[number]][part.rank] = place
            count[number] += 1
    members_of = table.listed()
    for (group, _), place_of in places.items():
        members = members_of.get(group) or tuple(range(table.world))
        if set(members) != set(place_of) or len(members) < 2:
            continue
        said = [(by_rank[r].collectives[place_of[r]], by_rank[r].shares[place_of[r]]) for r in members]
        found = _together([(kind, size, share.out_size) for (_, kind, size, _), share in said])
        for rank in members if found is not None else ():
            by_rank[rank].shares[place_of[rank]] = found or EQUAL


def _together(said: list[tuple[int, int, int]]) -> Shares | None:
    """Shares of a collective from its members' kinds, sizes and outputs; None if they are equal or do not add up."""
    kinds, sizes, taken = zip(*said, strict=True)
    if len(set(kinds)) > 1:
        return None
    if kinds[0] in _GATHERS:
        if len(set(sizes)) == 1 or any(size != sum(sizes) for size in taken):
            return None
        return Shares(out_split=tuple(sizes))
    if len(set(taken)) == 1 or min(taken) < 0 or sum(taken) != max(sizes):
        return None
    return Shares(in_split=tuple(taken))


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
