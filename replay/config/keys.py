"""Every key of the configuration files: unit, default, meaning."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a configuration file; `compat` says what `compat="astra-sim"` reads differently."""

    name: str
    unit: str
    default: str
    meaning: str
    compat: str = ""


_ALGORITHMS = (
    "list, one algorithm per network dimension: ring, direct, direct<w>, halvingDoubling, doubleBinaryTree, "
    "oneRing, oneDirect, oneDirect<w>, oneHalvingDoubling; a shorter list leaves the last dimensions out"
)
_ALIKE = "list, one algorithm per network dimension, as for the all-reduce"
_SWITCH = "everything but the number 0 is true, so `false` is true"

NETWORK_KEYS = (
    Key("topology", "", "required", "list, one word per dimension: Ring, FullyConnected or Switch"),
    Key(
        "npus_count",
        "NPUs",
        "required",
        "list, size of each dimension, at least 2; dimension 0 varies fastest",
    ),
    Key("bandwidth", "GB/s of 2^30 B/s", "required", "list, per link and direction, above 0"),
    Key("latency", "ns", "required", "list, per hop, 0 or more"),
)

SYSTEM_KEYS = (
    Key(
        "scheduling-policy",
        "",
        "LIFO",
        "LIFO, FIFO or EXPLICIT: order of waiting streams of several collectives",
    ),
    Key(
        "collective-optimization",
        "",
        "baseline",
        "baseline or localBWAware: how an all-reduce uses the dimensions",
    ),
    Key("endpoint-delay", "ns", "10", "time before each message leaves an NPU; fractions are dropped"),
    Key(
        "active-chunks-per-dimension",
        "streams",
        "1",
        "streams in flight per dimension, shared among its queues",
    ),
    Key("preferred-dataset-splits", "chunks", "1", "pieces that a collective is split into"),
    Key("all-reduce-implementation", "", "none: needed when such a collective runs", _ALGORITHMS),
    Key("all-gather-implementation", "", "none: needed when such a collective runs", _ALIKE),
    Key("reduce-scatter-implementation", "", "none: needed when such a collective runs", _ALIKE),
    Key("all-to-all-implementation", "", "none: needed when such a collective runs", _ALIKE),
    Key(
        "all-reduce-implementation-custom",
        "",
        "none",
        "list of one path prefix: traces of a custom algorithm, PREFIX.<position>.et",
    ),
    Key(
        "all-gather-implementation-custom",
        "",
        "none",
        "list of one path prefix: traces of a custom algorithm, PREFIX.<position>.et",
    ),
    Key(
        "reduce-scatter-implementation-custom",
        "",
        "none",
        "list of one path prefix: traces of a custom algorithm, PREFIX.<position>.et",
    ),
    Key(
        "all-to-all-implementation-custom",
        "",
        "none",
        "list of one path prefix: traces of a custom algorithm, PREFIX.<position>.et",
    ),
    Key(
        "per-node-custom-implementation",
        "",
        "none",
        "path of a YAML map node id -> path prefix; beats the others",
    ),
    Key(
        "local-mem-bw",
        "GB/s of 10^9 B/s",
        "0: reductions cost nothing",
        "bandwidth of reductions and of the roofline",
    ),
    Key("peak-perf", "TFLOP/s of 10^12", "none", "peak compute rate of the roofline", "0 where absent"),
    Key(
        "roofline-enabled",
        "",
        "false",
        "compute times from num_ops and tensor_size instead of durations",
        _SWITCH,
    ),
    Key("trace-enabled", "", "false", "log the issue and completion of every node", _SWITCH),
    Key("replay-only", "", "false", "every node takes its recorded duration; nothing is modelled", _SWITCH),
    Key("track-local-mem", "", "false", "account for the memory that tensors occupy", _SWITCH),
    Key("local-mem-trace-filename", "", "local_mem_trace", "file of the memory account"),
    Key(
        "model-shared-bus",
        "",
        "false",
        "messages cross a LogGP bus between NPU and memory",
        "true only if 1 or true",
    ),
    Key("L", "ns", "0", "shared bus: latency; fractions are dropped"),
    Key("o", "ns", "0", "shared bus: overhead per transfer; fractions are dropped"),
    Key("g", "ns", "0", "shared bus: gap between transfers; fractions are dropped"),
    Key("G", "ns per byte", "0", "shared bus: gap per byte, kept in single precision"),
    Key("local-reduction-delay", "ns per 100 B", "1", "shared bus: reduction time"),
    Key(
        "inter-dimension-scheduling",
        "",
        "ascending",
        "order of dimensions per chunk: ascending (baseline), roundRobin, offlineGreedy (themis), "
        "offlineGreedyFlex (themisFlex)",
        "ignored",
    ),
    Key(
        "intra-dimension-scheduling",
        "",
        "FIFO",
        "order in a queue: FIFO, RG, smallestFirst (SCF), lessRemainingPhaseFirst",
        "ignored",
    ),
    Key(
        "boost-mode",
        "",
        "0",
        "accepted and not needed: results are always those of the full simulation",
        "ignored",
    ),
)

MEMORY_KEYS = (
    Key(
        "memory-type",
        "",
        "NO_MEMORY_EXPANSION",
        "NO_MEMORY_EXPANSION, PER_NODE_MEMORY_EXPANSION, PER_NPU_MEMORY_EXPANSION or MEMORY_POOL",
    ),
    Key("remote-mem-latency", "ns", "0", "latency of one access; fractions are dropped"),
    Key(
        "remote-mem-bw",
        "GB/s of 10^9 B/s",
        "0: latency only",
        "bandwidth of one access; fractions are dropped",
    ),
    Key("num-nodes", "nodes", "required for PER_NODE_MEMORY_EXPANSION", "memory servers"),
    Key(
        "num-npus-per-node",
        "NPUs",
        "required for PER_NODE_MEMORY_EXPANSION",
        "consecutive NPUs that share a server",
    ),
)

#: kind of file -> names of its keys
ALL_KEYS = {
    kind: frozenset(key.name for key in keys)
    for kind, keys in (("network", NETWORK_KEYS), ("system", SYSTEM_KEYS), ("memory", MEMORY_KEYS))
}
