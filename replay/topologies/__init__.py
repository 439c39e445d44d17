"""Networks beyond building blocks: routes, faults, and builders of common topologies."""

from chakra.replay.networks.blocks import with_faults
from chakra.replay.networks.builders import dragonfly, fat_tree, rail_optimised, torus

__all__ = ["dragonfly", "fat_tree", "rail_optimised", "torus", "with_faults"]
