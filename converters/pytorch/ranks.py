"""A whole job: the files of all ranks in a folder, linked in parallel, with groups and collectives
matched.
"""

import os
import pickle
import re
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from chakra.converters.pytorch.comm import Groups
from chakra.converters.pytorch.graph import COLL, SEND
from chakra.converters.pytorch.groups import GroupTable, write_groups
from chakra.converters.pytorch.job import Inputs, Outcome, Settings, enforce, read_and_link, write
from chakra.converters.pytorch.jsonarray import Source
from chakra.converters.pytorch.kinds import HEAD_BYTES, FileKind, describe_bytes, read_head
from chakra.converters.pytorch.link import Linked
from chakra.converters.pytorch.summary import summarize
from chakra.errors import ConversionError, ThresholdError, UsageError

_NUMBER = re.compile(r"rank[_\-.]?(\d+)", re.IGNORECASE)
_WORDS = re.compile(
    r"rank[_\-.]?\d+|(?<![a-z0-9])(et|kineto|host|device|trace|traces|execution|pt|json|gz|chakra|pytorch|linked)(?![a-z0-9])",
    re.IGNORECASE,
)


@dataclass(slots=True)
class Found:
    """A trace file in a folder."""

    path: Path
    kind: FileKind
    rank: int | None
    job: str
    pid: str


@dataclass(slots=True)
class RankPart:
    """What a worker tells about its rank after linking; the linked trace itself lies in ``parked``."""

    rank: int
    groups: Groups
    used_groups: list[str]
    collectives: list[tuple[str, int, int, int]]
    """(group, comm_type or -1 send / -2 recv, bytes, duration in ns) in time order."""
    peers: list[tuple[str, int, int, int]]
    """(group, source, target, bytes) of point-to-point transfers in time order."""
    summary: dict[str, Any]
    parked: str
    source: str


@dataclass(slots=True)
class JobResult:
    """A converted job."""

    outcomes: list[Outcome]
    groups: dict[str, list[int]]
    groups_path: str
    mismatches: list[str] = field(default_factory=list)


# -- finding the files
# -------------------------------------------------------------------------------------------


def find_inputs(folder: Path, job: str | None = None) -> list[Inputs]:
    """Pair the traces of a folder by content, job and rank.

    The rank is the recorded one (``distributedInfo``), else the number after ``rank`` in the name, else that
    of the trace of the same process (``pid``).

    Raises
    ------
    ConversionError
        No trace, several jobs (they are listed: choose with ``--job``), or ranks without a partner.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder}: not a folder")
    found = [f for p in sorted(folder.iterdir()) if p.is_file() and (f := _look(p)) is not None]
    if not found:
        raise ConversionError(f"{folder}: no host, device or linked trace in this folder")
    if job is not None:
        chosen = [f for f in found if f.job == job] or [f for f in found if f.path.name.startswith(job)]
        if not chosen:
            raise ConversionError(f"{folder}: no trace of job {job!r}; jobs there: {_jobs(found)}")
        found = chosen
    hosts = [f for f in found if f.kind is FileKind.HOST]
    devices = [f for f in found if f.kind is FileKind.DEVICE]
    linked = [f for f in found if f.kind is FileKind.LINKED]
    if linked and not (hosts or devices):
        return _single(folder, linked, lambda f, r: Inputs(linked=f.path, rank=r))
    if not devices:
        raise ConversionError(
            f"{folder}: host traces only ({len(hosts)}); the device (Kineto) traces are missing"
        )
    _ranks_by_pid(hosts, devices)
    if not hosts:
        return _single(folder, devices, lambda f, r: Inputs(device=f.path, rank=r))
    by_rank_host, by_rank_device = _unique(folder, hosts, found), _unique(folder, devices, found)
    lonely = sorted(set(by_rank_host) ^ set(by_rank_device))
    if lonely:
        where = "device" if lonely[0] in by_rank_host else "host"
        raise ConversionError(
            f"{folder}: rank {lonely[0]} has no {where} trace (ranks without a partner: {lonely})"
        )
    return [
        Inputs(host=by_rank_host[r].path, device=by_rank_device[r].path, rank=r) for r in sorted(by_rank_host)
    ]


def _look(path: Path) -> Found | None:
    if path.name.startswith(".") or path.suffix in (".et", ".txt", ".md", ".py"):
        return None
    source = Source(path)
    try:
        head = read_head(source, HEAD_BYTES)
    finally:
        source.close()
    kind = describe_bytes(head)
    if kind not in (FileKind.HOST, FileKind.DEVICE, FileKind.LINKED):
        return None
    rank = None
    info = re.search(rb'"distributedInfo"\s*:\s*\{[^{}]*?"rank"\s*:\s*(\d+)', head)
    if info and kind is FileKind.DEVICE:
        rank = int(info.group(1))
    named = _NUMBER.search(path.name)
    if rank is None and named:
        rank = int(named.group(1))
    pid = re.search(rb'"pid"\s*:\s*(\d+)', head)
    words = _WORDS.sub(" ", path.name)
    return Found(path, kind, rank, ".".join(re.findall(r"[A-Za-z0-9_\-]*[A-Za-z0-9][A-Za-z0-9_\-]*", words)).strip("_-"),
                 pid.group(1).decode() if pid else "")  # fmt: skip


def _jobs(found: list[Found]) -> str:
    return ", ".join(sorted({f.job or "(no name)" for f in found}))


def _ranks_by_pid(hosts: list[Found], devices: list[Found]) -> None:
    """Give traces without a rank that of the trace of the same process."""
    for one, other in ((hosts, devices), (devices, hosts)):
        ranks = {f.pid: f.rank for f in other if f.pid and f.rank is not None}
        for f in one:
            if f.rank is None:
                f.rank = ranks.get(f.pid)


def _unique(folder: Path, found: list[Found], everything: list[Found]) -> dict[int, Found]:
    out: dict[int, Found] = {}
    if len(found) == 1 and found[0].rank is None:
        found[0].rank = 0
    for f in found:
        if f.rank is None:
            raise ConversionError(
                f"{f.path}: its rank is neither recorded nor in its name (the number after 'rank')"
            )
        if f.rank in out:
            jobs = _jobs(everything)
            raise ConversionError(
                f"{folder}: {out[f.rank].path.name} and {f.path.name} are both rank {f.rank}; "
                f"choose one job with --job (jobs there: {jobs})"
            )
        out[f.rank] = f
    return out


def _single(folder: Path, found: list[Found], make: Callable[[Found, int], Inputs]) -> list[Inputs]:
    by_rank = _unique(folder, found, found)
    return [make(by_rank[r], r) for r in sorted(by_rank)]


# -- converting
# --------------------------------------------------------------------------------------------------


def convert_job(
    inputs: list[Inputs],
    prefix: Path,
    settings: Settings,
    *,
    check: bool = False,
    shortest: bool = False,
    jobs: int = 0,
    progress: Callable[[str], None] | None = None,
    report: Callable[[JobResult], None] | None = None,
) -> JobResult:
    """Convert all ranks: ``PREFIX.<rank>.et`` and ``PREFIX.comm_groups.json``.

    Parameters
    ----------
    shortest
        Give every collective the shortest duration that any member recorded: the longer ones hold waiting
        for late ranks.
    jobs
        Worker processes; 0 means as many as there are CPUs or ranks.
    progress
        Called with a line when a rank has been linked and when it has been written.
    report
        Called with the result before it is judged.

    Raises
    ------
    ConversionError
        A rank cannot be converted, or ranks disagree about groups.
    ThresholdError
        ``strict`` and collectives do not match across ranks, or a share is below the settings'.
    """
    told = progress or (lambda _: None)
    with tempfile.TemporaryDirectory(prefix="chakra-link-") as folder, _pool(len(inputs), jobs) as pool:
        parts: list[RankPart] = []
        for part in _spread(pool, _link_rank, [(item, settings, folder) for item in inputs]):
            parts.append(part)
            told(f"linked rank {part.rank}")
        parts.sort(key=lambda p: p.rank)
        used = [name for part in parts for name in part.used_groups]
        table = GroupTable([(part.source, part.groups) for part in parts], used)
        mismatches = cross_check(parts, table)
        durations = _shortest(parts, table) if shortest and not mismatches else {}
        tasks = [
            (part.parked, part.rank, table, prefix, settings, part.summary, check, durations.get(part.rank))
            for part in parts
        ]
        outcomes: list[Outcome] = []
        for outcome in _spread(pool, _write_rank, tasks):
            outcomes.append(outcome)
            told(f"wrote {outcome.output}")
    outcomes.sort(key=lambda o: o.rank)
    content = table.file_content(used)
    path = prefix.with_name(prefix.name + ".comm_groups.json")
    write_groups(path, content)
    result = JobResult(outcomes, content, str(path), mismatches)
    if report is not None:
        report(result)
    if settings.strict and mismatches:
        raise ThresholdError(
            f"--strict: {mismatches[0]}" + (f" (and {len(mismatches) - 1} more)" * (len(mismatches) > 1))
        )
    for outcome in outcomes:
        enforce(outcome.summary, settings)
    return result


@contextmanager
def _pool(ranks: int, jobs: int) -> Iterator[Executor | None]:
    workers = min(ranks, jobs or os.cpu_count() or 1)
    if workers <= 1:
        yield None
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield pool


def _spread(
    pool: Executor | None, function: Callable[..., Any], tasks: list[tuple[Any, ...]]
) -> Iterator[Any]:
    if pool is None:
        for task in tasks:
            yield function(*task)
        return
    for future in [pool.submit(function, *task) for task in tasks]:
        yield future.result()


def _link_rank(inputs: Inputs, settings: Settings, folder: str) -> RankPart:
    linked, rank = read_and_link(inputs, settings)
    parked = os.path.join(folder, f"{rank}.pickle")
    with open(parked, "wb") as file:
        pickle.dump(linked, file, protocol=5)
    collectives, peers = [], []
    for i in sorted(linked.graph.comm):
        comm = linked.graph.comm[i]
        if comm.kind == COLL:
            collectives.append((comm.group, comm.comm_type, comm.size, int(linked.graph.duration[i])))
        else:
            ends = (rank, comm.peer) if comm.kind == SEND else (comm.peer, rank)
            peers.append((comm.group, *ends, comm.size))
    return RankPart(
        rank, linked.groups, [c.group for c in linked.graph.comm.values()], collectives, peers,
        summarize(linked, rank), parked, linked.device.source,
    )  # fmt: skip


def _write_rank(
    parked: str,
    rank: int,
    table: GroupTable,
    prefix: Path,
    settings: Settings,
    summary: dict[str, Any],
    check: bool,
    durations: list[int] | None,
) -> Outcome:
    with open(parked, "rb") as file:
        linked: Linked = pickle.load(file)
    os.unlink(parked)
    if durations is not None:
        rows = [i for i in sorted(linked.graph.comm) if linked.graph.comm[i].kind == COLL]
        linked.graph.duration[rows] = durations
    output = prefix.with_name(f"{prefix.name}.{rank}.et")
    return write(linked, rank, table, output, settings, summary, check=check, exact_time=durations is None)


# -- across ranks
# ------------------------------------------------------------------------------------------------


def cross_check(parts: list[RankPart], table: GroupTable) -> list[str]:
    """Same number, kind, size and order of collectives of each group on all its members; every send
    received.
    """
    ranks = {part.rank for part in parts}
    out: list[str] = []
    sequences: dict[str, dict[int, list[tuple[int, int]]]] = defaultdict(dict)
    for part in parts:
        for group, kind, size, _ in part.collectives:
            sequences[table.id_of(group)].setdefault(part.rank, []).append((kind, size))
    members_of = {table.id_of(name): members for name, members in table.members.items()}
    for group, by_rank in sorted(sequences.items()):
        members = [r for r in (members_of.get(group) or sorted(ranks)) if r in ranks]
        out += _compare(group, members, by_rank)
    sent: dict[tuple[str, int, int], list[int]] = defaultdict(list)
    received: dict[tuple[str, int, int], list[int]] = defaultdict(list)
    for part in parts:
        for group, source, target, size in part.peers:
            (sent if source == part.rank else received)[table.id_of(group), source, target].append(size)
    for key in sorted(set(sent) | set(received)):
        group, source, target = key
        if source in ranks and target in ranks and sent.get(key, []) != received.get(key, []):
            out.append(
                f"group {group}: rank {source} sends {len(sent.get(key, []))} messages to rank {target}, which receives "
                f"{len(received.get(key, []))}, or their sizes differ"
            )
    return out


def _compare(group: str, members: list[int], by_rank: dict[int, list[tuple[int, int]]]) -> list[str]:
    """First difference of each member from the first one; root-dependent sizes (scatter, gather) may
    differ.
    """
    out: list[str] = []
    if not members:
        return out
    first = by_rank.get(members[0], [])
    for rank in members[1:]:
        own = by_rank.get(rank, [])
        if len(own) != len(first):
            out.append(
                f"group {group}: {len(first)} collectives on rank {members[0]}, {len(own)} on rank {rank}"
            )
            continue
        for i, (a, b) in enumerate(zip(first, own, strict=True)):
            uneven = a[0] == b[0] and a[0] in (3, 4, 6, 2, 5)
            if a != b and not uneven:
                out.append(
                    f"group {group}: collective {i} is kind {a[0]} of {a[1]} bytes on rank {members[0]}, "
                    f"kind {b[0]} of {b[1]} bytes on rank {rank}"
                )
                break
    return out


def _shortest(parts: list[RankPart], table: GroupTable) -> dict[int, list[int]]:
    """Per rank, durations of its collectives: the shortest that any member recorded for the same one."""
    best: dict[tuple[str, int], int] = {}
    keys: dict[int, list[tuple[str, int]]] = {}
    for part in parts:
        ordinal: dict[str, int] = defaultdict(int)
        own = []
        for group, _, _, duration in part.collectives:
            number = table.id_of(group)
            key = (number, ordinal[number])
            ordinal[number] += 1
            own.append(key)
            best[key] = min(best.get(key, duration), duration)
        keys[part.rank] = own
    return {rank: [best[key] for key in own] for rank, own in keys.items()}
