"""The page of a study: what values cost, designs that sort and filter, and the reports that it leads to."""

import html
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from viz_browser import Page, find_chromium

from chakra import output_schemas
from chakra.accuracy import Job
from chakra.cli.commands.sweep import command
from chakra.sweep import Outcome, Study, ranked, sensitivity, study_from, study_html
from chakra.sweep.doubt import doubt_of
from chakra.sweep.point import run_point
from chakra.sweep.printed import ranked_table
from chakra.sweep.reasons import reasons
from chakra.sweep.table import nothing_fits, overfull
from chakra.sweep.ties import tie_note, tied

jsonschema = pytest.importorskip("jsonschema")

TP, MB, LAYERS = "workload.tp", "workload.micro-batch", "workload.layers"


def study(**changes: Any) -> Study:
    given_parameters = {TP: [1, 2, 4], MB: [1, 2]}
    return study_from(
        {
            "study": "a <small> one",
            "workload": {"kind": "transformer", "model": "llama3-8b", "npus": 8},
            "platform": "dgx-a100",
            "parameters": given_parameters,
            **changes,
        },
        "study.yml",
    )


def outcome(tp: int, micro_batch: int, step_ms: float | None, **metrics: float) -> Outcome:
    point = {TP: tp, MB: micro_batch}
    if step_ms is None:
        return Outcome(f"{tp}-{micro_batch}", point, "infeasible", {}, f"needs {tp}00.5 GB of memory")
    return Outcome(
        f"{tp}-{micro_batch}", point, "ok", {"step_ms": step_ms, "memory_gb": 64.0 / tp, **metrics}
    )


OUTCOMES = [
    outcome(1, 1, 100.0),
    outcome(1, 2, 120.0),
    outcome(2, 1, 80.0),
    outcome(2, 2, 150.0),
    outcome(4, 1, None),
    outcome(4, 2, 110.0),
]


def test_what_a_value_costs() -> None:
    """By hand: the best of all takes 80 ms; alike are the designs with the same micro-batch (or the same tp)."""
    costs = {(c.parameter, c.value): c for c in sensitivity(study(), OUTCOMES)}
    assert [c.points for c in costs.values()] == [2, 2, 1, 2, 3]
    assert costs[TP, 1].loss == pytest.approx(100 / 80 - 1)
    assert costs[TP, 2].loss == 0
    assert costs[TP, 4].loss == pytest.approx(110 / 80 - 1)
    # micro-batch 1: 100 and 80; micro-batch 2: 120, 150 and 110
    assert costs[TP, 1].alike_loss == pytest.approx((0.25 + (120 / 110 - 1)) / 2)
    assert costs[TP, 2].alike_loss == pytest.approx((0 + (150 / 110 - 1)) / 2)
    assert costs[TP, 4].alike_loss == 0
    # of tp 4 only one ran: nothing is like it
    assert costs[MB, 2].alike_loss == pytest.approx((0.2 + (150 / 80 - 1)) / 2)
    assert costs[MB, 2].loss == pytest.approx(110 / 80 - 1)


@pytest.mark.parametrize(("second", "width"), [(100.03, 120 * 0.03), (150.0, 120.0)])
def test_bars_of_losses_below_a_hundredth_are_not_full(second: float, width: float) -> None:
    """0.03 % fills 3 % of a bar that a hundredth fills. From a hundredth on the largest loss fills it."""
    page = study_html(study(), [outcome(1, 1, 100.0), outcome(2, 1, second)])
    widths = re.findall(r'width="([0-9.]+)" height="10" class="full"', page)
    assert max(float(found) for found in widths) == pytest.approx(width, abs=0.06)


@pytest.mark.parametrize("known", [True, False])
def test_a_front_is_shown_where_designs_have_both_of_its_metrics(known: bool) -> None:
    """Of workloads in files no memory is known."""
    outcomes = (
        OUTCOMES[:2]
        if known
        else [replace(o, metrics={"step_ms": o.metrics["step_ms"]}) for o in OUTCOMES[:2]]
    )
    best = ranked(study(), outcomes)
    assert ("Pareto" in ranked_table(study(), outcomes, best, 5)) is known
    assert ("is on the front" in study_html(study(), outcomes)) is known


def test_more_is_better_for_some_metrics() -> None:
    rates = [outcome(tp, 1, 1.0, tokens_per_s=rate) for tp, rate in ((1, 50.0), (2, 100.0), (4, 80.0))]
    asked = study(objective="tokens_per_s")
    assert [round(c.loss, 9) for c in sensitivity(asked, rates)] == [0.5, 0.0, 0.2]


@pytest.mark.parametrize("more_is_better", [False, True])
def test_the_cheapest_of_equally_good_designs_is_not_the_best_objective(more_is_better: bool) -> None:
    """100 and 100.05 ms are equally good, the cheaper one has rank 1; yet no value is worse than one that it beats."""

    def design(tp: int, step_ms: float, cost: float) -> Outcome:
        return outcome(tp, 1, step_ms, cost_per_hour=cost, tokens_per_s=1e6 / step_ms)

    designs = [design(1, 100.0, 40.0), design(2, 100.05, 20.0), design(4, 110.0, 20.0)]
    asked = study(objective="tokens_per_s") if more_is_better else study()
    assert [o.point[TP] for o in ranked(asked, designs)] == [2, 1, 4]
    right = [0.0, 1 - 100 / 100.05, 1 - 100 / 110] if more_is_better else [0.0, 0.0005, 0.1]
    costs = sensitivity(asked, designs)
    assert [c.loss for c in costs] == pytest.approx(right)
    assert [c.alike_loss for c in costs] == pytest.approx(right)


def test_values_without_a_result_and_without_a_best_are_said() -> None:
    costs = sensitivity(study(), [outcome(1, 1, None), outcome(2, 1, 0.0)])
    assert [(c.value, c.points) for c in costs] == [(1, 0), (2, 1)]
    assert math.isnan(costs[0].loss)
    assert math.isnan(costs[1].loss), "no share of nothing"
    assert costs[0].to_dict() == {
        "parameter": TP, "value": 1, "points": 0, "best": None, "loss": None, "alike_loss": None,
    }  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 2), st.floats(1e-3, 1e9)), min_size=1))
def test_laws_of_costs(drawn: list[tuple[int, int, float]]) -> None:
    """No value is better than the best; some value has it; every design is counted once in every parameter."""
    outcomes = [
        Outcome(str(k), {TP: tp, MB: mb}, "ok", {"step_ms": ms}) for k, (tp, mb, ms) in enumerate(drawn)
    ]
    for name in (TP, MB):
        costs = [c for c in sensitivity(study(), outcomes) if c.parameter == name]
        assert len(costs) <= 12
        if costs:
            assert min(c.loss for c in costs) == 0
            assert sum(c.points for c in costs) == len(outcomes)
            assert all(c.alike_loss >= 0 or math.isnan(c.alike_loss) for c in costs)


def test_the_page_says_what_is_best_and_how_sure_that_is() -> None:
    page = study_html(study(), OUTCOMES)
    assert "<h1>Study: a &lt;small&gt; one</h1>" in page
    assert (
        "Of 6 designs, workload.tp 2, workload.micro-batch 1 is best: step 80 ms; nothing measured is near, so that"
        in page
    )
    job = Job("dgx-a100", "fsdp1", "bf16", npus=64, parameters=7e9)
    # by pairs of rows: another micro-batch is told from 1.21 times the step on, another tp from 1.33 on, and so is what
    # has no pairs, another network for one
    near = [
        replace(outcome(1, 1, 100.0), job=job),
        replace(outcome(1, 2, 119.0), job=replace(job, micro_batch=2)),
        replace(outcome(1, 4, 123.0), job=replace(job, micro_batch=4)),
        replace(outcome(2, 1, 132.0), job=replace(job, tp=2)),
        replace(outcome(4, 1, 134.0), job=replace(job, tp=4)),
        outcome(8, 1, 135.0),
    ]
    page = study_html(study(), near)
    assert "; its step has a 90 % interval of " in page
    assert " ms (llm-foundry, 111 measured rows); 2 other designs cannot be told from the best one." in page
    assert page.count("<td>≈") == 2
    assert (
        "pp or micro-batch from 1.21x on, by 7,960 pairs of measured rows that differ in pp or micro-batch"
        in page
    )
    assert (
        "tp, cp, ep or anything else from 1.33x on, by 15,964 pairs of measured rows that differ in tp."
        in page
    )
    assert "1 design has no interval, so that nothing tells whether it is worse" in page
    elsewhere = [
        replace(one, point={**one.point, "network.dim1.bandwidth": k}) for k, one in enumerate(near[:3])
    ]
    assert doubt_of(study(), elsewhere).near == tuple(elsewhere[1:])
    # of more that is better the quotient is turned over
    fast = [
        replace(one, metrics={"tokens_per_s": 1e6 / one.metrics["step_ms"], "step_ms": 1.0})
        for one in near[:5]
    ]
    assert doubt_of(study(objective="tokens_per_s"), fast).near == (fast[1], fast[3])
    assert "such as" not in study_html(study(), OUTCOMES)
    assert "None of 1 design gave a result." in study_html(study(), OUTCOMES[4:5])


def test_equally_good_designs_are_a_tie_that_the_cheapest_leads() -> None:
    """80.08 ms is 0.1 % above 80, 80.09 more; without costs the NPUs decide, and without either nothing."""
    first, equal, behind = (1, 1, 80.0), (2, 1, 80.08), (4, 1, 80.09)
    cases: list[tuple[list[dict[str, float]], str, list[str]]] = [
        ([{}, {}, {}], "The first: step 80 ms", ["1-1", "2-1", "4-1"]),
        ([{"npus": 16}, {"npus": 8}, {"npus": 4}], "The first has the fewest NPUs: step 80.08 ms", ["2-1", "1-1", "4-1"]),
        (
            [{"npus": 8, "cost_per_hour": 20.0}, {"npus": 16, "cost_per_hour": 16.0}, {"npus": 1}],
            "The first costs least: step 80.08 ms", ["2-1", "1-1", "4-1"],
        ),
        ([{"npus": 8, "cost_per_hour": 9.0}] * 3, "The first: step 80 ms", ["1-1", "2-1", "4-1"]),
    ]  # fmt: skip
    for more, said, order in cases:
        outcomes = [
            replace(one, metrics={**one.metrics, **rest})
            for one, rest in zip([outcome(*row) for row in (first, equal, behind)], more, strict=True)
        ]
        best = ranked(study(), outcomes)
        assert [o.key for o in best] == order
        assert [o.key for o in tied(study(), best)] == order[:2]
        page = study_html(study(), outcomes)
        assert "Of 3 designs, 2 are equally good, 0.1 % or less apart: workload.tp " in page
        assert said in page
        assert "is best" not in page
        [note] = tie_note(study(), best)
        assert note.startswith("2 designs are equally good, 0.1 % or less apart in step_ms: ranks 1 to 2")
    alone = [outcome(*first), outcome(*behind)]
    assert tie_note(study(), ranked(study(), alone)) == []
    assert "is best: step 80 ms" in study_html(study(), alone)


@pytest.mark.parametrize(
    ("capacity", "remedies"),
    [
        (
            2.9,
            "recompute full (2.9 GB), zero 1 (2.5 GB), micro-batch 4 (2.0 GB) or tp 2 (1.6 GB) would make it fit",
        ),
        (1.5, "micro-batch 2 (1.5 GB) or tp 4 (0.9 GB) would make it fit"),
        (0.7, "zero 3 with micro-batch 1 (0.6 GB) or micro-batch 1 with tp 4 (0.3 GB) would make it fit"),
        (
            0.01,
            "no other recompute, zero, micro-batch, tp, pp or ep that was tried makes it fit, nor any two of them",
        ),
    ],
)
def test_a_study_in_which_nothing_fits_says_what_would(
    tmp_path: Path, capacity: float, remedies: str
) -> None:
    """Needs of each change are those of a design with it; with two layers the design needs 3.07 GB."""
    given = study(
        workload={"kind": "transformer", "model": "gpt2-small", "npus": 8, "global-batch": 64, "micro-batch": 8},
        system={"local-mem-capacity": capacity}, parameters={LAYERS: [4, 2]}, constraints=["memory"],
    )  # fmt: skip
    found = [
        Outcome(str(k), {LAYERS: k}, result["status"], result["metrics"], result["reason"])
        for k in (4, 2)
        if (result := run_point(given.merged({LAYERS: k}), needs_memory=True))
    ]
    assert [one.status for one in found] == ["infeasible", "infeasible"]
    [note] = nothing_fits(given, found)
    assert note.startswith(
        f"no design fits in memory: the nearest ({LAYERS} 2) needs 3.1 GB of {capacity:.1f} GB; "
    )
    assert remedies in note
    assert f"None of 2 designs gave a result. N{note[1:]}." in html.unescape(study_html(given, found))
    # one that fits leaves nothing to say, and so does a study of which nobody knows the memory
    assert nothing_fits(given, [*found, Outcome("1", {LAYERS: 1}, "ok", {"memory_share": 1.0})]) == []
    assert nothing_fits(given, [Outcome("1", {LAYERS: 1}, "failed", {}, "why")]) == []


def test_a_best_design_that_does_not_fit_is_said_with_the_best_that_does() -> None:
    """A share of exactly the memory fits; a design without a known share is not said to be too large."""

    def said(*shares: float | None) -> tuple[list[str], str]:
        rows = [
            outcome(tp, 1, 80.0 + tp, **({} if share is None else {"memory_share": share}))
            for tp, share in zip((1, 2, 4), shares, strict=True)
        ]
        return overfull(study(), rows, ranked(study(), rows)), study_html(study(), rows)

    notes, page = said(1.068, 1.0001, 1.0)
    assert notes[0].startswith("2 designs that ran need more memory than the accelerator has")
    assert notes[1:] == [
        "the best design needs 106.8 % of an accelerator's memory; the best that fits has rank 3: step [ms] 84"
    ]
    words = "of those that fit, workload.tp 4, workload.micro-batch 1 is best: step 84 ms."
    assert f"It needs 106.8 % of an accelerator&#39;s memory; {words}" in page
    notes, page = said(1.5, 2.0, 12.5)
    assert notes[1:] == ["the best design needs 150.0 % of an accelerator's memory"]
    assert "It needs 150.0 % of an accelerator&#39;s memory, and no design fits." in page
    notes, page = said(1.0, 2.0, 0.5)
    assert len(notes) == 1
    assert "It needs" not in page
    notes, page = said(None, None, None)
    assert notes == []
    assert "It needs" not in page


def test_a_tie_of_many_is_counted_and_more_may_be_better() -> None:
    """Six designs within 0.1 % of the greatest throughput."""
    many = [outcome(tp, 1, 80.0, tokens_per_s=1000.0 - tp / 10) for tp in (1, 2, 4, 5, 8, 10, 16)]
    by_tokens = study(objective="tokens_per_s")
    assert [o.point[TP] for o in tied(by_tokens, ranked(by_tokens, many))] == [1, 2, 4, 5, 8, 10]
    assert "; and 2 more. The first: tokens/s " in study_html(by_tokens, many)


def test_reasons_that_differ_in_numbers_share_a_row() -> None:
    page = study_html(study(), [outcome(1, 1, None), outcome(2, 1, None), outcome(4, 1, 5.0)])
    assert "such as: needs 100.5 GB of memory" in page
    assert "200.5" not in page
    assert "<td>workload.tp 1, workload.micro-batch 1</td>" in page
    [row] = reasons([outcome(2, 1, None), outcome(1, 1, None), outcome(4, 1, 5.0)])
    assert (row.first.point[TP], row.count, row.same) == (2, 2, False)


def test_names_of_a_study_do_not_break_its_page() -> None:
    evil = '"><script>alert(1)</script>'
    point = {TP: evil, MB: 1}
    outcomes = [
        Outcome("a", point, "ok", {"step_ms": 1.0, "memory_gb": 1.0}),
        Outcome("b", {TP: 2, MB: 1}, "ok", {"step_ms": 2.0, "memory_gb": 0.5}),
        Outcome("c", point, "failed", {}, evil),
    ]
    page = study_html(study(study=evil), outcomes)
    assert "<script>alert" not in page
    assert page.count("<script>") == 1


def small(folder: Path) -> Path:
    path = folder / "small.yml"
    path.write_text(
        json.dumps(
            {
                "study": "small",
                "workload": {"kind": "mlp", "widths": [64, 128, 64], "micro-batch": 8},
                "platform": "dgx-a100",
                "parameters": {
                    "workload.dp": [2, 4, 8], "workload.micro-batches": [1, 2],
                    "system.preferred-dataset-splits": [1, 4],
                },
            }
        )
    )  # fmt: skip
    return path


def test_the_command_writes_the_page_and_the_reports_that_it_leads_to(tmp_path: Path) -> None:
    words = [str(small(tmp_path)), "--workers", "1", "--format", "json", "--reports"]
    done = CliRunner().invoke(command, [*words, "3"])
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    jsonschema.validate(document, output_schemas.load("chakra.sweep/1"))
    costs = document["sensitivity"]
    assert [c["value"] for c in costs if c["parameter"] == "workload.dp"] == [2, 4, 8]
    folder = tmp_path / "small.results"
    page = (folder / "study.html").read_text()
    links = re.findall(r'<a href="([^"#][^"]*)">', page)
    assert len(links) == 4
    assert links[0] == "best.html"
    assert {link.removeprefix("reports/") for link in links[1:]} == {
        p.name for p in (folder / "reports").iterdir()
    }
    assert all((folder / link).read_text().startswith("<!DOCTYPE html>") for link in links)
    none = CliRunner().invoke(command, [*words, "0", "-o", str(tmp_path / "none")])
    assert none.exit_code == 0, none.output
    assert {p.name for p in (tmp_path / "none").iterdir()} >= {"study.html", "best.html"}
    assert not (tmp_path / "none" / "reports").exists()


def test_a_study_without_a_result_has_a_page_that_says_why(tmp_path: Path) -> None:
    path = small(tmp_path)
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "constraints": ["step_ms < 0"]}))
    done = CliRunner().invoke(command, [str(path), "--workers", "1"])
    assert "none of 12 points gave a result" in str(done.exception)
    page = (tmp_path / "small.results" / "study.html").read_text()
    assert "None of 12 designs gave a result." in page
    assert "constraint not met: step_ms &lt; 0" in page
    assert not (tmp_path / "small.results" / "best.html").exists()


def test_a_report_of_a_studys_folder_names_its_page(tmp_path: Path) -> None:
    from chakra.errors import UsageError
    from chakra.report import read_run

    CliRunner().invoke(command, [str(small(tmp_path)), "--workers", "1", "--reports", "0"])
    with pytest.raises(
        UsageError, match=r"small\.results: is the folder of a study; its page is .*study\.html"
    ):
        read_run(tmp_path / "small.results")


@pytest.mark.browser
@pytest.mark.skipif(find_chromium() is None, reason="no Chromium installed")
def test_designs_sort_filter_and_lead_to_reports(tmp_path: Path) -> None:
    (tmp_path / "study.html").write_text(study_html(study(), OUTCOMES, {"2-1": "best.html"}))
    (tmp_path / "best.html").write_text("<title>the report</title>")
    column = '[...document.querySelectorAll("#table tbody tr:not([hidden])")].map(row => row.cells[{}].textContent)'
    with Page(f"file://{tmp_path / 'study.html'}", tmp_path / "profile") as page:
        assert page.problems == []
        assert page.value(column.format(0)) == ["1", "2", "3", "4", "5"]
        for way, order in (
            ("ascending", ["1", "1", "2", "2", "4"]),
            ("descending", ["4", "2", "2", "1", "1"]),
        ):
            page.value("document.querySelectorAll('#table th button')[2].click()")
            assert page.value("document.querySelectorAll('#table th')[2].getAttribute('aria-sort')") == way
            assert page.value(column.format(2)) == order
        page.value(
            "(() => { const f = document.getElementById('filter'); f.value = 'tp >= 2, step_ms < 120';"
            "f.dispatchEvent(new Event('input')); })()"
        )
        assert page.value(column.format(0)) == ["3", "1"]
        assert page.value("document.getElementById('shown').textContent") == "2 of 5"
        page.value("document.querySelector('#table a').click()")
        page.wait("document.title === 'the report'")
        assert page.problems == []


def test_one_design_is_not_the_best_of_any() -> None:
    page = study_html(study(), OUTCOMES[:1])
    assert "Of 1 design" not in page
    assert '<p class="answer">workload.tp' in page
    assert "Best first" not in page
    assert "On the front" not in page
    assert "workload.<wbr>tp" in page
