"""The command itself: help, version, mistakes, signals, streams."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import rich_click as click

from chakra import __version__
from chakra.cli import main
from chakra.errors import StallError, ThresholdError, TraceError


def test_version_and_help(chakra: Callable[..., Any]) -> None:
    assert chakra("--version").out == f"chakra, version {__version__}\n"
    page = chakra("--help")
    assert page.code == 0
    assert "replay" in page.out
    assert "Replay execution traces" in page.out
    assert chakra("replay", "-h").code == 0


def test_every_command_of_the_table_exists(chakra: Callable[..., Any]) -> None:
    """Every module of the table holds a command, and its help can be shown."""
    for name in main.COMMANDS:
        assert chakra(name, "--help").code == 0, name


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["replya"], "chakra: error: No such command 'replya'. Did you mean 'replay'?\n"),
        (["--verison"], "chakra: error: No such option '--verison'. Did you mean '--version'?\n"),
        (["replay", "--comm-group-config=x"], "Did you mean '--comm-group-configuration'?\n"),
        (
            ["replay", "--num-queues-per-dim=0"],
            "chakra replay: error: Invalid value for '--num-queues-per-dim'",
        ),
        (["replay", "--format", "jsno"], "Did you mean 'json'?\n"),
        (["replay", "--injection-scale", "fast"], "'fast' is not a number"),
        (["replay", "--rendezvous-protocol=maybe"], "'maybe' is neither true nor false"),
        (["replay"], "no traces: give their PREFIX (rank i reads PREFIX.<i>.et), or -w PREFIX\n"),
        (["replay", "a", "-w", "b"], "the traces are named twice: a and --workload b\n"),
        (["replay", "w", "-s", "s", "-n", "n", "extra"], "unexpected extra argument (extra)"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_exit_2(
    chakra: Callable[..., Any], args: list[str], message: str
) -> None:
    outcome = chakra(*args)
    assert outcome.code == 2
    assert message in outcome.err
    assert outcome.err.count("\n") == 1
    assert outcome.out == ""


def test_no_arguments_shows_help_as_a_usage_error(chakra: Callable[..., Any]) -> None:
    outcome = chakra()
    assert (outcome.code, outcome.out) == (2, "")
    assert "Usage" in outcome.err


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (TraceError("x.et: bad"), 2, "chakra: error: x.et: bad\n"),
        (StallError("rank 0 waits"), 3, "chakra: error: rank 0 waits\n"),
        (ThresholdError("too few"), 4, "chakra: error: too few\n"),
        (KeyboardInterrupt(), 130, "chakra: interrupted\n"),
        (RuntimeError("two\nlines"), 1, "chakra: internal error: RuntimeError: two lines (a fault of chakra"),
    ],
)
def test_exit_codes(
    chakra: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, text: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(main.cli, "invoke", fail)
    outcome = chakra("doctor")
    assert outcome.code == code
    assert text in outcome.err
    assert outcome.err.count("\n") == 1


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("here")

    monkeypatch.setattr(main.cli, "invoke", fail)
    monkeypatch.setenv("CHAKRA_DEBUG", "1")
    with pytest.raises(RuntimeError, match="here"):
        main.run(["doctor"])


def test_the_code_that_a_command_sets_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command
    @click.pass_context
    def command(ctx: click.Context) -> None:
        ctx.exit(4)

    monkeypatch.setattr(main, "cli", command)
    assert main.run([]) == 4


def test_a_reader_that_goes_away_ends_quietly() -> None:
    """`chakra ... | head -1` prints no traceback."""
    process = subprocess.Popen(
        [sys.executable, "-m", "chakra", "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert process.wait(60) == 141
    assert errors == b""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk_is_an_error() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "chakra", "--version"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert done.returncode == 2
    assert done.stderr == "chakra: error: cannot write the output: No space left on device\n"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_ctrl_c_while_reading(tmp_path: Path) -> None:
    """Interrupted while it waits for a file: one line, exit 130."""
    os.mkfifo(tmp_path / "network.yml")
    (tmp_path / "s.json").write_text("{}")
    process = subprocess.Popen(
        [sys.executable, "-m", "chakra", "check-config", "-n", str(tmp_path / "network.yml")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.5)  # until it has started: it opens the pipe and waits for a writer
        process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=60)
    assert out == ""
    assert process.returncode in (130, -signal.SIGINT)  # the latter if it had not got beyond starting Python
    assert process.returncode != 130 or errors.strip() == "chakra: interrupted"


@pytest.mark.parametrize("group", ["convert", "generate", "platform", "topology"])
def test_help_of_a_group_lists_its_commands_by_their_names(chakra: Callable[..., Any], group: str) -> None:
    command = main.cli.get_command(click.Context(main.cli), group)
    assert isinstance(command, click.Group)
    names = command.list_commands(click.Context(command))
    page = chakra(group, "--help").out
    assert [name for name in names if f"\N{BOX DRAWINGS LIGHT VERTICAL} {name} " not in page] == []
