"""Communication by the names of kernels, and launches whose kernels the profiler lost."""

from pathlib import Path
from typing import Any

import pytest
from mini_job import MiniJob

from chakra.converters.pytorch import convert_job, find_inputs
from chakra.converters.pytorch.job import Inputs, Outcome, Settings, convert_rank
from chakra.converters.pytorch.link import LinkOptions
from chakra.converters.pytorch.read.kernel_names import DEFAULT, KernelNames, looks_like_communication
from chakra.errors import ThresholdError, UsageError
from chakra.et import CommType, NodeType, read_trace
from chakra.replay import simulate

DATA = Path(__file__).parents[1] / "data" / "pytorch"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*, int)", "allreduce"),
        ("void sglang::cross_device_reduce_2stage<half, 8>(RankData*)", "allreduce"),
        ("void two_shot_all_reduce_kernel_inplace<__nv_bfloat16, 16, 8>(__nv_bfloat16**)", "allreduce"),
        ("multimem_one_shot_all_reduce_kernel<float>", "allreduce"),
        ("void tensorrt_llm::kernels::oneShotAllReduceKernel<half, 8>(AllReduceParams)", "allreduce"),
        ("flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<4>", "allreduce"),
        ("quickreduce::allreduce_prototype_twoshot<half>", "allreduce"),
        ("void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*, int*)", "alltoall"),
        ("void deep_ep::internode_ll::combine<true, 7168, 9>(void*)", "alltoall"),
        ("void deep_ep::intranode::notify_dispatch<8>(int const*)", "barrier"),
        ("void deep_ep::layout::get_dispatch_layout<256, 32, 8>(long const*)", ""),
        ("nvshmemi_alltoall_kernel", "alltoall"),
        ("nvshmemi_barrier_on_stream_kernel", "barrier"),
        ("void mscclpp::allgather6(int)", "allgather"),
        ("hcom_allReduce__123_0_1", "allreduce"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "alltoall"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage)", "reducescatter"),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "allreduce"),
        ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>", None),
        ("void cub::DeviceReduceSingleTileKernel<Policy>", None),
        ("void at::native::vectorized_gather_kernel<16>", None),
    ],
)
def test_kinds_by_name(name: str, kind: str | None) -> None:
    """Names as these projects give them; a reduction on one device is none."""
    assert DEFAULT.kind(name) == kind
    if kind is None:
        assert not looks_like_communication(name)


def test_the_users_patterns_come_first() -> None:
    """A pattern may say what a kernel is, or that it computes."""
    names = KernelNames.of(["my_(ring|tree)=all_reduce", "cross_device=none", "nccl.*Special=all-to-all"])
    assert names.kind("void my_tree<4>()") == "allreduce"
    assert names.kind("vllm::cross_device_reduce_1stage") == ""
    assert names.kind("ncclDevKernel_Special") == "alltoall"
    assert names.kind("ncclDevKernel_AllGather") == "allgather"


@pytest.mark.parametrize("text", ["abc", "=allreduce", "a=b", "(=allreduce", "a="])
def test_patterns_that_say_nothing(text: str) -> None:
    """Each is an error that names the option."""
    with pytest.raises(UsageError, match="--comm-kernels"):
        LinkOptions(comm_kernels=(text,))


def converted(job: MiniJob, folder: Path, **options: Any) -> Outcome:
    """The job as a trace, strictly."""
    host, device = job.write(folder)
    settings = Settings(strict=True, link=LinkOptions(**options))
    return convert_rank(Inputs(host, device), folder / "o.0.et", settings)


def one_kernel(job: MiniJob, name: str) -> None:
    """An operator of 1,048,576 elements of two bytes that launches a kernel."""
    values = [[[1, 0, 0, 1048576, 2, "cuda:0"], [2, 0, 0, 4, 4, "cuda:0"], 5]]
    job.op(
        "custom::op",
        0,
        40,
        inputs=(values[0], [[1048576], [4], []], ["Tensor(c10::BFloat16)", "Tensor(int)", "Int"]),
    )
    job.call("cudaLaunchKernel", 10, 5, 1)
    job.kernel(name, 20, 80, 1)


def test_a_custom_all_reduce_is_communication(job: MiniJob, tmp_path: Path) -> None:
    """Its bytes are those of the operator's largest tensor."""
    one_kernel(job, "void vllm::cross_device_reduce_1stage<half, 2>(vllm::RankData*)")
    converted(job, tmp_path)
    trace = read_trace(tmp_path / "o.0.et")
    found = trace.types == NodeType.COMM_COLL
    assert trace.comm_type[found].tolist() == [CommType.ALL_REDUCE]
    assert trace.comm_size[found].tolist() == [2 << 20]


def test_what_looks_like_communication_is_said(job: MiniJob, tmp_path: Path) -> None:
    """A name that no rule knows: a warning, and an error with --strict, until the user says what it is."""
    one_kernel(job, "my_all_gather_thing")
    with pytest.raises(ThresholdError, match="1 kernel that looks like communication"):
        converted(job, tmp_path)
    outcome = converted(job, tmp_path, comm_kernels=("my_all_gather=allgather",))
    assert [c["kind"] for c in outcome.summary["collectives"]] == ["allgather"]
    outcome = converted(job, tmp_path, comm_kernels=("my_all_gather=none",))
    assert outcome.summary["collectives"] == []
    assert outcome.summary["warnings"] == []
    outcome = converted(job, tmp_path, comm_kernels=("my_all_gather=none", "my_al_gather=allgather"))
    assert [text.split(": ", 1)[1] for text in outcome.summary["warnings"]] == [
        "--comm-kernels: no kernel's name has 'my_al_gather'"
    ]


def test_kernels_of_serving_libraries_move_bytes(tmp_path: Path) -> None:
    """Two all-reduces and two exchanges of 2 MiB over 0.001 GB/s: seconds, not the 500 us that were recorded."""
    found = convert_job(
        find_inputs(DATA / "custom_allreduce"), tmp_path / "job", Settings(strict=True), jobs=1
    )
    assert found.mismatches == []
    sent = [("allreduce", 2, 2 << 21), ("alltoall", 2, 2 << 21)]
    for outcome in found.outcomes:
        told = [(c["kind"], c["count"], c["bytes"]) for c in outcome.summary["collectives"]]
        assert told == sent
    system = {
        "endpoint-delay": 10,
        **{f"{kind}-implementation": ["ring"] for kind in ("all-reduce", "all-to-all")},
    }
    slow = {"topology": ["FullyConnected"], "npus_count": [2], "bandwidth": [0.001], "latency": [500]}
    result = simulate(str(tmp_path / "job"), system, slow)
    # each NPU sends half of an all-reduce twice, and half of an exchange once, at 2^30 B/s x 0.001
    assert result.finish_ns.max() == pytest.approx(
        2 * (1.0 + 0.5) * (1 << 21) / (0.001 * 2**30) * 1e9, rel=0.01
    )


@pytest.mark.parametrize(("name", "lost"), [("none", 10), ("half", 5), ("full", 0)])
def test_launches_without_kernels_are_counted(name: str, lost: int, tmp_path: Path) -> None:
    """Ten launches; the profiler lost the kernels of some: their device time is missing from the trace."""
    folder = DATA / "lost_kernels"
    inputs = Inputs(folder / f"{name}.et.json", folder / f"{name}.dev.json")
    output = tmp_path / "o.0.et"
    outcome = convert_rank(inputs, output, Settings(min_recorded=0))
    attaching = outcome.summary["attaching"]
    assert (attaching["kernel_launches"], attaching["kernel_launches_lost"]) == (10, lost)
    assert any("lost" in text for text in outcome.summary["warnings"]) == bool(lost)
    if lost:
        for settings in (Settings(), Settings(min_recorded=0, strict=True)):
            with pytest.raises(ThresholdError, match=f"{lost} of 10 kernel launches"):
                convert_rank(inputs, output, settings)
    else:
        convert_rank(inputs, output, Settings(strict=True))


def test_launches_that_launch_nothing_are_not_lost(job: MiniJob, tmp_path: Path) -> None:
    """A driver's launch inside the runtime's is the same one; while a graph is captured nothing runs."""
    job.op("a", 0, 100)
    job.call("cudaLaunchKernel", 10, 10, 1)
    job.call("cuLaunchKernel", 12, 5, 2)
    job.kernel("k", 30, 5, 2)
    job.call("cudaStreamBeginCapture", 40, 1, 3)
    job.call("cudaLaunchKernel", 42, 5, 4)
    job.call("cudaStreamEndCapture", 50, 1, 5)
    job.call("cudaLaunchKernel", 60, 10, 6)
    job.kernel("l", 75, 5, 6)
    attaching = converted(job, tmp_path).summary["attaching"]
    assert (attaching["kernel_launches"], attaching["kernel_launches_lost"]) == (2, 0)
