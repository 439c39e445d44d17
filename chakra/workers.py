"""Worker processes that end with the process that started them, even when that one is killed or interrupted."""

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import connection, get_context, parent_process

from chakra.garbage import collect_rarely


def worker_pool(count: int) -> ProcessPoolExecutor:
    """A pool of fresh processes (numba's and numpy's threads do not survive a fork)."""
    return ProcessPoolExecutor(count, mp_context=get_context("spawn"), initializer=_begin)


@contextmanager
def workers(count: int) -> Iterator[ProcessPoolExecutor]:
    """Such a pool for a block: its end waits for all tasks, a failure for those that run, an interruption for none."""
    pool = worker_pool(count)
    try:
        yield pool
    except BaseException as error:
        close_after(pool, error)
        raise
    pool.shutdown()


def close_after(pool: Executor, error: BaseException) -> None:
    """Close a pool after an exception.

    An interruption kills its processes: compilers and compiled code hear no signal until they return. Tasks write
    nothing that a killed one must not leave.
    """
    if isinstance(error, Exception) or not isinstance(pool, ProcessPoolExecutor):
        pool.shutdown(cancel_futures=True)
        return
    # no public name before Python 3.14 (`kill_workers`)
    running = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for process in running:
        process.kill()


def _begin() -> None:
    """What a worker does first; Ctrl-C reaches all processes at a terminal, and is the parent's to answer."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    collect_rarely()
    _end_with_parent()


def _end_with_parent() -> None:
    """Watch the parent: a worker of a killed one would wait for tasks for ever, as its siblings hold the pipe open."""
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_watch, args=(parent.sentinel,), daemon=True).start()


def _watch(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)
