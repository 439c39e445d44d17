"""`chakra warmup`: compile the kernels of traces and replays into the cache, so that no later run waits for it."""

import contextlib
import importlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import rich_click as click

NETWORK = {"topology": ["Ring", "Switch"], "npus_count": [2, 2], "bandwidth": [50, 50], "latency": [500, 500]}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-q", "--quiet", is_flag=True, help="Say nothing.")
def command(quiet: bool) -> None:
    """Compile the kernels of reading, writing and replaying traces into the cache.

    Big inputs run compiled code; without this the first big run waits up to a minute or two for the compiler. The cache
    is in CHAKRA_CACHE_DIR, else in the user's cache folder. Kernels of drawing, timelines and PyTorch traces are
    compiled when first used.
    """
    for number, (name, part) in enumerate(PARTS, 1):
        start = time.monotonic()
        part()
        if not quiet:
            click.echo(
                f"chakra warmup: {number}/{len(PARTS)} {name}: {time.monotonic() - start:.1f} s", err=True
            )


@contextlib.contextmanager
def _set(module: str, **values: Any) -> Iterator[None]:
    """Bounds of a module for a while, so that a small input takes the way of a large one."""
    where = importlib.import_module(module)
    before = {name: getattr(where, name) for name in values}
    try:
        for name, value in values.items():
            setattr(where, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(where, name, value)


def _workload() -> Any:
    from chakra.builder import TraceBuilder, Workload

    work = Workload(4)

    def program(b: TraceBuilder) -> None:
        first = b.compute(duration_micros=1)
        b.collective("all-reduce", size_bytes=4096, after=first)
        b.send((b.rank + 1) % 4, size_bytes=64)
        b.recv((b.rank - 1) % 4, size_bytes=64)

    work.run(program)
    return work


def traces() -> None:
    """Writing, reading and ordering a trace."""
    from chakra.et import read_trace, write_trace

    small = {"KERNEL_THRESHOLD": 0, "NUMBA_THRESHOLD": 0, "LOADED_THRESHOLD": 0}
    with (
        tempfile.TemporaryDirectory() as folder,
        _set("chakra.et.codec", **small),
        _set("chakra.et.graph", KERNEL_THRESHOLD=0, WARM_THRESHOLD=0),
    ):
        path = os.path.join(folder, "warmup.0.et")
        write_trace(_workload().trace_of(0), path)
        trace = read_trace(path)
        trace.children()
        trace.topological_order()


def _replay(module: str, algorithm: str, **options: Any) -> None:
    simulate = importlib.import_module("chakra.replay").simulate
    system = {"all-reduce-implementation": [algorithm] * 2}
    with _set(module, COMPILE_FROM=(0, 0, 0)):
        simulate(_workload().traces(), system, NETWORK, **options)


def phases() -> None:
    """Replays without events for messages."""
    _replay("chakra.replay.phase_engine", "ring")
    _replay("chakra.replay.phase_engine", "rabenseifner")


def messages() -> None:
    """Replays of every message."""
    _replay("chakra.replay.message_engine", "ring", backend="aware", engine="messages")


PARTS: tuple[tuple[str, Callable[[], None]], ...] = (
    ("traces", traces),
    ("replay by phases", phases),
    ("replay by messages", messages),
)
