"""`chakra convert`: text workloads, PyTorch traces, old configurations and algorithms of MSCCL."""

import rich_click as click

from chakra.cli.support.subcommands import LazySubcommands

CONVERTERS = {
    "text": "chakra.cli.commands.convert_text:command",
    "pytorch": "chakra.cli.commands.convert_pytorch:command",
    "config": "chakra.cli.commands.convert_config:command",
    "msccl": "chakra.cli.commands.convert_msccl:command",
}


class ConvertGroup(LazySubcommands):
    """Case does not matter in names of converters (upstream: Text, PyTorch)."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the converter named by the first argument."""
        if args:
            args = [args[0].lower(), *args[1:]]
        return super().resolve_command(ctx, args)


@click.group(cls=ConvertGroup, places=CONVERTERS)
@click.option(
    "--log-filename",
    hidden=True,
    expose_value=False,
    help="Taken from upstream's command; no log is written.",
)
def command() -> None:
    """Convert text workloads, PyTorch traces, configurations of ASTRA-sim 1.0 and algorithms of MSCCL."""
