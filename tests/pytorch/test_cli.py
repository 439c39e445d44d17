"""The commands as a user types them: exit codes, one line for every mistake, nothing half-written."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from mini_job import MiniJob, collective, simple

from chakra.cli.commands.convert_pytorch import command as convert
from chakra.cli.commands.link import command as link
from chakra.errors import ChakraError, ConversionError, ThresholdError, UsageError

#: of 260 us: the second kernel runs for 90 us behind its operator, which ends at 140; 10 us of the host follow the wait
EXPLAINED = "explained: 92.31 % of the recorded span without fitted waits (replay error +0.00 %)"


def run(command: click.Command, *args: object) -> str:
    """Run a command in this process; library errors come through."""
    result = CliRunner().invoke(
        command, [str(a) for a in args], catch_exceptions=False, standalone_mode=False
    )
    if isinstance(result.exception, ChakraError):
        raise result.exception
    assert result.exception is None, result.exception
    return result.stdout


@pytest.fixture
def pair(job: MiniJob, tmp_path: Path) -> tuple[Path, Path]:
    """A pair with a wait at the end."""
    simple(job)
    job.op("sync", 160, 100)
    job.call("cudaDeviceSynchronize", 170, 80, 30)
    return job.write(tmp_path)


def test_link_takes_upstreams_option_names(pair: tuple[Path, Path], tmp_path: Path) -> None:
    """--chakra-host-trace, --chakra-device-trace, --output-file."""
    out = tmp_path / "linked.json"
    text = run(
        link,
        "--chakra-host-trace",
        pair[0],
        "--chakra-device-trace",
        pair[1],
        "--output-file",
        out,
        "--rank",
        3,
    )
    assert text.startswith("rank 3\n")
    assert "matched       3 of 3 operators (100.0 %) by record function id" in text
    assert "nodes" in json.loads(out.read_text())


def test_convert_ends_with_what_is_explained(pair: tuple[Path, Path], tmp_path: Path) -> None:
    """From the pair at once, and through the linked file; --simulate is upstream's name of --check."""
    direct = run(convert, "--host", pair[0], "--device", pair[1], "--output", tmp_path / "a.et", "--check")
    assert direct.splitlines()[-1] == EXPLAINED
    run(link, "--host", pair[0], "--device", pair[1], "--output", tmp_path / "l.json")
    via = run(convert, "--input", tmp_path / "l.json", "--output", tmp_path / "b.et", "--simulate")
    assert via.splitlines()[-1] == EXPLAINED


def test_json_summaries_are_documents(pair: tuple[Path, Path], tmp_path: Path) -> None:
    """Units in the names; the replay error as a number."""
    text = run(
        convert,
        "--host",
        pair[0],
        "--device",
        pair[1],
        "--output",
        tmp_path / "a",
        "--check",
        "--format",
        "json",
    )
    document = json.loads(text)
    assert document["output"].endswith("a.et")
    assert document["measured_span_ns"] == document["replayed_span_ns"] == 260_000
    assert document["replay_error_percent"] == 0


def test_a_relative_path_with_a_folder_works(
    pair: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Upstream joins such a path twice and dies in an assertion."""
    (tmp_path / "sub").mkdir()
    for path in pair:
        shutil.copy(path, tmp_path / "sub" / path.name)
    monkeypatch.chdir(tmp_path)
    run(link, "--host", f"sub/{pair[0].name}", "--device", f"sub/{pair[1].name}", "--output", "new/out.et")
    assert (tmp_path / "new" / "out.et").exists()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--output", "x.et"], "give one of --input"),
        (["--host", "h", "--output", "x.et"], "--host needs --device"),
        (["--dir", ".", "--rank", "1", "--output", "x"], "--rank goes with one rank"),
        (["--device", "d", "--job", "a", "--output", "x"], "--job goes with --dir"),
        (["--device", "d", "--window", "5", "5", "--output", "x"], "the end must lie behind"),
        (["--dir", "nowhere", "--output", "x"], "neither a folder nor"),
    ],
)
def test_wrong_usage_is_one_line(args: list[str], message: str) -> None:
    """Usage errors say what to give."""
    with pytest.raises(UsageError, match=message):
        run(convert, *args)


def test_outputs_never_overwrite_inputs(pair: tuple[Path, Path]) -> None:
    """The output of a slip of the keyboard."""
    before = pair[1].read_bytes()
    with pytest.raises(UsageError, match="would overwrite an input"):
        run(link, "--host", pair[0], "--device", pair[1], "--output", pair[1])
    assert pair[1].read_bytes() == before


def test_bad_inputs_leave_no_output(pair: tuple[Path, Path], tmp_path: Path) -> None:
    """Truncated, concatenated, swapped, empty, a linked file as host."""
    text = pair[1].read_text()
    cases = {"cut": text[:-60], "twice": text * 2, "empty": "", "host": pair[0].read_text()}
    for name, content in cases.items():
        path = tmp_path / f"{name}.json"
        path.write_text(content)
        out = tmp_path / "out" / f"{name}.et"
        with pytest.raises(ConversionError) as caught:
            run(convert, "--host", pair[0], "--device", path, "--output", out)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)
        assert not out.exists()
    run(link, "--host", pair[0], "--device", pair[1], "--output", tmp_path / "l.json")
    with pytest.raises(ConversionError, match="linked trace already; give it as --input"):
        run(convert, "--host", tmp_path / "l.json", "--device", pair[1], "--output", tmp_path / "y.et")


def _ranks(folder: Path, sizes: list[int], names: str = "job.rank{}") -> None:
    folder.mkdir(exist_ok=True)
    for rank, size in enumerate(sizes):
        job = MiniJob()
        job.header["distributedInfo"] = {"rank": rank, "world_size": len(sizes)}
        collective(job, "allreduce", 0, 1, elements=size)
        collective(job, "broadcast", 200 + 20 * rank, 2, elements=10)
        job.write(folder, names.format(rank))


def test_a_folder_of_ranks_is_converted(tmp_path: Path) -> None:
    """Names of both orders; every rank and the group file are written."""
    _ranks(tmp_path / "in", [100, 100], "job_rank{}")
    text = run(convert, "--dir", tmp_path / "in", "--output", tmp_path / "out", "--check", "--jobs", 1)
    assert text.splitlines()[-1].startswith("explained: ")
    assert "collectives and messages match across 2 ranks" in text
    assert sorted(p.name for p in tmp_path.glob("out*")) == ["out.0.et", "out.1.et", "out.comm_groups.json"]


def test_collectives_that_differ_across_ranks_are_named(tmp_path: Path) -> None:
    """A warning, and exit code 4 with --strict."""
    _ranks(tmp_path / "in", [100, 200])
    text = run(convert, "--dir", tmp_path / "in", "--output", tmp_path / "out", "--jobs", 1)
    assert "match across" not in text
    with pytest.raises(
        ThresholdError,
        match="ALL_REDUCE of 400 bytes on rank 0, ALL_REDUCE of 800 bytes on rank 1: comm_size",
    ):
        run(convert, "--dir", tmp_path / "in", "--output", tmp_path / "out", "--jobs", 1, "--strict")


def test_a_rank_without_partner_is_named(tmp_path: Path) -> None:
    """A missing file must not shift the pairs."""
    _ranks(tmp_path / "in", [100, 100])
    (tmp_path / "in" / "job.rank1.et.json").unlink()
    with pytest.raises(ConversionError, match="rank 1 has no host trace"):
        run(convert, "--dir", tmp_path / "in", "--output", tmp_path / "out", "--jobs", 1)


def test_shortest_durations_leave_waiting_out(tmp_path: Path) -> None:
    """--ranks shortest: every member's collective takes the shortest recorded time."""
    from chakra.et import read_trace

    folder = tmp_path / "in"
    _ranks(folder, [100, 100])
    path = folder / "job.rank1.kineto.json"
    document = json.loads(path.read_text())
    for event in document["traceEvents"]:
        if event["cat"] == "kernel":
            event["dur"] += 500
    path.write_text(json.dumps(document))
    run(convert, "--dir", folder, "--output", tmp_path / "out", "--ranks", "shortest", "--jobs", 1)
    for rank in (0, 1):
        trace = read_trace(tmp_path / f"out.{rank}.et")
        assert trace.duration_ns[trace.types == 7].tolist() == [50_000, 50_000]


@pytest.mark.slow
def test_processes_and_exit_codes(tmp_path: Path) -> None:
    """The real program: worker processes, exit codes 0, 2 and 4, no traceback."""
    _ranks(tmp_path / "in", [100, 200])
    base = [sys.executable, "-c", "from chakra.cli.main import entry; entry()"]
    common = [
        *base,
        "convert",
        "pytorch",
        "--dir",
        str(tmp_path / "in"),
        "--output",
        str(tmp_path / "out"),
        "--jobs",
        "2",
    ]
    environment = {**os.environ, "PYTHONWARNINGS": "default"}
    for extra, code in (([], 0), (["--strict"], 4), (["--job", "nothing"], 2)):
        done = subprocess.run(
            [*common, *extra], capture_output=True, text=True, env=environment, check=False, timeout=120
        )
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
