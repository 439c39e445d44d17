"""How kinds of nodes and edges look: one table for every output format.

Colours are tints of the Okabe-Ito palette, which people with any colour vision tell apart; kinds also differ
in shape and edges in dash pattern, so that a black-and-white print says the same. Text is near black on every
fill (contrast above 7:1).
"""

import math
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from chakra.et import NodeType

Point = tuple[float, float]


class Kind(IntEnum):
    """What a drawn node is. 0-7 are the values of ``chakra.et.NodeType``."""

    INVALID = 0
    METADATA = 1
    MEM_LOAD = 2
    MEM_STORE = 3
    COMP = 4
    SEND = 5
    RECV = 6
    COLL = 7
    CPU = 8
    MISSING = 9


class EdgeKind(IntEnum):
    """What a drawn edge is."""

    DATA = 0
    CTRL = 1
    #: stands for a path through nodes that a selection left out
    THROUGH = 2


@dataclass(frozen=True, slots=True)
class KindStyle:
    """Look of one kind of node; ``outline`` is a polygon in the unit square, y downwards."""

    word: str
    legend: str
    fill: str
    stroke: str
    dot_shape: str
    outline: tuple[Point, ...]
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class EdgeStyle:
    """Look of one kind of edge; ``dash`` is a pattern of lengths, empty for a solid line, ``on_dark`` its colour on
    a dark ground."""

    word: str
    legend: str
    stroke: str
    dash: tuple[float, ...]
    dot_style: str
    on_dark: str


def _ellipse(corners: int = 24) -> tuple[Point, ...]:
    angles = [2 * math.pi * i / corners for i in range(corners)]
    return tuple((0.5 + 0.5 * math.cos(a), 0.5 + 0.5 * math.sin(a)) for a in angles)


_BOX: Final = ((0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0))
_HEXAGON: Final = ((0.08, 0.0), (0.92, 0.0), (1.0, 0.5), (0.92, 1.0), (0.08, 1.0), (0.0, 0.5))
_RIGHT: Final = ((0.0, 0.0), (0.88, 0.0), (1.0, 0.5), (0.88, 1.0), (0.0, 1.0))
_LEFT: Final = ((0.12, 0.0), (1.0, 0.0), (1.0, 1.0), (0.12, 1.0), (0.0, 0.5))
_DOWN: Final = ((0.0, 0.0), (1.0, 0.0), (1.0, 0.7), (0.5, 1.0), (0.0, 0.7))
_UP: Final = ((0.5, 0.0), (1.0, 0.3), (1.0, 1.0), (0.0, 1.0), (0.0, 0.3))
_NOTE: Final = ((0.0, 0.0), (0.9, 0.0), (1.0, 0.3), (1.0, 1.0), (0.0, 1.0))
_DIAMOND: Final = ((0.5, 0.0), (1.0, 0.5), (0.5, 1.0), (0.0, 0.5))

KIND_STYLES: Final[dict[Kind, KindStyle]] = {
    Kind.COMP: KindStyle("compute", "compute (device)", "#cfe8f7", "#0072b2", "box", _BOX),
    Kind.CPU: KindStyle("cpu", "CPU operator", "#e8e8e8", "#555555", "ellipse", _ellipse()),
    Kind.COLL: KindStyle("collective", "collective", "#fbd9b5", "#a85400", "hexagon", _HEXAGON),
    Kind.SEND: KindStyle("send", "send", "#c9ecdc", "#00694a", "cds", _RIGHT),
    Kind.RECV: KindStyle("recv", "receive", "#e2f6ee", "#00694a", "larrow", _LEFT),
    Kind.MEM_LOAD: KindStyle("load", "memory load", "#f7e0ee", "#99507a", "invhouse", _DOWN),
    Kind.MEM_STORE: KindStyle("store", "memory store", "#f0cfe3", "#99507a", "house", _UP),
    Kind.METADATA: KindStyle("metadata", "metadata", "#fdf8c4", "#7a7300", "note", _NOTE),
    Kind.INVALID: KindStyle("invalid", "no operation", "#ffffff", "#444444", "diamond", _DIAMOND),
    Kind.MISSING: KindStyle("missing", "missing parent", "#ffffff", "#b00020", "box", _BOX, dashed=True),
}

EDGE_STYLES: Final[dict[EdgeKind, EdgeStyle]] = {
    EdgeKind.DATA: EdgeStyle("data", "data dependency", "#333333", (), "solid", "#c8ced4"),
    EdgeKind.CTRL: EdgeStyle("ctrl", "control dependency", "#0060a0", (5.0, 3.0), "dashed", "#6cb4ff"),
    EdgeKind.THROUGH: EdgeStyle(
        "through", "through hidden nodes", "#777777", (1.5, 2.5), "dotted", "#98a2ac"
    ),
}


def label_name(name: str, kind: Kind) -> str:
    """A node's name without the type that it begins with: the box's shape says that.

    Parameters
    ----------
    name
        As the trace has it.
    kind
        Kind of the node.

    Examples
    --------
    >>> label_name("COMM_COLL_NODE_mlp0_FWD_ALLGATHER", Kind.COLL), label_name("COMP_NODE_", Kind.COMP)
    ('mlp0_FWD_ALLGATHER', 'COMP_NODE_')
    """
    return name.removeprefix(type_prefix(kind)) or name


def type_prefix(kind: Kind) -> str:
    """The type of a kind of node in traces, as names may begin with it; empty for kinds that traces do not have.

    Parameters
    ----------
    kind
        Kind of the node.
    """
    names = {int(member): member.name for member in NodeType}
    return f"{names[kind]}_NODE_" if kind in names else ""


def rgb(colour: str) -> tuple[int, int, int]:
    """The three bytes of a colour written ``#rrggbb``."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
