"""Every key of a study file: what it may be, unit, default, meaning. The reader refuses every other key."""

from enum import Enum
from typing import Any

from chakra.replay.config.keys import REQUIRED, Key

STUDY_KEYS = (
    Key("study", "text", "", "the file's name", "title of the study"),
    Key("workload", "map: kind and its parameters, or files", "", REQUIRED, "what runs"),
    Key(
        "platform", "text: words of chakra platform", "", "none: network and system are files", "the machine"
    ),
    Key(
        "network",
        "map of dim<k>.bandwidth, .latency, .topology, .npus; or path",
        "GB/s of 2^30 B/s, ns",
        "the platform's",
        "values that replace the platform's, or a network file",
    ),
    Key(
        "system",
        "map of keys of a system file; or path",
        "",
        "the platform's",
        "values that replace the platform's, or a system file",
    ),
    Key(
        "replay",
        "map of backend, compat, queues-per-dim, injection-scale, comm-scale, compute-scale, rendezvous, comm-streams, "
        "host-speed, accelerator-speed, start",
        "",
        "those of chakra replay",
        "options of every run",
    ),
    Key(
        "parameters",
        "map of names to a list, {values: [...]} or {range: [low, high], step, count, log}",
        "",
        "none: one point",
        "what varies; a name is platform, or starts with workload., network., system. or replay.",
    ),
    Key(
        "method",
        "grid, {random: SAMPLES, seed: N} or {optuna: TRIALS, seed: N, batch: N}",
        "",
        "grid",
        "how points are chosen; seed 0, batch 8 unless given",
    ),
    Key(
        "constraints",
        "list of memory and comparisons",
        "",
        "none",
        "points that need more memory than the accelerator has, or fail a comparison, do not count",
    ),
    Key("objective", "a metric", "", "step_ms", "what the ranked table is sorted by"),
    Key("pareto", "list of two metrics", "", "step_ms, memory_gb", "axes of the Pareto front"),
)

#: fields of a parameter that is a range
RANGE_KEYS = (
    Key("values", "list", "", "none", "the values themselves, instead of a range"),
    Key("range", "[low, high], low <= high", "", "none", "both ends belong to it"),
    Key("step", "number above 0", "", "1 for whole numbers", "distance of values, counted from low"),
    Key("count", "whole number, 1 or more", "", "none", "that many values, evenly spread"),
    Key(
        "log",
        "true or false",
        "",
        "false",
        "spread evenly on a logarithmic scale; needs low above 0 and no step",
    ),
)


#: keys of `workload` that no kind of generated workload has
WORKLOAD_KEYS = (
    Key(
        "kind",
        "transformer, moe, mlp, resnet, dlrm",
        "",
        "transformer",
        "what is generated; then its parameters",
    ),
    Key(
        "files",
        "prefix of traces or path of a manifest",
        "",
        "none",
        "traces that are there, instead of kind",
    ),
)

_TYPES = {int: "whole number", float: "number", bool: "true or false", str: "text"}
#: units that the help of a parameter does not spell out as a word of its own
_UNITS = {"bucket_mb": "MB of 10^6 B", "peak_tflops": "10^12 op/s", "mem_gbps": "10^9 B/s", "launch_ns": "ns"}


def workload_keys(kind: str) -> tuple[Key, ...]:
    """Parameters of a kind of generated workload, as study files and `chakra generate --config` take them."""
    from chakra.generate.request.parameters import parameters_of
    from chakra.generate.request.requests import REQUESTS

    return tuple(
        Key(
            parameter.name.replace("_", "-"),
            _allowed(parameter.type),
            _UNITS.get(parameter.name, ""),
            parameter.default_in_words or _shown(parameter.default),
            parameter.meaning.rstrip("."),
        )
        for parameter in parameters_of(REQUESTS[kind])
    )


def _allowed(hint: Any) -> str:
    if isinstance(hint, type) and issubclass(hint, Enum):
        return ", ".join(str(member.value) for member in hint)
    return _TYPES.get(hint, "list of whole numbers")


def _shown(default: Any) -> str:
    if default is None or default == "":
        return "none"
    if isinstance(default, Enum):
        return str(default.value)
    if isinstance(default, bool):
        return str(default).lower()
    return ",".join(map(str, default)) if isinstance(default, tuple) else f"{default}"
