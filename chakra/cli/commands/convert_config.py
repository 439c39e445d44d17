"""`chakra convert config`: network and system files of ASTRA-sim 1.0 to those of today."""

from pathlib import Path

import rich_click as click

from chakra.cli.support.command import ChakraCommand
from chakra.cli.support.written import need_file, say, written_option


@click.command(cls=ChakraCommand)
@click.option(
    "--input",
    "-i",
    "source",
    required=True,
    type=click.Path(path_type=Path),
    help="A network file (JSON) or a system file (lines of 'key: value') of ASTRA-sim 1.0.",
)
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    help="Where to write the network (YAML) or system file (JSON) of today; standard output if left out.",
)
@written_option()
def command(source: Path, output: Path | None, output_format: str) -> None:
    """Convert a network or system file of ASTRA-sim 1.0.

    Which of the two it is shows in its content. What has no counterpart today is dropped and named.
    """
    from chakra.converters.astra_config import convert_config
    from chakra.io.files import atomic_text
    from chakra.replay.config import load_network, load_system

    need_file(output, output_format)
    converted = convert_config(source)
    # What is written must load.
    if converted.kind == "network":
        load_network(converted.content)
    else:
        load_system(converted.content)
    if output is None:
        click.echo(converted.text, nl=False)
    else:
        with atomic_text(output) as file:
            file.write(converted.text)
    for note in converted.notes:
        click.echo(f"note: {note}", err=True)
    if output is not None:
        click.echo(f"{converted.kind} file written to {output}", err=True)
        keys = {"keys": len(converted.content)}
        say(output_format, "convert config", [output], keys, converted.notes)
