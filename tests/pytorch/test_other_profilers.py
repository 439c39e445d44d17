"""Traces of other devices and other writers, and times that nobody measured: read alike by all that read them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mini_job import MiniJob

from chakra.anonymize import anonymize
from chakra.cli.main import run
from chakra.converters.pytorch.folder import find_inputs
from chakra.converters.pytorch.job import Inputs, Settings, convert_rank
from chakra.converters.pytorch.ranks import convert_job
from chakra.converters.pytorch.read.device import read_device_trace
from chakra.converters.pytorch.time.sync import classify
from chakra.errors import ConversionError
from chakra.et import read_trace
from chakra.timeline import read_kineto

DATA = Path(__file__).parents[1] / "data" / "pytorch"
ASCEND = DATA / "ascend" / "trace_view.json"


def test_ascends_tasks_are_device_operations(tmp_path: Path) -> None:
    """Three tasks hang on the operators that their arrows come from; the collective runs where it ran."""
    outcome = convert_rank(Inputs(device=ASCEND), tmp_path / "a.0.et", Settings(), check=True)
    assert outcome.summary["device_busy_ns"] == 380_000
    assert outcome.summary["attaching"]["attached"] == 3
    assert [c["kind"] for c in outcome.summary["collectives"]] == ["allreduce"]
    assert outcome.check is not None
    assert (outcome.check.measured_ns, outcome.check.replayed_ns) == (520_000, 520_000)


def test_ascends_arrows_may_be_found_by_where_they_end(tmp_path: Path) -> None:
    """Without numbers on the tasks, the arrow that ends where a task begins says what launched it."""
    events = json.loads(ASCEND.read_text())
    for event in events:
        event.get("args", {}).pop("connection_id", None)
    path = tmp_path / "t.json"
    path.write_text(json.dumps(events))
    assert read_device_trace(path).device.correlation.tolist() == [1000, 1001, 1002, 0]


def test_ascends_traces_as_a_timeline(tmp_path: Path) -> None:
    """The file that convert reads, timeline reads."""
    assert run(["timeline", str(ASCEND), str(tmp_path / "t.json")]) == 0
    timeline = read_kineto([ASCEND])
    assert timeline.n_slices == 7
    with pytest.raises(ConversionError, match="convert it, then anonymize"):
        anonymize(str(ASCEND.parent), str(tmp_path / "out"))


@pytest.mark.parametrize("prefix", ["", "gpu_"])
def test_devices_without_a_category_of_their_own(prefix: str, job: MiniJob, tmp_path: Path) -> None:
    """Back ends of PyTorch's private slot write their runtime calls, kernels and copies under its name."""
    job.op("a", 0, 40)
    job.call("launch", 5, 2, 1)
    job.events[-1]["cat"] = "privateuse1_runtime"
    job.kernel("k", 10, 5, 1, cat="kernel" if prefix else "privateuse1_kernel")
    job.kernel("Memcpy", 20, 5, 2, cat=f"{prefix}memcpy" if prefix else "privateuse1_memcpy")
    _, device = job.write(tmp_path)
    trace = read_device_trace(device)
    assert trace.device.kind.tolist() == [0, 1]
    assert len(trace.calls.name) == 1


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("urEventWait", "event"),
        ("piEventsWait", "event"),
        ("zeEventHostSynchronize", "event"),
        ("urQueueFinish", "stream"),
        ("zeCommandQueueSynchronize", "stream"),
        ("zeFenceHostSynchronize", "stream"),
        ("urEnqueueEventsWaitWithBarrier", "wait"),
        ("urEnqueueUSMMemcpy", "copy"),
        ("urEnqueueKernelLaunch", None),
        ("aclrtSynchronizeStream", "stream"),
        ("aclrtSynchronizeDevice", "device"),
        ("aclrtStreamWaitEvent", "wait"),
        ("aclrtRecordEvent", "record"),
        ("cudaEventQuery", None),
        ("hipDeviceSynchronize", "device"),
    ],
)
def test_waits_of_other_devices_are_waits(name: str, kind: str | None) -> None:
    """By the names that SYCL, Level Zero, Unified Runtime, Ascend and HIP give them."""
    assert classify(name) == kind


def with_kernel(job: MiniJob, folder: Path, **values: Any) -> Path:
    """A device trace of two kernels; the first has other values than it should."""
    for k, start in enumerate((1_782_000_000_000_000, 1_782_000_000_000_100)):
        job.op(f"op{k}", start, 40)
        job.call("cudaLaunchKernel", start + 5, 2, 1 + k)
        job.kernel(f"k{k}", start + 10, 20, 1 + k)
    job.events[2] |= values
    path = job.write(folder)[1]
    path.write_text(path.read_text().replace('"INF"', "inf").replace('"NAN"', "-nan"))
    return path


@pytest.mark.parametrize("key", ["ts", "dur"])
@pytest.mark.parametrize("value", [None, "INF", "NAN", "Infinity", -1, "text", [], 1e300])
def test_a_time_that_nobody_measured_is_missing(key: str, value: Any, job: MiniJob, tmp_path: Path) -> None:
    """The event is left out and counted, by the conversion and by the timeline."""
    path = with_kernel(job, tmp_path, **{key: value})
    trace = read_device_trace(path)
    assert trace.dropped["bad time"] == 1
    assert [trace.names.texts[c] for c in trace.device.name] == ["k1"]
    assert read_kineto([path]).n_slices == 5
    outcome = convert_rank(Inputs(device=path), tmp_path / "o.0.et", Settings(min_recorded=0))
    assert any("1 event without a usable time" in text for text in outcome.summary["warnings"])


def test_a_device_clock_that_was_never_read(job: MiniJob, tmp_path: Path) -> None:
    """A start of 0 among times of 2026 is none; among times that begin at 0 it is one."""
    trace = read_device_trace(with_kernel(job, tmp_path, ts=0))
    assert trace.dropped["bad time"] == 1
    assert int((trace.device.end - trace.ops.start.min()).max()) < 10**9
    other = MiniJob()
    other.op("a", 0, 10)
    assert read_device_trace(other.write(tmp_path)[1]).dropped == {}


@pytest.mark.parametrize("name", ["inf", "minf", "nan"])
def test_bare_infinities_are_read_by_all(name: str, tmp_path: Path) -> None:
    """A bandwidth of ``inf`` is no number that anybody reads."""
    path = DATA / "kineto_inf" / f"{name}.dev.json"
    trace = read_device_trace(path)
    assert (
        read_kineto([path]).n_slices
        == 12
        == sum(map(len, (trace.ops.name, trace.calls.name, trace.device.name)))
    )


def test_two_folders_side_by_side(job: MiniJob, tmp_path: Path) -> None:
    """Megatron-LM: the profiler's traces in one folder, the observer's in another, a file a rank in each."""
    job.op("a", 0, 40)
    for rank in (0, 1):
        host, device = job.write(tmp_path)
        for path, folder in ((host, "chakra"), (device, "torch_profile")):
            (tmp_path / "run" / folder).mkdir(parents=True, exist_ok=True)
            path.rename(tmp_path / "run" / folder / f"rank-{rank}.json")
    found = find_inputs(tmp_path / "run")
    assert [(i.rank, i.host and i.host.parent.name, i.device and i.device.parent.name) for i in found] == [
        (0, "chakra", "torch_profile"),
        (1, "chakra", "torch_profile"),
    ]


@pytest.mark.parametrize(
    ("base", "ts"),
    [(0, 1_789_634_533_000_000.0), (None, 1_789_634_533_000_000.0), ("1782864000000000000", 1_789_634_533_000_000.0),
     (1_782_864_000_000_000_000, 1_789_634_533_000_000.0), (1_782_864_000_000_000_000, 123.5)],
)  # fmt: skip
def test_no_date_is_left_in_an_anonymous_recording(base: Any, ts: float, tmp_path: Path) -> None:
    """Whatever form base and time stamps have: moved by a day, a job gives the same anonymous file."""
    written = []
    for day in (0, 1):
        document: dict[str, Any] = {"schemaVersion": 1}
        if base is not None:
            moved = int(base) + day * 86_400 * 10**9 * (int(base) > 0)
            document["baseTimeNanoseconds"] = type(base)(moved)
        start = ts + day * 86_400e6 * (ts > 1e12)
        document["traceEvents"] = [
            {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": start + k, "dur": 5}
            for k in (0, 9)
        ]
        source, target = tmp_path / f"in{day}.json", tmp_path / f"out{day}.json"
        source.write_text(json.dumps(document))
        anonymize(str(source), str(target))
        written.append(json.loads(target.read_text()))
    assert written[0] == written[1]
    times = [event["ts"] for event in written[0]["traceEvents"]]
    assert np.diff(times).tolist() == [9]
    assert len(read_device_trace(tmp_path / "out0.json").ops.name) == 2


def test_anonymous_traces_keep_how_far_ranks_are_apart(tmp_path: Path) -> None:
    """The distance between the windows stays, their date does not."""
    folder = DATA / "rank_start"
    inputs = [Inputs(device=folder / f"job.rank{rank}.kineto.json") for rank in (0, 1)]
    convert_job(inputs, tmp_path / "job", Settings(), jobs=1)
    anonymize(str(tmp_path / "job"), str(tmp_path / "anonymous"))
    times = []
    for rank in (0, 1):
        trace = read_trace(tmp_path / f"anonymous.{rank}.et")
        times += [a.int64_val for a in trace.metadata.attr if a.name == "base_time_ns"]
    assert times == [10**18, 10**18 + 5_000_000]
