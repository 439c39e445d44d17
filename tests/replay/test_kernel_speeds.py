"""Kernels by family, and recorded kernels on another accelerator."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recorded_traces import saying

from chakra.cli.main import run as chakra
from chakra.converters.pytorch import Settings, convert_job, find_inputs
from chakra.errors import UsageError, WorkloadError
from chakra.et import NodeType, Trace, TraceColumns, read_trace
from chakra.et.operators import Attention, Direction, Kernel, KernelKind, MatrixProduct, operator_text
from chakra.et.recorded_operators import recorded_operator
from chakra.generate import TransformerRequest, build_workload
from chakra.replay import simulate
from chakra.replay.compute import compute_parameters, operator_ns
from chakra.replay.compute.other_accelerator import accelerator_named
from chakra.replay.what_if import what_if
from chakra.schemas.et_def_pb2 import IOInfo

NETWORK = {"topology": ["Switch"], "npus_count": [1], "bandwidth": [100.0], "latency": [500.0]}
SYSTEM: dict[str, Any] = {
    f"{kind}-implementation": ["ring"]
    for kind in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
}
NAMES = (
    "aten::mm",
    "nvjet_tst_128",
    "flash_fwd_kernel",
    "layer_norm_kernel",
    "mystery",
    "Memcpy HtoD (Pinned -> Device)",
)


def recording(accelerator: str = "NVIDIA H200", launcher: str = NAMES[0]) -> Trace:
    """An operator that launches a product of 16-bit numbers, and kernels of other families, 100 us each."""
    columns = TraceColumns(len(NAMES))
    columns.types[:] = NodeType.COMP
    columns.set_names([launcher, *NAMES[1:]])
    columns.set_bool("is_cpu_op", [1, 0, 0, 0, 0, 0])
    columns.set_int("duration_ns", [0, *[100_000] * 5])
    columns.set_int("tid", [1, *[-(2**63)] * 5])
    columns.set_ctrl_deps([0, 0, 1, 1, 1, 1, 1], [0])
    columns.set_data_deps([0, 0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4])
    bf16 = '["Tensor(c10::BFloat16)","Tensor(c10::BFloat16)"]'
    columns.set_inputs([0, *[-1] * 5], [IOInfo(values="[]", shapes="[[4096,4096],[4096,8192]]", types=bf16)])
    if accelerator:
        columns.metadata.attr.add(name="accelerator", string_val=accelerator)
    columns.metadata.attr.add(name="measured_span_ns", int64_val=500_000)
    return columns.build()


def durations(trace: Trace, **options: Any) -> dict[str, int]:
    """How long each node takes in a replay."""
    [nodes] = simulate([trace], SYSTEM, NETWORK, **options).to_dict(nodes=True)["nodes"]
    return {
        name: end - start
        for name, start, end in zip(nodes["names"], nodes["issue_ns"], nodes["finish_ns"], strict=True)
    }


@pytest.mark.parametrize(
    ("speeds", "shorter"),
    [
        ({"matmul": 2.0}, {"nvjet_tst_128": 50_000}),
        ({"attention": 4.0}, {"flash_fwd_kernel": 25_000}),
        ({"memory-bound": 2.0}, {"layer_norm_kernel": 50_000}),
        ({"norm": 2.0, "memory-bound": 5.0}, {"layer_norm_kernel": 10_000}),
        ({"other": 0.5}, {"mystery": 200_000}),
        ({"name:nvjet|mystery": 2.0}, {"nvjet_tst_128": 50_000, "mystery": 50_000}),
        ({"copy": 10.0}, {}),
    ],
)
def test_speeds_of_families(speeds: dict[str, float], shorter: dict[str, int]) -> None:
    """Only kernels of that family; a copy over the bus keeps its time."""
    trace = recording()
    assert durations(trace, kernel_speeds=speeds) == {**durations(trace), **shorter}


@pytest.mark.parametrize(
    ("launcher", "speeds", "ns"),
    [
        ("aten::cudnn_convolution", {"convolution": 2.0}, 50_000),
        ("aten::cudnn_convolution", {"matmul": 2.0}, 100_000),
        ("aten::copy_", {"convolution": 2.0}, 100_000),
        ("aten::copy_", {"matmul": 2.0}, 50_000),
    ],
)
def test_the_operator_that_launched_a_kernel_says_its_family(
    launcher: str, speeds: dict[str, float], ns: int
) -> None:
    """A product of matrices by its name, launched for a convolution; what a copy launches is what its name says."""
    trace = recording(launcher=launcher)
    assert durations(trace, kernel_speeds=speeds)["nvjet_tst_128"] == ns
    [nodes] = simulate([trace], SYSTEM, NETWORK).to_dict(nodes=True)["nodes"]
    told = dict(zip(nodes["names"], nodes.get("families", [None] * len(nodes["names"])), strict=True))
    assert told["nvjet_tst_128"] == ("convolution" if "convolution" in launcher else None)


def test_what_astra_sim_does_not_take_of_a_recording_is_said() -> None:
    """Its roofline wants operations of every kernel; a recorded one has a time instead."""
    system = SYSTEM | {"roofline-enabled": 1, "peak-perf": 1, "local-mem-bw": 1}
    with pytest.raises(WorkloadError, match=r"num_ops; it has a recorded time, .* roofline-enabled 0"):
        simulate([recording()] * 2, system, {**NETWORK, "npus_count": [2]}, compat="astra-sim")


def test_what_if_takes_families() -> None:
    found = what_if([recording()], SYSTEM, NETWORK, "accelerator.matmul=2x,accelerator.memory-bound=4x")
    assert int(found.base.finish_ns[0] - found.changed.finish_ns[0]) == 50_000 + 75_000


@pytest.mark.parametrize("roofline", [False, True])
def test_generated_nodes_have_families_too(*, roofline: bool) -> None:
    """Whoever gives them their time: the trace, or the roofline."""
    more: dict[str, Any] = {} if roofline else {"peak_tflops": 900.0, "mem_gbps": 3000.0}
    request = TransformerRequest(model="gpt2-small", layers=2, npus=1, **more)
    system = {
        **SYSTEM,
        **({"roofline-enabled": 1, "peak-perf": 900, "local-mem-bw": 3000} if roofline else {}),
    }
    workload = build_workload(request.plan())

    def times(**options: Any) -> dict[str, int]:
        [nodes] = simulate(workload, system, NETWORK, **options).to_dict(nodes=True)["nodes"]
        pairs = zip(nodes["issue_ns"], nodes["finish_ns"], strict=True)
        return {name: end - start for name, (start, end) in zip(nodes["names"], pairs, strict=True)}

    before, after = times(), times(kernel_speeds={"matmul": 2.0})
    changed = {name.split(".")[1] for name, time in before.items() if after[name] != time}
    assert {"qkv", "proj", "fc1", "fc2"} <= changed
    assert not changed & {"norm1", "norm2", "attention", "add1"}
    for name, time in before.items():
        assert after[name] in (time, round(time / 2), time // 2, -(-time // 2)), name


def test_kernels_on_another_accelerator() -> None:
    """By shape where there is one, else by bandwidth or peak; and the note says which."""
    trace = recording()
    two, one = compute_parameters("hgx-b200"), compute_parameters("hgx-h200")
    text = [operator_text(MatrixProduct(m=4096, n=8192, k=4096))]
    by_shape = float(operator_ns(text, two)[0] / operator_ns(text, one)[0])
    assert durations(trace, accelerator="b200") == {
        **durations(trace),
        "nvjet_tst_128": round(100_000 * by_shape),
        "flash_fwd_kernel": round(100_000 * one.matmul["bf16"].peak_tflops / two.matmul["bf16"].peak_tflops),
        "layer_norm_kernel": round(100_000 * one.memory.gbps / two.memory.gbps),
        "mystery": round(100_000 * one.memory.gbps / two.memory.gbps),
    }
    assert 0.3 < by_shape < 0.7
    [note] = [n for n in simulate([trace], SYSTEM, NETWORK, accelerator="b200").notes if "times of" in n]
    assert note.endswith("of their time 25 % by shape, 50 % by bandwidth, 25 % by peak")


def test_errors_of_products_count_where_a_shape_is_known() -> None:
    """Operator models were fitted to products; ratios of peaks and bandwidths were held against no measured kernel."""
    trace = saying(recording(), {"explained_span_ns": 500_000})
    result = simulate([trace], SYSTEM, NETWORK, accelerator="b200")
    [note] = [note for note in result.notes if note.startswith("uncertain")]
    errors = [compute_parameters(name).errors["bf16"].mean_error for name in ("hgx-b200", "hgx-h200")]
    off_ms = 0.25 * sum(errors) * int(result.account["compute_ns"][0]) / 1e6
    assert note.startswith(f"uncertain by about {off_ms:,.3f} ms ")
    assert (
        f"products of the two accelerators {100 * sum(errors):.0f} % together, of 25 % of the kernels' time"
        in note
    )
    assert "; how far times by bandwidth and peak, 75 % of the kernels', are off is not known; what" in note
    assert " %) or more: " in note


def test_the_same_accelerator_changes_nothing() -> None:
    trace = recording()
    assert durations(trace, accelerator="h200") == durations(trace)
    assert durations(recording(""), accelerator="b200", recorded_on="h200") == durations(
        trace, accelerator="b200"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel_speeds": {"matml": 2.0}}, "there is no family 'matml'; did you mean 'matmul'?"),
        ({"kernel_speeds": {"name:(": 2.0}}, "is no regular expression"),
        ({"kernel_speeds": {"matmul": 0.0}}, "kernel-speed matmul: 0.0 is not a number above 0"),
        ({"accelerator": "z9"}, "no operator times of 'z9'"),
        ({"accelerator": "b200", "recorded_on": "hgx"}, "hgx-b200 or hgx-b300 or"),
    ],
)
def test_what_selects_nothing_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message.replace("(", r"\(").replace("?", r"\?")):
        simulate([recording()], SYSTEM, NETWORK, **options)
    with pytest.raises(UsageError, match="do not say which accelerator they were recorded on"):
        simulate([recording("")], SYSTEM, NETWORK, accelerator="b200")


def test_names_of_accelerators() -> None:
    assert [accelerator_named(n).name for n in ("b200", "NVIDIA H200", "hgx-h100", "NVIDIA A100-SXM4-80GB", "gb200")] == [
        "hgx-b200", "hgx-h200", "hgx-h100", "dgx-a100", "gb200-nvl72",
    ]  # fmt: skip


HALF, FLOAT = '"Tensor(c10::BFloat16)"', '"Tensor(float)"'


@pytest.mark.parametrize(
    ("name", "shapes", "types", "made"),
    [
        ("aten::mm", "[[8,4],[4,16]]", f"[{HALF},{HALF}]", MatrixProduct(8, 16, 4)),
        ("aten::addmm", "[[16],[8,4],[4,16],[],[]]", f'[{HALF},{HALF},{HALF},"Int","Int"]', MatrixProduct(8, 16, 4)),
        ("aten::linear", "[[2,8,4],[16,4],[16]]", f"[{FLOAT},{FLOAT},{FLOAT}]", MatrixProduct(16, 16, 4, type="fp32")),
        ("aten::bmm", "[[3,8,4],[3,4,16]]", f"[{HALF},{HALF}]", MatrixProduct(8, 16, 4, batch=3)),
        (
            "aten::_scaled_dot_product_flash_attention",
            "[[2,8,128,64],[2,4,256,64],[2,4,256,64],[]]",
            f'[{HALF},{HALF},{HALF},"Double"]',
            Attention(batch=2, heads=8, kv_heads=4, queries=128, keys=256, head=64),
        ),
        (
            "aten::_scaled_dot_product_flash_attention_backward",
            "[[2,8,128,64],[2,8,128,64],[2,8,128,64],[2,8,128,64],[]]",
            f'[{HALF},{HALF},{HALF},{HALF},"Double"]',
            Attention(2, 8, 8, 128, 128, 64, direction=Direction.BACKWARD),
        ),
        ("aten::layer_norm", "[[8,4],[],[4]]", f'[{HALF},"GenericList",{FLOAT}]', Kernel(KernelKind.NORM, 32, 144)),
        ("aten::convolution", "[[8,3,32,32],[16,3,3,3]]", f"[{HALF},{HALF}]", None),
        ("aten::mm", "[[8,4],[5,16]]", f"[{HALF},{HALF}]", None),
        ("aten::mm", "nonsense", "[]", None),
        ("aten::item", "[]", "[]", None),
    ],
)  # fmt: skip
def test_operators_from_recorded_shapes(name: str, shapes: str, types: str, made: object) -> None:
    assert recorded_operator(name, shapes, types) == made


DDP = Path(__file__).resolve().parents[1] / "data" / "pytorch" / "ddp"


def test_a_recorded_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Faster matrix products, or another accelerator, shorten what computes."""
    convert_job(find_inputs(DDP, "ddp"), tmp_path / "ddp", Settings(), jobs=1)
    trace = read_trace(tmp_path / "ddp.0.et")
    assert "accelerator" not in {
        attribute.name for attribute in trace.metadata.attr
    }  # this file leaves it out
    run = ["replay", "-w", str(tmp_path / "ddp"), "--platform", "hgx-h100", "--format", "json"]
    documents = []
    for more in (
        [],
        ["--accelerator", "b200", "--recorded-on", "h200"],
        ["--kernel-speed", "matmul=2", "--kernel-speed", "name:flash=2x"],
    ):
        assert chakra([*run, *more]) == 0
        documents.append(json.loads(capsys.readouterr().out))
    base, other, faster = (np.array(document["account"]["compute_ns"]) for document in documents)
    assert (other < base).all()
    assert (faster < base).all()
    assert any("in place of the recorded H200" in note for note in documents[1]["notes"])
    assert chakra([*run, "--kernel-speed", "matmul"]) == 2
    assert "expected FAMILY=X such as matmul=2" in capsys.readouterr().err


@pytest.mark.shared
def test_a_recording_says_its_accelerator(shared: Path, tmp_path: Path) -> None:
    folder = shared / "data" / "h200"
    convert_job(find_inputs(folder, "infer"), tmp_path / "infer", Settings(), jobs=1)
    trace = read_trace(tmp_path / "infer.0.et")
    assert {a.name: a.string_val for a in trace.metadata.attr}["accelerator"] == "NVIDIA H200"
    notes = simulate(str(tmp_path / "infer"), SYSTEM, NETWORK, accelerator="b200").notes
    assert any("B200 SXM in place of the recorded H200 SXM" in note for note in notes)


@pytest.mark.parametrize("option", ["accelerator_speed", "host_speed"])
def test_a_speed_of_recorded_times_without_such_times_is_said(option: str) -> None:
    request = TransformerRequest(model="gpt2-small", layers=2, npus=1)
    system = {**SYSTEM, "roofline-enabled": 1, "peak-perf": 900, "local-mem-bw": 3000}
    workload = build_workload(request.plan())
    who = option.removesuffix("_speed")
    said = f"--{who}-speed has no effect: no node of the workload has a recorded time of the {who}"
    speed: dict[str, Any] = {option: 2.0}
    assert said in simulate(workload, system, NETWORK, **speed).notes
    assert said not in simulate(workload, system, NETWORK).notes
    assert said not in simulate([recording()], SYSTEM, NETWORK, accelerator_speed=2.0).notes
