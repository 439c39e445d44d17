"""What recording costs the host: a constant for each recorded event, and the times without it.

The profiler and the observer of execution traces run inside the job: before and behind every operator, and around every
call of the runtime. That time lies in the operators, in those around them, and in the gaps between. It is taken off where
it is first found: each event owes its cost, and the host's own time from that event on pays until nothing is owed. Waits
pay nothing: what they wait for ends when it ends.

A call costs half of what an operator does: with this share the constant of each of the recorded jobs of an H200
predicts the step of the others that ran without the profiler (``docs/reference/pytorch-recordings.md``).
"""

from dataclasses import dataclass

import numpy as np

from chakra.arrays import I64, Bool, rows_by
from chakra.converters.pytorch.graph.linked_graph import Graph
from chakra.converters.pytorch.read.device import Calls
from chakra.converters.pytorch.time.host_time import NODE_GAP, NODE_OP

#: cost of a call over that of an operator
CALL_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class HostEvents:
    """Recorded events of a rank's host.

    Attributes
    ----------
    pays
        (nodes,) whether a node is the host's own time.
    thread
        (nodes,) thread of each node, -1 of device nodes.
    weight
        (nodes,) recorded events in each node's time: 1 for its operator, `CALL_SHARE` for each call.
    """

    pays: Bool
    thread: I64
    weight: "np.ndarray[tuple[int], np.dtype[np.float64]]"

    @property
    def count(self) -> float:
        """Events, calls by their share."""
        return float(self.weight.sum())


def host_events(graph: Graph, calls: Calls) -> HostEvents:
    """The recorded events of a linked rank by node.

    Parameters
    ----------
    graph
        The linked graph; nodes of a thread stand in the order of time.
    calls
        Calls of the runtime and driver.
    """
    pays = (graph.thread >= 0) & ((graph.kind == NODE_OP) | (graph.kind == NODE_GAP))
    weight = np.where(pays & (graph.kind == NODE_OP), 1.0, 0.0)
    made = rows_by(calls.thread)
    for thread, rows in rows_by(graph.thread, np.flatnonzero(pays)).items():
        at = np.searchsorted(graph.start[rows], calls.start[made[thread]], side="right") - 1
        np.add.at(weight, rows[at[at >= 0]], CALL_SHARE)
    return HostEvents(pays, graph.thread.astype(np.int64), weight)


def without_events(duration: I64, events: HostEvents, operator_ns: float) -> I64:
    """Durations without the cost of recording, in ns.

    Parameters
    ----------
    duration
        (nodes,) recorded durations.
    events
        From `host_events`.
    operator_ns
        Cost of an operator's record.

    Examples
    --------
    Three operators of 30, 5 and 40 us whose records cost 20 us each: the second cannot pay all of its own.

    >>> events = HostEvents(np.full(3, True), np.zeros(3, np.int64), np.ones(3))
    >>> without_events(np.array([30_000, 5_000, 40_000]), events, 20_000).tolist()
    [10000, 0, 5000]
    """
    out = duration.copy()
    for rows in rows_by(events.thread, np.flatnonzero(events.pays)).values():
        owed = np.rint(events.weight[rows] * operator_ns).astype(np.int64)
        walk = np.cumsum(owed - duration[rows])
        left = walk - np.minimum(np.minimum.accumulate(walk), 0)  # what is owed behind each node
        out[rows] -= np.concatenate([[0], left[:-1]]) + owed - left
    return out
