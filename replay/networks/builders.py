"""Common topologies as lists of links; `chakra.replay.config.dump_network` writes them as network files.

Bandwidths are GB/s of 2^30 B/s per direction, latencies ns per link. Links run both ways.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from math import prod

from chakra.arguments import checked
from chakra.errors import UsageError
from chakra.io.limits import MAX_LINKED_NPUS, MAX_LINKS
from chakra.io.readable import counted, counted_text
from chakra.replay.config.model import Network
from chakra.replay.config.network import MAX_DIMS, load_network
from chakra.replay.config.readers import MOST_QUANTITY

#: levels of switches of a fat tree; NPUs bound the dimensions of a torus
MAX_LEVELS = 64


@checked
def fat_tree(
    down: Sequence[int],
    up: Sequence[int] | None = None,
    *,
    bandwidth_gibps: float,
    latency_ns: float,
    oversubscription: Sequence[float] | float = 1.0,
) -> Network:
    """A fat tree, from an NPU's leaf switch to the top.

    Parameters
    ----------
    down
        Children of a switch at each level: NPUs per leaf, leaves per aggregation switch, ...
    up
        Parents of an NPU, of a leaf, ... (as many as `down`); an NPU has one by default, a switch as many as it has
        children below.
    bandwidth_gibps, latency_ns
        Of an NPU's link; every link has this latency.
    oversubscription
        For each level of switches below the top, or for all: bandwidth towards the NPUs over bandwidth upwards. The
        links of a switch upwards share what this leaves.

    Raises
    ------
    UsageError
        Lists whose lengths do not fit, a ratio that is not above 0, or more links than can be listed.

    Notes
    -----
    The extended generalised fat tree XGFT(h; m; w) of Oehring et al., 1995.
    """
    _whole(down, "down", 1)
    h = len(down)
    if h > MAX_LEVELS:
        raise UsageError(f"down: {counted(h, 'level')} of switches; a fat tree has at most {MAX_LEVELS}")
    parents = list(up) if up is not None else [1, *down[:-1]]
    _whole(parents, "up", 1)
    if len(parents) != h:
        raise UsageError(f"up: {counted(len(parents), 'number')} for {counted(h, 'level')} of switches")
    ratios = (
        [float(oversubscription)] * (h - 1) if isinstance(oversubscription, int | float) else oversubscription
    )
    if len(ratios) != h - 1:
        raise UsageError(
            f"oversubscription: {counted(len(ratios), 'number')} for {counted(h - 1, 'level')} of switches below the top"
        )
    for ratio in ratios:
        _positive(ratio, "oversubscription")
    _positive(bandwidth_gibps, "bandwidth")
    npus = prod(down)
    within_npus(npus)
    speed = [float(bandwidth_gibps)]
    for level in range(1, h):
        speed.append(speed[-1] * down[level - 1] / (ratios[level - 1] * parents[level]))
    within_links(sum(prod(down[level:]) * prod(parents[: level + 1]) for level in range(h)))
    links: list[object] = []
    for level in range(h):
        copies = prod(parents[:level])
        for sub in range(prod(down[level:])):
            for copy, parent in product(range(copies), range(parents[level])):
                below: object = sub if level == 0 else f"L{level}.{sub}.{copy}"
                above = f"L{level + 1}.{sub // down[level]}.{copy * parents[level] + parent}"
                links.append([below, above, speed[level], latency_ns])
    return _build([npus], links, npus_forward=False)


@checked
def rail_optimised(
    nodes: int,
    npus_per_node: int,
    *,
    node_bandwidth_gibps: float,
    node_latency_ns: float,
    bandwidth_gibps: float,
    latency_ns: float,
    spines: int = 0,
    oversubscription: float = 1.0,
) -> Network:
    """Nodes with a switch inside, and one rail switch for the NPUs that have the same place in their nodes.

    With `spines` the rails are joined by that many switches. Without, a message between different places of different
    nodes goes through an NPU of its own node (as NCCL's PXN does). Logical dimensions: inside a node, between nodes.

    Parameters
    ----------
    nodes
        Number of nodes.
    npus_per_node
        NPUs of a node, which is the number of rails.
    node_bandwidth_gibps
        Bandwidth inside a node per NPU and direction, GB/s of 2^30 B/s.
    node_latency_ns
        Latency of a link inside a node, ns.
    bandwidth_gibps
        Bandwidth of an NPU's port to its rail and direction, GB/s of 2^30 B/s.
    latency_ns
        Latency of a link outside nodes, ns.
    spines
        Switches that join the rails; 0 for none.
    oversubscription
        Bandwidth of a rail towards its NPUs over that towards the spines.
    """
    _whole([nodes, npus_per_node], "nodes and NPUs per node", 2)
    within_npus(nodes * npus_per_node)
    within_links(2 * nodes * npus_per_node + npus_per_node * spines)
    _positive(oversubscription, "oversubscription")
    links: list[object] = []
    for node, place in product(range(nodes), range(npus_per_node)):
        npu = node * npus_per_node + place
        links.append([npu, f"node{node}", node_bandwidth_gibps, node_latency_ns])
        links.append([npu, f"rail{place}", bandwidth_gibps, latency_ns])
    if spines:
        _whole([spines], "spines", 1)
        uplink = nodes * bandwidth_gibps / (spines * oversubscription)
        links += [
            [f"rail{place}", f"spine{spine}", uplink, latency_ns]
            for place, spine in product(range(npus_per_node), range(spines))
        ]
    return _build([npus_per_node, nodes], links, npus_forward=spines == 0)


@checked
def torus(shape: Sequence[int], *, bandwidth_gibps: float, latency_ns: float, wrap: bool = True) -> Network:
    """A torus, or a mesh without `wrap`; the first length of the shape varies fastest in the NPU number.

    Logical dimensions are those of the shape.

    Parameters
    ----------
    shape
        NPUs along each dimension.
    bandwidth_gibps
        Bandwidth of a link and direction, GB/s of 2^30 B/s.
    latency_ns
        Latency of a link, ns.
    wrap
        Whether the ends of a dimension are joined.

    Raises
    ------
    UsageError
        A length below 2, or more NPUs than can be listed.
    """
    _whole(shape, "shape", 2)
    if len(shape) > MAX_DIMS:
        raise UsageError(f"shape: {counted(len(shape), 'dimension')}; a torus has at most {MAX_DIMS}")
    npus = prod(shape)
    within_npus(npus)
    within_links(npus * len(shape))
    links: list[object] = []
    stride = 1
    for size in shape:
        for npu in range(npus):
            at = npu // stride % size
            if at + 1 < size:
                links.append([npu, npu + stride, bandwidth_gibps, latency_ns])
            elif wrap and size > 2:
                links.append([npu, npu - at * stride, bandwidth_gibps, latency_ns])
        stride *= size
    return _build(list(shape), links)


@checked
def dragonfly(
    groups: int,
    routers: int,
    npus_per_router: int,
    *,
    bandwidth_gibps: float,
    latency_ns: float,
    local_bandwidth_gibps: float | None = None,
    global_bandwidth_gibps: float | None = None,
    global_latency_ns: float | None = None,
) -> Network:
    """A dragonfly: the routers of a group all joined, and one link between every two groups, spread over the routers.

    Local links between routers, and global ones between groups, have an NPU's bandwidth and latency unless given.
    Source: Kim, Dally, Scott, Abts: Technology-driven, highly-scalable dragonfly topology, ISCA 2008.

    Parameters
    ----------
    groups
        Groups of routers.
    routers
        Routers of a group.
    npus_per_router
        NPUs at a router.
    bandwidth_gibps
        Bandwidth of an NPU's link and direction, GB/s of 2^30 B/s.
    latency_ns
        Latency of an NPU's link, ns.
    local_bandwidth_gibps, local_latency_ns
        The same of links between routers of a group.
    global_bandwidth_gibps, global_latency_ns
        The same of links between groups.

    Raises
    ------
    UsageError
        A number below 1, or more links than can be listed.
    """
    _whole([groups, routers, npus_per_router], "groups, routers and NPUs per router", 1)
    if groups * routers * npus_per_router < 2:
        raise UsageError("a dragonfly of one NPU is no network")
    within_npus(groups * routers * npus_per_router)
    within_links(groups * routers * (npus_per_router + routers) + groups * groups)
    local = bandwidth_gibps if local_bandwidth_gibps is None else local_bandwidth_gibps
    far = bandwidth_gibps if global_bandwidth_gibps is None else global_bandwidth_gibps
    far_ns = latency_ns if global_latency_ns is None else global_latency_ns
    links: list[object] = []
    for group, router, place in product(range(groups), range(routers), range(npus_per_router)):
        npu = (group * routers + router) * npus_per_router + place
        links.append([npu, f"g{group}.r{router}", bandwidth_gibps, latency_ns])
    for group in range(groups):
        for a in range(routers):
            links += [[f"g{group}.r{a}", f"g{group}.r{b}", local, latency_ns] for b in range(a + 1, routers)]
    per_router = -(-(groups - 1) // routers)
    for a in range(groups):
        for b in range(a + 1, groups):
            ends = [f"g{g}.r{((other - g - 1) % groups) // per_router}" for g, other in ((a, b), (b, a))]
            links.append([*ends, far, far_ns])
    return _build([groups * routers * npus_per_router], links, npus_forward=False)


def _build(counts: list[int], links: list[object], *, npus_forward: bool = True) -> Network:
    described: Mapping[str, object] = {"npus_count": counts, "links": links, "npus_forward": npus_forward}
    return load_network(described)


def _whole(values: Sequence[int], what: str, least: int) -> None:
    for value in values:
        if value < least:
            raise UsageError(f"{what}: expected whole numbers of at least {least}, found {value!r}")
    if not values:
        raise UsageError(f"{what}: expected at least one number")


def _positive(value: float, what: str) -> None:
    if not 0 < value <= MOST_QUANTITY:
        raise UsageError(f"{what}: expected a number above 0 and at most {MOST_QUANTITY:g}, found {value!r}")


def within_npus(npus: int) -> None:
    """Refuse more NPUs than a network given link by link has.

    Raises
    ------
    UsageError
        With the limit.
    """
    if npus > MAX_LINKED_NPUS:
        raise UsageError(
            f"{counted_text(npus, 'NPU')}; a network given link by link has at most {MAX_LINKED_NPUS:,}: use "
            "building blocks"
        )


def within_links(links: int) -> None:
    """Refuse more links than are listed.

    Raises
    ------
    UsageError
        With the limit.
    """
    if links > MAX_LINKS:
        raise UsageError(f"{counted_text(links, 'link')}; a list of links has at most {MAX_LINKS:,}")
