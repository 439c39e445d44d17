"""Telling a user at a terminal why a first run takes long: kernels are compiled."""

import sys

import rich_click as click

from chakra import kernels

TEXT = "compiling kernels (once, up to half a minute; `chakra warmup` does it ahead)"


def tell_of_compiling() -> None:
    """From now on say so on a terminal when kernels must be compiled, unless the running command is quiet."""
    kernels.before_compiling = _tell


def _tell() -> None:
    context = click.get_current_context(silent=True)
    quiet = context is not None and (context.params.get("quiet", False) or context.info_name == "warmup")
    if not quiet and sys.stderr is not None and sys.stderr.isatty():
        click.echo(f"chakra: {TEXT}", err=True)
