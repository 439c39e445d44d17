"""`chakra compare`: where the difference of two runs lies."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rich_click as click

from chakra.cli.support.command import ChakraCommand
from chakra.cli.support.numbers import WholeNumber, WholeRange
from chakra.cli.support.options import Options, refuse_idle
from chakra.errors import UsageError
from chakra.io.documents import document_text
from chakra.replay.options import BACKENDS


@click.command(cls=ChakraCommand)
@click.argument("a", metavar="A", required=False)
@click.argument("b", metavar="B", required=False)
@click.option(
    "--rank", type=WholeRange(0), help="Rank to compare; default: the one that takes longest, in each."
)
@click.option("--step", type=WholeNumber(), help="Of recordings only this ProfilerStep.")
@click.option("--job", metavar="STEM", help="Job, where a folder of recordings holds several.")
@click.option(
    "--backends",
    metavar="ONE,OTHER",
    help="In place of A and B: replay one workload on these two backends, such as flow,ns3; never more than two.",
)
@click.option(
    "-w", "--workload", metavar="PREFIX", help="With --backends: traces, as chakra replay takes them."
)
@click.option("-s", "--system", metavar="FILE", help="With --backends: system description.")
@click.option("-n", "--network", metavar="FILE", help="With --backends: network description.")
@click.option(
    "--platform", metavar="MACHINE", help="With --backends: a known machine, in place of -s, -n or both."
)
@click.option("-m", "--memory", metavar="FILE", help="With --backends: remote-memory description.")
@click.option("-g", "--groups", metavar="FILE", help="With --backends: communicator groups.")
@click.option(
    "--long-run",
    is_flag=True,
    help="With --backends: run ns3 even if it will take more than an hour, by estimate.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="What is printed: a summary, or the whole comparison as one JSON document.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write an .html page or a .json file.",
)
def command(
    a: str | None,
    b: str | None,
    rank: int | None,
    step: int | None,
    job: str | None,
    backends: str | None,
    form: str,
    output: Path | None,
    **options: Any,
) -> None:
    """Compare two runs: recordings (a Kineto trace, a folder of all ranks, FOLDER/JOB) or replays (JSON, with --nodes).

    Every instant of a rank belongs to one part (kernels by family, exposed communication by collective, waits for peers,
    copies, host, host waits, gaps), so that the parts of the difference add up to it. Kernels are matched by name, shape
    and order; renamed and differently fused ones are shown side by side.

    With --backends the two runs are replays of one workload on two backends; shown is where they differ: ends of NPUs,
    and collectives, those that differ most first.
    """
    if output is not None and output.suffix.lower() not in (".html", ".htm", ".json"):
        raise UsageError(f"{output}: unknown suffix; a comparison is an .html or a .json file")
    if backends is not None:
        found = _of_backends(backends, a, options, output)
    else:
        refuse_idle(tuple(options), "goes with --backends; of A and B each names its own run")
        if a is None or b is None:
            raise UsageError(
                "two runs are compared: chakra compare A B, or one workload with --backends ONE,OTHER"
            )
        found = _of_runs(a, b, rank, step, job, output)
    if output is not None:
        from chakra.io.files import atomic_text

        page = output.suffix.lower() != ".json"
        with atomic_text(output) as file:
            file.write(found.page() if page else document_text(found.document()) + "\n")
        click.echo(f"wrote {output}", err=True)
        if form == "text":
            return
    click.echo(document_text(found.document()) if form == "json" else found.text())


@dataclass(frozen=True, slots=True)
class _Found:
    """A comparison in its three forms."""

    text: Callable[[], str]
    page: Callable[[], str]
    document: Callable[[], dict[str, Any]]


def _of_runs(
    a: str, b: str, rank: int | None, step: int | None, job: str | None, output: Path | None
) -> _Found:
    """The comparison of two runs that are there."""
    from chakra.compare import compare, difference_html, difference_text, read_source
    from chakra.converters.pytorch.folder import names_recordings

    if output is not None and any(_overwrites(output, path) for path in (a, b)):
        raise UsageError(f"{output}: would overwrite an input")
    if not any(names_recordings(Path(path)) for path in (a, b)):
        refuse_idle(("job",), "goes with a folder of recordings")
    sources = [read_source(path, job=job, step=step) for path in (a, b)]
    if all(source.what != "recording" for source in sources):
        refuse_idle(("step",), "goes with recordings: replays have no profiler steps")
    found = compare(*sources, rank=rank)
    return _Found(lambda: difference_text(found), lambda: difference_html(found), found.to_dict)


def _of_backends(backends: str, a: str | None, options: Options, output: Path | None) -> _Found:
    """One workload on two backends."""
    if a is not None:
        raise UsageError(f"--backends: the runs are replays of one workload (-w); leave {a} out")
    refuse_idle(("rank", "step", "job"), "is for two runs A and B; --backends compares all NPUs")
    names = [name.strip() for name in backends.split(",")]
    if len(names) != 2 or names[0] == names[1] or not set(names) <= set(BACKENDS):
        others = "; compare others in another run" if len(names) > 2 else ""
        expected = f"expected two different ones of {', '.join(BACKENDS)} such as aware,flow"
        raise UsageError(f"--backends: {expected}, found {backends!r}{others}")
    if "ns3" not in names:
        refuse_idle(("long_run",), "is for ns3, which is not one of --backends")
    if options["workload"] is None:
        raise UsageError("--backends: which workload? -w PREFIX, as chakra replay takes it")
    from chakra.cli.support.machine import put_machine
    from chakra.cli.support.running import Running
    from chakra.compare.backends import backends_document, backends_html, backends_text
    from chakra.replay import compare_backends

    run = {**options, "replicate": False}
    put_machine(run)
    more: Options = {"memory": run["memory"], "comm_groups": run["groups"]}
    more = {name: value for name, value in more.items() if value is not None}
    if run["long_run"]:
        more["long_run"] = True
    with Running() as progress:

        def told(nodes: int, now_ns: int) -> bool:
            if not progress(nodes, now_ns):
                raise KeyboardInterrupt
            return True

        found = compare_backends(
            run["workload"],
            run["system"],
            run["network"],
            first=names[0],
            second=names[1],
            progress=told,
            **more,
        )
    for warning in found.results[0].warnings:
        click.echo(f"chakra compare: warning: {warning}", err=True)
    return _Found(
        lambda: backends_text(found), lambda: backends_html(found), lambda: backends_document(found)
    )


def _overwrites(output: Path, given: str) -> bool:
    """Whether the page would take the place of an input: of the file, or of a recording in the folder."""
    from chakra.converters.pytorch.folder import is_recording, names_recordings

    target, place = os.path.realpath(output), os.path.realpath(given)
    if not os.path.lexists(given) and names_recordings(Path(given)):
        place = os.path.dirname(place)
    if target == place or not os.path.isdir(place) or not os.path.isfile(target):
        return target == place
    return os.path.commonpath((target, place)) == place and is_recording(Path(target))
