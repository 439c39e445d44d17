"""The builder: what its calls write, and what they refuse."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from chakra.builder import Handle, TraceBuilder, Workload
from chakra.errors import ChakraError, TraceError, WorkloadError
from chakra.et import ABSENT, CommType, NodeType, read_trace, read_traces
from chakra.replay import simulate
from chakra.schemas.et_def_pb2 import AttributeProto


def test_every_kind_of_node() -> None:
    b = TraceBuilder(rank=1, npus=4)
    metadata = b.metadata("groups", groups={"5": [0, 1]})
    work = b.compute("work", duration_micros=3, num_ops=10, tensor_bytes=20, after=metadata)
    host = b.compute("host", duration_ns=1500, cpu=True, ctrl=work)
    coll = b.collective(
        CommType.ALL_GATHER,
        size_bytes=8,
        group="5",
        involved_dim=[True, False],
        priority=2,
        after=[work, host],
    )
    b.send(2, size_bytes=4, tag=9, after=coll)
    b.recv(0, size_bytes=6, tag=8, name="r")
    b.load(100, after=coll, attrs={"tensor_loc": 3, "note": "x", "ratio": 0.5, "list": [1, 2]})
    b.store(200)
    trace = b.build()
    assert [view.type for view in trace.nodes()] == [
        *(NodeType.METADATA, NodeType.COMP, NodeType.COMP, NodeType.COMM_COLL),
        *(NodeType.COMM_SEND, NodeType.COMM_RECV, NodeType.MEM_LOAD, NodeType.MEM_STORE),
    ]
    assert trace.is_cpu_op.tolist() == [0, 0, 1, 0, 0, 0, 0, 0]
    text = trace.node(0).proto().inputs.values
    assert (text[:2], text[-2:]) == ("['", "']")
    assert json.loads(text[2:-2]) == [{"pg_name": "5", "ranks": [0, 1]}]
    assert trace.node(1).attrs == {"is_cpu_op": False, "num_ops": 10, "tensor_size": 20}
    assert (trace.node(2).ctrl_deps, trace.node(2).data_deps) == ((1,), ())
    assert trace.node(3).attrs == {
        "is_cpu_op": False,
        "comm_type": 2,
        "comm_size": 8,
        "comm_priority": 2,
        "pg_name": "5",
        "involved_dim": (True, False),
    }
    assert trace.node(3).data_deps == (1, 2)
    columns = (trace.comm_src, trace.comm_dst, trace.comm_tag, trace.comm_size)
    assert [column[4] for column in columns] == [1, 2, 9, 4]
    assert [column[5] for column in columns] == [0, 1, 8, 6]
    kinds = {attr.name: attr.WhichOneof("value") for attr in trace.node(6).proto().attr}
    assert kinds == {
        "is_cpu_op": "bool_val",
        "tensor_size": "uint64_val",
        "tensor_loc": "uint32_val",
        "note": "string_val",
        "ratio": "double_val",
        "list": "int64_list",
    }
    assert trace.metadata.version == "1.0.0"
    assert trace.rank is None
    assert b.build(write_rank=True).rank == 1


@pytest.mark.parametrize(
    ("options", "nanos", "micros", "attribute"),
    [
        ({"duration_micros": 5}, 5000, 5, ABSENT),
        ({"duration_micros": 0.25}, 250, 1, 250),
        ({"duration_micros": 1e9 / 7}, round(1e12 / 7), round(1e9 / 7), round(1e12 / 7)),
        ({"duration_ns": 1}, 1, 1, 1),
        ({"duration_ns": 7000}, 7000, 7, ABSENT),
        ({"duration_ns": 7600}, 7600, 8, 7600),
        ({"duration_ns": 0}, 0, 0, ABSENT),
    ],
)
def test_durations_survive(options: dict[str, int], nanos: int, micros: int, attribute: int) -> None:
    b = TraceBuilder()
    b.compute("x", **options)  # type: ignore[arg-type]
    trace = b.build()
    assert trace.durations_ns().tolist() == [nanos]
    assert trace.duration_micros.tolist() == [micros]
    assert trace.duration_ns.tolist() == [attribute]


def others() -> Handle:
    return TraceBuilder().compute("other", duration_ns=1)


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        (lambda b: b.compute("x"), "give duration_micros, duration_ns or num_ops"),
        (lambda b: b.compute("x", duration_micros=1, duration_ns=1), "not both"),
        (lambda b: b.compute("x", duration_micros=-1), "0 or more"),
        (lambda b: b.compute("x", duration_micros=float("nan")), "0 or more"),
        (lambda b: b.compute("x", duration_ns=-1), "from 0 to"),
        (lambda b: b.compute("x", duration_ns=1.5), "whole number"),
        (lambda b: b.compute("x", num_ops=-4), "num_ops must be from 0"),
        (lambda b: b.compute("x", duration_ns=1, after=others()), "a node of another builder"),
        (lambda b: b.compute("x", duration_ns=1, after=3), "takes the handles"),
        (lambda b: b.compute("x", duration_ns=1, after=[0]), "takes the handles"),
        (lambda b: b.compute("x", duration_ns=1, ctrl="abc"), "takes the handles"),
        (lambda b: b.compute("x", duration_ns=1, attrs={"is_cpu_op": True}), "set by the call itself"),
        (lambda b: b.compute("x", duration_ns=1, attrs={"y": [1, "a"]}), "mixed kinds"),
        (lambda b: b.compute("x", duration_ns=1, attrs={"y": {}}), "cannot be an attribute"),
        (lambda b: b.collective("all_redcue", size_bytes=1), "unknown collective"),
        (lambda b: b.collective(17, size_bytes=1), "unknown collective"),
        (lambda b: b.collective("all_reduce", size_bytes=-1), "size_bytes must be from 0"),
        (lambda b: b.collective("all_reduce", size_bytes=2**63), "size_bytes must be from 0"),
        (lambda b: b.collective("all_reduce", size_bytes=1.0), "whole number"),
        (lambda b: b.collective("all_reduce", size_bytes=1, group="9"), "no group '9'"),
        (lambda b: b.collective("all_reduce", size_bytes=1, group="1"), "rank 1 is not a member"),
        (lambda b: b.collective("all_reduce", size_bytes=1, involved_dim=[False]), "no dimension"),
        (lambda b: b.send(None, size_bytes=1), "the peer must be a rank"),
        (lambda b: b.send(-1, size_bytes=1), "the peer must be a rank"),
        (lambda b: b.send(1, size_bytes=1), "with itself; TraceBuilder"),
        (lambda b: b.send(4, size_bytes=1), "does not exist among 4"),
        (lambda b: b.recv(1, size_bytes=1), "with itself"),
        (lambda b: b.recv(0, size_bytes=-1), "size_bytes must be"),
        (lambda b: b.send(0, size_bytes=1, tag=-1), "tag must be"),
        (lambda b: b.load(-1), "size_bytes must be"),
        (lambda b: b.store(True), "whole number"),
        (lambda b: TraceBuilder(4, 4), "rank 4 does not exist"),
    ],
)
def test_what_cannot_be_replayed_is_refused_at_the_call(
    call: Callable[[TraceBuilder], object], wanted: str
) -> None:
    b = TraceBuilder(1, 4, {"1": [0, 2]})
    with pytest.raises(ChakraError, match=wanted):
        call(b)
    assert len(b) == 0


def test_attributes_given_as_messages_keep_their_kind() -> None:
    b = TraceBuilder()
    b.compute("x", duration_ns=1, attrs={"y": AttributeProto(float_val=0.5)})
    (_, _, attr) = b.build().node(0).proto().attr
    assert (attr.name, attr.WhichOneof("value")) == ("y", "float_val")


def test_workload_writes_what_it_holds(tmp_path: Path) -> None:
    w = Workload(4)
    left, right = w.add_group([0, 1]), w.add_group([3, 2])

    def program(b: TraceBuilder) -> None:
        work = b.compute("work", duration_micros=1)
        b.collective("all_reduce", size_bytes=64, group=left if b.rank < 2 else right, after=work)

    w.run(program)
    written = w.write(tmp_path / "sub" / "w")
    assert written == [
        *(str(tmp_path / "sub" / f"w.{rank}.et") for rank in range(4)),
        f"{tmp_path}/sub/w.groups.json",
    ]
    assert json.loads(Path(written[-1]).read_text()) == {"1": [0, 1], "2": [3, 2]}
    traces = read_traces(written[:-1])
    assert [traces.index(trace) for trace in traces] == [0, 0, 2, 2]
    assert [trace.content_hash for trace in traces] == [trace.content_hash for trace in w.traces()]
    assert w.trace_of(0) is w.trace_of(1)


def test_only_a_trace_of_its_own_names_its_rank(tmp_path: Path) -> None:
    w = Workload(3)
    w.builder(0).send(2, size_bytes=5)
    w.builder(1).compute("x", duration_ns=1)
    w.builder(2).recv(0, size_bytes=5)
    written = w.write(tmp_path / "w", compress=True)
    assert [read_trace(path).rank for path in written] == [0, 1, 2]
    assert Path(written[0]).read_bytes()[:2] == b"\x1f\x8b"


def test_ranks_with_equal_nodes_share_one_trace() -> None:
    workload = Workload(6)
    flags: list[bool | int | float | str] = [True, 1, 1, True, 1.0, "1"]

    def program(b: TraceBuilder) -> None:
        first = b.compute(duration_ns=1500)
        b.collective("all_reduce", size_bytes=64, after=[first], attrs={"flag": flags[b.rank]})

    workload.run(program)
    traces = workload.traces()
    assert [traces.index(trace) for trace in traces] == [0, 1, 1, 0, 4, 5]
    assert all(trace.node(1).attrs["flag"] == flag for trace, flag in zip(traces, flags, strict=True))


def test_uniform_programs_share_one_trace() -> None:
    w = Workload(100_000)
    w.run(lambda b: b.collective("all_reduce", size_bytes=8), uniform=True)
    assert w.trace_of(99_999) is w.trace_of(0)
    assert w.trace_of(0).rank is None
    with pytest.raises(WorkloadError, match="uniform"):
        w.builder(0)
    with pytest.raises(WorkloadError, match="does not exist among 1"):
        Workload(2).run(lambda b: b.send(1, size_bytes=8), uniform=True)


@pytest.mark.parametrize(
    ("size", "tag", "wanted"),
    [(5, 0, "a receive of 5 bytes|a send of 4 bytes"), (4, 1, "tag 0"), (4, 0, None)],
)
def test_messages_must_meet(size: int, tag: int, wanted: str | None, tmp_path: Path) -> None:
    w = Workload(2)
    w.builder(0).send(1, size_bytes=4)
    w.builder(1).recv(0, size_bytes=size, tag=tag)
    if wanted is None:
        w.write(tmp_path / "w")
        return
    with pytest.raises(WorkloadError, match=wanted):
        w.write(tmp_path / "w")
    assert list(tmp_path.iterdir()) == []


def test_bad_workloads() -> None:
    with pytest.raises(WorkloadError, match="at least one"):
        Workload(0)
    w = Workload(2)
    for ranks, name, wanted in (
        ([], None, "is empty"),
        ([0, 2], None, "names rank 2"),
        ([0, 0], None, "repeats"),
        ([0], "0", "all ranks"),
    ):
        with pytest.raises(WorkloadError, match=wanted):
            w.add_group(ranks, name)
    w.add_group([0], "tp")
    with pytest.raises(WorkloadError, match="exists already"):
        w.add_group([1], "tp")
    w.builder(0).compute("x", duration_ns=1)
    with pytest.raises(WorkloadError, match="rank 1 has no nodes"):
        w.trace_of(0)
    w.builder(1).compute("x", duration_ns=1)
    assert w.trace_of(1).n_nodes == 1
    with pytest.raises(WorkloadError, match="rank 2 does not exist"):
        w.trace_of(2)


def test_builder_can_go_on_after_a_build() -> None:
    w = Workload(1)
    b = w.builder(0)
    b.compute("x", duration_ns=1)
    assert w.trace_of(0).n_nodes == 1
    w.builder(0).compute("y", duration_ns=1)
    assert w.trace_of(0).n_nodes == 2
    with pytest.raises(TraceError):
        b.compute("z", duration_ns=-1)


@pytest.mark.parametrize("name", ['tp"0', "dp\\x", 'a": [2, 3], "b', "line\nend", "Grüße"])
def test_any_name_of_a_group_is_written_and_read_back(name: str, tmp_path: Path) -> None:
    workload = Workload(4)
    group = workload.add_group([0, 1], name)
    for rank in range(4):
        builder = workload.builder(rank)
        builder.compute("c", duration_ns=1)
        if rank < 2:
            builder.collective("all_reduce", size_bytes=64, group=group)
    workload.write(str(tmp_path / "w"))
    assert json.loads((tmp_path / "w.groups.json").read_text()) == {name: [0, 1]}
    network = {"topology": ["Ring"], "npus_count": [4], "bandwidth": [50], "latency": [500]}
    result = simulate(
        str(tmp_path / "w"),
        {"all-reduce-implementation": ["ring"]},
        network,
        comm_groups=str(tmp_path / "w.groups.json"),
    )
    assert result.records("collectives")[0]["members"] == 2
