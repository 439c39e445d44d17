"""Traces that a converter made from a profile: whose time each node's is, and what ran beside what."""

import re
from collections.abc import Iterable, Sequence

import numpy as np

from chakra.arrays import Bool
from chakra.et import ABSENT, NodeType, Trace
from chakra.et.attributes import attribute_value
from chakra.et.idle_nodes import DEVICE_GAP, TURN, named

#: metadata attribute that only the converter of profiles writes
SPAN = "measured_span_ns"
#: metadata attributes of the converter: span that its graph explains without fitted waits; without other ranks' turns on
#: a shared accelerator, too; and what it took off the host as the cost of recording
EXPLAINED, ALONE, COST = "explained_span_ns", "alone_span_ns", "recording_cost_ns"
#: metadata attributes of the converter: ranks of the recorded job, and how many of the profiler's steps a trace holds
RANKS, STEPS = "recorded_ranks", "recorded_steps"
#: name of the node in front of a rank that starts late (`chakra.replay.workload.starts`)
START = "rank starts"
#: copies between host and device, as CUDA and HIP name them: the bus, not the accelerator, decides their time
_OVER_THE_BUS = re.compile(r"(Memcpy (HtoD|DtoH)|Copy(HostToDevice|DeviceToHost))\b")


def is_recorded(trace: Trace) -> bool:
    """Whether a trace's nodes stand for what threads and streams of a real run did.

    Converted profiles say so in their metadata; others (another converter's) have host nodes with a thread number,
    which no generator writes.
    """
    if ((trace.is_cpu_op == 1) & (trace.tid != ABSENT)).any():
        return True
    return any(attribute.name == SPAN for attribute in trace.metadata.attr)


def keeps_recorded_time(trace: Trace) -> Bool:
    """Accelerator's compute nodes, in file order, that have a duration and nothing that a roofline could use."""
    given = (trace.duration_ns != ABSENT) | (trace.duration_micros > 0)
    unpriced = (trace.num_ops == ABSENT) & (trace.tensor_size == ABSENT)
    mask: Bool = (trace.types == NodeType.COMP) & (np.asarray(trace.is_cpu_op) != 1) & given & unpriced
    return mask


def host_time(trace: Trace) -> Bool:
    """Compute nodes, in file order, whose time is the host's: its own nodes, and gaps of streams."""
    mask: Bool = (trace.types == NodeType.COMP) & (
        (np.asarray(trace.is_cpu_op) == 1) | named(trace, DEVICE_GAP.__eq__)
    )
    return mask


def accelerator_time(trace: Trace) -> Bool:
    """Compute nodes, in file order, whose time is the accelerator's: kernels, memsets, copies on the device."""
    others = host_time(trace) | named(
        trace, lambda name: name == TURN or _OVER_THE_BUS.match(name) is not None
    )
    mask: Bool = (trace.types == NodeType.COMP) & ~others
    return mask


def has_turns(trace: Trace) -> bool:
    """Whether a trace has nodes of other ranks' turns."""
    return TURN in trace.name_table


def turns(trace: Trace) -> Bool:
    """Nodes, in file order, in which a rank waited for the turn of others on an accelerator that they share."""
    return named(trace, TURN.__eq__)


def recorded_ranks(traces: Iterable[Trace]) -> int:
    """Ranks of the job that traces are a recording of; 0 where they do not say."""
    return max((_said(trace, RANKS) for trace in traces), default=0)


def all_ranks_told(traces: Sequence[Trace]) -> bool:
    """Whether the traces are those of all ranks of a recorded job, or of no recording at all."""
    if not any(is_recorded(trace) for trace in traces):
        return True
    ranks = recorded_ranks(traces)
    return 0 < ranks <= len(traces)


def recorded_steps(traces: Iterable[Trace]) -> int:
    """Profiler's steps that each of the traces holds; 0 where they do not say, or differ."""
    steps = {_said(trace, STEPS) for trace in traces}
    return steps.pop() if len(steps) == 1 else 0


def _said(trace: Trace, name: str) -> int:
    """A whole number of a trace's metadata; 0 where it is not there."""
    for attribute in trace.metadata.attr:
        if attribute.name == name:
            value = attribute_value(attribute)
            return value if isinstance(value, int) else 0
    return 0
