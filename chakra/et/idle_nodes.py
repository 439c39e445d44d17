"""Nodes by which the conversion of a recording says that a stream waits: no work of this rank runs then.

They stand on a stream, so that what follows there comes later, and take time; but it is not the accelerator's.
"""

from collections.abc import Callable
from typing import Final

import numpy as np

from chakra.arrays import Bool
from chakra.et.trace import Trace

#: Idleness of a stream that no edge explains. The device does not work then, so it is the host's (or another user's)
#: time although it stands on a stream.
DEVICE_GAP: Final = "device gap"
#: Time in which other ranks of the job, that share the accelerator, have their turn on it. It is neither the host's nor
#: this rank's use of the accelerator.
TURN: Final = "device held by other ranks"
#: both
IDLE_NAMES: Final = (DEVICE_GAP, TURN)


def idles(trace: Trace) -> Bool:
    """Nodes, in file order, in which a stream waits and nothing of this rank runs on it."""
    return named(trace, IDLE_NAMES.__contains__)


def named(trace: Trace, wanted: Callable[[str], bool]) -> Bool:
    """Nodes, in file order, whose name is wanted."""
    codes = [code for code, name in enumerate(trace.name_table) if wanted(name)]
    return np.isin(trace.name_codes, codes)
