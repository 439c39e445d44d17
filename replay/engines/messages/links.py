"""Rows of the network's links in the message-level engine's block, and what they carried."""

from typing import Any

import numpy as np

from chakra.arrays import F64, I64
from chakra.replay.config.model import Links, Network, Topology
from chakra.replay.engines.kernels import messages_layout as L
from chakra.replay.engines.messages.flows import FlowRows, Flows
from chakra.replay.engines.state import Block
from chakra.replay.engines.tables import dimension_rows
from chakra.replay.networks.routes import LinkGraph


class NetworkRows:
    """Adds the network to a block: dimensions, coordinates, links and routes.

    Attributes
    ----------
    speed
        Latency (ns) and bytes per ns of each class of links, in turn.
    """

    def __init__(
        self, block: Block, head: I64, network: Network, graph: LinkGraph | Flows | None, aware: bool
    ) -> None:
        self._network = network
        n, dims = network.npus, network.dims
        rows = dimension_rows(network)
        self.coords = np.arange(n)[:, None] // rows[:, L.D_STRIDE] % rows[:, L.D_N]
        self._rows_at = block.room(rows.size)
        head[L.C_DIMS] = len(dims)
        head[L.C_DIM_ROWS] = self._rows_at
        head[L.C_COORDS] = block.add(self.coords)
        self._first = block.size
        self._count = 0
        #: per dimension: number of its first link, and how many it has
        self._ranges: list[tuple[int, int]] = []
        self._flows: FlowRows | None = None
        speed = [(dim.latency_ns, dim.bytes_per_ns) for dim in dims]
        head[L.C_NET] = L.NET_AWARE if aware else L.NET_UNAWARE
        if network.outside is not None:
            head[L.C_NET] = L.NET_OUTSIDE
        elif isinstance(graph, Flows):
            head[L.C_NET] = L.NET_FLOW
            adaptive = network.links is not None and network.links.ecmp == "adaptive"
            every = network.links is None
            self._flows = FlowRows(block, head, graph, len(dims), adaptive=adaptive, every_dim=every, ports=n)
            if network.links is None:
                self._count_links()
        elif graph is not None:
            head[L.C_NET] = L.NET_GRAPH if aware else L.NET_GRAPH_UNAWARE
            self._count = len(graph.latency_ns)
            block.add(_link_rows(np.arange(self._count), np.zeros(self._count, np.int64)))
            speed = list(zip(graph.latency_ns.tolist(), graph.bytes_per_ns.tolist(), strict=True))
            routes = block.add(self._first + graph.routes.astype(np.int64) * L.LINK_ROW)
            head[L.C_ROUTE_START] = block.add(graph.route_start.astype(np.int64) + routes)
        elif aware:
            for k in range(len(dims)):
                rows[k, L.D_LINKS] = block.size
                self._add_links(block, k, int(rows[k, L.D_STRIDE]))
        block.put(self._rows_at, rows)
        self.speed: F64 = np.array(speed, np.float64).reshape(-1)

    def _add_links(self, block: Block, k: int, stride: int) -> None:
        """The links of a dimension: two per NPU, or one per pair of a fully connected one."""
        dim, n = self._network.dims[k], self._network.npus
        own = n * dim.npus if dim.topology is Topology.FULLY_CONNECTED else 2 * n
        onward = np.zeros(own, np.int64)
        if dim.topology is Topology.RING:
            npu, at = np.arange(n), self.coords[:, k]
            up = npu + np.where(at == dim.npus - 1, 1 - dim.npus, 1) * stride
            down = npu + np.where(at == 0, dim.npus - 1, -1) * stride
            onward[0::2] = block.size + 2 * up * L.LINK_ROW
            onward[1::2] = block.size + (2 * down + 1) * L.LINK_ROW
        block.add(_link_rows(np.full(own, k, np.int64), onward))
        self._ranges.append((self._count, own))
        self._count += own

    def set_trees(self, block: Block, groups: int, count: int) -> None:
        """Where rows of communicators lie, whose numbers are those of trees of switches on links."""
        if self._flows is not None and self._network.links is not None:
            self._flows.set_trees(block, groups, count)

    def _count_links(self) -> None:
        """Which links are whose, where flows have rows of their own for them."""
        for dim in self._network.dims:
            own = self._network.npus * (dim.npus if dim.topology is Topology.FULLY_CONNECTED else 2)
            self._ranges.append((self._count, own))
            self._count += own

    @property
    def wakes(self) -> int:
        """Rows that the network may take for its own events at one tick."""
        return 0 if self._flows is None else self._flows.latencies + 2

    def dim_bytes(self, m: I64, npus: int) -> I64:
        """Bytes that each NPU that is simulated has sent into each dimension; those of all at the first where unknown."""
        if self._flows is not None:
            return self._flows.sent(m)
        rows = m[self._rows_at : self._rows_at + len(self._network.dims) * L.DIM_ROW]
        out = np.zeros((npus, len(self._network.dims)), np.int64)
        out[0] = rows.reshape(-1, L.DIM_ROW)[:, L.D_BYTES]
        return out

    def used(self, m: I64) -> tuple[dict[str, Any], ...]:
        """Rows of the result document: the links that carried something."""
        if self._flows is not None:
            used, table = self._flows.carried(m)
        else:
            rows = m[self._first : self._first + self._count * L.LINK_ROW].reshape(-1, L.LINK_ROW)
            used = np.flatnonzero(rows[:, L.L_MESSAGES] > 0)
            table = rows[used][:, [L.L_BYTES, L.L_BUSY_NS, L.L_QUEUED_NS]]
        figures = table.tolist()
        if self._network.links is not None:
            return _of_graph(self._network.links, self._network.npus, used.tolist(), figures)
        dim, src, dst = self._ends()
        return tuple(
            {"dim": k, "from": a, "to": b, "bytes": size, "busy_ns": busy, "queued_ns": queued}
            for k, a, b, (size, busy, queued) in zip(
                dim[used].tolist(), src[used].tolist(), dst[used].tolist(), figures, strict=True
            )
        )

    def _ends(self) -> tuple[I64, I64, I64]:
        """Dimension, source and destination of every link; -1 is a switch."""
        n = self._network.npus
        dim, src, dst = (np.full(self._count, -1, np.int64) for _ in range(3))
        npu = np.arange(n)
        stride = 1
        for k, (first, count) in enumerate(self._ranges):
            kind, size = self._network.dims[k].topology, self._network.dims[k].npus
            own = slice(first, first + count)
            at = self.coords[:, k]
            dim[own] = k
            if kind is Topology.FULLY_CONNECTED:
                src[own] = np.repeat(npu, size)
                dst[own] = (npu[:, None] + (np.arange(size)[None, :] - at[:, None]) * stride).reshape(-1)
            elif kind is Topology.RING:
                src[own] = np.repeat(npu, 2)
                dst[first : first + count : 2] = npu + ((at + 1) % size - at) * stride
                dst[first + 1 : first + count : 2] = npu + ((at - 1) % size - at) * stride
            else:
                src[first : first + count : 2] = npu
                dst[first + 1 : first + count : 2] = npu
            stride *= size
        return dim, src, dst


def _link_rows(classes: I64, onward: I64) -> I64:
    rows = np.zeros((len(classes), L.LINK_ROW), np.int64)
    rows[:, L.KIND] = L.EV_LINK
    rows[:, L.L_CLASS] = classes
    rows[:, L.L_ONWARD] = onward
    rows[:, L.L_SIZE] = -1
    return rows


def _of_graph(
    links: Links, npus: int, used: list[int], figures: list[list[int]]
) -> tuple[dict[str, Any], ...]:
    """Figures of single links; a vertex that is no NPU goes by its name."""
    names: list[int | str] = [*range(npus), *links.vertices]
    out = []
    for number, (size, busy, queued) in zip(used, figures, strict=True):
        link = links.links[number]
        ends = {"dim": 0, "from": names[link.src], "to": names[link.dst]}
        out.append({**ends, "bytes": size, "busy_ns": busy, "queued_ns": queued})
    return tuple(out)
