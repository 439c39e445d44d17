"""Short options are read as click reads them, without its search for names that are alike."""

import difflib
from typing import Any

import pytest
import rich_click as click
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from chakra.cli.support.command import ChakraCommand


def commands() -> tuple[click.Command, click.Command]:
    """One with our class, one with click's own; both say what they were given."""
    made = []
    for kind in (ChakraCommand, click.RichCommand):

        @click.command(cls=kind)
        @click.argument("rest", nargs=-1)
        @click.option("-o", "--output")
        @click.option("-p", "--pair", nargs=2)
        @click.option("-v", "--verbose", count=True)
        @click.option("-q", "--quiet", is_flag=True)
        @click.option("-c", "--colour", is_flag=False, flag_value="auto")
        @click.option("-x")
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
]


@given(st.lists(st.sampled_from(WORDS), max_size=7))
def test_any_command_line_gives_what_click_gives(words: list[str]) -> None:
    ours, clicks = (CliRunner().invoke(command, words) for command in (OURS, CLICKS))
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
