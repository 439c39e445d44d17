"""The search for routes: distances by another algorithm on random graphs, and no farther than what is wanted."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chakra.jit import compiled
from chakra.replay.networks.flow import search as plain

KERNELS: list[Any] = [plain, compiled("chakra.replay.networks.flow.search")]
VERTICES = 9


@st.composite
def graphs(draw: st.DrawFn) -> SimpleNamespace:
    """Links of nine vertices, what is looked for, and which vertices do not forward."""
    lengths = draw(st.sampled_from([[1], [1, 1024], list(range(1, 8))]))
    link = st.tuples(st.integers(0, VERTICES - 1), st.integers(0, VERTICES - 1), st.sampled_from(lengths))
    links = draw(st.lists(link, min_size=1, max_size=40))
    tail, head, length = (np.array(column, np.int64) for column in zip(*links, strict=True))
    to = draw(st.integers(0, VERTICES - 1))
    wanted = draw(st.sets(st.integers(0, VERTICES - 1).filter(lambda v: v != to), min_size=1))
    closed = draw(st.sets(st.integers(0, VERTICES - 1)))
    return SimpleNamespace(
        tail=tail, head=head, length=length, to=to, wanted=wanted, closed=closed, equal=len(lengths) == 1
    )


def distances(g: SimpleNamespace) -> list[int]:
    """Bellman's and Ford's: every link once for each vertex."""
    dist = [plain.FAR] * VERTICES
    dist[g.to] = 0
    for _ in range(VERTICES):
        for tail, head, length in zip(g.tail.tolist(), g.head.tolist(), g.length.tolist(), strict=True):
            if head == g.to or head not in g.closed:
                dist[tail] = min(dist[tail], dist[head] + length)
    return dist


@pytest.mark.parametrize("kernel", KERNELS, ids=["plain", "compiled"])
@given(g=graphs())
@settings(max_examples=150)
def test_what_is_wanted_has_its_distance_and_what_is_farther_has_none(
    kernel: Any, g: SimpleNamespace
) -> None:
    order = np.argsort(g.head, kind="stable")
    start = np.searchsorted(g.head[order], np.arange(VERTICES + 1))
    marks = [np.zeros(VERTICES, np.int64) for _ in range(2)]
    for mark, of in zip(marks, (g.wanted, g.closed), strict=True):
        mark[list(of)] = 1
    wanted, closed = marks
    dist = np.full(VERTICES, plain.FAR, np.int64)
    queue, heap, place = (np.zeros(VERTICES + 1, np.int64) for _ in range(3))
    n = kernel.search(
        start, order, g.tail, g.length, closed, g.to, wanted, len(g.wanted), g.equal, dist, queue, heap, place
    )
    right = distances(g)
    found = queue[:n].tolist()
    assert sorted(found) == np.flatnonzero(dist < plain.FAR).tolist()
    assert [int(dist[v]) for v in found] == sorted(right[v] for v in found)
    assert all(int(dist[v]) == right[v] for v in found)
    reachable = {v for v in g.wanted if right[v] < plain.FAR}
    assert reachable <= set(found)
    farthest = max((right[v] for v in reachable), default=0)
    nearer = {v for v in range(VERTICES) if right[v] < farthest}
    assert nearer <= set(found)
    if reachable == g.wanted:
        assert all(right[v] <= farthest for v in found)
    assert not place.any()
