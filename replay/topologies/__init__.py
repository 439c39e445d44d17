"""Networks beyond building blocks: routes, faults, builders of common topologies, and infrastructures of InfraGraph."""

from chakra.replay.networks.blocks import with_faults
from chakra.replay.networks.builders import dragonfly, fat_tree, rail_optimised, torus
from chakra.replay.networks.infragraph import import_infragraph

__all__ = ["dragonfly", "fat_tree", "import_infragraph", "rail_optimised", "torus", "with_faults"]
