"""Calibration: parameters of networks and of collective libraries from times of nccl-tests, rccl-tests, recorded jobs."""

from chakra.calibrate.cost import CostModel, modelled_ns
from chakra.calibrate.fit import Calibration, Residual, calibrate
from chakra.calibrate.library_fit import FittedTime, LibraryFit, Split, fit_library, mean_error
from chakra.calibrate.recorded_fit import fit_recorded
from chakra.calibrate.recordings import read_recordings
from chakra.replay.collectives.measured.nccl_log import Log, Measurement, read_log, read_whole_log

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
    "fit_recorded",
    "mean_error",
    "modelled_ns",
    "read_log",
    "read_recordings",
    "read_whole_log",
]
