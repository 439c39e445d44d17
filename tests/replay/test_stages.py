"""Stages of a pipeline in a result's document, and in the names of a timeline's ranks."""

from typing import Any

import pytest

from chakra.generate import TransformerRequest, build_workload
from chakra.replay import ReplayResult, simulate
from chakra.replay.results.stages import stages_of
from chakra.timeline import from_document

SIZES: dict[str, Any] = {
    "model": "", "layers": 4, "hidden": 32, "heads": 8, "ffn": 64, "vocabulary": 64, "seq": 32, "peak-tflops": 0.01,
    "mem-gbps": 10.0,
}  # fmt: skip
SYSTEM = {
    f"{kind}-implementation": ["ring"] for kind in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
}  # fmt: skip


def replayed(**options: Any) -> ReplayResult:
    workload = build_workload(TransformerRequest.from_mapping({**SIZES, **options}).plan())
    network = {"topology": ["Ring"], "npus_count": [workload.npus], "bandwidth": [50], "latency": [500]}
    return simulate(workload, SYSTEM, network)


@pytest.mark.parametrize("order", ["tp-cp-ep-dp-pp", "pp-dp-tp-cp-ep"])
def test_a_result_says_the_stage_of_every_npu(order: str) -> None:
    """Two stages of two ranks: neighbours where pipelines are outermost, every other one where they are innermost."""
    result = replayed(pp=2, dp=2, order=order, **{"micro-batches": 2})
    expected = ["0", "0", "1", "1"] if order.endswith("pp") else ["0", "1", "0", "1"]
    document = result.to_dict(nodes=True)
    assert document["stages"] == expected
    names = from_document(document).process_names
    assert names == {rank: f"rank {rank}, stage {stage}" for rank, stage in enumerate(expected)}


def test_parts_of_a_workload_stand_before_their_stages() -> None:
    more = {"decode-steps": 2, "decode-pp": 1, "decode-dp": 2, "micro-batches": 2}
    stages = replayed(mode="disaggregated", pp=2, **more).to_dict()["stages"]
    assert stages == ["prefill 0", "prefill 1", "decode 0", "decode 0"]


def test_one_stage_is_none() -> None:
    result = replayed(dp=2)
    assert "stages" not in result.to_dict()
    assert stages_of(result.workload) == []
