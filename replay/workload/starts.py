"""When ranks start: together, or as far apart as they were recorded.

The converter of profiles writes when a rank's window begins (`base_time_ns`, ns since 1970) and how long it is. A rank
that was recorded later than the first one gets a node of that length in front, which occupies no engine: until it is
over the rank is idle.
"""

from collections.abc import Sequence

import numpy as np

from chakra.arrays import I64
from chakra.et import Trace
from chakra.et.attributes import attribute_value
from chakra.et.read import decode_trace
from chakra.replay.config.model import System
from chakra.replay.options import RunOptions
from chakra.replay.workload.recorded import SPAN, START, is_recorded
from chakra.schemas.et_def_pb2 import AttributeProto, Node
from chakra.schemas.protolib import encode_varint

BASE = "base_time_ns"
#: times below are not those of a clock that ranks share, but counted from something of their own
_CLOCK_NS = 10**17
#: number of `data_deps` in a node's message, packed
_DATA_DEPS = 5 << 3 | 2


def recorded_offsets(traces: Sequence[Trace]) -> I64 | None:
    """By how much each trace's window begins after the first one's, ns; None if not all traces say."""
    windows = [_window(trace) for trace in traces]
    if len(traces) < 2 or any(window is None for window in windows):
        return None
    begins = np.array([window[0] for window in windows if window is not None], np.int64)
    offsets: I64 = begins - begins.min()
    return offsets


def overlap(traces: Sequence[Trace]) -> bool:
    """Whether there is a time at which all traces were being recorded: else they are not of one run, or of one clock."""
    windows = [window for trace in traces if (window := _window(trace)) is not None]
    return max(begin for begin, _ in windows) < min(begin + span for begin, span in windows)


def _window(trace: Trace) -> tuple[int, int] | None:
    """Begin and length (ns) of a trace's recording, if its clock is one that others may share."""
    found = {
        attribute.name: attribute_value(attribute)
        for attribute in trace.metadata.attr
        if attribute.name in (BASE, SPAN)
    }
    begin, span = found.get(BASE), found.get(SPAN)
    if not isinstance(begin, int) or not isinstance(span, int) or begin < _CLOCK_NS or span < 0:
        return None
    return begin, span


def start_of(options: RunOptions, system: System) -> str:
    """How ranks start: together with ASTRA-sim, and where recorded times alone count unless asked for."""
    if options.astra:
        return "aligned"
    return options.start or ("aligned" if system.replay_only else "recorded")


def at_recorded_starts(traces: list[Trace], options: RunOptions, system: System) -> list[Trace]:
    """The traces, those that were recorded later with a node in front that lasts as long."""
    if start_of(options, system) == "aligned":
        return traces
    offsets = recorded_offsets(traces)
    if offsets is None or not overlap(traces):
        return traces
    return [_delayed(trace, int(offset)) for trace, offset in zip(traces, offsets, strict=True)]


def clock_offsets(traces: Sequence[Trace], options: RunOptions, system: System) -> I64 | None:
    """By how much time 0 of each trace's replay lies after the first one's, on the clock of the recording, ns.

    None where the recordings have no clock that they share. Traces that no machine recorded begin together.
    """
    zeros = np.zeros(len(traces), np.int64)
    if len(traces) < 2 or not any(is_recorded(trace) for trace in traces):
        return zeros
    offsets = recorded_offsets(traces)
    if offsets is None or not overlap(traces):
        return None
    return offsets if start_of(options, system) == "aligned" else zeros


def start_notes(traces: Sequence[Trace], options: RunOptions, system: System) -> list[str]:
    """What was done about ranks whose windows begin apart, in words; empty where they do not."""
    if options.astra or (options.start is None and system.replay_only):
        return []
    offsets = recorded_offsets(traces)
    if offsets is None or not offsets.any():
        return []
    apart = f"{offsets.max() / 1e6:,.3f} ms apart"
    if not overlap(traces):
        why = "do not overlap: not one run, or not one clock; they start together"
        return [f"the ranks' recordings begin up to {apart} and {why}"]
    if start_of(options, system) == "recorded":
        return [f"ranks start up to {apart}, as recorded; --start aligned starts them together"]
    return [f"ranks start together, although they were recorded up to {apart} (--start recorded)"]


def _delayed(trace: Trace, offset_ns: int) -> Trace:
    """The trace behind a node of a length: a node of no engine, on which all nodes without a dependency wait."""
    if not offset_ns or not trace.n_nodes:
        return trace
    ids = set(trace.ids.tolist())
    number = next(i for i in range(len(ids) + 1) if i not in ids)
    node = Node(id=number, name=START, type="METADATA_NODE")
    node.attr.append(AttributeProto(name="duration_ns", int64_val=offset_ns))
    offsets, _ = trace.parents()
    roots = set(np.flatnonzero(np.diff(offsets) == 0).tolist())
    dependency = encode_varint(number)
    behind = bytes([_DATA_DEPS]) + encode_varint(len(dependency)) + dependency
    records = trace.records
    meta = records.data[records.meta_start : records.meta_end].tobytes()
    pieces = [_framed(meta), _framed(node.SerializeToString())]
    for i in range(trace.n_nodes):
        message = records.message(i)
        # Repeated fields of a message may come in several places: a dependency is added at its end.
        pieces.append(_framed(message + behind if i in roots else message))
    return decode_trace(np.frombuffer(b"".join(pieces), np.uint8), trace.source)


def _framed(message: bytes) -> bytes:
    return encode_varint(len(message)) + message
