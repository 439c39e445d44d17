"""Calibration: logs made by the replay itself from known parameters give these parameters back."""

import random
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from chakra.calibrate import CostModel, calibrate, modelled_ns, read_log
from chakra.cli.commands.calibrate import command
from chakra.errors import ConversionError, ThresholdError, UsageError
from chakra.et import CommType, NodeType, TraceColumns
from chakra.replay import simulate
from chakra.replay.config.model import CollectiveKind, Topology

PROGRAMS = {
    CollectiveKind.ALL_REDUCE: "all_reduce",
    CollectiveKind.ALL_GATHER: "all_gather",
    CollectiveKind.REDUCE_SCATTER: "reduce_scatter",
    CollectiveKind.ALL_TO_ALL: "alltoall",
}
SIZES = [1 << k for k in range(10, 31, 2)]


def replayed_us(kind: CollectiveKind, ranks: int, size: int, **machine: Any) -> float:
    """Time that the replay gives a collective of nccl-tests' ``size``."""
    columns = TraceColumns(1)
    columns.types[:] = NodeType.COMM_COLL
    columns.set_bool("is_cpu_op", False)
    columns.set_int("comm_type", CommType[kind.value].value)
    columns.set_int("comm_size", size // ranks if kind is CollectiveKind.ALL_GATHER else size)
    algorithm = machine.get("algorithm", "ring")
    system = {
        "endpoint-delay": machine["delay"],
        "preferred-dataset-splits": machine.get("splits", 1),
        "local-mem-bw": machine.get("local_mem_bw", 0),
        **{
            f"{name}-implementation": [algorithm]
            for name in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
        },
    }
    network = {
        "topology": [machine.get("topology", "Switch")],
        "npus_count": [ranks],
        "bandwidth": [machine["bandwidth"]],
        "latency": [machine["latency"]],
    }
    trace = columns.build()
    return float(simulate([trace] * ranks, system, network).finish_ns.max()) / 1000


def log_text(kind: CollectiveKind, ranks: int, times: dict[int, float], *, old: bool = False) -> str:
    """The text that nccl-tests prints for these times (µs)."""
    lines = [
        "# nThread 1 nGpus 8 minBytes 8 maxBytes 1 step: 2(factor) warmup iters: 5 iters: 20",
        "#",
        "# Using devices",
    ]
    if not old:
        lines.insert(0, f"# Collective test starting: {PROGRAMS[kind]}_perf")
    lines += [
        f"#  Rank {r:2d} Group  0 Pid  100 on node device {r:2d} [0x00] NVIDIA H100" for r in range(ranks)
    ]
    lines += [
        "#",
        "#                                                              out-of-place                       in-place",
        "#       size         count      type   redop    root" + 2 * "     time   algbw   busbw #wrong",
        "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)",
    ]
    for size, time in times.items():
        share = (2 if kind is CollectiveKind.ALL_REDUCE else 1) * (ranks - 1) / ranks
        values = [f"{t:8.3f} {size / t / 1e3:7.2f} {size / t / 1e3 * share:7.2f} 0" for t in (time, 2 * time)]
        lines.append(f"{size:12d} {size // 4:13d}     float     sum      -1 {' '.join(values)}")
    return "\n".join([*lines, "# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 1", ""])


def write_log(folder: Path, kind: CollectiveKind, ranks: int, noise: float = 0.0, **machine: Any) -> Path:
    rng = random.Random(7)
    times = {
        size: replayed_us(kind, ranks, size, **machine) * (1 + rng.uniform(-noise, noise)) for size in SIZES
    }
    path = folder / f"{PROGRAMS[kind]}_{ranks}.log"
    path.write_text(log_text(kind, ranks, times))
    return path


@pytest.mark.parametrize("algorithm", ["ring", "halvingDoubling", "direct1"])
@pytest.mark.parametrize("topology", list(Topology))
@pytest.mark.parametrize("kind", list(PROGRAMS))
@pytest.mark.parametrize(("splits", "local_mem_bw"), [(1, 0), (4, 0), (1, 500.0)])
def test_the_cost_model_is_the_replay(
    algorithm: str, topology: Topology, kind: CollectiveKind, splits: int, local_mem_bw: float
) -> None:
    no_exchange = algorithm == "halvingDoubling" and kind is CollectiveKind.ALL_TO_ALL
    if no_exchange or (algorithm != "ring" and topology is Topology.RING):
        with pytest.raises(UsageError, match=algorithm):
            modelled_ns(
                CostModel(topology, algorithm), kind, 8, 8, latency_ns=1, bytes_per_ns=1, endpoint_delay_ns=1
            )
        return
    model = CostModel(topology, algorithm, splits, local_mem_bw)
    size = 1 << 22
    bandwidth = 40.0
    ours = modelled_ns(
        model, kind, 8, size, latency_ns=700, bytes_per_ns=bandwidth * (1 << 30) / 1e9, endpoint_delay_ns=30
    )
    theirs = replayed_us(
        kind, 8, size, delay=30, latency=700, bandwidth=bandwidth, algorithm=algorithm, topology=topology.value,
        splits=splits, local_mem_bw=local_mem_bw,
    )  # fmt: skip
    assert ours / 1000 == pytest.approx(theirs, rel=0 if not local_mem_bw else 2e-3)


@pytest.mark.parametrize(("noise", "tolerance"), [(0.0, 0.002), (0.02, 0.03), (0.05, 0.06)])
def test_known_parameters_come_back_from_two_collectives(
    tmp_path: Path, noise: float, tolerance: float
) -> None:
    machine = {"latency": 900.0, "bandwidth": 370.0, "delay": 400}
    logs = [
        write_log(tmp_path, kind, ranks, noise, **machine)
        for kind in (CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER)
        for ranks in (2, 8)
    ]
    fitted = calibrate([m for log in logs for m in read_log(log)], CostModel())
    assert fitted.ranks == 8
    assert fitted.delay_fitted
    assert fitted.bandwidth_gibps == pytest.approx(370, rel=tolerance)
    # delay and latency are told apart by the number of steps only; their sum per step is well determined
    assert 2 * fitted.latency_ns + fitted.endpoint_delay_ns == pytest.approx(2200, rel=tolerance)
    if not noise:
        assert fitted.endpoint_delay_ns == pytest.approx(400, abs=8)
        assert fitted.mean_error < 0.001
    assert fitted.mean_error <= noise + 0.001


def test_one_collective_keeps_the_endpoint_delay(tmp_path: Path) -> None:
    log = write_log(tmp_path, CollectiveKind.ALL_REDUCE, 8, latency=500.0, bandwidth=50.0, delay=10)
    fitted = calibrate(read_log(log), CostModel())
    assert (fitted.delay_fitted, fitted.endpoint_delay_ns) == (False, 10)
    assert fitted.latency_ns == pytest.approx(500, abs=0.6)
    assert fitted.bandwidth_gibps == pytest.approx(50, rel=1e-4)


def test_outliers_hardly_move_the_fit(tmp_path: Path) -> None:
    log = write_log(tmp_path, CollectiveKind.ALL_REDUCE, 8, latency=500.0, bandwidth=50.0, delay=10)
    measurements = read_log(log)
    spoiled = [
        m if i not in (2, 7) else type(m)(m.kind, m.ranks, m.size_bytes, 3 * m.time_us, m.source)
        for i, m in enumerate(measurements)
    ]
    fitted = calibrate(spoiled, CostModel())
    assert fitted.bandwidth_gibps == pytest.approx(50, rel=0.05)


def test_reductions_are_taken_out_when_their_bandwidth_is_known(tmp_path: Path) -> None:
    log = write_log(
        tmp_path, CollectiveKind.ALL_REDUCE, 8, latency=500.0, bandwidth=50.0, delay=10, local_mem_bw=800.0
    )
    fitted = calibrate(read_log(log), CostModel(local_mem_bw_gbps=800.0))
    assert fitted.bandwidth_gibps == pytest.approx(50, rel=2e-3)


def test_log_columns_and_in_place(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text(log_text(CollectiveKind.ALL_GATHER, 4, {1024: 11.5, 2048: 12.5}))
    assert [(m.kind, m.ranks, m.size_bytes, m.time_us) for m in read_log(path)] == [
        (CollectiveKind.ALL_GATHER, 4, 1024, 11.5),
        (CollectiveKind.ALL_GATHER, 4, 2048, 12.5),
    ]
    assert [m.time_us for m in read_log(path, in_place=True)] == [23.0, 25.0]


def test_several_programs_in_one_log(tmp_path: Path) -> None:
    path = tmp_path / "all.log"
    path.write_text(
        log_text(CollectiveKind.ALL_REDUCE, 8, {1024: 1.0})
        + log_text(CollectiveKind.ALL_TO_ALL, 4, {2048: 2.0})
    )
    assert [(m.kind, m.ranks) for m in read_log(path)] == [
        (CollectiveKind.ALL_REDUCE, 8),
        (CollectiveKind.ALL_TO_ALL, 4),
    ]


def test_old_logs_need_the_collective_or_a_name(tmp_path: Path) -> None:
    text = log_text(CollectiveKind.ALL_REDUCE, 8, {1024: 1.0}, old=True)
    path = tmp_path / "run.log"
    path.write_text(text)
    with pytest.raises(ConversionError, match="cannot tell which collective this is; give --collective"):
        read_log(path)
    assert read_log(path, kind=CollectiveKind.ALL_REDUCE)[0].kind is CollectiveKind.ALL_REDUCE
    named = tmp_path / "reduce_scatter_8.log"
    named.write_text(log_text(CollectiveKind.REDUCE_SCATTER, 8, {1024: 1.0}, old=True))
    assert read_log(named)[0].kind is CollectiveKind.REDUCE_SCATTER


@pytest.mark.parametrize(("text", "message"), [
    ("", "no measurements"),
    ("hello\n1 2 3\n", "no measurements"),
    ("# all_reduce_perf\n64 16 float sum -1 5.0 0.01 0.02 0 5.0 0.01 0.02 0\n", "cannot tell how many ranks"),
    (
        "# all_reduce_perf\n# Rank 0 x\n# Rank 1 x\n" + 2 * "1024 256 float sum -1 N/A 1 1 0 5.0 1 1 0\n",
        "x.log: line 4, line 5: time and bandwidths contradict each other or are missing in 2 of 2 rows",
    ),
    ("\x00\xff" * 50, "no measurements"),
    (
        "# all_reduce_perf\n# Rank 0 x\n# Rank 1 x\n18446744073709551616 256 float sum -1 5.0 1 1 0 5.0 1 1 0\n",
        "x.log: line 4: a size must be below",
    ),
])  # fmt: skip
def test_wrong_logs_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "x.log"
    path.write_text(text)
    with pytest.raises(ConversionError, match=message):
        read_log(path)


def test_times_that_do_not_grow_give_no_bandwidth(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text(log_text(CollectiveKind.ALL_REDUCE, 8, dict.fromkeys(SIZES, 10.0)))
    with pytest.raises(ConversionError, match="do not grow with size"):
        calibrate(read_log(path), CostModel())
    with pytest.raises(ConversionError, match="at least two sizes"):
        calibrate(read_log(path)[:1], CostModel())


def test_the_command_writes_files_that_replay_to_the_measured_times(tmp_path: Path) -> None:
    log = write_log(tmp_path, CollectiveKind.ALL_REDUCE, 8, latency=500.0, bandwidth=50.0, delay=10)
    network, system = tmp_path / "n.yml", tmp_path / "s.json"
    result = CliRunner().invoke(command, [str(log), "-o", str(network), "--system", str(system)])
    assert result.exit_code == 0, result.output
    assert "mean error     0.0" in result.output
    columns = TraceColumns(1)
    columns.types[:] = NodeType.COMM_COLL
    columns.set_bool("is_cpu_op", False)
    columns.set_int("comm_type", 0)
    columns.set_int("comm_size", 1 << 20)
    ours = simulate([columns.build()] * 8, str(system), str(network)).finish_ns.max() / 1000
    assert ours == pytest.approx(next(m.time_us for m in read_log(log) if m.size_bytes == 1 << 20), rel=2e-3)


def test_a_bad_fit_can_be_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    times = {size: 10.0 + (size / 1e5) ** 0.5 for size in SIZES}
    path.write_text(log_text(CollectiveKind.ALL_REDUCE, 8, times))
    result = CliRunner().invoke(command, [str(path), "--max-error", "1"])
    assert isinstance(result.exception, ThresholdError)
