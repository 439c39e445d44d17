"""Which algorithm and protocol the library takes: the smallest of the times that it predicts for itself.

The formulas are those of NCCL's tuning model (2.28.3): a latency that adds up hops by level, and a bandwidth that the
topology search and the ceilings of a generation give. See :mod:`~chakra.replay.collectives.library.published`.
"""

import math

from chakra.errors import UsageError
from chakra.io.readable import counted
from chakra.replay.collectives.library import published as table
from chakra.replay.collectives.library.parameters import MachineParameters
from chakra.replay.collectives.library.prediction import RING_ONLY, Prediction, ring_steps
from chakra.replay.collectives.library.rccl import rccl_choice, rccl_predictions
from chakra.replay.collectives.library.shape import Algorithm, Choice, Communicator, Forced, Protocol
from chakra.replay.config.model import CollectiveKind

#: collectives that are grouped sends and receives between pairs
EXCHANGES = (CollectiveKind.ALL_TO_ALL, CollectiveKind.GATHER, CollectiveKind.SCATTER)


def choose(
    machine: MachineParameters, kind: CollectiveKind, size_bytes: float, comm: Communicator, forced: Forced
) -> tuple[Choice, Prediction]:
    """The choice for a collective, and what the library predicts for it.

    Raises
    ------
    UsageError
        What is forced has no such collective on such a communicator.
    """
    if kind in EXCHANGES:
        latency = table.BASE_US[Algorithm.RING][Protocol.SIMPLE]
        choice = Choice(Algorithm.SEND_RECV, Protocol.SIMPLE, _channels(machine, Algorithm.SEND_RECV, forced))
        return choice, Prediction(latency, machine.search_gbps[machine.level(comm.node_ranks)])
    found = predictions(machine, kind, size_bytes, comm)
    wanted = {
        key: value
        for key, value in found.items()
        if forced.algorithm in (None, key[0]) and forced.protocol in (None, key[1])
    }
    if not wanted:
        asked = "/".join(str(part) for part in (forced.algorithm, forced.protocol) if part)
        raise UsageError(
            f"{machine.library} has no {kind.lower()} with {asked} on {counted(comm.nodes, 'node')} of "
            f"{counted(comm.node_ranks, 'rank')} of "
            f"{machine.name}; it has {', '.join(f'{a}/{p}' for a, p in found)}"
        )
    algorithm, protocol = min(wanted, key=lambda key: wanted[key].time_us(size_bytes))
    if machine.library == "rccl" and rccl_choice(kind, size_bytes, comm) in wanted:
        algorithm, protocol = rccl_choice(kind, size_bytes, comm)
    prediction = wanted[algorithm, protocol]
    return Choice(algorithm, protocol, _channels(machine, algorithm, forced)), prediction


def _channels(machine: MachineParameters, algorithm: Algorithm, forced: Forced) -> int:
    nvls = algorithm in (Algorithm.NVLS, Algorithm.NVLS_TREE)
    channels = table.CEILINGS[machine.generation].nvls_channels if nvls else machine.channels
    return min(channels, forced.channels) if forced.channels else channels


def predictions(
    machine: MachineParameters, kind: CollectiveKind, size_bytes: float, comm: Communicator
) -> dict[tuple[Algorithm, Protocol], Prediction]:
    """What the library predicts for every algorithm and protocol that it has for this collective."""
    if machine.library == "rccl":
        return rccl_predictions(machine, kind, comm)
    bus = machine.search_gbps[machine.level(comm.node_ranks)]
    if comm.nodes > 1:
        bus = min(bus, comm.ports * comm.nic_gbps * table.PORT_SHARE)
    found: dict[tuple[Algorithm, Protocol], Prediction] = {}
    for protocol in Protocol:
        if protocol is Protocol.LL128 and not machine.ll128:
            continue
        found[Algorithm.RING, protocol] = _ring(machine, kind, size_bytes, comm, protocol, bus)
        if kind is CollectiveKind.ALL_REDUCE:
            found[Algorithm.TREE, protocol] = _tree(machine, size_bytes, comm, protocol, bus)
    if kind in RING_ONLY:
        return found
    for algorithm, made in (
        (Algorithm.NVLS, _nvls(machine, kind, comm)),
        (Algorithm.NVLS_TREE, _nvls_tree(machine, kind, comm)),
        (Algorithm.COLLNET_DIRECT, _collnet(machine, kind, comm, bus, Algorithm.COLLNET_DIRECT)),
        (Algorithm.COLLNET_CHAIN, _collnet(machine, kind, comm, bus, Algorithm.COLLNET_CHAIN)),
        (Algorithm.PAT, _pat(kind, comm, bus)),
    ):
        if made and made.gbps > 0:  # a generation whose table has no bandwidth for it has it not
            found[algorithm, Protocol.SIMPLE] = made
    return found


def _span(nodes: int) -> int:
    """Column of a table whose values are for one node, two nodes, more."""
    return min(nodes, 3) - 1


def _ll_ceiling(machine: MachineParameters, nodes: int) -> float:
    if nodes == 1:
        return table.CEILINGS[machine.generation].ll_gbps
    return table.LL_NETWORK_GBPS[machine.host][_span(nodes) - 1]


def _inside_us(machine: MachineParameters, algorithm: Algorithm, protocol: Protocol) -> float:
    hops = table.NVLINK_US if machine.links == "nvlink" else table.PCIE_US
    return hops[algorithm][protocol]


def _network_us(algorithm: Algorithm, protocol: Protocol, comm: Communicator) -> float:
    # with one rank a node the latency of the network is exposed as in a tree
    source = Algorithm.TREE if comm.node_ranks == 1 and algorithm is not Algorithm.PAT else algorithm
    # Simple flushes what has arrived: once more over the network
    reported = comm.network_us * (2 if protocol is Protocol.SIMPLE else 1)
    return table.NETWORK_US[source][protocol] + reported


def _ring(
    machine: MachineParameters,
    kind: CollectiveKind,
    size_bytes: float,
    comm: Communicator,
    protocol: Protocol,
    bus: float,
) -> Prediction:
    ceilings = table.CEILINGS[machine.generation]
    if protocol is Protocol.LL:
        bus = min(bus * 0.5, _ll_ceiling(machine, comm.nodes))
    elif protocol is Protocol.LL128:
        bus = min(bus * 0.92, machine.channels * ceilings.ring_ll128_gbps)
    steps = ring_steps(kind, comm.ranks)
    between = 0 if comm.nodes == 1 else (comm.nodes - 1) * (2 if kind is CollectiveKind.ALL_REDUCE else 1)
    inside = _inside_us(machine, Algorithm.RING, protocol)
    if comm.nodes > 1:
        overhead = table.NETWORK_OVERHEAD_US * (2 if machine.host == "amd" else 1)
        inside = max(inside, overhead * (3 if protocol is Protocol.SIMPLE else 1))
    latency = table.BASE_US[Algorithm.RING][protocol] + (steps - between) * inside
    latency += between * _network_us(Algorithm.RING, protocol, comm)
    plateau = (
        comm.nodes > 1
        and protocol is Protocol.SIMPLE
        and kind is CollectiveKind.ALL_REDUCE
        and size_bytes >= 64 * machine.channels * comm.ranks
    )
    return Prediction(latency * (table.RING_PLATEAU if plateau else 1), bus * comm.ranks / steps)


def _tree(
    machine: MachineParameters, size_bytes: float, comm: Communicator, protocol: Protocol, bus: float
) -> Prediction:
    ceilings, span = table.CEILINGS[machine.generation], _span(comm.nodes)
    bus = min(bus * 0.92, machine.channels * ceilings.tree_gbps[span])
    if protocol is Protocol.LL:
        bus = min(bus / 3.8, _ll_ceiling(machine, comm.nodes))
    elif protocol is Protocol.LL128:
        share = 7 / 9 if comm.nodes == 1 else 120 / 128
        bus = min(bus * share, machine.channels * ceilings.tree_ll128_gbps[span])
    power = int(size_bytes).bit_length() - 7
    shares = table.TREE_SHARE[protocol]
    if 0 <= power < len(shares):
        bus *= shares[power]
    hops = (comm.node_ranks - 1) * _inside_us(machine, Algorithm.TREE, protocol)
    hops += int(math.log2(comm.nodes)) * _network_us(Algorithm.TREE, protocol, comm)
    return Prediction(table.BASE_US[Algorithm.TREE][protocol] + 2 * hops, bus * 0.5)


def _nvls_bus(machine: MachineParameters, kind: CollectiveKind, ranks: int) -> float:
    """Bus bandwidth of a channel times channels, as the search finds them: one channel a rank."""
    ceilings = table.CEILINGS[machine.generation]
    fair = machine.nvls_link_gbps / (ranks + 1)
    speed = next((speed for speed in ceilings.nvls_speeds if speed <= fair), fair)
    bus = ranks * speed * ceilings.nvls_share * (ranks - 1) / ranks
    return bus * 2 if kind is CollectiveKind.ALL_REDUCE else bus * (ranks - 1) / ranks


def _nvls(machine: MachineParameters, kind: CollectiveKind, comm: Communicator) -> Prediction | None:
    # over several nodes it needs reduction in the network for all kinds
    if not machine.nvls_link_gbps or comm.node_ranks < 3 or comm.nodes > 1:
        return None
    latency = table.NVLINK_US[Algorithm.NVLS][Protocol.SIMPLE]
    bus = _nvls_bus(machine, kind, comm.node_ranks)
    return Prediction(latency, bus * comm.ranks / ring_steps(kind, comm.ranks))


def _nvls_tree(machine: MachineParameters, kind: CollectiveKind, comm: Communicator) -> Prediction | None:
    if (
        kind is not CollectiveKind.ALL_REDUCE
        or not machine.nvls_link_gbps
        or comm.nodes == 1
        or comm.node_ranks < 3
    ):
        return None
    ceilings, ranks = table.CEILINGS[machine.generation], comm.node_ranks
    heads = comm.ports
    channel = min(
        _nvls_bus(machine, kind, ranks) / ranks,
        comm.nic_gbps * table.PORT_SHARE * (2 if comm.nodes <= 2 else 1),
        ceilings.nvls_tree_gbps[_span(comm.nodes)],
    )
    latency = table.NVLINK_US[Algorithm.NVLS_TREE][Protocol.SIMPLE]
    latency += 2 * int(math.log2(comm.nodes)) * _network_us(Algorithm.NVLS_TREE, Protocol.SIMPLE, comm)
    return Prediction(latency, channel * heads * comm.ranks / ring_steps(kind, comm.ranks))


def _collnet(
    machine: MachineParameters, kind: CollectiveKind, comm: Communicator, bus: float, algorithm: Algorithm
) -> Prediction | None:
    if not comm.in_network or comm.nodes == 1 or kind is not CollectiveKind.ALL_REDUCE:
        return None
    inside, further = _inside_us(machine, algorithm, Protocol.SIMPLE), comm.node_ranks - 1
    latency = table.BASE_US[algorithm][Protocol.SIMPLE] + _network_us(algorithm, Protocol.SIMPLE, comm)
    if algorithm is Algorithm.COLLNET_CHAIN:
        return Prediction(latency + 2 * further * inside, bus * 0.5)
    if comm.node_ranks > 8 or machine.links != "nvlink":
        return None
    latency += 2 * (min(1, further) * inside + further * table.COLLNET_ARITY_US)
    # all ranks need a port of their own to run at full speed
    share = comm.node_ranks / comm.ports
    bus /= share - (share - 1) / 2
    if machine.generation in (table.Generation.HOPPER, table.Generation.BLACKWELL):
        bus *= table.COLLNET_SHARE
    return Prediction(latency, bus * 0.5)


def _pat(kind: CollectiveKind, comm: Communicator, bus: float) -> Prediction | None:
    if kind is CollectiveKind.ALL_REDUCE or comm.nodes == 1 or comm.node_ranks > 1:
        return None
    latency = table.BASE_US[Algorithm.PAT][Protocol.SIMPLE]
    hop = _network_us(Algorithm.PAT, Protocol.SIMPLE, comm)
    latency += int(math.log2(comm.nodes)) * hop * table.PAT_HOP_SHARE + comm.ranks * table.PAT_RANK_US
    return Prediction(latency, bus * table.PAT_SHARE)
