"""Jobs of which something is missing: ranks, members of groups, a place to write to. Said, and nothing half-written."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from mini_job import MiniJob, collective

from chakra.cli.main import run as chakra
from chakra.converters.pytorch.folder import find_inputs
from chakra.converters.pytorch.job import Inputs, Settings, convert_rank
from chakra.converters.pytorch.ranks import JobResult, convert_job
from chakra.errors import ConversionError, ThresholdError, WorkloadError
from chakra.et import read_trace
from chakra.rescale import read_workload


def job_of(folder: Path, ranks: int, *, groups: list[str] | None = None, info: Any = None) -> Path:
    """Recordings of ranks that all-reduce in a group, in two profiler steps."""
    folder.mkdir()
    for rank in range(ranks):
        job = MiniJob()
        job.header["distributedInfo"] = {"rank": rank, "world_size": ranks, **(info or {})}
        for step in (0, 1):
            job.op(f"ProfilerStep#{step}", 1000 * step, 900, annotation=True)
            group = groups[rank] if groups else "0"
            collective(job, "allreduce", 1000 * step + 100, 1 + step, elements=100, group=group)
        job.write(folder, f"job.rank{rank}")
    return folder


def converted(folder: Path, **settings: Any) -> JobResult:
    return convert_job(find_inputs(folder), folder.parent / "out", Settings(**settings), jobs=1)


def without(folder: Path, rank: int) -> Path:
    for path in folder.glob(f"job.rank{rank}.*"):
        path.unlink()
    return folder


def test_ranks_without_a_recording_are_named(tmp_path: Path) -> None:
    """By the recorded size of the job; an error with --strict; and more ranks cannot be made of them."""
    assert converted(job_of(tmp_path / "whole", 4)).missing_ranks == []
    folder = without(job_of(tmp_path / "in", 4), 2)
    result = converted(folder)
    assert result.missing_ranks == [2]
    assert "has 4 ranks, of which 1 have no trace here: 2;" in result.warnings[0]
    # ranks 0 and 1 alone could be repeated, ranks 0, 1 and 3 cannot
    assert "those of the first 2 ranks alone (--replicate on a machine" in result.warnings[0]
    with pytest.raises(ThresholdError, match="--strict: the recorded job has 4 ranks"):
        converted(folder, strict=True)
    (tmp_path / "out.2.et").unlink()  # of the whole job
    with pytest.raises(WorkloadError, match="no trace of 1 of the job's 4 ranks: 2"):
        read_workload(tmp_path / "out")


def test_the_advice_for_missing_ranks_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The traces of ranks 0 and 1 of four, as the warning says, on a machine of four; without rank 0 nothing helps."""
    folder = without(without(job_of(tmp_path / "in", 4), 2), 3)
    result = converted(folder)
    assert "(--replicate on a machine of all ranks repeats them)" in result.warnings[0]
    network = tmp_path / "network.yml"
    network.write_text("topology: [Ring]\nnpus_count: [4]\nbandwidth: [50.0]\nlatency: [500.0]\n")
    (tmp_path / "system.json").write_text('{"all-reduce-implementation": ["ring"]}')
    command = ["replay", "-w", str(tmp_path / "out"), "-s", str(tmp_path / "system.json"), "-n", str(network)]
    assert chakra([*command, "-g", result.groups_path, "--replicate"]) == 0, capsys.readouterr().err
    said, left = sorted(converted(without(job_of(tmp_path / "other", 4), 0)).warnings, key=len, reverse=True)
    assert "needs a trace of each rank, or those of the first ones alone" in said
    assert "out.0.et" in left  # of the conversion before


def test_two_files_of_one_rank_of_one_job(tmp_path: Path) -> None:
    """The same trace packed and not: there is no other job to choose."""
    folder = job_of(tmp_path / "in", 1)
    [device] = folder.glob("*.kineto.json")
    (folder / f"{device.name}.gz").write_bytes(gzip.compress(device.read_bytes()))
    with pytest.raises(ConversionError, match=r"are both rank 0; both of job job: remove one of them"):
        find_inputs(folder)


def test_files_of_two_ranks_and_a_rank_that_is_not_recorded_are_warned_of(tmp_path: Path) -> None:
    """Host and device trace state their processes, and the device trace its rank."""
    folder = job_of(tmp_path / "in", 2)
    hosts, devices = (
        [folder / f"job.rank{rank}.{kind}.json" for rank in (0, 1)] for kind in ("et", "kineto")
    )
    own = json.loads(hosts[0].read_text())
    hosts[0].write_text(json.dumps({**own, "pid": 999}))
    other = convert_rank(Inputs(hosts[0], devices[0]), tmp_path / "a.et", Settings()).summary["warnings"]
    assert [text for text in other if "is of process 999" in text and "another rank, or another run" in text]
    given = convert_rank(Inputs(hosts[1], devices[1], rank=0), tmp_path / "b.et", Settings()).summary
    assert f"{devices[1]}: recorded as rank 1, converted as rank 0, as it was given" in given["warnings"]
    right = convert_rank(Inputs(hosts[1], devices[1], rank=1), tmp_path / "c.et", Settings()).summary
    assert not [text for text in right["warnings"] if "process" in text or "recorded as" in text]


@pytest.mark.parametrize(("recorded", "npus"), [(1, 1), (2, 1), (2, 2)])
def test_a_replay_of_a_part_says_so(
    recorded: int, npus: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The all-reduce of a rank alone takes no time; and both steps are counted."""
    folder = job_of(tmp_path / "in", recorded)
    for rank in range(npus, recorded):
        without(folder, rank)
    result = converted(folder)
    assert [str(path.name) for path in sorted(tmp_path.glob("out.*.et"))] == [
        f"out.{r}.et" for r in range(npus)
    ]
    command = ["replay", "-w", str(tmp_path / "out"), "-g", result.groups_path, "--platform", "hgx-h100"]
    assert chakra([*command, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    said = f"the recorded job had {recorded} ranks, this replay has {npus}"
    assert [said in note for note in document["notes"]].count(True) == (npus < recorded)
    step = max(document["finish_ns"]) / 2e6
    assert f"the recording holds 2 profiler steps: one takes {step:,.3f} ms on average" in document["notes"]


def test_one_step_is_the_step(tmp_path: Path) -> None:
    """--step and --window count the steps that are left as a whole."""
    folder = job_of(tmp_path / "in", 1)
    for options, steps in (
        ([], 2),
        (["--step", "1"], 1),
        (["--window", "0", "1.5"], 1),
        (["--window", "0.05", "0.5"], 0),
    ):
        assert (
            chakra(
                ["convert", "pytorch", "--dir", str(folder), "-o", str(tmp_path / "o"), "-j", "1", *options]
            )
            == 0
        )
        metadata = read_trace(tmp_path / "o.0.et").metadata.attr
        assert sum(a.int64_val for a in metadata if a.name == "recorded_steps") == steps


@pytest.mark.parametrize(
    ("names", "groups"),
    [
        (["all"] * 2, {"1": [0, 1]}),  # as large as the job
        (["a", "a", "b", "b"], {"1": [0, 1], "2": [2, 3]}),
        (["7", "3", "3", "7"], {"3": [1, 2], "7": [0, 3]}),
        (['a\n"<b>', 'a\n"<b>', "x", "x"], {"1": [0, 1], "2": [2, 3]}),
    ],
)
def test_members_are_the_ranks_that_use_a_group(
    names: list[str], groups: dict[str, list[int]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Recordings that do not list members say how many they are: the job replays."""
    result = converted(job_of(tmp_path / "in", len(names), groups=names))
    assert result.groups == groups
    assert result.warnings == []
    command = ["replay", "-w", str(tmp_path / "out"), "-g", result.groups_path, "--platform", "hgx-h100"]
    assert chakra(command) == 0
    capsys.readouterr()


def test_groups_whose_members_nobody_knows_are_named(tmp_path: Path) -> None:
    """Three ranks in a group of two."""
    result = converted(job_of(tmp_path / "in", 4, groups=["a", "a", "a", "b"]))
    assert result.groups == {}
    assert (
        "group 'a' of 2 ranks: no recording lists its members, and it is used by ranks 0, 1, 2;"
        in result.warnings[0]
    )
    assert (
        "group 'b' of 2 ranks: no recording lists its members, and it is used by rank 3;"
        in result.warnings[1]
    )


@pytest.mark.parametrize("ranks", [[0, 0], [-1, 1], [0, "x"]])
def test_members_that_cannot_be_are_not_used(ranks: list[Any], tmp_path: Path) -> None:
    """They would make a group file that no replay takes."""
    config = [{"pg_name": "7", "pg_size": 2, "ranks": ranks}]
    result = converted(job_of(tmp_path / "in", 2, groups=["7", "7"], info={"pg_config": config}))
    assert result.groups == {"7": [0, 1]}
    [warning] = result.outcomes[0].summary["warnings"]
    assert "process group '7' has members that cannot be" in warning


@pytest.mark.parametrize("form", [(), ("--format", "json")])
def test_a_warning_of_several_ranks_is_told_once(
    form: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `chakra validate` does; the JSON document has those of each rank."""
    config = [{"pg_name": "7", "pg_size": 3, "ranks": [0, 0, 1]}]
    folder = job_of(tmp_path / "in", 3, groups=["7", "7", "7"], info={"pg_config": config})
    assert chakra(["convert", "pytorch", "--dir", str(folder), "-o", str(tmp_path / "out"), *form]) == 0
    out, err = capsys.readouterr()
    warnings = [line for line in err.splitlines() if "members that cannot be" in line]
    assert len(warnings) == 1
    assert " (and alike of ranks 0-2): process group '7' has members that cannot be" in warnings[0]
    if form:
        assert [len(rank["warnings"]) for rank in json.loads(out)["ranks"]] == [1, 1, 1]


@pytest.mark.parametrize("name", ["out.0.et", "out.1.et", "out.comm_groups.json"])
def test_all_files_of_a_job_are_written_or_none(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder stands where one of them belongs."""
    folder = job_of(tmp_path / "in", 2)
    (tmp_path / name).mkdir()
    assert chakra(["convert", "pytorch", "--dir", str(folder), "-o", str(tmp_path / "out"), "-j", "1"]) == 2
    assert f"{name}: cannot be written: it is a folder" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir() if path != folder] == [name]


def test_a_job_is_not_written_over_its_recordings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Host traces may be called .et, too."""
    folder = job_of(tmp_path / "in", 2)
    for rank in (0, 1):
        (folder / f"job.rank{rank}.et.json").rename(folder / f"rank.{rank}.et")
    before = (folder / "rank.1.et").read_bytes()
    base = ["convert", "pytorch", "--dir", str(folder), "-j", "1", "-o"]
    assert chakra([*base, str(folder / "rank")]) == 2
    assert "rank.0.et: would overwrite an input" in capsys.readouterr().err
    assert (folder / "rank.1.et").read_bytes() == before
    assert chakra([*base, str(tmp_path / "out")]) == 0
    assert "matched       6 of 6 operators" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-o", ""], "--output: an empty value"),
        (["-o", "/"], "--output: / names a folder"),
        (["-o", "x", "--window", "nan", "5"], "'--window': 'nan' is not a number"),
        (["-o", "x", "--window", "0", "inf"], "'--window': 'inf' is not a number"),
    ],
)
def test_a_slip_is_one_line(
    options: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = job_of(tmp_path / "in", 1)
    assert chakra(["convert", "pytorch", "--dir", str(folder), "-j", "1", *options]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("output", "said"), [("", "an empty value"), ("/", "/ names a folder"), (".", "is a folder")]
)
def test_one_rank_needs_the_name_of_a_file(
    output: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    device = job_of(tmp_path / "in", 1) / "job.rank0.kineto.json"
    assert chakra(["convert", "pytorch", "--device", str(device), "-o", output]) == 2
    assert said in capsys.readouterr().err
