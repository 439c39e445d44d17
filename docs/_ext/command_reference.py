"""The directive ``chakra-command``: a command's reference, made from its definition.

    ```{chakra-command} replay
    ```

writes the description, the usage, every argument and every option with its default, values and unit, and the same
for its sub-commands, each in a section of its own.
"""

import re
import textwrap
from collections.abc import Iterator
from typing import Any, ClassVar

import click
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

#: what a metavar or the type of a value stands for
KINDS = {
    "INTEGER": "a whole number",
    "FLOAT": "a number",
    "TEXT": "a text",
    "PATH": "a path",
    "FILE": "a file",
    "DIRECTORY": "a folder",
}


def plain(text: str) -> str:
    """Help text without the markup of the terminal: rich's tags, click's mark of a paragraph to leave alone."""
    if "[/" in text:
        from rich.text import Text

        text = Text.from_markup(text).plain
    return text.replace("\b\n", "").strip()


def marked(text: str) -> str:
    """Markdown of a help text: what is typed becomes literal, what Markdown would take for markup does not."""
    parts = re.split(r"(`[^`]+`)", plain(text))
    out = []
    for part in parts:
        if part.startswith("`"):
            out.append(part)
            continue
        part = re.sub(r"([*_<>\[\]\\])", r"\\\1", part)
        out.append(
            re.sub(r"(?<![\w`-])(--?[a-zA-Z][\w-]*)", lambda m: f"`{m[1].replace(chr(92), '')}`", part)
        )
    return "".join(out)


def description(command: click.Command) -> list[str]:
    """The paragraphs of a command's help."""
    text = plain(textwrap.dedent(command.help or ""))
    return [block for block in re.split(r"\n\s*\n", text) if block.strip()]


def default_of(option: click.Option, text: str) -> tuple[str, str]:
    """The default that an option shows, and its help without a default that the help states itself."""
    found = re.search(r"\s*\[default: ([^\]]+)\]\.?", text)
    if found:
        return found[1], text[: found.start()] + text[found.end() :]
    value = option.default
    if option.required:
        return "required", text
    if callable(value) or value is None or "UNSET" in repr(value) or value in ((), "", "empty"):
        return "", text
    if option.is_flag:
        return ("on" if value is True and option.secondary_opts else ""), text
    if isinstance(value, (list, tuple)):
        value = ",".join(str(item) for item in value)
    return str(getattr(value, "value", value)), text


def values_of(option: click.Option) -> str:
    """What an option takes, where its metavar does not say it."""
    kind = option.type
    if isinstance(kind, click.Choice):
        return "one of " + ", ".join(f"`{getattr(choice, 'value', choice)}`" for choice in kind.choices)
    if isinstance(kind, (click.IntRange, click.FloatRange)):
        word = "a whole number" if isinstance(kind, click.IntRange) else "a number"
        low = "" if kind.min is None else f"{'above' if kind.min_open else 'from'} {kind.min:,}"
        high = "" if kind.max is None else f"{'below' if kind.max_open else 'to'} {kind.max:,}"
        return " ".join(part for part in (word, low, high) if part)
    return KINDS.get(kind.name.upper(), "") if not option.is_flag and option.metavar is None else ""


def option_lines(option: click.Option) -> Iterator[str]:
    """One option as a directive of Sphinx's, so that it can be linked to and found."""
    value = ""
    if not option.is_flag and not option.count:
        word = option.metavar or (
            "CHOICE" if isinstance(option.type, click.Choice) else option.type.name.split()[0].upper()
        )
        value = f" {word}"
    names = sorted(option.opts, key=lambda name: name.startswith("--")) + list(option.secondary_opts)
    yield "````{option} " + ", ".join(f"{name}{value}" for name in names)
    default, text = default_of(option, option.help or "")
    facts = [marked(" ".join(text.split()))]
    if values := values_of(option):
        facts.append(f"Takes {values}.")
    if default == "required":
        facts.append("Required.")
    elif default:
        facts.append(f"Default: `{default}`.")
    if option.multiple and "again" not in text:
        facts.append("May be given again.")
    yield " ".join(fact for fact in facts if fact)
    yield "````"
    yield ""


def command_lines(command: click.Command, path: str, depth: int, parent: click.Context) -> Iterator[str]:
    """The reference of a command and its sub-commands as Markdown."""
    context = click.Context(command, info_name=path.split()[-1], parent=parent)
    if depth > 1:
        yield f"{'#' * depth} {path}"
        yield ""
    for block in description(command):
        words = " ".join(block.split())
        if example := re.fullmatch(r"(?:Example: )?(chakra .*)", words):  # to type
            yield from ("Example:", "", "```text", example[1], "```", "")
        else:
            yield from (marked(words), "")
    usage = " ".join(piece for piece in command.collect_usage_pieces(context) if piece)
    yield from ("```text", f"{path} {usage}", "```", "", f"```{{program}} {path}", "```", "")
    options = [
        item for item in command.get_params(context) if isinstance(item, click.Option) and not item.hidden
    ]
    for option in options:
        if option.name != "help":
            yield from option_lines(option)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            sub = command.get_command(context, name)
            if sub is not None:
                yield from command_lines(sub, f"{path} {name}", depth + 1, context)


def find(name: str) -> tuple[click.Command, click.Context]:
    """A command of `chakra` by its name."""
    from chakra.cli.main import cli

    context = click.Context(cli, info_name="chakra")
    command = cli.get_command(context, name)
    if command is None:
        raise LookupError(f"chakra has no command {name!r}")
    return command, context


class ChakraCommand(SphinxDirective):
    """Writes the reference of one command."""

    required_arguments = 1
    has_content = False
    option_spec: ClassVar[dict[str, Any]] = {}

    def run(self) -> list[nodes.Node]:
        """The nodes of the reference."""
        command, context = find(self.arguments[0])
        lines = list(command_lines(command, f"chakra {self.arguments[0]}", 1, context))
        holder = nodes.Element()
        source = f"<chakra {self.arguments[0]}>"
        self.state.nested_parse(StringList(lines, source), self.content_offset, holder, match_titles=True)
        return holder.children


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_directive("chakra-command", ChakraCommand)
    return {"parallel_read_safe": True}
