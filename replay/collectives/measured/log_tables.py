"""The forms in which benchmarks of collectives write their tables: text, JSON and CSV.

Each reader gives sections: the rows of one run of one program, with what the file says about it. Lines that
are no rows of their form are left out here; whether a row is right, :mod:`chakra.replay.collectives.measured.nccl_log`
decides.
"""

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from chakra.errors import ConversionError
from chakra.replay.collectives.measured.log_rows import Printed, Row, kind_of, printed
from chakra.replay.config.model import CollectiveKind

_TYPES = (
    "int8|uint8|int32|uint32|int64|uint64|half|float|double|bfloat16|fp8_e4m3|fp8_e5m2|f8e4m3|f8e5m2|bf16|fp16|fp32"
    "|char"
)
#: a row of a table, whatever stands before it: tags of mpirun, srun and torchrun, time stamps
_ROW = re.compile(rf"(?:^|[\s:>\]|])(\d+)\s+(\d+)\s+(?:{_TYPES})\b(.*)$")
_RANK = re.compile(r"\bRank\s+(\d+)(?:\s+Group\s+(\d+))?\s+\S")
_PROGRAM = re.compile(r"\b(\w+)_perf\b")
_BEGINS = re.compile(r"\bnThread\s+\d+\s+nGpus\b|\bUsing devices\b")
_WORD = re.compile(r"^[A-Za-z]")
#: largest number of digits of a size
_SIZE_DIGITS = 18


@dataclass(slots=True)
class Section:
    """Rows of one run of one program.

    Attributes
    ----------
    program
        Its name, where the file says it.
    kind
        Its collective; None: not one that can be fitted, or not known.
    groups
        Ranks that the file lists, by group.
    stated
        Numbers of ranks that the file states outright; one of them holds.
    out, inside
        Rows out of place and in place.
    broken
        Places whose values contradict each other or are missing.
    """

    program: str | None = None
    kind: CollectiveKind | None = None
    groups: dict[int, set[int]] = field(default_factory=dict)
    stated: tuple[int, ...] = ()
    out: list[Row] = field(default_factory=list)
    inside: list[Row] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    def begun(self) -> bool:
        """Whether it has rows."""
        return bool(self.out or self.inside or self.broken)


def read_sections(text: str, name: str) -> list[Section]:
    """Sections of a file, by what it looks like."""
    start = text.lstrip()[:1]
    if start in ("{", "["):
        document = _json(text)
        if document is not None:
            return list(_json_sections(document, name))
    heading = text.lstrip().partition("\n")[0].lower()
    if "," in heading and "size" in heading and "time" in heading:
        return list(_csv_sections(text, name))
    return list(_text_sections(text, name))


def _text_sections(text: str, name: str) -> Iterator[Section]:
    section, mentioned = Section(), None
    for number, line in enumerate(text.splitlines(), start=1):
        row = _ROW.search(line)
        if row:
            if not section.begun():
                # what is said between two tables is said of the second
                section.program = section.program or mentioned
            mentioned = None
            _add_row(section, row, f"{name}: line {number}")
            continue
        program = _PROGRAM.search(line)
        rank = _RANK.search(line)
        begins = _BEGINS.search(line) or rank or (program and "starting" in line)
        if begins and section.begun():
            yield section
            section = Section()
        if program and "concluded" not in line:
            mentioned = program[1]
            if not section.begun():
                section.program = program[1]
        if rank:
            section.groups.setdefault(int(rank[2] or 0), set()).add(int(rank[1]))
        if re.search(r"\bcputime\b", line) and "size" in line:
            raise ConversionError(f"{name}: line {number}: the table has CPU times, not times of collectives")
    yield section


def _add_row(section: Section, found: re.Match[str], where: str) -> None:
    if len(found[1]) > _SIZE_DIGITS:
        raise ConversionError(f"{where}: a size must be below 10^18 bytes, not {found[1][:40]}")
    size, words = int(found[1]), found[3].split()
    if not size:
        return
    # an operation, then a root: either may be missing, so the values have to prove where they begin
    if words and _WORD.match(words[0]) and words[0] not in ("N/A", "nan"):
        words = words[1:]
    numbers = [printed(word) for word in words]
    first = _values(numbers, size, where, range(min(3, len(numbers))))
    if first is None:
        section.broken.append(where)
        return
    begin, row = first
    section.out.append(row)
    second = _values(numbers, size, where, range(begin + 4, len(numbers)))
    if second:
        section.inside.append(second[1])


def _values(numbers: list[Printed | None], size: int, where: str, begins: range) -> tuple[int, Row] | None:
    """The first three numbers in a row that are a time and its bandwidths."""
    for begin in begins:
        three = [number for number in numbers[begin : begin + 3] if number]
        if len(three) < 3:
            # a time that is missing (N/A) is not to be sought further to the right
            break
        row = Row(where, size, *three)
        if row.has_its_bandwidth() and row.has_some_factor():
            return begin, row
    return None


def _json(text: str) -> Any:
    """The value of a JSON text, or a list of those of its lines; None where it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return [
            json.loads(line.rstrip(",")) for line in text.splitlines() if line.strip() not in ("", "[", "]")
        ]
    except (ValueError, RecursionError):
        return None


def _maps(value: Any) -> Iterator[dict[str, Any]]:
    """Every map inside a JSON value, in order."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            yield one
            waiting.extend(reversed(list(one.values())))
        elif isinstance(one, list):
            waiting.extend(reversed(one))


def _json_sections(document: Any, name: str) -> Iterator[Section]:
    whole = Section()
    runs: dict[tuple[Any, ...], Section] = {}
    for text in _texts(document):
        program = _PROGRAM.search(text)
        if program:
            whole.program = program[1]
            break
    for number, entry in enumerate(_maps(document), start=1):
        if isinstance(entry.get("rank"), int):
            whole.groups.setdefault(int(entry.get("group") or 0), set()).add(entry["rank"])
        if "cpu_time" in entry:
            raise ConversionError(f"{name}: the table has CPU times, not times of collectives")
        size = entry.get("size")
        if not isinstance(size, int) or not 0 < size < 10**_SIZE_DIGITS:
            continue
        where = f"{name}: record {number} ({size} bytes)"
        if isinstance(entry.get("out_of_place"), dict) or isinstance(entry.get("in_place"), dict):
            _add_values(whole, whole.out, entry.get("out_of_place"), size, where)
            _add_values(whole, whole.inside, entry.get("in_place"), size, where)
        elif "time" in entry:
            key = (str(entry.get("name")), entry.get("ranks"), entry.get("gpusPerRank"))
            run = runs.setdefault(key, Section(program=str(entry.get("name")), stated=_stated(entry)))
            _add_values(run, run.inside if _true(entry.get("inPlace")) else run.out, entry, size, where)
    yield from [whole] if whole.begun() or not runs else []
    yield from runs.values()


def _texts(document: Any) -> Iterator[str]:
    for entry in _maps(document):
        for value in entry.values():
            if isinstance(value, str):
                yield value
            elif isinstance(value, list):
                yield from (one for one in value if isinstance(one, str))


def _true(value: Any) -> bool:
    return str(value).strip().lower() in ("1", "true", "yes")


#: no job is larger
_MOST_RANKS = 1 << 31


def _stated(entry: Mapping[str, Any]) -> tuple[int, ...]:
    """Numbers of ranks that a record may mean: processes, or processes times the devices of each."""
    try:
        ranks, devices = int(entry.get("ranks") or 0), int(entry.get("gpusPerRank") or 1)
    except (TypeError, ValueError):
        return ()
    return tuple(dict.fromkeys(n for n in (ranks, ranks * devices) if 1 <= n <= _MOST_RANKS))


def _add_values(section: Section, rows: list[Row], entry: Any, size: int, where: str) -> None:
    if not isinstance(entry, Mapping):
        return
    plain = {re.sub(r"[^a-z]", "", str(key).lower()): value for key, value in entry.items()}
    time, algbw, busbw = (_number(plain.get(key)) for key in ("time", "algbw", "busbw"))
    row = Row(where, size, time, algbw, busbw) if time else None
    if row is None or not row.has_its_bandwidth():
        section.broken.append(where)
    else:
        rows.append(row)


def _number(value: Any) -> Printed | None:
    if isinstance(value, bool) or value is None:
        return None
    found = printed(str(value).strip())
    # a number of a file has six decimals or more, of which zeros at the end are lost
    return found and Printed(found.value, max(1e-6, abs(found.value) * 1e-6))


_ALIASES = {
    "size": ("size", "sizeb", "sizebytes", "bytes", "msgsize", "messagesize"),
    "time": (
        "time",
        "timeus",
        "outofplacetime",
        "outofplacetimeus",
        "ooptime",
        "ooptimeus",
        "outplacetimeus",
    ),
    "algbw": ("algbw", "algbwgbs", "outofplacealgbw", "outofplacealgbwgbs", "oopalgbw", "outplacealgbwgbs"),
    "busbw": ("busbw", "busbwgbs", "outofplacebusbw", "outofplacebusbwgbs", "oopbusbw", "outplacebusbwgbs"),
    "name": ("name", "collective", "operation", "test"),
    "ranks": ("ranks", "nranks", "ngpus", "gpus", "worldsize"),
    "gpusPerRank": ("gpusperrank",),
    "inPlace": ("inplace",),
}


def _csv_sections(text: str, name: str) -> Iterator[Section]:
    lines = csv.reader(io.StringIO(text.lstrip()), skipinitialspace=True)
    heading = [re.sub(r"[^a-z]", "", cell.lower()) for cell in next(lines)]
    columns = {
        key: next((heading.index(alias) for alias in aliases if alias in heading), None)
        for key, aliases in _ALIASES.items()
    }
    if columns["algbw"] is None and not (
        columns["time"] is not None and heading[columns["time"]].endswith("us")
    ):
        raise ConversionError(
            f"{name}: line 1: neither a bandwidth nor the unit of the times, so rows prove nothing"
        )
    runs: dict[tuple[str, ...], Section] = {}
    for cells in lines:
        where = f"{name}: line {lines.line_num}"
        entry = {
            key: cells[column].strip()
            for key, column in columns.items()
            if column is not None and column < len(cells) and cells[column].strip()
        }
        if not entry or not cells[0].strip() or cells[0].startswith("#"):
            continue
        size = entry.get("size", "")
        key = tuple(entry.get(part, "") for part in ("name", "ranks", "gpusPerRank"))
        run = runs.setdefault(key, Section(program=entry.get("name"), stated=_stated(entry)))
        if not size.isdecimal() or not 0 < len(size) <= _SIZE_DIGITS:
            run.broken.append(where)
            continue
        rows = run.inside if _true(entry.get("inPlace")) else run.out
        _add_printed(run, rows, entry, int(size), where)
    yield from runs.values() or [Section()]


def _add_printed(section: Section, rows: list[Row], entry: Mapping[str, str], size: int, where: str) -> None:
    time, algbw, busbw = (printed(entry[key]) if key in entry else None for key in ("time", "algbw", "busbw"))
    row = Row(where, size, time, algbw, busbw) if time else None
    if row is None or not row.has_its_bandwidth():
        section.broken.append(where)
    elif size:
        rows.append(row)


def named_kind(section: Section) -> tuple[bool, CollectiveKind | None]:
    """Whether the program of a section is known, and its collective."""
    return kind_of(section.program) if section.program else (False, None)
