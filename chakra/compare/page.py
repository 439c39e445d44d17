"""A comparison as a page: one HTML file, nothing loaded."""

from chakra.arguments import checked
from chakra.compare.difference import PARTS, Comparison
from chakra.compare.text import answer, sides, signed
from chakra.io.readable import count_text, duration_text, printable
from chakra.report.page import rendered
from chakra.report.tables import Table

#: rows of kernels on a page
_MOST_KERNELS = 500


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
    rows = [(part, *_cells(*sums)) for part, sums in totals.items() if any(sums)]
    rows.append(("all", *_cells(found.a_ns, found.b_ns)))
    detail = [
        (part.part, printable(part.name), *_cells(part.a_ns, part.b_ns)) for part in found.parts if part.name
    ]
    kernels = [
        (
            row.how, row.family, printable(row.a), printable(row.b), count_text(row.calls_a), count_text(row.calls_b),
            *_cells(row.a_ns, row.b_ns),
        )
        for row in found.kernels[:_MOST_KERNELS]
    ]  # fmt: skip
    times = ("A", "B", "B - A")
    return rendered(
        "difference.html.j2",
        title=f"Difference of {printable(found.a.name)} and {printable(found.b.name)}",
        answer=answer(found),
        sides=sides(found),
        totals=Table(("part", *times), rows),
        detail=Table(("part", "what", *times), detail, 0, 2),
        kernels=Table(
            ("", "family", "kernels of A", "kernels of B", "calls A", "calls B", *times), kernels,
            max(len(found.kernels) - _MOST_KERNELS, 0), 4,
        ),
        notes=found.notes,
    )  # fmt: skip


def _cells(a: int, b: int) -> tuple[str, str, str]:
    return duration_text(a), duration_text(b), signed(b - a)
