"""Attributes and Python values: which member of AttributeProto a value goes into, and what a member says."""

from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np

from chakra.arguments import shown
from chakra.errors import TraceError
from chakra.et.schema import CommType
from chakra.io.readable import with_article
from chakra.schemas.et_def_pb2 import AttributeProto, GlobalMetadata

Scalar: TypeAlias = int | float | bool | str | bytes
#: Value of an attribute in Python: a scalar, or a tuple of scalars for the list kinds.
AttributeValue: TypeAlias = Scalar | tuple[Scalar, ...]

IntegerKind = Literal[
    "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32", "sfixed64"
]

#: The member that writers use for each integer attribute (current simulators take any, older ones only this).
USUAL_KINDS: dict[str, IntegerKind] = {
    "comm_priority": "int32",
    "comm_src": "int32",
    "comm_dst": "int32",
    "comm_tag": "int32",
    "tensor_size": "uint64",
    "tensor_loc": "uint32",
}

#: What an attribute of a node may be set to: lists become the list kinds, an AttributeProto is taken as it
#: is.
Value: TypeAlias = (
    bool | int | float | str | bytes | Sequence[bool] | Sequence[int] | Sequence[float] | Sequence[str]
)


def comm_type(kind: CommType | str | int) -> CommType:
    """A collective's kind from any usual spelling.

    >>> comm_type("AllReduce"), comm_type("reduce-scatter"), comm_type("all_to_all_v")
    (<CommType.ALL_REDUCE: 0>, <CommType.REDUCE_SCATTER: 7>, <CommType.ALL_TO_ALL: 6>)

    Raises
    ------
    TraceError
        If there is no such kind.
    """
    if isinstance(kind, int):
        if kind in CommType._value2member_map_:
            return CommType(kind)
    elif isinstance(kind, str):
        flat = "".join(letter for letter in kind.lower() if letter.isalnum())
        for candidate in (flat, flat.removesuffix("v")):
            for member in CommType:
                if member.name.replace("_", "").lower() == candidate:
                    return member
    names = ", ".join(member.name.lower() for member in CommType)
    raise TraceError(f"unknown collective {shown(kind)}; the kinds are {names}")


def attribute(name: str, value: Value | AttributeProto) -> AttributeProto:
    """An attribute message from a Python value, of the kind that writers use for this name.

    Raises
    ------
    TraceError
        If the value is of no kind that an attribute can have, or a list of mixed kinds.
    """
    if isinstance(value, AttributeProto):
        copy = AttributeProto()
        copy.CopyFrom(value)
        copy.name = name
        return copy
    attr = AttributeProto(name=name)
    try:
        if isinstance(value, bool | np.bool_):
            attr.bool_val = bool(value)
        elif isinstance(value, int | np.integer):
            _set_integer(attr, int(value))
        elif isinstance(value, float | np.floating):
            attr.double_val = float(value)
        elif isinstance(value, str):
            attr.string_val = value
        elif isinstance(value, bytes):
            attr.bytes_val = value
        elif isinstance(value, Sequence | np.ndarray):
            _set_list(attr, list(value))
        else:
            raise TraceError(f"attribute {name}: {with_article(type(value).__name__)} cannot be an attribute")
    except (ValueError, TypeError) as error:
        raise TraceError(f"attribute {name}: {error}") from error
    return attr


def _set_integer(attr: AttributeProto, value: int) -> None:
    kind = USUAL_KINDS.get(attr.name, "int64")
    if kind.endswith("32") and not -(2**31) <= value < 2**31:
        kind = "int64"
    if kind == "int64" and value >= 2**63:
        kind = "uint64"
    setattr(attr, f"{kind}_val", value)


def _set_list(attr: AttributeProto, values: list[object]) -> None:
    for kinds, member in (
        ((bool, np.bool_), "bool_list"),
        ((int, np.integer), "int64_list"),
        ((int, float, np.integer, np.floating), "double_list"),
        ((str,), "string_list"),
        ((bytes,), "bytes_list"),
    ):
        if all(isinstance(item, kinds) for item in values):
            target = getattr(attr, member)
            target.SetInParent()
            target.values.extend(values)
            return
    raise TraceError(f"attribute {attr.name}: a list of mixed kinds cannot be an attribute")


def attribute_value(attr: AttributeProto) -> AttributeValue | None:
    """Value of an attribute as Python has it; None if it carries no value."""
    kind = attr.WhichOneof("value")
    if kind is None:
        return None
    value = getattr(attr, kind)
    if kind.endswith("_list"):
        return tuple(value.values)
    scalar: Scalar = value
    return scalar


def metadata_text(metadata: GlobalMetadata, name: str) -> str | None:
    """Text that a trace's metadata has under a name; None if it has none of that name."""
    return next((attr.string_val for attr in metadata.attr if attr.name == name), None)
