"""Failing surroundings: whatever ends a command, old files stay whole and no part of a file stands under its name."""

import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chakra.errors import UsageError
from chakra.et import read_trace
from chakra.io import files, leftovers

TRACES = Path(__file__).resolve().parents[2] / "traces" / "allreduce_ring8"
MACHINE = ("-w", TRACES / "workload", "-s", TRACES / "system.json", "-n", TRACES / "network.yml")
TEXT = "DATA\n1\nl -1 1 NONE 0 1 NONE 0 1 ALLREDUCE 10 1\n"
STUDY = (
    "study: s\nworkload: {kind: mlp, npus: 8}\nplatform: hgx-h100\n"
    "parameters: {workload.micro-batch: [1, 2, 3, 4, 5, 6, 7, 8]}\n"
)
CHAKRA = (sys.executable, "-c", "from chakra.cli.main import entry; entry()")

#: commands that write, each with the files that it writes
WRITERS: dict[str, tuple[tuple[object, ...], tuple[str, ...]]] = {
    "jsonize": (("jsonize", TRACES / "workload.0.et", "out.json"), ("out.json",)),
    "anonymize": (("anonymize", TRACES / "workload.0.et", "out.et"), ("out.et",)),
    "anonymize-job": (("anonymize", TRACES / "workload", "out"), ("out.0.et", "out.7.et")),
    "visualize": (("visualize", TRACES / "workload.0.et", "out.svg"), ("out.svg",)),
    "collective": (
        ("generate", "collective", "--npus", 4, "--size", "1MiB", "-o", "out"),
        ("out.0.et", "out.3.et"),
    ),
    "mlp": (("generate", "mlp", "--npus", 8, "-o", "out"), ("out.workload.json", "out.class0.et")),
    "text": (("convert", "text", "-i", "in.txt", "--npus", 4, "-o", "out"), ("out.0.et",)),
    "replay": (("replay", *MACHINE, "--format", "json", "--nodes", "-o", "out.json"), ("out.json",)),
    "topology": (("topology", "torus", "--shape", "4x4", "-o", "out.yml"), ("out.yml",)),
    "platform": (("platform", "write", "hgx-h100", "-o", "out"), ("out.network.yml", "out.system.json")),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_leaves_the_old_files(name: str, fence: Callable[..., Any], tmp_path: Path) -> None:
    """No file may grow beyond 16 bytes: every write fails as on a full disk."""
    args, targets = WRITERS[name]
    (tmp_path / "in.txt").write_text(TEXT)
    for target in targets:
        (tmp_path / target).write_text("old")
    before = sorted(path.name for path in tmp_path.iterdir())
    ended = fence(*args, files=16)
    assert ended.code == 2, ended
    assert len(ended.err.splitlines()) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert {(tmp_path / target).read_text() for target in targets} == {"old"}


@pytest.mark.parametrize(
    ("name", "told"), [("anonymize", "out.et"), ("anonymize-job", "out.0.et"), ("text", "out")]
)
def test_a_full_disk_is_told_with_the_file_that_was_asked_for(name: str, told: str, tmp_path: Path) -> None:
    """And not with one of those under whose names files wait for each other."""
    (tmp_path / "in.txt").write_text(TEXT)
    limited = (
        "import resource, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (16, 16))\nfrom chakra.cli.main import entry\nentry()"
    )
    ended = subprocess.run(
        [sys.executable, "-B", "-c", limited, *map(str, WRITERS[name][0])],
        cwd=tmp_path,
        # whose own files would be too large
        env={key: value for key, value in os.environ.items() if not key.startswith("COVERAGE")},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    why = f"chakra: error: {told}: cannot be written: {os.strerror(errno.EFBIG)}\n"
    assert (ended.returncode, ended.stderr) == (2, why)


@pytest.mark.parametrize("name", WRITERS)
def test_a_folder_that_takes_no_files(name: str, fence: Callable[..., Any]) -> None:
    """/proc takes no files, even from root, whom permission bits do not stop."""
    args, _ = WRITERS[name]
    args = tuple(f"/proc/{arg}" if str(arg).startswith("out") else arg for arg in args)
    args = tuple("/dev/null" if arg == "in.txt" else arg for arg in args) if name != "text" else args
    if name == "text":
        pytest.skip("reads its input from the working folder; covered by the full disk")
    ended = fence(*args)
    assert (ended.code, len(ended.err.splitlines())) == (2, 1), ended
    assert "cannot be written" in ended.err or "cannot write" in ended.err


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_killed_while_it_writes(number: signal.Signals, tmp_path: Path) -> None:
    """Ends at random moments: what stands under a final name is whole, what else is left is recognisable."""
    chance = random.Random(int(number))
    for _ in range(6):
        with subprocess.Popen(
            [*CHAKRA, "generate", "collective", "--npus", "3000", "--size", "1MiB", "-o", "out"],
            cwd=tmp_path,
            stderr=subprocess.PIPE,
        ) as process:
            time.sleep(0.3 + chance.random() * 0.5)
            process.send_signal(number)
            process.wait(20)
    for path in tmp_path.iterdir():
        if path.name.endswith(leftovers.SUFFIX):
            assert path.name.startswith(".")
            os.utime(path, (1, 1))
        else:
            assert read_trace(path).n_nodes == 1
    leftovers._seen.clear()
    files.PathLike  # noqa: B018 - the module is what removes them
    with files.atomic_text(tmp_path / "next") as file:
        file.write("x")
    assert not list(tmp_path.glob(f".*{leftovers.SUFFIX}"))


def test_a_living_writer_keeps_its_temporary_file(tmp_path: Path) -> None:
    with files.atomic_text(tmp_path / "a") as first:
        (temporary,) = tmp_path.iterdir()
        os.utime(temporary, (1, 1))
        leftovers._seen.clear()
        with files.atomic_text(tmp_path / "b") as second:
            second.write("b")
        assert temporary.exists()
        first.write("a")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_two_writers_of_one_target(tmp_path: Path) -> None:
    """The last one wins, whole."""
    with files.atomic_text(tmp_path / "a") as first, files.atomic_text(tmp_path / "a") as second:
        first.write("1" * 100_000)
        second.write("2" * 100_000)
    assert (tmp_path / "a").read_text() in ("1" * 100_000, "2" * 100_000)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_name_that_is_no_name(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    for name in ("a\0b", "n" * 300, "loop"):
        with pytest.raises(UsageError, match="cannot be written"), files.atomic_text(tmp_path / name):
            pass


def test_interrupted_exit_code(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*CHAKRA, "generate", "collective", "--npus", "100000", "--size", "1MiB", "-o", "out"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        while not list(tmp_path.glob("*.et")):
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=20)
    assert (process.returncode, error) == (130, "chakra: interrupted\n")
    assert not list(tmp_path.glob(f".*{leftovers.SUFFIX}"))


def test_a_reader_that_goes_away() -> None:
    with subprocess.Popen(
        [*CHAKRA, "replay", *map(str, MACHINE), "--format", "json", "--nodes"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        error = process.stderr.read()
        process.wait(20)
    assert (process.returncode, error) == (141, b"")


@pytest.mark.parametrize(
    "environment",
    [
        {"TMPDIR": "/nonexistent"},
        {"HOME": "/nonexistent"},
        {"HOME": "/proc", "XDG_CACHE_HOME": "/proc"},
        {"LC_ALL": "C", "LANG": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        {"PYTHONIOENCODING": "ascii"},
        {"PYTHONIOENCODING": "utf-16"},
        {"TERM": "dumb", "COLUMNS": "1"},
    ],
)
def test_odd_surroundings(environment: dict[str, str], tmp_path: Path) -> None:
    ended = subprocess.run(
        [*CHAKRA, "replay", *map(str, MACHINE), "--format", "json", "-o", "out.json"],
        cwd=tmp_path,
        env={**os.environ, **environment},
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))["npus"] == 8


def test_a_working_folder_that_is_gone(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    script = f'mkdir {gone}; cd {gone}; rmdir {gone}; exec "$@"'
    run = [*CHAKRA, "replay", *map(str, MACHINE), "--format", "json"]
    ended = subprocess.run(
        ["sh", "-c", script, "sh", *run, "-o", str(tmp_path / "out.json")],
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stderr
    ended = subprocess.run(
        ["sh", "-c", script, "sh", *run, "-o", "out.json"], capture_output=True, check=False, timeout=60
    )
    assert ended.returncode == 2, ended.stderr
    assert len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams(closed: str, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    run = [*CHAKRA, "replay", *map(str, MACHINE), "--format", "json", "-o", str(out)]
    ended = subprocess.run(
        ["sh", "-c", f'"$@" {closed}', "sh", *run], capture_output=True, check=False, timeout=60
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(out.read_text())["npus"] == 8


def _children(parent: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == parent:
                found.append(int(entry.name))
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to see other processes")
def test_a_killed_sweep_leaves_no_workers_and_resumes(tmp_path: Path) -> None:
    """kill -9 in the middle; workers end by themselves, and the next run gives what an unbroken one gives."""
    (tmp_path / "s.yml").write_text(STUDY)
    run = [*CHAKRA, "sweep", "s.yml", "--workers", "2", "--format", "json", "--no-report", "-o"]
    with subprocess.Popen(
        [*run, "a"], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        limit = time.monotonic() + 40
        while not list((tmp_path / "a" / "points").glob("*.json")) and process.poll() is None:
            assert time.monotonic() < limit
            time.sleep(0.01)
        workers = _children(process.pid)
        process.kill()
    limit = time.monotonic() + 15
    while any(Path(f"/proc/{pid}/exe").exists() and os.path.exists(f"/proc/{pid}/fd/0") for pid in workers):
        assert time.monotonic() < limit, workers
        time.sleep(0.05)
    results = []
    for folder in ("a", "b"):
        ended = subprocess.run([*run, folder], cwd=tmp_path, capture_output=True, check=False, timeout=60)
        assert ended.returncode == 0, ended.stderr
        document = json.loads(ended.stdout)
        document["counts"].pop("cached")
        for entry in (*document["points"], *document["ranked"], *document["pareto"]):
            del entry["key"]  # it holds the program's hash, which an edit of the sources changes
        results.append(document)
    assert results[0] == results[1]
