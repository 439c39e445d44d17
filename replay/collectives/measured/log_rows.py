"""Rows of a benchmark's output, held against themselves.

nccl-tests and rccl-tests print time, algorithm bandwidth and bus bandwidth: ``algbw = size / time`` and ``busbw = algbw
factor``, where the factor follows from collective and ranks (their PERFORMANCE.md). So a row proves that its columns were
read aright, and a table tells how many ranks took part.
"""

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from chakra.io.digits import decimal_number, signed_whole_number
from chakra.replay.config.model import CollectiveKind

_NUMBER = re.compile(r"^[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?$")
#: programs, by the name before ``_perf``; None: not a collective that can be fitted
PROGRAMS: dict[str, CollectiveKind | None] = {
    "all_reduce": CollectiveKind.ALL_REDUCE,
    "all_gather": CollectiveKind.ALL_GATHER,
    "reduce_scatter": CollectiveKind.REDUCE_SCATTER,
    "alltoall": CollectiveKind.ALL_TO_ALL,
    "all_to_all": CollectiveKind.ALL_TO_ALL,
    **dict.fromkeys(
        ("alltoallv", "broadcast", "reduce", "gather", "scatter", "sendrecv", "hypercube", "all_reduce_bias"),
        None,
    ),
}
#: most ranks that a table is tried for
_MOST_RANKS = 1 << 17


@dataclass(frozen=True, slots=True)
class Printed:
    """A number as it was printed.

    Attributes
    ----------
    value
        The number.
    unit
        What one in its last digit is worth: the number is known to about that.
    """

    value: float
    unit: float


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a table.

    Attributes
    ----------
    where
        File and line.
    size_bytes
        Size.
    time_us
        Time.
    algbw, busbw
        Bandwidths, 10^9 B/s; None where the table has none.
    """

    where: str
    size_bytes: int
    time_us: Printed
    algbw: Printed | None
    busbw: Printed | None

    def has_its_bandwidth(self) -> bool:
        """Whether size / time is the printed bandwidth, within what was rounded away."""
        time, rate = self.time_us, self.algbw
        if not time.value > 0:
            return False
        if rate is None:
            return True
        most = self.size_bytes / max(time.value - time.unit, time.value * 1e-3) / 1e3
        least = self.size_bytes / (time.value + time.unit) / 1e3
        return least * 0.999 - rate.unit <= rate.value <= most * 1.001 + rate.unit

    def has_some_factor(self) -> bool:
        """Whether the bus bandwidth is half to twice the algorithm's, as it is for every collective."""
        if self.algbw is None or self.busbw is None:
            return True
        slack = 2 * self.algbw.unit + self.busbw.unit
        return self.algbw.value / 2 - slack <= self.busbw.value <= 2 * self.algbw.value + slack

    def fits_factor(self, factor: float) -> bool:
        """Whether the bus bandwidth is so many times the algorithm's, within what was rounded away."""
        if self.busbw is None:
            return True
        # the time tells a small bandwidth to more digits than the column of bandwidths does
        exact = self.size_bytes / self.time_us.value / 1e3
        blur = exact * (self.time_us.unit / self.time_us.value + 1e-3)
        if abs(self.busbw.value - factor * exact) > self.busbw.unit + factor * blur:
            return False
        algbw = self.algbw
        return algbw is None or (
            abs(self.busbw.value - factor * algbw.value) <= self.busbw.unit + factor * algbw.unit
        )


def printed(text: str) -> Printed | None:
    """A number and the worth of its last digit; None for what is no number."""
    if not _NUMBER.match(text):
        return None
    mantissa, _, exponent = text.lower().partition("e")
    digits = len(mantissa.partition(".")[2])
    if len(exponent) > 4 or signed_whole_number(exponent or "0") - digits > sys.float_info.max_10_exp:
        return None
    try:
        value = decimal_number(text)
    except ValueError:
        return None
    return Printed(value, 10.0 ** (signed_whole_number(exponent or "0") - digits))


def factor(kind: CollectiveKind, ranks: int) -> float:
    """Bus bandwidth in units of algorithm bandwidth."""
    return (2 if kind is CollectiveKind.ALL_REDUCE else 1) * (ranks - 1) / ranks


def fitting_ranks(kind: CollectiveKind, rows: Iterable[Row]) -> tuple[int, int | None]:
    """The least and the largest number of ranks that most rows' bandwidths allow; None: without bound."""
    least, most = 2, _MOST_RANKS
    double = 2 if kind is CollectiveKind.ALL_REDUCE else 1
    bounds = []
    for row in rows:
        if row.busbw is None or not row.busbw.value:
            continue
        exact = row.size_bytes / row.time_us.value / 1e3
        slack = row.busbw.unit / exact + row.time_us.unit / row.time_us.value * double
        share = row.busbw.value / exact / double
        bounds.append((share - slack / double, share + slack / double, row))
    bounds.sort(key=lambda bound: bound[1] - bound[0])
    for low, high, _ in bounds:
        # (n - 1) / n between low and high: n = 1 / (1 - share)
        at_least = 2 if low <= 0.5 else int(1 / (1 - low) - 1e-9) + 1 if low < 1 else _MOST_RANKS
        at_most = _MOST_RANKS if high >= 1 else int(1 / (1 - high) + 1e-9)
        if max(least, at_least) <= min(most, at_most):
            least, most = max(least, at_least), min(most, at_most)
    return least, None if most == _MOST_RANKS else most


def kind_of(word: str) -> tuple[bool, CollectiveKind | None]:
    """Whether a word names a program or collective, and which that is."""
    plain = re.sub(r"[^a-z]", "", word.lower().removesuffix("_perf"))
    for name in sorted(PROGRAMS, key=len, reverse=True):
        if plain.endswith(name.replace("_", "")):
            return True, PROGRAMS[name]
    return False, None


def shown(rows: Sequence[str], most: int = 3) -> str:
    """The first of some places, in words."""
    rest = f" and {len(rows) - most} more" if len(rows) > most else ""
    file = rows[0].rpartition(": ")[0] + ": "
    return ", ".join([rows[0], *(row.removeprefix(file) for row in rows[1:most])]) + rest
