"""`chakra convert msccl`: MSCCL's XML algorithms to custom algorithms, and ours to MSCCL's XML."""

from pathlib import Path

import rich_click as click

from chakra.cli.support.command import ChakraCommand
from chakra.cli.support.numbers import WholeRange
from chakra.cli.support.sizes import Size
from chakra.cli.support.written import need_file, say, written_option
from chakra.errors import UsageError
from chakra.io.readable import counted


@click.command(cls=ChakraCommand)
@click.option("--input", "-i", "source", type=click.Path(path_type=Path), help="An algorithm of MSCCL (XML).")
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=str),
    metavar="OUT",
    help="Prefix of the traces PREFIX.<rank>.et; with --algorithm the XML file (standard output if left out).",
)
@click.option(
    "--size",
    "size_bytes",
    type=Size(),
    metavar="SIZE",
    help="Size of the collective, bytes or with a unit (1MiB, 64kB): the whole buffer of a rank, for an all-gather the "
    "part that it contributes.",
)
@click.option(
    "--system",
    "-s",
    type=click.Path(path_type=Path),
    help="System file whose endpoint-delay and local-mem-bw messages and reductions take [default: their defaults].",
)
@click.option(
    "--algorithm", metavar="NAME", help="Write this algorithm of ours as XML instead, such as ring."
)
@click.option(
    "--collective",
    type=click.Choice(["all_reduce", "reduce_scatter", "all_gather", "all_to_all"], case_sensitive=False),
    help="With --algorithm: what it does.",
)
@click.option("--npus", type=WholeRange(2), metavar="N", help="With --algorithm: ranks.")
@written_option()
def command(
    source: Path | None,
    output: str | None,
    size_bytes: int | None,
    system: Path | None,
    algorithm: str | None,
    collective: str | None,
    npus: int | None,
    output_format: str,
) -> None:
    """Turn an algorithm of MSCCL into traces that a system file can name, or one of ours into MSCCL's XML.

    The algorithm is carried out on names of data first: one that cannot end, is not the collective that it claims to be,
    or depends on which threadblock is faster is refused.
    """
    if (source is None) == (algorithm is None):
        raise UsageError("give an algorithm of MSCCL with --input, or one of ours with --algorithm")
    if source is None:
        if size_bytes is not None or system is not None:
            raise UsageError("--size and --system go with --input: an XML file has no bytes")
        assert algorithm is not None, "one of the two is given"
        _export(algorithm, collective, npus, output, output_format)
        return
    if collective is not None or npus is not None:
        raise UsageError("--collective and --npus go with --algorithm: an XML file says them itself")
    if output is None or size_bytes is None:
        raise UsageError("--input needs --output PREFIX and --size SIZE")
    _convert(source, output, size_bytes, system, output_format)


def _convert(source: Path, prefix: str, size_bytes: int, system: Path | None, output_format: str) -> None:
    from chakra.converters.msccl import load_msccl, system_key, write_msccl

    algorithm = load_msccl(source)
    written = write_msccl(algorithm, prefix, size_bytes=size_bytes, system=system)
    notes = []
    least, most = algorithm.least_bytes, algorithm.most_bytes
    if size_bytes < (least or 0) or (most is not None and size_bytes > most):
        says = f"{least or 0} to {most} bytes" if most is not None else f"{least} bytes and more"
        notes.append(f"the file says that it is for {says}, not for {size_bytes}")
    for note in notes:
        click.echo(f"note: {note}", err=True)
    blocks = sum(map(len, algorithm.ranks))
    click.echo(
        f"{algorithm.collective.lower()} of {counted(algorithm.npus, 'rank')} in "
        f"{counted(algorithm.steps, 'step')}, carried out without a "
        f"fault; traces written to {prefix}.<rank>.et",
        err=True,
    )
    click.echo(f'a system file names them: "{system_key(algorithm.collective)}": ["{prefix}"]', err=True)
    figures = {
        "npus": algorithm.npus,
        "channels": algorithm.channels,
        "threadblocks": blocks,
        "steps": algorithm.steps,
        "messages": algorithm.messages,
    }
    say(output_format, "convert msccl", written, figures, notes)


def _export(
    algorithm: str, collective: str | None, npus: int | None, output: str | None, output_format: str
) -> None:
    from chakra.converters.msccl import export_msccl
    from chakra.io.files import atomic_text

    if collective is None or npus is None:
        raise UsageError("--algorithm needs --collective and --npus")
    need_file(output, output_format)
    text = export_msccl(algorithm, collective.lower(), npus)
    if output is None:
        click.echo(text, nl=False)
        return
    with atomic_text(output) as file:
        file.write(text)
    click.echo(f"{algorithm} ({collective.lower()}) of {counted(npus, 'rank')} written to {output}", err=True)
    say(output_format, "convert msccl", [output], {"npus": npus, "steps": text.count("<step ")})
