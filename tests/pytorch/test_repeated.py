"""Ids that a profiler gives once are named where a recording has them twice, by every command that goes by them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mini_job import MiniJob

from chakra.cli.main import run as chakra
from chakra.converters.pytorch.read.device import read_device_trace
from chakra.converters.pytorch.read.repeated import repeated_ids

ENDS = "are events there twice, or recordings joined? Each counts"


def sound() -> MiniJob:
    """Operators with a launch and a kernel each, a driver's call inside a launch, and a graph of three kernels."""
    job = MiniJob()
    for k in range(4):
        job.op(f"op{k}", 100 * k, 80)
        job.call("cudaLaunchKernel", 100 * k + 10, 20, 11 + k)
        job.kernel(f"kernel{k}", 100 * k + 37, 30, 11 + k)
    job.call("cuLaunchKernel", 15, 5, 11)
    job.op("graph", 400, 80)
    job.call("cudaGraphLaunch", 410, 20, 40)
    for k in range(3):
        job.kernel("in graph", 440 + 10 * k, 8, 40)
    job.op("copy", 500, 80)
    job.call("cudaMemcpyAsync", 510, 20, 50)
    for k in range(2):
        job.kernel("Memcpy HtoD (Pinned -> Device)", 540 + 10 * k, 8, 50, cat="gpu_memcpy")
    return job


def again(events: list[dict[str, Any]], **wanted: object) -> dict[str, Any]:
    """A copy of the event with these values."""
    found = next(e for e in events if all(e.get(key) == value for key, value in wanted.items()))
    return json.loads(json.dumps(found))  # type: ignore[no-any-return]


def second_kernel(job: MiniJob) -> None:
    job.kernel("kernel of another", 380, 10, 12)


def second_launch(job: MiniJob) -> None:
    job.call("cudaLaunchKernel", 350, 5, 12)


def launch_of_another_thread(job: MiniJob) -> None:
    job.call("hipLaunchKernel", 112, 5, 12, tid=7)


def all_twice(job: MiniJob) -> None:
    job.events += json.loads(json.dumps(job.events))


def second_operator(job: MiniJob) -> None:
    job.events.append({**again(job.events, name="op1"), "ts": 650})


BROKEN: dict[str, tuple[Callable[[MiniJob], None], list[str]]] = {
    "kernel": (second_kernel, ["correlation 12 is on several kernels of one launch: "]),
    "launch": (second_launch, ["correlation 12 is on several launches: "]),
    "thread": (launch_of_another_thread, ["correlation 12 is on several launches: "]),
    "operator": (second_operator, ["Record function id 11 is on several operators: "]),
    "all": (
        all_twice,
        [
            "correlation 11 is on several launches, and 3 more: ",
            "correlation 11 is on several kernels of one launch, and 3 more: ",
            "Record function id 10 is on several operators, and 5 more: ",
        ],
    ),
}


def lines_of(device: Path, said: list[str]) -> list[str]:
    return [f"{device}: {line}{ENDS}" for line in said]


def test_a_sound_recording_has_none(tmp_path: Path) -> None:
    """Graphs and copies have one id for several operations, and a driver's call that of the runtime's around it."""
    _, device = sound().write(tmp_path)
    assert repeated_ids(read_device_trace(device)) == []


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_there_twice_is_named(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = sound()
    change, said = BROKEN[what]
    change(job)
    host, device = job.write(tmp_path)
    lines = lines_of(device, said)
    assert repeated_ids(read_device_trace(device)) == lines
    base = [
        "convert",
        "pytorch",
        "--device",
        str(device),
        "-o",
        str(tmp_path / "x.et"),
        "--min-recorded",
        "0",
    ]
    assert chakra(base) == 0
    assert [line for line in capsys.readouterr().err.splitlines() if ENDS in line] == [
        f"chakra: warning: {line}" for line in lines
    ]
    assert chakra([*base, "--strict"]) == 4
    assert "ids that should be unique are there several times" in capsys.readouterr().err
    assert chakra(["link", "--host", str(host), "--device", str(device), "-o", str(tmp_path / "x.json")]) in (
        0,
        4,
    )
    assert [line for line in capsys.readouterr().err.splitlines() if ENDS in line] == [
        f"chakra: warning: {line}" for line in lines
    ]
    assert chakra(["compare", str(device), str(device)]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if ENDS in line] == [
        f"note: {line}" for line in lines
    ]
    assert chakra(["timeline", str(device), str(tmp_path / "line.json")]) == 0
    assert [line for line in capsys.readouterr().err.splitlines() if ENDS in line] == [
        f"note: {line}" for line in lines if "correlation" in line
    ]


@pytest.mark.shared
def test_sound_recordings_have_none(shared: Path) -> None:
    """Of all vendors."""
    for folder, pattern in (
        ("kineto", "*.json.gz"),
        ("h200", "*.kineto.json.gz"),
        ("pairs", "gloo4*kineto*"),
    ):
        for path in sorted((shared / "data" / folder).glob(pattern)):
            if path.stat().st_size < 2_000_000:
                assert repeated_ids(read_device_trace(path)) == [], path.name


def test_what_is_left_out_is_said_by_every_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two kernels lack their times: events are left out, and launches have no kernel."""
    job = sound()
    for event in job.events:
        if event["name"] in ("kernel1", "kernel2"):
            event["dur"] = float("nan")
    _, device = job.write(tmp_path)
    untimed = f"{device}: 2 events without a usable time were left out"
    lost = f"{device}: 2 of 4 kernel launches have no kernel in the trace"
    base = ["convert", "pytorch", "--min-recorded", "0", "-o", str(tmp_path / "x")]
    for form in ("text", "json"):
        assert chakra([*base, "--dir", str(tmp_path), "-j", "1", "--format", form]) == 0
        error = capsys.readouterr().err
        assert error.count(untimed) == error.count(lost) == 1
    assert chakra(["compare", str(device), str(device)]) == 0
    printed = capsys.readouterr().out
    assert printed.count(untimed) == printed.count(lost) == 1
    assert chakra(["timeline", str(device), str(tmp_path / "line.pftrace")]) == 0
    assert f"note: {untimed}" in capsys.readouterr().err
