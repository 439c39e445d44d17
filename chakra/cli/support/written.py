"""What a command whose product is a file says of it to a program: the document ``chakra.written/1``."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import rich_click as click

from chakra.cli.support.options import Decorator, format_option
from chakra.errors import UsageError
from chakra.io.documents import document_text

SCHEMA = "chakra.written/1"


def written_option() -> Decorator:
    """``--format text|json`` of such a command; the parameter is ``output_format``."""
    return format_option("json: print what was written as a document, too.")


def need_file(output: str | Path | None, output_format: str) -> None:
    """Refuse a document about a file that goes to standard output itself.

    Raises
    ------
    UsageError
        If ``--format json`` is given without a file.
    """
    if output is None and output_format == "json":
        raise UsageError("--format json says what was written: name the file with --output")


def say(
    output_format: str,
    command: str,
    paths: Sequence[str | Path],
    figures: Mapping[str, int],
    notes: Sequence[str] = (),
) -> None:
    """Print the document on standard output, if it is asked for.

    Parameters
    ----------
    output_format
        ``json``, or ``text`` for nothing.
    command
        Words of the command, without ``chakra``.
    paths
        Files that it wrote.
    figures
        What they hold: counts by name.
    notes
        What the user should know, a line each.
    """
    if output_format != "json":
        return
    document = {
        "schema": SCHEMA,
        "command": command,
        "files": [{"path": str(path), "bytes": os.path.getsize(path)} for path in paths],
        "figures": dict(figures),
        "notes": list(notes),
    }
    click.echo(document_text(document, indent=2))
