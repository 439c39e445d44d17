"""Temporary files beside their targets: how they are called, and how those of killed runs are found and removed.

A writer holds a lock on its temporary file or folder for as long as it lives. The next writer into the same folder
removes what nobody holds; what is younger than a few seconds stays, because its writer may be about to take the lock.
"""

import atexit
import contextlib
import importlib
import os
import re
import secrets
import shutil
import string
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

fcntl: ModuleType | None
try:
    fcntl = importlib.import_module("fcntl")
except ImportError:  # Windows: nothing is locked there, so nothing is removed
    fcntl = None

#: how the name of every temporary file or folder ends
SUFFIX = ".chakra-tmp"
_NAME = re.compile(r"\..*\.[a-z0-9_]{8}" + re.escape(SUFFIX), re.DOTALL)
_YOUNG_S = 10.0
_LETTERS = string.ascii_lowercase + string.digits + "_"
_FLAGS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)

#: folders that this process has looked at; a writer of a million files does so once
_seen: set[str] = set()
#: temporary files and folders that are in use, and the process that made them
_ours: dict[Path, int] = {}


def prefix(name: str) -> str:
    """How the temporary name of a target begins; the target's own name may be as long as names can be."""
    return f".{os.fsencode(name)[:100].decode('utf-8', 'ignore')}."


def new_file(folder: Path, begin: str) -> tuple[int, Path]:
    """Make a temporary file in a folder, in use until its handle is closed; `begin` comes from `prefix`."""
    return _new(folder, begin, lambda path: os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _FLAGS, 0o600))


def new_folder(folder: Path, begin: str) -> tuple[int, Path]:
    """Make a temporary folder in a folder, in use until its handle is closed."""

    def make(path: Path) -> int:
        path.mkdir(0o700)
        return os.open(path, os.O_RDONLY) if fcntl is not None else os.open(os.devnull, os.O_RDONLY)

    return _new(folder, begin, make)


def drop(handle: int, path: Path) -> None:
    """Close and remove what `new_file` or `new_folder` made, if it is still there."""
    os.close(handle)
    _erase(path)
    _ours.pop(path, None)


def _new(folder: Path, begin: str, make: Callable[[Path], int]) -> tuple[int, Path]:
    while True:
        path = folder / f"{begin}{''.join(secrets.choice(_LETTERS) for _ in range(8))}{SUFFIX}"
        _ours[path] = os.getpid()  # before it is there: an interrupt may come at any point
        try:
            handle = make(path)
        except FileExistsError:
            del _ours[path]
            continue
        except BaseException:
            _erase(path)
            del _ours[path]
            raise
        if fcntl is not None:
            with contextlib.suppress(OSError):  # some file systems know no locks
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return handle, path


def _erase(path: Path) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError, ValueError):  # ValueError: a name that cannot be
            path.unlink(missing_ok=True)


@atexit.register
def _erase_ours() -> None:
    """Remove what an interrupt left between making a file and the block that removes it."""
    for path, process in list(_ours.items()):
        if process == os.getpid():  # not a worker's copy of its parent's list
            _erase(path)


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
    if fcntl is None:
        return
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if now - os.fstat(handle).st_mtime < _YOUNG_S:
            return
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _erase(path)
    finally:
        os.close(handle)
