"""Conversion of large text workloads: ``python benchmarks/bench_text.py``.

Prints the time of each stage for 10,000 layers on 1024 NPUs: data-parallel (one content for all ranks),
hybrid by network dimensions (one content), ten passes of it, and hybrid by communicator groups (1024
different files, bound by the disk: 64 NPUs unless ``--all`` is given).
"""

import argparse
import random
import shutil
import tempfile
import time
from pathlib import Path

from chakra.converters.text import load_text, write_converted

LAYERS = 10_000


def make_text(path: Path, header: str) -> None:
    """Write a workload of random times and sizes."""
    draw = random.Random(1)
    rows = [header, str(LAYERS)]
    for index in range(LAYERS):
        steps = "\t".join(f"{draw.randint(1, 9999)}\tALLREDUCE\t{draw.randint(1, 1 << 24)}" for _ in range(3))
        rows.append(f"layer_{index}\t-1\t{steps}\t10")
    path.write_text("\n".join(rows) + "\n")


def main() -> None:
    """Run all cases and print one line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="write 1024 different files too (about 7 GB)")
    everything = parser.parse_args().all
    dims = (8, 16, 8)
    cases: list[tuple[str, str, dict[str, object]]] = [
        ("data, 1024 NPUs", "DATA", {"npus": 1024}),
        ("hybrid by dimensions, 1024 NPUs", "HYBRID_TRANSFORMER group: 8", {"network_dims": dims}),
        ("the same, 10 passes", "HYBRID_TRANSFORMER group: 8", {"network_dims": dims, "passes": 10}),
        ("hybrid by groups, 64 NPUs", "HYBRID_TRANSFORMER group: 8", {"npus": 64}),
    ]
    if everything:
        cases.append(("hybrid by groups, 1024 NPUs", "HYBRID_TRANSFORMER group: 8", {"npus": 1024}))
    folder = Path(tempfile.mkdtemp(prefix="chakra-bench-text-"))
    print(f"{LAYERS} layers; seconds of wall time")
    print(f"{'case':34} {'nodes':>8} {'read and build':>14} {'write':>8} {'files':>6}")
    try:
        for name, header, options in cases:
            make_text(folder / "w.txt", header)
            start = time.perf_counter()
            converted = load_text(folder / "w.txt", **options)  # type: ignore[arg-type]
            built = time.perf_counter()
            summary = write_converted(converted, folder / "out" / "w")
            done = time.perf_counter()
            print(
                f"{name:34} {summary.nodes:8} {built - start:14.2f} {done - built:8.2f} "
                f"{summary.distinct_files:6}"
            )
            shutil.rmtree(folder / "out")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
