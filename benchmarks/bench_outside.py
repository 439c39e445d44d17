"""CPU time per transfer of a network that simulates itself, by the number of transfers that start together.

    python benchmarks/bench_outside.py

A constant delay behind the door and our own network without contention do the same thing, message by message, so the
difference is what the door and the few NumPy calls of the constant delay cost. Kernels are compiled. One line a case:
transfers per batch, transfers, and microseconds per transfer in the kernel, behind the door, and the difference
(medians of five runs, the two in turn).
"""

import statistics
import sys
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "docs" / "examples" / "plugin"))

from chakra_example.constant_delay import ConstantDelay

from chakra.builder import Handle, TraceBuilder, Workload
from chakra.replay import simulate
from chakra.replay.engines.messages import engine

RUNS = 5
SYSTEM = {
    "all-gather-implementation": ["ring"],
    "all-to-all-implementation": ["direct"],
    "preferred-dataset-splits": 1,
    "endpoint-delay": 10,
}


def there_and_back(b: TraceBuilder) -> None:
    """One message at a time between two NPUs."""
    before: tuple[Handle, ...] = ()
    for turn in range(10_000):
        move = b.send if turn % 2 == b.rank else b.recv
        before = (move(1 - b.rank, size_bytes=1000 + turn, after=before),)


def ring(b: TraceBuilder) -> None:
    """Every NPU sends to its neighbour at one tick, again and again."""
    before: tuple[Handle, ...] = ()
    for _ in range(10):
        before = (b.collective("all_gather", size_bytes=1 << 20, after=before),)


def everybody(b: TraceBuilder) -> None:
    """Every NPU sends to every other at one tick."""
    before: tuple[Handle, ...] = ()
    for _ in range(20):
        before = (b.collective("all_to_all", size_bytes=1 << 20, after=before),)


def measure(spent: list[float]) -> None:
    """Run the three cases; `spent` gets the CPU seconds of each run of the engine."""
    for batch, npus, transfers, program in (
        (1, 2, 10_000, there_and_back),
        (100, 100, 10 * 99 * 100, ring),
        (10_100, 101, 20 * 101 * 100, everybody),
    ):
        workload = Workload(npus)
        workload.run(program)
        ours = {"topology": ["FullyConnected"], "npus_count": [npus], "bandwidth": [1e30], "latency": [700]}
        inside, door = [], []
        for _ in range(RUNS + 1):  # the first compiles
            a = simulate(workload, SYSTEM, ours, engine="messages")
            inside.append(spent.pop() / transfers * 1e6)
            b = simulate(workload, SYSTEM, ConstantDelay(npus, 700, 1e9))
            door.append(spent.pop() / transfers * 1e6)
            assert a.finish_ns.tolist() == b.finish_ns.tolist()
        x, y = statistics.median(inside[1:]), statistics.median(door[1:])
        print(
            f"{batch:7,} {transfers:9,}   kernel {x:7.3f} us   door {y:7.3f} us   difference {y - x:7.3f} us"
        )


def main() -> None:
    """Measure with the compiled kernel."""
    spent: list[float] = []

    def timed(*given: Any) -> bool:
        begun = time.process_time()
        ended = engine.simulate(*given)
        spent.append(time.process_time() - begun)
        return ended

    place = "chakra.replay.engines.messages"
    with patch(f"{place}.run.simulate", timed), patch(f"{place}.engine.worth_compiling", lambda *given: True):
        measure(spent)


if __name__ == "__main__":
    main()
