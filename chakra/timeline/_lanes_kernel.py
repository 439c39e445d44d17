"""Kernel: put slices on rows so that no two on a row overlap by halves (run compiled or as plain Python)."""

import numpy as np

from chakra.arrays import I32, I64


def assign(track: I64, start: I64, end: I64, nests: I64, lane: I32) -> int:
    """Fill ``lane`` with the first row of its track in which each slice nests, or is free of the others.

    Parameters
    ----------
    track, start, end
        (n,) sorted by track, then start ascending, then end descending.
    nests
        (n,) 1 where a slice may lie inside another on its row, 0 where rows must be free.
    lane
        (n,) out.

    Returns
    -------
    Largest number of rows of a track.
    """
    n = len(track)
    # Open slices of every row, innermost last, as linked lists over the slices.
    top = np.full(n + 1, -1, np.int64)
    below = np.full(n + 1, -1, np.int64)
    most = 0
    rows = 0
    for i in range(n):
        if i == 0 or track[i] != track[i - 1]:
            rows = 0
        chosen = -1
        for row in range(rows):
            at = top[row]
            while at >= 0 and end[at] <= start[i]:
                at = below[at]
            top[row] = at
            if at < 0 or (nests[i] == 1 and end[i] <= end[at]):
                chosen = row
                break
        if chosen < 0:
            chosen = rows
            rows += 1
            top[chosen] = -1
        below[i] = top[chosen]
        # An instant has no inside: nothing may nest in it, and it closes at once.
        if end[i] > start[i]:
            top[chosen] = i
        lane[i] = chosen
        if rows > most:
            most = rows
    return most
