"""The selection of ASTRA-sim's figures that the repository carries."""

from pathlib import Path

import numpy as np
import pytest
from oracle_cases import Case, cases, difference

GOLDEN = cases(Path(__file__).resolve().parents[1] / "data" / "oracle")


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case.name)
def test_compat_gives_the_figures_of_astra_sim(case: Case) -> None:
    assert difference(case, case.run("astra-sim")) == ""


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case.name)
def test_default_differs_only_by_a_named_correction(case: Case) -> None:
    result = case.run(None)
    applied = set(result.corrections)
    if not applied - {"C9"}:
        assert difference(case, result, exposed="C9" not in applied) == ""
    total = np.sum(list(result.account.values()), axis=0)
    assert total.tolist() == result.finish_ns.tolist()


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case.name)
def test_folding_changes_nothing(case: Case) -> None:
    folded, unfolded = case.run("astra-sim"), case.run("astra-sim", fold=False)
    assert folded.finish_ns.tolist() == unfolded.finish_ns.tolist()
    for npu in range(folded.npus):
        for a, b in zip(folded.node_ticks(npu), unfolded.node_ticks(npu), strict=True):
            assert a.tolist() == b.tolist()
