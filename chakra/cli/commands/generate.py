"""`chakra generate`: workloads without a recording."""

import rich_click as click

from chakra.cli.support.command import ChakraCommand
from chakra.cli.support.numbers import DecimalRange, WholeRange
from chakra.cli.support.sizes import Size
from chakra.cli.support.subcommands import LazySubcommands
from chakra.io.readable import counted

GENERATORS = {
    "collective": "chakra.cli.commands.generate:collective",
    "dlrm": "chakra.cli.commands.generate_workload:dlrm",
    "mlp": "chakra.cli.commands.generate_workload:mlp",
    "moe": "chakra.cli.commands.generate_workload:moe",
    "resnet": "chakra.cli.commands.generate_workload:resnet",
    "transformer": "chakra.cli.commands.generate_workload:transformer",
}


@click.group(cls=LazySubcommands, places=GENERATORS)
def command() -> None:
    """Generate workloads: one trace a rank, and the process groups."""


@click.command(cls=ChakraCommand)
@click.option(
    "--kind",
    "--comm-type",
    "kind",
    default="all_reduce",
    show_default=True,
    help="all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, reduce, gather, barrier ...",
)
@click.option(
    "--size",
    "size_bytes",
    type=Size(),
    required=True,
    metavar="SIZE",
    help="Bytes that each rank brings in, such as 1048576 or 1MiB.",
)
@click.option("--npus", "--num-npus", "npus", type=WholeRange(min=1), required=True, help="Number of NPUs.")
@click.option(
    "--count",
    type=WholeRange(min=1),
    default=1,
    show_default=True,
    help="Collectives, one after another.",
)
@click.option(
    "--compute-us", type=DecimalRange(min=0), default=0.0, help="Microseconds of compute before each."
)
@click.option(
    "--group-size", type=WholeRange(min=1), help="Split the NPUs into groups of this many neighbours."
)
@click.option(
    "--gzip",
    "compress",
    is_flag=True,
    help="Write .et.gz (ASTRA-sim itself reads plain files only).",
)
@click.option("-o", "--output", required=True, metavar="PREFIX", help="Files are PREFIX.<rank>.et.")
def collective(
    kind: str,
    size_bytes: int,
    npus: int,
    count: int,
    compute_us: float,
    group_size: int | None,
    compress: bool,
    output: str,
) -> None:
    """Generate a collective of any kind and size on any number of NPUs."""
    from chakra.builder import Handle, TraceBuilder, Workload
    from chakra.errors import UsageError
    from chakra.et.attributes import comm_type
    from chakra.io.limits import MAX_GENERATED_NODES, MAX_GENERATED_NPUS
    from chakra.io.rank_files import left_behind

    comm = comm_type(kind)
    if npus > MAX_GENERATED_NPUS:
        raise UsageError(f"--npus must be at most {MAX_GENERATED_NPUS}, not {npus}")
    if count > MAX_GENERATED_NODES // 2:
        raise UsageError(f"--count must be at most {MAX_GENERATED_NODES // 2}, not {count}")
    if group_size is not None and npus % group_size:
        raise UsageError(f"--group-size {group_size} does not divide --npus {npus}")
    workload = Workload(npus)
    groups: list[str | None] = [None]
    if group_size is not None and group_size < npus:
        groups = [
            workload.add_group(range(first, first + group_size)) for first in range(0, npus, group_size)
        ]

    def program(b: TraceBuilder) -> None:
        last: Handle | tuple[()] = ()
        for number in range(count):
            suffix = f"_{number}" if count > 1 else ""
            if compute_us:
                last = b.compute(f"compute{suffix}", duration_micros=compute_us, after=last)
            group = groups[b.rank // group_size] if group_size is not None and len(groups) > 1 else None
            name = f"{comm.name.lower()}{suffix}"
            last = b.collective(comm, size_bytes=size_bytes, name=name, group=group, after=last)

    workload.run(program, uniform=len(groups) == 1)
    written = workload.write(output, compress=compress)
    names = written[0] if len(written) == 1 else f"{written[0]} to {written[-1]}"
    click.echo(f"wrote {counted(len(written), 'file')}: {names}", err=True)
    if old := left_behind(output, written):
        click.echo(f"chakra: warning: {old}", err=True)
