"""A timeline from a replay's result: the document with ``nodes`` that ``chakra replay --format json --nodes``
prints."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from chakra.arguments import checked
from chakra.arrays import I64, U64, Bool
from chakra.errors import UsageError
from chakra.et import ABSENT, NodeType, Trace
from chakra.io.readable import printable
from chakra.timeline.arrows import Matcher, collective_keys
from chakra.timeline.builder import TimelineBuilder
from chakra.timeline.kinds import category_of, row_of, type_of
from chakra.timeline.lenient import number, numbers
from chakra.timeline.model import CATEGORIES, Counter, Timeline

if TYPE_CHECKING:
    from chakra.replay import ReplayResult

_COLUMNS = ("ids", "issue_ns", "finish_ns")
_PARTNERS = ("peers", "tags", "groups", "communicators")
_OPTIONAL_COLUMNS = ("names", "kinds", "engines", *_PARTNERS)
_COMMUNICATION = (NodeType.COMM_COLL, NodeType.COMM_SEND, NodeType.COMM_RECV)

#: an NPU's entry of a result document: lists of one length under names that `_checked` has looked at
_Entry: TypeAlias = dict[str, Any]


@checked
def from_result(result: "ReplayResult") -> Timeline:
    """The timeline of a replay that ran in this process.

    Parameters
    ----------
    result
        The replay's result.
    """
    return from_document(result.to_dict(nodes=True), source="replay")


@checked
def from_document(
    document: Mapping[str, Any], *, traces: Mapping[int, Trace] | None = None, source: str = "<document>"
) -> Timeline:
    """The timeline of a result document.

    Parameters
    ----------
    document
        A result document with nodes.
    traces
        The traces that ran, by rank. Peers, tags and groups, and so which slices arrows join, are told by the
        document's columns ``peers``, ``tags``, ``groups`` and ``communicators``; where it has none, by these; without
        either collectives are matched by their turn.
    source
        Name of the document in messages.

    Raises
    ------
    UsageError
        If the document has no nodes or they are malformed.
    """
    entries = document.get("nodes")
    if not entries:
        raise UsageError(
            f"{source}: the result holds no nodes; run `chakra replay --format json --nodes` (or simulate() "
            f"with "
            "to_dict(nodes=True)) for a timeline"
        )
    if not isinstance(entries, list):
        raise UsageError(f"{source}: 'nodes' is no list")
    builder = TimelineBuilder(source)
    matcher = Matcher()
    collectives: dict[int, list[tuple[int, str, str | None, int]]] = {}
    for place, entry in enumerate(entries):
        _add_rank(
            builder,
            matcher,
            collectives,
            _checked(entry, place, source),
            (traces or {}).get(_rank(entry)),
            source,
        )
    grouped = any(group is not None for parts in collectives.values() for _, _, group, _ in parts)
    by_turn = collective_keys([[name for _, name, _, _ in parts] for parts in collectives.values()])
    for rank, parts in collectives.items():
        for slice_at, name, group, start in parts:
            turn_of = (group or "") if grouped or by_turn else name
            matcher.collective(slice_at, rank, turn_of, start)
    for a, b in matcher.flows():
        builder.flow(a, b)
    for rank, stage in enumerate(stages_told(document, _npus(document))):
        if stage is not None and rank in collectives:
            builder.process_names[rank] = f"rank {rank}, stage {stage}"
    _add_memory(builder, document)
    return builder.build()


def stages_told(document: Mapping[str, object], npus: int) -> list[str | None]:
    """Pipeline stage of each NPU as a result document tells it; empty where it tells none, or not of as many NPUs.

    Parameters
    ----------
    document
        The document.
    npus
        NPUs of its run.
    """
    told = document.get("stages")
    if not isinstance(told, list) or len(told) != npus:
        return []
    return [printable(stage) if isinstance(stage, str) else None for stage in told]


def _npus(document: Mapping[str, object]) -> int:
    finish = document.get("finish_ns")
    return len(finish) if isinstance(finish, list) else 0


def _rank(entry: object) -> int:
    return int(entry.get("npu", 0)) if isinstance(entry, dict) else 0


def _checked(entry: object, place: int, source: str) -> _Entry:
    if not isinstance(entry, dict) or type(entry.get("npu")) is not int:
        raise UsageError(f"{source}: nodes[{place}] is no object with an integer 'npu'")
    lengths = {key: len(value) for key, value in entry.items() if isinstance(value, list)}
    for key in _COLUMNS:
        if key not in lengths:
            raise UsageError(f"{source}: nodes[{place}] has no list {key!r}")
    for key in _OPTIONAL_COLUMNS:
        if key not in lengths and entry.get(key) is not None:
            raise UsageError(f"{source}: nodes[{place}]: {key!r} is no list")
    if len(set(lengths.values())) > 1:
        raise UsageError(f"{source}: nodes[{place}] has lists of unequal length: {lengths}")
    return entry


def _times(entry: _Entry, key: str, source: str) -> I64:
    values = entry[key]
    if not set(map(type, values)) <= {int}:
        raise UsageError(f"{source}: {key} of NPU {entry['npu']} holds something else than integers")
    if values and not (min(values) > -(2**62) and max(values) < 2**62):
        raise UsageError(f"{source}: {key} of NPU {entry['npu']} holds a time out of range")
    return np.array(values, np.int64)


def _ids(entry: _Entry, source: str) -> U64:
    values = entry["ids"]
    if not set(map(type, values)) <= {int} or (values and not (min(values) >= 0 and max(values) < 2**64)):
        raise UsageError(f"{source}: ids of NPU {entry['npu']} holds something else than integers of 64 bits")
    return np.array(values, np.uint64)


def _add_rank(
    builder: TimelineBuilder,
    matcher: Matcher,
    collectives: dict[int, list[tuple[int, str, str | None, int]]],
    entry: _Entry,
    trace: Trace | None,
    source: str,
) -> None:
    rank, count = entry["npu"], len(entry["ids"])
    ids, starts, ends = (
        _ids(entry, source),
        _times(entry, "issue_ns", source),
        _times(entry, "finish_ns", source),
    )
    names = (
        [str(name) for name in entry["names"]] if entry.get("names") else [f"node {i}" for i in entry["ids"]]
    )
    looks = list(zip(entry.get("kinds") or [""] * count, entry.get("engines") or [""] * count, strict=True))
    known: dict[tuple[str, str], int] = {}
    code = np.fromiter(
        (known.setdefault((str(kind), str(engine)), len(known)) for kind, engine in looks), np.int64, count
    )
    types = [type_of(kind) for kind, _ in known]
    categories = [category_of(kind, engine) for kind, (_, engine) in zip(types, known, strict=True)]
    issued = starts >= 0
    rows = np.zeros(max(len(known), 1), np.int64)
    for at, (kind, category) in enumerate(zip(types, categories, strict=True)):
        if np.any(issued & (code == at)):
            row_name, place = row_of(kind, category)
            rows[at] = builder.row(rank, row_name, place, nests=False)
    chosen = np.flatnonzero(issued)
    if not len(chosen):
        return
    codes = code[chosen]
    node = np.where(ids < 2**63, ids, np.uint64(0)).astype(np.int64)
    first = builder.slices(
        rows[codes],
        [names[i] for i in chosen.tolist()],
        np.array([CATEGORIES.index(category) for category in categories], np.int64)[codes],
        (starts[chosen], np.maximum(ends - starts, 0)[chosen]),
        np.where(ids < 2**63, node, -1)[chosen],
    )
    slice_of = np.full(count, -1, np.int64)
    slice_of[chosen] = first + np.arange(len(chosen))
    communicates = np.isin(code, [at for at, kind in enumerate(types) if kind in _COMMUNICATION]) & issued
    _match(
        matcher,
        collectives.setdefault(rank, []),
        entry,
        trace,
        _Slices(slice_of, names, starts, types, code, communicates),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Slices:
    """What matching needs of a rank's slices."""

    number: I64
    names: list[str]
    start: I64
    types: list[NodeType]
    code: I64
    communicates: Bool


def _match(
    matcher: Matcher,
    mine: list[tuple[int, str, str | None, int]],
    entry: _Entry,
    trace: Trace | None,
    slices: _Slices,
) -> None:
    rank = entry["npu"]
    where = np.flatnonzero(slices.communicates).tolist()
    kinds = [slices.types[slices.code[i]] for i in where]
    peers, tags, groups = _facts(entry, trace, where, kinds)
    for i, kind, peer, tag, group in zip(where, kinds, peers, tags, groups, strict=True):
        slice_at = int(slices.number[i])
        if kind == NodeType.COMM_COLL:
            mine.append((slice_at, slices.names[i], group, int(slices.start[i])))
        elif peer is not None and kind == NodeType.COMM_SEND:
            matcher.send(slice_at, rank, peer, tag)
        elif peer is not None:
            matcher.receive(slice_at, peer, rank, tag)


def _facts(
    entry: _Entry, trace: Trace | None, where: list[int], kinds: list[NodeType]
) -> tuple[list[int | None], list[int], list[str | None]]:
    """Peers, tags and groups of the entry's communication nodes (at places ``where``); None where unknown."""
    if trace is not None:
        order = trace.order_by_id()
        wanted = np.array([entry["ids"][i] for i in where], np.uint64)
        place = order[np.minimum(np.searchsorted(trace.ids, wanted, sorter=order), trace.n_nodes - 1)]
        if not np.array_equal(trace.ids[place], wanted):
            raise UsageError(
                f"{trace.source}: is not the trace that NPU {entry['npu']} ran: their node ids differ"
            )
    if trace is None or any(entry.get(key) for key in _PARTNERS):
        peers, tags, groups, comms = (
            [column[i] if (column := entry.get(key)) else None for i in where] for key in _PARTNERS
        )
        return (
            [peer if type(peer) is int else None for peer in peers],
            [tag if type(tag) is int else 0 for tag in tags],
            [
                None if group is None else str(group) if comm is None else f"{group} {comm}"
                for group, comm in zip(groups, comms, strict=True)
            ],
        )
    recorded: list[tuple[int | None, int, str | None]] = []
    for at, kind in zip(place.tolist(), kinds, strict=True):
        peer = trace.comm_dst[at] if kind == NodeType.COMM_SEND else trace.comm_src[at]
        tag = int(trace.comm_tag[at]) if trace.comm_tag[at] != ABSENT else 0
        group = trace.pg_table[trace.pg_codes[at]] if trace.pg_codes[at] >= 0 else ""
        recorded.append((int(peer) if peer != ABSENT else None, tag, group))
    return [row[0] for row in recorded], [row[1] for row in recorded], [row[2] for row in recorded]


def _add_memory(builder: TimelineBuilder, document: Mapping[str, object]) -> None:
    memory = document.get("memory")
    if not isinstance(memory, dict):
        return
    time, value = numbers(memory.get("time_ns")), numbers(memory.get("bytes"))
    if len(time) and len(time) == len(value):
        rank = int(max(number(memory.get("npu")), 0))
        builder.counters.append(
            Counter(rank, "memory in use", "bytes", np.maximum(time, 0).astype(np.int64), value)
        )
