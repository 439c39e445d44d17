"""What a change of the machine changes."""

import json
from pathlib import Path

import pytest

from chakra.builder import TraceBuilder, Workload
from chakra.cli.main import run
from chakra.errors import UsageError
from chakra.et import Trace
from chakra.replay import simulate
from chakra.replay.what_if import parse_changes, what_if

NETWORK = {"topology": ["Ring"], "npus_count": [4], "bandwidth": [50], "latency": [500]}
SYSTEM = {"all-reduce-implementation": ["ring"], "endpoint-delay": 10}


def step() -> Workload:
    work = Workload(4)

    def program(b: TraceBuilder) -> None:
        first = b.compute(duration_micros=100)
        b.collective("all-reduce", size_bytes=1 << 20, after=first)

    work.run(program, uniform=True)
    return work


def traces() -> list[Trace]:
    return step().traces()


def test_changes_give_the_run_on_the_changed_machine() -> None:
    found = what_if(traces(), SYSTEM, NETWORK, "dim0.bandwidth=2x,dim0.latency=100,npu.flops=4x")
    other = simulate(traces(), SYSTEM, {**NETWORK, "bandwidth": [100], "latency": [100]}, compute_scale=0.25)
    assert found.changed.finish_ns.tolist() == other.finish_ns.tolist()
    assert found.base.finish_ns.tolist() == simulate(traces(), SYSTEM, NETWORK).finish_ns.tolist()
    rows = {name: (before, after) for name, before, after in found.rows()}
    assert list(rows["compute"]) == [100_000, 25_000]
    assert rows["step"][1] < rows["step"][0]
    for side in (0, 1):
        assert sum(v[side] for k, v in rows.items() if k != "step") == rows["step"][side]


@pytest.mark.parametrize(
    ("text", "system"),
    [
        ("system.endpoint-delay=200", {**SYSTEM, "endpoint-delay": 200}),
        ("system.splits=4x", {**SYSTEM, "preferred-dataset-splits": 4}),
        ("system.active-chunks=2", {**SYSTEM, "active-chunks-per-dimension": 2}),
    ],
)
def test_system_keys(text: str, system: dict[str, object]) -> None:
    found = what_if(traces(), SYSTEM, NETWORK, text)
    assert found.changed.finish_ns.tolist() == simulate(traces(), system, NETWORK).finish_ns.tolist()


def test_roofline_flops_raise_the_peak_and_hbm_the_bandwidth() -> None:
    work = Workload(4)
    work.run(lambda b: b.compute(num_ops=10**9, tensor_bytes=10**6), uniform=True)
    system = {"roofline-enabled": True, "peak-perf": 1, "local-mem-bw": 100}
    both = what_if(work.traces(), system, NETWORK, "npu.flops=2x,npu.hbm=4x")
    changed = simulate(work.traces(), {**system, "peak-perf": 2, "local-mem-bw": 400}, NETWORK)
    assert both.changed.finish_ns.tolist() == changed.finish_ns.tolist()
    assert (both.changed.finish_ns < both.base.finish_ns).all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dim0.bandwith=2x", "did you mean 'dim0.bandwidth'"),
        ("dim4.bandwidth=2x", "dimensions 0 to 0"),
        ("dim0.bandwidth=0x", "more than 0"),
        ("dim0.bandwidth", "expected KEY=VALUE"),
        ("dim0.bandwidth=", "expected 2x or a number"),
        ("dim0.bandwidth=-1", "expected 2x or a number"),
        ("dim0.bandwidth=infx", "expected 2x or a number"),
        ("comm-scale=1,comm-scale=2", "given twice"),
        ("npu.flops=100", "no peak-perf"),
        ("npu.hbm=2x", "no local-mem-bw"),
        ("memory.latency=2x", "no remote memory"),
        ("system.endpoint-delay=0.5", "whole number"),
        ("system.splits=0", "out of range"),
    ],
)
def test_wrong_changes_are_one_line(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        what_if(traces(), SYSTEM, NETWORK, text)
    assert message in str(caught.value)


def test_changes_read_back() -> None:
    assert [str(c) for c in parse_changes("dim1.bandwidth=2x, comm-scale=0.5")] == [
        "dim1.bandwidth=2x",
        "comm-scale=0.5",
    ]


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    step().write(str(tmp_path / "w"))
    (tmp_path / "s.json").write_text(json.dumps(SYSTEM))
    (tmp_path / "n.json").write_text(json.dumps(NETWORK))
    args = [
        "replay",
        "-w",
        str(tmp_path / "w"),
        "-s",
        str(tmp_path / "s.json"),
        "-n",
        str(tmp_path / "n.json"),
    ]
    assert run([*args, "--what-if", "npu.flops=2x", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "chakra.replay.what_if/1"
    assert document["step"]["change_ns"] == -50_000
    assert document["account"]["compute_ns"]["ratio"] == 0.5
    assert run([*args, "--what-if", "npu.flops=2x"]) == 0
    assert "-50,000" in capsys.readouterr().out
    assert run([*args, "--what-if", "npu.flops=2x", "--nodes", "--format", "json"]) == 2
