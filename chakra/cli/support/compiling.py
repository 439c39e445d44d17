"""Telling a user at a terminal why a first run takes long: kernels are compiled."""

import rich_click as click

from chakra import jit as kernels
from chakra.cli.support.quiet import is_quiet
from chakra.io.streams import errors_on_terminal

#: kernel module of each engine of the replay, without those that it calls
REPLAYS = ("chakra.replay.engines.kernels.phases", "chakra.replay.engines.kernels.messages")


def tell_of_compiling() -> None:
    """From now on say so on a terminal when kernels must be compiled, unless the running command is quiet."""
    kernels.before_compiling = _tell


def _tell() -> None:
    context = click.get_current_context(silent=True)
    told = context is not None and context.info_name == "warmup"
    if errors_on_terminal() and not is_quiet() and not told:
        click.echo(f"chakra: {kernels.COMPILING}", err=True)


def tell_of_workers() -> None:
    """Say that worker processes, which are silent, may have to compile the replay's kernels first."""
    if not any(kernels.is_cached(name) for name in REPLAYS):
        click.echo(
            "note: the first points may wait for kernels to be compiled (once, some ten seconds; "
            "`chakra warmup` does it ahead)",
            err=True,
        )
