"""Recordings that end too early, in their first bytes also: file and place are said by every command that reads them."""

import gzip
import json
import re
from pathlib import Path

import pytest
from mini_job import MiniJob, simple

from chakra.cli.main import run as chakra
from chakra.io.readable import counted

DEVICE, HOST = "rec/job.rank0.kineto.json", "rec/job.rank0.et.json"
COMMANDS = {
    DEVICE: [
        f"convert pytorch --host {HOST} --device {DEVICE} -o x.et",
        f"convert pytorch --device {DEVICE} -o x.et",
        f"convert pytorch --input {DEVICE} -o x.et",
        "convert pytorch --dir rec -o x -j 1",
        f"link --host {HOST} --device {DEVICE} -o x.json",
        f"timeline {DEVICE} x.json",
        f"anonymize {DEVICE} x.json",
        "anonymize rec out",
        f"compare {DEVICE} rec/job.rank1.kineto.json",
        "compare rec rec",
        f"report {DEVICE}",
        f"info {DEVICE}",
        f"visualize {DEVICE} x.svg",
        "calibrate rec",
        f"calibrate {DEVICE} rec/job.rank1.kineto.json",
    ],
    HOST: [
        f"convert pytorch --host {HOST} --device {DEVICE} -o x.et",
        f"convert pytorch --input {HOST} -o x.et",
        "convert pytorch --dir rec -o x -j 1",
        f"link --host {HOST} --device {DEVICE} -o x.json",
        f"anonymize {HOST} x.json",
        "anonymize rec out",
        f"info {HOST}",
        "calibrate rec",
    ],
}
#: commands that never take such a file and say what it is
OTHERS = ("report", "info", "visualize")


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two ranks, and the folder with them as the working folder."""
    (tmp_path / "rec").mkdir()
    for rank in (0, 1):
        job = MiniJob()
        simple(job)
        host, device = job.write(tmp_path)
        host.rename(tmp_path / f"rec/job.rank{rank}.et.json")
        device.rename(tmp_path / f"rec/job.rank{rank}.kineto.json")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("kept", [0, 1, 5, 20, "gzip 5", "gzip 30"])
@pytest.mark.parametrize(
    ("name", "line"), [(name, line) for name, lines in COMMANDS.items() for line in lines]
)
def test_a_file_cut_in_its_first_bytes_is_said_to_be(
    kept: int | str, name: str, line: str, recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = json.dumps(json.loads((recorded / name).read_bytes())).encode()
    size = int(str(kept).removeprefix("gzip "))
    (recorded / name).write_bytes((gzip.compress(whole) if "gzip" in str(kept) else whole)[:size])
    assert chakra(line.split()) == 2
    [error] = capsys.readouterr().err.splitlines()
    said = f"error: {name}: " if not line.startswith("validate") else name
    assert said in error
    place = "after 0 uncompressed bytes" if "gzip" in str(kept) else f"after {counted(size, 'byte')}"
    known = line.split()[0] in OTHERS and re.search("this is a Kineto trace|host trace", error)
    assert (place if size else "empty") in error or known
    assert not [path for path in recorded.iterdir() if path.name != "rec"]


@pytest.mark.parametrize(
    ("name", "line"), [(name, line) for name, lines in COMMANDS.items() for line in lines]
)
def test_a_file_cut_in_the_middle_is_said_to_be(
    name: str, line: str, recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = (recorded / name).read_bytes()
    (recorded / name).write_bytes(whole[: len(whole) * 2 // 3])
    assert chakra(line.split()) == 2
    [error] = capsys.readouterr().err.splitlines()
    assert f"error: {name}: " in error
    other_kind = line.split()[0] in OTHERS or "--input" in line
    assert "broken after byte" in error or "byte" in error or other_kind
    assert not [path for path in recorded.iterdir() if path.name != "rec"]


def test_other_files_in_the_folder_stay_unread(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Facts, groups and notes are no recordings, whatever they hold, as long as they are whole."""
    (recorded / "rec" / "job.comm_groups.json").write_text("{}")
    (recorded / "rec" / "notes.txt").write_text("")
    (recorded / "rec" / "job.0.et").write_bytes(b"\x02\x0a\x00")
    (recorded / "rec" / "list.json").write_text('["a", {"b": "}"}]')
    assert chakra(["convert", "pytorch", "--dir", "rec", "-o", "x", "-j", "1"]) == 0
    (recorded / "rec" / "list.json").write_text('["a", {"b": "}"}')
    capsys.readouterr()
    assert chakra(["convert", "pytorch", "--dir", "rec", "-o", "y", "-j", "1"]) == 2
    assert "rec/list.json: cut off after 16 bytes" in capsys.readouterr().err
