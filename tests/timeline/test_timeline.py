"""Timelines: rows nest, files parse back to the same slices, flows and durations."""

import gzip
import json
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from chakra.errors import UsageError
from chakra.io.rank_lists import parse_ranks
from chakra.jit import compiled
from chakra.timeline import Counter, Timeline, TimelineBuilder, estimated_bytes, filtered, write_timeline
from chakra.timeline import _lanes_kernel as lanes_plain
from chakra.timeline import _perfetto_kernel as perfetto_plain
from chakra.timeline.chrome import thread_numbers
from chakra.timeline.lanes import assign_lanes, half_overlaps

NAMES = st.one_of(
    st.sampled_from(['"', "\\", "漢字 🙂", "\ud800", "a\x00b", "</script>"]), st.text(max_size=12)
)


@st.composite
def timelines(draw: st.DrawFn, most: int = 40) -> Timeline:
    builder = TimelineBuilder("random")
    rows = [
        builder.row(rank, name, place, nests=draw(st.booleans()))
        for rank in range(draw(st.integers(1, 3)))
        for place, name in enumerate(("a", "b"))
    ]
    n = draw(st.integers(0, most))
    for i in range(n):
        start, length = draw(st.integers(0, 60)), draw(st.one_of(st.integers(0, 20), st.integers(0, 2**50)))
        builder.slice(
            draw(st.sampled_from(rows)),
            draw(NAMES),
            "compute",
            start,
            length,
            draw(st.sampled_from([-1, 0, i, 2**62])),
        )
    if n:
        for _ in range(draw(st.integers(0, 10))):
            builder.flow(draw(st.integers(0, n - 1)), draw(st.integers(0, n - 1)))
    if draw(st.booleans()):
        values = np.array([0.0, 5.0, 2.5])
        builder.counters.append(Counter(0, "memory", "bytes", np.array([0, 7, 1000], np.int64), values))
    return builder.build()


def _expected(timeline: Timeline) -> list[tuple[Any, ...]]:
    tids = thread_numbers(timeline)
    return sorted(
        (timeline.rows[row].rank, tids[row], int(start), int(length), timeline.names[name], int(node))
        for row, start, length, name, node in zip(
            timeline.row.tolist(),
            timeline.start_ns,
            timeline.duration_ns,
            timeline.name.tolist(),
            timeline.node,
            strict=True,
        )
    )


# ------------------------------------------------------------------------------------------------------- rows


@settings(max_examples=150, deadline=None)
@given(timeline=timelines())
def test_no_slice_overlaps_another_of_its_row_by_halves(timeline: Timeline) -> None:
    assert half_overlaps(timeline) == 0


def test_the_counter_of_half_overlaps_sees_them() -> None:
    builder = TimelineBuilder("x")
    row = builder.row(0, "r", 0, nests=False)
    for start, length in ((200, 100), (280, 70)):
        builder.slice(row, "s", "other", start, length)
    timeline = builder.build()
    assert [r.name for r in timeline.rows] == ["r", "r (2)"]
    assert half_overlaps(replace(timeline, row=np.zeros(2, np.int32))) == 1


def test_calls_nest_and_transfers_get_rows_of_their_own() -> None:
    for nests, rows in ((True, 1), (False, 2)):
        builder = TimelineBuilder("x")
        row = builder.row(0, "r", 0, nests=nests)
        builder.slice(row, "outer", "cpu", 0, 100)
        builder.slice(row, "inner", "cpu", 10, 20)
        assert len(builder.build().rows) == rows


def first_rows(slices: list[tuple[int, int, int, bool]]) -> list[int]:
    """The first row of its track in which each slice (track, start, end, nests) has room, by trying all."""
    placed: list[tuple[int, int, int, int]] = []
    rows: list[int] = []
    for track, start, end, nests in slices:
        row = 0
        while True:
            opened = [e for t, r, s, e in placed if t == track and r == row and s < e and e > start]
            if not opened or (nests and end <= min(opened)):
                break
            row += 1
        placed.append((track, row, start, end))
        rows.append(row)
    return rows


@pytest.mark.parametrize("seed", range(8))
def test_a_slice_has_the_first_row_with_room(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 150
    start, nests = rng.integers(0, 60, n), rng.integers(0, 2, n) > 0
    track = rng.integers(0, 3, n).astype(np.int32)
    length = rng.integers(0, [4, 40, 200][seed % 3], n)
    order = np.lexsort((-start - length, start, track)).tolist()
    found = assign_lanes(track, start, length, nests)
    slices = [(int(track[i]), int(start[i]), int(start[i] + length[i]), bool(nests[i])) for i in order]
    expected = first_rows(slices)
    assert max(expected) > 1
    assert found[order].tolist() == expected


def test_many_slices_may_be_open_at_once() -> None:
    """18,000 receives that wait: 1 s of plain Python, a minute where each tries all rows."""
    n = 18_000
    columns = np.zeros(n, np.int32), np.arange(n), np.full(n, n), np.zeros(n, np.bool_)
    begin = time.process_time()
    assert assign_lanes(*columns).tolist() == list(range(n))
    assert time.process_time() - begin < 20


def test_compiled_kernels_equal_plain_python() -> None:
    rng = np.random.default_rng(0)
    n = 3000
    track, start = np.sort(rng.integers(0, 5, n)), rng.integers(0, 2000, n)
    end = start + rng.integers(0, 60, n)
    order = np.lexsort((-end, start, track))
    columns = [np.ascontiguousarray(c[order]) for c in (track, start, end, rng.integers(0, 2, n))]
    columns.append(np.lexsort((columns[2], columns[0])))
    fast, slow = np.zeros(n, np.int32), np.zeros(n, np.int32)
    most = compiled("chakra.timeline._lanes_kernel").assign(*columns, fast)
    plain: Any = lanes_plain
    assert most == plain.assign(*columns, slow)
    assert np.array_equal(fast, slow)
    builder = TimelineBuilder("x")
    row = builder.row(0, "r", 0, nests=True)
    for i in range(n):
        builder.slice(row, f"s{i % 300}", "compute", int(start[i]), int(end[i] - start[i]), i)
    for i in range(0, n - 1, 7):
        builder.flow(i, i + 1)
    timeline = builder.build()
    from chakra.timeline import perfetto

    plain = b"".join(perfetto.perfetto_pieces(timeline))
    original = perfetto._PLAIN
    perfetto._PLAIN = 0  # type: ignore[misc]
    try:
        assert b"".join(perfetto.perfetto_pieces(timeline)) == plain
    finally:
        perfetto._PLAIN = original  # type: ignore[misc]
    assert perfetto_plain.varint_size(300) == 2


# ------------------------------------------------------------------------------------------------ files
# parsed


def _refuse(text: str) -> Any:
    raise AssertionError(f"not strict JSON: {text}")


@settings(max_examples=80, deadline=None)
@given(timeline=timelines())
def test_chrome_json_is_strict_and_holds_everything(
    timeline: Timeline, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("t") / "t.json"
    assert write_timeline(timeline, path) == path.stat().st_size
    document = json.loads(path.read_text("utf-8"), parse_constant=_refuse)
    events = document["traceEvents"]
    assert all(isinstance(event["args"], dict) for event in events)
    slices = sorted(
        (
            e["pid"],
            e["tid"],
            round(e["ts"] * 1000),
            round(e["dur"] * 1000),
            e["name"],
            e["args"].get("node", -1),
        )
        for e in events
        if e["ph"] == "X"
        and e["dur"] < 2**40  # a float of a microsecond keeps nanoseconds up to 2**53 ns only
    )
    assert slices == [s for s in _expected(timeline) if s[3] < 1000 * 2**40]
    starts = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    assert len(starts) == len(ends) == timeline.n_flows
    tids = thread_numbers(timeline)
    for number, (a, b) in enumerate(zip(timeline.flow_from.tolist(), timeline.flow_to.tolist(), strict=True)):
        for event, at in ((starts[number + 1], a), (ends[number + 1], b)):
            row = timeline.rows[timeline.row[at]]
            assert (event["pid"], event["tid"]) == (row.rank, tids[timeline.row[at]])
        leaves, arrives = (event[number + 1]["ts"] for event in (starts, ends))
        assert leaves <= arrives
        # a float of a microsecond keeps nanoseconds up to 2**53 ns only
        begins = int(timeline.start_ns[a])
        assert begins >= 2**50 or round(leaves * 1000) == begins
        assert arrives in (leaves, timeline.start_ns[b] / 1000)
    named = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert named == {(r.rank, tid): r.name for r, tid in zip(timeline.rows, tids, strict=True)}
    counted = [e for e in events if e["ph"] == "C"]
    assert len(counted) == sum(len(c.time_ns) for c in timeline.counters)


def _parse_perfetto(message: Any) -> tuple[list[tuple[Any, ...]], list[tuple[Any, Any]]]:
    """Slices (rank, tid, start, duration, name, node) and flows (from, to) as slices, as a viewer reads
    them."""
    names, threads = {}, {}
    stacks: dict[int, list[dict[str, Any]]] = defaultdict(list)
    slices, sources, targets = [], {}, {}
    for packet in message.packet:
        assert packet.trusted_packet_sequence_id == 1
        for entry in packet.interned_data.event_names:
            names[entry.iid] = entry.name
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            if track.HasField("thread"):
                rank = track.thread.pid - 1
                threads[track.uuid] = (rank, track.thread.tid - (rank + 1) * 1000)
        if not packet.HasField("track_event"):
            continue
        event = packet.track_event
        if event.type == 1:
            node = event.debug_annotations[0].uint_value if event.debug_annotations else -1
            piece = {
                "start": packet.timestamp,
                "name": names[event.name_iid],
                "node": node,
                "track": event.track_uuid,
            }
            stacks[event.track_uuid].append(piece)
            sources.update(dict.fromkeys(event.flow_ids, (piece,)))
        elif event.type == 2:
            piece = stacks[event.track_uuid].pop()
            row = (
                *threads[event.track_uuid],
                piece["start"],
                packet.timestamp - piece["start"],
                piece["name"],
                piece["node"],
            )
            piece["row"] = row
            slices.append(row)
            targets.update(dict.fromkeys(event.terminating_flow_ids, (piece,)))
    assert not any(stacks.values())
    assert sources.keys() == targets.keys()
    return sorted(slices), sorted((sources[k][0]["row"], targets[k][0]["row"]) for k in sources)


@settings(max_examples=80, deadline=None)
@given(timeline=timelines())
def test_perfetto_parses_back_with_perfettos_own_classes(
    timeline: Timeline, perfetto_trace: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("t") / "t.pftrace"
    size = write_timeline(timeline, path)
    assert size == path.stat().st_size
    message = perfetto_trace()
    message.ParseFromString(path.read_bytes())
    slices, flows = _parse_perfetto(message)
    expected = [(*s[:4], s[4].encode("utf-8", "replace").decode(), s[5]) for s in _expected(timeline)]
    assert slices == sorted(expected)
    tids = thread_numbers(timeline)

    def row(i: int) -> tuple[Any, ...]:
        r = timeline.rows[timeline.row[i]]
        name = timeline.names[timeline.name[i]].encode("utf-8", "replace").decode()
        where = (r.rank, tids[timeline.row[i]])
        return (*where, int(timeline.start_ns[i]), int(timeline.duration_ns[i]), name, int(timeline.node[i]))

    pairs = zip(timeline.flow_from.tolist(), timeline.flow_to.tolist(), strict=True)
    assert flows == sorted((row(a), row(b)) for a, b in pairs)


def big(n: int) -> Timeline:
    builder = TimelineBuilder("big")
    for rank in range(16):
        for stream in range(4):
            builder.row(rank, f"stream {stream}", stream, nests=False)
    at = np.arange(n)
    return replace(
        builder.build(),
        row=(at % 64).astype(np.int32),
        start_ns=(at // 64 * 1000).astype(np.int64),
        duration_ns=np.where(at % 10 == 0, 900, 90).astype(np.int64),
        name=(at % 50).astype(np.int32),
        names=tuple(f"kernel_{i}" for i in range(50)),
        category=np.ones(n, np.int32),
        node=at.astype(np.int64),
    )


@pytest.mark.parametrize("n", [50_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_a_filtered_run_has_about_the_size_that_was_estimated(
    n: int, tmp_path: Path, perfetto_trace: Any
) -> None:
    whole = big(n)
    small = filtered(whole, min_duration_ns=500, ranks={0, 3})
    size = write_timeline(small, tmp_path / "t.pftrace")
    assert 0.7 < size / estimated_bytes(small, "perfetto") < 1.3
    assert size < 8 * n
    assert small.n_slices == int(np.sum((np.arange(n) % 10 == 0) & np.isin(np.arange(n) % 64 // 4, (0, 3))))
    message = perfetto_trace()
    message.ParseFromString((tmp_path / "t.pftrace").read_bytes())
    assert len(_parse_perfetto(message)[0]) == small.n_slices
    size = write_timeline(small, tmp_path / "t.json")
    assert 0.7 < size / estimated_bytes(small, "json") < 1.3


# ---------------------------------------------------------------------------------------------------- filters


@settings(max_examples=60, deadline=None)
@given(timeline=timelines(), begin=st.integers(0, 40), length=st.integers(1, 40))
def test_filters_keep_what_they_say(timeline: Timeline, begin: int, length: int) -> None:
    assume(0 in timeline.ranks())  # a rank that is absent is refused
    small = filtered(timeline, window_ns=(begin, begin + length), ranks={0}, min_duration_ns=2)
    assert {row.rank for row in small.rows} <= {0}
    wanted = [
        i
        for i in range(timeline.n_slices)
        if timeline.rows[timeline.row[i]].rank == 0
        and timeline.duration_ns[i] >= 2
        and timeline.start_ns[i] < begin + length
        and timeline.start_ns[i] + timeline.duration_ns[i] > begin
    ]
    assert small.n_slices == len(wanted)
    assert small.n_flows == sum(
        a in wanted and b in wanted
        for a, b in zip(timeline.flow_from.tolist(), timeline.flow_to.tolist(), strict=True)
    )
    assert half_overlaps(small) == 0


def test_ranks_are_read_and_absent_ones_named() -> None:
    assert parse_ranks("0, 3,8-10") == {0, 3, 8, 9, 10}
    for text in ("", "a", "3-1", "1-2-3", "-1", "0-99999999"):
        with pytest.raises(UsageError, match="--ranks"):
            parse_ranks(text)
    with pytest.raises(UsageError, match="no rank 99"):
        filtered(big(100), ranks={99})


def test_suffixes(tmp_path: Path) -> None:
    write_timeline(big(10), tmp_path / "t.json.gz")
    assert json.loads(gzip.decompress((tmp_path / "t.json.gz").read_bytes()))["traceEvents"]
    with pytest.raises(UsageError, match=r"unknown suffix.*\.pftrace"):
        write_timeline(big(10), tmp_path / "t.txt")
    assert not (tmp_path / "t.txt").exists()
