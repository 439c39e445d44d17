"""Chrome trace JSON: opens in Perfetto, chrome://tracing and TensorBoard. Strict JSON, microseconds, one
object an event."""

import json
from collections.abc import Iterator

from chakra.timeline.model import CATEGORIES, Timeline


def chrome_pieces(timeline: Timeline) -> Iterator[str]:
    """The JSON text piece by piece.

    Processes are ranks, threads are rows; a flow's id holds its place in the file, so that merged ranks
    cannot share one. Nanoseconds survive as decimals of a microsecond.
    """
    yield '{"displayTimeUnit":"ns","otherData":' + _json({"source": timeline.source, "time_unit": "us"})
    yield ',"traceEvents":[\n'
    separator = ""
    for text in _events(timeline):
        yield separator + text
        separator = ",\n"
    yield "\n]}\n"


def _json(value: object) -> str:
    # Lone surrogates (names cut in the middle of a character) are written as escapes: the file stays UTF-8
    # and JSON.
    return json.dumps(value, ensure_ascii=True, allow_nan=False)


def _micros(nanoseconds: int) -> str:
    whole, rest = divmod(nanoseconds, 1000)
    return f"{whole}.{rest:03d}" if rest else str(whole)


def _events(timeline: Timeline) -> Iterator[str]:
    tids = thread_numbers(timeline)
    for rank in timeline.ranks():
        name = _json(timeline.process_name(rank))
        yield f'{{"ph":"M","name":"process_name","pid":{rank},"tid":0,"args":{{"name":{name}}}}}'
        yield f'{{"ph":"M","name":"process_sort_index","pid":{rank},"tid":0,"args":{{"sort_index":{rank}}}}}'
    for row, tid in zip(timeline.rows, tids, strict=True):
        head = f'"pid":{row.rank},"tid":{tid}'
        yield f'{{"ph":"M","name":"thread_name",{head},"args":{{"name":{_json(row.name)}}}}}'
        yield f'{{"ph":"M","name":"thread_sort_index",{head},"args":{{"sort_index":{tid}}}}}'
    heads = [f'"pid":{row.rank},"tid":{tid}' for row, tid in zip(timeline.rows, tids, strict=True)]
    names = [_json(name) for name in timeline.names]
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
        args = f'{{"node":{node}}}' if node >= 0 else "{}"
        yield (
            f'{{"ph":"X","name":{names[name_at]},"cat":"{CATEGORIES[category]}",{heads[row_at]},'
            f'"ts":{_micros(start)},"dur":{_micros(duration)},"args":{args}}}'
        )
    yield from _flows(timeline, heads)
    for counter in timeline.counters:
        name = _json(f"{counter.name} [{counter.unit}]")
        for time, value in zip(counter.time_ns.tolist(), counter.value.tolist(), strict=True):
            yield (
                f'{{"ph":"C","name":{name},"pid":{counter.rank},"tid":0,"ts":{_micros(time)},'
                f'"args":{{"value":{_number(value)}}}}}'
            )


def _flows(timeline: Timeline, heads: list[str]) -> Iterator[str]:
    """Two events a flow, each inside its slice; the second never before the first, or viewers drop the
    arrow."""
    begin = timeline.start_ns[timeline.flow_from].tolist()
    first = timeline.start_ns[timeline.flow_to].tolist()
    last = (timeline.start_ns + timeline.duration_ns)[timeline.flow_to].tolist()
    rows_from = timeline.row[timeline.flow_from].tolist()
    rows_to = timeline.row[timeline.flow_to].tolist()
    for number, (start, low, high) in enumerate(zip(begin, first, last, strict=True)):
        arrival = min(max(start, low), max(high - 1, low))
        common = f'"name":"dependency","cat":"flow","id":{number + 1}'
        departure = _micros(min(start, arrival))
        yield f'{{"ph":"s",{common},{heads[rows_from[number]]},"ts":{departure},"args":{{}}}}'
        yield f'{{"ph":"f","bp":"e",{common},{heads[rows_to[number]]},"ts":{_micros(arrival)},"args":{{}}}}'


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


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
