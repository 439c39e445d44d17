"""Replaying a converted trace with its own durations, to see whether it gives back the recorded span."""

from dataclasses import dataclass

import numpy as np

from chakra.arrays import I32, I64
from chakra.converters.pytorch.match.attach import kernels
from chakra.converters.pytorch.read.columns import to_integer
from chakra.et import ABSENT, Trace


@dataclass(frozen=True, slots=True)
class ReplayCheck:
    """Spans in nanoseconds; ``error`` = replayed / measured - 1.

    Attributes
    ----------
    measured_ns
        Span of the recording, ns.
    replayed_ns
        Span of the replay, ns.
    """

    measured_ns: int
    replayed_ns: int

    @property
    def error(self) -> float:
        """Relative replay error."""
        return self.replayed_ns / self.measured_ns - 1 if self.measured_ns else 0.0


def replay_span(trace: Trace, engine: I32 | None = None) -> int:
    """End of a replay (ns) in which every node takes its recorded duration.

    One engine per ``tid`` for host nodes and per (device, stream) for device nodes; a node starts when all
    control and data dependencies are done and its engine is free; among ready nodes the lowest id goes
    first. As the converter writes nodes in an order in which every engine runs them, one pass in file order
    is that replay.
    ``engine`` numbers each node's engine when the caller knows it already.
    """
    n = trace.n_nodes
    if not n:
        return 0
    offsets, sources = trace.parents()
    duration = np.where(trace.duration_ns != ABSENT, trace.duration_ns, trace.duration_micros * 1000).astype(
        np.int64
    )
    if engine is None:
        engine = engines(trace)
    ends: I64 = np.zeros(n, np.int64)
    hold = np.full(n, -1, np.int64)
    kernels(n).replay(
        np.asarray(offsets, np.int64),
        np.asarray(sources, np.int32),
        duration,
        engine,
        int(engine.max()) + 1,
        hold,
        ends,
    )
    return int(ends.max())


def engines(trace: Trace) -> I32:
    """Engine number of every node."""
    host = trace.is_cpu_op == 1
    device = np.array(
        [to_integer(trace.attr(i, "device", 0), 0) for i in np.flatnonzero(~host).tolist()], np.int64
    )
    first = np.where(host, -2, 0)
    first[~host] = device
    second = np.where(host, trace.tid, trace.stream)
    return np.unique(np.stack([first, second]), axis=1, return_inverse=True)[1].reshape(-1).astype(np.int32)
