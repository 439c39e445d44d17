"""Use of links over time: rows of the message-level engine's block, and what a result says of them."""

from collections.abc import Callable
from typing import Final

import numpy as np

from chakra.arrays import F64, I64, AnyArray, distinct
from chakra.replay.engines.kernels.link_use import WHOLE, lost
from chakra.replay.engines.state import Block
from chakra.replay.networks.interface import UseOverTime

#: intervals of a link
MOST_INTERVALS: Final = 128
LEAST_INTERVALS: Final = 16
#: words that the intervals of all links may take; with more links than that allows, none are kept
MOST_WORDS: Final = 1 << 20
#: links, or sets of links that are used alike, that a result has
SHOWN: Final = 12


class UseRows:
    """Room for the intervals of all links of a block (`chakra.replay.engines.kernels.link_use`)."""

    def __init__(self, block: Block, links: int) -> None:
        self.intervals = MOST_INTERVALS
        while links * (self.intervals + 1) > MOST_WORDS and self.intervals > LEAST_INTERVALS:
            self.intervals //= 2
        self._links = links
        self._kept = 0 < links * (self.intervals + 1) <= MOST_WORDS
        self._first = block.room(links * (self.intervals + 1)) if self._kept else 0

    def rows(self) -> I64:
        """Where each link's intervals lie, or zeros if none are kept."""
        if not self._kept:
            return np.zeros(self._links, np.int64)
        return self._first + np.arange(self._links, dtype=np.int64) * (self.intervals + 1)

    def table(self, m: I64, end_ns: int) -> tuple[int, F64] | None:
        """Length of an interval, and the share of each link's bandwidth that is used in each, shape (links, intervals).

        Parameters
        ----------
        m
            The block after a run.
        end_ns
            End of the run: the last interval ends there.
        """
        if not self._kept:
            return None
        words = m[self._first : self._first + self._links * (self.intervals + 1)]
        rows = words.reshape(self._links, self.intervals + 1)
        shift = int(rows[:, 0].max())
        while end_ns > self.intervals << shift:
            shift += 1
        used = np.zeros((self._links, self.intervals), np.int64)
        for own in distinct(rows[:, 0]).tolist():
            some = np.flatnonzero(rows[:, 0] == own)
            together = np.arange(self.intervals) >> (shift - own)
            first = np.flatnonzero(np.diff(together, prepend=-1))
            parts = rows[some, 1:] >> (lost(shift) - lost(own))
            used[some[:, None], together[first]] = np.add.reduceat(parts, first, axis=1)
        length = 1 << shift
        return length, _shares(length, used, end_ns) / (WHOLE / (1 << lost(shift)))


def _shares(length: int, busy: AnyArray, end_ns: int) -> F64:
    """Busy times by the length of their intervals, of which the last ends with the run; intervals behind are left out."""
    last = np.flatnonzero(busy.any(axis=0))
    n = max(-(-end_ns // length), int(last[-1]) + 1 if len(last) else 1)
    spans = np.full(n, float(length))
    if end_ns > length * (n - 1):
        spans[-1] = end_ns - length * (n - 1)
    out: F64 = busy[:, :n] / spans
    return out


def outside_use(found: UseOverTime | None, end_ns: int) -> dict[str, object]:
    """The `link_use` of a run whose network was simulated outside, which may count a little beyond its end."""
    if found is None or not found.busy_ns.size:
        return {}
    n = max(-(-end_ns // found.interval_ns), 1)
    busy = np.zeros((len(found.links), n))
    kept = min(n, found.busy_ns.shape[1])
    busy[:, :kept] = found.busy_ns[:, :kept]
    shares = np.minimum(_shares(found.interval_ns, busy, end_ns), 1.0)
    rows = np.arange(len(found.links))

    def name(k: int) -> dict[str, object]:
        source, target, bandwidth = found.links[k]
        return {"dim": 0, "from": source, "to": target, "bandwidth_gibps": bandwidth}

    return use_document((found.interval_ns, shares), rows, np.ones(len(rows), np.int64), name)


def use_document(
    found: tuple[int, F64] | None,
    row_of: I64,
    weight: I64,
    name: Callable[[int], dict[str, object]],
) -> dict[str, object]:
    """The result's `link_use`.

    Parameters
    ----------
    found
        What `UseRows.table` answers.
    row_of
        Rows of the table that carried something, in the order of the links.
    weight
        How many links each of them stands for.
    name
        What a row's first link is called, by the row's place in `row_of`.
    """
    if found is None or not len(row_of):
        return {}
    length, shares = found
    shares = shares[row_of]
    _, first, alike = np.unique(
        np.ascontiguousarray(shares).view(f"V{8 * shares.shape[1]}").reshape(-1),
        return_index=True,
        return_inverse=True,
    )
    count = np.zeros(len(first), np.int64)
    np.add.at(count, alike.reshape(-1), weight)
    total = shares[first].sum(axis=1)
    most = np.lexsort((first, -total))[:SHOWN]
    mean = (shares * weight[:, None]).sum(axis=0) / weight.sum()
    return {
        "interval_ns": length,
        "mean": [round(share, 4) for share in mean.tolist()],
        "links": [
            {
                **name(int(first[k])),
                "alike": int(count[k]),
                "share": [round(share, 4) for share in shares[first[k]].tolist()],
            }
            for k in most.tolist()
        ],
    }
