"""Known machines: presets whose every number has a source and a status, and clusters made of them.

>>> from chakra.platforms import cluster
>>> machine = cluster("8x hgx-h100 over 400G rail-optimised fat tree")
>>> machine.network()["npus_count"], round(machine.network()["bandwidth"][1], 2)
([8, 8], 46.57)
"""

from chakra.platforms.cluster import all_platforms, cluster, load_platform, platform_names
from chakra.platforms.collectives import collective_parameters
from chakra.platforms.keys import Status
from chakra.platforms.model import Accelerator, Number, Platform, PlatformDim
from chakra.platforms.write import write_platform

__all__ = [
    "Accelerator",
    "Number",
    "Platform",
    "PlatformDim",
    "Status",
    "all_platforms",
    "cluster",
    "collective_parameters",
    "load_platform",
    "platform_names",
    "write_platform",
]
