"""Groups of commands whose modules are imported only when a sub-command runs."""

import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import rich_click as click

from chakra.cli.support.command import HELP_OPTIONS, ChakraCommand


class Subcommands(click.RichGroup):
    """A group that says which sub-commands there are."""

    command_class = ChakraCommand
    #: what a sub-command does by another word -> its name
    other_words: Mapping[str, str] = MappingProxyType({})

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.context_settings.setdefault("help_option_names", HELP_OPTIONS)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the sub-command named by the first argument, or say which ones there are."""
        if args[0] not in self.list_commands(ctx) and not args[0].startswith("-"):
            meant = self.other_words.get(args[0].lower())
            known = self.list_commands(ctx)
            hint = did_you_mean(args[0], known) if meant is None else f" Did you mean '{meant}'?"
            raise click.UsageError(f"No such command '{args[0]}'.{hint}", ctx=ctx)
        found: tuple[str | None, click.Command | None, list[str]] = super().resolve_command(ctx, args)
        return found


class LazySubcommands(Subcommands):
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

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The sub-command, imported now; None if there is none of this name."""
        if cmd_name not in self.places:
            return None
        module, _, attribute = self.places[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        command.name = cmd_name  # help lists commands by this, and modules call theirs `command`
        return command


def did_you_mean(word: str, choices: list[str]) -> str:
    """` Did you mean 'x'?` or the list of what there is.

    A choice that stands in the word as a whole is meant: ``congestion_aware`` is ``aware``, and more like ``unaware``.
    """
    import difflib
    import re

    parts = set(re.split(r"[\W_]+", word.lower()))
    within = [choice for choice in choices if choice in parts]
    close = within if len(within) == 1 else difflib.get_close_matches(word.lower(), choices, n=1, cutoff=0.5)
    return f" Did you mean '{close[0]}'?" if close else f" There are: {', '.join(choices)}."
