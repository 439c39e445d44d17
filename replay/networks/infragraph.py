"""Infrastructures as InfraGraph describes them (YAML or JSON), expanded into a network of single links.

A device is a graph of components; an instance is so many copies of a device; edges join components inside a device and
between instances, with the indices that slices name. Components of the type ``xpu`` are the NPUs, in the order in which
the file lists instances and components, or of the annotation ``rank``; all other components are vertices.
"""

import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import TypeAlias

from chakra.arguments import checked
from chakra.errors import ConfigError
from chakra.io.digits import whole_number
from chakra.io.limits import MAX_LINKED_NPUS, MAX_LINKS
from chakra.io.nearest import nearest
from chakra.io.readable import counted
from chakra.io.shown import describe, shortened
from chakra.io.yaml import Plain, read_document
from chakra.replay.config.links import links_network
from chakra.replay.config.model import Network
from chakra.replay.config.section import Section

#: types of components that are NPUs; the second is that of older files
NPU_TYPES = ("xpu", "npu")
_TYPES = (*NPU_TYPES, "custom", "device", "cpu", "nic", "memory", "port", "switch")
#: keys of InfraGraph's first form, in which its documentation still has examples, and what takes their place
_OLDER = {"connections": "edges", "device": "devices", "type": "choice"}
_KEYS = {
    "infrastructure": ("name", "description", "devices", "links", "instances", "edges", "annotations"),
    "device": ("name", "description", "components", "links", "edges"),
    "component": ("name", "description", "count", "choice", *_TYPES),
    "link": ("name", "description", "physical"),
    "physical": ("bandwidth", "latency"),
    "instance": ("name", "description", "device", "count"),
    "edge": ("ep1", "ep2", "scheme", "many2many", "link"),
    "endpoint": ("instance", "device", "component"),
}
#: GB/s of 2^30 B/s, and ns, of a unit
_BANDWIDTHS = {"gigabits_per_second": 1e9 / 8 / (1 << 30), "gigabytes_per_second": 1e9 / (1 << 30)}
_TRANSFERS = "gigatransfers_per_second"
_LATENCIES = {"ns": 1.0, "us": 1e3, "ms": 1e6}
#: devices in devices
MAX_DEPTH = 20
_ELEMENT = re.compile(r"([^\[\].]+)(?:\[([^\[\]]*)\])?")
_SLICE = re.compile(r"[0-9]{1,9}|[0-9]{0,9}:[0-9]{0,9}(?::[0-9]{1,9})?", re.ASCII)

#: bandwidth (GB/s of 2^30 B/s) and latency (ns)
Speed: TypeAlias = tuple[float, float]
#: ends, relative to a device or whole, and the link's name and speed
Edge: TypeAlias = tuple[str, str, str, Speed]


@dataclass(frozen=True, slots=True)
class _Component:
    """A kind of component of a device."""

    name: str
    count: int
    #: its type, or "device" if it is a device of that name
    kind: str


@dataclass(slots=True)
class _Device:
    """A device: components in order, and the edges between them, fully expanded."""

    name: str
    components: dict[str, _Component]
    edges: list[Edge] = field(default_factory=list)


@dataclass(slots=True)
class _Reader:
    """A file while it is read."""

    source: str
    bandwidth_gibps: float | None
    latency_ns: float | None
    devices: dict[str, _Device] = field(default_factory=dict)
    #: instance -> its device and how many there are
    instances: dict[str, tuple[str, int]] = field(default_factory=dict)
    #: joined ends, in ascending order -> link and speed
    edges: dict[tuple[str, str], tuple[str, Speed]] = field(default_factory=dict)

    # ------------------------------------------------------------------------------------------------ values

    def error(self, where: str, what: str) -> ConfigError:
        return ConfigError(f"{self.source}: {where}: {what}")

    def map_of(self, value: Plain, kind: str, where: str) -> Mapping[str, Plain]:
        """A map with the keys of its kind."""
        if not isinstance(value, Mapping):
            raise self.error(where, f"expected a map, found {describe(value)}")
        for key in value:
            if key in _OLDER and key not in _KEYS[kind]:
                raise self.error(
                    where,
                    f"key {key!r} is of an older form of InfraGraph, which is not read; the present one has "
                    f"{_OLDER[str(key)]!r} in its place",
                )
            if key not in _KEYS[kind]:
                raise self.error(where, f"key {shortened(key)!r} is unknown{nearest(str(key), _KEYS[kind])}")
        return value

    def list_of(self, value: Mapping[str, Plain], key: str, where: str) -> list[Plain]:
        given = value.get(key)
        if given is None:
            return []
        if not isinstance(given, list):
            raise self.error(where, f"{key} must be a list, found {describe(given)}")
        return given

    def text(self, value: Mapping[str, Plain], key: str, where: str) -> str:
        given = value.get(key)
        if not isinstance(given, str) or not given or len(given) > 1000 or not given.isprintable():
            raise self.error(where, f"{key} must be a text, found {describe(given)}")
        return given

    def count(self, value: Mapping[str, Plain], where: str) -> int:
        given = value.get("count")
        if not isinstance(given, int) or isinstance(given, bool) or not 0 <= given <= MAX_LINKS:
            raise self.error(where, f"count must be a number from 0 to {MAX_LINKS}, found {describe(given)}")
        return given

    def speed_of(self, entry: Mapping[str, Plain], where: str) -> tuple[float | None, float | None]:
        """Bandwidth and latency of a link, as far as it gives them."""
        if entry.get("physical") is None:
            return None, None
        physical = self.map_of(entry["physical"], "physical", where)
        bandwidth = self.quantity(physical, "bandwidth", (*_BANDWIDTHS, _TRANSFERS), where)
        latency = self.quantity(physical, "latency", tuple(_LATENCIES), where)
        if bandwidth is not None and bandwidth[0] == _TRANSFERS and self.bandwidth_gibps is None:
            raise self.error(
                where,
                "its bandwidth is in gigatransfers, of how many bits is not said; give --bandwidth for such links",
            )
        return (
            None
            if bandwidth is None or bandwidth[0] == _TRANSFERS
            else bandwidth[1] * _BANDWIDTHS[bandwidth[0]],
            None if latency is None else latency[1] * _LATENCIES[latency[0]],
        )

    def quantity(
        self, physical: Mapping[str, Plain], key: str, units: Sequence[str], where: str
    ) -> tuple[str, float] | None:
        """A number with its unit."""
        given = physical.get(key)
        if given is None:
            return None
        if not isinstance(given, Mapping) or any(name != "choice" and name not in units for name in given):
            raise self.error(
                where, f"{key} must be a map of one of {', '.join(units)}, found {describe(given)}"
            )
        named = [unit for unit in units if given.get(unit) is not None]
        unit = given.get("choice", named[0] if len(named) == 1 else None)
        if unit is None and not named:
            return None
        number = given.get(unit) if isinstance(unit, str) and unit in units else None
        if not isinstance(unit, str) or isinstance(number, bool) or not isinstance(number, int | float):
            raise self.error(where, f"{key} must be a number in one of {', '.join(units)}")
        least_ok = number > 0 if key == "bandwidth" else number >= 0
        if not least_ok or not math.isfinite(number) or number > 1e12:
            raise self.error(where, f"{key} of {number:g} {unit} is no {key}")
        return unit, float(number)

    # ----------------------------------------------------------------------------------------------- devices

    def read(self, document: Plain) -> None:
        whole = self.map_of(document, "infrastructure", "the infrastructure")
        described = []
        for i, entry in enumerate(self.list_of(whole, "devices", "the infrastructure")):
            value = self.map_of(entry, "device", f"device {i}")
            device = self.device(value, f"device {i}")
            described.append((device, value))
        for device in self.devices.values():
            for component in device.components.values():
                if component.kind == "device" and component.name not in self.devices:
                    where = f"device {device.name!r}: component {component.name!r}"
                    raise self.error(where, f"no device has this name{nearest(component.name, self.devices)}")
        sizes = _Sizes(self)
        for device in self.devices.values():
            sizes.nodes(device.name)
        for device, value in described:
            where = f"device {device.name!r}"
            links = self.links(value, where)
            for k, entry in enumerate(self.list_of(value, "edges", where)):
                device.edges += self.edge(entry, f"{where}: edge {k}", links, device)

    def device(self, value: Mapping[str, Plain], where: str) -> _Device:
        name = self.text(value, "name", where)
        where = f"device {name!r}"
        if name in self.devices:
            raise self.error(where, "is described twice")
        components: dict[str, _Component] = {}
        for i, entry in enumerate(self.list_of(value, "components", where)):
            given = self.map_of(entry, "component", f"{where}: component {i}")
            component = self.text(given, "name", f"{where}: component {i}")
            at = f"{where}: component {component!r}"
            kind = self.text(given, "choice", at)
            if kind not in _TYPES:
                raise self.error(at, f"choice {shortened(kind)!r} is unknown{nearest(kind, _TYPES)}")
            if component in components:
                raise self.error(at, "is there twice")
            components[component] = _Component(component, self.count(given, at), kind)
        device = self.devices[name] = _Device(name, components)
        return device

    def links(self, value: Mapping[str, Plain], where: str) -> dict[str, Speed | str]:
        """Speeds of the links of a device or of the infrastructure; words where one has none."""
        out: dict[str, Speed | str] = {}
        for i, entry in enumerate(self.list_of(value, "links", where)):
            given = self.map_of(entry, "link", f"{where}: link {i}")
            name = self.text(given, "name", f"{where}: link {i}")
            at = f"{where}: link {name!r}"
            if name in out:
                raise self.error(at, "is described twice")
            bandwidth, latency = self.speed_of(given, at)
            bandwidth = self.bandwidth_gibps if bandwidth is None else bandwidth
            latency = self.latency_ns if latency is None else latency
            if bandwidth is None or latency is None:
                missing = "bandwidth" if bandwidth is None else "latency"
                out[name] = f"link {name!r} has no {missing}; give --{missing} for links without"
            else:
                out[name] = (bandwidth, latency)
        return out

    # ------------------------------------------------------------------------------------------------- edges

    def edge(
        self, entry: Plain, where: str, links: Mapping[str, Speed | str], device: _Device | None
    ) -> list[Edge]:
        """Edges that an entry stands for, inside a device or (None) between instances."""
        value = self.map_of(entry, "edge", where)
        ends = [self.endpoint(value.get(key), f"{where}: {key}", device) for key in ("ep1", "ep2")]
        scheme = value.get("scheme")
        if scheme is None and isinstance(value.get("many2many"), bool):  # older files
            scheme = "many2many" if value["many2many"] else "one2one"
        name = self.text(value, "link", where)
        speed = links.get(name)
        if speed is None:
            raise self.error(
                where, f"no link {shortened(name)!r} is described beside it{nearest(name, links)}"
            )
        if isinstance(speed, str):
            raise self.error(where, speed)
        pairs: Iterator[tuple[str, str]]
        if scheme == "many2many":
            if len(ends[0]) * len(ends[1]) > MAX_LINKS:
                raise self.error(
                    where, f"joins {len(ends[0])} with {len(ends[1])} ends: more than {MAX_LINKS} links"
                )
            pairs = product(ends[0], ends[1])
        elif scheme == "one2one":
            pairs = zip(ends[0], ends[1], strict=False)  # InfraGraph joins as many as the shorter list has
        else:
            raise self.error(where, f"scheme must be one2one or many2many, found {describe(scheme)}")
        return [(a, b, name, speed) for a, b in pairs if a != b]

    def endpoint(self, entry: Plain, where: str, device: _Device | None) -> list[str]:
        """Names that an end stands for, the first index varying slowest."""
        value = self.map_of(entry, "endpoint", where)
        component = self.text(value, "component", where)
        if device is not None:
            if value.get("device") is not None:
                component = f"{self.text(value, 'device', where)}.{component}"
            return self.inside(component, where, device)
        instance, indices = self.element(self.text(value, "instance", where), where)
        if instance not in self.instances:
            raise self.error(
                where, f"no instance is called {shortened(instance)!r}{nearest(instance, self.instances)}"
            )
        name, count = self.instances[instance]
        inner = self.inside(component, where, self.devices[name])
        chosen = self.chosen(indices, count, instance, where)
        self.bounded(len(chosen) * len(inner), where)
        return [f"{instance}.{i}.{rest}" for i in chosen for rest in inner]

    def inside(self, text: str, where: str, device: _Device) -> list[str]:
        """Components of a device, and of devices in it."""
        out = [""]
        parts = text.split(".")
        for k, part in enumerate(parts):
            name, indices = self.element(part, where)
            component = device.components.get(name)
            if component is None:
                raise self.error(
                    where,
                    f"device {device.name!r} has no component {shortened(name)!r}{nearest(name, device.components)}",
                )
            chosen = self.chosen(indices, component.count, name, where)
            self.bounded(len(out) * len(chosen), where)
            out = [f"{before}{name}.{i}." for before in out for i in chosen]
            last = k == len(parts) - 1
            if last == (component.kind == "device"):
                raise self.error(
                    where,
                    f"{name!r} is a device, whose component is not named"
                    if last
                    else f"{name!r} is a component and has none of its own",
                )
            device = self.devices.get(name, device)
        return [name[:-1] for name in out]

    def element(self, part: str, where: str) -> tuple[str, str | None]:
        """A name and the text of its slice."""
        found = _ELEMENT.fullmatch(part)
        if found is None:
            raise self.error(where, f"{shortened(part)!r} is not a name with a slice, such as nic[0:2]")
        return found[1], found[2]

    def chosen(self, indices: str | None, count: int, name: str, where: str) -> range:
        """Numbers that a slice chooses of `count`."""
        if indices is None or indices == "":
            return range(count)
        if not _SLICE.fullmatch(indices):
            raise self.error(where, f"[{shortened(indices)}] is not a slice such as [0:2]")
        if ":" not in indices:
            first, last, step = whole_number(indices), whole_number(indices) + 1, 1
        else:
            given = [whole_number(part) if part else None for part in indices.split(":")]
            first = given[0] or 0
            last = count if given[1] is None else given[1]
            step = given[2] if len(given) == 3 and given[2] is not None else 1
        if step < 1 or last > count or first >= last:
            raise self.error(
                where, f"{name}[{indices}] chooses none, or more than the {count} that there are"
            )
        return range(first, last, step)

    def bounded(self, ends: int, where: str) -> None:
        if ends > MAX_LINKS:
            raise self.error(where, f"stands for {ends} ends, more than {MAX_LINKS}")

    # ------------------------------------------------------------------------------------------------- whole

    def expand(self, document: Mapping[str, Plain]) -> dict[str, str]:
        """Types of all components by name; fills in `edges`."""
        for i, entry in enumerate(self.list_of(document, "instances", "the infrastructure")):
            value = self.map_of(entry, "instance", f"instance {i}")
            name = self.text(value, "name", f"instance {i}")
            where = f"instance {name!r}"
            device = self.text(value, "device", where)
            if name in self.instances:
                raise self.error(where, "is there twice")
            if _ELEMENT.fullmatch(name) is None or "[" in name:
                raise self.error(where, "its name must have no dots and brackets")
            if device not in self.devices:
                raise self.error(
                    where, f"no device is called {shortened(device)!r}{nearest(device, self.devices)}"
                )
            self.instances[name] = (device, self.count(value, where))
        sizes = _Sizes(self)
        for what, size in (("components", sizes.nodes), ("edges", sizes.edges)):
            total = sum(count * (1 + size(device)) for device, count in self.instances.values())
            if total > MAX_LINKS:
                raise self.error("the infrastructure", f"has {total} {what}, more than {MAX_LINKS}")
        types: dict[str, str] = {}
        for name, (device, count) in self.instances.items():
            for i in range(count):
                self.unfold(f"{name}.{i}", self.devices[device], types)
        links = self.links(document, "the infrastructure")
        for k, entry in enumerate(self.list_of(document, "edges", "the infrastructure")):
            for edge in self.edge(entry, f"edge {k}", links, None):
                self.join(edge, "")
            if len(self.edges) > MAX_LINKS:
                raise self.error(f"edge {k}", f"makes more than {MAX_LINKS} links in all")
        return types

    def unfold(self, prefix: str, device: _Device, types: dict[str, str]) -> None:
        """Components and edges of one copy of a device."""
        for component in device.components.values():
            for i in range(component.count):
                name = f"{prefix}.{component.name}.{i}"
                if component.kind == "device":
                    self.unfold(name, self.devices[component.name], types)
                else:
                    types[name] = component.kind
        for edge in device.edges:
            self.join(edge, f"{prefix}.")

    def join(self, edge: Edge, prefix: str) -> None:
        a, b, name, speed = edge
        ends = (prefix + a, prefix + b)
        key = (min(ends), max(ends))
        known = self.edges.setdefault(key, (name, speed))
        if known != (name, speed):
            raise self.error(
                f"{key[0]} and {key[1]}",
                f"are joined by link {known[0]!r} and by link {name!r}; an infrastructure has one edge between two "
                "components",
            )


class _Sizes:
    """How many components and edges a device stands for, those of devices in it included, before any is made."""

    def __init__(self, reader: _Reader) -> None:
        self.reader = reader
        self.known: dict[tuple[str, str], int] = {}

    def nodes(self, name: str) -> int:
        return self._of(name, "nodes", ())

    def edges(self, name: str) -> int:
        return self._of(name, "edges", ())

    def _of(self, name: str, what: str, inside: tuple[str, ...]) -> int:
        if (name, what) in self.known:
            return self.known[name, what]
        if name in inside:
            raise self.reader.error(f"device {name!r}", "contains itself")
        if len(inside) >= MAX_DEPTH:
            raise self.reader.error(f"device {name!r}", f"stands in {MAX_DEPTH} others: too deep")
        device = self.reader.devices[name]
        total = len(device.edges) if what == "edges" else 0
        for component in device.components.values():
            if what == "nodes":
                total += component.count
            if component.kind == "device":
                total += component.count * self._of(component.name, what, (*inside, name))
        self.known[name, what] = total
        return total


def _ranks(reader: _Reader, annotations: Plain, npus: list[str]) -> list[str]:
    """NPUs in the order of their annotation ``rank``, if they have one."""
    if annotations is None:
        return npus
    where = "annotations"
    if not isinstance(annotations, Mapping):
        raise reader.error(where, f"expected a map, found {describe(annotations)}")
    known = set(npus)
    rank_of: dict[str, int] = {}
    for i, node in enumerate(reader.list_of(annotations, "nodes", where)):
        if not isinstance(node, Mapping):
            raise reader.error(f"{where}: node {i}", f"expected a map, found {describe(node)}")
        for attribute in reader.list_of(node, "attributes", f"{where}: node {i}"):
            if not isinstance(attribute, Mapping) or attribute.get("attribute") != "rank":
                continue
            name, text = reader.text(node, "name", f"{where}: node {i}"), str(attribute.get("value"))
            if name not in known or not re.fullmatch(r"[0-9]{1,9}", text, re.ASCII):
                raise reader.error(
                    f"{where}: node {i}", f"rank {describe(text)} of {shortened(name)!r}, which is no xpu"
                )
            rank_of[name] = whole_number(text)
    if not rank_of:
        return npus
    if sorted(rank_of.values()) != list(range(len(npus))):
        raise reader.error(where, f"ranks must be 0 to {len(npus) - 1}, one for each xpu")
    return sorted(npus, key=rank_of.__getitem__)


def _leave_out(reader: _Reader, types: Mapping[str, str], words: Sequence[str]) -> None:
    """Take components of some types or names out, with their edges."""
    if not words:
        return
    named = {name: name.split(".")[-2] for name in types}
    known = {kind for kind in types.values() if kind not in NPU_TYPES}
    known |= {named[name] for name, kind in types.items() if kind not in NPU_TYPES}
    for word in words:
        if word not in known:
            raise ConfigError(
                f"{reader.source}: leave out {shortened(word)!r}: no component beside NPUs has this type or name"
                f"{nearest(word, known)}"
            )
    gone = {
        name
        for name, kind in types.items()
        if kind not in NPU_TYPES and (kind in words or named[name] in words)
    }
    for ends in [ends for ends in reader.edges if not gone.isdisjoint(ends)]:
        del reader.edges[ends]


def _without_dead_ends(reader: _Reader, npus: set[str]) -> None:
    """Leave out what no way between two NPUs can lead over: chains that end at no NPU."""
    neighbours: dict[str, set[str]] = {}
    for a, b in reader.edges:
        neighbours.setdefault(a, set()).add(b)
        neighbours.setdefault(b, set()).add(a)
    waiting = [name for name, others in neighbours.items() if len(others) == 1 and name not in npus]
    while waiting:
        name = waiting.pop()
        for other in neighbours.pop(name):
            neighbours[other].discard(name)
            if len(neighbours[other]) == 1 and other not in npus:
                waiting.append(other)
            reader.edges.pop((min(name, other), max(name, other)))


@checked
def import_infragraph(
    path: str | os.PathLike[str],
    *,
    bandwidth_gibps: float | None = None,
    latency_ns: float | None = None,
    npus_count: Sequence[int] | None = None,
    routing: str = "hops",
    leave_out: Sequence[str] = (),
) -> Network:
    """The network of an infrastructure that InfraGraph describes.

    Parameters
    ----------
    path
        YAML or JSON: an ``Infrastructure`` with devices, links, instances and edges, or a map that holds it and its
        annotations.
    bandwidth_gibps
        GB/s of 2^30 B/s per direction of links that give none, or give it in transfers.
    latency_ns
        Latency of links that give none.
    npus_count
        Logical dimensions, the first varying fastest; by default all NPUs are one.
    routing
        What is shortest: ``hops``, ``latency``, or ``inside``: the fewest links that leave a machine, which is all
        dimensions of `npus_count` but the last.
    leave_out
        Types or names of components that no message passes, such as ``cpu``.

    Raises
    ------
    ConfigError
        Naming the device, instance, edge or link that is wrong.
    """
    source = os.fspath(path)
    for what, value, least in (("bandwidth", bandwidth_gibps, 0.0), ("latency", latency_ns, -1.0)):
        if value is not None and not least < value < math.inf:
            raise ConfigError(f"{source}: {what} {value:g} for links without is no {what}")
    document = read_document(source)
    annotations = None
    if isinstance(document, Mapping) and "infrastructure" in document:
        annotations, document = document.get("annotations"), document["infrastructure"]
    reader = _Reader(source, bandwidth_gibps, latency_ns)
    reader.read(document)
    types = reader.expand(document)
    npus = _ranks(reader, annotations, [name for name, kind in types.items() if kind in NPU_TYPES])
    if not 2 <= len(npus) <= MAX_LINKED_NPUS:
        raise ConfigError(
            f"{source}: instances have {counted(len(npus), 'component')} of the type xpu; a network has 2 to "
            f"{MAX_LINKED_NPUS}"
        )
    if npus_count is not None and math.prod(npus_count) != len(npus):
        raise ConfigError(
            f"{source}: npus_count gives {counted(math.prod(npus_count), 'NPU')}, but there are {len(npus)}"
        )
    _leave_out(reader, types, leave_out)
    _without_dead_ends(reader, set(npus))
    number = {name: k for k, name in enumerate(npus)}
    counts = [len(npus)] if npus_count is None else list(npus_count)
    links = [[number.get(a, a), number.get(b, b), *speed] for (a, b), (_, speed) in reader.edges.items()]
    if not links:
        raise ConfigError(f"{source}: no edges join the NPUs")
    return _network(source, {"npus_count": counts, "links": links, "routing": routing})


def _network(source: str, described: Mapping[str, object]) -> Network:
    """The network; ways lead over NPUs only where some cannot be reached otherwise."""

    def made(*, forward: bool) -> Network:
        section = Section.of({**described, "npus_forward": forward}, kind="network", compat=None)
        section.source = source
        return links_network(section)

    try:
        return made(forward=False)
    except ConfigError:
        return made(forward=True)
