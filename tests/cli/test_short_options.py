"""Command lines are read as click reads them, without its search for names that are alike and for absent options."""

import difflib
from collections.abc import Iterator
from typing import Any

import pytest
import rich_click as click
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from chakra.cli.main import cli
from chakra.cli.support.command import HELP_OPTIONS, UNSET, ChakraCommand


def commands() -> tuple[click.Command, click.Command]:
    """One with our class, one with click's own; both say what they were given."""
    made = []
    for kind in (ChakraCommand, click.RichCommand):

        @click.command(cls=kind, context_settings={"help_option_names": HELP_OPTIONS})
        @click.argument("rest", nargs=-1)
        @click.option("-o", "--output")
        @click.option("-p", "--pair", nargs=2)
        @click.option("-v", "--verbose", count=True)
        @click.option("-q", "--quiet", is_flag=True)
        @click.option("-c", "--colour", is_flag=False, flag_value="auto")
        @click.option("-x")
        @click.option("--number", type=int, default=3)
        @click.option("--many", multiple=True)
        @click.option("--yes/--no", default=True)
        @click.option("--on/--off", default=None)
        @click.option("--left", "side", flag_value="left")
        @click.option("--right", "side", flag_value="right", default=True)
        @click.option("--told", callback=lambda context, parameter, value: value or "nothing")
        @click.option("--named", envvar="SHORT_OPTIONS_NAMED")
        @click.option("--hidden", expose_value=False)
        def command(**options: Any) -> None:
            click.echo(repr(sorted(options.items())))

        made.append(command)
    return made[0], made[1]


OURS, CLICKS = commands()
WORDS = [
    "-o",
    "-p",
    "-v",
    "-q",
    "-c",
    "-x",
    "-oq",
    "-vq",
    "-o=1",
    "--output",
    "--output=-q",
    "--",
    "a",
    "-",
    "-z",
    "--quiet",
    "--number=4",
    "--many",
    "--no",
    "--off",
    "--left",
    "--told=a",
    "--help",
]


@given(st.lists(st.sampled_from(WORDS), max_size=7))
def test_any_command_line_gives_what_click_gives(words: list[str]) -> None:
    runner = CliRunner(env={"SHORT_OPTIONS_NAMED": "there"})
    ours, clicks = (runner.invoke(command, words) for command in (OURS, CLICKS))
    assert (ours.exit_code, ours.output) == (clicks.exit_code, clicks.output)


def test_no_search_for_names_that_are_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> list[str]:
        raise AssertionError("looked for names that are alike")

    monkeypatch.setattr(difflib, "get_close_matches", refuse)
    words = ["-o", "-q", "-p", "-o", "b", "-q", "rest"]
    assert isinstance(CliRunner().invoke(CLICKS, words).exception, AssertionError)
    outcome = CliRunner().invoke(OURS, words)
    assert outcome.exit_code == 0
    assert "('output', '-q')" in outcome.output
    assert "('pair', ('-o', 'b'))" in outcome.output


def leaves(group: click.Group) -> Iterator[ChakraCommand]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from leaves(command)
        elif isinstance(command, ChakraCommand):
            yield command


def test_options_that_are_not_given_are_what_click_makes_of_them() -> None:
    found = 0
    for command in leaves(cli):
        with click.Context(command) as context:
            for name, value in command._absent.items():
                (option,) = (one for one in command.params if one.name == name)
                option.handle_parse_result(context, {}, [])
                made = context.params[name]
                assert (None if made is UNSET else made) == value, (command.name, name)
                found += 1
    assert found > 150
