"""Every key of the configuration files: what it may be, unit, default, meaning.

The readers refuse every other key, `chakra check-config` prints these tables with the values in effect, and
docs/reference/configuration.md is made from them. Keys of studies and of platform files: `chakra.sweep.keys` and
`chakra.platforms.keys`.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a configuration file; `compat` says what `compat="astra-sim"` reads differently."""

    name: str
    #: what a value may be: type and bounds, or the words
    allowed: str
    unit: str
    default: str
    meaning: str
    compat: str = ""


REQUIRED = "required"

_SWITCH = "true, false, 1 or 0"
_SWITCH_HEAD = "everything but the number 0 is true, so `false` is true"
_WHOLE = "whole number, 0 or more"
_COUNT = "whole number, 1 or more"
_ALGORITHMS = (
    "ring, direct, direct<w>, halvingDoubling, doubleBinaryTree, rabenseifner, recursiveDoubling, bruck, binomialTree, "
    "chain, scatterAllGather, pipelinedTree, what packages offer; one<Name>: on one flat ring of all NPUs"
)
_LIST = "list of names, one per network dimension or fewer"
_NEEDED = "none: needed when such a collective runs"
_CUSTOM = ("list of one path prefix", "", "none", "traces of a custom algorithm, PREFIX.<position>.et")

NETWORK_KEYS = (
    Key("topology", "list of Ring, FullyConnected, Switch", "", REQUIRED, "building block of each dimension"),
    Key(
        "npus_count",
        "list of whole numbers, 2 or more; [1] for a machine of one NPU",
        "NPUs",
        REQUIRED,
        "size of each dimension; dimension 0 varies fastest in the NPU number",
    ),
    Key("bandwidth", "list of numbers above 0", "GB/s of 2^30 B/s", REQUIRED, "of each link, per direction"),
    Key("latency", "list of numbers, 0 or more", "ns", REQUIRED, "of each hop"),
)

LINK_KEYS = (
    Key(
        "npus_count",
        "list of whole numbers, 2 or more",
        "NPUs",
        REQUIRED,
        "vertices 0, 1, ... that are NPUs; several numbers make logical dimensions, the first varying fastest",
    ),
    Key(
        "links",
        "list of [from, to, bandwidth, latency] or of maps from, to, bandwidth, latency, directed",
        "",
        REQUIRED,
        "all links; two between the same ends are an error",
    ),
    Key("bandwidth", "number above 0", "GB/s of 2^30 B/s", "none", "of links that give none"),
    Key("latency", "number, 0 or more", "ns", "none", "of links that give none"),
    Key(
        "routes",
        "list of lists of vertices, from NPU to NPU over links",
        "",
        "none: all pairs take shortest paths",
        "given routes of some pairs",
    ),
    Key("routing", "hops, latency", "", "hops", "what is shortest"),
    Key(
        "ecmp",
        "hash, first",
        "",
        "hash",
        "among equal paths: by sender, receiver and place, always the same way; or the link listed first",
    ),
    Key(
        "npus_forward",
        "true or false",
        "",
        "true",
        "whether a path may lead through an NPU that is not its end",
    ),
)

#: fields of one entry of `links`, and attributes of the edges of a GraphML file
LINK_FIELDS = (
    Key("from", "NPU number or name", "", REQUIRED, "vertex where the link begins"),
    Key("to", "NPU number or name", "", REQUIRED, "vertex where it ends"),
    Key("bandwidth", "number above 0", "GB/s of 2^30 B/s", "the file's", "per direction"),
    Key("latency", "number, 0 or more", "ns", "the file's", "of the link"),
    Key("directed", "true or false", "", "false", "one way only"),
)

#: a network that another package makes
PLUGIN_KEYS = (
    Key("plugin", "name of an entry point of chakra.networks", "", REQUIRED, "who makes the network"),
    Key("arguments", "map", "as the plugin says", "none", "keyword arguments of its function"),
)

SYSTEM_KEYS = (
    Key(
        "scheduling-policy",
        "LIFO, FIFO, EXPLICIT",
        "",
        "LIFO",
        "order of waiting streams of several collectives; of effect with --compat astra-sim-1.0 only",
    ),
    Key(
        "collective-optimization",
        "baseline, localBWAware",
        "",
        "baseline",
        "how an all-reduce uses the dimensions: whole on each, or reduce-scatter up and all-gather down",
    ),
    Key(
        "endpoint-delay", _WHOLE, "ns", "10", "time before each message leaves an NPU; fractions are dropped"
    ),
    Key(
        "active-chunks-per-dimension",
        _COUNT,
        "streams",
        "1",
        "streams in flight per dimension, shared among its queues",
    ),
    Key("preferred-dataset-splits", _COUNT, "chunks", "1", "pieces that a collective is split into"),
    Key(
        "all-reduce-implementation",
        f"{_LIST}: {_ALGORITHMS}",
        "",
        _NEEDED,
        "algorithms; a shorter list leaves the last dimensions out",
        "ASTRA-sim's own names only: the first four, and their one<Name>",
    ),
    Key("all-gather-implementation", _LIST, "", _NEEDED, "as for the all-reduce"),
    Key("reduce-scatter-implementation", _LIST, "", _NEEDED, "as for the all-reduce"),
    Key("all-to-all-implementation", _LIST, "", _NEEDED, "as for the all-reduce"),
    Key("all-reduce-implementation-custom", *_CUSTOM),
    Key("all-gather-implementation-custom", *_CUSTOM),
    Key("reduce-scatter-implementation-custom", *_CUSTOM),
    Key("all-to-all-implementation-custom", *_CUSTOM),
    Key(
        "per-node-custom-implementation",
        "path of a YAML file",
        "",
        "none",
        "map node id -> path prefix; beats the others",
    ),
    Key(
        "local-mem-bw",
        "number, 0 or more",
        "GB/s of 10^9 B/s",
        "0: reductions cost nothing",
        "bandwidth of reductions and of the roofline",
    ),
    Key(
        "peak-perf",
        "number above 0",
        "TFLOP/s of 10^12",
        "none",
        "peak compute rate of the roofline",
        "0 where absent",
    ),
    Key(
        "roofline-enabled",
        _SWITCH,
        "",
        "false",
        "compute times from num_ops and tensor_size instead of durations; needs peak-perf and local-mem-bw",
        _SWITCH_HEAD,
    ),
    Key("trace-enabled", _SWITCH, "", "false", "log the issue and completion of every node", _SWITCH_HEAD),
    Key(
        "replay-only",
        _SWITCH,
        "",
        "false",
        "every node takes its recorded duration; nothing is modelled",
        _SWITCH_HEAD,
    ),
    Key(
        "track-local-mem",
        _SWITCH,
        "",
        "false",
        "ASTRA-sim's account of memory in a file; not needed here, a run warns: the result's memory has it always",
        _SWITCH_HEAD,
    ),
    Key("local-mem-trace-filename", "text", "", "local_mem_trace", "that file's name; it is not written"),
    Key(
        "model-shared-bus",
        _SWITCH,
        "",
        "false",
        "messages cross a LogGP bus between NPU and memory",
        "true only if 1 or true",
    ),
    Key("L", "number, 0 or more", "ns", "0", "shared bus: latency; fractions are dropped"),
    Key("o", "number, 0 or more", "ns", "0", "shared bus: overhead per transfer; fractions are dropped"),
    Key("g", "number, 0 or more", "ns", "0", "shared bus: gap between transfers; fractions are dropped"),
    Key("G", "number, 0 or more", "ns per byte", "0", "shared bus: gap per byte, kept in single precision"),
    Key("local-reduction-delay", _WHOLE, "ns per 100 B", "1", "shared bus: reduction time"),
    Key(
        "inter-dimension-scheduling",
        "ascending, baseline, roundRobin, offlineGreedy, themis, offlineGreedyFlex, themisFlex",
        "",
        "ascending",
        "order of dimensions per chunk; baseline is ascending, themis offlineGreedy, themisFlex offlineGreedyFlex",
        "ignored",
    ),
    Key(
        "intra-dimension-scheduling",
        "FIFO, RG, smallestFirst, SCF, lessRemainingPhaseFirst",
        "",
        "FIFO",
        "order in a queue; SCF is smallestFirst",
        "ignored",
    ),
    Key(
        "boost-mode",
        _SWITCH,
        "",
        "none",
        "accepted and not needed: results are always those of the full simulation",
        "ignored",
    ),
)

MEMORY_KEYS = (
    Key(
        "memory-type",
        "NO_MEMORY_EXPANSION, PER_NODE_MEMORY_EXPANSION, PER_NPU_MEMORY_EXPANSION, MEMORY_POOL",
        "",
        "NO_MEMORY_EXPANSION",
        "who shares a server of remote memory: nobody has one, the NPUs of a node, nobody else, all",
    ),
    Key("remote-mem-latency", _WHOLE, "ns", "0", "of one access; fractions are dropped"),
    Key(
        "remote-mem-bw", _WHOLE, "GB/s of 10^9 B/s", "0: latency only", "of one access; fractions are dropped"
    ),
    Key("num-nodes", _COUNT, "nodes", "required for PER_NODE_MEMORY_EXPANSION", "memory servers"),
    Key(
        "num-npus-per-node",
        _COUNT,
        "NPUs",
        "required for PER_NODE_MEMORY_EXPANSION",
        "consecutive NPUs that share a server",
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
