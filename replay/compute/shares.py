"""Which share of a node's time each family of kernels has, where a node stands for operators of several families."""

from collections.abc import Sequence

import numpy as np

from chakra.arrays import F64
from chakra.et.families import FAMILIES, computed_family, operator_families
from chakra.replay.compute.measured_products import MeasuredProducts
from chakra.replay.compute.parameters import ComputeParameters
from chakra.replay.compute.times import parts_us


def is_mixed(text: str) -> bool:
    """Whether a node of this text computes operators of several families."""
    return len(operator_families(text)) > 1


def family_shares(
    texts: Sequence[str], parameters: ComputeParameters, measured: MeasuredProducts | None
) -> F64:
    """Shares of the time of nodes by family, by the operator model.

    Parameters
    ----------
    texts
        Values of the attribute ``operator``.
    parameters, measured
        The machine, and measured times of matrix products in place of its model.

    Returns
    -------
    numpy.ndarray
        (texts, families in the order of `FAMILIES`), each row adding up to 1; 0 for texts that say no family, and of no
        time.

    Raises
    ------
    TraceError
        An operator that is ill-formed.
    ConfigError
        An element type that the machine does not have.
    """
    shares = np.zeros((len(texts), len(FAMILIES)))
    for i, node in enumerate(parts_us(texts, parameters, measured)):
        for operator, time in node:
            family = computed_family(operator)
            if family is not None:
                shares[i, FAMILIES.index(family)] += time
    whole = shares.sum(axis=1, keepdims=True)
    out: F64 = np.divide(shares, whole, out=shares, where=whole > 0)
    return out
