"""A timeline as columns: slices on rows, flows between slices, counters over time. All times are integer
nanoseconds."""

from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from chakra.arguments import checked
from chakra.arrays import F64, I32, I64, Bool

#: Category names, by code: the colour groups of viewers.
CATEGORIES: Final = ("cpu", "compute", "communication", "memory", "other")


@dataclass(frozen=True, slots=True)
class Row:
    """One thread of a viewer: the rank (process) it belongs to, its name and its place among the rank's
    rows.

    Attributes
    ----------
    rank
        The rank (process).
    name
        Name of the row.
    place
        Place among the rank's rows.
    """

    rank: int
    name: str
    place: int


@dataclass(frozen=True, slots=True, eq=False)
class Counter:
    """A quantity over time on one rank; ``time_ns`` ascending, ``value`` of the same length.

    Attributes
    ----------
    rank
        The rank (process).
    name
        What is counted.
    unit
        Its unit.
    time_ns
        (n,) int64, ascending, ns.
    value
        (n,) values from that time on.
    """

    rank: int
    name: str
    unit: str
    time_ns: I64
    value: F64


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """Slices, flows and counters.

    Attributes
    ----------
    rows
        All rows; slices name them by index. On a row, slices nest or do not touch (see
        ``lanes.assign_lanes``).
    row, start_ns, duration_ns, name, category, node
        (n,) columns of the slices: int32, int64, int64, int32 into ``names``, int32 into ``CATEGORIES``,
        int64 id of the trace's node (-1: none).
    flow_from, flow_to
        (f,) int64 slice indices; an arrow each.
    process_names
        Rank -> name of its process; ``rank N`` where it is absent.
    source
        What the timeline was made from, for the file's metadata.
    names
        Names of slices.
    counters
        Quantities over time.
    remarks
        What the reader should know of the recording, a line each.
    """

    rows: tuple[Row, ...]
    row: I32
    start_ns: I64
    duration_ns: I64
    name: I32
    names: tuple[str, ...]
    category: I32
    node: I64
    flow_from: I64
    flow_to: I64
    counters: tuple[Counter, ...] = ()
    process_names: dict[int, str] = field(default_factory=dict)
    source: str = ""
    remarks: tuple[str, ...] = ()

    @property
    def n_slices(self) -> int:
        """Number of slices."""
        return len(self.row)

    @property
    def n_flows(self) -> int:
        """Number of flows."""
        return len(self.flow_from)

    def ranks(self) -> list[int]:
        """Ranks that have rows or counters, ascending."""
        return sorted({row.rank for row in self.rows} | {counter.rank for counter in self.counters})

    def process_name(self, rank: int) -> str:
        """Name of a rank's process."""
        return self.process_names.get(rank, f"rank {rank}")

    @checked
    def kept(self, keep: Bool) -> "Timeline":
        """The timeline with the marked slices only, and the flows and rows that those need; ``keep`` is (n,)
        bool."""
        number = np.cumsum(keep) - 1
        flows = keep[self.flow_from] & keep[self.flow_to]
        used, row = np.unique(self.row[keep], return_inverse=True)
        return replace(
            self,
            rows=tuple(self.rows[i] for i in used.tolist()),
            row=row.astype(np.int32),
            start_ns=self.start_ns[keep],
            duration_ns=self.duration_ns[keep],
            name=self.name[keep],
            category=self.category[keep],
            node=self.node[keep],
            flow_from=number[self.flow_from[flows]],
            flow_to=number[self.flow_to[flows]],
        )
