"""The timeline of a report: NPUs that stand for all, as a picture, and as data that the page's script zooms into."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from markupsafe import Markup, escape

from chakra.io.markup import embedded_json
from chakra.io.readable import printable, shortened
from chakra.report.charts import LOOKS, axis, opened
from chakra.report.document import Run, stood_for
from chakra.timeline.document import from_document
from chakra.timeline.lenient import number
from chakra.timeline.model import CATEGORIES, Timeline

#: parts of the account whose colours the categories of slices have
_PARTS: Final = {
    "cpu": "cpu_ns",
    "compute": "compute_ns",
    "communication": "transfer_ns",
    "memory": "memory_ns",
    "other": "idle_ns",
}
_CALLED: Final = {"cpu": "CPU"}
_WIDTH: Final = 700.0
_LEFT: Final = 206.0
_ROW: Final = 20
#: slices that can be zoomed into; the longest stay
_MOST: Final = 10_000
#: rows that are shown; those with the longest slices in all stay
_MOST_ROWS: Final = 96
#: slices of a row that are drawn as one where less than this lies between them, px
_APART: Final = 0.5
MOST_RANKS: Final = 6


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A timeline on a page.

    Attributes
    ----------
    picture
        The whole time, for paper and for pages without scripts; slices that nearly touch are drawn as one.
    data
        Rows and slices as JSON, for the script: ``end`` in ns, ``names``, ``looks`` (colours by category), and of each
        row its ``label`` and ``slices``, four numbers each: start after the end of the one before, duration, name,
        category.
    npus
        NPUs that are shown.
    stood_for
        NPUs that are like one of them at every node.
    omitted
        Slices of these rows that are too many, the shortest.
    omitted_rows
        Rows that are too many, those with the least in them.
    parts
        Parts of the account whose colours its slices have, and what they are called.
    """

    picture: Markup
    data: Markup
    npus: int
    stood_for: int
    omitted: int
    omitted_rows: int
    parts: list[tuple[str, str]]


def excerpt(run: Run) -> Excerpt:
    """The timeline of the NPUs that stand for all, from 0 to the run's end.

    Parameters
    ----------
    run
        The run, whose document has the nodes of NPUs.

    Raises
    ------
    UsageError
        Entries that are malformed.
    """
    chosen, end_ns = representatives(run.table("nodes")), run.end_ns
    timeline = from_document(
        {**run.document, "nodes": [entry for entry, _ in chosen], "memory": None}, source=run.name
    )
    alike = {int(number(entry.get("npu"))): count for entry, count in chosen}
    rows = sorted(range(len(timeline.rows)), key=lambda i: (timeline.rows[i].rank, timeline.rows[i].place, i))
    every = len(rows)
    if every > _MOST_ROWS:
        held = np.bincount(timeline.row, timeline.duration_ns, minlength=every)
        busiest = set(np.argsort(-held, kind="stable")[:_MOST_ROWS].tolist())
        rows = [row for row in rows if row in busiest]
    labels = [_label(timeline, row, alike.get(timeline.rows[row].rank, 1)) for row in rows]
    of_rows = np.flatnonzero(np.isin(timeline.row, rows))
    kept = of_rows
    if len(kept) > _MOST:
        kept = np.sort(of_rows[np.argsort(-timeline.duration_ns[of_rows], kind="stable")[:_MOST]])
    shown = set(timeline.category[of_rows].tolist())
    return Excerpt(
        _picture(timeline, rows, labels, end_ns),
        embedded_json(_data(timeline, rows, labels, kept.tolist(), end_ns)),
        len(chosen),
        sum(alike.values()),
        len(of_rows) - len(kept),
        every - len(rows),
        [(_PARTS[word], _CALLED.get(word, word)) for k, word in enumerate(CATEGORIES) if k in shown],
    )


def representatives(
    entries: Sequence[Mapping[str, object]], most: int = MOST_RANKS
) -> list[tuple[Mapping[str, object], int]]:
    """NPUs none of which is like another at every node, and how many are like each, itself included.

    Where there are more than `most`, the first and the one that ends last are among those that stay.

    Parameters
    ----------
    entries
        Nodes of the NPUs, as a result document has them.
    most
        NPUs at most, at least 2.
    """
    found: dict[object, list[Mapping[str, object]]] = {}
    for place, entry in enumerate(entries):
        try:
            did: object = tuple(tuple(entry[key]) for key in ("kinds", "issue_ns", "finish_ns"))  # type: ignore[arg-type]
            hash(did)
        except (KeyError, TypeError):
            # malformed: what reads it says so
            did = place
        found.setdefault(did, []).append(entry)
    groups = [(members[0], sum(map(stood_for, members))) for members in found.values()]
    if len(groups) <= most:
        return groups
    last = max(range(len(groups)), key=lambda k: _end(groups[k][0]))
    spread = np.linspace(0, len(groups) - 1, most).round().astype(int).tolist()
    if last not in spread:
        spread[min(range(1, most), key=lambda k: abs(spread[k] - last))] = last
    return [groups[k] for k in sorted(set(spread))]


def _end(entry: Mapping[str, object]) -> float:
    ends = entry.get("finish_ns")
    return max((number(value) for value in ends), default=0.0) if isinstance(ends, list) else 0.0


def _label(timeline: Timeline, row: int, alike: int) -> str:
    found = timeline.rows[row]
    others = f" (+{alike - 1})" if alike > 1 else ""
    name = f"{printable(timeline.process_name(found.rank))}{others} {printable(found.name)}"
    return shortened(name, 38)


def _data(
    timeline: Timeline, rows: Sequence[int], labels: Sequence[str], kept: Sequence[int], end_ns: int
) -> dict[str, object]:
    slices: dict[int, list[int]] = {row: [] for row in rows}
    before = dict.fromkeys(rows, 0)
    names: dict[int, int] = {}
    order = sorted(kept, key=lambda i: int(timeline.start_ns[i]))
    for i in order:
        row, start, length = (
            int(column[i]) for column in (timeline.row, timeline.start_ns, timeline.duration_ns)
        )
        name = names.setdefault(int(timeline.name[i]), len(names))
        slices[row] += [start - before[row], length, name, int(timeline.category[i])]
        before[row] = start + length
    return {
        "end": end_ns,
        "names": [shortened(printable(timeline.names[code]), 120) for code in names],
        "looks": [LOOKS[_PARTS[category]][0] for category in CATEGORIES],
        "rows": [{"label": label, "slices": slices[row]} for row, label in zip(rows, labels, strict=True)],
    }


def _picture(timeline: Timeline, rows: Sequence[int], labels: Sequence[str], end_ns: int) -> Markup:
    scale = _WIDTH / max(end_ns, 1)
    height = len(rows) * _ROW + 26
    out = [opened(_LEFT + _WIDTH + 80, height, "Timeline"), axis(_LEFT, _WIDTH, height - 24, end_ns)]
    # slices by row, category and start; where those of a row and a category begin
    cell = timeline.row.astype(np.int64) * len(CATEGORIES) + timeline.category
    order = np.lexsort((timeline.start_ns, cell))
    first = np.searchsorted(cell[order], np.arange(len(timeline.rows) * len(CATEGORIES) + 1)).tolist()
    for place, (row, label) in enumerate(zip(rows, labels, strict=True)):
        y = place * _ROW
        out.append(f'<text x="{_LEFT - 6}" y="{y + 14}" text-anchor="end">{escape(label)}</text>')
        for code, category in enumerate(CATEGORIES, row * len(CATEGORIES)):
            own = order[first[code] : first[code + 1]]
            if not len(own):
                continue
            left = _LEFT + timeline.start_ns[own] * scale
            right = np.maximum.accumulate(np.maximum(left + timeline.duration_ns[own] * scale, left + 0.3))
            opens = np.concatenate(([True], left[1:] - right[:-1] >= _APART))
            begins, ends = left[opens], right[np.append(np.flatnonzero(opens)[1:] - 1, len(own) - 1)]
            path = "".join(
                f"M{a:.1f},{y + 3}h{b - a:.1f}v14h-{b - a:.1f}z"
                for a, b in zip(begins.tolist(), ends.tolist(), strict=True)
            )
            out.append(f'<path d="{path}" fill="{LOOKS[_PARTS[category]][0]}"/>')
    return Markup("".join(out) + "</svg>")
