"""Tables as plain text: columns of equal width."""

from collections.abc import Sequence
from itertools import zip_longest


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """A line per row, columns padded to equal width: the first `left` flush left, the others flush right.

    Cells may have several lines; those of the header stand at its foot.

    >>> print(aligned(("phase", "us"), [("compute", "120"), ("wait", "7")]))
    phase     us
    compute  120
    wait       7
    >>> print(aligned(("phase", "time\\n[us]"), [("compute", "120"), ("wait\\nlong", "7")]))
             time
    phase    [us]
    compute   120
    wait        7
    long
    """
    widths = [max(width_of(row[i]) for row in (header, *rows)) for i in range(len(header))]
    lines = [*_lines(header, at_foot=True), *(line for row in rows for line in _lines(row))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def width_of(cell: str) -> int:
    """Characters of a cell's longest line."""
    return max(map(len, cell.split("\n")))


def _lines(row: Sequence[str], *, at_foot: bool = False) -> list[tuple[str, ...]]:
    """Lines of a row, one string a cell in each."""
    cells = [cell.split("\n") for cell in row]
    height = max(map(len, cells), default=0)
    filled = ([""] * (height - len(cell) if at_foot else 0) + cell for cell in cells)
    return list(zip_longest(*filled, fillvalue=""))
