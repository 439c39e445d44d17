"""Where new ranks go: replicas found as what stays together, and the digit of the rank number along which they lie.

A *position* is one of the recorded replicas (along data parallelism) or one of the recorded shares of the experts. Ranks
that exchange anything over a group that stays (tensor, context, pipeline) are of one position. With K positions a rank is
``low + stride * (position + K * high)``; after rescaling K is larger and everything else is the same.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from chakra.arrays import I32, I64
from chakra.errors import WorkloadError
from chakra.io.limits import MAX_GROUP_MEMBERS
from chakra.io.readable import counted, verb


@dataclass(frozen=True, slots=True)
class Growth:
    """The digit of the rank number that grows.

    Attributes
    ----------
    stride
        Ranks from one position to the next.
    recorded, wanted
        Number of positions before and after.
    """

    stride: int
    recorded: int
    wanted: int

    @property
    def factor(self) -> int:
        """How many times as many positions there are."""
        return self.wanted // self.recorded

    def position(self, ranks: I64) -> I64:
        """Position of recorded ranks."""
        return ranks // self.stride % self.recorded

    def moved(self, ranks: I64, positions: I64 | int) -> I64:
        """New numbers of recorded ranks when they stand at other positions."""
        high = ranks // (self.stride * self.recorded)
        moved: I64 = ranks % self.stride + self.stride * (positions + self.wanted * high)
        return moved

    def origin(self, npus: int) -> I64:
        """(npus,) the recorded rank whose trace each new rank runs."""
        ranks = np.arange(npus, dtype=np.int64)
        position = ranks // self.stride % self.wanted % self.recorded
        high = ranks // (self.stride * self.wanted)
        origin: I64 = ranks % self.stride + self.stride * (position + self.recorded * high)
        return origin


def find_growth(npus: int, wanted: int, links: Sequence[I64], hops: Sequence[int]) -> Growth:
    """Find the positions of a workload.

    Parameters
    ----------
    npus, wanted
        Ranks before and after.
    links
        Sets of ranks that are of one position: rows of groups that stay, and pairs that exchange messages.
    hops
        Distances of the messages, for where the replicas of a single pipeline go: between its stages.

    Raises
    ------
    WorkloadError
        The positions do not lie along one digit of the rank number.
    """
    if wanted < npus or wanted % npus:
        raise WorkloadError(
            f"{counted(wanted, 'rank')} from {npus}: the number must be a multiple of the recorded ranks"
        )
    labels = _components(npus, links)
    count = int(labels.max()) + 1
    if count == 1:
        stride = min((abs(hop) for hop in hops if hop), default=npus)
    else:
        stride = int(np.flatnonzero(labels != labels[0])[0])
    growth = Growth(stride, count, count * (wanted // npus))
    if (growth.position(np.arange(npus)) != labels).any() or npus % (stride * count):
        raise WorkloadError(
            f"the {counted(count, 'replica')} {verb(count, 'does', 'do')} not lie at one stride of the rank number "
            "(the second begins at "
            f"rank {stride}): "
            "name the group that grows with --group"
        )
    return growth


def _components(npus: int, links: Sequence[I64]) -> I64:
    """(npus,) number of each rank's component, numbered by first rank."""
    parent = list(range(npus))

    def find(rank: int) -> int:
        while parent[rank] != rank:
            parent[rank] = parent[parent[rank]]
            rank = parent[rank]
        return rank

    for row in links:
        first = find(int(row[0]))
        for rank in row[1:].tolist():
            other = find(rank)
            if other != first:
                low, high = sorted((first, other))
                parent[high] = first = low
    roots = np.array([find(rank) for rank in range(npus)], dtype=np.int64)
    labels: I64 = np.unique(roots, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return labels


def grows(row: I32, growth: Growth, name: str) -> bool:
    """Whether a group spans all positions (True) or lies in one (False).

    Raises
    ------
    WorkloadError
        It spans some positions only.
    """
    ranks = np.sort(row.astype(np.int64))
    positions = growth.position(ranks)
    if (positions == positions[0]).all():
        return growth.recorded == 1 and len(ranks) == 0
    counts = np.bincount(positions, minlength=growth.recorded)
    if (counts != counts[0]).any():
        raise WorkloadError(
            f"group {name!r} of ranks {', '.join(map(str, row[:8].tolist()))}... spans some of the {growth.recorded} "
            "replicas only: it can neither stay nor grow"
        )
    return True


def grown_tables(groups: Mapping[str, I32], growth: Growth, growing: frozenset[str]) -> dict[str, I32]:
    """Tables of all groups after rescaling: rows of those that grow are longer, those that stay have more rows."""
    tables = {}
    left = MAX_GROUP_MEMBERS
    for name, table in groups.items():
        rows = list(new_rows(table.astype(np.int64), growth, grown=name in growing))
        left -= sum(len(row) for row in rows)
        if left < 0:
            raise WorkloadError(f"groups of more than {MAX_GROUP_MEMBERS} members in all, at group {name!r}")
        rows.sort(key=lambda row: int(row[0]))
        tables[name] = np.array(rows, dtype=np.int32)
    return tables


def new_rows(table: I64, growth: Growth, *, grown: bool) -> Iterator[I64]:
    """Rows of a table after rescaling: longer, or one for each position."""
    for row in table:
        at = growth.position(row)
        blocks = range(0, growth.wanted, growth.recorded)
        if not grown:
            yield from (growth.moved(row, at + block) for block in blocks)
            continue
        longer = np.concatenate([growth.moved(row, at + block) for block in blocks])
        # a ring in the order of ranks stays one; any other order is repeated block by block
        yield np.sort(longer) if (np.diff(row) > 0).all() else longer
