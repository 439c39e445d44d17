"""Files that a command has read: its output does not take the place of one."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

#: numbers of the files that were read in a block of `inputs_kept`; None outside
_inputs: set[tuple[int, int]] | None = None


@contextmanager
def inputs_kept() -> Iterator[None]:
    """Files that were read in this block are not overwritten in it: a result would take the place of what it is of."""
    global _inputs
    before, _inputs = _inputs, set()
    try:
        yield
    finally:
        _inputs = before


def number(found: os.stat_result) -> tuple[int, int]:
    """What all names of a file have in common."""
    return found.st_dev, found.st_ino


def note_input(found: os.stat_result) -> None:
    """Note that a file is read."""
    if _inputs is not None and stat.S_ISREG(found.st_mode):
        _inputs.add(number(found))


def note_new(handle: int) -> None:
    """Note that a file has been made: the numbers of removed files come again."""
    if _inputs:
        _inputs.discard(number(os.fstat(handle)))


def is_input(path: str | os.PathLike[str]) -> bool:
    """Whether a file has been read in the block."""
    return bool(_inputs) and os.path.exists(path) and number(os.stat(path)) in (_inputs or ())
