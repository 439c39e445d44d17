"""Time and memory of linking and conversion, side by side with upstream's figures for the same files.

    python benchmarks/bench_pytorch.py [--data ../shared/data] [--repeat 10] [--kineto-mb 300]

The real pairs are converted as they are; the large traces are made by repeating the `h200_gpt` pair with shifted ids
and times. Every run is a process of its own: CPU seconds (user + system, process start included) and peak resident
memory. Upstream's figures (mlcommons/chakra v1.0.0: trace_link + converter, user CPU seconds, on another 2-core
machine) stand beside; they were measured once and are not measured here.
"""

import argparse
import gzip
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

#: trace_link + converter: seconds, peak MB of the larger of the two. None: it crashes or links nothing.
UPSTREAM: dict[str, tuple[float, int] | None] = {
    "h200_graph": (0.79, 101),
    "h200_sync": (2.49, 138),
    "h200_gpt": (12.1, 315),
    "resnet_cross": (9.2, 276),
    "simple_add": None,
    "linear": None,
    "resnet2023": None,
    "dlrm8.rank0": None,
    "gloo4.rank0": None,
    "gpt x10": (125.8, 2091),
}


def run(arguments: list[str]) -> tuple[float, int]:
    """CPU seconds and peak MB of one run of the command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    code = (
        "import resource, sys\n"
        "from chakra.cli.main import entry\n"
        "try:\n    entry(sys.argv[1:])\n"
        "finally:\n    print('peak', resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode not in (0, 4):
        raise SystemExit(f"{' '.join(arguments)}: {done.stderr.strip()}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    peak = int(done.stderr.rsplit("peak ", 1)[1].split()[0]) // 1024
    return seconds, peak


def repeat_host(source: Path, target: Path, times: int) -> None:
    """Write the host trace ``times`` times in one file, ids shifted."""
    with gzip.open(source) as packed:
        document = json.load(packed)
    roots = [n for n in document["nodes"] if n["name"].startswith("[pytorch")]
    rest = [n for n in document["nodes"] if not n["name"].startswith("[pytorch")]
    root_ids = {n["id"] for n in roots}
    step = max(n["id"] for n in document["nodes"])
    rf_step = max(a["value"] for n in rest for a in n["attrs"] if a["name"] == "rf_id")
    shifts = {"rf_id": rf_step, "fw_parent": step}
    with open(target, "w", encoding="utf-8") as file:
        head = {k: v for k, v in document.items() if k not in ("nodes", "finish_ts")}
        file.write(json.dumps(head)[:-1] + ',\n  "nodes": [')
        for i in range(times):
            for node in rest:
                copy = dict(node, id=node["id"] + i * step)
                if node["ctrl_deps"] not in root_ids:
                    copy["ctrl_deps"] = node["ctrl_deps"] + i * step
                copy["attrs"] = [
                    dict(a, value=a["value"] + i * shifts[a["name"]])
                    if a["name"] in shifts and a["value"]
                    else a
                    for a in node["attrs"]
                ]
                file.write("\n      " + json.dumps(copy) + ",")
        file.write(",".join("\n      " + json.dumps(n) for n in roots))
        file.write('\n  ],\n  "finish_ts": 1\n}\n')


def repeat_device(source: Path, target: Path, times: int) -> None:
    """Write the Kineto trace ``times`` times in one file, times and ids shifted."""
    with gzip.open(source) as packed:
        document = json.load(packed)
    events: list[dict[str, Any]] = document["traceEvents"]
    timed = [e for e in events if e.get("ph") == "X" and e.get("cat") != "Trace"]
    span = max(e["ts"] + e["dur"] for e in timed) - min(e["ts"] for e in timed) + 100
    names = ("correlation", "External id", "Record function id")
    steps = {n: max((e["args"].get(n) or 0 for e in timed if "args" in e), default=0) for n in names}
    with open(target, "w", encoding="utf-8") as file:
        head = {k: v for k, v in document.items() if k not in ("traceEvents", "traceName")}
        file.write(json.dumps(head, indent=2)[:-2] + ',\n  "traceEvents": [')
        comma = ""
        for i in range(times):
            for event in events:
                if i and event.get("ph") == "M":
                    continue
                copy = dict(event)
                if "ts" in copy:
                    copy["ts"] = round(copy["ts"] + i * span, 3)
                if "args" in copy:
                    copy["args"] = {
                        k: v + i * steps[k] if k in steps and v else v for k, v in copy["args"].items()
                    }
                file.write(comma + "\n  " + json.dumps(copy, indent=2).replace("\n", "\n  "))
                comma = ","
        file.write('\n  ],\n  "traceName": "repeated"\n}\n')


def main() -> None:
    """Run everything and print one table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    default = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
    parser.add_argument("--data", type=Path, default=default)
    parser.add_argument("--repeat", type=int, default=10, help="how often the large pair repeats h200_gpt")
    parser.add_argument("--kineto-mb", type=int, default=300, help="size of the Kineto file linked alone")
    options = parser.parse_args()
    pairs = options.data / "pairs"
    print(f"{'trace':<22} {'ours s':>8} {'MB':>6} {'upstream s':>11} {'MB':>6} {'faster':>7}")
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        out = str(Path(folder) / "out.et")
        jobs: list[tuple[str, list[str]]] = [
            (
                name,
                [
                    "--host",
                    str(pairs / f"{name}.et.json.gz"),
                    "--device",
                    str(pairs / f"{name}.kineto.json.gz"),
                ],
            )
            for name in UPSTREAM
            if not name.startswith("gpt")
        ]
        big_host, big_device = Path(folder) / "big.et.json", Path(folder) / "big.kineto.json"
        repeat_host(pairs / "h200_gpt.et.json.gz", big_host, options.repeat)
        repeat_device(pairs / "h200_gpt.kineto.json.gz", big_device, options.repeat)
        jobs.append((f"gpt x{options.repeat}", ["--host", str(big_host), "--device", str(big_device)]))
        alone = Path(folder) / "alone.kineto.json"
        one = big_device.stat().st_size / options.repeat
        repeat_device(pairs / "h200_gpt.kineto.json.gz", alone, max(1, round(options.kineto_mb * 1e6 / one)))
        jobs.append((f"Kineto {alone.stat().st_size / 1e6:.0f} MB alone", ["--device", str(alone)]))
        run(["convert", "pytorch", *jobs[0][1], "--output", out])  # compiled kernels are cached from here on
        run(["convert", "pytorch", *jobs[-2][1], "--output", out])
        for name, arguments in jobs:
            seconds, peak = run(["convert", "pytorch", *arguments, "--output", out])
            theirs = UPSTREAM.get(name)
            text = (
                f"{theirs[0]:>11.1f} {theirs[1]:>6} {theirs[0] / seconds:>6.0f}x"
                if theirs
                else f"{'fails':>11}"
            )
            print(f"{name:<22} {seconds:>8.2f} {peak:>6} {text if name in UPSTREAM else ''}")


if __name__ == "__main__":
    main()
