"""Telling a user at a terminal why a first run takes long: kernels are compiled."""

import sys

import rich_click as click

from chakra import jit as kernels

#: kernel module of each engine of the replay, without those that it calls
REPLAYS = ("chakra.replay.engines.kernels.phases", "chakra.replay.engines.kernels.messages")


def tell_of_compiling() -> None:
    """From now on say so on a terminal when kernels must be compiled, unless the running command is quiet."""
    kernels.before_compiling = _tell


def _tell() -> None:
    context = click.get_current_context(silent=True)
    quiet = context is not None and (context.params.get("quiet", False) or context.info_name == "warmup")
    if not quiet and sys.stderr is not None and sys.stderr.isatty():
        click.echo(f"chakra: {kernels.COMPILING}", err=True)


def tell_of_workers() -> None:
    """Say that worker processes, which are silent, may have to compile the replay's kernels first."""
    if not any(kernels.is_cached(name) for name in REPLAYS):
        click.echo(
            "note: the first points may wait for kernels to be compiled (once, up to half a minute; "
            "`chakra warmup` does it ahead)",
            err=True,
        )
