"""Temporary files beside their targets: how they are called, and how those of killed runs are found and removed.

A writer holds a lock on its temporary file or folder for as long as it lives. The next writer into the same folder
removes what nobody holds; what is younger than a few seconds stays, because its writer may be about to take the lock.
"""

import contextlib
import importlib
import os
import re
import shutil
from pathlib import Path
from typing import Any

fcntl: Any
try:
    fcntl = importlib.import_module("fcntl")
except ImportError:  # Windows: nothing is locked there, so nothing is removed
    fcntl = None

#: how the name of every temporary file or folder ends
SUFFIX = ".chakra-tmp"
_NAME = re.compile(r"\..*\.[a-z0-9_]{8}" + re.escape(SUFFIX), re.DOTALL)
_YOUNG_S = 10.0

#: folders that this process has looked at; a writer of a million files does so once
_seen: set[str] = set()


def prefix(name: str) -> str:
    """How the temporary name of a target begins; the target's own name may be as long as names can be."""
    return f".{os.fsencode(name)[:100].decode('utf-8', 'ignore')}."


def hold(handle: int) -> None:
    """Say, until the handle is closed, that the file or folder behind it is in use."""
    if fcntl is not None:
        with contextlib.suppress(OSError):  # some file systems know no locks
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def remove(folder: Path) -> None:
    """Remove what killed runs left in a folder."""
    key = os.fspath(folder)
    if fcntl is None or key in _seen:
        return
    _seen.add(key)
    with contextlib.suppress(OSError):
        names = [name for name in os.listdir(folder) if name.endswith(SUFFIX) and _NAME.fullmatch(name)]
        if names:
            now = _file_clock(folder)
            for name in names:
                with contextlib.suppress(OSError):
                    _remove_unheld(folder / name, now)


def _file_clock(folder: Path) -> float:
    """The time by the clock that stamps the folder's files, s."""
    import tempfile

    with tempfile.TemporaryFile(dir=folder) as file:
        return os.fstat(file.fileno()).st_mtime


def _remove_unheld(path: Path, now: float) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if now - os.fstat(handle).st_mtime < _YOUNG_S:
            return
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    finally:
        os.close(handle)
