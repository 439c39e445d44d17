"""Every key of a platform file: how it is read, its unit, default and meaning. The reader refuses every other key."""

from dataclasses import dataclass
from enum import StrEnum

from chakra.replay.config.key import REQUIRED, Key, Schema, UnfitError, object_schema
from chakra.replay.config.model import Topology
from chakra.replay.config.readers import Count, MapOf, MapsOf, Number, Text, Title, Word, members


class Status(StrEnum):
    """How much a number can be trusted."""

    DATASHEET = "datasheet"
    #: from measurements, by somebody
    FITTED = "fitted"
    #: nobody published it: a plausible value
    ASSUMED = "assumed"


#: fields of every number
NUMBER_KEYS = (
    VALUE := Key(
        "value",
        Number(rule="must be a number of at least 0"),
        REQUIRED,
        "that of the key",
        "value",
        "the number",
    ),
    Key(
        "status",
        members(Status),
        REQUIRED,
        "",
        "status",
        "whether it is published, measured by somebody, or plausible",
    ),
    Key(
        "source",
        Text("must say where the number comes from", pattern=r"\S", found=""),
        REQUIRED,
        "",
        "source",
        "where it comes from",
    ),
    Key(
        "links",
        Number(above_zero=True, rule="must be a number above 0"),
        None,
        "links",
        "links",
        "with link_gbps: how a bandwidth is made up",
    ),
    Key(
        "link_gbps",
        Number(above_zero=True, rule="must be a number above 0"),
        None,
        "10^9 B/s",
        "link_gbps",
        "links times this must be the value",
    ),
)


@dataclass(frozen=True, slots=True)
class SourcedNumber:
    """A map of `NUMBER_KEYS`, which `chakra.platforms.model.number_from` reads."""

    above_zero: bool = False
    missing: str = ""

    @property
    def allowed(self) -> str:
        """Bounds of the number."""
        return f"number with status and source, {'above 0' if self.above_zero else '0 or more'}"

    def read(self, value: object, compat: str | None = None) -> object:
        """The map as it is."""
        if not isinstance(value, dict):
            raise UnfitError("must be {value: ..., status: ..., source: ...}")
        return value

    def schema(self) -> Schema:
        """A map whose value is in range."""
        made = object_schema(NUMBER_KEYS)
        bound: Schema = {"properties": {VALUE.name: {"exclusiveMinimum": 0}}}
        return {**made, "allOf": [bound]} if self.above_zero else made


@dataclass(frozen=True, slots=True)
class ScaleOut:
    """Size of a dimension; None for the one whose size the cluster decides."""

    allowed: str = "whole number, 2 or more; scale_out for the last"
    missing: str = ""

    def read(self, value: object, compat: str | None = None) -> int | None:
        """The size."""
        if value == "scale_out":
            return None
        return Count("must be a whole number of at least 2 or 'scale_out'", 2).read(value, compat)

    def schema(self) -> Schema:
        """A whole number or the word."""
        return {"anyOf": [{"const": "scale_out"}, Count("", 2).schema()]}


ACCELERATOR_KEYS = (
    Key("name", Text(pattern="", found=""), REQUIRED, "", "name", "name"),
    Key(
        "peak_tflops",
        SourcedNumber(above_zero=True),
        REQUIRED,
        "10^12 dense 16-bit op/s",
        "peak",
        "peak compute rate",
    ),
    Key(
        "mem_gbps",
        SourcedNumber(above_zero=True),
        REQUIRED,
        "10^9 B/s",
        "bandwidth",
        "bandwidth of its memory",
    ),
    Key("memory_gb", SourcedNumber(), REQUIRED, "10^9 B", "capacity", "size of its memory"),
)
DIM_KEYS = (
    Key("topology", members(Topology), REQUIRED, "", "topology", "building block"),
    Key("npus", ScaleOut(), REQUIRED, "NPUs", "npus", "size; scale_out: as large as asked for"),
    Key(
        "gbps",
        SourcedNumber(above_zero=True),
        REQUIRED,
        "10^9 B/s",
        "bandwidth",
        "of an NPU (Switch) or of a link (others), per direction",
    ),
    Key("latency_ns", SourcedNumber(), REQUIRED, "ns", "latency", "of a hop"),
)


def _names(keys: tuple[Key[object], ...]) -> str:
    return ", ".join(key.name for key in keys)


PLATFORM_KEYS = (
    PLATFORM := Key("name", Text(pattern="", found=""), REQUIRED, "", "name", "short name"),
    TITLE := Key("title", Text(pattern="", found=""), REQUIRED, "", "title", "name for people"),
    KIND := Key(
        "kind",
        Word({"machine": "machine"}, "must be machine"),
        "machine",
        "",
        "kind",
        "what the file describes",
    ),
    NOTE := Key("note", Title(), "", "", "note", "what a user of the numbers should know"),
    ACCELERATOR := Key(
        "accelerator",
        MapOf(ACCELERATOR_KEYS, f"map of {_names(ACCELERATOR_KEYS)}", "must be a map with a 'name'"),
        REQUIRED,
        "",
        "accelerator",
        "one NPU",
    ),
    DIMS := Key(
        "dims",
        MapsOf(DIM_KEYS, f"list of maps of {_names(DIM_KEYS)}", "must be a non-empty list"),
        REQUIRED,
        "",
        "dims",
        "network dimensions, innermost first",
    ),
)
