"""Measured times as a run takes them: interpolated in size and number of ranks, never beyond what was measured."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from chakra.arguments import check_fields, checked
from chakra.arrays import F64
from chakra.errors import ChakraError, ConfigError
from chakra.io.readable import counted, verb
from chakra.replay.collectives.library.shape import Communicator
from chakra.replay.collectives.measured.nccl_log import Measurement, read_whole_log
from chakra.replay.collectives.measured.silicon import COLUMNS, measurements, tables
from chakra.replay.compute.product_tables import has_products
from chakra.replay.config import silicon
from chakra.replay.config.model import CollectiveKind
from chakra.replay.config.parquet import parquet_rows, parquet_text


@dataclass(frozen=True, slots=True)
class MeasuredTimes:
    """Times of collectives by kind and number of ranks, each a curve over sizes.

    Attributes
    ----------
    name
        What they are, for results.
    curves
        By collective and number of ranks: sizes in bytes as nccl-tests count them, ascending, and times in us.
    notes
        Which rows were left out, and which say different things.
    """

    name: str
    curves: Mapping[tuple[CollectiveKind, int], tuple[F64, F64]]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_fields(self)

    def time_us(
        self, kind: CollectiveKind, size_bytes: float, comm: Communicator, node_ranks: int
    ) -> float | None:
        """Time of a collective, us; None where it was not measured.

        Between measured sizes, and between measured numbers of ranks, time is linear. Logs say how many ranks took part,
        not how they lay on nodes: up to a node's ranks they are taken to share one, above to fill nodes. Nothing is taken
        from one node for several, and nothing beyond the smallest and largest size or number of ranks.

        Parameters
        ----------
        kind, size_bytes, comm
            The collective, as for :func:`~chakra.replay.collectives.library.library_time`.
        node_ranks
            Ranks of a node of the machine.
        """
        inside = comm.nodes == 1
        if not inside and comm.node_ranks != node_ranks:
            return None
        counts = [n for k, n in self.curves if k is kind and (n <= node_ranks) == inside]
        below = max((n for n in counts if n <= comm.ranks), default=None)
        above = min((n for n in counts if n >= comm.ranks), default=None)
        if below is None or above is None:
            return None
        low, high = self._at(kind, below, size_bytes), self._at(kind, above, size_bytes)
        if low is None or high is None:
            return None
        return low if below == above else low + (high - low) * (comm.ranks - below) / (above - below)

    def _at(self, kind: CollectiveKind, ranks: int, size_bytes: float) -> float | None:
        sizes, times = self.curves[kind, ranks]
        if not sizes[0] <= size_bytes <= sizes[-1]:
            return None
        return float(np.interp(size_bytes, sizes, times))


#: repeated measurements that differ by more than this are told
_MOST_SPREAD = 2.0

_Found = Mapping[tuple[CollectiveKind, int], Mapping[int, list[float]]]


def _by_size(rows: Iterable[Measurement]) -> _Found:
    found: dict[tuple[CollectiveKind, int], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        found[row.kind, row.ranks][row.size_bytes].append(row.time_us)
    return found


def _spread(found: _Found) -> list[str]:
    """What was measured several times with times far apart, in words."""
    apart = [
        (kind, size, ranks, times)
        for (kind, ranks), by_size in found.items()
        for size, times in by_size.items()
        if max(times) > _MOST_SPREAD * min(times)
    ]
    if not apart:
        return []
    kind, size, ranks, times = max(apart, key=lambda one: max(one[3]) / min(one[3]))
    more = (
        f", and {len(apart) - 1} more {verb(len(apart) - 1, 'differs', 'differ')} by over {_MOST_SPREAD:g} times"
        if len(apart) > 1
        else ""
    )
    far = f"{min(times):g} to {max(times):g} us{more}"
    return [
        (
            f"measured times of {kind.lower()} of {size:,} bytes on {counted(ranks, 'rank')} go from {far}; the medians "
            "are taken"
        )
    ]


def _curves(found: _Found) -> dict[tuple[CollectiveKind, int], tuple[F64, F64]]:
    """Curves of measurements; where one was measured several times, the median."""
    return {
        key: (
            np.array(sorted(by_size), np.float64),
            np.array([np.median(by_size[size]) for size in sorted(by_size)], np.float64),
        )
        for key, by_size in found.items()
    }


def has_collectives(name: str) -> bool:
    """Whether a name of measured times means collectives: the package, or any file but one of matrix products alone.

    Raises
    ------
    ConversionError, UsageError
        A parquet file that cannot be read.
    """
    return silicon.named(name) or not has_products(name)


@checked
def read_measured(names: Sequence[str], machine: str, asked: str) -> MeasuredTimes:
    """Measured times that a system file or an option names.

    Parameters
    ----------
    names
        Files (output of nccl-tests or rccl-tests as text, JSON or CSV; parquet with the columns of the CSV), and
        ``aiconfigurator``, the tables of that package for the machine, or ``aiconfigurator:SYSTEM``.
    machine
        Name of the machine, which says which of the package's systems it is.
    asked
        Who asks, for messages.

    Raises
    ------
    ConfigError
        A file that cannot be read or holds no measurement, or a package that is not installed.
    """
    rows: list[Measurement] = []
    shown: list[str] = []
    notes: list[str] = []
    for name in names:
        try:
            own, called, left_out = _read(name, machine)
        except ChakraError as exc:
            raise ConfigError(f"{asked}: {exc}") from None
        rows += own
        shown.append(called)
        notes += left_out
    found = _by_size(rows)
    return MeasuredTimes(", ".join(shown), _curves(found), (*notes, *_spread(found)))


def _read(name: str, machine: str) -> tuple[Sequence[Measurement], str, Sequence[str]]:
    """Measurements of one name, how results call them, and what was left out."""
    if silicon.named(name):
        return *tables(name, machine), ()
    text = None
    if name.endswith(".parquet"):
        rows = parquet_rows(name)
        if rows and rows[0].keys() >= COLUMNS:
            return measurements(rows, name), Path(name).name, ()
        text = parquet_text(rows)
    log = read_whole_log(name, text=text)
    return log.measurements, Path(name).name, log.notes
