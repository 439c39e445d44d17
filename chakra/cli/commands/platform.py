"""`chakra platform list | show | write`: machine presets and clusters made of them."""

from typing import TYPE_CHECKING, Any

import rich_click as click

from chakra.cli.support.numbers import WholeNumber
from chakra.cli.support.options import format_option
from chakra.cli.support.subcommands import Subcommands
from chakra.io.documents import document_text
from chakra.io.readable import number_text

if TYPE_CHECKING:
    from chakra.platforms.model import Platform


@click.group(cls=Subcommands)
def command() -> None:
    """List, show and write machine presets.

    A machine is a preset's name, a preset file, or words such as "8x hgx-h100 over 400G rail-optimised fat tree".
    """


@command.command("list")
@format_option()
def list_command(output_format: str) -> None:
    """Names and titles of all presets."""
    from chakra.alignment import aligned
    from chakra.platforms import all_platforms

    platforms = list(all_platforms())
    if output_format == "json":
        rows_of = [{"name": p.name, "title": p.title} for p in platforms]
        click.echo(document_text({"schema": "chakra.platforms/1", "platforms": rows_of}, indent=1))
        return
    rows = [
        (
            p.name,
            number_text(p.accelerator.peak_tflops),
            number_text(p.accelerator.mem_gbps),
            " x ".join(f"{d.topology} {d.npus or 'n'}" for d in p.dims),
            p.title,
        )
        for p in platforms
    ]
    click.echo(aligned(("preset", "TFLOP/s", "memory GB/s", "network", "machine"), rows))


@command.command("show")
@click.argument("machine", nargs=-1, required=True)
@click.option("--npus", type=WholeNumber(), help="NPUs in all.")
@format_option()
def show_command(machine: tuple[str, ...], npus: int | None, output_format: str) -> None:
    """Every number of a machine with its unit, status and source."""
    from chakra.alignment import aligned
    from chakra.platforms import cluster

    platform = cluster(" ".join(machine), npus, sized=output_format == "json")
    if output_format == "json":
        click.echo(document_text(_document(platform), indent=1))
        return
    click.echo(platform.title)
    if platform.note:
        click.echo(" ".join(platform.note.split()))
    shape_text = " x ".join(f"{dim.topology} {dim.npus or 'n'}" for dim in platform.dims)
    click.echo(f"network: {shape_text}, accelerator: {platform.accelerator.name}")
    click.echo()
    rows = [(name, number_text(n.value), n.status.value, f"  {n.source}") for name, n in platform.numbers()]
    width = max(len(row[3]) for row in rows)
    click.echo(
        aligned(
            ("number", "value", "status", "  source".ljust(width)),
            [(*r[:3], r[3].ljust(width)) for r in rows],
        )
    )
    _show_library(platform.name)


def _show_library(name: str) -> None:
    """How right the model of the machine's collective library is."""
    from chakra.alignment import aligned
    from chakra.platforms.collectives import collective_parameters, names_with_parameters

    click.echo()
    if name not in names_with_parameters():
        click.echo(
            "collective library: no measurements of this machine; collectives follow the closed forms of the network"
        )
        return
    machine = collective_parameters(name)
    known = machine.evidence
    click.echo(
        f"collective library: {machine.library}, {known.status} to {', '.join(map(str, known.ranks))} ranks, "
        f"{known.min_bytes} to {known.max_bytes} bytes; source: {known.source}"
    )
    rows = [
        (
            kind.lower(),
            str(band.rows),
            f"{100 * band.mean_error:.1f}",
            str(band.large_rows),
            f"{100 * band.large_error:.1f}",
        )
        for kind, band in known.errors.items()
    ]
    click.echo(aligned(("collective", "rows", "mean error %", "of 1 MiB and up", "mean error %"), rows))


def _library_document(name: str) -> dict[str, Any] | None:
    from chakra.platforms.collectives import collective_parameters, names_with_parameters
    from chakra.replay.collectives.library import parameters_to

    return parameters_to(collective_parameters(name)) if name in names_with_parameters() else None


def _document(platform: "Platform") -> dict[str, object]:
    return {
        "schema": "chakra.platform/1",
        "name": platform.name,
        "title": platform.title,
        "numbers": {
            name: {"value": n.value, "status": n.status.value, "source": n.source}
            for name, n in platform.numbers()
        },
        "network": platform.network(),
        "system": platform.system(),
        "collective_library": _library_document(platform.name),
    }


@command.command("write")
@click.argument("machine", nargs=-1, required=True)
@click.option("--npus", type=WholeNumber(), help="NPUs in all.")
@click.option("-o", "--output", "prefix", required=True, metavar="PREFIX", help="Prefix of the two files.")
def write_command(machine: tuple[str, ...], npus: int | None, prefix: str) -> None:
    """Write PREFIX.network.yml and PREFIX.system.json for a replay."""
    from chakra.platforms import cluster, write_platform

    for path in write_platform(cluster(" ".join(machine), npus), prefix):
        click.echo(str(path))
