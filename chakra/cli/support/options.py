"""Options that several commands have, so that they are spelled and explained alike."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import rich_click as click
from click.core import ParameterSource

from chakra.errors import UsageError

#: what click parsed, by the names of a command's parameters; their types are those of the options
Options: TypeAlias = dict[str, Any]
#: what becomes a command: click hands its options to its parameters
Command: TypeAlias = Callable[..., object]
Decorator: TypeAlias = Callable[[Command], Command]


def refuse_idle(names: Sequence[str], why: str) -> None:
    """Refuse options of the command that runs where they were given and change nothing.

    Parameters
    ----------
    names
        Parameters of the command.
    why
        What follows the option's name in the message, such as ``is for a network, not for --library``.

    Raises
    ------
    UsageError
        One was given, with another value than its default.
    """
    context = click.get_current_context()
    assert context is not None, "a command runs"
    for option in context.command.params:
        if option.name in names and context.get_parameter_source(option.name) is ParameterSource.COMMANDLINE:
            long = next(name for name in option.opts if name.startswith("--"))
            if context.params[option.name] != option.get_default(context):
                raise UsageError(f"{long} {why}")


def named_once(argument: str | None, option: str | None, what: str) -> str | None:
    """A name that may stand by its place or behind its option, whichever was given.

    Parameters
    ----------
    argument
        By its place.
    option
        Behind its option.
    what
        Its word in the usage line, such as ``OUT``.

    Raises
    ------
    UsageError
        Both were given: one would be left unused, and a file that was meant to be read could be written over.
    """
    if argument is not None and option is not None:
        raise UsageError(f"{what} is named twice, by {argument} and by {option}: give one of them")
    return option if argument is None else argument


def format_option(help_text: str = "Form of the output.") -> Decorator:
    """``--format text|json`` of commands that print a summary; the parameter is ``output_format``."""
    return click.option(
        "--format",
        "output_format",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help=help_text,
    )


def filename_options(what: str) -> Decorator:
    """Upstream's ``--input_filename`` and ``--output_filename``, which say what the arguments say.

    The parameters are ``input_name`` and ``output_name``; ``what`` is the text that explains the first.
    """

    def decorate(function: Command) -> Command:
        for direction, text in (("output", "The file to write (for OUT)."), ("input", what)):
            function = click.option(
                *(("-o", "--output") if direction == "output" else ()),
                f"--{direction}_filename",
                f"--{direction}-filename",
                f"{direction}_name",
                type=click.Path(path_type=Path),
                help=text,
            )(function)
        return function

    return decorate
