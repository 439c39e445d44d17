"""`chakra calibrate`: fit network parameters to measured collective times."""

import json
from typing import Any

import rich_click as click

from chakra.cli.support.options import format_option
from chakra.errors import ThresholdError


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
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
@click.option("--ranks", type=click.IntRange(min=2), help="Number of ranks, where the log does not say.")
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
@click.option(
    "--splits", type=click.IntRange(min=1), default=1, show_default=True, help="Chunks per collective."
)
@click.option(
    "--local-mem-bw",
    type=float,
    default=0.0,
    show_default=True,
    help="Bandwidth of reductions, GB/s of 10^9 B/s; 0: free.",
)
@click.option(
    "--endpoint-delay",
    type=click.IntRange(min=0),
    help="Keep the endpoint delay at this many ns instead of fitting it.",
)
@click.option("--min-bytes", type=click.IntRange(min=0), default=0, help="Leave out smaller sizes.")
@click.option("--max-bytes", type=click.IntRange(min=0), help="Leave out larger sizes.")
@click.option("--in-place", is_flag=True, help="Use the in-place columns.")
@click.option(
    "--max-error", type=float, metavar="PERCENT", help="Exit with code 4 when the mean error is larger."
)
@format_option()
def command(logs: tuple[str, ...], **options: Any) -> None:
    """Fit latency, bandwidth and endpoint delay to the output of nccl-tests or rccl-tests."""
    from chakra.calibrate import CostModel, calibrate, read_log
    from chakra.replay.config.model import CollectiveKind, Topology

    kind = CollectiveKind[options["collective"].upper()] if options["collective"] else None
    model = CostModel(
        Topology(options["topology"]), options["algorithm"], options["splits"], options["local_mem_bw"]
    )
    top = options["max_bytes"] if options["max_bytes"] is not None else float("inf")
    measurements = [
        m
        for log in logs
        for m in read_log(log, kind=kind, ranks=options["ranks"], in_place=options["in_place"])
        if options["min_bytes"] <= m.size_bytes <= top
    ]
    fitted = calibrate(measurements, model, endpoint_delay_ns=options["endpoint_delay"])
    click.echo(
        json.dumps(_document(fitted), indent=1) if options["output_format"] == "json" else _text(fitted)
    )
    _write(fitted, logs, options)
    if options["max_error"] is not None and 100 * fitted.mean_error > options["max_error"]:
        raise ThresholdError(
            f"mean error {100 * fitted.mean_error:.2f} % is above {options['max_error']:g} %"
        )


def _text(fitted: Any) -> str:
    from chakra.alignment import aligned

    rows = [
        (
            r.measurement.kind.lower(), str(r.measurement.ranks), str(r.measurement.size_bytes),
            f"{r.measurement.time_us:.2f}", f"{r.modelled_us:.2f}", f"{100 * r.error:+.2f}",
        )
        for r in fitted.residuals
    ]  # fmt: skip
    delay = "fitted" if fitted.delay_fitted else "kept: these measurements cannot tell it from latency"
    return "\n".join(
        [
            aligned(("collective", "ranks", "bytes", "measured us", "model us", "error %"), rows),
            "",
            f"latency        {fitted.latency_ns:.3f} ns per hop",
            f"bandwidth      {fitted.bandwidth_gibps:.3f} GB/s of 2^30 B/s ({fitted.bandwidth_gbps:.3f} GB/s of 10^9)",
            f"endpoint delay {fitted.endpoint_delay_ns} ns ({delay})",
            f"mean error     {100 * fitted.mean_error:.2f} % (geometric mean {100 * fitted.geometric_mean_error:.2f} %)",
        ]
    )


def _document(fitted: Any) -> dict[str, Any]:
    return {
        "schema": "chakra.calibration/1",
        "latency_ns": fitted.latency_ns,
        "bandwidth_gibps": fitted.bandwidth_gibps,
        "endpoint_delay_ns": fitted.endpoint_delay_ns,
        "endpoint_delay_fitted": fitted.delay_fitted,
        "mean_error": fitted.mean_error,
        "geometric_mean_error": fitted.geometric_mean_error,
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


def _write(fitted: Any, logs: tuple[str, ...], options: dict[str, Any]) -> None:
    from pathlib import Path

    from chakra.io.files import atomic_text

    sources = ", ".join(Path(log).name for log in logs)
    if options["output"]:
        lines = [
            f"# fitted by chakra calibrate to {sources}",
            f"# algorithm {options['algorithm']}, {len(fitted.residuals)} measurements",
            f"# mean error {100 * fitted.mean_error:.2f} %",
            "# bandwidth in GB/s of 2^30 bytes per link and direction, latency in ns per hop",
        ]
        lines += [f"{key}: [ {', '.join(map(str, values))} ]" for key, values in fitted.network().items()]
        with atomic_text(options["output"]) as file:
            file.write("\n".join(lines) + "\n")
        click.echo(f"wrote {options['output']}", err=True)
    if options["system"]:
        kinds = ("all-reduce", "all-gather", "reduce-scatter")
        system: dict[str, Any] = {
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
            file.write(json.dumps(system, indent=2) + "\n")
        click.echo(f"wrote {options['system']}", err=True)
