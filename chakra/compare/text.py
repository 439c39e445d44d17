"""A comparison as a few lines of text."""

from chakra.alignment import aligned
from chakra.arguments import checked
from chakra.compare.difference import PARTS, Comparison
from chakra.io.readable import duration_text, printable, shortened

#: parts that the sentence names
_NAMED = 3


@checked
def difference_text(found: Comparison, *, kernels: int = 15) -> str:
    """The comparison for a terminal.

    Parameters
    ----------
    found
        From `compare`.
    kernels
        Most rows of kernels.
    """
    lines = [*sides(found), answer(found), ""]
    rows = [(part, "", *_times(found, part)) for part in PARTS]
    parts = [(part.part, part.name, part.a_ns, part.b_ns) for part in found.parts if part.name]
    table = [
        (f"{'  ' * bool(name)}{name or part}", *_cells(a, b))
        for part, name, a, b in sorted(
            [*[row for row in rows if row[2] or row[3]], *parts],
            key=lambda row: (PARTS.index(row[0]), bool(row[1]), -abs(row[3] - row[2])),
        )
    ]
    table.append(("all", *_cells(found.a_ns, found.b_ns)))
    lines += aligned(("part", "A", "B", "B - A"), table).splitlines()
    changed = [row for row in found.kernels if row.difference_ns][:kernels]
    if changed:
        lines += [
            "",
            "kernels that differ most (all of a name; time on the device, also where others run beside)",
        ]
        body = [
            (
                row.how,
                shortened(printable(_names(row.a, row.b)), 80),
                _calls(row.calls_a, row.calls_b),
                *_cells(row.a_ns, row.b_ns),
            )
            for row in changed
        ]
        lines += aligned(("", "kernel", "calls", "A", "B", "B - A"), body, left=2).splitlines()
    lines += [f"note: {note}" for note in found.notes]
    return "\n".join(lines)


def sides(found: Comparison) -> list[str]:
    """What each of the two is, and takes."""
    return [
        f"{key} {duration_text(span)} ({side.what}, rank {rank} of {len(side.ranks)}, {printable(side.name)})"
        for key, side, rank, span in (
            ("A", found.a, found.rank_a, found.a_ns),
            ("B", found.b, found.rank_b, found.b_ns),
        )
    ]


def answer(found: Comparison) -> str:
    """By how much the second differs from the first, and which parts make most of that, in one sentence."""
    change = found.difference_ns
    if not change:
        return "B takes as long as A"
    share = f" ({100 * abs(change) / found.a_ns:.1f} %)" if found.a_ns else ""
    same_way = [part for part in found.parts if part.difference_ns * change > 0]
    named = ", ".join(
        f"{printable(part.name or part.part)} {signed(part.difference_ns)}"
        for part in sorted(same_way, key=lambda part: -abs(part.difference_ns))[:_NAMED]
    )
    return f"B takes {duration_text(abs(change))}{share} {'longer' if change > 0 else 'less'} than A: {named}"


def signed(time_ns: int) -> str:
    """A difference of times with its sign."""
    return f"{'+' if time_ns > 0 else '-' if time_ns < 0 else ''}{duration_text(abs(time_ns))}"


def _times(found: Comparison, part: str) -> tuple[int, int]:
    mine = [item for item in found.parts if item.part == part]
    return sum(item.a_ns for item in mine), sum(item.b_ns for item in mine)


def _cells(a: int, b: int) -> tuple[str, str, str]:
    return duration_text(a), duration_text(b), signed(b - a)


def _names(a: str, b: str) -> str:
    return a if a == b else f"{a or '(none)'} -> {b or '(none)'}"


def _calls(a: int, b: int) -> str:
    return str(a) if a == b else f"{a} -> {b}"
