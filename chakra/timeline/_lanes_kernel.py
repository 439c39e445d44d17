"""Kernel: put slices on rows so that no two on a row overlap by halves (run compiled or as plain Python)."""

import numpy as np

from chakra.arrays import I32, I64

ENTRY_POINTS = ("assign",)

#: what a row without open slices has in the tree: any slice fits there
_FREE = np.iinfo(np.int64).max


def assign(track: I64, start: I64, end: I64, nests: I64, by_end: I64, lane: I32) -> int:
    """Fill ``lane`` with the first row of its track in which each slice nests, or is free of the others.

    A tree over the rows has the largest end of an innermost open slice below each of its nodes, so that the first row
    with room is found without trying all: many slices may be open at once.

    Parameters
    ----------
    track, start, end
        (n,) sorted by track, then start ascending, then end descending.
    nests
        (n,) 1 where a slice may lie inside another on its row, 0 where rows must be free.
    by_end
        (n,) the slices by track, then end.
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
    # Leaves are at rows..2 * rows - 1, the children of a node at twice its place; rows is a power of two.
    tree = np.full(2, _FREE, np.int64)
    rows = 1
    most = 0
    ended = 0
    for i in range(n):
        if i > 0 and track[i] != track[i - 1]:
            top[:rows] = -1
            rows = 1
            tree[1] = _FREE
            ended = i
        # Of those that have ended by now all but instants were opened before, and instants never are.
        while ended < n and track[by_end[ended]] == track[i] and end[by_end[ended]] <= start[i]:
            row = lane[by_end[ended]]
            at = top[row]
            if at >= 0 and end[at] <= start[i]:
                while at >= 0 and end[at] <= start[i]:
                    at = below[at]
                top[row] = at
                _set(tree, rows, row, _FREE if at < 0 else end[at])
            ended += 1
        need = end[i] if nests[i] == 1 else _FREE
        if tree[1] < need:
            tree = _doubled(tree, rows)
            rows *= 2
        node = 1
        while node < rows:
            node *= 2
            if tree[node] < need:
                node += 1
        chosen = node - rows
        below[i] = top[chosen]
        # An instant has no inside: nothing may nest in it, and it closes at once.
        if end[i] > start[i]:
            top[chosen] = i
            _set(tree, rows, chosen, end[i])
        lane[i] = chosen
        most = max(most, chosen + 1)
    return most


def _set(tree: I64, rows: int, row: int, value: int) -> None:
    """Give a leaf a value, and the nodes above it theirs."""
    node = rows + row
    tree[node] = value
    while node > 1:
        node //= 2
        larger = max(tree[2 * node], tree[2 * node + 1])
        if tree[node] == larger:
            break
        tree[node] = larger


def _doubled(tree: I64, rows: int) -> I64:
    """The tree of twice as many rows, of which the new ones are free."""
    out = np.full(4 * rows, _FREE, np.int64)
    out[2 * rows : 3 * rows] = tree[rows : 2 * rows]
    for node in range(2 * rows - 1, 0, -1):
        out[node] = max(out[2 * node], out[2 * node + 1])
    return out
