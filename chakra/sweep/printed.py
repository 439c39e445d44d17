"""The ranked table of a study as it is printed: within the width of a terminal.

What all designs have in common stands in one line above it. Headings break, then texts of parameters, and then metrics
that follow from others are left out; parameters that differ, the time and the axes of the front never are.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from chakra.alignment import aligned, width_of
from chakra.io.readable import counted
from chakra.io.streams import PLAIN_WIDTH
from chakra.sweep.metrics import METRICS
from chakra.sweep.pareto import front
from chakra.sweep.store import Outcome
from chakra.sweep.study import Study
from chakra.sweep.table import figures, heading, metric_column

#: metrics that go first where a table is too wide: they follow from others, or say least of a design
_FIRST_TO_GO = (
    "ideal_bubble_share", "cables", "switches", "memory_gb", "hfu", "steady_samples_per_s", "samples_per_s", "paid_npus",
    "cost_per_step", "tokens_per_s_per_npu", "step_low_ms", "step_high_ms", "bubble_share", "exposed_ms",
)  # fmt: skip
#: a text of a parameter is broken into lines of this many characters where a table is too wide, or of the fewer ones
#: where it still is with no other metric in it
_TEXT_WIDTH, _LEAST_TEXT_WIDTH = 24, 12
#: where lines break: units in brackets stay whole
_BREAKS = re.compile(r"(?<=\s)(?![^\[]*\])|(?<=\.)(?=[A-Za-z])")


@dataclass(frozen=True, slots=True)
class _Column:
    """A column: the name of its metric (empty: it is never left out), its heading and its cells."""

    metric: str
    heading: str
    cells: Sequence[str]


def ranked_table(
    study: Study, outcomes: Sequence[Outcome], best: Sequence[Outcome], top: int, width: int = PLAIN_WIDTH
) -> str:
    """The first points with their parameters and metrics; empty without points.

    Parameters
    ----------
    study
        The study.
    outcomes
        All outcomes, of which the Pareto front is made.
    best
        Good ones, best first.
    top
        Rows.
    width
        Characters of a line.
    """
    shown = best[:top]
    if not shown:
        return ""
    kept = {study.objective, "step_ms"}
    names = [parameter.name for parameter in study.parameters]
    parameters = {name: [outcome.point[name] for outcome in best] for name in names}
    metrics = [name for name in METRICS if any(name in outcome.metrics for outcome in best)]
    alike = {name for name, values in parameters.items() if _all_alike(values)}
    alike |= {
        name
        for name in metrics
        if name not in kept and _all_alike([outcome.metrics.get(name) for outcome in best])
    }
    common = [f"{name} {figures(parameters[name][:1])[0]}" for name in names if name in alike]
    common += [f"{heading(name)} {metric_column(name, best[:1])[0]}" for name in metrics if name in alike]

    on_front = {outcome.key for outcome in front(study, outcomes)}
    kept |= set(study.pareto)
    columns = [_Column("", "rank", [str(i) for i in range(1, len(shown) + 1)])]
    columns += [
        _Column("", name, figures(parameters[name][: len(shown)])) for name in names if name not in alike
    ]
    columns += [
        _Column("" if name in kept else name, heading(name), metric_column(name, shown))
        for name in metrics
        if name not in alike and any(name in outcome.metrics for outcome in shown)
    ]
    # there is none where no point has both metrics
    if on_front:
        columns.append(_Column("", "Pareto", ["*" if outcome.key in on_front else "" for outcome in shown]))
    columns, left_out = _fitted(columns, width)
    lines = [_text(columns)]
    if common:
        lines = [f"in all {counted(len(best), 'design')} that ran: {'; '.join(common)}", "", *lines]
    if left_out:
        lines.append(f"left out for the width (--format json has all): {', '.join(left_out)}")
    return "\n".join(lines)


def _all_alike(values: Sequence[object]) -> bool:
    """Whether several designs have one value; of a single one there is nothing to tell apart."""
    return len(values) > 1 and all(value == values[0] for value in values)


def _fitted(columns: list[_Column], width: int) -> tuple[list[_Column], list[str]]:
    """Columns that fit, if any do, and headings of those left out."""
    whole, left_out = columns, list[str]()
    if _width(columns) > width:
        columns = _narrower(columns, [_broken_heading(column) for column in whole])
    if _width(columns) > width:
        columns = _narrower(columns, [_broken_texts(column, _TEXT_WIDTH) for column in whole])
    order = [*_FIRST_TO_GO, *(name for name in reversed(METRICS) if name not in _FIRST_TO_GO)]
    for name in order:
        if _width(columns) <= width:
            return columns, left_out
        left_out += [heading(name) for column in columns if column.metric == name]
        columns = [column for column in columns if column.metric != name]
    least = [_broken_texts(column, _LEAST_TEXT_WIDTH) for column in whole if not column.metric]
    return columns if _width(columns) <= width else least, left_out


def _narrower(columns: list[_Column], tried: list[_Column]) -> list[_Column]:
    """What is tried where it is narrower."""
    return tried if _width(tried) < _width(columns) else columns


def _text(columns: Sequence[_Column]) -> str:
    return aligned(
        [column.heading for column in columns],
        list(zip(*(column.cells for column in columns), strict=True)),
    )


def _width(columns: Sequence[_Column]) -> int:
    return max(len(line) for line in _text(columns).split("\n"))


def _broken_heading(column: _Column) -> _Column:
    """The column with its heading in lines, none longer than its cells or the heading's longest part."""
    return replace(column, heading=_broken(column.heading, max(map(width_of, column.cells))))


def _broken_texts(column: _Column, width: int) -> _Column:
    """The column with its longer texts in lines, flush left; numbers have no place to break."""
    cells = [_broken(cell, width) for cell in column.cells]
    if any("\n" in cell for cell in cells):
        widest = max(map(width_of, cells))
        cells = ["\n".join(line.ljust(widest) for line in cell.split("\n")) for cell in cells]
    return _broken_heading(replace(column, cells=cells))


def _broken(text: str, width: int) -> str:
    """A text in lines of at most that many characters, broken at spaces outside brackets and behind points."""
    lines = [""]
    for part in _BREAKS.split(text):
        if lines[-1] and len((lines[-1] + part).rstrip()) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(line.rstrip() for line in lines)
