"""How long operators take on an accelerator: a model for each family, constants for each machine.

Plain numbers, no engine: :func:`operator_ns` gives the device time of operators in their text form
(`chakra.et.operators`). The constants of known machines lie in ``chakra/presets/compute``.
"""

from chakra.replay.compute.parameters import (
    AttentionCosts,
    ComputeParameters,
    HostCosts,
    MatmulCosts,
    MemoryCosts,
    SystolicArray,
    compute_parameters_from,
    compute_parameters_to,
)
from chakra.replay.compute.presets import compute_parameters, names_with_operator_times
from chakra.replay.compute.times import operator_ns
from chakra.replay.config.measured_constants import FitError

__all__ = [
    "AttentionCosts",
    "ComputeParameters",
    "FitError",
    "HostCosts",
    "MatmulCosts",
    "MemoryCosts",
    "SystolicArray",
    "compute_parameters",
    "compute_parameters_from",
    "compute_parameters_to",
    "names_with_operator_times",
    "operator_ns",
]
