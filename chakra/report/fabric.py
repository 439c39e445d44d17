"""The network of a run folded: its switches by kind, level above level, and its links by the kinds that they join.

A fold has a handful of rows for any number of NPUs. Switches of a kind have names that differ in numbers alone, and stand
as far from the NPUs.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from chakra.io.readable import counted_text, figure_text
from chakra.report.document import Run
from chakra.report.wiring import Vertex, Wire, dim_shapes, heights, kind_of
from chakra.timeline.lenient import number

_PIECES: Final = re.compile(r"([0-9]+)")
#: name of the NPUs' kind
NPUS: Final = "NPU"


@dataclass(frozen=True, slots=True)
class Level:
    """Vertices of a kind: their name, with ``#`` for numbers in which they differ, how many carry something, and how far
    above the NPUs they stand; below 0 inside nodes."""

    kind: str
    count: int
    floor: int

    @property
    def label(self) -> str:
        """The level in words."""
        if self.kind == NPUS:
            return counted_text(self.count, NPUS)
        return f"{counted_text(self.count, 'switch')} {self.kind}"


@dataclass(frozen=True, slots=True)
class Bundle:
    """Links of a kind, in both directions: the levels that they join (places in `Fabric.levels`, the upper one first),
    what tells them from others between the same two, and the least and greatest bandwidth, 0 where it is not told."""

    upper: int
    lower: int
    among: str
    wires: Sequence[Wire]
    bandwidth_gibps: tuple[float, float]

    @property
    def mean(self) -> float:
        """Mean share of their bandwidth that the links used."""
        return sum(wire.share for wire in self.wires) / len(self.wires)

    @property
    def busiest(self) -> Wire:
        """The link that used most of its bandwidth, the first of equal ones."""
        return max(self.wires, key=lambda wire: wire.share)

    @property
    def count_in_words(self) -> str:
        """How many links there are, and their bandwidth."""
        text = counted_text(len(self.wires), "link")
        low, high = map(figure_text, self.bandwidth_gibps)
        if not self.bandwidth_gibps[1]:
            return text
        return f"{text} of {low} GiB/s" if low == high else f"{text} of {low} to {high} GiB/s"


@dataclass(frozen=True, slots=True)
class Fabric:
    """Levels from the top, bundles in the order of their upper levels, and NPUs of a node with a switch inside: 0 where
    there are none, or nodes use their switches unlike."""

    levels: Sequence[Level]
    bundles: Sequence[Bundle]
    node_npus: int

    def name(self, bundle: Bundle) -> str:
        """What a bundle's links join.

        Parameters
        ----------
        bundle
            The bundle.
        """
        kinds = [self.levels[place].kind for place in (bundle.lower, bundle.upper)]
        ends = " ↔ ".join(sorted(kinds, key=lambda kind: kind != NPUS))
        return f"{ends}, {bundle.among}" if bundle.among else ends


def fabric_of(run: Run, wires: Sequence[Wire]) -> Fabric:
    """The fold of a run's network.

    Parameters
    ----------
    run
        The run.
    wires
        Its links, at least one.
    """
    height, _ = heights(run.npus, wires)
    members: defaultdict[tuple[int, str], list[str]] = defaultdict(list)
    for vertex in {end: None for wire in wires for end in (wire.start, wire.end)}:
        if isinstance(vertex, str):
            members[height.get(vertex, 1), kind_of(vertex)].append(vertex)
    below, others = _neighbours(wires)
    direct = any(isinstance(wire.start, int) and isinstance(wire.end, int) for wire in wires)
    inside = _inside_nodes(members, below, others) if len(members) + direct > 1 else None
    levels = [Level(NPUS, run.npus, 0)]
    levels += [
        Level(_common(names), len(names), -1 if key == inside else key[0]) for key, names in members.items()
    ]
    order = sorted(range(len(levels)), key=lambda k: (-levels[k].floor, levels[k].kind))
    rank = {k: at for at, k in enumerate(order)}
    place: dict[Vertex, int] = {
        name: rank[at] for at, names in enumerate(members.values(), 1) for name in names
    }
    node_npus = run.npus // len(members[inside]) if inside else 0
    if inside and any(len(below[name]) != node_npus for name in members[inside]):
        node_npus = 0
    return Fabric([levels[k] for k in order], _bundles(run, wires, place, rank[0]), node_npus)


def _bundles(run: Run, wires: Sequence[Wire], place: Mapping[Vertex, int], npus: int) -> list[Bundle]:
    shapes = dim_shapes(run)
    rows = run.table("links")
    found: defaultdict[tuple[int, int, str], list[Wire]] = defaultdict(list)
    for wire in wires:
        a, b = place.get(wire.start, npus), place.get(wire.end, npus)
        among = _among(wire, shapes) if a == b else ""
        found[min(a, b), max(a, b), among].append(wire)
    bundles = []
    for (upper, lower, among), alike in sorted(found.items(), key=lambda item: item[0]):
        speeds = [max(number(rows[wire.row].get("bandwidth_gibps")), 0.0) for wire in alike]
        bundles.append(Bundle(upper, lower, among, alike, (min(speeds), max(speeds))))
    return bundles


def _neighbours(wires: Sequence[Wire]) -> tuple[Mapping[str, set[int]], set[str]]:
    """The NPUs that each switch joins, and the switches that join others."""
    below: defaultdict[str, set[int]] = defaultdict(set)
    others: set[str] = set()
    for wire in wires:
        for end, other in ((wire.start, wire.end), (wire.end, wire.start)):
            if isinstance(end, str) and isinstance(other, int):
                below[end].add(other)
            elif isinstance(end, str):
                others.add(end)
    return below, others


def _inside_nodes(
    members: Mapping[tuple[int, str], Sequence[str]], below: Mapping[str, set[int]], others: set[str]
) -> tuple[int, str] | None:
    """The kind of switches inside nodes: they join neighbouring NPUs, something else nodes."""
    for key, names in members.items():
        if len(names) < 2 or others & set(names):
            continue
        spans = sorted((min(below[name]), max(below[name])) for name in names)
        if all(a[1] < b[0] for a, b in pairwise(spans)):
            return key
    return None


def _among(wire: Wire, shapes: Sequence[tuple[str, int]]) -> str:
    """What tells a link between two of a kind from others: the dimension, or the first number in which names differ."""
    if isinstance(wire.start, int) and isinstance(wire.end, int):
        return _dimension(wire.start, wire.end, shapes)
    first, second = (_PIECES.split(str(end)) for end in (wire.start, wire.end))
    differ = next((k for k in range(1, min(len(first), len(second)), 2) if first[k] != second[k]), 0)
    words = [piece.strip("._-") for piece in first[0::2]]
    place = differ // 2
    if place:
        return f"within one {words[place - 1] or 'block'}"
    return f"from one {words[0] or 'block'} to another"


def _dimension(a: int, b: int, shapes: Sequence[tuple[str, int]]) -> str:
    differ = []
    for dim, (_, size) in enumerate(shapes):
        if a % size != b % size:
            differ.append(dim)
        a, b = a // size, b // size
    if len(differ) != 1:
        return f"dims {', '.join(map(str, differ))}" if differ else ""
    topology, size = shapes[differ[0]]
    return f"dim {differ[0]}, {topology if topology != 'Links' else ''} of {size}".replace(",  of", " of")


def _common(names: Sequence[str]) -> str:
    """A name for all: ``#`` for numbers in which they differ.

    >>> _common(["L2.0.1", "L2.3.1"]), _common(["core0"])
    ('L2.#.1', 'core0')
    """
    pieces = [_PIECES.split(name) for name in names]
    if len({len(one) for one in pieces}) > 1:
        return kind_of(names[0])
    shared = pieces[0]
    for other in pieces[1:]:
        shared = [a if a == b else "#" for a, b in zip(shared, other, strict=True)]
    return "".join(shared)
