"""Calibration from recordings of all ranks: what is measured, and recordings that must not be believed."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from recorded_job import Job, modelled_job

from chakra.calibrate.library_fit import mean_error
from chakra.calibrate.recorded_fit import fit_recorded
from chakra.calibrate.recordings import is_recording, read_recordings
from chakra.cli.commands.calibrate import command
from chakra.errors import ConversionError, UsageError
from chakra.platforms import collective_parameters
from chakra.replay.config.model import CollectiveKind as Kind

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


def some_collectives(job: Job) -> Job:
    """An all-reduce of 30 us for which rank 1 comes 5 ms late, twice, and an all-gather of 20 us."""
    job.collective("allreduce", 1000, [1000.0, 6000.0], 6030.0)
    job.collective("_allgather_base", 256, [7000.0, 6990.0], 7020.0)
    job.collective("allreduce", 1000, [8000.0, 8001.0], 8035.0)
    return job


def computing(job: Job, *, in_turn: bool) -> Job:
    """200 kernels of 8 us on two ranks: at the same times, or each when the other has none."""
    for number in range(200):
        for rank in (0, 1):
            job.kernel(rank, 10_000 + 20.0 * number + (10 * rank if in_turn else 2 * rank), 8.0)
    return job


def test_waiting_for_the_last_member_is_no_time_of_a_collective(tmp_path: Path) -> None:
    log = read_recordings([some_collectives(Job(2)).write(tmp_path / "job")])
    # bytes as nccl-tests count them: an all-gather ends with those of all
    assert [(m.kind, m.ranks, m.size_bytes, round(m.time_us, 3)) for m in log.measurements] == [
        (Kind.ALL_REDUCE, 2, 4000, 32.0),
        (Kind.ALL_GATHER, 2, 2048, 20.0),
    ]
    assert log.notes == ()


def test_kernels_in_turn_on_one_device_are_those_of_a_shared_gpu(tmp_path: Path) -> None:
    job = computing(some_collectives(Job(2, devices=[0, 0])), in_turn=True).write(tmp_path / "job")
    with pytest.raises(ConversionError, match=r"ranks 0, 1 share a GPU: their kernels take turns") as error:
        read_recordings([job])
    assert "\n" not in str(error.value)


def test_a_long_kernel_beside_others_does_not_hide_a_shared_gpu(tmp_path: Path) -> None:
    """A kernel that is interrupted is recorded from its first to its last turn."""
    job = computing(some_collectives(Job(2, devices=[0, 0])), in_turn=True)
    job.kernel(0, 11_000, 2_000, stream=8)
    with pytest.raises(ConversionError, match="share a GPU"):
        read_recordings([job.write(tmp_path / "job")])


@pytest.mark.parametrize(("devices", "in_turn"), [([0, 0], False), ([0, 1], True)])
def test_ranks_with_a_gpu_each_are_measured(tmp_path: Path, devices: list[int], in_turn: bool) -> None:
    """Every rank calls its own GPU 0 where it sees no other; pipeline stages of different GPUs compute in turn."""
    job = computing(some_collectives(Job(2, devices=devices)), in_turn=in_turn).write(tmp_path / "job")
    assert len(read_recordings([job]).measurements) == 2


def test_hosts_whose_clocks_differ_share_nothing_and_are_aligned(tmp_path: Path) -> None:
    job = Job(2, devices=[0, 0])
    job.ahead_us[1] = 3_000_000.0
    job.collective("allreduce", 1000, [1000.0, 1100.0], 1130.0)
    job.collective("allreduce", 1000, [2100.0, 2000.0], 2130.0)
    job.collective("allreduce", 1 << 20, [3000.0, 3001.0], 6000.0)
    log = read_recordings([computing(job, in_turn=True).write(tmp_path / "job")])
    assert "rank 1's clock is 3,000.0" in log.notes[0]
    # the clocks are known to within some 30 us: enough for 3 ms, not for 30 us
    assert [m.size_bytes for m in log.measurements] == [4 << 20]
    assert log.measurements[0].time_us == pytest.approx(2999, abs=40)
    assert (
        "2 collectives left out: clocks of its members are known too inexactly for so short a time"
        in log.notes[1]
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda job: job.events[1].__delitem__(slice(-2, None)), "unequal numbers of collectives"),
        (lambda job: job.collective("allreduce", 1, [9000.0, 9001.0], 9030.0, sizes=[7, 9]), "unequal shares"),
        (lambda job: job.collective("allreduce", 5, [8010.0, 8011.0], 8050.0, stream=10), "ran beside it"),
        (lambda job: job.collective("broadcast", 5, [9000.0, 9001.0], 9030.0), "broadcast is left out"),
        (lambda job: job.collective("allreduce", 0, [9000.0, 9001.0], 9030.0), "no bytes"),
    ],
)  # fmt: skip
def test_what_cannot_be_measured_is_left_out_and_said(tmp_path: Path, change: Any, message: str) -> None:
    job = some_collectives(Job(2))
    change(job)
    folder = job.write(tmp_path / "job")
    try:
        notes = "; ".join(read_recordings([folder]).notes)
    except ConversionError as error:
        notes = str(error)
    assert message in notes


def test_recordings_of_all_members_are_needed(tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match="recordings of 1 of its 2 members"):
        read_recordings([some_collectives(Job(2)).write(tmp_path / "job", [0])])


def test_few_sizes_scale_a_known_machine_and_tell_a_collective_that_was_not_seen(tmp_path: Path) -> None:
    log = read_recordings([modelled_job([1 << 10, 1 << 16, 1 << 24]).write(tmp_path / "job")])
    fit = fit_recorded(log.measurements, collective_parameters("hgx-h100"), source="job")
    assert mean_error(fit.times) < 0.01
    unseen = {split.name: split.times for split in fit.splits}
    assert {t.measurement.kind for t in unseen["all_reduce"]} == {Kind.ALL_REDUCE}
    assert mean_error(unseen["all_reduce"]) < 0.02
    assert mean_error(unseen["all_to_all"]) < 0.02
    assert fit.machine.evidence.status == "fitted"
    assert "scaled" in fit.machine.evidence.source


def test_many_sizes_have_costs_of_their_own_and_are_held_out_by_collective_too(tmp_path: Path) -> None:
    log = read_recordings([modelled_job([1 << power for power in range(10, 28, 2)]).write(tmp_path / "job")])
    fit = fit_recorded(log.measurements, collective_parameters("hgx-h100"))
    assert mean_error(fit.times) < 0.02
    assert [split.name for split in fit.splits] == ["every second size", "all_reduce", "all_to_all"]


def calibrate(*arguments: str) -> Any:
    return CliRunner().invoke(command, arguments)


def test_the_command_fits_a_machine_without_costs_and_writes_costs_that_run(tmp_path: Path) -> None:
    job = str(modelled_job([1 << 10, 1 << 16, 1 << 24]).write(tmp_path / "job"))
    out = tmp_path / "costs.yml"
    made = calibrate(job, "--library", "v100-nvlink", "-o", str(out))
    assert made.exit_code == 0, made.output
    assert "without all_to_all" in made.stdout
    assert calibrate(job, "--library", str(out)).exit_code == 0
    made = calibrate(job, "--ranks", "8")
    assert isinstance(made.exception, UsageError)
    assert "recordings say it themselves" in str(made.exception)
    assert not is_recording(tmp_path / "none")


@pytest.mark.shared
@pytest.mark.parametrize(("job", "ranks"), [("ddp", "0, 1"), ("fsdp", "0, 1, 2, 3"), ("pp", "0, 1")])
def test_recorded_jobs_on_one_gpu_are_refused(job: str, ranks: str) -> None:
    with pytest.raises(ConversionError, match=f"ranks {ranks} share a GPU"):
        read_recordings([DATA / "h200"], job=job)


@pytest.mark.shared
@pytest.mark.parametrize("folder", ["pairs", "derived"])
def test_a_recorded_job_on_eight_gpus_tells_the_kind_that_was_left_out(folder: str) -> None:
    """V100, one host: 8 collectives, of which the source's clock resolves 1 us."""
    log = read_recordings([DATA / folder], job="dlrm8")
    assert [(m.kind, m.size_bytes, m.time_us) for m in log.measurements] == [
        (Kind.ALL_REDUCE, 448, 23), (Kind.ALL_REDUCE, 907840, 69), (Kind.ALL_REDUCE, 1576964, 87),
        (Kind.ALL_TO_ALL, 192, 8), (Kind.ALL_TO_ALL, 1536, 8), (Kind.ALL_TO_ALL, 13568, 8), (Kind.ALL_TO_ALL, 24576, 11),
    ]  # fmt: skip
    fit = fit_recorded(log.measurements, collective_parameters("v100-nvlink"))
    unseen = {split.name: mean_error(split.times) for split in fit.splits}
    assert mean_error(fit.times) < 0.12
    assert unseen["all_reduce"] < 0.27
    assert unseen["all_to_all"] < 0.38
    assert unseen["every second size"] < 0.16
