"""`chakra schema`: the JSON Schemas of the documents that commands write, and of configuration files."""

import rich_click as click

from chakra.cli.support.command import ChakraCommand
from chakra.io.documents import document_text


@click.command(cls=ChakraCommand)
@click.argument("name", required=False)
def command(name: str | None) -> None:
    """Print the JSON Schema of a document, such as replay.result, or without NAME the names of all.

    Every JSON document names its schema and version in its first key. Within a version keys are only added. Schemas of
    configuration files, such as config.system, are for editors: they say what every key takes.
    """
    from chakra import input_schemas, output_schemas

    if name is None:
        click.echo("\n".join((*output_schemas.names(), *input_schemas.names())))
        return
    of_input = name.removeprefix("chakra.").startswith("config.")
    schema = input_schemas.load(name) if of_input else output_schemas.load(name)
    click.echo(document_text(schema, indent=1))
