"""Beginnings of file names, as `chakra replay -w` and `chakra.capture` take them, given to every command."""

import json
import shutil
from pathlib import Path

import pytest
from scenes import prepare_with

from chakra.cli.main import run


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Traces `run.<rank>.et`, a workload `llm.workload.json`, a run `result.json`, recordings `recorded/job.rank0...`."""
    folder = tmp_path_factory.mktemp("inputs")
    prepare_with(folder, "replay aware", "generate transformer")
    return folder


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("run", "run.0.et and 3 more execution traces begin with this name"),
        ("llm", "the workload llm.workload.json begins with this name"),
    ],
)
def test_a_workload_in_the_place_of_something_else_is_named(
    name: str, said: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = (
        f"compare {name} result.json",
        f"compare result.json {name}",
        f"report {name}",
        f"timeline {name} x.json",
    )
    files = (
        f"jsonize {name} x.json", f"visualize {name} x.svg", f"calibrate {name}", f"convert pytorch --device {name} -o y",
        f"convert pytorch --input {name} -o y", f"link --device {name} -o y.json", f"check-config {name}",
    )  # fmt: skip
    for line in (*runs, *files):
        assert run(line.split()) == 2
        [error] = capsys.readouterr().err.splitlines()
        assert said in error, line
        replay = (
            f"a workload, not a run; replay it and give the result (chakra replay -w {name} ... --format json"
        )
        assert (replay in error) == (line in runs), line


@pytest.mark.parametrize("name", ["run", "llm"])
def test_commands_for_workloads_take_what_replay_takes(
    name: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [f"info {name}", f"anonymize {name} hidden", f"rescale {name} -o big --npus 32 --along pipeline"]
    for line in (*lines, f"replay -w {name} -s system.json -n network.yml"):
        assert run(line.split()) == 0, capsys.readouterr().err
    assert run(["rescale", "run.0.et", "-o", "big", "--npus", "32"]) == 2
    assert "the prefix of this file is run" in capsys.readouterr().err


#: commands that take one trace, and those that take a workload
_OF_A_TRACE = ("jsonize {} x.json", "visualize {} x.svg")
_OF_A_WORKLOAD = (
    "replay -w {} -s system.json -n network.yml",
    "rescale {} -o big --npus 32 --along pipeline",
    "timeline result.json line.json -w {}",
    "validate {}",
)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("llm", "its trace llm.class0.et"),
        ("llm.workload.json", "this is a workload manifest, not an execution trace; one of the traces"),
        ("kept", "the folder holds kept/llm.class0.et"),
        ("other.json", "this is a JSON file, not an execution trace"),
        ("none", "cannot be read: No such file"),
    ],
)
def test_commands_for_a_trace_say_what_to_give(
    name: str, said: str, kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for line in _OF_A_TRACE:
        if (name, line) == ("other.json", _OF_A_TRACE[0]):
            continue  # a document to turn back
        assert run(line.format(name).split()) == 2
        [error] = capsys.readouterr().err.splitlines()
        assert said in error, line


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("run.0.et", "the prefix of this file is run"),
        ("llm.class0.et", "the prefix of this file is llm"),
        ("kept", "the folder holds kept/llm: give that prefix"),
        ("other.json", "there is a file of this name, and the prefix of traces PREFIX.<rank>.et is needed"),
        ("none", ""),
    ],
)
def test_commands_for_a_workload_say_what_to_give(
    name: str, said: str, kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for line in _OF_A_WORKLOAD:
        if line.startswith("validate") and name.endswith((".et", ".json")):
            continue  # it takes a trace
        assert run(line.format(name).split()) == 2
        [error] = capsys.readouterr().err.splitlines()
        assert said in error, line


@pytest.fixture
def kept(here: Path) -> Path:
    """A folder of a workload, and a JSON file that is none."""
    (here / "kept").mkdir()
    for path in here.glob("llm.*"):
        shutil.copy(path, here / "kept")
    (here / "other.json").write_text('{"a": 1}')
    return here


def test_a_timeline_of_ranks_that_share_traces(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Arrows join the same slices as with a trace of each rank: peers are each rank's own, and groups told apart."""
    step = "generate transformer --model gpt2-small --layers 4 --dp 2 --pp 2 --micro-batches 2 -q"
    assert run(f"{step} --platform hgx-h100 -o shared".split()) == 0, capsys.readouterr().err
    assert run(f"{step} --platform hgx-h100 --files -o plain".split()) == 0, capsys.readouterr().err
    replay = "--platform hgx-h100 --format json --nodes -q -o"
    assert run(f"replay -w shared {replay} shared.run".split()) == 0, capsys.readouterr().err
    assert run(f"replay -w plain -g plain.comm_groups.json {replay} plain.run".split()) == 0
    drawn = {}
    for name in ("shared", "shared.workload.json", "plain"):
        source = f"{name.partition('.')[0]}.run"
        assert run(["timeline", source, "line.json", "-w", name]) == 0, capsys.readouterr().err
        events = json.loads((here / "line.json").read_text())["traceEvents"]
        arrows = [event for event in events if event["ph"] in "sf"]
        drawn[name] = sorted((arrow["ph"], arrow["pid"], arrow["tid"], arrow["ts"]) for arrow in arrows)
    assert drawn["shared"] == drawn["shared.workload.json"] == drawn["plain"]
    # 8 messages (2 micro-batches, there and back, of 2 pipelines); the others join the ranks of collectives
    assert len(drawn["plain"]) == 2 * 22


def test_commands_for_recordings_take_what_capture_takes(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder, FOLDER/JOB where it holds several jobs, or the one job's prefix."""
    for kind in ("host", "kineto"):
        shutil.copy(here / f"recorded/job.rank0.{kind}.json", here / f"recorded/other.rank0.{kind}.json")
    for name, code in (("recorded", 2), ("recorded/job", 0), ("recorded/other", 0), ("recorded/none", 2)):
        for line in (
            f"convert pytorch --dir {name} -o out -j 1", f"compare {name} {name}", f"timeline {name} line.json",
            f"anonymize {name} hidden",
        ):  # fmt: skip
            assert run(line.split()) == code, (line, capsys.readouterr().err)
            error = capsys.readouterr().err
            if name == "recorded":
                assert "choose one job with --job (jobs there: job, other)" in error
        assert run(["calibrate", name]) == 2
        error = capsys.readouterr().err
        assert ("no collective that can be measured" in error) == (code == 0)
    assert run(["convert", "pytorch", "--dir", "recorded/none", "-o", "out"]) == 2
    assert "neither a folder nor the beginning of the names of a job's traces" in capsys.readouterr().err
    before = (here / "recorded/job.rank0.kineto.json").read_bytes()
    assert run(["compare", "recorded/job", "recorded/job", "-o", "recorded/job.rank0.kineto.json"]) == 2
    assert run(["timeline", "recorded/job", "recorded/job.rank0.kineto.json"]) == 2
    assert (here / "recorded/job.rank0.kineto.json").read_bytes() == before


def test_results_beside_recordings_are_no_recordings(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A replay's result with nodes, a jsonized trace and a manifest have `nodes`, too."""
    assert run(["jsonize", "run.0.et", "recorded/run.json"]) == 0
    for name in ("result.json", "llm.workload.json"):
        shutil.copy(here / name, here / "recorded" / name)
    assert run(["convert", "pytorch", "--dir", "recorded", "-o", "out", "-j", "1"]) == 0, (
        capsys.readouterr().err
    )
    assert run(["report", "recorded"]) == 2
    assert "recorded: is a folder; a report is made from what" in capsys.readouterr().err
