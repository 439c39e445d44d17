"""What a configuration comes to: every key with the value in effect, its unit, default and origin."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from chakra.replay.config.files import Source
from chakra.replay.config.keys import LINK_KEYS, MEMORY_KEYS, NETWORK_KEYS, PLUGIN_KEYS, SYSTEM_KEYS, Key
from chakra.replay.config.memory import load_memory
from chakra.replay.config.model import Network, SharedBus, System
from chakra.replay.config.network import load_network
from chakra.replay.config.section import Section
from chakra.replay.config.system import IMPLEMENTATION_KEYS, load_system


@dataclass(frozen=True, slots=True)
class Row:
    """One key as it is in effect."""

    key: str
    value: Any
    unit: str
    default: str
    #: "FILE", "FILE:LINE" or "default"
    source: str
    meaning: str
    #: what a value may be
    allowed: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """All keys of one file, and what its user should know."""

    kind: str
    source: str
    rows: tuple[Row, ...]
    notes: tuple[str, ...]


def explain_network(src: Source, *, compat: str | None = None) -> Explanation:
    """Explain a network description of building blocks or of links; raises ConfigError as `load_network` does."""
    network = load_network(src, compat=compat)
    if isinstance(src, str | os.PathLike) and os.fspath(src).lower().endswith(".graphml"):
        section = Section(os.fspath(src), {}, False)
        return Explanation("network", section.source, _link_rows(section, network), _link_notes(network))
    section = Section.of(src, kind="network", compat=compat, yaml=True)
    if section.given("plugin"):
        given = {key.name: section.entries[key.name].value for key in PLUGIN_KEYS if section.given(key.name)}
        made = {key.name: given.get(key.name) for key in PLUGIN_KEYS}
        dims = " x ".join(f"{dim.topology.value}({dim.npus})" for dim in network.dims)
        said = (f"{network.npus} NPUs in all: {dims}",) if network.links is None else _link_notes(network)
        return Explanation("network", section.source, _rows(section, PLUGIN_KEYS, made), said)
    if network.links is not None:
        return Explanation("network", section.source, _link_rows(section, network), _link_notes(network))
    values = {
        "topology": [dim.topology.value for dim in network.dims],
        "npus_count": [dim.npus for dim in network.dims],
        "bandwidth": [dim.bandwidth_gibps for dim in network.dims],
        "latency": [dim.latency_ns for dim in network.dims],
    }
    rates = ", ".join(f"{dim.bytes_per_ns:g}" for dim in network.dims)
    notes = [f"{network.npus} NPUs in all; a link moves {rates} bytes per ns"]
    return Explanation("network", section.source, _rows(section, NETWORK_KEYS, values), tuple(notes))


def _link_rows(section: Section, network: Network) -> tuple[Row, ...]:
    """Keys of a list of links; the links themselves are counted in the notes."""
    links = network.links
    assert links is not None
    given = {key: section.entries[key].value for key in ("bandwidth", "latency") if section.given(key)}
    values = {
        "npus_count": [dim.npus for dim in network.dims],
        "links": f"{len(links.links)} links",
        "bandwidth": given.get("bandwidth"),
        "latency": given.get("latency"),
        "routes": f"{len(links.routes)} routes" if links.routes else None,
        "routing": links.routing,
        "ecmp": links.ecmp,
        "npus_forward": links.npus_forward,
    }
    return _rows(section, LINK_KEYS, values)


def _link_notes(network: Network) -> tuple[str, ...]:
    """What the links come to."""
    links = network.links
    assert links is not None
    speeds = sorted({link.bandwidth_gibps for link in links.links})
    delays = sorted({link.latency_ns for link in links.links})
    ends = {(link.src, link.dst) for link in links.links}
    one_way = sum((dst, src) not in ends for src, dst in ends)
    count = (
        f"{network.npus} NPUs and {len(links.vertices)} switches; {len(links.links)} links, a direction each"
    )
    least = network.dims[0].bandwidth_gibps
    return (
        count + (f"; {one_way} of them one way only" if one_way else ""),
        f"links of {_range(speeds)} GB/s of 2^30 B/s, {_range(delays)} ns; every NPU can send {least:g} GB/s or more",
    )


def _range(values: list[float]) -> str:
    return f"{values[0]:g}" if len(values) == 1 else f"{values[0]:g} to {values[-1]:g}"


def explain_memory(src: Source, *, compat: str | None = None) -> Explanation:
    """Explain a remote-memory description; raises ConfigError as `load_memory` does."""
    memory = load_memory(src, compat=compat)
    section = Section.of(src, kind="memory", compat=compat)
    values = {
        "memory-type": memory.kind.value,
        "remote-mem-latency": memory.latency_ns,
        "remote-mem-bw": memory.bytes_per_ns,
        "num-nodes": memory.n_nodes or None,
        "num-npus-per-node": memory.npus_per_node or None,
    }
    return Explanation(
        "memory", section.source, _rows(section, MEMORY_KEYS, values), tuple(_dropped(section, values))
    )


def explain_system(src: Source, *, compat: str | None = None, network: Network | None = None) -> Explanation:
    """Explain a system description; raises ConfigError as `load_system` does."""
    system = load_system(src, compat=compat)
    section = Section.of(src, kind="system", compat=compat)
    values = _system_values(system)
    notes = [*_dropped(section, values), *_system_notes(section, system, network)]
    return Explanation("system", section.source, _rows(section, SYSTEM_KEYS, values), tuple(notes))


def _system_values(system: System) -> dict[str, Any]:
    """Every key of a system file with the value in effect."""
    bus = system.shared_bus or SharedBus()
    values: dict[str, Any] = {
        "scheduling-policy": system.scheduling_policy,
        "collective-optimization": system.collective_optimization,
        "endpoint-delay": system.endpoint_delay_ns,
        "active-chunks-per-dimension": system.active_chunks,
        "preferred-dataset-splits": system.splits,
        "per-node-custom-implementation": system.per_node_custom,
        "local-mem-bw": system.local_mem_bw_gbps,
        "peak-perf": system.peak_perf_tflops,
        "roofline-enabled": system.roofline,
        "trace-enabled": system.trace_enabled,
        "replay-only": system.replay_only,
        "track-local-mem": system.track_local_mem,
        "local-mem-trace-filename": system.local_mem_trace_filename,
        "model-shared-bus": system.shared_bus is not None,
        "L": bus.latency,
        "o": bus.overhead,
        "g": bus.gap,
        "G": bus.gap_per_byte,
        "local-reduction-delay": system.local_reduction_delay,
        "inter-dimension-scheduling": system.inter_dimension_scheduling,
        "intra-dimension-scheduling": system.intra_dimension_scheduling,
        "boost-mode": None,
    }
    for kind, stem in IMPLEMENTATION_KEYS.items():
        values[stem] = list(system.implementations[kind]) if kind in system.implementations else None
        values[f"{stem}-custom"] = [system.custom[kind]] if kind in system.custom else None
    return values


def _rows(section: Section, keys: tuple[Key, ...], values: Mapping[str, Any]) -> tuple[Row, ...]:
    rows = []
    for key in keys:
        entry = section.entries.get(key.name)
        source = "default"
        if entry is not None:
            source = f"{section.source}:{entry.line}" if entry.line else section.source
        rows.append(Row(key.name, values[key.name], key.unit, key.default, source, key.meaning, key.allowed))
    return tuple(rows)


def _dropped(section: Section, values: Mapping[str, Any]) -> list[str]:
    """Fractions that integers lost."""
    return [
        f"'{key}' counts as {value}: the fraction of {section.entries[key].value} is dropped, as in ASTRA-sim"
        for key, value in values.items()
        if section.given(key)
        and isinstance(value, int)
        and isinstance(given := section.entries[key].value, float)
        and given != value
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
            f"'{key}' is {str(section.entries[key].value).lower()}, which ASTRA-sim takes for true"
            for key in ("roofline-enabled", "trace-enabled", "replay-only", "track-local-mem")
            if section.given(key) and section.entries[key].value in (False, None) and section.switch(key)
        ]
    missing = [
        stem
        for kind, stem in IMPLEMENTATION_KEYS.items()
        if kind not in system.implementations and kind not in system.custom
    ]
    if missing:
        notes.append(f"no algorithm for {', '.join(missing)}: a workload with such a collective is refused")
    if section.given("boost-mode"):
        notes.append("'boost-mode' has no effect: results are always those of the full simulation")
    if any(section.given(key) for key in "LogG") and system.shared_bus is None:
        notes.append("L, o, g and G have no effect while model-shared-bus is off")
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
                f"'{key}': {name} on {size} NPUs (dimension {d}), not a power of two such as {nearest}"
            )
        if name.startswith("one") and len(names) > d + 1:
            notes.append(f"'{key}': {name} spans all NPUs, so the entries after it are not used")
            return notes
        if name.startswith("one"):
            return notes
    if len(names) < len(network.dims):
        left = ", ".join(str(d) for d in range(len(names), len(network.dims)))
        notes.append(
            f"'{key}' names {len(names)} algorithms: dimensions {left} take no part in such a collective"
        )
    return notes
