"""Tables as plain text: columns of equal width."""

from collections.abc import Sequence


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """A line per row, columns padded to equal width: the first `left` flush left, the others flush right.

    >>> print(aligned(("phase", "us"), [("compute", "120"), ("wait", "7")]))
    phase     us
    compute  120
    wait       7
    """
    table = [header, *rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    )
