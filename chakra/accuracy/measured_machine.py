"""Whether a replay's machine is like those on which steps were measured, and predicted from presets.

An interval rests on steps whose machines had some speeds and bandwidths, and on predictions with those. What others
would have made of their errors nobody measured, so that no width can be stated for it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from chakra.arrays import components
from chakra.io.readable import figure_text
from chakra.platforms import load_platform
from chakra.replay.collectives.library.port_rates import node_of
from chakra.replay.config.model import Dimension, Links, LinkTopology, Network, Switches, System, Topology

#: Gb/s of an NPU's port in measured steps of more than one machine, least and most, where they are not the preset's alone
#: (tests/accuracy/test_intervals.py makes them of the rows)
PORTS_GBPS: Final[Mapping[str, tuple[float, float]]] = {"dgx-a100": (100.0, 200.0)}
#: bandwidth of the memory of measured accelerators in the same way, 10^9 B/s: A100 of 40 and of 80 GB
MEMORY_GBPS: Final[Mapping[str, tuple[float, float]]] = {"dgx-a100": (1555.0, 2039.0)}
#: figures are equal within this factor: files round them
_EQUAL: Final = 1.02
#: latencies of a hop are assumed in presets: within this factor they are alike
_ALIKE: Final = 2.0

Ends = tuple[float, float]


@dataclass(frozen=True, slots=True)
class _Sent:
    """NPUs of a machine, and what they can send inside it and out of it, least and most, 10^9 B/s; None where nobody
    sends."""

    node_npus: int
    inside: Ends | None
    outside: Ends | None


def unlike_accelerator(system: System, machine: str) -> str | None:
    """Why no step was measured on an accelerator of such a peak and memory; None where some was.

    Parameters
    ----------
    system
        The system, which may say neither.
    machine
        Preset whose operator times count.
    """
    accelerator = load_platform(machine).accelerator
    peak, memory = system.peak_perf_tflops, system.local_mem_bw_gbps
    if peak is not None and not _between((peak, peak), (accelerator.peak_tflops,) * 2, _EQUAL):
        return (
            f"the accelerator's peak is {figure_text(peak)} TFLOP/s, and in measured steps "
            f"{figure_text(accelerator.peak_tflops)}"
        )
    known = MEMORY_GBPS.get(machine, (accelerator.mem_gbps,) * 2)
    if memory and not _between((memory, memory), known, _EQUAL):
        return (
            f"the accelerator's memory has {figure_text(memory)} GB/s, and in measured steps {_told(known)}"
        )
    return None


def unlike_network(network: Network, machine: str) -> str | None:
    """Why no step was measured on such a network; None where some was.

    Parameters
    ----------
    network
        The network, without faults.
    machine
        Preset whose operator times count.
    """
    platform = load_platform(machine)
    inner, outer = platform.dims[0], platform.dims[-1]
    able = {dim.switches for dim in network.dims} | ({network.links.switches} if network.links else set())
    if able != {Switches.PLAIN}:
        return f"its switches do more than forward ({', '.join(sorted(able - {Switches.PLAIN}))})"
    sent = _sent_over(network, platform.node_npus)
    if sent.outside is not None and 2 * sent.node_npus <= platform.node_npus:
        return f"machines have {sent.node_npus} NPUs, and those of measured steps more than half of {platform.node_npus}"
    inside = (inner.bandwidth.value, inner.bandwidth.value)
    if sent.inside is not None and not _between(sent.inside, inside, _EQUAL):
        return f"an NPU sends {_told(sent.inside)} GB/s inside its machine, and in measured steps {_told(inside)}"
    port = 8 * outer.bandwidth.value
    ports = PORTS_GBPS.get(machine, (port, port))
    if sent.outside is not None:
        rates = (8 * sent.outside[0], 8 * sent.outside[1])
        if not _between(rates, ports, _EQUAL):
            return f"an NPU's port has {_told(rates)} Gb/s, and in measured steps {_told(ports)}"
    hops = _hops(network)
    latencies = [dim.latency.value for dim in platform.dims]
    assumed = (min(latencies), max(latencies))
    if hops is not None and not _between(hops, assumed, _ALIKE):
        return f"a hop takes {_told(hops)} ns, and measured steps were predicted with {_told(assumed)}"
    if network.links is None:
        return None
    height = _heights(network.links, network.npus)
    if _is_oversubscribed(network.links, height, network.npus):
        return "its switches have less bandwidth up than down, and those of measured steps as much"
    if _is_flat(network.links, height, network.npus, sent.node_npus):
        return "machines or switches are joined to others beside them, and those of measured steps by switches above"
    return None


def _sent_over(network: Network, most: int) -> _Sent:
    """What NPUs send, where a machine has at most so many."""
    node, inner, outer = node_of(network, most)
    links = network.links
    if links is None or links.dimension_ordered:
        ends = (_ends(_of_dimension(dim) for dim in dims if dim.npus > 1) for dims in (inner, outer))
        return _Sent(node, *ends)
    between = [(link.src, link.dst) for link in links.links if min(link.src, link.dst) >= network.npus]
    # switches that are joined to one another, whatever NPUs join, have one number
    pairs = np.array(between, np.int64).reshape(-1, 2)
    fabric = components(network.npus + len(links.vertices), pairs[:, 0], pairs[:, 1]).tolist()
    machines = defaultdict[int, set[int]](set)
    for link in links.links:
        if link.src < network.npus <= link.dst:
            machines[fabric[link.dst]].add(link.src // node)
    alone, shared = dict.fromkeys(range(network.npus), 0.0), dict.fromkeys(range(network.npus), 0.0)
    for link in links.links:
        if link.src >= network.npus:
            continue
        own = link.src // node
        within = link.dst // node == own if link.dst < network.npus else machines[fabric[link.dst]] == {own}
        (alone if within else shared)[link.src] += link.bytes_per_ns
    # an NPU without links of its machine's own reaches the machine's others over those that lead out of it
    inside = {npu: alone[npu] or shared[npu] for npu in alone}
    return _Sent(
        node,
        _ends(inside.values() if node > 1 else ()),
        _ends(shared.values() if network.npus > node else ()),
    )


def _of_dimension(dim: Dimension) -> float:
    """What an NPU sends into a dimension of building blocks, 10^9 B/s."""
    links = 1
    if dim.topology is Topology.RING:
        links = min(dim.npus - 1, 2)
    elif dim.topology is Topology.FULLY_CONNECTED:
        links = dim.npus - 1
    return links * dim.bytes_per_ns


def _hops(network: Network) -> Ends | None:
    """Latencies of hops, ns."""
    if network.links is not None and network.dims[0].topology is LinkTopology.LINKS:
        return _ends(link.latency_ns for link in network.links.links)
    return _ends(dim.latency_ns for dim in network.dims if dim.npus > 1)


def _is_oversubscribed(links: Links, height: Mapping[int, int], npus: int) -> bool:
    """Whether some switch has less bandwidth away from the NPUs than towards them, and has NPUs that are not below it.

    Above a switch with all NPUs below it are idle places, such as leaves without a machine, which nobody sends to.
    """
    up, down = defaultdict[int, float](float), defaultdict[int, float](float)
    below = defaultdict[int, list[int]](list)
    for link in links.links:
        if link.src in height and height[link.dst] != height[link.src]:
            higher = height[link.dst] > height[link.src]
            (up if higher else down)[link.src] += link.bandwidth_gibps
            if not higher:
                below[link.src].append(link.dst)
    narrow = [vertex for vertex, wide in up.items() if 0 < wide * _EQUAL < down[vertex]]
    # one switch for all that have the same ones below them; low ones have few NPUs to count
    alike = {frozenset(below[vertex]): vertex for vertex in narrow}
    return any(
        _count_below(vertex, below, npus) < npus for vertex in sorted(alike.values(), key=height.__getitem__)
    )


def _count_below(vertex: int, below: Mapping[int, list[int]], npus: int) -> int:
    """How many NPUs are below a vertex."""
    found, front = {vertex}, [vertex]
    while front:
        near = {other for one in front for other in below.get(one, ())} - found
        found |= near
        front = list(near)
    return sum(one < npus for one in found)


def _is_flat(links: Links, height: Mapping[int, int], npus: int, node: int) -> bool:
    """Whether switches of one level, or NPUs of two machines, are joined to one another, as in a torus or a dragonfly."""
    return any(
        height.get(link.src) == height.get(link.dst)
        and (link.src >= npus or link.src // node != link.dst // node)
        for link in links.links
    )


def _heights(links: Links, npus: int) -> dict[int, int]:
    """How many links each vertex is above the NPUs."""
    near = defaultdict[int, list[int]](list)
    for link in links.links:
        near[link.src].append(link.dst)
    height, front = dict.fromkeys(range(npus), 0), list(range(npus))
    while front:
        here, front = front, []
        for vertex in here:
            for other in near[vertex]:
                if other not in height:
                    height[other] = height[vertex] + 1
                    front.append(other)
    return height


def _ends(values: Iterable[float]) -> Ends | None:
    """The least and the most; None of nothing."""
    held = list(values)
    return (min(held), max(held)) if held else None


def _between(ends: Ends, others: Ends, factor: float) -> bool:
    return others[0] / factor <= ends[0] and ends[1] <= others[1] * factor


def _told(ends: Ends) -> str:
    low, high = (figure_text(end) for end in ends)
    return low if low == high else f"{low} to {high}"
