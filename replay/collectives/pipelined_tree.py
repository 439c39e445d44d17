"""All-reduce over two binary trees at once, each of which carries half of the data in segments.

Every member but one or two is inner in one tree and a leaf in the other, so both its links are busy: while a segment of
one half goes up or down through it, one of the other half does. Messages are put into rounds greedily, at most one sent
and one received per member and round, a segment only after what it is made of; the deepest members go first on the
way up, the root's side first on the way down.

Source: Sanders, Speck, Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", Parallel Computing
35(12), 2009, doi:10.1016/j.parco.2009.09.001.
"""

from collections.abc import Sequence
from functools import lru_cache
from heapq import heapify, heappop, heappush

from chakra.replay.collectives.steps import (
    Do,
    Link,
    Message,
    StepAlgorithm,
    Steps,
    best_segments,
    from_rounds,
)


def in_order_tree(n: int) -> list[int]:
    """Parents in a binary tree whose leaves are the odd positions; the root, 0, has one child. -1 for the root."""
    parents = [-1] * n
    for i in range(1, n):
        low = i & -i
        above = (i ^ low) | (low << 1)
        parents[i] = above if above < n else i ^ low
    return parents


def two_trees(n: int) -> tuple[list[int], list[int]]:
    """Parents in both trees: the second is the mirror image (n even) or shifted by one, so that leaves become inner."""
    first = in_order_tree(n)
    second = [-1] * n
    for i, parent in enumerate(first):
        there = n - 1 - i if n % 2 == 0 else (i + 1) % n
        if parent >= 0:
            second[there] = n - 1 - parent if n % 2 == 0 else (parent + 1) % n
    return first, second


def schedule(do: Do, n: int, size_bytes: int, link: Link) -> Steps:
    """Rounds of one all-reduce."""
    del do
    depth = max((n - 1).bit_length(), 1)
    return _schedule(n, best_segments(4 * depth, 4, 2, n, size_bytes, link, most=32))


class _Messages:
    """Messages between NPUs: each waits for those that feed it, then competes for both ends' ports."""

    def __init__(self) -> None:
        self.ends: list[tuple[int, int, bool]] = []  # source, destination, whether the latter reduces
        self.waits: list[int] = []  # messages that must arrive before this one can leave
        self.feeds: list[list[int]] = []
        self.rank: list[tuple[int, int, int]] = []  # who goes first; the last is the message's number

    def add(self, src: int, dst: int, reduces: bool, order: tuple[int, int]) -> int:
        """A message; returns its number."""
        number = len(self.ends)
        self.ends.append((src, dst, reduces))
        self.waits.append(0)
        self.feeds.append([])
        self.rank.append((*order, number))
        return number

    def feed(self, source: int, target: int) -> None:
        """Let a message wait for another."""
        self.feeds[source].append(target)
        self.waits[target] += 1

    def rounds(self) -> list[list[Message]]:
        """Rounds in which every NPU sends at most one message and receives at most one."""
        ready = [rank for rank, count in zip(self.rank, self.waits, strict=True) if count == 0]
        heapify(ready)
        waits = list(self.waits)
        rounds: list[list[Message]] = []
        while ready:
            sends, receives = set[int](), set[int]()
            now: list[int] = []
            later: list[tuple[int, int, int]] = []
            while ready:
                entry = heappop(ready)
                src, dst, _ = self.ends[entry[2]]
                if src in sends or dst in receives:
                    later.append(entry)
                    continue
                sends.add(src)
                receives.add(dst)
                now.append(entry[2])
            rounds.append([(*self.ends[k][:2], 1, self.ends[k][2]) for k in now])
            for k in now:
                for target in self.feeds[k]:
                    waits[target] -= 1
                    if waits[target] == 0:
                        later.append(self.rank[target])
            for entry in later:
                heappush(ready, entry)
        return rounds


@lru_cache(maxsize=32)
def _schedule(n: int, segments: int) -> Steps:
    messages = _Messages()
    for tree, parents in enumerate(two_trees(n)):
        depth = [0] * n
        for i in range(n):
            at = i
            while parents[at] >= 0:
                at = parents[at]
                depth[i] += 1
        for segment in range(segments):
            _segment(messages, parents, depth, tree, segment)
    return from_rounds(n, messages.rounds(), 2 * segments)


def _segment(
    messages: _Messages, parents: Sequence[int], depth: Sequence[int], tree: int, segment: int
) -> None:
    """A segment of the data goes up a tree, reduced on its way, and down again."""
    children: list[list[int]] = [[] for _ in parents]
    for i, parent in enumerate(parents):
        if parent >= 0:
            children[parent].append(i)
    edges = [i for i, parent in enumerate(parents) if parent >= 0]
    # priority: when the message would run in a pipeline without contention
    start, height = 4 * segment + tree, max(depth)
    up = {i: messages.add(i, parents[i], True, (start + 2 * (height - depth[i]), tree)) for i in edges}
    down = {i: messages.add(parents[i], i, False, (start + 2 * (height + depth[i]), tree)) for i in edges}
    for i in edges:
        above = up.get(parents[i])
        for target in [above] if above is not None else [down[j] for j in children[parents[i]]]:
            messages.feed(up[i], target)
    for i in edges:
        for j in children[i]:
            messages.feed(down[i], down[j])


ALGORITHM = StepAlgorithm(
    name="pipelinedTree",
    kinds=frozenset({Do.ALL_REDUCE}),
    schedule=schedule,
    summary="two binary trees, half of the data each, in segments; few steps and nearly full bandwidth",
    formula="about e + (4 log2 n + 4 s) (l(d/2s) + e) + reductions, s segments per half",
    source="Sanders, Speck, Traeff 2009, doi:10.1016/j.parco.2009.09.001",
)
