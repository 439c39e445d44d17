"""`chakra jsonize`: execution traces as JSON and back."""

import sys

import rich_click as click

from chakra.cli.support.command import ChakraCommand
from chakra.cli.support.options import named_once


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

    if input_name is not None and target is None:
        source, target = None, source  # the one name that stands by its place is then the output's
    source = named_once(source, input_name, "FILE")
    target = named_once(target, output_name, "OUTPUT")
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
        files.expect_apart([target], [source])
        if kind == files.EXECUTION_TRACE and target.endswith((".et", ".et.gz")):
            raise UsageError(
                f"{target}: the name of a trace, and {source} becomes JSON; name a .json file, one FILE a call"
            )
        with files.atomic_text(target) as text:
            write_json(data, source, text)
