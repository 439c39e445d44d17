"""Collectives with unequal shares: said where they are found, since a replay refuses them."""

from pathlib import Path

import pytest
from mini_job import MiniJob, collective

from chakra.converters.pytorch.job import Inputs, Settings
from chakra.converters.pytorch.ranks import convert_job
from chakra.errors import ThresholdError


def inputs(folder: Path, elements: list[int], name: str) -> list[Inputs]:
    """Ranks of one collective each, to which each brings some elements."""
    out = []
    for rank, count in enumerate(elements):
        job = MiniJob()
        job.header["distributedInfo"] = {"rank": rank, "world_size": len(elements)}
        collective(job, name, 0, 1, elements=count)
        host, device = job.write(folder, f"job.rank{rank}")
        out.append(Inputs(host, device, rank=rank))
    return out


@pytest.mark.parametrize("name", ["all_to_allv", "_allgather_base"])
def test_unequal_shares_are_said(name: str, tmp_path: Path) -> None:
    """A line for the job, exit code 4 with --strict; equal shares are none."""
    given = inputs(tmp_path, [100, 300], name)
    result = convert_job(given, tmp_path / "job", Settings(), jobs=1)
    assert len(result.mismatches) == 1
    assert (
        "has unequal shares: 400 bytes on rank 0, 1,200 on rank 1; a replay refuses it"
        in result.mismatches[0]
    )
    with pytest.raises(ThresholdError, match="unequal shares"):
        convert_job(given, tmp_path / "job", Settings(strict=True), jobs=1)
    equal = inputs(tmp_path, [100, 100], name)
    assert convert_job(equal, tmp_path / "job", Settings(strict=True), jobs=1).mismatches == []


def test_a_root_may_have_more(tmp_path: Path) -> None:
    """Scatter: sizes differ because only the root brings something."""
    assert (
        convert_job(inputs(tmp_path, [400, 100], "scatter"), tmp_path / "job", Settings(), jobs=1).mismatches
        == []
    )
