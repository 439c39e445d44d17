"""Rows of the network's links in the message-level engine's block, and what they carried."""

from typing import Any

import numpy as np

from chakra.arrays import F64, I64
from chakra.replay.config.model import Network, Topology
from chakra.replay.engines.kernels import messages_layout as L
from chakra.replay.engines.messages.flows import FlowRows, Flows
from chakra.replay.engines.messages.use import UseRows, use_document
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
        head[L.C_EVERY_DIM] = network.crosses_every_dim
        self._first = block.size
        self._count = 0
        #: per dimension: number of its first link, and how many it has
        self._ranges: list[tuple[int, int]] = []
        self._flows: FlowRows | None = None
        self._use: UseRows | None = None
        speed = [(dim.latency_ns, dim.bytes_per_ns) for dim in dims]
        head[L.C_NET] = L.NET_AWARE if aware else L.NET_UNAWARE
        if network.outside is not None:
            head[L.C_NET] = L.NET_OUTSIDE
        elif isinstance(graph, Flows):
            head[L.C_NET] = L.NET_FLOW
            adaptive = network.links is not None and network.links.ecmp == "adaptive"
            self._flows = FlowRows(block, head, graph, len(dims), adaptive=adaptive, ports=n)
            if network.links is None:
                self._count_links()
        elif graph is not None:
            head[L.C_NET] = L.NET_GRAPH if aware else L.NET_GRAPH_UNAWARE
            self._count = len(graph.latency_ns)
            if aware:
                self._keep_use(block, head)
            of_links = self._link_rows(np.arange(self._count), np.zeros(self._count, np.int64), 0)
            of_links[:, L.L_PART] = graph.part
            block.add(of_links)
            speed = list(zip(graph.latency_ns.tolist(), graph.bytes_per_ns.tolist(), strict=True))
            routes = block.add(self._first + graph.routes.astype(np.int64) * L.LINK_ROW)
            head[L.C_ROUTE_START] = block.add(graph.route_start.astype(np.int64) + routes)
        elif aware:
            self._count_links()
            self._keep_use(block, head)
            for k in range(len(dims)):
                rows[k, L.D_LINKS] = block.size
                self._add_links(block, k, int(rows[k, L.D_STRIDE]))
        block.put(self._rows_at, rows)
        self.speed: F64 = np.array(speed, np.float64).reshape(-1)

    def _add_links(self, block: Block, k: int, stride: int) -> None:
        """The links of a dimension: two per NPU, or one per pair of a fully connected one."""
        dim, n = self._network.dims[k], self._network.npus
        first, own = self._ranges[k]
        onward = np.zeros(own, np.int64)
        if dim.topology is Topology.RING:
            npu, at = np.arange(n), self.coords[:, k]
            up = npu + np.where(at == dim.npus - 1, 1 - dim.npus, 1) * stride
            down = npu + np.where(at == 0, dim.npus - 1, -1) * stride
            onward[0::2] = block.size + 2 * up * L.LINK_ROW
            onward[1::2] = block.size + (2 * down + 1) * L.LINK_ROW
        block.add(self._link_rows(np.full(own, k, np.int64), onward, first))

    def _keep_use(self, block: Block, head: I64) -> None:
        """Room for the use of all links over time, in front of their rows."""
        self._use = UseRows(block, self._count)
        head[L.C_USE_N] = self._use.intervals
        self._first = block.size

    def _link_rows(self, classes: I64, onward: I64, first: int) -> I64:
        """Rows of links from one on, by number."""
        rows = np.zeros((len(classes), L.LINK_ROW), np.int64)
        rows[:, L.KIND] = L.EV_LINK
        rows[:, L.L_CLASS] = classes
        rows[:, L.L_ONWARD] = onward
        rows[:, L.L_SIZE] = -1
        if self._use is not None:
            rows[:, L.L_USE] = self._use.rows()[first : first + len(classes)]
        return rows

    def set_trees(self, block: Block, groups: int, count: int) -> None:
        """Where rows of communicators lie, whose numbers are those of trees of switches on links."""
        if self._flows is not None and self._network.links is not None:
            self._flows.set_trees(block, groups, count)

    def _count_links(self) -> None:
        """Which links are whose."""
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
        return tuple(
            {**name, "bytes": size, "busy_ns": busy, "queued_ns": queued}
            for name, (size, busy, queued) in zip(self._names(used), table.tolist(), strict=True)
        )

    def over_time(self, m: I64, end_ns: int) -> dict[str, Any]:
        """The result's `link_use`: how much of the most used links is used when; empty where that is not kept."""
        if self._flows is not None:
            found, rows, weight, links = self._flows.over_time(m, end_ns)
        elif self._use is None:
            return {}
        else:
            table = m[self._first : self._first + self._count * L.LINK_ROW].reshape(-1, L.LINK_ROW)
            links = rows = np.flatnonzero(table[:, L.L_MESSAGES] > 0)
            found, weight = self._use.table(m, end_ns), np.ones(len(rows), np.int64)
        return use_document(found, rows, weight, lambda k: self._names(links[k : k + 1])[0])

    def _names(self, numbers: I64) -> list[dict[str, Any]]:
        """What links are called in a result, and their bandwidth; ends are NPUs or names, -1 a dimension's switch."""
        network = self._network
        if network.links is not None:
            names: list[int | str] = [*range(network.npus), *network.links.vertices]
            chosen = [network.links.links[number] for number in numbers.tolist()]
            return [
                {"dim": 0, "from": names[x.src], "to": names[x.dst], "bandwidth_gibps": x.bandwidth_gibps}
                for x in chosen
            ]
        dim, src, dst = self._ends()
        return [
            {"dim": k, "from": a, "to": b, "bandwidth_gibps": network.dims[k].bandwidth_gibps}
            for k, a, b in zip(
                dim[numbers].tolist(), src[numbers].tolist(), dst[numbers].tolist(), strict=True
            )
        ]

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
