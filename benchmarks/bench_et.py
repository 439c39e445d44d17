"""Nodes per second of reading, writing and resolving execution traces: python benchmarks/bench_et.py [NODES].

Best of several runs with kernels warm (they are compiled once and cached); the protobuf library reads a part
of the same file as a yardstick. ``small`` nodes have a name, a dependency and four or five attributes (about
80 bytes); ``converted`` ones look like a converter's output (about 500 bytes: argument texts, ten
attributes).
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from chakra.et import ABSENT, NodeType, Trace, TraceColumns, read_trace, read_traces, write_trace
from chakra.et import decode_protobuf as slow
from chakra.et.columns import Records
from chakra.schemas.et_def_pb2 import IOInfo


def small(n: int) -> TraceColumns:
    """A chain of compute nodes with an all-reduce after every fourth."""
    rng = np.random.default_rng(1)
    columns = TraceColumns(n)
    collective = np.arange(n) % 5 == 4
    columns.types[:] = np.where(collective, NodeType.COMM_COLL, NodeType.COMP)
    columns.duration_micros[:] = np.where(collective, 0, rng.integers(1, 1000, n))
    columns.set_names(np.arange(n) % 1000, [f"layer{k}.forward" for k in range(1000)])
    columns.set_data_deps(np.concatenate([[0], np.arange(n)]), np.arange(n - 1))
    columns.set_bool("is_cpu_op", 0)
    columns.set_int("num_ops", np.where(collective, ABSENT, 1_234_567))
    columns.set_int("tensor_size", np.where(collective, ABSENT, 4096))
    columns.set_int("comm_type", np.where(collective, 0, ABSENT))
    columns.set_int("comm_size", np.where(collective, 1 << 20, ABSENT))
    return columns


def converted(n: int) -> TraceColumns:
    """Nodes as a converter of PyTorch traces writes them."""
    columns = small(n)
    rng = np.random.default_rng(2)
    columns.set_ctrl_deps(np.concatenate([[0, 0], np.arange(1, n)]), np.maximum(np.arange(1, n) - 3, 0))
    table = [
        IOInfo(values=str(list(range(k, k + 24))), shapes="[[32, 64], []]", types="Tensor(float)")
        for k in range(97)
    ]
    columns.set_inputs(rng.integers(0, 97, n), table)
    columns.set_outputs(rng.integers(0, 97, n), table)
    for name in ("rf_id", "fw_parent", "seq_id", "scope", "tid", "fw_tid"):
        columns.set_int(name, rng.integers(0, 100_000, n))
    schemas = [f"aten::op{k}(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor" for k in range(200)]
    columns.set_text("op_schema", rng.integers(0, 200, n), schemas)
    return columns


def best(action: Callable[[], object], runs: int = 5) -> float:
    """Least CPU time of several runs, in seconds."""
    times = []
    for _ in range(runs):
        start = time.process_time()
        action()
        times.append(time.process_time() - start)
    return min(times)


def report(what: str, nodes: int, seconds: float) -> None:
    """One line of the table."""
    print(f"{what:<44}{seconds * 1e3:>10.1f} ms{nodes / seconds / 1e6:>9.2f} M nodes/s")


def protobuf_yardstick(trace: Trace) -> None:
    """The protobuf library on the first 20,000 nodes."""
    n = min(trace.n_nodes, 20_000)
    records = trace.records
    part = Records(records.data, records.starts[:n], records.ends[:n], records.meta_start, records.meta_end)
    report(f"  protobuf library, the first {n}", n, best(lambda: slow.decode(part, "part"), 2))


def measure(style: str, make: Callable[[int], TraceColumns], n: int, folder: Path) -> None:
    """All figures of one kind of file."""
    path = folder / f"{style}.et"
    columns = make(n)
    write_trace(columns, path)  # compiles
    trace = read_trace(path)
    trace.topological_order()
    print(f"{style}: {n} nodes, {path.stat().st_size / 1e6:.0f} MB")
    report("  read into columns, dependencies resolved", n, best(lambda: read_trace(path)))
    report("  encode columns", n, best(columns.encode, 3))
    report("  write a trace that was read", n, best(lambda: write_trace(trace, folder / "copy.et"), 3))
    report(
        "  children and topological order (fresh)", n, best(lambda: read_trace(path).topological_order(), 3)
    )
    protobuf_yardstick(trace)


def whole_process(path: Path) -> None:
    """Wall time of a new interpreter that reads the file."""
    for attempt in ("first", "second"):
        start = time.perf_counter()
        code = f"from chakra.et import read_trace; read_trace({str(path)!r})"
        subprocess.run([sys.executable, "-c", code], check=True)
        print(f"  a new process reads it ({attempt}){(time.perf_counter() - start) * 1e3:>21.1f} ms wall")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("nodes", type=int, nargs="?", default=1_000_000)
    n = parser.parse_args().nodes
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        measure("small", small, n, folder)
        whole_process(folder / "small.et")
        measure("converted", converted, n, folder)
        ranks = [folder / f"w.{rank}.et" for rank in range(1000)]
        write_trace(small(2000), ranks[0])
        for rank in ranks[1:]:
            rank.write_bytes(ranks[0].read_bytes())
        seconds = best(lambda: read_traces(ranks), 2)
        print(f"1000 ranks of 2000 equal nodes: {seconds * 1e3:.1f} ms")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    main()
