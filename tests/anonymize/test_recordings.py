"""Recordings of PyTorch: the anonymous copies convert to the same execution traces, and leak nothing."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_leaks import SECRET, assert_clean

from chakra.anonymize import Labels, anonymize
from chakra.cli.main import run
from chakra.errors import ConversionError, UsageError
from chakra.et import read_trace

#: columns that a replay reads; names and groups are compared up to renaming
COLUMNS = (
    "types", "duration_ns", "duration_micros", "is_cpu_op", "comm_type", "comm_size", "comm_src", "comm_dst", "comm_tag",
    "stream", "tid", "data_offsets", "data_ids", "ctrl_offsets", "ctrl_ids", "ids",
)  # fmt: skip


def convert(folder: Path, out: Path, job: str | None = None) -> list[Path]:
    more = ["--job", job] if job else []
    assert run(["convert", "pytorch", "--dir", str(folder), "-o", str(out), *more]) == 0
    return sorted(out.parent.glob(f"{out.name}.*.et"))


@pytest.mark.shared
@pytest.mark.parametrize("job", ["gloo4", "h200_sync", "h200_graph", "ddp", "pp", "dlrm8"])
def test_recorded_jobs_convert_alike(tmp_path: Path, shared: Path, job: str) -> None:
    place = shared / "data" / ("h200" if job in ("ddp", "pp") else "pairs")
    folder = tmp_path / "in"
    folder.mkdir()
    for path in place.glob(f"{job}.*"):
        if path.name.endswith((".et.json.gz", ".kineto.json.gz")):
            (folder / path.name).symlink_to(path)
    if job == "dlrm8":
        for path in list(folder.iterdir()):
            if "rank0" not in path.name:
                path.unlink()
    assert run(["anonymize", str(folder), str(tmp_path / "out"), "-q"]) == 0
    before, after = convert(folder, tmp_path / "a"), convert(tmp_path / "out", tmp_path / "b")
    assert len(before) == len(after) > 0
    for one, two in zip(before, after, strict=True):
        first, second = read_trace(one), read_trace(two)
        for column in COLUMNS:
            assert np.array_equal(getattr(first, column), getattr(second, column)), column
        pairs = np.unique(np.stack([first.name_codes, second.name_codes]), axis=1)
        # classes may join names (vendors' calls of one meaning), but never split one
        assert len(np.unique(pairs[0])) == pairs.shape[1]
        assert np.array_equal(first.pg_codes, second.pg_codes)
    groups = [tmp_path / f"{name}.comm_groups.json" for name in "ab"]
    assert next(json.loads(path.read_text()) if path.exists() else None for path in groups) == (
        json.loads(groups[1].read_text()) if groups[1].exists() else None
    )


def plant(value: Any, key: str = "") -> Any:
    """The document with the secret in every text that is no word of the format."""
    if isinstance(value, dict):
        return {**{k: plant(v, k) for k, v in value.items()}, SECRET: SECRET}
    if isinstance(value, list):
        return [plant(item, key) for item in value]
    if isinstance(value, str) and key not in ("ph", "cat"):
        return value + SECRET
    return value


@pytest.mark.parametrize("schema", ["1.0.1", "1.1.1-chakra.0.0.4"])
def test_every_string_of_a_recording(tmp_path: Path, schema: str) -> None:
    tensor = [5, 6, 0, 16, 4, "cuda:0"]
    names = [
        "record_param_comms",
        "c10d::allreduce_",
        "nccl:all_reduce",
        "aten::mm",
        "## process_group:init ##",
    ]
    nodes: list[dict[str, Any]] = []
    for i, name in enumerate(names):
        node: dict[str, Any] = {"id": i + 2, "name": name}
        values = [tensor, ["tp", "desc"], 3, "allreduce", {SECRET: 1}]
        if name.startswith("##"):
            values = [json.dumps([{"pg_name": SECRET, "pg_desc": SECRET, "ranks": [0, 1], "x": SECRET}])]
        io = {"values": values, "shapes": [[4], SECRET], "types": ["Tensor(float)", "Object"]}
        if schema == "1.0.1":
            node |= {
                "parent": 1,
                "inputs": values,
                "input_shapes": [[4]],
                "input_types": ["String"],
                "outputs": values,
            }
            node |= {"op_schema": "x", "rf_id": i}
        else:
            attrs = (
                "op_schema",
                "kernel_file",
                "collective_name",
                "dtype",
                "pg_name",
                "in_split_size",
                "pg_desc",
            )
            node |= {"ctrl_deps": 1, "inputs": io, "outputs": io}
            node["attrs"] = [{"name": a, "type": "string", "value": "float"} for a in attrs]
        nodes.append(node)
    host = {"schema": schema, "pid": 1, "time": "now", "nodes": nodes}
    texts = (
        "Collective name",
        "dtype",
        "Process Group Name",
        "Process Group Ranks",
        "cuda_sync_kind",
        "Call stack",
    )
    events = [
        {
            "ph": "X", "cat": cat, "name": name, "pid": "p", "tid": 3, "ts": 10.25, "dur": 5,
            "args": {"External id": 4, "Input Dims": [[4], SECRET], "Input type": ["float"], **dict.fromkeys(texts, "x")},
        }
        for cat in ("cpu_op", "kernel", "cuda_runtime", "gpu_memcpy", "cuda_sync", "user_annotation", "python_function")
        for name in ("ncclDevKernel_AllReduce_", "nccl:all_reduce", "cudaLaunchKernel", "cudaStreamSynchronize",
                     "c10d::x", "q")
    ]  # fmt: skip
    config = [{"pg_name": "tp", "pg_desc": "d", "ranks": [0]}]
    info = {"backend": "nccl", "rank": 0, "world_size": 1, "pg_config": config}
    kineto = {"traceName": "x", "host_name": "h", "distributedInfo": info, "traceEvents": events}
    for name, document in (("host", host), ("kineto", kineto)):
        (tmp_path / f"{name}.json").write_text(json.dumps(plant(document)))
        assert (
            run(["anonymize", str(tmp_path / f"{name}.json"), str(tmp_path / f"{name}.out.json.gz"), "-q"])
            == 0
        )
        data = gzip.decompress((tmp_path / f"{name}.out.json.gz").read_bytes())
        assert_clean(data)
        assert len(json.loads(data)["nodes" if name == "host" else "traceEvents"]) == (
            5 if name == "host" else 36
        )


def test_dates_stay_home(tmp_path: Path) -> None:
    event = {
        "ph": "X",
        "cat": "cpu_op",
        "name": "a",
        "pid": 1,
        "tid": 1,
        "ts": -1,
        "dur": 1,
    }
    text = json.dumps({"traceEvents": [event]}).replace("-1", "1700000000000000.125")
    (tmp_path / "k.json").write_text(text)
    assert run(["anonymize", str(tmp_path / "k.json"), str(tmp_path / "o.json"), "-q"]) == 0
    assert "17000000000" not in (tmp_path / "o.json").read_text()
    assert json.loads((tmp_path / "o.json").read_text())["traceEvents"][0]["ts"] % 1 == 0.125


def recording(path: Path, times_us: list[int | float], base: object = None, pid: int = 1) -> None:
    """A Kineto trace of operators at these times."""
    event = {"ph": "X", "cat": "cpu_op", "name": "a", "pid": pid, "tid": pid, "dur": 1}
    document: dict[str, Any] = {"traceEvents": [{**event, "ts": time} for time in times_us]}
    path.write_text(json.dumps(document | ({} if base is None else {"baseTimeNanoseconds": base})))


def sums_ns(path: Path) -> list[int]:
    document = json.loads(path.read_text())
    base = document.get("baseTimeNanoseconds", 0)
    return [base + round(event["ts"] * 1000) for event in document["traceEvents"]]


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    times=st.lists(st.integers(1, 10**10), min_size=1, max_size=5),
    base=st.sampled_from([0, 1, 1_782_864_000_000_000_000, 1_782_864_000_000_000_123]),
    second=st.integers(-(10**12), 10**12),
    moved=st.integers(0, 10**9),
    later=st.integers(0, 10**9),
)
def test_times_move_as_sums(
    tmp_path: Path, times: list[int], base: int, second: int, moved: int, later: int
) -> None:
    """The copy keeps every distance, also between files, and says nothing of how much the sums moved.

    Times that lie in the base or in the events, or later by the same, make the same bytes.
    """
    if base == 0:
        times = [1_789_634_533_000_000 + time for time in times]
    texts = []
    for number, (more_base, more) in enumerate(
        [(0, 0), (-moved * 1000 if base > 1 else 0, moved if base > 1 else 0), (0, later)]
    ):
        labels = Labels()
        for name, apart in (("a", 0), ("b", abs(second))):
            recording(tmp_path / name, [time + more + apart for time in times], base + more_base or None)
            anonymize(str(tmp_path / name), str(tmp_path / f"{name}.{number}"), labels=labels)
        out = [sum_ns for name in "ab" for sum_ns in sums_ns(tmp_path / f"{name}.{number}")]
        before = [sum_ns for name in "ab" for sum_ns in sums_ns(tmp_path / name)]
        assert [a - b for a, b in zip(out, before, strict=True)] == [out[0] - before[0]] * len(out)
        texts.append([(tmp_path / f"{name}.{number}").read_bytes() for name in "ab"])
    assert texts[0] == texts[1] == texts[2]


@pytest.mark.parametrize("base", [None, 0, 5, "1782864000000000000", 1_782_864_000_000_000_000])
def test_no_time_of_a_recording_stays(tmp_path: Path, base: object) -> None:
    """An offset to Kineto's base, which is the same for months, tells the day as well as a date."""
    offset = 0 if isinstance(base, str) or (base or 0) > 5 else 1_782_864_000_000_000  # type: ignore[operator]
    recording(
        tmp_path / "in.json", [offset + 6_770_533_000_000, offset + 6_770_533_000_007], base, pid=48_213
    )
    anonymize(str(tmp_path / "in.json"), str(tmp_path / "out.json"))
    text = (tmp_path / "out.json").read_text()
    assert "6770533" not in text
    assert "178286" not in text
    assert "48213" not in text
    first, last = sums_ns(tmp_path / "out.json")
    assert last - first == 7000


def test_a_clock_that_nobody_read_stays_at_zero(tmp_path: Path) -> None:
    recording(tmp_path / "in.json", [0, 1_789_634_533_000_000, 1_789_634_533_000_005])
    anonymize(str(tmp_path / "in.json"), str(tmp_path / "out.json"))
    assert sums_ns(tmp_path / "out.json") == [0, 10**18, 10**18 + 5000]


def test_times_that_tell_each_other_are_refused(tmp_path: Path) -> None:
    """A time whose date is known gives away all that are a known distance from it."""
    recording(tmp_path / "one.json", [5, 1_789_634_533_000_000])
    with pytest.raises(ConversionError, match=r"one\.json: its times are more than 15 months apart"):
        anonymize(str(tmp_path / "one.json"), str(tmp_path / "out.json"))
    labels = Labels()
    recording(tmp_path / "a.json", [946_684_800_000_000])
    recording(tmp_path / "b.json", [1_789_634_533_000_000])
    anonymize(str(tmp_path / "a.json"), str(tmp_path / "out.json"), labels=labels)
    with pytest.raises(UsageError, match="15 months"):
        anonymize(str(tmp_path / "b.json"), str(tmp_path / "out2.json"), labels=labels)
    assert not (tmp_path / "out2.json").exists()


@pytest.mark.parametrize(
    "text",
    [
        '{"traceEvents": [{"ph": "X", "cat": "kernel", "ts": 1, "args": {"Rank": 1' + "0" * 4000 + "}}]}",
        '{"nodes": [{"id": 1'
        + "0" * 4000
        + ', "name": "record_param_comms", "inputs": ["'
        + "9" * 5000
        + 'x"]}]}',
        '{"a": {"nodes": [1]}}',
        '{"nodes": [{"name": 3, "attrs": 7, "inputs": 5}, 4, {"inputs": {"values": {"a": 1}}}]',
        '{"traceEvents": [{"ph": "X", "cat": "kernel", "ts": 1}], "distributedInfo": {"pg_config": 7}}',
        '{"traceEvents": [{"ph": "X", "cat": "kernel", "ts": 1e999999999999999999}]}',
        '{"nodes": ' + "[" * 5000 + "]" * 5000 + "}",
    ],
)
def test_hostile_recordings_are_refused_in_one_line(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.json").write_text(text)
    assert run(["anonymize", str(tmp_path / "x.json"), str(tmp_path / "y.json")]) in (0, 2)
    assert capsys.readouterr().err.count("\n") <= 1
    assert {path.name for path in tmp_path.iterdir()} <= {"x.json", "y.json"}
