"""Data on standard output, messages on standard error, the same bytes everywhere, codes as documented."""

import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from scenes import SCENES, Ran, prepare, run, run_warm, words

from chakra.cli.main import COMMANDS
from chakra.cli.main import run as run_here
from chakra.cli.support.quiet import with_quiet

ESCAPE = b"\x1b["
COLOUR = re.compile(rb"\x1b\[(\d+;)*(3[0-8]|4[0-8]|9[0-7]|10[0-7])[;m]")


def test_every_command_has_a_scene() -> None:
    told = {scene.line.split()[0] for scene in SCENES.values()}
    assert set(COMMANDS) - told == {"completion", "schema", "warmup"}


@pytest.mark.parametrize("name", list(SCENES))
def test_same_bytes_in_another_place(first: dict[str, Ran], second: dict[str, Ran], name: str) -> None:
    """doctor speaks of the installation, whose kernel cache may grow; its verdicts stay."""
    one, two = first[name], second[name]
    assert one.code == two.code == 0, one.err + two.err
    assert set(one.files) == set(SCENES[name].writes)
    assert one.files == two.files
    if name != "doctor":
        assert one.out == two.out


@pytest.mark.parametrize("name", list(SCENES))
def test_no_colours_and_no_progress_in_files(first: dict[str, Ran], name: str) -> None:
    assert ESCAPE not in first[name].out + first[name].err
    assert b"\r" not in first[name].out + first[name].err


@pytest.mark.parametrize("name", list(SCENES))
def test_messages_are_not_data(first: dict[str, Ran], name: str) -> None:
    """Scenes with a document or a table print that and nothing else; the others say where they wrote."""
    out = first[name].out
    assert not any(line.startswith((b"wrote", b"note:", b"warning", b"chakra:")) for line in out.splitlines())


@pytest.mark.parametrize(
    ("variables", "colours"),
    [
        ({}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ({"TERM": "dumb"}, False),
    ],
)
def test_colour_variables(tmp_path: Path, variables: dict[str, str], colours: bool) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM", "CLICOLOR_FORCE"):
        os.environ.pop(name, None)
    done = run(["--help"], tmp_path, **variables)
    assert done.returncode == 0
    assert bool(COLOUR.search(done.stdout)) == colours
    prepare(tmp_path)
    done = run(words(SCENES["replay"]), tmp_path, **variables)
    assert ESCAPE not in done.stdout  # data has none, whatever is asked for


CODES = [
    ("replay -w run -s system.json -n network.yml", 0),
    ("replay -w none -s system.json -n network.yml", 2),
    ("replay --no-such-option", 2),
    ("no-such-command", 2),
    ("replay", 2),
    ("replay -w stalls -s system.json -n network.yml", 3),
    ("calibrate sweep.log --max-error 0.0000001", 4),
    ("validate stalls --npus 4 --strict", 2),
]


@pytest.mark.parametrize(("line", "code"), CODES)
def test_exit_codes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, code: int) -> None:
    from chakra.builder import TraceBuilder
    from chakra.et import write_trace

    prepare(tmp_path)
    for rank in range(4):
        b = TraceBuilder(rank=rank)
        b.compute("a", duration_micros=1)
        if rank != 2:
            b.collective("all-reduce", size_bytes=64)
        write_trace(b.build(), tmp_path / f"stalls.{rank}.et")
    monkeypatch.chdir(tmp_path)
    assert run_here(line.split()) == code


def test_quiet_hushes_messages_but_not_data_or_failures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import importlib

    import rich_click as click

    from chakra.errors import ChakraError

    prepare(tmp_path)
    monkeypatch.chdir(tmp_path)
    for name in ("convert text", "generate collective", "visualize dot", "topology"):
        args = words(SCENES[name])
        command: click.Command = with_quiet(importlib.import_module(COMMANDS[args[0]][0]).command)
        with command.make_context(args[0], [*args[1:], "-q"]) as context:
            command.invoke(context)
        streams = capsys.readouterr()
        assert streams.err == ""
        assert bool(streams.out) == (name in ("convert text", "topology"))
    command = with_quiet(importlib.import_module("chakra.cli.commands.visualize").command)
    with pytest.raises(ChakraError), command.make_context("visualize", ["none.et", "x.svg", "-q"]) as context:
        command.invoke(context)


def test_every_command_can_be_quiet_by_both_names() -> None:
    import rich_click as click

    from chakra.cli.main import cli

    def leaves(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[str, click.Command]]:
        if not isinstance(command, click.Group):
            yield " ".join(path), command
            return
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from leaves(found, (*path, name))

    found = dict(leaves(cli, ()))
    assert len(found) > 30
    for name, command in found.items():
        flags = {flag for parameter in command.params for flag in parameter.opts}
        assert {"-q", "--quiet"} <= flags, name


@pytest.mark.parametrize("kind", ["transformer --model llama3-8b --tp 2", "moe", "dlrm"])
def test_generators_are_quiet_as_the_others_are(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No messages and no summary in words beside written files; a document is data, and stays."""
    from chakra.cli.main import run

    line = ["generate", *kind.split(), "--npus", "4"]
    assert run([*line, "-o", str(tmp_path / "x"), "-q"]) == 0
    assert tuple(capsys.readouterr()) == ("", "")
    assert run([*line, "-o", str(tmp_path / "x"), "--quiet", "--format", "json"]) == 0
    streams = capsys.readouterr()
    assert (streams.err, json.loads(streams.out)["schema"]) == ("", "chakra.generate.summary/1")
    assert run([*line, "--quiet"]) == 0
    assert capsys.readouterr().out


# --------------------------------------------------------------------------------------------- completion


def complete(line: str, shell: str = "bash") -> list[str]:
    """What a shell is offered at the end of a line."""
    every = line.split(" ")
    variables = {"_CHAKRA_COMPLETE": f"{shell}_complete", "COMP_WORDS": line}
    variables["COMP_CWORD"] = every[-1] if shell == "fish" else str(len(every) - 1)
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "chakra"],
        env={**os.environ, **variables}, capture_output=True, check=True, text=True,
    )  # fmt: skip
    assert "numba" not in done.stderr
    assert "pandas" not in done.stderr
    if line.count(" ") == 1:
        assert "numpy" not in done.stderr  # names of commands come without importing any
    return done.stdout.split()


def test_completion_of_commands_options_and_values() -> None:
    assert complete("chakra rep") == ["plain,replay", "plain,report"]
    assert complete("chakra replay --back") == ["plain,--backend"]
    assert complete("chakra replay --backend ") == ["plain,unaware", "plain,aware", "plain,flow", "plain,ns3"]
    assert complete("chakra generate tr") == ["plain,transformer"]
    assert "replay" in complete("chakra re", "zsh")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_here(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert f"_CHAKRA_COMPLETE={shell}_complete" in script
    if shell == "bash":
        ask = (
            'COMP_WORDS=(chakra val); COMP_CWORD=1; _chakra_completion chakra; printf "%s " "${COMPREPLY[@]}"'
        )
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-c", f"{script}\n{ask}"], capture_output=True, text=True, check=True,
            env={**os.environ, "PATH": path},
        )  # fmt: skip
        assert done.stdout.split() == ["validate"]


def test_completion_is_fast() -> None:
    """0.08 s on an idle machine; on a busy one at most a few times what importing the command library takes."""

    def used(*command: str, **variables: str) -> float:
        times = []
        for _ in range(3):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(
                [sys.executable, *command], check=True, capture_output=True, env={**os.environ, **variables}
            )
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            times.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
        return min(times)

    library = used("-c", "import rich_click, click.shell_completion")
    ours = used("-m", "chakra", _CHAKRA_COMPLETE="bash_complete", COMP_WORDS="chakra re", COMP_CWORD="1")
    assert ours < max(0.3, 4 * library)


# ------------------------------------------------------------------------------------------------- seeds


def test_a_seed_changes_the_samples_and_the_same_one_does_not(tmp_path: Path) -> None:
    prepare(tmp_path)
    outs = {}
    for name, seed in (("a", "7"), ("b", "7"), ("c", "8")):
        line = f"sweep study.yml -o {name} --workers 1 --no-report --format json --seed {seed}"
        outs[name] = run_warm(line.split(), tmp_path).stdout
    assert outs["a"] == outs["b"] != outs["c"]
