"""The tables of docs/guides/migrating.md: a flag that is called the same is one that the command takes."""

import importlib
import itertools
import re
from pathlib import Path

import pytest
import rich_click as click
from astra_flags import LONG

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "migrating.md"


def command_of(words: str) -> click.Command:
    """The command that a line such as `chakra convert text` runs."""
    from chakra.cli.main import cli

    found: click.Command = cli
    context = click.Context(cli, **cli.context_settings)
    for word in words.split()[1:]:
        assert isinstance(found, click.Group)
        step = found.get_command(context, word)
        assert step is not None, words
        found = step
    return found


def options(command: click.Command) -> set[str]:
    names = {
        option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)
    }
    return names | set(command.context_settings.get("help_option_names", ["--help"]))


def tables() -> list[tuple[str, list[list[str]]]]:
    """(command, rows of the table below its mark)."""
    out = []
    text = GUIDE.read_text(encoding="utf-8")
    for words, body in re.findall(r"<!-- flags: (.*?) -->\n(.*?)(?=<!-- |\Z)", text, re.DOTALL):
        lines = list(itertools.takewhile(lambda line: line.startswith("|"), body.strip().splitlines()))
        out.append((words, [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]))
    return out


@pytest.mark.parametrize(("words", "rows"), tables(), ids=[words for words, _ in tables()])
def test_same_flags_are_taken(words: str, rows: list[list[str]]) -> None:
    known = options(command_of(words))
    assert rows
    for flag, here, *_ in rows:
        name = flag.strip("`")
        if here.startswith("same"):
            assert name in known, name
            for other in re.findall(r"`(-[\w-]+)`", here):
                assert other in known, other
        else:
            assert name not in known, f"{name} does work"
            for other, option in re.findall(r"`(chakra[\w ]*) (--[\w-]+)", here):
                assert option in options(command_of(other)), (other, option)


def test_every_flag_of_astra_sim_has_a_row() -> None:
    rows = dict(tables())["chakra replay"]
    assert {flag.split("=")[0] for flag in LONG} <= {row[0].strip("`") for row in rows}


def test_modules_of_the_page_import() -> None:
    for name in ("chakra.schema.protobuf.et_def_pb2", "chakra.et_def.et_def_pb2"):
        assert importlib.import_module(name).__name__
