"""Times of operators in their text form: each distinct operator once, matrix products of a type all together."""

from collections.abc import Sequence

import numpy as np

from chakra.arguments import checked
from chakra.arrays import F64, I64
from chakra.errors import ConfigError
from chakra.et.operators import Attention, Computed, Host, Kernel, MatrixProduct, parse_operators
from chakra.replay.compute.attention import attention_us
from chakra.replay.compute.host import host_us
from chakra.replay.compute.matmul import matrix_us
from chakra.replay.compute.measured_products import Left, MeasuredProducts
from chakra.replay.compute.memory_bound import kernel_us, kernels_of
from chakra.replay.compute.parameters import ComputeParameters, MatmulCosts

#: types whose products run at the rate of another type where a machine has no constants for them
_LIKE = {"fp16": "bf16", "int8": "fp8", "mxfp8": "fp8", "mxfp4": "nvfp4"}

#: why operators that are no matrix products are not measured
_LEFT = {Attention: Left.ATTENTION, Kernel: Left.MEMORY}


@checked
def operator_ns(texts: Sequence[str], parameters: ComputeParameters) -> F64:
    """Device time of the operators of nodes.

    Parameters
    ----------
    texts
        Values of the attribute ``operator``.
    parameters
        The machine.

    Returns
    -------
    numpy.ndarray
        (texts,), ns; NaN for a text of another tool.

    Raises
    ------
    TraceError
        An operator that is ill-formed.
    ConfigError
        An element type that the machine does not have.
    """
    return measured_ns(texts, parameters, None)


def measured_ns(
    texts: Sequence[str], parameters: ComputeParameters, measured: MeasuredProducts | None
) -> F64:
    """As `operator_ns`, with measured times of matrix products where there are any."""
    nodes = parts_us(texts, parameters, measured)
    out = np.full(len(nodes), np.nan)
    for i, node in enumerate(nodes):
        if node:
            out[i] = sum(time for _, time in node)
    return out * 1e3 * parameters.contention


def parts_us(
    texts: Sequence[str], parameters: ComputeParameters, measured: MeasuredProducts | None
) -> list[list[tuple[Computed, float]]]:
    """Operators of nodes and how long each takes of its node's time, us, gaps between kernels included.

    The machine's contention, which lengthens all of them alike, is not in them. A text of another tool has no operators.

    Raises
    ------
    TraceError
        An operator that is ill-formed.
    ConfigError
        An element type that the machine does not have.
    """
    nodes = [parse_operators(text) for text in texts]
    distinct = list(dict.fromkeys(operator for node in nodes for operator, _ in node))
    found, _ = times_us(distinct, parameters, measured)
    times = dict(zip(distinct, found.tolist(), strict=True))
    gap = parameters.host.gap_us
    return [
        [(operator, (times[operator] + gap * kernels_of(operator)) * count) for operator, count in node]
        for node in nodes
    ]


def kernel_counts(texts: Sequence[str]) -> I64:
    """Kernels of the operators of nodes, (texts,); 0 for a text of another tool."""
    return np.array(
        [sum(kernels_of(op) * count for op, count in parse_operators(text)) for text in texts], np.int64
    )


def costs_of(type_: str, parameters: ComputeParameters) -> MatmulCosts:
    """Costs of matrix products of an element type.

    Raises
    ------
    ConfigError
        The machine has none.
    """
    costs = parameters.matmul.get(type_) or parameters.matmul.get(_LIKE.get(type_, ""))
    if costs is None:
        raise ConfigError(
            f"{parameters.name}: no matrix products of {type_}; there are {', '.join(parameters.matmul)}"
        )
    return costs


def times_us(
    operators: Sequence[Computed], parameters: ComputeParameters, measured: MeasuredProducts | None
) -> tuple[F64, list[Left | None]]:
    """Times of operators, us, and why each keeps the model's; None: it was measured, or is the host's.

    Gaps between kernels and the machine's contention are not in them.
    """
    times = _modelled_us(operators, parameters)
    why = [_LEFT.get(type(operator)) for operator in operators]
    where = [i for i, operator in enumerate(operators) if isinstance(operator, MatrixProduct)]
    if measured is not None and where:
        found, reasons = measured.times_us([op for op in operators if isinstance(op, MatrixProduct)])
        times[where] = np.where(np.isnan(found), times[where], found)
        for i, reason in zip(where, reasons, strict=True):
            why[i] = reason
    return times, why


def _modelled_us(operators: Sequence[Computed], parameters: ComputeParameters) -> F64:
    times = np.zeros(len(operators))
    by_type: dict[str, list[int]] = {}
    for i, operator in enumerate(operators):
        if isinstance(operator, MatrixProduct):
            by_type.setdefault(operator.type, []).append(i)
        elif isinstance(operator, Attention):
            times[i] = attention_us(operator, parameters, costs_of(operator.type, parameters))
        elif isinstance(operator, Host):
            # the host computes nothing that shares the device with communication
            times[i] = host_us(operator, parameters.host) / parameters.contention
        else:
            times[i] = kernel_us(operator, parameters)
    for type_, where in by_type.items():
        products = [operator for i in where if isinstance(operator := operators[i], MatrixProduct)]
        costs = costs_of(type_, parameters)
        times[where] = matrix_us(products, costs, parameters)
    return times
