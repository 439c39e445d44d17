"""Reading: every variant that a reader must take, and one line for everything that it must not."""

import gzip
import io
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from chakra.errors import TraceError, UsageError
from chakra.et import ABSENT, NodeType, Trace, TraceColumns, read_trace, read_traces, write_trace
from chakra.et.columns import StringPool
from chakra.schemas.et_def_pb2 import AttributeProto, GlobalMetadata, Node
from chakra.schemas.protolib import encode_message, encode_varint

INTEGER_MEMBERS = (
    *("int32_val", "int64_val", "uint32_val", "uint64_val", "sint32_val", "sint64_val"),
    *("fixed32_val", "fixed64_val", "sfixed32_val", "sfixed64_val"),
)


def write(path: Path, *nodes: Node, metadata: GlobalMetadata | None = None) -> Path:
    with open(path, "wb") as file:
        encode_message(file, metadata or GlobalMetadata(version="1.0.0"))
        for node in nodes:
            encode_message(file, node)
    return path


def comp(node_id: int, *data: int, ctrl: tuple[int, ...] = (), **attrs: Any) -> Node:
    node = Node(id=node_id, name=f"n{node_id}", type=NodeType.COMP, data_deps=data, ctrl_deps=ctrl)  # type: ignore[arg-type]
    node.attr.extend(AttributeProto(name=name, **dict([value])) for name, value in attrs.items())
    return node


def refusal(path: Path, **options: bool) -> str:
    with pytest.raises(TraceError) as caught:
        read_trace(path, **options)
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith(f"{path}: ")
    return text.removeprefix(f"{path}: ")


# ------------------------------------------------------------------------------------------------ variants


def test_plain_and_gzip_are_told_apart_by_content(tmp_path: Path) -> None:
    plain = write(tmp_path / "a.et.gz", comp(0), comp(1, 0))
    packed = tmp_path / "b.et"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    two_members = tmp_path / "c.et"
    data = plain.read_bytes()
    two_members.write_bytes(gzip.compress(data[:5]) + gzip.compress(data[5:]))
    hashes = {read_trace(path).content_hash for path in (plain, packed, two_members)}
    assert len(hashes) == 1


@pytest.mark.parametrize("version", ["1.0.0", "0.0.4", ""])
def test_every_version_text_is_taken(tmp_path: Path, version: str) -> None:
    metadata = GlobalMetadata(version=version)
    metadata.attr.add(name="schema", string_val="1.0.2-chakra.0.0.4")
    trace = read_trace(write(tmp_path / "a.et", comp(216), metadata=metadata))
    assert trace.metadata == metadata
    assert trace.node(0).id == 216


def test_empty_metadata_record_and_empty_node_record(tmp_path: Path) -> None:
    path = tmp_path / "a.et"
    node = comp(7).SerializeToString()
    path.write_bytes(b"\0" + b"\0" + encode_varint(len(node)) + node)
    trace = read_trace(path)
    assert trace.ids.tolist() == [0, 7]
    assert [view.type for view in trace.nodes()] == [NodeType.INVALID, NodeType.COMP]


def test_no_nodes_at_all(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path / "a.et"))
    assert trace.n_nodes == 0
    assert trace.topological_order().tolist() == []
    assert [len(part) for part in trace.children()] == [1, 0]
    assert trace.name_table == ()


@pytest.mark.parametrize("member", INTEGER_MEMBERS)
@pytest.mark.parametrize("name", ["comm_size", "comm_priority", "tensor_size", "duration_ns"])
def test_integers_of_any_kind_mean_the_same(tmp_path: Path, member: str, name: str) -> None:
    attribute: dict[str, Any] = {name: (member, 1048576)}
    trace = read_trace(write(tmp_path / "a.et", comp(1, **attribute), comp(2)))
    assert getattr(trace, name).tolist() == [1048576, ABSENT]
    assert trace.attr(0, name) == 1048576


@pytest.mark.parametrize("member", [*INTEGER_MEMBERS, "bool_val"])
def test_is_cpu_op_is_a_bool_or_an_integer(tmp_path: Path, member: str) -> None:
    nodes = [comp(1, is_cpu_op=(member, 0)), comp(2, is_cpu_op=(member, 1)), comp(3)]
    assert read_trace(write(tmp_path / "a.et", *nodes)).is_cpu_op.tolist() == [0, 1, -1]


def test_comm_group_of_older_files_is_a_group_name(tmp_path: Path) -> None:
    nodes = [
        comp(1, comm_group=("int32_val", 7)),
        comp(2, pg_name=("string_val", "7"), comm_group=("int32_val", 9)),
        comp(3, pg_name=("string_val", "")),
        comp(4),
    ]
    trace = read_trace(write(tmp_path / "a.et", *nodes))
    named = [trace.pg_table[code] if code >= 0 else None for code in trace.pg_codes]
    assert named == ["7", "7", "", None]


def test_involved_dim(tmp_path: Path) -> None:
    node, other = comp(1), comp(2)
    node.attr.add(name="involved_dim").bool_list.values.extend([True, False, True])
    other.attr.add(name="involved_dim").bool_list.SetInParent()
    trace = read_trace(write(tmp_path / "a.et", node, other, comp(3)))
    assert [trace.dim_table[code] if code >= 0 else None for code in trace.dim_codes] == [
        (True, False, True),
        (),
        None,
    ]


@pytest.mark.parametrize("member", ["int64_list", "uint32_list", "sint64_list", "fixed32_list"])
def test_split_sizes(tmp_path: Path, member: str) -> None:
    """Lists of bytes per member are columns of the nodes that have them, equal ones once, whatever their kind."""
    both, out, none = comp(1), comp(3), comp(2)
    getattr(both.attr.add(name="in_split_bytes"), member).values.extend([1, 0, 300])
    both.attr.add(name="out_split_bytes").int64_list.values.extend([1, 0, 300])
    out.attr.add(name="out_split_bytes").int64_list.SetInParent()
    trace = read_trace(write(tmp_path / "a.et", both, none, out))
    assert trace.split_nodes.tolist() == [0, 2]
    assert trace.in_split_codes.tolist() == [0, -1]
    assert trace.out_split_codes.tolist() == [0, 1]
    assert trace.split_offsets.tolist() == [0, 3, 3]
    assert trace.split_bytes.tolist() == [1, 0, 300]
    assert trace.splits(0) == ((1, 0, 300), (1, 0, 300))
    assert trace.splits(1) == (None, None)
    assert trace.splits(2) == (None, ())


def test_forward_references_and_sparse_ids(tmp_path: Path) -> None:
    nodes = [comp(2**63 + 5, 3), comp(3), comp(10**12, 3, 2**63 + 5, ctrl=(3,))]
    trace = read_trace(write(tmp_path / "a.et", *nodes))
    offsets, index = trace.parents()
    assert offsets.tolist() == [0, 1, 1, 3]
    assert index.tolist() == [1, 1, 0]
    assert trace.children()[1].tolist() == [2, 0, 2]
    assert trace.index_of(2**63 + 5) == 0
    assert trace.order_by_id().tolist() == [1, 2, 0]
    assert trace.topological_order().tolist() == [1, 0, 2]


def test_absent_control_dependencies_are_dropped_and_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "a.et", comp(1, ctrl=(99, 98)), comp(2, 1, ctrl=(1, 97)))
    trace = read_trace(path)
    assert trace.dropped_ctrl_deps == 3
    assert trace.ctrl_ids.tolist() == [1]
    assert trace.node(1).ctrl_deps == (1,)
    write_trace(trace, tmp_path / "b.et")
    assert (tmp_path / "b.et").read_bytes() == path.read_bytes()


def test_repair_drops_absent_data_dependencies_from_the_file_as_well(tmp_path: Path) -> None:
    path = write(tmp_path / "a.et", comp(1, 50), comp(2, 1, 51, ctrl=(60,)))
    message = refusal(path)
    assert "node 1: data dependency on node 50, which is not in the file (2 such" in message
    assert "--repair" in message
    trace = read_trace(path, repair=True)
    assert (trace.dropped_data_deps, trace.dropped_ctrl_deps) == (2, 1)
    write_trace(trace, tmp_path / "b.et")
    again = read_trace(tmp_path / "b.et")
    assert (again.dropped_data_deps, again.dropped_ctrl_deps) == (0, 0)
    assert again.data_ids.tolist() == [1]


def test_a_cycle_closed_by_control_dependencies_is_readable_and_repairable(tmp_path: Path) -> None:
    path = write(tmp_path / "a.et", comp(1, ctrl=(2,)), comp(2, 1), comp(3, 2, ctrl=(1,)))
    trace = read_trace(path)
    with pytest.raises(TraceError, match="dependency cycle of 2 nodes: 1 -> 2 -> 1"):
        trace.check()
    repaired = read_trace(path, repair=True)
    repaired.check()
    assert repaired.dropped_ctrl_deps == 1
    assert repaired.node(2).ctrl_deps == (1,)


def test_json_encoded_trace(tmp_path: Path) -> None:
    document = {
        "workload_name": "x",
        "workload_graph": [
            {"Id": 5, "Name": "a", "NodeType": 4, "is_cpu_op": True, "data_deps": [], "runtime": 12},
            {"Id": 6, "Name": "b", "NodeType": 4, "is_cpu_op": False, "data_deps": [5], "ctrlDeps": [99]},
            {
                "Id": 7,
                "Name": "c",
                "NodeType": 7,
                "data_deps": [6],
                "runtime": 0.25,
                "comm_type": 2,
                "comm_size": 64,
            },
        ],
    }
    path = tmp_path / "a.0.json"
    path.write_text(json.dumps(document))
    trace = read_trace(path)
    assert trace.ids.tolist() == [5, 6, 7]
    assert trace.durations_ns().tolist() == [12000, 0, 250]
    assert trace.is_cpu_op.tolist() == [1, 0, -1]
    assert trace.comm_size.tolist() == [ABSENT, ABSENT, 64]
    assert trace.dropped_ctrl_deps == 0


@pytest.mark.parametrize(
    ("entry", "wanted"),
    [
        ({"Name": "a", "NodeType": 4}, "key 'Id' is missing"),
        ({"Id": -1, "NodeType": 4}, "'Id' must be an integer"),
        ({"Id": 1, "NodeType": 8}, "'NodeType' must be an integer from 0 to 7"),
        ({"Id": 1, "NodeType": 4, "runtime": "x"}, "'runtime' must be a number"),
        ({"Id": 1, "NodeType": 4, "data_deps": 3}, "'data_deps' must be a list"),
        ({"Id": 1, "NodeType": 7, "comm_size": 1.5}, "'comm_size' must be an integer"),
        ([], "a node must be an object"),
    ],
)
def test_bad_json_encoded_nodes(tmp_path: Path, entry: Any, wanted: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"workload_graph": [entry]}))
    assert wanted in refusal(path)


# ------------------------------------------------------------------------------------------------ bad files


def test_a_cut_file_names_the_byte_offset(tmp_path: Path) -> None:
    path = write(tmp_path / "a.et", comp(1), comp(2, 1))
    whole = path.read_bytes()
    metadata, first = 1 + whole[0], 1 + whole[1 + whole[0]]
    for size in range(1, len(whole)):
        path.write_bytes(whole[:size])
        if size in (metadata, metadata + first):  # cut exactly behind a record: nobody can tell
            assert read_trace(path).n_nodes < 2
        else:
            assert refusal(path).startswith("byte ")


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (b"", "the file is empty"),
        (b'{"traceEvents": []}', "Kineto trace"),
        (b'{"schema": "1.1.1", "nodes": []}', "PyTorch host trace"),
        (b"hello world, this is no trace at all", "text file"),
        (b"\xff" * 64, "byte 0"),
        (bytes(range(200)), "byte"),
        (b"\x1f\x8b" + b"\0" * 30, "gzip"),
        (gzip.compress(b"\x07\n\x051.0.0" * 50, mtime=0)[:-12], "gzip"),
    ],
)
def test_other_files_are_refused_in_one_line(tmp_path: Path, content: bytes, wanted: str) -> None:
    path = tmp_path / "a.et"
    path.write_bytes(content)
    assert wanted in refusal(path)


def test_a_gzip_bomb_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.et.gz"
    bomb = io.BytesIO()
    with gzip.GzipFile(fileobj=bomb, mode="wb") as file:
        for _ in range(300):
            file.write(b"\0" * (1 << 20))
    path.write_bytes(bomb.getvalue())
    assert "bytes of gzip grow beyond" in refusal(path)


def test_missing_files_and_folders(tmp_path: Path) -> None:
    assert "No such file" in refusal(tmp_path / "none.et")
    assert "directory" in refusal(tmp_path).lower()


def old_node(*extra: bytes) -> bytes:
    return b"\x08\x05\x12\x04conv\x18\x03" + b"".join(extra)


@pytest.mark.parametrize(
    ("payload", "wanted"),
    [
        (old_node(b"\x5a\x04\x0a\x02ab"), "0.0.2 or 0.0.3"),
        (old_node(b"\x68\x05", b"\x70\x06"), "0.0.1"),
        (old_node(b"\x2a\x06Tensor"), "0.0.2 or 0.0.3"),
    ],
)
def test_old_wire_formats_are_explained(tmp_path: Path, payload: bytes, wanted: str) -> None:
    """Fields that only the formats before 0.0.4 have; the last row has 'inputs' as text in field 5."""
    if payload == old_node(b"\x2a\x06Tensor"):
        payload = old_node(b"\x2a\x06Tensor", b"\x5a\x02\x0a\x00")
    metadata = GlobalMetadata(version="0.0.2").SerializeToString()
    for head in (b"", encode_varint(len(metadata)) + metadata):
        path = tmp_path / "a.et"
        path.write_bytes(head + encode_varint(len(payload)) + payload)
        message = refusal(path)
        assert wanted in message or (not head and "no metadata" in message)
        assert "cannot be read" in message


def test_a_node_in_the_place_of_the_metadata(tmp_path: Path) -> None:
    path = tmp_path / "a.et"
    for node in (comp(4), comp(0)):
        payload = node.SerializeToString()
        path.write_bytes((encode_varint(len(payload)) + payload) * 2)
        assert "metadata" in refusal(path)


def test_duplicate_ids(tmp_path: Path) -> None:
    path = write(tmp_path / "a.et", comp(5), comp(6), comp(5))
    assert "node id 5 is used twice (records 2 and 4)" in refusal(path)
    path = write(tmp_path / "a.et", comp(2**60), comp(6), comp(2**60))
    assert f"node id {2**60} is used twice (records 2 and 4)" in refusal(path)


def test_cycles_name_their_nodes(tmp_path: Path) -> None:
    path = write(tmp_path / "a.et", comp(1, 4), comp(2, 1), comp(3, 2), comp(4, 3), comp(9, 4))
    assert "dependency cycle of 4 nodes: 1 -> 2 -> 3 -> 4 -> 1" in refusal(path)
    path = write(tmp_path / "a.et", comp(1, 1))
    assert "dependency cycle of 1 node: 1 -> 1" in refusal(path)
    ring = [comp(k, (k - 1) % 1000) for k in range(1000)]
    message = refusal(write(tmp_path / "a.et", *ring))
    assert "cycle of 1000 nodes: 0 -> 1 -> 2" in message
    assert len(message) < 120


@pytest.mark.parametrize(
    ("attrs", "wanted"),
    [
        ({"comm_size": ("double_val", 4.0)}, "attribute comm_size is a double_val; it must be an integer"),
        ({"comm_size": ("float_val", 4.0)}, "is a float_val"),
        ({"comm_size": ("string_val", "4")}, "is a string_val"),
        ({"comm_size": ("bool_val", True)}, "is a bool_val"),
        ({"comm_type": ("bytes_val", b"4")}, "is a bytes_val"),
        ({"is_cpu_op": ("string_val", "true")}, "must be a bool or an integer"),
        ({"pg_name": ("int32_val", 4)}, "attribute pg_name is an int32_val; it must be a string"),
        ({"involved_dim": ("bool_val", True)}, "must be a list of bools"),
        ({"in_split_bytes": ("int64_val", 4)}, "must be a list of integers (int64_list)"),
        ({"out_split_bytes": ("string_val", "4")}, "must be a list of integers (int64_list)"),
        ({"tensor_size": ("uint64_val", 2**63)}, "does not fit a signed 64-bit integer"),
    ],
)
def test_wrong_attribute_kinds_name_node_and_attribute(tmp_path: Path, attrs: Any, wanted: str) -> None:
    message = refusal(write(tmp_path / "a.et", comp(1), comp(17, **attrs)))
    assert message.startswith("node 17: ")
    assert wanted in message


def test_lists_are_no_scalars(tmp_path: Path) -> None:
    node = comp(3)
    node.attr.add(name="comm_size").int64_list.values.append(4)
    assert "is an int64_list" in refusal(write(tmp_path / "a.et", node))
    node = comp(3)
    node.attr.add(name="comm_size")
    assert "has no value" in refusal(write(tmp_path / "a.et", node))


def test_unknown_types_and_huge_times(tmp_path: Path) -> None:
    assert "node 1: type 8 is unknown" in refusal(write(tmp_path / "a.et", Node(id=1, type=8)))  # type: ignore[arg-type]
    huge = Node(id=1, duration_micros=2**63)
    assert "does not fit a signed 64-bit integer" in refusal(write(tmp_path / "a.et", huge))
    trace = read_trace(write(tmp_path / "a.et", Node(id=1, duration_micros=2**60)))
    with pytest.raises(TraceError, match="nanoseconds"):
        trace.durations_ns()


# --------------------------------------------------------------------------------------------- many ranks


def test_equal_content_is_read_and_stored_once(tmp_path: Path) -> None:
    first = write(tmp_path / "w.0.et", comp(1))
    for rank in (1, 2, 4, 5):
        (tmp_path / f"w.{rank}.et").write_bytes(first.read_bytes())
    write(tmp_path / "w.3.et", comp(2))
    write(tmp_path / "w.6.et", comp(2))
    (tmp_path / "w.7.et").symlink_to(first)
    seen: list[tuple[int, int]] = []
    paths = [tmp_path / f"w.{rank}.et" for rank in range(8)] + [first]
    traces = read_traces(paths, progress=lambda done, total: seen.append((done, total)))
    assert [traces.index(trace) for trace in traces] == [0, 0, 0, 3, 0, 0, 3, 0, 0]
    assert seen[-1] == (9, 9)
    assert traces[0].content_hash != traces[3].content_hash
    assert traces[0].content_hash == read_trace(paths[5]).content_hash


def test_a_bad_file_among_many_is_named(tmp_path: Path) -> None:
    write(tmp_path / "w.0.et", comp(1))
    write(tmp_path / "w.1.et", comp(1, 9))
    with pytest.raises(TraceError, match=r"w\.1\.et: node 1"):
        read_traces([tmp_path / "w.0.et", tmp_path / "w.1.et"])


# ------------------------------------------------------------------------------------------------- writing


def test_writing_is_atomic_and_by_suffix(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path / "a.et", comp(1), comp(2, 1)))
    write_trace(trace, tmp_path / "sub" / "b.et.gz")
    packed = (tmp_path / "sub" / "b.et.gz").read_bytes()
    assert gzip.decompress(packed) == (tmp_path / "a.et").read_bytes()
    write_trace(trace, tmp_path / "sub" / "b.et.gz")
    assert (tmp_path / "sub" / "b.et.gz").read_bytes() == packed
    assert os.listdir(tmp_path / "sub") == ["b.et.gz"]
    with pytest.raises(UsageError, match="folder"):
        write_trace(trace, tmp_path / "sub")
    if os.geteuid() != 0:
        (tmp_path / "sub").chmod(0o500)
        with pytest.raises(UsageError, match="cannot be written"):
            write_trace(trace, tmp_path / "sub" / "c.et")


def test_arrays_cannot_be_changed(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path / "a.et", comp(1), comp(2, 1)))
    arrays = [*trace.arrays(), trace.records.data, *trace.parents(), *trace.children(), trace.durations_ns()]
    arrays += [trace.order_by_id(), trace.topological_order()]
    for array in arrays:
        assert not array.flags.writeable
    with pytest.raises(AttributeError):
        trace.ids = np.zeros(1, np.uint64)  # type: ignore[misc]
    message = trace.node(0).proto()
    message.name = "other"
    assert trace.node(0).name == trace.node(0).proto().name == "n1"


def test_rank_in_the_metadata(tmp_path: Path) -> None:
    metadata = GlobalMetadata()
    metadata.attr.add(name="rank", int32_val=3)
    assert read_trace(write(tmp_path / "a.et", comp(1), metadata=metadata)).rank == 3
    assert read_trace(write(tmp_path / "a.et", comp(1))).rank is None


def test_columns_refuse_what_makes_no_trace() -> None:
    columns = TraceColumns(2)
    with pytest.raises(TraceError, match="3 values for 2 nodes"):
        columns.set_int("x", [1, 2, 3])
    with pytest.raises(TraceError, match="do not fit uint32"):
        columns.set_int("x", [-1, 2], "uint32")
    with pytest.raises(TraceError, match="table of 1"):
        columns.set_text("x", [0, 1], ["a"])
    with pytest.raises(TraceError, match="offsets"):
        columns.set_data_deps([0, 2, 1], [0])
    with pytest.raises(TraceError, match="integers are needed"):
        columns.set_int("x", [0.5, 1.0])
    columns.set_data_deps([0, 0, 1], [7])
    with pytest.raises(TraceError, match="data dependency on node 7"):
        columns.build()
    columns.set_data_deps([0, 0, 0], [])
    columns.set_ctrl_deps([0, 0, 1], [7])
    with pytest.raises(TraceError, match="1 control dependency on nodes"):
        columns.build()


def test_big_and_small_paths_make_the_same_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trace above the kernel threshold has the columns and bytes of the protobuf path."""
    from chakra.et import codec

    monkeypatch.setattr(codec, "COLD_THRESHOLD", 0)
    n = codec.KERNEL_THRESHOLD + 10
    rng = np.random.default_rng(5)

    def make() -> Trace:
        columns = TraceColumns(n)
        columns.ids[:] = rng0.permutation(n) * 3 + 11
        columns.set_names(rng0.integers(0, 50, n), [f"op{k}" for k in range(50)])
        counts = np.minimum(rng0.integers(0, 4, n), np.arange(n))
        offsets = np.concatenate([[0], np.cumsum(counts)])
        owners = np.repeat(np.arange(n), counts)
        columns.set_data_deps(offsets, columns.ids[(rng0.random(len(owners)) * owners).astype(np.int64)])
        columns.set_bool("is_cpu_op", rng0.integers(-1, 2, n))
        columns.set_int("comm_size", rng0.integers(0, 2**40, n))
        columns.set_text("pg_name", rng0.integers(-1, 3, n), ["1", "2", "op1"])
        return columns.build()

    seed = int(rng.integers(0, 2**32))
    rng0 = np.random.default_rng(seed)
    big = make()
    monkeypatch.setattr(codec, "kernels_for", lambda module, nodes: None)
    monkeypatch.setattr("chakra.et.encode.kernels_for", lambda module, nodes: None)
    monkeypatch.setattr("chakra.et.graph.graph_kernels", lambda work: None)
    rng0 = np.random.default_rng(seed)
    small = make()
    assert big.content_hash == small.content_hash
    for name, value in vars(small).items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(getattr(big, name), value, err_msg=name)
    assert big.name_table == small.name_table
    assert big.pg_table == small.pg_table
    for a, b in ((big.parents(), small.parents()), (big.children(), small.children())):
        np.testing.assert_array_equal(a[0], b[0])
        np.testing.assert_array_equal(a[1], b[1])
    np.testing.assert_array_equal(big.topological_order(), small.topological_order())


@pytest.mark.parametrize(("cached", "nodes"), [(False, 250_000), (True, 50_000)])
def test_what_must_be_compiled_waits_for_more_nodes(
    cached: bool, nodes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two seconds of compiler pay from 250,000 nodes, half a second to load numba from 50,000."""
    from chakra.et import codec

    monkeypatch.setattr(codec, "_loaded", set())
    monkeypatch.setattr(codec, "_slow_nodes", [0])
    monkeypatch.setattr("chakra.jit.is_cached", lambda module: cached)
    kernels: Any = SimpleNamespace()
    monkeypatch.setattr("chakra.jit.compiled", lambda module: kernels)
    monkeypatch.setattr("chakra.et.codec.sys.modules", {})
    assert codec.kernels_for("some.kernel", nodes - 1) is None
    assert codec.kernels_for("some.kernel", 1) is kernels  # what went before counts


def test_a_string_is_found_without_decoding_the_others() -> None:
    texts = ("", "abc", "abd", "ab", "größe", "grosse")
    encoded = [text.encode() for text in texts]
    ends = np.cumsum([len(item) for item in encoded])
    starts = ends - [len(item) for item in encoded]
    pool = StringPool(np.frombuffer(b"".join(encoded), np.uint8), starts, ends)
    assert [pool.find(text) for text in texts] == list(range(6))
    assert [pool.find(text) for text in ("b", "abe", "abcd", "groß")] == [-1] * 4
    assert "strings" not in vars(pool)
    assert StringPool.of(()).find("abc") == -1
