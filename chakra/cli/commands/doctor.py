"""`chakra doctor`: check this installation."""

import importlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass

import rich_click as click

from chakra import __version__
from chakra.cli.support.command import ChakraCommand
from chakra.cli.support.options import format_option
from chakra.errors import EXIT_INTERNAL
from chakra.io.documents import document_text
from chakra.io.readable import counted

DISTRIBUTION = "chakra-replay"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at; `status` is "ok", "note" (works without) or "fail"."""

    status: str
    name: str
    detail: str


@click.command(cls=ChakraCommand)
@format_option()
@click.pass_context
def command(ctx: click.Context, /, output_format: str) -> None:
    """Check this installation: versions, conflicts, the kernel cache, optional parts, and a small replay.

    The exit code is 1 if something is broken.
    """
    findings = [finding for part in CHECKS for finding in _guarded(part)]
    failed = [finding for finding in findings if finding.status == "fail"]
    if output_format == "json":
        document = {"schema": "chakra.doctor/1", "ok": not failed, "findings": [asdict(f) for f in findings]}
        click.echo(document_text(document, indent=1))
    else:
        width = max(len(finding.name) for finding in findings)
        for finding in findings:
            click.echo(f"{finding.status:4}  {finding.name:{width}}  {finding.detail}")
        count = f"{counted(len(failed), 'problem')} found"
        click.echo(count if failed else "all is well")
    if failed:
        ctx.exit(EXIT_INTERNAL)


def _guarded(part: Callable[[], list[Finding]]) -> list[Finding]:
    """The findings of one check; a check that breaks is itself a finding."""
    try:
        return part()
    except Exception as error:
        return [Finding("fail", part.__name__.replace("_", " "), f"{type(error).__name__}: {error}")]


def interpreter() -> list[Finding]:
    """Python and the package itself."""
    import chakra

    where = os.path.dirname(os.path.abspath(chakra.__file__))
    version = platform.python_version()
    good = sys.version_info >= (3, 11)
    return [
        Finding(
            "ok" if good else "fail", "Python", f"{version}{'' if good else ': 3.11 or newer is needed'}"
        ),
        Finding("ok", DISTRIBUTION, f"{__version__} in {where}"),
    ]


def conflicts() -> list[Finding]:
    """Other distributions that install an import package of our name."""
    from chakra.conflicts import conflicting_distributions

    return [
        Finding(
            "fail",
            name,
            f"{version} is installed too and has the same import name: `pip uninstall {name}`, then "
            f"reinstall {DISTRIBUTION}",
        )
        for name, version in conflicting_distributions()
    ] or [Finding("ok", "import name", "no other distribution installs `chakra`")]


def requirements() -> list[Finding]:
    """Every requirement of this distribution with the version that is here."""
    try:
        lines = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return [
            Finding("fail", DISTRIBUTION, "is not installed: run `pip install` on it, or on the repository")
        ]
    findings = []
    for line in lines:
        extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)", line)
        match = re.match(r"([A-Za-z0-9._-]+)\s*([^;\[]*)", line)
        if match is None or (extra and extra[1] in ("test", "dev")):
            continue
        name, wanted = match[1], match[2].strip()
        label = f"{name} ({wanted})" if wanted else name
        try:
            have = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            if extra:
                findings.append(Finding("note", label, f"not installed: extra `{extra[1]}`"))
            else:
                findings.append(Finding("fail", label, f"not installed: pip install '{name}{wanted}'"))
            continue
        good = _satisfies(have, wanted)
        findings.append(Finding("ok" if good else "fail", label, have if good else f"{have} is out of range"))
    return findings


def _satisfies(version: str, wanted: str) -> bool:
    """Whether a version meets `>=a,<b`; comparisons of release numbers are enough for our bounds."""

    def release(text: str) -> tuple[int, ...]:
        return tuple(int(part) for part in re.findall(r"[0-9]+", text.split("+")[0])[:4])

    for part in filter(None, (piece.strip() for piece in wanted.split(","))):
        match = re.fullmatch(r"(>=|<=|<|>|==)\s*(.+)", part)
        if match is None:
            continue
        have, bound = release(version), release(match[2])
        width = max(len(have), len(bound))
        have, bound = have + (0,) * (width - len(have)), bound + (0,) * (width - len(bound))
        holds = {
            ">=": have >= bound,
            "<=": have <= bound,
            "<": have < bound,
            ">": have > bound,
            "==": have == bound,
        }
        if not holds[match[1]]:
            return False
    return True


def schema() -> list[Finding]:
    """The generated protobuf module works with the runtime."""
    pb2 = importlib.import_module("chakra.schemas.et_def_pb2")
    node = pb2.Node(id=1, name="probe")
    back = pb2.Node.FromString(node.SerializeToString())
    runtime = importlib.metadata.version("protobuf")
    good = back == node
    return [Finding("ok" if good else "fail", "schema", f"et_def_pb2 with protobuf {runtime}")]


def kernels() -> list[Finding]:
    """numba compiles, and its cache can be written."""
    from chakra.jit import cache_folder

    folder = cache_folder(b"doctor" + os.urandom(16))  # its own: others may be checking at the same time
    numba = importlib.import_module("numba")
    compiled = numba.njit(_probe)
    good = compiled(20) == _probe(20)
    kept = "chakra-kernels-" not in os.path.basename(folder)
    where = os.path.dirname(folder)
    os.rmdir(folder)
    return [
        Finding("ok" if good else "fail", "numba", f"{numba.__version__} compiles"),
        Finding(
            "ok", "kernel cache", f"{where}; `chakra warmup` fills it, so that no run waits for the compiler"
        )
        if kept
        else Finding("note", "kernel cache", "not writable: kernels are compiled anew in every process"),
    ]


def _probe(n: int) -> int:
    total = 0
    for i in range(n):
        total += i * i
    return total


def replay() -> list[Finding]:
    """The tutorial's 1 MiB all-reduce on a ring of 8 takes 117,780 ns."""
    import tempfile

    from chakra.et import read_trace
    from chakra.schemas import et_def_pb2 as pb2
    from chakra.schemas.protolib import encode_message

    node = pb2.Node(id=0, name="probe", type=pb2.COMM_COLL_NODE)
    node.attr.add(name="is_cpu_op", bool_val=False)
    node.attr.add(name="comm_type", int64_val=pb2.ALL_REDUCE)
    node.attr.add(name="comm_size", int64_val=1 << 20)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "probe.0.et")
        with open(path, "wb") as file:
            encode_message(file, pb2.GlobalMetadata(version="0.0.4"))
            encode_message(file, node)
        trace = read_trace(path)
    network = {"topology": ["Ring"], "npus_count": [8], "bandwidth": [50], "latency": [500]}
    system = {
        "preferred-dataset-splits": 4,
        "all-reduce-implementation": ["ring"],
        "collective-optimization": "localBWAware",
        "local-mem-bw": 50,
    }
    result = importlib.import_module("chakra.replay").simulate([trace] * 8, system, network)
    finish = [int(ns) for ns in result.finish_ns]
    good = finish == [117780] * 8
    return [Finding("ok" if good else "fail", "replay", f"1 MiB all-reduce on a ring of 8: {finish[0]} ns")]


def drawing() -> list[Finding]:
    """What draws graphs."""
    from chakra.viz.formats.graphviz_worker import HOW_TO_GET_IT

    if importlib.util.find_spec("pygraphviz") is not None:
        return [Finding("ok", "drawing", "small graphs are laid out by Graphviz, which pygraphviz carries")]
    dot = shutil.which("dot")
    if dot is not None:
        return [Finding("ok", "drawing", f"small graphs are laid out by Graphviz: {dot}")]
    return [Finding("note", "drawing", f"all graphs are drawn with the own layout: {HOW_TO_GET_IT}")]


def plugins() -> list[Finding]:
    """Collective algorithms and networks that other packages offer, each loaded."""
    from chakra.errors import ConfigError
    from chakra.replay.collectives import registry
    from chakra.replay.config.algorithms import IN_NETWORK, NATIVE_ALGORITHMS
    from chakra.replay.plugins import COLLECTIVES, NETWORKS, load, offered, package

    findings = []
    for group, what in ((COLLECTIVES, "collective algorithm"), (NETWORKS, "network")):
        for name, points in offered(group).items():
            who = ", ".join(sorted({package(point) for point in points}))
            if group == COLLECTIVES and name in (*NATIVE_ALGORITHMS, IN_NETWORK, *registry.OURS):
                detail = f"of {who} has a name of ours, and is not used: its entry point needs another"
                findings.append(Finding("fail", f"{what} {name}", detail))
                continue
            try:
                if group == COLLECTIVES:
                    registry.find(name)
                else:
                    load(group, name, what)
            except ConfigError as error:
                findings.append(Finding("fail", f"{what} {name}", str(error)))
                continue
            findings.append(Finding("ok", f"{what} {name}", f"from {who}"))
    return findings or [Finding("ok", "plugins", "none installed")]


CHECKS = (interpreter, conflicts, requirements, schema, kernels, drawing, plugins, replay)
