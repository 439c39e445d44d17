"""How the time of every command grows with its input: the exponent of time over size, fitted, for each shape of input.

    python benchmarks/scaling.py [--only WORD] [--most SECONDS]

A row is a command on inputs of one shape: a chain, a star of dependencies, groups, messages, collectives. Sizes are
doubled until a run takes `--most` CPU seconds and three took long enough to tell. What a run of a tiny input takes is
taken off, and the exponent is the slope of the line through the last four sizes. Linear commands have 1.0; rows above 1.1
are marked, and the exit code is 1 if there is one. Times are CPU seconds of this process, which other programs on the
machine still move.
"""

import argparse
import contextlib
import io
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from chakra.builder import TraceBuilder, Workload

#: above this a row is marked
ALLOWED = 1.1
#: seconds below which the clock tells nothing
LEAST = 0.03
#: seconds that one size may take, its input included
LONGEST = 20.0
SYSTEM = (
    '{"all-reduce-implementation": ["ring"], "all-gather-implementation": ["ring"], '
    '"preferred-dataset-splits": 1, "active-chunks-per-dimension": 1}'
)

#: writes an input of about n nodes below a prefix and returns the number of its NPUs
Shape = Callable[[Path, int], int]


def _one(prefix: Path, builder: TraceBuilder) -> int:
    from chakra.et import write_trace

    write_trace(builder.build(), f"{prefix}.0.et")
    return 1


def chain(prefix: Path, n: int) -> int:
    """Each node waits for the one before it."""
    builder = TraceBuilder()
    last = builder.compute("op", duration_micros=1)
    for k in range(n - 1):
        last = builder.compute(f"op{k % 100}", duration_micros=1, after=[last])
    return _one(prefix, builder)


def star(prefix: Path, n: int) -> int:
    """All wait for one, and one waits for all."""
    builder = TraceBuilder()
    first = builder.compute("first", duration_micros=1)
    every = [builder.compute("leaf", duration_micros=1, after=[first]) for _ in range(n)]
    builder.compute("last", duration_micros=1, after=every)
    return _one(prefix, builder)


def collectives(prefix: Path, n: int) -> int:
    """Collectives of eight NPUs, one after the other."""
    workload = Workload(8)

    def program(builder: TraceBuilder) -> None:
        last = builder.compute(duration_micros=1)
        for k in range(n // 8):
            last = builder.collective("all_reduce", size_bytes=1024 + k, after=[last])

    workload.run(program)
    workload.write(prefix)
    return 8


def messages(prefix: Path, n: int) -> int:
    """Eight NPUs that send to their neighbours, message by message."""
    workload = Workload(8)
    for rank in range(8):
        builder = workload.builder(rank)
        last = builder.compute(duration_micros=1)
        for k in range(n // 16):
            builder.send((rank + 1) % 8, size_bytes=64, tag=k, after=[last])
            last = builder.recv((rank - 1) % 8, size_bytes=64, tag=k, after=[last])
    workload.write(prefix)
    return 8


def waiting(prefix: Path, n: int) -> int:
    """Receives that are all posted long before the first of their messages is sent."""
    workload = Workload(2)
    sender, receiver = workload.builder(0), workload.builder(1)
    late = sender.compute(duration_micros=1000)
    for k in range(n // 2):
        sender.send(1, size_bytes=1000, tag=k, after=[late])
        receiver.recv(0, size_bytes=1000, tag=k)
    workload.write(prefix)
    return 2


def gather(prefix: Path, n: int) -> int:
    """NPUs that all send four messages to the first one."""
    npus = max(n // 8, 2)
    workload = Workload(npus)
    for rank in range(1, npus):
        for k in range(4):
            workload.builder(rank).send(0, size_bytes=1000, tag=k)
            workload.builder(0).recv(rank, size_bytes=1000, tag=k)
    workload.write(prefix)
    return npus


def streams(prefix: Path, n: int) -> int:
    """Eight kernels on each of many streams."""
    builder = TraceBuilder()
    for k in range(n):
        builder.compute("op", duration_micros=1, attrs={"stream": k // 8})
    return _one(prefix, builder)


def groups(prefix: Path, n: int) -> int:
    """NPUs in pairs, each pair with a group, two collectives and work of its own."""
    npus = max(n // 3 // 2 * 2, 4)
    workload = Workload(npus)
    names = [workload.add_group([k, k + 1]) for k in range(0, npus, 2)]
    for rank in range(npus):
        builder = workload.builder(rank)
        last = builder.compute(duration_micros=1 + rank // 2 % 97)
        for size in (64, 4096):
            last = builder.collective("all_reduce", size_bytes=size, group=names[rank // 2], after=[last])
    workload.write(prefix)
    return npus


def pipeline(prefix: Path, n: int) -> int:
    """A step of a model on machines of eight: collectives in each, messages between them."""
    npus = max(n // 16, 2) * 8
    run(
        [
            *(
                "generate",
                "transformer",
                "--model",
                "gpt2-small",
                "--tp",
                "4",
                "--pp",
                "2",
                "--npus",
                str(npus),
            ),
            *("--global-batch", str(npus), "-o", str(prefix), "--quiet"),
        ]
    )
    return npus


SHAPES: dict[str, Shape] = {
    "chain": chain,
    "star": star,
    "collectives": collectives,
    "messages": messages,
    "waiting": waiting,
    "gather": gather,
    "streams": streams,
    "groups": groups,
    "pipeline": pipeline,
}
#: shapes of plain traces, which every command takes
PLAIN = tuple(shape for shape in SHAPES if shape != "pipeline")


def _files(prefix: Path, npus: int) -> list[str]:
    """Options that name an input's machine and groups, which are written."""
    system, network = prefix.with_suffix(".system.json"), prefix.with_suffix(".network.yml")
    system.write_text(SYSTEM)
    ring = {"topology": "Switch", "npus_count": npus, "bandwidth": 50.0, "latency": 500.0}
    network.write_text("".join(f"{key}: [ {value} ]\n" for key, value in ring.items()))
    named = ["-s", str(system), "-n", str(network)]
    table = Path(f"{prefix}.groups.json")
    return named + (["-g", str(table)] if table.exists() else [])


def _replay(*more: str) -> Callable[[Path, int], list[str]]:
    def arguments(prefix: Path, npus: int) -> list[str]:
        return ["replay", "-w", str(prefix), *_files(prefix, npus), *more, "-o", f"{prefix}.out", "--quiet"]

    return arguments


def _of_result(*words: str) -> Callable[[Path, int], list[str]]:
    """A command on the result of a replay, which is made first, untimed."""

    def arguments(prefix: Path, npus: int) -> list[str]:
        made = f"{prefix}.result.json"
        run(
            [
                "replay",
                "-w",
                str(prefix),
                *_files(prefix, npus),
                "--nodes",
                "--format",
                "json",
                "-o",
                made,
                "--quiet",
            ]
        )
        return [word.format(result=made, prefix=prefix) for word in words]

    return arguments


def _on_ports(fabric: str) -> Callable[[Path, int], list[str]]:
    """A replay on machines at switches with ports."""

    def arguments(prefix: Path, npus: int) -> list[str]:
        machine = f"{npus // 8}x hgx-h100 over 400G {fabric}"
        words = ["replay", "-w", str(prefix), "--platform", machine, "--format", "json"]
        return [*words, "-o", f"{prefix}.out", "--quiet"]

    return arguments


def _validate(prefix: Path, npus: int) -> list[str]:
    return ["validate", str(prefix), *_files(prefix, npus)[2:]]


def _on_trace(*words: str) -> Callable[[Path, int], list[str]]:
    return lambda prefix, npus: [word.format(prefix=prefix) for word in words]


#: command -> its arguments for an input, and the shapes that it is asked for
COMMANDS: dict[str, tuple[Callable[[Path, int], list[str]], tuple[str, ...]]] = {
    "validate": (_validate, PLAIN),
    "info": (_on_trace("info", "{prefix}.0.et"), ("chain", "star", "collectives", "messages")),
    "jsonize": (
        _on_trace("jsonize", "{prefix}.0.et", "{prefix}.json", "--quiet"),
        ("chain", "star", "collectives", "messages"),
    ),
    "replay": (_replay(), PLAIN),
    "replay aware": (_replay("--backend", "aware"), ("collectives", "messages", "groups")),
    "replay json": (_replay("--format", "json"), PLAIN),
    "replay --nodes": (_replay("--format", "json", "--nodes"), PLAIN),
    "replay --nodes csv": (_replay("--format", "csv", "--nodes"), PLAIN),
    "replay on rails": (_on_ports("rails of 64 ports"), ("pipeline",)),
    "replay on a fat tree": (_on_ports("fat tree of 64 ports"), ("pipeline",)),
    "timeline": (_of_result("timeline", "{result}", "{prefix}.chrome.json", "--quiet"), PLAIN),
    "report": (_of_result("report", "{result}", "-o", "{prefix}.html", "--quiet"), PLAIN),
    "compare": (_of_result("compare", "{result}", "{result}"), PLAIN),
    "visualize graphml": (
        _on_trace("visualize", "{prefix}.0.et", "{prefix}.graphml", "--quiet"),
        ("chain", "star", "collectives"),
    ),
    "visualize html": (
        _on_trace("visualize", "{prefix}.0.et", "{prefix}.html", "--quiet"),
        ("chain", "star", "collectives"),
    ),
    "visualize --fold stream": (
        _on_trace("visualize", "{prefix}.0.et", "{prefix}.html", "--fold", "stream", "--quiet"),
        ("streams",),
    ),
    "anonymize": (
        _on_trace("anonymize", "{prefix}.0.et", "{prefix}.gone.et", "--quiet"),
        ("chain", "star", "collectives", "messages"),
    ),
}


#: commands whose input is a number, in their arguments as {n}
NUMBERS: dict[str, tuple[str, ...]] = {
    "generate collective --npus": ("generate", "collective", "--size", "1MiB", "--npus", "{n}"),
    "generate collective --group-size": (
        "generate",
        "collective",
        "--size",
        "1MiB",
        "--npus",
        "{n}",
        "--group-size",
        "2",
    ),
    "generate collective --count": (
        "generate",
        "collective",
        "--size",
        "1MiB",
        "--npus",
        "4",
        "--count",
        "{n}",
    ),
    "generate transformer --npus": (
        *("generate", "transformer", "--model", "llama3-8b", "--tp", "8", "--npus", "{n8}"),
        *("--platform", "hgx-h100"),
    ),
    **{
        f"generate transformer {model} {layers}": (
            *(
                "generate",
                "transformer",
                "--model",
                model,
                layers,
                "{n}",
                "--npus",
                "2",
                "--platform",
                "hgx-h100",
            ),
        )
        for model, layers in (
            ("t5-small", "--encoder-layers"),
            ("t5-small", "--layers"),
            ("vit-b16", "--layers"),
            ("mamba2-130m", "--layers"),
        )
    },
}


def run(arguments: list[str]) -> None:
    """A command in this process; what it prints is dropped.

    Raises
    ------
    RuntimeError
        If the command fails.
    """
    from chakra.cli.main import run as run_command

    said = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        code = run_command(arguments)
    if code not in (0, None):
        raise RuntimeError(
            f"chakra {' '.join(arguments)}: exit code {code}: {said.getvalue().strip()[-300:]}"
        )


def seconds(arguments: list[str]) -> float:
    """CPU seconds of a command, its children's included."""
    begin = os.times()
    run(arguments)
    end = os.times()
    return sum(end[:4]) - sum(begin[:4])


def exponent(points: list[tuple[int, float]]) -> float:
    """Slope of log time over log size."""
    x, y = ([math.log(value) for value in column] for column in zip(*points, strict=True))
    middle = sum(x) / len(x)
    return sum((a - middle) * b for a, b in zip(x, y, strict=True)) / sum((a - middle) ** 2 for a in x)


def measured(
    made: Callable[[Path, int], list[str]], folder: Path, first: int, most: float
) -> list[tuple[int, float]]:
    """Sizes and seconds of a row: doubled up to `most` seconds, less what a tiny input takes."""
    run(made(folder / "warm", 16))
    fixed = min(seconds(made(folder / f"tiny{k}", 16)) for k in range(2))
    points: list[tuple[int, float]] = []
    n = first
    while n < 1 << 22:
        begin = time.perf_counter()
        arguments = made(folder / f"n{n}", n)
        # the second run has its kernels compiled
        took = min(seconds(arguments) for _ in range(2)) - fixed
        if took >= LEAST:
            points.append((n, took))
        enough = took > most and len(points) > 2
        if enough or time.perf_counter() - begin > LONGEST:
            break
        n *= 2
    return points[-4:]


def rows(only: str) -> Iterator[tuple[str, str, Callable[[Path, int], list[str]], int]]:
    """Command, shape, how its arguments are made, first size."""

    def on(shape: Shape, arguments: Callable[[Path, int], list[str]]) -> Callable[[Path, int], list[str]]:
        return lambda prefix, n: arguments(prefix, shape(prefix, n))

    def number(words: tuple[str, ...]) -> Callable[[Path, int], list[str]]:
        return lambda prefix, n: [
            *(word.format(n=n, n8=8 * n) for word in words), "-o", f"{prefix}.made", "--quiet"
        ]  # fmt: skip

    for command, (arguments, shapes) in COMMANDS.items():
        for shape in shapes:
            if only in f"{command} {shape}":
                yield command, shape, on(SHAPES[shape], arguments), 1024
    for command, words in NUMBERS.items():
        if only in command:
            yield command, "", number(words), 64


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", metavar="WORD", help="rows whose name has this in it")
    parser.add_argument(
        "--most", type=float, default=1.0, metavar="SECONDS", help="up to which sizes are doubled"
    )
    given = parser.parse_args()
    bad = 0
    print("| command | shape | sizes | seconds at the last | exponent |")
    print("| --- | --- | --- | --- | --- |")
    for command, shape, made, first in rows(given.only):
        with tempfile.TemporaryDirectory() as name:
            try:
                points = measured(made, Path(name), first, given.most)
            except RuntimeError as error:
                print(f"| {command} | {shape} | fails | | |", flush=True)
                print(error, file=sys.stderr)
                bad += 1
                continue
        if len(points) < 3:
            print(f"| {command} | {shape} | | | too fast to tell |", flush=True)
            continue
        slope = exponent(points)
        mark = " (above 1.1)" if slope > ALLOWED else ""
        bad += bool(mark)
        print(
            f"| {command} | {shape} | {points[0][0]:,} to {points[-1][0]:,} | {points[-1][1]:.2f} | {slope:.2f}{mark} |",
            flush=True,
        )
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
