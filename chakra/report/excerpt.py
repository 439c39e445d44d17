"""The timeline excerpt of a report: the first ranks' rows as one picture."""

from typing import Final

import numpy as np
from markupsafe import Markup, escape

from chakra.io.readable import duration_text, printable, shortened
from chakra.report.charts import axis
from chakra.timeline.model import CATEGORIES, Timeline

_LOOKS: Final = {
    "cpu": ("cpu_ns", "#56b4e9"),
    "compute": ("compute_ns", "#0072b2"),
    "communication": ("transfer_ns", "#e69f00"),
    "memory": ("memory_ns", "#cc79a7"),
    "other": ("idle_ns", "#eeeeee"),
}
_WIDTH: Final = 700.0
_LEFT: Final = 170.0
#: Slices drawn at most; the longest stay.
_MOST: Final = 3000
MOST_RANKS: Final = 8


def excerpt(timeline: Timeline, end_ns: int) -> Markup:
    """Rows of the first ranks from 0 to ``end_ns``; slices too short to be seen are left out (and counted
    below)."""
    ranks = timeline.ranks()[:MOST_RANKS]
    rows = [
        i
        for i, row in sorted(enumerate(timeline.rows), key=lambda r: (r[1].rank, r[1].place, r[0]))
        if row.rank in ranks
    ]
    place = {row: at for at, row in enumerate(rows)}
    scale = _WIDTH / max(end_ns, 1)
    shown = np.flatnonzero(np.isin(timeline.row, rows) & (timeline.duration_ns * scale >= 0.15))
    if len(shown) > _MOST:
        shown = shown[np.argsort(-timeline.duration_ns[shown], kind="stable")[:_MOST]]
    height = len(rows) * 20 + 26
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 950 {height}" width="950" height="{height}" '
        f'role="img" '
        'font-family="Helvetica,Arial,sans-serif" font-size="10"><title>Timeline excerpt</title>'
    )
    out = [head]
    out.append(axis(_LEFT, _WIDTH, height - 24, end_ns))
    for row in rows:
        name = shortened(
            f"{printable(timeline.process_name(timeline.rows[row].rank))} "
            f"{printable(timeline.rows[row].name)}",
            30,
        )
        out.append(
            f'<text x="{_LEFT - 6}" y="{place[row] * 20 + 14}" text-anchor="end">{escape(name)}</text>'
        )
    for i in sorted(shown.tolist()):
        key, _ = _LOOKS[CATEGORIES[timeline.category[i]]]
        x, width = _LEFT + timeline.start_ns[i] * scale, max(timeline.duration_ns[i] * scale, 0.3)
        y = place[int(timeline.row[i])] * 20 + 3
        name = printable(timeline.names[timeline.name[i]])
        start, length = int(timeline.start_ns[i]), int(timeline.duration_ns[i])
        span = f"{name}: {duration_text(start)} + {duration_text(length)}"
        out.append(
            f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="14" fill="url(#p-{key})" class="part" '
            f'stroke-width="0.4"><title>{escape(span)}</title></rect>'
        )
        if width > 60:
            text = escape(shortened(name, int(width / 6.5)))
            out.append(
                f'<text x="{x + width / 2:.1f}" y="{y + 11}" text-anchor="middle" class="halo">{text}</text>'
            )
    return Markup("".join(out) + "</svg>")
