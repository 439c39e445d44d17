"""How the time of every command grows with its input: the exponent of time over size, fitted, for each shape of input.

    python benchmarks/scaling.py [--only WORD]... [--most SECONDS]

A row is a command on inputs of one shape: a chain, a star of dependencies, groups, messages, collectives. Sizes are
doubled until a run takes `--most` CPU seconds and three took long enough to tell. What a run of a tiny input takes is
taken off, and so is its size; the exponent is the slope of the line through the five largest sizes. Linear commands have
1.0; rows above 1.1 are marked, and the exit code is 1 if there is one. Times are CPU seconds of this process, which
other programs on the machine still move.
"""

import argparse
import json
import math
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from scaling_inputs import ALONE, JOBS, PLAIN, PROFILES, SHAPES, Shape, run

from chakra.garbage import collect_rarely

#: above this a row is marked
ALLOWED = 1.1
#: seconds below which the clock tells nothing
LEAST = 0.03
#: sizes that the line goes through, the largest ones
FITTED = 5
#: sizes are below this: larger inputs take minutes to make
LARGEST = 1 << 21
#: nodes of the input whose time is taken off
TINY = 16
#: smallest size of a shape, where it is not 1,024
FIRST = {"ranks": 128}
#: how often a row that seems to grow too fast is timed again
AGAIN = 3
#: seconds that one size may take, its input included
LONGEST = 20.0
SYSTEM = (
    '{"all-reduce-implementation": ["ring"], "all-gather-implementation": ["ring"], '
    '"preferred-dataset-splits": 1, "active-chunks-per-dimension": 1}'
)


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
        if not Path(made).exists():
            replayed = ["replay", "-w", str(prefix), *_files(prefix, npus), "--nodes", "--format", "json"]
            run([*replayed, "-o", made, "--quiet"])
        return [word.format(result=made, prefix=prefix) for word in words]

    return arguments


def _on_ports(fabric: str) -> Callable[[Path, int], list[str]]:
    """A replay on machines at switches with ports."""

    def arguments(prefix: Path, npus: int) -> list[str]:
        machine = f"{npus // 8}x hgx-h100 over 400G {fabric}"
        words = ["replay", "-w", str(prefix), "--platform", machine, "--format", "json"]
        return [*words, "-o", f"{prefix}.out", "--quiet"]

    return arguments


def _linked(*words: str) -> Callable[[Path, int], list[str]]:
    """A command on the two traces of a profile."""

    def arguments(prefix: Path, npus: int) -> list[str]:
        inside = f"{prefix}.rank0"
        given = ["--host", f"{inside}.et.json", "--device", f"{inside}.kineto.json", "--quiet"]
        return [word.format(prefix=prefix) for word in words] + given

    return arguments


def _converted(*words: str) -> Callable[[Path, int], list[str]]:
    """A command on the trace that a profile becomes, which is made first, untimed."""

    def arguments(prefix: Path, npus: int) -> list[str]:
        if not Path(f"{prefix}.0.et").exists():
            run(_linked("link", "-o", "{prefix}.0.et")(prefix, npus))
        return [word.format(prefix=prefix) for word in words]

    return arguments


def _of_job(*words: str) -> Callable[[Path, int], list[str]]:
    """A command on the traces that a job becomes, which are made first, untimed."""

    def arguments(prefix: Path, npus: int) -> list[str]:
        made = f"{prefix}.converted/job"
        if not Path(made).parent.exists():
            run(["convert", "pytorch", "--dir", f"{prefix}.job", "-o", made, "--quiet"])
        files = [*_files(prefix, npus)[2:], "-g", f"{made}.comm_groups.json"]
        first, *rest = (word.format(prefix=prefix) for word in words)
        if first == "validate":
            return [first, made, *files, *rest]
        return [first, "-w", made, *_files(prefix, npus)[:2], *files, *rest]

    return arguments


def _text(prefix: Path, npus: int) -> list[str]:
    return ["convert", "text", "-i", f"{prefix}.txt", "-o", f"{prefix}.made", "--npus", str(npus), "--quiet"]


def _rescaled(prefix: Path, npus: int) -> list[str]:
    return ["rescale", str(prefix), "-o", f"{prefix}.more", "--npus", str(2 * npus), "--quiet"]


def _back(prefix: Path, npus: int) -> list[str]:
    """JSON of a trace, which becomes a trace again."""
    run(["jsonize", f"{prefix}.0.et", f"{prefix}.json", "--quiet"])
    return ["jsonize", f"{prefix}.json", f"{prefix}.again.et", "--quiet"]


def _validate(prefix: Path, npus: int) -> list[str]:
    return ["validate", str(prefix), *_files(prefix, npus)[2:]]


def _on_trace(*words: str) -> Callable[[Path, int], list[str]]:
    return lambda prefix, npus: [word.format(prefix=prefix) for word in words]


#: a page of any number of nodes
_ANY_SIZE = ("--limit", "10000000")
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
        ALONE,
    ),
    "visualize html": (
        _on_trace("visualize", "{prefix}.0.et", "{prefix}.html", *_ANY_SIZE, "--quiet"),
        ALONE,
    ),
    **{
        f"visualize --fold {how}": (
            _on_trace("visualize", "{prefix}.0.et", "{prefix}.html", *_ANY_SIZE, "--fold", how, "--quiet"),
            ALONE,
        )
        for how in ("repeat", "operator", "chain", "stream", "segment")
    },
    "visualize svg": (
        _on_trace("visualize", "{prefix}.0.et", "{prefix}.svg", "--fold", "auto", "--quiet"),
        ALONE,
    ),
    "visualize --layout own": (
        _on_trace(
            "visualize",
            "{prefix}.0.et",
            "{prefix}.svg",
            "--fold",
            "chain",
            "--boxes",
            "1000000",
            "--limit",
            "10000000",
            "--layout",
            "own",
            "--quiet",
        ),
        ("star", "messages"),
    ),
    "visualize --critical-path": (
        _on_trace("visualize", "{prefix}.0.et", "{prefix}.graphml", "--critical-path", "--quiet"),
        ALONE,
    ),
    "visualize --window": (
        _on_trace("visualize", "{prefix}.0.et", "{prefix}.graphml", "--window", "0:1000s", "--quiet"),
        ALONE,
    ),
    "visualize --around": (
        _on_trace("visualize", "{prefix}.0.et", "{prefix}.graphml", "--around", "1", "--quiet"),
        ALONE,
    ),
    "anonymize": (
        _on_trace("anonymize", "{prefix}.0.et", "{prefix}.gone.et", "--quiet"),
        ("chain", "star", "collectives", "messages"),
    ),
    "jsonize back": (_back, ("chain", "star", "collectives", "messages")),
    "replay --what-if": (_replay("--what-if", "dim0.bandwidth=2x"), PLAIN),
    "replay text": (_replay("--per-npu"), PLAIN),
    "replay astra-sim": (
        _replay("--format", "astra-sim", "--backend", "aware", "--compat", "astra-sim"),
        ("collectives", "messages", "groups"),
    ),
    "replay flow": (_replay("--backend", "flow"), ("collectives", "messages", "gather", "groups")),
    "rescale": (_rescaled, ("collectives", "groups")),
    "link": (_linked("link", "-o", "{prefix}.linked.json"), PROFILES),
    "link --deps tensors": (_linked("link", "-o", "{prefix}.made.et", "--deps", "tensors"), PROFILES),
    "link of a device trace": (
        _on_trace("link", "--device", "{prefix}.rank0.kineto.json", "-o", "{prefix}.made.et", "--quiet"),
        PROFILES,
    ),
    "convert pytorch": (_linked("convert", "pytorch", "-o", "{prefix}.made.et"), PROFILES),
    "convert pytorch --dir": (
        _on_trace("convert", "pytorch", "--dir", "{prefix}.job", "-o", "{prefix}.made", "--quiet"),
        JOBS,
    ),
    "compare of jobs": (_on_trace("compare", "{prefix}.job", "{prefix}.job"), JOBS),
    "anonymize of a job": (_on_trace("anonymize", "{prefix}.job", "{prefix}.gone", "--quiet"), JOBS),
    "replay of a job": (_of_job("replay", "--start", "recorded", "-o", "{prefix}.out", "--quiet"), JOBS),
    "validate of a job": (_of_job("validate"), JOBS),
    "timeline of a profile": (
        _on_trace("timeline", "{prefix}.rank0.kineto.json", "{prefix}.chrome.json", "--quiet"),
        PROFILES,
    ),
    "calibrate of a job": (
        _on_trace("calibrate", "{prefix}.job", "-o", "{prefix}.yml", "--format", "json", "--quiet"),
        JOBS,
    ),
    "compare of profiles": (
        _on_trace("compare", "{prefix}.rank0.kineto.json", "{prefix}.rank0.kineto.json"),
        PROFILES,
    ),
    "info of a profile": (_converted("info", "{prefix}.0.et"), PROFILES),
    "validate of a profile": (_converted("validate", "{prefix}.0.et"), PROFILES),
    "visualize of a profile": (
        _converted("visualize", "{prefix}.0.et", "{prefix}.html", *_ANY_SIZE, "--quiet"),
        PROFILES,
    ),
    "anonymize of a profile": (
        _on_trace("anonymize", "{prefix}.rank0.kineto.json", "{prefix}.gone.json", "--quiet"),
        PROFILES,
    ),
    "convert text": (_text, ("layers", "numbered")),
}


def _study(prefix: Path, n: int) -> list[str]:
    """A study of n points, its results in a folder of their own each time."""
    study = prefix.with_suffix(".yml")
    study.write_text(
        "study: many points\n"
        "workload: {kind: mlp, npus: 8}\n"
        "platform: hgx-h100\n"
        f"parameters: {{network.dim0.bandwidth: {[100 + k for k in range(n)]}}}\n"
    )
    return ["sweep", str(study), "-o", f"{prefix}.{{run}}", "--threads", "--quiet"]


def _links(prefix: Path, n: int) -> list[str]:
    """A network file of n links, which is checked."""
    network = prefix.with_suffix(".yml")
    run(["topology", "torus", "--shape", str(n), "-o", str(network), "--quiet"])
    return ["check-config", str(network), "--quiet"]


def _algorithm(prefix: Path, n: int) -> list[str]:
    """An algorithm of MSCCL of about n steps."""
    made = prefix.with_suffix(".xml")
    size = str(max(math.isqrt(n), 2))
    named = ["--algorithm", "ring", "--collective", "all_gather", "--npus", size]
    run(["convert", "msccl", *named, "-o", str(made), "--quiet"])
    return ["convert", "msccl", "-i", str(made), "-o", f"{prefix}.made", "--size", "1MiB", "--quiet"]


def _log(prefix: Path, n: int) -> list[str]:
    """A log of nccl-tests of n sizes."""
    log = prefix.with_suffix(".log")
    head = "# Collective test starting: all_reduce_perf\n" + "".join(
        f"#  Rank {rank:2d} Group  0 Pid  100 on node device {rank:2d} [0x00] NVIDIA H100\n"
        for rank in range(8)
    )

    def row(k: int) -> str:
        size = 4096 * (k + 1)
        time = 10 + size / 1e5
        rates = f"{time:.3f} {size / time / 1e3:.3f} {size / time / 1e3 * 1.75:.3f} 0"
        return f"{size} {size // 4} float sum -1 {rates} {rates}\n"

    log.write_text(head + "".join(map(row, range(n))))
    return ["calibrate", str(log), "-o", str(prefix.with_suffix(".yml")), "--format", "json", "--quiet"]


def _steps(prefix: Path, n: int) -> list[str]:
    """A table of n measured steps, all of one job."""
    table = prefix.with_suffix(".csv")
    job = (
        'my cluster,H100 SXM,1,8,3200 Gb/s per node,"GPT (layers 2, hidden 512, heads 8, vocab 5120)",'
        "tp8 pp1 dp1 sp,512,1,{batch},bf16,tokens/s/GPU,14000,tokens/s,megatron,selective recomputation\n"
    )
    table.write_text(
        "source,hardware,nodes,gpus_per_node,network,workload_model,parallelism,sequence,micro_batch,global_batch,"
        "precision,metric,value,unit,framework,notes\n"
        + "".join(job.format(batch=1 + k % 2) for k in range(n))
    )
    return ["accuracy", "--file", str(table), "--format", "json", "--quiet"]


def _runs(prefix: Path, n: int) -> list[str]:
    """A report of n runs."""
    one = f"{prefix}.json"
    run(
        [
            *("replay", "--platform", "hgx-h100", "--format", "json", "-o", one, "--quiet", "-w"),
            _generated(prefix),
        ]
    )
    return ["report", *[one] * n, "-o", f"{prefix}.html", "--quiet"]


def _generated(prefix: Path) -> str:
    """A workload of eight NPUs."""
    run(["generate", "mlp", "--npus", "8", "-o", f"{prefix}.workload", "--quiet"])
    return f"{prefix}.workload"


def _repeated(prefix: Path, n: int) -> list[str]:
    """Traces of eight NPUs, repeated on n machines."""
    words = ["--platform", f"{n}x hgx-h100 over 400G fat tree of 64 ports", "--replicate"]
    return ["replay", "-w", _generated(prefix), *words, "-o", f"{prefix}.out", "--quiet"]


def _infrastructure(prefix: Path, n: int) -> list[str]:
    """A description of n hosts of eight NPUs at one switch."""
    described = prefix.with_suffix(".infra.json")

    def link(name: str) -> dict[str, object]:
        return {"name": name, "physical": {"bandwidth": {"gigabits_per_second": 400}, "latency": {"ns": 100}}}

    host = {
        "name": "host",
        "components": [
            {"name": "gpu", "count": 8, "choice": "xpu"},
            {"name": "nvsw", "count": 1, "choice": "switch"},
            {"name": "port", "count": 8, "choice": "port"},
        ],
        "links": [link("nvlink"), link("pcie")],
        "edges": [
            _edge({"component": "gpu"}, {"component": "nvsw"}, "many2many", "nvlink"),
            _edge({"component": "gpu"}, {"component": "port"}, "one2one", "pcie"),
        ],
    }
    box = {
        "name": "box",
        "components": [
            {"name": "asic", "count": 1, "choice": "switch"},
            {"name": "port", "count": 8 * n, "choice": "port"},
        ],
        "links": [link("inside")],
        "edges": [_edge({"component": "asic"}, {"component": "port"}, "many2many", "inside")],
    }
    document = {
        "name": "hosts",
        "devices": [host, box],
        "instances": [
            {"name": "hosts", "device": "host", "count": n},
            {"name": "boxes", "device": "box", "count": 1},
        ],
        "links": [link("cable")],
        "edges": [
            _edge(
                {"instance": f"hosts[{k}]", "component": "port[0:8]"},
                {"instance": "boxes[0]", "component": f"port[{8 * k}:{8 * k + 8}]"},
                "one2one",
                "cable",
            )
            for k in range(n)
        ],
    }
    described.write_text(json.dumps(document))
    return ["topology", "import", "-i", str(described), "-o", f"{prefix}.yml", "--quiet"]


def _edge(one: dict[str, str], other: dict[str, str], scheme: str, link: str) -> dict[str, object]:
    return {"ep1": one, "ep2": other, "scheme": scheme, "link": link}


#: commands whose input is a number, in their arguments as {n}; {n8}: eight times it, {root}: its square root
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
        *("generate", "transformer", "--model", "llama3-8b", "--tp", "8", "--npus", "{n}"),
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
    "generate mlp": ("generate", "mlp", "--npus", "{n}"),
    "generate resnet": ("generate", "resnet", "--npus", "{n}"),
    "generate dlrm": ("generate", "dlrm", "--npus", "{n}"),
    "generate moe": (
        *("generate", "moe", "--npus", "{n}", "--tp", "1", "--ep", "8", "--layers", "2"),
        *("--platform", "hgx-h100"),
    ),
    "generate moe --pp": (
        *(
            "generate",
            "moe",
            "--npus",
            "{n8}",
            "--tp",
            "1",
            "--ep",
            "8",
            "--layers",
            "{n}",
            "--pp",
            "{n}",
            "--micro-batches",
            "4",
        ),
        *("--platform", "hgx-h100"),
    ),
    "topology dragonfly": (
        *("topology", "dragonfly", "--groups", "{root}", "--routers", "4", "--npus-per-router", "2"),
    ),
    "topology torus": ("topology", "torus", "--shape", "{n}"),
    "topology rail": ("topology", "rail", "--nodes", "{n}"),
    "topology fat-tree": ("topology", "fat-tree", "--down", "8,{n}", "--up", "1,4"),
    "topology machine": ("topology", "machine", "{n}x hgx-h100 over 400G fat tree of 64 ports"),
}
#: of these, those whose number of links grows faster than the machines: levels of switches fill, and more are added
OF_OUTPUT = ("topology machine",)
#: how the names of what they write end
MADE_SUFFIX = ".made"
#: the same, whose arguments and files a function makes
MADE: dict[str, Callable[[Path, int], list[str]]] = {
    "sweep": _study,
    "check-config": _links,
    "convert msccl": _algorithm,
    "calibrate": _log,
    "accuracy": _steps,
    "report of runs": _runs,
    "replay --replicate": _repeated,
    "topology import": _infrastructure,
}


def _spent() -> float:
    """CPU seconds of this process and of its children that have ended."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in both)


def seconds(arguments: list[str]) -> float:
    """CPU seconds of a command, its children's included; `{run}` in a word is a name that no run had before."""
    named = [word.replace("{run}", str(time.monotonic_ns())) for word in arguments]
    begin = _spent()
    run(named)
    return _spent() - begin


def exponent(points: list[tuple[int, float]]) -> float:
    """Slope of log time over log size."""
    x, y = ([math.log(value) for value in column] for column in zip(*points, strict=True))
    middle = sum(x) / len(x)
    return sum((a - middle) * b for a, b in zip(x, y, strict=True)) / sum((a - middle) ** 2 for a in x)


@dataclass(frozen=True, slots=True)
class Row:
    """A command on inputs of one shape.

    Attributes
    ----------
    command, shape
        Their names.
    made
        Makes the input of a size, and the command's arguments.
    first
        The first size.
    of_output
        Whether time is held against the bytes that are written instead.
    """

    command: str
    shape: str
    made: Callable[[Path, int], list[str]]
    first: int
    of_output: bool = False


def measured(row: Row, folder: Path, most: float) -> tuple[list[tuple[int, float]], float]:
    """Sizes and seconds of a row, doubled up to `most` seconds, less what a tiny input takes; the exponent.

    Other programs only ever add to a time, so rows that seem to grow too fast are timed again, and the least counts.
    """
    begun = folder / (row.shape or row.command.replace(" ", ""))

    def prefix(n: int) -> Path:
        return begun.with_name(f"{begun.name}-{n}")

    def arguments(n: int) -> list[str]:
        return row.made(prefix(n), n)

    def size(n: int) -> int:
        return Path(f"{prefix(n)}{MADE_SUFFIX}").stat().st_size if row.of_output else n

    def points() -> list[tuple[int, float]]:
        return [(n, least[n] - least[TINY]) for n in sizes]

    def growth() -> float:
        """Times are less that of a tiny input, so sizes are less that, too."""
        return exponent([(size(n) - size(TINY), took) for n, took in points()])

    least: dict[int, float] = {}

    def timed(n: int, given: list[str], runs: int) -> float:
        least[n] = min([least.get(n, math.inf), *(seconds(given) for _ in range(runs))])
        return least[n]

    # the first run loads and compiles
    fixed = timed(TINY, arguments(TINY), 3)
    sizes: list[int] = []
    n = row.first
    while n < LARGEST:
        begin = time.perf_counter()
        took = timed(n, arguments(n), 2) - fixed
        if took >= LEAST:
            sizes.append(n)
        enough = took > most and len(sizes) > 2
        if enough or time.perf_counter() - begin > LONGEST:
            break
        n *= 2
    sizes = sizes[-FITTED:]
    for _ in range(AGAIN):
        if len(sizes) < 3 or growth() <= ALLOWED:
            break
        for n in (TINY, *sizes):
            timed(n, arguments(n), 2)
    return points(), growth() if len(sizes) > 2 else math.nan


def rows(*only: str) -> Iterator[Row]:
    """Those that have one of the words in their name."""

    def wanted(name: str) -> bool:
        return any(word in name for word in only)

    def on(shape: Shape, arguments: Callable[[Path, int], list[str]]) -> Callable[[Path, int], list[str]]:
        def both(prefix: Path, n: int) -> list[str]:
            """Arguments on an input that is made once for all commands that share the prefix."""
            kept = Path(f"{prefix}.npus")
            if not kept.exists():
                kept.write_text(str(shape(prefix, n)))
            return arguments(prefix, int(kept.read_text()))

        return both

    def number(words: tuple[str, ...]) -> Callable[[Path, int], list[str]]:
        return lambda prefix, n: [
            *(word.format(n=n, n8=8 * n, root=math.isqrt(n)) for word in words), "-o", f"{prefix}{MADE_SUFFIX}", "--quiet"
        ]  # fmt: skip

    for command, (arguments, shapes) in COMMANDS.items():
        for shape in shapes:
            if wanted(f"{command} {shape}"):
                yield Row(command, shape, on(SHAPES[shape], arguments), FIRST.get(shape, 1024))
    for command, words in NUMBERS.items():
        if wanted(command):
            yield Row(command, "", number(words), 64, command in OF_OUTPUT)
    for command, made in MADE.items():
        if wanted(command):
            yield Row(command, "", made, 64)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", action="append", metavar="WORD", help="rows whose name has this in it; may be given again"
    )
    parser.add_argument(
        "--most", type=float, default=0.5, metavar="SECONDS", help="up to which sizes are doubled"
    )
    given = parser.parse_args()
    collect_rarely()  # as every command does
    run(["warmup", "--quiet"])  # small inputs run uncompiled where nothing is in the cache
    bad = 0
    print("| command | shape | sizes | seconds at the last | exponent |")
    print("| --- | --- | --- | --- | --- |")
    folder = tempfile.TemporaryDirectory()
    for row in rows(*(given.only or [""])):
        command, shape = row.command, row.shape
        try:
            points, slope = measured(row, Path(folder.name), given.most)
        except RuntimeError as error:
            print(f"| {command} | {shape} | fails | | |", flush=True)
            print(error, file=sys.stderr)
            bad += 1
            continue
        if len(points) < 3:
            print(f"| {command} | {shape} | | | too fast to tell |", flush=True)
            continue
        mark = " (above 1.1)" if slope > ALLOWED else ""
        bad += bool(mark)
        print(
            f"| {command} | {shape} | {points[0][0]:,} to {points[-1][0]:,} | {points[-1][1]:.2f} | {slope:.2f}{mark} |",
            flush=True,
        )
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
