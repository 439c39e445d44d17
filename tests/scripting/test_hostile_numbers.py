"""No number on a command line ends a command with an internal error, and none leaves NaN or infinity in a document."""

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import rich_click as click
from click.types import FloatParamType, IntParamType
from scenes import SCENES, prepare, words

from chakra.builder import TraceBuilder, Workload
from chakra.cli.main import cli, run

#: values that arithmetic does not expect: no numbers, ends of what floats and integers hold, signs
HOSTILE = ("nan", "inf", "-1", "0", "1e308", "5e-324", str(10**30))
#: scenes that show nothing more, or whose numbers only say how many processes there are
LEFT_OUT = {"doctor", "visualize pdf", "compare page", "convert pytorch", "generate manifest", "replay text"}


def command_of(line: list[str]) -> click.Command:
    """The command that a line runs."""
    found: click.Command = cli
    for word in line:
        if not isinstance(found, click.Group):
            break
        inner = found.get_command(click.Context(found), word)
        assert inner is not None
        found = inner
    return found


def numeric(option: click.Parameter) -> bool:
    """Whether an option takes one number."""
    kinds = (IntParamType, FloatParamType)
    return isinstance(option, click.Option) and isinstance(option.type, kinds) and option.nargs == 1


def cases() -> Iterator[tuple[str, str]]:
    """Scenes and options of them that take a number, each option of a command once."""
    seen = set()
    for name, scene in SCENES.items():
        if name in LEFT_OUT:
            continue
        command = command_of(scene.args)
        for option in command.params:
            longest = max(option.opts, key=len)
            if numeric(option) and (id(command), longest) not in seen:
                seen.add((id(command), longest))
                yield name, longest


CASES = list(cases())


def strict(text: str) -> Any:
    """A JSON document that is one by the standard."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} in a document")

    return json.loads(text, parse_constant=refuse)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The inputs of all scenes."""
    made = tmp_path_factory.mktemp("numbers")
    prepare(made)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made)
        for name in ("convert msccl export", "replay aware"):  # what other scenes read
            assert run(words(SCENES[name])) == 0
    work = Workload(4)

    def program(b: TraceBuilder) -> None:
        first = b.compute("gemm", num_ops=10**9, tensor_bytes=1 << 20)
        last = b.load(1 << 20, after=first)
        b.send((b.rank + 1) % 4, size_bytes=4096)
        b.recv((b.rank - 1) % 4, size_bytes=4096)
        b.collective("all-reduce", size_bytes=1 << 16, after=last)

    work.run(program)
    work.write(str(made / "modelled"))
    (made / "memory.json").write_text(json.dumps(MEMORY))
    return made


def test_there_are_many_options() -> None:
    assert len(CASES) > 80
    assert {"--latency", "--npus", "--layers", "--cost-per-npu-hour"} <= {option for _, option in CASES}


@pytest.mark.parametrize(("name", "option"), CASES)
def test_options(
    name: str, option: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    scene = SCENES[name]
    for value in HOSTILE:
        line = words(scene)
        if option in line:
            at = line.index(option)
            del line[at : at + 2]
        code = run([*line, f"{option}={value}"])
        said = capsys.readouterr()
        assert code != 1, f"{option}={value}: {said.err}"
        if code != 0 or scene.schema is None:
            continue
        document = Path(scene.document).read_text() if scene.document else said.out
        if document.startswith("{"):
            strict(document)


MEMORY = {"memory-type": "PER_NPU_MEMORY_EXPANSION", "remote-mem-latency": 100, "remote-mem-bw": 50}
FILES = {
    "memory.json": ('"remote-mem-latency": {}', '"remote-mem-bw": {}'),
    "network.yml": ("bandwidth: [ {} ]", "latency: [ {} ]", "npus_count: [ {} ]"),
    "system.json": (
        *('"endpoint-delay": {}', '"local-mem-bw": {}', '"peak-perf": {}', '"preferred-dataset-splits": {}'),
        *('"active-chunks-per-dimension": {}', '"roofline-enabled": 1, "peak-perf": 900, "local-mem-bw": {}'),
        '"roofline-enabled": 1, "local-mem-bw": 2000, "peak-perf": {}',
    ),
}


@pytest.mark.parametrize("entry", [(file, entry) for file, entries in FILES.items() for entry in entries])
@pytest.mark.parametrize("value", [".nan", ".inf", "-1", "0", "1e308", "5e-324", str(10**30), "1e400"])
def test_files(
    entry: tuple[str, str],
    value: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    file, line = entry
    text = Path(file).read_text()
    if file.endswith(".yml"):
        key = line.split(":")[0]
        kept = [row for row in text.splitlines() if not row.startswith(f"{key}:")]
        made = "\n".join([*kept, line.format(value), ""])
    else:
        word = {".nan": "NaN", ".inf": "Infinity"}.get(value, value)
        made = text.rstrip()[:-1] + ", " + line.format(word) + "}"
        made = json.dumps(json.loads(made))  # the last of a key that is there twice
    other = Path(f"hostile-{os.path.basename(file)}")
    other.write_text(made)
    arguments = words(SCENES["replay"])
    arguments += ["-m", "memory.json"]
    arguments = [str(other) if word == file else word for word in arguments]
    ways: list[list[str]] = [
        [],
        ["--backend", "aware"],
        ["--compat", "astra-sim"],
        ["--compat", "astra-sim-1.0"],
    ]
    for more in (*ways, ["--compute-scale", value.strip(".")]):
        for workload in ("run", "modelled"):
            code = run([workload if word == "run" else word for word in arguments] + more)
            said = capsys.readouterr()
            assert code != 1, said.err
            if code == 0:
                assert math.isfinite(strict(said.out)["finish_ns"][0])
