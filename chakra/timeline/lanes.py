"""Rows that nest: viewers shorten, swap or drop slices that overlap by halves, so such slices get rows of
their own."""

import importlib
from dataclasses import replace
from types import ModuleType
from typing import Final

import numpy as np

from chakra.arrays import I32, I64, Bool
from chakra.jit import compiled
from chakra.timeline.model import Row, Timeline

_PLAIN: Final = 20_000


def assign_lanes(track: I32, start_ns: I64, duration_ns: I64, nests: Bool) -> I32:
    """(n,) number of the row, within its track, that each slice goes to.

    Parameters
    ----------
    track
        (n,) slices of different tracks never share a row.
    nests
        (n,) whether a slice may lie inside another (calls on a thread) or needs a free row (transfers,
        parallel slots).
    """
    end = start_ns + duration_ns
    order = np.lexsort((-end, start_ns, track))
    lane = np.zeros(len(track), np.int32)
    if len(track):
        kernel: ModuleType
        if len(track) < _PLAIN:
            kernel = importlib.import_module("chakra.timeline._lanes_kernel")
        else:
            kernel = compiled("chakra.timeline._lanes_kernel")
        columns = [
            np.ascontiguousarray(column[order].astype(np.int64)) for column in (track, start_ns, end, nests)
        ]
        by_end = np.lexsort((columns[2], columns[0]))
        sorted_lane = np.zeros(len(track), np.int32)
        kernel.assign(*columns, by_end, sorted_lane)
        lane[order] = sorted_lane
    return lane


def with_lanes(timeline: Timeline, nests: Bool) -> Timeline:
    """The timeline with its rows split where slices overlap by halves; the second row of "x" is "x (2)"."""
    lane = assign_lanes(timeline.row, timeline.start_ns, timeline.duration_ns, nests)
    if not lane.any():
        return timeline
    keys, row = np.unique(np.stack([timeline.row, lane]), axis=1, return_inverse=True)
    rows = []
    for old, number in keys.T.tolist():
        base = timeline.rows[old]
        rows.append(Row(base.rank, base.name if number == 0 else f"{base.name} ({number + 1})", base.place))
    return replace(timeline, rows=tuple(rows), row=row.reshape(-1).astype(np.int32))


def half_overlaps(timeline: Timeline) -> int:
    """How many slices overlap another one of their row by halves; 0 in every timeline that is written."""
    end = timeline.start_ns + timeline.duration_ns
    order = np.lexsort((-end, timeline.start_ns, timeline.row))
    count, stack, current = 0, list[int](), -1
    rows, starts, ends = (column[order].tolist() for column in (timeline.row, timeline.start_ns, end))
    for row, begin, finish in zip(rows, starts, ends, strict=True):
        if row != current:
            stack, current = [], row
        while stack and stack[-1] <= begin:
            stack.pop()
        if stack and finish > stack[-1]:
            count += 1
        if finish > begin:
            stack.append(finish)
    return count
