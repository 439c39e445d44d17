"""`chakra anonymize`: traces without names, for others to replay."""

from typing import Any

import rich_click as click

from chakra.cli.support.command import ChakraCommand
from chakra.cli.support.options import named_once
from chakra.io.documents import document_text
from chakra.io.readable import counted

#: version of the summary's document
SCHEMA = "chakra.anonymize/1"

KEPT = {
    "nodes": "number, type, control and data dependencies, duration, start relative to the file's first start",
    "attributes": "values of {attributes}",
    "tensors": "bytes of every tensor in the attributes inputs and outputs",
    "groups": "ranks of process groups; names that are numbers, and a number in front of a name",
    "file": "schema version, rank, whether peers are relative",
    "job": "which rank runs which trace; keys and values of the remote memory",
}
REPLACED = {
    "node": "names of nodes (a public word for the kind of work stays, unless --no-kinds)",
    "tensor": "names of tensors",
    "group": "names of process groups that are not numbers",
}
DROPPED = (
    "every other attribute (operator schemas, source and kernel files, module names, shapes, ...), arguments, shapes and "
    "types of inputs and outputs, documentation, other metadata of the file, 'about' of a manifest, unknown fields"
)


@click.command(cls=ChakraCommand)
@click.argument("source", metavar="IN")
@click.argument("target", metavar="OUT", required=False)
@click.option("-o", "--output", metavar="OUT", help="The same as OUT.")
@click.option(
    "-g", "--groups", metavar="FILE", help="Groups file (JSON), written as OUT.json under the new names."
)
@click.option("-m", "--memory", metavar="FILE", help="Remote memory file (JSON), written as OUT.memory.json.")
@click.option(
    "--key",
    metavar="FILE",
    help="File with a secret of at least 16 bytes: equal names get equal classes in every call with this key. "
    "Without it classes are numbered by first use.",
)
@click.option(
    "--kinds/--no-kinds",
    default=True,
    show_default=True,
    help="Let a node's class say what kind of work it is (gemm3, copy0), where its name has a public word for it.",
)
@click.option("--in-place", is_flag=True, help="Allow OUT to be IN.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="What was written, kept and replaced, as text or as one JSON document.",
)
@click.option("-q", "--quiet", is_flag=True, help="Say nothing.")
def command(
    source: str,
    target: str | None,
    output: str | None,
    groups: str | None,
    memory: str | None,
    key: str | None,
    kinds: bool,
    in_place: bool,
    form: str,
    quiet: bool,
) -> None:
    """Replace names and texts of traces by classes and drop what no replay needs.

    IN and OUT are trace files, or prefixes of PREFIX.<rank>.et or of PREFIX.workload.json and its traces, or folders of
    PyTorch's recordings (or FOLDER/JOB). The result replays to the same times, node by node.
    """
    from chakra.anonymize import Labels, anonymize, read_key
    from chakra.errors import UsageError
    from chakra.io.rank_files import ranks_alike

    by_place = target
    target = named_once(target, output, "OUT")
    if target is None:
        raise UsageError("name what to write: chakra anonymize IN OUT")
    if by_place is not None and ranks_alike(source, by_place):
        # what a shell makes of a pattern such as job.*.et where there are two
        raise UsageError(
            f"{target}: is there, and its name differs from {source} by a number alone, as that of another rank does; "
            "IN may be the prefix of all ranks, and -o writes over a file"
        )

    labels = Labels(read_key(key) if key is not None else None, kinds=kinds)
    summary = anonymize(source, target, labels=labels, groups=groups, memory=memory, in_place=in_place)
    if quiet:
        return
    document = {
        "schema": SCHEMA,
        "files": [{"source": path, "target": out} for path, out in summary.written],
        "nodes": summary.nodes,
        "keyed": key is not None,
        "classes": summary.classes,
        "kept": _kept(),
        "replaced": REPLACED,
        "dropped": DROPPED,
    }
    click.echo(document_text(document) if form == "json" else "\n".join(_lines(document)))


def _kept() -> dict[str, str]:
    from chakra.anonymize.trace import KEPT_ATTRIBUTES

    return {what: text.format(attributes=", ".join(sorted(KEPT_ATTRIBUTES))) for what, text in KEPT.items()}


def _lines(document: dict[str, Any]) -> list[str]:
    """The summary for people."""
    written = document["files"]
    lines = [f"{counted(len(written), 'file')} written, {counted(document['nodes'], 'distinct node')}"]
    lines += [f"kept      {what}: {text}" for what, text in document["kept"].items()]
    lines += [
        f"replaced  {text}: {counted(document['classes'].get(what, 0), 'class')}"
        for what, text in document["replaced"].items()
    ]
    return [*lines, f"dropped   {document['dropped']}"]
