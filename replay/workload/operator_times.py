"""Times of nodes that say what they compute, where the machine's operator model is known.

A duration in the trace wins. Nodes without the attribute ``operator`` are the roofline's.
"""

import numpy as np

from chakra.arrays import Bool
from chakra.et import ABSENT, NodeType, Trace
from chakra.et.operators import Host, parse_operators
from chakra.replay.compute.times import measured_ns
from chakra.replay.workload.node_draft import Draft


def operator_nodes(trace: Trace) -> Bool:
    """Compute nodes, in file order, that say what they compute: on the accelerator, or what its host issues."""
    parsed = [parse_operators(text) for text in trace.operator_table]
    ours = np.array([bool(found) for found in parsed] + [False])
    host = np.array([any(isinstance(op, Host) for op, _ in found) for found in parsed] + [False])
    codes = trace.operator_codes
    mask: Bool = (
        ours[codes] & (trace.types == NodeType.COMP) & ((np.asarray(trace.is_cpu_op) == 1) == host[codes])
    )
    return mask


def timed_nodes(trace: Trace) -> Bool:
    """Nodes, in file order, to which the trace gives a duration."""
    mask: Bool = (trace.duration_ns != ABSENT) | (trace.duration_micros > 0)
    return mask


def takes_operator_time(draft: Draft) -> Bool:
    """Nodes of a program whose time the machine's operator model gives."""
    if draft.setting.operators is None or not len(draft.trace.operator_table):
        return np.zeros(len(draft.op), np.bool_)
    mask: Bool = (operator_nodes(draft.trace) & ~timed_nodes(draft.trace))[draft.order]
    return mask


def keeps_operator_time(draft: Draft) -> Bool:
    """Nodes of a program that say what they compute and have a duration, where a model is known: none replaces it."""
    if draft.setting.operators is None or not len(draft.trace.operator_table):
        return np.zeros(len(draft.op), np.bool_)
    mask: Bool = (operator_nodes(draft.trace) & timed_nodes(draft.trace))[draft.order]
    return mask


def set_operator_times(draft: Draft) -> None:
    """Durations of the nodes whose time the operator model gives.

    Raises
    ------
    TraceError, ConfigError
        An operator that is ill-formed, or of an element type that the machine does not have.
    """
    nodes = np.flatnonzero(takes_operator_time(draft))
    if not len(nodes) or draft.setting.operators is None:
        return
    times = measured_ns(draft.trace.operator_table, draft.setting.operators, draft.setting.products)
    chosen = times[draft.trace.operator_codes[draft.order[nodes]]]
    scaled = chosen * draft.scale * draft.setting.options.compute_scale
    if (scaled > float(1 << 62)).any():
        raise draft.error(nodes[int(np.argmax(scaled))], "the operator's time does not fit 64 bits")
    draft.duration_ns[nodes] = np.rint(scaled).astype(np.int64)
