"""`chakra warmup`: compile all kernels into the cache, so that no later run waits for it."""

import contextlib
import importlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import as_completed
from dataclasses import replace
from typing import TYPE_CHECKING

import rich_click as click

from chakra.cli.support.command import ChakraCommand
from chakra.cli.support.options import format_option
from chakra.io.documents import document_text
from chakra.workers import workers

if TYPE_CHECKING:
    from chakra.builder import Workload

NETWORK = {"topology": ["Ring", "Switch"], "npus_count": [2, 2], "bandwidth": [50, 50], "latency": [500, 500]}


@click.command(cls=ChakraCommand)
@format_option("json: print what each part took as a document, too.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing.")
def command(output_format: str, quiet: bool) -> None:
    """Compile all kernels into the cache: traces, replays, drawings, timelines and PyTorch traces.

    Big inputs run compiled code; without this the first big run waits for the compiler, some ten seconds. The
    cache is in CHAKRA_CACHE_DIR, else in the user's cache folder. The parts are compiled side by side, one per CPU.
    """
    start = time.monotonic()
    parts = []
    for number, (name, seconds) in enumerate(compile_parts(_cpus()), 1):
        parts.append({"name": name, "seconds": round(seconds, 3)})
        if not quiet:
            click.echo(f"chakra warmup: {number}/{len(PARTS)} {name}: {seconds:.1f} s", err=True)
    whole = time.monotonic() - start
    if not quiet:
        click.echo(f"chakra warmup: done in {whole:.1f} s", err=True)
    if output_format == "json":
        document = {
            "schema": "chakra.warmup/1",
            "parts": parts,
            "seconds": round(whole, 3),
        }
        click.echo(document_text(document, indent=2))


def compile_parts(count: int) -> Iterator[tuple[str, float]]:
    """Compile every part, at most so many at a time; name and wall seconds of each, as they end."""
    if count == 1:
        yield from map(_timed, range(len(PARTS)))
        return
    # Compiling holds the interpreter's lock: threads would take turns. Their files are in a folder of this process: they
    # may be killed.
    with tempfile.TemporaryDirectory() as folder, workers(count) as pool:
        for done in as_completed([pool.submit(_timed_in, folder, number) for number in range(len(PARTS))]):
            yield done.result()


def _timed_in(folder: str, number: int) -> tuple[str, float]:
    tempfile.tempdir = folder
    return _timed(number)


def _timed(number: int) -> tuple[str, float]:
    name, part = PARTS[number]
    start = time.monotonic()
    part()
    return name, time.monotonic() - start


def _cpus() -> int:
    """CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextlib.contextmanager
def _set(module: str, **values: object) -> Iterator[None]:
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


def _workload() -> "Workload":
    from chakra.builder import TraceBuilder, Workload

    work = Workload(4)

    def program(b: TraceBuilder) -> None:
        first = b.compute(duration_micros=1)
        b.collective("all-reduce", size_bytes=4096, after=first)
        b.collective("broadcast", size_bytes=4096)
        b.send((b.rank + 1) % 4, size_bytes=64)
        b.recv((b.rank - 1) % 4, size_bytes=64)

    work.run(program)
    return work


def traces() -> None:
    """Writing, reading and ordering a trace, and summing it up."""
    from chakra.et import read_trace, write_trace
    from chakra.et.trace_summary import summarize

    names = ("COLD_THRESHOLD", "KERNEL_THRESHOLD", "NUMBA_THRESHOLD", "LOADED_THRESHOLD", "_BIG_FILE_BYTES")
    small = dict.fromkeys(names, 0)
    with (
        tempfile.TemporaryDirectory() as folder,
        _set("chakra.et.codec", **small),
        _set("chakra.et.graph", KERNEL_THRESHOLD=0, WARM_THRESHOLD=0),
    ):
        path = os.path.join(folder, "warmup.0.et")
        write_trace(_workload().trace_of(0), path)
        read_trace(path)
        trace = read_trace(path)  # records are framed by the kernel once it is loaded
        trace.children()
        summarize(trace)


def _replay(module: str, algorithm: str, **options: object) -> None:
    simulate = importlib.import_module("chakra.replay").simulate
    system = {"all-reduce-implementation": [algorithm] * 2}
    always = {"COMPILE_FROM": (0, 0, 0)}
    with _set(module, **always), _set("chakra.replay.engines.phases.durations", **always):
        simulate(_workload().traces(), system, NETWORK, **options)


def replays() -> None:
    """Both engines: in one process, what they share is compiled once."""
    messages()
    phases()


def phases() -> None:
    """Replays without events for messages."""
    _replay("chakra.replay.engines.phases.engine", "ring")
    _replay("chakra.replay.engines.phases.engine", "rabenseifner")


def messages() -> None:
    """Replays of every message."""
    _replay("chakra.replay.engines.messages.engine", "ring", backend="aware", engine="messages")


def routes() -> None:
    """Searching for routes over links, of every kind: one of several, all at once, and some to choose from."""
    import numpy as np

    from chakra.replay.networks.flow.link_paths import link_paths
    from chakra.replay.topologies import fat_tree

    network = fat_tree(down=[2, 2], up=[1, 2], bandwidth_gibps=50.0, latency_ns=500.0)
    pairs = np.array([[0, 3], [1, 2]], np.int64)
    with _set("chakra.replay.networks.flow.link_paths", COMPILE_FROM=(0, 0, 0)):
        for how in ("hash", "spray", "adaptive"):
            links = replace(network.links, ecmp=how) if network.links is not None else None
            link_paths(replace(network, links=links), pairs)


def drawings() -> None:
    """Ordering and levelling a graph to be drawn."""
    from chakra.viz import from_trace
    from chakra.viz.graph.levels import order_and_levels

    with _set("chakra.viz.graph.levels", _PLAIN=0):
        order_and_levels(from_trace(_workload().trace_of(0)))


def timelines() -> None:
    """Rows of overlapping slices, and Perfetto files."""
    simulate = importlib.import_module("chakra.replay").simulate
    from chakra.timeline import from_result, write_timeline

    result = simulate(_workload().traces(), {"all-reduce-implementation": ["ring"] * 2}, NETWORK)
    with (
        tempfile.TemporaryDirectory() as folder,
        _set("chakra.timeline.lanes", _PLAIN=0),
        _set("chakra.timeline.perfetto", _PLAIN=0),
    ):
        write_timeline(from_result(result), os.path.join(folder, "warmup.pftrace"))


def pytorch() -> None:
    """Nesting, pairing and ordering the events of a PyTorch trace, and checking what is written."""
    import numpy as np

    from chakra.converters.pytorch.match import attach

    with _set("chakra.converters.pytorch.match.attach", COMPILE_ABOVE=-1):
        kernels = attach.kernels(1)
    thread, start, end = (np.array([0, at], np.int64) for at in (0, 1, 2))
    parent, out = np.full(2, -1, np.int64), np.full(2, -1, np.int64)
    kernels.nest(thread, start, end, parent)
    kernels.innermost(thread, start, end, parent, thread, start, out)
    kernels.align(start, start, 2, out)
    kernels.pieces(thread, start, end, end, *(np.zeros(0, np.int64),) * 3, *np.empty((5, 8), np.int64))
    offsets, none, hold = np.zeros(3, np.int64), np.zeros(0, np.int64), np.full(2, -1, np.int64)
    kernels.replay(offsets, none, end, thread, 2, hold, out)
    kernels.replay(offsets, none.astype(np.int32), end, thread.astype(np.int32), 2, hold, out)


#: the longest first, so that they run side by side
PARTS: tuple[tuple[str, Callable[[], None]], ...] = (
    ("replays", replays),
    ("traces", traces),
    ("PyTorch traces", pytorch),
    ("timelines", timelines),
    ("routes", routes),
    ("drawings", drawings),
)
