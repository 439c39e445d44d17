"""A comparison as a few lines of text."""

from chakra.alignment import aligned
from chakra.arguments import checked
from chakra.compare.difference import PARTS, Comparison, Part
from chakra.compare.match import KernelRow
from chakra.compare.spans import WORDS, Kind, Source
from chakra.io.readable import (
    compared_durations,
    count_text,
    duration_text,
    percent_text,
    printable,
    shortened,
    signed_duration_text,
    verb,
)
from chakra.report.side_by_side import collectives_table, dimensions_table, inputs_table
from chakra.report.terminal import plain_table

#: parts that the sentence names of each direction, and the least that one of them has, as a share of the largest
_NAMED = 3
_LEAST = 0.05


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
    parts = [(part.part, printable(part.name), part.a_ns, part.b_ns) for part in found.parts if part.name]
    table = [
        (f"{'  ' * bool(name)}{name or part}", *compared_durations(a, b))
        for part, name, a, b in sorted(
            [*[row for row in rows if row[2] or row[3]], *parts],
            key=lambda row: (PARTS.index(row[0]), bool(row[1]), -abs(row[3] - row[2])),
        )
    ]
    table.append(("all", *compared_durations(found.a_ns, found.b_ns)))
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
                shortened(printable(names_text(row)), 80),
                calls_text(row),
                *compared_durations(row.a_ns, row.b_ns),
            )
            for row in changed
        ]
        lines += aligned(("", "kernel", "calls", "A", "B", "B - A"), body, left=2).splitlines()
    lines += _side_by_side(found)
    lines += [f"note: {note}" for note in found.notes]
    return "\n".join(lines)


def _side_by_side(found: Comparison) -> list[str]:
    """Of two replays their collectives, their network dimensions, and the inputs that differ."""
    lines: list[str] = []
    if found.runs:
        for table in (collectives_table, dimensions_table, inputs_table):
            made = table(found.runs, "AB")
            if made.rows:
                lines += ["", *plain_table(made)]
    return lines


def sides(found: Comparison) -> list[str]:
    """What each of the two is, and takes."""
    a_text, b_text, _ = compared_durations(found.a_ns, found.b_ns)
    return [
        f"{key} {span} ({side.what}, {_rank_text(side, rank)}, {printable(side.name)})"
        for key, side, rank, span in (
            ("A", found.a, found.rank_a, a_text),
            ("B", found.b, found.rank_b, b_text),
        )
    ]


def _rank_text(side: Source, rank: int) -> str:
    """Which rank of how many; ranks of the job that are not here are counted where the recording says how many."""
    here, world = len(side.ranks), side.world or len(side.ranks)
    if here < world:
        return f"rank {rank} of {world}, of which {here} {verb(here, 'is', 'are')} here"
    # a rank whose number says that there are others, but not how many
    return f"rank {rank} of {here}" if rank < here else f"rank {rank}"


def answer(found: Comparison) -> str:
    """By how much the second differs from the first, and which parts that is, in one sentence: those that go its way,
    those that go the other, and the sum of what is not named, so that they add up.
    """
    change = found.difference_ns
    share = f" ({percent_text(abs(change) / found.a_ns)})" if found.a_ns else ""
    said = f"B takes {duration_text(abs(change))}{share} {'longer' if change > 0 else 'less'} than A"
    ordered = sorted(found.parts, key=lambda part: -abs(part.difference_ns))
    least = max((abs(part.difference_ns) for part in ordered), default=0) * _LEAST
    large = [part for part in ordered if abs(part.difference_ns) >= least]
    along = [part for part in large if part.difference_ns * (change or 1) > 0][:_NAMED]
    against = [part for part in large if part.difference_ns * (change or 1) < 0][:_NAMED]
    named = ", ".join(map(_part_text, along))
    if against:
        named += f"{', ' if named else ''}against {', '.join(map(_part_text, against))}"
    rest = change - sum(part.difference_ns for part in (*along, *against))
    if rest:
        named += f", the rest {signed_duration_text(rest)}"
    return ": ".join(filter(None, (said if change else "B takes as long as A", named)))


def _part_text(part: Part) -> str:
    """A part and its difference; the name of a collective alone is its transfer."""
    name = (
        f"{part.part} in {part.name}"
        if part.part == WORDS[Kind.PEERS] and part.name
        else part.name or part.part
    )
    return f"{printable(name)} {signed_duration_text(part.difference_ns)}"


def _times(found: Comparison, part: str) -> tuple[int, int]:
    mine = [item for item in found.parts if item.part == part]
    return sum(item.a_ns for item in mine), sum(item.b_ns for item in mine)


def names_text(row: KernelRow) -> str:
    """What kernels are called in both runs: once where they have one name.

    Parameters
    ----------
    row
        Kernels side by side.
    """
    return row.a if row.a == row.b else f"{row.a or '(none)'} -> {row.b or '(none)'}"


def calls_text(row: KernelRow) -> str:
    """How often kernels ran in both runs: once where as often.

    Parameters
    ----------
    row
        Kernels side by side.
    """
    same = row.calls_a == row.calls_b
    return count_text(row.calls_a) if same else f"{count_text(row.calls_a)} -> {count_text(row.calls_b)}"
