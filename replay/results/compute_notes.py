"""How the compute times of a run came about, where a reader would take them for a measurement."""

import json
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from chakra.arrays import Bool
from chakra.et import ABSENT, NodeType, Trace
from chakra.et.attributes import metadata_text
from chakra.et.memory_need import generated_totals
from chakra.et.operators import ELEMENT_BITS, FRAMEWORK, JOIN, TIMES, MatrixProduct, parse_operators
from chakra.io.readable import figure_text, percent_text
from chakra.replay.compute.frameworks import machine_changes, machine_notes
from chakra.replay.compute.in_effect import operator_model, why_no_operator_times
from chakra.replay.compute.parameters import ComputeParameters
from chakra.replay.config.model import System
from chakra.replay.options import RunOptions
from chakra.replay.workload.operator_times import operator_nodes, timed_nodes

#: parameter of the generator -> the speed that it is a share of
_EFFICIENCIES = {"matmul_efficiency": "FLOP/s", "memory_efficiency": "memory bandwidth"}


@dataclass(frozen=True, slots=True)
class SaidOperators:
    """What the nodes of a workload that say what they compute have.

    Attributes
    ----------
    some
        Whether there are such nodes.
    untimed
        Whether some of them have no times of their own, so that a model's count.
    """

    some: bool
    untimed: bool


def said_operators(traces: tuple[Trace, ...]) -> SaidOperators:
    """Operators of all traces, in one pass.

    Parameters
    ----------
    traces
        The workload's.
    """
    some = False
    for trace in traces:
        mask = operator_nodes(trace)
        if mask.any():
            some = True
            if (mask & ~timed_nodes(trace)).any():
                return SaidOperators(some=True, untimed=True)
    return SaidOperators(some, untimed=False)


def compute_notes(
    traces: tuple[Trace, ...], system: System, options: RunOptions, said: Callable[[], SaidOperators]
) -> list[str]:
    """What compute times rest on where they are not given: an operator model, or a peak that no machine reaches.

    Parameters
    ----------
    traces
        The workload's.
    system
        The system.
    options
        Of the run.
    said
        Gives `said_operators` of the traces; called where it matters.
    """
    if system.replay_only or not traces:
        return []
    model = operator_model(system, options)
    notes = _operator_notes(traces, system, options, model, said)
    if system.roofline:
        timed = [_by_roofline(trace, model) for trace in traces]
        if not any(mask.any() for mask in timed):
            return notes
        speeds = f"{system.peak_perf_tflops:g} TFLOP/s and {system.local_mem_bw_gbps:g} GB/s"
        notes = [*notes, f"the roofline computes at 100 % of {speeds}, which no machine reaches"]
        if any(_merges(trace, mask) for trace, mask in zip(traces, timed, strict=True)):
            notes.append(
                "merged operators (--fuse) take the roofline of their sums, which is too short where some are bound by "
                "memory and others by FLOP/s; traces without --fuse, or generated with --platform, have the time of each"
            )
        return notes
    return [*notes, *_generated_notes(traces)]


def _operator_notes(
    traces: tuple[Trace, ...],
    system: System,
    options: RunOptions,
    model: ComputeParameters | None,
    said: Callable[[], SaidOperators],
) -> list[str]:
    """Whose operator times count and how right they are, or why they do not."""
    if system.operator_model is None or not said().some:
        return []
    if model is None:
        return [f"operator-model has no effect: {why_no_operator_times(system, options)}"]
    if not said().untimed:
        return []
    errors = model.errors.get("bf16")
    how = (
        f"{model.status}, mean error of matrix products {percent_text(errors.mean_error)}"
        if errors
        else f"{model.status}: {model.source}"
        if model.source
        else model.status
    )
    return [
        f"computation takes the operator times of {model.name} ({model.accelerator}; {how})",
        *machine_notes(_framework(traces[0]), model.name),
    ]


def peak_notes(traces: tuple[Trace, ...], system: System, options: RunOptions, npus: int) -> list[str]:
    """That products in types of fewer than 16 bits are told as shares of a peak that need not be theirs.

    Parameters
    ----------
    traces
        The workload's.
    system
        The system.
    options
        Of the run.
    npus
        NPUs that run.
    """
    if (
        operator_model(system, options) is None
        or system.peak_perf_tflops is None
        or not generated_totals(traces, npus)
    ):
        return []
    types = {
        operator.type
        for trace in traces
        for text in trace.operator_table
        for operator, _ in parse_operators(text)
        if isinstance(operator, MatrixProduct) and ELEMENT_BITS[operator.type] < 16
    }
    if not types:
        return []
    peak, told = figure_text(system.peak_perf_tflops), ", ".join(sorted(types))
    return [
        f"MFU and HFU are shares of the system's {peak} TFLOP/s (peak-perf); products in {told} have a peak of their own"
    ]


def framework_entry(
    traces: tuple[Trace, ...], system: System, options: RunOptions, said: Callable[[], SaidOperators]
) -> dict[str, object]:
    """The key ``framework`` of a result's inputs: whose program a generated workload is, and what it has on its machine
    alone.

    Parameters
    ----------
    traces
        The workload's.
    system
        The system.
    options
        Of the run.
    said
        Gives `said_operators` of the traces; called where it matters.

    Returns
    -------
    dict
        Nothing where no framework is named, or its constants have no effect.
    """
    framework = _framework(traces[0]) if traces else ""
    model = operator_model(system, options)
    if not framework or model is None or not said().untimed:
        return {}
    return {"framework": {"name": framework, "on_this_machine": dict(machine_changes(framework, model.name))}}


def _framework(trace: Trace) -> str:
    """The framework whose program a trace is; empty where it does not say."""
    return metadata_text(trace.metadata, FRAMEWORK) or ""


def _generated_notes(traces: tuple[Trace, ...]) -> list[str]:
    """That durations were generated at peak speed."""
    if not generated_at_speed(traces[0]):
        return []
    parameters = generated_with(traces[0])
    if parameters.get("operator_model"):
        return [f"the workload was generated with the operator times of {parameters['operator_model']}"]
    full = [words for name, words in _EFFICIENCIES.items() if parameters.get(name, 1) == 1]
    if not full:
        return []
    return [f"the workload was generated at 100 % of peak {' and '.join(full)}, which no machine reaches"]


def compute_warnings(traces: tuple[Trace, ...], system: System, options: RunOptions) -> list[str]:
    """A warning where the roofline replaces durations that were generated with efficiencies below 1."""
    if operator_model(system, options) is not None:
        return []  # durations of nodes that say what they compute are kept
    if not system.roofline or system.replay_only or not traces:
        return []
    parameters = generated_with(traces[0])
    shares = [
        f"{name.replace('_', '-')} {parameters[name]:g}"
        for name in _EFFICIENCIES
        if isinstance(parameters.get(name), int | float) and parameters[name] != 1
    ]
    if not shares or not generated_at_speed(traces[0]):
        return []
    made = f"the traces' durations ({', '.join(shares)})"
    return [f"{made} are not used, because roofline-enabled is on: switch it off in the system file"]


def generated_at_speed(trace: Trace) -> bool:
    """Whether `chakra generate` knew an accelerator, so that computes carry durations."""
    given = generated_with(trace).keys()
    return "operator_model" in given or {"peak_tflops", "mem_gbps"} <= given


def generated_with(trace: Trace) -> dict[str, object]:
    """The parameters that `chakra generate` wrote into a trace; empty for any other trace."""
    for attribute in trace.metadata.attr:
        if attribute.name == "parameters":
            try:
                parameters = json.loads(attribute.string_val)
            except ValueError:
                return {}
            return parameters if isinstance(parameters, dict) else {}
    return {}


def _merges(trace: Trace, mask: Bool) -> bool:
    """Whether some of these nodes stand for several operators."""
    codes = np.unique(trace.operator_codes[mask])
    texts = (trace.operator_table[code] for code in codes[codes >= 0].tolist())
    return any(JOIN in text or TIMES in text for text in texts)


def _by_roofline(trace: Trace, model: ComputeParameters | None) -> Bool:
    given = trace.num_ops != ABSENT
    modelled: Bool = (trace.types == NodeType.COMP) & (np.asarray(trace.is_cpu_op) != 1) & given
    return modelled if model is None else modelled & ~operator_nodes(trace)
