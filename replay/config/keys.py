"""Every key of network, system and memory files.

The loaders read by these tables and refuse every other key, `chakra check-config` prints them with the values in effect,
`chakra schema` writes them as JSON Schemas, and docs/reference/configuration.md is made from them. Defaults are those of
`chakra.replay.config.model`.
"""

from chakra.replay.config.algorithm_lists import AlgorithmList, PathPrefix
from chakra.replay.config.costs_reader import Costs, Names
from chakra.replay.config.key import IGNORED, REQUIRED, Key, Schema, object_schema
from chakra.replay.config.link_readers import NpuCounts, Parts, Route, Vertex
from chakra.replay.config.model import (
    CollectiveKind,
    Links,
    Memory,
    MemoryKind,
    SharedBus,
    Switches,
    System,
    Topology,
)
from chakra.replay.config.packet_keys import PACKETS
from chakra.replay.config.readers import (
    Anything,
    Flag,
    ListOf,
    Named,
    Number,
    OneSwitch,
    Rate,
    Single,
    Switch,
    Text,
    Whole,
    WholeSingle,
    Word,
    members,
    words,
)
from chakra.replay.options import COLLECTIVE_ALGORITHMS, COLLECTIVE_PROTOCOLS

_SYSTEM, _BUS, _MEMORY, _LINKS = System(), SharedBus(), Memory(), Links(())
_SWITCH_HEAD = "everything but the number 0 is true, so `false` is true"
_GIBPS = "GB/s of 2^30 B/s"
_GBPS = "GB/s of 10^9 B/s"

FLOW_CAP = Key(
    "flow_cap",
    Number(above_zero=True, rule="must be one number of GB/s that no flow exceeds, above 0"),
    None,
    _GIBPS,
    "flow_cap_gibps",
    "most that one flow gets on the flow backend, as where a library has one channel; no effect on others",
    "what links leave",
    IGNORED,
)

NETWORK_KEYS = (
    TOPOLOGY := Key(
        "topology",
        ListOf(members(Topology), "topologies", "a network has at least one dimension"),
        REQUIRED,
        "",
        "topology",
        "building block of each dimension",
    ),
    NPUS_COUNT := Key(
        "npus_count",
        NpuCounts("numbers of NPUs", one_alone=True),
        REQUIRED,
        "NPUs",
        "npus",
        "size of each dimension; dimension 0 varies fastest in the NPU number",
    ),
    BANDWIDTH := Key(
        "bandwidth",
        ListOf(Number(above_zero=True, rule="must be a number of GB/s above 0"), "bandwidths in GB/s"),
        REQUIRED,
        _GIBPS,
        "bandwidth_gibps",
        "of each link, per direction",
    ),
    LATENCY := Key(
        "latency",
        ListOf(Number(rule="must be a number of ns, 0 or more"), "latencies in ns"),
        REQUIRED,
        "ns",
        "latency_ns",
        "of each hop",
    ),
    SWITCHES := Key(
        "switches",
        ListOf(members(Switches), "what the switches of each dimension do, in words"),
        None,
        "",
        "switches",
        "what the switches of each dimension do beside forwarding, for the algorithm inNetwork; reduces: and multicasts",
        "plain: they forward only",
        IGNORED,
    ),
    FLOW_CAP,
    PACKETS,
)

#: fields of one entry of `links`, and attributes of the edges of a GraphML file
LINK_FIELDS = (
    FROM := Key("from", Vertex(), REQUIRED, "", "src", "vertex where the link begins"),
    TO := Key("to", Vertex(), REQUIRED, "", "dst", "vertex where it ends"),
    LINK_BANDWIDTH := Key(
        "bandwidth",
        Number(above_zero=True, rule="must be a number of GB/s, above 0"),
        None,
        _GIBPS,
        "bandwidth_gibps",
        "per direction",
        "the file's",
    ),
    LINK_LATENCY := Key(
        "latency",
        Number(rule="must be a number of ns, 0 or more"),
        None,
        "ns",
        "latency_ns",
        "of the link",
        "the file's",
    ),
    DIRECTED := Key("directed", Flag(), False, "", "directed", "one way only"),
)

_ROW: Schema = {
    "anyOf": [
        {
            "type": "array",
            "prefixItems": [key.reader.schema() for key in LINK_FIELDS[:4]],
            "minItems": 2,
            "maxItems": 4,
        },
        object_schema(LINK_FIELDS),
    ]
}

LINK_KEYS = (
    LINK_NPUS_COUNT := Key(
        "npus_count",
        NpuCounts("numbers of NPUs, such as [16]", "it says how many vertices are NPUs"),
        REQUIRED,
        "NPUs",
        "npus",
        "vertices 0, 1, ... that are NPUs; several numbers make logical dimensions, the first varying fastest",
    ),
    LINKS := Key(
        "links",
        ListOf(
            Anything("", _ROW),
            "links such as [0, 1, 50, 500]: from, to, GB/s, ns",
            "no NPU can be reached",
            says="list of [from, to, bandwidth, latency] or of maps from, to, bandwidth, latency, directed",
        ),
        REQUIRED,
        "",
        "links",
        "all links; two between the same ends are an error",
    ),
    LINKS_BANDWIDTH := Key(
        "bandwidth",
        Number(above_zero=True, rule="must be one number of GB/s for links that give none, above 0"),
        None,
        _GIBPS,
        "bandwidth",
        "of links that give none",
    ),
    LINKS_LATENCY := Key(
        "latency",
        Number(rule="must be one number of ns for links that give none, 0 or more"),
        None,
        "ns",
        "latency",
        "of links that give none",
    ),
    ROUTES := Key(
        "routes",
        ListOf(
            Route(),
            "routes such as [0, leaf0, 1]",
            says="list of lists of vertices, from NPU to NPU over links",
        ),
        None,
        "",
        "routes",
        "given routes of some pairs",
        "none: all pairs take shortest paths",
    ),
    ROUTING := Key(
        "routing", words("hops", "latency", "inside"), _LINKS.routing, "", "routing", "what is shortest"
    ),
    ECMP := Key(
        "ecmp",
        words("hash", "first", "destination", "spray", "adaptive"),
        _LINKS.ecmp,
        "",
        "ecmp",
        "among equal paths: by a hash of sender, receiver and place; the link listed first; by the receiver's number; of "
        "flows only: all of them at once, or the least loaded one at a flow's start",
    ),
    NPUS_FORWARD := Key(
        "npus_forward",
        Flag(),
        _LINKS.npus_forward,
        "",
        "npus_forward",
        "whether a path may lead through an NPU that is not its end",
    ),
    LINK_SWITCHES := Key(
        "switches",
        members(Switches),
        _LINKS.switches,
        "",
        "switches",
        "what vertices that are no NPUs do beside forwarding, for the algorithm inNetwork on the flow backend",
        "",
        IGNORED,
    ),
    BUILT_OF := Key(
        "built_of",
        Parts(),
        None,
        "",
        "built_of",
        "switches, cables and ports outside machines, of which a vertex or a link may be several; changes no time",
        "not known",
        IGNORED,
    ),
    FLOW_CAP,
    PACKETS,
)

#: a network that another package makes
PLUGIN_KEYS = (
    PLUGIN := Key(
        "plugin",
        Text(says="name of an entry point of chakra.networks"),
        REQUIRED,
        "",
        "plugin",
        "who makes the network",
    ),
    ARGUMENTS := Key(
        "arguments",
        Named(),
        None,
        "as the plugin says",
        "arguments",
        "keyword arguments of its function",
    ),
)

#: collective -> stem of its keys
IMPLEMENTATION_KEYS = {
    CollectiveKind.ALL_REDUCE: "all-reduce-implementation",
    CollectiveKind.ALL_GATHER: "all-gather-implementation",
    CollectiveKind.REDUCE_SCATTER: "reduce-scatter-implementation",
    CollectiveKind.ALL_TO_ALL: "all-to-all-implementation",
}


def _implementation(kind: CollectiveKind) -> Key[tuple[str, ...] | None]:
    first = kind is CollectiveKind.ALL_REDUCE
    return Key(
        IMPLEMENTATION_KEYS[kind],
        AlgorithmList(names_all=first),
        None,
        "",
        f"implementations.{kind}",
        "algorithms; a shorter list leaves the last dimensions out" if first else "as for the all-reduce",
        "none: needed when such a collective runs",
        "ASTRA-sim's own names only: the first four, and their one<Name>" if first else "",
    )


def _custom(kind: CollectiveKind) -> Key[str | None]:
    return Key(
        f"{IMPLEMENTATION_KEYS[kind]}-custom",
        PathPrefix(),
        None,
        "",
        f"custom.{kind}",
        "traces of a custom algorithm, PREFIX.<position>.et",
    )


SYSTEM_KEYS = (
    Key(
        "scheduling-policy",
        words("LIFO", "FIFO", "EXPLICIT"),
        _SYSTEM.scheduling_policy,
        "",
        "scheduling_policy",
        "order of waiting streams of several collectives; of effect with --compat astra-sim-1.0 only",
    ),
    Key(
        "collective-optimization",
        words("baseline", "localBWAware"),
        _SYSTEM.collective_optimization,
        "",
        "collective_optimization",
        "how an all-reduce uses the dimensions: whole on each, or reduce-scatter up and all-gather down",
    ),
    ENDPOINT_DELAY := Key(
        "endpoint-delay",
        Whole(of="ns"),
        _SYSTEM.endpoint_delay_ns,
        "ns",
        "endpoint_delay_ns",
        "time before each message leaves an NPU; fractions are dropped",
    ),
    ACTIVE_CHUNKS := Key(
        "active-chunks-per-dimension",
        Whole(1),
        _SYSTEM.active_chunks,
        "streams",
        "active_chunks",
        "streams in flight per dimension, shared among its queues",
    ),
    SPLITS := Key(
        "preferred-dataset-splits",
        Whole(1),
        _SYSTEM.splits,
        "chunks",
        "splits",
        "pieces that a collective is split into",
    ),
    *(_implementation(kind) for kind in IMPLEMENTATION_KEYS),
    *(_custom(kind) for kind in IMPLEMENTATION_KEYS),
    Key(
        "per-node-custom-implementation",
        Text(says="path of a YAML file"),
        _SYSTEM.per_node_custom,
        "",
        "per_node_custom",
        "map node id -> path prefix; beats the others",
    ),
    LOCAL_MEM_BW := Key(
        "local-mem-bw",
        Number(of="GB/s"),
        _SYSTEM.local_mem_bw_gbps,
        _GBPS,
        "local_mem_bw_gbps",
        "bandwidth of reductions and of the roofline",
        "reductions cost nothing",
    ),
    PEAK_PERF := Key(
        "peak-perf",
        Number(above_zero=True, of="TFLOP/s", zero_as_head=True),
        _SYSTEM.peak_perf_tflops,
        "TFLOP/s of 10^12",
        "peak_perf_tflops",
        "peak compute rate of the roofline",
        compat="0 where absent",
    ),
    LOCAL_MEM_CAPACITY := Key(
        "local-mem-capacity",
        Number(above_zero=True, of="GB"),
        None,
        "GB of 10^9 B",
        "local_mem_capacity_gb",
        "size of an NPU's memory; changes no time: results tell of a generated workload that needs more",
        "not known",
        compat=IGNORED,
    ),
    ROOFLINE := Key(
        "roofline-enabled",
        Switch(),
        _SYSTEM.roofline,
        "",
        "roofline",
        "compute times from num_ops and tensor_size instead of durations; needs peak-perf and local-mem-bw",
        compat=_SWITCH_HEAD,
    ),
    Key(
        "trace-enabled",
        Switch(),
        _SYSTEM.trace_enabled,
        "",
        "trace_enabled",
        "log the issue and completion of every node",
        compat=_SWITCH_HEAD,
    ),
    Key(
        "replay-only",
        Switch(),
        _SYSTEM.replay_only,
        "",
        "replay_only",
        "every node takes its recorded duration; nothing is modelled",
        compat=_SWITCH_HEAD,
    ),
    Key(
        "track-local-mem",
        Switch(),
        _SYSTEM.track_local_mem,
        "",
        "track_local_mem",
        "ASTRA-sim's account of memory in a file; not needed here, a run warns: the result's memory has it always",
        compat=_SWITCH_HEAD,
    ),
    Key(
        "local-mem-trace-filename",
        Text(),
        _SYSTEM.local_mem_trace_filename,
        "",
        "local_mem_trace_filename",
        "that file's name; it is not written",
    ),
    SHARED_BUS := Key(
        "model-shared-bus",
        OneSwitch(),
        _SYSTEM.shared_bus is not None,
        "",
        "models_shared_bus",
        "messages cross a LogGP bus between NPU and memory",
        compat="true only if 1 or true",
    ),
    Key(
        "L",
        WholeSingle(),
        _BUS.latency,
        "ns",
        "shared_bus.latency",
        "shared bus: latency; fractions are dropped",
    ),
    Key(
        "o",
        WholeSingle(),
        _BUS.overhead,
        "ns",
        "shared_bus.overhead",
        "shared bus: overhead per transfer; fractions are dropped",
    ),
    Key(
        "g",
        WholeSingle(),
        _BUS.gap,
        "ns",
        "shared_bus.gap",
        "shared bus: gap between transfers; fractions are dropped",
    ),
    Key(
        "G",
        Single(),
        _BUS.gap_per_byte,
        "ns per byte",
        "shared_bus.gap_per_byte",
        "shared bus: gap per byte, kept in single precision",
    ),
    Key(
        "local-reduction-delay",
        Whole(),
        _SYSTEM.local_reduction_delay,
        "ns per 100 B",
        "local_reduction_delay",
        "shared bus: reduction time",
    ),
    Key(
        "inter-dimension-scheduling",
        Word(
            {
                "ascending": "ascending",
                "baseline": "ascending",
                "roundRobin": "roundRobin",
                "offlineGreedy": "offlineGreedy",
                "themis": "offlineGreedy",
                "offlineGreedyFlex": "offlineGreedyFlex",
                "themisFlex": "offlineGreedyFlex",
            }
        ),
        _SYSTEM.inter_dimension_scheduling,
        "",
        "inter_dimension_scheduling",
        "order of dimensions per chunk; baseline is ascending, themis offlineGreedy, themisFlex offlineGreedyFlex",
        compat=IGNORED,
    ),
    Key(
        "intra-dimension-scheduling",
        Word(
            {
                "FIFO": "FIFO",
                "RG": "RG",
                "smallestFirst": "smallestFirst",
                "SCF": "smallestFirst",
                "lessRemainingPhaseFirst": "lessRemainingPhaseFirst",
            }
        ),
        _SYSTEM.intra_dimension_scheduling,
        "",
        "intra_dimension_scheduling",
        "order in a queue; SCF is smallestFirst",
        compat=IGNORED,
    ),
    COLLECTIVE_LIBRARY := Key(
        "collective-library",
        words("nccl", "rccl"),
        None,
        "",
        "collective_library",
        "collectives take this library's time, not that of the algorithms; no effect with --compat",
    ),
    COLLECTIVE_COSTS := Key(
        "collective-costs",
        Costs(),
        None,
        "",
        "collective_costs",
        "measured costs of the library: name of a preset, path of a .yml file, or the costs themselves",
    ),
    COLLECTIVE_TIMES := Key(
        "collective-times",
        Names("files", "text or list of texts"),
        _SYSTEM.collective_times,
        "",
        "collective_times",
        "measured times in place of the model where they reach: logs of nccl-tests, CSV, parquet, aiconfigurator",
    ),
    Key(
        "collective-algorithm",
        words(*COLLECTIVE_ALGORITHMS),
        None,
        "",
        "collective_algorithm",
        "what NCCL_ALGO holds the library to",
    ),
    Key(
        "collective-protocol",
        words(*COLLECTIVE_PROTOCOLS),
        None,
        "",
        "collective_protocol",
        "what NCCL_PROTO holds the library to",
    ),
    Key(
        "collective-channels",
        Whole(1),
        None,
        "channels",
        "collective_channels",
        "most channels of the library",
    ),
    Key(
        "node-ports",
        Whole(of="ports"),
        _SYSTEM.node_ports,
        "ports",
        "node_ports",
        "network ports of a node; 0: one for each NPU",
    ),
    Key(
        "network-plugin-latency",
        Number(rule="must be a number of us, 0 or more"),
        _SYSTEM.network_latency_us,
        "us",
        "network_latency_us",
        "latency that the network's plugin reports to the library: 0 for InfiniBand, 35 to 75 for EFA",
    ),
    Key(
        "network-reduces",
        Switch(),
        _SYSTEM.network_reduces,
        "",
        "network_reduces",
        "switches between nodes reduce (SHARP), so that the library has CollNet; so does `switches` of the network file",
    ),
    Key(
        "operator-model",
        Costs("constants"),
        None,
        "",
        "operator_model",
        "times of generated operators: name of a preset, path of a .yml file, or a map of constants, of changes to those "
        "of a preset where it has `base`; no effect with --compat",
    ),
    OPERATOR_TIMES := Key(
        "operator-times",
        Names("files", "text or list of texts"),
        _SYSTEM.operator_times,
        "",
        "operator_times",
        "measured matrix products in place of the model where they reach: CSV, parquet, aiconfigurator",
    ),
    COMPUTING_RATE := Key(
        "overlap-computing-rate",
        Rate(),
        _SYSTEM.computing_rate,
        "",
        "computing_rate",
        "speed of computing while a collective of the library runs on the NPU, in steps of 0.0001; 1: no effect",
    ),
    COLLECTIVE_RATE := Key(
        "overlap-collective-rate",
        Rate(),
        _SYSTEM.collective_rate,
        "",
        "collective_rate",
        "speed of a collective of the library while a member computes, in steps of 0.0001; 1: no effect",
    ),
    BOOST_MODE := Key(
        "boost-mode",
        Switch(),
        None,
        "",
        "boost_mode",
        "accepted and not needed: results are always those of the full simulation",
        compat=IGNORED,
    ),
)

#: whole numbers that a double holds exactly
_EXACT = 2**53
_FOR_NODES = f"required for {MemoryKind.PER_NODE}"

MEMORY_KEYS = (
    Key(
        "memory-type",
        members(MemoryKind),
        _MEMORY.kind,
        "",
        "kind",
        "who shares a server of remote memory: nobody has one, the NPUs of a node, nobody else, all",
    ),
    REMOTE_LATENCY := Key(
        "remote-mem-latency",
        Whole(most=_EXACT, of="ns"),
        _MEMORY.latency_ns,
        "ns",
        "latency_ns",
        "of one access; fractions are dropped",
    ),
    REMOTE_BANDWIDTH := Key(
        "remote-mem-bw",
        Whole(most=_EXACT, of="GB/s"),
        _MEMORY.bytes_per_ns,
        _GBPS,
        "bytes_per_ns",
        "of one access; fractions are dropped",
        "latency only",
    ),
    N_NODES := Key("num-nodes", Whole(), None, "nodes", "n_nodes", "memory servers", _FOR_NODES),
    NPUS_PER_NODE := Key(
        "num-npus-per-node",
        Whole(),
        None,
        "NPUs",
        "npus_per_node",
        "consecutive NPUs that share a server",
        _FOR_NODES,
    ),
)

#: kind of file -> names of its keys
ALL_KEYS = {
    kind: frozenset(key.name for key in keys)
    for kind, keys in (
        ("network", (*NETWORK_KEYS, *LINK_KEYS, *PLUGIN_KEYS)),
        ("system", SYSTEM_KEYS),
        ("memory", MEMORY_KEYS),
    )
}
