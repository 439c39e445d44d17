"""Chakra execution traces: generate, convert, inspect and replay distributed-ML workloads."""

from chakra.conflicts import warn_of_conflicts

__version__ = "0.1.0"

warn_of_conflicts()
del warn_of_conflicts
