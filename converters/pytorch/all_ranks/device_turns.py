"""Time in which ranks that share an accelerator wait for each other's turn on it.

An accelerator runs the kernels of several processes in turn. An operation whose launch and whose predecessors are
over, and that begins late, waits while another rank's operations run. Each rank's recording shows only that it began
late; all of them together show why. That time becomes a node of the stream, as long as the other ranks' recorded
operations filled it: it is no wait that was fitted. What is left (the change from one process to the next) stays
unexplained.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from chakra.arrays import I64, AnyArray, bounds, rows_by
from chakra.converters.pytorch.all_ranks.shared_devices import (
    DeviceUse,
    device_use,
    neighbours,
    takes_turns,
    union,
)
from chakra.converters.pytorch.graph.columns import NodeColumns, columns_of
from chakra.converters.pytorch.graph.linked_graph import (
    NODE_TURN,
    Graph,
    settle,
)
from chakra.converters.pytorch.link import Linked
from chakra.et.idle_nodes import TURN

#: Turns take about 2 ms. What begins late by less than this waits for its launch, or for a part of the accelerator.
LEAST_NS = 50_000
#: share of the lateness that others' operations fill, from which on it is theirs
LEAST_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Occupied:
    """When a rank occupies its accelerators.

    Attributes
    ----------
    rank
        The rank.
    by_device
        Number that the rank gives an accelerator -> begins and ends (ns since 1970, in order) of stretches in which
        operations run there.
    short
        The same of short kernels, which tell whether ranks take turns.
    late
        Whether the rank waited for an operation that began late: only then others' turns say anything.
    """

    rank: int
    by_device: dict[int, tuple[I64, I64]]
    short: DeviceUse
    late: bool


def occupied(linked: Linked, rank: int) -> Occupied:
    """When a linked rank's operations run, on each of its accelerators."""
    gpu, clock = linked.device.device, linked.device.first_ns
    out = {}
    for device, rows in rows_by(gpu.device, np.flatnonzero(linked.kept)).items():
        rows = rows[np.argsort(gpu.start[rows], kind="stable")]
        out[device] = union(clock + gpu.start[rows], clock + gpu.end[rows])
    return Occupied(rank, out, device_use(linked, rank), len(_late(linked.graph, linked.first_ns)[0]) > 0)


def sharers(ranks: Sequence[Occupied]) -> dict[int, list[Occupied]]:
    """For each rank that waited for a late operation, the ranks that take turns with it on an accelerator.

    Parameters
    ----------
    ranks
        Ranks of a job whose clocks agree, so that they may be on one host.

    Returns
    -------
    dict of int to list of Occupied
        Ranks that share with nobody are left out.
    """
    by_rank = {one.rank: one for one in ranks}
    found: dict[int, list[Occupied]] = {}
    for pair in neighbours(by_rank):
        one, other = (by_rank[rank] for rank in pair)
        if (one.late or other.late) and takes_turns(one.short, other.short):
            for waiting, beside in ((one, other), (other, one)):
                if waiting.late:
                    found.setdefault(waiting.rank, []).append(beside)
    return found


def add_turns(linked: Linked, others: Sequence[Occupied]) -> int:
    """Put the time of other ranks that share a rank's accelerator into its graph, and fit its waits anew.

    Parameters
    ----------
    linked
        The rank; its graph is replaced.
    others
        The ranks that share its accelerator, on the same clock.

    Returns
    -------
    int
        How many nodes there are now that were not.
    """
    graph, gpu = linked.graph, linked.device.device
    rows, ready, until = _late(graph, linked.first_ns)
    clock = linked.device.first_ns
    held = np.zeros(len(rows), np.int64)
    device = gpu.device[graph.device_row[rows]]
    for number, own in rows_by(device).items():
        shared = [other.by_device[number] for other in others if number in other.by_device]
        if not shared:
            continue
        begins, ends = (np.concatenate([part[side] for part in shared]) for side in (0, 1))
        order = np.argsort(begins, kind="stable")
        held[own] = _covered(union(begins[order], ends[order]), clock + ready[own], clock + until[own])
    chosen = held >= np.maximum(LEAST_SHARE * (until - ready), 1)
    if not chosen.any():
        return 0
    name = linked.device.names.code(TURN)
    linked.graph = _inserted(graph, rows[chosen], ready[chosen], held[chosen], name)
    settle(linked.graph)
    return int(chosen.sum())


def _late(graph: Graph, first_ns: int) -> tuple[I64, I64, I64]:
    """Nodes of streams that begin late and that a wait felt: the nodes, when their sources are over, when they begin."""
    until = graph.start.astype(np.int64)
    ends = until + graph.duration
    ends[graph.fitted] = graph.until + first_ns
    until[graph.fitted] = ends[graph.fitted]  # a fitted gap of the device lasts until its operation begins
    rows, readies = [], []
    seen = np.zeros(len(graph), np.bool_)
    on_stream = graph.stream_key >= 0
    for wait in graph.fitted[graph.duration[graph.fitted] > 0].tolist():
        # Back along what each node waited for last, as long as that is the device.
        node = wait
        while node >= 0 and not seen[node] and (node == wait or on_stream[node]):
            seen[node] = True
            sources = graph.sources[graph.offsets[node] : graph.offsets[node + 1]]
            last = int(sources[np.argmax(ends[sources])]) if len(sources) else -1
            if last >= 0 and on_stream[node] and until[node] - ends[last] >= LEAST_NS:
                rows.append(node)
                readies.append(int(ends[last]))
            node = last
    found = np.array(rows, np.int64)
    order = np.argsort(found)
    return found[order], np.array(readies, np.int64)[order], until[found[order]]


def _covered(stretches: tuple[I64, I64], low: I64, high: I64) -> I64:
    """How much of each interval the stretches cover."""
    begins, ends = stretches
    if not len(begins):
        return np.zeros(len(low), np.int64)
    total = bounds(ends - begins)

    def before(time: I64) -> I64:
        at = np.searchsorted(begins, time, "right")
        into = np.minimum(time, ends[np.maximum(at - 1, 0)]) - begins[np.maximum(at - 1, 0)]
        return np.where(at > 0, total[np.maximum(at - 1, 0)] + into, 0)

    return before(high) - before(low)


def _inserted(graph: Graph, rows: I64, ready: I64, held: I64, name: int) -> Graph:
    """The graph with a node before each of `rows`, which takes over what that one depends on."""
    n, k = len(graph), len(rows)
    # Sources begin before they end, which is at `ready` at the latest; `rows` begin later.
    at = np.minimum(np.searchsorted(graph.start, ready, "right"), rows)
    order = np.argsort(np.concatenate([np.arange(n), at - 0.5]), kind="stable")
    moved = np.empty(n + k, np.int64)
    moved[order] = np.arange(n + k)
    new = moved[n:]
    columns: dict[str, AnyArray] = {}
    given = {
        "kind": np.full(k, NODE_TURN), "name": np.full(k, name), "device_row": graph.device_row[rows],
        "stream_key": graph.stream_key[rows], "start": ready, "duration": held,
    }  # fmt: skip
    for key, column in columns_of(NodeColumns).items():
        old: AnyArray = getattr(graph, key)
        more = given[key] if key in given else np.full(k, column.fill if column.fill is not None else -1)
        columns[key] = np.concatenate([old, more.astype(old.dtype)])[order]
    parent = columns["parent"]
    columns["parent"] = np.where(parent >= 0, moved[np.maximum(parent, 0)], -1).astype(parent.dtype)
    counts = np.diff(graph.offsets)
    targets = np.repeat(np.arange(n), counts)
    instead = moved[:n].copy()
    instead[rows] = new
    sources = np.concatenate([moved[graph.sources], new])
    targets = np.concatenate([instead[targets], moved[rows]])
    by_target = np.lexsort((sources, targets))
    offsets = bounds(np.bincount(targets, minlength=n + k))
    edges = dict(graph.edges)
    edges["stream order"] = edges.get("stream order", 0) + k
    return Graph(
        **columns,
        offsets=offsets,
        sources=sources[by_target].astype(graph.sources.dtype),
        engine=np.concatenate([graph.engine, graph.engine[rows]])[order],
        n_engines=graph.n_engines,
        comm={int(moved[i]): comm for i, comm in graph.comm.items()},
        edges=edges,
        against_time=dict(graph.against_time),
        fitted=np.sort(moved[graph.fitted]),
        until=graph.until[np.argsort(moved[graph.fitted], kind="stable")],
    )
