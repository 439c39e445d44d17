"""Networks beyond building blocks: routes, faults, and builders of common topologies."""

from chakra.replay.topologies.blocks import with_faults
from chakra.replay.topologies.builders import dragonfly, fat_tree, rail_optimised, torus

__all__ = ["dragonfly", "fat_tree", "rail_optimised", "torus", "with_faults"]
