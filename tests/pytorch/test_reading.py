"""Reading of profiler files: pieces, repairs, exact times, and the names of wrong files."""

import gzip
import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mini_job import MiniJob

from chakra.converters.pytorch.read.decimals import BAD_TIME, nanoseconds
from chakra.converters.pytorch.read.device import read_device_trace
from chakra.converters.pytorch.read.file_kinds import kind_of
from chakra.converters.pytorch.read.first_bytes import FileKind
from chakra.converters.pytorch.read.host import read_host_trace
from chakra.converters.pytorch.read.jsonarray import ArrayReader, repair_bytes
from chakra.converters.pytorch.read.times import untimed_text
from chakra.errors import ConversionError


class Item(msgspec.Struct):
    """Element of the test array."""

    a: Any = None
    b: Any = None


def _read(path: Path, piece: int = 200, *, repair: bool = False) -> tuple[list[Item], ArrayReader[Item]]:
    reader = ArrayReader(path, "items", Item, repair=repair, piece=piece)
    return [item for part in reader for item in part], reader


_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.lists(st.fixed_dictionaries({"a": _values, "b": _values}), max_size=40),
    st.sampled_from([None, 1, 2]),
    st.booleans(),
)
def test_pieces_hold_what_the_whole_file_holds(
    tmp_path_factory: pytest.TempPathFactory, items: list[dict[str, Any]], indent: int | None, packed: bool
) -> None:
    """Cutting at boundaries loses and changes nothing, whatever strings and nesting the elements have."""
    path = tmp_path_factory.mktemp("pieces") / "x.json"
    text = json.dumps({"before": 1, "items": items, "after": {"x": [1]}}, indent=indent).encode()
    path.write_bytes(gzip.compress(text) if packed else text)
    found, reader = _read(path)
    assert [{"a": i.a, "b": i.b} for i in found] == items
    assert reader.header == {"before": 1, "after": {"x": [1]}}
    assert reader.repaired == reader.lost_bytes == 0


def test_a_bare_array_is_read(tmp_path: Path) -> None:
    """Some tools write the events without an object around them."""
    path = tmp_path / "x.json"
    path.write_text(json.dumps([{"a": i} for i in range(50)]))
    assert [i.a for i in _read(path)[0]] == list(range(50))


def test_a_truncated_file_is_refused_with_an_offset_and_repaired_on_request(tmp_path: Path) -> None:
    """The offset names the end of the last whole element; --repair keeps everything up to it."""
    whole = json.dumps({"items": [{"a": i, "b": "x" * 20} for i in range(100)]}, indent=1)
    for cut in (len(whole) - 3, len(whole) - 40, 700, 60):
        path = tmp_path / f"cut{cut}.json"
        path.write_text(whole[:cut])
        with pytest.raises(ConversionError, match=r"broken after byte \d+.*--repair"):
            _read(path)
        found, reader = _read(path, repair=True)
        assert [i.a for i in found] == list(range(len(found)))
        assert reader.lost_bytes > 0
    assert len(_read(tmp_path / f"cut{len(whole) - 40}.json", repair=True)[0]) == 99


def test_a_cut_gzip_stream_yields_what_is_in_front_of_the_cut(tmp_path: Path) -> None:
    """gzip has no index: everything before the damage is still there."""
    text = json.dumps({"items": [{"a": i, "b": str(i * 7919)} for i in range(3000)]}, indent=1).encode()
    path = tmp_path / "x.json.gz"
    path.write_bytes(gzip.compress(text)[:-2000])
    with pytest.raises(ConversionError, match="gzip stream is cut off"):
        _read(path)
    assert len(_read(path, repair=True)[0]) > 500


@pytest.mark.parametrize("packed", [False, True])
def test_two_documents_in_one_file_are_refused(tmp_path: Path, packed: bool) -> None:
    """Concatenated traces are named; --repair reads the first."""
    text = json.dumps({"items": [{"a": 1}, {"a": 2}]}).encode()
    path = tmp_path / "x.json"
    path.write_bytes(gzip.compress(text) * 2 if packed else text * 2)
    with pytest.raises(ConversionError, match=rf"byte {len(text)}: a second JSON document begins"):
        _read(path)
    assert [i.a for i in _read(path, repair=True)[0]] == [1, 2]


def test_odd_bytes_are_repaired_and_counted(tmp_path: Path) -> None:
    """Invalid UTF-8, control characters, unknown escapes and NaN have a clear meaning."""
    path = tmp_path / "x.json"
    path.write_bytes(
        b'{"items": [{"a": "x\xff\x01y"}, {"a": "c:\\dir"}, {"a": NaN, "b": -Infinity}, {"a": 5}]}'
    )
    found, reader = _read(path)
    assert found[0].a == "x? y"
    assert found[1].a == "c:\\dir"
    assert found[2].a is None
    assert found[3].a == 5
    assert reader.repaired == 5


def test_a_line_break_inside_a_string_becomes_a_blank() -> None:
    """A raw newline in a kernel's name would end the string."""
    fixed, count = repair_bytes(b'{"a": "one\ntwo"}')
    assert json.loads(fixed) == {"a": "one two"}
    assert count == 1


@given(
    st.lists(
        st.decimals(min_value=0, max_value=Decimal("9e15"), places=3, allow_nan=False, allow_infinity=False)
        | st.integers(0, 9 * 10**15).map(Decimal),
        min_size=1,
        max_size=20,
    )
)
def test_times_are_exact_nanoseconds(values: list[Decimal]) -> None:
    """Digits are read as digits: no double in between."""
    assert nanoseconds([f"{v:f}".encode() for v in values]).tolist() == [int(v * 1000) for v in values]


def test_times_of_every_form_are_read() -> None:
    """Negative, exponents, quoted; what is no number is marked."""
    texts = [b"-1.5", b"1e3", b'"12.25"', b"1782000000000000.125", b"", b"abc", b"0.0005"]
    assert nanoseconds(texts).tolist() == [-1500, 1000000, 12250, 1782000000000000125, BAD_TIME, BAD_TIME, 1]


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"", FileKind.EMPTY),
        (b"hello world", FileKind.TEXT),
        (b"\x04\x12\x02\x00\x00", FileKind.BINARY),
        (b'{"traceEvents": []}', FileKind.DEVICE),
        (b'[{"ph": "X"}]', FileKind.DEVICE),
        (
            b'{"otherData": {"writer": "chakra timeline", "source": "x"}, "traceEvents": []}',
            FileKind.TIMELINE,
        ),
        (b'{"displayTimeUnit": "ns",\n"otherData": {"source": "x"}, "traceEvents": []}', FileKind.TIMELINE),
        (b'{"displayTimeUnit": "ns", "traceEvents": []}', FileKind.DEVICE),
        (b'{"otherData": {"writer": "us"}, "traceEvents": []}', FileKind.DEVICE),
        (b'{"schema": "1", "nodes": [{"id": 1}]}', FileKind.HOST),
        (b'{"schema": "1", "nodes": [{"id": 1, "exclusive_dur": 1}]}', FileKind.LINKED),
        (b'{"workload_graph": []}', FileKind.JSON_ET),
        (b'{"a": 1}', FileKind.OTHER_JSON),
    ],
)
def test_files_are_told_apart_by_content(tmp_path: Path, content: bytes, kind: FileKind) -> None:
    """The name of a file means nothing."""
    path = tmp_path / "trace.json"
    path.write_bytes(content)
    assert kind_of(path) is kind


def test_a_swapped_pair_is_named(job: MiniJob, tmp_path: Path) -> None:
    """The commonest mistake: the Kineto file given as host trace."""
    job.op("aten::add", 0, 10)
    host, device = job.write(tmp_path)
    with pytest.raises(ConversionError, match="this is a Kineto trace"):
        read_host_trace(device)
    with pytest.raises(ConversionError, match="this is a PyTorch host trace"):
        read_device_trace(host)


def test_events_of_every_layout_are_read(tmp_path: Path) -> None:
    """Old categories, text pids, missing or odd args, unknown phases: nothing stops the reader."""
    events = [
        {"ph": "X", "cat": "Operator", "name": "a", "pid": "p", "tid": "t", "ts": 5, "dur": 2},
        {
            "ph": "X",
            "cat": "Runtime",
            "name": "cudaLaunchKernel",
            "pid": 1,
            "tid": 1,
            "ts": 6,
            "dur": 1,
            "args": [],
        },
        {
            "ph": "X",
            "cat": "Kernel",
            "name": "k",
            "pid": 0,
            "tid": 7,
            "ts": 7,
            "dur": 1,
            "args": {"correlation": "9"},
        },
        {
            "ph": "X",
            "cat": "Memcpy",
            "name": "m",
            "pid": 0,
            "tid": 7,
            "ts": 9,
            "dur": 1,
            "args": {"stream": 20},
        },
        {"ph": "X", "cat": "python_function", "name": "f", "ts": 1, "dur": 1},
        {"ph": "X", "cat": "kernel", "name": "no time"},
        {"ph": "s", "cat": "ac2g", "id": 1},
        {"ph": "M", "name": "process_name"},
    ]
    path = tmp_path / "x.json"
    path.write_text(json.dumps(events))
    trace = read_device_trace(path)
    assert (len(trace.ops.name), len(trace.calls.name), len(trace.device.name)) == (1, 1, 2)
    assert trace.device.correlation.tolist() == [9, 0]
    assert trace.device.stream.tolist() == [7, 20]
    assert trace.threads[0] == ("p", "t")
    assert trace.dropped == {"python_function": 1, "phase s": 1, "phase M": 1, "bad time": 1}


def test_an_empty_trace_is_an_error_not_an_empty_success(tmp_path: Path) -> None:
    """No operator, call or device event: nothing can be linked."""
    path = tmp_path / "x.json"
    path.write_text('{"traceEvents": [{"ph": "M", "name": "x"}]}')
    with pytest.raises(ConversionError, match="no operator, runtime or device event among 1 event"):
        read_device_trace(path)


def test_host_layouts_are_told_apart_by_keys(tmp_path: Path) -> None:
    """Flat nodes of 1.0.1 and nodes with attrs give the same columns; an unknown version is a warning."""
    flat = {
        "name": "aten::add", "id": 5, "rf_id": 3, "parent": 2, "fw_parent": 0, "seq_id": 8, "scope": 0, "tid": 1,
        "fw_tid": 0, "op_schema": "s", "inputs": [[1, 2, 0, 4, 4, "cpu"]], "input_shapes": [[4]],
        "input_types": ["Tensor(float)"], "outputs": [], "output_shapes": [], "output_types": [],
    }  # fmt: skip
    new = {
        "id": 5, "name": "aten::add", "ctrl_deps": 2,
        "inputs": {"values": flat["inputs"], "shapes": [[4]], "types": ["Tensor(float)"]},
        "outputs": {"values": [], "shapes": [], "types": []},
        "attrs": [{"name": k, "type": "x", "value": flat[k]} for k in ("rf_id", "seq_id", "tid", "scope", "op_schema")],
    }  # fmt: skip
    traces = []
    for i, (node, schema) in enumerate(((flat, "1.0.1"), (new, "1.2.0-chakra.9.9.9"))):
        path = tmp_path / f"{i}.json"
        path.write_text(json.dumps({"schema": schema, "nodes": [node]}))
        traces.append(read_host_trace(path))
    for trace in traces:
        assert trace.nodes.rf_id.tolist() == [3]
        assert trace.nodes.parent.tolist() == [2]
        assert trace.nodes.seq_id.tolist() == [8]
        assert trace.names.texts[int(trace.nodes.schema[0])] == "s"
        assert json.loads(trace.texts(trace.nodes.inputs)[0][0]) == [[1, 2, 0, 4, 4, "cpu"]]
    assert traces[0].warnings == []
    assert "1.2.0-chakra.9.9.9" in traces[1].warnings[0]


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([{"id": 4, "name": "a"}, {"id": 4, "name": "b"}], "node id 4 appears more than once"),
        ([{"name": "a"}], "1 node has no id"),
        ([], "no nodes"),
    ],
)
def test_broken_ids_are_refused(tmp_path: Path, nodes: list[dict[str, Any]], message: str) -> None:
    """Ids are what everything hangs on."""
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"schema": "1.1.1-chakra.0.0.4", "nodes": nodes}))
    with pytest.raises(ConversionError, match=message):
        read_host_trace(path)


def test_sub_microsecond_durations_survive(tmp_path: Path) -> None:
    """Issue: kernels shorter than a microsecond became 0."""
    path = tmp_path / "x.json"
    path.write_text(
        '{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": 1782000000000000.125, "dur": 0.2, "pid": 0, '
        '"tid": 7, "args": {"stream": 7}}, {"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, '
        '"ts": 1782000000000000, "dur": 1}]}'
    )
    trace = read_device_trace(path)
    assert (trace.device.start[0], trace.device.end[0]) == (125, 325)
    assert math.isclose(trace.resolution_ns, 250)


@pytest.mark.parametrize(
    ("events", "text"),
    [
        (1, "a.json: 1 event without a usable time was left out"),
        (2, "a.json: 2 events without a usable time were left out"),
    ],
)
def test_events_without_a_time_are_counted_in_words(events: int, text: str) -> None:
    assert untimed_text("a.json", events) == text
