"""What a configuration comes to: every key with the value in effect, its unit, default and origin."""

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from chakra.arrays import distinct
from chakra.io.readable import counted
from chakra.replay.config.files import Source
from chakra.replay.config.key import Key
from chakra.replay.config.keys import (
    BOOST_MODE,
    BUILT_OF,
    ECMP,
    FLOW_CAP,
    IMPLEMENTATION_KEYS,
    LINK_KEYS,
    LINK_SWITCHES,
    LINKS,
    LINKS_BANDWIDTH,
    LINKS_LATENCY,
    MEMORY_KEYS,
    N_NODES,
    NETWORK_KEYS,
    NPUS_COUNT,
    NPUS_FORWARD,
    NPUS_PER_NODE,
    PLUGIN,
    PLUGIN_KEYS,
    ROUTES,
    ROUTING,
    SHARED_BUS,
    SYSTEM_KEYS,
)
from chakra.replay.config.links import column
from chakra.replay.config.memory import load_memory
from chakra.replay.config.model import Network, System
from chakra.replay.config.network import load_network
from chakra.replay.config.packet_keys import ECN_THRESHOLD, PACKET_KEYS, PACKETS, QUEUE
from chakra.replay.config.packets import packet_section, queue_of, threshold_of
from chakra.replay.config.readers import Switch
from chakra.replay.config.section import Section
from chakra.replay.config.system import load_system


@dataclass(frozen=True, slots=True)
class ValueInEffect:
    """One key as it is in effect."""

    key: str
    value: object
    unit: str
    default: str
    #: "FILE", "FILE:LINE" or "default"
    source: str
    meaning: str
    #: what a value may be
    allowed: str = ""

    @classmethod
    def of(
        cls, key: Key[object], value: object, source: str, *, name: str = "", meaning: str = ""
    ) -> "ValueInEffect":
        """The value of a key; `name` and `meaning` where they are not the key's own."""
        return cls(
            name or key.name,
            value,
            key.unit,
            key.default_in_words,
            source,
            meaning or key.meaning,
            key.allowed,
        )


@dataclass(frozen=True, slots=True)
class FileInEffect:
    """All keys of one file, and what its user should know."""

    kind: str
    source: str
    rows: tuple[ValueInEffect, ...]
    notes: tuple[str, ...]


def values_in_effect(
    kind: str, src: Source, *, compat: str | None = None, network: Network | None = None
) -> FileInEffect:
    """Every key of a network, system or memory description.

    Parameters
    ----------
    kind
        "network", "system" or "memory".
    src
        Path, or a dict with the same keys.
    compat
        As the loaders take it.
    network
        The network that a system is for, if known: notes say how they meet.

    Raises
    ------
    ConfigError
        As the loader of that kind of file.
    """
    if kind == "network":
        return network_in_effect(src, load_network(src, compat=compat), compat)
    return _system(src, compat, network) if kind == "system" else _memory(src, compat)


def network_in_effect(src: Source | Section, network: Network, compat: str | None) -> FileInEffect:
    """A network of building blocks or of links: its description, and what was read from it."""
    if isinstance(src, str | os.PathLike) and os.fspath(src).lower().endswith(".graphml"):
        section = Section(os.fspath(src), {}, None)
    else:
        section = Section.of(src, kind="network", compat=compat, yaml=True)
    if section.given(PLUGIN):
        dims = " x ".join(f"{dim.topology.value}({dim.npus})" for dim in network.dims)
        said = (
            (f"{counted(network.npus, 'NPU')} in all: {dims}",)
            if network.links is None
            else _link_notes(network)
        )
        if network.outside is not None:
            said += (f"network {network.outside.name!r} simulates the transfers itself",)
        rows = _rows(section, PLUGIN_KEYS, {key.name: section.raw(key) for key in PLUGIN_KEYS})
        return FileInEffect("network", section.source, rows, said)
    if network.links is not None:
        return FileInEffect("network", section.source, _link_rows(section, network), _link_notes(network))
    rates = ", ".join(f"{dim.bytes_per_ns:g}" for dim in network.dims)
    notes = (f"{counted(network.npus, 'NPU')} in all; a link moves {rates} bytes per ns",)
    values: dict[str, object] = {
        key.name: key.of_each(network.dims) for key in NETWORK_KEYS if key is not PACKETS
    }
    values[FLOW_CAP.name] = FLOW_CAP.of(network)
    rows = _with_packets(section, network, NETWORK_KEYS, values)
    return FileInEffect("network", section.source, rows, notes)


def _with_packets(
    section: Section, network: Network, keys: Iterable[Key[object]], values: Mapping[str, object]
) -> tuple[ValueInEffect, ...]:
    """Rows of a network file: those of `packets` follow it, one for each of its keys, where the file has it."""
    given = section.given(PACKETS) and not section.as_head
    rows = _rows(section, keys, {**values, PACKETS.name: section.raw(PACKETS) if given else None})
    if not given:
        return rows
    packets, part = network.packets, packet_section(section)
    inner = {key.name: key.of(packets) for key in PACKET_KEYS}
    inner |= {QUEUE.name: queue_of(packets), ECN_THRESHOLD.name: threshold_of(packets)}
    return rows + tuple(
        ValueInEffect.of(key, inner[key.name], part.origin(key), name=f"{PACKETS.name}.{key.name}")
        for key in PACKET_KEYS
    )


def _link_rows(section: Section, network: Network) -> tuple[ValueInEffect, ...]:
    """Keys of a list of links; the links themselves are counted in the notes."""
    links = network.links
    assert links is not None
    values = {key.name: key.of(links) for key in (ROUTING, ECMP, NPUS_FORWARD, LINK_SWITCHES)} | {
        NPUS_COUNT.name: NPUS_COUNT.of_each(network.dims),
        LINKS.name: f"{counted(len(links.links), 'link')}",
        LINKS_BANDWIDTH.name: section.raw(LINKS_BANDWIDTH),
        LINKS_LATENCY.name: section.raw(LINKS_LATENCY),
        ROUTES.name: counted(len(links.routes), "route") if links.routes else None,
        FLOW_CAP.name: FLOW_CAP.of(network),
        BUILT_OF.name: None if links.built_of is None else links.built_of.entries(),
    }
    return _with_packets(section, network, LINK_KEYS, values)


def _link_notes(network: Network) -> tuple[str, ...]:
    """What the links come to."""
    links = network.links
    assert links is not None
    speeds, delays = (
        distinct(column(links.links, name)).tolist() for name in ("bandwidth_gibps", "latency_ns")
    )
    src, dst = column(links.links, "src"), column(links.links, "dst")
    vertices = network.npus + len(links.vertices)
    one_way = int((~np.isin(dst * vertices + src, src * vertices + dst)).sum())
    count = (
        f"{counted(network.npus, 'NPU')} and {counted(len(links.vertices), 'switch')}; "
        f"{counted(len(links.links), 'link')}, a direction each"
    )
    least = network.dims[0].bandwidth_gibps
    return (
        count + (f"; {one_way} of them one way only" if one_way else ""),
        f"links of {_range(speeds)} GB/s of 2^30 B/s, {_range(delays)} ns; every NPU can send {least:g} GB/s or more",
    )


def _range(values: list[float]) -> str:
    return f"{values[0]:g}" if len(values) == 1 else f"{values[0]:g} to {values[-1]:g}"


def _memory(src: Source, compat: str | None) -> FileInEffect:
    memory = load_memory(src, compat=compat)
    section = Section.of(src, kind="memory", compat=compat)
    values = {key.name: key.of(memory) for key in MEMORY_KEYS}
    for key in (N_NODES, NPUS_PER_NODE):
        values[key.name] = values[key.name] or None
    rows = _rows(section, MEMORY_KEYS, values)
    return FileInEffect("memory", section.source, rows, tuple(_dropped(section, values)))


def _system(src: Source, compat: str | None, network: Network | None) -> FileInEffect:
    system = load_system(src, compat=compat)
    section = Section.of(src, kind="system", compat=compat)
    values = {key.name: key.of(system) for key in SYSTEM_KEYS}
    values[SHARED_BUS.name] = system.shared_bus is not None
    notes = [*_dropped(section, values), *_system_notes(section, system, network)]
    return FileInEffect("system", section.source, _rows(section, SYSTEM_KEYS, values), tuple(notes))


def _rows(
    section: Section, keys: Iterable[Key[object]], values: Mapping[str, object]
) -> tuple[ValueInEffect, ...]:
    return tuple(ValueInEffect.of(key, values[key.name], section.origin(key)) for key in keys)


def _dropped(section: Section, values: Mapping[str, object]) -> list[str]:
    """Fractions that integers lost."""
    given = {name: section.entries[name].value for name in values if name in section.entries}
    return [
        f"'{name}' counts as {values[name]}: the fraction of {value} is dropped, as in ASTRA-sim"
        for name, value in given.items()
        if isinstance(values[name], int) and isinstance(value, float) and value != values[name]
    ]


def _system_notes(section: Section, system: System, network: Network | None) -> list[str]:
    """What is legal and perhaps not meant."""
    notes = []
    if section.as_head:
        notes += [
            f"'{key}' is ignored: ASTRA-sim does not know it"
            for key in section.entries
            if key not in {known.name for known in SYSTEM_KEYS}
        ]
        notes += [
            f"'{key.name}' is {str(section.raw(key)).lower()}, which ASTRA-sim takes for true"
            for key in SYSTEM_KEYS
            if section.given(key)
            and type(key.reader) is Switch
            and section.raw(key) in (False, None)
            and section.read(key)
        ]
    missing = [
        stem
        for kind, stem in IMPLEMENTATION_KEYS.items()
        if kind not in system.implementations and kind not in system.custom
    ]
    if missing:
        notes.append(f"no algorithm for {', '.join(missing)}: a workload with such a collective is refused")
    if section.given(BOOST_MODE):
        notes.append(f"'{BOOST_MODE.name}' has no effect: results are always those of the full simulation")
    of_bus = [key for key in SYSTEM_KEYS if key.field.startswith("shared_bus.")]
    if any(section.given(key) for key in of_bus) and system.shared_bus is None:
        *first, last = (key.name for key in of_bus)
        notes.append(f"{', '.join(first)} and {last} have no effect while {SHARED_BUS.name} is off")
    if network is not None:
        for kind, names in system.implementations.items():
            notes += _algorithm_notes(IMPLEMENTATION_KEYS[kind], names, network)
    return notes


def _algorithm_notes(key: str, names: tuple[str, ...], network: Network) -> list[str]:
    """How an algorithm list meets the network's dimensions."""
    notes = []
    for d, (name, dim) in enumerate(zip(names, network.dims, strict=False)):
        size = network.npus if name.startswith("one") else dim.npus
        if name in ("halvingDoubling", "oneHalvingDoubling", "doubleBinaryTree") and size & (size - 1):
            nearest = 1 << round(math.log2(size))
            notes.append(
                f"'{key}': {name} on {counted(size, 'NPU')} (dimension {d}), not a power of two such as {nearest}"
            )
        if name.startswith("one") and len(names) > d + 1:
            notes.append(f"'{key}': {name} spans all NPUs, so the entries after it are not used")
            return notes
        if name.startswith("one"):
            return notes
    if len(names) < len(network.dims):
        left = ", ".join(str(d) for d in range(len(names), len(network.dims)))
        notes.append(
            f"'{key}' names {counted(len(names), 'algorithm')}: dimensions {left} take no part in such a collective"
        )
    return notes
