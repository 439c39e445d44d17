"""`chakra compare`: where the difference of two runs lies."""

import os
from pathlib import Path

import rich_click as click

from chakra.cli.support.command import ChakraCommand
from chakra.cli.support.options import refuse_idle
from chakra.errors import UsageError
from chakra.io.documents import document_text


@click.command(cls=ChakraCommand, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option(
    "--rank", type=click.IntRange(0), help="Rank to compare; default: the one that ends last, in each."
)
@click.option("--step", type=int, help="Of recordings only this ProfilerStep.")
@click.option("--job", metavar="STEM", help="Job, where a folder of recordings holds several.")
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
    a: str, b: str, rank: int | None, step: int | None, job: str | None, form: str, output: Path | None
) -> None:
    """Compare two runs: recordings (a Kineto trace, or a folder of those of all ranks) or replays (JSON with --nodes).

    Every instant of a rank belongs to one part (kernels by family, exposed communication by collective, waits for peers,
    copies, host, host waits, gaps), so that the parts of the difference add up to it. Kernels are matched by name, shape
    and order; renamed and differently fused ones are shown side by side.
    """
    from chakra.compare import compare, difference_html, difference_text, read_source
    from chakra.io.files import atomic_text

    if output is not None:
        if output.suffix.lower() not in (".html", ".htm", ".json"):
            raise UsageError(f"{output}: unknown suffix; a comparison is an .html or a .json file")
        if any(_overwrites(output, path) for path in (a, b)):
            raise UsageError(f"{output}: would overwrite an input")
    if not any(map(os.path.isdir, (a, b))):
        refuse_idle(("job",), "goes with a folder of recordings")
    sources = [read_source(path, job=job, step=step) for path in (a, b)]
    if all(source.what != "recording" for source in sources):
        refuse_idle(("step",), "goes with recordings: replays have no profiler steps")
    found = compare(*sources, rank=rank)
    if output is not None:
        page = output.suffix.lower() != ".json"
        with atomic_text(output) as file:
            file.write(difference_html(found) if page else document_text(found.to_dict()) + "\n")
        click.echo(f"wrote {output}", err=True)
        if form == "text":
            return
    click.echo(document_text(found.to_dict()) if form == "json" else difference_text(found))


def _overwrites(output: Path, given: str) -> bool:
    """Whether the page would take the place of an input: of the file, or of a recording in the folder."""
    target, place = os.path.realpath(output), os.path.realpath(given)
    if target == place or not os.path.isdir(place) or not os.path.isfile(target):
        return target == place
    from chakra.converters.pytorch.folder import is_recording

    return os.path.commonpath((target, place)) == place and is_recording(Path(target))
