"""Flow tables without a workload: start flows at ticks, and see rates and arrivals. Runs both folded and not."""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import strategies as st

from chakra.replay import ReplayResult, simulate
from chakra.replay.config import load_network
from chakra.replay.config.model import Network
from chakra.replay.engines.kernels import flow_rows as R
from chakra.replay.engines.kernels import messages_layout as L
from chakra.replay.engines.kernels.messages_events import close_bucket, next_bucket, schedule, take_row
from chakra.replay.engines.kernels.network import reached, send, wake
from chakra.replay.engines.messages.flows import FlowRows, Flows
from chakra.replay.engines.messages.tables import with_room
from chakra.replay.engines.state import Block
from chakra.replay.networks.flow.paths import Paths, alone_and_back, alone_on_first


class World:
    """A network and its time, as plain Python."""

    def __init__(
        self, paths: Paths, npus: int, largest: int, *, cap: float = 0.0, adaptive: bool = False
    ) -> None:
        self.paths = paths
        alone, back = alone_and_back(paths.src, paths.dst, alone_on_first(paths), npus)
        self.flows = Flows(paths, largest, np.arange(npus), alone, back, cap)
        block = Block()
        head = np.zeros(L.NPU_BASE, np.int64)
        block.room(L.NPU_BASE)
        head[L.C_DIMS] = 1
        head[L.C_COORDS] = block.add(np.arange(npus))
        head[L.C_DIM_ROWS] = block.room(L.DIM_ROW)
        head[L.C_NET], head[L.C_NPUS] = L.NET_FLOW, npus
        head[L.C_CLEAR], head[L.C_LAST_TICK] = L.NEVER, -1
        self.rows = FlowRows(block, head, self.flows, 1, adaptive=adaptive)
        head[L.C_TOP] = block.size
        block.put(0, head)
        m = with_room(block.build(), 1 << 16)
        self.state = L.State(m.tolist(), [])

    def run(self, starts: Sequence[tuple[int, int, int, int]]) -> Iterator[list[tuple[int, int]]]:
        """Start flows (tick, src, dst, bytes); yields (number, tick) of those that are there at the end of each tick."""
        m: Any = self.state.m
        number: dict[int, int] = {}
        begin: dict[int, int] = {}
        for i, (tick, _, _, _) in enumerate(starts):
            row = take_row(self.state)
            m[row + L.KIND] = L.EV_REQUEST
            begin[row] = i
            schedule(self.state, tick, row)
        while m[L.C_HEAP_N] > 0:
            next_bucket(self.state)
            there: list[tuple[int, int]] = []
            while m[m[L.C_BUCKET] + L.B_HEAD] != L.NIL:
                bucket = m[L.C_BUCKET]
                event = m[bucket + L.B_HEAD]
                m[bucket + L.B_HEAD] = m[event + L.NEXT]
                if m[event + L.NEXT] == L.NIL:
                    m[bucket + L.B_TAIL] = L.NIL
                if event in begin:
                    i = begin.pop(event)
                    _, src, dst, size = starts[i]
                    message = take_row(self.state)
                    m[message + L.KIND], m[message + L.M_DST], m[message + L.M_SIZE] = L.MSG_DATA, dst, size
                    number[message] = i
                    send(self.state, message, src)
                elif m[event + L.KIND] == L.EV_LINK:
                    wake(self.state, event)
                else:
                    assert reached(self.state, event)
                    there.append((number.pop(event), m[L.C_NOW]))
            close_bucket(self.state)
            yield there
        assert not number

    def arrivals(self, starts: Sequence[tuple[int, int, int, int]]) -> list[int]:
        """When each flow is there, ns."""
        return [tick for _, tick in sorted(one for there in self.run(starts) for one in there)]

    def loads(self) -> list[tuple[int, int, int]]:
        """Capacity, load and number of flows of each link, at present."""
        m: Any = self.state.m
        out = []
        for k in range(len(self.paths.bytes_per_ns)):
            link = self.rows.first + k * R.FLOW_LINK
            load = flows = 0
            entry = m[link + R.FL_FIRST]
            while entry != L.NIL:
                route = m[entry + R.FE_ROUTE]
                load += m[entry + R.FE_WEIGHT] * m[route + R.FR_RATE] * m[route + R.FR_FLOWS]
                flows += m[route + R.FR_FLOWS]
                entry = m[entry + R.FE_NEXT]
            out.append((m[link + R.FL_CAPACITY], load, flows))
        return out

    def routes_with_flows(self) -> Iterator[tuple[int, set[int]]]:
        """Rate of each route that has flows, and the numbers of its links."""
        m: Any = self.state.m
        heap = m[self.rows.head + R.FH_HEAP]
        for route in m[heap : heap + m[self.rows.head + R.FH_HEAP_N]]:
            first = m[route + R.FR_ENTRY]
            entries = range(first, first + m[route + R.FR_ENTRIES] * R.FLOW_ENTRY, R.FLOW_ENTRY)
            yield (
                m[route + R.FR_RATE],
                {(m[entry + R.FE_LINK] - self.rows.first) // R.FLOW_LINK for entry in entries},
            )

    def shares_of_links(self, pair: int) -> dict[int, Fraction]:
        """Share of a flow of a pair on each link."""
        p = self.paths
        r = int(p.first[pair])
        hops = range(int(p.start[r]), int(p.start[r + 1]))
        return {int(p.link[k]): Fraction(int(p.weight[k]), p.whole) for k in hops}


def both(traces: Any, system: Any, network: Any, **options: Any) -> tuple[ReplayResult, ReplayResult]:
    """The folded run and the unfolded one, after they were compared: all nodes of all NPUs, bytes, links."""
    folded, plain = (
        simulate(traces, system, network, backend="flow", fold=fold, **options) for fold in (True, False)
    )
    assert plain.raw.partition.n_classes == plain.npus
    assert folded.finish_ns.tolist() == plain.finish_ns.tolist()
    for npu in range(plain.npus):
        for one, other in zip(folded.node_ticks(npu), plain.node_ticks(npu), strict=True):
            assert one.tolist() == other.tolist()
    assert folded.dimensions == plain.dimensions
    assert folded.links == plain.links
    return folded, plain


@st.composite
def link_networks(
    draw: st.DrawFn, ecmp: Sequence[str] = ("hash", "first", "destination", "spray")
) -> Network:
    """A connected graph of NPUs and switches: a tree, and some more links."""
    npus = draw(st.integers(2, 6))
    switches = draw(st.integers(1, 4))
    names: list[Any] = [*range(npus), *(f"s{k}" for k in range(switches))]
    bandwidth = st.sampled_from([10.0, 25.0, 50.0, 7.3])
    latency = st.sampled_from([0.0, 10.0, 500.0])
    ends = {(a, draw(st.integers(max(a + 1, npus), npus + switches - 1))) for a in range(npus)}
    ends |= {(a, a + 1) for a in range(npus, npus + switches - 1)}
    pairs = st.tuples(st.integers(0, npus + switches - 1), st.integers(0, npus + switches - 1))
    ends |= {(a, b) for a, b in draw(st.lists(pairs, max_size=6)) if a < b}
    return load_network(
        {
            "npus_count": [npus],
            "links": [[names[a], names[b], draw(bandwidth), draw(latency)] for a, b in sorted(ends)],
            "ecmp": draw(st.sampled_from(list(ecmp))),
        }
    )


def every_pair(npus: int) -> Any:
    """All pairs of NPUs."""
    return np.array([(a, b) for a in range(npus) for b in range(npus)], np.int64)


def starts_on(npus: int, most: int = 8) -> st.SearchStrategy[list[tuple[int, int, int, int]]]:
    """Flows between different NPUs: tick, source, destination, bytes."""
    one = st.tuples(
        st.sampled_from([0, 0, 100, 5000]),
        st.integers(0, npus - 1),
        st.integers(1, npus - 1),
        st.sampled_from([0, 1, 4096, 65536, 1_000_003]),
    )
    return st.lists(one, min_size=1, max_size=most).map(
        lambda rows: [(tick, a, (a + shift) % npus, size) for tick, a, shift, size in rows]
    )
