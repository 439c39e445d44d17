"""Chrome trace JSON: opens in Perfetto, chrome://tracing and TensorBoard. Strict JSON, microseconds, one
object an event."""

from collections.abc import Iterator

import msgspec

from chakra.io.documents import ascii_text, streamed
from chakra.io.files import TIMELINE_WRITER
from chakra.timeline.model import CATEGORIES, Timeline

#: an event: its keys and values, of which numbers and names may be JSON already
Event = dict[str, object]


def chrome_pieces(timeline: Timeline) -> Iterator[str]:
    """The JSON text piece by piece.

    Processes are ranks, threads are rows; a flow's id holds its place in the file, so that merged ranks
    cannot share one. Nanoseconds survive as decimals of a microsecond.
    """
    encode = msgspec.json.Encoder().encode
    # who wrote it comes first, so that nobody takes it for a recording (`chakra.io.files.OWN_TIMELINE`)
    head = {
        "otherData": {"writer": TIMELINE_WRITER, "source": timeline.source, "time_unit": "us"},
        "displayTimeUnit": "ns",
    }
    return streamed(head, "traceEvents", (encode(event).decode() for event in _events(timeline)))


def _name(text: str) -> msgspec.Raw:
    # Lone surrogates (names cut in the middle of a character) are written as escapes: the file stays UTF-8
    # and JSON.
    return msgspec.Raw(ascii_text(text).encode())


def _micros(nanoseconds: int) -> msgspec.Raw:
    """Microseconds with all digits, which a float may not have."""
    whole, rest = divmod(nanoseconds, 1000)
    return msgspec.Raw(b"%d.%03d" % (whole, rest) if rest else b"%d" % whole)


def _events(timeline: Timeline) -> Iterator[Event]:
    tids = thread_numbers(timeline)
    for rank in timeline.ranks():
        name = _name(timeline.process_name(rank))
        for key, value in (("name", name), ("sort_index", rank)):
            yield {"ph": "M", "name": f"process_{key}", "pid": rank, "tid": 0, "args": {key: value}}
    for row, tid in zip(timeline.rows, tids, strict=True):
        for key, value in (("name", _name(row.name)), ("sort_index", tid)):
            yield {"ph": "M", "name": f"thread_{key}", "pid": row.rank, "tid": tid, "args": {key: value}}
    places = [(row.rank, tid) for row, tid in zip(timeline.rows, tids, strict=True)]
    names = [_name(name) for name in timeline.names]
    columns = zip(
        timeline.row.tolist(),
        timeline.start_ns.tolist(),
        timeline.duration_ns.tolist(),
        timeline.name.tolist(),
        timeline.category.tolist(),
        timeline.node.tolist(),
        strict=True,
    )
    for row_at, start, duration, name_at, category, node in columns:
        pid, tid = places[row_at]
        yield {
            "ph": "X",
            "name": names[name_at],
            "cat": CATEGORIES[category],
            "pid": pid,
            "tid": tid,
            "ts": _micros(start),
            "dur": _micros(duration),
            "args": {"node": node} if node >= 0 else {},
        }
    yield from _flows(timeline, places)
    for counter in timeline.counters:
        name = _name(f"{counter.name} [{counter.unit}]")
        for time, value in zip(counter.time_ns.tolist(), counter.value.tolist(), strict=True):
            args = {"value": int(value) if value == int(value) else value}
            yield {"ph": "C", "name": name, "pid": counter.rank, "tid": 0, "ts": _micros(time), "args": args}


def _flows(timeline: Timeline, places: list[tuple[int, int]]) -> Iterator[Event]:
    """Two events a flow, at the starts of its slices; the second never before the first, or viewers drop the
    arrow: at a slice that began earlier it arrives when it leaves."""
    begin = timeline.start_ns[timeline.flow_from].tolist()
    first = timeline.start_ns[timeline.flow_to].tolist()
    rows_from = timeline.row[timeline.flow_from].tolist()
    rows_to = timeline.row[timeline.flow_to].tolist()
    for number, (start, low) in enumerate(zip(begin, first, strict=True)):
        arrival = max(start, low)
        common: Event = {"name": "dependency", "cat": "flow", "id": number + 1}
        for head, row, time in (
            ({"ph": "s"}, rows_from[number], start),
            ({"ph": "f", "bp": "e"}, rows_to[number], arrival),
        ):
            pid, tid = places[row]
            yield {**head, **common, "pid": pid, "tid": tid, "ts": _micros(time), "args": {}}


def thread_numbers(timeline: Timeline) -> list[int]:
    """A thread id for every row: 1, 2, ... within its rank, by place and name."""
    order = sorted(
        range(len(timeline.rows)), key=lambda i: (timeline.rows[i].rank, timeline.rows[i].place, i)
    )
    tids, count, rank = [0] * len(order), 0, None
    for i in order:
        if timeline.rows[i].rank != rank:
            rank, count = timeline.rows[i].rank, 0
        count += 1
        tids[i] = count
    return tids
