"""Groups of commands whose modules are imported only when a sub-command runs."""

import importlib
from typing import Any

import rich_click as click


class LazySubcommands(click.RichGroup):
    """A group that imports a sub-command when it is asked for.

    Parameters
    ----------
    places
        Sub-command -> ``module:attribute``, in the order in which help lists them.
    """

    def __init__(self, *args: Any, places: dict[str, str], **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.places = places

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the sub-commands."""
        return list(self.places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> Any:
        """The sub-command, imported now; None if there is none of this name."""
        if cmd_name not in self.places:
            return None
        module, _, attribute = self.places[cmd_name].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        command.name = cmd_name  # help lists commands by this, and modules call theirs `command`
        return command
