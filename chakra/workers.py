"""Worker processes that end with the process that started them, even when that one is killed or interrupted."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import connection, parent_process
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.process import BaseProcess
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

from chakra.errors import UsageError
from chakra.garbage import collect_rarely

_Given = ParamSpec("_Given")
_Made = TypeVar("_Made")


#: held while a process is started: another program stands in for the one that runs then
_starting = threading.Lock()


class _Process(SpawnProcess):
    """A fresh process that does not begin with the program which started it.

    Python's own runs the script again, to find what tasks may refer to; a script that calls us outside of
    ``if __name__ == "__main__":`` would then start workers in its workers. Our tasks are functions of modules.
    """

    @staticmethod
    def _Popen(process_obj: BaseProcess) -> Any:  # noqa: N802 - Python's name
        with _starting:
            program = sys.modules["__main__"]
            sys.modules["__main__"] = ModuleType("__main__")
            try:
                return SpawnProcess._Popen(process_obj)
            finally:
                sys.modules["__main__"] = program


class _Context(SpawnContext):
    Process = _Process


class _Pool(ProcessPoolExecutor):
    """Processes of that kind."""

    def submit(
        self, fn: Callable[_Given, _Made], /, *args: _Given.args, **kwargs: _Given.kwargs
    ) -> Future[_Made]:
        """Run a function of a module in one of them."""
        if getattr(fn, "__module__", None) == "__main__":
            raise UsageError(
                f"{getattr(fn, '__name__', fn)} is a function of the script that runs, which other processes do not "
                "know: put it into a module, or use threads"
            )
        return super().submit(fn, *args, **kwargs)


def worker_pool(count: int) -> ProcessPoolExecutor:
    """A pool of fresh processes (numba's and numpy's threads do not survive a fork).

    Its tasks are functions of modules: `submit` raises `chakra.errors.UsageError` for one of the script that runs.
    """
    return _Pool(count, mp_context=_Context(), initializer=_begin)


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
