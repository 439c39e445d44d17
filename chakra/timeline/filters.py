"""Making a timeline smaller: a window of time, some ranks, no short slices; and how large its file will
be."""

from dataclasses import replace
from typing import Final

import numpy as np

from chakra.arguments import checked
from chakra.errors import UsageError
from chakra.timeline.model import Counter, Timeline

#: Bytes a slice, a flow and a counter value take, about, in each format (measured on replays of transformer
#: traces).
_BYTES: Final = {"json": (102.0, 190.0, 90.0), "perfetto": (46.0, 20.0, 22.0)}


@checked
def filtered(
    timeline: Timeline,
    *,
    window_ns: tuple[int, int] | None = None,
    ranks: set[int] | None = None,
    min_duration_ns: int = 0,
) -> Timeline:
    """The part of a timeline within a window, of some ranks, without slices shorter than ``min_duration_ns``.

    Slices that reach into the window are kept whole.

    Parameters
    ----------
    timeline
        The timeline.
    window_ns
        First ns of the window and the ns after its last; None for all.
    ranks
        Ranks to keep; None for all.
    min_duration_ns
        Slices shorter than this are left out, ns.

    Raises
    ------
    UsageError
        If a rank is not in the timeline.
    """
    keep = timeline.duration_ns >= min_duration_ns
    counters = list(timeline.counters)
    if ranks is not None:
        absent = sorted(ranks - set(timeline.ranks()))
        if absent:
            raise UsageError(
                f"--ranks: no rank {absent[0]} in the timeline; it has {_span(timeline.ranks())}"
            )
        keep &= (
            np.isin([row.rank for row in timeline.rows], list(ranks))[timeline.row] if timeline.rows else keep
        )
        counters = [counter for counter in counters if counter.rank in ranks]
    if window_ns is not None:
        begin, end = window_ns
        keep &= (timeline.start_ns < end) & (timeline.start_ns + np.maximum(timeline.duration_ns, 1) > begin)
        counters = [_windowed(counter, begin, end) for counter in counters]
    return replace(timeline.kept(keep), counters=tuple(counters))


def _windowed(counter: Counter, begin: int, end: int) -> Counter:
    first = max(int(np.searchsorted(counter.time_ns, begin, side="right")) - 1, 0)
    last = int(np.searchsorted(counter.time_ns, end))
    return replace(counter, time_ns=counter.time_ns[first:last], value=counter.value[first:last])


@checked
def estimated_bytes(timeline: Timeline, file_format: str) -> int:
    """About how large the uncompressed file will be; ``file_format`` is json or perfetto.

    Parameters
    ----------
    timeline
        The timeline.
    file_format
        "json" or "perfetto".

    Raises
    ------
    UsageError
        If the format is another.
    """
    if file_format not in _BYTES:
        raise UsageError(f"file_format: {file_format!r} is not one of {', '.join(_BYTES)}")
    per_slice, per_flow, per_value = _BYTES[file_format]
    if timeline.n_slices:
        lengths = np.array([len(name.encode()) for name in timeline.names], np.int64)
        text = int(lengths[timeline.name].sum()) if file_format == "json" else int(lengths.sum())
    else:
        text = 0
    values = sum(len(counter.time_ns) for counter in timeline.counters)
    return int(timeline.n_slices * per_slice + text + timeline.n_flows * per_flow + values * per_value) + 1000


def _span(ranks: list[int]) -> str:
    return f"ranks {ranks[0]} to {ranks[-1]}" if ranks else "none"
