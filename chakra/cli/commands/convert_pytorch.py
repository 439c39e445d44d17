"""`chakra convert pytorch`: PyTorch profiles to execution traces that replay like the machine."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click

from chakra.cli.commands.link import linking_options, settings_of, show
from chakra.cli.support.command import ChakraCommand
from chakra.cli.support.numbers import WholeRange
from chakra.cli.support.options import refuse_idle
from chakra.cli.support.progress import ProgressBar
from chakra.errors import UsageError
from chakra.io.documents import document_text
from chakra.io.readable import counted, told_once

if TYPE_CHECKING:
    from chakra.converters.pytorch.job import Inputs, Settings
    from chakra.converters.pytorch.ranks import JobResult

_PATH = click.Path(path_type=Path)

#: version of the JSON summary of a whole job
JOB_SCHEMA = "chakra.convert.pytorch/1"


class _ConvertCommand(ChakraCommand):
    """Says where traces go that stand on the command line by themselves."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click's own.

        Raises
        ------
        click.UsageError
            As click's, and for an argument without an option.
        """
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if not error.message.startswith("Got unexpected extra argument"):
                raise
            where = (
                "a folder of traces, or FOLDER/JOB, goes behind --dir, one rank's behind --host and --device"
            )
            raise click.UsageError(f"{error.message}: {where}", ctx=ctx) from None


@click.command(cls=_ConvertCommand)
@click.option(
    "--input", "-i", "linked", type=_PATH, help="Linked JSON of `chakra link` or of upstream's linker."
)
@click.option(
    "--host", "--chakra-host-trace", "host", type=_PATH, help="PyTorch execution trace (host trace)."
)
@click.option("--device", "--chakra-device-trace", "device", type=_PATH, help="Kineto trace.")
@click.option(
    "--dir", "folder", type=_PATH, help="Folder with the traces of all ranks of a job, or FOLDER/JOB."
)
@click.option("--job", help="With --dir: name of the job, where the folder holds several.")
@click.option(
    "--rank", type=WholeRange(0), help="Rank (default: as recorded, else from the file name, else 0)."
)
@click.option(
    "--output",
    "-o",
    "output",
    type=_PATH,
    required=True,
    help="The .et file; with --dir the prefix of PREFIX.<rank>.et and PREFIX.comm_groups.json.",
)
@click.option(
    "--check",
    "--simulate",
    "check",
    is_flag=True,
    help="Replay what was written with its own durations and say how far the span is from the measured one.",
)
@click.option("--gpu-only", is_flag=True, help="Only device nodes; the host's part is left out.")
@click.option(
    "--no-io", is_flag=True, help="Leave out values, shapes and types of inputs and outputs (smaller files)."
)
@click.option(
    "--metadata-nodes",
    is_flag=True,
    help="Write process group records as METADATA nodes too (current ASTRA-sim aborts on them; the group file is "
    "written in any case).",
)
@click.option(
    "--ranks",
    "durations",
    type=click.Choice(["own", "shortest"]),
    default="own",
    show_default=True,
    help="With --dir: duration of a collective: as each rank recorded it (waiting for late ranks included), or the "
    "shortest of all members.",
)
@click.option(
    "--deprofile",
    default="",
    metavar="auto|US",
    help="Take the cost of recording off the host's time: US microseconds for each operator and half of it for each "
    "call, or what the steps without profiler say that `chakra.capture` timed.",
)
@click.option(
    "--jobs",
    "-j",
    "workers",
    type=WholeRange(0),
    default=0,
    help="With --dir: processes (default: CPUs).",
)
@linking_options
def command(
    linked: Path | None,
    host: Path | None,
    device: Path | None,
    folder: Path | None,
    job: str | None,
    rank: int | None,
    output: Path,
    check: bool,
    durations: str,
    deprofile: str,
    workers: int,
    output_format: str,
    **options: Any,
) -> None:
    """Turn PyTorch profiles into execution traces.

    Give --input LINKED.json, or --host ET --device KINETO, or --device KINETO alone, or --dir FOLDER for a
    whole job.
    """
    settings = replace(settings_of(options), deprofile=deprofile)
    ways = [linked is not None, host is not None or device is not None, folder is not None]
    if sum(ways) != 1:
        raise UsageError("give one of --input LINKED.json, --host ET --device KINETO, or --dir FOLDER")
    if folder is not None:
        if rank is not None:
            raise UsageError("--rank goes with one rank's files, not with --dir")
        _job(folder, job, output, settings, check, durations == "shortest", workers, output_format)
        return
    for option, path in (("--device", device), ("--host", host), ("--input", linked)):
        if path is not None and path.is_dir():
            raise UsageError(
                f"{option}: {path} is a folder; --dir {path} takes the traces of all ranks in it"
            )
    refuse_idle(("job", "durations", "workers"), "goes with --dir")
    if linked is None and host is None:
        refuse_idle(("min_matched",), "needs a host trace: without one no operators are matched")
    _one(linked, host, device, rank, output, settings, check, output_format)


def _one(
    linked: Path | None,
    host: Path | None,
    device: Path | None,
    rank: int | None,
    output: Path,
    settings: "Settings",
    check: bool,
    output_format: str,
) -> None:
    from chakra.converters.pytorch import Inputs, convert_rank

    if host is not None and device is None:
        raise UsageError("--host needs --device: times and device work are in the Kineto trace")
    if not output.name or output.is_dir():
        raise UsageError(f"--output: {output} is a folder; expected the name of a file")
    target = output if output.name.endswith((".et", ".et.gz")) else output.with_name(output.name + ".et")

    def report(summary: dict[str, Any]) -> None:
        show(summary, str(target), output_format)
        if check and output_format == "text":
            _show_error([summary])

    convert_rank(Inputs(host, device, linked, rank), target, settings, check=check, report=report)


def _show_error(summaries: list[dict[str, Any]]) -> None:
    """Measured, replayed and explained span per rank; the last line carries the least that is explained."""
    for s in summaries:
        click.echo(
            f"rank {s['rank']}: measured span {s['measured_span_ns'] / 1000:,.3f} us, "
            f"replayed span {s['replayed_span_ns'] / 1000:,.3f} us, error {s['replay_error_percent']:+.2f} %, "
            f"explained {s['explained_percent']:.2f} %"
        )
    worst = max((s["replay_error_percent"] for s in summaries), key=abs)
    least = min(s["explained_percent"] for s in summaries)
    click.echo(
        f"explained: {least:.2f} % of the recorded span without fitted waits (replay error {worst:+.2f} %)"
    )


def _of_ranks(result: "JobResult", inputs: "Sequence[Inputs]") -> list[str]:
    """Warnings of all ranks, those of several ranks' files once."""
    files = {
        str(path) for rank in inputs for path in (rank.host, rank.device, rank.linked) if path is not None
    }
    found = []
    for outcome in result.outcomes:
        for text in outcome.summary["warnings"]:
            source, _, rest = text.partition(": ")
            # one that names no file of its rank tells of several, and stands by itself
            found.append((source, rest, [outcome.rank]) if source in files else ("", text, [outcome.rank]))
    named = told_once(row for row in found if row[0])
    return [*named, *dict.fromkeys(text for source, text, _ in found if not source)]


def _job(
    folder: Path,
    job: str | None,
    prefix: Path,
    settings: "Settings",
    check: bool,
    shortest: bool,
    workers: int,
    output_format: str,
) -> None:
    from chakra.converters.pytorch import convert_job, find_inputs

    inputs = find_inputs(folder, job)

    def report(result: "JobResult") -> None:
        for text in [*result.mismatches, *result.warnings, *_of_ranks(result, inputs)]:
            click.echo(f"chakra: warning: {text}", err=True)
        if output_format == "json":
            document = {
                "schema": JOB_SCHEMA,
                "groups": result.groups,
                "comm_groups_file": result.groups_path,
                "mismatches": result.mismatches,
                "clock_notes": result.clock_notes,
                "missing_ranks": result.missing_ranks,
                "warnings": result.warnings,
                "together_error_percent": None
                if result.together_error is None
                else round(100 * result.together_error, 4),
                "deprofiled": None if result.deprofiled is None else result.deprofiled.to_dict(),
                "ranks": [{"output": o.output, **o.summary} for o in result.outcomes],
            }
            click.echo(document_text(document, indent=1))
            return
        for outcome in result.outcomes:
            show(outcome.summary, outcome.output, "text", warned=True)
        click.echo(
            f"groups: {counted(len(result.groups), 'group')} besides that of all ranks, in {result.groups_path}"
        )
        for note in result.clock_notes:
            click.echo(f"clocks: {note}")
        if not result.mismatches and len(result.outcomes) > 1:
            click.echo(f"collectives and messages match across {counted(len(result.outcomes), 'rank')}")
        if result.deprofiled is not None:
            click.echo("\n".join(result.deprofiled.said()))
        if check:
            if len(result.outcomes) > 1 and result.together_error is not None:
                click.echo(
                    "all ranks together, collectives as recorded: the slowest is "
                    f"{100 * result.together_error:+.2f} % off"
                )
            _show_error([o.summary for o in result.outcomes])

    with ProgressBar("linking", 2 * len(inputs), elapsed=True) as bar:
        convert_job(
            inputs,
            prefix,
            settings,
            check=check,
            shortest=shortest,
            jobs=workers,
            progress=(lambda text: bar.show(advance=1, what=text)) if bar else None,
            report=report,
        )
