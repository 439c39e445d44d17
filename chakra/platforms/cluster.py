"""Finding presets, and clusters in words: ``8x hgx-h100 over 400G rail-optimised fat tree``."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from chakra.arguments import checked
from chakra.errors import ConfigError, UsageError
from chakra.io.digits import decimal_number, is_whole, whole_number
from chakra.io.nearest import nearest
from chakra.io.readable import counted
from chakra.io.shipped import shipped_document, shipped_names
from chakra.io.text import read_text
from chakra.io.yaml import read_document
from chakra.platforms.direct import Torus
from chakra.platforms.fabric import Fabric, Shape
from chakra.platforms.keys import Status
from chakra.platforms.model import Number, Platform, PlatformDim, platform_from
from chakra.replay.config.model import Topology

#: one-way latency per hop that a fabric gets when nothing else is known, ns
FABRIC_LATENCY_NS = 1000.0

_CLUSTER = re.compile(r"^\s*(?:([0-9]{1,18})\s*x\s+)?(\S+?)(?:\s+over\s+(.+?))?\s*$", re.IGNORECASE)
_RATE = re.compile(r"^([0-9]+(?:\.[0-9]+)?)\s*g(?:b/s|bps|bit/s|be)?$", re.IGNORECASE)
_RATIO = re.compile(r"^([0-9]{1,9}(?:\.[0-9]{1,9})?)(?::([0-9]{1,9}(?:\.[0-9]{1,9})?))?$")
#: bounds of what no network has
_MOST_OVERSUBSCRIBED, _MOST_GBPS = 1e6, 1e6
_PORTS = re.compile(r"^([0-9]+)-ports?$", re.IGNORECASE)
#: words for a shape; None: a part of other words
_SHAPES = {
    **dict.fromkeys(("rail-optimised", "rail-optimized", "rails", "rail"), Shape.RAILS),
    **dict.fromkeys(("optimised", "optimized", "tree", "switch"), None),
    **dict.fromkeys(("fat", "fat-tree"), Shape.FAT_TREE),
    "rail-only": Shape.RAIL_ONLY,
    "dragonfly": Shape.DRAGONFLY,
    "torus": Shape.TORUS,
}
_SIDES = re.compile(r"^[0-9]{1,6}(?:x[0-9]{1,6})*$", re.IGNORECASE)


def platform_names() -> tuple[str, ...]:
    """Names of all presets, sorted."""
    return shipped_names("presets")


@checked
def load_platform(name: str) -> Platform:
    """A preset by name, or a file of the same form by path (ending in .yml or .yaml).

    Parameters
    ----------
    name
        Name of a preset, or path of a file.

    Raises
    ------
    UsageError
        No such preset; the message names the nearest.
    ConfigError
        A file that is wrong.
    """
    if name.endswith((".yml", ".yaml")):
        return platform_from(read_document(Path(name)), name)
    wanted = re.sub(r"[\s_]+", "-", name.strip().lower())
    names = platform_names()
    if wanted not in names:
        hint = nearest(wanted, names) or f"; there are: {', '.join(names)}"
        raise UsageError(f"no machine preset {name!r}{hint}")
    return platform_from(shipped_document("presets", wanted), f"preset {wanted}")


def all_platforms() -> Iterator[Platform]:
    """Every preset."""
    for name in platform_names():
        yield load_platform(name)


@checked
def cluster(words: str, npus: int | None = None, *, sized: bool = True) -> Platform:
    """A cluster in words: ``[COUNT x] PRESET [over RATE [SHAPE] [of P ports] [oversubscribed K] [within N machines]
    [spread] [racks of K] [places FILE] [sprayed]]``.

    A job may have some of the machines of a fabric (``within N machines``), beside one another, ``spread`` over the leaf
    switches one by one or in ``racks of K``, or at the places that a file lists.

    RATE is the port of one NPU, such as ``400G`` (bits per second). Without ``of P ports`` the network between machines
    is one switch dimension that joins the NPUs of equal position; ``oversubscribed 4`` divides its bandwidth by 4. With
    it the network is given link by link: ``fat tree`` (the interfaces of a machine at one leaf switch), ``rails`` (each
    at the leaf of its rail), ``rail-only`` (nothing joins the rails) or ``dragonfly``, of switches with P ports. A
    ``torus 8x8x8`` of machines has no switches, and counts its machines itself.

    Parameters
    ----------
    words
        The description.
    npus
        Size in NPUs, instead of COUNT.
    sized
        Without COUNT and ``npus``: one machine. When False, the scale-out dimension keeps no size.

    Raises
    ------
    UsageError
        Words that are not understood, or two sizes that contradict each other.
    ConfigError
        A file of places that cannot be read.
    """
    count, name, fabric = _parts(words)
    platform = load_platform(name)
    if fabric:
        platform = with_fabric(platform, fabric)
    if count is None and npus is None and platform.fabric is not None:
        count = platform.fabric.machines
    if count is None:
        return platform.sized(npus) if sized or npus is not None else platform
    whole = platform.sized(machines=count)
    if npus is not None and npus != count * platform.node_npus:
        fits = npus > 0 and npus % platform.node_npus == 0
        raise UsageError(
            f"{words!r} has {counted(count * platform.node_npus, 'NPU')}, not {npus}"
            + (f": {npus // platform.node_npus}x would have as many" if fits else "")
        )
    return whole


def counted_npus(words: str) -> int | None:
    """NPUs of the machines that words count, as ``8x hgx-h100`` does; None: they count none.

    Parameters
    ----------
    words
        For :func:`cluster`.

    Raises
    ------
    UsageError, ConfigError
        As :func:`cluster`.
    """
    count, name, fabric = _parts(words)
    if count is None and fabric:
        built = _Words(fabric).fabric()
        count = None if built is None else built.machines
    return None if count is None else count * load_platform(name).node_npus


def _parts(words: str) -> tuple[int | None, str, str | None]:
    """Number of machines, name of one, and the fabric in words."""
    match = _CLUSTER.match(words)
    if not match:
        raise UsageError(
            f"{words!r} is not '[COUNT x] PRESET [over RATE ...]', such as '8x hgx-h100 over 400G fat tree'"
        )
    count, name, fabric = match.groups()
    # "8x hgx-h100" and "8xhgx-h100"
    glued = re.match(r"^([0-9]+)x([a-z].*)$", name, re.IGNORECASE)
    if count is None and glued and name.lower() not in platform_names():
        count, name = glued.groups()
    if count is None:
        return None, name, fabric
    if whole_number(count) < 1:
        raise UsageError(f"{words!r}: the number of machines must be at least 1")
    return whole_number(count), name, fabric


def with_fabric(platform: Platform, words: str) -> Platform:
    """The platform with another scale-out network, in the words of :func:`cluster`."""
    asked = _Words(words)
    if asked.rate is None:
        raise UsageError(f"{words!r}: a fabric needs a port rate in Gb/s, such as 400G")
    fabric = asked.fabric()
    fixed = tuple(dim for dim in platform.dims if dim.npus is not None)
    known = [dim for dim in platform.dims if dim.npus is None]
    latency = (
        known[0].latency
        if known
        else Number(FABRIC_LATENCY_NS, Status.ASSUMED, "no public number for this fabric")
    )
    rate = asked.rate if fabric else asked.rate / asked.oversubscription
    bandwidth = Number(rate, Status.ASSUMED, f"asked for: {words}")
    dims = (*fixed, PlatformDim(Topology.SWITCH, None, bandwidth, latency))
    return replace(platform, dims=dims, title=f"{platform.title} over {words}", fabric=fabric)


class _Words:
    """A fabric in words: ``400G rails of 64 ports oversubscribed 7 spread sprayed``."""

    def __init__(self, words: str) -> None:
        self.words = words
        self.rate: float | None = None
        self.oversubscription = 1.0
        self.ports: int | None = None
        self.spread = self.spray = False
        self.rack = 1
        self.within: int | None = None
        self.places: tuple[int, ...] = ()
        self._placed = ""
        self.shape: Shape | None = None
        self.sides: tuple[int, ...] = ()
        tokens = words.replace(",", " ").split()
        while tokens:
            self._take(tokens.pop(0), tokens)

    def _take(self, token: str, rest: list[str]) -> None:
        word = token.lower()
        found, ports = _RATE.match(token), _PORTS.match(token)
        if found:
            self._once("a rate", self.rate is None)
            self.rate = decimal_number(found.group(1)) / 8
            if not 0 < self.rate <= _MOST_GBPS:
                raise UsageError(f"{self.words!r}: a port has a rate above 0, up to {8 * _MOST_GBPS:g}G")
        elif word in ("oversubscribed", "oversubscription"):
            self._once("oversubscription", self.oversubscription == 1)
            self.oversubscription = self._ratio(rest)
        elif ports:
            self._set_ports(ports.group(1))
        elif (
            word == "of" and len(rest) >= 2 and is_whole(rest[0], 18) and rest[1].lower() in ("ports", "port")
        ):
            self._set_ports(rest.pop(0))
            rest.pop(0)
        elif word == "within":
            self._once("'within'", self.within is None)
            self.within = self._count(word, rest, "machines", "machine")
        elif word == "racks":
            if rest and rest[0].lower() == "of":
                rest.pop(0)
            self._place(word)
            self.rack, self.spread = self._count(word, rest), True
        elif word == "places" and rest:
            self._place(word)
            self.places = _places(rest.pop(0))
        elif word in ("spread", "packed"):
            self._place(word)
            self.spread = word == "spread"
        elif word == "sprayed":
            self.spray = True
        elif word in _SHAPES:
            self._take_shape(_SHAPES[word])
            if word == "torus":
                self._once("a torus", not self.sides)
                self.sides = self._torus(rest)
        else:
            raise UsageError(
                f"{self.words!r}: {token!r} is not understood; a fabric is a rate such as 400G, then any of: "
                "rail-optimised, rail-only, fat tree, dragonfly, torus NxN.., switch, of P ports, oversubscribed K, "
                "within N machines, spread, racks of K, places FILE, sprayed"
            )

    def _once(self, what: str, first: bool) -> None:
        if not first:
            raise UsageError(f"{self.words!r}: {what} is given twice")

    def _place(self, word: str) -> None:
        """One word says where machines lie; `spread racks of 4` say the same."""
        if self._placed and {self._placed, word} != {"spread", "racks"}:
            raise UsageError(f"{self.words!r}: {self._placed!r} and {word!r} both say where machines lie")
        self._placed = word

    def _take_shape(self, shape: Shape | None) -> None:
        """A shape, or a word that says no more than the others; a rail-optimised fat tree is one of rails."""
        if shape is None or self.shape is None or shape is self.shape:
            self.shape = shape or self.shape
            return
        if {shape, self.shape} != {Shape.RAILS, Shape.FAT_TREE}:
            raise UsageError(f"{self.words!r}: {self.shape} and {shape} are two shapes")
        self.shape = Shape.RAILS

    def _torus(self, rest: list[str]) -> tuple[int, ...]:
        if not rest or not _SIDES.match(rest[0]):
            raise UsageError(
                f"{self.words!r}: 'torus' needs the machines along each dimension, such as 'torus 8x8x8'"
            )
        return tuple(map(whole_number, rest.pop(0).lower().split("x")))

    def _count(self, word: str, rest: list[str], *units: str) -> int:
        if not rest or not re.fullmatch(r"[1-9][0-9]{0,6}", rest[0]):
            raise UsageError(
                f"{self.words!r}: {word!r} needs a number, such as '{word} {'of ' * (not units)}4'"
            )
        number = whole_number(rest.pop(0))
        if rest and rest[0].lower() in units:
            rest.pop(0)
        return number

    def _ratio(self, rest: list[str]) -> float:
        found = _RATIO.match(rest.pop(0)) if rest else None
        if found is None:
            raise UsageError(
                f"{self.words!r}: 'oversubscribed' needs a number or a ratio, such as 'oversubscribed 4' or 4:1"
            )
        up = decimal_number(found.group(2) or "1")
        ratio = decimal_number(found.group(1)) / up if up else float("inf")
        if not 1 <= ratio <= _MOST_OVERSUBSCRIBED:
            raise UsageError(
                f"{self.words!r}: oversubscription must be at least 1, up to {_MOST_OVERSUBSCRIBED:g}, not {ratio:g}"
            )
        return ratio

    def _set_ports(self, number: str) -> None:
        self._once("a number of ports", self.ports is None)
        if len(number) > 5:
            raise UsageError(f"{self.words!r}: no switch has {number} ports")
        self.ports = whole_number(number)

    def fabric(self) -> Fabric | None:
        """The network switch by switch; None where the words ask for no more than a switch dimension."""
        ports = self.ports
        if self.shape is Shape.TORUS:
            if ports is not None:
                raise UsageError(
                    f"{self.words!r}: a torus of machines has no switches, and so no ports of them"
                )
            ports = Torus(self.sides).links_each
        if ports is None:
            listed = self.shape in (Shape.RAIL_ONLY, Shape.DRAGONFLY)
            if self.spread or self.spray or self.within or self.places or listed:
                raise UsageError(
                    f"{self.words!r}: how many ports a switch has decides what lies where; add such as 'of 64 ports'"
                )
            return None
        return Fabric(
            self.shape or Shape.FAT_TREE, ports, self.oversubscription, self.spread, self.spray,
            rack=self.rack, within=self.within, places=self.places, sides=self.sides,
        )  # fmt: skip


def _places(path: str) -> tuple[int, ...]:
    """Places of a job's machines, a whole number each, divided by spaces or lines; ``#`` begins a remark."""
    found = []
    for number, line in enumerate(read_text(path).splitlines(), 1):
        for word in line.partition("#")[0].replace(",", " ").split():
            if not re.fullmatch(r"[0-9]{1,7}", word):
                raise ConfigError(f"{path}:{number}: {word[:40]!r} is not the place of a machine, such as 12")
            found.append(whole_number(word))
    if not found:
        raise ConfigError(f"{path}: no places of machines")
    return tuple(found)
