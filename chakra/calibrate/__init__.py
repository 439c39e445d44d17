"""Calibration: network parameters from measured collective times (nccl-tests, rccl-tests)."""

from chakra.calibrate.cost import CostModel, modelled_ns
from chakra.calibrate.fit import Calibration, Residual, calibrate
from chakra.calibrate.nccl_log import Measurement, read_log

__all__ = [
    "Calibration",
    "CostModel",
    "Measurement",
    "Residual",
    "calibrate",
    "modelled_ns",
    "read_log",
]
