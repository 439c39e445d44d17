"""Every key of a study file: how it is read, its unit, default and meaning. The reader refuses every other key."""

from dataclasses import dataclass

from chakra.generate.request.parameters import keys_of
from chakra.generate.request.requests import REQUESTS
from chakra.replay.config.key import REQUIRED, Key, Schema, UnfitError
from chakra.replay.config.readers import Count, Flag, Text, Title, words
from chakra.sweep.method import Method, MethodReader
from chakra.sweep.metrics import Metric, TwoMetrics
from chakra.sweep.values import MAX_POINTS, Bounds, Listed, Step, is_number


@dataclass(frozen=True, slots=True)
class Part:
    """Reader of a part of a study: a map, or the path of a file where that may stand for it."""

    allowed: str
    rule: str
    or_path: bool = False
    missing: str = ""

    def read(self, value: object, compat: str | None = None) -> dict[object, object] | str:
        """The map as it is, or the path."""
        if isinstance(value, dict) or (self.or_path and isinstance(value, str)):
            return value
        raise UnfitError(self.rule, "")

    def schema(self) -> Schema:
        """Any map; what it may hold is known with the kind of workload or the machine."""
        return {"type": ["object", "string"] if self.or_path else "object"}


@dataclass(frozen=True, slots=True)
class Texts:
    """Reader of a list of texts."""

    allowed: str
    missing: str = ""

    def read(self, value: object, compat: str | None = None) -> tuple[str, ...]:
        """The texts."""
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise UnfitError("must be a list of texts", "")
        return tuple(value)

    def schema(self) -> Schema:
        """A list of texts."""
        return {"type": "array", "items": {"type": "string"}}


@dataclass(frozen=True, slots=True)
class Price:
    """Reader of what an NPU costs: one number, or one for each machine."""

    allowed: str = "number from 10^-6 to 10^9, or map of machines to such numbers"
    missing: str = ""

    def read(self, value: object, compat: str | None = None) -> float | dict[str, float]:
        """The number, or the numbers by machine."""
        if isinstance(value, dict) and value:
            return {str(name): self._number(price) for name, price in value.items()}
        return self._number(value)

    @staticmethod
    def _number(value: object) -> float:
        if not isinstance(value, int | float) or not is_number(value) or not 1e-6 <= value <= 1e9:
            raise UnfitError(
                "must be a number above 0, from 10^-6 to 10^9, or a map of machines to such numbers", ""
            )
        return float(value)

    def schema(self) -> Schema:
        """A number above 0, or a map of them."""
        number = {"type": "number", "minimum": 1e-6, "maximum": 1e9}
        return {"anyOf": [number, {"type": "object", "minProperties": 1, "additionalProperties": number}]}


_PATH = "must be a map or the path of a file"

STUDY_KEYS = (
    STUDY := Key("study", Title(), None, "", "name", "title of the study", "the file's name"),
    WORKLOAD := Key(
        "workload",
        Part(
            "map: kind and its parameters, or files",
            "must be a map with 'kind', or with 'files' (a prefix or manifest)",
        ),
        REQUIRED,
        "",
        "fixed.workload",
        "what runs",
    ),
    PLATFORM := Key(
        "platform",
        Text(says="text: words of chakra platform", pattern="", found=""),
        None,
        "",
        "fixed.platform",
        "the machine",
        "none: network and system are files",
    ),
    NETWORK := Key(
        "network",
        Part("map of dim<k>.bandwidth, .latency, .topology, .npus; or path", _PATH, or_path=True),
        None,
        "GB/s of 2^30 B/s, ns",
        "fixed.network",
        "values that replace the platform's, or a network file",
        "the platform's",
    ),
    SYSTEM := Key(
        "system",
        Part("map of keys of a system file; or path", _PATH, or_path=True),
        None,
        "",
        "fixed.system",
        "values that replace the platform's, or a system file",
        "the platform's",
    ),
    REPLAY := Key(
        "replay",
        Part(
            "map of backend, compat, queues-per-dim, injection-scale, comm-scale, compute-scale, rendezvous, "
            "comm-streams, host-speed, accelerator-speed, start, ideal",
            _PATH,
            or_path=True,
        ),
        None,
        "",
        "fixed.replay",
        "options of every run",
        "those of chakra replay",
    ),
    PARAMETERS := Key(
        "parameters",
        Part(
            "map of names to a list, {values: [...]} or {range: [low, high], step, count, log}",
            "must be a map",
        ),
        None,
        "",
        "parameters",
        "what varies; a name is platform, network, system, or starts with workload., network., system. or replay.",
        "none: one point",
    ),
    METHOD := Key(
        "method",
        MethodReader(),
        Method(),
        "",
        "method",
        "how points are chosen; seed 0, batch 8 unless given",
    ),
    CONSTRAINTS := Key(
        "constraints",
        Texts("list of memory and comparisons"),
        (),
        "",
        "constraints",
        "points that need more memory than the accelerator has, or fail a comparison, do not count",
    ),
    PRICE := Key(
        "cost-per-npu-hour",
        Price(),
        None,
        "any currency",
        "price",
        "what an NPU costs in an hour; by the name of the machine where several are compared",
        "none: no costs",
    ),
    OBJECTIVE := Key("objective", Metric(), "step_ms", "", "objective", "what the ranked table is sorted by"),
    PARETO := Key("pareto", TwoMetrics(), ("step_ms", "memory_gb"), "", "pareto", "axes of the Pareto front"),
)

#: fields of a parameter that is a range
RANGE_KEYS = (
    VALUES := Key("values", Listed(), None, "", "values", "the values themselves, instead of a range"),
    RANGE := Key("range", Bounds(), None, "", "low", "both ends belong to it"),
    STEP := Key(
        "step", Step(), None, "", "step", "distance of values, counted from low", "1 for whole numbers"
    ),
    COUNT := Key(
        "count",
        Count(f"must be a whole number from 1 to {MAX_POINTS}", 1, MAX_POINTS),
        None,
        "",
        "count",
        "that many values, evenly spread",
    ),
    LOG := Key(
        "log",
        Flag("must be true or false, and needs a range above 0 without step", ""),
        False,
        "",
        "log",
        "spread evenly on a logarithmic scale; needs low above 0 and no step",
    ),
)

#: keys of `workload` that no kind of generated workload has
WORKLOAD_KEYS = (
    KIND := Key(
        "kind", words(*REQUESTS), "transformer", "", "kind", "what is generated; then its parameters"
    ),
    FILES := Key(
        "files",
        Text(says="prefix of traces or path of a manifest"),
        None,
        "",
        "files",
        "traces that are there, instead of kind",
    ),
)


def workload_keys(kind: str) -> tuple[Key[object], ...]:
    """Parameters of a kind of generated workload, as study files and `chakra generate --config` take them."""
    return keys_of(REQUESTS[kind])
