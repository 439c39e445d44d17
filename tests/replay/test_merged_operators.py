"""Nodes that stand for operators of several families, as merged ones do: each family has its share of the time."""

import json
from pathlib import Path
from typing import Any

import pytest

from chakra.builder import TraceBuilder
from chakra.compare import Source, compare, difference_text, read_source
from chakra.errors import WorkloadError
from chakra.et import Trace
from chakra.et.families import FAMILIES
from chakra.generate import TransformerRequest, build_workload
from chakra.platforms import cluster
from chakra.replay import simulate
from chakra.replay.compute import compute_parameters, operator_ns
from chakra.replay.compute.shares import family_shares

SYSTEM = cluster("hgx-h100").system()
NETWORK = {"topology": ["Switch"], "npus_count": [1], "bandwidth": [400], "latency": [500]}
PRODUCT = "gemm m=4096 n=4096 k=4096"
NORM = "norm elements=16777216 bytes=67108864"


def merged(duration_ns: int | None = None) -> Trace:
    """One node that computes a norm and then two products."""
    builder = TraceBuilder()
    builder.compute(
        "merged", duration_ns=duration_ns, num_ops=1, attrs={"operator": f"{NORM} + 2 * {PRODUCT}"}
    )
    return builder.build()


def finish(trace: Trace, **options: Any) -> int:
    return int(simulate([trace], SYSTEM, NETWORK, **options).finish_ns[0])


def alone(text: str, machine: str = "hgx-h100") -> float:
    return float(operator_ns([text], compute_parameters(machine))[0])


def test_a_family_takes_its_own_part() -> None:
    """The parts are the times that the operators take by themselves; others than the chosen one stay."""
    norm, products = alone(NORM), 2 * alone(PRODUCT)
    assert norm > 10_000
    assert products > 100_000
    assert finish(merged()) == round(norm + products)
    for speeds, expected in (
        ({"matmul": 2.0}, norm + products / 2),
        ({"norm": 4.0}, norm / 4 + products),
        ({"memory-bound": 4.0, "matmul": 2.0}, norm / 4 + products / 2),
        ({"other": 2.0, "attention": 2.0}, norm + products),
        ({"name:merged": 2.0, "norm": 2.0}, norm / 4 + products / 2),
    ):
        assert finish(merged(), kernel_speeds=speeds) == pytest.approx(expected, abs=1)
    [shares] = family_shares([f"{NORM} + 2 * {PRODUCT}"], compute_parameters("hgx-h100"), None)
    assert dict(zip(FAMILIES, shares.tolist(), strict=True)) == pytest.approx(
        dict.fromkeys(FAMILIES, 0.0)
        | {"norm": norm / (norm + products), "matmul": products / (norm + products)}
    )


def test_a_given_duration_is_cut_alike() -> None:
    """Where the trace gives the time, the model tells the shares of it, also on another accelerator."""
    norm, products = alone(NORM), 2 * alone(PRODUCT)
    given = 1_000_000
    faster = given * (norm + products / 2) / (norm + products)
    assert finish(merged(given), kernel_speeds={"matmul": 2.0}) == pytest.approx(faster, abs=1)
    other = alone(NORM, "hgx-b200") + 2 * alone(PRODUCT, "hgx-b200")
    result = simulate([merged(given)], SYSTEM, NETWORK, accelerator="hgx-b200", recorded_on="hgx-h100")
    assert int(result.finish_ns[0]) == pytest.approx(given * other / (norm + products), abs=2)
    assert any(note.endswith("of their time 100 % by shape") for note in result.notes)


def test_without_a_model_shares_are_not_known() -> None:
    """One speed for all families needs none."""
    system = {key: value for key, value in SYSTEM.items() if key != "operator-model"} | {
        "roofline-enabled": False
    }
    with pytest.raises(WorkloadError, match="nodes stand for operators of several families"):
        simulate([merged(1000)], system, NETWORK, kernel_speeds={"matmul": 2.0})
    both = {"matmul": 2.0, "norm": 2.0}
    base = int(simulate([merged(1000)], system, NETWORK).finish_ns[0])
    assert base == 2 * int(simulate([merged(1000)], system, NETWORK, kernel_speeds=both).finish_ns[0])
    document = simulate([merged(1000)], system, NETWORK).to_dict(nodes=True)
    assert "operator_shares" not in document


def test_the_roofline_of_sums_is_noted() -> None:
    """At the peak a merged node takes the larger of two sums, which is less than the sum of the larger ones."""
    said = "merged operators (--fuse) take the roofline of their sums"
    ends: dict[bool, int] = {}
    for fuse in (False, True):
        request = TransformerRequest(model="gpt2-small", layers=2, npus=2, tp=2, fuse=fuse)
        network = {**NETWORK, "npus_count": [2]}
        ideal = simulate(build_workload(request.plan()), SYSTEM, network, ideal=True)
        ends[fuse] = int(ideal.finish_ns.max())
        assert any(said in note for note in ideal.notes) == fuse
        timed = simulate(build_workload(request.plan()), SYSTEM, network)
        assert not any(said in note for note in timed.notes)
    assert ends[True] < ends[False]


def source(tmp_path: Path, *, fuse: bool) -> Source:
    request = TransformerRequest(model="gpt2-small", layers=2, npus=2, tp=2, fuse=fuse)
    result = simulate(build_workload(request.plan()), SYSTEM, {**NETWORK, "npus_count": [2]})
    path = tmp_path / f"fuse-{fuse}.json"
    path.write_text(json.dumps(result.to_dict(nodes=True)))
    return read_source(path)


def test_merging_moves_no_time_between_families(tmp_path: Path) -> None:
    """A comparison of a step whose operators are merged and of one where they are not: equal parts but for rounding."""
    found = compare(source(tmp_path, fuse=False), source(tmp_path, fuse=True))
    kernels = {part.name: (part.a_ns, part.b_ns) for part in found.parts if part.part == "kernels"}
    assert {"matmul", "attention", "norm", "memory"} <= set(kernels)
    for label, (apart, together) in kernels.items():
        assert together == pytest.approx(apart, abs=60), label


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"matmul": 0},
        {"matmul": -1, "norm": 2},
        {"matmul": 1e308, "norm": 1e308},
        {"matmul": "x"},
        {"new\nline": 1},
    ],
)
def test_shares_that_are_none_leave_the_time_to_others(told: dict[str, Any], tmp_path: Path) -> None:
    """A document may be of another program; its parts still add up."""
    path = tmp_path / "run.json"
    document = simulate([merged()], SYSTEM, NETWORK).to_dict(nodes=True)
    assert [set(shares) for shares in document["operator_shares"]] == [{"matmul", "norm"}]
    path.write_text(json.dumps(document))
    whole = read_source(path)
    path.write_text(json.dumps(document | {"operator_shares": [told]}))
    found = compare(whole, read_source(path))
    kernels = {part.name: (part.a_ns, part.b_ns) for part in found.parts if part.part == "kernels"}
    assert set(kernels) == {"matmul", "norm", "other"}
    assert kernels["other"] == (0, sum(a for a, _ in kernels.values()))


def test_a_family_that_a_document_tells_is_one_printable_line(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    document = simulate([merged()], SYSTEM, NETWORK).to_dict(nodes=True)
    del document["operators"], document["operator_shares"]
    [entry] = document["nodes"]
    del entry["operators"]
    path.write_text(json.dumps(document | {"nodes": [entry | {"families": ["new\nline"]}]}))
    found = compare(read_source(path), source(tmp_path, fuse=True))
    assert "\n  new\\nline " in difference_text(found)
