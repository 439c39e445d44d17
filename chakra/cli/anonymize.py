"""`chakra anonymize`: traces without names, for others to replay."""

import os

import rich_click as click

from chakra.errors import UsageError


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("source", metavar="IN")
@click.argument("target", metavar="OUT")
@click.option(
    "-g", "--groups", metavar="FILE", help="Groups file (JSON), written as OUT.json under the new names."
)
@click.option("-q", "--quiet", is_flag=True, help="Do not say what is kept.")
def command(source: str, target: str, groups: str | None, quiet: bool) -> None:
    """Replace names and texts of traces by numbered classes and drop what no replay needs.

    IN and OUT are trace files, or prefixes of PREFIX.<rank>.et. The result replays to the same finish times.
    """
    from chakra import files
    from chakra.anonymize import DROPPED_TEXT, KEPT_TEXT, Anonymizer, check_apart
    from chakra.et import read_trace

    if os.path.isfile(source):
        pairs = [(source, target)]
    else:
        found = files.rank_files(source)
        if not found:
            raise UsageError(f"{source}: neither a trace file nor a prefix of trace files")
        pairs = [(path, target + path[len(source) :]) for path in found]
    extra = [(groups, f"{target}.json")] if groups else []
    check_apart([a for a, _ in pairs + extra], [b for _, b in pairs + extra])
    anonymous = Anonymizer()
    for path, out in pairs:
        data = anonymous.trace_bytes(read_trace(path))
        with files.atomic_bytes(out) as file:
            file.write(data)
    for path, out in extra:
        text = anonymous.groups_json(files.read_json(path), path)
        with files.atomic_text(out) as file:
            file.write(text)
    if not quiet:
        click.echo(f"chakra anonymize: {len(pairs)} trace{'s' * (len(pairs) > 1)} written", err=True)
        click.echo(f"chakra anonymize: {KEPT_TEXT}", err=True)
        click.echo(f"chakra anonymize: {DROPPED_TEXT}", err=True)
