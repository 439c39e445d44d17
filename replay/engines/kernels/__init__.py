"""Compiled kernels: functions over flat arrays, no I/O, no Python objects."""
