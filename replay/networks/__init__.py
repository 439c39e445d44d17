"""Networks: dimensions made of building blocks, networks of single links, and what other packages simulate.

Other packages bring a network as an `OutsideNetwork`; the modules of this package are for the replay itself, and
`chakra.replay.topologies` builds networks of single links.
"""

from chakra.replay.networks.interface import (
    NEVER_NS,
    CountsLinks,
    CountsUse,
    Ended,
    Expects,
    LinkUse,
    LogicalDim,
    NetworkRun,
    OutsideNetwork,
    Pauses,
    Tells,
    Transfers,
    UseOverTime,
)

__all__ = [
    "NEVER_NS",
    "CountsLinks",
    "CountsUse",
    "Ended",
    "Expects",
    "LinkUse",
    "LogicalDim",
    "NetworkRun",
    "OutsideNetwork",
    "Pauses",
    "Tells",
    "Transfers",
    "UseOverTime",
]
