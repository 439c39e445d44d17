"""The tables of errors and intervals are what the command prints (the families that take seconds)."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from chakra.accuracy import Case, Job, Prediction, RatioInterval, measured_rows, ratio_of, read_case, scores
from chakra.accuracy.interval import WIDENING, residuals
from chakra.cli.main import run

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs/guides/accuracy.md"
COUNT_OF_INTERVALS = ROOT / "docs/reference/prediction-errors.md"
README = ROOT / "README.md"


def guide_rows(table: str) -> dict[tuple[str, str], list[str]]:
    """Cells after family and quantity of one part of the guide's table."""
    found: dict[tuple[str, str], list[str]] = {}
    part = ""
    for line in GUIDE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| **"):
            part = cells[0].strip("*")
        elif len(cells) == 8 and part == table:
            found[cells[0], cells[1]] = cells[2:]
    return found


@pytest.mark.parametrize("family", ["DGX", "Selene"])
def test_table_of_errors(family: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["accuracy", "-q", "--family", family, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    for table, key in (
        ("rows that nothing was tuned on", "held_out"),
        ("rows that constants were tuned on", "tuned"),
    ):
        printed = {
            (row["family"], row["quantity"]): [
                str(row["rows"]),
                f"{100 * row['mean']:.1f}",
                f"{100 * row['median']:.1f}",
                f"{100 * row['signed']:+z.1f}",
                f"{100 * row['p90']:.1f}",
                "-" if row["spearman"] is None else f"{row['spearman']:.2f}",
            ]
            for row in document[key]
        }
        stated = {name: cells for name, cells in guide_rows(table).items() if name[0].startswith(family)}
        assert stated == printed


@pytest.mark.parametrize(
    ("table", "tuned"),
    [("rows that nothing was tuned on", False), ("rows that constants were tuned on", True)],
)
def test_table_of_errors_is_that_of_the_stored_predictions(table: str, tuned: bool) -> None:
    """All families, by the predictions that intervals rest on, which tests/accuracy/test_intervals.py samples."""
    cases = [case for case in map(read_case, measured_rows()) if isinstance(case, Case)]
    steps = [case for case in cases if case.quantity.value == "step time"]
    made = [
        Prediction(case, row.ratio * case.measured)
        for case, row in zip(steps, residuals(), strict=True)
        if row.tuned == tuned
    ]
    stated = {name: cells for name, cells in guide_rows(table).items() if name[1] == "step time"}
    found = {(score.family, score.quantity): score for score in scores(made)}
    assert stated.keys() == found.keys()
    for name, (rows, *errors, spearman) in stated.items():
        score = found[name]
        assert int(rows) == score.rows
        figures = [100 * value for value in (score.mean, score.median, score.signed, score.p90)]
        assert [float(error) for error in errors] == pytest.approx(figures, abs=0.06), name
        # four digits are stored, so that equal predictions, as Megatron-Bridge's rows have, no longer have one rank
        if name[0].startswith("vTrain"):
            assert float(spearman) == pytest.approx(score.spearman, abs=0.006), name


def test_rows_in_8_bits_by_label() -> None:
    """Each label of Megatron-Bridge's tables, by the stored predictions."""
    cases = [case for case in map(read_case, measured_rows()) if isinstance(case, Case)]
    steps = [case for case in cases if case.quantity.value == "step time"]
    errors: dict[str, list[float]] = {}
    for case, row in zip(steps, residuals(), strict=True):
        if case.family == "Megatron-Bridge FP8" and not row.tuned:
            errors.setdefault(case.row.precision, []).append(100 * (row.ratio - 1))
    text = COUNT_OF_INTERVALS.read_text(encoding="utf-8").partition("| label |")[2].partition("\n\n")[0]
    shown = {
        cells[1].strip(" `"): [float(cell) for cell in cells[2:5]]
        for cells in (line.split("|") for line in text.splitlines()[2:])
    }
    assert shown.keys() == errors.keys()
    for label, (count, mean, signed) in shown.items():
        found = errors[label]
        assert count == len(found)
        figures = [sum(map(abs, found)) / len(found), sum(found) / len(found)]
        assert [mean, signed] == pytest.approx(figures, abs=0.06), label


def test_the_readmes_table_is_the_guides() -> None:
    """Families that take minutes are held by the guide, which says how its table is made."""
    guide = guide_rows("rows that nothing was tuned on")
    lines = README.read_text(encoding="utf-8").partition("<!-- accuracy -->")[2].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[4:9]]
    assert len(rows) == 5
    for family, count, mean, percentile in rows:
        cells = guide[family, "step time"]
        assert [count, mean, percentile] == [cells[0], cells[1], cells[4]], family


def test_table_of_intervals(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["accuracy", "--intervals", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    printed = [
        f"| {row['family'] or 'all rows'} | {row['rows']} | {100 * row['inside']:.1f} | {100 * row['below']:.1f} "
        f"| {100 * row['above']:.1f} | {row['width']:.2f}x |"
        for row in document["intervals"]
    ]
    assert "\n".join(printed) in COUNT_OF_INTERVALS.read_text(encoding="utf-8")
    pairs = [
        f"| {pair['family'] or 'all pairs'} | {pair['differing'] or 'any of these'} | {pair['pairs']:,} "
        f"| {100 * pair['inside']:.1f} | {'' if pair['factor'] is None else format(pair['factor'], '.2f') + 'x '}|"
        for pair in document["pairs"]
    ]
    assert "\n".join(pairs) in COUNT_OF_INTERVALS.read_text(encoding="utf-8")
    assert f"{100 * document['pairs'][0]['inside']:.1f} % of all pairs lie inside" in GUIDE.read_text(
        encoding="utf-8"
    )
    row = printed[0].split("|")
    inside, width = row[3].strip(), row[6].strip()
    assert f"{inside} % of all rows lie inside, at a width of {width}" in GUIDE.read_text(encoding="utf-8")


def test_table_of_what_tells_designs_apart() -> None:
    job = Job("dgx-a100", "megatron", "bf16", npus=64, parameters=7e9)
    for other in (replace(job, npus=128), replace(job, pp=2), replace(job, tp=2)):
        ratio = ratio_of(job, other)
        assert isinstance(ratio, RatioInterval)
        assert f"| {ratio.differing} | {ratio.high:.2f}x | {ratio.pairs:,} |" in GUIDE.read_text(
            encoding="utf-8"
        )


def test_table_of_what_widens() -> None:
    amounts = [
        line.split("|")[2].strip() for line in GUIDE.read_text(encoding="utf-8").splitlines() if "x |" in line
    ]
    assert amounts[: len(WIDENING)] == [f"{math.exp(amount):.2f}x" for amount in sorted(WIDENING.values())]
