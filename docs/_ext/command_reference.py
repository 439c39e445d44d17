"""The block ``chakra-command``: a command's reference, made from its definition.

    ```{chakra-command} replay
    ```

writes the description, the usage, every argument and every option with its default, values and unit, and the same
for its sub-commands, each in a section of its own.
"""

import re
import textwrap
from collections.abc import Iterator

import click
from sphinx.application import Sphinx
from sphinx.util import logging

logger = logging.getLogger(__name__)

#: what a metavar or the type of a value stands for
KINDS = {
    "INTEGER": "a whole number",
    "FLOAT": "a number",
    "TEXT": "a text",
    "PATH": "a path",
    "FILE": "a file",
    "DIRECTORY": "a folder",
}

#: the section of the options that most sub-commands share; so many are rather said again in each
SHARED, ANCHOR = "Options of several", "options-of-several"
SAID_AGAIN = 6


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


def command_lines(
    command: click.Command,
    path: str,
    depth: int,
    parent: click.Context,
    *,
    said: frozenset[str] = frozenset(),
    remark: str = "",
) -> Iterator[str]:
    """The reference of a command and its sub-commands as Markdown.

    Options in `said` are described elsewhere; `remark` follows the description.
    """
    context = click.Context(command, info_name=path.split()[-1], parent=parent)
    if depth > 1:
        yield f"{'#' * depth} {path}"
        yield ""
    for block in description(command):
        words = " ".join(block.split())
        if example := re.fullmatch(r"(?:Example: )?(chakra .*)", words):  # to type
            yield from ("Example:", "", "```text", example[1], "```", "")
        elif words := words.removesuffix("Example:").strip():
            yield from (marked(words), "")
    if isinstance(command, click.Group):
        yield from group_lines(command, path, depth, context, remark)
        return
    yield from (remark, "")
    usage = " ".join(piece for piece in command.collect_usage_pieces(context) if piece)
    yield from ("```text", f"{path} {usage}", "```", "", f"```{{program}} {path}", "```", "")
    for lines in options_of(command, context):
        if lines not in said:
            yield lines
    if said:
        yield from (f"And the [options of several](#{ANCHOR}).", "")


def options_of(command: click.Command, context: click.Context) -> list[str]:
    """The description of each option."""
    return [
        "\n".join(option_lines(item))
        for item in command.get_params(context)
        if isinstance(item, click.Option) and not item.hidden and item.name != "help"
    ]


def group_lines(
    group: click.Group, path: str, depth: int, context: click.Context, remark: str
) -> Iterator[str]:
    """A list of the sub-commands, a section for each, and one for options that most of them share."""
    subs = {}
    for name in group.list_commands(context):
        if (sub := group.get_command(context, name)) is not None:
            subs[name] = sub
    for name, sub in subs.items():
        first = " ".join(plain(textwrap.dedent(sub.help or "")).split("\n\n")[0].split())
        anchor = re.sub(r"\W+", "-", f"{path} {name}")
        yield f"- [{path} {name}](#{anchor}): {marked(first)}"
    yield from ("", remark, "")
    options = {
        name: options_of(sub, click.Context(sub, info_name=name, parent=context))
        for name, sub in subs.items()
    }
    names, shared = shared_options(options)
    for name, sub in subs.items():
        said = frozenset(shared) if name in names else frozenset()
        yield from command_lines(sub, f"{path} {name}", depth + 1, context, said=said)
    if shared:
        listed = ", ".join(f"`{name}`" for name in names[:-1])
        yield from (f"{'#' * (depth + 1)} {SHARED}", "")
        yield from (f"{listed} and `{names[-1]}` take these, too.", "")
        yield from (f"```{{program}} {path}", "```", "")
        yield from shared


def shared_options(options: dict[str, list[str]]) -> tuple[tuple[str, ...], list[str]]:
    """Which sub-commands (all, or all but one) describe the same options, and these; nothing if they are few."""
    among: dict[str, list[str]] = {}
    for name, texts in options.items():
        for text in texts:
            among.setdefault(text, []).append(name)
    by_names: dict[tuple[str, ...], list[str]] = {}
    for text, names in among.items():
        if len(names) >= max(3, len(options) - 1):
            by_names.setdefault(tuple(names), []).append(text)
    best = max(by_names.items(), key=lambda item: len(item[1]), default=((), []))
    return best if len(best[1]) > SAID_AGAIN else ((), [])


def find(name: str) -> tuple[click.Command, click.Context]:
    """A command of `chakra` by its name."""
    from chakra.cli.main import cli

    context = click.Context(cli, info_name="chakra", **cli.context_settings)
    command = cli.get_command(context, name)
    if command is None:
        raise LookupError(f"chakra has no command {name!r}")
    return command, context


_BLOCK = re.compile(r"^```\{chakra-command\} (\S+)\n```\n(.*)\Z", re.MULTILINE | re.DOTALL)


def expand(app: Sphinx, page: str, source: list[str]) -> None:
    """Put the reference of a command into the text of its page, and what the page says after it behind the description.

    Done in the text, for a directive cannot make the sections that follow a paragraph of its own.
    """
    found = _BLOCK.search(source[0])
    if found is None:
        return
    try:
        command, context = find(found[1])
    except LookupError as error:
        logger.warning("%s", error, location=page, type="command")
        return
    lines = command_lines(command, f"chakra {found[1]}", 1, context, remark=found[2])
    source[0] = source[0][: found.start()] + "\n".join(lines) + "\n"


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("source-read", expand)
    return {"parallel_read_safe": True}
