"""What a node does and for how long, unless the network decides it.

Sources: replay semantics, section 2.3; corrections C8 and C21 of `differences.md`.
"""

from collections import Counter

import numpy as np

from chakra.arrays import I64, AnyArray
from chakra.errors import WorkloadError
from chakra.et import ABSENT, CommType, NodeType, Trace
from chakra.replay.collectives.plan import OLD_MODEL
from chakra.replay.config.model import Memory, MemoryKind, System
from chakra.replay.options import RunOptions
from chakra.replay.workload import Op

#: greatest time or size that the engines take; sums of two stay inside 64 bits
LIMIT = 1 << 62


def node_error(trace: Trace, index: int, what: str) -> WorkloadError:
    return WorkloadError(f"{trace.source}: node {int(trace.ids[index])}: {what}")


def base_durations(trace: Trace, order: I64, options: RunOptions) -> I64:
    """Recorded durations in ns; `duration_ns` before `duration_micros` unless ASTRA-sim's numbers are wanted (C21)."""
    micros = trace.duration_micros[order]
    exact = np.full(len(micros), ABSENT)
    if options.compat == OLD_MODEL or not options.astra:
        exact = trace.duration_ns[order]
    given = exact != ABSENT
    too_long = np.flatnonzero(~given & ((micros < 0) | (micros > LIMIT // 1000)))
    if len(too_long):
        raise node_error(trace, order[too_long[0]], "duration_micros does not fit 64 bits of nanoseconds")
    return np.where(given, exact, np.where(given, 0, micros) * 1000)


def scaled(duration: I64, factor: float, where: AnyArray, trace: Trace) -> I64:
    """Durations times a factor, rounded to the nearest ns."""
    if factor == 1.0:
        return duration
    stretched = np.where(where, np.rint(duration * factor), duration)
    if (stretched > LIMIT).any():
        raise WorkloadError(
            f"{trace.source}: a duration times {factor:g} does not fit 64 bits of nanoseconds"
        )
    return stretched.astype(np.int64)


def roofline(
    trace: Trace,
    order: I64,
    where: AnyArray,
    op: I64,
    duration: I64,
    system: System,
    options: RunOptions,
    corrections: Counter[str],
    scale: float,
) -> None:
    """Durations of GPU compute nodes from operations and bytes (section 2.3, correction C8)."""
    nodes = np.flatnonzero(where)
    if not len(nodes):
        return
    ops, size = trace.num_ops[order][nodes], trace.tensor_size[order][nodes]
    for name, values in (("num_ops", ops), ("tensor_size", size)):
        missing = np.flatnonzero(values == ABSENT)
        if len(missing):
            raise node_error(
                trace, order[nodes[missing[0]]], f"the roofline model needs the attribute {name}"
            )
    bandwidth = system.local_mem_bw_gbps * 1e9
    peak = (system.peak_perf_tflops or 0.0) * 1e12
    work = ops.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        perf = np.minimum(bandwidth * (work / size), peak)
        time = work / perf * 1e9
    if options.astra:
        op[nodes[size == 0]] = Op.ZERO
        bad = (size != 0) & np.isnan(time)
        if bad.any():
            raise node_error(
                trace, order[nodes[np.flatnonzero(bad)[0]]], "num_ops is 0: ASTRA-sim's time overflows here"
            )
        time = np.where(np.isinf(time) | np.isnan(time), 0.0, time)
    else:
        odd = (ops == 0) | (size == 0) | (peak == 0.0) | (bandwidth == 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            compute = np.where(ops == 0, 0.0, work / peak * 1e9 if peak else 0.0)
            memory = np.where(size == 0, 0.0, size / bandwidth * 1e9 if bandwidth else 0.0)
        time = np.where(odd, np.maximum(compute, memory), time)
        corrections["C8"] += int(((ops == 0) | (size == 0)).sum())
        time = time * scale * options.compute_scale
    if (time > LIMIT).any():
        raise node_error(trace, order[nodes[int(np.argmax(time))]], "roofline time does not fit 64 bits")
    duration[nodes] = np.floor(time).astype(np.int64)


def remote_memory(trace: Trace, order: I64, where: AnyArray, op: I64, duration: I64, memory: Memory) -> None:
    """Times of remote memory accesses (section 2.3)."""
    nodes = np.flatnonzero(where)
    if not len(nodes):
        return
    size = trace.tensor_size[order][nodes]
    missing = np.flatnonzero((size == ABSENT) | (size < 0))
    if len(missing):
        raise node_error(
            trace, order[nodes[missing[0]]], "a memory node needs tensor_size, the bytes it moves"
        )
    if memory.kind is MemoryKind.NONE:
        raise node_error(
            trace,
            order[nodes[0]],
            "a memory node, but the remote memory model is off "
            f"({memory.source}: memory-type is {MemoryKind.NONE.value}); give a memory configuration",
        )
    duration[nodes] = memory.latency_ns + (size // memory.bytes_per_ns if memory.bytes_per_ns else 0)
    op[nodes] = Op.TIMER if memory.kind is MemoryKind.PER_NPU else Op.SERVER


def collectives(
    trace: Trace, order: I64, types: AnyArray, op: I64, duration: I64, sizes: I64, options: RunOptions
) -> None:
    """Which COMM_COLL nodes are priced by the network."""
    nodes = np.flatnonzero(types == NodeType.COMM_COLL)
    if not len(nodes):
        return
    kinds = trace.comm_type[order][nodes]
    missing = np.flatnonzero((kinds == ABSENT) | (kinds < 0) | (kinds > CommType.BARRIER))
    if len(missing):
        raise node_error(
            trace,
            order[nodes[missing[0]]],
            "a collective needs comm_type, a value of CollectiveCommType (0 to 9)",
        )
    op[nodes] = Op.COLLECTIVE
    if options.astra:
        timers = nodes[kinds == CommType.BROADCAST]
        op[timers] = Op.TIMER
        duration[timers] = np.maximum(duration[timers], 1)
    size = sizes[nodes]
    bad = np.flatnonzero(((size == ABSENT) & (kinds != CommType.BARRIER)) | ((size < 0) & (size != ABSENT)))
    bad = bad[op[nodes[bad]] == Op.COLLECTIVE]
    if len(bad):
        raise node_error(trace, order[nodes[bad[0]]], "a collective needs comm_size, bytes of at least 0")


def require_p2p(trace: Trace, order: I64, where: AnyArray, sizes: I64, kind: Op, options: RunOptions) -> None:
    """Attributes without which a message cannot be matched."""
    nodes = np.flatnonzero(where)
    if not len(nodes):
        return
    name, column = ("comm_dst", trace.comm_dst) if kind is Op.SEND else ("comm_src", trace.comm_src)
    for attribute, values in (
        (name, column[order]),
        ("comm_size", sizes),
        ("comm_tag", trace.comm_tag[order]),
    ):
        missing = np.flatnonzero(values[nodes] == ABSENT)
        if len(missing):
            word = "send" if kind is Op.SEND else "receive"
            raise node_error(trace, order[nodes[missing[0]]], f"a {word} needs the attribute {attribute}")
    negative = np.flatnonzero(sizes[nodes] < 0)
    if len(negative):
        raise node_error(trace, order[nodes[negative[0]]], "comm_size is negative")
