"""Network files: lists of equal length, one entry per dimension (replay semantics, section 1.2), or a list of links."""

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from chakra.arguments import checked
from chakra.io.limits import MAX_NPUS
from chakra.io.nearest import nearest
from chakra.io.shown import describe
from chakra.io.yaml import Entry
from chakra.replay.config.files import Source
from chakra.replay.config.keys import NETWORK_KEYS
from chakra.replay.config.links import dump_links, graph_network, links_network, read_graphml
from chakra.replay.config.model import Dimension, Network, Topology
from chakra.replay.config.network_plugins import plugin_network
from chakra.replay.config.section import MAX_INT, Section, finite

#: so many dimensions of two NPUs have all the NPUs that a machine may have
MAX_DIMS = MAX_NPUS.bit_length() - 1
_NAMES = [key.name for key in NETWORK_KEYS]
_TOPOLOGIES = {topology.value: topology for topology in Topology}
#: keys that only the network files of ASTRA-sim 1.0 have
_OLD_KEYS = ("topology-name", "topologies-per-dim", "dimensions-count", "units-count", "link-bandwidth")


@checked
def load_network(src: Source | Network | Any, *, compat: str | None = None) -> Network:
    """Read a network description.

    Parameters
    ----------
    src
        path of a YAML file (or of a GraphML file, by its suffix), a dict with the same keys, a NetworkX graph, or a
        Network
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
    if isinstance(src, (str, os.PathLike)) and os.fspath(src).lower().endswith(".graphml"):
        return read_graphml(src, compat)
    section = Section.of(src, kind="network", compat=compat, yaml=True)
    for old in _OLD_KEYS:
        if section.given(old):
            raise section.error(
                old, "belongs to a network file of ASTRA-sim 1.0: convert it with `chakra convert config`"
            )
    if section.given("plugin"):
        made, words = plugin_network(section)
        if not isinstance(made, Mapping):
            return replace(load_network(made, compat=compat), source=words)
        section = Section(words, {key: Entry(value) for key, value in made.items()}, section.as_head)
    if section.given("links"):
        return links_network(section)
    section.refuse_unknown(_NAMES)
    topologies = section.items("topology", "topologies")
    counts = section.items("npus_count", "numbers of NPUs")
    bandwidths = section.items("bandwidth", "bandwidths in GB/s")
    latencies = section.items("latency", "latencies in ns")
    if not topologies:
        raise section.error("topology", "is an empty list: a network has at least one dimension")
    if len(topologies) > MAX_DIMS:
        raise section.error(
            "topology",
            f"has {len(topologies)} entries; a network of at most {MAX_NPUS} NPUs has at most {MAX_DIMS} dimensions",
        )
    for key, values in (("npus_count", counts), ("bandwidth", bandwidths), ("latency", latencies)):
        if len(values) != len(topologies):
            raise section.error(
                key,
                f"has {len(values)} entries, but 'topology' has {len(topologies)}: one per dimension",
            )
    # a machine of one NPU has one dimension; ASTRA-sim refuses it, and nothing is left to be joined by another one
    fewest = 1 if compat is None and len(topologies) == 1 else 2
    dims = tuple(
        _dimension(section, d, fewest, *values)
        for d, values in enumerate(zip(topologies, counts, bandwidths, latencies, strict=True))
    )
    network = Network(dims, section.source)
    if network.npus > MAX_NPUS:
        raise section.error(
            "npus_count", f"gives {network.npus} NPUs in all, more than the {MAX_NPUS} supported"
        )
    return network


def _dimension(
    section: Section, d: int, fewest: int, topology: Any, count: Any, bandwidth: Any, latency: Any
) -> Dimension:
    """Dimension `d` of at least `fewest` NPUs from its four values."""
    if not isinstance(topology, str) or topology not in _TOPOLOGIES:
        hint = nearest(topology, list(_TOPOLOGIES)) if isinstance(topology, str) else ""
        raise section.error(
            "topology",
            f"entry {d} must be one of {', '.join(_TOPOLOGIES)}, found {describe(topology)}{hint}",
        )
    try:
        whole = not isinstance(count, (bool, str, float)) and int(count) == count
    except (TypeError, ValueError):
        whole = False
    if not whole or not fewest <= count <= MAX_INT:
        raise section.error(
            "npus_count",
            f"entry {d} must be a whole number of NPUs, at least {fewest}, found {describe(count)}",
        )
    return Dimension(
        _TOPOLOGIES[topology],
        int(count),
        finite(
            bandwidth,
            True,
            lambda shown: section.error(
                "bandwidth", f"entry {d} must be a number of GB/s above 0, found {shown}"
            ),
        ),
        finite(
            latency,
            False,
            lambda shown: section.error(
                "latency", f"entry {d} must be a number of ns, 0 or more, found {shown}"
            ),
        ),
    )


@checked
def dump_network(network: Network) -> str:
    """The network as text of a network file, which `load_network` reads back to an equal value.

    Parameters
    ----------
    network
        The network.
    """
    if network.links is not None:
        return dump_links(network)
    rows: dict[str, list[object]] = {
        "topology": [dim.topology.value for dim in network.dims],
        "npus_count": [dim.npus for dim in network.dims],
        "bandwidth": [dim.bandwidth_gibps for dim in network.dims],
        "latency": [dim.latency_ns for dim in network.dims],
    }
    notes = {"bandwidth": "  # GB/s of 2^30 B/s, per link and direction", "latency": "  # ns per hop"}
    return "".join(
        f"{key}: [ {', '.join(str(value) for value in values)} ]{notes.get(key, '')}\n"
        for key, values in rows.items()
    )
