"""The layered layout: a column per topological level, a row per lane, in O(V log V + E).

Columns are wrapped into bands, one below the other like lines of text, so that a long serial trace becomes a
page and not a thread of a kilometre.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from chakra.arrays import F64, I32, I64, bounds, changes
from chakra.viz.graph.graph import Graph
from chakra.viz.graph.levels import order_and_levels

#: Size of a node's box and of the cell it stands in, in points.
NODE_WIDTH: Final = 118.0
NODE_HEIGHT: Final = 34.0
CELL_WIDTH: Final = 150.0
CELL_HEIGHT: Final = 46.0
#: Room on the left of every band for the lanes' names.
MARGIN: Final = 130.0
BAND_GAP: Final = 40.0
LANE_GAP: Final = 8.0
#: Nodes of one level and lane that are stacked before another column is opened.
STACK: Final = 16
#: Width by height that wrapping aims at.
ASPECT: Final = 1.5
_SWEEPS: Final = 3


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Where everything stands, in points from the top left corner of the drawing.

    Attributes
    ----------
    x, y
        (n,) float64: centres of the nodes.
    level
        (n,) int32: topological level.
    width, height
        Of the whole.
    band
        (n,) int64: the band each node is in.
    bands
        Top of every band.
    lane_tops
        (bands, lanes) float64: top of every lane in every band; NaN where a band has nothing in that lane.
    """

    x: F64
    y: F64
    level: I32
    width: float
    height: float
    band: I64
    bands: tuple[float, ...]
    lane_tops: F64


def layered(graph: Graph, *, wrap: bool = True) -> Layout:
    """Lay a graph out: level to column, lane to row, neighbours near each other; long drawings are
    wrapped."""
    n = graph.n_nodes
    _, level = order_and_levels(graph)
    lanes = len(graph.lane_names)
    cell = level.astype(np.int64) * max(lanes, 1) + graph.lanes
    slot = _slots(graph, level, cell)
    n_levels = int(level.max()) + 1 if n else 0
    columns = _columns(level, slot, n_levels)
    column = columns[level] + slot // STACK
    row = slot % STACK
    depth = np.zeros(lanes, np.int64)
    np.maximum.at(depth, graph.lanes, row + 1)
    total = int(columns[-1]) if n_levels else 0
    tall = float(depth.sum()) * CELL_HEIGHT + LANE_GAP * lanes + BAND_GAP
    per_band = _columns_per_band(total, tall) if wrap else max(total, 1)
    band = column // per_band
    bands, lane_tops, used = _heights(band, graph.lanes, row, lanes)
    # A short column of nodes stands in the middle of its lane, so that a chain runs straight.
    in_cell = np.bincount(cell, minlength=1)[cell] if n else np.zeros(0, np.int64)
    centred = (used[band, graph.lanes] - np.minimum(in_cell, STACK)) / 2
    return Layout(
        x=(MARGIN + (column % per_band + 0.5) * CELL_WIDTH).astype(np.float64),
        y=lane_tops[band, graph.lanes] + (row + centred + 0.5) * CELL_HEIGHT,
        level=level,
        width=MARGIN + min(per_band, max(total, 1)) * CELL_WIDTH + 10.0,
        height=bands[-1],
        band=band,
        bands=tuple(bands[:-1]),
        lane_tops=np.where(used > 0, lane_tops, np.nan),
    )


def _heights(band: I64, lanes: I32, row: I64, n_lanes: int) -> tuple[list[float], F64, I64]:
    """Tops of the bands (and the end), tops of their lanes, rows in each: a lane without nodes takes no
    room."""
    n_bands = int(band.max()) + 1 if len(band) else 1
    used = np.zeros((n_bands, max(n_lanes, 1)), np.int64)
    np.maximum.at(used, (band, lanes), row + 1)
    heights = np.where(used > 0, used * CELL_HEIGHT + LANE_GAP, 0.0)
    bands = np.concatenate([[0.0], np.cumsum(heights.sum(axis=1) + BAND_GAP)])
    tops = bands[:-1, None] + np.cumsum(heights, axis=1) - heights
    return bands.tolist(), tops, used


def _slots(graph: Graph, level: I32, cell: I64) -> I64:
    """Place of every node within its cell (level and lane), ordered by the mean place of its neighbours."""
    n = graph.n_nodes
    slot = _rank_within(cell, np.arange(n, dtype=np.float64))
    size = np.bincount(cell, minlength=1)
    if n == 0 or size.max() == 1:
        return slot
    for sweep in range(_SWEEPS):
        ahead, behind = (graph.dst, graph.src) if sweep % 2 == 0 else (graph.src, graph.dst)
        # Lanes first: a neighbour in a lane further down pulls down.
        place = graph.lanes * 1e4 + slot
        degree = np.bincount(ahead, minlength=n)
        pull = np.bincount(ahead, weights=place[behind], minlength=n) / np.maximum(degree, 1)
        slot = _rank_within(cell, np.where(degree > 0, pull, place))
    return slot


def _rank_within(cell: I64, key: F64) -> I64:
    order = np.lexsort((key, cell))
    ordered = cell[order]
    first = np.flatnonzero(changes(ordered))
    counts = np.diff(np.r_[first, len(cell)])
    rank = np.empty(len(cell), np.int64)
    rank[order] = np.arange(len(cell)) - np.repeat(first, counts)
    return rank


def _columns(level: I32, slot: I64, n_levels: int) -> I64:
    """First column of every level: a level has as many columns as its fullest lane needs."""
    widest = np.zeros(n_levels, np.int64)
    np.maximum.at(widest, level, slot // STACK + 1)
    return bounds(widest)


def _columns_per_band(total: int, band_height: float) -> int:
    width = total * CELL_WIDTH
    if width < 3 * ASPECT * band_height or total <= 12:
        return max(total, 1)
    bands = max(1, round(math.sqrt(width / (ASPECT * band_height))))
    return max(8, math.ceil(total / bands))
