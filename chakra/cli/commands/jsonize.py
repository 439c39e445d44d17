"""`chakra jsonize`: execution traces as JSON and back."""

import sys

import rich_click as click

from chakra.cli.support.command import ChakraCommand


@click.command(cls=ChakraCommand)
@click.argument("source", required=False, metavar="FILE")
@click.argument("target", required=False, metavar="[OUTPUT]")
@click.option("--input_filename", "--input-filename", "input_name", help="The same as FILE.")
@click.option(
    "-o", "--output", "--output_filename", "--output-filename", "output_name", help="The same as OUTPUT."
)
def command(source: str | None, target: str | None, input_name: str | None, output_name: str | None) -> None:
    """Turn an execution trace into JSON, or such JSON back into the trace, byte for byte.

    The direction follows from what FILE holds. JSON goes to standard output unless OUTPUT is given; a trace
    needs an OUTPUT (gzipped if it ends in .gz).
    """
    from chakra.errors import UsageError
    from chakra.et.jsonize import trace_bytes, write_json
    from chakra.io import files

    source = source or input_name
    target = target or output_name
    if source is None:
        raise UsageError("name the trace (or the JSON document) to turn")
    data = files.read_bytes(source)
    kind = files.kind_of(data[: 1 << 16])
    if kind in (files.JSONIZED_ET, files.JSON, files.JSON_ET):
        if target is None:
            raise UsageError(f"{source}: this is a {kind}; name an OUTPUT for the trace")
        if kind == files.JSON_ET:
            from chakra.et.json_et import encode_json_et

            content = encode_json_et(data, source)
        else:
            content = trace_bytes(data, source)
        with files.atomic_bytes(target) as file:
            file.write(content)
    elif target is None or target == "-":
        write_json(data, source, sys.stdout)
    else:
        with files.atomic_text(target) as text:
            write_json(data, source, text)
