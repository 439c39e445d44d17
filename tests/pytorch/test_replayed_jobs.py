"""Converted recordings on other machines: what was recorded stays as it was where nothing says otherwise."""

from pathlib import Path
from typing import Any

import pytest

from chakra.builder import TraceBuilder
from chakra.cli.main import run
from chakra.converters.pytorch import convert_job, find_inputs
from chakra.converters.pytorch.job import Inputs, Settings, convert_rank
from chakra.converters.pytorch.link import LinkOptions
from chakra.errors import UsageError, WorkloadError
from chakra.et import Trace, read_trace
from chakra.platforms import cluster
from chakra.replay import simulate
from chakra.replay.what_if import what_if

DATA = Path(__file__).parents[1] / "data" / "pytorch"
SYSTEM = {"endpoint-delay": 10}
ONE = {"topology": ["Switch"], "npus_count": [1], "bandwidth": [100], "latency": [500]}


def converted(device: Path, folder: Path, **options: Any) -> Trace:
    """The trace of a device trace alone."""
    output = folder / "t.0.et"
    convert_rank(Inputs(device=device), output, Settings(min_attached=0, link=LinkOptions(**options)))
    return read_trace(output)


def chakra(*words: str) -> int:
    """Exit code of a command."""
    return run(" ".join(words).split())


def test_a_preset_with_a_roofline_keeps_recorded_times(tmp_path: Path) -> None:
    """A kernel of 1 ms behind 50 us of host takes 1.05 ms; it has no operations that a roofline could price."""
    trace = converted(DATA / "roofline" / "job.rank0.kineto.json", tmp_path)
    machine = cluster("hgx-h100", 1)
    system = machine.system()
    assert system["roofline-enabled"] == 1
    assert simulate([trace], system, machine.network()).finish_ns.tolist() == [1_050_000]


def test_the_first_commands_of_the_guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Convert, write a machine, replay on it: no step needs more than the recording."""
    monkeypatch.chdir(tmp_path)
    folder = str(DATA / "roofline")
    assert chakra("convert pytorch --job job --output job --check --dir", folder) == 0
    assert chakra("platform write hgx-h100 --npus 1 -o h100") == 0
    assert (
        chakra("replay -w job -s h100.system.json -n h100.network.yml -g job.comm_groups.json --strict") == 0
    )
    assert chakra("replay -w job --platform hgx-h100 -g job.comm_groups.json --strict") == 0


def test_a_roofline_still_asks_nodes_without_any_time(tmp_path: Path) -> None:
    """A node with half of what prices it is an error; ASTRA-sim's mode asks every node."""
    roofline = {"roofline-enabled": 1, "peak-perf": 10, "local-mem-bw": 100}
    builder = TraceBuilder()
    builder.compute("f", num_ops=5, duration_micros=1)
    with pytest.raises(WorkloadError, match="tensor_size"):
        simulate([builder.build()], roofline, ONE)
    trace = converted(DATA / "roofline" / "job.rank0.kineto.json", tmp_path)
    with pytest.raises(WorkloadError, match="num_ops"):
        simulate([trace] * 2, roofline, {**ONE, "npus_count": [2]}, compat="astra-sim")


@pytest.mark.parametrize(("name", "span_ns"), [("streams", 1_120_000), ("threads", 1_000_000)])
@pytest.mark.parametrize("system", [SYSTEM, {"replay-only": True}])
@pytest.mark.parametrize("engine", ["phases", "messages"])
def test_what_ran_side_by_side_does_so_in_every_mode(
    name: str, span_ns: int, system: dict[str, Any], engine: str, tmp_path: Path
) -> None:
    """Two streams, two threads: their operations overlap in the recording, so they do in the replay."""
    trace = converted(DATA / "streams_serialised" / f"{name}.json", tmp_path)
    assert simulate([trace], system, ONE, engine=engine).finish_ns.tolist() == [span_ns]


def test_streams_of_generated_traces_share_one_engine() -> None:
    """Only recordings say that streams ran at once; elsewhere an NPU computes one node at a time."""
    builder = TraceBuilder()
    for stream in (1, 2):
        builder.compute("f", duration_micros=5, attrs={"stream": stream}, after=())
    assert simulate([builder.build()], SYSTEM, ONE).finish_ns.tolist() == [10_000]


def test_a_faster_accelerator_leaves_the_host_alone(tmp_path: Path) -> None:
    """50 us of host, a kernel of 1 ms behind it: each speed scales its own part, with a roofline or without."""
    trace = converted(DATA / "roofline" / "job.rank0.kineto.json", tmp_path)
    for system in (SYSTEM, {**SYSTEM, "roofline-enabled": 1, "peak-perf": 10, "local-mem-bw": 100}):
        for key, expected in (
            ("npu.flops", 550_000),
            ("accelerator.speed", 550_000),
            ("host.speed", 1_025_000),
            ("compute-scale", 2_100_000),
        ):
            assert what_if([trace], system, ONE, f"{key}=2x").changed.finish_ns.tolist() == [expected]
    both = simulate([trace], SYSTEM, ONE, host_speed=2, accelerator_speed=4).finish_ns.tolist()
    assert both == [25_000 + 250_000]


@pytest.mark.shared
def test_twice_the_accelerator_leaves_a_step_that_the_host_limits(shared: Path, tmp_path: Path) -> None:
    """`infer` decodes greedily: its GPU is busy for 7.8 of 101.3 ms, and none of that is waited for."""
    report = shared / "reports" / "pt-what-if-flops-scales-host"
    convert_job(find_inputs(shared / "data" / "h200", "infer"), tmp_path / "infer", Settings(), jobs=1)
    found = what_if(
        str(tmp_path / "infer"), str(report / "model.json"), str(report / "net.yml"), "npu.flops=2x"
    )
    before, after = (int(result.finish_ns[0]) for result in (found.base, found.changed))
    assert before == pytest.approx(101_300_000, rel=0.001)
    assert before >= after > 0.999 * before


def test_an_accelerator_of_another_speed_under_the_roofline() -> None:
    """Twice the accelerator: peak and memory bandwidth double, so a node of any intensity takes half the time."""
    builder = TraceBuilder()
    builder.compute("f", num_ops=10**9, tensor_bytes=10**6)
    builder.compute("g", num_ops=10, tensor_bytes=10**8)
    roofline = {"roofline-enabled": 1, "peak-perf": 10, "local-mem-bw": 100}
    found = what_if([builder.build()], roofline, ONE, "accelerator.speed=2x")
    assert found.base.finish_ns.tolist() == [1_100_000]
    assert found.changed.finish_ns.tolist() == [550_000]


@pytest.mark.filterwarnings("error")
def test_no_time_stays_none_at_any_speed() -> None:
    """1 / 1e-320 is infinite: 0 ns times that is 0 ns, 5 us times that is an error."""
    builder = TraceBuilder()
    builder.compute("f", duration_ns=0)
    given: dict[str, Any] = {"host_speed": 1e-320, "accelerator_speed": 1e-320}
    assert simulate([builder.build()], SYSTEM, ONE, **given).finish_ns.tolist() == [0]
    builder.compute("g", duration_micros=5)
    with pytest.raises(WorkloadError, match="does not fit 64 bits"):
        simulate([builder.build()], SYSTEM, ONE, **given)


@pytest.mark.parametrize("name", ["host_speed", "accelerator_speed"])
@pytest.mark.parametrize("value", [0, -1, float("inf"), float("nan")])
def test_a_speed_is_above_zero(name: str, value: float) -> None:
    """No time is the speed's."""
    builder = TraceBuilder()
    builder.compute("f", duration_micros=5)
    given: dict[str, Any] = {name: value}
    with pytest.raises(UsageError, match=name):
        simulate([builder.build()], SYSTEM, ONE, **given)
