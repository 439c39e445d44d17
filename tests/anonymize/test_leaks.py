"""Nothing of a secret planted in every string-bearing place appears in any output byte."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from leaks import traces_of

from chakra.anonymize import Labels, anonymize, anonymous_trace
from chakra.cli.main import run
from chakra.errors import UsageError
from chakra.et import read_trace
from chakra.et.read import decode_trace
from chakra.schemas import et_def_pb2 as pb2
from chakra.schemas.protolib import encode_varint

SECRET = "falconQ7x"


LEAKS = tuple(traces_of(SECRET))


def assert_clean(data: bytes) -> None:
    if data.startswith(b"\x1f\x8b"):
        data = gzip.decompress(data)
    found = [leak for leak in LEAKS if leak in data]
    assert not found


def record(message: Any) -> bytes:
    data = message if isinstance(message, bytes) else message.SerializeToString()
    return encode_varint(len(data)) + data


def field(number: int, data: bytes) -> bytes:
    """A length-delimited protobuf field, for fields that the schema does not have."""
    return encode_varint(number << 3 | 2) + encode_varint(len(data)) + data


def hostile_trace(version: str = SECRET, schema: str = SECRET) -> bytes:
    """A trace with the secret in every string and bytes member of every message, and in unknown fields."""
    extra = field(77, SECRET.encode())
    head = pb2.GlobalMetadata(version=version)
    head.attr.add(name="schema", string_val=schema, doc_string=SECRET)
    head.attr.add(name="peer_mode", string_val=SECRET)
    head.attr.add(name="rank", int64_val=3, doc_string=SECRET)
    head.attr.add(name="input_file", string_val=SECRET)
    out = record(head.SerializeToString() + extra)
    for number in range(8):
        node = pb2.Node(
            id=number, name=f"{SECRET}.{number}", type=pb2.NodeType.Name(number), duration_micros=5
        )
        for side in (node.inputs, node.outputs):
            side.values, side.shapes, side.types = (f"['{SECRET}{part}']" for part in "abc")
        if number == 1:
            groups = [
                {"pg_name": f"{SECRET}-tp", "pg_desc": SECRET, "backend_config": SECRET, "ranks": [0, 1]}
            ]
            node.inputs.values = f"['{json.dumps(groups)}']"
        for name in ("op_schema", "kernel_file", "tensor_loc", "doc", SECRET):
            node.attr.add(name=name, string_val=SECRET, doc_string=SECRET)
        node.attr.add(name="raw", bytes_val=SECRET.encode())
        node.attr.add(name="list").string_list.values.extend([SECRET])
        node.attr.add(name="blobs").bytes_list.values.extend([SECRET.encode()])
        node.attr.add(name="codes").int32_list.values.extend(SECRET.encode())
        for name in ("inputs", "outputs"):
            node.attr.add(name=name).string_list.values.extend([SECRET, "64", f"{SECRET}.2", SECRET, SECRET])
        node.attr.add(name="is_cpu_op", bool_val=False, doc_string=SECRET)
        node.attr.add(name="comm_size", int64_val=64, doc_string=SECRET)
        node.attr.add(name="comm_type", int64_val=0)
        node.attr.add(name="pg_name", string_val=f"{SECRET}-tp", doc_string=SECRET)
        node.attr.add(name="involved_dim", doc_string=SECRET).bool_list.values.extend([True])
        hidden = field(10, pb2.AttributeProto(name="num_ops", int64_val=9).SerializeToString() + extra)
        out += record(node.SerializeToString() + hidden + extra)
    return out


@pytest.mark.parametrize("schema", ["1.0.1", "1.0.2-chakra.0.0.4", "1.1.1-chakra.0.0.4", SECRET])
@pytest.mark.parametrize("keyed", [False, True])
def test_every_string_of_a_trace(tmp_path: Path, schema: str, keyed: bool) -> None:
    raw = hostile_trace("0.0.4" if schema != SECRET else SECRET, schema)
    (tmp_path / "job.0.et").write_bytes(raw)
    (tmp_path / "job.1.et.gz").write_bytes(gzip.compress(raw))
    (tmp_path / "job.comm_groups.json").write_text(json.dumps({f"{SECRET}-tp": [0, 1]}))
    (tmp_path / "key").write_text("k" * 20)
    assert SECRET.encode() in raw
    out = tmp_path / "out"
    out.mkdir()
    more = ["--key", str(tmp_path / "key")] if keyed else []
    assert run(["anonymize", str(tmp_path / "job"), str(out / "w"), *more]) == 0
    assert sorted(p.name for p in out.iterdir()) == ["w.0.et", "w.1.et.gz", "w.comm_groups.json"]
    for path in out.iterdir():
        assert_clean(path.read_bytes())
    trace = read_trace(out / "w.0.et")
    assert trace.n_nodes == 8
    assert trace.rank == 3
    assert (trace.num_ops == 9).all()
    assert [trace.node(2).attrs[k] for k in ("comm_size", "involved_dim")] == [64, (True,)]
    name = trace.node(7).attrs["pg_name"]
    assert isinstance(name, str)
    assert json.loads((out / "w.comm_groups.json").read_text()) == {name: [0, 1]}
    assert name in trace.node_proto(1).inputs.values
    inputs = trace.node(4).attrs["inputs"]
    assert isinstance(inputs, tuple)
    assert inputs[1] == "64"


def test_json_encoded_trace(tmp_path: Path) -> None:
    node = {
        "Id": 1,
        "Name": SECRET,
        "NodeType": 4,
        "is_cpu_op": False,
        "data_deps": [],
        "runtime": 7,
        SECRET: SECRET,
    }
    document = {"workload_name": SECRET, "soc": SECRET, "workload_graph": [node]}
    (tmp_path / "a.json").write_text(json.dumps(document))
    assert run(["anonymize", str(tmp_path / "a.json"), str(tmp_path / "a.et")]) == 0
    assert_clean((tmp_path / "a.et").read_bytes())
    assert read_trace(tmp_path / "a.et").duration_micros.tolist() == [7]


def test_manifest(tmp_path: Path) -> None:
    (tmp_path / f"{SECRET}.et").write_bytes(hostile_trace())
    manifest = {
        "format": "chakra.workload/1",
        "npus": 2,
        "peer_mode": "relative",
        "traces": [f"{SECRET}.et"],
        "trace_of": [{"trace": 0, "ranks": [0, 1], "why": SECRET}],
        "groups": {f"{SECRET}-tp": {"ranks": [[0, 1]], "note": SECRET}},
        "about": {"model": SECRET},
        SECRET: SECRET,
    }
    (tmp_path / "job.workload.json").write_text(json.dumps(manifest))
    (tmp_path / "mem.json").write_text(json.dumps({"memory-type": "NO_MEMORY_EXPANSION"}))
    out = tmp_path / "out"
    out.mkdir()
    arguments = [str(tmp_path / "job"), str(out / "w"), "-m", str(tmp_path / "mem.json")]
    assert run(["anonymize", *arguments]) == 0
    assert sorted(p.name for p in out.iterdir()) == ["w.class0.et", "w.memory.json", "w.workload.json"]
    for path in out.iterdir():
        assert_clean(path.read_bytes())
    assert json.loads((out / "w.workload.json").read_text())["peer_mode"] == "relative"


def test_file_times_and_start_of_recording_stay_home(tmp_path: Path) -> None:
    """gzip's name and time, and absolute start times, say when and where a job ran."""
    nodes = [
        pb2.Node(id=i, type="COMP_NODE", start_time_micros=1_700_000_000_000_000 + 10 * i) for i in range(3)
    ]
    (tmp_path / "a.et").write_bytes(b"".join(map(record, [pb2.GlobalMetadata(version="1.0.0"), *nodes])))
    assert run(["anonymize", str(tmp_path / "a.et"), str(tmp_path / f"{SECRET}.et.gz")]) == 0
    packed = (tmp_path / f"{SECRET}.et.gz").read_bytes()
    assert packed[4:8] == b"\0" * 4
    assert SECRET.encode() not in packed
    assert read_trace(tmp_path / f"{SECRET}.et.gz").start_micros.tolist() == [0, 10, 20]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.text(min_size=4, max_size=12).filter(lambda t: t.encode("utf-8", "ignore").decode() == t),
        max_size=6,
    )
)
def test_no_name_of_four_letters_survives(names: list[str]) -> None:
    names = [f"\u00a7{name}" for name in names]
    data = record(pb2.GlobalMetadata(version="1.0.0"))
    data += b"".join(record(pb2.Node(id=i, name=name, type="COMP_NODE")) for i, name in enumerate(names))
    import numpy as np

    out = anonymous_trace(decode_trace(np.frombuffer(data, np.uint8), "x"), Labels())
    for name in names:
        assert name.encode() not in out


def test_classes() -> None:
    first, again = Labels(), Labels()
    texts = ["b", "a", "b", "model.addmm", "c", "ncclDevKernel_AllReduce_x"]
    assert [first.node(t) for t in texts] == [again.node(t) for t in texts]
    assert [first.node(t) for t in texts] == ["node0", "node1", "node0", "gemm0", "node2", "collective0"]
    assert Labels(kinds=False).node("addmm") == "node0"
    one, other, later = (Labels(bytes([k]) * 16) for k in (1, 2, 1))
    assert one.node("a") == later.node("a") != other.node("a")
    assert one.label("tensor", "a").split("-")[1] != one.node("a").split("-")[1]
    with pytest.raises(UsageError, match="at least 16"):
        Labels(b"short")


@pytest.mark.parametrize("name", ["", "0", "7", "007", "-3", "12tp", " 5x", "+4", "tp", "0x"])
def test_group_names_keep_their_number(name: str) -> None:
    from chakra.replay.workload.bindings import group_name

    shown = Labels().group(name)
    assert group_name(shown, astra=True) == (
        group_name(name, astra=True) if any(c.isdigit() for c in name) else shown
    )
    assert "tp" not in shown
    assert "x" not in shown


def test_same_classes_with_a_key_in_every_call(tmp_path: Path) -> None:
    for number, names in enumerate((["x", "y"], ["y", "z", "x"])):
        nodes = [pb2.Node(id=i, type="COMP_NODE", name=name) for i, name in enumerate(names)]
        (tmp_path / f"{number}.et").write_bytes(
            b"".join(map(record, [pb2.GlobalMetadata(version="1.0.0"), *nodes]))
        )
        anonymize(str(tmp_path / f"{number}.et"), str(tmp_path / f"{number}.out"), labels=Labels(b"k" * 16))
    first, second = (read_trace(tmp_path / f"{k}.out").name_table for k in (0, 1))
    assert first == (second[2], second[0])


def test_all_or_nothing(tmp_path: Path) -> None:
    good = hostile_trace()
    (tmp_path / "j.0.et").write_bytes(good)
    (tmp_path / "j.1.et").write_bytes(good[:-9])
    assert run(["anonymize", str(tmp_path / "j"), str(tmp_path / "o")]) == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ["j.0.et", "j.1.et"]
    (tmp_path / "j.1.et").unlink()
    assert run(["anonymize", str(tmp_path / "j"), str(tmp_path / "j"), "--in-place"]) == 0
    assert_clean((tmp_path / "j.0.et").read_bytes())


def test_summary_lists_what_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "j.et").write_bytes(hostile_trace())
    arguments = ["anonymize", str(tmp_path / "j.et"), str(tmp_path / "o.et")]
    assert run([*arguments, "--format", "json"]) == 0
    streams = capsys.readouterr()
    document = json.loads(streams.out)
    assert document["schema"] == "chakra.anonymize/1"
    assert document["classes"]["node"] == 8
    assert "comm_size" in document["kept"]["attributes"]
    assert not streams.err
    assert run([*arguments, "-q"]) == 0
    assert capsys.readouterr() == ("", "")
