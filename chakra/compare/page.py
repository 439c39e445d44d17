"""A comparison as a page: one HTML file, nothing loaded."""

import os
from collections.abc import Sequence
from pathlib import PurePath
from typing import Final

from markupsafe import Markup

from chakra.arguments import checked
from chakra.compare.difference import PARTS, Comparison
from chakra.compare.spans import WORDS, Kind
from chakra.compare.text import answer, calls_text, names_text, sides
from chakra.io.readable import compared_durations, printable
from chakra.report import charts, side_by_side
from chakra.report.npu_groups import NpuGroup
from chakra.report.page import rendered
from chakra.report.tables import Table

#: rows of kernels on a page
_MOST_KERNELS = 500
#: looks of the parts in the bars
_LOOKS: Final = {
    WORDS[Kind.COMPUTE]: "compute_ns",
    WORDS[Kind.TRANSFER]: "transfer_ns",
    WORDS[Kind.PEERS]: "waiting_ns",
    WORDS[Kind.COPY]: "memory_ns",
    WORDS[Kind.HOST]: "cpu_ns",
    WORDS[Kind.HOST_WAIT]: "host_wait_ns",
    WORDS[Kind.GAP]: "idle_ns",
}


@checked
def difference_html(found: Comparison) -> str:
    """The page of a comparison.

    Parameters
    ----------
    found
        From `compare`.
    """
    totals = {part: [0, 0] for part in PARTS}
    for part in found.parts:
        totals[part.part][0] += part.a_ns
        totals[part.part][1] += part.b_ns
    totals = {part: sums for part, sums in totals.items() if any(sums)}
    rows = [(part, *compared_durations(*sums)) for part, sums in totals.items()]
    rows.append(("all", *compared_durations(found.a_ns, found.b_ns)))
    detail = [
        (f"{part.part}: {printable(part.name)}", *compared_durations(part.a_ns, part.b_ns))
        for part in found.parts
        if part.name
    ]
    kernels = [
        (
            *compared_durations(row.a_ns, row.b_ns),
            calls_text(row),
            printable(names_text(row)),
            row.how,
            row.family,
        )
        for row in found.kernels[:_MOST_KERNELS]
    ]
    names = short_names((found.a.name, found.b.name))
    times = ("A", "B", "B - A")
    return rendered(
        "difference.html.j2",
        title=f"Difference of {printable(names[0])} and {printable(names[1])}",
        answer=answer(found),
        sides=sides(found),
        bars=_bars(found, names, totals),
        looks=[(_LOOKS[part], part) for part in totals],
        totals=Table(("part", *times), rows),
        detail=Table(("part", *times), detail),
        kernels=Table(
            (*times, "calls", "kernel", "match", "family"),
            kernels,
            max(len(found.kernels) - _MOST_KERNELS, 0),
            0,
            4,
        ),
        tables=[
            (heading, table(found.runs, "AB"))
            for heading, table in (
                ("Collectives", side_by_side.collectives_table),
                ("Network dimensions", side_by_side.dimensions_table),
                ("Inputs that differ", side_by_side.inputs_table),
            )
            if found.runs
        ],
        notes=found.notes,
    )


def _bars(found: Comparison, names: Sequence[str], totals: dict[str, list[int]]) -> Markup:
    """A bar a run, of its parts."""
    bars = [
        NpuGroup(
            f"{key}: {printable(name)}",
            1,
            span,
            0,
            {_LOOKS[part]: sums[side] for part, sums in totals.items()},
        )
        for side, (key, name, span) in enumerate(zip("AB", names, (found.a_ns, found.b_ns), strict=True))
    ]
    words = {look: part for part, look in _LOOKS.items()}
    return charts.account_chart(bars, max(found.a_ns, found.b_ns), words)


def short_names(paths: tuple[str, str]) -> tuple[str, str]:
    """The ends of two paths, as short as tells them apart.

    Parameters
    ----------
    paths
        The paths.

    Examples
    --------
    >>> short_names(("/data/h200/ddp", "h100.json")), short_names(("a/run.json", "b/run.json"))
    (('ddp', 'h100.json'), ('a/run.json', 'b/run.json'))
    """
    parts = [PurePath(os.path.normpath(path)).parts for path in paths]
    longest = max(map(len, parts))
    for kept in range(1, longest + 1):
        one, other = (os.path.join(*own[-kept:]) for own in parts)
        if one != other:
            break
    return one, other
