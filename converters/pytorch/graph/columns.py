"""The columns of the linked graph's nodes, each declared once; joining, choosing and narrowing go by the declaration.

A new column is a field of `NodeColumns` (kept in the ordered graph) or of `Draft` (needed until then) and a value where
nodes are made; without a value a node has the column's `fill`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, TypeAlias, get_args, get_type_hints

import numpy as np

from chakra.arrays import I64, AnyArray
from chakra.converters.pytorch.comm.operations import Comm
from chakra.et import NodeType

#: a column by its name: values, or one value for all nodes
Given: TypeAlias = Mapping[str, "AnyArray | int"]

#: what a node is unless it communicates
COMP = int(NodeType.COMP)


@dataclass(frozen=True, slots=True)
class Column:
    """Declaration of a column.

    Attributes
    ----------
    dtype
        Type of the values in the ordered graph: codes and rows are narrow, since a graph may have a million nodes.
    fill
        Value of nodes that nobody gives one; None: every node needs its own.
    """

    dtype: type[np.int8 | np.int32 | np.int64]
    fill: int | None = None


@dataclass(slots=True)
class NodeColumns:
    """What is known of every node; a place where a column is not given is -1. Times in ns since the first event."""

    kind: Annotated[I64, Column(np.int8)]
    """Part of the host's time, or what else the node is (``NODE_...``)."""
    type: Annotated[I64, Column(np.int8, COMP)]
    """Type of the node in the trace that is written."""
    name: Annotated[I64, Column(np.int32)]
    """Code among the device trace's names."""
    op: Annotated[I64, Column(np.int32, -1)]
    """Row of the device trace's operators."""
    host_row: Annotated[I64, Column(np.int32, -1)]
    """Row of the host trace."""
    device_row: Annotated[I64, Column(np.int32, -1)]
    """Row of the device trace's device operations."""
    thread: Annotated[I64, Column(np.int32, -1)]
    stream_key: Annotated[I64, Column(np.int32, -1)]
    start: Annotated[I64, Column(np.int64)]
    duration: Annotated[I64, Column(np.int64, 0)]
    parent: Annotated[I64, Column(np.int32, -1)]
    """Index of the control parent."""


@dataclass(slots=True)
class Draft(NodeColumns):
    """Nodes and edges before they are ordered. Edges are triples (source, target, kind) of draft indices."""

    hold: Annotated[I64, Column(np.int64, -1)]
    """When a wait returned, since the region's begin."""
    rank: Annotated[I64, Column(np.int8, 0)]
    """Order among nodes that start at the same time."""
    chain_group: Annotated[I64, Column(np.int32)]
    """Nodes of a group form a chain (thread or stream); single nodes have a group of their own."""
    edges: list[tuple[I64, I64, int]] = field(default_factory=list)
    comm: dict[int, Comm] = field(default_factory=dict)


@cache
def columns_of(kind: type[NodeColumns]) -> dict[str, Column]:
    """The columns of a class by name."""
    hints = get_type_hints(kind, include_extras=True)
    declared = {
        name: next((part for part in get_args(hint) if isinstance(part, Column)), None)
        for name, hint in hints.items()
    }
    return {name: column for name, column in declared.items() if column is not None}


def _values(name: str, n: int, given: Given) -> AnyArray:
    """One column of `n` nodes."""
    value = given.get(name, columns_of(Draft)[name].fill)
    if value is None:
        raise ValueError(f"nodes without the column {name!r}")
    return np.full(n, value, np.int64) if isinstance(value, int) else value


def _draft(
    columns: Mapping[str, AnyArray], edges: list[tuple[I64, I64, int]], comm: dict[int, Comm]
) -> Draft:
    return Draft(**columns, edges=edges, comm=comm)


def joined(parts: list[tuple[int, Given]], comm: dict[int, Comm]) -> Draft:
    """A draft of nodes that stand one part behind the other, each with its number of nodes; no edges yet."""
    return _draft(
        {name: np.concatenate([_values(name, n, given) for n, given in parts]) for name in columns_of(Draft)},
        [],
        comm,
    )


def append(draft: Draft, n: int, given: Given) -> None:
    """Put `n` nodes behind those of a draft."""
    for name in columns_of(Draft):
        setattr(draft, name, np.concatenate([getattr(draft, name), _values(name, n, given)]))


def from_node(draft: Draft, first: int, edges: list[tuple[I64, I64, int]]) -> Draft:
    """The nodes from `first` on, without control parents; `edges` are already those of the new numbers."""
    kept = {name: getattr(draft, name)[first:] for name in columns_of(Draft)}
    kept["parent"] = np.full(len(kept["kind"]), -1, np.int64)
    return _draft(kept, edges, {i - first: c for i, c in draft.comm.items() if i >= first})


def ordered(draft: Draft, order: AnyArray) -> dict[str, AnyArray]:
    """The columns that the graph keeps, in another order."""
    return {name: getattr(draft, name)[order] for name in columns_of(NodeColumns)}


def compact(draft: Draft) -> None:
    """Narrow columns and edges to what the graph has: a graph of a million nodes takes half the memory."""
    for name, column in columns_of(Draft).items():
        setattr(draft, name, getattr(draft, name).astype(column.dtype, copy=False))
    draft.edges = [(s.astype(np.int32), t.astype(np.int32), kind) for s, t, kind in draft.edges]
