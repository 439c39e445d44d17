"""Where points run: here, in threads, in processes, or on a Dask cluster; one interface for all."""

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    Executor,
    Future,
    ThreadPoolExecutor,
    wait,
)
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from typing import Any, ParamSpec, Protocol, TypeVar

from chakra.arguments import checked
from chakra.errors import UsageError
from chakra.io.digits import is_whole, whole_number
from chakra.workers import close_after, worker_pool

#: more processes or threads are surely a mistake
MAX_WORKERS = 4096
#: what a call takes and returns
_Given = ParamSpec("_Given")
_Made = TypeVar("_Made")
#: in its place where its worker died
Lost = dict[str, str]
Task = dict[str, object]


class Runner(Protocol):
    """Runs a function on many tasks."""

    def __call__(
        self, function: Callable[..., _Made], tasks: Sequence[Task]
    ) -> Iterator[tuple[int, _Made | Lost]]:
        """Yield (index of the task, result) as they come."""
        ...


def _serial(function: Callable[..., _Made], tasks: Sequence[Task]) -> Iterator[tuple[int, _Made | Lost]]:
    for index, task in enumerate(tasks):
        yield index, function(**task)


class _Threads(ThreadPoolExecutor):
    """Threads that are a part of what the caller does: what they read is its input (`chakra.io.inputs`)."""

    def submit(
        self, fn: Callable[_Given, _Made], /, *args: _Given.args, **kwargs: _Given.kwargs
    ) -> Future[_Made]:
        """Run a function in one of them."""
        return super().submit(partial(copy_context().run, fn, *args, **kwargs))


class _Pool:
    """Threads or processes. A process that dies takes the whole pool with it: those under suspicion then run alone."""

    def __init__(self, make: Callable[[], Executor], width: int) -> None:
        self._make, self._width = make, width
        self._executor = make()

    def close(self) -> None:
        """End all workers; what has not started is dropped."""
        self._executor.shutdown(wait=True, cancel_futures=True)

    def close_after(self, error: BaseException) -> None:
        """The same after an exception; one that interrupts waits for no task in another process."""
        close_after(self._executor, error)

    def __call__(
        self, function: Callable[..., _Made], tasks: Sequence[Task]
    ) -> Iterator[tuple[int, _Made | Lost]]:
        """Run the function on every task."""
        waiting: dict[Future[_Made], int] = {}
        following = 0
        try:
            while waiting or following < len(tasks):
                # a short queue: an interrupted study leaves little behind
                while following < len(tasks) and len(waiting) < 2 * self._width:
                    try:
                        future = self._executor.submit(function, **tasks[following])
                    except BrokenProcessPool:
                        if not waiting:
                            self._renew()
                            continue
                        break  # a worker has just died: its futures say so
                    waiting[future] = following
                    following += 1
                done, _ = wait(waiting, return_when=FIRST_COMPLETED)
                suspects = []
                for future in done:
                    index = waiting.pop(future)
                    try:
                        result = future.result()
                    except BrokenProcessPool:
                        suspects.append(index)
                        continue
                    yield index, result
                if suspects:
                    suspects += waiting.values()
                    waiting.clear()
                    yield from self._alone(function, tasks, sorted(suspects))
        finally:
            for future in waiting:
                future.cancel()

    def _alone(
        self, function: Callable[..., _Made], tasks: Sequence[Task], indices: Sequence[int]
    ) -> Iterator[tuple[int, _Made | Lost]]:
        self._renew()
        for index in indices:
            result: _Made | Lost
            try:
                result = self._executor.submit(function, **tasks[index]).result()
            except BrokenProcessPool:
                result = {"status": "failed", "reason": "the worker process died (out of memory?)"}
                self._renew()
            yield index, result

    def _renew(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)
        self._executor = self._make()


@contextmanager
@checked
def runner(
    *, workers: int | None = None, threads: bool = False, scheduler: str | None = None
) -> Iterator[Runner]:
    """Open a place to run points.

    Parameters
    ----------
    workers
        Parallel runs; default: all cores. 1 runs everything in this process.
    threads
        Threads instead of processes.
    scheduler
        Address of a Dask scheduler (``tcp://host:8786``); needs the ``cluster`` extra. Workers that die are replaced by
        others: their points run again.

    Raises
    ------
    UsageError
        No workers, no Dask, or no answer at the address.
    """
    if scheduler is not None:
        with _dask(scheduler) as run:
            yield run
        return
    count = workers if workers is not None else (os.cpu_count() or 1)
    if not 1 <= count <= MAX_WORKERS:
        raise UsageError(f"from 1 to {MAX_WORKERS} workers are possible, not {count}")
    if count == 1:
        yield _serial
        return
    pool = _Pool(
        (lambda: _Threads(count)) if threads else (lambda: worker_pool(count)),
        count,
    )
    try:
        yield pool
    except BaseException as error:
        pool.close_after(error)
        raise
    pool.close()


def _knock(address: str) -> None:
    """Refuse an address where nothing listens.

    A client of Dask that cannot connect is left half made, and may block the process when it is collected.
    """
    scheme, _, place = address.rpartition("://")
    host, _, port = place.partition("/")[0].rpartition(":")
    try:
        if scheme not in ("", "tcp", "tls") or not is_whole(port, 5):
            raise ValueError("an address is tcp://HOST:PORT or tls://HOST:PORT")
        socket.create_connection((host.strip("[]"), whole_number(port)), timeout=10).close()
    except (OSError, ValueError, OverflowError) as error:
        raise UsageError(f"no Dask scheduler answers at {address}: {error}") from None


@contextmanager
def _dask(address: str) -> Iterator[Runner]:
    try:
        from distributed import Client, as_completed
    except ImportError:
        raise UsageError("--scheduler needs Dask: pip install 'chakra-replay[cluster]'") from None
    _knock(address)
    try:
        client = Client(address, timeout="10s", set_as_default=False)  # type: ignore[no-untyped-call,unused-ignore]
    except (OSError, ValueError, TimeoutError) as error:
        raise UsageError(f"no Dask scheduler answers at {address}: {error}") from None

    def run(function: Callable[..., _Made], tasks: Sequence[Task]) -> Iterator[tuple[int, _Made | Lost]]:
        # pure=False: every task has a name of its own; retries cover workers that die
        futures = {client.submit(function, **task, pure=False, retries=3): i for i, task in enumerate(tasks)}
        arriving: Any = as_completed
        for future in arriving(list(futures), loop=client.loop, raise_errors=False):
            index = futures[future]
            # Not by future.status: a result that died with its worker after it had arrived reads "lost" until it has
            # been made again, and result() waits for that.
            result: _Made | Lost
            try:
                result = future.result()
            except Exception as error:  # whatever the cluster raises is this point's reason
                result = {"status": "failed", "reason": f"{type(error).__name__} on the cluster"}
            yield index, result
            future.release()

    try:
        yield run
    finally:
        client.close()  # type: ignore[no-untyped-call,unused-ignore]
