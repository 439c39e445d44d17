"""``chakra report``: a self-contained page of one or more runs."""

from dataclasses import replace
from pathlib import Path

import rich_click as click

from chakra.cli.support.command import ChakraCommand
from chakra.cli.support.progress import ProgressBar
from chakra.errors import UsageError
from chakra.io.files import atomic_text, expect_apart
from chakra.io.readable import bytes_text, counted
from chakra.report import essence, read_run, report_html
from chakra.report.document import Run, designs


@click.command(cls=ChakraCommand, name="report")
@click.argument("runs", nargs=-1, required=True, metavar="RUN.json...", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="The HTML file to write; without it, the essence is printed as text.",
)
@click.option(
    "--name",
    "names",
    multiple=True,
    help="Name of a run in the report, in the order of the files (may repeat).",
)
def command(runs: tuple[Path, ...], output: Path | None, names: tuple[str, ...]) -> None:
    """Write a report of a replay's result (chakra replay --format json); of several, a comparison against the
    first."""
    if len(names) > len(runs):
        raise UsageError(f"--name is given {len(names)} times for {len(runs)} runs")
    unwritten = next(
        (path for path in runs if path.suffix.lower() in (".html", ".htm") and not path.exists()), None
    )
    if unwritten is not None and output is None:
        raise UsageError(f"{unwritten}: there is no such file; the page to write goes behind -o")
    with ProgressBar("reading results", after_s=1.0):
        found = [read_run(path) for path in runs]
    called = [*names, *(designs(found) or _short_names(runs))[len(names) :]]
    found = [replace(run, name=name) for run, name in zip(found, called, strict=True)]
    if output is None:
        click.echo("\n\n".join(_titled(run, len(found) > 1) for run in found))
        return
    if output.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"{output}: unknown suffix; a report is an .html file")
    expect_apart([output], runs)
    with ProgressBar("drawing the page", after_s=1.0):
        page = report_html(found)
    with atomic_text(output) as file:
        file.write(page)
    click.echo(
        f"wrote {output}: {counted(len(found), 'run')}, {bytes_text(len(page.encode()))}",
        err=True,
    )


def _titled(run: Run, several: bool) -> str:
    return f"{run.name}\n{essence(run)}" if several else essence(run)


def _short_names(paths: tuple[Path, ...]) -> list[str]:
    """File names where they tell the runs apart, whole paths where not."""
    stems = [path.stem for path in paths]
    return stems if len(set(stems)) == len(stems) else [str(path) for path in paths]
