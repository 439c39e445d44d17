"""Network files: lists of equal length, one entry per dimension (replay semantics, section 1.2), or a list of links."""

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from chakra.arguments import checked
from chakra.errors import UsageError
from chakra.io.limits import MAX_NPUS
from chakra.io.readable import counted
from chakra.io.yaml import Entry
from chakra.io.yaml_text import entry_text
from chakra.replay.config.files import Source
from chakra.replay.config.keys import (
    BANDWIDTH,
    FLOW_CAP,
    LATENCY,
    LINKS,
    NETWORK_KEYS,
    NPUS_COUNT,
    PLUGIN,
    SWITCHES,
    TOPOLOGY,
)
from chakra.replay.config.links import dump_links, graph_network, links_network, read_graphml
from chakra.replay.config.model import Dimension, Network, Switches, Topology
from chakra.replay.config.network_plugins import plugin_network
from chakra.replay.config.outside import outside_network, simulates
from chakra.replay.config.packet_keys import PACKETS
from chakra.replay.config.packets import dump_packets, read_packets
from chakra.replay.config.section import Section

#: so many dimensions of two NPUs have all the NPUs that a machine may have
MAX_DIMS = MAX_NPUS.bit_length() - 1
#: keys that only the network files of ASTRA-sim 1.0 have
_OLD_KEYS = ("topology-name", "topologies-per-dim", "dimensions-count", "units-count", "link-bandwidth")


@checked
def load_network(src: Source | Network | Any, *, compat: str | None = None) -> Network:
    """Read a network description.

    Parameters
    ----------
    src
        path of a YAML file (or of a GraphML file, by its suffix), a dict with the same keys, a NetworkX graph, an
        `OutsideNetwork` (`chakra.replay.networks`), or a Network
    compat
        "astra-sim": unknown keys are ignored (C14)

    Raises
    ------
    ConfigError
        naming file, line and key

    Examples
    --------
    >>> load_network({"topology": ["Ring"], "npus_count": [8], "bandwidth": [50], "latency": [500]}).npus
    8
    """
    if isinstance(src, Network):
        return src
    if hasattr(src, "is_directed") and hasattr(src, "edges"):
        return graph_network(src, compat=compat)
    if simulates(src):
        return outside_network(src)
    if isinstance(src, (str, os.PathLike)) and os.fspath(src).lower().endswith(".graphml"):
        return read_graphml(src, compat)
    section = Section.of(src, kind="network", compat=compat, yaml=True)
    for old in _OLD_KEYS:
        if old in section.entries:
            raise section.error(
                old, "belongs to a network file of ASTRA-sim 1.0: convert it with `chakra convert config`"
            )
    if section.given(PLUGIN):
        made, words = plugin_network(section)
        if not isinstance(made, Mapping):
            return replace(load_network(made, compat=compat), source=words)
        section = Section(words, {key: Entry(value) for key, value in made.items()}, compat)
    if section.given(LINKS):
        return links_network(section)
    section.refuse_unknown(NETWORK_KEYS)
    return _blocks_network(section)


def _blocks_network(section: Section) -> Network:
    """The network of four lists of equal length."""
    topologies = section.read(TOPOLOGY)
    if len(topologies) > MAX_DIMS:
        raise section.error(
            TOPOLOGY.name,
            f"has {counted(len(topologies), 'entry')}; a network of at most {MAX_NPUS} NPUs has at most {MAX_DIMS} "
            "dimensions",
        )
    counts, bandwidths, latencies = (
        section.read(NPUS_COUNT),
        section.read(BANDWIDTH),
        section.read(LATENCY),
    )
    for key, values in ((NPUS_COUNT, counts), (BANDWIDTH, bandwidths), (LATENCY, latencies)):
        if len(values) != len(topologies):
            raise section.error(
                key.name,
                f"has {counted(len(values), 'entry')}, but '{TOPOLOGY.name}' has {len(topologies)}: one per dimension",
            )
    said = section.read(SWITCHES)
    switches = (Switches.PLAIN,) * len(topologies) if said is None else said
    if len(switches) != len(topologies):
        raise section.error(
            SWITCHES.name,
            f"has {counted(len(switches), 'entry')}, but '{TOPOLOGY.name}' has {len(topologies)}: one per dimension",
        )
    for k, (topology, can) in enumerate(zip(topologies, switches, strict=True)):
        if can is not Switches.PLAIN and topology is not Topology.SWITCH:
            raise section.error(
                SWITCHES.name,
                f"says {can.value!r} of dimension {k}, a {topology.value}, which has no switches; say "
                f"{Switches.PLAIN.value!r} there",
            )
    rows = zip(topologies, counts, bandwidths, latencies, switches, strict=True)
    network = Network(
        tuple(Dimension(*row) for row in rows),
        section.source,
        flow_cap_gibps=section.read(FLOW_CAP),
        packets=read_packets(section),
    )
    if network.npus > MAX_NPUS:
        raise section.error(
            NPUS_COUNT.name,
            f"gives {counted(network.npus, 'NPU')} in all, more than the {MAX_NPUS} supported",
        )
    return network


@checked
def dump_network(network: Network) -> str:
    """The network as text of a network file, which `load_network` reads back to an equal value.

    Parameters
    ----------
    network
        The network.

    Raises
    ------
    UsageError
        When another package simulates it: what that does cannot be written.
    """
    if network.outside is not None:
        raise UsageError(f"{network.source} is simulated by another package, and cannot be written as a file")
    if network.links is not None:
        return dump_links(network)
    notes = {"bandwidth": "GB/s of 2^30 B/s, per link and direction", "latency": "ns per hop"}
    plain = all(dim.switches is Switches.PLAIN for dim in network.dims)
    text = "".join(
        entry_text(key.name, list(key.of_each(network.dims)), notes.get(key.name, "")) + "\n"
        for key in NETWORK_KEYS
        if key not in (FLOW_CAP, PACKETS) and not (plain and key is SWITCHES)
    )
    if network.flow_cap_gibps is not None:
        text += entry_text(FLOW_CAP.name, network.flow_cap_gibps) + "\n"
    return text + dump_packets(network.packets)
