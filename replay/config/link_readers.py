"""Readers of network files' own values: numbers of NPUs, vertices, links, routes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from chakra.io.digits import is_whole, whole_number
from chakra.replay.config.key import Reader, Schema, UnfitError
from chakra.replay.config.model import BuiltOf
from chakra.replay.config.readers import MAX_INT, Count, ListOf, Number


@dataclass(frozen=True, slots=True)
class NpuCounts:
    """Sizes of dimensions, 2 or more each.

    A machine of one NPU has one dimension (`one_alone`); ASTRA-sim refuses it, and nothing is left to be joined by
    another one.
    """

    what: str
    empty: str | None = None
    one_alone: bool = False

    @property
    def allowed(self) -> str:
        """What a list may hold."""
        return "list of whole numbers, 2 or more" + "; [1] for a machine of one NPU" * self.one_alone

    @property
    def missing(self) -> str:
        """What the list must be."""
        return self._list(2).missing

    def _list(self, least: int) -> ListOf[int]:
        return ListOf(
            Count(f"must be a whole number of NPUs, at least {least}", least), self.what, self.empty
        )

    def read(self, value: object, compat: str | None = None) -> tuple[int, ...]:
        """The sizes."""
        alone = self.one_alone and compat is None and isinstance(value, (list, tuple)) and len(value) == 1
        return self._list(1 if alone else 2).read(value, compat)

    def schema(self) -> Schema:
        """A list of whole numbers."""
        made = self._list(2).schema()
        return {"anyOf": [made, {"const": [1]}]} if self.one_alone else made


def npu_number(vertex: object) -> int | None:
    """Number of an NPU's vertex, or None for the name of another vertex."""
    if isinstance(vertex, int) and not isinstance(vertex, bool):
        return vertex
    if isinstance(vertex, str) and is_whole(vertex, 11):
        return whole_number(vertex)
    return None


@dataclass(frozen=True, slots=True)
class Vertex:
    """An NPU's number, or the name of another vertex."""

    allowed: str = "NPU number or name"
    missing: str = ""

    def read(self, value: object, compat: str | None = None) -> int | str:
        """The number or the name."""
        number = npu_number(value)
        if number is not None:
            return number
        if not isinstance(value, str) or not value or value != value.strip():
            raise UnfitError("a vertex is an NPU's number or a name")
        return value

    def schema(self) -> Schema:
        """A whole number, or a text without blanks around it."""
        name = {"type": "string", "pattern": r"^\S([\s\S]*\S)?$(?!\n)"}
        return {"anyOf": [{"type": "integer"}, name]}


@dataclass(frozen=True, slots=True)
class Route:
    """The vertices of one route."""

    allowed: str = "list of vertices"
    missing: str = ""

    def read(self, value: object, compat: str | None = None) -> tuple[object, ...]:
        """The vertices as they are written."""
        if not isinstance(value, (list, tuple)) or len(value) < 2:
            raise UnfitError("must be a list of vertices")
        return tuple(value)

    def schema(self) -> Schema:
        """A list of two vertices or more."""
        return {"type": "array", "items": Vertex().schema(), "minItems": 2}


T = TypeVar("T")
_COUNT = Count(f"must be a whole number from 1 to {MAX_INT}", 1)
_RATE = Number(above_zero=True, rule="must be one number of Gb/s, above 0")
_PARTS = ("switches", "cables", "ports", "port_gbps")


def _is_name(level: object) -> bool:
    return isinstance(level, str) and bool(level.strip())


def _part(name: str, reader: Reader[T], value: object, compat: str | None) -> T:
    """A part of a map, whose name errors say."""
    try:
        return reader.read(value, compat)
    except UnfitError as unfit:
        raise unfit.of_part(name, value) from None


@dataclass(frozen=True, slots=True)
class Parts:
    """Switches by level, cables, and the ports of a switch."""

    allowed: str = "map of switches (a map of levels to counts), cables, ports, port_gbps"
    missing: str = ""

    def read(self, value: object, compat: str | None = None) -> BuiltOf:
        """The parts."""
        if not isinstance(value, Mapping) or set(value) != set(_PARTS):
            raise UnfitError(f"must be a map of {', '.join(_PARTS)}")
        levels = value["switches"]
        if not isinstance(levels, Mapping) or not all(map(_is_name, levels)):
            raise UnfitError("must be a map of levels to counts").of_part("switches", levels)
        return BuiltOf(
            tuple((name, _part(name, _COUNT, count, compat)) for name, count in levels.items()),
            _part("cables", _COUNT, value["cables"], compat),
            _part("ports", _COUNT, value["ports"], compat),
            _part("port_gbps", _RATE, value["port_gbps"], compat),
        )

    def schema(self) -> Schema:
        """A map of all four."""
        count = _COUNT.schema()
        name = {"type": "string", "pattern": r"\S"}
        levels = {
            "type": "object", "additionalProperties": count, "propertyNames": name,
        }  # fmt: skip
        return {
            "type": "object",
            "required": list(_PARTS),
            "properties": {"switches": levels, "cables": count, "ports": count, "port_gbps": _RATE.schema()},
            "additionalProperties": False,
        }
