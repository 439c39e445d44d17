"""Whether nodes of different ranks are one collective, and how many bytes move between which of them.

The one place that decides it: conversion, validation and replay ask `agree`. What is compared is what members say of
one collective of their group: the kind (``comm_type``), the bytes that each brings in (``comm_size``), and, where shares
differ, the split sizes: in bytes, one number per member in the order of the group.

================  ==========================================  =========================================  ============
kind              in_split_bytes[k]                           out_split_bytes[k]                         comm_size
================  ==========================================  =========================================  ============
ALL_TO_ALL        what this rank sends to member k            what it receives from member k             sum of the first
ALL_GATHER        -                                           what member k brings in (all members)      own share
GATHER            -                                           the same (of the root at least)            own share
REDUCE_SCATTER    what member k keeps (all members)           -                                          sum
SCATTER           what member k gets (of the root at least)   -                                          root: sum
================  ==========================================  =========================================  ============
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from chakra.arrays import I64
from chakra.et.schema import IN_SPLIT, OUT_SPLIT, CommType
from chakra.io.readable import counted

#: kinds whose shares of what goes in may differ, and of what comes out
IN_KINDS = (CommType.ALL_TO_ALL, CommType.REDUCE_SCATTER, CommType.REDUCE_SCATTER_BLOCK, CommType.SCATTER)
OUT_KINDS = (CommType.ALL_TO_ALL, CommType.ALL_GATHER, CommType.GATHER)
#: kinds in which members may bring in different sizes although no list says so
ROOTED = (CommType.BROADCAST, CommType.SCATTER, CommType.GATHER)


@dataclass(frozen=True, slots=True)
class Side:
    """What one member says of a collective."""

    kind: CommType
    #: comm_size: bytes that it brings in
    size_bytes: int
    in_split: tuple[int, ...] | None = None
    out_split: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Agreed:
    """A collective in which all members mean the same.

    Attributes
    ----------
    size_bytes
        Bytes that a member brings in; where shares differ, the most that one does.
    sizes
        None if all shares are equal. Else int64: of an all-to-all (n, n) bytes from each member to each, of the others
        (n,) bytes of each member's share.
    """

    size_bytes: int
    sizes: I64 | None = None


@dataclass(frozen=True, slots=True)
class Differs:
    """Two members (positions in the group) that do not mean the same, the attribute that says so, and why."""

    one: int
    other: int
    attribute: str
    why: str


def agree(sides: Sequence[Side]) -> Agreed | Differs:
    """What the members of a group, in its order, mean together."""
    first = sides[0]
    for k, side in enumerate(sides):
        if side.kind is not first.kind:
            return Differs(0, k, "comm_type", "comm_type differs")
    for k, side in enumerate(sides):
        for values, name, kinds in (
            (side.in_split, IN_SPLIT, IN_KINDS),
            (side.out_split, OUT_SPLIT, OUT_KINDS),
        ):
            if values is None:
                continue
            if side.kind not in kinds:
                return Differs(k, k, name, f"{name} means nothing in {side.kind.name}")
            if len(values) != len(sides):
                return Differs(
                    k,
                    k,
                    name,
                    f"{name} has {counted(len(values), 'size')}, but the group has {counted(len(sides), 'member')}",
                )
    if all(side.in_split is None and side.out_split is None for side in sides):
        return _without_lists(sides)
    if first.kind is CommType.ALL_TO_ALL:
        return _all_to_all(sides)
    return _of_shares(sides)


def _without_lists(sides: Sequence[Side]) -> Agreed | Differs:
    first = sides[0]
    sizes = [side.size_bytes for side in sides]
    if first.kind is CommType.SCATTER:
        return Agreed(max(sizes))  # the root gives all, the others the part that they get
    if first.kind is CommType.GATHER and len(set(sizes)) > 1:
        return Agreed(max(sizes), np.array(sizes, np.int64))
    base = 0
    if first.kind is CommType.BROADCAST:
        base = next((k for k, size in enumerate(sizes) if size), 0)  # who brings in nothing may say so
    for k, size in enumerate(sizes):
        if size != sizes[base] and not (first.kind is CommType.BROADCAST and size == 0):
            hint = {
                CommType.ALL_TO_ALL: f"; unequal shares need {IN_SPLIT} and {OUT_SPLIT}",
                CommType.ALL_GATHER: f"; unequal shares need {OUT_SPLIT}",
            }.get(first.kind, "")
            return Differs(base, k, "comm_size", f"comm_size differs{hint}")
    return Agreed(sizes[base])


def _even_share(size: int, members: int) -> I64:
    each, more = divmod(size, members)
    return np.where(np.arange(members) < more, each + 1, each)


def _all_to_all(sides: Sequence[Side]) -> Agreed | Differs:
    """Members that give no list say nothing of single pairs; where nobody does, shares are equal."""
    n = len(sides)
    nothing = np.full(n, -1, np.int64)
    sent = np.stack([nothing if side.in_split is None else np.array(side.in_split) for side in sides])
    received = np.stack(
        [nothing if side.out_split is None else np.array(side.out_split) for side in sides], axis=1
    )
    unlike = np.argwhere((sent >= 0) & (received >= 0) & (sent != received))
    if len(unlike):
        a, b = (int(x) for x in unlike[0])
        return Differs(
            a,
            b,
            IN_SPLIT,
            f"the first sends {int(sent[a, b])} bytes to the second ({IN_SPLIT}), which receives "
            f"{int(received[a, b])} from it ({OUT_SPLIT})",
        )
    even = np.stack([_even_share(side.size_bytes, n) for side in sides])
    sizes = np.where(sent >= 0, sent, np.where(received >= 0, received, even)).astype(np.int64)
    brought = sizes.sum(axis=1)
    for k, side in enumerate(sides):
        if brought[k] != side.size_bytes:
            where = IN_SPLIT if side.in_split is not None else f"{OUT_SPLIT} of the others"
            why = f"comm_size is {side.size_bytes}, but the sum of {where} is {int(brought[k])}"
            return Differs(k, k, "comm_size", why)
    most = int(brought.max())
    return Agreed(most) if (sizes == sizes[0, 0]).all() else Agreed(most, sizes)


def _of_shares(sides: Sequence[Side]) -> Agreed | Differs:
    """Kinds in which each member has one share: that it brings in, or that it gets."""
    kind = sides[0].kind
    incoming = kind in IN_KINDS
    name = IN_SPLIT if incoming else OUT_SPLIT
    lists = [side.in_split if incoming else side.out_split for side in sides]
    base = next(k for k, values in enumerate(lists) if values is not None)
    shares = lists[base]
    assert shares is not None
    for k, values in enumerate(lists):
        if values is not None and values != shares:
            at = next(i for i, (a, b) in enumerate(zip(values, shares, strict=True)) if a != b)
            why = f"{name} differs: {shares[at]} and {values[at]} bytes for member {at}"
            return Differs(base, k, name, why)
    total = sum(shares)
    for k, side in enumerate(sides):
        allowed: tuple[int, ...] = (total,) if incoming else (shares[k],)
        if kind is CommType.SCATTER:
            allowed = (total, shares[k], 0)
        if side.size_bytes not in allowed:
            why = f"the second brings in {side.size_bytes} bytes (comm_size), but {name} says {allowed[0]}"
            return Differs(base, k, "comm_size", why)
    size = total if incoming else max(shares)
    return Agreed(size) if len(set(shares)) == 1 else Agreed(size, np.array(shares, np.int64))
