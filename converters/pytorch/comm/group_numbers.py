"""Numbers for process groups, the same on every rank, and the group file of the simulator (rule R-COMM 3)."""

from collections.abc import Iterable
from copy import copy
from pathlib import Path

from chakra.converters.pytorch.comm.operations import ProcessGroups
from chakra.errors import ConversionError
from chakra.io.digits import is_whole, whole_number
from chakra.io.documents import document_text
from chakra.io.files import atomic_text

#: The simulator's name of the group of all ranks.
WORLD = "0"


class GroupNumbers:
    """Decimal group ids for the groups of all ranks of a job.

    A decimal name is kept. The default group (all ranks, named ``0``) keeps ``0``. Other names (hashes,
    ``mesh_tp``) get the next free numbers, ordered by member list, then name, so that every rank numbers
    them alike.

    Raises
    ------
    ConversionError
        Ranks disagree about a group's members.
    """

    def __init__(
        self, groups: Iterable[tuple[str, ProcessGroups]], used: Iterable[str] | None = None
    ) -> None:
        members: dict[str, tuple[int, ...]] = {}
        said_by: dict[str, str] = {}
        world = 0
        for source, table in groups:
            world = max(world, table.world)
            for name, ranks in table.ranks.items():
                if not ranks:
                    members.setdefault(name, ())
                elif members.get(name) and members[name] != ranks:
                    raise ConversionError(
                        f"{source}: group {name!r} has ranks {list(ranks)}, but {list(members[name])} in "
                        f"{said_by[name]}; the traces are of different jobs"
                    )
                else:
                    members[name] = ranks
                    said_by[name] = source
        for name in used or ():
            members.setdefault(name, ())
        self.world = world
        self.members = members
        self.ids: dict[str, str] = {}
        self._number()

    def _number(self) -> None:
        everyone = tuple(range(self.world))
        taken: set[int] = {0}
        rest = []
        for name, ranks in sorted(self.members.items(), key=lambda item: (item[1], item[0])):
            if name in ("", WORLD) and (not ranks or ranks == everyone or not self.world):
                self.ids[name] = WORLD
            elif is_whole(name, 10) and str(whole_number(name)) == name and 0 < whole_number(name) < 1 << 31:
                self.ids[name] = name
                taken.add(whole_number(name))
            else:
                rest.append(name)
        number = 0
        for name in rest:
            number += 1
            while number in taken:
                number += 1
            taken.add(number)
            self.ids[name] = str(number)

    def id_of(self, name: str) -> str:
        """Decimal id of a group."""
        return self.ids.get(name, WORLD)

    def listed(self) -> dict[str, tuple[int, ...]]:
        """Members by decimal id, of the groups whose members a recording lists."""
        return {self.id_of(name): members for name, members in self.members.items() if members}

    def only(self, names: Iterable[str]) -> "GroupNumbers":
        """The same numbers, of groups of these names alone: what one rank needs of a job's."""
        out = copy(self)
        wanted = self.ids.keys() & set(names)
        out.ids = {name: self.ids[name] for name in wanted}
        out.members = {name: self.members[name] for name in wanted}
        return out

    def file_content(self, used: Iterable[str]) -> dict[str, list[int]]:
        """The group file: members of every group that has a number of its own and known members."""
        wanted = {self.id_of(name) for name in used}
        out = {
            number: list(self.members[name])
            for name, number in self.ids.items()
            if number != WORLD and self.members[name] and (number in wanted or len(self.members[name]) > 1)
        }
        return dict(sorted(out.items(), key=lambda item: whole_number(item[0])))


def write_groups(path: str | Path, content: dict[str, list[int]]) -> None:
    """Write the group file of the simulator."""
    with atomic_text(path) as file:
        file.write(document_text(content) + "\n")
