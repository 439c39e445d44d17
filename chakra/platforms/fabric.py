"""Scale-out networks switch by switch, of switches with so many ports, as links of a network file; and tori of machines.

Building blocks cannot tell a fat tree from rails: both are a switch between the NPUs of equal place. Here the machine's
inner network, its network interfaces and every switch are vertices.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from math import ceil
from typing import Any

from chakra.arguments import check_fields
from chakra.errors import UsageError
from chakra.io.readable import counted, verb
from chakra.platforms.direct import Dragonfly, Torus
from chakra.replay.config.model import Topology

#: Gb/s of a GB/s of 2^30 B/s
_GBPS = 8 * 2**30 / 1e9
#: a link of a network file: two ends, GB/s of 2^30 B/s per direction, ns
LinkRow = list[Any]


class Shape(StrEnum):
    """How the network interfaces of all machines are joined."""

    FAT_TREE = "fat tree"
    RAILS = "rails"
    RAIL_ONLY = "rail-only"
    DRAGONFLY = "dragonfly"
    TORUS = "torus"


#: shapes in which no switch is above another
_DIRECT = (Shape.DRAGONFLY, Shape.TORUS)


@dataclass(frozen=True, slots=True)
class Inside:
    """One dimension inside a machine.

    Attributes
    ----------
    topology
        How the positions are joined.
    npus
        Positions.
    bandwidth_gibps
        GB/s of 2^30 B/s per direction: of an NPU at a switch, of a link on rings and full meshes.
    latency_ns
        Latency of a link, ns.
    """

    topology: Topology
    npus: int
    bandwidth_gibps: float
    latency_ns: float


@dataclass(frozen=True, slots=True)
class Fabric:
    """A scale-out network of equal switches, or without any.

    Attributes
    ----------
    shape
        How machines are joined.
    ports
        Ports of a switch, each of the rate of an NPU's network interface; of a torus, links of an NPU.
    oversubscription
        Bandwidth down over bandwidth up, at the uppermost switches that have both: of leaves that of the interfaces of a
        full one.
    spread
        Whether neighbouring machines lie at different leaf switches, as a busy cluster places jobs.
    rack
        With `spread`: so many neighbouring machines at a leaf switch, then as many at the next.
    within
        Machines that the fabric joins, where the job has some of them; None: it has all.
    places
        Where the job's machines lie among these, from 0 on, in the order of its ranks; empty: as `spread` says.
    spray
        Whether flows use all equal paths at once; else a hash picks one. Matters on `--backend flow`.
    sides
        Of a torus: machines along each dimension, the first varying fastest.
    """

    shape: Shape
    ports: int
    oversubscription: float = 1.0
    spread: bool = False
    spray: bool = False
    rack: int = 1
    within: int | None = None
    places: tuple[int, ...] = ()
    sides: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_fields(self)
        if self.shape is Shape.TORUS:
            self._check_torus()
        elif self.ports < 2:
            raise UsageError(f"{self.shape} of {counted(self.ports, 'port')}: a switch has at least 2")
        if self.oversubscription < 1:
            raise UsageError(f"oversubscription must be at least 1, not {self.oversubscription:g}")
        if self.rack < 1:
            raise UsageError(f"a rack has at least 1 machine, not {self.rack}")
        if self.oversubscription > 1 and self.shape in _DIRECT:
            raise UsageError(
                f"{self.shape}: no switch is above another, so that nothing can be oversubscribed"
            )
        place, times = max(Counter(self.places).items(), key=lambda item: item[1], default=(0, 0))
        if times > 1:
            raise UsageError(f"two machines at place {place}")

    def network(
        self, inside: Sequence[Inside], machines: int, *, rate_gibps: float, latency_ns: float
    ) -> dict[str, Any]:
        """The network file of that many machines, link by link.

        Parameters
        ----------
        inside
            Dimensions of a machine, the first varying fastest.
        machines
            Machines; NPU n is in machine n // (NPUs of a machine).
        rate_gibps
            Of a network interface, and of every port, GB/s of 2^30 B/s.
        latency_ns
            Of a link outside machines, ns.

        Raises
        ------
        UsageError
            More machines than such switches can join, or than there are places; more NPUs or links than a list of links
            has.
        """
        from chakra.replay.networks.builders import within_links, within_npus

        self._check_places(machines)
        each = 1
        for dim in inside:
            each *= dim.npus
        within_npus(machines * each)
        switches, cables = self.built_of(machines, each)
        within_links(self._links_outside(machines, each))
        links: list[LinkRow] = []
        for machine in range(machines):
            links += _machine_links(inside, machine, each)
        links += [
            [*ends, rate_gibps * times, latency_ns] for *ends, times in self._outside_links(machines, each)
        ]
        document: dict[str, Any] = {
            "npus_count": [*(dim.npus for dim in inside), machines],
            "links": links,
            "npus_forward": self.shape in (Shape.RAIL_ONLY, Shape.TORUS) or _led_through_npus(inside),
        }
        if self.shape is not Shape.RAIL_ONLY and sum(map(_longest_way, inside)) >= self._way_around:
            document["routing"] = "inside"
        if self.spray:
            document["ecmp"] = "spray"
        rate = rate_gibps / (self.ports if self.shape is Shape.TORUS else 1)
        document["built_of"] = {
            "switches": switches, "cables": cables, "ports": self.ports, "port_gbps": round(rate * _GBPS, 3),
        }  # fmt: skip
        return document

    @property
    def machines(self) -> int | None:
        """Machines that the words themselves count, as those for a torus do."""
        return Torus(self.sides).machines if self.shape is Shape.TORUS else None

    def _check_torus(self) -> None:
        torus = Torus(self.sides)
        if self.ports != torus.links_each:
            raise UsageError(f"an NPU of a torus of {torus.words} has {counted(torus.links_each, 'link')}")
        if self.spread or self.within is not None:
            raise UsageError(
                f"torus of {torus.words}: all of its machines belong to the job, at their places or those of a file"
            )

    @property
    def _way_around(self) -> int:
        """Links of the shortest way between two NPUs of a machine that goes through their ports."""
        return {Shape.RAILS: 4, Shape.TORUS: 3}.get(self.shape, 2)

    def _check_places(self, machines: int) -> None:
        total = self.within or machines
        if self.shape is Shape.TORUS and machines != self.machines:
            raise UsageError(
                f"a torus of {Torus(self.sides).words} has {self.machines} machines, not {machines}"
            )
        if machines > total:
            raise UsageError(f"{counted(machines, 'machine')} within {total}")
        if not self.places:
            return
        if len(self.places) != machines:
            raise UsageError(f"{counted(len(self.places), 'place')} for {counted(machines, 'machine')}")
        wrong = [place for place in self.places if not 0 <= place < total]
        if wrong:
            raise UsageError(
                f"place {wrong[0]} is none of the {counted(total, 'machine')}, which count from 0"
            )

    def _leaves_of(self, machines: int, block: int, blocks: int) -> list[int]:
        """The leaf switch, or set of rail leaves, at which each of the job's machines lies."""
        if self.places:
            return [place // block for place in self.places]
        if not self.spread:
            return [machine // block for machine in range(machines)]
        if self.rack > block:
            raise UsageError(
                f"racks of {self.rack}: a {'router' if self.shape is Shape.DRAGONFLY else 'leaf switch'} of "
                f"{counted(self.ports, 'port')} has room for {counted(block, 'machine')}"
            )
        dealt = (
            leaf
            for first in range(0, block, self.rack)
            for leaf in range(blocks)
            for _ in range(min(self.rack, block - first))
        )
        return list(islice(dealt, machines))

    def _links_outside(self, machines: int, each: int) -> int:
        """How many links `_outside_links` gives, without making them: all of a fabric's, however few its machines."""
        total = self.within or machines
        ports = machines * each
        if self.shape is Shape.RAIL_ONLY:
            return ports
        if self.shape is Shape.TORUS:
            return sum(1 for _ in Torus(self.sides).links(range(total), each))
        if self.shape is Shape.DRAGONFLY:
            return ports + Dragonfly(self.ports, total, each).joins
        sizes = self._sizes(total, each)
        if sizes.levels == 1:
            return ports
        if sizes.levels == 2:
            return ports + sizes.leaves * self._spines(sizes)
        half = self.ports // 2
        return ports + (sizes.leaves + self._pods(sizes.leaves)) * half

    def _outside_links(self, machines: int, each: int) -> Iterator[LinkRow]:
        """Links outside machines: two ends, and how many ports wide."""
        total = self.within or machines
        if self.shape is Shape.RAIL_ONLY:
            self._check_rail_only(total)
            yield from ([npu, f"rail{npu % each}", 1] for npu in range(machines * each))
            return
        if self.shape is Shape.TORUS:
            yield from map(list, Torus(self.sides).links(self.places or range(machines), each))
            return
        if self.shape is Shape.DRAGONFLY:
            yield from self._dragonfly(Dragonfly(self.ports, total, each), machines)
            return
        sizes = self._sizes(total, each)
        for machine, at in enumerate(self._leaves_of(machines, sizes.block, sizes.blocks)):
            for place in range(each):
                yield [machine * each + place, f"leaf{at}.{place % sizes.rails}", 1]
        names = [f"leaf{at}.{rail}" for at in range(sizes.blocks) for rail in range(sizes.rails)]
        if sizes.levels == 2:
            up, spines = sizes.down / self.oversubscription, self._spines(sizes)
            yield from ([leaf, f"spine{spine}", up / spines] for leaf in names for spine in range(spines))
        elif sizes.levels == 3:
            yield from self._three_levels(names)

    def _dragonfly(self, built: Dragonfly, machines: int) -> Iterator[LinkRow]:
        leaves = self._leaves_of(machines, built.block, built.groups * built.routers)
        for machine, at in enumerate(leaves):
            first = machine * built.each
            yield from ([npu, built.router(at), 1] for npu in range(first, first + built.each))
        yield from map(list, built.links())

    def _check_rail_only(self, total: int) -> None:
        if self.oversubscription > 1 or self.spread or self.places:
            raise UsageError(
                "rail-only has one switch a rail: nothing can be oversubscribed, and all places are alike"
            )
        if total > self.ports:
            raise self._too_many(f"{counted(total, 'machine')}", self.ports)

    def built_of(self, machines: int, each: int) -> tuple[dict[str, int], int]:
        """Switches of each level, from the machines up, and cables outside machines.

        They are those of the whole fabric, machines of other jobs included, with every interface cabled. Cables up are as
        many of a port's rate as have the bandwidth; a core of the links stands for as many switches as its cables need.

        Parameters
        ----------
        machines
            Machines of the job.
        each
            NPUs, and so interfaces, of a machine.

        Raises
        ------
        UsageError
            More machines than such switches can join.
        """
        total = self.within or machines
        interfaces = total * each
        if self.shape is Shape.RAIL_ONLY:
            self._check_rail_only(total)
            return {"rail": each}, interfaces
        if self.shape is Shape.TORUS:
            return {}, sum(1 for _ in Torus(self.sides).links(range(total), each))
        if self.shape is Shape.DRAGONFLY:
            built = Dragonfly(self.ports, total, each)
            return {"router": built.groups * built.routers}, interfaces + built.cables
        sizes = self._sizes(total, each)
        if sizes.levels == 1:
            return {"leaf": 1}, interfaces
        if sizes.levels == 2:
            up = _whole(sizes.leaves * sizes.down / self.oversubscription)
            return {"leaf": sizes.leaves, "spine": self._spines(sizes)}, interfaces + up
        half = self.ports // 2
        pods = self._pods(sizes.leaves)
        # of one place in every pod
        up = _whole(pods * half / self.oversubscription)
        cores = half * ceil(up / self.ports)
        return {"leaf": sizes.leaves, "pod": pods * half, "core": cores}, (
            interfaces + sizes.leaves * half + half * up
        )

    def _sizes(self, total: int, each: int) -> "_Sizes":
        """Levels, leaves and rails that so many machines need."""
        down, levels = self._levels(total, each)
        if levels == 1 and self.oversubscription > 1:
            raise UsageError(
                f"{self.shape} of {counted(self.ports, 'port')}: {counted(total * each, 'interface')} "
                f"{verb(total * each, 'fits', 'fit')} one "
                "switch, which has nothing to "
                "oversubscribe"
            )
        block = self._block(down, each)
        rails = each if self.shape is Shape.RAILS else 1
        # a leaf's ports that its machines leave free carry nothing, and ask for no bandwidth up
        cabled = min(block, total) * each // rails
        return _Sizes(levels, cabled, block, ceil(total / block), rails)

    def _spines(self, sizes: "_Sizes") -> int:
        """Uppermost switches of two levels: as few as have the ports."""
        return max(1, ceil(sizes.leaves * (sizes.down / self.oversubscription) / self.ports))

    def _pods(self, leaves: int) -> int:
        """Pods of so many leaves, half as many in each as a switch has ports."""
        half = self.ports // 2
        pods = ceil(leaves / half)
        if pods > self.ports:
            raise self._too_many(f"{counted(leaves, 'leaf switch')}", self.ports * half)
        return pods

    def _levels(self, machines: int, each: int) -> tuple[int, int]:
        """Ports of a leaf that lead down, and levels of switches."""
        if self.shape is Shape.FAT_TREE and machines * each <= self.ports:
            return self.ports, 1
        down = max(1, int(self.ports * self.oversubscription / (self.oversubscription + 1)))
        leaves = ceil(machines / self._block(down, each)) * (each if self.shape is Shape.RAILS else 1)
        return (down, 2) if leaves <= self.ports else (self.ports // 2, 3)

    def _block(self, down: int, each: int) -> int:
        """Machines at one leaf, or at one set of rail leaves."""
        per_machine = 1 if self.shape is Shape.RAILS else each
        block = down // per_machine
        if block < 1:
            raise UsageError(
                f"{self.shape} of {counted(self.ports, 'port')}: a leaf switch has no room for the "
                f"{counted(per_machine, 'interface')} of a "
                "machine"
            )
        return block

    def _three_levels(self, leaves: Sequence[str]) -> Iterator[LinkRow]:
        """Leaves in pods of half as many as a switch has ports, and cores that join the pods."""
        half, pods = self.ports // 2, self._pods(len(leaves))
        for number, leaf in enumerate(leaves):
            yield from ([leaf, f"pod{number // half}.{place}", 1] for place in range(half))
        for pod in range(pods):
            yield from (
                [f"pod{pod}.{place}", f"core{place}", half / self.oversubscription] for place in range(half)
            )

    def _too_many(self, what: str, most: int) -> UsageError:
        return UsageError(
            f"{self.shape} of {counted(self.ports, 'port')}: {what}, but at most {most} can be joined"
        )


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Levels of switches, interfaces at a full leaf, machines at a leaf or set of rail leaves, such sets, rails."""

    levels: int
    down: int
    block: int
    blocks: int
    rails: int

    @property
    def leaves(self) -> int:
        """Leaf switches."""
        return self.blocks * self.rails


def _whole(ports: float) -> int:
    """Ports that have a bandwidth; a ratio such as 1.1 is no more than its decimals."""
    return ceil(round(ports, 6))


def _longest_way(dim: Inside) -> int:
    """Links between the two NPUs of a dimension that lie furthest apart."""
    if dim.npus < 2:
        return 0
    if dim.topology is Topology.SWITCH:
        return 2
    return dim.npus // 2 if dim.topology is Topology.RING else 1


def _led_through_npus(inside: Sequence[Inside]) -> bool:
    """Whether some ways inside a machine lead through a third NPU: along rings, or from dimension to dimension."""
    wide = [dim for dim in inside if dim.npus > 1]
    return len(wide) > 1 or any(dim.topology is Topology.RING and dim.npus > 3 for dim in wide)


def _machine_links(inside: Sequence[Inside], machine: int, each: int) -> Iterator[LinkRow]:
    """Links inside a machine."""
    first, stride = machine * each, 1
    for number, dim in enumerate(inside):
        if dim.npus > 1:
            for start in range(each):
                if start // stride % dim.npus == 0:
                    row = [first + start + stride * place for place in range(dim.npus)]
                    yield from _row_links(dim, row, f"m{machine}.{number}.{start}")
        stride *= dim.npus


def _row_links(dim: Inside, row: Sequence[int], name: str) -> Iterator[LinkRow]:
    n = len(row)
    if dim.topology is Topology.SWITCH:
        ends: list[list[Any]] = [[npu, name] for npu in row]
    elif dim.topology is Topology.RING:
        ends = [[row[i], row[(i + 1) % n]] for i in range(n if n > 2 else 1)]
    else:
        ends = [[row[i], row[j]] for i in range(n) for j in range(i + 1, n)]
    for pair in ends:
        yield [*pair, dim.bandwidth_gibps, dim.latency_ns]
