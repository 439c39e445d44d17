"""Run the benchmarks and write docs/benchmarks.md, the page that README points to.

    python benchmarks/run.py [--quick] [--astra-sim FOLDER]

Every script prints its own table, measured side by side in this run; --quick leaves out the conversions. ASTRA-sim is
measured, too, if the folder of its binaries is given (docs/validation.md says how they are built).
"""

import argparse
import os
import platform
import subprocess
import sys
from datetime import date
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = [
    ("Replay beside ASTRA-sim, and scaling", ["benchmarks/bench_replay.py", "--scaling"]),
    ("Flows beside messages", ["benchmarks/bench_flow.py"]),
    ("Reading and writing traces", ["benchmarks/bench_et.py"]),
]
CONVERSIONS = [
    ("Text workloads", ["benchmarks/bench_text.py"]),
    ("PyTorch profiles", ["benchmarks/bench_pytorch.py"]),
]


def main() -> None:
    """Run the scripts one after the other and write the page."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--quick", action="store_true")
    options.add_argument("--astra-sim", type=Path)
    given = options.parse_args()
    whence = "ASTRA-sim's seconds come from the reference data, measured on a machine of the same kind."
    if given.astra_sim:
        SCRIPTS[0][1].extend(["--astra-sim", str(given.astra_sim.resolve())])
        whence = (
            "ASTRA-sim (518bd51, release build) ran beside in the same run, for 120 s of wall time at most."
        )
    versions = f"Python {platform.python_version()}, numba {version('numba')}, numpy {version('numpy')}"
    machine = f"{versions}, {os.cpu_count()} cores ({platform.machine()})"
    parts = [
        "# Benchmarks",
        "",
        "What replays, traces and conversions cost; the figures behind [performance](guides/performance.md).",
        f"Made by `python benchmarks/run.py` on {date.today().isoformat()}: {machine}.",
        "Times are CPU time unless they say otherwise; kernels are warm.",
        whence,
    ]
    for title, command in SCRIPTS + ([] if given.quick else CONVERSIONS):
        print(f"== {title}", flush=True)
        done = subprocess.run(
            [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False
        )
        if done.returncode:
            sys.exit(f"{command[0]} failed:\n{done.stderr}")
        print(done.stdout, flush=True)
        parts += ["", f"## {title}", "", "```", done.stdout.rstrip(), "```"]
    (ROOT / "docs" / "benchmarks.md").write_text("\n".join(parts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
