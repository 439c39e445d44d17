"""Timelines of replays, ASTRA-sim logs and Kineto traces, as Chrome JSON or Perfetto files."""

from chakra.timeline.astrasim_log import LogRead, read_log
from chakra.timeline.builder import TimelineBuilder
from chakra.timeline.document import from_document, from_result
from chakra.timeline.filters import estimated_bytes, filtered
from chakra.timeline.kineto import read_kineto
from chakra.timeline.model import CATEGORIES, Counter, Row, Timeline
from chakra.timeline.write import write_timeline

__all__ = [
    "CATEGORIES",
    "Counter",
    "LogRead",
    "Row",
    "Timeline",
    "TimelineBuilder",
    "estimated_bytes",
    "filtered",
    "from_document",
    "from_result",
    "read_kineto",
    "read_log",
    "write_timeline",
]
