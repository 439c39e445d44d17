"""How far a long command is: a bar on a terminal, else lines, also while a step lasts."""

import sys
import time
from types import SimpleNamespace

import pytest
import rich_click as click

from chakra.cli.support import progress
from chakra.cli.support.progress import ProgressBar


def lines_while(
    capsys: pytest.CaptureFixture[str], bar: ProgressBar, least: int, seconds: float = 5.0
) -> list[str]:
    """Standard error's lines once there are so many, or after some time."""
    said = ""
    for _ in range(int(seconds / 0.02)):
        said += capsys.readouterr().err
        if said.count("\n") >= least:
            break
        time.sleep(0.02)
    bar.__exit__(None, None, None)
    return said.splitlines()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "FIRST_LINE_S", 0.05)
    monkeypatch.setattr(progress, "LONGEST_PAUSE_S", 0.1)


def test_a_file_gets_lines_with_what_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    bar = ProgressBar("study", counts=True)
    assert bar
    assert not bar.on_terminal
    bar.show(completed=0, total=4)
    bar.show(completed=1)
    assert lines_while(capsys, bar, 2)[:2] == ["study: 1 of 4, 0 s so far"] * 2
    # a step that has ended writes no more
    time.sleep(0.3)
    assert capsys.readouterr().err == ""


def test_steps_add_up_and_words_change(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBar("linking", 6) as bar:
        bar.show(advance=1, what="rank 0")
        bar.show(advance=1)
        assert lines_while(capsys, bar, 1)[0] == "rank 0: 2 of 6, 0 s so far"


def test_a_command_of_unknown_length_says_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBar("planning the workload", after_s=1.0) as bar:
        assert lines_while(capsys, bar, 1)[0] == "planning the workload, 0 s so far"


@pytest.mark.parametrize("quiet", [True, False])
def test_no_lines_when_quiet_or_on_a_terminal(
    quiet: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    running = SimpleNamespace(params={"quiet": quiet}, info_name="replay")
    monkeypatch.setattr(click, "get_current_context", lambda silent: running)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    bar = ProgressBar("study", 4, after_s=60.0)
    assert bool(bar) is not quiet
    assert bar.on_terminal is not quiet
    with bar:
        bar.show(completed=1)
        assert lines_while(capsys, bar, 1, 0.3) == []
