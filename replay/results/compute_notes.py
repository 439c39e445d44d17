"""How the compute times of a run came about, where a reader would take them for a measurement."""

import json

import numpy as np

from chakra.arrays import Bool
from chakra.et import ABSENT, NodeType, Trace
from chakra.replay.config.model import System

#: parameter of the generator -> the speed that it is a share of
_EFFICIENCIES = {"matmul_efficiency": "FLOP/s", "memory_efficiency": "memory bandwidth"}


def compute_notes(traces: tuple[Trace, ...], system: System) -> list[str]:
    """Sentences about compute times at peak speed, which no machine reaches; empty where times are given."""
    if system.replay_only or not traces:
        return []
    if system.roofline:
        if not any(_modelled(trace).any() for trace in traces):
            return []
        speeds = f"{system.peak_perf_tflops:g} TFLOP/s and {system.local_mem_bw_gbps:g} GB/s"
        return [f"the roofline computes at 100 % of {speeds}, which no machine reaches"]
    if not generated_at_speed(traces[0]):
        return []
    parameters = generated_with(traces[0])
    full = [words for name, words in _EFFICIENCIES.items() if parameters.get(name, 1) == 1]
    if not full:
        return []
    return [f"the workload was generated at 100 % of peak {' and '.join(full)}, which no machine reaches"]


def compute_warnings(traces: tuple[Trace, ...], system: System) -> list[str]:
    """A warning where the roofline replaces durations that were generated with efficiencies below 1."""
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
    return {"peak_tflops", "mem_gbps"} <= generated_with(trace).keys()


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


def _modelled(trace: Trace) -> Bool:
    given = trace.num_ops != ABSENT
    modelled: Bool = (trace.types == NodeType.COMP) & (np.asarray(trace.is_cpu_op) != 1) & given
    return modelled
