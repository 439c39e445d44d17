"""Networks between machines in which no switch is above another: a torus of machines, and a dragonfly."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import ceil, prod

from chakra.errors import UsageError
from chakra.io.readable import counted


@dataclass(frozen=True, slots=True)
class Torus:
    """Machines in a torus: an NPU's port is split among links to those of its place in neighbouring machines.

    Attributes
    ----------
    sides
        Machines along each dimension, the first varying fastest.
    """

    sides: tuple[int, ...]

    def __post_init__(self) -> None:
        if any(side < 1 for side in self.sides) or self.links_each == 0:
            raise UsageError(
                f"a torus of {self.words}: sides are whole numbers from 1 on, and one is above 1"
            )

    @property
    def words(self) -> str:
        """The sides as they are asked for."""
        return "x".join(map(str, self.sides))

    @property
    def machines(self) -> int:
        """How many there are."""
        return prod(self.sides)

    @property
    def links_each(self) -> int:
        """Links of an NPU: two along each dimension, one where the neighbours on both sides are the same."""
        return sum(min(side - 1, 2) for side in self.sides)

    def links(self, places: Sequence[int], each: int) -> Iterator[tuple[int, int, float]]:
        """Two NPUs, and the part of a port that is between them.

        Parameters
        ----------
        places
            Where each machine lies, along the first side first.
        each
            NPUs of a machine.
        """
        machine = {place: number for number, place in enumerate(places)}
        stride = 1
        for side in self.sides:
            for place in range(self.machines):
                at = place // stride % side
                if side == 1 or (side == 2 and at == 1):
                    continue
                beside = place + stride * ((at + 1) % side - at)
                for k in range(each):
                    yield (
                        machine[place] * each + k, machine[beside] * each + k, 1 / self.links_each
                    )  # fmt: skip
            stride *= side


@dataclass(frozen=True, slots=True)
class Dragonfly:
    """Routers in groups: all of a group are joined, and every two groups by equally many cables.

    Balanced as Kim, Dally, Scott and Abts have it (Technology-driven, highly-scalable dragonfly topology, ISCA 2008): of
    a router with 4 p - 1 ports p lead to NPUs, p to other groups, and 2 p - 1 to the others of a group of 2 p.

    Attributes
    ----------
    ports
        Ports of a router.
    machines
        Machines that the network joins.
    each
        NPUs, and so interfaces, of a machine, which are at one router.
    """

    ports: int
    machines: int
    each: int

    def __post_init__(self) -> None:
        if self.block < 1:
            raise UsageError(
                f"dragonfly of {counted(self.ports, 'port')}: {self.down} of a router's lead to NPUs, which is no room "
                f"for the {counted(self.each, 'interface')} of a machine"
            )
        most = (2 * self.down * self.down + 1) * 2 * self.down * self.block
        if self.machines > most:
            raise UsageError(
                f"dragonfly of {counted(self.ports, 'port')}: {counted(self.machines, 'machine')}, but at most {most} "
                "can be joined"
            )

    @property
    def down(self) -> int:
        """Ports of a router that lead to NPUs, and as many to other groups."""
        return (self.ports + 1) // 4

    @property
    def block(self) -> int:
        """Machines at a router."""
        return self.down // self.each

    @property
    def groups(self) -> int:
        """Groups of routers."""
        return ceil(self.machines / (self.block * 2 * self.down))

    @property
    def routers(self) -> int:
        """Routers of a group: as many as machines need where there is only one."""
        return 2 * self.down if self.groups > 1 else ceil(self.machines / self.block)

    @property
    def between(self) -> int:
        """Cables between every two groups: as many as there are ports for."""
        return 2 * self.down * self.down // (self.groups - 1) if self.groups > 1 else 0

    @property
    def cables(self) -> int:
        """Cables between routers."""
        inside = self.groups * self.routers * (self.routers - 1) // 2
        return inside + self.between * self.groups * (self.groups - 1) // 2

    @property
    def joins(self) -> int:
        """Pairs of routers with a cable: those between two groups lie at the routers of both in turn."""
        inside = self.groups * self.routers * (self.routers - 1) // 2
        return inside + min(self.between, self.routers) * self.groups * (self.groups - 1) // 2

    def router(self, number: int) -> str:
        """Name of one of all routers."""
        return f"group{number // self.routers}.router{number % self.routers}"

    def links(self) -> Iterator[tuple[str, str, int]]:
        """Two routers, and how many cables are between them."""
        for group in range(self.groups):
            first = group * self.routers
            for a, b in combinations(range(first, first + self.routers), 2):
                yield self.router(a), self.router(b), 1
        for one, other in combinations(range(self.groups), 2):
            wires = Counter(
                (self._port(one, other, wire), self._port(other, one, wire)) for wire in range(self.between)
            )
            for (a, b), cables in wires.items():
                yield self.router(a), self.router(b), cables

    def _port(self, group: int, other: int, wire: int) -> int:
        """Router of a group at which a cable to another one ends: its cables lie at its routers in turn."""
        number = (other - (other > group)) * self.between + wire
        return group * self.routers + number % self.routers
