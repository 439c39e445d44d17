"""What a change of the machine changes."""

import json
from pathlib import Path

import pytest

from chakra.builder import TraceBuilder, Workload
from chakra.cli.main import run
from chakra.errors import UsageError
from chakra.et import Trace
from chakra.platforms import cluster
from chakra.replay import simulate
from chakra.replay.config.network import load_network
from chakra.replay.what_if import WhatIf, parse_changes, what_if

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
    assert "-50 µs" in capsys.readouterr().out
    assert run([*args, "--what-if", "npu.flops=2x", "--nodes", "--format", "json"]) == 2


def cluster_step(words: str, changes: str, backend: str = "unaware") -> WhatIf:
    """An all-reduce of all NPUs behind computing, on a machine in words."""
    machine = cluster(words)
    work = Workload(load_network(machine.network()).npus)

    def program(b: TraceBuilder) -> None:
        first = b.compute(duration_micros=100)
        b.collective("all-reduce", size_bytes=1 << 24, after=first)

    work.run(program, uniform=True)
    return what_if(work.traces(), machine.system(), machine.network(), changes, backend=backend)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("dim0.bandwidth=0.25x", "whose links inside a node are part of them; another machine's times"),
        ("dim0.latency=10x", "whose links inside a node are part of them; another machine's times"),
        ("dim1.latency=10x", "with its own latencies; system.network-plugin-latency adds to them"),
        ("system.splits=8", "only algorithms of a system file read it"),
        ("injection-scale=10x", "only algorithms of a system file read it"),
        ("host.speed=0.1x", "it divides recorded times of the host alone"),
        ("dim1.bandwidth=1x", "it leaves the value as it is"),
        ("accelerator.attention=2x", "no time of this run depends on it"),
    ],
)
def test_a_key_that_changes_nothing_is_named_with_the_reason(change: str, reason: str) -> None:
    found = cluster_step("2x hgx-h100 over 400G", change)
    assert found.changed.finish_ns.tolist() == found.base.finish_ns.tolist()
    [note] = found.notes
    assert note.startswith(f"{change} changed nothing: ")
    assert reason in note
    assert found.to_dict()["notes"] == [note]
    assert found.to_text().endswith(f"note: {note}\n")


def test_what_a_reason_names_instead_has_an_effect() -> None:
    for change in ("dim1.bandwidth=0.5x", "network-plugin-latency=100"):
        found = cluster_step("2x hgx-h100 over 400G", change)
        assert found.changed.finish_ns.max() > found.base.finish_ns.max()
        assert found.notes == ()


def test_of_several_keys_those_without_effect_are_named() -> None:
    found = cluster_step("2x hgx-h100 over 400G", "dim0.latency=3x,dim1.bandwidth=0.5x,host.speed=2x")
    assert [note.split(" changed nothing")[0] for note in found.notes] == ["dim0.latency=3x", "host.speed=2x"]
    # without the library the latency inside a node counts
    found = what_if(traces(), SYSTEM, NETWORK, "dim0.latency=3x,npu.flops=2x")
    assert found.notes == ()


def test_notes_of_the_changed_run_alone_are_told() -> None:
    """Both runs say that collectives take the library's times; which of them are measured changes with nothing here."""
    found = cluster_step("2x hgx-h100 over 400G", "dim1.bandwidth=0.5x")
    assert any("collectives take the times of" in note for note in found.base.notes)
    assert found.notes == ()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("preferred-dataset-splits=8", "system.splits"),
        ("system.preferred-dataset-splits=8", "system.splits"),
        ("system.preferred_dataset_splits=8", "system.splits"),
        ("active-chunks-per-dimension=2", "system.active-chunks"),
        ("endpoint-delay=2", "system.endpoint-delay"),
        ("network.dim1.latency=2x", "dim1.latency"),
        ("replay.host-speed=2x", "host.speed"),
        ("host-speed=2x", "host.speed"),
        ("replay.comm-scale=2x", "comm-scale"),
        ("local-mem-bw=2x", "npu.hbm"),
        ("remote-mem-bw=2x", "memory.bandwidth"),
        ("collective-channels=4", "system.collective-channels"),
    ],
)
def test_keys_of_files_and_studies_are_taken(text: str, name: str) -> None:
    [change] = parse_changes(text)
    assert change.parameter.name == name
    assert str(change) == text  # as the user wrote it


def test_the_text_has_the_users_name_and_the_document_one_name() -> None:
    found = what_if(traces(), SYSTEM, NETWORK, "preferred-dataset-splits=4")
    assert found.to_text().startswith("what if preferred-dataset-splits=4\n")
    [change] = found.to_dict()["changes"]
    assert change["key"] == "system.splits"


def test_numbers_of_the_system_file_that_have_no_short_name() -> None:
    system = {**SYSTEM, "local-reduction-delay": 500}
    found = what_if(traces(), SYSTEM, NETWORK, "local-reduction-delay=500")
    assert found.changed.finish_ns.tolist() == simulate(traces(), system, NETWORK).finish_ns.tolist()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("system.splits=2,preferred-dataset-splits=4", "system.splits is given twice, also as preferred"),
        ("preferred-dataset-split=4", "did you mean 'preferred-dataset-splits'"),
        ("splits=4", "did you mean 'system.splits'"),
        ("bandwidth=2x", "did you mean 'dim0.bandwidth'"),
        ("collective-channels=2x", "gives no collective-channels; give a value in channels"),
        ("overlap-computing-rate=2", "out of range"),
        (
            "dim0.topology=Switch",
            r"dim0\.topology makes another network, .*\(chakra compare\), or vary the network",
        ),
        ("network.dim1.npus_count=2x", "makes another network, and only numbers"),
        (
            "0-1=0.5x",
            "0-1 is of a single link, and .* --slow-link A-B=X or --fail-link A-B .* .chakra compare.",
        ),
        ("slow-link.3-leaf1=0.5x", "is of a single link"),
        (
            "all-reduce-implementation=direct",
            "is a key of the system file, but no single number, .*; change the file, or vary system.all-reduce-impl",
        ),
        ("system.replay_only=1", "system.replay_only is a key of the system file"),
        (
            "memory-type=2",
            "memory-type is a key of the memory file, but no single number, .*; change the file$",
        ),
        ("npus-count=2x", "npus-count is a key of the network file"),
        (
            "nonsense=2x",
            r"there are dim0.bandwidth, .*system.splits \(preferred-dataset-splits\), npu.hbm \(local-mem-bw\)",
        ),
        ("local-mem-bw=2x", "local-mem-bw: the system file gives no local-mem-bw"),
    ],
)
def test_names_that_are_none(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        what_if(traces(), SYSTEM, NETWORK, text)


@pytest.mark.parametrize(
    ("count", "shape"),
    [(2, "rails of 64 ports"), (2, "fat tree of 16 ports"), (4, "fat tree of 16 ports")],
)
def test_links_of_a_dimension_of_a_machine_with_switches(count: int, shape: str) -> None:
    """Half the bandwidth between machines is the network that words with half the rate make; the machines stay."""
    found = cluster_step(f"{count}x hgx-h100 over 400G {shape}", "dim1.bandwidth=0.5x", backend="flow")
    half = cluster(f"{count}x hgx-h100 over 200G {shape}").network()
    links, wanted = found.changed.network.links, load_network(half).links
    assert links is not None
    assert wanted is not None
    assert [(x.src, x.dst, x.latency_ns) for x in links.links] == [
        (x.src, x.dst, x.latency_ns) for x in wanted.links
    ]
    assert [x.bandwidth_gibps for x in links.links] == pytest.approx(
        [x.bandwidth_gibps for x in wanted.links]
    )
    assert found.changed.finish_ns.max() > found.base.finish_ns.max()


def test_a_value_for_many_links_is_refused_with_a_way_out() -> None:
    with pytest.raises(UsageError, match=r"a factor on all of dimension 1, such as dim1.bandwidth=2x"):
        cluster_step("2x hgx-h100 over 400G rails of 64 ports", "dim1.bandwidth=25", backend="flow")


def host_bound() -> Workload:
    """100 us of the host; beside its first 60 us a kernel of 10 us, for which nothing waits."""
    work = Workload(4)

    def program(b: TraceBuilder) -> None:
        first = b.compute("issue", duration_micros=60, cpu=True)
        b.compute("kernel", duration_micros=10)
        b.compute("more", duration_micros=40, cpu=True, after=first)

    work.run(program, uniform=True)
    return work


def test_a_note_says_what_decides_a_step_that_does_not_follow() -> None:
    """Of the kernel's 10 us 5 are left, and then the host alone takes 95 of 100 us."""
    found = what_if(host_bound().traces(), SYSTEM, NETWORK, "accelerator.speed=2x")
    assert found.rows()[0] == ("step", 100_000, 100_000)
    assert found.notes == (
        "compute -0.005 ms, but the step only +0.000 ms: NPU 0, the last, waits for its host for 95.0 % of its time",
    )
    # where it follows, nothing is said
    assert what_if(host_bound().traces(), SYSTEM, NETWORK, "host.speed=2x").notes == ()
    assert what_if(traces(), SYSTEM, NETWORK, "npu.flops=2x").notes == ()
    # nor of less than a thousandth of the step: 0.09 of 100 us
    small = Workload(4)
    small.run(lambda b: (b.compute(duration_ns=180), b.compute(duration_micros=100, cpu=True)), uniform=True)
    assert what_if(small.traces(), SYSTEM, NETWORK, "accelerator.speed=2x").notes == ()


def test_a_run_without_an_accelerator_says_so() -> None:
    work = Workload(4)
    work.run(lambda b: b.compute(duration_micros=100, cpu=True), uniform=True)
    for change in ("accelerator.speed=2x", "npu.flops=2x"):
        [note] = what_if(work.traces(), SYSTEM, NETWORK, change).notes
        assert note == f"{change} changed nothing: no time of this run is one of an accelerator"


def test_notes_of_the_run_as_described_are_told_once() -> None:
    found = cluster_step("2x hgx-h100 over 400G", "dim1.bandwidth=0.5x")
    assert found.base.notes
    text = found.to_text()
    for note in found.base.notes:
        assert text.count(note) == 1
        start = "note" if note in found.changed.notes else "note, before"
        assert f"\n{start}: {note}\n" in text
    assert found.to_dict()["base_notes"] == found.base.notes


def test_times_have_units_and_the_row_of_the_host_is_explained() -> None:
    """A host of 100 us beside 1 MiB between two NPUs: 500 ns + 19,531 ns, at twice the bandwidth 500 ns + 9,765 ns.

    The host is alone for 100,000 - 20,031 = 79,969 ns, then for 100,000 - 10,265 = 89,735 ns.
    """
    job = Workload(2)
    first, second = job.builder(0), job.builder(1)
    first.send(1, size_bytes=1 << 20)
    second.recv(0, size_bytes=1 << 20)
    for builder in (first, second):
        builder.compute("kernel", duration_ns=1000)
        builder.compute("host", duration_micros=100, cpu=True)
    found = what_if(job, SYSTEM, {**NETWORK, "npus_count": [2]}, "dim0.bandwidth=2x")
    lines = found.to_text().splitlines()
    (cpu,) = [line for line in lines if line.startswith("cpu ")]
    (step,) = [line for line in lines if line.startswith("step ")]
    assert cpu.split() == ["cpu", "79.97", "µs", "89.73", "µs", "+9.766", "µs", "+12.2", "%"]
    assert step.split() == ["step", "100", "µs", "100", "µs", "+0", "ns", "+0.0", "%"]
    assert any(line.startswith("cpu: only the host is busy") for line in lines)
