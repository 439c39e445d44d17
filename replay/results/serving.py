"""When requests of a generated inference have their tokens: from the nodes that, by the generator's word, make them.

All requests of a run come at once, at its beginning. A token is there when the last stage has computed it.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from chakra.arrays import I64
from chakra.et import NodeType, Trace
from chakra.et.attributes import metadata_text
from chakra.et.memory_need import generated_totals
from chakra.et.operators import PART, TOKEN_NODES

if TYPE_CHECKING:
    from chakra.replay.results.result import ReplayResult


@dataclass(frozen=True, slots=True)
class ServingTimes:
    """Times of requests, in ns.

    Attributes
    ----------
    first_ns
        When the last request has its first token; None where the prompts are in the cache from the beginning.
    token_ns
        Mean time from one token of a request to its next, over all requests; None where no request has two.
    half_ns
        Of prefill and decoding on ranks of their own, how long the one that takes longer is at work; None otherwise.
    decode_ns
        How long a rank decodes, behind its last prefill, the longest; None where none does, or on ranks of its own.
    steps
        Tokens of a request that decoding makes.
    """

    first_ns: int | None
    token_ns: float | None
    half_ns: int | None
    decode_ns: int | None
    steps: int


@dataclass(frozen=True, slots=True)
class _Token:
    """A token of a micro-batch's requests, and the ids of the nodes that make it: from ``begin`` to before ``end``."""

    number: int
    begin: int
    end: int


def serving_times(result: "ReplayResult") -> ServingTimes | None:
    """Times of the requests of a run.

    Parameters
    ----------
    result
        Of a whole run.

    Returns
    -------
    ServingTimes or None
        None for anything but generated inference of as many ranks as it was generated for.
    """
    traces = result.workload.traces
    if not generated_totals(traces, result.npus):
        return None
    tokens = [_tokens(trace) for trace in traces]
    if not any(tokens):
        return None
    ends, decode_ns = _TokenEnds(), 0
    for npu, index, copies in _one_of_each_class(result):
        if not tokens[index]:
            continue
        nodes, latest = _Nodes(result, npu), dict[int, int]()
        for token in {one for pair in tokens[index] for one in pair}:
            end_ns = nodes.end_of(token)
            ends.add(token.number, end_ns, copies)
            latest[token.number] = max(end_ns, latest.get(token.number, 0))
        # a rank prefills all of its micro-batches before it decodes any
        decode_ns = max(decode_ns, max(latest.values()) - latest.get(0, 0))
    return ServingTimes(
        ends.latest.get(0),
        ends.mean_step(),
        _longest_half(result),
        None if is_divided(traces) else decode_ns or None,
        max(ends.latest),
    )


class _TokenEnds:
    """When the first and the last tokens of requests are there, by their number: 0 is the one that prefill makes."""

    def __init__(self) -> None:
        self.latest: dict[int, int] = {}
        self._sums: dict[int, tuple[int, int]] = {}

    def add(self, number: int, end_ns: int, copies: int) -> None:
        """A token that is there on so many NPUs at once."""
        self.latest[number] = max(end_ns, self.latest.get(number, 0))
        total, count = self._sums.get(number, (0, 0))
        self._sums[number] = total + copies * end_ns, count + copies

    def mean_step(self) -> float | None:
        """Mean time from a token to the next: from the mean end of all first ones to that of all last ones.

        Of a single step on a cache that is there it is the step, at whose end all requests have a token.
        """
        first, last = min(self.latest), max(self.latest)
        if first == last:
            return float(self.latest[last]) if first == 1 else None
        begin, end = (total / count for total, count in (self._sums[first], self._sums[last]))
        return (end - begin) / (last - first)


def is_divided(traces: Sequence[Trace]) -> bool:
    """Whether a workload is prefill and decoding on ranks of their own.

    Parameters
    ----------
    traces
        The workload's.
    """
    return len({_part(trace) for trace in traces} - {""}) > 1


def half_notes(traces: Sequence[Trace]) -> list[str]:
    """What to know of times of prefill and decoding on ranks of their own.

    Parameters
    ----------
    traces
        The workload's.
    """
    if not is_divided(traces):
        return []
    note = (
        "one run is one batch, which goes through prefill and then through decoding: each half waits while it is the "
        "other's turn; in steady state the next batch is prefilled meanwhile, and a batch is done in the time of the "
        "longer half (steady)"
    )
    return [note]


def _one_of_each_class(result: "ReplayResult") -> Iterator[tuple[int, int, int]]:
    """An NPU of each class of equal ones, the number of its trace, and how many there are."""
    partition = result.raw.partition
    sizes = np.bincount(partition.class_of, minlength=partition.n_classes)
    for npu, copies in zip(partition.representative.tolist(), sizes.tolist(), strict=True):
        yield npu, int(result.workload.trace_of[npu]), copies


def _longest_half(result: "ReplayResult") -> int | None:
    """How long the part that takes longer is at work: from its first operator to its end."""
    traces = result.workload.traces
    if not is_divided(traces):
        return None
    begins: dict[str, int] = {}
    ends: dict[str, int] = {}
    for npu, index, _ in _one_of_each_class(result):
        part = _part(traces[index])
        begin = _Nodes(result, npu).first_operator()
        begins[part] = min(begin, begins.get(part, begin))
        ends[part] = max(int(result.finish_ns[npu]), ends.get(part, 0))
    return max(ends[part] - begins[part] for part in ends)


class _Nodes:
    """Times of an NPU's nodes by id."""

    def __init__(self, result: "ReplayResult", npu: int) -> None:
        trace = result.workload.traces[int(result.workload.trace_of[npu])]
        ids, issue_ns, finish_ns = result.node_ticks(npu)
        order = np.argsort(ids)
        self.ids, self.issue_ns, self.finish_ns = ids[order], issue_ns[order], finish_ns[order]
        by_id = trace.order_by_id()
        which = by_id[np.searchsorted(trace.ids[by_id], self.ids)]
        self.types, self.host = trace.types[which], np.asarray(trace.is_cpu_op)[which] == 1

    def end_of(self, token: _Token) -> int:
        """When a token is there: what hands it on afterwards does not count."""
        begin, end = np.searchsorted(self.ids, [token.begin, token.end])
        finish: I64 = self.finish_ns[begin:end][self.types[begin:end] != NodeType.COMM_SEND]
        return int(finish.max(initial=0))

    def first_operator(self) -> int:
        """When the accelerator begins to compute."""
        computed = (self.types == NodeType.COMP) & ~self.host
        return int(self.issue_ns[computed].min()) if computed.any() else 0


def _part(trace: Trace) -> str:
    """Which part of a workload a trace is of; empty where it has one only."""
    return metadata_text(trace.metadata, PART) or ""


def _tokens(trace: Trace) -> list[tuple[_Token, _Token]]:
    """First and last token of every micro-batch that a trace makes; none where its metadata does not say it."""
    text = metadata_text(trace.metadata, TOKEN_NODES) or ""
    try:
        rows = json.loads(text)
        pairs = [(_Token(*first), _Token(*last)) for first, last in rows]
    except (ValueError, TypeError):
        return []
    most = int(trace.ids.max(initial=0)) + 1 if trace.n_nodes else 0
    said = [token for pair in pairs for token in pair]
    known = all(
        all(type(value) is int for value in (one.number, one.begin, one.end)) and 0 <= one.begin < one.end <= most
        for one in said
    )  # fmt: skip
    return pairs if known else []
