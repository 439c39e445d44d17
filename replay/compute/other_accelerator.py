"""Recorded kernels on another accelerator: each time as many times as long as the operator model says of both machines.

By shape where the trace tells the inputs of the operator that launched a kernel, and the models of both machines were
fitted to measured products of its element type; else by what bounds its family: the peak of its element type for matrix
products, attention and convolutions, the bandwidth of the memory for the others.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from chakra.arguments import shown
from chakra.arrays import F64, Bool
from chakra.errors import UsageError
from chakra.et import Trace
from chakra.et.families import FAMILIES, MEMORY_BOUND, computed_family
from chakra.et.node_families import node_families
from chakra.et.operators import Attention, Computed, Kernel, MatrixProduct, operator_text, parse_operators
from chakra.et.recorded_operators import recorded_operator
from chakra.io.nearest import nearest
from chakra.replay.compute.parameters import FIRST_TYPE, ComputeParameters
from chakra.replay.compute.presets import compute_parameters, names_with_operator_times
from chakra.replay.compute.shares import is_mixed
from chakra.replay.compute.times import operator_ns, parts_us

#: metadata attribute with the name of the recorded accelerator
ACCELERATOR = "accelerator"
#: how a kernel's ratio was found
BY_SHAPE, BY_PEAK, BY_BANDWIDTH = "shape", "peak", "bandwidth"
#: families of which an operator can say the shape
_OPERATORS = {"matmul": MatrixProduct, "attention": Attention}


@dataclass(frozen=True, slots=True)
class Ratios:
    """Factors on the times of a trace's kernels.

    Attributes
    ----------
    factor
        (nodes,) time on the other accelerator over the recorded one; 1 of nodes that are no kernels.
    time_ns
        How ratios were found -> recorded time of those kernels.
    """

    factor: F64
    time_ns: dict[str, int] = field(default_factory=dict)


def accelerator_named(name: str) -> ComputeParameters:
    """Constants of a machine by its preset's name, or by that of its accelerator (``b200``, ``NVIDIA H200``).

    Raises
    ------
    UsageError
        No machine, or several.
    """
    known = names_with_operator_times()
    if name in known:
        return compute_parameters(name)
    words = name.lower().replace("-", " ").replace("_", " ").split()
    fits = [preset for preset in known if set(preset.split("-")) & set(words)]
    if len(fits) == 1:
        return compute_parameters(fits[0])
    hint = f": {' or '.join(fits)}?" if fits else f"{nearest(name, known)}; there are {', '.join(known)}"
    raise UsageError(f"accelerator: there are no operator times of {shown(name)}{hint}")


def recorded_on(traces: Iterable[Trace], given: str | None) -> ComputeParameters:
    """The accelerator that traces were recorded on: as given, else as they say.

    Raises
    ------
    UsageError
        Neither says it.
    """
    if given is not None:
        return accelerator_named(given)
    for trace in traces:
        for attribute in trace.metadata.attr:
            if attribute.name == ACCELERATOR:
                return accelerator_named(attribute.string_val)
    raise UsageError(
        "accelerator: the traces do not say which accelerator they were recorded on; name it with recorded-on "
        "(--recorded-on)"
    )


def ratios(trace: Trace, kernels: Bool, origin: ComputeParameters, target: ComputeParameters) -> Ratios:
    """Factors on the times of kernels.

    Parameters
    ----------
    trace
        A recorded trace.
    kernels
        (nodes,) in file order: which nodes are kernels of the accelerator.
    origin, target
        The recorded and the other machine.
    """
    factor = np.ones(trace.n_nodes)
    time_ns: dict[str, int] = {}
    durations = trace.durations_ns()
    parents: dict[int, Computed | None] = {}
    families = node_families(trace)
    for index in np.flatnonzero(kernels).tolist():
        text = _text(trace, index)
        parts: tuple[tuple[Computed | None, str, float], ...]
        if is_mixed(text):
            parts = _parts(text, origin)
        else:
            family = FAMILIES[families[index]]
            parts = ((_operator(trace, index, family, parents), family, 1.0),)
        factor[index] = 0.0
        for operator, family, share in parts:
            how, value = _ratio(operator, family, origin.name, target.name)
            factor[index] += share * value
            time_ns[how] = time_ns.get(how, 0) + round(share * int(durations[index]))
    return Ratios(factor, time_ns)


def _text(trace: Trace, index: int) -> str:
    """What a node says that it computes; empty where it says nothing."""
    code = int(trace.operator_codes[index]) if len(trace.operator_table) else -1
    return trace.operator_table[code] if code >= 0 else ""


def _parts(text: str, origin: ComputeParameters) -> tuple[tuple[Computed, str, float], ...]:
    """Operators of a node of several families, with family and share of its time on the recorded machine."""
    [node] = parts_us([text], origin, None)
    told = [(operator, family, time) for operator, time in node if (family := computed_family(operator))]
    whole = sum(time for _, _, time in told)
    if not whole:
        return tuple((operator, family, 1 / len(told)) for operator, family, _ in told)
    return tuple((operator, family, time / whole) for operator, family, time in told)


def _operator(trace: Trace, index: int, family: str, parents: dict[int, Computed | None]) -> Computed | None:
    """What a kernel computes, where that fits its family: by its own text, or by the operator that launched it."""
    text = _text(trace, index)
    if text:
        found = parse_operators(text)
        return found[0][0] if len(found) == 1 else None
    launchers = trace.node(index).ctrl_deps
    if not launchers:
        return None
    launcher = trace.index_of(launchers[0])
    if launcher not in parents:
        node = trace.node_proto(launcher)
        parents[launcher] = recorded_operator(node.name, node.inputs.shapes, node.inputs.types)
    made = parents[launcher]
    if family in _OPERATORS:
        return made if isinstance(made, _OPERATORS[family]) else None
    return made if isinstance(made, Kernel) and family in MEMORY_BOUND else None


@lru_cache(maxsize=1 << 14)
def _ratio(operator: Computed | None, family: str, origin: str, target: str) -> tuple[str, float]:
    """How the ratio was found, and it."""
    one, two = compute_parameters(origin), compute_parameters(target)
    kind = getattr(operator, "type", FIRST_TYPE) if not isinstance(operator, Kernel) else FIRST_TYPE
    if operator is not None and (
        isinstance(operator, Kernel) or (_measured(one, kind) and _measured(two, kind))
    ):
        text = [operator_text(operator)]
        before, after = float(operator_ns(text, one)[0]), float(operator_ns(text, two)[0])
        if before > 0 and after > 0:
            return BY_SHAPE, after / before
    if family in MEMORY_BOUND or family == "other":
        reached = [machine.memory.gbps * machine.memory.efficiency for machine in (one, two)]
        return BY_BANDWIDTH, reached[0] / reached[1]
    return BY_PEAK, _peak(one, kind) / _peak(two, kind)


def _measured(parameters: ComputeParameters, kind: str) -> bool:
    """Whether products of an element type were fitted to; those of fp16 are those of bf16."""
    return (FIRST_TYPE if kind == "fp16" else kind) in parameters.errors


def _peak(parameters: ComputeParameters, kind: str) -> float:
    costs = parameters.matmul.get(kind) or parameters.matmul[FIRST_TYPE]
    return costs.peak_tflops
