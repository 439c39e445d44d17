"""`chakra calibrate`: fit network parameters to measured collective times."""

from typing import TYPE_CHECKING, Any

import rich_click as click

from chakra.cli.support.command import ChakraCommand
from chakra.cli.support.numbers import DecimalNumber, WholeRange
from chakra.cli.support.options import Options, format_option, refuse_idle
from chakra.cli.support.sizes import Size
from chakra.errors import ThresholdError, UsageError
from chakra.io.documents import document_text
from chakra.io.readable import counted

if TYPE_CHECKING:
    from chakra.calibrate import Calibration, Measurement

#: options of a fit to a network's dimension
_OF_NETWORKS = ("system", "topology", "algorithm", "splits", "local_mem_bw", "endpoint_delay")


@click.command(cls=ChakraCommand)
@click.argument("logs", nargs=-1, required=True, type=click.Path())
@click.option("-o", "--output", metavar="FILE", help="Network file to write (YAML).")
@click.option(
    "--system", "system", metavar="FILE", help="System file to write (JSON), with the fitted endpoint delay."
)
@click.option(
    "--collective",
    type=click.Choice(["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]),
    help="Collective, where the log does not say.",
)
@click.option("--ranks", type=WholeRange(min=2), help="Number of ranks, where the log does not say.")
@click.option(
    "--topology",
    type=click.Choice(["Ring", "FullyConnected", "Switch"]),
    default="Switch",
    show_default=True,
    help="Building block to fit.",
)
@click.option(
    "--algorithm",
    type=click.Choice(["ring", "halvingDoubling", "direct1"]),
    default="ring",
    show_default=True,
    help="Algorithm that the replay will use.",
)
@click.option("--splits", type=WholeRange(min=1), default=1, show_default=True, help="Chunks per collective.")
@click.option(
    "--local-mem-bw",
    type=DecimalNumber(),
    default=0.0,
    show_default=True,
    help="Bandwidth of reductions, GB/s of 10^9 B/s; 0: free.",
)
@click.option(
    "--endpoint-delay",
    type=WholeRange(min=0),
    help="Keep the endpoint delay at this many ns instead of fitting it.",
)
@click.option(
    "--min-bytes", type=Size(), default=0, metavar="SIZE", help="Leave out smaller sizes (1048576, 1MiB)."
)
@click.option("--max-bytes", type=Size(), metavar="SIZE", help="Leave out larger sizes (1073741824, 1GiB).")
@click.option("--in-place", is_flag=True, help="Use the in-place columns.")
@click.option(
    "--max-error",
    type=DecimalNumber(),
    metavar="PERCENT",
    help="Exit with code 4 when the mean error is larger.",
)
@click.option(
    "--library",
    metavar="MACHINE",
    help="Fit the costs of a collective library on this machine (preset, or file of such costs) instead of a network.",
)
@click.option(
    "--nic-gbps",
    type=DecimalNumber(),
    help="With --library: rate of a network port, GB/s of 10^9 bytes (400 Gb/s are 50), for logs of several nodes.",
)
@click.option(
    "--nics",
    type=WholeRange(min=1),
    help="With --library: network ports of a node. [default: one a rank]",
)
@click.option(
    "--node-ranks",
    type=WholeRange(min=1),
    help="With --library: ranks of a node. [default: of the machine]",
)
@click.option(
    "--network-us",
    type=DecimalNumber(),
    default=0.0,
    show_default=True,
    help="With --library: latency that the network's plugin reports, us (EFA: 35 to 75).",
)
@click.option("--job", help="Job to take, where a folder of recordings holds several.")
@format_option()
def command(logs: tuple[str, ...], **options: Any) -> None:
    """Fit latency, bandwidth and endpoint delay to the output of nccl-tests or rccl-tests, or to a recorded job.

    LOGS are outputs of these programs, or the PyTorch profiler traces of all ranks of one job (files, or a folder).

    With --library: fit what NCCL or RCCL takes on a machine, and say how far the fit is from what it has not seen.
    """
    from chakra.calibrate import CostModel, calibrate
    from chakra.calibrate.doubts import error_doubt
    from chakra.calibrate.recordings import is_recording
    from chakra.replay.config.model import Topology

    for name in ("max_error", "nic_gbps", "network_us", "local_mem_bw"):
        value = options[name]
        if value is not None and not 0 <= value < float("inf"):
            raise UsageError(f"--{name.replace('_', '-')} must be a number of at least 0, not {value:g}")
    if options["library"] is None:
        refuse_idle(("nic_gbps", "nics", "node_ranks", "network_us"), "goes with --library")
    else:
        refuse_idle(_OF_NETWORKS, "is for a network dimension, not for --library")
        if options["nic_gbps"] is None:
            refuse_idle(("nics", "network_us"), "needs the rate of a network port, too: --nic-gbps")
    recordings = tuple(log for log in logs if is_recording(log))
    if not recordings:
        refuse_idle(("job",), "goes with a folder of recordings")
    measurements = _measurements(logs, recordings, options)
    if options["library"] is not None:
        from chakra.cli.support.library_calibration import calibrate_library

        calibrate_library(measurements, logs, options, recorded=bool(recordings))
        return
    model = CostModel(
        Topology(options["topology"]), options["algorithm"], options["splits"], options["local_mem_bw"]
    )
    fitted = calibrate(measurements, model, endpoint_delay_ns=options["endpoint_delay"])
    doubts = [text for text in (error_doubt(fitted.mean_error),) if text]
    for text in doubts:
        click.echo(f"chakra: warning: {text}", err=True)
    if options["output_format"] == "json":
        click.echo(document_text({**_document(fitted), "warnings": doubts}, indent=1))
    else:
        click.echo(_text(fitted))
    _write(fitted, logs, options)
    if options["max_error"] is not None and 100 * fitted.mean_error > options["max_error"]:
        raise ThresholdError(
            f"mean error {100 * fitted.mean_error:.2f} % is above {options['max_error']:g} %"
        )


def _measurements(
    logs: tuple[str, ...], recordings: tuple[str, ...], options: Options
) -> "list[Measurement]":
    """Measurements of all logs and recordings; what was left out of them is said on standard error."""
    from chakra.calibrate.recordings import read_recordings
    from chakra.errors import ConversionError
    from chakra.replay.collectives.measured.nccl_log import read_whole_log
    from chakra.replay.config.model import CollectiveKind

    kind = CollectiveKind[options["collective"].upper()] if options["collective"] else None
    top = options["max_bytes"] if options["max_bytes"] is not None else float("inf")
    found = []
    given = [log for log in logs if log not in recordings]
    unfit = [name for name in ("collective", "ranks", "in_place") if options[name]]
    if recordings and unfit:
        raise UsageError(f"--{unfit[0].replace('_', '-')} is for logs: recordings say it themselves")
    for log in [None, *given] if recordings else given:
        if log is None:
            read = read_recordings(recordings, job=options["job"])
        else:
            read = read_whole_log(log, kind=kind, ranks=options["ranks"], in_place=options["in_place"])
        for note in read.notes:
            click.echo(f"chakra: note: {note}", err=True)
        found += [m for m in read.measurements if options["min_bytes"] <= m.size_bytes <= top]
    if not found:
        raise ConversionError(f"{', '.join(logs)}: no measurements between --min-bytes and --max-bytes")
    return found


def _text(fitted: "Calibration") -> str:
    from chakra.alignment import aligned

    rows = [
        (
            r.measurement.kind.lower(), str(r.measurement.ranks), str(r.measurement.size_bytes),
            f"{r.measurement.time_us:.2f}", f"{r.modelled_us:.2f}", f"{100 * r.error:+.2f}",
        )
        for r in fitted.residuals
    ]  # fmt: skip
    unseen = fitted.held_out_error
    held_out = (
        []
        if unseen is None
        else [f"held out       {100 * unseen:.2f} % (every second size, fitted to the others)"]
    )
    delay = "fitted" if fitted.delay_fitted else "kept: these measurements cannot tell it from latency"
    return "\n".join(
        [
            aligned(("collective", "ranks", "bytes", "measured us", "model us", "error %"), rows),
            "",
            f"latency        {fitted.latency_ns:.3f} ns per hop",
            f"bandwidth      {fitted.bandwidth_gibps:.3f} GB/s of 2^30 B/s ({fitted.bandwidth_gbps:.3f} GB/s of 10^9)",
            f"endpoint delay {fitted.endpoint_delay_ns} ns ({delay})",
            f"mean error     {100 * fitted.mean_error:.2f} % (geometric mean {100 * fitted.geometric_mean_error:.2f} %)",
            *held_out,
        ]
    )


def _document(fitted: "Calibration") -> dict[str, object]:
    return {
        "schema": "chakra.calibration/1",
        "latency_ns": fitted.latency_ns,
        "bandwidth_gibps": fitted.bandwidth_gibps,
        "endpoint_delay_ns": fitted.endpoint_delay_ns,
        "endpoint_delay_fitted": fitted.delay_fitted,
        "mean_error": fitted.mean_error,
        "geometric_mean_error": fitted.geometric_mean_error,
        "held_out_error": fitted.held_out_error,
        "network": fitted.network(),
        "residuals": [
            {
                "collective": r.measurement.kind.value,
                "ranks": r.measurement.ranks,
                "bytes": r.measurement.size_bytes,
                "measured_us": r.measurement.time_us,
                "modelled_us": r.modelled_us,
                "error": r.error,
            }
            for r in fitted.residuals
        ],
    }


def _write(fitted: "Calibration", logs: tuple[str, ...], options: Options) -> None:
    from pathlib import Path

    from chakra.io.files import atomic_text
    from chakra.io.yaml_text import entry_text

    sources = ", ".join(Path(log).name for log in logs)
    if options["output"]:
        lines = [
            f"# fitted by chakra calibrate to {sources}",
            f"# algorithm {options['algorithm']}, {counted(len(fitted.residuals), 'measurement')}",
            f"# mean error {100 * fitted.mean_error:.2f} %",
            "# bandwidth in GB/s of 2^30 bytes per link and direction, latency in ns per hop",
        ]
        lines += [entry_text(key, values) for key, values in fitted.network().items()]
        with atomic_text(options["output"]) as file:
            file.write("\n".join(lines) + "\n")
        click.echo(f"wrote {options['output']}", err=True)
        if not options["system"]:
            # with ASTRA-sim's usual 10 ns in its place the two files would give other times than the table
            click.echo(
                f"note: the endpoint delay of {fitted.endpoint_delay_ns} ns belongs to the fit, and network files have "
                "none: --system FILE writes it, with the algorithm",
                err=True,
            )
    if options["system"]:
        kinds = ("all-reduce", "all-gather", "reduce-scatter")
        system: dict[str, object] = {
            "scheduling-policy": "LIFO",
            "endpoint-delay": fitted.endpoint_delay_ns,
            "active-chunks-per-dimension": 1,
            "preferred-dataset-splits": options["splits"],
            **{f"{kind}-implementation": [options["algorithm"]] for kind in kinds},
            "all-to-all-implementation": [
                "direct1" if options["algorithm"] == "halvingDoubling" else options["algorithm"]
            ],
            "local-mem-bw": options["local_mem_bw"],
        }
        with atomic_text(options["system"]) as file:
            file.write(document_text(system, indent=2) + "\n")
        click.echo(f"wrote {options['system']}", err=True)
