"""`--quiet` on every command: no messages on standard error, but the one line of a failure; data stays as it is."""

import contextlib
import io

import rich_click as click


def with_quiet(command: click.Command) -> click.Command:
    """The command, and its sub-commands, with ``-q/--quiet`` where they have none of their own."""
    if isinstance(command, click.Group):
        find = command.get_command
        if getattr(find, "hushes", False):  # a process may run commands many times
            return command

        def found(ctx: click.Context, cmd_name: str) -> click.Command | None:
            sub = find(ctx, cmd_name)
            return sub if sub is None else with_quiet(sub)

        found.hushes = True  # type: ignore[attr-defined]
        command.get_command = found  # type: ignore[method-assign]
        return command
    names = {name for parameter in command.params for name in getattr(parameter, "opts", ())}
    if "--quiet" in names:
        return command
    flags = tuple(name for name in ("-q", "--quiet") if name not in names)
    command.params.append(
        click.Option(
            flags, is_flag=True, expose_value=False, is_eager=True, callback=hush,
            help="No messages on standard error, but that of a failure.",
        )
    )  # fmt: skip
    return command


def is_quiet() -> bool:
    """Whether the running command was asked for no messages."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.params.get("quiet", False))


def hush(ctx: click.Context, _: click.Parameter, value: bool) -> bool:
    """Silence standard error until the command's context ends; errors are reported after that."""
    if value:
        ctx.with_resource(contextlib.redirect_stderr(io.StringIO()))
    return value
