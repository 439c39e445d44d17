"""Rows of a network whose flows share links, and what its links carried (`chakra.replay.engines.kernels.flow_rows`)."""

from dataclasses import dataclass

import numpy as np

from chakra.arrays import F64, I64, bounds, distinct
from chakra.replay.engines.kernels import flow_rows as R
from chakra.replay.engines.kernels import messages_layout as L
from chakra.replay.engines.kernels.flow_sharing import note_use
from chakra.replay.engines.kernels.layout import State
from chakra.replay.engines.messages.use import UseRows
from chakra.replay.engines.state import Block
from chakra.replay.networks.flow.paths import Paths

#: bits of the largest number of the kernel's: a link's capacity in parts, and the bytes of a message
BITS = 61
#: rates are times 2 to this at most, which is a millionth of a byte per second
MOST_SHIFT = 40
#: bytes per ns of a link (2^20 GB/s) up to which it is counted as it is given
FAST = float(1 << 20)
#: messages of a pair that a link without bound takes within a ns
AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Flows:
    """Paths of a run, and what bounds its numbers.

    Attributes
    ----------
    paths
        Routes of all pairs of NPUs that exchange messages.
    largest
        Bytes of the largest message.
    npus
        Number of each NPU that is simulated.
    alone, back
        Bytes per ns of a flow of each pair that is alone, and of one on the way back.
    cap
        Bytes per ns that no flow exceeds, or 0.
    link_of
        Class of each link, where links of the paths are classes.
    """

    paths: Paths
    largest: int
    npus: I64
    alone: F64
    back: F64
    cap: float = 0.0
    link_of: I64 | None = None

    def capacities(self) -> F64:
        """Bytes per ns of each link, as given or what all flows over it can take together, whichever is less.

        A link that stands for "no bound" must not cost the slow ones the places of their rates. What is cut off is never
        used: the flows of a route have no more than its narrowest link among them, and at `AT_ONCE` times the largest
        message a ns they are gone within one.
        """
        p = self.paths
        given = p.bytes_per_ns
        if given.max(initial=0.0) <= FAST:
            return given
        route = np.repeat(np.arange(len(p.latency_ns)), np.diff(p.start))
        share = p.weight / p.whole
        narrow = np.full(len(p.latency_ns), max(float(self.largest) * AT_ONCE, FAST))
        np.minimum.at(narrow, route, given[p.link] / share)
        taken = np.bincount(p.link, narrow[route] * share, minlength=len(given))
        return np.minimum(given, np.maximum(taken, FAST))

    def shift(self, fastest: float) -> int:
        """Binary places of rates: as many as the largest message and the fastest link (bytes per ns) leave."""
        bits = (int(fastest) + 1).bit_length() + self.paths.whole.bit_length()
        return min(BITS - max(self.largest.bit_length(), bits), MOST_SHIFT)


class FlowRows:
    """Adds links, routes and their entries to a block."""

    def __init__(
        self,
        block: Block,
        head: I64,
        flows: Flows,
        dims: int,
        *,
        adaptive: bool,
        ports: int = 0,
    ) -> None:
        p = flows.paths
        npus = len(flows.npus)
        self._link_of, self._dims, self._npus = flows.link_of, dims, npus
        self._links = len(p.bytes_per_ns)
        self._use = UseRows(block, self._links)
        head[L.C_USE_N] = self._use.intervals
        self.first = block.room(self._links * R.FLOW_LINK)
        bytes_per_ns = flows.capacities()
        fastest = float(bytes_per_ns.max(initial=1.0))
        shift = flows.shift(fastest)
        self._counted = bytes_per_ns / p.bytes_per_ns
        capacity = np.maximum(bytes_per_ns * float(1 << shift), 1.0).astype(np.int64)
        self._add_links(block, capacity * p.whole)
        entries = block.room(len(p.link) * R.FLOW_ENTRY)
        routes = self._add_routes(block, p, entries)
        self._add_entries(block, p, entries, routes)
        row = np.zeros(R.FLOW_HEAD, np.int64)
        row[R.FH_SHIFT], row[R.FH_WHOLE] = shift, p.whole
        row[R.FH_CAP] = max(int(min(flows.cap, fastest) * (1 << shift)), 1) if flows.cap else 0
        pairs = np.zeros((len(p.src), R.FLOW_PAIR), np.int64)
        pairs[:, R.FP_DST] = p.dst
        pairs[:, R.FP_ROUTE] = routes + p.first[:-1] * R.FLOW_ROUTE
        pairs[:, R.FP_ROUTES] = np.diff(p.first)
        for field, rate in ((R.FP_ALONE, flows.alone), (R.FP_BACK, flows.back)):
            limit = np.minimum(rate, min(flows.cap, fastest) if flows.cap else fastest)
            pairs[:, field] = np.maximum(limit * float(1 << shift), 1.0).astype(np.int64)
        row[R.FH_NPUS] = block.add(flows.npus)
        self._sent = row[R.FH_SENT] = block.room(npus * dims)
        row[R.FH_PAIR_START] = block.add(bounds(np.bincount(p.src, minlength=npus)))
        row[R.FH_PAIRS] = block.add(pairs)
        n_routes = len(p.latency_ns)
        row[R.FH_TOUCHED] = block.room(self._links)
        row[R.FH_LIVE] = block.room(self._links)
        row[R.FH_TIGHT] = block.room(self._links + 1)
        row[R.FH_HEAP], row[R.FH_MEMBERS] = block.room(n_routes + 1), block.room(n_routes)
        row[R.FH_PLAN], row[R.FH_SHARING] = L.NEVER, -1
        row[R.FH_ADAPTIVE] = adaptive
        row[R.FH_PORTS] = ports
        self.head = head[L.C_FLOW] = block.add(row)
        #: different ticks at which messages may be there that have left at one tick
        self.latencies = len(distinct(p.latency_ns))

    def set_trees(self, block: Block, groups: int, count: int) -> None:
        """Trees of switches go by the numbers of communicators, then of dimensions."""
        block.put(self.head + R.FH_GROUPS, np.array([groups, count], np.int64))

    def _add_links(self, block: Block, capacity: I64) -> None:
        rows = np.zeros((self._links, R.FLOW_LINK), np.int64)
        rows[:, R.FL_CAPACITY] = rows[:, R.FL_LEFT] = capacity
        rows[:, R.FL_USE] = self._use.rows()
        block.put(self.first, rows)

    def _add_routes(self, block: Block, p: Paths, entries: int) -> int:
        n = len(p.latency_ns)
        count = np.diff(p.start)
        rows = np.zeros((n, R.FLOW_ROUTE), np.int64)
        rows[:, R.FR_LATENCY] = p.latency_ns
        rows[:, R.FR_ENTRY] = entries + p.start[:-1] * R.FLOW_ENTRY
        rows[:, R.FR_ENTRIES] = count
        rows[:, R.FR_PLACE] = -1
        return block.add(rows)

    def _add_entries(self, block: Block, p: Paths, entries: int, routes: int) -> None:
        rows = np.zeros((len(p.link), R.FLOW_ENTRY), np.int64)
        rows[:, R.FE_ROUTE] = (
            routes + np.repeat(np.arange(len(p.latency_ns)), np.diff(p.start)) * R.FLOW_ROUTE
        )
        rows[:, R.FE_LINK] = self.first + p.link * R.FLOW_LINK
        rows[:, R.FE_WEIGHT] = p.weight
        block.put(entries, rows)

    def carried(self, m: I64) -> tuple[I64, I64]:
        """Numbers of the links that carried something, and bytes, busy ns and queued ns (none) of each."""
        rows = m[self.first : self.first + self._links * R.FLOW_LINK].reshape(-1, R.FLOW_LINK)
        if self._link_of is not None:
            rows = rows[self._link_of]
        used = np.flatnonzero(rows[:, R.FL_MESSAGES] > 0)
        figures = np.stack(
            [rows[used, R.FL_BYTES], rows[used, R.FL_BUSY_NS], np.zeros(len(used), np.int64)], axis=1
        )
        return used, figures

    def over_time(self, m: I64, end_ns: int) -> tuple[tuple[int, F64] | None, I64, I64, I64]:
        """Use of the links over time, the rows that carried something, links of each, and the first of them."""
        rows = m[self.first : self.first + self._links * R.FLOW_LINK].reshape(-1, R.FLOW_LINK)
        state = State(m, np.zeros(0))
        for k in np.flatnonzero(rows[:, R.FL_FIRST] != L.NIL).tolist():  # of a run that was ended early
            note_use(state, self.first + k * R.FLOW_LINK)
        used = np.flatnonzero(rows[:, R.FL_MESSAGES] > 0)
        table = self._use.table(m, end_ns)
        if table is not None:  # shares of what links are given, not of what is counted
            table = table[0], table[1] * self._counted[:, None]
        if self._link_of is None:
            return table, used, np.ones(len(used), np.int64), used
        classes, first, count = np.unique(self._link_of, return_index=True, return_counts=True)
        weight, at = np.zeros(self._links, np.int64), np.zeros(self._links, np.int64)
        weight[classes], at[classes] = count, first
        order = used[np.argsort(at[used], kind="stable")]
        return table, order, weight[order], at[order]

    def sent(self, m: I64) -> I64:
        """Bytes sent by each NPU that is simulated, by logical dimension."""
        return m[self._sent : self._sent + self._npus * self._dims].reshape(self._npus, self._dims).copy()

    def solved(self, m: I64) -> tuple[int, int]:
        """How often rates were computed, and of how many routes."""
        return int(m[self.head + R.FH_SOLVED]), int(m[self.head + R.FH_VISITED])
