"""Who waits for whom, in jobs small enough to say it: what a replay may not forget, and may not invent."""

from pathlib import Path

import numpy as np
import pytest
from mini_job import MiniJob

from chakra.converters.pytorch.job import Inputs, Settings, convert_rank, read_and_link
from chakra.converters.pytorch.link import Linked
from chakra.et import read_trace
from chakra.replay import simulate
from chakra.replay.what_if import what_if

DATA = Path(__file__).parents[1] / "data" / "pytorch"
ONE = {"topology": ["Switch"], "npus_count": [1], "bandwidth": [100], "latency": [500]}


def linked(device: Path, host: Path | None = None) -> Linked:
    """One rank of files."""
    return read_and_link(Inputs(host=host, device=device), Settings(min_attached=0))[0]


def waited_for(result: Linked, name: str) -> list[list[tuple[str, int]]]:
    """For every node of a name: names and starts (us) of the operations that it waits for beside its launch."""
    graph, texts = result.graph, result.device.names.texts
    found = []
    for i in np.flatnonzero([texts[c].startswith(name) for c in graph.name.tolist()]).tolist():
        sources = graph.sources[graph.offsets[i] : graph.offsets[i + 1]].tolist()
        on_device = [j for j in sources if graph.device_row[j] >= 0]
        found.append([(texts[graph.name[j]][:14], int(graph.start[j]) // 1000) for j in on_device])
    return found


@pytest.mark.parametrize("rank", [0, 1])
def test_a_librarys_own_waits_are_not_the_callers(rank: int) -> None:
    """NCCL waits behind each launch of its own: no kernel of the caller does; the optimizer waits for all."""
    result = linked(DATA / "internal_wait" / f"ddp.rank{rank}.kineto.json")
    assert waited_for(result, "gemm1") == [[("gemm2", 331)]]
    assert waited_for(result, "adam") == [[("ncclDevKernel_", 632), ("gemm1", 633)]]


def test_a_blocking_send_is_waited_for() -> None:
    """Each transfer is awaited at once: the record of its end stands right before the wait."""
    result = linked(DATA / "send_wait" / "pp.rank0.kineto.json")
    assert waited_for(result, "gemm1") == [[("gemm0", 30), ("ncclDevKernel_", 225)]]
    assert waited_for(result, "gemmD") == [[("gemm1", 726), ("ncclDevKernel_", 825)]]
    assert result.waits.counts["stream waits (end of work)"] == 3


def test_a_recorded_wait_names_its_communication(job: MiniJob, tmp_path: Path) -> None:
    """Two collectives in flight; PyTorch's record of the wait says that the second one is meant."""
    types = ["Tuple[Int,Bool]", "Tuple[String,String]", "Int", "String"]

    def comms(name: str, number: int, ts: float, dur: float) -> None:
        values = [[number, False], ["0", "default_pg"], 0, name]
        job.op("record_param_comms", ts, dur, inputs=(values, [], types))

    for number, start in ((1, 0), (2, 100)):
        comms("allreduce", number, start, 40)
        job.call("cudaEventRecord", start + 2, 1, start + 1)
        job.call("cudaStreamWaitEvent", start + 4, 1, start + 2)
        job.call("cudaLaunchKernel", start + 10, 5, start + 3)
        job.kernel(f"ncclDevKernel_AllReduce_{number}", start + 20, 60, start + 3, stream=20 + number)
        job.call("cudaEventRecordWithFlags", start + 30, 1, start + 4)
    job.op("other", 200, 20)
    job.call("cudaLaunchKernel", 205, 5, 300)
    job.kernel("first", 212, 5, 300)
    comms("wait", 2, 250, 20)
    job.call("cudaStreamWaitEvent", 255, 1, 301)
    job.op("use", 300, 20)
    job.call("cudaLaunchKernel", 305, 5, 302)
    job.kernel("second", 320, 5, 302)
    host, device = job.write(tmp_path)
    result = linked(device, host)
    assert waited_for(result, "second") == [[("ncclDevKernel_", 120), ("first", 212)]]
    assert result.waits.counts["stream waits (named)"] == 1


def test_kernels_launched_before_the_window_are_waited_for_in_order(tmp_path: Path) -> None:
    """The host waits for the tenth of them, so nearly nothing of its wait is its own: faster kernels, shorter wait."""
    result = linked(DATA / "prelaunched" / "job.json")
    tenth = 9_000
    assert waited_for(result, "cudaDeviceSynchronize")[0] == [("gemm", tenth)]
    output = tmp_path / "job.0.et"
    convert_rank(Inputs(device=DATA / "prelaunched" / "job.json"), output, Settings(min_attached=0))
    trace = read_trace(output)
    record = {"replay-only": True}
    assert simulate([trace], record, ONE).finish_ns.tolist() == [10_170_000]
    faster = what_if([trace], record, ONE, "accelerator.speed=10x").changed.finish_ns
    assert 1_100_000 <= int(faster[0]) <= 1_300_000


def test_a_kernel_without_a_known_launch_is_not_awaited_before_it_ended(job: MiniJob, tmp_path: Path) -> None:
    """The launch of the middle kernel is lost; a wait that returned before it ended was for the one before."""
    job.op("a", 0, 30)
    job.call("cudaLaunchKernel", 5, 5, 1)
    job.kernel("first", 15, 20, 1)
    job.kernel("lost", 100, 50, 99)
    job.call("cudaDeviceSynchronize", 40, 20, 2)
    job.op("b", 70, 100)
    job.call("cudaLaunchKernel", 75, 5, 3)
    job.kernel("last", 160, 10, 3)
    job.call("cudaDeviceSynchronize", 120, 55, 4)
    _, device = job.write(tmp_path)
    assert waited_for(linked(device), "cudaDeviceSynchronize") == [[("first", 15)], [("last", 160)]]
