"""One flat block of 64-bit integers that holds all tables and all state of a kernel.

A kernel gets the block and, for each table, the cell at which it starts. One array instead of a hundred keeps compiling
fast, makes leaving and re-entering a kernel free, and lets the last table grow by appending cells.
"""

import numpy as np

from chakra.arrays import I64, AnyArray


class Layout:
    """Collects tables, then builds the block."""

    def __init__(self) -> None:
        self._parts: list[tuple[int, int, AnyArray | int]] = []
        self._size = 0

    @property
    def size(self) -> int:
        """Cells of all tables so far."""
        return self._size

    def put(self, values: AnyArray) -> int:
        """Add a table; returns the cell at which it starts."""
        start = self._size
        self._parts.append((start, len(values), values))
        self._size += len(values)
        return start

    def room(self, cells: int, fill: int = 0) -> int:
        """Add `cells` cells that start as `fill`."""
        start = self._size
        self._parts.append((start, cells, fill))
        self._size += cells
        return start

    def build(self) -> I64:
        """The block."""
        block = np.empty(self._size, np.int64)
        for start, cells, values in self._parts:
            block[start : start + cells] = values
        return block
