"""The printed table of a study: what all designs share stands once, the rest fits."""

from collections.abc import Mapping

import pytest

from chakra.alignment import aligned
from chakra.io import streams
from chakra.sweep.metrics import METRICS
from chakra.sweep.printed import ranked_table
from chakra.sweep.store import Outcome
from chakra.sweep.study import Study, study_from
from chakra.sweep.table import heading, metric_column

PLATFORMS = ["hgx-h100 over 400G rails of 64 ports oversubscribed 2", "hgx-b200"]
PARAMETERS: Mapping[str, list[object]] = {
    "platform": [*PLATFORMS],
    "workload.tp": [1, 2],
    "workload.sequence-parallel": [True, False],
    "workload.micro-batch": [1, 4],
}


def study() -> Study:
    workload = {"model": "gpt2-small", "dp": 8}
    return study_from({"study": "s", "workload": workload, "parameters": {**PARAMETERS}}, "s.yml")


def outcomes(metrics: Mapping[str, tuple[float, float]]) -> list[Outcome]:
    """Two designs that differ in all parameters but the micro-batch, and a third that did not run."""
    points: list[dict[str, object]] = [
        {name: 1 if name == "workload.micro-batch" else values[k] for name, values in PARAMETERS.items()}
        for k in (0, 1)
    ]
    ran = [
        Outcome(str(k), point, "ok", {name: pair[k] for name, pair in metrics.items()})
        for k, point in enumerate(points)
    ]
    return [*ran, Outcome("x", {**points[0], "workload.micro-batch": 4}, "infeasible", {})]


#: every metric, each with two values; the NPUs are the same
ALL = {name: (1234.5 + place, 2345.5 + place) for place, name in enumerate(METRICS)} | {"npus": (64.0, 64.0)}


def test_what_all_designs_share_stands_above_the_table() -> None:
    found = outcomes(ALL)
    first, blank, *table = ranked_table(study(), found, found[:2], 10, 10_000).split("\n")
    assert (first, blank) == ("in all 2 designs that ran: workload.micro-batch 1; NPUs 64", "")
    assert len(table) == 3
    for name in METRICS:
        assert (heading(name) in table[0].split("  ")) is (name != "npus")
    # a table of the best alone has what the others differ in
    [*_, row] = ranked_table(study(), found, found[:2], 1, 10_000).split("\n")
    assert PLATFORMS[0] in row
    # of one design there is nothing to share
    assert "NPUs" in ranked_table(study(), found[:1], found[:1], 1, 10_000).split("\n")[0]


@pytest.mark.parametrize("width", [80, 120, 200])
def test_a_table_fits_and_shows_what_differs(width: int) -> None:
    found = outcomes(ALL)
    _, _, *table, left_out = ranked_table(study(), found, found[:2], 10, width).split("\n")
    assert max(map(len, table)) <= width
    text = " ".join(" ".join(table).split())
    for part in (
        "platform",
        "tp",
        "sequence-",
        "step",
        "[ms]",
        "memory",
        "[GB]",
        "Pareto",
        "1,234 ",
        "2,346 ",
        "*",
    ):
        assert part in text
    assert left_out.startswith(
        "left out for the width (--format json has all): ideal bubble [% of step], cables, "
    )
    # nothing is lost: what no heading has is named
    headings = [heading(name) for name in METRICS if name != "npus"]
    named = left_out.partition(": ")[2].split(", ")
    assert set(named) < set(headings)
    # a wider line has more
    wider = ranked_table(study(), found, found[:2], 10, width + 60).partition("all): ")[2].split(", ")
    assert set(wider) < set(named)


def test_narrow_enough_tables_are_left_as_they_are() -> None:
    found = outcomes({"step_ms": (1.0, 2.0)})
    text = ranked_table(study(), found, found[:2], 10, 120)
    assert "left out" not in text
    assert PLATFORMS[0] in text


def test_cells_of_several_lines_are_aligned() -> None:
    assert aligned(("k", "a\nlong"), [("x\ny", "1"), ("z", "22")]).split("\n") == [
        "      a", "k  long", "x     1", "y", "z    22",
    ]  # fmt: skip


def test_a_stream_that_is_no_terminal_has_a_plain_width() -> None:
    assert streams.output_width() == streams.PLAIN_WIDTH == 120


def test_small_shares_of_a_column_have_digits() -> None:
    """0.0123 % reads 0.0 with tenths; all cells of the column have as many decimals."""
    found = outcomes({"step_ms": (1.0, 2.0), "mfu": (0.4, 0.000123)})
    assert metric_column("mfu", found[:2]) == ["40.0000", "0.0123"]
