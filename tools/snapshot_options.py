"""Write tests/cli/options.txt: every command with every option, so that a change of the interface is seen.

python tools/snapshot_options.py            rewrite the file
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from chakra.cli.main import cli

FILE = Path(__file__).resolve().parent.parent / "tests" / "cli" / "options.txt"


def lines(command: click.Command, name: str) -> Iterator[str]:
    """One line per parameter of a command and of its sub-commands."""
    yield name
    for parameter in sorted(command.params, key=lambda p: (p.param_type_name, p.name or "")):
        if parameter.name == "help":
            continue
        yield f"  {_spelling(parameter)}{_kind(parameter)}{_default(parameter)}"
    if isinstance(command, click.Group):
        context = click.Context(command)
        for sub in sorted(command.list_commands(context)):
            found = command.get_command(context, sub)
            if found is not None:
                yield from lines(found, f"{name} {sub}")


def _spelling(parameter: click.Parameter) -> str:
    if parameter.param_type_name == "argument":
        return (parameter.name or "").upper() + ("..." if parameter.nargs == -1 else "")
    return ", ".join((*parameter.opts, *parameter.secondary_opts))


def _kind(parameter: click.Parameter) -> str:
    choices: Any = getattr(parameter.type, "choices", None)
    if getattr(parameter, "is_flag", False):
        kind = " flag"
    elif choices:
        kind = f" [{'|'.join(map(str, choices))}]"
    else:
        kind = f" {parameter.type.name}"
    return (
        kind + " required" * parameter.required + " repeatable" * bool(getattr(parameter, "multiple", False))
    )


def _default(parameter: click.Parameter) -> str:
    default: Any = parameter.to_info_dict().get("default")
    return "" if default in (None, False, ()) or callable(default) else f" = {default}"


def snapshot() -> str:
    """The whole interface as text."""
    return "\n".join(lines(cli, "chakra")) + "\n"


if __name__ == "__main__":
    FILE.write_text(snapshot(), encoding="utf-8")
