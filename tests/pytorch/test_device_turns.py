"""Ranks that share an accelerator: what waits for another rank's turn on it says so."""

import gzip
import json
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from mini_job import MiniJob

from chakra.converters.pytorch import Settings, convert_job, find_inputs
from chakra.converters.pytorch.all_ranks.device_turns import Occupied, sharers
from chakra.converters.pytorch.all_ranks.shared_devices import NEIGHBOURS, DeviceUse, neighbours, sharing
from chakra.converters.pytorch.link import LinkOptions
from chakra.converters.pytorch.ranks import JobResult
from chakra.et import Trace, read_trace
from chakra.et.idle_nodes import TURN
from chakra.et.trace_summary import summarize
from chakra.replay import simulate
from chakra.replay.workload.recorded import accelerator_time, host_time

#: short kernels of each rank
SHORT = 40


def rank(begin: float, late: float, long: float = 0.0) -> MiniJob:
    """Short kernels of 50 us every 100 us, a long one at 4,000, one launched at 4,010 that begins at 4,015 + `late`."""
    job = MiniJob()
    for k in range(SHORT):
        job.op("op", begin + 100 * k, 20)
        job.call("cudaLaunchKernel", begin + 100 * k + 5, 5, 1 + k)
        job.kernel("short", begin + 100 * k + 10, 45, 1 + k)
    job.op("last", 4000, 10)
    if long:
        job.call("cudaLaunchKernel", 4001, 2, 900)
        job.kernel("long", 4015, long, 900, stream=9)
    job.call("cudaLaunchKernel", 4004, 5, 901)
    job.kernel("awaited", 4015 + late, 60, 901)
    job.op("end", 4040, max(late, long) + 100)
    job.call("cudaDeviceSynchronize", 4045, max(late, long) + 60, 902)
    return job


def converted(
    folder: Path, ranks: list[MiniJob], settings: Settings | None = None
) -> tuple[JobResult, list[Trace]]:
    (folder / "in").mkdir()
    for number, job in enumerate(ranks):
        job.write(folder / "in", f"job.rank{number}")
    result = convert_job(
        find_inputs(folder / "in"), folder / "job", settings or Settings(), check=True, jobs=1
    )
    return result, [read_trace(folder / f"job.{number}.et") for number in range(len(ranks))]


def named(trace: Trace, name: str) -> list[int]:
    """Places of the nodes of a name."""
    return [row for row in range(trace.n_nodes) if trace.name_table[int(trace.name_codes[row])] == name]


def turns(trace: Trace) -> list[int]:
    """Durations of the nodes that are another rank's turn, ns."""
    return [int(value) for value in trace.durations_ns()[named(trace, TURN)]]


def test_a_kernel_that_waits_for_another_ranks_turn(tmp_path: Path) -> None:
    """It could begin at 4,010 and begins at 5,015; from 4,015 on the other rank's kernel takes 900 us: its turn."""
    result, traces = converted(tmp_path, [rank(0, 10, 900), rank(50, 1000)])
    first, second = (outcome.summary for outcome in result.outcomes)
    assert turns(traces[0]) == []
    assert turns(traces[1]) == [900_000]
    assert second["held_by_other_ranks_ns"] == 900_000
    assert second["nodes"]["turns of other ranks"] == 1
    assert first["held_by_other_ranks_ns"] == 0
    assert second["measured_span_ns"] - second["explained_span_ns"] < 150_000
    for outcome in result.outcomes:
        assert outcome.check is not None
        assert outcome.check.error == 0
        assert outcome.summary["self_check"] == []


@pytest.mark.parametrize("apart", [1, NEIGHBOURS, NEIGHBOURS + 1])
def test_ranks_far_apart_in_number_are_on_other_hosts_also_if_none_between_was_recorded(apart: int) -> None:
    """Waits of converted jobs and times of calibrations take the same ranks for those of one host."""

    def of(rank: int, first: int) -> Occupied:
        begins = np.arange(first, first + 40 * 100_000, 100_000)
        return Occupied(rank, {}, DeviceUse(rank, {0: (begins, begins + 45_000)}), late=rank == 0)

    one, other = of(0, 0), of(apart, 50_000)
    assert sharers([other, one]) == ({0: [other]} if apart <= NEIGHBOURS else {})
    pairs = neighbours([one.rank, other.rank])
    assert sharing([one.short, other.short], pairs) == ([0, apart] if apart <= NEIGHBOURS else [])


def test_the_wait_itself_was_fitted_before(tmp_path: Path) -> None:
    """Alone, a recording does not say why its kernel was late."""
    result, traces = converted(tmp_path, [rank(50, 1000)])
    summary = result.outcomes[0].summary
    assert turns(traces[0]) == []
    assert summary["measured_span_ns"] - summary["explained_span_ns"] > 1_000_000


@pytest.mark.parametrize("begin", [0.0, 20.0])
def test_ranks_whose_kernels_run_side_by_side_have_accelerators_of_their_own(
    begin: float, tmp_path: Path
) -> None:
    result, traces = converted(tmp_path, [rank(0, 10, 900), rank(begin, 1000)])
    assert [turns(trace) for trace in traces] == [[], []]
    assert [outcome.summary["held_by_other_ranks_ns"] for outcome in result.outcomes] == [0, 0]


def test_little_of_the_time_is_no_turn(tmp_path: Path) -> None:
    """The other rank's kernel fills a tenth of the lateness: the reason is another."""
    _, traces = converted(tmp_path, [rank(0, 10, 100), rank(50, 1000)])
    assert turns(traces[1]) == []


@pytest.mark.parametrize(
    "link", [LinkOptions(deps="tensors"), LinkOptions(gaps="drop"), LinkOptions(gpu_only=True)]
)
def test_graphs_without_the_order_or_the_time_of_streams_have_none(link: LinkOptions, tmp_path: Path) -> None:
    _, traces = converted(tmp_path, [rank(0, 10, 900), rank(50, 1000)], Settings(link=link))
    assert turns(traces[1]) == []


def test_without_a_clock_nobody_knows_what_ran_at_the_same_time(tmp_path: Path) -> None:
    """Both count from their first event, which here is the same time: with a clock the second one waits for a turn."""
    for clock, found in ((True, [900_000]), (False, [])):
        ranks = [rank(0, 10, 900), rank(50, 1000)]
        ranks[1].op("first", 0, 10)
        if not clock:
            for job in ranks:
                del job.header["baseTimeNanoseconds"]
        (tmp_path / str(clock)).mkdir()
        _, traces = converted(tmp_path / str(clock), ranks)
        assert turns(traces[1]) == found


def test_a_turn_is_neither_the_hosts_time_nor_the_accelerators(tmp_path: Path) -> None:
    _, traces = converted(tmp_path, [rank(0, 10, 900), rank(50, 1000)])
    trace = traces[1]
    rows = named(trace, TURN)
    assert len(rows) == 1
    assert not host_time(trace)[rows].any()
    assert not accelerator_time(trace)[rows].any()
    # 40 kernels of 45 us, and one of 60
    assert summarize(trace).accelerator_compute_ns == 1_860_000


def test_a_replay_does_not_count_a_turn_as_computing(tmp_path: Path) -> None:
    """By recorded times it lasts, and nothing of the rank runs in it; ASTRA-sim takes it for a kernel."""
    _, traces = converted(tmp_path, [rank(0, 10, 900), rank(50, 1000)])
    network = {"topology": ["Ring"], "npus_count": [2], "bandwidth": [50.0], "latency": [500.0]}
    ours, astra = (
        simulate(traces, {"replay-only": True}, network, compat=compat) for compat in (None, "astra-sim")
    )
    assert ours.account["compute_ns"].tolist() == [
        40 * 45_000 + 900_000,
        1_860_000,
    ]  # of rank 0 the last runs beside
    assert ours.finish_ns[1] > 4_015_000 + 900_000
    assert astra.to_dict()["statistics"]["gpu_ns"][1] == 1_860_000 + 900_000


def computed_ns(recording: Path | None) -> int:
    """Time of the kernels and copies of a recording that are no communication, one by one."""
    assert recording is not None
    events = json.loads(gzip.decompress(recording.read_bytes()), parse_float=Decimal)["traceEvents"]
    device = [event for event in events if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    return sum(int(event["dur"] * 1000) for event in device if "nccl" not in event["name"])


@pytest.mark.shared
@pytest.mark.parametrize(("job", "least"), [("ddp", 99.6), ("fsdp", 99.7), ("pp", 99.0)])
def test_recorded_jobs_that_share_a_gpu(job: str, least: float, shared: Path, tmp_path: Path) -> None:
    """Explained shares are 98.5, 93.4 and 97.1 % in version 0.1.0; each rank replays as recorded, and all together."""
    inputs = find_inputs(shared / "data" / "h200", job)
    result = convert_job(inputs, tmp_path / job, Settings(), check=True, jobs=1)
    assert min(outcome.summary["explained_percent"] for outcome in result.outcomes) > least
    assert result.together_error is not None
    assert abs(result.together_error) < 0.005
    for outcome, files in zip(result.outcomes, inputs, strict=True):
        written = summarize(read_trace(tmp_path / f"{job}.{outcome.rank}.et"))
        assert written.accelerator_compute_ns == computed_ns(files.device)
        assert outcome.check is not None
        assert abs(outcome.check.error) < 1e-4
        assert outcome.summary["self_check"] == []
