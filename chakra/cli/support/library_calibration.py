"""`chakra calibrate --library`: costs of a collective library, and how far they are from measurements."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click

from chakra.errors import ThresholdError, UsageError
from chakra.io.documents import document_text
from chakra.io.readable import counted, signed_percent_text

if TYPE_CHECKING:
    from chakra.calibrate import Measurement
    from chakra.calibrate.library_fit import FittedTime, LibraryFit
    from chakra.replay.collectives.library import Communicator, MachineParameters


def calibrate_library(
    measurements: Sequence["Measurement"],
    logs: tuple[str, ...],
    options: dict[str, Any],
    *,
    recorded: bool = False,
) -> None:
    """Fit, print, and write the costs where that is asked for."""
    from chakra.calibrate.doubts import error_doubt, rate_doubt
    from chakra.calibrate.library_fit import fit_library, mean_error
    from chakra.calibrate.recorded_fit import fit_recorded
    from chakra.platforms.collectives import parameters_text

    machine = _machine(options["library"])
    sources = ", ".join(Path(log).name for log in logs)
    make = fit_recorded if recorded else fit_library
    nodes = _nodes(machine, options)
    fit = make(measurements, machine, nodes=nodes, source=sources)
    doubts = [text for text in (rate_doubt(measurements, nodes), error_doubt(mean_error(fit.times))) if text]
    for text in doubts:
        click.echo(f"chakra: warning: {text}", err=True)
    if options["output_format"] == "json":
        click.echo(document_text({**_document(fit), "warnings": doubts}, indent=1))
    else:
        click.echo((_rows(fit) + "\n\n" if recorded else "") + _text(fit))
    if options["output"]:
        from chakra.io.files import atomic_text

        with atomic_text(options["output"]) as file:
            file.write(parameters_text(fit.machine))
        click.echo(f"wrote {options['output']}", err=True)
    error = 100 * mean_error(fit.times)
    if options["max_error"] is not None and error > options["max_error"]:
        raise ThresholdError(f"mean error {error:.2f} % is above {options['max_error']:g} %")


def _machine(name: str) -> "MachineParameters":
    from chakra.io.yaml import read_document
    from chakra.platforms.collectives import collective_parameters
    from chakra.replay.collectives.library import parameters_from

    if name.endswith((".yml", ".yaml")):
        return parameters_from(read_document(name), name)
    return collective_parameters(name)


def _nodes(machine: "MachineParameters", options: dict[str, Any]) -> "Communicator | None":
    """How nodes are joined, where the options say so."""
    from chakra.replay.collectives.library import Communicator

    node = options["node_ranks"] or machine.node_ranks
    if node > machine.node_ranks:
        raise UsageError(
            f"--node-ranks: a node of {machine.name} has at most {counted(machine.node_ranks, 'rank')}, not {node}"
        )
    rate = options["nic_gbps"]
    if rate is None:
        return Communicator(node, node) if options["node_ranks"] else None
    return Communicator(2 * node, node, rate, options["nics"] or 0, options["network_us"])


def _groups(fit: "LibraryFit") -> list[tuple[str, str, list["FittedTime"]]]:
    """Errors to show: collective, what the fit did not see ("" for in sample), measurements."""
    kinds = dict.fromkeys(t.measurement.kind for t in fit.times)
    sets = [("", fit.times), *((split.name, split.times) for split in fit.splits)]
    return [
        (kind.lower(), name, [t for t in times if t.measurement.kind is kind])
        for kind in kinds
        for name, times in sets
    ]


def _percent(value: float) -> str:
    return "-" if value != value else f"{100 * value:.2f}"


def _rows(fit: "LibraryFit") -> str:
    """Each collective of a recording: measured, modelled, and by fits that have not seen it."""
    from chakra.alignment import aligned

    unseen = [(split.name, {t.measurement: t for t in split.times}) for split in fit.splits]
    rows = []
    for time in fit.times:
        one = time.measurement
        cells: list[tuple[float, float] | None] = [(time.modelled_us, time.error)]
        cells += [(found[one].modelled_us, found[one].error) if one in found else None for _, found in unseen]
        shown = [f"{cell[0]:.1f} {100 * cell[1]:+.0f} %" if cell else "" for cell in cells]
        rows.append((one.kind.lower(), str(one.ranks), str(one.size_bytes), f"{one.time_us:.1f}", *shown))
    heading = (
        "collective",
        "ranks",
        "bytes",
        "measured us",
        "in sample",
        *(f"without {n}" for n, _ in unseen),
    )
    return aligned(heading, rows)


def _text(fit: "LibraryFit") -> str:
    from chakra.alignment import aligned
    from chakra.calibrate.library_fit import LARGE_BYTES, mean_error
    from chakra.platforms.collectives import parameters_text

    rows = []
    for kind, unseen, times in _groups(fit):
        if times:
            worst = max(times, key=lambda t: abs(t.error))
            place = (
                f"{counted(worst.measurement.ranks, 'rank')}, {worst.measurement.size_bytes} B: "
                f"{signed_percent_text(worst.error)}"
            )
            rows.append((
                kind, f"without {unseen}" if unseen else "in sample", str(len(times)), _percent(mean_error(times)),
                _percent(mean_error(times, LARGE_BYTES)), place,
            ))  # fmt: skip
    heading = ("collective", "fit", "rows", "error %", "1 MiB and up %", "worst row")
    return f"{aligned(heading, rows)}\n\n{parameters_text(fit.machine)}".rstrip()


def _document(fit: "LibraryFit") -> dict[str, Any]:
    from chakra.calibrate.library_fit import mean_error
    from chakra.replay.collectives.library import parameters_to

    collectives: dict[str, dict[str, Any]] = {}
    for kind, unseen, times in _groups(fit):
        entry = collectives.setdefault(kind, {"collective": kind, "in_sample": None, "held_out": {}})
        if not unseen:
            entry["in_sample"] = _errors(times)
        elif times:
            entry["held_out"][unseen] = _errors(times)
    return {
        "schema": "chakra.library-calibration/1",
        "machine": fit.machine.name,
        "mean_error": mean_error(fit.times),
        "collectives": list(collectives.values()),
        "parameters": parameters_to(fit.machine),
        "residuals": [
            {
                "collective": t.measurement.kind.lower(), "ranks": t.measurement.ranks, "bytes": t.measurement.size_bytes,
                "measured_us": t.measurement.time_us, "modelled_us": t.modelled_us, "error": t.error, "choice": t.choice,
            }
            for t in fit.times
        ],
    }  # fmt: skip


def _errors(times: Sequence["FittedTime"]) -> dict[str, Any]:
    from chakra.calibrate.library_fit import LARGE_BYTES, mean_error

    large = [t for t in times if t.measurement.size_bytes >= LARGE_BYTES]
    return {
        "rows": len(times),
        "mean_error": mean_error(times) if times else None,
        "large_rows": len(large),
        "large_error": mean_error(large) if large else None,
    }
