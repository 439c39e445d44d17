"""The sweeps, against slow and obvious references, and compiled against plain."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chakra.converters.pytorch.match import sweeps
from chakra.jit import compiled

kernels: Any = sweeps  # kernels have no annotations
_intervals = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 30), st.integers(0, 12)), min_size=1, max_size=14
)


def _table(rows: list[tuple[int, int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rows = sorted(rows, key=lambda r: (r[0], r[1], -r[2]))
    thread = np.array([r[0] for r in rows], np.int64)
    start = np.array([r[1] for r in rows], np.int64)
    return thread, start, start + np.array([r[2] for r in rows], np.int64)


@given(_intervals)
def test_nesting_is_the_innermost_interval_around_each_start(rows: list[tuple[int, int, int]]) -> None:
    """Parent = the latest started interval of the thread that has not ended; children end within parents."""
    thread, start, end = _table(rows)
    parent = np.full(len(rows), -1, np.int64)
    kernels.nest(thread, start, end, parent)
    for i, p in enumerate(parent):
        around = [
            j for j in range(i) if thread[j] == thread[i] and start[j] <= start[i]
            and (end[j] > start[i] or (start[j] == end[j] == start[i] == end[i]))
        ]  # fmt: skip
        assert p == (around[-1] if around else -1)
        if p >= 0:
            assert start[p] <= start[i]
            assert end[i] <= end[p]


@given(_intervals, st.lists(st.tuples(st.integers(0, 1), st.integers(0, 45)), max_size=12))
def test_innermost_finds_the_interval_around_a_point(
    rows: list[tuple[int, int, int]], points: list[tuple[int, int]]
) -> None:
    """An interval holds its start and not its end."""
    thread, start, end = _table(rows)
    parent = np.full(len(rows), -1, np.int64)
    kernels.nest(thread, start, end, parent)
    points = sorted(points)
    out = np.full(len(points), -1, np.int64)
    where = np.array([p[0] for p in points], np.int64)
    when = np.array([p[1] for p in points], np.int64)
    kernels.innermost(thread, start, end, parent, where, when, out)
    for k, (t, s) in enumerate(points):
        holding = [i for i in range(len(rows)) if thread[i] == t and start[i] <= s < end[i]]
        depth = dict.fromkeys(holding, 0)
        for i in holding:
            j = parent[i]
            while j >= 0:
                depth[i] += 1
                j = parent[j]
        assert out[k] == (max(holding, key=lambda i: depth[i]) if holding else -1)


def _lcs(a: list[int], b: list[int]) -> int:
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            table[i + 1][j + 1] = table[i][j] + 1 if x == y else max(table[i][j + 1], table[i + 1][j])
    return table[-1][-1]


@given(st.lists(st.integers(0, 3), max_size=12), st.lists(st.integers(0, 3), max_size=12))
def test_alignment_is_a_longest_common_subsequence(a: list[int], b: list[int]) -> None:
    """As many pairs as the table method finds, equal and in order."""
    out = np.full(len(a), -1, np.int64)
    left, right = np.array(a, np.int64), np.array(b, np.int64)
    edits = kernels.align(left, right, len(a) + len(b) + 1, out)
    matched = [(i, int(j)) for i, j in enumerate(out) if j >= 0]
    assert len(matched) == _lcs(a, b)
    assert edits == len(a) + len(b) - 2 * len(matched)
    assert all(a[i] == b[j] for i, j in matched)
    assert [j for _, j in matched] == sorted({j for _, j in matched})


@settings(max_examples=60)
@given(_intervals, st.lists(st.tuples(st.integers(0, 1), st.integers(0, 40), st.integers(0, 5)), max_size=5))
def test_pieces_cover_every_instant_once(
    rows: list[tuple[int, int, int]], cuts: list[tuple[int, int, int]]
) -> None:
    """Pieces follow each other, every operator has one head, and waited time belongs to nobody."""
    thread, start, end = _table(rows)
    parent = np.full(len(rows), -1, np.int64)
    kernels.nest(thread, start, end, parent)
    cuts = sorted(cuts)
    c = [np.array([x[k] for x in cuts], np.int64) for k in range(3)]
    size = 2 * len(rows) + len(cuts) + 1
    owner, begin, finish, head, cut = (np.full(size, -1, np.int64) for _ in range(5))
    n = kernels.pieces(
        thread,
        start,
        end,
        np.zeros(len(rows), np.int64),
        c[0],
        c[1],
        c[1] + c[2],
        owner,
        begin,
        finish,
        head,
        cut,
    )
    owned = owner[:n]
    assert sorted(owned[head[:n] == 1].tolist()) == list(range(len(rows)))
    assert (finish[:n] >= begin[:n]).all()
    last: dict[int, int] = {}
    here = -1
    for i in range(n):
        if owned[i] >= 0:
            here = int(thread[owned[i]])
        elif cut[i] >= 0:
            here = int(c[0][cut[i]])
        assert begin[i] >= last.get(here, -1)
        last[here] = int(finish[i])
    if not cuts:
        for t in set(thread.tolist()):
            rows_of = thread == t
            covered = sum(
                int(finish[i] - begin[i]) for i in range(n)
                if (owned[i] >= 0 and thread[owned[i]] == t)
            )  # fmt: skip
            busy = np.zeros(60, np.bool_)
            for s, e in zip(start[rows_of], end[rows_of], strict=True):
                busy[s:e] = True
            assert covered == int(busy.sum())


def test_replay_starts_when_sources_are_done_and_the_engine_is_free() -> None:
    """Two engines: 0 -> 1 on engine 0 and 1, then 2 waits for both; a held node ends at its time."""
    offsets = np.array([0, 0, 1, 2, 4], np.int64)
    sources = np.array([0, 0, 1, 2], np.int32)
    duration = np.array([5, 7, 2, 1], np.int64)
    engine = np.array([0, 1, 0, 0], np.int32)
    hold = np.array([-1, -1, -1, 20], np.int64)
    finish = np.zeros(4, np.int64)
    kernels.replay(offsets, sources, duration, engine, 2, hold, finish)
    assert finish.tolist() == [5, 12, 7, 20]
    assert duration.tolist() == [5, 7, 2, 8]


@pytest.mark.slow
def test_compiled_kernels_agree_with_plain_ones() -> None:
    """The same module, compiled."""
    fast = compiled("chakra.converters.pytorch.match.sweeps")
    rng = np.random.default_rng(1)
    rows = [
        (int(t), int(s), int(d))
        for t, s, d in zip(*rng.integers(0, [[2], [900], [80]], (3, 300)), strict=True)
    ]
    results = []
    for module in (kernels, fast):
        thread, start, end = _table(rows)
        parent = np.full(len(rows), -1, np.int64)
        module.nest(thread, start, end, parent)
        out = np.full(len(rows), -1, np.int64)
        module.innermost(thread, start, end, parent, thread, start, out)
        a, b = rng.integers(0, 4, 50), rng.integers(0, 4, 55)
        rng = np.random.default_rng(1)
        results.append((parent.tolist(), end.tolist(), out.tolist()))
        del a, b
    assert results[0] == results[1]
