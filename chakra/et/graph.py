"""The dependency graph of a trace over node indices: resolution of ids, parents, children, order, cycles."""

import sys
from dataclasses import dataclass
from types import ModuleType

import numpy as np

from chakra.arrays import I32, I64, U64, Bool, bounds
from chakra.errors import TraceError
from chakra.et import _graph_kernel
from chakra.et.columns import Columns
from chakra.io.readable import counted

#: Nodes and edges above which a compiled kernel saves more than loading it costs: about half a second with numba,
#: a tenth where numba runs already. Plain Python takes a third of a microsecond for each.
KERNEL_THRESHOLD = 2_000_000
WARM_THRESHOLD = 50_000

#: Cycles longer than this are shortened in messages.
_CYCLE_SHOWN = 8


def graph_kernels(work: int) -> ModuleType | None:
    """The graph kernels, compiled if ``work`` (nodes plus edges) is worth it; else None, for plain Python on
    lists.
    """
    if work >= KERNEL_THRESHOLD or (work >= WARM_THRESHOLD and "numba" in sys.modules):
        from chakra.jit import compiled

        kernels: ModuleType = compiled("chakra.et._graph_kernel")
        return kernels
    return None


@dataclass(frozen=True, eq=False, repr=False)
class Csr:
    """Adjacency: the neighbours of node i are ``index[offsets[i]:offsets[i + 1]]``; int64 (n + 1,) and
    int32.
    """

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
    """Dependencies that are left after reading, and what had to be dropped for that.

    Attributes
    ----------
    ctrl, data
        New (offsets, ids) where some were dropped, else None.
    parents
        The union of both as node indices, without duplicates.
    acyclic
        False if control dependencies close a cycle (data dependencies never do).
    dropped_ctrl, dropped_data
        How many dependencies were dropped.
    """

    ctrl: tuple[I64, U64] | None
    data: tuple[I64, U64] | None
    parents: Csr
    acyclic: bool
    dropped_ctrl: int
    dropped_data: int


def resolve(columns: Columns, source: str, *, repair: bool) -> Resolved:
    """Turn dependency ids into node indices.

    Control dependencies on nodes that are not in the file are dropped and counted: PyTorch traces have them,
    and the simulator refuses such files. ``repair`` does the same with data dependencies, and with control
    dependencies that close a cycle.

    Raises
    ------
    TraceError
        If ids repeat, data dependencies form a cycle, or (without ``repair``) one is not in the file.
    """
    ids = IdMap(columns.ids, source)
    ctrl = Csr(columns.ctrl_offsets, ids.indices(columns.ctrl_ids))
    data = Csr(columns.data_offsets, ids.indices(columns.data_ids))
    ctrl_ids, data_ids = columns.ctrl_ids, columns.data_ids
    if len(data.index) and data.index.min() < 0:
        keep = data.index >= 0
        if not repair:
            _refuse_absent(columns, keep, source)
        data, data_ids = _kept(data, keep), data_ids[keep]
    if len(ctrl.index) and ctrl.index.min() < 0:
        keep = ctrl.index >= 0
        ctrl, ctrl_ids = _kept(ctrl, keep), ctrl_ids[keep]
    parents, forward = _union(ctrl, data)
    acyclic = forward == 0 or _reaches_all(parents)
    if not acyclic:
        none = Csr(np.zeros_like(ctrl.offsets), np.zeros(0, np.int32))
        data_only, forward = _union(none, data)
        if forward:
            topological_order(data_only, transposed(data_only), columns.ids, source)
        if repair:
            keep = _outside_cycles(ctrl, parents)
            ctrl, ctrl_ids = _kept(ctrl, keep), ctrl_ids[keep]
            parents, _ = _union(ctrl, data)
            acyclic = True
    dropped_ctrl = len(columns.ctrl_ids) - len(ctrl_ids)
    dropped_data = len(columns.data_ids) - len(data_ids)
    return Resolved(
        ctrl=(ctrl.offsets, ctrl_ids) if dropped_ctrl else None,
        data=(data.offsets, data_ids) if dropped_data else None,
        parents=parents,
        acyclic=acyclic,
        dropped_ctrl=dropped_ctrl,
        dropped_data=dropped_data,
    )


def _reaches_all(parents: Csr) -> bool:
    _, waiting = _kahn(parents, transposed(parents))
    return not waiting.any()


def _outside_cycles(ctrl: Csr, parents: Csr) -> Bool:
    """For each control dependency, whether it lies outside of every cycle (its ends are in different
    components).
    """
    import networkx as nx

    graph: nx.DiGraph[int] = nx.DiGraph()
    _, waiting = _kahn(parents, transposed(parents))
    for node in np.flatnonzero(waiting).tolist():
        above = parents.index[parents.offsets[node] : parents.offsets[node + 1]]
        graph.add_edges_from((parent, node) for parent in above[waiting[above] > 0].tolist())
    component = np.arange(len(waiting))
    for number, members in enumerate(nx.strongly_connected_components(graph)):
        component[list(members)] = len(waiting) + number
    owner = np.repeat(np.arange(len(waiting)), np.diff(ctrl.offsets))
    outside: Bool = component[owner] != component[ctrl.index]
    return outside


def _kept(graph: Csr, keep: Bool) -> Csr:
    kept = bounds(keep)
    return Csr(kept[graph.offsets], graph.index[keep])


def _refuse_absent(columns: Columns, keep: Bool, source: str) -> None:
    place = int(np.argmin(keep))
    count = int(len(keep) - keep.sum())
    node = int(np.searchsorted(columns.data_offsets, place, side="right")) - 1
    more = f" ({count} such dependencies in all)" if count > 1 else ""
    raise TraceError(
        f"{source}: node {columns.ids[node]}: data dependency on node {columns.data_ids[place]}, which is "
        f"not in the file{more}; --repair drops them"
    )


def _union(ctrl: Csr, data: Csr) -> tuple[Csr, int]:
    """Distinct parents of every node, and the number of edges that do not point backward in the file."""
    ctrl_offsets, ctrl_index, data_offsets, data_index = ctrl.offsets, ctrl.index, data.offsets, data.index
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
    """Node indices in an order in which every node comes after its parents (Kahn's algorithm, by index among
    equals).

    Raises
    ------
    TraceError
        If there is a cycle; it names the nodes of one.
    """
    order, waiting = _kahn(parents, children)
    if waiting.any():
        raise TraceError(f"{source}: {_name_cycle(parents, waiting, ids)}")
    return order


def _kahn(parents: Csr, children: Csr) -> tuple[I64, I64]:
    """Kahn's order (of the nodes that it reaches) and for each node how many of its parents were not
    reached.
    """
    n = len(parents.offsets) - 1
    kernels = graph_kernels(n + len(parents.index))
    if kernels is None:
        waiting_list, order_list = [0] * n, [0] * n
        _graph_kernel.topological(
            parents.offsets.tolist(),
            children.offsets.tolist(),
            children.index.tolist(),
            waiting_list,
            order_list,
        )
        return np.array(order_list, np.int64), np.array(waiting_list, np.int64)
    order, waiting = np.zeros(n, np.int64), np.zeros(n, np.int64)
    kernels.topological(parents.offsets, children.offsets, children.index, waiting, order)
    return order, waiting


def _name_cycle(parents: Csr, waiting: I64, ids: U64) -> str:
    """Describe one cycle among the nodes that wait for ever: walk up along waiting parents until a node
    repeats.
    """
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
    return f"dependency cycle of {counted(len(cycle), 'node')}: {' -> '.join(names)}"
