"""What a replay says of a recording's own machine: back ends of CPUs, other accelerators, messages."""

from typing import Any

import numpy as np
import pytest

from chakra.builder import TraceBuilder
from chakra.et import Trace
from chakra.et.read import decode_trace
from chakra.platforms.cluster import cluster
from chakra.replay import simulate
from chakra.rescale.edit import Edits, edited
from chakra.schemas.protolib import encode_varint

GLOO = (
    "the recording ran its collectives with gloo on CPUs; they take the times of nccl on hgx-h100, as if its "
    "accelerators ran them"
)


def as_recorded(builder: TraceBuilder, device: str = "") -> Trace:
    """The trace as the converter of profiles writes it: spans in its metadata, and the device's name."""
    trace = builder.build()
    records = edited(trace, Edits()).records
    metadata = trace.metadata
    for name in ("measured_span_ns", "explained_span_ns"):
        metadata.attr.add(name=name, int64_val=100_000)
    if device:
        metadata.attr.add(name="accelerator", string_val=device)
    head = metadata.SerializeToString()
    body = records.data[records.meta_end :].tobytes()
    return decode_trace(np.frombuffer(encode_varint(len(head)) + head + body, np.uint8), "<memory>")


def job(collective: str = "", *, device: str = "", message: bool = False, cpu: bool = False) -> list[Trace]:
    """100 us of computing on each of two ranks, then a collective of that name or a message from 0 to 1, or both."""
    traces = []
    for rank in range(2):
        builder = TraceBuilder(rank=rank, npus=2)
        last = builder.compute("gemm", duration_micros=100, cpu=cpu)
        if collective:
            last = builder.collective("all_reduce", size_bytes=1 << 24, name=collective, after=last)
        if message and rank == 0:
            builder.send(1, size_bytes=1 << 24, after=last)
        if message and rank == 1:
            builder.recv(0, size_bytes=1 << 24, after=last)
        traces.append(as_recorded(builder, device))
    return traces


def notes(traces: list[Trace], machine: str = "hgx-h100", **options: Any) -> list[str]:
    place = cluster(machine, 2)
    return simulate(traces, place.system(roofline_enabled=0), place.network(), **options).notes


def test_collectives_of_cpus_on_a_machine_of_accelerators() -> None:
    assert GLOO in notes(job("gloo:all_reduce", cpu=True))
    for other in ("nccl:all_reduce", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)"):
        assert not [note for note in notes(job(other)) if "on CPUs" in note]
    assert not [note for note in notes(job("gloo:all_reduce"), compat="astra-sim") if "on CPUs" in note]
    # without a library nothing stands in for gloo: the network is the one that is described
    assert not [note for note in notes(job("gloo:all_reduce"), "cs-2") if "on CPUs" in note]


def test_messages_of_cpus_take_the_networks_times() -> None:
    assert not [note for note in notes(job(message=True, cpu=True)) if "on CPUs" in note]


@pytest.mark.parametrize(("device", "machine", "told"), [
    ("NVIDIA A100-SXM4-80GB", "hgx-h100", "H100 SXM: --accelerator hgx-h100 gives them that one's"),
    ("AMD Instinct MI300X", "hgx-h100", "H100 SXM: --accelerator hgx-h100 gives them that one's"),
    ("NVIDIA H100 80GB HBM3", "mi300x", "MI300X: --accelerator mi300x gives them that one's"),
    ("Tesla V100-SXM2-16GB", "hgx-h100", "H100 SXM"),
    ("NVIDIA H100 80GB HBM3", "hgx-h100", None),
    ("NVIDIA H200", "hgx-h200", None),
    ("AMD Instinct MI300X", "mi300x", None),
    ("", "hgx-h100", None),
])  # fmt: skip
def test_kernels_of_another_accelerator(device: str, machine: str, told: str | None) -> None:
    found = [
        note for note in notes(job("all_reduce", device=device), machine) if note.startswith("kernels keep")
    ]
    wanted = [f"kernels keep the times that they took on {device}; the machine has {told}"]
    assert found == (wanted if told else [])


def test_kernels_that_take_other_times_are_not_said_to_keep_theirs() -> None:
    found = notes(job("all_reduce", device="NVIDIA A100-SXM4-80GB"), accelerator="hgx-h100")
    assert not [note for note in found if note.startswith("kernels keep")]
    assert [note for note in found if note.startswith("kernels take the times of H100 SXM")]


@pytest.mark.parametrize(("traces", "said", "not_said"), [
    (job("all_reduce"), "collectives' times are", "receives"),
    (job(message=True), "how far times of sends and receives are off is not known", "collectives"),
    (job("all_reduce", message=True), "which is taken for sends and receives, too", "not known"),
])  # fmt: skip
def test_what_is_uncertain_is_in_the_workload(traces: list[Trace], said: str, not_said: str) -> None:
    [note] = [note for note in notes(traces) if note.startswith("uncertain")]
    assert said in note
    assert not_said not in note
