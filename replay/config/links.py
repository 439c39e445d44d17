"""Networks given link by link: the key `links` of a network file, GraphML files, NetworkX graphs."""

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np

from chakra.arrays import I64, AnyArray, bounds, changes, distinct
from chakra.errors import ConfigError
from chakra.io.nearest import nearest
from chakra.io.readable import counted
from chakra.io.shown import describe
from chakra.io.text import read_text
from chakra.io.yaml_text import block_text, entry_text
from chakra.replay.config.key import Key, UnfitError
from chakra.replay.config.keys import (
    BUILT_OF,
    DIRECTED,
    ECMP,
    FLOW_CAP,
    FROM,
    LINK_BANDWIDTH,
    LINK_FIELDS,
    LINK_KEYS,
    LINK_LATENCY,
    LINK_NPUS_COUNT,
    LINK_SWITCHES,
    LINKS,
    LINKS_BANDWIDTH,
    LINKS_LATENCY,
    NPUS_FORWARD,
    ROUTES,
    ROUTING,
    TO,
)
from chakra.replay.config.link_readers import npu_number
from chakra.replay.config.model import Dimension, Link, Links, LinkTopology, Network, Switches
from chakra.replay.config.packets import dump_packets, read_packets
from chakra.replay.config.readers import MAX_INT
from chakra.replay.config.section import Section

T = TypeVar("T")

_FIELDS = {key.name: key for key in LINK_FIELDS}
#: what the graph itself may say
_GRAPH_KEYS = (ROUTING, ECMP, NPUS_FORWARD, LINK_SWITCHES, FLOW_CAP)
#: types of the usual entry, whose speeds are read once for all entries that have them
_PLAIN = set(itertools.product((int, str), (int, str), (int, float), (int, float)))
#: a number of every link, and the key of the file that gives it to links that do not
_SPEEDS = ((LINK_BANDWIDTH, LINKS_BANDWIDTH), (LINK_LATENCY, LINKS_LATENCY))


def links_network(section: Section) -> Network:
    """The network of a file or dict with the key `links`.

    Raises
    ------
    ConfigError
        naming file, line and key
    """
    section.refuse_unknown(LINK_KEYS)
    counts = section.read(LINK_NPUS_COUNT)
    rows = section.read(LINKS)
    defaults = {of_link.name: section.read(of_file) for of_link, of_file in _SPEEDS}
    names = _Names(section, counts)
    links: list[Link] = []
    like: dict[tuple[float, float], Link] = {}
    for i, row in enumerate(rows):
        speed: tuple[float, float] | None = None
        if isinstance(row, list) and tuple(map(type, row)) in _PLAIN:
            speed = row[2], row[3]
            a, b = (names.number(LINKS.name, i, end) for end in row[:2]) if speed in like else (0, 0)
            if a != b:
                known = like[speed]
                links.append(Link(a, b, known.bandwidth_gibps, known.latency_ns))
                links.append(Link(b, a, known.bandwidth_gibps, known.latency_ns))
                continue
        links += _row(section, names, i, row, defaults)
        if speed is not None:
            like[speed] = links[-1]
    return _network(section, counts, names, links)


def graph_network(graph: Any, source: str = "<graph>", compat: str | None = None) -> Network:
    """The network of a NetworkX graph.

    Nodes that are whole numbers, as numbers or text, are NPUs; edges carry `bandwidth` (GB/s of 2^30 B/s) and `latency`
    (ns). The edges of an undirected graph are links in both directions. The graph's own attributes may be `npus_count`,
    `routing`, `ecmp`, `npus_forward`, `switches` and `flow_cap`.

    Raises
    ------
    ConfigError
        as for a file
    """
    npus = sum(npu_number(node) is not None for node in graph.nodes)
    entries: dict[str, object] = {"npus_count": graph.graph.get("npus_count", [npus])}
    entries |= {key.name: graph.graph[key.name] for key in _GRAPH_KEYS if key.name in graph.graph}
    directed = bool(graph.is_directed())
    entries["links"] = [
        {"from": a, "to": b, "directed": directed}
        | {key: data[key] for key in ("bandwidth", "latency") if key in data}
        for a, b, data in graph.edges(data=True)
    ]
    section = Section.of(entries, kind="network", compat=compat)
    section.source = source
    return links_network(section)


def read_graphml(path: str | os.PathLike[str], compat: str | None = None) -> Network:
    """The network of a GraphML file; see `graph_network`.

    Raises
    ------
    ConfigError
        when the file is not GraphML, or says something wrong
    """
    import networkx as nx

    name = os.fspath(path)
    text = read_text(path)
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise ConfigError(f"{name}: a GraphML file with a DOCTYPE or entities is not read")
    try:
        graph = nx.parse_graphml(text)
    except Exception as error:  # the parser raises whatever its parts raise
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ConfigError(f"{name}: not a GraphML file: {reason}") from None
    return graph_network(graph, name, compat)


class _Names:
    """Numbers of vertices: NPUs have their own, others are numbered as they appear."""

    def __init__(self, section: Section, counts: tuple[int, ...]) -> None:
        self.section = section
        self.npus = 1
        for count in counts:
            self.npus *= count
        if self.npus > MAX_INT:
            raise section.error(
                "npus_count", f"gives {counted(self.npus, 'NPU')} in all, more than {MAX_INT}"
            )
        self.others: dict[str, int] = {}

    def number(self, key: str, i: int, written: object, *, add: bool = True) -> int:
        if type(written) is int and 0 <= written < self.npus:
            return written
        if type(written) is str and written in self.others:
            return self.others[written]
        try:
            vertex = FROM.reader.read(written)
        except UnfitError as unfit:
            raise self.section.error(key, f"entry {i}: {unfit.told(written)}") from None
        if isinstance(vertex, int):
            if not 0 <= vertex < self.npus:
                raise self.section.error(
                    key,
                    f"entry {i}: NPU {vertex} is not one of the {counted(self.npus, 'NPU')} 0 to {self.npus - 1}",
                )
            return vertex
        if vertex not in self.others:
            if not add:
                raise self.section.error(
                    key, f"entry {i}: no link has the vertex '{vertex}'{nearest(vertex, list(self.others))}"
                )
            self.others[vertex] = self.npus + len(self.others)
        return self.others[vertex]

    def of(self, number: int) -> str:
        return f"NPU {number}" if number < self.npus else f"vertex '{list(self.others)[number - self.npus]}'"


def _row(
    section: Section, names: _Names, i: int, row: object, defaults: Mapping[str, float | None]
) -> Iterator[Link]:
    """The links of one entry: both directions, unless it says that it is directed."""
    value = _row_fields(section, i, row)

    def read(key: Key[T]) -> T:
        try:
            return key.reader.read(value[key.name])
        except UnfitError as unfit:
            problem = f"entry {i}: '{key.name}' {unfit.told(value[key.name])}"
            raise section.error(LINKS.name, problem) from None

    directed = DIRECTED.name in value and read(DIRECTED)
    a, b = (names.number(LINKS.name, i, value[key.name]) for key in (FROM, TO))
    if a == b:
        raise section.error(LINKS.name, f"entry {i} joins {names.of(a)} with itself")
    speed = []
    for key, _ in _SPEEDS:
        given = read(key) if key.name in value else defaults[key.name]
        if given is None:
            raise section.error(
                LINKS.name, f"entry {i}: '{key.name}' is missing, and the file gives none for all links"
            )
        speed.append(given)
    yield Link(a, b, *speed)
    if not directed:
        yield Link(b, a, *speed)


def _row_fields(section: Section, i: int, row: object) -> dict[str, object]:
    """The fields of one entry, which is a list or a map."""
    if isinstance(row, Mapping):
        for field in row:
            if field not in _FIELDS:
                hint = nearest(str(field), _FIELDS) or f"; there are {', '.join(_FIELDS)}"
                raise section.error(LINKS.name, f"entry {i}: '{field}' is unknown{hint}")
        value = dict(row)
    elif isinstance(row, (list, tuple)) and 2 <= len(row) <= 4:
        value = dict(zip(_FIELDS, row, strict=False))
    else:
        raise section.error(
            LINKS.name,
            f"entry {i} must be [from, to, GB/s, ns] or {{from: ..., to: ...}}, found {describe(row)}",
        )
    for key in LINK_FIELDS:
        if key.required and key.name not in value:
            raise section.error(LINKS.name, f"entry {i}: '{key.name}' is missing")
    return value


def _network(section: Section, counts: tuple[int, ...], names: _Names, links: list[Link]) -> Network:
    twice = _given_twice(links)
    if twice is not None:
        raise section.error(
            "links",
            f"has the link from {names.of(twice.src)} to {names.of(twice.dst)} twice; give one link with the "
            "bandwidth of all",
        )
    routes = _routes(section, names, links)
    routing = section.read(ROUTING)
    if routing == "inside" and len(counts) == 1:
        raise section.error(
            ROUTING.name,
            "is 'inside', which needs machines: two logical dimensions at least, the last one of machines "
            f"('{LINK_NPUS_COUNT.name}', such as 8,{max(counts[0] // 8, 2)})",
        )
    network = Network(
        tuple(Dimension(LinkTopology.LINKS, count, 1.0, 0.0) for count in counts),
        section.source,
        Links(
            tuple(links),
            tuple(names.others),
            routes,
            routing,
            section.read(ECMP),
            section.read(NPUS_FORWARD),
            switches=section.read(LINK_SWITCHES),
            built_of=section.read(BUILT_OF),
        ),
        flow_cap_gibps=section.read(FLOW_CAP),
        packets=read_packets(section),
    )
    check_reach(network)
    return with_dims(network)


def column(links: Sequence[Link], name: str) -> AnyArray:
    """One number of every link: of its ends int64, else float64."""
    kind = np.int64 if name in ("src", "dst") else np.float64
    return np.fromiter(map(attrgetter(name), links), kind, len(links))


def _given_twice(links: Sequence[Link]) -> Link | None:
    """The first link whose ends are those of an earlier one."""
    src, dst = column(links, "src"), column(links, "dst")
    order = np.lexsort((dst, src))
    again = ~(changes(src[order]) | changes(dst[order]))
    return links[int(order[again].min())] if again.any() else None


def _routes(section: Section, names: _Names, given: Sequence[Link]) -> tuple[tuple[int, ...], ...]:
    out: dict[tuple[int, int], tuple[int, ...]] = {}
    rows = section.read(ROUTES)
    if rows is None:
        return ()
    links = {(link.src, link.dst) for link in given}
    for i, row in enumerate(rows):
        route = tuple(names.number("routes", i, vertex, add=False) for vertex in row)
        if route[0] >= names.npus or route[-1] >= names.npus or route[0] == route[-1]:
            raise section.error("routes", f"entry {i} must begin and end at two different NPUs")
        if len(set(route)) < len(route):
            raise section.error("routes", f"entry {i} comes to a vertex twice")
        for a, b in itertools.pairwise(route):
            if (a, b) not in links:
                raise section.error(
                    "routes", f"entry {i}: there is no link from {names.of(a)} to {names.of(b)}"
                )
        if (route[0], route[-1]) in out:
            raise section.error("routes", f"entry {i}: NPU {route[0]} to NPU {route[-1]} is given twice")
        out[route[0], route[-1]] = route
    return tuple(out.values())


def check_reach(network: Network, when: str = "") -> None:
    """Every NPU can reach every other.

    Raises
    ------
    ConfigError
        naming one pair that has no path
    """
    links = network.links
    if links is None:
        return
    n = network.npus
    src, dst = column(links.links, "src"), column(links.links, "dst")
    for tail, head, towards in ((src, dst, True), (dst, src, False)):
        seen = _reached(tail, head, n + len(links.vertices), n, links.npus_forward)
        npu = seen[:n].find(0)
        if npu >= 0:
            a, b = (0, npu) if towards else (npu, 0)
            raise ConfigError(f"{network.source}: NPU {b} cannot be reached from NPU {a}{when}")


def _reached(tail: I64, head: I64, vertices: int, npus: int, forward: bool) -> bytearray:
    """Of each vertex, whether a path from NPU 0 leads to it."""
    order = np.argsort(tail, kind="stable")
    to: list[int] = head[order].tolist()
    start: list[int] = bounds(np.bincount(tail, minlength=vertices)).tolist()
    seen, waiting = bytearray(vertices), [0]
    seen[0] = 1
    while waiting:
        here = waiting.pop()
        if 0 < here < npus and not forward:
            continue
        for there in to[start[here] : start[here + 1]]:
            if not seen[there]:
                seen[there] = 1
                waiting.append(there)
    return seen


def with_dims(network: Network) -> Network:
    """The network with its logical dimensions' figures taken from its links.

    The bandwidth is what the NPU that can send least can send, over all its links; the latency is the links' mean.
    """
    assert network.links is not None
    links = network.links.links
    src = column(links, "src")
    ours = src < network.npus
    egress = np.bincount(src[ours], column(links, "bandwidth_gibps")[ours], minlength=network.npus)
    least = float(egress[distinct(src[ours])].min())
    mean = sum(map(attrgetter("latency_ns"), links)) / len(links)
    return replace(
        network, dims=tuple(replace(dim, bandwidth_gibps=least, latency_ns=mean) for dim in network.dims)
    )


def dump_links(network: Network) -> str:
    """The text of a network file with links, which `load_network` reads back to an equal network."""
    links = network.links
    if links is None:
        raise ValueError("the network has no list of links")
    if links.dimension_ordered:
        raise ValueError("the links were made from building blocks: write those instead")

    def name(vertex: int) -> int | str:
        return vertex if vertex < network.npus else links.vertices[vertex - network.npus]

    lines = [entry_text("npus_count", [dim.npus for dim in network.dims])]
    if links.routing != "hops":
        lines.append(entry_text("routing", links.routing))
    if links.ecmp != "hash":
        lines.append(entry_text("ecmp", links.ecmp))
    if not links.npus_forward:
        lines.append(entry_text("npus_forward", False))
    if links.switches is not Switches.PLAIN:
        lines.append(entry_text(LINK_SWITCHES.name, links.switches.value))
    if links.built_of is not None:
        lines.append(entry_text(BUILT_OF.name, links.built_of.entries()))
    if network.flow_cap_gibps is not None:
        lines.append(entry_text(FLOW_CAP.name, network.flow_cap_gibps))
    rows: list[object] = []
    done: set[tuple[int, int]] = set()
    have = {(link.src, link.dst): link for link in links.links}
    for link in links.links:
        if (link.src, link.dst) in done:
            continue
        speed = (link.bandwidth_gibps, link.latency_ns)
        other = have.get((link.dst, link.src))
        done.add((link.src, link.dst))
        if other is not None and (other.bandwidth_gibps, other.latency_ns) == speed:
            done.add((link.dst, link.src))
            rows.append([name(link.src), name(link.dst), *speed])
        else:
            ends = {"from": name(link.src), "to": name(link.dst)}
            rows.append({**ends, "bandwidth": speed[0], "latency": speed[1], "directed": True})
    note = "from, to, GB/s of 2^30 B/s per direction, ns; both directions unless directed"
    lines.append(block_text("links", rows, comment=note))
    if links.routes:
        lines.append(block_text("routes", [list(map(name, route)) for route in links.routes]))
    return "\n".join(lines) + "\n" + dump_packets(network.packets)
