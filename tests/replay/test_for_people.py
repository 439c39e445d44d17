"""A result at a prompt and in a notebook: short, a table, rows for pandas; and the chain that made it late."""

import re

import pytest

from chakra.builder import TraceBuilder
from chakra.errors import UsageError, WorkloadError
from chakra.et import Trace
from chakra.replay import ReplayResult, simulate

RING4 = {"topology": ["Ring"], "npus_count": [4], "bandwidth": [50], "latency": [500]}


def pipeline(stages: int = 4, micro_batches: int = 2) -> list[Trace]:
    traces = []
    for rank in range(stages):
        b = TraceBuilder(rank, stages)
        for number in range(micro_batches):
            got = [b.recv(rank - 1, size_bytes=1 << 20, tag=number)] if rank else []
            done = b.compute(f"F{number}", duration_micros=100 + 50 * rank, after=got)
            if rank < stages - 1:
                b.send(rank + 1, size_bytes=1 << 20, tag=number, after=done)
        traces.append(b.build())
    return traces


@pytest.fixture
def result() -> ReplayResult:
    return simulate(pipeline(), {}, RING4)


def test_the_repr_is_one_line_and_the_text_the_summary(result: ReplayResult) -> None:
    last = f"{int(result.finish_ns.max()):,}"
    assert repr(result) == f"<ReplayResult: 4 NPUs, finished after {last} ns, unaware>"
    assert str(result).startswith(f"finished after    {last} ns")
    assert "time of NPU 3" in str(result)


def test_a_notebook_shows_the_summary_and_the_npus(result: ReplayResult) -> None:
    page = result._repr_html_()
    assert page.count("<tr>") == 5
    assert f"{int(result.finish_ns[2]):,}" in page
    assert "time of NPU 3" in page
    many = simulate([compute_only()] * 64, {}, {**RING4, "npus_count": [64]})
    assert "... and 44 more NPUs" in many._repr_html_()


def compute_only() -> Trace:
    b = TraceBuilder()
    b.compute("<script>", duration_micros=1)
    return b.build()


def test_rows_for_tables(result: ReplayResult) -> None:
    npus = result.records()
    assert [row["npu"] for row in npus] == [0, 1, 2, 3]
    assert [row["finish_ns"] for row in npus] == result.finish_ns.tolist()
    parts = ("compute_ns", "cpu_ns", "transfer_ns", "waiting_ns", "memory_ns", "idle_ns")
    assert all(sum(row[part] for part in parts) == row["finish_ns"] for row in npus)
    nodes = result.records("nodes")
    assert len(nodes) == sum(trace.n_nodes for trace in pipeline())
    ids, issue, finish = result.node_ticks(1)
    mine = [row for row in nodes if row["npu"] == 1]
    assert [row["node"] for row in mine] == ids.tolist()
    assert [row["issue_ns"] for row in mine] == issue.tolist()
    assert [row["finish_ns"] for row in mine] == finish.tolist()
    assert result.records("dimensions") == result.dimensions
    with pytest.raises(UsageError, match=r"what must be one of npus, nodes, .* not 'node'"):
        result.records("node")  # type: ignore[arg-type]


@pytest.mark.parametrize("backend", ["unaware", "aware"])
def test_the_critical_path_crosses_messages(backend: str) -> None:
    """Through an empty pipeline: the first micro-batch from stage to stage, then the rest on the last, slowest one."""
    run = simulate(pipeline(), {}, RING4, backend=backend)
    path = [(row["npu"], row["name"]) for row in run.critical_path]
    first = [(npu, name) for npu in range(4) for name in ("recv", "F0", "send")][1:-1]
    assert path == [*first, (3, "F1")]
    assert run.critical_path[-1]["finish_ns"] == run.finish_ns.max()
    ends = [row["finish_ns"] for row in run.critical_path]
    assert ends == sorted(ends)


def test_equal_tags_are_met_in_order() -> None:
    """Two messages of one tag: the second receive waits for the second send."""
    sender, receiver = TraceBuilder(0, 2), TraceBuilder(1, 2)
    early = sender.compute("early", duration_micros=1)
    sender.send(1, size_bytes=8, name="send0", after=early)
    late = sender.compute("late", duration_micros=9, after=early)
    sender.send(1, size_bytes=8, name="send1", after=late)
    receiver.recv(0, size_bytes=8, name="recv0")
    end = receiver.recv(0, size_bytes=8, name="recv1")
    receiver.compute("end", duration_micros=1, after=end)
    run = simulate([sender.build(), receiver.build()], {}, {**RING4, "npus_count": [2]})
    assert [row["name"] for row in run.critical_path] == ["early", "late", "send1", "recv1", "end"]


def test_one_trace_is_a_workload_of_one_npu() -> None:
    one = {**RING4, "npus_count": [1]}
    assert simulate(compute_only(), {}, one).finish_ns.tolist() == [1000]
    with pytest.raises(WorkloadError, match=re.escape("1 trace for 4 NPUs; give one per NPU")):
        simulate(compute_only(), {}, RING4)
