"""Linking of traces made by hand: every expected number can be counted on paper."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mini_job import MiniJob, collective, record_of, simple

from chakra.converters.pytorch.folder import find_inputs
from chakra.converters.pytorch.graph.linked_graph import micros
from chakra.converters.pytorch.job import Inputs, Settings, convert_rank, read_and_link
from chakra.converters.pytorch.link import Linked, LinkOptions, link
from chakra.converters.pytorch.ranks import convert_job
from chakra.converters.pytorch.read.columns import Names
from chakra.converters.pytorch.read.device import DeviceTrace, read_device_trace
from chakra.converters.pytorch.read.host import read_host_trace
from chakra.converters.pytorch.write.link_summary import attached_text, lines, summarize
from chakra.converters.pytorch.write.linked_json import read_linked, write_linked
from chakra.errors import ConversionError, ThresholdError
from chakra.et import NodeType, Trace, read_trace


def linked(job: MiniJob, folder: Path, **options: Any) -> Linked:
    """Link the job's files."""
    host, device = job.write(folder)
    names = Names()
    return link(read_host_trace(host, names), read_device_trace(device, names), LinkOptions(**options))


def names_of(result: Linked) -> list[str]:
    """Names of the nodes in file order."""
    texts = result.device.names.texts
    return [texts[c] for c in result.graph.name.tolist()]


def sources(result: Linked, name: str) -> set[str]:
    """Names of the data dependencies of the only node called ``name``."""
    names, graph = names_of(result), result.graph
    i = names.index(name)
    assert names.count(name) == 1
    return {names[j] for j in graph.sources[graph.offsets[i] : graph.offsets[i + 1]]}


def test_kernels_hang_on_their_operator_and_keep_stream_order(job: MiniJob, tmp_path: Path) -> None:
    """The gap between the operators is a node; kernel 1 waits for kernel 0 and for its launch."""
    simple(job)
    result = linked(job, tmp_path)
    assert names_of(result) == ["op0", "kernel0", "gap", "op1", "kernel1"]
    assert sources(result, "kernel0") == {"op0"}
    assert sources(result, "kernel1") == {"op1", "kernel0"}
    assert sources(result, "op1") == {"gap"}
    assert result.measured_ns == 227_000
    assert result.graph.edges["stream order"] == 1


@pytest.mark.parametrize(
    "call",
    [
        "cudaMemsetAsync",
        "cudaGraphLaunch",
        "hipGraphLaunch",
        "cuLaunchKernelEx",
        "hipMemsetAsync",
        "xyzSubmit",
    ],
)
def test_any_call_with_the_correlation_is_the_launch(job: MiniJob, tmp_path: Path, call: str) -> None:
    """Upstream knows launch calls by name and loses all others."""
    job.op("op", 0, 50)
    job.call(call, 10, 20, 5)
    for k in range(3):
        job.kernel(f"k{k}", 40 + 10 * k, 9, 5)
    result = linked(job, tmp_path)
    assert result.counts["device_ops_attached"] == 3
    assert sources(result, "k2") == {"op", "k1"}


def test_of_several_calls_with_one_correlation_the_outermost_counts(job: MiniJob, tmp_path: Path) -> None:
    """A driver call inside a runtime call shares its number; upstream raises."""
    job.op("op", 0, 50)
    job.call("cudaLaunchKernel", 10, 20, 5)
    job.call("cuLaunchKernel", 15, 10, 5)
    job.kernel("k", 40, 5, 5)
    result = linked(job, tmp_path)
    call = int(result.attachment.call[0])
    assert result.device.names.texts[int(result.device.calls.name[call])] == "cudaLaunchKernel"


def test_kernels_without_correlation_use_the_external_id(job: MiniJob, tmp_path: Path) -> None:
    """AMD traces without correlation ids name the operator."""
    op = job.op("op", 0, 50)
    job.call("hipLaunchKernel", 10, 20, 0)
    job.kernel("k", 40, 5, 0, args={"External id": op})
    result = linked(job, tmp_path)
    assert result.attachment.by_external == 1
    assert sources(result, "k") == {"op"}


def test_a_synchronising_call_splits_its_operator(job: MiniJob, tmp_path: Path) -> None:
    """The operator launches a copy and waits for it: what it launched must not wait for the operator's end."""
    job.op("item", 0, 100)
    job.call("cudaMemcpyAsync", 10, 5, 1)
    job.call("cudaStreamSynchronize", 20, 70, 2)
    job.kernel("copy", 30, 50, 1, cat="gpu_memcpy")
    result = linked(job, tmp_path)
    assert names_of(result) == ["item", "copy", "cudaStreamSynchronize", "rest of operator"]
    assert sources(result, "copy") == {"item"}
    assert sources(result, "cudaStreamSynchronize") == {"item", "copy"}
    # 20 us before the call; the copy as replayed ends at 70, the call at 90: the host's own time follows.
    assert result.graph.duration.tolist() == [20_000, 50_000, 20_000, 10_000]
    assert result.graph.replay_ns == result.measured_ns == 100_000
    # Without what was fitted to the wait, the graph explains 80 of 100 us.
    assert result.graph.explained_ns == 80_000


def test_a_wait_costs_only_what_is_left_after_the_device(job: MiniJob, tmp_path: Path) -> None:
    """The time inside cudaDeviceSynchronize belongs to the device, not to the host."""
    job.op("launcher", 0, 10)
    job.call("cudaLaunchKernel", 2, 5, 1)
    job.kernel("long", 10, 1000, 1)
    job.op("waiter", 20, 1000)
    job.call("cudaDeviceSynchronize", 30, 985, 2)
    result = linked(job, tmp_path)
    host_ns = int(result.graph.duration[result.graph.device_row < 0].sum())
    assert host_ns < 45_000
    assert result.graph.replay_ns == result.measured_ns


def test_backward_is_not_counted_twice(job: MiniJob, tmp_path: Path) -> None:
    """The main thread's annotation waits for the autograd thread; both directions are edges."""
    job.op("forward", 0, 100)
    job.op("backward", 110, 900, scope=7, annotation=True)
    for k in range(3):
        job.op(f"grad{k}", 200 + 200 * k, 200, tid=200, et_tid=2)
    job.op("optimizer", 1020, 50)
    result = linked(job, tmp_path)
    assert sources(result, "grad0") == {"backward"}
    assert sources(result, "wait for thread") == {"backward", "grad2"}
    assert int(result.graph.duration.sum()) == result.measured_ns == result.graph.replay_ns


def test_fw_parent_names_the_thread_that_started_backward(job: MiniJob, tmp_path: Path) -> None:
    """With a third thread busy later, time alone would point at the wrong one."""
    forward = job.op("forward", 0, 100)
    job.op("other", 105, 2, tid=300, et_tid=3)
    job.op("grad", 120, 50, tid=200, et_tid=2, fw_parent=forward)
    job.op("after", 180, 10)
    result = linked(job, tmp_path)
    assert "other" not in sources(result, "grad")


def test_stream_waits_order_kernels_of_two_streams(job: MiniJob, tmp_path: Path) -> None:
    """Record on stream 7, wait before the launch on stream 20 (no cuda_sync events: by order and time)."""
    job.op("a", 0, 20)
    job.call("cudaLaunchKernel", 5, 5, 1)
    job.kernel("first", 15, 100, 1)
    job.op("b", 30, 30)
    job.call("cudaEventRecord", 32, 1, 2)
    job.call("cudaStreamWaitEvent", 35, 1, 3)
    job.call("cudaLaunchKernel", 40, 5, 4)
    job.kernel("second", 118, 10, 4, stream=20)
    result = linked(job, tmp_path)
    assert sources(result, "second") == {"b", "first"}


def test_recorded_stream_waits_are_used(job: MiniJob, tmp_path: Path) -> None:
    """cuda_sync events name stream and record."""
    job.op("a", 0, 60)
    job.call("cudaLaunchKernel", 5, 2, 1)
    job.kernel("first", 10, 5, 1)
    job.call("cudaEventRecord", 12, 1, 2)
    job.call("cudaLaunchKernel", 14, 2, 3)
    job.kernel("later", 20, 5, 3)
    job.call("cudaStreamWaitEvent", 30, 1, 4)
    job.call("cudaLaunchKernel", 40, 2, 5)
    job.kernel("second", 50, 5, 5, stream=20)
    args = {
        "cuda_sync_kind": "Stream Wait Event", "stream": 20, "correlation": 4, "wait_on_stream": 7, "device": 0,
        "wait_on_cuda_event_record_corr_id": 2, "wait_on_cuda_event_id": 1,
    }  # fmt: skip
    job.kernel("Stream Wait Event", 30, 1, 4, cat="cuda_sync", stream=20, args=args)
    result = linked(job, tmp_path)
    assert "first" in sources(result, "second")
    assert "later" not in sources(result, "second")


def test_event_queries_do_not_wait(job: MiniJob, tmp_path: Path) -> None:
    """CUPTI writes an Event Sync for a query too."""
    job.op("a", 0, 60)
    job.call("cudaLaunchKernel", 5, 2, 1)
    job.kernel("k", 10, 5, 1)
    job.call("cudaEventQuery", 20, 2, 2)
    job.kernel("Event Sync", 20, 1, 2, cat="cuda_sync", args={"cuda_sync_kind": "Event Sync"})
    result = linked(job, tmp_path)
    assert "cudaEventQuery" not in names_of(result)
    assert len(result.waits.host_call) == 0


def test_an_edge_is_kept_only_if_the_device_was_done(job: MiniJob, tmp_path: Path) -> None:
    """A synchronising call that returned before the kernel ended did not wait for it."""
    job.op("a", 0, 60)
    job.call("cudaLaunchKernel", 5, 2, 1)
    job.kernel("k", 10, 500, 1)
    job.call("cudaStreamSynchronize", 20, 2, 2)
    result = linked(job, tmp_path)
    assert len(result.waits.host_call) == 0
    assert result.waits.counts["waits dropped (against time)"] == 1


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("allreduce", 0), ("reduce", 1), ("_allgather_base", 2), ("gather", 3), ("scatter", 4), ("broadcast", 5),
        ("all_to_allv", 6), ("_reduce_scatter_base", 7), ("reduce_scatter_tensor_coalesced", 7), ("barrier", 9),
    ],
)  # fmt: skip
def test_the_kind_comes_from_the_record_not_the_kernel(
    job: MiniJob, tmp_path: Path, name: str, kind: int
) -> None:
    """RCCL has one kernel name for all collectives."""
    collective(job, name, 0, 1, elements=1000)
    graph = linked(job, tmp_path).graph
    (comm,) = graph.comm.values()
    assert (comm.kind, comm.comm_type) == (NodeType.COMM_COLL, kind)
    assert comm.size == (0 if name == "barrier" else 4000)


def test_point_to_point_has_ends_and_tags_that_agree(job: MiniJob, tmp_path: Path) -> None:
    """Both ranks count the transfers of a pair alike."""
    traces = []
    for rank in (0, 1):
        mini = MiniJob()
        mini.header["distributedInfo"] = {"rank": rank, "world_size": 2}
        order = ("send", "recv", "send") if rank == 0 else ("recv", "send", "recv")
        for k, name in enumerate(order):
            collective(mini, name, 100 * k, k + 1, elements=10 + k, rank=1 - rank)
        host, device = mini.write(tmp_path, f"job.rank{rank}")
        out = tmp_path / f"{rank}.et"
        convert_rank(Inputs(host, device), out, Settings())
        traces.append(read_trace(out))
    ends = [_transfers(trace) for trace in traces]
    send, receive = NodeType.COMM_SEND, NodeType.COMM_RECV
    assert ends[0] == [(send, 0, 1, 0, 40), (receive, 1, 0, 0, 44), (send, 0, 1, 1, 48)]
    assert ends[1] == [(receive, 0, 1, 0, 40), (send, 1, 0, 0, 44), (receive, 0, 1, 1, 48)]


def _transfers(trace: Trace) -> list[tuple[int, ...]]:
    rows = np.flatnonzero((trace.types == NodeType.COMM_SEND) | (trace.types == NodeType.COMM_RECV))
    columns = (trace.types, trace.comm_src, trace.comm_dst, trace.comm_tag, trace.comm_size)
    return [tuple(int(c[i]) for c in columns) for i in rows]


def test_a_batch_becomes_one_node_per_transfer(job: MiniJob, tmp_path: Path) -> None:
    """One kernel for a batch of isend/irecv: sends first, the kernel's time once."""
    for k, name in enumerate(("recv", "send")):
        job.op("record_param_comms", 50 * k, 20, **record_of(name, 100, rank=1))
    end = job.op("record_param_comms", 150, 40, **record_of("coalesced", 0))
    job.op("nccl:coalesced", 155, 30, parent=end, scope=7, annotation=True)
    job.call("cuLaunchKernelEx", 160, 10, 9)
    job.kernel("ncclDevKernel_SendRecv", 175, 50, 9, stream=16)
    job.op("next", 230, 20)
    job.call("cudaLaunchKernel", 235, 5, 10)
    job.kernel("after", 245, 5, 10, stream=16)
    result = linked(job, tmp_path)
    rows = sorted(result.graph.comm)
    assert [result.graph.comm[i].kind for i in rows] == [NodeType.COMM_SEND, NodeType.COMM_RECV]
    assert [result.graph.comm[i].size for i in rows] == [400, 400]
    assert result.graph.duration[rows].tolist() == [50_000, 0]
    names, graph = names_of(result), result.graph
    i = names.index("after")
    assert set(rows) <= set(graph.sources[graph.offsets[i] : graph.offsets[i + 1]].tolist())


def test_copies_of_a_one_rank_group_are_computation(job: MiniJob, tmp_path: Path) -> None:
    """NCCL with one rank launches a copy and no collective."""
    said = record_of("allreduce", 100)
    said["attrs"]["pg_size"] = 1
    record = job.op("record_param_comms", 0, 40, **said)
    job.op("nccl:allreduce", 5, 30, parent=record, scope=7, annotation=True)
    job.call("cudaMemcpyAsync", 10, 10, 1)
    job.kernel("Memcpy DtoD", 25, 5, 1, cat="gpu_memcpy")
    assert linked(job, tmp_path).graph.comm == {}


def test_ids_that_are_zero_or_missing_fall_back_to_structure(job: MiniJob, tmp_path: Path) -> None:
    """Upstream matches nothing and reports success."""
    simple(job)
    for event in job.events:
        if event["cat"] == "cpu_op":
            event["args"]["Record function id"] = 0
            event["args"]["External id"] += 500
    result = linked(job, tmp_path)
    assert result.pairing is not None
    assert result.pairing.method.startswith("structure")
    assert result.pairing.matched == 2


def test_ids_of_another_run_are_recognised_by_names(job: MiniJob, tmp_path: Path) -> None:
    """Equal numbers, different operators."""
    for k in range(20):
        job.op(f"op{k}", 100 * k, 40)
    for event in job.events:
        event["args"]["Record function id"] = 10 + (event["args"]["Record function id"] - 10 + 7) % 20
        event["args"]["External id"] = 0
    result = linked(job, tmp_path)
    assert result.pairing is not None
    assert result.pairing.matched == 20
    assert any("different runs" in note for note in result.pairing.notes)


def test_the_window_with_equal_sequence_numbers_is_chosen(job: MiniJob, tmp_path: Path) -> None:
    """The trace covers five equal iterations, the host trace one of them."""
    for k in range(3):
        job.op(f"op{k}", 3000 + 100 * k, 40, attrs={"seq_id": 70 + k})
    job.events.clear()
    for iteration in range(5):
        for k in range(3):
            args = {"Sequence number": 50 + 10 * iteration + k, "External id": 0}
            job.events.append(
                {"ph": "X", "cat": "cpu_op", "name": f"op{k}", "pid": 1, "tid": 100, "ts": 1000 * iteration + 100 * k,
                 "dur": 40, "args": args}
            )  # fmt: skip
    result = linked(job, tmp_path)
    assert result.first_ns == 2_000_000


def test_unrelated_files_are_an_error(job: MiniJob, tmp_path: Path) -> None:
    """Nothing in common: say so."""
    job.op("a", 0, 10)
    job.events[0]["name"] = "b"
    with pytest.raises(ConversionError, match="different programs"):
        linked(job, tmp_path)


def test_gap_modes_keep_or_drop_think_time(job: MiniJob, tmp_path: Path) -> None:
    """Node, fold and drop: 40 + 60 + 40 us of host time."""
    job.op("a", 0, 40)
    job.op("b", 100, 40)
    durations = {}
    for gaps in ("node", "fold", "drop"):
        result = linked(job, tmp_path, gaps=gaps)
        durations[gaps] = dict(zip(names_of(result), result.graph.duration.tolist(), strict=True))
    assert durations == {
        "node": {"a": 40_000, "gap": 60_000, "b": 40_000},
        "fold": {"a": 40_000, "b": 100_000},
        "drop": {"a": 40_000, "b": 40_000},
    }


def test_time_behind_a_child_is_its_operators_and_no_gap(job: MiniJob, tmp_path: Path) -> None:
    """40 us of `a` behind its child are the operator's; what an annotation covers alone, nobody works in."""
    job.op("step", 0, 200, scope=7, annotation=True)
    job.op("a", 10, 80)
    job.op("child", 20, 30)
    job.op("b", 150, 40)
    result = linked(job, tmp_path)
    durations = list(zip(names_of(result), result.graph.duration.tolist(), strict=True))
    assert durations == [
        ("step", 10_000), ("a", 10_000), ("child", 30_000), ("rest of operator", 40_000), ("gap", 60_000),
        ("b", 40_000), ("gap", 10_000),
    ]  # fmt: skip
    owner = result.graph.parent[3]
    assert names_of(result)[owner] == "a"


def test_a_span_of_fitted_waits_is_warned_of(job: MiniJob, tmp_path: Path) -> None:
    """Of 1,000 us launch (15), kernel (50) and what follows the call (130) have a cause; 805 are its late return."""
    job.op("op", 0, 1000)
    job.call("cudaLaunchKernel", 10, 5, 1)
    job.kernel("kernel", 20, 50, 1)
    job.call("cudaDeviceSynchronize", 60, 810, 2)
    [said] = summarize(linked(job, tmp_path), 0)["warnings"]
    assert "80.5 % of the recorded span are waits whose cause the recording does not show" in said


def test_a_device_is_busy_once_however_many_streams_run(job: MiniJob, tmp_path: Path) -> None:
    """50 us from 20 on, 40 from 40 on beside them, 10 in the middle of both, and 10 from 200 on: 20 to 80, 200 to 210."""
    job.op("op", 0, 100)
    for number, (start, long, stream) in enumerate([(20, 50, 7), (40, 40, 8), (45, 10, 9), (200, 10, 7)]):
        job.call("cudaLaunchKernel", 10 + number, 1, 1 + number)
        job.kernel(f"kernel{number}", start, long, 1 + number, stream=stream)
    summary = summarize(linked(job, tmp_path), 0)
    assert summary["device_busy_ns"] == 70_000
    assert any("device busy 70.0 us" in line for line in lines(summary))


@pytest.mark.shared
def test_the_device_of_a_recording_is_busy_for_the_union_of_its_operations(
    shared: Path, tmp_path: Path
) -> None:
    """resnet_cross is busy for 157,500.1 us in the table of the data (a union, made by hand)."""
    inputs = find_inputs(shared / "data" / "pairs", "resnet_cross")
    outcome = convert_job(inputs, tmp_path / "w", Settings(), jobs=1).outcomes[0]
    assert outcome.summary["device_busy_ns"] == pytest.approx(157_500_100, abs=100)
    assert outcome.summary["device_busy_ns"] <= outcome.summary["measured_span_ns"]


def test_step_window_and_gpu_only_choose_a_part(job: MiniJob, tmp_path: Path) -> None:
    """Only operators of the step or window, and only device nodes."""
    for step in range(2):
        job.op(f"ProfilerStep#{step}", 1000 * step, 900, scope=7, annotation=True)
        job.op(f"op{step}", 1000 * step + 10, 40)
        job.call("cudaLaunchKernel", 1000 * step + 20, 5, 1 + step)
        job.kernel(f"kernel{step}", 1000 * step + 30, 50, 1 + step)
    one = linked(job, tmp_path, step=1)
    assert "op1" in names_of(one)
    assert "op0" not in names_of(one)
    assert "kernel0" not in names_of(one)
    window = linked(job, tmp_path, window_ns=(5_000, 500_000))
    # the operator goes on for 25 us behind the launch
    assert [n for n in names_of(window) if n != "gap"] == ["op0", "rest of operator", "kernel0"]
    gpu = linked(job, tmp_path, gpu_only=True)
    assert names_of(gpu) == ["kernel0", "device gap", "kernel1"]
    assert gpu.graph.replay_ns == gpu.measured_ns == 1_050_000
    with pytest.raises(ConversionError, match="no ProfilerStep#9; steps in the trace: 0, 1"):
        linked(job, tmp_path, step=9)


def test_a_device_trace_alone_makes_a_graph(job: MiniJob, tmp_path: Path) -> None:
    """Nesting gives the call tree; a trace without operators uses its calls."""
    simple(job)
    _, device = job.write(tmp_path)
    assert len(link(None, read_device_trace(device)).graph) == 5
    job.events = [e for e in job.events if e["cat"] != "cpu_op"]
    _, device = job.write(tmp_path)
    result = link(None, read_device_trace(device))
    assert names_of(result).count("cudaLaunchKernel") == 2


def test_overlapping_children_are_clipped(job: MiniJob, tmp_path: Path) -> None:
    """A quarter of a microsecond of file resolution must not break nesting."""
    parent = job.op("parent", 0, 100)
    job.op("child", 50, 50.25, parent=parent)
    job.op("next", 100, 10)
    result = linked(job, tmp_path)
    assert result.graph.replay_ns == result.measured_ns == 110_000


@pytest.mark.parametrize("durations", [[537] * 3754, [400, 400, 400, 1200, 100], [1], [0, 0]])
def test_whole_microseconds_keep_running_sums(durations: list[int]) -> None:
    """Within half a microsecond of the true sum at every node (truncation loses a quarter)."""
    ns = np.array(durations, np.int64)
    whole = micros(ns, np.zeros(len(ns), np.int32))
    assert np.abs(np.cumsum(whole) * 1000 - np.cumsum(ns)).max() <= 500
    assert (whole >= 0).all()


def test_the_linked_json_carries_the_whole_graph(job: MiniJob, tmp_path: Path) -> None:
    """Written and read back: the same nodes, durations and edges; upstream's keys are there."""
    simple(job)
    collective(job, "allreduce", 300, 9, elements=50, group="5")
    job.call("cudaDeviceSynchronize", 330, 60, 20)
    before = linked(job, tmp_path)
    path = tmp_path / "linked.json"
    write_linked(before, path)
    host, device, pairing = read_linked(path)
    after = link(host, device, pairing=pairing)
    assert names_of(after) == names_of(before)
    assert after.graph.duration.tolist() == before.graph.duration.tolist()
    assert after.graph.sources.tolist() == before.graph.sources.tolist()
    assert [c.group for c in after.graph.comm.values()] == ["5"]
    text = path.read_text()
    for key in (
        "inclusive_dur",
        "exclusive_dur",
        "inter_thread_dep",
        "sync_dep",
        "stream",
        "cat",
        "ctrl_deps",
    ):
        assert f'"{key}":' in text


def test_upstreams_linked_json_is_read(tmp_path: Path) -> None:
    """Without our extra key: the launch is placed at the start of the operator."""
    import json

    attrs = [{"name": n, "type": "uint64", "value": v} for n, v in (("rf_id", 3), ("tid", 1), ("scope", 0))]
    io: dict[str, list[str]] = {"values": [], "shapes": [], "types": []}
    common = {"inputs": io, "outputs": io, "attrs": attrs, "inter_thread_dep": None, "sync_dep": []}
    nodes = [
        {"id": 1, "name": "[pytorch|profiler|execution_trace|process]", "ctrl_deps": 1, **common,
         "inclusive_dur": 0, "exclusive_dur": 0, "ts": None},
        {"id": 2, "name": "aten::mul", "ctrl_deps": 1, **common, "inclusive_dur": 10.5, "exclusive_dur": 10.5,
         "ts": 1690000000000000.0},
        {"id": 3, "name": "mul_kernel", "ctrl_deps": 2, **common, "cat": "kernel", "ph": "X", "stream": 7,
         "inclusive_dur": 2.25, "exclusive_dur": 2.25, "ts": 1690000000000008.0},
    ]  # fmt: skip
    path = tmp_path / "up.json"
    path.write_text(json.dumps({"schema": "1.1.1-chakra.0.0.4", "nodes": nodes}, indent=4))
    host, device, pairing = read_linked(path)
    result = link(host, device, pairing=pairing)
    assert names_of(result) == ["aten::mul", "mul_kernel"]
    assert result.graph.duration.tolist() == [10_500, 2_250]


def test_the_written_trace_has_what_the_replay_needs(job: MiniJob, tmp_path: Path) -> None:
    """Attributes, order, ids, groups file; nothing dropped."""
    simple(job)
    job.header["distributedInfo"] = {
        "rank": 2, "world_size": 4, "pg_config": [
            {"pg_name": "0", "pg_size": 4, "ranks": [0, 1, 2, 3]}, {"pg_name": "mesh_tp", "pg_size": 2, "ranks": [2, 3]},
        ],
    }  # fmt: skip
    collective(job, "allreduce", 300, 9, elements=50, group="mesh_tp")
    host, device = job.write(tmp_path)
    out = tmp_path / "out.2.et"
    outcome = convert_rank(Inputs(host, device), out, Settings(strict=True), check=True)
    trace = read_trace(out)
    assert outcome.rank == 2
    assert outcome.summary["self_check"] == []
    assert outcome.check is not None
    assert outcome.check.error == 0
    assert (trace.is_cpu_op >= 0).all()
    assert (np.diff(trace.start_micros) >= 0).all()
    assert trace.ids.tolist() == list(range(1, trace.n_nodes + 1))
    comm = trace.node(int(np.flatnonzero(trace.types == NodeType.COMM_COLL)[0]))
    assert comm.attrs["pg_name"] == "1"
    assert comm.attrs["comm_size"] == 200
    assert (tmp_path / "out.comm_groups.json").read_text().strip() == '{"1": [2, 3]}'
    for i in np.flatnonzero(trace.is_cpu_op == 0).tolist():
        assert {"stream", "device", "duration_ns"} <= set(trace.node(i).attrs)


def test_blocks_and_one_piece_make_the_same_file(job: MiniJob, tmp_path: Path) -> None:
    """Large traces are encoded block by block."""
    from chakra.converters.pytorch.comm.group_numbers import GroupNumbers
    from chakra.converters.pytorch.write.emit import emit, encode_blocks

    simple(job)
    collective(job, "send", 300, 9, elements=50, rank=1)
    result = linked(job, tmp_path)
    table = GroupNumbers([("x", result.groups)])
    whole = emit(result, 0, table)
    whole.ids[:] = np.arange(1, len(result.graph) + 1)
    blocks = b"".join(encode_blocks(result, 0, table, size=2))
    path = tmp_path / "blocks.et"
    path.write_bytes(blocks)
    trace = read_trace(path)
    other = tmp_path / "whole.et"
    other.write_bytes(whole.encode())
    expected = read_trace(other)
    for i in range(trace.n_nodes):
        assert trace.node(i).attrs == expected.node(i).attrs
        assert trace.node(i).data_deps == expected.node(i).data_deps


def test_a_low_share_ends_below_the_threshold(job: MiniJob, tmp_path: Path) -> None:
    """Written, summarised, and exit code 4."""
    simple(job)
    for k in range(10):
        job.op(f"lost{k}", 0, 0, in_kineto=False)
    host, device = job.write(tmp_path)
    with pytest.raises(ThresholdError, match=r"2 of 12 host operators matched \(16.7 %\)"):
        convert_rank(Inputs(host, device), tmp_path / "x.et", Settings())
    assert (tmp_path / "x.et").exists()
    convert_rank(Inputs(host, device), tmp_path / "x.et", Settings(min_matched=0.1))


def test_graphs_are_acyclic_and_in_time_order(job: MiniJob, tmp_path: Path) -> None:
    """Every source stands before its node."""
    simple(job)
    graph = linked(job, tmp_path).graph
    targets = np.repeat(np.arange(len(graph)), np.diff(graph.offsets))
    assert (graph.sources < targets).all()
    assert (graph.parent < np.arange(len(graph))).all()


def test_read_and_link_needs_a_device_trace(tmp_path: Path) -> None:
    """A host trace alone has no times."""
    from chakra.errors import UsageError

    with pytest.raises(UsageError, match="a device trace is needed"):
        read_and_link(Inputs(host=tmp_path / "x"), Settings())


def test_resolution_is_known(job: MiniJob, tmp_path: Path) -> None:
    """Nanoseconds with a base, microseconds for integers."""
    job.op("a", 0.5, 10)
    _, device = job.write(tmp_path)
    trace: DeviceTrace = read_device_trace(device)
    assert trace.resolution_ns == 1


def test_process_groups_become_metadata_nodes_on_request(job: MiniJob, tmp_path: Path) -> None:
    """In the form that the simulator's reader cuts apart: two characters off each end leave JSON."""
    import json

    from chakra.converters.pytorch.write.emit import EmitOptions

    groups = json.dumps([{"pg_name": "tp", "ranks": [0, 1], "group_size": 2}])
    job.op("## process_group:init ##", 0, 0, scope=7, inputs=([groups], [[]], ["String"]), in_kineto=False)
    job.op("aten::add", 0, 10)
    host, device = job.write(tmp_path)
    settings = Settings(emit=EmitOptions(metadata_nodes=True), strict=True, min_matched=0.4)
    convert_rank(Inputs(host, device), tmp_path / "x.et", settings)
    trace = read_trace(tmp_path / "x.et")
    (row,) = np.flatnonzero(trace.types == NodeType.METADATA).tolist()
    text = trace.node(row).proto().inputs.values
    assert json.loads(text[2:-2]) == [{"pg_name": "1", "ranks": [0, 1]}]


def test_tensor_dependencies_replace_stream_order(job: MiniJob, tmp_path: Path) -> None:
    """Storage 5 is written by a, freed, written by b and read by c: c depends on b only; d on nothing."""

    def tensor(storage: int) -> list[Any]:
        return [storage + 100, storage, 0, 4, 4, "cuda:0"]

    for k, (name, reads, writes) in enumerate((("a", [], 5), ("b", [], 5), ("c", [5], 6), ("d", [9], 7))):
        job.op(name, 100 * k, 40, inputs=([tensor(s) for s in reads], [], []))
        job.nodes[-1]["outputs"]["values"] = [tensor(writes)]
        job.call("cudaLaunchKernel", 100 * k + 10, 5, 1 + k)
        job.kernel(f"kernel {name}", 100 * k + 45, 200, 1 + k)
    result = linked(job, tmp_path, deps="tensors")
    assert sources(result, "kernel c") == {"c", "kernel b"}
    assert sources(result, "kernel b") == {"b"}
    assert sources(result, "kernel d") == {"d"}
    assert "kernel c" in sources(linked(job, tmp_path), "kernel d")


def test_late_starts_behind_another_stream_are_waits(job: MiniJob, tmp_path: Path) -> None:
    """The wait was called by a thread that launches elsewhere next: only the times show which stream it held."""
    job.op("a", 0, 60)
    job.call("cudaLaunchKernel", 2, 2, 1)
    job.kernel("copy one", 10, 5, 1, stream=14)
    job.call("cudaLaunchKernel", 12, 2, 2)
    job.kernel("long", 20, 480, 2)
    job.call("cudaStreamWaitEvent", 20, 1, 3)
    job.call("cudaLaunchKernel", 30, 2, 4)
    job.kernel("compute", 500, 10, 4)
    job.call("cudaLaunchKernel", 40, 2, 5)
    job.kernel("copy two", 503, 5, 5, stream=14)
    result = linked(job, tmp_path)
    assert "long" in sources(result, "copy two")


def test_odd_values_never_end_in_a_traceback(job: MiniJob, tmp_path: Path) -> None:
    """Strings, nulls, negatives and huge numbers in every field of events and nodes."""
    import json
    import random

    from chakra.errors import ChakraError

    simple(job)
    collective(job, "allreduce", 300, 9, elements=50)
    job.call("cudaStreamWaitEvent", 345, 1, 40)
    job.op("sync", 400, 50)
    job.call("cudaStreamSynchronize", 410, 30, 41)
    host, device = job.write(tmp_path)
    chance = random.Random(7)
    odd: list[Any] = [None, "", "x", -1, 0, 2**63, 2**70, 1.5, [], {}, True, "NaN"]
    linked_count = 0
    messages: list[str] = []
    for _ in range(150):
        documents = [json.loads(host.read_text()), json.loads(device.read_text())]
        for document, key in zip(documents, ("nodes", "traceEvents"), strict=True):
            for _ in range(2):
                item = chance.choice(document[key])
                field = chance.choice(list(item))
                target = item
                if isinstance(item[field], dict) and item[field] and chance.random() < 0.8:
                    target, field = item[field], chance.choice(list(item[field]))
                target[field] = chance.choice(odd)
        paths = [tmp_path / "h.json", tmp_path / "d.json"]
        for path, document in zip(paths, documents, strict=True):
            path.write_text(json.dumps(document))
        try:
            outcome = convert_rank(
                Inputs(paths[0], paths[1]),
                tmp_path / "o.et",
                Settings(min_matched=0, min_attached=0),
                check=True,
            )
            assert outcome.check is not None
            linked_count += 1
        except ChakraError as error:
            messages.append(str(error))
    assert linked_count > 50
    assert not [text for text in messages if "\n" in text]


def test_what_is_attached_and_its_share_belong_together() -> None:
    """112 hang on operators, 872 on launches outside of them, 17 of 1001 on nothing: 984 / 1001 = 98.3 %."""
    counts = {"attached": 112, "kept": 1001, "launched_outside_operators": 872, "share": 984 / 1001}
    assert attached_text(counts) == (
        "984 of 1001 device operations (98.3 %, 872 of them launched outside operators)"
    )
    assert attached_text({**counts, "kept": 112, "launched_outside_operators": 0, "share": 1.0}) == (
        "112 of 112 device operations (100.0 %)"
    )
