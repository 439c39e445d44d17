"""What a node does and for how long, unless the network decides it.

Sources: replay semantics, section 2.3; corrections C2, C6, C8, C17 and C21 of `differences.md`.
"""

from collections.abc import Callable

import numpy as np

from chakra.arrays import I64, AnyArray
from chakra.errors import WorkloadError
from chakra.et import ABSENT, CommType, NodeType
from chakra.replay.config.model import MemoryKind
from chakra.replay.options import OLD_MODEL
from chakra.replay.workload.kernel_speeds import set_kernel_speeds
from chakra.replay.workload.model import Op
from chakra.replay.workload.node_draft import Draft
from chakra.replay.workload.operator_times import keeps_operator_time, set_operator_times, takes_operator_time
from chakra.replay.workload.recorded import (
    START,
    accelerator_time,
    has_turns,
    host_time,
    keeps_recorded_time,
    turns,
)

#: greatest time or size that the engines take; sums of two stay inside 64 bits
LIMIT = 1 << 62


#: what to do where ASTRA-sim's roofline meets a node with nothing but a recorded time
_RECORDED_TIMES = (
    "; it has a recorded time, which ASTRA-sim leaves out where roofline-enabled is 1: leave out compat, or give a "
    "system file with roofline-enabled 0"
)


def set_durations(draft: Draft) -> None:
    """Durations as recorded, times the options that scale them."""
    options, system = draft.setting.options, draft.setting.system
    duration = _recorded(draft)
    computes = draft.where(NodeType.COMP)
    timed = np.ones(len(computes), bool) if system.replay_only else computes
    stretched = timed & ~draft.communicates
    duration = _at_speeds(draft, duration)
    if options.compat == OLD_MODEL:
        # 1.0 cuts scaled times and sizes to whole numbers
        duration = _scaled(draft, duration, options.compute_scale, stretched, np.floor)
    elif options.astra:
        duration = np.where(timed, np.maximum(duration, 1), duration)
    else:
        modelled = _modelled(draft)
        priced = modelled | takes_operator_time(draft)
        lasting = timed & ~priced
        draft.corrections["C2"] += int((lasting & (duration == 0)).sum())
        draft.corrections["C21"] += int((lasting & _exact_differs(draft)).sum())
        if options.compute_scale != 1.0:
            draft.corrections["C17"] += int((stretched & (priced | (duration > 0))).sum())
        duration = _scaled(draft, duration, options.compute_scale * draft.scale, stretched)
    if options.astra:
        duration = _scaled(draft, duration, draft.scale, stretched)
    draft.duration_ns = duration


def _modelled(draft: Draft) -> AnyArray:
    """Nodes whose time the roofline gives: compute of the accelerator, unless recorded and without operations and bytes.

    ASTRA-sim asks every such node for operations and bytes.
    """
    system = draft.setting.system
    if not system.roofline or system.replay_only:
        return np.zeros(len(draft.op), np.bool_)
    mask = draft.where(NodeType.COMP) & ~draft.cpu & ~takes_operator_time(draft) & ~keeps_operator_time(draft)
    return mask if draft.setting.options.astra else mask & ~keeps_recorded_time(draft.trace)[draft.order]


def _at_speeds(draft: Draft, duration: I64) -> I64:
    """Durations on a host and an accelerator of other speeds than the recorded ones, and of each NPU's own.

    Ranks that were recorded on one accelerator waited for each other's turn; here every NPU has one for itself.
    """
    options = draft.setting.options
    if not draft.setting.system.replay_only and not options.astra and has_turns(draft.trace):
        duration = np.where(turns(draft.trace)[draft.order], 0, duration)
    for speed, whose in ((options.host_speed, host_time), (options.accelerator_speed, accelerator_time)):
        if speed != 1.0:
            duration = _scaled(draft, duration, 1 / speed, whose(draft.trace)[draft.order])
    return duration


def _recorded(draft: Draft) -> I64:
    """Recorded durations in ns; `duration_ns` before `duration_micros` unless ASTRA-sim's numbers are wanted (C21)."""
    options = draft.setting.options
    micros = draft.trace.duration_micros[draft.order]
    exact = np.full(len(micros), ABSENT)
    if options.compat == OLD_MODEL or not options.astra:
        exact = draft.trace.duration_ns[draft.order]
    given = exact != ABSENT
    too_long = np.flatnonzero(~given & ((micros < 0) | (micros > LIMIT // 1000)))
    if len(too_long):
        raise draft.error(too_long[0], "duration_micros does not fit 64 bits of nanoseconds")
    return np.where(given, exact, np.where(given, 0, micros) * 1000)


def _exact_differs(draft: Draft) -> AnyArray:
    """Nodes whose `duration_ns` is another time than ASTRA-sim's reading of `duration_micros` (C21).

    A time of 0 ns stands for ASTRA-sim's 1 ns: that difference is C2's.
    """
    exact, micros = draft.trace.duration_ns[draft.order], draft.trace.duration_micros[draft.order]
    differs: AnyArray = (exact != ABSENT) & (np.maximum(exact, 1) != np.maximum(micros * 1000, 1))
    if has_turns(draft.trace):  # which take no time here, whatever the recording says
        differs &= ~turns(draft.trace)[draft.order]
    return differs


def _scaled(
    draft: Draft,
    duration: I64,
    factor: float,
    where: AnyArray,
    rounded: Callable[[AnyArray], AnyArray] = np.rint,
) -> I64:
    """Durations times a factor, rounded to the nearest ns."""
    if factor == 1.0:
        return duration
    longer = where & (duration > 0)  # no time stays none, however large the factor
    with np.errstate(over="ignore"):
        stretched = rounded(duration[longer] * factor)
    if (stretched > LIMIT).any():
        raise WorkloadError(
            f"{draft.trace.source}: a duration times {factor:g} does not fit 64 bits of nanoseconds"
        )
    scaled = duration.copy()
    scaled[longer] = stretched.astype(np.int64)
    return scaled


def scale_sizes(draft: Draft) -> None:
    """Sizes of messages and collectives times the option that scales them; ASTRA-sim 2.0 ignores it (C17)."""
    options = draft.setting.options
    old = options.compat == OLD_MODEL
    if options.comm_scale == 1.0 or (options.astra and not old):
        return
    sizes = draft.comm_bytes
    with np.errstate(over="ignore"):
        stretched = np.where(sizes == ABSENT, 0, sizes) * options.comm_scale
    if (stretched > LIMIT).any():
        raise WorkloadError(
            f"{draft.trace.source}: comm_size times {options.comm_scale:g} does not fit 64 bits"
        )
    draft.comm_bytes = np.where(sizes == ABSENT, sizes, np.floor(stretched).astype(np.int64))
    if not old and not draft.setting.system.replay_only:  # whose communication takes its recorded time
        draft.corrections["C17"] += int((draft.communicates & (draft.comm_bytes != sizes)).sum())


def price(draft: Draft) -> None:
    """Nodes whose time a model gives instead of the recording: all but those of a replay of recorded times.

    Raises
    ------
    WorkloadError
        For a node that lacks what its model needs.
    """
    if draft.setting.system.replay_only:
        set_kernel_speeds(draft)
        return
    draft.op[draft.where(NodeType.INVALID, NodeType.METADATA) & ~_late_starts(draft)] = Op.ZERO
    if draft.setting.system.roofline:
        _roofline(draft)
    set_operator_times(draft)
    set_kernel_speeds(draft)
    _remote_memory(draft)
    _collectives(draft)
    draft.op[draft.where(NodeType.COMM_SEND)] = Op.SEND
    draft.op[draft.where(NodeType.COMM_RECV)] = Op.RECV
    for kind in (Op.SEND, Op.RECV):
        _require_p2p(draft, kind)
    bad = np.flatnonzero(draft.communicates & draft.cpu & (draft.op != Op.TIMER))
    if len(bad):
        raise draft.error(
            bad[0], "a communication node with is_cpu_op true cannot be replayed; set it to false"
        )


def _late_starts(draft: Draft) -> AnyArray:
    """Nodes that stand for the time before a rank starts: they last, although they do nothing."""
    code = draft.trace.name_pool.find(START)
    if code < 0:
        return np.zeros(len(draft.op), np.bool_)
    mask: AnyArray = draft.trace.name_codes[draft.order] == code
    return mask


def _roofline(draft: Draft) -> None:
    """Durations of GPU compute nodes from operations and bytes (section 2.3, correction C8)."""
    options, system = draft.setting.options, draft.setting.system
    nodes = np.flatnonzero(_modelled(draft))
    if not len(nodes):
        return
    index = draft.order[nodes]
    ops, size = draft.trace.num_ops[index], draft.trace.tensor_size[index]
    for name, values in (("num_ops", ops), ("tensor_size", size)):
        missing = np.flatnonzero(values == ABSENT)
        if len(missing):
            recorded = keeps_recorded_time(draft.trace)[index[missing[0]]]
            hint = _RECORDED_TIMES if recorded else ""
            raise draft.error(nodes[missing[0]], f"the roofline model needs the attribute {name}{hint}")
    bandwidth = system.local_mem_bw_gbps * 1e9
    peak = (system.peak_perf_tflops or 0.0) * 1e12
    work = ops.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        perf = np.minimum(bandwidth * (work / size), peak)
        time = work / perf * 1e9
    if options.astra:
        draft.op[nodes[size == 0]] = Op.ZERO
        bad = np.flatnonzero((size != 0) & np.isnan(time))
        if len(bad):
            raise draft.error(nodes[bad[0]], "num_ops is 0: ASTRA-sim's time overflows here")
        time = np.where(np.isinf(time) | np.isnan(time), 0.0, time)
    else:
        odd = (ops == 0) | (size == 0) | (peak == 0.0) | (bandwidth == 0.0)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            compute = np.where(ops == 0, 0.0, work / peak * 1e9 if peak else 0.0)
            memory = np.where(size == 0, 0.0, size / bandwidth * 1e9 if bandwidth else 0.0)
        time = np.where(odd, np.maximum(compute, memory), time)
        draft.corrections["C8"] += int(((ops == 0) | (size == 0)).sum())
        with np.errstate(over="ignore", invalid="ignore"):
            time = time * draft.scale * options.compute_scale
    unfit = np.flatnonzero(~(time <= LIMIT))
    if len(unfit):
        raise draft.error(nodes[unfit[0]], "roofline time does not fit 64 bits")
    draft.duration_ns[nodes] = np.floor(time).astype(np.int64)


def _remote_memory(draft: Draft) -> None:
    """Times of remote memory accesses (section 2.3)."""
    nodes = np.flatnonzero(draft.where(NodeType.MEM_LOAD, NodeType.MEM_STORE))
    if not len(nodes):
        return
    memory = draft.setting.memory
    size = draft.trace.tensor_size[draft.order[nodes]]
    missing = np.flatnonzero((size == ABSENT) | (size < 0))
    if len(missing):
        raise draft.error(nodes[missing[0]], "a memory node needs tensor_size, the bytes it moves")
    if memory.kind is MemoryKind.NONE:
        raise draft.error(
            nodes[0],
            "a memory node, but the remote memory model is off "
            f"({memory.source}: memory-type is {MemoryKind.NONE.value}); give a memory configuration",
        )
    draft.duration_ns[nodes] = memory.latency_ns + (size // memory.bytes_per_ns if memory.bytes_per_ns else 0)
    draft.op[nodes] = Op.TIMER if memory.kind is MemoryKind.PER_NPU else Op.SERVER


def _collectives(draft: Draft) -> None:
    """Which COMM_COLL nodes are simulated on the network."""
    nodes = np.flatnonzero(draft.where(NodeType.COMM_COLL))
    if not len(nodes):
        return
    kinds = draft.trace.comm_type[draft.order[nodes]]
    missing = np.flatnonzero((kinds == ABSENT) | (kinds < 0) | (kinds > CommType.BARRIER))
    if len(missing):
        raise draft.error(
            nodes[missing[0]], "a collective needs comm_type, a value of CollectiveCommType (0 to 9)"
        )
    draft.op[nodes] = Op.COLLECTIVE
    if draft.setting.options.astra:
        timers = nodes[kinds == CommType.BROADCAST]
        draft.op[timers] = Op.TIMER
        draft.duration_ns[timers] = np.maximum(draft.duration_ns[timers], 1)
    size = draft.comm_bytes[nodes]
    bad = np.flatnonzero(((size == ABSENT) & (kinds != CommType.BARRIER)) | ((size < 0) & (size != ABSENT)))
    bad = bad[draft.op[nodes[bad]] == Op.COLLECTIVE]
    if len(bad):
        raise draft.error(nodes[bad[0]], "a collective needs comm_size, bytes of at least 0")


def _require_p2p(draft: Draft, kind: Op) -> None:
    """Attributes without which a message cannot be matched."""
    nodes = np.flatnonzero(draft.op == kind)
    if not len(nodes):
        return
    trace, index = draft.trace, draft.order[nodes]
    sends = kind is Op.SEND
    name, column = ("comm_dst", trace.comm_dst) if sends else ("comm_src", trace.comm_src)
    for attribute, values in (
        (name, column[index]),
        ("comm_size", draft.comm_bytes[nodes]),
        ("comm_tag", trace.comm_tag[index]),
    ):
        missing = np.flatnonzero(values == ABSENT)
        if len(missing):
            word = "send" if sends else "receive"
            raise draft.error(nodes[missing[0]], f"a {word} needs the attribute {attribute}")
    negative = np.flatnonzero(draft.comm_bytes[nodes] < 0)
    if len(negative):
        raise draft.error(nodes[negative[0]], "comm_size is negative")


def check_durations(draft: Draft) -> None:
    """Refuse what 64 bits of nanoseconds cannot hold."""
    bad = np.flatnonzero((draft.duration_ns > LIMIT) | (draft.duration_ns < 0))
    if len(bad):
        raise draft.error(bad[0], "duration does not fit 64 bits of nanoseconds")
