"""Times of the accelerator's kernels by family, and on another accelerator than the recorded one."""

import re
from collections.abc import Mapping, Sequence

import numpy as np

from chakra.arrays import F64, Bool
from chakra.errors import UsageError, WorkloadError
from chakra.et import NodeType, Trace
from chakra.et.families import FAMILIES, MEMORY_BOUND, operator_families
from chakra.et.node_families import node_families
from chakra.io.nearest import nearest
from chakra.io.readable import whole_percent_text
from chakra.replay.compute.other_accelerator import (
    BY_BANDWIDTH,
    BY_PEAK,
    BY_SHAPE,
    Ratios,
    accelerator_named,
    ratios,
    recorded_on,
)
from chakra.replay.compute.shares import family_shares, is_mixed
from chakra.replay.options import RunOptions
from chakra.replay.workload.node_draft import Draft
from chakra.replay.workload.recorded import accelerator_time, host_time

#: what stands for every family that memory bounds
MEMORY = "memory-bound"
#: before a regular expression for names
BY_NAME = "name:"


def checked_speeds(given: Mapping[str, float]) -> tuple[tuple[str, float], ...]:
    """Speeds by selector, whose selectors select something.

    Raises
    ------
    UsageError
        A family that there is not, or a pattern that is no regular expression.
    """
    for selector in given:
        if selector.startswith(BY_NAME):
            try:
                re.compile(selector.removeprefix(BY_NAME))
            except re.error as error:
                raise UsageError(f"kernel-speed: {selector!r} is no regular expression: {error}") from None
        elif selector not in (*FAMILIES, MEMORY):
            known = (*FAMILIES, MEMORY)
            hint = nearest(selector, known) or f"; there are {', '.join(known)}, and {BY_NAME}PATTERN"
            raise UsageError(f"kernel-speed: there is no family {selector!r}{hint}")
    return tuple(given.items())


def speed_factors(draft: Draft, speeds: tuple[tuple[str, float], ...]) -> F64:
    """(nodes,) by what each node's time is divided, in file order; factors of several selectors multiply.

    Of a node that stands for operators of several families each takes its own part of the time.

    Raises
    ------
    WorkloadError
        Such a node, where no operator model tells the parts.
    """
    trace = draft.trace
    by_name = np.ones(len(trace.name_table))
    for code, name in enumerate(trace.name_table):
        for selector, factor in speeds:
            if selector.startswith(BY_NAME) and re.search(selector.removeprefix(BY_NAME), name):
                by_name[code] *= factor
    by_family = np.array([_of(family, speeds) for family in FAMILIES])
    factors = by_family[node_families(trace)]
    mixed = [code for code, text in enumerate(trace.operator_table) if is_mixed(text)]
    where = np.isin(trace.operator_codes, mixed)
    if where.any():
        of_text = np.ones(len(trace.operator_table))
        of_text[mixed] = _of_several(draft, [trace.operator_table[code] for code in mixed], by_family)
        factors[where] = of_text[trace.operator_codes[where]]
    scaled: F64 = factors * by_name[trace.name_codes]
    return scaled


def _of_several(draft: Draft, texts: Sequence[str], by_family: F64) -> F64:
    """(texts,) by what the time of nodes of several families is divided."""
    speeds = {by_family[FAMILIES.index(family)] for text in texts for family in operator_families(text)}
    if len(speeds) == 1:
        return np.full(len(texts), speeds.pop())
    model = draft.setting.operators
    if model is None:
        raise WorkloadError(
            f"{draft.trace.source}: kernel-speed: nodes stand for operators of several families (generate --fuse), and "
            "only a machine with operator times tells which share of a node's time each has"
        )
    shares = family_shares(texts, model, draft.setting.products)
    # operators of no time have no share, and are not divided
    divided: F64 = np.where(shares.any(axis=1), (shares / by_family).sum(axis=1), 1.0)
    return 1 / divided


def _of(family: str, speeds: tuple[tuple[str, float], ...]) -> float:
    out = 1.0
    for selector, factor in speeds:
        if selector == family or (selector == MEMORY and family in MEMORY_BOUND):
            out *= factor
    return out


def recorded_kernels(trace: Trace) -> Bool:
    """Compute nodes of the accelerator, in file order, that have a duration."""
    mask: Bool = accelerator_time(trace) & (np.asarray(trace.is_cpu_op) != 1) & (trace.durations_ns() > 0)
    return mask


def other_accelerator(trace: Trace, options: RunOptions) -> Ratios | None:
    """Factors of `RunOptions.accelerator` on a trace's kernels; None where there is no other accelerator.

    Raises
    ------
    UsageError
        An accelerator that is not known, or a recording that does not say its own.
    """
    if options.accelerator is None:
        return None
    kernels = recorded_kernels(trace)
    if not kernels.any():
        return None
    target = accelerator_named(options.accelerator)
    return ratios(trace, kernels, recorded_on([trace], options.recorded_on), target)


def set_kernel_speeds(draft: Draft) -> None:
    """Kernels on another accelerator, and at the speeds of their families.

    The last thing that is done to durations, whoever gave them; copies over the bus keep theirs.

    Raises
    ------
    WorkloadError
        A time that does not fit, or a node of several families whose shares no model tells.
    """
    options = draft.setting.options
    if not options.kernel_speeds and options.accelerator is None:
        return
    factor = np.ones(len(draft.op))
    found = other_accelerator(draft.trace, options)
    if found is not None:
        factor *= found.factor[draft.order]
    if options.kernel_speeds:
        factor /= speed_factors(draft, options.kernel_speeds)[draft.order]
    where = (
        draft.where(NodeType.COMP) & ~draft.cpu & accelerator_time(draft.trace)[draft.order] & (factor != 1.0)
    )
    scaled = draft.duration_ns[where] * factor[where]
    if (scaled > float(1 << 62)).any():
        raise draft.error(
            int(np.flatnonzero(where)[int(np.argmax(scaled))]), "the scaled time does not fit 64 bits"
        )
    draft.duration_ns[where] = np.rint(scaled).astype(np.int64)


def idle_speed_notes(traces: tuple[Trace, ...], options: RunOptions) -> list[str]:
    """Speeds of the recorded host or accelerator that no node takes: operator models and rooflines have their own."""
    speeds = (
        ("--host-speed", options.host_speed, host_time, "host"),
        ("--accelerator-speed", options.accelerator_speed, accelerator_time, "accelerator"),
    )
    return [
        f"{option} has no effect: no node of the workload has a recorded time of the {who}"
        for option, speed, whose, who in speeds
        if speed != 1.0 and not any((whose(trace) & (trace.durations_ns() > 0)).any() for trace in traces)
    ]


def accelerator_shares(traces: Sequence[Trace], options: RunOptions) -> dict[str, float]:
    """How times of kernels on another accelerator were found -> share of the kernels' recorded time.

    Empty where there is no other accelerator, or no kernel has a recorded time.
    """
    found = [other for trace in traces if (other := other_accelerator(trace, options)) is not None]
    times = {
        how: sum(other.time_ns.get(how, 0) for other in found) for how in (BY_SHAPE, BY_BANDWIDTH, BY_PEAK)
    }
    return {how: time / sum(times.values()) for how, time in times.items() if time}


def accelerator_notes(traces: tuple[Trace, ...], options: RunOptions) -> list[str]:
    """How the kernels' times on another accelerator came about."""
    if options.accelerator is None:
        return []
    shares = accelerator_shares(traces, options)
    if not shares:
        return ["--accelerator has no effect: no kernel of the workload has a recorded time"]
    target = accelerator_named(options.accelerator)
    origin = recorded_on(traces, options.recorded_on)
    text = f"kernels take the times of {target.accelerator} in place of the recorded {origin.accelerator}"
    told = ", ".join(f"{whole_percent_text(share)} by {how}" for how, share in shares.items())
    return [f"{text}: of their time {told}"]
