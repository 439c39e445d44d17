"""Worker processes that end with the process that started them, even when that one is killed."""

import os
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import connection, get_context, parent_process


def worker_pool(count: int) -> ProcessPoolExecutor:
    """A pool of fresh processes (numba's and numpy's threads do not survive a fork)."""
    return ProcessPoolExecutor(count, mp_context=get_context("spawn"), initializer=_end_with_parent)


def _end_with_parent() -> None:
    """Watch the parent: a worker of a killed one would wait for tasks for ever, as its siblings hold the pipe open."""
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_watch, args=(parent.sentinel,), daemon=True).start()


def _watch(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)
