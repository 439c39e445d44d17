"""``chakra timeline``: a run as a Chrome or Perfetto timeline."""

import time
from pathlib import Path
from typing import Any

import rich_click as click

from chakra.cli.support.command import ChakraCommand
from chakra.cli.support.numbers import WholeRange
from chakra.cli.support.options import Options, filename_options, refuse_idle
from chakra.converters.pytorch.folder import find_inputs, names_recordings
from chakra.converters.pytorch.read.file_kinds import kind_of
from chakra.converters.pytorch.read.first_bytes import FileKind
from chakra.errors import UsageError
from chakra.et.manifest import manifest_of, read_manifest
from chakra.io import files
from chakra.io.rank_files import expect_run, meant_prefix, ranks_found
from chakra.io.rank_lists import parse_ranks
from chakra.io.readable import bytes_text, counted
from chakra.timeline import (
    Timeline,
    estimated_bytes,
    filtered,
    from_document,
    read_kineto,
    read_log,
    write_timeline,
)
from chakra.timeline.astrasim_log import is_log, parse_frequency
from chakra.timeline.write import format_of
from chakra.viz.graph.select import parse_time, parse_window


@click.command(cls=ChakraCommand, name="timeline")
@click.argument("paths", nargs=-1, metavar="IN... OUT", type=click.Path(path_type=Path))
@filename_options("The input (for IN).")
@click.option(
    "--num_npus",
    "--num-npus",
    "npus",
    type=WholeRange(1),
    help="NPUs of an ASTRA-sim log, to be checked.",
)
@click.option(
    "--npu_frequency",
    "--npu-frequency",
    "frequency",
    default="1000",
    show_default=True,
    metavar="MHZ",
    help="Clock of a log's ticks, such as 1000 or 1.5GHz.",
)
@click.option(
    "-w",
    "--workload",
    metavar="PREFIX",
    help="The traces that ran (PREFIX.<rank>.et): draws arrows from sends to receives.",
)
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["json", "perfetto"]),
    help="Chrome JSON or Perfetto protobuf [default: by the suffix: .json, .pftrace].",
)
@click.option(
    "--window", metavar="BEGIN:END", help="Only what runs then, such as 10us:2ms (plain numbers are us)."
)
@click.option("--ranks", metavar="LIST", help="Only these ranks, such as 0,3,8-15.")
@click.option("--min-duration", metavar="TIME", help="Leave out shorter slices, such as 500ns.")
@click.option(
    "--max-size",
    type=WholeRange(1),
    default=1000,
    show_default=True,
    metavar="MB",
    help="Refuse to write more (viewers fail between 300 MB and 4 GB).",
)
@click.option("--estimate", is_flag=True, help="Only print how large the file would be.")
def command(
    paths: tuple[Path, ...], input_name: Path | None, output_name: Path | None, **options: Any
) -> None:
    """Write a timeline of a replay's result (with --nodes), an ASTRA-sim log, or Kineto traces (one or more
    ranks; a folder of them, or FOLDER/JOB)."""
    inputs = [*([input_name] if input_name else []), *paths]
    target = output_name or (inputs.pop() if len(inputs) > 1 else None)
    if not inputs or target is None:
        raise UsageError("expected an input and a file to write: chakra timeline RUN.json OUT.json")
    file_format = format_of(target, options["file_format"])
    if len(inputs) == 1 and names_recordings(inputs[0]):
        found = find_inputs(inputs[0])
        inputs = [rank.device for rank in found if rank.device is not None]
        if not inputs:
            raise UsageError(f"{found[0].linked}: a linked trace; a timeline is made from Kineto traces")
    files.expect_apart([target], inputs)
    if output_name is None:
        _expect_output(target)
    started = time.perf_counter()
    window = parse_window(options["window"]) if options["window"] else None
    ranks = parse_ranks(options["ranks"]) if options["ranks"] else None
    shortest = parse_time(options["min_duration"], "--min-duration") if options["min_duration"] else 0
    timeline, remarks = _read(inputs, options)
    whole = timeline.n_slices
    timeline = filtered(timeline, window_ns=window, ranks=ranks, min_duration_ns=shortest)
    for remark in remarks:
        click.echo(f"note: {remark}", err=True)
    expected = estimated_bytes(timeline, file_format)
    if options["estimate"]:
        click.echo(f"{expected}")
        click.echo(
            f"about {bytes_text(expected)} as {file_format}: {counted(timeline.n_slices, 'slice')}", err=True
        )
        return
    if expected > options["max_size"] * 1_000_000:
        raise UsageError(
            f"{target}: would have about {bytes_text(expected)}, more than --max-size {options['max_size']} "
            f"MB; make it "
            "smaller with --window, --ranks, --min-duration, or write a .pftrace"
        )
    size = write_timeline(timeline, target, file_format)
    seconds = time.perf_counter() - started
    click.echo(
        f"wrote {target}: {timeline.n_slices} of {counted(whole, 'slice')}, {counted(timeline.n_flows, 'flow')}, "
        f"{bytes_text(size)}, {seconds:.1f} s",
        err=True,
    )


def _expect_output(target: Path) -> None:
    """Refuse to write over what may be an input, where a name is the output's by its place alone: it is the last of
    those that a pattern such as ``*.kineto.json`` stands for.

    Raises
    ------
    UsageError
        It is there, and holds a recording or a replay's result; timelines that this command wrote are written again.
    """
    if not target.is_file():
        return
    kind = files.sniff_kind(target, error=UsageError)
    if kind not in (files.KINETO, files.RESULT):
        return
    raise UsageError(
        f"{target}: is there, and is a {kind}, so it may be meant as an input; the last name is the file to write, and "
        "-o writes over one"
    )


def _read(inputs: list[Path], options: Options) -> tuple[Timeline, list[str]]:
    expect_run(inputs[0])
    kind = files.sniff_kind(inputs[0], error=UsageError)
    if kind == files.JSON and is_log(inputs[0]):
        kind = files.TEXT  # a log line begins with a bracket, as JSON lists do
    if kind == files.JSON and kind_of(inputs[0]) is FileKind.DEVICE:
        kind = files.KINETO  # a list of events, as other profilers write it
    if kind == files.KINETO:
        refuse_idle(("npus", "frequency"), "is for a log of ASTRA-sim, not for a Kineto trace")
        refuse_idle(("workload",), "is for a replay or a log, not for a Kineto trace")
        timeline = read_kineto([*inputs])
        return timeline, [*timeline.remarks]
    if len(inputs) > 1:
        raise UsageError(
            f"{inputs[1]}: more than one input is for Kineto traces only; {inputs[0]} is a {kind}"
        )
    source = inputs[0]
    traces = _traces(options["workload"]) if options["workload"] else None
    if kind == files.RESULT:
        refuse_idle(("npus", "frequency"), "is for a log of ASTRA-sim, not for a replay's result")
        document: Any = files.read_json(source, error=UsageError)
        return from_document(document, traces=traces, source=str(source)), []
    if kind == files.EMPTY:
        raise UsageError(f"{source}: this is an empty file")
    if kind in (files.TEXT, files.UNKNOWN, files.JSON):
        if kind == files.JSON:
            raise UsageError(f"{source}: this JSON is neither a replay's result nor a Kineto trace")
        log = read_log(source, npus=options["npus"], mhz=parse_frequency(options["frequency"]), traces=traces)
        return log.timeline, log.remarks
    raise UsageError(
        f"{source}: this is {'an' if kind[0] in 'aeiou' else 'a'} {kind}; a timeline is made from a replay's "
        "result (chakra replay --format json --nodes), an ASTRA-sim log or a Kineto trace"
    )


def _traces(prefix: str) -> dict[int, Any]:
    from chakra.et import read_traces

    manifest = manifest_of(prefix)
    if manifest is not None:
        from chakra.generate.write import RankTraces

        # peers and groups as those of each rank, which arrows join
        ranks = RankTraces(read_manifest(manifest))
        return {rank: ranks.columns(rank).build(manifest) for rank in range(ranks.manifest.npus)}
    found = ranks_found(prefix)
    if not found:
        raise UsageError(f"--workload {prefix}: no {prefix}.<rank>.et{meant_prefix(prefix)}")
    return dict(zip(found, read_traces(list(found.values())), strict=True))
