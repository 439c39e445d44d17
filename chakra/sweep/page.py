"""A study as a page: the best design, the front, what values cost, and all designs; one HTML file, nothing loaded."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from chakra.accuracy.interval import Interval
from chakra.arguments import checked
from chakra.io.readable import count_text, counted_text, percent_text, printable
from chakra.report import charts
from chakra.report.page import rendered
from chakra.report.tables import Table
from chakra.sweep.doubt import Doubt, doubt_of, interval_words, near_words, rule_words, unknown_note
from chakra.sweep.metrics import METRICS
from chakra.sweep.nearest_fit import fits
from chakra.sweep.pareto import front, label
from chakra.sweep.reasons import reasons
from chakra.sweep.run import ranked
from chakra.sweep.sensitivity import ValueCost, sensitivity
from chakra.sweep.store import Outcome
from chakra.sweep.study import Study
from chakra.sweep.table import (
    figures,
    fitting,
    heading,
    metric_column,
    named_values,
    need_text,
    nothing_fits,
    result_notes,
    value_text,
)
from chakra.sweep.ties import EQUAL, thrift, tied

#: rows of designs on a page, and circles of the picture
MOST_DESIGNS = 2000
#: loss that fills a bar where all values lose less: one that is written as 0.0 % looks like nothing
_LEAST_FULL = 0.01
#: equally good designs that the answer names
MOST_NAMED = 4


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    heading: str
    number: bool


@dataclass(frozen=True, slots=True)
class _Cell:
    text: str
    value: float | None = None
    link: str = ""


@checked
def study_html(study: Study, outcomes: Sequence[Outcome], reports: Mapping[str, str] | None = None) -> str:
    """The page of a study.

    Parameters
    ----------
    study
        The study.
    outcomes
        Outcomes of its points.
    reports
        Page of the report of a design's replay, relative to this page, by the design's key.
    """
    reports = reports or {}
    best = ranked(study, outcomes)
    doubt = doubt_of(study, best)
    near = {outcome.key for outcome in doubt.near}
    # one design alone is better than no other
    on_front = {outcome.key for outcome in front(study, outcomes)} if len(best) > 1 else set[str]()
    shown = best[:MOST_DESIGNS]
    columns, rows = _designs(study, shown, near, on_front, reports)
    losses = sensitivity(study, outcomes)
    return rendered(
        "study.html.j2",
        script="study.js",
        title=f"Study: {printable(study.name)}",
        answer=_answer(study, outcomes, best, doubt),
        said=_facts(study, outcomes, best, on_front),
        notes=_notes(study, outcomes, best, doubt),
        axes=[label(name) for name in study.pareto],
        picture=_picture(study, shown, on_front),
        front=bool(on_front),
        objective=label(study.objective),
        costs=_costs(losses),
        designs=rows,
        columns=columns,
        example=_example(study, columns),
        near=near,
        rule=rule_words(doubt) if doubt.rests_on else "",
        linked=bool(reports),
        omitted=count_text(len(best) - len(shown)) if len(best) > len(shown) else "",
        reasons=_reasons(study, outcomes),
    )


def _notes(study: Study, outcomes: Sequence[Outcome], best: Sequence[Outcome], doubt: Doubt) -> list[str]:
    """What stands neither in the answer nor beside the table; nothing where no design has a result."""
    said = [*result_notes(study, outcomes, best), *unknown_note(doubt)] if best else []
    return [printable(note) for note in said]


def _answer(study: Study, outcomes: Sequence[Outcome], best: Sequence[Outcome], doubt: Doubt) -> str:
    """The best design, or those that are equally good, its figure, how sure it is, and what else it may be."""
    count = f"{counted_text(len(outcomes), 'design')}"
    if not best:
        why = "".join(f" {note[0].upper()}{note[1:]}." for note in nothing_fits(study, outcomes))
        return f"None of {count} gave a result.{why}"
    first, equal = best[0], tied(study, best)
    if len(equal) > 1:
        text = f"Of {count}, {len(equal)} are equally good, {100 * EQUAL:g} % or less apart: "
        text += "; ".join(named_values(study, outcome) for outcome in equal[:MOST_NAMED])
        text += f"; and {len(equal) - MOST_NAMED} more" if len(equal) > MOST_NAMED else ""
        text += f". The first {thrift(equal)}".rstrip() + f": {_figure(study.objective, first)}"
    elif len(outcomes) == 1:
        text = f"{named_values(study, first) or 'The only design'}: {_figure(study.objective, first)}"
    else:
        text = f"Of {count}, {named_values(study, first) or 'the only one'} is best: {_figure(study.objective, first)}"
    if isinstance(doubt.interval, Interval):
        text += f"; its step has {interval_words(doubt.interval, first)}"
        text += f"; {near_words(len(doubt.near))}" if doubt.rests_on else ""
    else:
        why = f" ({printable(doubt.interval.reason)})" if doubt.interval else ""
        text += f"; nothing measured is near{why}, so that nothing says how far the figure can be trusted"
    return f"{text}.{_room(study, best)}"


def _room(study: Study, best: Sequence[Outcome]) -> str:
    """That the best design needs more memory than there is, and the best one that does not; empty where it fits."""
    if fits(best[0]):
        return ""
    text, rank = f" It needs {need_text(best[0])}", fitting(best)
    if rank is None:
        return f"{text}, and no design fits."
    design = best[rank - 1]
    return f"{text}; of those that fit, {named_values(study, design)} is best: {_figure(study.objective, design)}."


def _figure(metric: str, outcome: Outcome) -> str:
    """A metric in words: its name, its value, its unit."""
    name, _, unit = heading(metric).partition(" [")
    return f"{name} {metric_column(metric, [outcome])[0]} {unit.removesuffix(']')}".rstrip()


def _facts(
    study: Study, outcomes: Sequence[Outcome], best: Sequence[Outcome], on_front: set[str]
) -> list[tuple[str, str]]:
    status = Counter(outcome.status for outcome in outcomes)
    facts = [
        ("Designs", count_text(len(outcomes))),
        ("With a result", count_text(status["ok"])),
        ("Infeasible", count_text(status["infeasible"])),
        ("Failed", count_text(status["failed"])),
        ("Ranked by", label(study.objective)),
        ("On the front", count_text(len(on_front))),
    ]
    facts = [fact for fact in facts if fact[1] != "0"]
    if best:
        facts += [
            (f"Best design: {heading(name)}", metric_column(name, best[:1])[0])
            for name in METRICS
            if name in best[0].metrics and name not in _told_elsewhere(study, best[0])
        ]
    return facts


def _told_elsewhere(study: Study, best: Outcome) -> set[str]:
    """Metrics of the best design that the sentence above has, or that follow from another one; the table has all."""
    told = {study.objective, "step_low_ms", "step_high_ms", "npus"}
    follow = {"samples_per_s": "tokens_per_s", "memory_gb": "memory_share"}
    told |= {name for name, other in follow.items() if other in best.metrics}
    if best.metrics.get("hfu") == best.metrics.get("mfu"):
        told.add("hfu")
    return told


def _designs(
    study: Study,
    shown: Sequence[Outcome],
    near: set[str],
    on_front: set[str],
    reports: Mapping[str, str],
) -> tuple[list[_Column], list[list[_Cell]]]:
    """Columns and rows of the table of designs."""
    names = [parameter.name for parameter in study.parameters]
    metrics = [name for name in METRICS if any(name in outcome.metrics for outcome in shown)]
    columns = [_Column("rank", "rank", True), _Column("marks", "", False)]
    cells = [
        [_Cell(str(k + 1), k + 1, reports.get(outcome.key, "")) for k, outcome in enumerate(shown)],
        [_Cell("≈" * (o.key in near) + "◆" * (o.key in on_front)) for o in shown],
    ]
    for name in names:
        values = [outcome.point.get(name) for outcome in shown]
        numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
        columns.append(_Column(name.lower(), printable(name), numeric))
        cells.append(
            [
                _Cell(value_text(text), float(value) if numeric and value is not None else None)
                for text, value in zip(figures(values), values, strict=True)
            ]
        )
    for name in metrics:
        columns.append(_Column(name, heading(name), True))
        cells.append(
            [
                _Cell(text, outcome.metrics.get(name))
                for text, outcome in zip(metric_column(name, shown), shown, strict=True)
            ]
        )
    return columns, [list(row) for row in zip(*cells, strict=True)]


def _example(study: Study, columns: Sequence[_Column]) -> str:
    """A condition that fits the study, for a reader who looks for the form."""
    numbers = [column.name for column in columns[2:] if column.number]
    return ", ".join(f"{name} >= 1" for name in numbers[:1]) or printable(study.objective)


def _costs(losses: Sequence[ValueCost]) -> list[dict[str, object]]:
    most = max((cost.loss for cost in losses if math.isfinite(cost.loss)), default=0.0)
    full = max(most, _LEAST_FULL)
    best = figures([cost.best if math.isfinite(cost.best) else None for cost in losses])
    rows: list[dict[str, object]] = []
    last = ""
    for cost, figure in zip(losses, best, strict=True):
        known = math.isfinite(cost.loss)
        share = percent_text(cost.loss) if known else "-"
        rows.append(
            {
                "before": (
                    printable(cost.parameter) if cost.parameter != last else "",
                    value_text(cost.value),
                    count_text(cost.points),
                    figure,
                    share,
                ),
                "bar": charts.share_bar(cost.loss / full, share) if known and most > 0 else "",
                "alike": percent_text(cost.alike_loss) if math.isfinite(cost.alike_loss) else "-",
            }
        )
        last = cost.parameter
    return rows


def _reasons(study: Study, outcomes: Sequence[Outcome]) -> Table:
    """Why designs have no result: a row for those whose reasons differ in numbers alone."""
    found = reasons(outcomes)
    rows = [
        (
            row.status,
            ("" if row.same else "such as: ") + printable(row.first.reason),
            named_values(study, row.first),
            count_text(row.count),
        )
        for row in found[:MOST_DESIGNS]
    ]
    return Table(("what", "reason", "first design", "designs"), rows, max(len(found) - MOST_DESIGNS, 0), 3)


def _picture(study: Study, shown: Sequence[Outcome], on_front: set[str]) -> Markup | None:
    """The two metrics of the front, a circle a design; None with fewer than two designs that have both."""
    first, second = study.pareto
    both = [(k + 1, o) for k, o in enumerate(shown) if {first, second} <= o.metrics.keys()]
    if len(both) < 2:
        return None
    spots = [
        charts.Spot(
            o.metrics[first],
            o.metrics[second],
            f"{place}. {named_values(study, o)}: {_figure(first, o)}, {_figure(second, o)}",
            f"#d{place}",
            o.key in on_front,
        )
        for place, o in both
    ]
    return charts.scatter(spots, label(first), label(second), figures)
