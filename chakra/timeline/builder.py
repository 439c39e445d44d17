"""Collecting slices from a source into a `Timeline`."""

from collections.abc import Sequence

import numpy as np

from chakra.arrays import I64, Bool
from chakra.timeline.lanes import with_lanes
from chakra.timeline.model import CATEGORIES, Counter, Row, Timeline


class TimelineBuilder:
    """Grows columns; rows and names are interned, lanes are assigned at the end.

    Parameters
    ----------
    source
        What the timeline is made from.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self.counters: list[Counter] = []
        self.process_names: dict[int, str] = {}
        self._rows: dict[tuple[int, str], int] = {}
        self._row_list: list[Row] = []
        self._nests: list[bool] = []
        self._names: dict[str, int] = {}
        self._slices: list[tuple[int, int, int, int, int, int]] = []
        self._blocks: list[I64] = []
        self._held = 0
        self._flows: list[tuple[int, int]] = []

    def row(self, rank: int, name: str, place: int, *, nests: bool) -> int:
        """Number of a rank's row; ``place`` orders rows, ``nests`` says whether its slices are calls in
        calls."""
        key = (rank, name)
        if key not in self._rows:
            self._rows[key] = len(self._row_list)
            self._row_list.append(Row(rank, name, place))
            self._nests.append(nests)
        return self._rows[key]

    def slice(
        self, row: int, name: str, category: str, start_ns: int, duration_ns: int, node: int = -1
    ) -> int:
        """Add a slice; its number, for flows."""
        code = self._names.setdefault(name, len(self._names))
        self._slices.append((row, start_ns, duration_ns, code, CATEGORIES.index(category), node))
        self._held += 1
        return self._held - 1

    def slices(
        self, rows: I64, names: Sequence[str], categories: I64, times: tuple[I64, I64], nodes: I64
    ) -> int:
        """Add many slices; the number of the first. ``times`` are start and duration in ns, categories codes."""
        self._flush()
        first = self._held
        table = self._names
        codes = np.fromiter((table.setdefault(name, len(table)) for name in names), np.int64, len(names))
        self._blocks.append(np.stack([rows, *times, codes, categories, nodes], axis=1))
        self._held += len(rows)
        return first

    def _flush(self) -> None:
        if self._slices:
            self._blocks.append(np.array(self._slices, np.int64))
            self._slices = []

    def flow(self, source: int, target: int) -> None:
        """Add an arrow from one slice to another."""
        self._flows.append((source, target))

    def build(self) -> Timeline:
        """The timeline, its rows split where slices overlap by halves."""
        self._flush()
        columns = np.concatenate([np.zeros((0, 6), np.int64), *self._blocks])
        flows = np.array(self._flows, np.int64).reshape(-1, 2)
        timeline = Timeline(
            rows=tuple(self._row_list),
            row=columns[:, 0].astype(np.int32),
            start_ns=np.ascontiguousarray(columns[:, 1]),
            duration_ns=np.ascontiguousarray(columns[:, 2]),
            name=columns[:, 3].astype(np.int32),
            names=tuple(self._names),
            category=columns[:, 4].astype(np.int32),
            node=np.ascontiguousarray(columns[:, 5]),
            flow_from=np.ascontiguousarray(flows[:, 0]),
            flow_to=np.ascontiguousarray(flows[:, 1]),
            counters=tuple(self.counters),
            process_names=self.process_names,
            source=self.source,
        )
        nests: Bool = np.array(self._nests, np.bool_)
        return with_lanes(timeline, nests[timeline.row] if len(nests) else np.zeros(0, np.bool_))
