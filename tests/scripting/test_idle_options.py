"""Options that cancel or ignore each other are refused in one line, before anything is written."""

import json
import shutil
from pathlib import Path

import pytest
from scenes import prepare_with

from chakra.cli.main import run

PAIR = "--host recorded/job.rank0.host.json --device recorded/job.rank0.kineto.json"
ALONE = "--device recorded/job.rank0.kineto.json"
HOST_PART = "is about the host's part, which --gpu-only leaves out"
STEPS = "auto compares steps with and without profiler"


def _both(options: str, said: str) -> list[tuple[str, str]]:
    """For one rank and for a folder."""
    return [
        (f"convert pytorch {PAIR} -o out/x.et {options}", said),
        (f"convert pytorch --dir recorded -o out/x -j 1 {options}", said),
    ]


CASES = [
    *_both("--gpu-only --deprofile 5", "--deprofile takes time off the host's part, which --gpu-only leaves out"),
    *_both("--gpu-only --deprofile auto", "--deprofile takes time off the host's part, which --gpu-only leaves out"),
    *_both("--gpu-only --gaps fold", f"--gaps fold {HOST_PART}"),
    *_both("--gpu-only --cpu-comm comp", f"--cpu-comm comp {HOST_PART}"),
    *_both("--deprofile auto --gaps drop", STEPS),
    *_both("--deprofile auto --deps tensors", STEPS),
    (f"convert pytorch {PAIR} -o out/x.et --jobs 3", "--jobs goes with --dir"),
    (f"convert pytorch {PAIR} -o out/x.et --job a", "--job goes with --dir"),
    (f"convert pytorch {PAIR} -o out/x.et --ranks shortest", "--ranks goes with --dir"),
    ("convert pytorch --dir recorded -o out/x --rank 0", "--rank goes with one rank's files"),
    (f"convert pytorch {ALONE} -o out/x.et --add-unmatched", "--add-unmatched needs the host trace"),
    (f"convert pytorch {ALONE} -o out/x.et --deps tensors", "--deps tensors needs the host trace"),
    (f"convert pytorch {ALONE} -o out/x.et --min-matched 1", "--min-matched needs a host trace"),
    (f"link {ALONE} -o out/x.json --add-unmatched", "--add-unmatched needs the host trace"),
    (f"link {ALONE} -o out/x.json --deps tensors", "--deps tensors needs the host trace"),
    (f"link {ALONE} -o out/x.json --min-matched 1", "--min-matched needs a host trace"),
    ("rescale llm -o out/x --npus 8 -g groups.json", "holds its own groups"),
    ("compare recorded/job.rank0.kineto.json result.json --job a -o out/x.json", "--job goes with a folder"),
    ("compare result.json result.json --step 1 -o out/x.json", "--step goes with recordings"),
    ("calibrate sweep.log -o out/x.yml --job a", "--job goes with a folder"),
    *((f"calibrate sweep.log -o out/x.yml {option}", f"{option.split()[0]} goes with --library")
      for option in ("--nic-gbps 50", "--nics 4", "--node-ranks 4", "--network-us 35")),
    *((f"calibrate sweep.log --library hgx-h100 -o out/x.yml {option}", f"{option.split()[0]} is for a network dimension")
      for option in ("--system out/s.json", "--topology Ring", "--algorithm direct1", "--splits 2", "--local-mem-bw 9",
                     "--endpoint-delay 5")),
    *((f"calibrate sweep.log --library hgx-h100 -o out/x.yml {option}", f"{option.split()[0]} needs the rate")
      for option in ("--nics 4", "--network-us 35")),
    *((f"timeline recorded/job.rank0.kineto.json out/x.json {option}", f"{option.split()[0]} is for a")
      for option in ("--num_npus 4", "--npu_frequency 5", "--workload run")),
    *((f"timeline result.json out/x.json {option}", f"{option.split()[0]} is for a log")
      for option in ("--num_npus 4", "--npu_frequency 5")),
]  # fmt: skip


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Inputs, and those that other commands make of them."""
    folder = tmp_path_factory.mktemp("inputs")
    prepare_with(folder, "replay aware", "generate transformer")
    (folder / "groups.json").write_text(json.dumps({"1": [0, 1, 2, 3]}))
    return folder


@pytest.mark.parametrize(("line", "said"), CASES, ids=[line for line, _ in CASES])
def test_options_without_effect_are_refused(
    line: str, said: str, inputs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(inputs)
    assert run(line.split()) == 2
    [error] = capsys.readouterr().err.splitlines()
    assert said in error
    assert not (inputs / "out").exists()


def test_defaults_may_be_written_out(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Scripts that spell everything are no error where nothing is ignored."""
    monkeypatch.chdir(inputs)
    line = f"convert pytorch {ALONE} -o {tmp_path}/x.et --gpu-only --gaps node --cpu-comm comm --ranks own --jobs 0"
    assert run([*line.split(), "--min-matched", "0.9"]) == 0
    line = "calibrate sweep.log --library hgx-h100 --topology Switch --splits 1 --algorithm ring"
    assert run(line.split()) == 0
    capsys.readouterr()


def test_a_pattern_for_the_optimizer_of_no_shards_is_said_to_do_nothing(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(inputs)
    line = ["rescale", "run", "-o", str(tmp_path / "x"), "--npus", "8", "--along", "pipeline"]
    said = "note: no weights are sharded over the ranks, so the pattern for the optimizer changes nothing"
    assert run(line) == 0
    assert said not in capsys.readouterr().out
    assert run([*line, "--optimizer", "step"]) == 0
    assert said in capsys.readouterr().out


def test_a_comparison_can_be_written_and_printed(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """--format is what is printed, whatever --output is."""
    monkeypatch.chdir(inputs)
    device = "recorded/job.rank0.kineto.json"
    page = tmp_path / "x.html"
    assert run(["compare", device, device, "-o", str(page), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "chakra.compare/1"
    assert page.read_text().startswith("<!")
    shutil.copy(device, tmp_path / "a.json")
    assert run(["compare", device, device, "-o", str(page)]) == 0
    assert capsys.readouterr().out == ""
