"""What RCCL runs on CDNA 3, and what its published hops say of the time.

Its ranks are joined by a mesh: a link of Infinity Fabric between each two. ``n`` ranks have ``n - 1`` links each, so the
bandwidth of a ring rises with its ranks; on several nodes each leaves a node once, and what is left of the way uses the
links of all ranks. LL up to a size, Simple above; a ring on one node, on several a tree for all-reduces below 256 MiB.
LL128 is left out: RCCL takes it on several nodes only, and its table gives it the latencies of LL and the bandwidth of
neither.
"""

import math

from chakra.replay.collectives.library import published as table
from chakra.replay.collectives.library.parameters import MachineParameters
from chakra.replay.collectives.library.prediction import Prediction, ring_steps
from chakra.replay.collectives.library.shape import Algorithm, Communicator, Protocol
from chakra.replay.config.model import CollectiveKind

PROTOCOLS = (Protocol.LL, Protocol.SIMPLE)


def mesh_share(machine: MachineParameters, comm: Communicator) -> float:
    """Bandwidth of a ring of these ranks in units of that of a whole node."""
    if machine.links != "fabric" or machine.node_ranks == 1:
        return 1.0
    inner, whole = comm.node_ranks, machine.node_ranks - 1
    if comm.nodes == 1:
        return max(1, inner - 1) / whole
    return inner / whole if inner > 1 else 1.0


def rccl_choice(kind: CollectiveKind, size_bytes: float, comm: Communicator) -> tuple[Algorithm, Protocol]:
    """What the library takes where it is held to nothing."""
    most = table.RCCL_LL_BYTES.get(kind, 0)
    if kind in table.RCCL_LL_RANK_BYTES:
        most = table.RCCL_LL_RANK_BYTES[kind] * comm.ranks
    tree = kind is CollectiveKind.ALL_REDUCE and comm.nodes > 1 and size_bytes < table.RCCL_RING_BYTES
    return Algorithm.TREE if tree else Algorithm.RING, Protocol.LL if size_bytes <= most else Protocol.SIMPLE


def rccl_predictions(
    machine: MachineParameters, kind: CollectiveKind, comm: Communicator
) -> dict[tuple[Algorithm, Protocol], Prediction]:
    """Time of every algorithm and protocol: published hops, and the bandwidth of links and ports."""
    bus = machine.search_gbps[machine.level(comm.node_ranks)] * mesh_share(machine, comm)
    if comm.nodes > 1:
        port = comm.ports * comm.nic_gbps * table.PORT_SHARE
        bus = min(bus, port) if comm.node_ranks > 1 else port
    steps = ring_steps(kind, comm.ranks)
    between = 0 if comm.nodes == 1 else comm.nodes * (2 if kind is CollectiveKind.ALL_REDUCE else 1)
    found = {}
    for protocol in PROTOCOLS:
        # half of the words of LL are flags
        rate = bus * (0.5 if protocol is Protocol.LL else 1)
        base = table.RCCL_BASE_US[protocol]
        hop = table.RCCL_NETWORK_US[protocol] + comm.network_us
        inside = table.FABRIC_US[Algorithm.RING][protocol]
        if comm.nodes > 1:
            inside = max(inside, 2 * table.NETWORK_OVERHEAD_US * (3 if protocol is Protocol.SIMPLE else 1))
        latency = base + max(0, steps - between) * inside + between * hop
        found[Algorithm.RING, protocol] = Prediction(latency, rate * comm.ranks / steps)
        if kind is CollectiveKind.ALL_REDUCE and comm.nodes > 1:
            hops = (comm.node_ranks - 1) * table.FABRIC_US[Algorithm.TREE][protocol] + math.log2(
                comm.nodes
            ) * hop
            found[Algorithm.TREE, protocol] = Prediction(base + 2 * hops, rate * 0.5)
    return found
