"""What the configuration files say, as values. The modules beside this one load and check them.

Meaning and defaults: ASTRA-sim's network, system and remote-memory files (replay semantics, section 1).
"""

from dataclasses import dataclass, field
from enum import StrEnum

from chakra.replay.networks.interface import OutsideNetwork


class Topology(StrEnum):
    """Building block of one network dimension; values are the words used in network files."""

    RING = "Ring"
    FULLY_CONNECTED = "FullyConnected"
    SWITCH = "Switch"


class Switches(StrEnum):
    """What the switches of a dimension do beside forwarding, as network files say it."""

    PLAIN = "plain"
    #: copy what comes in to several ports
    MULTICASTS = "multicasts"
    #: reduce what comes in from several ports, and multicast the result
    REDUCES = "reduces"


class LinkTopology(StrEnum):
    """What takes the place of a building block where links are listed one by one, or simulated by another package."""

    LINKS = "Links"
    OUTSIDE = "Outside"


class CollectiveKind(StrEnum):
    """Collective operations, named as in the Chakra schema (``CollectiveCommType``)."""

    ALL_REDUCE = "ALL_REDUCE"
    REDUCE = "REDUCE"
    ALL_GATHER = "ALL_GATHER"
    GATHER = "GATHER"
    SCATTER = "SCATTER"
    BROADCAST = "BROADCAST"
    ALL_TO_ALL = "ALL_TO_ALL"
    REDUCE_SCATTER = "REDUCE_SCATTER"
    REDUCE_SCATTER_BLOCK = "REDUCE_SCATTER_BLOCK"
    BARRIER = "BARRIER"


#: number of each kind, as the kernels count them
KIND_NUMBERS = {kind: number for number, kind in enumerate(CollectiveKind)}


class MemoryKind(StrEnum):
    """Kinds of remote memory."""

    NONE = "NO_MEMORY_EXPANSION"
    PER_NODE = "PER_NODE_MEMORY_EXPANSION"
    PER_NPU = "PER_NPU_MEMORY_EXPANSION"
    POOL = "MEMORY_POOL"


def bytes_per_ns(bandwidth_gibps: float) -> float:
    """Bytes per ns of GB/s of 2**30 bytes, evaluated left to right in double precision as ASTRA-sim does."""
    return bandwidth_gibps * (1 << 30) / 1_000_000_000


@dataclass(frozen=True, slots=True)
class Dimension:
    """One network dimension: `npus` positions joined by `topology`, every link alike.

    Of a list of links: a logical dimension; its bandwidth is what the NPU with the least can send over all its links, its
    latency the mean of all links. What messages along it meet: `chakra.replay.networks.first_links`.

    Attributes
    ----------
    topology
        How the positions are joined.
    npus
        Number of positions.
    switches
        What its switches can do for collectives.
    """

    topology: Topology | LinkTopology
    npus: int
    #: GB/s of 2**30 bytes per second, per link and direction
    bandwidth_gibps: float
    #: ns per hop
    latency_ns: float
    switches: Switches = Switches.PLAIN

    @property
    def bytes_per_ns(self) -> float:
        """Bandwidth in bytes per ns."""
        return bytes_per_ns(self.bandwidth_gibps)


@dataclass(frozen=True, slots=True)
class Link:
    """A link in one direction, between two vertices; vertices below the number of NPUs are NPUs."""

    src: int
    dst: int
    #: GB/s of 2**30 bytes per second
    bandwidth_gibps: float
    latency_ns: float

    @property
    def bytes_per_ns(self) -> float:
        """Bandwidth in bytes per ns."""
        return bytes_per_ns(self.bandwidth_gibps)


@dataclass(frozen=True, slots=True)
class BuiltOf:
    """Switches and cables that a list of links stands for: one vertex or link may be several of them.

    Attributes
    ----------
    switches
        How many there are of each level, from the machines up; a torus of machines has none.
    cables
        Cables outside machines, each of a port's rate.
    ports
        Ports of a switch, or of an NPU where there are none.
    port_gbps
        Rate of a port, 10^9 bits per second.
    """

    switches: tuple[tuple[str, int], ...]
    cables: int
    ports: int
    port_gbps: float

    @property
    def all_switches(self) -> int:
        """Switches of all levels."""
        return sum(count for _, count in self.switches)

    def entries(self) -> dict[str, object]:
        """As files and documents have it."""
        return {
            "switches": dict(self.switches),
            "cables": self.cables,
            "ports": self.ports,
            "port_gbps": self.port_gbps,
        }


@dataclass(frozen=True, slots=True)
class Links:
    """A network given link by link.

    Attributes
    ----------
    links
        Every link, each direction by itself.
    vertices
        Names of the vertices that are not NPUs; their numbers begin after the last NPU's.
    routes
        Given routes as vertices, first the sending NPU, last the receiving one; other pairs take a shortest path.
    routing
        What is shortest: "hops", "latency" (then fewest hops), or "inside" (fewest links that leave a machine, which is
        all dimensions but the last; then fewest hops).
    ecmp
        Among equal paths: "hash" picks by a hash of source, destination and place, "first" the first link listed.
    npus_forward
        Whether a path may lead through an NPU that is not one of its ends.
    switches
        What vertices that are no NPUs do beside forwarding.
    dimension_ordered
        The links are those of the network's building blocks: a route goes through one dimension after the other,
        unless a link of it is missing.
    built_of
        Switches and cables outside machines that the links stand for, where the file says it.
    faults
        What has failed or is slow of these links, where options say so.
    """

    links: tuple[Link, ...]
    vertices: tuple[str, ...] = ()
    routes: tuple[tuple[int, ...], ...] = ()
    routing: str = "hops"
    ecmp: str = "hash"
    npus_forward: bool = True
    dimension_ordered: bool = False
    switches: Switches = Switches.PLAIN
    built_of: BuiltOf | None = None
    faults: "Faults | None" = field(default=None, compare=False)

    @property
    def facts(self) -> dict[str, object]:
        """What documents say beside the links themselves: of what they are built, and what has failed or is slow."""
        built = {} if self.built_of is None else {"built_of": self.built_of.entries()}
        return built | ({} if self.faults is None else self.faults.entries())


@dataclass(frozen=True, slots=True)
class Faults:
    """Links of a network that have failed or are slow.

    Attributes
    ----------
    failed
        Links as ``A-B``, ascending: NPUs by number, then other vertices as they are listed; a link's lower end first.
    slow
        Links as ``A-B`` and the factor on their bandwidth, in the same order.
    before
        All links as they were.
    """

    failed: tuple[str, ...]
    slow: tuple[tuple[str, float], ...]
    before: Links

    def entries(self) -> dict[str, object]:
        """What documents say of them: `failed_links`, and `slow_links` with the factors on their bandwidth."""
        failed: dict[str, object] = {"failed_links": list(self.failed)} if self.failed else {}
        return failed | ({"slow_links": dict(self.slow)} if self.slow else {})


@dataclass(frozen=True, slots=True)
class Packets:
    """How packets go on a network, where they are simulated (`--backend ns3`).

    Attributes
    ----------
    transport
        "tcp" (CUBIC), "dctcp", or "lossless" (back pressure instead of loss, no windows).
    mtu
        Bytes of the largest packet, from its IP header on.
    buffer
        Bytes that wait for a link at most, per direction; lossless: bytes of a link that its receiver holds at most.
    queue
        "droptail" or "red"; None: red for dctcp, else droptail.
    ecn_threshold
        Bytes of a queue from which packets are marked instead of dropped; 0: none is marked; None: `DCTCP_THRESHOLD` for
        dctcp, else none.
    initial_window
        Bytes that a connection may have under way at first; None: ten packets.
    largest_window
        Bytes that a connection has under way at most.
    least_timeout_ns
        A lost packet without later ones is sent again after this time at the earliest, ns.
    seed
        Of random early drops.
    """

    transport: str = "tcp"
    mtu: int = 9000
    buffer: int = 16 << 20
    queue: str | None = None
    ecn_threshold: int | None = None
    initial_window: int | None = None
    largest_window: int = 4 << 20
    least_timeout_ns: int = 200_000_000
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Network:
    """All dimensions; dimension 0 varies fastest in the NPU number. `links` replaces the dimensions' own links.

    Attributes
    ----------
    dims
        Dimensions, dimension 0 first.
    source
        File, for messages.
    links
        Single links, where the network is given by them.
    outside
        Who simulates the network, where that is another package; `dims` are then what it states of itself.
    flow_cap_gibps
        GB/s of 2**30 bytes per second that no flow exceeds, on the flow backend; None: what links leave.
    packets
        How packets go on it, for who simulates them.
    """

    dims: tuple[Dimension, ...]
    source: str = "<network>"
    links: Links | None = None
    outside: OutsideNetwork | None = None
    flow_cap_gibps: float | None = None
    packets: Packets = Packets()

    @property
    def npus(self) -> int:
        """Number of NPUs: the product of the dimensions' sizes."""
        total = 1
        for dim in self.dims:
            total *= dim.npus
        return total

    @property
    def faults(self) -> Faults | None:
        """Which of its links have failed or are slow; None where none are."""
        return None if self.links is None else self.links.faults

    @property
    def crosses_every_dim(self) -> bool:
        """Whether messages cross every dimension in which their ends differ: not where dimensions are names."""
        return isinstance(self.dims[0].topology, Topology)


@dataclass(frozen=True, slots=True)
class SharedBus:
    """LogGP parameters of the shared memory bus (section 4.5); G keeps single-precision rounding.

    Attributes
    ----------
    latency
        L, ns.
    overhead
        o, ns.
    gap
        g, ns.
    gap_per_byte
        G, ns per byte.
    """

    latency: int = 0  # L
    overhead: int = 0  # o
    gap: int = 0  # g
    gap_per_byte: float = 0.0  # G


@dataclass(frozen=True, slots=True)
class System:
    """The collective system and compute model of every NPU.

    Attributes
    ----------
    scheduling_policy
        Order of waiting collectives: LIFO, FIFO or EXPLICIT.
    collective_optimization
        "baseline" or "localBWAware".
    endpoint_delay_ns
        Time before each message, ns.
    peak_perf_tflops
        Peak of the roofline, 10^12 operations/s.
    local_mem_capacity_gb
        Size of an NPU's memory, 10^9 B; None where it is not known.
    roofline
        Whether compute times come from operations and bytes.
    trace_enabled
        Whether every node is logged.
    replay_only
        Whether every node takes its recorded duration.
    track_local_mem
        Whether memory of tensors is accounted for.
    local_mem_trace_filename
        File of that account.
    shared_bus
        The bus between NPU and memory, if modelled.
    local_reduction_delay
        Reduction on the shared bus, ns per 100 bytes.
    inter_dimension_scheduling
        Order of dimensions per chunk.
    intra_dimension_scheduling
        Order of chunks in a queue.
    collective_library
        Whose times collectives take: "nccl" or "rccl"; None: those of the algorithms.
    collective_costs
        Measured costs of that library: name of a preset, or the JSON text of such costs.
    collective_times
        Measured times in place of the library's model, where they reach: files, or ``aiconfigurator``.
    collective_algorithm, collective_protocol, collective_channels
        What the library is held to; None: it chooses.
    node_ports
        Network ports of a node; 0: one for each NPU.
    network_latency_us
        Latency that the network's plugin reports to the library, us.
    network_reduces
        Whether switches between nodes reduce (SHARP).
    operator_model
        Times of operators: name of a preset, path of a file, or the JSON text of constants; None: the roofline's.
    operator_times
        Measured matrix products in place of the model's, where they reach: files, or ``aiconfigurator``.
    computing_rate, collective_rate
        Speed of computing on an NPU while a collective of the library runs there, and of a collective while one of its
        members computes; 1: what runs alone.
    source
        File, for messages.
    """

    scheduling_policy: str = "LIFO"
    collective_optimization: str = "baseline"  # or "localBWAware"
    endpoint_delay_ns: int = 10
    #: whether the file had the key: injection-scale scales only a given delay
    endpoint_delay_given: bool = False
    #: streams in flight per dimension
    active_chunks: int = 1
    #: pieces that a collective is split into
    splits: int = 1
    #: native algorithm per dimension, by collective
    implementations: dict[CollectiveKind, tuple[str, ...]] = field(default_factory=dict)
    #: prefix of a custom algorithm's traces, by collective
    custom: dict[CollectiveKind, str] = field(default_factory=dict)
    #: path of a YAML map node id -> prefix
    per_node_custom: str | None = None
    #: GB/s of 10**9 bytes per second; 0 means reductions cost nothing
    local_mem_bw_gbps: float = 0.0
    peak_perf_tflops: float | None = None
    local_mem_capacity_gb: float | None = None
    roofline: bool = False
    trace_enabled: bool = False
    replay_only: bool = False
    track_local_mem: bool = False
    local_mem_trace_filename: str = "local_mem_trace"
    shared_bus: SharedBus | None = None
    local_reduction_delay: int = 1
    inter_dimension_scheduling: str = "ascending"
    intra_dimension_scheduling: str = "FIFO"
    collective_library: str | None = None
    collective_costs: str | None = None
    collective_times: tuple[str, ...] = ()
    collective_algorithm: str | None = None
    collective_protocol: str | None = None
    collective_channels: int | None = None
    node_ports: int = 0
    network_latency_us: float = 0.0
    network_reduces: bool = False
    operator_model: str | None = None
    operator_times: tuple[str, ...] = ()
    computing_rate: float = 1.0
    collective_rate: float = 1.0
    source: str = "<system>"

    @property
    def local_mem_capacity_bytes(self) -> int | None:
        """Size of an NPU's memory in bytes; None where it is not known."""
        return None if self.local_mem_capacity_gb is None else capacity_bytes(self.local_mem_capacity_gb)


def capacity_bytes(capacity_gb: float) -> int:
    """Whole bytes of a capacity in 10^9 B, at least one."""
    return max(1, round(capacity_gb * 1e9))


@dataclass(frozen=True, slots=True)
class Memory:
    """Remote memory; latency in ns, bandwidth in bytes per ns (GB/s of 10**9), both whole as in ASTRA-sim.

    Attributes
    ----------
    kind
        Who shares it.
    latency_ns
        Latency of an access, ns.
    bytes_per_ns
        Bandwidth, bytes per ns; 0: latency only.
    n_nodes
        Memory servers (per-node memory).
    npus_per_node
        Consecutive NPUs that share a server.
    source
        File, for messages.
    """

    kind: MemoryKind = MemoryKind.NONE
    latency_ns: int = 0
    bytes_per_ns: int = 0
    n_nodes: int = 0
    npus_per_node: int = 0
    source: str = "<memory>"
