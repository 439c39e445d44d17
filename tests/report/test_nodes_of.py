"""Results with the nodes of some NPUs: the same nodes as among all, and reports that count those they stand for."""

import json
from pathlib import Path
from typing import Any

import pytest

from chakra.cli.main import run as chakra
from chakra.compare import compare, difference_text, read_source
from chakra.errors import UsageError
from chakra.generate import TransformerRequest, build_workload
from chakra.replay import ReplayResult, simulate
from chakra.report import report_html, run_of
from chakra.report.tables import operators

TRACES = Path(__file__).resolve().parents[2] / "traces" / "allreduce_ring8"
SYSTEM: dict[str, Any] = {
    "peak-perf": 100, "local-mem-bw": 1000, "all-reduce-implementation": ["ring"], "all-gather-implementation": ["ring"],
    "reduce-scatter-implementation": ["ring"],
}  # fmt: skip
NETWORK: dict[str, Any] = {"topology": ["Switch"], "npus_count": [16], "bandwidth": [50], "latency": [500]}
FILES = [
    "-s",
    str(TRACES / "system.json"),
    "-n",
    str(TRACES / "network.yml"),
    "-m",
    str(TRACES / "memory.json"),
]


@pytest.fixture(scope="module")
def result() -> ReplayResult:
    """Sixteen NPUs, eight alike in each of two stages."""
    request = TransformerRequest(model="llama2-7b", tp=8, pp=2, npus=16, micro_batches=2)
    return simulate(build_workload(request.plan()), SYSTEM, NETWORK)


def test_classes_stand_for_all(result: ReplayResult) -> None:
    every, classes = result.to_dict(nodes=True), result.to_dict(nodes="classes")
    assert [(entry["npu"], entry["alike"]) for entry in classes["nodes"]] == [(0, 8), (8, 8)]
    kinds = ("names", "kinds", "engines", "issue_ns", "finish_ns", "operators")
    for entry in classes["nodes"]:
        for other in every["nodes"][entry["npu"] : entry["npu"] + entry["alike"]]:
            assert all(other[key] == entry[key] for key in kinds)


def test_a_report_of_classes_is_the_report_of_all(result: ReplayResult) -> None:
    runs = [run_of(found, "run") for found in (result.to_dict(nodes=True), result.to_dict(nodes="classes"))]
    assert operators(runs[0]) == operators(runs[1])
    assert report_html([runs[0]]) == report_html([runs[1]])
    assert "<p>Of all NPUs, by total time." in report_html([runs[0]])


def test_some_npus_are_those_of_all(result: ReplayResult) -> None:
    every = result.to_dict(nodes=True)["nodes"]
    some = result.to_dict(nodes=[9, 0, 9])
    assert some["nodes"] == [every[0], every[9]]
    page = report_html([run_of(some, "run")])
    assert "Of 2 of the 16 NPUs, those whose nodes the result holds, by total time." in page
    assert "2 NPUs stand" not in page
    assert "The other 14 NPUs are not shown." in page
    assert "nodes" not in result.to_dict(nodes=[])


def test_a_comparison_says_how_many_ranks_are_here(result: ReplayResult, tmp_path: Path) -> None:
    paths = [tmp_path / "all.json", tmp_path / "classes.json"]
    for path, found in zip(paths, (result.to_dict(nodes=True), result.to_dict(nodes="classes")), strict=True):
        path.write_text(json.dumps(found))
    text = difference_text(compare(*map(read_source, paths)))
    assert "B takes as long as A" in text
    assert "of 16, of which 2 are here, " in text


@pytest.mark.parametrize("npu", [-1, 16])
def test_npus_that_did_not_run_are_refused(result: ReplayResult, npu: int) -> None:
    with pytest.raises(UsageError, match=f"^nodes: no NPU {npu} ran; the NPUs are 0 to 15$"):
        result.to_dict(nodes=[3, npu])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--nodes-of", "1-", "--format", "json"], "--nodes-of 1-: expected ranks such as 0,3,8-15"),
        (["--nodes-of", "3-1", "--format", "csv"], "--nodes-of 3-1: 3-1 is no range"),
        (["--nodes-of", "8", "--format", "csv"], "nodes: no NPU 8 ran; the NPUs are 0 to 7"),
        (["--nodes-of", "classes"], "--nodes-of needs --format json, csv or parquet"),
        (["--nodes", "--format", "astra-sim"], "--nodes needs --format json, csv or parquet"),
        (["--nodes", "--nodes-of", "0", "--format", "json"], "give one of them"),
        (["--nodes-of", "0", "--what-if", "network=inf", "--format", "json"], "without --nodes"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    given: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert chakra(["replay", "-w", str(TRACES / "workload"), *FILES, *given]) == 2
    assert message in capsys.readouterr().err


def test_the_table_has_the_rows_of_some_npus(capsys: pytest.CaptureFixture[str]) -> None:
    rows = []
    for given in (["--nodes"], ["--nodes-of", "2,5-6"], ["--nodes-of", "classes"]):
        assert chakra(["replay", "-w", str(TRACES / "workload"), *FILES, "--format", "csv", *given]) == 0
        rows.append(capsys.readouterr().out.splitlines())
    assert rows[1] == [rows[0][0], *(row for row in rows[0] if row.split(",")[0] in ("2", "5", "6"))]
    assert rows[2] == [rows[0][0], *(row for row in rows[0] if row.startswith("0,"))]
