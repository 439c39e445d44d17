"""Replaying all ranks of a job together, with collectives that take the time that they were recorded to take.

A collective ends for a member as long after its last member came as it was recorded to: that is perfect knowledge of the
network, and whatever the replayed span differs by is the graph's. (`replay_check` replays each rank by itself, where a
collective takes all of its recorded time, waiting for late members included.)
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from chakra.arrays import I32, I64
from chakra.converters.pytorch.graph.event_cost import HostEvents, host_events
from chakra.converters.pytorch.link import Linked
from chakra.errors import ConversionError
from chakra.et import NodeType

#: what meets: kind, group, ends
_Key = tuple[str, str, int, int]


@dataclass(slots=True)
class RankGraph:
    """What a joint replay needs of a rank.

    Attributes
    ----------
    rank
        The rank.
    offsets, sources, engine, n_engines
        The graph: sources of every node, and what runs it.
    duration
        (nodes,) ns.
    begin_ns
        Begin of the rank's region, ns on the clock of all ranks.
    measured_ns
        Recorded span.
    steps
        Steps that the region holds as a whole; 1 where it holds none.
    parted
        Whether the region holds a part of a step only.
    events
        Recorded events by node.
    meetings
        Communication node -> what meets there, in the order of the rank, with its recorded begin and end.
    """

    rank: int
    offsets: I64
    sources: I64
    engine: I32
    n_engines: int
    duration: I64
    begin_ns: int
    measured_ns: int
    steps: int
    parted: bool
    events: HostEvents
    meetings: dict[int, tuple[_Key, int, int]]

    def shift(self, ahead_ns: int) -> None:
        """Put a clock back that is ahead of the first rank's."""
        self.begin_ns -= ahead_ns
        self.meetings = {
            node: (key, start - ahead_ns, end - ahead_ns) for node, (key, start, end) in self.meetings.items()
        }


def rank_graph(linked: Linked, rank: int) -> RankGraph:
    """What a joint replay needs of a linked rank."""
    graph, clock = linked.graph, linked.device.first_ns
    meetings: dict[int, tuple[_Key, int, int]] = {}
    for node in sorted(graph.comm):
        info = graph.comm[node]
        if info.kind == NodeType.COMM_COLL:
            key: _Key = ("collective", info.group, -1, -1)
        else:
            ends = (rank, info.peer) if info.kind == NodeType.COMM_SEND else (info.peer, rank)
            key = ("message", info.group, *ends)
        start = clock + int(graph.start[node])
        meetings[node] = (key, start, start + int(graph.duration[node]))
    return RankGraph(
        rank, graph.offsets, graph.sources, graph.engine, graph.n_engines, graph.duration.copy(),
        clock + linked.first_ns, linked.measured_ns, max(linked.whole_steps, 1),
        bool(linked.steps) and not linked.whole_steps, host_events(graph, linked.device.calls), meetings,
    )  # fmt: skip


def replay_job(ranks: Sequence[RankGraph], durations: Sequence[I64] | None = None) -> list[int]:
    """Spans of all ranks in a joint replay, ns from each rank's own begin.

    Ranks begin as far apart as they were recorded. What not all of its members recorded takes its recorded time.

    Parameters
    ----------
    ranks
        From `rank_graph`, all ranks of the job.
    durations
        Durations instead of the recorded ones, a rank each.

    Raises
    ------
    ConversionError
        Ranks wait for each other.
    """
    job = _Job(ranks, durations if durations is not None else [rank.duration for rank in ranks])
    while job.round():
        pass
    return job.spans()


class _Job:
    """Where every rank is."""

    def __init__(self, ranks: Sequence[RankGraph], durations: Sequence[I64]) -> None:
        self.ranks = [rank.rank for rank in ranks]
        first = min(rank.begin_ns for rank in ranks)
        self.begin = [rank.begin_ns - first for rank in ranks]
        self.graphs = [(rank.offsets.tolist(), rank.sources.tolist(), rank.engine.tolist()) for rank in ranks]
        self.durations = [values.tolist() for values in durations]
        self.ends = [[0] * len(values) for values in durations]
        self.free = [[begin] * rank.n_engines for rank, begin in zip(ranks, self.begin, strict=True)]
        self.done = [[False] * len(values) for values in durations]
        self.next = [0] * len(ranks)
        #: members that have come to where ranks meet
        self.arrivals = 0
        self.came: dict[tuple[_Key, int], dict[int, int]] = defaultdict(dict)
        self._meet(ranks)

    def _meet(self, ranks: Sequence[RankGraph]) -> None:
        """Number what meets, and say how long after its last member came it ends for each."""
        members: dict[tuple[_Key, int], list[tuple[int, int, int, int]]] = defaultdict(list)
        for place, rank in enumerate(ranks):
            turns: dict[_Key, int] = defaultdict(int)
            for node, (key, start, end) in rank.meetings.items():
                members[key, turns[key]].append((place, node, start, end))
                turns[key] += 1
        self.met: list[dict[int, tuple[tuple[_Key, int], int, int]]] = [{} for _ in ranks]
        for meeting, found in members.items():
            if len(found) < 2:
                continue
            last = max(start for _, _, start, _ in found)
            for place, node, _, end in found:
                self.met[place][node] = (meeting, len(found), max(end - last, 0))

    def round(self) -> bool:
        """Run every rank until it waits for others; whether anything happened."""
        before = self.arrivals
        moved = [self.advance(place) for place in range(len(self.next))]
        if any(moved) or self.arrivals > before:
            return True
        ran = [self.overtake(place) for place in range(len(self.next))]
        return any(ran) or self.arrivals > before

    def advance(self, place: int) -> bool:
        """Run a rank in the order of its file until it waits for others; whether it moved."""
        begun = node = self.next[place]
        done = self.done[place]
        while node < len(done) and (done[node] or self._run(place, node)):
            node += 1
        self.next[place] = node
        return node > begun

    def overtake(self, place: int) -> bool:
        """Run what does not depend on what a rank waits for, on other engines; whether anything ran.

        Threads that serve collectives (gloo's) take them up in an order that differs between ranks.
        """
        offsets, sources, engine = self.graphs[place]
        done, blocked, ran = self.done[place], set[int](), False
        for node in range(self.next[place], len(done)):
            if done[node]:
                continue
            free = engine[node] not in blocked
            ready = free and all(done[source] for source in sources[offsets[node] : offsets[node + 1]])
            if ready and self._run(place, node):
                ran = True
                continue
            blocked.add(engine[node])
        return ran

    def _run(self, place: int, node: int) -> bool:
        """Run a node whose sources are done; False where it waits for members of other ranks."""
        offsets, sources, engine = self.graphs[place]
        ends, free = self.ends[place], self.free[place]
        ready = free[engine[node]]
        for source in sources[offsets[node] : offsets[node + 1]]:
            ready = max(ready, ends[source])
        end = ready + self.durations[place][node]
        if node in self.met[place]:
            meeting, members, takes = self.met[place][node]
            came = self.came[meeting]
            known = len(came)
            came[place] = ready
            self.arrivals += len(came) - known
            if len(came) < members:
                return False
            end = max(ready, max(came.values()) + takes)
        ends[node] = free[engine[node]] = end
        self.done[place][node] = True
        return True

    def spans(self) -> list[int]:
        """Last end of each rank, from its begin.

        Raises
        ------
        ConversionError
            Ranks wait for each other.
        """
        for place, done in enumerate(self.done):
            if not all(done):
                raise ConversionError(
                    f"rank {self.ranks[place]} waits for a collective whose other members wait for it: the ranks cannot "
                    "be replayed together"
                )
        return [max(ends, default=begin) - begin for ends, begin in zip(self.ends, self.begin, strict=True)]


def step_error(ranks: Sequence[RankGraph], spans: Sequence[int]) -> float:
    """Relative error of the rank whose recorded span is the longest."""
    slowest = int(np.argmax([rank.measured_ns for rank in ranks]))
    measured = ranks[slowest].measured_ns
    return spans[slowest] / measured - 1 if measured else 0.0
