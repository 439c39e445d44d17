"""`chakra schema`: the JSON Schemas of the documents that commands write."""

import json

import rich_click as click


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("name", required=False)
def command(name: str | None) -> None:
    """Print the JSON Schema of a document, such as replay.result, or without NAME the names of all.

    Every JSON document names its schema and version in its first key. Within a version keys are only added.
    """
    from chakra.output_schemas import load, names

    click.echo("\n".join(names()) if name is None else json.dumps(load(name), indent=1))
