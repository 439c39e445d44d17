"""Measured times of matrix products in place of the model: which products they stand for, and what lies between them.

Between measured sizes time is linear in m, in n and in k: of the eight measured products around one. Nothing is taken
from beyond the smallest and the largest size, nor where one of the eight was not measured; the model's time stands there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import product as choices
from typing import Protocol

import numpy as np

from chakra.arrays import F64, I64, Bool
from chakra.et.operators import ELEMENT_BITS, Direction, MatrixProduct


class Left(StrEnum):
    """Why an operator keeps the time of the model, in words that stand behind a number of them."""

    MEMORY = "bound by memory"
    ATTENTION = "of attention"
    ROLE = "convolutions or recurrences"
    BATCH = "batches of products (experts)"
    RESULT = "with results of another type than their table's"
    CAST = "gradients of weights below 16 bits (the table's times bring activations into the type first)"
    TYPE = "of types without a table"
    OUTSIDE = "outside the measured sizes"


@dataclass(frozen=True, slots=True)
class Grid:
    """Measured products of one element type.

    Attributes
    ----------
    axes
        Values of m, of n and of k that were measured, ascending.
    places
        Which products were: places in the grid of all values, m first, ascending.
    times_us
        (places,): their times, us.
    """

    axes: tuple[I64, I64, I64]
    places: I64
    times_us: F64

    def at(self, sizes: I64) -> F64:
        """Times of products, us, from (3, products) m, n and k; NaN where nothing measured is around one."""
        corners, shares = [], []
        inside: Bool = np.ones(sizes.shape[1], np.bool_)
        for axis, size in zip(self.axes, sizes, strict=True):
            inside &= (axis[0] <= size) & (size <= axis[-1])
            low = np.clip(np.searchsorted(axis, size, side="right") - 1, 0, max(0, len(axis) - 2))
            high = np.minimum(low + 1, len(axis) - 1)
            width = np.maximum(axis[high] - axis[low], 1)
            share = np.clip((size - axis[low]) / width, 0.0, 1.0)
            corners.append((low, high))
            shares.append((1.0 - share, share))
        out: F64 = np.where(inside, 0.0, np.nan)
        for m, n, k in choices((0, 1), repeat=3):
            weight = shares[0][m] * shares[1][n] * shares[2][k]
            # a product that was measured itself needs none of its neighbours
            counts = weight > 0
            time = self._measured(corners[0][m], corners[1][n], corners[2][k])
            out[counts] += (weight * time)[counts]
        return out

    def _measured(self, m: I64, n: I64, k: I64) -> F64:
        """Times at places on the axes, us; NaN where none was measured."""
        place = np.ravel_multi_index((m, n, k), tuple(len(axis) for axis in self.axes))
        index = np.minimum(np.searchsorted(self.places, place), len(self.places) - 1)
        found: F64 = np.where(self.places[index] == place, self.times_us[index], np.nan)
        return found


def grid_of(sizes: I64, times_us: F64) -> Grid:
    """The grid of measured products, (3, products) m, n and k; where one was measured several times, the median."""
    axes, places = [], []
    for size in sizes:
        axis, place = np.unique(size, return_inverse=True)
        axes.append(axis)
        places.append(place.reshape(-1))
    place = np.ravel_multi_index(places, tuple(len(axis) for axis in axes))
    order = np.lexsort((times_us, place))
    distinct, first, count = np.unique(place[order], return_index=True, return_counts=True)
    ordered = times_us[order]
    medians = (ordered[first + (count - 1) // 2] + ordered[first + count // 2]) / 2
    return Grid((axes[0], axes[1], axes[2]), distinct, medians)


class ProductTable(Protocol):
    """A table of measured products."""

    @property
    def name(self) -> str:
        """What results call it."""

    def grid(self, element: str) -> Grid | None:
        """Products of an element type; None: it has none."""


@dataclass(frozen=True, slots=True)
class MeasuredProducts:
    """Tables of measured products, asked one after the other.

    Attributes
    ----------
    tables
        The tables; the first that reaches a product has its time.
    """

    tables: tuple[ProductTable, ...]

    @property
    def name(self) -> str:
        """What results call them."""
        return ", ".join(table.name for table in self.tables)

    def times_us(self, products: Sequence[MatrixProduct]) -> tuple[F64, list[Left | None]]:
        """Times of products, us, and why one was not measured; NaN and a reason, or a time and None."""
        out = np.full(len(products), np.nan)
        why = [_unfit(product) for product in products]
        by_type: dict[str, list[int]] = {}
        for i, reason in enumerate(why):
            if reason is None:
                by_type.setdefault(products[i].type, []).append(i)
        for element, where in by_type.items():
            sizes = np.array([(products[i].m, products[i].n, products[i].k) for i in where], np.int64).T
            grids = [grid for table in self.tables if (grid := table.grid(element)) is not None]
            found = np.full(len(where), np.nan)
            for grid in grids:
                found = np.where(np.isnan(found), grid.at(sizes), found)
            out[where] = found
            reason = Left.OUTSIDE if grids else Left.TYPE
            for i, time in zip(where, found.tolist(), strict=True):
                why[i] = reason if np.isnan(time) else None
        return out, why


def _unfit(product: MatrixProduct) -> Left | None:
    """Why no table of plain products speaks of one, whatever its sizes."""
    if product.role in ("convolution", "scan") or product.bytes:
        return Left.ROLE
    if product.batch > 1:
        return Left.BATCH
    narrow = ELEMENT_BITS[product.type] < 16
    if product.result_type != ("bf16" if narrow else product.type):
        return Left.RESULT
    if narrow and product.direction is Direction.WEIGHT:
        return Left.CAST
    return None
