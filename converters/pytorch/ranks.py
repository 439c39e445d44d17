"""A whole job: the files of all ranks, linked in parallel, with groups and collectives matched."""

import os
import pickle
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar, TypeVarTuple

from chakra.arguments import checked
from chakra.converters.pytorch.all_ranks.agreement import (
    RankPart,
    cross_check,
    fill_members,
    lacking,
    put_shares_together,
    rank_part,
    shortest_durations,
)
from chakra.converters.pytorch.all_ranks.clocks import Clocks, compare_clocks
from chakra.converters.pytorch.all_ranks.device_turns import Occupied, add_turns, occupied, sharers
from chakra.converters.pytorch.all_ranks.job_replay import rank_graph, replay_job, step_error
from chakra.converters.pytorch.comm.group_numbers import GroupNumbers, write_groups
from chakra.converters.pytorch.deprofile import Deprofiled, deprofile, parse_cost, unprofiled_step_ns
from chakra.converters.pytorch.job import Inputs, Outcome, Settings, enforce, read_and_link, take_off, write
from chakra.converters.pytorch.link import Linked
from chakra.converters.pytorch.read.split_sizes import Shares
from chakra.converters.pytorch.write.link_summary import summarize
from chakra.errors import ConversionError, ThresholdError
from chakra.et import NodeType
from chakra.io.files import expect_apart, expect_prefix, expect_writable, made_folder
from chakra.io.rank_files import left_behind
from chakra.workers import workers

_Given = TypeVarTuple("_Given")
_Made = TypeVar("_Made")


@dataclass(slots=True)
class JobResult:
    """A converted job.

    Attributes
    ----------
    outcomes
        One a rank, by rank.
    groups
        Communicator groups: name -> ranks.
    groups_path
        File that holds them; empty if there are none.
    mismatches
        Collectives that differ between ranks, a line each.
    clock_notes
        Clocks of ranks that differ, and how they were aligned, a line each.
    together_error
        Relative error of the slowest rank in a replay of all ranks whose collectives take their recorded times; None
        unless it was asked for.
    deprofiled
        What taking the cost of recording off gave, where it was asked for.
    missing_ranks
        Ranks of the recorded job that no input is of.
    warnings
        What else the ranks together leave open, a line each: ranks without a recording, groups without members.
    """

    outcomes: list[Outcome]
    groups: dict[str, list[int]]
    groups_path: str
    mismatches: list[str] = field(default_factory=list)
    clock_notes: list[str] = field(default_factory=list)
    together_error: float | None = None
    deprofiled: Deprofiled | None = None
    missing_ranks: list[int] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


@checked
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
    inputs
        Files of each rank.
    prefix
        Where the traces go: ``PREFIX.<rank>.et``.
    settings
        How to read, link and write.
    check
        Replay every rank with recorded durations and compare with the measured span.
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
        ``strict`` and collectives do not match across ranks, ranks are missing or the members of a group are unknown;
        or a share is below the settings'.
    UsageError
        A file cannot be written, or would overwrite an input: nothing is written then.
    """
    told = progress or (lambda _: None)
    groups_path = _checked_targets(inputs, prefix)
    whole = check or bool(settings.deprofile)
    with (
        made_folder(prefix.parent, prefix),
        tempfile.TemporaryDirectory(prefix="chakra-link-") as folder,
        _pool(len(inputs), jobs) as pool,
    ):
        parts: list[RankPart] = []
        several = len(inputs) > 1
        for part in _spread(pool, _link_rank, [(item, settings, folder, whole, several) for item in inputs]):
            parts.append(part)
            told(f"linked rank {part.rank}")
        parts.sort(key=lambda p: p.rank)
        used = [name for part in parts for name in part.used_groups]
        warnings = fill_members(parts)
        table = GroupNumbers([(part.source, part.groups) for part in parts], used)
        missing, said = lacking(parts, table)
        put_shares_together(parts, table)
        mismatches = cross_check(parts, table)
        clocks = compare_clocks(parts, table)
        durations = shortest_durations(parts, table) if shortest and not mismatches else {}
        _take_turns(pool, parts, clocks, settings, whole)
        together, deprofiled = _together(parts, clocks.ahead_ns, inputs, settings) if whole else (None, None)
        tasks = [
            (
                part.parked,
                part.rank,
                table.only([*part.groups.ranks, *part.used_groups]),
                prefix,
                settings,
                part.summary,
                check,
                durations.get(part.rank),
                part.shares,
                clocks.ahead_ns.get(part.rank, 0),
                deprofiled.operator_us if deprofiled is not None else 0.0,
            )
            for part in parts
        ]
        outcomes: list[Outcome] = []
        for outcome in _spread(pool, _write_rank, tasks):
            outcomes.append(outcome)
            told(f"wrote {outcome.output}")
    outcomes.sort(key=lambda o: o.rank)
    content = table.file_content(used)
    write_groups(groups_path, content)
    if missing:
        warnings.append(said)
    if old := left_behind(prefix, [outcome.output for outcome in outcomes]):
        warnings.append(old)
    if shortest and mismatches:
        warnings.append("--ranks shortest is left out: collectives differ between the ranks")
    result = JobResult(
        outcomes, content, str(groups_path), mismatches, clocks.notes, together, deprofiled, missing, warnings
    )
    if report is not None:
        report(result)
    found = [*mismatches, *warnings]
    if settings.strict and found:
        raise ThresholdError(f"--strict: {found[0]}" + (f" (and {len(found) - 1} more)" * (len(found) > 1)))
    for outcome in outcomes:
        enforce(outcome.summary, settings)
    return result


def rank_file(prefix: Path, rank: int) -> Path:
    """Name of a rank's trace."""
    return prefix.with_name(f"{prefix.name}.{rank}.et")


def _checked_targets(inputs: list[Inputs], prefix: Path) -> Path:
    """Path of the group file, once it is known that it and the ranks' traces can be written."""
    expect_prefix(prefix)
    groups = prefix.with_name(prefix.name + ".comm_groups.json")
    targets = [groups, *(rank_file(prefix, item.rank) for item in inputs if item.rank is not None)]
    given = [path for item in inputs for path in (item.host, item.device, item.linked) if path is not None]
    expect_writable(targets)
    expect_apart(targets, given)
    return groups


def _take_turns(
    pool: Executor | None, parts: list[RankPart], clocks: Clocks, settings: Settings, whole: bool
) -> None:
    """Ranks that share an accelerator learn from each other's recordings when they had to wait for their turn."""
    if settings.link.deps != "order" or settings.link.gaps == "drop" or settings.link.gpu_only:
        return  # there the order or the time of streams is not the recorded one, or nobody waits
    # clocks that differ are those of several hosts, which share nothing
    alike = [
        part.occupied
        for part in parts
        if part.occupied is not None
        and not clocks.ahead_ns.get(part.rank, 0)
        and part.rank not in clocks.unfit
    ]
    shared = sharers(alike)
    tasks = [(part, shared[part.rank], whole) for part in parts if part.rank in shared]
    by_rank = {part.rank: place for place, part in enumerate(parts)}
    for part in _spread(pool, _turns_rank, tasks):
        parts[by_rank[part.rank]] = part


def _together(
    parts: list[RankPart], ahead_ns: dict[int, int], inputs: list[Inputs], settings: Settings
) -> tuple[float | None, Deprofiled | None]:
    """Error of a replay of all ranks together (None where their collectives do not match), and the job without the cost
    of its recording, if that is asked for.
    """
    graphs = [part.graph for part in parts if part.graph is not None]
    for graph in graphs:
        graph.shift(ahead_ns.get(graph.rank, 0))
    if not settings.deprofile:
        try:
            return step_error(graphs, replay_job(graphs)), None
        except ConversionError:
            return None, None
    error = step_error(graphs, replay_job(graphs))
    unprofiled = max(unprofiled_step_ns(item.device) for item in inputs)
    return error, deprofile(graphs, unprofiled, parse_cost(settings.deprofile))


@contextmanager
def _pool(ranks: int, jobs: int) -> Iterator[Executor | None]:
    count = min(ranks, jobs or os.cpu_count() or 1)
    if count <= 1:
        yield None
        return
    with workers(count) as pool:
        yield pool


def _spread(
    pool: Executor | None, function: Callable[[*_Given], _Made], tasks: list[tuple[*_Given]]
) -> Iterator[_Made]:
    if pool is None:
        for task in tasks:
            yield function(*task)
        return
    for future in [pool.submit(function, *task) for task in tasks]:
        yield future.result()


def _link_rank(inputs: Inputs, settings: Settings, folder: str, whole: bool, several: bool) -> RankPart:
    linked, rank = read_and_link(inputs, settings)
    parked = os.path.join(folder, f"{rank}.pickle")
    with open(parked, "wb") as file:
        pickle.dump(linked, file, protocol=5)
    part = rank_part(linked, rank, parked)
    part.graph = rank_graph(linked, rank) if whole else None
    # without a clock nobody knows what ran at the same time
    part.occupied = occupied(linked, rank) if several and linked.device.first_ns else None
    return part


def _turns_rank(part: RankPart, others: list[Occupied], whole: bool) -> RankPart:
    with open(part.parked, "rb") as file:
        linked: Linked = pickle.load(file)
    if not add_turns(linked, others):
        return part
    with open(part.parked, "wb") as file:
        pickle.dump(linked, file, protocol=5)
    part.summary = summarize(linked, part.rank)
    part.graph = rank_graph(linked, part.rank) if whole else None
    return part


def _write_rank(
    parked: str,
    rank: int,
    table: GroupNumbers,
    prefix: Path,
    settings: Settings,
    summary: dict[str, object],
    check: bool,
    durations: list[int] | None,
    shares: list[Shares],
    ahead_ns: int,
    operator_us: float,
) -> Outcome:
    with open(parked, "rb") as file:
        linked: Linked = pickle.load(file)
    os.unlink(parked)
    linked.device.first_ns -= ahead_ns
    rows = [i for i in sorted(linked.graph.comm) if linked.graph.comm[i].kind == NodeType.COMM_COLL]
    for i, share in zip(rows, shares, strict=True):
        linked.graph.comm[i].shares = share
    if durations is not None:
        linked.graph.duration[rows] = durations
    if operator_us:
        take_off(linked, operator_us)
    output = rank_file(prefix, rank)
    return write(linked, rank, table, output, settings, summary, check=check, exact_time=durations is None)
