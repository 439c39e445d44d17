"""The dependency graph of a trace over node indices: resolution of ids, parents, children, order, cycles."""

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from chakra.arrays import I32, I64, U64, Bool
from chakra.errors import TraceError
from chakra.et import _graph_kernel
from chakra.et.columns import Columns

#: Above this many nodes and edges a compiled kernel saves more than loading it costs (about half a second).
KERNEL_THRESHOLD = 100_000
#: The same when numba runs already in this process.
WARM_THRESHOLD = 2_000

#: Cycles longer than this are shortened in messages.
_CYCLE_SHOWN = 8


def graph_kernels(work: int) -> Any:
    """The graph kernels, compiled if ``work`` (nodes plus edges) is worth it; else None, for plain Python on lists."""
    if work >= KERNEL_THRESHOLD or (work >= WARM_THRESHOLD and "numba" in sys.modules):
        from chakra.kernels import compiled

        return compiled("chakra.et._graph_kernel")
    return None


@dataclass(frozen=True, eq=False, repr=False)
class Csr:
    """Adjacency: the neighbours of node i are ``index[offsets[i]:offsets[i + 1]]``; int64 (n + 1,) and int32."""

    offsets: I64
    index: I32


class IdMap:
    """From node ids to node indices.

    Raises
    ------
    TraceError
        If two nodes have the same id.
    """

    def __init__(self, ids: U64, source: str) -> None:
        n = len(ids)
        self._low = ids.min() if n else np.uint64(0)
        span = int(ids.max() - self._low) + 1 if n else 0
        self._table: I32 | None = None
        self._sorted: U64 = ids
        self._order: I64 | None = None
        if span <= 4 * n + 1024:
            table = np.full(span, -1, np.int32)
            keys = ids - self._low
            numbers = np.arange(n, dtype=np.int32)
            table[keys] = numbers
            clash = np.flatnonzero(table[keys] != numbers)
            self._table = table
        else:
            if np.any(ids[1:] < ids[:-1]):
                self._order = np.argsort(ids, kind="stable")
                self._sorted = ids[self._order]
            clash = np.flatnonzero(self._sorted[1:] == self._sorted[:-1])
            if self._order is not None:
                clash = self._order[clash]
        if len(clash):
            first = int(clash.min())
            places = np.flatnonzero(ids == ids[first])[:2] + 2
            raise TraceError(
                f"{source}: node id {ids[first]} is used twice (records {places[0]} and {places[1]}); "
                f"ids must be unique in a file"
            )

    def indices(self, wanted: U64) -> I32:
        """Index of each id, -1 where no node has it."""
        if not len(wanted):
            return np.zeros(0, np.int32)
        if self._table is not None:
            keys = wanted - self._low  # ids below the lowest wrap around to huge numbers
            inside = keys < np.uint64(len(self._table))
            if inside.all():
                return self._table[keys]
            found = np.full(len(wanted), -1, np.int32)
            found[inside] = self._table[keys[inside]]
            return found
        if not len(self._sorted):
            return np.full(len(wanted), -1, np.int32)
        places = np.searchsorted(self._sorted, wanted)
        np.minimum(places, len(self._sorted) - 1, out=places)
        hit = self._sorted[places] == wanted
        numbers = places if self._order is None else self._order[places]
        return np.where(hit, numbers, -1).astype(np.int32)


@dataclass(frozen=True, eq=False, repr=False)
class Resolved:
    """Dependencies as indices, and what had to be dropped for that.

    ``forward`` counts edges that do not point backward in the file: without any the file order is topological.
    """

    ctrl: tuple[I64, U64] | None
    data: tuple[I64, U64] | None
    parents: Csr
    forward: int
    dropped_ctrl: int
    dropped_data: int


def resolve(columns: Columns, source: str, *, repair: bool) -> Resolved:
    """Turn dependency ids into node indices.

    Control dependencies on nodes that are not in the file are dropped and counted (the simulator refuses such files,
    PyTorch traces have them); so are data dependencies with ``repair``.

    Raises
    ------
    TraceError
        If ids repeat, or a data dependency is not in the file and ``repair`` is false.
    """
    ids = IdMap(columns.ids, source)
    ctrl_index = ids.indices(columns.ctrl_ids)
    data_index = ids.indices(columns.data_ids)
    ctrl_offsets, data_offsets = columns.ctrl_offsets, columns.data_offsets
    new_ctrl = new_data = None
    dropped = [0, 0]
    if len(ctrl_index) and ctrl_index.min() < 0:
        keep = ctrl_index >= 0
        dropped[0] = int(len(keep) - keep.sum())
        ctrl_offsets, ctrl_index = _filter(ctrl_offsets, ctrl_index, keep)
        new_ctrl = (ctrl_offsets, columns.ctrl_ids[keep])
    if len(data_index) and data_index.min() < 0:
        keep = data_index >= 0
        dropped[1] = int(len(keep) - keep.sum())
        if not repair:
            _refuse_absent(columns, keep, dropped[1], source)
        data_offsets, data_index = _filter(data_offsets, data_index, keep)
        new_data = (data_offsets, columns.data_ids[keep])
    parents, forward = _union(ctrl_offsets, ctrl_index, data_offsets, data_index)
    return Resolved(new_ctrl, new_data, parents, forward, dropped[0], dropped[1])


def _filter(offsets: I64, index: I32, keep: Bool) -> tuple[I64, I32]:
    kept = np.zeros(len(keep) + 1, np.int64)
    np.cumsum(keep, out=kept[1:])
    return kept[offsets], index[keep]


def _refuse_absent(columns: Columns, keep: Bool, count: int, source: str) -> None:
    place = int(np.argmin(keep))
    node = int(np.searchsorted(columns.data_offsets, place, side="right")) - 1
    more = f" ({count} such dependencies in all)" if count > 1 else ""
    raise TraceError(
        f"{source}: node {columns.ids[node]}: data dependency on node {columns.data_ids[place]}, which is not in the "
        f"file{more}; --repair drops them"
    )


def _union(ctrl_offsets: I64, ctrl_index: I32, data_offsets: I64, data_index: I32) -> tuple[Csr, int]:
    n = len(data_offsets) - 1
    edges = len(ctrl_index) + len(data_index)
    kernels = graph_kernels(n + edges)
    if kernels is None:
        offsets, index = [0] * (n + 1), [0] * edges
        arguments = (ctrl_offsets.tolist(), ctrl_index.tolist(), data_offsets.tolist(), data_index.tolist())
        count, forward = _graph_kernel.union_parents(*arguments, [-1] * n, offsets, index)
        return Csr(np.array(offsets, np.int64), np.array(index[:count], np.int32)), forward
    out_offsets = np.empty(n + 1, np.int64)
    out_index = np.empty(edges, np.int32)
    mark = np.full(n, -1, np.int32)
    count, forward = kernels.union_parents(
        ctrl_offsets, ctrl_index, data_offsets, data_index, mark, out_offsets, out_index
    )
    return Csr(out_offsets, out_index[:count].copy() if count < edges else out_index), int(forward)


def transposed(graph: Csr) -> Csr:
    """All edges reversed; each node's list is in ascending order."""
    n, edges = len(graph.offsets) - 1, len(graph.index)
    kernels = graph_kernels(n + edges)
    if kernels is None:
        offsets, index = [0] * (n + 1), [0] * edges
        _graph_kernel.transpose(graph.offsets.tolist(), graph.index.tolist(), offsets, index, [0] * (n + 1))
        return Csr(np.array(offsets, np.int64), np.array(index, np.int32))
    out_offsets, out_index = np.zeros(n + 1, np.int64), np.empty(edges, np.int32)
    kernels.transpose(graph.offsets, graph.index, out_offsets, out_index, np.zeros(n + 1, np.int64))
    return Csr(out_offsets, out_index)


def topological_order(parents: Csr, children: Csr, ids: U64, source: str) -> I64:
    """Node indices in an order in which every node comes after its parents (Kahn's algorithm, by index among equals).

    Raises
    ------
    TraceError
        If there is a cycle; it names the nodes of one.
    """
    n = len(ids)
    kernels = graph_kernels(n + len(parents.index))
    if kernels is None:
        waiting_list, order_list = [0] * n, [0] * n
        reached = _graph_kernel.topological(
            parents.offsets.tolist(),
            children.offsets.tolist(),
            children.index.tolist(),
            waiting_list,
            order_list,
        )
        order, waiting = np.array(order_list, np.int64), np.array(waiting_list, np.int64)
    else:
        order, waiting = np.zeros(n, np.int64), np.zeros(n, np.int64)
        reached = kernels.topological(parents.offsets, children.offsets, children.index, waiting, order)
    if reached < n:
        raise TraceError(f"{source}: {_name_cycle(parents, waiting, ids)}")
    return order


def _name_cycle(parents: Csr, waiting: I64, ids: U64) -> str:
    """Describe one cycle among the nodes that wait for ever: walk up along waiting parents until a node repeats."""
    node = int(np.argmax(waiting > 0))
    seen: dict[int, int] = {}
    path: list[int] = []
    while node not in seen:
        seen[node] = len(path)
        path.append(node)
        above = parents.index[parents.offsets[node] : parents.offsets[node + 1]]
        node = int(above[np.argmax(waiting[above] > 0)])
    cycle = path[seen[node] :]
    # From a node to the one that waits for it, beginning with the lowest index.
    cycle.reverse()
    first = cycle.index(min(cycle))
    cycle = cycle[first:] + cycle[:first]
    names = [str(ids[i]) for i in [*cycle, cycle[0]]]
    if len(names) > _CYCLE_SHOWN + 1:
        names = [*names[: _CYCLE_SHOWN - 1], "...", names[-2], names[-1]]
    return f"dependency cycle of {len(cycle)} node{'s' * (len(cycle) > 1)}: {' -> '.join(names)}"
