"""A timeline from a replay's result: the document with ``nodes`` that ``chakra replay --format json --nodes``
prints."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from chakra.errors import UsageError
from chakra.et import ABSENT, NodeType, Trace
from chakra.timeline.builder import TimelineBuilder
from chakra.timeline.kinds import category_of, row_of, type_of
from chakra.timeline.lenient import number, numbers
from chakra.timeline.matching import Matcher, collective_keys
from chakra.timeline.model import Counter, Timeline

if TYPE_CHECKING:
    from chakra.replay import ReplayResult

_COLUMNS = ("ids", "issue_ns", "finish_ns")


def from_result(result: "ReplayResult") -> Timeline:
    """The timeline of a replay that ran in this process."""
    return from_document(result.to_dict(nodes=True), traces=None, source="replay")


def from_document(
    document: Mapping[str, Any], *, traces: Mapping[int, Trace] | None = None, source: str = "<document>"
) -> Timeline:
    """The timeline of a result document.

    Parameters
    ----------
    traces
        The traces that ran, by rank: they tell peers, tags and groups, and so which slices arrows join.
        Without them the document's own columns ``peers``, ``tags`` and ``groups`` do; without those,
        collectives are matched by their turn.
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
    collectives: dict[int, list[tuple[int, str, str, int]]] = {}
    for place, entry in enumerate(entries):
        _add_rank(
            builder, matcher, collectives, _checked(entry, place, source), (traces or {}).get(_rank(entry))
        )
    grouped = any(group is not None for parts in collectives.values() for _, _, group, _ in parts)
    by_turn = collective_keys([[name for _, name, _, _ in parts] for parts in collectives.values()])
    for rank, parts in collectives.items():
        for number, name, group, start in parts:
            if grouped or by_turn:
                matcher.collective(number, rank, group or "", start)
            else:
                matcher.collective(number, rank, name, start)
    for a, b in matcher.flows():
        builder.flow(a, b)
    _add_memory(builder, document)
    return builder.build()


def _rank(entry: Any) -> int:
    return int(entry.get("npu", 0)) if isinstance(entry, dict) else 0


def _checked(entry: Any, place: int, source: str) -> dict[str, Any]:
    if not isinstance(entry, dict) or type(entry.get("npu")) is not int:
        raise UsageError(f"{source}: nodes[{place}] is no object with an integer 'npu'")
    lengths = {key: len(value) for key, value in entry.items() if isinstance(value, list)}
    for key in _COLUMNS:
        if key not in lengths:
            raise UsageError(f"{source}: nodes[{place}] has no list {key!r}")
        if not all(type(value) is int and -(2**62) < value < 2**64 for value in entry[key]):
            raise UsageError(f"{source}: nodes[{place}].{key} holds something else than integers of 64 bits")
        if key != "ids" and max(entry[key], default=0) >= 2**62:
            raise UsageError(f"{source}: nodes[{place}].{key} holds a time out of range")
    if len(set(lengths.values())) > 1:
        raise UsageError(f"{source}: nodes[{place}] has lists of unequal length: {lengths}")
    return entry


def _add_rank(
    builder: TimelineBuilder,
    matcher: Matcher,
    collectives: dict[int, list[tuple[int, str, str, int]]],
    entry: dict[str, Any],
    trace: Trace | None,
) -> None:
    rank, count = entry["npu"], len(entry["ids"])
    ids, starts, ends = entry["ids"], entry["issue_ns"], entry["finish_ns"]
    names = entry.get("names") or [f"node {i}" for i in ids]
    kinds = [type_of(str(kind)) for kind in entry.get("kinds") or [""] * count]
    engines = entry.get("engines") or [""] * count
    peers, tags, groups = _facts(entry, trace, kinds)
    mine = collectives.setdefault(rank, [])
    for i in range(count):
        if starts[i] < 0:
            continue
        category = category_of(kinds[i], str(engines[i]))
        row_name, place = row_of(kinds[i], category)
        row = builder.row(rank, row_name, place, nests=False)
        end = max(ends[i], starts[i])
        number = builder.slice(
            row, str(names[i]), category, starts[i], end - starts[i], ids[i] if ids[i] < 2**63 else -1
        )
        if kinds[i] == NodeType.COMM_COLL:
            mine.append((number, str(names[i]), groups[i], starts[i]))
        elif peers[i] is not None and kinds[i] == NodeType.COMM_SEND:
            matcher.send(number, rank, peers[i], tags[i])
        elif peers[i] is not None and kinds[i] == NodeType.COMM_RECV:
            matcher.receive(number, peers[i], rank, tags[i])


def _facts(
    entry: dict[str, Any], trace: Trace | None, kinds: list[NodeType]
) -> tuple[list[Any], list[Any], list[Any]]:
    """Peers, tags and groups of the entry's nodes; None where unknown."""
    count = len(kinds)
    if trace is None:
        return (
            entry.get("peers") or [None] * count,
            [tag or 0 for tag in entry.get("tags") or [0] * count],
            entry.get("groups") or [None] * count,
        )
    peers: list[Any] = [None] * count
    tags, groups = [0] * count, [""] * count
    for i, kind in enumerate(kinds):
        if kind not in (NodeType.COMM_SEND, NodeType.COMM_RECV, NodeType.COMM_COLL):
            continue
        at = trace.index_of(entry["ids"][i])
        peer = trace.comm_dst[at] if kind == NodeType.COMM_SEND else trace.comm_src[at]
        peers[i] = int(peer) if peer != ABSENT else None
        tags[i] = int(trace.comm_tag[at]) if trace.comm_tag[at] != ABSENT else 0
        if trace.pg_codes[at] >= 0:
            groups[i] = trace.pg_table[trace.pg_codes[at]]
    return peers, tags, groups


def _add_memory(builder: TimelineBuilder, document: Mapping[str, Any]) -> None:
    memory = document.get("memory")
    if not isinstance(memory, dict):
        return
    time, value = numbers(memory.get("time_ns")), numbers(memory.get("bytes"))
    if len(time) and len(time) == len(value):
        rank = int(max(number(memory.get("npu")), 0))
        builder.counters.append(
            Counter(rank, "memory in use", "bytes", np.maximum(time, 0).astype(np.int64), value)
        )
