"""`chakra topology`: write a common topology, or an infrastructure of InfraGraph, as a network file of links."""

import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import rich_click as click

from chakra.cli.support.numbers import DecimalNumber, DecimalRange, WholeNumber, WholeRange
from chakra.cli.support.subcommands import Subcommands
from chakra.cli.support.written import need_file, say, written_option
from chakra.errors import UsageError
from chakra.io.digits import decimal_number, signed_whole_number
from chakra.io.readable import counted, counted_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from chakra.cli.support.options import Command
    from chakra.replay.config.model import Network


@click.group(cls=Subcommands)
def command() -> None:
    """Write fat trees, rails, tori, dragonflies, known machines and infrastructures of InfraGraph as network files.

    Bandwidths are GB/s of 2^30 B/s per direction, latencies ns per link. Example:

    chakra topology fat-tree --down 8,4 --oversubscription 2 --bandwidth 50 --latency 500 -o network.yml
    """


def _numbers(
    read: "Callable[[str], int] | Callable[[str], float]",
) -> "Callable[[click.Context, click.Parameter, str | None], list[int] | list[float] | None]":
    def parse(_: click.Context, param: click.Parameter, value: str | None) -> list[int] | list[float] | None:
        if value is None:
            return None
        try:
            return [read(part) for part in value.replace("x", ",").split(",")]
        except ValueError:
            raise UsageError(f"{param.opts[-1]}: expected numbers such as 8,4, found {value!r}") from None

    return parse


def _speed(function: "Command") -> "Command":
    function = written_option()(function)
    function = click.option("-o", "--output", metavar="FILE", help="Write there instead of standard output.")(
        function
    )
    function = click.option(
        "--sprayed",
        is_flag=True,
        help="Flows use all equal paths at once (--backend flow), and equal NPUs fold; else a hash picks one.",
    )(function)
    function = click.option(
        "--latency",
        "latency_ns",
        type=DecimalRange(min=0),
        default=500.0,
        show_default=True,
        metavar="NS",
        help="Latency per link.",
    )(function)
    return click.option(
        "--bandwidth",
        "bandwidth_gibps",
        type=DecimalRange(min=0, min_open=True),
        default=50.0,
        show_default=True,
        metavar="GB/S",
        help="Bandwidth of an NPU's network link.",
    )(function)


def figures_of(network: "Network") -> dict[str, int]:
    """NPUs, switches, most cables at a switch, cables, and links, which are a direction each, of a list of links.

    Of a fabric whose links stand for several cables, and vertices for several switches, those outside machines that they
    stand for, as results tell them.
    """
    assert network.links is not None, "these topologies are given link by link"
    links, built = network.links.links, network.links.built_of
    if built is not None:
        return {
            "npus": network.npus,
            "switches": built.all_switches,
            "ports": built.ports if built.switches else 0,
            "cables": built.cables,
            "directed_links": len(links),
        }
    cables = {tuple(sorted((link.src, link.dst))) for link in links}
    ports = Counter(end for cable in cables for end in cable if end >= network.npus)
    return {
        "npus": network.npus,
        "switches": len(network.links.vertices),
        "ports": max(ports.values(), default=0),
        "cables": len(cables),
        "directed_links": len(links),
    }


def _write(
    name: str, network: "Network", output: str | None, output_format: str, *, sprayed: bool = False
) -> None:
    from dataclasses import replace

    from chakra.replay.config.network import dump_network

    need_file(output, output_format)
    if sprayed and network.links is not None:
        network = replace(network, links=replace(network.links, ecmp="spray"))
    _write_text(name, dump_network(network), network, output, output_format)


def _write_text(name: str, text: str, network: "Network", output: str | None, output_format: str) -> None:
    """Write the text of a network, and say what is in it."""
    if output is None:
        sys.stdout.write(text)
        return
    from chakra.io.files import atomic_text
    from chakra.replay.results.formatting import built_in_words

    with atomic_text(output) as file:
        file.write(text)
    if network.links is None:
        sizes = {"npus": network.npus, "dimensions": len(network.dims)}
        click.echo(
            f"{output}: {counted_text(network.npus, 'NPU')} in {counted(len(network.dims), 'dimension')}",
            err=True,
        )
        say(output_format, f"topology {name}", [output], sizes)
        return
    figures = figures_of(network)
    if network.links.built_of is None:
        widest = f" of up to {counted_text(figures['ports'], 'port')}" if figures["ports"] else ""
        parts = f"{counted_text(figures['switches'], 'switch')}{widest}, {counted_text(figures['cables'], 'cable')}"
    else:
        parts = f"outside machines {built_in_words(network.links.built_of.entries())}"
    click.echo(
        f"{output}: {counted_text(network.npus, 'NPU')}, {parts}, "
        f"{counted_text(figures['directed_links'], 'link')} (one per direction)",
        err=True,
    )
    say(output_format, f"topology {name}", [output], figures)


@command.command("machine")
@click.argument("machine", nargs=-1, required=True)
@click.option("--npus", type=WholeNumber(), help="NPUs in all.")
@click.option("-o", "--output", metavar="FILE", help="Write there instead of standard output.")
@written_option()
def machine(machine: tuple[str, ...], npus: int | None, output: str | None, output_format: str) -> None:
    """A known machine or cluster, in the words of --platform: 512x hgx-h100 over 400G torus 8x8x8."""
    from chakra.platforms import cluster
    from chakra.platforms.write import network_with_text

    need_file(output, output_format)
    network, text = network_with_text(cluster(" ".join(machine), npus))
    _write_text("machine", text, network, output, output_format)


@command.command("fat-tree")
@click.option(
    "--down",
    required=True,
    callback=_numbers(signed_whole_number),
    metavar="N,N..",
    help="NPUs per leaf switch, leaves per switch above, ...",
)
@click.option(
    "--up",
    callback=_numbers(signed_whole_number),
    metavar="N,N..",
    help="Parents of an NPU, of a leaf, ... [default: 1, then as down]",
)
@click.option(
    "--oversubscription",
    callback=_numbers(decimal_number),
    default="1",
    show_default=True,
    metavar="X,X..",
    help="Bandwidth down over bandwidth up, for all levels or each.",
)
@_speed
def fat_tree(
    output: str | None, output_format: str, sprayed: bool, oversubscription: list[float], **options: Any
) -> None:
    """A fat tree of any number of levels."""
    from chakra.replay import topologies

    ratio = oversubscription[0] if len(oversubscription) == 1 else oversubscription
    _write(
        "fat-tree",
        topologies.fat_tree(oversubscription=ratio, **options),
        output,
        output_format,
        sprayed=sprayed,
    )


@command.command("rail")
@click.option("--nodes", type=WholeNumber(), required=True, metavar="N", help="Number of nodes.")
@click.option(
    "--npus-per-node", type=WholeNumber(), default=8, show_default=True, metavar="N", help="NPUs per node."
)
@click.option(
    "--node-bandwidth",
    "node_bandwidth_gibps",
    type=DecimalNumber(),
    default=400.0,
    show_default=True,
    metavar="GB/S",
    help="Bandwidth of an NPU to the switch in its node.",
)
@click.option(
    "--node-latency",
    "node_latency_ns",
    type=DecimalNumber(),
    default=250.0,
    show_default=True,
    metavar="NS",
    help="Latency of that link.",
)
@click.option(
    "--spines",
    type=WholeRange(min=0),
    default=0,
    show_default=True,
    metavar="N",
    help="Switches that join the rails.",
)
@click.option(
    "--oversubscription",
    type=DecimalNumber(),
    default=1.0,
    show_default=True,
    metavar="X",
    help="Bandwidth of a rail's NPUs over that to the spines.",
)
@_speed
def rail(output: str | None, output_format: str, sprayed: bool, **options: Any) -> None:
    """Nodes joined by one switch per place in the node."""
    from chakra.replay import topologies

    _write("rail", topologies.rail_optimised(**options), output, output_format, sprayed=sprayed)


@command.command("torus")
@click.option(
    "--shape",
    required=True,
    callback=_numbers(signed_whole_number),
    metavar="NxN..",
    help="Lengths; the first varies fastest.",
)
@click.option("--mesh", is_flag=True, help="Without the links that close the rings.")
@_speed
def torus(output: str | None, output_format: str, sprayed: bool, mesh: bool, **options: Any) -> None:
    """A torus or a mesh of any number of dimensions."""
    from chakra.replay import topologies

    _write("torus", topologies.torus(wrap=not mesh, **options), output, output_format, sprayed=sprayed)


@command.command("dragonfly")
@click.option("--groups", type=WholeNumber(), required=True, metavar="N", help="Groups.")
@click.option("--routers", type=WholeNumber(), required=True, metavar="N", help="Routers per group.")
@click.option("--npus-per-router", type=WholeNumber(), required=True, metavar="N", help="NPUs per router.")
@click.option(
    "--local-bandwidth",
    "local_bandwidth_gibps",
    type=DecimalNumber(),
    metavar="GB/S",
    help="Between routers of a group. [default: as --bandwidth]",
)
@click.option(
    "--global-bandwidth",
    "global_bandwidth_gibps",
    type=DecimalNumber(),
    metavar="GB/S",
    help="Between groups. [default: as --bandwidth]",
)
@click.option(
    "--global-latency",
    "global_latency_ns",
    type=DecimalNumber(),
    metavar="NS",
    help="Between groups. [default: as --latency]",
)
@_speed
def dragonfly(output: str | None, output_format: str, sprayed: bool, **options: Any) -> None:
    """Groups of routers, one link between every two groups."""
    from chakra.replay import topologies

    _write("dragonfly", topologies.dragonfly(**options), output, output_format, sprayed=sprayed)


@command.command("import")
@click.option(
    "-i",
    "--input",
    "path",
    required=True,
    metavar="FILE",
    help="An infrastructure as InfraGraph describes it (YAML or JSON).",
)
@click.option("-o", "--output", metavar="FILE", help="Write there instead of standard output.")
@click.option(
    "--bandwidth",
    "bandwidth_gibps",
    type=DecimalRange(min=0, min_open=True),
    metavar="GB/S",
    help="Of links that give none, or give it in transfers. [default: such links are an error]",
)
@click.option(
    "--latency",
    "latency_ns",
    type=DecimalRange(min=0),
    metavar="NS",
    help="Of links that give none. [default: such links are an error]",
)
@click.option(
    "--npus-count",
    callback=_numbers(signed_whole_number),
    metavar="N,N..",
    help="Logical dimensions, the first varying fastest. [default: one]",
)
@click.option(
    "--routing",
    type=click.Choice(["hops", "latency", "inside"]),
    default="hops",
    show_default=True,
    help="What is shortest; inside: fewest links that leave a machine, which --npus-count says.",
)
@click.option(
    "--leave-out",
    multiple=True,
    metavar="WORD",
    help="Type or name of components that no message passes, such as cpu (may be repeated).",
)
@written_option()
def infragraph(path: str, output: str | None, output_format: str, **options: Any) -> None:
    """An infrastructure of InfraGraph: devices, instances, edges, links."""
    from chakra.replay import topologies

    network = topologies.import_infragraph(path, **options)
    _write("import", network, output, output_format)
    assert network.links is not None, "an infrastructure is given link by link"
    if network.links.npus_forward:
        click.echo("note: some NPUs reach others over NPUs only, so NPUs forward messages", err=True)
