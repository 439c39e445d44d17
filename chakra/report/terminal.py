"""The essence of a report for a terminal: plain text, no colour needed."""

from chakra.alignment import aligned
from chakra.arguments import checked
from chakra.errors import UsageError
from chakra.io.readable import counted_text, duration_text, verb
from chakra.replay.results.corrections import OF_TIME
from chakra.report import tables
from chakra.report.document import Run, part_words
from chakra.report.npu_groups import npu_groups

_BAR = 40
_SIGNS = {
    "compute_ns": "#",
    "cpu_ns": "o",
    "transfer_ns": "=",
    "waiting_ns": ".",
    "memory_ns": "m",
    "idle_ns": "-",
}


@checked
def essence(run: Run, bars: int = 8) -> str:
    """A few lines: headline figures, what the machine waited for, a bar a group of NPUs, the costliest
    collectives.

    Every time has its unit; the text holds no control characters, whatever the document holds.

    Parameters
    ----------
    run
        The run.
    bars
        Bars of the time account at most, one a group of equal NPUs.

    Raises
    ------
    UsageError
        If that is below 1.
    """
    facts = tables.headline(run)
    width = max((len(word) for word, _ in facts), default=0) + 3
    lines = [f"{word + ':':<{width}}{value}" for word, value in facts]
    if run.document.get("partial"):
        lines.insert(0, "PARTIAL RESULT: the run was ended before all NPUs had finished")
    verdict = tables.waiting_verdict(run)
    if verdict:
        lines.append(verdict)
    if note := tables.waiting_note(run):
        lines.append(note)
    if bars < 1:
        raise UsageError(f"bars: {bars} is not a whole number of at least 1")
    notes = run.document.get("notes")
    lines += [f"Note: {tables.text_of(note)}." for note in notes] if isinstance(notes, list) else []
    if run.account:
        lines += ["", *_bars(run, bars)]
    table = tables.collectives(run, 5)
    if table.rows:
        lines += ["", *plain_table(table)]
    fixes = [row for row in tables.corrections(run).rows if row[0] in OF_TIME]
    if fixes:
        lines += [
            "",
            "corrections that applied: " + ", ".join(f"{row[0]} ({row[-1]})" for row in fixes),
        ]
    return "\n".join(lines)


def _bars(run: Run, most: int) -> list[str]:
    groups, left_out = npu_groups(run, most)
    longest = max(run.end_ns, 1)
    width = max(len(group.label) for group in groups)
    lines = []
    for group in groups:
        bar, filled, total = "", 0, 0
        for key, value in group.parts.items():
            total += value
            # a document may claim parts that are longer than its run
            cells = min(round(_BAR * total / longest), _BAR) - filled
            bar += _SIGNS[key] * cells
            filled += cells
        lines.append(f"{group.label:<{width}}  |{bar:<{_BAR}}| {duration_text(group.finish_ns)}")
    if left_out:
        lines.append(
            f"({counted_text(left_out, 'NPU')} between these {verb(left_out, 'is', 'are')} not shown)"
        )
    present = [
        (key, word)
        for key, word in part_words([run]).items()
        if run.account.get(key) is not None and run.account[key].any()
    ]
    return [*lines, "  ".join(f"{_SIGNS[key]} {word}" for key, word in present)]


def plain_table(table: tables.Table) -> list[str]:
    """A table as aligned text."""
    lines = [aligned(table.columns, table.rows, left=table.first_number)]
    if table.remark:
        lines.append(table.remark)
    if table.omitted:
        lines.append(f"({table.omitted} more)")
    return lines
