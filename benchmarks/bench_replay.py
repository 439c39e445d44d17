"""Replay speed beside ASTRA-sim's own figures for the same work.

    python benchmarks/bench_replay.py [NAME ...] [--astra-sim FOLDER] [--scaling]

For every workload of the reference data (../shared/oracle/timing): CPU time of `simulate()` from paths with kernels
warm (least of three), CPU time of a whole `python -c` process, ASTRA-sim's CPU time, and the ratio. With --astra-sim,
the folder of its two analytical binaries (docs/validation.md says how they are built), ASTRA-sim runs beside it in this
run, for 120 s of wall time at most; without, its figures are those of the reference data, measured on a machine of the
same kind (see timing.md there). With --scaling: growth with the number of NPUs, folded against one by one, and compiled
against plain kernels, side by side in this run.
"""

import argparse
import gzip
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "differential"))
from astra_sim import FINISH, command_line

ROOT = Path(__file__).resolve().parent.parent
TIMING = ROOT.parent / "shared" / "oracle" / "timing"

WHOLE = """
import sys
from chakra.replay import simulate
simulate([sys.argv[1]] * int(sys.argv[2]), sys.argv[3], sys.argv[4], backend=sys.argv[5], compat="astra-sim")
"""


def cpu(run: Callable[[], Any], repeat: int = 3) -> tuple[float, Any]:
    """Least CPU seconds of some runs, and the last result."""
    best, result = float("inf"), None
    for _ in range(repeat):
        begin = time.process_time()
        result = run()
        best = min(best, time.process_time() - begin)
    return best, result


def whole_process(arguments: list[str]) -> float:
    """CPU seconds of a process that imports the package and runs one replay."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as elsewhere:
        subprocess.run([sys.executable, "-c", WHOLE, *arguments], check=True, cwd=elsewhere)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


#: seconds after which ASTRA-sim is stopped
PATIENCE_S = 120


def astra_sim(binaries: Path, work: dict[str, Any]) -> dict[str, Any]:
    """ASTRA-sim's user CPU seconds for a workload, whether it ended, and its last finish, measured now."""
    trace = TIMING / work["trace"]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        content = trace.read_bytes()
        (place / "trace.et").write_bytes(gzip.decompress(content) if trace.suffix == ".gz" else content)
        for npu in range(work["npus"]):
            (place / f"workload.{npu}.et").symlink_to("trace.et")
        (place / "system.json").write_text(json.dumps(work["system"]))
        (place / "network.yml").write_text(work["network"])
        (place / "memory.json").write_text('{"memory-type": "NO_MEMORY_EXPANSION"}')
        line = command_line(binaries, work["backend"])
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        try:
            done = subprocess.run(
                line, cwd=place, capture_output=True, text=True, timeout=PATIENCE_S, check=False
            )
        except subprocess.TimeoutExpired:
            done = None
        seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    ends = [int(t) for _, t, _ in FINISH.findall(done.stdout)] if done else []
    ended = done is not None and len(ends) == work["npus"]
    return {"user_s": seconds, "rc": 0 if ended else 124, "cycles_max": max(ends) if ended else None}


def against_astra_sim(names: list[str], binaries: Path | None) -> None:
    """The table of all workloads whose name contains one of `names` (all, if none is given)."""
    from chakra.replay import simulate

    if not TIMING.is_dir():
        print("no reference data (../shared/oracle/timing): skipped")
        return
    workloads = json.loads((TIMING / "workloads.json").read_text())
    figures = json.loads((TIMING / "astra-sim.json").read_text())
    row = "{:40} {:>9} {:>11} {:>11} {:>9}  {:9} {:>8}"
    print(row.format("workload", "ms", "process s", "ASTRA-sim s", "ratio", "engine", "classes"))
    with tempfile.TemporaryDirectory() as folder:
        for name, work in workloads.items():
            if names and not any(part in name for part in names):
                continue
            system, network = Path(folder) / "system.json", Path(folder) / "network.yml"
            system.write_text(json.dumps(work["system"]))
            network.write_text(work["network"])
            path, npus, backend = str(TIMING / work["trace"]), work["npus"], work["backend"]

            def run(
                path: str = path,
                npus: int = npus,
                backend: str = backend,
                s: Path = system,
                n: Path = network,
            ) -> Any:
                return simulate([path] * npus, s, n, backend=backend, compat="astra-sim")

            run()  # compiles what must be compiled
            seconds, result = cpu(run)
            process = whole_process([path, str(npus), str(system), str(network), backend])
            theirs = figures.get(name, {}) if binaries is None else astra_sim(binaries, work)
            known = theirs.get("user_s")
            finished = theirs.get("rc") == 0
            cycles = theirs.get("cycles_max")
            if finished and cycles is not None and cycles != int(result.finish_ns.max()):
                print(f"{name}: {int(result.finish_ns.max())} cycles, ASTRA-sim {cycles}: not the same work")
                continue
            print(
                row.format(
                    name,
                    f"{1000 * seconds:.2f}",
                    f"{process:.2f}",
                    "-" if known is None else f"{'' if finished else '>'}{known:.2f}",
                    "-" if known is None else f"{'' if finished else '>'}{known / seconds:.0f}",
                    result.raw.engine,
                    result.raw.partition.n_classes,
                ),
                flush=True,
            )


def scaling() -> None:
    """Growth with the number of NPUs; folded and one by one; compiled and plain."""
    from chakra.builder import TraceBuilder
    from chakra.replay import simulate
    from chakra.replay.engines.phases import engine as engine

    builder = TraceBuilder()
    builder.collective("ALL_REDUCE", size_bytes=64 << 20)
    trace = builder.build()
    kinds = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
    print("\nall-reduce of 64 MiB, 4 chunks; ms of CPU")
    print(f"{'NPUs':>8} {'ring':>9} {'halvingDoubling':>16} {'direct':>9} {'3-D mix':>9}")
    for n in (64, 512, 4096, 32768, 131072):
        cells = []
        for algorithm in ("ring", "halvingDoubling", "direct", "mix"):
            if algorithm == "direct" and n > 4096:
                cells.append("-")
                continue
            names = [algorithm] if algorithm != "mix" else ["ring", "halvingDoubling", "ring"]
            third = n // 64 if n > 64 else 2
            shape = [n] if algorithm != "mix" else [8, 8 if n > 64 else 4, third]
            system = {
                "endpoint-delay": 10,
                "preferred-dataset-splits": 4,
                "active-chunks-per-dimension": 1,
                "local-mem-bw": 50,
                "collective-optimization": "localBWAware",
                **{f"{kind}-implementation": names for kind in kinds},
            }
            network = {
                "topology": ["Switch"] * len(shape),
                "npus_count": shape,
                "bandwidth": [50.0] * len(shape),
                "latency": [500.0] * len(shape),
            }
            seconds, _ = cpu(lambda s=system, w=network, n=n: simulate([trace] * n, s, w))  # type: ignore[misc]
            cells.append(f"{1000 * seconds:.1f}")
        print(f"{n:>8} {cells[0]:>9} {cells[1]:>16} {cells[2]:>9} {cells[3]:>9}", flush=True)
    system = {
        "endpoint-delay": 10,
        "preferred-dataset-splits": 4,
        "local-mem-bw": 50,
        **{f"{kind}-implementation": ["ring"] for kind in kinds},
    }
    network = {"topology": ["Ring"], "npus_count": [64], "bandwidth": [50.0], "latency": [500.0]}
    builder = TraceBuilder()
    node = builder.compute(duration_micros=5)
    for _ in range(200):
        node = builder.collective("ALL_REDUCE", size_bytes=1 << 20, after=[node])
        node = builder.compute(duration_micros=5, after=[node])
    chain = [builder.build()] * 64
    bounds = engine.COMPILE_FROM
    print("\n200 all-reduces and 201 compute nodes on a ring of 64; s of CPU")
    for words, fold, limits in (
        ("folded into one class, plain", True, (1 << 60,) * 3),
        ("one by one, compiled", False, (0, 0, 0)),
        ("one by one, plain", False, (1 << 60,) * 3),
    ):
        engine.COMPILE_FROM = limits
        run = partial(simulate, chain, system, network, fold=fold)
        if limits[0] == 0:
            run()
        seconds, _ = cpu(run, 1)
        print(f"  {words:32} {seconds:.3f}", flush=True)
    engine.COMPILE_FROM = bounds


def transformers() -> None:
    """A training step of Llama-3 8B on 64 NPUs per parallelism, on both backends; time, peak memory, events, classes."""
    from chakra.replay import simulate

    print("\ntraining step of Llama-3 8B on 64 NPUs (8 x 8 switches); CPU seconds")
    row = "{:28} {:9} {:>8} {:>10} {:>8} {:>12} {:>9}"
    print(row.format("parallelism", "backend", "s", "events", "classes", "step ms", "peak MB"))
    kinds = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
    system = {
        "endpoint-delay": 10,
        "preferred-dataset-splits": 4,
        "local-mem-bw": 3350,
        **{f"{kind}-implementation": ["ring"] for kind in kinds},
    }
    network = {
        "topology": ["Switch", "Switch"],
        "npus_count": [8, 8],
        "bandwidth": [400, 50],
        "latency": [500, 1000],
    }
    with tempfile.TemporaryDirectory() as folder:
        for words, options in (
            ("data 64", "--tp 1 --pp 1"),
            ("tensor 8 x data 8", "--tp 8 --pp 1"),
            ("pipeline 8 x data 8", "--tp 1 --pp 8 --micro-batches 8"),
            ("tensor 8 x pipeline 8", "--tp 8 --pp 8 --micro-batches 8"),
            ("FSDP 64", "--tp 1 --pp 1 --zero 3"),
        ):
            prefix = str(Path(folder) / words.replace(" ", "-"))
            command = (
                f"generate transformer --model llama3-8b --npus 64 {options} --platform hgx-h100 --quiet"
            )
            subprocess.run(
                [sys.executable, "-m", "chakra", *command.split(), "--output", prefix],
                check=True,
                capture_output=True,
            )
            for backend in ("unaware", "aware"):
                run = lambda p=prefix, b=backend: simulate(p, system, network, backend=b)  # noqa: E731
                seconds, result = cpu(run, 1)
                peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
                print(
                    row.format(
                        words,
                        backend,
                        f"{seconds:.3f}",
                        f"{result.raw.events:,}",
                        result.raw.partition.n_classes,
                        f"{result.finish_ns.max() / 1e6:.3f}",
                        f"{peak:.0f}",
                    ),
                    flush=True,
                )


def library_step() -> None:
    """A step on 102,400 NPUs with ASTRA-sim's algorithms, with a collective library, and where computing slows it down.

    The three take turns; the figures are medians.
    """
    from chakra.platforms import cluster
    from chakra.replay import simulate

    print("\ntraining step of GPT-3 175B on 102,400 NPUs (hgx-h100); CPU seconds, median of 5 in turns")
    row = "{:34} {:>8} {:>8} {:>10} {:>8} {:>12}"
    print(row.format("collectives", "s", "of first", "events", "classes", "step ms"))
    machine = cluster("12800x hgx-h100")
    system, network = machine.system(), machine.network()
    library = ("collective-library", "collective-costs")
    systems = {
        "ASTRA-sim's algorithms": {key: value for key, value in system.items() if key not in library},
        "collective library": system,
        "collective library, beside computing": {
            **system, "overlap-computing-rate": 0.9, "overlap-collective-rate": 0.8,
        },
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        prefix = str(Path(folder) / "gpt3")
        options = (
            "--model gpt3-175b --tp 8 --pp 8 --npus 102400 --micro-batches 8 --platform hgx-h100 --quiet"
        )
        subprocess.run(
            [sys.executable, "-m", "chakra", "generate", "transformer", *options.split(), "--output", prefix],
            check=True,
            capture_output=True,
        )
        times: dict[str, list[float]] = {words: [] for words in systems}
        results = {}
        for turn in range(6):
            for words, described in systems.items():
                seconds, results[words] = cpu(partial(simulate, prefix, described, network), 1)
                if turn:  # the first loads compiled kernels
                    times[words].append(seconds)
    first = median(next(iter(times.values())))
    for words, result in results.items():
        middle = median(times[words])
        print(
            row.format(
                words,
                f"{middle:.3f}",
                f"{middle / first:.2f}",
                f"{result.raw.events:,}",
                result.raw.partition.n_classes,
                f"{result.finish_ns.max() / 1e6:.3f}",
            ),
            flush=True,
        )


if __name__ == "__main__":
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("names", nargs="*")
    options.add_argument("--astra-sim", type=Path)
    options.add_argument("--scaling", action="store_true")
    given = options.parse_args()
    if given.astra_sim:
        given.astra_sim = given.astra_sim.resolve()
    os.chdir(ROOT)
    against_astra_sim(given.names, given.astra_sim)
    if given.scaling:
        scaling()
        transformers()
        library_step()
        library_step()
