"""One flat block of 64-bit integers that holds all rows, tables and state of a run.

Tables are laid one behind the other; what is known of them only later is written into the block when it is made. One
array instead of a hundred keeps compiling fast, makes leaving and re-entering a kernel free, and lets the last table
grow by appending words.
"""

from typing import Any

import numpy as np

from chakra.arrays import I64, AnyArray


class Block:
    """Collects tables, then makes the block."""

    def __init__(self) -> None:
        self._fills: list[tuple[int, int, int]] = []
        self._writes: list[tuple[int, AnyArray]] = []
        self._size = 0

    @property
    def size(self) -> int:
        """Words of all tables so far."""
        return self._size

    def add(self, values: Any) -> int:
        """Append a table, row after row; returns the word at which it starts."""
        table = np.asarray(values)
        start = self.room(table.size)
        self.put(start, table)
        return start

    def room(self, words: int, fill: int = 0) -> int:
        """Append so many words that start as `fill`; returns where they start."""
        start = self._size
        if fill:
            self._fills.append((start, words, fill))
        self._size += words
        return start

    def put(self, at: int, values: AnyArray) -> None:
        """Write values into a table that has been appended, over what was written there before."""
        if values.size:
            self._writes.append((at, values))

    def build(self, more: int = 0) -> I64:
        """The block, with `more` zeros behind its tables; called once, since it lets the tables go."""
        block = np.zeros(self._size + more, np.int64)
        for start, words, fill in self._fills:
            block[start : start + words] = fill
        self._writes.reverse()
        while self._writes:
            start, values = self._writes.pop()
            block[start : start + values.size] = values.reshape(-1)
        return block
