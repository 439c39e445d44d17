"""Workloads of many ranks in few traces: the manifest ``PREFIX.workload.json``, format ``chakra.workload/1``.

Ranks that do the same share one trace. For that the trace names groups *symbolically* (``pg_name`` is ``"tp"``, and
each rank means its own tensor-parallel group) and, with ``"peer_mode": "relative"``, peers *relatively*: ``comm_dst``
of a send and ``comm_src`` of a receive are signed offsets that are added to the rank's own number. (Such traces also
say so themselves: their global metadata has the attribute ``peer_mode`` = ``"relative"``.) The manifest says which
rank runs which trace and who is in which group.

The file is JSON::

    {"format": "chakra.workload/1",
     "npus": 16,
     "peer_mode": "relative",                                   or "absolute" (default)
     "traces": ["step.class0.et", "step.class1.et"],            relative to the manifest's folder
     "trace_of": [{"trace": 0, "ranks": {"start": 0, "digits": [[8, 1]]}},
                  {"trace": 1, "ranks": [8, 9, 10, 11, 12, 13, 14, 15]}],
     "groups": {"tp": {"members": [[4, 1]], "groups": [[4, 4]], "start": 0},
                "embed": {"ranks": [[0, 8], [1, 9]]}},
     "about": {...}}

A set of ranks is either an explicit list or ``start`` plus a sum of *digits*: ``[[count, stride], ...]``, the first
fastest, means start + i0*stride0 + i1*stride1 + ... for all 0 <= ik < countk. A group table is either explicit rows
(``ranks``) of equal length or two lists of digits: ``members`` inside a group and ``groups`` across. The order of a
row is the order of the group's logical ring. A rank is in at most one row of a name; a name need not cover all ranks.
``about`` is free text for people.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from chakra.arguments import checked, shown
from chakra.arrays import I32, I64, AnyArray, distinct, rows_by
from chakra.errors import WorkloadError
from chakra.io.files import read_json
from chakra.io.limits import MAX_GROUP_MEMBERS, MAX_NPUS
from chakra.io.rank_files import MANIFEST_SUFFIX, expect_one_workload
from chakra.io.readable import counted, verb

if TYPE_CHECKING:
    from chakra.et import Trace

FORMAT = "chakra.workload/1"
SUFFIX = MANIFEST_SUFFIX
#: key of the manifest, and name of the global metadata attribute of traces with relative peers
PEER_MODE = "peer_mode"
RELATIVE = "relative"
ABSOLUTE = "absolute"

#: ranks and strides beyond it cannot be meant, and their sums would not fit int64
_MAX_STRIDE = 1 << 32

Digits = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class WorkloadManifest:
    """Traces, and the ranks and groups that use them.

    Attributes
    ----------
    npus
        Number of ranks.
    traces
        Distinct traces.
    trace_of
        (npus,) int32: index into ``traces`` of every rank.
    groups
        Symbolic name -> (n_groups, size) int32: rank r's group ``name`` is the row that contains r. A name need not
        cover all ranks.
    peer_mode
        ``"relative"``: peers in the traces are offsets to the rank's own number; ``"absolute"``: rank numbers.
    about
        Free facts for people (model, command, totals).
    source
        Where it came from, for messages.
    """

    npus: int
    traces: tuple["Trace", ...]
    trace_of: I32
    groups: Mapping[str, I32]
    peer_mode: str = RELATIVE
    about: Mapping[str, object] = field(default_factory=dict)
    source: str = "<memory>"

    def __post_init__(self) -> None:
        """Refuse tables that do not fit together."""
        given: Any = self  # any user's values, whatever the annotations say
        if type(self.npus) is not int or not 1 <= self.npus <= MAX_NPUS:
            raise WorkloadError(f"npus must be a whole number from 1 to {MAX_NPUS}, not {shown(self.npus)}")
        if not isinstance(given.traces, list | tuple) or not len(self.traces):
            raise WorkloadError(f"{self.source}: traces must be a tuple of traces, not {shown(self.traces)}")
        if not isinstance(given.peer_mode, str) or self.peer_mode not in (RELATIVE, ABSOLUTE):
            raise WorkloadError(
                f"{self.source}: peer_mode must be relative or absolute, not {shown(self.peer_mode)}"
            )
        self._check("trace_of", self.trace_of, 1, len(self.traces))
        if len(self.trace_of) != self.npus:
            raise WorkloadError(
                f"{self.source}: {counted(len(self.trace_of), 'entry')} of trace_of for {counted(self.npus, 'NPU')}"
            )
        if not isinstance(given.groups, Mapping) or not isinstance(given.about, Mapping):
            raise WorkloadError(f"{self.source}: groups and about must be dicts")
        for name, table in self.groups.items():
            self._check(f"group {name!r}", table, 2, self.npus)

    def _check(self, what: str, table: object, ndim: int, most: int) -> None:
        if not isinstance(table, np.ndarray) or table.ndim != ndim or table.dtype.kind not in "iu":
            raise WorkloadError(f"{self.source}: {what} must be an array of integers, not {shown(table)}")
        if table.size and not 0 <= table.min() <= table.max() < most:
            raise WorkloadError(f"{self.source}: {what} must hold numbers from 0 to {most - 1}")

    @checked
    def rows(self, name: str) -> I32:
        """(npus,) row of every rank in the table of group ``name``; -1 for ranks in none."""
        table = self._table(name)
        out = np.full(self.npus, -1, dtype=np.int32)
        out[table] = np.arange(len(table), dtype=np.int32)[:, None]
        return out

    @checked
    def members(self, name: str, rank: int) -> I32:
        """Ranks of ``rank``'s group ``name`` in ring order.

        Raises
        ------
        WorkloadError
            No such group, or the rank is in none of its rows.
        """
        table = self._table(name)
        if not 0 <= rank < self.npus:
            raise WorkloadError(
                f"{self.source}: rank {rank} does not exist among {counted(self.npus, 'NPU')}"
            )
        row = int(self.rows(name)[rank])
        if row < 0:
            raise WorkloadError(f"{self.source}: rank {rank} is in no group {name!r}")
        found: I32 = table[row]
        return found

    def _table(self, name: str) -> I32:
        if name not in self.groups:
            known = ", ".join(sorted(self.groups)) or "none"
            raise WorkloadError(f"{self.source}: no group {name!r}; the manifest has: {known}")
        return self.groups[name]


def strided(values: AnyArray) -> tuple[int, Digits] | None:
    """Write a sequence as start plus digits (first fastest), or None when it has no such form.

    Examples
    --------
    >>> strided(np.array([3, 4, 11, 12]))
    (3, ((2, 1), (2, 8)))
    """
    rest = np.asarray(values, dtype=np.int64)
    start = int(rest[0])
    digits: list[tuple[int, int]] = []
    while len(rest) > 1:
        steps = np.diff(rest)
        breaks = np.flatnonzero(steps != steps[0])
        count = int(breaks[0]) + 1 if len(breaks) else len(rest)
        if len(rest) % count:
            return None
        block = rest.reshape(-1, count)
        if (np.diff(block, axis=1) != steps[0]).any():
            return None
        digits.append((count, int(steps[0])))
        rest = block[:, 0]
    return start, tuple(digits)


def expand(start: int, digits: Sequence[Sequence[int]]) -> I64:
    """All numbers of start plus digits, the first digit fastest."""
    out = np.array([start], dtype=np.int64)
    for count, stride in digits:
        out = (out[None, :] + (np.arange(count, dtype=np.int64) * stride)[:, None]).reshape(-1)
    return out


def _ranks_to_json(ranks: AnyArray) -> object:
    form = strided(ranks) if len(ranks) else None
    if form is None:
        return [int(rank) for rank in ranks]
    return {"start": form[0], "digits": [list(digit) for digit in form[1]]}


def _table_to_json(table: I32) -> dict[str, object]:
    row = strided(table[0])
    bases = strided(table[:, 0])
    regular = row is not None and bases is not None and (table - table[:, :1] == table[0] - table[0, 0]).all()
    if not regular or row is None or bases is None:
        return {"ranks": table.tolist()}
    return {
        "start": row[0],
        "members": [list(digit) for digit in row[1]],
        "groups": [list(digit) for digit in bases[1]],
    }


def manifest_to_dict(manifest: WorkloadManifest, trace_names: Sequence[str]) -> dict[str, Any]:
    """The JSON document; ``trace_names`` are the files of ``manifest.traces`` relative to the manifest's folder."""
    ranks_of = rows_by(manifest.trace_of.astype(np.int64))
    trace_of = [
        {"trace": index, "ranks": _ranks_to_json(ranks_of[index])} for index in range(len(manifest.traces))
    ]
    return {
        "format": FORMAT,
        "npus": manifest.npus,
        PEER_MODE: manifest.peer_mode,
        "traces": list(trace_names),
        "trace_of": trace_of,
        "groups": {name: _table_to_json(table) for name, table in manifest.groups.items()},
        "about": dict(manifest.about),
    }


def _count(digits: object, where: str) -> int:
    total = 1
    if not isinstance(digits, list):
        raise WorkloadError(f"{where}: digits must be a list of [count, stride] pairs")
    for digit in digits:
        if (
            not (isinstance(digit, list) and len(digit) == 2 and all(type(x) is int for x in digit))
            or digit[0] < 1
            or abs(digit[1]) > _MAX_STRIDE
        ):
            raise WorkloadError(
                f"{where}: {digit!r} is not a [count, stride] pair of integers with count >= 1 and stride within 2^32"
            )
        total *= digit[0]
    if total > MAX_NPUS:
        raise WorkloadError(
            f"{where}: describes {counted(total, 'rank')}, more than the {MAX_NPUS} supported"
        )
    return total


def _integer(value: object, where: str, most: int = _MAX_STRIDE) -> int:
    if type(value) is not int:
        raise WorkloadError(f"{where}: must be an integer, not {str(value)[:40]!r}")
    if abs(value) > most:
        raise WorkloadError(f"{where}: must lie between {-most} and {most}, not {str(value)[:40]}")
    return value


def _explicit(values: object, where: str) -> list[int]:
    if not isinstance(values, list):
        raise WorkloadError(f"{where}: must be a list of ranks")
    return [_integer(value, where) for value in values]


def _ranks_from_json(value: Any, where: str) -> I64:
    if isinstance(value, dict):
        _count(value.get("digits", []), where)
        return expand(_integer(value.get("start", 0), f"{where}: start"), value.get("digits", []))
    return np.array(_explicit(value, where), dtype=np.int64)


def _table_from_json(value: Any, npus: int, where: str) -> I32:
    if not isinstance(value, dict) or ("ranks" in value) == ("members" in value):
        raise WorkloadError(f"{where}: needs either 'ranks' or 'members' with 'groups'")
    if "ranks" in value:
        rows = value["ranks"] if isinstance(value["ranks"], list) else []
        lists = [_explicit(row, where) for row in rows]
        if not lists or len({len(row) for row in lists}) != 1 or not lists[0]:
            raise WorkloadError(f"{where}: 'ranks' must be rows of equal, non-zero length")
        table = np.array(lists, dtype=np.int64)
    else:
        if _count(value["members"], where) * _count(value.get("groups", []), where) > MAX_NPUS:
            raise WorkloadError(f"{where}: describes more than the {MAX_NPUS} ranks supported")
        inner = expand(0, value["members"])
        outer = expand(_integer(value.get("start", 0), f"{where}: start"), value.get("groups", []))
        table = outer[:, None] + inner[None, :]
    outside = table[(table < 0) | (table >= npus)]
    if len(outside):
        raise WorkloadError(f"{where}: rank {outside[0]} is outside 0..{npus - 1}")
    seen = np.zeros(npus, np.bool_)
    seen[table] = True
    if np.count_nonzero(seen) != table.size:
        raise WorkloadError(f"{where}: a rank appears twice; a rank is in at most one group of a name")
    return table.astype(np.int32)


def manifest_from_dict(
    document: Any, traces: Sequence["Trace"], source: str = "<memory>"
) -> WorkloadManifest:
    """Check a manifest document and join it with its traces, given in the document's order.

    Raises
    ------
    WorkloadError
        Anything that breaks the format, with the key and what would be right.
    """
    npus = check_header(document, source)
    trace_of = np.full(npus, -1, dtype=np.int32)
    entries = document.get("trace_of")
    if not isinstance(entries, list):
        raise WorkloadError(f"{source}: 'trace_of' must be a list of objects with 'trace' and 'ranks'")
    given = 0
    for number, entry in enumerate(entries):
        where = f"{source}: trace_of[{number}]"
        if not isinstance(entry, dict) or "trace" not in entry or "ranks" not in entry:
            raise WorkloadError(f"{where}: must be an object with 'trace' and 'ranks'")
        index = _integer(entry["trace"], f"{where}: trace")
        if not 0 <= index < len(traces):
            raise WorkloadError(f"{where}: trace {index} is not one of the {counted(len(traces), 'trace')}")
        ranks = _ranks_from_json(entry["ranks"], f"{where}: ranks")
        if len(ranks) and (ranks.min() < 0 or ranks.max() >= npus):
            raise WorkloadError(f"{where}: ranks outside 0..{npus - 1}")
        taken = (trace_of[ranks] >= 0).any()
        trace_of[ranks] = index
        given += len(ranks)
        # sorting is for short lists, counting for long ones
        few = len(ranks) < npus // 16
        twice = len(distinct(ranks)) < len(ranks) if few else np.count_nonzero(trace_of >= 0) < given
        if taken or twice:
            raise WorkloadError(f"{where}: a rank is given a trace twice")
    missing = np.flatnonzero(trace_of < 0)
    if len(missing):
        raise WorkloadError(
            f"{source}: {counted(len(missing), 'rank')} {verb(len(missing), 'has', 'have')} no trace, the first is "
            f"rank {missing[0]}"
        )
    groups = document.get("groups", {})
    if not isinstance(groups, dict):
        raise WorkloadError(f"{source}: 'groups' must be an object")
    tables: dict[str, I32] = {}
    left = MAX_GROUP_MEMBERS
    for name, value in groups.items():
        tables[name] = _table_from_json(value, npus, f"{source}: group {name!r}")
        left -= tables[name].size
        if left < 0:
            raise WorkloadError(
                f"{source}: groups: more than {MAX_GROUP_MEMBERS} members in all, at group {name!r}"
            )
    about = document.get("about", {})
    return WorkloadManifest(
        npus, tuple(traces), trace_of, tables, document.get(PEER_MODE, ABSOLUTE),
        about if isinstance(about, dict) else {}, source,
    )  # fmt: skip


def check_header(document: Any, source: str) -> int:
    """Number of ranks of a manifest document whose format, rank count, peer mode and trace list are in order."""
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise WorkloadError(f"{source}: not a workload manifest: 'format' must be {FORMAT!r}")
    npus = _integer(document.get("npus"), f"{source}: npus", 2**63)
    if not 1 <= npus <= MAX_NPUS:
        raise WorkloadError(f"{source}: npus must be 1..{MAX_NPUS}, not {npus}")
    mode = document.get(PEER_MODE, ABSOLUTE)
    if mode not in (RELATIVE, ABSOLUTE):
        raise WorkloadError(f"{source}: {PEER_MODE} must be {RELATIVE!r} or {ABSOLUTE!r}, not {mode!r}")
    names = document.get("traces")
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise WorkloadError(f"{source}: 'traces' must be a non-empty list of file names")
    return npus


def manifest_of(path: str) -> str | None:
    """The workload manifest that a name stands for, itself or as its prefix; None: it stands for none.

    Raises
    ------
    UsageError
        The name is the prefix of traces of ranks, too.
    """
    if path.endswith(SUFFIX):
        return path if os.path.isfile(path) else None
    expect_one_workload(path)
    return path + SUFFIX if os.path.isfile(path + SUFFIX) else None


def shared_traces(path: str) -> list[str]:
    """Files of the traces that ranks share, for a manifest or the prefix of one; empty if `path` is neither."""
    named = manifest_of(path)
    return [] if named is None else [trace.source for trace in read_manifest(named).traces]


@checked
def read_manifest(path: str | Path) -> WorkloadManifest:
    """Read ``PREFIX.workload.json`` and its traces.

    Parameters
    ----------
    path
        The manifest, ``PREFIX.workload.json``.

    Raises
    ------
    WorkloadError
        Not JSON, or breaks the format.
    TraceError
        A trace file that cannot be read.
    """
    from chakra.et import read_traces

    path = Path(path)
    document: Any = read_json(path, error=WorkloadError)
    check_header(document, str(path))
    traces = read_traces([path.parent / name for name in document["traces"]])
    return manifest_from_dict(document, traces, str(path))
