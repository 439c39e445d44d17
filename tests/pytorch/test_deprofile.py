"""The cost of recording: taken off by a constant that one job measures and another confirms."""

import json
import sys
import time
import types
from pathlib import Path
from typing import Any

import numpy as np
import profile_table
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mini_job import MiniJob

from chakra.capture import capture
from chakra.cli.main import run as chakra
from chakra.converters.pytorch import Settings, convert_job, find_inputs
from chakra.converters.pytorch.all_ranks.job_replay import RankGraph, rank_graph, replay_job, step_error
from chakra.converters.pytorch.deprofile import AUTO, Deprofiled, deprofile, facts_file, unprofiled_step_ns
from chakra.converters.pytorch.graph.event_cost import CALL_SHARE, HostEvents, without_events
from chakra.converters.pytorch.job import read_and_link
from chakra.errors import UsageError
from chakra.et import read_trace

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "pytorch.md"

nodes = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 50), st.sampled_from([0.0, 0.5, 1.0, 2.5])),
    min_size=1,
    max_size=30,
)


@given(nodes, st.integers(0, 30))
def test_events_are_paid_by_the_time_that_follows(found: list[tuple[int, int, float]], cost: int) -> None:
    """Node by node: what is owed is paid as far as the node's own time goes, the rest later; thread 2 only waits."""
    thread = np.array([row[0] for row in found])
    events = HostEvents(thread < 2, thread, np.array([row[2] if row[0] < 2 else 0.0 for row in found]))
    owed = {0: 0, 1: 0, 2: 0}
    slow = []
    for number, duration, weight in found:
        if number < 2:
            owed[number] += round(weight * cost)
            paid = min(owed[number], duration)
            owed[number] -= paid
            duration -= paid
        slow.append(duration)
    assert without_events(np.array([row[1] for row in found]), events, cost).tolist() == slow


#: job -> ranks
JOBS = {"pp": 2, "resnet": 1, "infer": 1, "ddp": 2, "graph": 1, "fsdp": 4}


@pytest.fixture(scope="module")
def jobs(shared: Path) -> dict[str, tuple[list[RankGraph], int]]:
    """All ranks of each recorded job, and its step without profiler (of the slowest rank)."""
    folder = shared / "data" / "h200"
    found = {}
    for job, ranks in JOBS.items():
        inputs = find_inputs(folder, job)
        assert len(inputs) == ranks
        steps = [unprofiled_step_ns(item.device) for item in inputs]
        found[job] = ([rank_graph(*read_and_link(item, Settings())) for item in inputs], max(steps))
    return found


def constants(jobs: dict[str, tuple[list[RankGraph], int]]) -> dict[str, float]:
    """What each job that the host limits measures."""
    found = {}
    for job, (ranks, unprofiled) in jobs.items():
        if job in ("fsdp", "graph", "resnet"):
            with pytest.raises(UsageError, match="the host does not limit this job"):
                deprofile(ranks, unprofiled, None)
        else:
            found[job] = deprofile(ranks, unprofiled, None).operator_us
    return found


@pytest.mark.shared
def test_the_constant_of_other_jobs_predicts_a_step_without_profiler(
    jobs: dict[str, tuple[list[RankGraph], int]],
) -> None:
    """Leaving one out: overhead within 15 % (infer, pp) and 30 % (resnet), steps of ddp and graph within 15 %."""
    measured = constants(jobs)
    assert sorted(measured) == ["ddp", "infer", "pp"]
    found: dict[str, Deprofiled] = {}
    for job, (ranks, unprofiled) in jobs.items():
        others = float(np.median([value for other, value in measured.items() if other != job]))
        found[job] = deprofile(ranks, unprofiled, others)
    for job, most in (("infer", 0.15), ("pp", 0.15), ("resnet", 0.30)):
        one = found[job]
        taken = one.profiled_step_ns - one.step_ns
        assert abs(taken / (one.profiled_step_ns - one.unprofiled_step_ns) - 1) < most, job
    for job in ("ddp", "graph"):
        assert abs(found[job].step_ns / found[job].unprofiled_step_ns - 1) < 0.15, job
    assert abs(found["fsdp"].step_ns / found["fsdp"].profiled_step_ns - 1) < 0.03


@pytest.mark.shared
def test_the_constant_of_one_job_predicts_the_others(jobs: dict[str, tuple[list[RankGraph], int]]) -> None:
    """`infer` is nothing but host: its constant alone does it."""
    constant = deprofile(*jobs["infer"], None).operator_us
    assert 15 < constant < 18
    steps = {job: deprofile(ranks, unprofiled, constant) for job, (ranks, unprofiled) in jobs.items()}
    shares = {
        job: (one.profiled_step_ns - one.step_ns) / (one.profiled_step_ns - one.unprofiled_step_ns)
        for job, one in steps.items()
    }
    assert shares["pp"] == pytest.approx(1, abs=0.15)
    assert shares["resnet"] == pytest.approx(1, abs=0.30)
    for job in ("ddp", "graph"):
        assert steps[job].step_ns == pytest.approx(steps[job].unprofiled_step_ns, rel=0.15)


@pytest.mark.shared
def test_all_ranks_together_with_recorded_collectives(
    shared: Path, jobs: dict[str, tuple[list[RankGraph], int]]
) -> None:
    """With perfect times of collectives a replay of all ranks is within 1 % of the slowest rank, and of each."""
    inputs = find_inputs(shared / "data" / "pairs", "dlrm8")
    dlrm = [rank_graph(*read_and_link(item, Settings())) for item in inputs]
    for ranks in (dlrm, jobs["fsdp"][0], jobs["ddp"][0], jobs["pp"][0]):
        spans = replay_job(ranks)
        assert abs(step_error(ranks, spans)) < 0.01
        for rank, span in zip(ranks, spans, strict=True):
            assert span == pytest.approx(rank.measured_ns, rel=0.01)


@pytest.mark.shared
@pytest.mark.slow
def test_the_guides_table_is_what_the_recordings_give(shared: Path) -> None:
    """What is explained, and errors with and without profiler: the tool compares the page, and each job with its aim."""
    assert profile_table.DATA.samefile(shared / "data")
    found = list(profile_table.jobs())
    costs = profile_table.constants(found)
    page = profile_table.PAGE.read_text(encoding="utf-8")
    assert profile_table.filled(page, profile_table.table(found, costs)) == page
    assert profile_table.missed(found, costs) == []
    alone = profile_table.alone_table()
    assert profile_table.filled(page, alone, "device traces") == page
    assert len(profile_table.ALONE) == len(list((shared / "data" / "kineto").iterdir()))
    for one in found:
        one.explained[:] = [80.0]
    worse = profile_table.missed(found, dict.fromkeys(costs, 40.0))
    assert [line.split(":")[0] for line in worse][:6] == list(profile_table.JOBS)
    assert any("overhead" in line for line in worse)


DDP = Path(__file__).resolve().parents[1] / "data" / "pytorch" / "ddp"


def recorded(folder: Path, steps_us: object) -> Path:
    """The job `ddp` with facts beside its traces."""
    folder.mkdir()
    for path in DDP.iterdir():
        (folder / path.name).symlink_to(path)
        if ".kineto." in path.name:
            facts_file(folder / path.name).write_text(json.dumps({"step_us_unprofiled": steps_us}))
    return folder


def test_a_job_is_converted_without_the_cost_of_its_recording(tmp_path: Path) -> None:
    """Only the host's own time shrinks; what is written replays in the step that is said."""
    inputs = find_inputs(recorded(tmp_path / "in", [54_000.0, 55_000.0, 56_000.0]), "ddp")
    plain = convert_job(inputs, tmp_path / "plain", Settings(), check=True, jobs=1)
    found = convert_job(inputs, tmp_path / "ddp", Settings(deprofile=AUTO), check=True, jobs=1)
    assert plain.deprofiled is None
    assert plain.together_error is not None
    assert abs(plain.together_error) < 0.01
    assert found.deprofiled is not None
    assert found.deprofiled.measured
    assert found.deprofiled.step_ns == pytest.approx(55_000_000, rel=0.01)
    assert 5 < found.deprofiled.operator_us < 40
    before, after = (read_trace(tmp_path / f"{name}.0.et") for name in ("plain", "ddp"))
    device = before.is_cpu_op == 0
    assert before.durations_ns()[device].tolist() == after.durations_ns()[device].tolist()
    shrunk = before.durations_ns() - after.durations_ns()
    assert shrunk.min() == 0
    assert shrunk.sum() > 10_000_000


@pytest.mark.parametrize(
    ("option", "steps", "message"),
    [
        ("auto", None, "holds no steps without profiler"),
        ("auto", [900_000.0], "the host does not limit this job"),
        ("auto", ["x"], "step_us_unprofiled must be a list of times in us"),
        ("soon", None, "'soon' is neither 'auto' nor a cost of 0 to 200 us"),
        ("-3", None, "'-3' is neither"),
    ],
)
def test_what_cannot_be_taken_off_is_said(
    option: str, steps: object, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = recorded(tmp_path / "in", steps)
    command = [
        "convert",
        "pytorch",
        "--dir",
        str(folder),
        "-o",
        str(tmp_path / "out"),
        "--deprofile",
        option,
        "-j",
        "1",
    ]
    assert chakra(command) == 2
    assert message in capsys.readouterr().err


def uncertainty(prefix: Path, capsys: pytest.CaptureFixture[str]) -> tuple[float, float]:
    """Finish of a job on 64 GPUs and by how much it is uncertain, ms."""
    assert chakra(["rescale", str(prefix), "-o", f"{prefix}64", "--npus", "64"]) == 0
    capsys.readouterr()
    command = ["replay", "-w", f"{prefix}64", "--platform", "8x hgx-h100 over 400G", "--start", "aligned"]
    assert chakra([*command, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    [note] = [note for note in document["notes"] if note.startswith("uncertain by about")]
    return max(document["finish_ns"]) / 1e6, float(note.split("about ")[1].split(" ms")[0])


def test_taking_the_cost_off_makes_a_job_elsewhere_less_certain(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rescaled to 64 ranks: a shorter step with a wider interval, by 18 % of what was taken off the host."""
    inputs = find_inputs(recorded(tmp_path / "in", None), "ddp")
    convert_job(inputs, tmp_path / "plain", Settings(), jobs=1)
    convert_job(inputs, tmp_path / "fast", Settings(deprofile="16"), jobs=1)
    finish, plain = uncertainty(tmp_path / "plain", capsys)
    shorter, wider = uncertainty(tmp_path / "fast", capsys)
    assert shorter < finish
    assert wider > plain
    spent = [
        [int(read_trace(tmp_path / f"{name}.{rank}.et").durations_ns().sum()) for name in ("plain", "fast")]
        for rank in (0, 1)
    ]
    most = max(before - after for before, after in spent) / 1e6
    assert 0.18 * most - plain < wider < 0.18 * most + plain
    guide = " ".join(GUIDE.read_text(encoding="utf-8").split())
    assert f"takes {shorter:.1f} ms +- {wider:.1f} ms" in guide
    assert f"and {finish:.0f} ms without `--deprofile`" in guide


def test_one_rank_by_a_given_cost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = ["--host", str(DDP / "ddp.rank0.et.json.gz"), "--device", str(DDP / "ddp.rank0.kineto.json.gz")]
    assert chakra(["convert", "pytorch", *files, "-o", str(tmp_path / "a.et"), "--deprofile", "10us"]) == 0
    out = capsys.readouterr().out
    assert "deprofiled    10.00 us per operator: step 75,014.9 us -> " in out
    assert CALL_SHARE == 0.5


class Profiler:
    """A profiler that records nothing, and writes a trace when its steps are over."""

    def __init__(self, *, schedule: tuple[int, ...], on_trace_ready: Any, **_: Any) -> None:
        self.steps, self.ready, self.taken = sum(schedule), on_trace_ready, 0

    def __enter__(self) -> "Profiler":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def step(self) -> None:
        self.taken += 1
        if self.taken == self.steps:
            self.ready(self)

    def export_chrome_trace(self, path: str) -> None:
        Path(path).write_text('{"traceEvents": []}')


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A PyTorch with a GPU, as far as capturing looks at it."""

    class Observer:
        def register_callback(self, path: str) -> None:
            Path(path).write_text("{}")

    class Activities:
        CPU, CUDA = "cpu", "cuda"

    def clocks() -> int:
        raise ModuleNotFoundError("pynvml")

    cuda = types.SimpleNamespace(
        is_available=lambda: True, synchronize=lambda: None, get_device_name=lambda: "NVIDIA H200", clock_rate=clocks,
        power_draw=lambda: 700_000, nccl=types.SimpleNamespace(version=lambda: (2, 28, 9)),
    )  # fmt: skip
    fake = types.ModuleType("torch")
    fake.__dict__.update(
        __version__="2.11.0+cu130", cuda=cuda, version=types.SimpleNamespace(cuda="13.0"),
        distributed=types.SimpleNamespace(is_available=lambda: False),
    )  # fmt: skip
    profiler = types.ModuleType("torch.profiler")
    profiler.__dict__.update(
        ExecutionTraceObserver=Observer, ProfilerActivity=Activities, profile=Profiler,
        schedule=lambda wait, warmup, active, repeat: (wait, warmup, active),
    )  # fmt: skip
    fake.__dict__["profiler"] = profiler
    monkeypatch.setitem(sys.modules, "torch", fake)
    monkeypatch.setitem(sys.modules, "torch.profiler", profiler)


@pytest.mark.usefixtures("torch")
def test_capture_times_steps_with_the_profiler_off(tmp_path: Path) -> None:
    """Behind the recorded steps, the first one not counted; with versions, and what clocks there are."""
    with capture(tmp_path / "job", steps=2, warmup=1, unprofiled=2) as recording:
        taken = 0
        while not recording.done:
            time.sleep(0.002 if recording.recorded else 0)
            recording.step()
            taken += 1
    assert taken == 3 + 1 + 2
    facts = json.loads((tmp_path / "job.rank0.meta.json").read_text())
    assert len(facts["step_us_unprofiled"]) == 2
    assert all(2_000 <= step < 1_000_000 for step in facts["step_us_unprofiled"])
    assert facts["torch"] == "2.11.0+cu130"
    assert (facts["cuda"], facts["nccl"], facts["device"]) == ("13.0", "2.28.9", "NVIDIA H200")
    assert "clock_mhz" not in facts
    assert unprofiled_step_ns(tmp_path / "job.rank0.kineto.json") >= 2_000_000


@pytest.mark.usefixtures("torch")
def test_a_block_that_ends_with_the_recorded_steps_is_whole(tmp_path: Path) -> None:
    with capture(tmp_path / "job", steps=1, warmup=1) as recording:
        for _ in range(2):
            recording.step()
    assert recording.recorded
    assert json.loads((tmp_path / "job.rank0.meta.json").read_text())["step_us_unprofiled"] == []
    assert unprofiled_step_ns(tmp_path / "job.rank0.kineto.json") == 0


def two_steps(folder: Path) -> list[str]:
    """Two profiler steps of 3 operators, 100 us each, that took 70 us without profiler; options that name the files."""
    job = MiniJob()
    for step in (0, 1):
        job.op(f"ProfilerStep#{step}", 100 * step, 100, annotation=True)
        for k in range(3):
            job.op(f"op{step}{k}", 100 * step + 5 + 30 * k, 30)
    host, device = job.write(folder)
    facts_file(device).write_text(json.dumps({"step_us_unprofiled": [70]}))
    return ["--host", str(host), "--device", str(device), "-o", str(folder / "x.et"), "--format", "json"]


def test_a_step_is_divided_by_the_steps_that_were_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of two recorded steps takes 100 us, not 50, and both together take 100 us each."""
    files = two_steps(tmp_path)
    found = []
    for part in ([], ["--step", "0"], ["--step", "1"], ["--window", "0", "0.1"]):
        assert chakra(["convert", "pytorch", *files, "--deprofile", "5", *part]) == 0
        found.append(json.loads(capsys.readouterr().out)["deprofiled"])
    assert [each["profiled_step_ns"] for each in found] == pytest.approx([100_000] * 4, abs=10_000)
    assert [each["unprofiled_step_ns"] for each in found] == [70_000] * 4


def test_a_part_of_a_step_tells_no_cost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = two_steps(tmp_path)
    part = ["--window", "0.01", "0.07"]
    assert chakra(["convert", "pytorch", *files, "--deprofile", "auto", *part]) == 2
    assert "a part of a step only was taken" in capsys.readouterr().err
    assert chakra(["convert", "pytorch", *files, "--deprofile", "5", *part]) == 0
    assert json.loads(capsys.readouterr().out)["deprofiled"]["unprofiled_step_ns"] == 0
