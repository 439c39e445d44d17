"""How long a collective takes: the algorithm that the library takes, at the costs measured on the machine.

Symbols: ``n`` ranks, ``S`` bytes (nccl-tests' size), ``s`` steps of a ring, ``f = s / n`` the share of ``S`` that
crosses each link. Times in us, rates in 10^9 B/s, as in :class:`RingCosts` and :class:`ExchangeCosts`.

- LL: ``(launch + s hop) (1 + rise g(S / n)) + f max(0, S - channels n 4096) / rate``. Up to 4096 bytes a step and channel
  more data only takes more threads and then more channels; from there on it takes time.
- LL128: ``launch + s hop + f S / rate``.
- Simple: ``((launch + s hop)^3 + (fill h(S / n) + f S / rate + S / n / copy)^3)^(1/3)``: the latency of a step hides
  behind the data of another once a step has data enough. Streams go on filling as buffers grow, slowly: ``h`` rises by
  0.3 with each doubling from 1 MiB a rank. A rank's own part is copied beside.
- NVLS: ``launch + f S / rate c``, where ``c`` falls from 1.9 to 1: the library cuts small buffers into smaller chunks.
- Sends and receives: ``launch + (n-1) peer + spread g(S / n) + fill h(S) + (S / n) ((n-1) / rate + 1 / copy)``. All
  machines with NVSwitch lose time where ``S`` passes 12 MiB, whatever the number of ranks: ``h`` goes from 0 to 1 there.

Where nothing was measured (several nodes, an algorithm that is forced) the library's own prediction takes over: its
latencies over the network, and bandwidths no larger than measured ones.
"""

import math
from dataclasses import dataclass

from chakra.arguments import checked
from chakra.errors import UsageError
from chakra.io.readable import counted
from chakra.replay.collectives.library import published as table
from chakra.replay.collectives.library.choice import EXCHANGES, choose, predictions
from chakra.replay.collectives.library.parameters import ExchangeCosts, MachineParameters, RingCosts
from chakra.replay.collectives.library.prediction import Prediction, ring_steps
from chakra.replay.collectives.library.rccl import mesh_share
from chakra.replay.collectives.library.shape import Algorithm, Choice, Communicator, Forced, Protocol
from chakra.replay.config.model import CollectiveKind

#: bytes of a step that all threads of an LL channel move at once: 512 threads of 8 bytes
LL_STEP_BYTES = 4096
#: bytes of a step at which LL has slowed down by half of its rise, and how sharply
_LL_HALF_BYTES = 3500
_LL_SHARPNESS = 3
#: how sharply the Simple protocol turns from bound by latency to bound by bandwidth
_OVERLAP = 3
#: NVLS cuts buffers below so many bytes a channel and rank into chunks of 16 KiB, 32 KiB, and what a halving costs
_NVLS_SMALL, _NVLS_MEDIUM, _NVLS_HALVING, _NVLS_SHARPNESS = 65536, 524288, 0.45, 2
#: by what share of the start of a stream each doubling of a rank's bytes lengthens it, and from where on
_STREAM_GROWTH, _STREAM_UNIT = 0.3, 1 << 20
#: bytes for a peer at which half of the spread is paid, and bytes for a rank at which half of a network's fill is
_SPREAD_BYTES, _STREAM_BYTES = 22000, 1 << 21
#: bytes of sends and receives at which half of their fill is paid, and how sharply
_EXCHANGE_BYTES, _EXCHANGE_SHARPNESS = 12 << 20, 4

_SAME_AS = {
    CollectiveKind.BROADCAST: CollectiveKind.ALL_GATHER,
    CollectiveKind.REDUCE: CollectiveKind.REDUCE_SCATTER,
    CollectiveKind.REDUCE_SCATTER_BLOCK: CollectiveKind.REDUCE_SCATTER,
}
#: no collective takes longer: a year, us
_MOST_US = 365 * 24 * 3600e6


@dataclass(frozen=True, slots=True)
class LibraryTime:
    """Time of a collective.

    Attributes
    ----------
    time_ns
        From the last member's start to the last member's end, ns.
    choice
        What ran.
    """

    time_ns: int
    choice: Choice


@checked
def library_time(
    kind: CollectiveKind,
    size_bytes: int,
    comm: Communicator,
    machine: MachineParameters,
    forced: Forced | None = None,
) -> LibraryTime:
    """Time of a collective as a library runs it.

    Parameters
    ----------
    kind
        Which collective.
    size_bytes
        Its size as nccl-tests count it: the buffer of an all-reduce or a broadcast, what an all-gather ends with, what a
        reduce-scatter begins with, what a rank of an all-to-all sends.
    comm
        Ranks and nodes.
    machine
        Measured costs.
    forced
        What the library is held to.

    Raises
    ------
    UsageError
        A negative size, a forced algorithm that cannot run this, or a time of more than a year.
    """
    if size_bytes < 0:
        raise UsageError(f"size_bytes must not be negative, not {size_bytes}")
    if kind is CollectiveKind.BARRIER:
        kind, size_bytes = CollectiveKind.ALL_REDUCE, 1
    forced = forced or Forced()
    kind = CollectiveKind.REDUCE_SCATTER if kind is CollectiveKind.REDUCE_SCATTER_BLOCK else kind
    if comm.ranks == 1 or not size_bytes:
        return LibraryTime(0, Choice(Algorithm.RING, Protocol.LL, 1))
    choice, prediction = choose(machine, kind, size_bytes, comm, forced)
    try:
        time = time_us(kind, size_bytes, comm, machine, choice, prediction)
    except (OverflowError, ZeroDivisionError):  # of costs that are next to nothing, or beyond measure
        time = math.inf
    if not time <= _MOST_US:
        raise UsageError(
            f"{machine.name}: {kind.lower()} of {size_bytes:,} bytes on {counted(comm.ranks, 'rank')} takes more "
            "than a year at "
            "these costs and rates"
        )
    return LibraryTime(round(1000 * time), choice)


def time_us(
    kind: CollectiveKind,
    size_bytes: float,
    comm: Communicator,
    machine: MachineParameters,
    choice: Choice,
    prediction: Prediction,
) -> float:
    """Time of what :func:`~chakra.replay.collectives.library.choice.choose` gave, us."""
    if kind in EXCHANGES:
        return _exchange_us(machine, kind, size_bytes, comm)
    costs = machine.rings.get(_SAME_AS.get(kind, kind))
    if comm.nodes > 1:
        return _nodes_us(costs, machine, kind, size_bytes, comm, choice, prediction)
    if costs is None:
        return prediction.time_us(size_bytes)
    share = choice.channels / (
        machine.channels if choice.algorithm is not Algorithm.NVLS else nvls_channels(machine)
    )
    if choice.algorithm is Algorithm.NVLS and costs.nvls_launch_us and costs.nvls_gbps:
        crossing = size_bytes * ring_steps(kind, comm.ranks) / comm.ranks
        return costs.nvls_launch_us + crossing / (costs.nvls_gbps * share * 1e3) * _chunking(
            machine, size_bytes, comm.ranks
        )
    ring = _ring_us(costs, machine, kind, size_bytes, comm.ranks, choice.protocol, share)
    if choice.algorithm is Algorithm.RING:
        return ring
    # never measured: as much slower or faster than the ring as the library predicts
    rings = predictions(machine, kind, size_bytes, comm)[Algorithm.RING, choice.protocol]
    return ring * prediction.time_us(size_bytes) / rings.time_us(size_bytes)


def nvls_channels(machine: MachineParameters) -> int:
    """Channels of NVLS."""
    return max(1, table.CEILINGS[machine.generation].nvls_channels)


def _ring_us(
    costs: RingCosts,
    machine: MachineParameters,
    kind: CollectiveKind,
    size_bytes: float,
    ranks: int,
    protocol: Protocol,
    share: float,
) -> float:
    steps, level = ring_steps(kind, ranks), machine.level(ranks)
    crossing, step_bytes = size_bytes * steps / ranks, size_bytes / ranks
    speed = share * mesh_share(machine, Communicator(ranks, ranks))
    rate = costs.simple_gbps[level] * speed * 1e3
    if protocol is Protocol.LL:
        # slower levels slow LL down alike
        ll_rate = costs.ll_gbps * speed * 1e3 * costs.simple_gbps[level] / costs.simple_gbps[0]
        busy = 1 / (1 + (_LL_HALF_BYTES / step_bytes) ** _LL_SHARPNESS)
        above = max(0.0, size_bytes - LL_STEP_BYTES * ranks * machine.channels * share)
        waits = (costs.launch_us + steps * costs.ll_hop_us) * (1 + costs.ll_rise * busy)
        return waits + above * steps / ranks / ll_rate
    if protocol is Protocol.LL128 and costs.ll128_hop_us and costs.ll128_gbps:
        return costs.launch_us + steps * costs.ll128_hop_us + crossing / (costs.ll128_gbps * share * 1e3)
    waits = costs.launch_us + steps * costs.simple_hop_us
    fill = costs.simple_fill_us * (1 + _STREAM_GROWTH * math.log2(1 + step_bytes / _STREAM_UNIT))
    moves = fill + crossing / rate + step_bytes / (costs.copy_gbps * 1e3)
    return float((waits**_OVERLAP + moves**_OVERLAP) ** (1 / _OVERLAP))


def _chunking(machine: MachineParameters, size_bytes: float, ranks: int) -> float:
    """By how much the library's chunks of NVLS slow a buffer of this size down."""
    unit = size_bytes / (nvls_channels(machine) * ranks)
    halvings = sum(1 / (1 + (unit / edge) ** _NVLS_SHARPNESS) for edge in (_NVLS_SMALL, _NVLS_MEDIUM))
    return 1 + _NVLS_HALVING * halvings


def _nodes_us(
    costs: RingCosts | None,
    machine: MachineParameters,
    kind: CollectiveKind,
    size_bytes: float,
    comm: Communicator,
    choice: Choice,
    prediction: Prediction,
) -> float:
    """Several nodes: latencies as published, bandwidth no larger than what was measured on one node.

    Channels that the library may not use take their share of the bandwidth with them.
    """
    gbps = prediction.gbps
    steps, ranks = ring_steps(kind, comm.ranks), comm.ranks
    inner, slower = gbps, 1.0
    if costs and choice.algorithm is Algorithm.RING:
        inner = costs.simple_gbps[machine.level(comm.node_ranks)] * ranks / steps * mesh_share(machine, comm)
    elif choice.algorithm is Algorithm.NVLS_TREE:
        if costs and costs.nvls_gbps:
            inner = costs.nvls_gbps * comm.node_ranks / (2 * (comm.node_ranks - 1))
        slower = _chunking(machine, size_bytes, comm.node_ranks)
    full = nvls_channels(machine) if choice.algorithm is Algorithm.NVLS_TREE else machine.channels
    moves = size_bytes / (min(gbps, inner) * 1e3) * slower * full / choice.channels
    network = machine.networks.get(_SAME_AS.get(kind, kind))
    if network is None:
        return prediction.latency_us + moves
    share = network.simple_share if choice.protocol is Protocol.SIMPLE else network.ll_share
    rank_bytes = size_bytes / ranks
    fill = network.fill_us * rank_bytes / (rank_bytes + _STREAM_BYTES)
    return network.latency_share * prediction.latency_us + moves / share + fill


def _exchange_us(
    machine: MachineParameters, kind: CollectiveKind, size_bytes: float, comm: Communicator
) -> float:
    """Sends and receives between all pairs; over the network at the rate of the ports, behind their latency."""
    costs = machine.exchange
    if costs is None:
        costs = _published_exchange(machine)
    ranks, inner = comm.ranks, comm.node_ranks
    peer_bytes = size_bytes / ranks
    spread = 1 / (1 + (_SPREAD_BYTES / peer_bytes) ** 2)
    time = costs.launch_us + (ranks - 1) * costs.peer_us + costs.spread_us * spread
    time += costs.fill_us / (1 + (_EXCHANGE_BYTES / size_bytes) ** _EXCHANGE_SHARPNESS)
    port = costs.gbps[machine.level(inner)] * mesh_share(machine, Communicator(inner, inner)) * 1e3
    inside = peer_bytes * ((inner - 1) / port + 1 / (costs.copy_gbps * 1e3))
    if comm.nodes == 1:
        return time + inside
    rate = comm.ports * comm.nic_gbps * table.PORT_SHARE / inner * 1e3
    nccl = machine.library == "nccl"
    hop = (
        table.NETWORK_US[Algorithm.RING][Protocol.SIMPLE] if nccl else table.RCCL_NETWORK_US[Protocol.SIMPLE]
    )
    across = peer_bytes * (ranks - inner) / rate + hop
    return time + max(inside, across)


def _published_exchange(machine: MachineParameters) -> ExchangeCosts:
    """Where no all-to-all was measured: the library's start of a kernel and the bandwidth that its search finds."""
    start = table.BASE_US[Algorithm.RING][Protocol.SIMPLE]
    hop = table.NVLINK_US[Algorithm.RING][Protocol.LL]
    if machine.library == "rccl":
        start, hop = table.RCCL_BASE_US[Protocol.SIMPLE], table.FABRIC_US[Algorithm.RING][Protocol.LL]
    return ExchangeCosts(start, hop, start, 2 * start, machine.search_gbps, machine.search_gbps[0])


@checked
def link_bytes(kind: CollectiveKind, size_bytes: int, comm: Communicator, choice: Choice) -> tuple[int, int]:
    """Bytes that a collective puts on links: of a rank's port inside its node, and of a network port.

    Parameters
    ----------
    kind, size_bytes, comm
        The collective, as for :func:`library_time`.
    choice
        What the library runs.

    Returns
    -------
    tuple
        Bytes per direction: inside the node, and on each network port (0 on one node).
    """
    if comm.ranks == 1 or not size_bytes:
        return 0, 0
    nodes, inner = comm.nodes, comm.node_ranks
    if choice.algorithm is Algorithm.SEND_RECV:
        peer = size_bytes / comm.ranks
        return round(peer * (inner - 1)), round(peer * (comm.ranks - inner) * inner / comm.ports)
    crossing = size_bytes * ring_steps(kind, comm.ranks) / comm.ranks
    if choice.algorithm in (Algorithm.RING, Algorithm.PAT):
        return round(crossing), round(crossing / comm.ports) if nodes > 1 else 0
    inside = size_bytes if choice.algorithm in (Algorithm.NVLS, Algorithm.NVLS_TREE) else 2 * size_bytes
    once = nodes == 2 or choice.algorithm in (Algorithm.COLLNET_CHAIN, Algorithm.COLLNET_DIRECT)
    return round(inside), round(size_bytes * (1 if once else 2) / comm.ports) if nodes > 1 else 0
