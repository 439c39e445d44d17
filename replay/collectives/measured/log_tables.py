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
from chakra.io.digits import is_whole, whole_number
from chakra.replay.collectives.measured.log_rows import Printed, Row, kind_of, printed
from chakra.replay.config.model import CollectiveKind

_TYPES = (
    "int8|uint8|int32|uint32|int64|uint64|half|float|double|bfloat16|fp8_e4m3|fp8_e5m2|f8e4m3|f8e5m2|bf16|fp16|fp32"
    "|char"
)
#: a row of a table, whatever stands before it: tags of mpirun, srun and torchrun, time stamps
_ROW = re.compile(rf"(?:^|[\s:>\]|])([0-9]+)\s+([0-9]+)\s+(?:{_TYPES})\b(.*)$")
#: a line of numbers behind a type that is no row: its size is negative, has a unit, or was lost
_LIKE_A_ROW = re.compile(rf"\s(?:{_TYPES})\s.*?[0-9]\.[0-9]+\s+[0-9]+\.[0-9]+\s+[0-9]+\.[0-9]")
_RANK = re.compile(r"\bRank\s+([0-9]+)(?:\s+Group\s+([0-9]+))?\s+\S")
_PROGRAM = re.compile(r"\b(\w+)_perf\b")
#: what a program prints behind its table
_ENDS = re.compile(r"\b(?:Out of bounds values|Avg bus bandwidth)\s*:|\btest concluded\b")
_BEGINS = re.compile(r"\bnThread\s+[0-9]+\s+nGpus\b|\bUsing devices\b")
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
    broken, inside_broken
        Places out of place and in place whose values contradict each other or are missing.
    wrong, inside_wrong
        Places where the program says that results of the collective were wrong.
    """

    program: str | None = None
    kind: CollectiveKind | None = None
    groups: dict[int, set[int]] = field(default_factory=dict)
    stated: tuple[int, ...] = ()
    out: list[Row] = field(default_factory=list)
    inside: list[Row] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    inside_broken: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    inside_wrong: list[str] = field(default_factory=list)

    def begun(self) -> bool:
        """Whether it has rows."""
        rows = self.out or self.inside or self.wrong or self.inside_wrong
        return bool(rows or self.broken or self.inside_broken)

    def places(self) -> list[str]:
        """Where its rows are, good ones first."""
        places = [row.where for row in (*self.out, *self.inside)]
        return places + self.wrong + self.inside_wrong + self.broken + self.inside_broken

    def add_broken(self, where: str) -> None:
        """Neither the values out of place nor those in place can be told."""
        self.broken.append(where)
        self.inside_broken.append(where)


def read_sections(text: str, name: str) -> list[Section]:
    """Sections of a file, by what it looks like."""
    start = text.lstrip()[:1]
    if start in ("{", "["):
        document = _json(text)
        if document is not None:
            return list(_json_sections(document, name))
        if start == "{":
            raise ConversionError(f"{name}: no measurements: begins as JSON, and is none; was it cut short?")
    heading = text.lstrip().partition("\n")[0].lower()
    if "," in heading and "size" in heading and "time" in heading:
        return list(_csv_sections(text, name))
    return list(_text_sections(text, name))


def _text_sections(text: str, name: str) -> Iterator[Section]:
    section, mentioned, ended = Section(), None, False
    for number, line in enumerate(text.splitlines(), start=1):
        row = _ROW.search(line)
        if row or _LIKE_A_ROW.search(line):
            if ended:
                # rows behind the end of a table are none of its program's
                yield section
                section, ended = Section(), False
            if not section.begun():
                # what is said between two tables is said of the second
                section.program = section.program or mentioned
            mentioned = None
            if row:
                _add_row(section, row, f"{name}: line {number}")
            else:
                section.add_broken(f"{name}: line {number}")
            continue
        ended = ended or bool(section.begun() and _ENDS.search(line))
        program = _PROGRAM.search(line)
        rank = _RANK.search(line)
        begins = _BEGINS.search(line) or rank or (program and "starting" in line)
        if begins and section.begun():
            yield section
            section, ended = Section(), False
        if program and "concluded" not in line:
            mentioned = program[1]
            if not section.begun():
                section.program = program[1]
        if rank:
            section.groups.setdefault(whole_number(rank[2] or "0"), set()).add(whole_number(rank[1]))
        if re.search(r"\bcputime\b", line) and "size" in line:
            raise ConversionError(f"{name}: line {number}: the table has CPU times, not times of collectives")
    yield section


def _add_row(section: Section, found: re.Match[str], where: str) -> None:
    if len(found[1]) > _SIZE_DIGITS:
        raise ConversionError(f"{where}: a size must be below 10^18 bytes, not {found[1][:40]}")
    size, words = whole_number(found[1]), found[3].split()
    if not size:
        return
    # an operation, then a root: either may be missing, so the values have to prove where they begin
    if words and _WORD.match(words[0]) and words[0] not in ("N/A", "nan"):
        words = words[1:]
    numbers = [printed(word) for word in words]
    first = _values(numbers, size, where, range(min(3, len(numbers))))
    if first is None:
        section.add_broken(where)
        return
    begin, row = first
    (section.wrong.append(where) if _wrong(words, begin) else section.out.append(row))
    second = _values(numbers, size, where, range(begin + 4, len(numbers)))
    if second is None:
        section.inside_broken.append(where)
    elif _wrong(words, second[0]):
        section.inside_wrong.append(where)
    else:
        section.inside.append(second[1])


def _wrong(words: list[str], begin: int) -> bool:
    """Whether wrong elements were counted behind values; old programs print an error there, which is no whole number."""
    return len(words) > begin + 3 and is_whole(words[begin + 3], 18) and whole_number(words[begin + 3]) > 0


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
    runs: dict[tuple[Any, ...], Section] = {}
    numbers = {id(entry): number for number, entry in enumerate(_maps(document), start=1)}
    for part in _documents(document):
        whole = Section(program=next(filter(None, map(_own_program, _maps(part))), None))
        for entry in _maps(part):
            _add_record(entry, f"{name}: record {numbers[id(entry)]}", whole, runs)
        if whole.begun():
            yield whole
    yield from runs.values() or [Section()]


def _documents(value: Any) -> Iterator[Any]:
    """Parts of a JSON value that are one program's: a list or map of several documents is taken apart."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        inner = [
            part for part in (one.values() if isinstance(one, dict) else one) if isinstance(part, dict | list)
        ]
        tables = [part for part in inner if any(map(_is_record, _maps(part))) and not _is_record(part)]
        apart = set(map(id, tables))
        rest = [part for part in inner if id(part) not in apart]
        if isinstance(one, dict) and _own_program(one):
            yield one
        elif len(tables) > 1:
            waiting.extend(reversed(inner))
        elif tables and not any(_own_program(entry) or _is_record(entry) for entry in _maps(rest)):
            waiting.extend(tables)
        else:
            yield one


def _own_program(entry: dict[str, Any]) -> str | None:
    """The program that a map names itself, as a text or in a list of texts."""
    for value in entry.values():
        for text in value if isinstance(value, list) else (value,):
            found = _PROGRAM.search(text) if isinstance(text, str) else None
            if found:
                return found[1]
    return None


def _is_record(entry: object) -> bool:
    """Whether a JSON value is a row of a table."""
    if not isinstance(entry, dict):
        return False
    values = (entry.get("out_of_place"), entry.get("in_place"))
    return "size" in entry and ("time" in entry or any(isinstance(value, dict) for value in values))


def _add_record(
    entry: dict[str, Any], where: str, whole: Section, runs: dict[tuple[Any, ...], Section]
) -> None:
    """A map of a JSON value: a rank of the list, a row with both kinds of values, or a row with one of them."""
    rank, group = entry.get("rank"), entry.get("group")
    if isinstance(rank, int):
        whole.groups.setdefault(group if isinstance(group, int) else 0, set()).add(rank)
    if "cpu_time" in entry:
        raise ConversionError(f"{where}: the table has CPU times, not times of collectives")
    if not _is_record(entry):
        return
    run = whole
    if "time" in entry:
        key = tuple(str(entry.get(part)) for part in ("name", "ranks", "gpusPerRank"))
        run = runs.setdefault(
            key, Section(program=entry.get("name") and str(entry["name"]), stated=_stated(entry))
        )
    size = _size(entry["size"])
    if size is None:
        run.add_broken(where)
    elif size and "time" in entry:
        _add_values(run, _true(entry.get("inPlace")), entry, size, f"{where} ({size} bytes)")
    elif size:
        for inside, values in enumerate((entry.get("out_of_place"), entry.get("in_place"))):
            given = values if isinstance(values, Mapping) else {}
            _add_values(whole, bool(inside), given, size, f"{where} ({size} bytes)")


def _size(value: object) -> int | None:
    """A size of a record or cell, bytes; None where it is none."""
    text = str(int(value) if isinstance(value, float) and value.is_integer() else value).strip()
    return whole_number(text) if is_whole(text, _SIZE_DIGITS) else None


def _true(value: object) -> bool:
    return str(value).strip().lower() in ("1", "true", "yes")


#: no job is larger
_MOST_RANKS = 1 << 31


def _stated(entry: Mapping[str, Any]) -> tuple[int, ...]:
    """Numbers of ranks that a record may mean: processes, or processes times the devices of each."""
    ranks, devices = _size(entry.get("ranks") or 0), _size(entry.get("gpusPerRank") or 1)
    if ranks is None or devices is None:
        return ()
    return tuple(dict.fromkeys(n for n in (ranks, ranks * devices) if 1 <= n <= _MOST_RANKS))


def _add_values(
    section: Section, inside: bool, entry: Mapping[str, object], size: int, where: str, *, in_us: bool = False
) -> None:
    """A row of named values. `in_us` says that its time's unit is stated, so that it needs no bandwidth for a proof."""
    plain = {re.sub(r"[^a-z]", "", key.lower()): value for key, value in entry.items()}
    cells = [plain.get(key) for key in ("time", "algbw", "busbw")]
    time, algbw, busbw = numbers = [_number(cell) for cell in cells]
    unread = any(not number and not _empty(cell) for number, cell in zip(numbers, cells, strict=True))
    row = Row(where, size, time, algbw, busbw) if time and (in_us or algbw or busbw) else None
    counted = next((plain[key] for key in ("wrong", "nwrong") if key in plain), None)
    if unread or row is None or not row.has_its_bandwidth():
        (section.inside_broken if inside else section.broken).append(where)
    elif is_whole(str(counted).strip(), 18) and whole_number(str(counted)) > 0:
        (section.inside_wrong if inside else section.wrong).append(where)
    else:
        (section.inside if inside else section.out).append(row)


def _empty(value: object) -> bool:
    return value is None or str(value).strip().lower() in ("", "-", "n/a")


def _number(value: object) -> Printed | None:
    if isinstance(value, str):
        return printed(value.strip())
    found = None if isinstance(value, bool) else printed(str(value))
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
    "wrong": ("wrong", "nwrong", "outofplacewrong", "oopwrong"),
}


def _csv_sections(text: str, name: str) -> Iterator[Section]:
    lines = csv.reader(io.StringIO(text.lstrip()), skipinitialspace=True)
    heading = [re.sub(r"[^a-z]", "", cell.lower()) for cell in next(lines)]
    columns = {
        key: next((heading.index(alias) for alias in aliases if alias in heading), None)
        for key, aliases in _ALIASES.items()
    }
    in_us = columns["time"] is not None and heading[columns["time"]].endswith("us")
    if columns["algbw"] is None and columns["busbw"] is None and not in_us:
        raise ConversionError(
            f"{name}: line 1: neither a bandwidth nor the unit of the times, so rows prove nothing"
        )
    runs: dict[tuple[str, ...], Section] = {}
    run = None
    for cells in lines:
        where = f"{name}: line {lines.line_num}"
        entry = {
            key: cells[column].strip()
            for key, column in columns.items()
            if column is not None and column < len(cells) and cells[column].strip()
        }
        if not entry or cells[0].startswith("#"):
            continue
        key = tuple(entry.get(part, "") for part in ("name", "ranks", "gpusPerRank"))
        nameless = columns["name"] is not None and "name" not in entry
        if run is None or not nameless:
            run = runs.setdefault(key, Section(program=entry.get("name"), stated=_stated(entry)))
        size = _size(entry.get("size", ""))
        if size is None or nameless:
            run.add_broken(where)
        elif size:
            _add_values(run, _true(entry.get("inPlace")), entry, size, where, in_us=in_us)
    yield from runs.values() or [Section()]


def named_kind(section: Section) -> tuple[bool, CollectiveKind | None]:
    """Whether the program of a section is known, and its collective."""
    return kind_of(section.program) if section.program else (False, None)
