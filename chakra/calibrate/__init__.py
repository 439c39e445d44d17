"""Calibration: parameters of networks and of collective libraries from measured times (nccl-tests, rccl-tests)."""

from chakra.calibrate.cost import CostModel, modelled_ns
from chakra.calibrate.fit import Calibration, Residual, calibrate
from chakra.calibrate.library_fit import FittedTime, LibraryFit, Split, fit_library, mean_error
from chakra.calibrate.nccl_log import Log, Measurement, read_log, read_whole_log

__all__ = [
    "Calibration",
    "CostModel",
    "FittedTime",
    "LibraryFit",
    "Log",
    "Measurement",
    "Residual",
    "Split",
    "calibrate",
    "fit_library",
    "mean_error",
    "modelled_ns",
    "read_log",
    "read_whole_log",
]
