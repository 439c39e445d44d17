"""Rows without a micro-batch: each that may have been, between two ends that count for no error."""

import csv
import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from chakra.accuracy import Measured, predict_case, predict_range, range_cases, read_case
from chakra.accuracy.ranges import MICRO_BATCHES
from chakra.cli.main import run

ROW = Measured(
    source="somebody", hardware="H100 SXM", nodes="1", gpus_per_node="4",
    workload_model="GPT (layers 4, hidden 512, heads 4, vocab 1024)", parallelism="tp2", sequence="512",
    global_batch="8", precision="bf16", metric="step time", value="0.1", unit="s", framework="megatron",
)  # fmt: skip


def test_each_micro_batch_that_fits_is_tried() -> None:
    cases = range_cases(ROW)
    # 8 sequences on 2 replicas leave at most 4 for one
    assert [case.request.micro_batch for case in cases] == [1, 2, 4]
    assert all(case == read_case(replace(ROW, micro_batch=case.row.micro_batch)) for case in cases)
    found = predict_range(cases)
    assert found is not None
    assert found.predicted == tuple(map(predict_case, cases))
    assert found.low == min(found.predicted) < found.high == max(found.predicted)


@pytest.mark.parametrize("changes", [{"micro_batch": "2"}, {"sequence": ""}, {"framework": "megatrn"}])
def test_rows_that_print_one_or_lack_something_else_have_no_range(changes: dict[str, str]) -> None:
    assert range_cases(replace(ROW, **changes)) == ()
    assert predict_range(()) is None


def test_the_command_prints_ranges_beside_the_errors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.csv"
    rows = [asdict(row) for row in (ROW, replace(ROW, micro_batch="1"), replace(ROW, sequence=""))]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [name for name in rows[0] if name != "where"], extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    assert run(["accuracy", "-q", "--file", str(path), "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    (one,) = document["ranges"]
    assert [item["micro_batch"] for item in one["micro_batches"]] == [
        size for size in MICRO_BATCHES if size <= 4
    ]
    times = [item["predicted"] for item in one["micro_batches"]]
    assert (one["low"], one["high"], one["measured"]) == (min(times), max(times), 0.1)
    assert one["where"] == f"{path}, line 2"
    assert [score["rows"] for score in document["held_out"]] == [1]
    assert [item["where"] for item in document["not_predicted"]] == [[f"{path}, line 4"]]
    assert run(["accuracy", "-q", "--file", str(path)]) == 0
    text = capsys.readouterr().out
    assert "without a printed micro-batch: predicted with each of 1, 2, 4 and 8 that fits" in text
    assert f"{one['low']:.4g}" in text
