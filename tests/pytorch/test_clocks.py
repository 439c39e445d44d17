"""Clocks of two hosts: compared by common collectives, corrected where they cannot be one, and said."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mini_job import MiniJob, collective

from chakra.converters.pytorch.all_ranks.agreement import RankPart
from chakra.converters.pytorch.all_ranks.clocks import compare_clocks
from chakra.converters.pytorch.comm.group_numbers import GroupNumbers
from chakra.converters.pytorch.comm.operations import ProcessGroups
from chakra.converters.pytorch.job import Inputs, Settings
from chakra.converters.pytorch.ranks import JobResult, convert_job
from chakra.et import CommType, read_trace

BASE_NS = 10**18


def job_of(folder: Path, ahead_ns: list[int], late_us: int = 0) -> JobResult:
    """Ranks that all-reduce at 1,000 and at 3,000 us of the common time, the last one that much later than the others.

    Rank 0's kernels wait for the latest; each file has its own clock.
    """
    inputs = []
    for rank, ahead in enumerate(ahead_ns):
        job = MiniJob()
        job.header |= {
            "baseTimeNanoseconds": BASE_NS + ahead,
            "distributedInfo": {"rank": rank, "world_size": len(ahead_ns)},
        }
        late = late_us if rank == len(ahead_ns) - 1 else 0
        job.op("first", 100, 50)
        for number, start in ((1, 1000), (2, 3000)):
            begin, end = start + late, start + late_us + 200
            collective(job, "allreduce", begin - 60, number, elements=64)
            job.events[-1] |= {"ts": begin, "dur": end - begin}
        job.op("last", 4000, 10)
        host, device = job.write(folder, f"job.rank{rank}")
        inputs.append(Inputs(host, device, rank=rank))
    return convert_job(inputs, folder / "job", Settings(), jobs=1)


def begins(folder: Path, ranks: int) -> list[int]:
    """When the windows of the written traces begin, after the first rank's."""
    out = []
    for rank in range(ranks):
        metadata = read_trace(folder / f"job.{rank}.et").metadata
        out += [a.int64_val - BASE_NS for a in metadata.attr if a.name == "base_time_ns"]
    return [time - out[0] for time in out]


def test_clocks_that_agree_stay(tmp_path: Path) -> None:
    """A rank may be late by any time: its collectives last less, and no bound is crossed."""
    result = job_of(tmp_path, [0, 0], late_us=900)
    assert result.clock_notes == []
    assert begins(tmp_path, 2) == [0, 0]


@pytest.mark.parametrize("ahead", [3_200_000_000, -700_000, 86_400 * 10**9])
def test_a_clock_that_is_ahead_is_put_back(ahead: int, tmp_path: Path) -> None:
    """Collectives of 200 us that end together: known to within 200 us, and right here."""
    result = job_of(tmp_path, [0, ahead])
    assert len(result.clock_notes) == 1
    assert f"rank 1's clock is {ahead / 1e6:,.3f} ms ahead of rank 0's" in result.clock_notes[0]
    assert "2 common collectives, to within 200.0 us" in result.clock_notes[0]
    assert begins(tmp_path, 2) == [0, 0]


def test_ranks_of_one_host_are_put_back_alike(tmp_path: Path) -> None:
    """Two hosts of two ranks each."""
    result = job_of(tmp_path, [0, 0, 10**9, 10**9])
    assert len(result.clock_notes) == 2
    assert begins(tmp_path, 4) == [0, 0, 0, 0]


def test_recordings_of_two_runs_are_not_aligned(tmp_path: Path) -> None:
    """Collectives that are nearer to each other on one rank than on the other fit no difference."""
    job_of(tmp_path, [0, 0])
    path = tmp_path / "job.rank1.kineto.json"
    document = json.loads(path.read_text())
    for event in document["traceEvents"]:
        event["ts"] *= 3
    path.write_text(json.dumps(document))
    inputs = [Inputs(device=tmp_path / f"job.rank{rank}.kineto.json") for rank in (0, 1)]
    result = convert_job(inputs, tmp_path / "job", Settings(), jobs=1)
    assert len(result.clock_notes) == 1
    assert "fit no common difference" in result.clock_notes[0]


@given(st.data())
def test_every_clock_is_known_to_within_what_is_said(data: st.DataObject) -> None:
    """Jobs of any groups: a rank's difference is right to within its bounds, however long members waited."""
    ranks = data.draw(st.integers(2, 6))
    ahead = [0, *(data.draw(st.sampled_from([0, 10**9, -(10**8), 10**18])) for _ in range(ranks - 1))]
    subsets = st.lists(st.sampled_from(range(ranks)), min_size=1, unique=True).map(sorted)
    members = [list(range(ranks)), *data.draw(st.lists(subsets, max_size=3))]
    calls: list[list[tuple[str, int, int, int]]] = [[] for _ in range(ranks)]
    times: list[list[tuple[int, int]]] = [[] for _ in range(ranks)]
    now = BASE_NS
    order = data.draw(st.lists(st.sampled_from(range(len(members))), max_size=8))
    for number in [0, *order]:
        begins = {rank: now + data.draw(st.integers(0, 10**6)) for rank in members[number]}
        now = max(begins.values()) + data.draw(st.integers(0, 10**5))
        for rank, begin in begins.items():
            end = now + data.draw(st.integers(0, 10**3))
            on_device = number == 0 or data.draw(st.booleans())
            calls[rank].append((str(number), int(CommType.ALL_REDUCE), 4, end - begin))
            times[rank].append((begin + ahead[rank], end + ahead[rank] if on_device else -1))
    groups = ProcessGroups({str(k): tuple(ranks) for k, ranks in enumerate(members)}, ranks)
    parts = [RankPart(rank, groups, [], calls[rank], [], {}, "", "", times[rank]) for rank in range(ranks)]
    found = compare_clocks(data.draw(st.permutations(parts)), GroupNumbers([("", groups)]))
    assert not found.unfit
    for rank in range(ranks):
        assert abs(found.ahead_ns[rank] - ahead[rank]) <= found.within_ns[rank]
