"""Perfetto protobuf traces (.pftrace): a third of the JSON's size and ten times as fast to write."""

import importlib
from collections.abc import Iterator
from types import ModuleType
from typing import Final

import numpy as np

from chakra.arrays import I64, AnyArray, bounds
from chakra.jit import compiled
from chakra.timeline.chrome import thread_numbers
from chakra.timeline.model import CATEGORIES, Timeline

_PLAIN: Final = 5_000
#: Most bytes that a slice takes without flows (both packets), and a flow at each of its ends.
_SLICE_BYTES: Final = 112
_FLOW_BYTES: Final = 10
#: Slices encoded at once, cut at a row's end.
_BATCH: Final = 1 << 18


def perfetto_pieces(timeline: Timeline) -> Iterator[bytes]:
    """The file piece by piece: names first, then processes and threads, slices row by row, counters.

    Track ids: rows 1 .. r, then a process for each rank, then counters.
    """
    yield _packet(_field(13, 1) + _bytes(12, _interned(timeline)) + _field(10, 1))
    ranks = timeline.ranks()
    process = {rank: len(timeline.rows) + 1 + place for place, rank in enumerate(ranks)}
    for rank in ranks:
        # Process ids of zero mean "unknown" to viewers, hence rank + 1.
        body = _bytes(
            3, _field(1, rank + 1) + _bytes(6, timeline.process_name(rank).encode("utf-8", "replace"))
        )
        yield _packet(_bytes(60, _field(1, process[rank]) + body + _field(11, 3)) + _field(10, 1))
    for place, (row, tid) in enumerate(zip(timeline.rows, thread_numbers(timeline), strict=True)):
        # A thread id must be unique in the file for viewers that ignore processes.
        thread = (
            _field(1, row.rank + 1)
            + _field(2, (row.rank + 1) * 1000 + tid)
            + _bytes(5, row.name.encode("utf-8", "replace"))
        )
        track = _field(1, place + 1) + _field(5, process[row.rank]) + _bytes(4, thread) + _field(12, tid)
        yield _packet(_bytes(60, track) + _field(10, 1))
    yield from _slices(timeline)
    base = len(timeline.rows) + len(ranks) + 1
    for place, counter in enumerate(timeline.counters):
        unit = _bytes(8, _bytes(6, counter.unit.encode("utf-8", "replace")))
        track = (
            _field(1, base + place)
            + _field(5, process[counter.rank])
            + _bytes(2, counter.name.encode("utf-8", "replace"))
        )
        yield _packet(_bytes(60, track + unit) + _field(10, 1))
        for time, value in zip(counter.time_ns.tolist(), counter.value.tolist(), strict=True):
            number = _field(30, int(value)) if value == int(value) and value >= 0 else _double(44, value)
            event = _field(9, 4) + _field(11, base + place) + number
            yield _packet(_field(8, time) + _bytes(11, event) + _field(10, 1))


def _slices(timeline: Timeline) -> Iterator[bytes]:
    n = timeline.n_slices
    order = np.lexsort((-(timeline.start_ns + timeline.duration_ns), timeline.start_ns, timeline.row))
    place = np.empty(n, np.int64)
    place[order] = np.arange(n)
    out_offsets, out_flows = _flows_of(place[timeline.flow_from], n)
    in_offsets, in_flows = _flows_of(place[timeline.flow_to], n)
    row = timeline.row[order]
    columns: list[AnyArray] = [
        row,
        timeline.start_ns[order],
        timeline.duration_ns[order],
        timeline.name[order],
        timeline.category[order],
        timeline.node[order],
    ]
    kernel: ModuleType
    if n < _PLAIN:
        kernel = importlib.import_module("chakra.timeline._perfetto_kernel")
    else:
        kernel = compiled("chakra.timeline._perfetto_kernel")
    ends = np.r_[np.flatnonzero(np.diff(row)) + 1, n] if n else np.zeros(0, np.int64)
    first = 0
    while first < n:
        beyond = ends[ends >= min(first + _BATCH, n)]
        last = int(beyond[0])
        part = [np.ascontiguousarray(column[first:last]) for column in columns]
        flows = [out_offsets[first : last + 1], out_flows, in_offsets[first : last + 1], in_flows]
        held = int(out_offsets[last] - out_offsets[first] + in_offsets[last] - in_offsets[first])
        out = np.empty((last - first) * _SLICE_BYTES + held * _FLOW_BYTES + 64, np.uint8)
        size = kernel.encode(*part, *flows, np.empty(last - first, np.int64), out)
        yield out[:size].tobytes()
        first = last


def _flows_of(owner: I64, n: int) -> tuple[I64, I64]:
    """Flow numbers by slice, CSR."""
    offsets = bounds(np.bincount(owner, minlength=n))
    return offsets, np.argsort(owner, kind="stable").astype(np.int64)


def _interned(timeline: Timeline) -> bytes:
    categories = b"".join(_bytes(1, _entry(i, name)) for i, name in enumerate(CATEGORIES))
    names = b"".join(_bytes(2, _entry(i, name)) for i, name in enumerate(timeline.names))
    return categories + names + _bytes(3, _entry(0, "node"))


def _entry(place: int, name: str) -> bytes:
    return _field(1, place + 1) + _bytes(2, name.encode("utf-8", "replace"))


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _field(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _double(number: int, value: float) -> bytes:
    return _varint(number << 3 | 1) + np.float64(value).tobytes()


def _bytes(number: int, body: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(body)) + body


def _packet(body: bytes) -> bytes:
    return b"\x0a" + _varint(len(body)) + body
