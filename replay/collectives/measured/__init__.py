"""Measured times of collectives: logs of nccl-tests and rccl-tests, tables, and what a run takes from them.

A replay takes them in place of a library's model where a system file or an option asks for them, and nowhere else.
"""

from chakra.replay.collectives.measured.times import MeasuredTimes, has_collectives, read_measured

__all__ = ["MeasuredTimes", "has_collectives", "read_measured"]
