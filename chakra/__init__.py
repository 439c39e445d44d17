"""Chakra execution traces: generate, convert, inspect and replay distributed-ML workloads."""

from pathlib import Path

from chakra.checkout import find_siblings
from chakra.conflicts import warn_of_conflicts

__version__ = "0.1.0"

find_siblings(Path(__file__).parent)
warn_of_conflicts()
del find_siblings, warn_of_conflicts, Path
