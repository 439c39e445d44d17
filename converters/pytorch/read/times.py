"""When events happen: one rule for all that read profiler traces.

A time that is no number (null, NaN, an infinity), is negative, or does not fit is missing, and so is a length. Zero is a
time like others, unless all others are more than a day later: then the device's clock was never read. Events without
a time are left out and counted.
"""

from typing import Any, NamedTuple

import msgspec
import numpy as np

from chakra.arrays import I64, Bool
from chakra.converters.pytorch.read.decimals import BAD_TIME, nanoseconds
from chakra.io.digits import decimal_number
from chakra.io.readable import counted, verb

#: greatest length, us
MAX_MICROS = 1e15
_DAY_NS = 86_400 * 10**9


class Times(NamedTuple):
    """Starts and lengths of events, ns, and which events have both."""

    start: I64
    length: I64
    known: Bool


def event_times(ts: list[msgspec.Raw], dur: list[Any]) -> Times:
    """Times of events in microseconds: the text of ``ts``, and ``dur`` as decoded (`msgspec.UNSET`: no length, 0)."""
    start = nanoseconds([bytes(text).strip(b'"') for text in ts])
    try:
        micros = np.array([0 if d is msgspec.UNSET else d for d in dur], np.float64)
    except (TypeError, ValueError, OverflowError):
        micros = np.zeros(0)
    if micros.shape != start.shape:  # not numbers, or lists of equal length
        micros = np.array([_number(d) for d in dur], np.float64)
    known: Bool = (start != BAD_TIME) & (start >= 0) & (micros >= 0) & (micros <= MAX_MICROS)
    length = np.rint(np.where(known, micros, 0) * 1000).astype(np.int64)
    return Times(start, length, known)


def never_read(starts: I64) -> Bool:
    """Which starts are 0 because nobody read a clock: all others are more than a day later."""
    zero: Bool = starts == 0
    if not zero.any() or zero.all() or int(starts[~zero].min()) < _DAY_NS:
        return np.zeros(len(starts), np.bool_)
    return zero


def _number(value: Any) -> float:
    if value is msgspec.UNSET:
        return 0.0
    try:
        return decimal_number(value.strip()) if isinstance(value, str) else float(value)
    except (TypeError, ValueError, OverflowError):
        return float("nan")


def untimed_text(source: str, events: int) -> str:
    """What is said of events of a file that have no usable time."""
    return (
        f"{source}: {counted(events, 'event')} without a usable time {verb(events, 'was', 'were')} left out"
    )
