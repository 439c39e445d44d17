"""Files that a command has read: its output does not take the place of one."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

#: numbers of the files that were read in a block of `inputs_kept`, which each thread has for itself; None outside
_inputs: ContextVar[set[tuple[int, int]] | None] = ContextVar("inputs", default=None)


@contextmanager
def inputs_kept() -> Iterator[None]:
    """Files that were read in this block are not overwritten in it: a result would take the place of what it is of.

    A thread that runs a part of the block needs a copy of its context (`contextvars.copy_context`).
    """
    token = _inputs.set(set())
    try:
        yield
    finally:
        _inputs.reset(token)


def number(found: os.stat_result) -> tuple[int, int]:
    """What all names of a file have in common."""
    return found.st_dev, found.st_ino


def note_input(found: os.stat_result) -> None:
    """Note that a file is read."""
    noted = _inputs.get()
    if noted is not None and stat.S_ISREG(found.st_mode):
        noted.add(number(found))


def note_new(handle: int) -> None:
    """Note that a file has been made: the numbers of removed files come again."""
    noted = _inputs.get()
    if noted:
        noted.discard(number(os.fstat(handle)))


def is_input(path: str | os.PathLike[str]) -> bool:
    """Whether a file has been read in the block."""
    noted = _inputs.get()
    if not noted:
        return False
    try:
        return number(os.stat(path)) in noted
    except (OSError, ValueError):  # there is no such file, or a NUL in the name
        return False
