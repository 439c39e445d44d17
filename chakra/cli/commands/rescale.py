"""`chakra rescale`: a workload of more ranks from a recorded or generated one of few."""

from typing import Any

import rich_click as click

from chakra.cli.support.command import ChakraCommand
from chakra.cli.support.numbers import WholeNumber
from chakra.cli.support.options import format_option
from chakra.io.documents import document_text
from chakra.io.readable import counted

#: version of the summary's document
SCHEMA = "chakra.rescale/1"


@click.command(cls=ChakraCommand)
@click.argument("source", metavar="IN")
@click.option(
    "-o", "--output", metavar="PREFIX", required=True, help="Prefix of the manifest and traces to write."
)
@click.option(
    "--npus", type=WholeNumber(), required=True, help="Ranks wanted: a multiple of those there are."
)
@click.option(
    "--along",
    type=click.Choice(["data", "pipeline", "expert"]),
    default="data",
    show_default=True,
    help="What there is more of: replicas (data parallelism, ZeRO, FSDP), replicas of pipelines, or ranks that share the "
    "experts of a layer.",
)
@click.option(
    "--group",
    "named",
    metavar="NAME",
    multiple=True,
    help="A group that grows, where names do not say it: that of the gradients, or of the experts' tokens. Groups of its "
    "form, and those that hold it, grow with it. Repeatable.",
)
@click.option(
    "-g", "--groups", metavar="FILE", help="Groups file of plain traces; default: IN.comm_groups.json."
)
@click.option(
    "--optimizer",
    metavar="PATTERN",
    help="Regular expression for the names of the optimizer's nodes, which work on a shard; default: the usual names.",
)
@format_option("What was done, as text or as one JSON document.")
def command(
    source: str,
    output: str,
    npus: int,
    along: str,
    named: tuple[str, ...],
    groups: str | None,
    optimizer: str | None,
    output_format: str,
) -> None:
    """Make a workload of more ranks from one of few, at the same batch per rank.

    IN is a workload manifest, or the prefix of the traces of all ranks (PREFIX.<rank>.et). Groups, peers, sizes and
    numbers of collectives become those of the larger job; ranks that do the same share a trace. Tensor, context and
    pipeline degrees stay.
    """
    from chakra.generate import write_shared
    from chakra.rescale import read_workload, rescale

    extra = {} if optimizer is None else {"optimizer": optimizer}
    workload = rescale(read_workload(source, groups), npus, along=along, group=named, **extra)
    path = write_shared(workload, output)
    document = {
        "schema": SCHEMA,
        "written": str(path),
        "npus": npus,
        "traces": len(workload.traces),
        **_rescaled(workload.about),
    }
    click.echo(document_text(document) if output_format == "json" else "\n".join(_lines(document)))


def _rescaled(about: Any) -> dict[str, Any]:
    found: dict[str, Any] = about["rescaled"]
    return found


def _lines(document: dict[str, Any]) -> list[str]:
    """The summary for people."""
    from chakra.alignment import aligned

    at, begun = document["positions"], document["from"]
    lines = [
        (
            f"{counted(document['npus'], 'rank')} from {begun['npus']} along {document['along']}, in "
            f"{counted(document['traces'], 'trace')}"
        ),
        f"replicas: {at['recorded']} -> {at['now']}, {counted(at['stride'], 'rank')} apart",
    ]
    lines += [
        f"group {name}: {group['members'][0]} -> {counted(group['members'][1], 'rank')} ({group['exchanges']})"
        for name, group in document["groups"].items()
    ]
    rows = [
        (
            row["group"],
            row["kind"],
            *(" -> ".join(f"{x:,}" for x in dict.fromkeys(row[key])) for key in ("calls", "bytes")),
        )
        for row in document["collectives"]
    ]
    if rows:
        lines += aligned(("group", "collective", "calls in distinct traces", "bytes"), rows).splitlines()
    lines += [f"note: {note}" for note in document["notes"]]
    return [*lines, f"wrote {document['written']}"]
