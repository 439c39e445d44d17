"""Rescaling a whole workload: reading it, choosing what grows, and putting traces, ranks and groups together."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

import numpy as np

from chakra.arguments import checked
from chakra.arrays import I32, I64, distinct
from chakra.errors import UsageError, WorkloadError
from chakra.et import ABSENT, CommType, NodeType, Trace, read_traces
from chakra.et.manifest import RELATIVE, WorkloadManifest, manifest_of, read_manifest
from chakra.io.rank_files import meant_prefix, missing_ranks, ranks_found
from chakra.io.readable import counted
from chakra.replay.config import load_groups
from chakra.replay.workload.recorded import recorded_ranks
from chakra.rescale.edit import edited
from chakra.rescale.layout import Growth, find_growth, grown_tables, grows, new_rows
from chakra.rescale.sizes import OPTIMIZER, Changes, Role, SizeRules, size_edits

_GROUPS_SUFFIX = ".comm_groups.json"
#: kinds of collectives that gradients and sharded weights travel by
_OF_WEIGHTS = (
    CommType.ALL_REDUCE, CommType.REDUCE_SCATTER, CommType.REDUCE_SCATTER_BLOCK, CommType.ALL_GATHER,
)  # fmt: skip


#: axes within a replica, by which the generator and frameworks name groups
_OF_A_REPLICA = frozenset({"tp", "cp", "pp", "ep"})


class Along(StrEnum):
    """What there is more of."""

    #: replicas of the model: data parallelism, ZeRO, FSDP
    DATA = "data"
    #: replicas of whole pipelines; also of jobs whose ranks exchange no gradients
    PIPELINE = "pipeline"
    #: ranks over which the experts of a layer are spread
    EXPERT = "expert"


@dataclass(frozen=True, slots=True)
class _Job:
    """A workload as read."""

    manifest: WorkloadManifest

    @property
    def npus(self) -> int:
        return self.manifest.npus

    def hops(self) -> list[I64]:
        """Distinct peers of each trace, offsets or rank numbers as the manifest says."""
        out = []
        for trace in self.manifest.traces:
            peers = np.concatenate([_peers(trace, "comm_dst"), _peers(trace, "comm_src")])
            out.append(distinct(peers))
        return out


def _peers(trace: Trace, name: str) -> I64:
    kind = NodeType.COMM_SEND if name == "comm_dst" else NodeType.COMM_RECV
    column: I64 = getattr(trace, name)[trace.types == kind]
    given: I64 = column[column != ABSENT]
    return given


@checked
def read_workload(
    prefix: str | os.PathLike[str], groups: str | os.PathLike[str] | None = None
) -> WorkloadManifest:
    """Read a manifest, or ``PREFIX.<rank>.et`` of all ranks with their groups, as one workload.

    Parameters
    ----------
    prefix
        ``PREFIX.workload.json``, its prefix, or the prefix of plain traces.
    groups
        Groups file of plain traces; default: ``PREFIX.comm_groups.json`` where it is.

    Raises
    ------
    WorkloadError
        No traces, or ranks that have none, of a recorded job also.
    UsageError
        A groups file for a manifest, which holds its groups.
    """
    name = os.fspath(prefix)
    manifest = manifest_of(name)
    if manifest is not None:
        if groups is not None:
            raise UsageError(
                f"{os.fspath(groups)}: a groups file goes with plain traces; {manifest} holds its own groups"
            )
        return read_manifest(manifest)
    found = ranks_found(name)
    paths = list(found.values())
    if not paths:
        raise WorkloadError(f"{name}: neither a workload manifest nor a prefix of traces{meant_prefix(name)}")
    traces = read_traces(paths)
    count, missing = missing_ranks(found, max(recorded_ranks(traces), max(found) + 1))
    if count:
        raise WorkloadError(
            f"{name}.<rank>.et: no trace of {count} of the job's {counted(count + len(paths), 'rank')}: {missing}; "
            "more ranks are "
            "made from all of a job"
        )
    beside = groups if groups is not None else name + _GROUPS_SUFFIX
    given = groups is not None or os.path.isfile(beside)
    tables = load_groups(os.fspath(beside), npus=len(paths)) if given else {}
    distinct = list(dict.fromkeys(map(id, traces)))
    place = {key: k for k, key in enumerate(distinct)}
    by_id = dict(zip(map(id, traces), traces, strict=True))
    return WorkloadManifest(
        len(paths), tuple(by_id[key] for key in distinct), np.array([place[id(t)] for t in traces], dtype=np.int32),
        {key: np.array([ranks], dtype=np.int32) for key, ranks in tables.items()}, "absolute", {}, name,
    )  # fmt: skip


@checked
def rescale(
    workload: WorkloadManifest,
    npus: int,
    *,
    along: str = "data",
    group: Sequence[str] = (),
    optimizer: str = OPTIMIZER,
) -> WorkloadManifest:
    """Make a workload of ``npus`` ranks of one of fewer, at the same batch per rank.

    Tensor, context and pipeline degrees stay. ``about["rescaled"]`` of the result says what was done.

    Parameters
    ----------
    workload
        From `read_workload`, `chakra.generate` or `read_manifest`.
    npus
        Ranks wanted, a multiple of those there are.
    along
        ``data`` (replicas, with or without ZeRO or FSDP), ``pipeline`` (replicas of pipelines; they may exchange no
        gradients) or ``expert`` (the same experts on more ranks).
    group
        Names of groups that grow, where names of groups do not say it (recordings number their groups).
    optimizer
        Regular expression for the names of nodes that work on a rank's shard of the optimizer's states.

    Raises
    ------
    UsageError
        Nothing says what grows.
    WorkloadError
        The workload cannot grow that way: the message says why.
    """
    try:
        kind, _ = Along(along), re.compile(optimizer)
    except ValueError:
        raise UsageError(f"along must be {', '.join(Along)}, not {along!r}") from None
    except re.error as error:
        raise UsageError(f"the optimizer's pattern is no regular expression: {error}") from None
    job = _Job(workload)
    parameters = workload.about.get("parameters")
    if isinstance(parameters, Mapping) and parameters.get("mode") == "disaggregated":
        raise UsageError(
            "prefill and decode ranks exchange caches across replicas, so that nothing of them repeats: generate it with "
            "more replicas"
        )
    used = _used(job.manifest)
    growing = _growing(job, used, kind, tuple(group))
    growth = _growth(job, growing, npus)
    roles = _roles(job, growing, growth, kind)
    tables = grown_tables(job.manifest.groups, growth, growing)
    whole = Role.WEIGHTS if growth.recorded > 1 else Role.STAYS
    sharded = any(
        role is Role.WEIGHTS and kinds & {CommType.ALL_GATHER, CommType.REDUCE_SCATTER, CommType.REDUCE_SCATTER_BLOCK}
        for name, kinds in used.items()
        for role in [roles.get(name, whole)]
    )  # fmt: skip
    rules = SizeRules(
        growth.factor, roles, whole, {name: table.shape[1] for name, table in tables.items()}, npus,
        sharded, kind is Along.EXPERT, optimizer,
    )  # fmt: skip
    changes = Changes()
    traces, trace_of = _traces(job, growth, rules, npus, changes)
    about = {**job.manifest.about, "rescaled": said(job.manifest, growth, rules, changes, kind, used)}
    return WorkloadManifest(npus, traces, trace_of, tables, RELATIVE, about)


# ------------------------------------------------------------------------------------------------------ what grows


def _used(workload: WorkloadManifest) -> dict[str, set[int]]:
    """Group name -> kinds of the collectives on it."""
    used: dict[str, set[int]] = {}
    for trace in workload.traces:
        nodes = trace.types == NodeType.COMM_COLL
        for code, kind in set(
            zip(trace.pg_codes[nodes].tolist(), trace.comm_type[nodes].tolist(), strict=True)
        ):
            used.setdefault(trace.pg_table[code] if code >= 0 else "", set()).add(kind)
    return used


def _tokens(name: str) -> set[str]:
    return set(name.split("_"))


def _growing(job: _Job, used: Mapping[str, set[int]], along: Along, named: tuple[str, ...]) -> frozenset[str]:
    """Names of the groups in the tables that span all positions."""
    groups = job.manifest.groups
    for name in named:
        if name not in groups:
            raise UsageError(f"there is no group {name!r}; there are {', '.join(sorted(groups)) or 'none'}")
    if named:
        return _alike(groups, named)
    if along is Along.EXPERT:
        if any(_tokens(name) & {"sdp", "esdp", "rdp"} for name in groups):
            raise UsageError(
                "hybrid sharding: experts are spread within a copy of the model; only `along data`, more copies, can grow"
            )
        by_name = {name for name in groups if _tokens(name) & {"ep", "dp"} and "edp" not in _tokens(name)}
        if not any("ep" in _tokens(name) for name in by_name):
            raise UsageError("no group 'ep': name the group over which the experts are spread with --group")
        return frozenset(by_name)
    # hybrid sharding: what grows are the copies of the model, within which weights are sharded
    by_name = {name for name in groups if _tokens(name) & {"dp", "edp", "rdp"}}
    if by_name:
        return frozenset(by_name)
    # groups whose names say that they lie within a replica exchange no gradients
    open_names = tuple(name for name in used if name in groups and not _tokens(name) <= _OF_A_REPLICA)
    shapes = {_shape(row) for name in open_names for row in groups[name]}
    if not shapes or along is Along.PIPELINE:
        return frozenset()
    if len(shapes) == 1 and any(used[name] & set(_OF_WEIGHTS) for name in open_names):
        return _alike(groups, open_names)
    listed = "; ".join(
        f"{name}: {groups[name].shape[1]} ranks, {_kinds(used[name])}"
        for name in sorted(used)
        if name in groups
    )
    raise UsageError(f"several groups exchange data, name the one of the gradients with --group ({listed})")


def _kinds(kinds: set[int]) -> str:
    return " ".join(CommType(kind).name.lower() for kind in sorted(kinds) if kind != ABSENT)


def _shape(row: I32) -> tuple[int, ...]:
    ranks = np.sort(row)
    return tuple((ranks - ranks[0]).tolist())


def _alike(groups: Mapping[str, I32], seeds: tuple[str, ...]) -> frozenset[str]:
    """The seeds, groups of the same form at other ranks, and groups that hold one of them."""
    rows = [np.sort(row) for name in seeds for row in groups[name]]
    shapes = {_shape(row) for row in rows}
    grown = set(seeds)
    for name, table in groups.items():
        for row in table:
            holds = any(np.isin(seed, row).all() for seed in rows)
            if holds or _shape(row) in shapes:
                grown.add(name)
    return frozenset(grown)


def _growth(job: _Job, growing: frozenset[str], npus: int) -> Growth:
    """The digit along which positions lie, from everything that stays together."""
    manifest = job.manifest
    links: list[I64] = [
        row.astype(np.int64)
        for name, table in manifest.groups.items()
        if name not in growing
        for row in table
    ]
    hops = job.hops()
    messages: list[int] = []
    for rank in range(manifest.npus):
        for hop in hops[int(manifest.trace_of[rank])].tolist():
            peer = rank + hop if manifest.peer_mode == RELATIVE else hop
            if not 0 <= peer < manifest.npus:
                raise WorkloadError(
                    f"{manifest.source}: rank {rank} has the peer {peer}, which does not exist"
                )
            links.append(np.array([rank, peer], dtype=np.int64))
            messages.append(peer - rank)
    growth = find_growth(manifest.npus, npus, links, messages)
    if growth.recorded == 1 and growing:
        names = ", ".join(sorted(growing))
        raise WorkloadError(
            f"nothing to repeat along {names}: groups that stay join all its ranks (are experts spread over all of them? "
            "then their gradients are reduced nowhere, and only `along expert` can grow)"
        )
    return growth


def _roles(job: _Job, growing: frozenset[str], growth: Growth, along: Along) -> dict[str, Role]:
    roles = {}
    for name, table in job.manifest.groups.items():
        spans = {grows(row, growth, name) for row in table}
        if spans != {name in growing}:
            raise WorkloadError(
                f"group {name!r} does not lie within one replica, nor does it span all of them"
            )
        if name in growing:
            tokens = along is Along.EXPERT and "ep" in _tokens(name) and not _tokens(name) & {"dp", "cp"}
            roles[name] = Role.TOKENS if tokens else Role.WEIGHTS
        else:
            expert = along is Along.EXPERT and "edp" in _tokens(name)
            roles[name] = Role.EXPERT_WEIGHTS if expert else Role.STAYS
    return roles


# ------------------------------------------------------------------------------------------------------ traces


def _traces(
    job: _Job, growth: Growth, rules: SizeRules, npus: int, changes: Changes
) -> tuple[tuple[Trace, ...], I32]:
    """New traces and who runs them: one for each recorded trace, or more where ranks' peers come to differ."""
    manifest = job.manifest
    made: dict[tuple[int, tuple[int, ...]], int] = {}
    traces: list[Trace] = []
    of_rank = np.empty(manifest.npus, dtype=np.int64)
    hops = job.hops()
    for rank in range(manifest.npus):
        number = int(manifest.trace_of[rank])
        offsets = tuple(_offset(manifest, growth, rank, hop) for hop in hops[number].tolist())
        key = (number, offsets)
        if key not in made:
            made[key] = len(traces)
            new = dict(zip(hops[number].tolist(), offsets, strict=True))
            origins = partial(_origins, manifest, growth, npus, rank)
            traces.append(_trace(manifest.traces[number], rules, changes, new.__getitem__, origins))
        of_rank[rank] = made[key]
    return tuple(traces), of_rank[growth.origin(npus)].astype(np.int32)


def _offset(manifest: WorkloadManifest, growth: Growth, rank: int, hop: int) -> int:
    """Distance to a peer after rescaling."""
    pair = np.array([rank, rank + hop if manifest.peer_mode == RELATIVE else hop], dtype=np.int64)
    new = growth.moved(pair, growth.position(pair))
    return int(new[1] - new[0])


def _origins(manifest: WorkloadManifest, growth: Growth, npus: int, rank: int, name: str) -> list[int]:
    """Places in a rank's recorded group of which the members of its larger group are replicas."""
    if name not in manifest.groups:
        return [int(origin) for origin in growth.origin(npus)]
    row = manifest.members(name, rank).astype(np.int64)
    [larger] = new_rows(row[None, :], growth, grown=True)
    place = {int(member): k for k, member in enumerate(row)}
    return [place[int(member)] for member in growth.origin(npus)[larger]]


def _trace(
    trace: Trace,
    rules: SizeRules,
    changes: Changes,
    moved: Callable[[int], int],
    origins: Callable[[str], Sequence[int]],
) -> Trace:
    edits = size_edits(trace, rules, changes, origins)
    for kind, name, other in (
        (NodeType.COMM_SEND, "comm_dst", "comm_src"), (NodeType.COMM_RECV, "comm_src", "comm_dst"),
    ):  # fmt: skip
        for index in np.flatnonzero(trace.types == kind).tolist():
            if (peer := int(getattr(trace, name)[index])) != ABSENT:
                edits.set(index, name, moved(peer))
            if int(getattr(trace, other)[index]) != ABSENT:
                edits.set(index, other, 0)  # the rank itself
    return edited(trace, edits)


# ------------------------------------------------------------------------------------------------------ said


def said(
    before: WorkloadManifest,
    growth: Growth,
    rules: SizeRules,
    changes: Changes,
    along: Along,
    used: Mapping[str, set[int]],
) -> dict[str, object]:
    """What was done, for the manifest and the command's summary."""
    notes = ["tensor, context and pipeline degrees and the batch per rank stay as they are"]
    if growth.recorded == 1:
        parameters = before.about.get("parameters")
        mode = parameters.get("mode", "train") if isinstance(parameters, Mapping) else "train"
        reduced = ", so gradients are not reduced over them" if mode == "train" else ""
        notes.append(f"the ranks were recorded once: the replicas exchange nothing{reduced}")
    if rules.sharded:
        calls, was, now = changes.optimizer
        notes.append(
            f"weights are sharded: {counted(calls, 'node')} of the optimizer work on 1/{rules.factor} of theirs"
            + (f" ({was / 1e3:,.1f} us -> {now / 1e3:,.1f} us in the distinct traces)" if was else "")
        )
    elif rules.optimizer != OPTIMIZER:
        notes.append(
            "no weights are sharded over the ranks, so the pattern for the optimizer changes nothing"
        )
    if changes.uneven:
        notes.append(
            f"{counted(changes.uneven, 'collective')} of unequal shares: a member's share goes to its replicas in "
            "equal parts"
        )
    if changes.unsaid_experts:
        notes.append(
            "nodes do not say how much of their work goes with the experts of a rank: products of experts and the "
            "optimizer keep their time, which is too long by the reading of weights"
        )
    return {
        "from": {"source": os.path.basename(before.source), "npus": before.npus},
        "along": str(along),
        "positions": {"stride": growth.stride, "recorded": growth.recorded, "now": growth.wanted},
        "groups": {
            name: {"members": [int(table.shape[1]), rules.members(name)], "exchanges": str(rules.role(name))}
            for name, table in before.groups.items()
            if name in used
        },
        "collectives": [
            {"group": name or "all ranks", "kind": kind.lower(), "calls": [row[0], row[1]], "bytes": [row[2], row[3]]}
            for (name, kind), row in sorted(changes.collectives.items())
        ],
        "notes": notes,
    }  # fmt: skip
