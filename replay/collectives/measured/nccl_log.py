"""Reading the output of nccl-tests and rccl-tests (``all_reduce_perf`` and its sisters).

No number is believed because of where it stands: the rows of a table prove themselves
(:mod:`chakra.replay.collectives.measured.log_rows`).
"""

import codecs
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from chakra.arguments import check_fields, checked
from chakra.errors import ConversionError, UsageError
from chakra.io.files import read_bytes
from chakra.io.readable import counted
from chakra.replay.collectives.measured.log_rows import PROGRAMS, Row, factor, fitting_ranks, shown
from chakra.replay.collectives.measured.log_tables import Section, named_kind, read_sections
from chakra.replay.config.model import CollectiveKind

#: a ns and a year, us
_LEAST_US, _MOST_US = 1e-3, 365 * 24 * 3600e6


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
        if not _LEAST_US <= self.time_us <= _MOST_US:
            raise UsageError(
                f"{self.source}: a collective takes 1 ns to a year, not {self.time_us:g} us for {self.size_bytes} bytes"
            )


#: a log with more rows than this share that contradict themselves is refused
_MOST_BROKEN = 0.2


@dataclass(frozen=True, slots=True)
class Log:
    """What a log gave.

    Attributes
    ----------
    measurements
        Its rows that prove themselves.
    notes
        What was left out or taken otherwise than listed, in words.
    """

    measurements: tuple[Measurement, ...]
    notes: tuple[str, ...]

    def __post_init__(self) -> None:
        check_fields(self)


@checked
def read_log(
    path: str | Path, *, kind: CollectiveKind | None = None, ranks: int | None = None, in_place: bool = False
) -> list[Measurement]:
    """Measurements of one log: :func:`read_whole_log` without its notes.

    Parameters
    ----------
    path
        Output of one or more programs of nccl-tests or rccl-tests: text, JSON or CSV.
    kind, ranks
        Where the log does not say: the collective and the number of ranks.
    in_place
        Take the in-place columns.

    Raises
    ------
    ConversionError
        As :func:`read_whole_log`.
    """
    return list(read_whole_log(path, kind=kind, ranks=ranks, in_place=in_place).measurements)


@checked
def read_whole_log(
    path: str | Path,
    *,
    kind: CollectiveKind | None = None,
    ranks: int | None = None,
    in_place: bool = False,
    text: str | None = None,
) -> Log:
    """Measurements of one log, and what was left out.

    Every row is held against itself: size / time must be the bandwidth that it prints, and the bus bandwidth must be
    that times the factor of collective and ranks. The ratio of the bandwidths tells the ranks, of groups too
    (``NCCL_TESTS_SPLIT``); the list of devices only where it does not. Rows that contradict themselves are left out and
    named.

    Parameters
    ----------
    path
        Output of one or more programs of nccl-tests or rccl-tests: text (tagged by mpirun, srun or time stamps, or not),
        the JSON of either, or CSV.
    kind, ranks
        Where the log does not say: the collective (else the program's name in the text or the file's name) and the
        number of ranks.
    in_place
        Take the in-place columns.
    text
        What the file holds, where it is not to be read.

    Raises
    ------
    ConversionError
        No measurements, or the collective or number of ranks cannot be told, or they contradict what was given, or too
        many rows contradict themselves.
    """
    name = str(path)
    if text is None:
        held = read_bytes(path, error=ConversionError)
        # as some shells write what a program prints
        wide = held.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        text = held.decode("utf-16" if wide else "utf-8", "replace")
    sections = [section for section in read_sections(text, name) if section.begun()]
    if not sections:
        raise ConversionError(
            f"{name}: no measurements: expected lines of nccl-tests, such as all_reduce_perf prints"
        )
    notes: list[str] = []
    measurements: list[Measurement] = []
    nameless = all(section.program is None for section in sections)
    for section in sections:
        own = _kind(section, name, kind, nameless)
        if own is None:
            notes.append(
                f"{_first(section)}: {section.program} is left out: not a collective that can be fitted"
            )
            continue
        measurements += _measured(section, own, ranks, in_place, notes)
    if not measurements:
        raise ConversionError(f"{name}: no measurements: {'; '.join(notes)}")
    return Log(tuple(measurements), tuple(notes))


def _first(section: Section) -> str:
    """File and line of a section's first row."""
    return section.places()[0]


def _kind(section: Section, name: str, given: CollectiveKind | None, nameless: bool) -> CollectiveKind | None:
    """The collective of a section; None: one that cannot be fitted."""
    known, kind = named_kind(section)
    if known:
        if given is not None and kind is not given:
            raise ConversionError(
                f"{_first(section)}: the log says {section.program}, and --collective {given.lower()}"
            )
        return kind
    if given is not None:
        return given
    # the name of a file speaks for a log that names no program, not for a table that has lost its name among others
    names = sorted((word for word, made in PROGRAMS.items() if made), key=len, reverse=True)
    found = re.search("|".join(names), Path(name).name) if nameless else None
    if found is None:
        raise ConversionError(f"{_first(section)}: cannot tell which collective this is; give --collective")
    return PROGRAMS[found[0]]


def _measured(
    section: Section, kind: CollectiveKind, given: int | None, in_place: bool, notes: list[str]
) -> list[Measurement]:
    rows: Sequence[Row] = section.inside if in_place else section.out
    broken = list(section.inside_broken if in_place else section.broken)
    wrong = section.inside_wrong if in_place else section.wrong
    # programs that have no in-place run print empty cells
    if not rows and not wrong and (in_place or not broken):
        raise ConversionError(f"{_first(section)}: no {'in-place' if in_place else 'out-of-place'} times")
    ranks = _ranks(section, kind, rows, given, notes) if rows else 0
    good = [row for row in rows if row.fits_factor(factor(kind, ranks))]
    broken += [row.where for row in rows if not row.fits_factor(factor(kind, ranks))]
    if broken:
        if len(broken) > max(1, _MOST_BROKEN * (len(good) + len(broken))):
            raise ConversionError(
                f"{shown(broken)}: time and bandwidths contradict each other or are missing in {len(broken)} of "
                f"{counted(len(good) + len(broken), 'row')}; is this a whole table of nccl-tests?"
            )
        notes.append(f"{shown(broken)}: left out: time and bandwidths contradict each other or are missing")
    if wrong:
        notes.append(f"{shown(wrong)}: left out: the program counted wrong elements in the result")
    return [Measurement(kind, ranks, row.size_bytes, row.time_us.value, row.where) for row in good]


def _ranks(
    section: Section, kind: CollectiveKind, rows: Sequence[Row], given: int | None, notes: list[str]
) -> int:
    """Ranks of each communicator: what was given, what the bandwidths say, what the log lists."""
    where = rows[0].where
    least, most = fitting_ranks(kind, rows)
    proven = least if least == most else None
    says = f"{least}" if proven else f"{least} or more" if most is None else f"{least} to {most}"

    def allowed(number: int) -> bool:
        return least <= number and (most is None or number <= most)

    if given is not None:
        if not allowed(given):
            raise ConversionError(
                f"{where}: the bandwidths are those of {says} ranks, and --ranks says {given}"
            )
        return given
    listed = _listed(section, where, proven)
    if listed is None:
        if proven is None:
            raise ConversionError(f"{where}: cannot tell how many ranks took part; give --ranks")
        return proven
    if allowed(listed):
        return listed
    if proven is None:
        raise ConversionError(
            f"{where}: the log lists {counted(listed, 'rank')}, and the bandwidths are those of {says}; give --ranks"
        )
    notes.append(
        f"{where}: the log lists {counted(listed, 'rank')}, and the bandwidths are those of {proven}: taken as {proven}"
    )
    return proven


def _listed(section: Section, where: str, proven: int | None) -> int | None:
    """Ranks that the log lists for a communicator; None where it lists none."""
    fitting = [number for number in section.stated if number == proven]
    if section.stated:
        return fitting[0] if fitting else section.stated[0]
    groups = section.groups
    if not groups:
        return None
    if len(groups) == 1:
        # numbers begin at 0: a list that lost its first line still ends with the last rank
        return max(next(iter(groups.values()))) + 1
    sizes = {len(members) for members in groups.values()}
    if len(sizes) > 1 and proven is None:
        raise ConversionError(
            f"{where}: the log lists {counted(len(groups), 'group')} of different sizes; give --ranks"
        )
    return proven if len(sizes) > 1 else sizes.pop()
