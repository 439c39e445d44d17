"""`chakra replay`: replay execution traces on a described machine.

Takes this project's short options and ASTRA-sim's own flags (replay semantics, section 1.1), so that a user's run script
works by swapping the program's name.
"""

import importlib
import os
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import rich_click as click

from chakra.cli.support.command import ChakraCommand
from chakra.cli.support.machine import put_machine
from chakra.cli.support.numbers import DecimalNumber, DecimalRange, WholeRange
from chakra.cli.support.options import Options
from chakra.cli.support.running import Running
from chakra.errors import EXIT_INTERRUPTED, ThresholdError, UsageError
from chakra.io.digits import decimal_number
from chakra.io.rank_lists import parse_ranks
from chakra.io.readable import counted
from chakra.replay.options import BACKENDS, COLLECTIVE_ALGORITHMS, COLLECTIVE_PROTOCOLS, InputWarning

if TYPE_CHECKING:
    from chakra.replay.config.model import System
    from chakra.replay.results.result import ReplayResult

_TRUE = ("true", "t", "1", "yes", "on")
_FALSE = ("false", "f", "0", "no", "off")


def _boolean(ctx: click.Context, param: click.Parameter, value: str) -> bool:
    """The value of `--flag`, `--flag=true` or `--flag=false`."""
    if value.lower() in _TRUE:
        return True
    if value.lower() in _FALSE:
        return False
    raise click.BadParameter(f"'{value}' is neither true nor false.", ctx=ctx, param=param)


@click.command(cls=ChakraCommand)
@click.argument("prefix", metavar="PREFIX", required=False)
@click.option(
    "-w",
    "--workload",
    "--workload-configuration",
    "workload",
    metavar="PREFIX",
    help="Traces (in place of the argument): rank i reads PREFIX.<i>.et or PREFIX.<i>.et.gz.",
)
@click.option(
    "-s",
    "--system",
    "--system-configuration",
    "system",
    metavar="FILE",
    help="System description (JSON). Needed without --platform.",
)
@click.option(
    "-n",
    "--network",
    "--network-configuration",
    "network",
    metavar="FILE",
    help="Network description (YAML, or GraphML of links). Needed without --platform.",
)
@click.option(
    "--platform",
    metavar="MACHINE",
    help='A known machine, such as hgx-h100 or "8x hgx-h100 over 400G", with as many NPUs as the workload has ranks, in '
    "place of -s, -n or both.",
)
@click.option(
    "-m",
    "--memory",
    "--remote-memory-configuration",
    "memory",
    metavar="FILE",
    help="Remote-memory description (JSON). [default: no remote memory]",
)
@click.option(
    "-g",
    "--groups",
    "--comm-group-configuration",
    "groups",
    metavar="FILE",
    default="empty",
    help="Communicator groups (JSON); `empty` means none.",
)
@click.option(
    "--backend",
    type=click.Choice(BACKENDS),
    default="unaware",
    show_default=True,
    help="Whether messages that share a link wait for each other, or share it as flows, or as packets by ns-3.",
)
@click.option(
    "--compat",
    type=click.Choice(["none", "astra-sim", "astra-sim-1.0"]),
    default="none",
    show_default=True,
    help="Give ASTRA-sim's number, its known errors included, instead of the right one.",
)
@click.option(
    "--num-queues-per-dim",
    "--queues-per-dim",
    "queues_per_dim",
    type=WholeRange(1, 1_000_000),
    default=1,
    show_default=True,
    metavar="N",
    help="Queues per network dimension.",
)
@click.option(
    "--injection-scale",
    type=DecimalNumber(),
    default=1.0,
    show_default=True,
    metavar="X",
    help="Multiply an endpoint delay that the system file gives.",
)
@click.option(
    "--comm-scale",
    type=DecimalNumber(),
    default=1.0,
    show_default=True,
    metavar="X",
    help="Multiply communication sizes (ASTRA-sim takes this option without effect).",
)
@click.option(
    "--compute-scale",
    type=DecimalNumber(),
    default=1.0,
    show_default=True,
    metavar="X",
    help="Multiply compute times (ASTRA-sim takes this option without effect).",
)
@click.option(
    "--ideal",
    is_flag=True,
    help="Compute at 100 % of the peak, not by the machine's operator model.",
)
@click.option(
    "--accelerator-speed",
    type=DecimalNumber(),
    default=1.0,
    show_default=True,
    metavar="X",
    help="Divide the durations that traces give for the accelerator's kernels.",
)
@click.option(
    "--kernel-speed",
    "kernel_speed",
    multiple=True,
    metavar="FAMILY=X",
    help="Divide the times of the accelerator's kernels of a family: matmul, attention, convolution, memory-bound (or "
    "memory, norm, reduction, optimizer, copy), other, or name:PATTERN for names. May be given again.",
)
@click.option(
    "--accelerator",
    metavar="NAME",
    help="Give recorded kernels the times of another accelerator (b200, hgx-h100): by the operator models of both for "
    "the shapes that the recording has, else by bandwidth or peak; the result notes for how much.",
)
@click.option(
    "--recorded-on",
    "recorded_on",
    metavar="NAME",
    help="With --accelerator: the recorded accelerator, where the traces do not say it.",
)
@click.option(
    "--host-speed",
    type=DecimalNumber(),
    default=1.0,
    show_default=True,
    metavar="X",
    help="Divide the durations that traces give for the host: operators, gaps, waits.",
)
@click.option(
    "--start",
    type=click.Choice(["recorded", "aligned"]),
    help="Ranks of a converted recording start as far apart as they were recorded, or together. "
    "[default: recorded; aligned with replay-only]",
)
@click.option(
    "--measured",
    multiple=True,
    metavar="NAME",
    help="Measured times of collectives and of matrix products in place of the models, where they reach: a file (output "
    "of nccl-tests, CSV, parquet), aiconfigurator or aiconfigurator:SYSTEM, either with /BACKEND behind it. May be given "
    "again. [default: collective-times and operator-times of the system file]",
)
@click.option(
    "--collective-algorithm",
    type=click.Choice(COLLECTIVE_ALGORITHMS, case_sensitive=False),
    help="Hold the collective library to this algorithm, as NCCL_ALGO does. [default: as the system file says]",
)
@click.option(
    "--collective-protocol",
    type=click.Choice(COLLECTIVE_PROTOCOLS, case_sensitive=False),
    help="Hold the collective library to this protocol, as NCCL_PROTO does. [default: as the system file says]",
)
@click.option(
    "--collective-channels",
    type=WholeRange(1, 1_000_000),
    metavar="N",
    help="Most channels of the collective library (NCCL_MAX_NCHANNELS). [default: as the system file says]",
)
@click.option(
    "--rendezvous-protocol",
    "--rendezvous",
    "rendezvous",
    is_flag=False,
    flag_value="true",
    default="false",
    show_default=True,
    metavar="[true|false]",
    callback=_boolean,
    help="A message starts only when its receive is posted.",
)
@click.option(
    "--comm-streams",
    type=WholeRange(1, 1_000_000),
    default=1,
    show_default=True,
    metavar="N",
    help="Collectives that an NPU may have in flight (ASTRA-sim: 1).",
)
@click.option(
    "--npu-scale",
    metavar="FILE",
    help="Factors on compute times per NPU: JSON, or lines such as `4-7 1.5` (1.5 times slower).",
)
@click.option(
    "--replicate",
    is_flag=True,
    help="Let the ranks that have no trace repeat those that have, with groups and peers shifted.",
)
@click.option(
    "--fail-link", "fail_links", multiple=True, metavar="A-B", help="This link is down. May be given again."
)
@click.option(
    "--slow-link",
    "slow_links",
    multiple=True,
    metavar="A-B=X",
    help="This link has X times its bandwidth. May be given again.",
)
@click.option(
    "--long-run",
    is_flag=True,
    help="With --backend ns3: run also what is estimated to take more than an hour.",
)
@click.option(
    "--what-if",
    "what_if",
    metavar="KEY=VALUE,..",
    help="Replay once more with changes such as dim1.bandwidth=2x,npu.flops=1.5x; print what changes.",
)
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["text", "json", "csv", "parquet", "astra-sim"]),
    help="Form of the output; astra-sim: what ASTRA-sim prints, and nothing else. "
    "[default: by the suffix of -o: .json, .csv, .parquet; else text]",
)
@click.option(
    "--cost-per-npu-hour",
    type=DecimalRange(1e-6, 1e9),
    metavar="PRICE",
    help="What an NPU costs in an hour, in any currency: adds costs to the result.",
)
@click.option("--per-npu", is_flag=True, help="With text: a line for each NPU, also of more than 16.")
@click.option("--nodes", is_flag=True, help="With json, csv or parquet: issue and finish of every node.")
@click.option(
    "--nodes-of",
    metavar="NPUS",
    help="The same for these NPUs alone, such as 0,8,16-23; classes: one NPU of each class of NPUs that ran as one.",
)
@click.option("-o", "--output", metavar="FILE", help="Write there instead of standard output.")
@click.option(
    "--logging-configuration",
    default="empty",
    metavar="FILE",
    help="Taken from ASTRA-sim's command; the file must exist, its sinks are not set up, and a warning says so.",
)
@click.option(
    "--logging-folder",
    metavar="FOLDER",
    help="Write log.log and err.log there. [default: log, if trace-enabled is on; else none]",
)
@click.option(
    "--explain-engine", is_flag=True, help="Say on standard error which engine ran, and on how much."
)
@click.option("-q", "--quiet", is_flag=True, help="Only the data: no summary, warnings or progress.")
@click.option("--strict", is_flag=True, help="Exit with 4 if there is any warning.")
def command(prefix: str | None, **options: Any) -> None:
    """Replay execution traces on a described machine and print when each NPU finishes.

    PREFIX names the traces: rank i reads PREFIX.<i>.et or PREFIX.<i>.et.gz, and a generated workload is
    PREFIX.workload.json. Example: chakra replay traces/run -s system.json -n network.yml
    """
    options["workload"] = _workload(prefix, options["workload"])
    options["output_format"] = options["output_format"] or _format_of(options["output"])
    shown = Shown(**{item.name: options.pop(item.name) for item in fields(Shown)})
    changes = options.pop("what_if")
    put_machine(options, replicates=True)
    _check_options(shown, what_if=changes is not None)
    run = _arguments(**options)
    if changes is not None:
        _compare(changes, run, shown)
    else:
        _replay(run, shown)


def _workload(prefix: str | None, option: str | None) -> str:
    """The prefix of the traces, which the argument or ASTRA-sim's option names.

    Raises
    ------
    UsageError
        If neither is there, or both.
    """
    if prefix is not None and option is not None:
        raise UsageError(f"the traces are named twice: {prefix} and --workload {option}")
    named = option if prefix is None else prefix
    if named is None:
        raise UsageError("no traces: give their PREFIX (rank i reads PREFIX.<i>.et), or -w PREFIX")
    return named


def _format_of(output: str | None) -> str:
    """The form that the suffix of a file to write names; text for any other."""
    suffix = Path(output or "").suffix.lower().removeprefix(".")
    return suffix if suffix in ("json", "csv", "parquet") else "text"


@dataclass(frozen=True, slots=True)
class Shown:
    """What is printed and written of a run; the fields are options of `command`."""

    output_format: str
    output: str | None
    cost_per_npu_hour: float | None
    per_npu: bool
    nodes: bool
    nodes_of: str | None
    logging_configuration: str
    logging_folder: str | None
    explain_engine: bool
    quiet: bool
    strict: bool

    @property
    def with_nodes(self) -> bool:
        """Whether nodes are written."""
        return self.nodes or self.nodes_of is not None

    @property
    def nodes_shown(self) -> bool | Literal["classes"] | list[int]:
        """Of which NPUs nodes are written, as `ReplayResult.to_dict` takes it.

        Raises
        ------
        UsageError
            If the option is no list of NPUs.
        """
        if self.nodes_of is None:
            return self.nodes
        return "classes" if self.nodes_of == "classes" else sorted(parse_ranks(self.nodes_of, "--nodes-of"))

    def warn(self, warnings: list[str]) -> None:
        """Print warnings."""
        if not self.quiet:
            for warning in warnings:
                click.echo(f"chakra replay: warning: {warning}", err=True)

    def wrote(self) -> None:
        """Name the file that was written."""
        if self.output is not None and not self.quiet:
            click.echo(f"wrote {self.output}", err=True)

    def end(self, warnings: list[str]) -> None:
        """End the command.

        Raises
        ------
        UsageError
            If warnings count and one says that the input contradicts itself.
        ThresholdError
            If warnings count and there are others.
        """
        contradictions = [warning for warning in warnings if isinstance(warning, InputWarning)]
        if self.strict and contradictions:
            raise UsageError(f"--strict: {contradictions[0]}")
        if self.strict and warnings:
            raise ThresholdError(f"--strict: {counted(len(warnings), 'warning')}: {warnings[0]}")


def _check_options(shown: Shown, *, what_if: bool) -> None:
    """Refuse options that do not go together, before the run."""
    if shown.nodes and shown.nodes_of is not None:
        raise UsageError("--nodes writes all nodes, --nodes-of those of some NPUs: give one of them")
    if shown.with_nodes and shown.output_format in ("text", "astra-sim"):
        option = "--nodes" if shown.nodes else "--nodes-of"
        raise UsageError(f"{option} needs --format json, csv or parquet, or such a suffix of --output")
    # a list that is none is told before the run
    _ = shown.nodes_shown
    if shown.output_format == "parquet" and shown.output is None:
        raise UsageError("--format parquet writes a file: give --output FILE")
    if shown.per_npu and shown.output_format != "text":
        raise UsageError("--per-npu is for the text; --format csv or json has a row for each NPU")
    tabular = shown.output_format in ("csv", "parquet", "astra-sim")
    if what_if and (shown.with_nodes or shown.explain_engine or tabular or shown.logging_folder):
        raise UsageError(
            "--what-if prints text or json of two runs: without --nodes, csv, logs or --explain-engine"
        )
    if shown.cost_per_npu_hour is not None and (
        what_if or tabular or (shown.quiet and shown.output_format == "text")
    ):
        raise UsageError(
            "--cost-per-npu-hour is for the summary or the json of one run: without --what-if, csv or --quiet"
        )
    _check_output(shown.output)
    sinks = shown.logging_configuration
    if sinks != "empty" and not os.path.isfile(sinks):
        raise UsageError(f"--logging-configuration: {sinks}: no such file")


def _arguments(
    *,
    groups: str,
    compat: str,
    npu_scale: str | None,
    replicate: bool,
    fail_links: tuple[str, ...],
    slow_links: tuple[str, ...],
    long_run: bool,
    kernel_speed: tuple[str, ...],
    **options: Any,
) -> dict[str, Any]:
    """Arguments of `simulate` and `what_if` from options of the command."""
    mode = None if compat == "none" else compat
    given = {**options, "comm_groups": groups, "compat": mode}
    if kernel_speed:
        given["kernel_speeds"] = _speeds(kernel_speed)
    if npu_scale is not None:
        from chakra.replay.config import load_network
        from chakra.replay.config.npu_scale import load_npu_scale

        given["npu_scale"] = load_npu_scale(npu_scale, load_network(given["network"], compat=mode).npus)
    if replicate:
        given["replicate"] = True
    if long_run:
        given["long_run"] = True
    if fail_links or slow_links:
        from chakra.replay.networks.blocks import parse_slow

        given |= {"fail_links": fail_links, "slow_links": parse_slow(slow_links)}
    return given


def _speeds(texts: tuple[str, ...]) -> dict[str, float]:
    """Factors by family, from ``FAMILY=X``."""
    found: dict[str, float] = {}
    for text in texts:
        name, sign, value = text.rpartition("=")
        try:
            factor = decimal_number(value.removesuffix("x")) if sign and name else float("nan")
        except ValueError:
            factor = float("nan")
        if not 0 < factor < float("inf"):
            raise UsageError(f"--kernel-speed: expected FAMILY=X such as matmul=2, found {text!r}")
        if name in found:
            raise UsageError(f"--kernel-speed: {name} is given twice")
        found[name] = factor
    return found


def _replay(run: Options, shown: Shown) -> None:
    """Replay and print the result."""
    # by name: the package hands out the function, which shares its name with the module that holds it
    simulate = importlib.import_module("chakra.replay").simulate
    with Running() as progress:
        result: ReplayResult = simulate(progress=progress, **run)
    _write_log(result, shown.logging_folder)
    if shown.output_format == "astra-sim":
        from chakra.replay.results.astra_log import format_astra_sim

        document: dict[str, Any] = {"warnings": result.warnings}
        text = format_astra_sim(result)
    else:
        document = _document(result, shown)
        text = _text(document, shown)
    warnings = [*(document.get("warnings") or []), *_not_done(result.system, shown.logging_configuration)]
    shown.warn(warnings)
    if shown.explain_engine:
        for line in result.explain():
            click.echo(f"chakra replay: {line}", err=True)
    if shown.output_format == "parquet" and shown.output is not None:
        from chakra.replay.results.formatting import write_parquet

        write_parquet(document, shown.output)
    else:
        _emit(text, shown.output)
    shown.wrote()
    if result.partial:
        click.echo("chakra replay: interrupted: the result is partial", err=True)
        sys.exit(EXIT_INTERRUPTED)
    shown.end(warnings)


def _not_done(system: "System", logging_configuration: str) -> list[str]:
    """What ASTRA-sim would write and this program does not."""
    said = []
    if logging_configuration != "empty":
        said.append(
            f"--logging-configuration: the sinks of {logging_configuration} are not set up; --logging-folder writes "
            "log.log"
        )
    if system.track_local_mem:
        said.append(
            f"track-local-mem: {system.local_mem_trace_filename}.<npu>.json is not written; memory over time is in the "
            "result (--format json, key memory)"
        )
    return said


def _compare(changes: str, run: Options, shown: Shown) -> None:
    """Run with and without some changes, and print the difference."""
    from chakra.replay.results.formatting import format_json
    from chakra.replay.what_if import what_if

    with Running() as progress:
        found = what_if(changes=changes, progress=progress, **run)
    document = found.to_dict()
    warnings = document["warnings"]
    shown.warn(warnings)
    _emit(format_json(document) if shown.output_format == "json" else found.to_text(), shown.output)
    shown.wrote()
    shown.end(warnings)


def _check_output(output: str | None) -> None:
    """Fail before the run, not after it, where the output cannot be written."""
    if output is None:
        return
    folder = os.path.dirname(output) or "."
    if os.path.isdir(output):
        raise UsageError(f"--output: {output} is a folder")
    if os.path.exists(folder) and not (os.path.isdir(folder) and os.access(folder, os.W_OK)):
        raise UsageError(f"--output: {output}: {folder} is not a folder that can be written to")


def _document(result: "ReplayResult", shown: Shown) -> dict[str, Any]:
    """The result as a document: whole for JSON and nodes, else only what is printed."""
    from chakra.replay.results.formatting import essential

    if shown.output_format == "json" or shown.with_nodes:
        return (
            result.to_dict(nodes=shown.nodes_shown)
            | _interval(result)
            | _rates(result, shown.cost_per_npu_hour)
        )
    document = essential(result, summary=not shown.quiet or shown.output_format in ("csv", "parquet"))
    if shown.output_format != "text" or shown.quiet:
        return document
    return document | _interval(result) | _rates(result, shown.cost_per_npu_hour)


def _rates(result: "ReplayResult", price: float | None) -> dict[str, Any]:
    """What the step of a generated workload comes to, and costs where there is a price, as a key of the document."""
    from chakra.accuracy.rates import replay_rates

    found = replay_rates(result, price=price)
    return {"rates": found} if found else {}


def _interval(result: "ReplayResult") -> dict[str, Any]:
    """Within which times the step of a generated workload is expected, as a key of the document; none for other runs."""
    if not result.is_prediction:
        return {}
    from chakra.accuracy.replayed import interval_document, replay_job

    job = replay_job(result)
    return {} if job is None else {"interval": interval_document(job, int(result.finish_ns.max()))}


def _text(document: dict[str, Any], shown: Shown) -> str:
    """What is printed; nothing where a table is written as Parquet."""
    from chakra.replay.results.formatting import format_csv, format_json, format_text

    if shown.output_format == "json":
        return format_json(document)
    if shown.output_format == "csv":
        return format_csv(document)
    if shown.output_format == "parquet":
        return ""
    return format_text(document, summary=not shown.quiet, per_npu=shown.per_npu)


def _emit(text: str, output: str | None) -> None:
    if output is None:
        if sys.stdout is None:  # closed by the shell (>&-)
            raise UsageError("standard output is closed; give --output FILE")
        sys.stdout.write(text)
        return
    from chakra.io.files import atomic_text

    with atomic_text(output) as file:
        file.write(text)


def _write_log(result: "ReplayResult", folder: str | None) -> None:
    """Write ASTRA-sim's log files if the folder is named, or if the system file asks for a trace."""
    if folder is None and not result.system.trace_enabled:
        return
    from chakra.replay.results.astra_log import write_log

    try:
        write_log(result, folder or "log")
    except UsageError as error:
        if folder is not None:
            raise
        click.echo(f"chakra replay: warning: trace-enabled is on, but {error}", err=True)
