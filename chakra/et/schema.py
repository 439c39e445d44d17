"""Enumerations of the execution-trace schema and the attributes that columns hold."""

from enum import IntEnum
from typing import Final

#: Value in an int64 column where the node does not have the attribute.
ABSENT: Final = -(2**63)


class NodeType(IntEnum):
    """What a node does. The values are those of the schema."""

    INVALID = 0
    METADATA = 1
    MEM_LOAD = 2
    MEM_STORE = 3
    COMP = 4
    COMM_SEND = 5
    COMM_RECV = 6
    COMM_COLL = 7


class CommType(IntEnum):
    """Kind of a collective: the value of the attribute ``comm_type``."""

    ALL_REDUCE = 0
    REDUCE = 1
    ALL_GATHER = 2
    GATHER = 3
    SCATTER = 4
    BROADCAST = 5
    ALL_TO_ALL = 6
    REDUCE_SCATTER = 7
    REDUCE_SCATTER_BLOCK = 8
    BARRIER = 9


#: Integer attributes that have an int64 column of the same name, in column order.
INT_COLUMNS: Final = (
    "duration_ns",
    "comm_type",
    "comm_size",
    "comm_src",
    "comm_dst",
    "comm_tag",
    "comm_priority",
    "num_ops",
    "tensor_size",
    "stream",
    "tid",
)

#: Attributes that share a collective's buffer among the members of its group: lists of integers, bytes per member.
IN_SPLIT: Final = "in_split_bytes"
OUT_SPLIT: Final = "out_split_bytes"

#: Attributes whose value may be any integer member of AttributeProto.
INTEGER_MEMBERS: Final = frozenset(
    f"{kind}_val"
    for kind in (
        *("int32", "int64", "uint32", "uint64", "sint32", "sint64"),
        *("fixed32", "fixed64", "sfixed32", "sfixed64"),
    )
)

#: The same of lists: a list may be of any of these members' kinds.
SPLIT_LISTS: Final = INTEGER_MEMBERS
