"""Configuration files: network, system, remote memory, communicator groups.

Loaders take a path or a plain dict and raise :class:`chakra.errors.ConfigError` with the file and the key.
"""

from chakra.replay.config.algorithms import register_algorithm
from chakra.replay.config.fit import check_fit
from chakra.replay.config.groups import load_groups
from chakra.replay.config.memory import load_memory
from chakra.replay.config.model import (
    CollectiveKind,
    Dimension,
    Memory,
    MemoryKind,
    Network,
    SharedBus,
    System,
    Topology,
)
from chakra.replay.config.network import dump_network, load_network
from chakra.replay.config.system import load_per_node_custom, load_system

__all__ = [
    "CollectiveKind",
    "Dimension",
    "Memory",
    "MemoryKind",
    "Network",
    "SharedBus",
    "System",
    "Topology",
    "check_fit",
    "dump_network",
    "load_groups",
    "load_memory",
    "load_network",
    "load_per_node_custom",
    "load_system",
    "register_algorithm",
]
