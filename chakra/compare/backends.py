"""One workload on two backends, as a document, a page and a few lines: which collectives make the difference."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from chakra import __version__
from chakra.alignment import aligned
from chakra.arguments import checked
from chakra.io.readable import (
    bytes_text,
    compared_durations,
    count_text,
    printable,
    shortened,
    signed_duration_text,
    signed_percent_text,
)
from chakra.replay.backends import BackendDifference
from chakra.report.page import rendered
from chakra.report.tables import Table

SCHEMA: Final = "chakra.compare.backends/1"
#: rows of collectives, and of NPUs, on a page
_MOST_ROWS: Final = 200
_MOST_NPUS: Final = 20


@dataclass(frozen=True, slots=True)
class Kind:
    """Collectives of one kind, group and size: how many, and their times in all on the one backend and the other, ns."""

    kind: str
    group: str
    members: int
    bytes: int
    count: int
    time_ns: tuple[int, int]

    @property
    def difference_ns(self) -> int:
        """How much longer they take on the second backend, ns."""
        return self.time_ns[1] - self.time_ns[0]


@checked
def backends_document(found: BackendDifference) -> dict[str, object]:
    """A comparison of backends as JSON values (schema `chakra.compare.backends/1`).

    Parameters
    ----------
    found
        From `chakra.replay.compare_backends`.
    """
    step = found.step_ns
    return {
        "schema": SCHEMA,
        "version": __version__,
        "backends": list(found.backends),
        "npus": found.results[0].npus,
        "step_ns": list(step),
        "difference_ns": step[1] - step[0],
        "finish_ns": found.finish_ns.tolist(),
        "collectives": [
            {
                "kind": item.kind,
                "group": item.group,
                "members": item.members,
                "bytes": item.bytes,
                "place": item.place,
                "ready_ns": list(item.ready_ns),
                "time_ns": list(item.time_ns),
                "difference_ns": item.difference_ns,
            }
            for item in found.collectives
        ],
        "notes": _notes(found),
        "warnings": list(found.results[0].warnings),
    }


@checked
def backends_text(found: BackendDifference, *, rows: int = 15) -> str:
    """A comparison of backends for a terminal.

    Parameters
    ----------
    found
        From `chakra.replay.compare_backends`.
    rows
        Most rows of collectives.
    """
    kinds = _kinds(found)
    header, body = _collective_rows(found, kinds[:rows])
    lines = [_headline(found), *_ends(found)]
    if body:
        lines += [
            "",
            "collectives from their last member's start to their end, all of a kind, group and size:",
        ]
        lines += aligned(header, body, left=2).splitlines()
    if len(kinds) > rows:
        lines.append(f"... and {count_text(len(kinds) - rows)} more (--format json has all)")
    lines += [f"note: {note}" for note in _notes(found)]
    return "\n".join(lines)


@checked
def backends_html(found: BackendDifference) -> str:
    """A comparison of backends as a page.

    Parameters
    ----------
    found
        From `chakra.replay.compare_backends`.
    """
    kinds = _kinds(found)
    header, body = _collective_rows(found, kinds[:_MOST_ROWS])
    one, other = found.backends
    each = [
        (
            *(
                item.kind,
                item.group or "all",
                count_text(item.members),
                bytes_text(item.bytes),
                str(item.place),
            ),
            *compared_durations(*item.ready_ns),
            *compared_durations(*item.time_ns),
        )
        for item in found.collectives[:_MOST_ROWS]
    ]
    ready = (f"starts on {one}", f"on {other}", "later")
    order = np.argsort(-np.abs(found.difference_ns), kind="stable")[:_MOST_NPUS]
    npus = [(str(npu), *compared_durations(*found.finish_ns[:, npu].tolist())) for npu in order.tolist()]
    return rendered(
        "backends.html.j2",
        title=f"{one} and {other}",
        headline=[_headline(found), *_ends(found)],
        kinds=Table(header, body, max(len(kinds) - _MOST_ROWS, 0), 2),
        each=Table(
            ("kind", "group", "members", "size", "place", *ready, *_times(found)),
            each,
            max(len(found.collectives) - _MOST_ROWS, 0),
            2,
        ),
        npus=Table(("NPU", *_times(found)), npus, max(found.finish_ns.shape[1] - _MOST_NPUS, 0), 1),
        notes=_notes(found),
    )


def _kinds(found: BackendDifference) -> list[Kind]:
    """Collectives of a kind, group and size put together, those that differ most first."""
    sums: dict[tuple[str, str, int, int], tuple[int, int, int]] = {}
    for item in found.collectives:
        key = item.kind, item.group, item.members, item.bytes
        count, a, b = sums.get(key, (0, 0, 0))
        sums[key] = count + 1, a + item.time_ns[0], b + item.time_ns[1]
    kinds = [Kind(*key, count, (a, b)) for key, (count, a, b) in sums.items()]
    return sorted(kinds, key=lambda kind: -abs(kind.difference_ns))


def _headline(found: BackendDifference) -> str:
    a, b = found.step_ns
    one, other = found.backends
    share = f" ({signed_percent_text((b - a) / a)})" if a else ""
    a_text, b_text, change = compared_durations(a, b)
    return f"{one} {a_text}, {other} {b_text}: {change}{share}"


def _ends(found: BackendDifference) -> list[str]:
    """Which NPU ends last on each, and how far ends differ."""
    last = [int(np.argmax(ends)) for ends in found.finish_ns]
    same = f"NPU {last[0]} ends last on both"
    words = same if last[0] == last[1] else f"NPU {last[0]} ends last on the one, NPU {last[1]} on the other"
    off = found.difference_ns
    most = int(np.argmax(np.abs(off)))
    if not off.any():
        return [f"{words}; each NPU ends at the same ns on both"]
    mean = signed_duration_text(round(float(off.mean())))
    return [
        f"{words}; ends differ by up to {signed_duration_text(int(off[most]))} (NPU {most}), {mean} in the mean"
    ]


def _times(found: BackendDifference) -> tuple[str, str, str]:
    return (*found.backends, "difference")


def _collective_rows(
    found: BackendDifference, kinds: list[Kind]
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    header = ("kind", "group", "members", "size", "count", *_times(found), "")
    return header, [
        (
            *(kind.kind, shortened(printable(kind.group or "all"), 30), count_text(kind.members)),
            *(bytes_text(kind.bytes), count_text(kind.count)),
            *compared_durations(*kind.time_ns),
            signed_percent_text(kind.difference_ns / kind.time_ns[0]) if kind.time_ns[0] else "",
        )
        for kind in kinds
    ]


def _notes(found: BackendDifference) -> list[str]:
    """What either result says of itself, with the backend's name where only one does."""
    one, other = (result.notes for result in found.results)
    return [
        *(note for note in one if note in other),
        *(f"{found.backends[0]}: {note}" for note in one if note not in other),
        *(f"{found.backends[1]}: {note}" for note in other if note not in one),
    ]
