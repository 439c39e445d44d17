"""Flows against the message engine on a fat tree of 512 NPUs, and flows alone on 16,384; the page is docs/benchmarks.md.

    python benchmarks/bench_flow.py

A ring all-reduce of 128 MiB among eight NPUs, and a training step; above the leaves all of the bandwidth, or half of it.
Each run is `simulate()` of a workload whose traces are made (of the steps: written), with kernels warm; CPU seconds, the
least of three, of both backends in turns. The steps of Llama-3 405B are run once, on machines of hgx-h100.
"""

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from bench_replay import cpu

from chakra.builder import Handle, TraceBuilder, Workload
from chakra.platforms import cluster
from chakra.replay import ReplayResult, simulate, topologies
from chakra.replay.config import Network, load_network

SIZE = 128 << 20
SYSTEM = {
    "endpoint-delay": 10,
    "preferred-dataset-splits": 1,
    "all-reduce-implementation": ["ring"],
    "all-gather-implementation": ["ring"],
    "reduce-scatter-implementation": ["ring"],
    "all-to-all-implementation": ["direct"],
}
ROW = "{:40} {:>7} {:8} {:>8} {:>8} {:>8} {:>12}"


def tree(down: list[int], ecmp: str, oversubscription: float = 2.0) -> Network:
    """A fat tree of eight NPUs a leaf."""
    network = topologies.fat_tree(
        down, oversubscription=oversubscription, bandwidth_gibps=50.0, latency_ns=500.0
    )
    assert network.links is not None
    return replace(network, links=replace(network.links, ecmp=ecmp))


def all_reduces(npus: int, groups: Iterable[range], times: int = 1) -> Workload:
    """All-reduces in each group, one after the other; other NPUs compute for 1 ns."""
    workload = Workload(npus)
    name = {npu: workload.add_group(members) for members in map(list, groups) for npu in members[:1]}
    first = {npu: members[0] for members in map(list, groups) for npu in members}

    def program(b: TraceBuilder) -> None:
        if b.rank in first:
            last: list[Handle] = []
            for _ in range(times):
                last = [b.collective("all_reduce", size_bytes=SIZE, group=name[first[b.rank]], after=last)]
        else:
            b.compute(duration_ns=1)

    workload.run(program)
    workload.traces()
    return workload


def show(words: str, backend: str, seconds: float, result: ReplayResult, ratio: float | None) -> None:
    """A row of the table."""
    print(
        ROW.format(
            words,
            result.npus,
            backend,
            f"{seconds:.3f}",
            "-" if ratio is None else f"{ratio:.1f}",
            result.raw.partition.n_classes,
            f"{result.finish_ns.max() / 1e6:.3f}",
        ),
        flush=True,
    )


def step(folder: str, model: str, options: str) -> str:
    """Write a training step's traces; returns their prefix."""
    prefix = str(Path(folder) / model)
    command = (
        f"generate transformer --model {model} --tp 8 --sp {options} --zero 1 --platform hgx-h100 --quiet"
    )
    subprocess.run(
        [sys.executable, "-m", "chakra", *command.split(), "--output", prefix],
        check=True,
        capture_output=True,
    )
    return prefix


def large_step(prefix: str, machines: int, ports: int) -> None:
    """Llama-3 405B in machines of eight, three levels of switches, 7 to 1 at the top, sprayed."""
    begin = time.process_time()
    machine = cluster(f"{machines}x hgx-h100 over 400G fat tree of {ports} ports oversubscribed 7 sprayed")
    network = load_network(machine.network())
    made = time.process_time() - begin
    library = machine.system()
    rings = {key: value for key, value in library.items() if not key.startswith("collective-")} | {
        f"{kind}-implementation": ["direct" if kind == "all-to-all" else "ring"] * len(network.dims)
        for kind in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
    }
    rings["preferred-dataset-splits"] = 1
    for words, system in (("Llama-3 405B, rings", rings), ("Llama-3 405B, library", library)):
        seconds, result = cpu(lambda s=system: simulate(prefix, s, network, backend="flow"), 1)  # type: ignore[misc]
        show(words, "flow", seconds, result, None)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"  peak of this process by then: {peak:,.0f} MiB")
    print(f"The network of {machines:,} machines was made in {made:.2f} s.")


def beside(words: str, workload: Workload | str, network: Network, ecmp: str | None = None) -> None:
    """Both backends on the same network; flows choose among equal paths as `ecmp` says, if it is given."""
    assert network.links is not None
    of_flows = network if ecmp is None else replace(network, links=replace(network.links, ecmp=ecmp))
    runs: dict[str, Callable[[], ReplayResult]] = {
        backend: lambda backend=backend, on=on: simulate(workload, SYSTEM, on, backend=backend)  # type: ignore[misc]
        for backend, on in (("aware", network), ("flow", of_flows))
    }
    best = dict.fromkeys(runs, float("inf"))
    results = {backend: run() for backend, run in runs.items()}  # loads or compiles what is needed
    for _ in range(3):
        for backend, run in runs.items():
            seconds, results[backend] = cpu(run, 1)
            best[backend] = min(best[backend], seconds)
    for backend, seconds in best.items():
        show(
            words, backend, seconds, results[backend], best["aware"] / seconds if backend == "flow" else None
        )


def main() -> None:
    """Print the table."""
    print(
        ROW.format(
            "ring all-reduce of 128 MiB, or a step", "NPUs", "backend", "CPU s", "ratio", "classes", "ms"
        )
    )
    small = tree([8, 64], "destination")
    leaves = [range(k, k + 8) for k in range(0, 512, 8)]
    even = tree([8, 64], "destination", 1.0)
    beside("eight NPUs of one leaf, 1 to 1 above", all_reduces(512, leaves[:1]), even)
    beside("eight NPUs of one leaf", all_reduces(512, leaves[:1]), small)
    beside("eight NPUs of every leaf", all_reduces(512, leaves), small)
    beside("the same, 16 times", all_reduces(512, leaves, 16), small)
    across = [range(k + place, k + 64, 8) for k in range(0, 512, 64) for place in range(8)]
    beside("eight NPUs of eight leaves", all_reduces(512, across), small)
    with tempfile.TemporaryDirectory() as folder:
        prefix = step(folder, "llama3-70b", "--pp 4 --npus 512 --micro-batches 8")
        beside("Llama-3 70B, rings, 1 to 1 above", prefix, even)
        beside("Llama-3 70B, rings", prefix, small)
        beside("Llama-3 70B, rings, flows sprayed", prefix, small, "spray")
        prefix = step(folder, "llama3-405b", "--pp 16 --npus 16384 --micro-batches 16")
        large_step(prefix, 2048, 64)
        # a stage of the pipeline fills a pod of 64 leaves of 64
        prefix = step(folder, "llama3-405b", "--pp 32 --npus 131072 --micro-batches 16")
        large_step(prefix, 16_384, 128)
    begin = time.process_time()
    large = tree([8, 32, 64], "spray")
    made = time.process_time() - begin
    leaves = [range(k, k + 8) for k in range(0, 16_384, 8)]
    across = [range(k + place, k + 64, 8) for k in range(0, 16_384, 64) for place in range(8)]
    for words, groups in (("eight NPUs of every leaf", leaves), ("eight NPUs of eight leaves", across)):
        workload = all_reduces(16_384, groups)
        seconds, result = cpu(lambda w=workload: simulate(w, SYSTEM, large, backend="flow"), 1)  # type: ignore[misc]
        show(words, "flow", seconds, result, None)
    print(f"The network of 16,384 NPUs, three levels and sprayed, was made in {made:.2f} s.")


if __name__ == "__main__":
    main()
