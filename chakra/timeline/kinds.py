"""From a node's kind, however it is written, to the category and row of its slice."""

from typing import Final

from chakra.et import NodeType
from chakra.io.digits import is_whole, whole_number

#: Row names and their order within a rank, by category.
ROWS: Final[dict[str, tuple[str, int]]] = {
    "cpu": ("CPU", 0),
    "compute": ("compute", 1),
    "communication": ("communication", 2),
    "memory": ("memory", 4),
    "other": ("other", 5),
}
#: Receives may be posted long before their data come: they have a row of their own.
RECEIVE_ROW: Final = ("receive", 3)

_CATEGORIES: Final = {
    NodeType.COMP: "compute",
    NodeType.COMM_COLL: "communication",
    NodeType.COMM_SEND: "communication",
    NodeType.COMM_RECV: "communication",
    NodeType.MEM_LOAD: "memory",
    NodeType.MEM_STORE: "memory",
}
_WORDS: Final = (
    ("COMM_SEND", NodeType.COMM_SEND),
    ("COMM_RECV", NodeType.COMM_RECV),
    ("COMM_COLL", NodeType.COMM_COLL),
    ("MEM_LOAD", NodeType.MEM_LOAD),
    ("MEM_STORE", NodeType.MEM_STORE),
    ("METADATA", NodeType.METADATA),
    ("COMP", NodeType.COMP),
)


def type_of(text: str) -> NodeType:
    """The node type that a word names, such as ``COMM_COLL``, ``COMM_COLL_NODE`` or the number 7."""
    if is_whole(text, 9):
        number = whole_number(text)
        return NodeType(number) if number in NodeType.__members__.values() else NodeType.INVALID
    upper = text.upper()
    for word, node_type in _WORDS:
        if word in upper:
            return node_type
    return NodeType.INVALID


def category_of(node_type: NodeType, engine: str = "") -> str:
    """Category of a node; nodes on the CPU engine are ``cpu`` whatever they do."""
    if engine.upper() == "CPU":
        return "cpu"
    return _CATEGORIES.get(node_type, "other")


def row_of(node_type: NodeType, category: str) -> tuple[str, int]:
    """Name and place of the row that a node's slice goes to."""
    return RECEIVE_ROW if node_type == NodeType.COMM_RECV and category != "cpu" else ROWS[category]
