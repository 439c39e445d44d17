"""Split sizes: how a collective's buffer is shared among the members of its group, as columns.

Few nodes have them, so they are kept for those nodes only, and equal lists once.
"""

from typing import Any

import numpy as np

from chakra.arrays import bounds
from chakra.et.schema import SPLIT_LISTS
from chakra.schemas.et_def_pb2 import AttributeProto

_INT64_MAX = 2**63 - 1


def split_values(attr: AttributeProto) -> tuple[int, ...] | None:
    """The sizes that a list of integers of any member gives; None if it is no such list.

    Raises
    ------
    OverflowError
        If a size does not fit a signed 64-bit integer.
    """
    kind = attr.WhichOneof("value")
    if kind is None or not kind.endswith("_list") or f"{kind[:-5]}_val" not in SPLIT_LISTS:
        return None
    values: tuple[int, ...] = tuple(getattr(attr, kind).values)
    if any(value > _INT64_MAX for value in values):
        raise OverflowError(max(values))
    return values


class SplitColumns:
    """Collects the lists of nodes, which come in ascending order, and makes columns of them."""

    def __init__(self) -> None:
        self._nodes: list[int] = []
        self._codes: tuple[list[int], list[int]] = ([], [])
        self._known: dict[tuple[int, ...], int] = {}

    def add(self, node: int, incoming: tuple[int, ...] | None, outgoing: tuple[int, ...] | None) -> None:
        """Add a node's lists: of what it brings in and of what it takes out."""
        if incoming is None and outgoing is None:
            return
        self._nodes.append(node)
        for codes, values in zip(self._codes, (incoming, outgoing), strict=True):
            codes.append(-1 if values is None else self._known.setdefault(values, len(self._known)))

    def columns(self) -> dict[str, Any]:
        """The columns of `chakra.et.columns.Columns`, by name."""
        lists = list(self._known)
        offsets = bounds([len(values) for values in lists])
        flat = np.fromiter((value for values in lists for value in values), np.int64, int(offsets[-1]))
        return {
            "split_nodes": np.array(self._nodes, np.int64),
            "in_split_codes": np.array(self._codes[0], np.int32),
            "out_split_codes": np.array(self._codes[1], np.int32),
            "split_offsets": offsets,
            "split_bytes": flat,
        }
