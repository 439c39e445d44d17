"""Arrows between ranks: a send to its receive, the last rank to reach a collective to those that waited for
it."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Matcher:
    """Collects communication slices in issue order, rank by rank, and pairs them.

    Collectives are matched as a replay does: the k-th of a group on one rank belongs to the k-th of it on the
    others.
    """

    _sends: dict[tuple[int, int, int], list[int]] = field(default_factory=lambda: defaultdict(list))
    _receives: dict[tuple[int, int, int], list[int]] = field(default_factory=lambda: defaultdict(list))
    _collectives: dict[tuple[str, int], list[tuple[int, int]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    _seen: dict[tuple[int, str], int] = field(default_factory=lambda: defaultdict(int))

    def send(self, number: int, source: int, target: int, tag: int) -> None:
        """Slice ``number`` sends from rank ``source`` to ``target``."""
        self._sends[source, target, tag].append(number)

    def receive(self, number: int, source: int, target: int, tag: int) -> None:
        """Slice ``number`` receives on rank ``target`` from ``source``."""
        self._receives[source, target, tag].append(number)

    def collective(self, number: int, rank: int, group: str, start_ns: int) -> None:
        """Slice ``number`` is this rank's next collective of ``group``."""
        turn = self._seen[rank, group]
        self._seen[rank, group] = turn + 1
        self._collectives[group, turn].append((start_ns, number))

    def flows(self) -> list[tuple[int, int]]:
        """Pairs of slices (from, to)."""
        pairs: list[tuple[int, int]] = []
        for key, sent in self._sends.items():
            pairs.extend(zip(sent, self._receives.get(key, ()), strict=False))
        for parts in self._collectives.values():
            last = max(parts)
            pairs.extend((last[1], number) for start, number in parts if (start, number) != last)
        return pairs


def collective_keys(names_by_rank: Sequence[Sequence[str]]) -> bool:
    """Whether collectives can be matched by their turn although no group is known: all ranks list the same
    names."""
    return len({tuple(names) for names in names_by_rank}) == 1
