"""How long a collective takes in NCCL or RCCL: which algorithm and protocol the library takes, and what they cost.

Plain numbers, no engine: :func:`library_time` is a function of the collective, its size, the communicator and the
parameters of a machine. :mod:`~chakra.replay.collectives.library.published` holds the constants by which the library
chooses, :mod:`~chakra.replay.collectives.library.parameters` what was measured on a machine.
"""

from chakra.replay.collectives.library.cost import LibraryTime, library_time, link_bytes
from chakra.replay.collectives.library.parameters import (
    Evidence,
    ExchangeCosts,
    MachineParameters,
    NetworkCosts,
    RingCosts,
    parameters_from,
    parameters_to,
)
from chakra.replay.collectives.library.shape import Algorithm, Choice, Communicator, Forced, Protocol

__all__ = [
    "Algorithm",
    "Choice",
    "Communicator",
    "Evidence",
    "ExchangeCosts",
    "Forced",
    "LibraryTime",
    "MachineParameters",
    "NetworkCosts",
    "Protocol",
    "RingCosts",
    "library_time",
    "link_bytes",
    "parameters_from",
    "parameters_to",
]
