"""Execution traces as columns: reading, writing, checking."""
