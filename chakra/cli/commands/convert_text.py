"""`chakra convert text`: text workloads of ASTRA-sim 1.0 to execution traces."""

from pathlib import Path

import rich_click as click

from chakra.cli.support.command import ChakraCommand
from chakra.cli.support.numbers import WholeRange
from chakra.cli.support.options import format_option
from chakra.cli.support.progress import ProgressBar
from chakra.io.documents import document_text


@click.command(cls=ChakraCommand)
@click.option(
    "--input", "-i", "source", required=True, type=click.Path(path_type=Path), help="The text workload."
)
@click.option(
    "--output",
    "-o",
    required=True,
    type=click.Path(path_type=str),
    metavar="PREFIX",
    help="Prefix of the traces: PREFIX.<rank>.et, and PREFIX.comm_groups.json where groups are used.",
)
@click.option(
    "--npus",
    "--num-npus",
    "npus",
    type=WholeRange(1),
    help="Number of NPUs (default: the network's, or that of a SimAI header).",
)
@click.option(
    "--passes", "--num-passes", "passes", type=WholeRange(1), default=1, show_default=True, help="Passes."
)
@click.option(
    "--network",
    "-n",
    type=click.Path(path_type=Path),
    help="Network file of the machine: says which dimensions a model- or data-parallel collective spans.",
)
@click.option(
    "--model-parallel",
    type=WholeRange(1),
    metavar="N",
    help="NPUs that share one model replica (default: the file's own number, else dimension 0 of the "
    "network).",
)
@click.option(
    "--span",
    type=click.Choice(["auto", "dims", "groups"]),
    default="auto",
    show_default=True,
    help="Say whom a collective joins by network dimensions (involved_dim), by communicator groups "
    "(pg_name), or by "
    "dimensions where they can say it.",
)
@click.option(
    "--time-unit",
    type=click.Choice(["us", "ns"]),
    help="Unit of the file's times. Upstream's converter and the tutorials read us; ASTRA-sim 1.0 meant ns.  "
    "[default: ns where the header is SimAI's, else us]",
)
@click.option(
    "--update-time",
    is_flag=True,
    help="Put each layer's update time as a compute node between its collectives and whoever waits for them.",
)
@click.option(
    "--compat",
    type=click.Choice(["chakra"]),
    help="Write what upstream's converter writes, known mistakes included, for comparison.",
)
@click.option(
    "--copy",
    is_flag=True,
    help="Write equal files separately instead of storing one content once (hard links).",
)
@format_option("Form of the summary.")
def command(
    source: Path,
    output: str,
    npus: int | None,
    passes: int,
    network: Path | None,
    model_parallel: int | None,
    span: str,
    time_unit: str | None,
    update_time: bool,
    compat: str | None,
    copy: bool,
    output_format: str,
) -> None:
    """Convert a text workload of ASTRA-sim 1.0 to one execution trace a rank.

    All parallelism policies are read: MICRO, DATA, DATA_REORDER, MODEL, HYBRID_DATA_MODEL, HYBRID_MODEL_DATA,
    HYBRID_TRANSFORMER, HYBRID_TRANSFORMER_FWD_IN_BCKWD, HYBRID_DLRM, HYBRID_DLRM_ENHANCED, HYBRID_CUSTOMIZED,
    DISTRIBUTED_INFERENCE. Nothing is written unless everything is right.
    """
    from chakra.converters.text import load_text, write_converted

    dims = None if network is None else network_dims(network)
    converted = load_text(
        source,
        npus=npus,
        passes=passes,
        network_dims=dims,
        model_parallel=model_parallel,
        time_unit=time_unit,
        update_time=update_time,
        span=span,
        compat=compat,
    )
    with ProgressBar("writing traces", converted.npus) as bar:
        progress = (lambda done, _: bar.show(completed=done)) if bar else None
        summary = write_converted(converted, output, link=not copy, progress=progress)
    for note in summary.notes:
        click.echo(f"note: {note}", err=True)
    click.echo(document_text(summary.to_dict(), indent=2) if output_format == "json" else summary.to_text())


def network_dims(path: Path) -> tuple[int, ...]:
    """Sizes of a network's dimensions; network files of ASTRA-sim 1.0 are understood too."""
    from chakra.converters.astra_config import is_old_network, read_old_network

    if is_old_network(path):
        return tuple(dim.npus for dim in read_old_network(path).dims)
    from chakra.replay.config import load_network

    return tuple(dim.npus for dim in load_network(path).dims)
