"""Reading the output of nccl-tests and rccl-tests (``all_reduce_perf`` and its sisters)."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from chakra.arguments import check_fields, checked
from chakra.errors import ConversionError, UsageError
from chakra.io.files import read_bytes
from chakra.replay.config.model import CollectiveKind

_PROGRAMS = {
    "all_reduce": CollectiveKind.ALL_REDUCE,
    "all_gather": CollectiveKind.ALL_GATHER,
    "reduce_scatter": CollectiveKind.REDUCE_SCATTER,
    "alltoall": CollectiveKind.ALL_TO_ALL,
}
_PROGRAM = re.compile(rf"\b({'|'.join(_PROGRAMS)})_perf\b")
_RANK = re.compile(r"^#\s*Rank\s+(\d+)\b")
_NUMBER = re.compile(r"^\d+(\.\d+)?([eE][+-]?\d+)?$")


@dataclass(frozen=True, slots=True)
class Measurement:
    """One line of a log: a collective on ``ranks`` ranks took ``time_us`` microseconds.

    ``size_bytes`` is nccl-tests' size: the whole buffer; for an all-gather what everybody ends with, for a
    reduce-scatter what everybody begins with.

    Attributes
    ----------
    kind
        Which collective.
    ranks
        Number of members.
    size_bytes
        Bytes, as nccl-tests count them.
    time_us
        Measured time, us.
    source
        File and line.
    """

    kind: CollectiveKind
    ranks: int
    size_bytes: int
    time_us: float
    source: str

    def __post_init__(self) -> None:
        check_fields(self)
        if self.ranks < 2:
            raise UsageError(f"{self.source}: a collective has at least 2 ranks, not {self.ranks}")
        if self.size_bytes < 1 or not 0 < self.time_us < float("inf"):
            raise UsageError(
                f"{self.source}: size and time must be above 0, not {self.size_bytes} bytes in {self.time_us} us"
            )


@checked
def read_log(
    path: str | Path, *, kind: CollectiveKind | None = None, ranks: int | None = None, in_place: bool = False
) -> list[Measurement]:
    """Measurements of one log.

    Parameters
    ----------
    path
        Output of one or more programs of nccl-tests.
    kind, ranks
        Where the log does not say: the collective (else the program's name in the text or file name) and the number of
        ranks (else the ``# Rank`` lines).
    in_place
        Take the in-place columns.

    Raises
    ------
    ConversionError
        No measurements, or the collective or number of ranks cannot be told.
    """
    name = str(path)
    text = read_bytes(path, error=ConversionError).decode("utf-8", "replace")
    found = list(_parse(text, name, kind, ranks, in_place))
    if not found:
        raise ConversionError(
            f"{name}: no measurements: expected lines of nccl-tests, such as all_reduce_perf prints"
        )
    return found


def _parse(
    text: str, name: str, kind: CollectiveKind | None, ranks: int | None, in_place: bool
) -> Iterator[Measurement]:
    in_name = _PROGRAM.search(Path(name).name) or re.search(rf"({'|'.join(_PROGRAMS)})", Path(name).name)
    current = kind or (_PROGRAMS[in_name.group(1)] if in_name else None)
    listed: set[int] = set()
    fresh = True
    column = None
    for number, line in enumerate(text.splitlines(), start=1):
        program = _PROGRAM.search(line)
        if program and kind is None:
            current = _PROGRAMS[program.group(1)]
        rank = _RANK.match(line)
        if rank:
            if fresh:
                listed, fresh = set(), False
            listed.add(int(rank.group(1)))
            continue
        words = line.lstrip("#").split()
        if line.startswith("#") and "size" in words and "time" in words:
            times = [i for i, word in enumerate(words) if word == "time"]
            column = times[min(int(in_place), len(times) - 1)]
            continue
        cells = line.split()
        if line.startswith("#") or len(cells) < 5 or not cells[0].isdecimal() or not cells[1].isdecimal():
            continue
        fresh = True
        where = f"{name}: line {number}"
        n = ranks if ranks is not None else len(listed)
        if current is None:
            raise ConversionError(f"{where}: cannot tell which collective this is; give --collective")
        if n < 2:
            raise ConversionError(f"{where}: cannot tell how many ranks took part; give --ranks")
        index = column if column is not None and column < len(cells) else len(cells) - (4 if in_place else 8)
        if index < 2 or not _NUMBER.match(cells[index]):
            raise ConversionError(f"{where}: no time where the table has it: {' '.join(cells)[:80]!r}")
        if len(cells[0]) > 18:
            raise ConversionError(f"{where}: a size must be below 10^18 bytes, not {cells[0][:40]}")
        size, time_us = int(cells[0]), float(cells[index])
        if size and time_us > 0:
            yield Measurement(current, n, size, time_us, where)
