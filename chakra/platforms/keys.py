"""Every key of a platform file: what it may be, unit, default, meaning. The reader refuses every other key."""

from chakra.replay.config.keys import REQUIRED, Key

_NUMBER = "number with status and source"

PLATFORM_KEYS = (
    Key("name", "text", "", REQUIRED, "short name"),
    Key("title", "text", "", REQUIRED, "name for people"),
    Key("kind", "machine", "", "machine", "what the file describes"),
    Key("note", "text", "", "none", "what a user of the numbers should know"),
    Key("accelerator", "map of name, peak_tflops, mem_gbps, memory_gb", "", REQUIRED, "one NPU"),
    Key(
        "dims",
        "list of maps of topology, npus, gbps, latency_ns",
        "",
        REQUIRED,
        "network dimensions, innermost first",
    ),
)
ACCELERATOR_KEYS = (
    Key("name", "text", "", REQUIRED, "name"),
    Key("peak_tflops", f"{_NUMBER}, above 0", "10^12 dense 16-bit op/s", REQUIRED, "peak compute rate"),
    Key("mem_gbps", f"{_NUMBER}, above 0", "10^9 B/s", REQUIRED, "bandwidth of its memory"),
    Key("memory_gb", f"{_NUMBER}, 0 or more", "10^9 B", REQUIRED, "size of its memory"),
)
DIM_KEYS = (
    Key("topology", "Ring, FullyConnected, Switch", "", REQUIRED, "building block"),
    Key(
        "npus",
        "whole number, 2 or more; scale_out for the last",
        "NPUs",
        REQUIRED,
        "size; scale_out: as large as asked for",
    ),
    Key(
        "gbps",
        f"{_NUMBER}, above 0",
        "10^9 B/s",
        REQUIRED,
        "of an NPU (Switch) or of a link (others), per direction",
    ),
    Key("latency_ns", f"{_NUMBER}, 0 or more", "ns", REQUIRED, "of a hop"),
)
#: fields of every number
NUMBER_KEYS = (
    Key("value", "number, 0 or more", "that of the key", REQUIRED, "the number"),
    Key(
        "status",
        "datasheet, fitted, assumed",
        "",
        REQUIRED,
        "whether it is published, measured by somebody, or plausible",
    ),
    Key("source", "text", "", REQUIRED, "where it comes from"),
    Key("links", "number above 0", "links", "none", "with link_gbps: how a bandwidth is made up"),
    Key("link_gbps", "number above 0", "10^9 B/s", "none", "links times this must be the value"),
)
