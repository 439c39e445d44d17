"""No command puts its output in the place of a file that it has read."""

import os
import threading
from pathlib import Path

import pytest

from chakra.cli.main import run
from chakra.io.files import read_raw
from chakra.io.inputs import inputs_kept, is_input
from chakra.sweep.executors import runner
from chakra.sweep.point import point_key

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
    Path("layers.0.et").write_text(f"DATA\n1\n{LAYER}")
    Path("key.3.et").write_text("a secret of some length")
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
        "anonymize w key --key key.3.et",
        "convert text -i layers.0.et -o layers --npus 4",
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


def test_files_of_a_study_stay(folder: Path) -> None:
    """Its points read them in other processes."""
    Path("system.json").write_text('{"collective-library": "costs.yml"}')
    Path("costs.yml").write_text("{}")
    merged = {"workload": {"files": "w"}, "system": {"file": "system.json"}}
    with inputs_kept():
        point_key(merged, needs_memory=False)
        assert all(map(is_input, ("w.3.et", "system.json", "costs.yml")))
        assert not is_input("run.json")


def test_threads_of_a_study_read_its_inputs(folder: Path) -> None:
    with inputs_kept():
        with runner(workers=2, threads=True) as run_in:
            assert len(list(run_in(read_raw, [{"path": "system.json"}, {"path": "network.yml"}]))) == 2
        assert is_input("system.json")
        assert is_input("network.yml")


def test_commands_in_threads_have_inputs_of_their_own(folder: Path) -> None:
    """Blocks that end in the order in which they began leave nothing behind."""
    begun, ended = threading.Event(), threading.Event()
    found: list[bool] = []

    def first() -> None:
        with inputs_kept():
            read_raw("system.json")
            begun.set()
            ended.wait(60)
            found.append(is_input("system.json"))
        found.append(is_input("system.json"))

    one = threading.Thread(target=first)
    one.start()
    assert begun.wait(60)
    with inputs_kept():
        read_raw("network.yml")
        found.append(is_input("system.json"))
        ended.set()
        one.join()
    assert found == [False, True, False]
    read_raw("network.yml")
    assert not is_input("network.yml")
