"""`chakra link`: join a PyTorch host trace with its Kineto device trace."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click

from chakra.cli.support.command import ChakraCommand
from chakra.cli.support.numbers import DecimalNumber, DecimalRange, WholeNumber, WholeRange
from chakra.cli.support.options import Command, Decorator, Options, format_option, refuse_idle
from chakra.errors import UsageError
from chakra.io.documents import document_text

if TYPE_CHECKING:
    from chakra.converters.pytorch import Settings

_PATH = click.Path(path_type=Path)

#: version of the JSON summary of one rank, of this command and of `chakra convert pytorch`
SCHEMA = "chakra.link/1"


def linking_options(function: Command) -> Command:
    """Options shared by `chakra link` and `chakra convert pytorch`."""
    options: list[Decorator] = [
        click.option(
            "--gaps",
            type=click.Choice(["node", "fold", "drop"]),
            default="node",
            show_default=True,
            help="Time of a thread that no operator covers (Python between operators): nodes of its own, added to the "
            "next node, or left out.",
        ),
        click.option("--step", type=WholeNumber(), metavar="N", help="Only ProfilerStep#N."),
        click.option(
            "--window",
            nargs=2,
            type=DecimalNumber(),
            metavar="FROM TO",
            help="Only operators that start in this window, in milliseconds since the first event of the device trace.",
        ),
        click.option(
            "--add-unmatched",
            is_flag=True,
            help="Operators without host node inside the region become nodes too.",
        ),
        click.option(
            "--cpu-comm",
            type=click.Choice(["comm", "comp"]),
            default="comm",
            show_default=True,
            help="Communication of CPU back ends (gloo): communication nodes, or CPU time.",
        ),
        click.option(
            "--deps",
            type=click.Choice(["order", "tensors"]),
            default="order",
            show_default=True,
            help="Device operations follow their stream, or the operations that wrote the tensors they read.",
        ),
        click.option(
            "--repair",
            is_flag=True,
            help="Cut a broken file at its last whole element instead of refusing it.",
        ),
        click.option(
            "--min-matched",
            type=DecimalRange(0, 1),
            default=0.9,
            show_default=True,
            help="Exit code 4 when a smaller share of host operators is matched.",
        ),
        click.option(
            "--min-attached",
            type=DecimalRange(0, 1),
            default=0.5,
            show_default=True,
            help="Exit code 4 when a smaller share of device operations hangs on an operator.",
        ),
        click.option(
            "--min-recorded",
            type=DecimalRange(0, 1),
            default=0.9,
            show_default=True,
            help="Exit code 4 when a smaller share of kernel launches has a kernel in the trace.",
        ),
        click.option(
            "--comm-kernels",
            "comm_kernels",
            multiple=True,
            metavar="PATTERN=KIND",
            help="Kernels whose name the regular expression finds communicate: KIND is allreduce, allgather, "
            "reducescatter, alltoall, broadcast, reduce, gather, scatter, barrier, or none. May be given again.",
        ),
        click.option(
            "--strict",
            is_flag=True,
            help="Exit code 4 when the check of what was written finds any difference.",
        ),
        format_option("Form of the summary on standard output."),
    ]
    for option in reversed(options):
        function = option(function)
    return function


def settings_of(options: Options) -> "Settings":
    """`Settings` of a run out of the shared options."""
    from chakra.converters.pytorch import Settings
    from chakra.converters.pytorch.link import LinkOptions
    from chakra.converters.pytorch.write.emit import EmitOptions

    window = options.get("window")
    if window and not all(map(math.isfinite, window)):
        raise UsageError(f"--window {window[0]:g} {window[1]:g}: expected two times in milliseconds")
    if window and window[0] >= window[1]:
        raise UsageError(f"--window {window[0]:g} {window[1]:g}: the end must lie behind the beginning")
    return Settings(
        link=LinkOptions(
            gaps=options["gaps"],
            add_unmatched=options["add_unmatched"],
            step=options["step"],
            window_ns=(round(window[0] * 1e6), round(window[1] * 1e6)) if window else None,
            gpu_only=options.get("gpu_only", False),
            cpu_comm=options["cpu_comm"],
            deps=options["deps"],
            comm_kernels=options["comm_kernels"],
        ),
        emit=EmitOptions(
            io=not options.get("no_io", False), metadata_nodes=options.get("metadata_nodes", False)
        ),
        repair=options["repair"],
        min_matched=options["min_matched"],
        min_attached=options["min_attached"],
        min_recorded=options["min_recorded"],
        strict=options["strict"],
    )


def show(summary: dict[str, Any], output: str, output_format: str, *, warned: bool = False) -> None:
    """Print what one rank's link found, warnings on standard error unless they were `warned` of."""
    from chakra.converters.pytorch.write.link_summary import lines

    for warning in () if warned else summary["warnings"]:
        click.echo(f"chakra: warning: {warning}", err=True)
    for problem in summary.get("self_check", []):
        click.echo(f"chakra: warning: {output}: self-check: {problem}", err=True)
    if output_format == "json":
        click.echo(document_text({"schema": SCHEMA, "output": output, **summary}, indent=1))
        return
    for line in lines(summary):
        click.echo(line)
    click.echo(f"  written       {output}")
    if summary.get("comm_groups_file"):
        click.echo(f"  groups        {summary['comm_groups_file']}")


@click.command(cls=ChakraCommand)
@click.option(
    "--host", "--chakra-host-trace", "host", type=_PATH, help="PyTorch execution trace (host trace)."
)
@click.option("--device", "--chakra-device-trace", "device", type=_PATH, required=True, help="Kineto trace.")
@click.option(
    "--rank", type=WholeRange(0), help="Rank (default: as recorded, else from the file name, else 0)."
)
@click.option(
    "--output",
    "--output-file",
    "-o",
    "output",
    type=_PATH,
    required=True,
    help="Linked JSON (.json, .json.gz), or an execution trace when the name ends in .et.",
)
@click.option(
    "--log-file", "--log-filename", hidden=True, expose_value=False, help="Taken from upstream's command."
)
@linking_options
def command(
    host: Path | None, device: Path, rank: int | None, output: Path, output_format: str, **options: Any
) -> None:
    """Join a PyTorch host trace with its Kineto device trace.

    Without a host trace the graph is built from the device trace alone. The summary says what was matched,
    how, and what was not.
    """
    from chakra.converters.pytorch import Inputs, convert_rank

    if host is None:
        refuse_idle(("min_matched",), "needs a host trace: without one no operators are matched")
    convert_rank(
        Inputs(host=host, device=device, rank=rank),
        output,
        settings_of(options),
        report=lambda summary: show(summary, str(output), output_format),
    )
