"""`chakra convert`: a group whose sub-commands are imported only when they run."""

import importlib
from typing import Any

import rich_click as click

#: sub-command -> module with its `command`.
COMMANDS: dict[str, str] = {
    "text": "chakra.cli.convert_text",
    "pytorch": "chakra.cli.convert_pytorch",
    "config": "chakra.cli.convert_config",
}


class ConvertGroup(click.RichGroup):
    """Imports a sub-command's module when it is asked for; case does not matter (upstream: Text, PyTorch)."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> Any:
        module = COMMANDS.get(cmd_name.lower())
        return None if module is None else importlib.import_module(module).command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args:
            args = [args[0].lower(), *args[1:]]
        return super().resolve_command(ctx, args)


@click.group(cls=ConvertGroup)
@click.option(
    "--log-filename",
    hidden=True,
    expose_value=False,
    help="Taken from upstream's command; no log is written.",
)
def command() -> None:
    """Convert text workloads, PyTorch traces and configurations of ASTRA-sim 1.0."""
