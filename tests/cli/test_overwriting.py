"""No command puts its output in the place of a file that it has read."""

import os
from pathlib import Path

import pytest

from chakra.cli.main import run

NETWORK = "topology: [ Switch ]\nnpus_count: [ 4 ]\nbandwidth: [ 50.0 ]\nlatency: [ 500.0 ]\n"
LAYER = "layer\t-1\t1\tALLREDUCE\t1024\t5\tNONE\t0\t7\tALLREDUCE\t2048\t10\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Traces, a machine, a result, a second name of a file, and a link to one."""
    monkeypatch.chdir(tmp_path)
    assert run(["generate", "collective", "--size", "1MiB", "--npus", "4", "-o", "w", "-q"]) == 0
    Path("network.yml").write_text(NETWORK)
    Path("system.json").write_text('{"all-reduce-implementation": ["ring"]}')
    os.link("system.json", "second.json")
    os.symlink("system.json", "link.json")
    assert run([*REPLAY, "--format", "json", "-o", "run.json", "-q"]) == 0
    assert run(["jsonize", "w.0.et", "w.json", "-q"]) == 0
    Path("page.html").write_bytes(Path("run.json").read_bytes())
    Path("w.svg").write_bytes(Path("w.0.et").read_bytes())
    assert run(["topology", "torus", "--shape", "4", "-o", "torus.yml", "-q"]) == 0
    return tmp_path


REPLAY = ["replay", "-w", "w", "-s", "system.json", "-n", "network.yml"]


@pytest.mark.parametrize(
    "line",
    [
        *(f"{' '.join(REPLAY)} -o {name}" for name in ("system.json", "network.yml", "w.2.et")),
        *(
            f"{' '.join(REPLAY)} --format json -o {name}"
            for name in ("second.json", "link.json", "./system.json")
        ),
        "report page.html -o page.html",
        "timeline run.json run.json",
        "visualize w.svg w.svg",
        "jsonize w.0.et w.0.et",
        "jsonize w.json w.json",
        "anonymize w.0.et w.0.et",
        "compare run.json run.json -o run.json",
        "calibrate network.yml -o network.yml",
        "convert config -i network.yml -o network.yml",
    ],
)
def test_inputs_stay_as_they_are(folder: Path, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert run(line.split()) == 2
    error = capsys.readouterr().err
    assert before == {path.name: path.read_bytes() for path in folder.iterdir()}
    assert "would overwrite an input" in error or "input and output are the same file" in error


@pytest.mark.parametrize(
    "line",
    [
        f"{' '.join(REPLAY)} --format json -o run.json",
        "jsonize w.0.et w.json",
        "anonymize w.0.et w.0.et --in-place",
        "convert text -i layers.txt -o layers.txt --npus 4",
        "compare run.json run.json -o difference.json",
        "check-config torus.yml",
    ],
)
def test_results_may_be_made_again(folder: Path, line: str) -> None:
    Path("layers.txt").write_text(f"DATA\n1\n{LAYER}")
    for _ in range(2):
        assert run(line.split()) == 0


def test_large_traces_stay_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those are mapped, not read."""
    monkeypatch.setattr("chakra.et.read._MAP_ABOVE_BYTES", 0)
    before = Path("w.2.et").read_bytes()
    assert run([*REPLAY, "-o", "w.2.et"]) == 2
    assert Path("w.2.et").read_bytes() == before
