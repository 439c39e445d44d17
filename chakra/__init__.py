"""Chakra execution traces: generate, convert, inspect and replay distributed-ML workloads."""

__version__ = "0.1.0"
