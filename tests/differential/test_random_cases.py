"""The random cases: a seed is a case for good, and both engines agree on them where ASTRA-sim is not at hand."""

from pathlib import Path

import pytest
import random_cases
from oracle_cases import Case

from chakra.errors import StallError, WorkloadError

RECORDED = sorted((Path(__file__).parents[1] / "data" / "oracle").glob("r0*"))


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda folder: folder.name)
def test_a_recorded_case_is_the_one_of_its_seed(recorded: Path, tmp_path: Path) -> None:
    case = random_cases.make(int(recorded.name[1:8]))
    case.write(tmp_path / case.name)
    made = {path.relative_to(tmp_path / case.name) for path in (tmp_path / case.name).rglob("*.*")}
    assert made | {Path("expected.json")} == {path.relative_to(recorded) for path in recorded.rglob("*.*")}
    assert all((recorded / path).read_bytes() == (tmp_path / case.name / path).read_bytes() for path in made)


@pytest.mark.parametrize("seed", range(70_000, 70_040))
def test_both_engines_agree(seed: int, tmp_path: Path) -> None:
    """The engine that is chosen and the one that simulates every message: equal ticks, or the same kind of error."""
    made = random_cases.make(seed)
    made.write(tmp_path / made.name)
    case = Case(tmp_path / made.name)
    try:
        chosen = case.run("astra-sim")
    except (WorkloadError, StallError) as error:
        with pytest.raises(type(error)):
            case.run("astra-sim", engine="messages")
        return
    every = case.run("astra-sim", engine="messages")
    assert chosen.finish_ns.tolist() == every.finish_ns.tolist()
    for npu in range(chosen.npus):
        for a, b in zip(chosen.node_ticks(npu), every.node_ticks(npu), strict=True):
            assert a.tolist() == b.tolist()
