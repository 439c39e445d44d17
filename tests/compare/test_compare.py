"""Differences of two runs: parts add up, kernels are matched, and a recording compares with its own replay."""

import gzip
import json
from dataclasses import asdict, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exposure import check, communication, instants, length
from hypothesis import given, settings
from hypothesis import strategies as st

from chakra.accuracy import Job
from chakra.accuracy.rates import replay_rates
from chakra.builder import TraceBuilder, Workload
from chakra.cli.main import run as chakra
from chakra.compare import Kernel, RankSpans, Source, compare, difference_html, difference_text, read_source
from chakra.compare.match import match_kernels
from chakra.compare.spans import Kind, account
from chakra.compare.text import answer
from chakra.converters.pytorch import Inputs, Settings, convert_job, find_inputs
from chakra.errors import UsageError
from chakra.et import read_trace, write_trace
from chakra.et.families import FAMILIES, kernel_family, launcher_family, operator_family
from chakra.et.node_families import node_families
from chakra.generate import TransformerRequest, build_workload
from chakra.generate.verify.totals import totals_of
from chakra.replay import simulate

JOB = Job("hgx-h100", "megatron", "bf16", npus=64, parameters=8e9)
DDP = Path(__file__).resolve().parents[1] / "data" / "pytorch" / "ddp"

spans = st.lists(
    st.tuples(st.sampled_from(list(Kind)), st.sampled_from("ab"), st.integers(0, 60), st.integers(0, 30)),
    max_size=25,
)


def rank_of(found: list[tuple[Kind, str, int, int]], end: int = 100) -> RankSpans:
    rank = RankSpans(0, end)
    for kind, label, start, long in found:
        rank.add(kind, label, start, start + long)
        if kind is Kind.COMPUTE and long:
            rank.kernels.append(Kernel(f"kernel_{label}", label, "", start, long))
    return rank


@given(spans)
def test_every_instant_belongs_to_one_part(found: list[tuple[Kind, str, int, int]]) -> None:
    """By counting nanoseconds one by one: the first kind that is there, and of it the span that began first."""
    rank = rank_of(found)
    slow: dict[tuple[Kind, str], int] = {}
    for instant in range(100):
        there = [
            (kind, start, start + length, label)
            for kind, label, start, length in found
            if start <= instant < start + length
        ]
        kind, _, _, label = min(there, default=(Kind.GAP, 0, 0, ""))
        slow[kind, label] = slow.get((kind, label), 0) + 1
    assert {kind: sum(v for (k, _), v in slow.items() if k is kind) for kind in Kind} == {
        kind: sum(v for (k, _), v in account(rank).items() if k is kind) for kind in Kind
    }
    assert sum(account(rank).values()) == rank.span_ns == 100


@settings(max_examples=60)
@given(spans, spans, st.integers(1, 120), st.integers(1, 120))
def test_parts_add_up_to_the_difference(
    one: list[tuple[Kind, str, int, int]], two: list[tuple[Kind, str, int, int]], end_a: int, end_b: int
) -> None:
    a, b = rank_of(one, end_a), rank_of(two, end_b)
    found = compare(Source("a", "replay", {0: a}), Source("b", "replay", {0: b}))
    assert sum(part.a_ns for part in found.parts) == found.a_ns == end_a
    assert sum(part.difference_ns for part in found.parts) == found.difference_ns == end_b - end_a
    for side, rank in (("a_ns", a), ("b_ns", b)):
        assert sum(getattr(row, side) for row in found.kernels) == sum(k.duration_ns for k in rank.kernels)
    assert sum(row.calls_b for row in found.kernels) == len(b.kernels)


def kernels(*names: str, shapes: dict[str, str] | None = None) -> list[Kernel]:
    return [
        Kernel(n, kernel_family(n), (shapes or {}).get(n, ""), 10 * i, 10 + i) for i, n in enumerate(names)
    ]


def test_kernels_of_one_name_are_told_without_their_order_where_they_are_too_many() -> None:
    """4,100 of one name in both are 16.8 million pairs: no order is looked for, and every kernel is in a row."""
    before, after = kernels(*["x"] * 4_100, "old"), kernels("new", *["x"] * 4_100)
    rows = {(row.how, row.a, row.b): (row.calls_a, row.calls_b) for row in match_kernels(before, after)}
    assert rows == {
        ("same", "x", "x"): (4_100, 4_100),
        ("only a", "old", ""): (1, 0),
        ("only b", "", "new"): (0, 1),
    }


def test_long_runs_of_many_names_are_told_in_their_order() -> None:
    """10,000 kernels, of which none is ten times in a run: what stands between the same two is one for one."""
    names = [f"k{''.join(chr(97 + int(d)) for d in str(i))}_gemm" for i in range(10_000)]
    before, after = (
        kernels(*names[:5_000], "old_gemm", *names[5_000:]),
        kernels(*names[:5_000], "new_gemm", *names[5_000:]),
    )
    changed = [row for row in match_kernels(before, after) if row.how != "same"]
    assert [(row.how, row.a, row.b) for row in changed] == [("renamed", "old_gemm", "new_gemm")]


def test_renamed_and_fused_kernels_stand_side_by_side() -> None:
    """Between kernels that kept their names: one for one of a family is renamed, two for one are fused."""
    before = kernels("sm80_xmma_gemm", "bias_kernel_elementwise", "gelu_elementwise", "layer_norm", "my_loss")
    after = kernels("nvjet_tst_256", "triton_poi_fused_bias_gelu_0", "layer_norm", "my_loss")
    rows = {(row.how, row.a, row.b) for row in match_kernels(before, after)}
    assert ("renamed", "sm80_xmma_gemm", "nvjet_tst_256") in rows
    assert ("same", "layer_norm", "layer_norm") in rows
    assert {how for how, *_ in rows} <= {"same", "renamed", "fused", "only a"}
    assert not any(row.how == "only b" for row in match_kernels(before, after))


@pytest.mark.parametrize("labels", [
    ("F0", "F1"),
    # of two steps, of a stage with two chunks, of decoding: its step and the micro-batch
    ("step0.F0", "step1.F0"),
    ("F0.0", "F0.1"),
    ("step0.F0.0", "step1.F0.0"),
])  # fmt: skip
def test_layers_micro_batches_and_steps_of_a_replay_share_a_row(
    tmp_path: Path, labels: tuple[str, str]
) -> None:
    """Three passes of two layers against two: one row an operator, with the calls and times of all of them."""

    def replay(passes: tuple[str, ...], scale: int) -> Source:
        names = [f"{label} layer{n}.{op}" for label in passes for n in range(2) for op in ("qkv", "fc1")]
        names += ["optimizer"] if len(passes) == 3 else ["step0 optimizer", "step1 optimizer"]
        ends = [10 * scale * (i + 1) for i in range(len(names))]
        entry = {
            "npu": 0, "ids": list(range(len(names))), "names": names, "kinds": ["COMP"] * len(names),
            "engines": ["GPU"] * len(names), "issue_ns": [0, *ends[:-1]], "finish_ns": ends,
        }  # fmt: skip
        document = {"schema": "chakra.replay.result/1", "npus": 1, "finish_ns": ends[-1:], "nodes": [entry]}
        path = tmp_path / f"{len(passes)}.json"
        path.write_text(json.dumps(document))
        return read_source(path)

    found = compare(replay(("F0", "F1", "F2"), 1), replay(labels, 2))
    assert {(r.how, r.a, r.b, r.calls_a, r.calls_b, r.a_ns, r.b_ns) for r in found.kernels} == {
        ("same", f"F# layer#.{op}", f"F# layer#.{op}", 6, 4, 60, 80) for op in ("qkv", "fc1")
    } | {("same", "optimizer", "optimizer", 1, 2, 10, 40)}


def test_one_rank_of_a_job_is_not_the_job(tmp_path: Path) -> None:
    """Both files say that the job has two ranks; of one whose file says nothing only its number is known."""
    files = [DDP / f"ddp.rank{rank}.kineto.json.gz" for rank in (0, 1)]
    text = difference_text(compare(*map(read_source, files)))
    assert f"rank 0 of 2, of which 1 is here, {files[0]})" in text
    assert f"rank 1 of 2, of which 1 is here, {files[1]})" in text
    assert "(recording, rank 1 of 2, " in difference_text(compare(*[read_source(DDP, job="ddp")] * 2, rank=1))
    rank = RankSpans(0, 5)
    assert "(replay, rank 3, x)" in difference_text(compare(*[Source("x", "replay", {3: rank})] * 2))


def test_unlike_many_steps_are_told(tmp_path: Path) -> None:
    """The record of two steps replayed, against one of them: 75,280,957 ns of rank 1 are two steps of 75.06 ms each."""
    convert_job(find_inputs(DDP, "ddp"), tmp_path / "ddp", Settings())
    shape = {"topology": ["Switch"], "npus_count": [2], "bandwidth": [100.0], "latency": [500.0]}
    result = simulate(str(tmp_path / "ddp"), {"replay-only": True}, shape)
    (tmp_path / "replay.json").write_text(json.dumps(result.to_dict(nodes=True)))
    whole = read_source(tmp_path / "replay.json")
    assert whole.steps == read_source(DDP, job="ddp").steps
    source = replace(whole, steps=2)
    one = read_source(DDP, job="ddp", step=1)
    [said] = [note for note in compare(one, source).notes if "steps" in note]
    each = max(spans.span_ns for spans in whole.ranks.values()) / 2
    assert said.startswith("the two do not hold as many steps: 1 profiler step in A, ")
    assert said.endswith(f"2 profiler steps in B, {each / 1e6:.4g} ms each")
    assert not any("steps" in note for note in compare(one, one).notes)


def test_kernels_of_one_name_share_a_row_whatever_their_order() -> None:
    """`y` runs first in one and last in the other; of `x` one run has three, the other two."""
    rows = match_kernels(kernels("y", "x", "x", "x"), kernels("x", "x", "y"))
    assert {(row.how, row.a, row.b, row.calls_a, row.calls_b) for row in rows} == {
        ("same", "x", "x", 3, 2),
        ("same", "y", "y", 1, 1),
    }


def test_shapes_tell_renamed_kernels_apart() -> None:
    """Two products swap neither names nor places, but one was split: its shapes say which."""
    before = kernels("gemm_a", "gemm_b", shapes={"gemm_a": "[[8,8]]", "gemm_b": "[[64,64]]"})
    after = kernels("nvjet_x", shapes={"nvjet_x": "[[64,64]]"})
    rows = {(row.how, row.a, row.b) for row in match_kernels(before, after)}
    assert rows == {("renamed", "gemm_b", "nvjet_x"), ("only a", "gemm_a", "")}


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_cublas", "matmul"),
        ("nvjet_tst_192x192_64x3_2x1_v_bz_coopB_NNT", "matmul"),
        ("Cijk_Alik_Bljk_HHS_BH_MT128x128x32", "matmul"),
        (
            "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128>>(Flash_fwd_params)",
            "attention",
        ),
        ("fmha_cutlassF_bf16_aligned_64x64_rf_sm80(AttentionKernel::Params)", "attention"),
        ("void cudnn::winograd_nonfused::winogradForwardData4x4<float>", "convolution"),
        (
            "sm90_xmma_wgrad_indexed_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x32__5x_cudnn",
            "convolution",
        ),
        (
            "sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x32",
            "convolution",
        ),
        ("void cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688dgrad_optimized_tf32>(Params)", "convolution"),
        ("void cutlass::Kernel<cutlass::conv::kernel::ImplicitGemmConvolution<Mma>>(Params)", "convolution"),
        ("void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1, false>", "convolution"),
        ("igemm_fwd_gtcx2_nhwc_fp16_bx0_ex0_bt256x256x32", "convolution"),
        ("turing_igemm_int8_128x128_ldg4_nn", "matmul"),
        (
            "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor>",
            "optimizer",
        ),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>", "memory"),
        ("void at::native::elementwise_kernel<128, convert_to_float>", "memory"),
        ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>", "reduction"),
        ("void fbgemm_gpu::permute_2D_data_kernel<false, int, int, float>(int, int, int const*)", "memory"),
        (
            "void split_embedding_codegen_forward_unweighted_kernel<float>(fbgemm_gpu::FixedDivisor, long const*)",
            "memory",
        ),
        ("void bounds_check_indices_kernel<long>(long const*, fbgemm_gpu::BoundsCheckMode)", "memory"),
        ("void fbgemm_gpu::device_kernel<cutlass::gemm::kernel::GemmUniversal<float>>(Params)", "matmul"),
        ("void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernel<float, float>(long)", "norm"),
        ("void at::native::(anonymous namespace)::RowwiseMomentsCUDAKernel<float>(long, float)", "norm"),
        ("void wgrad_alg0_engine<float, 128, 5, 5, 3, 3, 3, false, 512>(int, int, int)", "convolution"),
        ("batched_transpose_32x16_half", "memory"),
        ("Memcpy DtoD (Device -> Device)", "copy"),
        ("F0 layer3.qkv", "matmul"),
        ("B1 layer3.attention.dgrad", "attention"),
        ("optimizer", "optimizer"),
        ("something_of_mine", "other"),
    ],
)
def test_families(name: str, family: str) -> None:
    assert kernel_family(name) == family
    assert family in FAMILIES


@pytest.mark.parametrize(
    ("operator", "family"),
    [
        ("aten::cudnn_convolution", "convolution"),
        ("aten::miopen_convolution", "convolution"),
        ("aten::convolution_backward", "convolution"),
        ("aten::_slow_conv2d_forward", "convolution"),
        ("aten::convert_indices", None),
        ("aten::mm", "matmul"),
        ("aten::baddbmm", "matmul"),
        ("aten::_scaled_mm", "matmul"),
        ("aten::linear", "matmul"),
        ("aten::linalg_vector_norm", None),
        ("aten::_scaled_dot_product_flash_attention_backward", "attention"),
        ("aten::_flash_attention_forward", "attention"),
        ("aten::copy_", None),
        ("aten::add_", None),
        ("ProfilerStep#1", None),
        ("gap", None),
    ],
)
def test_families_of_what_operators_launch(operator: str, family: str | None) -> None:
    assert launcher_family(operator) == family


@pytest.mark.shared
def test_kernels_of_convolutions_by_the_operators_around_their_launches(shared: Path, tmp_path: Path) -> None:
    """Kernels launched inside operators ``*convolution*`` of resnet sum to 9,997.1 us, event by event; 14 of their names
    are plain products of matrices. A change of speed of one family leaves the other as it is.
    """
    recording = shared / "data" / "h200" / "resnet.rank0.kineto.json.gz"
    events = json.loads(gzip.decompress(recording.read_bytes()), parse_float=Decimal)["traceEvents"]
    calls = {e["args"]["correlation"]: e for e in events if e.get("cat") in ("cuda_runtime", "cuda_driver")}
    around = [e for e in events if e.get("cat") == "cpu_op" and "convolution" in e["name"]]

    def inside(kernel: dict[str, Any]) -> bool:
        call = calls[kernel["args"]["correlation"]]
        return any(
            op["tid"] == call["tid"] and op["ts"] <= call["ts"] <= op["ts"] + op["dur"] for op in around
        )

    by_hand = sum(int(e["dur"] * 1000) for e in events if e.get("cat") == "kernel" and inside(e))
    assert by_hand == pytest.approx(9_997_100, abs=100)
    inputs = find_inputs(recording.parent, "resnet")
    convert_job(inputs, tmp_path / "resnet", Settings(), jobs=1)
    trace = read_trace(tmp_path / "resnet.0.et")
    found = node_families(trace) == FAMILIES.index("convolution")
    assert int(trace.durations_ns()[found & (trace.is_cpu_op != 1)].sum()) == by_hand
    read = read_source(recording).ranks[0].kernels
    assert sum(kernel.duration_ns for kernel in read if kernel.family == "convolution") == by_hand


@pytest.mark.parametrize(
    ("text", "family"),
    [
        ("gemm m=8 n=4 k=2", "matmul"),
        ("gemm m=8 n=4 k=2 role=router", "matmul"),
        ("gemm m=8 n=4 k=2 role=convolution", "convolution"),
        ("norm elements=64 bytes=256", "norm"),
        ("loss elements=64 bytes=256", "reduction"),
        ("scan elements=64 bytes=256", "reduction"),
        ("conv1d elements=64 bytes=256", "memory"),
        ("copy elements=64 bytes=256", "copy"),
        ("optimizer elements=64 bytes=256", "optimizer"),
        ("3 * add elements=64 bytes=256 + rope elements=64 bytes=256", "memory"),
        ("3 * add elements=64 bytes=256 + gemm m=8 n=4 k=2", "other"),
        ("of another tool", None),
        ("gemm m=8", None),
    ],
)
def test_families_of_what_generated_nodes_compute(text: str, family: str | None) -> None:
    assert operator_family(text) == family


@pytest.mark.parametrize(
    ("model", "products"),
    [
        ("t5-small", {"qkv", "cross_q", "cross_kv", "cross_proj"}),
        ("mamba-130m", {"in_proj", "x_proj", "out_proj"}),
        ("vit-b16", {"patches", "qkv"}),
    ],
)
def test_operators_of_generated_models_have_families(model: str, products: set[str], tmp_path: Path) -> None:
    """Names such as cross_q and in_proj are no library's; what the nodes compute counts."""
    request = TransformerRequest(model=model, npus=1, micro_batch=1)
    roofline = {"roofline-enabled": 1, "peak-perf": 900, "local-mem-bw": 3000}
    result = simulate(build_workload(request.plan()), roofline, NETWORK | {"npus_count": [1]})
    (tmp_path / "run.json").write_text(json.dumps(result.to_dict(nodes=True)))
    [rank] = read_source(tmp_path / "run.json").ranks.values()
    assert "other" not in {kernel.family for kernel in rank.kernels}
    names = {name for kernel in rank.kernels if kernel.family == "matmul" for name in kernel.name.split(".")}
    assert products <= names


NETWORK = {"topology": ["Ring"], "npus_count": [4], "bandwidth": [50.0], "latency": [500.0]}
SYSTEM = {
    f"{kind}-implementation": ["ring"]
    for kind in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
}


def replayed(path: Path, slow_ns: int) -> Path:
    """A replay of four ranks, the last of which comes late to the all-reduce."""

    def program(b: TraceBuilder) -> None:
        first = b.compute("gemm", duration_micros=7 + (slow_ns // 1000 if b.rank == 3 else 0))
        b.collective("all_reduce", size_bytes=1 << 16, after=first)

    work = Workload(4)
    work.run(program)
    path.write_text(json.dumps(simulate(work, SYSTEM, NETWORK).to_dict(nodes=True)))
    return path


def test_two_replays(tmp_path: Path) -> None:
    """A rank that comes 5 us later makes the others wait 5 us for it: no kernel of theirs is slower."""
    a, b = replayed(tmp_path / "a.json", 0), replayed(tmp_path / "b.json", 5000)
    found = compare(read_source(a), read_source(b), rank=0)
    changed = {(part.part, part.name): part.difference_ns for part in found.parts if part.difference_ns}
    assert changed.pop(("waits for peers", "all-reduce")) == 5000
    # what the others had sent before it came is on its way no longer
    assert changed == {("exposed communication", "all-reduce"): found.difference_ns - 5000}
    late = compare(read_source(a), read_source(b), rank=3)
    assert next(p.difference_ns for p in late.parts if p.name == "matmul") == 5000
    assert not any(part.part == "waits for peers" and part.b_ns for part in late.parts)
    words = f"B takes {found.difference_ns / 1000:.4g} µs ({100 * found.difference_ns / found.a_ns:.1f} %) longer than A"
    sent = f"against all-reduce -{5000 - found.difference_ns} ns"
    assert f"{words}: waits for peers in all-reduce +5 µs, {sent}\n" in difference_text(found)
    assert "B takes as long as A\n" in difference_text(compare(read_source(a), read_source(a)))


@pytest.mark.parametrize(
    ("step_ns", "job", "words"),
    [
        (
            1_000,
            replace(JOB, npus=32),
            "the step of B takes 1.1 times that of A, enough to tell them apart with 90 %",
        ),
        (
            1_150,
            replace(JOB, npus=32),
            "the step of A takes 1.05 times that of B, too little to tell them apart",
        ),
        (
            1_000,
            replace(JOB, pp=2),
            "that of A, too little to tell them apart with 90 % (1.21 would, by 7,960 pairs of",
        ),
        (900, replace(JOB, pp=2), "the step of B takes 1.22 times that of A, enough"),
        (900, replace(JOB, tp=2), "too little to tell them apart with 90 % (1.33 would, by 15,964 pairs"),
        # in what the two differ the documents do not say
        (900, JOB, "too little to tell them apart with 90 % (1.33 would, by 15,964 pairs"),
        (1_100, replace(JOB, tp=2), ""),
        (1_000, replace(JOB, machine="tpu-v5p"), ""),
        (1_000, None, ""),
    ],
)
def test_the_interval_of_the_ratio_tells_whether_two_steps_differ(
    step_ns: int, job: Job | None, words: str
) -> None:
    """B takes 1,100 ns. Pairs of rows are off by 1.089 at most, by 1.214 or by 1.328, by what they differ in."""

    def source(name: str, span_ns: int, job: Job | None) -> Source:
        return Source(name, "replay", {0: RankSpans(0, span_ns)}, job=job)

    found = compare(source("a", step_ns, job), source("b", 1_100, JOB))
    assert [words in note for note in found.notes] == [True] * bool(words), found.notes


@pytest.mark.parametrize(
    ("samples", "words"), [(16, None), (48, "16 samples in A, 1 µs each, 48 samples in B, 900 ns each")]
)
def test_runs_of_unlike_many_samples_say_what_one_takes(samples: int, words: str | None) -> None:
    """16 in 16 us; the other's step of 43.2 us is told from it, which says nothing of three times the work."""
    a = Source("a", "replay", {0: RankSpans(0, 16_000)}, job=JOB, samples=16)
    b = Source("b", "replay", {0: RankSpans(0, 43_200)}, job=JOB, samples=samples)
    notes = compare(a, b).notes
    assert len(notes) == 1
    assert notes[0] == f"the two do not compute as much: {words}" if words else "enough to tell" in notes[0]


def test_the_samples_of_a_generated_step_are_counted(tmp_path: Path) -> None:
    """Three micro-batches of one sequence on each of four replicas."""
    request = TransformerRequest(
        model="gpt2-small", layers=1, npus=4, micro_batches=3, seq=16, peak_tflops=1.0, mem_gbps=100.0
    )
    plan = request.plan()
    workload = build_workload(plan, metadata=totals_of(request, plan).fact())
    result = simulate(workload, SYSTEM, NETWORK)
    path = tmp_path / "run.json"
    path.write_text(json.dumps({**result.to_dict(nodes=True), "rates": replay_rates(result)}))
    assert read_source(path).samples == 12


def test_the_job_of_a_document_is_read(tmp_path: Path) -> None:
    path = replayed(tmp_path / "a.json", 0)
    assert read_source(path).job is None
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | {"interval": {"job": asdict(JOB)}}))
    assert read_source(path).job == JOB
    for changes in (
        {"npus": 0},
        {"npus": "8"},
        {"tp": True},
        {"parameters": None},
        {"machine": 5},
        {"experts": 1},
    ):
        path.write_text(json.dumps(document | {"interval": {"job": asdict(JOB) | changes}}))
        assert read_source(path).job is None, changes
    for none in ({"job": None}, {"job": {"npus": 8}}, {}, 5):
        path.write_text(json.dumps(document | {"interval": none}))
        assert read_source(path).job is None, none


@pytest.mark.shared
@pytest.mark.parametrize("job", ["infer", "fsdp", "resnet"])
def test_a_recorded_job_and_its_replay(job: str, shared: Path, tmp_path: Path) -> None:
    recording_and_replay(shared / "data" / "h200", job, tmp_path)


def test_a_recording_and_its_replay(tmp_path: Path) -> None:
    recording_and_replay(DDP, "ddp", tmp_path)


def recording_and_replay(folder: Path, job: str, tmp_path: Path) -> None:
    """The replay of the record has the record's kernels; what it does not have is said by the parts."""
    converted = convert_job(find_inputs(folder, job), tmp_path / job, Settings())
    world = len(converted.outcomes)
    shape = {"topology": ["Switch"], "npus_count": [max(world, 1)], "bandwidth": [100.0], "latency": [500.0]}
    result = simulate(str(tmp_path / job), {"replay-only": True}, shape)
    (tmp_path / "replay.json").write_text(json.dumps(result.to_dict(nodes=True)))
    sides = read_source(folder, job=job), read_source(tmp_path / "replay.json")
    for npu in range(world):
        check(result, npu)
        parts = account(sides[1].ranks[npu])
        shown = sum(value for (kind, _), value in parts.items() if kind in (Kind.TRANSFER, Kind.PEERS))
        # copies and gaps of the device hide it in the replay's account, and are parts of their own in a comparison
        assert result.exposed_comm_ns[npu] <= shown <= communication(result, npu)
    for rank in sides[0].ranks.values():
        parts = account(rank)
        assert sum(parts.values()) == rank.span_ns
        rows = zip(rank.kinds, rank.starts, rank.ends, strict=True)
        spans = [(a, b) for kind, a, b in rows if kind in (Kind.TRANSFER, Kind.PEERS)]
        shown = sum(value for (kind, _), value in parts.items() if kind in (Kind.TRANSFER, Kind.PEERS))
        assert shown <= length(instants(spans)) <= rank.span_ns
    found = compare(*sides, rank=0)
    assert sum(part.difference_ns for part in found.parts) == found.difference_ns
    inside = "communication of a replay-only run takes the recorded times, waits for peers included"
    assert (inside in found.notes) == result.waits_in_transfer
    assert {row.how for row in found.kernels} == {"same"}
    assert sum(row.a_ns for row in found.kernels) == sum(row.b_ns for row in found.kernels) > 0
    assert abs(found.difference_ns) < 0.02 * found.a_ns
    # operators' time is operators' on both sides, but for gaps below 1 us, which join what follows
    changes = {part.part: part.difference_ns for part in found.parts if not part.name}
    operators = converted.outcomes[0].summary["nodes"]["operators"]
    assert -1000 * operators < changes["gaps"] < 0.01 * found.a_ns, changes
    assert abs(changes["host"]) < 1000 * operators, changes


def spans_agree(path: Path, job: str | None, tmp_path: Path) -> list[int]:
    """The span of each rank of a recording, which is the conversion's; a replay of the record differs by the error that
    the conversion states of itself.
    """
    inputs = find_inputs(path, job) if path.is_dir() else [Inputs(device=path, rank=0)]
    anything = Settings(min_matched=0, min_attached=0, min_recorded=0)
    outcomes = convert_job(inputs, tmp_path / "w", anything, check=True).outcomes
    shape = {"topology": ["Switch"], "npus_count": [len(outcomes)], "bandwidth": [100.0], "latency": [500.0]}
    result = simulate(str(tmp_path / "w"), {"replay-only": True}, shape)
    (tmp_path / "replay.json").write_text(json.dumps(result.to_dict(nodes=True)))
    sources = read_source(path, job=job), read_source(tmp_path / "replay.json")
    recorded, replayed = ([source.ranks[rank].span_ns for rank in sorted(source.ranks)] for source in sources)
    checks = [outcome.check for outcome in outcomes if outcome.check is not None]
    assert recorded == [check.measured_ns for check in checks]
    assert replayed == [check.replayed_ns for check in checks]
    # events that overlap by the us that files of 2023 count in are replayed without the overlap
    most = 0.003 if job in ("linear", "resnet2023") else 1e-12
    assert all(abs(check.error) < most for check in checks)
    assert compare(*sources).difference_ns == max(replayed) - max(recorded)
    return recorded


@pytest.mark.parametrize(
    "name",
    [
        *("ddp", "custom_allreduce", "internal_wait", "rank_start", "roofline", "send_wait"),
        *("prelaunched/job.json", "lost_kernels/half.dev.json", "lost_kernels/none.dev.json"),
        *(
            "streams_serialised/streams.json",
            "streams_serialised/threads.json",
            "ddp/ddp.rank1.kineto.json.gz",
        ),
    ],
)
def test_a_recording_takes_as_long_as_its_replay(name: str, tmp_path: Path) -> None:
    spans_ns = spans_agree(DDP.parent / name, None, tmp_path)
    if name == "ddp":
        # rank 1's is that of its ProfilerStep, 75,280.957 us; no operator lies where it begins and ends
        assert spans_ns == [75_014_898, 75_280_957]


@pytest.mark.shared
@pytest.mark.parametrize(
    ("folder", "job"),
    [
        *(("h200", job) for job in ("ddp", "fsdp", "graph", "infer", "pp", "resnet")),
        *(("pairs", job) for job in ("gloo4", "dlrm8", "h200_gpt", "h200_graph", "h200_sync", "linear")),
        *(("pairs", job) for job in ("resnet2023", "resnet_cross", "simple_add")),
    ],
)
def test_a_shared_recording_takes_as_long_as_its_replay(
    folder: str, job: str, shared: Path, tmp_path: Path
) -> None:
    spans_agree(shared / "data" / folder, job, tmp_path)


def event(name: str, start: int, end: int, thread: int, category: str = "cpu_op") -> dict[str, object]:
    """An event of a profiler trace; times in us."""
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 7,
        "tid": thread,
        "ts": start,
        "dur": end - start,
        "args": {},
    }


def gloo_job(folder: Path, base_ns: int) -> None:
    """Two ranks without an accelerator, the second of which begins 40 us later, and a CPU back end."""
    moving = "user_annotation"
    ranks = [
        [
            *(
                event("aten::mm", 0, 100, 1),
                event("gloo:all_reduce", 50, 200, 2, moving),
                event("aten::copy_", 140, 170, 2),
            ),
            *(event("c10d::send", 250, 300, 1), event("gloo:send", 260, 290, 1, moving)),
            event("aten::add", 300, 310, 1),
        ],
        [
            *(event("aten::mm", 40, 120, 1), event("gloo:all_reduce", 120, 205, 2, moving)),
            *(event("c10d::recv_", 250, 300, 1), event("gloo:recv", 265, 295, 1, moving)),
        ],
    ]
    for rank, events in enumerate(ranks):
        document = {
            "baseTimeNanoseconds": base_ns,
            "distributedInfo": {"rank": rank, "world_size": 2},
            "traceEvents": events,
        }
        (folder / f"job.rank{rank}.kineto.json").write_text(json.dumps(document))


def test_the_host_communicates_where_no_accelerator_does(tmp_path: Path) -> None:
    """Rank 0's all-reduce waits from 50 to 120 for rank 1, hidden until 100, and moves until 200, but for 30 of a
    copy; a message takes its time out of the operator that sends it.
    """
    gloo_job(tmp_path, 1_790_857_026_000_000_000)
    source = read_source(tmp_path)
    assert {
        rank: {key: time // 1000 for key, time in account(spans).items()}
        for rank, spans in source.ranks.items()
    } == {
        0: {
            (Kind.HOST, ""): 100 + 30 + 10 + 10 + 10,
            (Kind.PEERS, "all-reduce"): 20,
            (Kind.TRANSFER, "all-reduce"): 80 - 30,
            (Kind.TRANSFER, "send and receive"): 30,
            (Kind.GAP, ""): 50,
        },
        1: {
            (Kind.HOST, ""): 80 + 15 + 5,
            (Kind.TRANSFER, "all-reduce"): 85,
            (Kind.TRANSFER, "send and receive"): 30,
            (Kind.GAP, ""): 45,
        },
    }


def test_ranks_without_a_common_clock_do_not_wait_for_each_other(tmp_path: Path) -> None:
    """Nobody knows when the other came; the note says so."""
    gloo_job(tmp_path, 0)
    source = read_source(tmp_path)
    assert not any(kind == Kind.PEERS for spans in source.ranks.values() for kind in spans.kinds)
    late = "of a recording the waits for peers that were late are part of"
    assert source.notes == (f"{late}: all-reduce, send and receive",)
    gloo_job(tmp_path, 1_790_857_026_000_000_000)
    assert read_source(tmp_path).notes == (f"{late}: send and receive",)


@pytest.mark.shared
def test_a_gloo_recording_shows_what_its_replay_shows(shared: Path, tmp_path: Path) -> None:
    """A replay of the record has waits for peers and transfers where the recording has; of rank 1 next to no host time
    hides these: 20 us of an operator of another thread, whose own time stands up to 10 us elsewhere in the replay.
    """
    spans_agree(shared / "data" / "pairs", "gloo4", tmp_path)
    sides = read_source(shared / "data" / "pairs", job="gloo4"), read_source(tmp_path / "replay.json")
    recorded, replayed = (account(side.ranks[1]) for side in sides)
    for word in ("all-reduce", "broadcast", "reduce", "barrier", "send and receive"):
        (waits, moves), (told, moved) = (
            [side.get((kind, word), 0) for kind in (Kind.PEERS, Kind.TRANSFER)]
            for side in (recorded, replayed)
        )
        assert waits + moves > 0
        assert waits + moves == pytest.approx(told + moved, abs=20_000)
        # a replay's starts are those of its graph: threads that only communicate may come earlier than recorded
        assert (waits > 0) == (told > 0) == (word != "send and receive")


PEERS = "waits for peers in all-reduce"


@pytest.mark.parametrize(
    ("times", "words"),
    [
        (
            ((0, 50), (40, 10)),
            f"B takes 20 ns (20.0 %) longer than A: matmul +50 ns, against {PEERS} -30 ns",
        ),
        (((0, 50), (40, 30)), f"B takes 40 ns (40.0 %) longer than A: matmul +50 ns, against {PEERS} -10 ns"),
        (((50, 20), (10, 20)), f"B takes 20 ns (20.0 %) less than A: matmul -30 ns, against {PEERS} +10 ns"),
        (
            ((50, 10), (10, 40)),
            f"B takes 10 ns (10.0 %) less than A: matmul -40 ns, against {PEERS} +30 ns",
        ),
        (
            ((50, 40), (10, 20)),
            f"B takes as long as A: {PEERS} +10 ns, against matmul -10 ns",
        ),
        (((50, 50), (10, 10)), "B takes as long as A"),
    ],
)
def test_what_the_sentence_names_adds_up(times: tuple[tuple[int, int], tuple[int, int]], words: str) -> None:
    (matmul_a, matmul_b), (peers_a, peers_b) = times
    sides = []
    for matmul, peers in ((matmul_a, peers_a), (matmul_b, peers_b)):
        rank = RankSpans(0, matmul + peers + 100 - matmul_a - peers_a)
        rank.add(Kind.COPY, "", 0, rank.end_ns)
        rank.add(Kind.COMPUTE, "matmul", 0, matmul)
        rank.add(Kind.PEERS, "all-reduce", matmul, matmul + peers)
        sides.append(Source("x", "replay", {0: rank}))
    assert answer(compare(*sides)) == words


def test_the_sentence_sums_up_what_it_does_not_name() -> None:
    """90 - 31 - 30 - 29 - 28 + 2 + 1 = -25: three parts each way are named; 28 - 3 are left."""
    labels = {
        "matmul": 90,
        "norm": -31,
        "copy": -30,
        "reduction": -29,
        "attention": -28,
        "other": 2,
        "memory": 1,
    }
    sides = []
    for side in (0, 1):
        rank, at = RankSpans(0, 1000 - 25 * side), 0
        for label, change in labels.items():
            rank.add(Kind.COMPUTE, label, at, at + 100 + side * change)
            at = rank.ends[-1]
        sides.append(Source("x", "replay", {0: rank}))
    assert answer(compare(*sides)) == (
        "B takes 25 ns (2.5 %) less than A: norm -31 ns, copy -30 ns, reduction -29 ns, against matmul +90 ns, "
        "the rest -25 ns"
    )


@pytest.mark.shared
def test_steps_of_a_recording(shared: Path) -> None:
    steps = [
        read_source(shared / "data" / "h200" / "infer.rank0.kineto.json.gz", step=step) for step in (1, 2)
    ]
    spans_ns = [source.ranks[0].span_ns for source in steps]
    assert np.allclose(spans_ns, [51_968_200, 49_310_100], atol=200)
    found = compare(*steps)
    assert {row.how for row in found.kernels} == {"same"}
    with pytest.raises(UsageError, match="no ProfilerStep 7; there are 1, 2"):
        read_source(shared / "data" / "h200" / "infer.rank0.kineto.json.gz", step=7)


def test_results_without_nodes_are_compared_by_their_accounts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """NPU 0 waits 5 us longer for the last one; one result has nodes, which do not count then."""
    a, b = replayed(tmp_path / "a.json", 0), replayed(tmp_path / "b.json", 5000)
    document = json.loads(b.read_text())
    del document["nodes"]
    document["inputs"]["system"]["active_chunks"] = 77
    b.write_text(json.dumps(document))
    assert chakra(["compare", str(a), str(b), "--rank", "0", "--format", "json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    account = document["account"]
    parts = {part["part"]: part["b_ns"] for part in found["parts"]}
    assert parts == {
        "kernels": account["compute_ns"][0],
        "exposed communication": account["transfer_ns"][0],
        "waits for peers": account["waiting_ns"][0],
    }
    assert sum(parts.values()) == document["finish_ns"][0]
    assert account["waiting_ns"][0] == 5000
    assert sum(part["difference_ns"] for part in found["parts"]) == found["difference_ns"]
    assert found["kernels"] == []
    ((row,), (use,)) = found["collectives"], found["dimensions"]
    assert (row["kind"], row["b_ns"] - row["a_ns"]) == ("ALL_REDUCE", row["difference_ns"])
    assert use["a_utilisation"] > use["b_utilisation"] > 0
    assert ("system.active_chunks", "77") in [(item["key"], item["b"]) for item in found["inputs"]]
    assert not any(item["a"] == item["b"] for item in found["inputs"])
    assert chakra(["compare", str(a), str(b), "-o", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Kernels, matched" not in page
    assert "Inputs that differ" in page
    assert chakra(["compare", str(a), str(b)]) == 0
    said = capsys.readouterr().out
    assert "note: B holds no nodes" in said
    assert "system.active_chunks" in said
    with pytest.raises(UsageError, match="a comparison with a recording needs; run `chakra replay --format"):
        compare(read_source(DDP.parent / "rank_start" / "job.rank0.kineto.json"), read_source(b))


def test_waits_for_a_sender_are_waits_for_a_peer_with_nodes_and_without(tmp_path: Path) -> None:
    """NPU 1 computes for 3 us, then waits for NPU 0, which sends after 10 us: 7 us in which no data moves."""

    def program(b: TraceBuilder) -> None:
        first = b.compute("gemm", duration_micros=3 if b.rank else 10)
        if b.rank == 0:
            b.send(1, size_bytes=1 << 20, after=first)
        else:
            b.compute("gemm", duration_micros=1, after=b.recv(0, size_bytes=1 << 20, after=first))

    work = Workload(2)
    work.run(program)
    result = simulate(
        work, {}, {"topology": ["Ring"], "npus_count": [2], "bandwidth": [50], "latency": [500]}
    )
    told = []
    for nodes in (True, False):
        path = tmp_path / f"{nodes}.json"
        path.write_text(json.dumps(result.to_dict(nodes=nodes)))
        source = read_source(path)
        parts: dict[Kind, int] = {}
        for (kind, _), time in account(source.ranks[1]).items():
            parts[kind] = parts.get(kind, 0) + time
        told.append(parts)
    # 2^20 bytes at 50 x 2^30 bytes a second, and a hop of 500 ns
    moved = int(2**20 / (50 * 2**30 / 1e9)) + 500
    assert told == [{Kind.COMPUTE: 4_000, Kind.PEERS: 7_000, Kind.TRANSFER: moved}] * 2


def test_names_and_counts_of_kernels_stand_once_and_numbers_before_them() -> None:
    """Two runs of one kernel, 150 and 149.9 us: digits of one kind beside each other."""
    sources = []
    for path, took in (("/data/one/run.json", 150_000), ("/data/two/run.json", 149_900)):
        spans = RankSpans(0, took)
        spans.add(Kind.COMPUTE, "matmul", 0, took)
        spans.kernels.append(Kernel("gemm_tn", "matmul", "", 0, took))
        sources.append(Source(path, "replay", {0: spans}))
    page = difference_html(compare(*sources))
    assert "<h1>Difference of one/run.json and two/run.json</h1>" in page
    numbers = "".join(f'<td class="n">{text}</td>' for text in ("150.0 µs", "149.9 µs", "-100 ns", "1"))
    assert f"{numbers}<td>gemm_tn</td>" in page
    assert page.count("gemm_tn") == 1
    assert page.count("<rect") > 8  # the bars, in two widths


@pytest.mark.browser
@pytest.mark.parametrize("width", [390, 1400])
def test_the_numbers_of_the_tables_are_on_the_screen(width: int, tmp_path: Path) -> None:
    from viz_browser import Page, find_chromium

    if find_chromium() is None:
        pytest.skip("no Chromium installed")
    sources = []
    for name, took in (("a", 92_693_211), ("b", 703_512)):
        spans = RankSpans(0, took + 30_741_000)
        spans.add(Kind.TRANSFER, "all-reduce", 0, took)
        spans.add(Kind.COMPUTE, "matmul", took, took + 30_741_000)
        spans.kernels.append(Kernel("k" * 80 + f"<{name}>", "matmul", "", took, 30_741_000))
        sources.append(Source(name, "replay", {0: spans}))
    path = tmp_path / "d.html"
    path.write_text(difference_html(compare(*sources)), encoding="utf-8")
    with Page(f"file://{path}", tmp_path / "profile", width=width) as page:
        right = "Math.max(...[...document.querySelectorAll('td.n')].map(cell => cell.getBoundingClientRect().right))"
        assert page.value(right) <= width


def test_pages_and_documents(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = str(replayed(tmp_path / "a.json", 0)), str(replayed(tmp_path / "b.json", 5000))
    page = tmp_path / "difference.html"
    assert chakra(["compare", a, b, "-o", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert "Where the difference lies" in text
    text = text.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not any(word in text for word in ("http://", "https://", "src="))
    assert text.count("<script") == 1  # its own, which says of boxes that they scroll
    assert chakra(["compare", a, b, "--format", "json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert sum(part["difference_ns"] for part in document["parts"]) == document["difference_ns"]
    assert difference_html(compare(read_source(a), read_source(b))) == page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["a.json", "a.json", "--rank", "9"], "no rank 9; its ranks: 0, 1, 2, 3"),
        (["a.json", "a.json", "-o", "x.pdf"], "unknown suffix"),
        (["a.json", "a.json", "-o", "a.json"], "would overwrite an input"),
        (
            ["none.json", "a.json"],
            "holds neither nodes nor a time account; run `chakra replay --format json --nodes`",
        ),
        (["a.json", "w.0.et"], "this is an execution trace"),
    ],
)
def test_what_cannot_be_compared_is_said(
    args: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    document = json.loads(replayed(tmp_path / "a.json", 0).read_text())
    del document["nodes"]
    del document["account"]
    (tmp_path / "none.json").write_text(json.dumps(document))
    builder = TraceBuilder()
    builder.compute("a", duration_micros=1)
    write_trace(builder.build(), "w.0.et")
    assert chakra(["compare", *args]) == 2
    assert message in capsys.readouterr().err


def test_recordings_of_a_folder_are_not_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The document may go beside them, and over an earlier one, not over one of them."""
    source = DDP.parent / "rank_start" / "job.rank0.kineto.json"
    trace = tmp_path / "job.rank0.kineto.json"
    trace.write_bytes(source.read_bytes())
    for name in ("difference.json", "difference.json"):
        assert chakra(["compare", str(tmp_path), str(tmp_path), "-o", str(tmp_path / name)]) == 0
    capsys.readouterr()
    assert chakra(["compare", str(tmp_path), str(source), "-o", str(trace)]) == 2
    assert "would overwrite an input" in capsys.readouterr().err
    assert trace.read_bytes() == source.read_bytes()


def test_communication_that_is_hidden_for_another_time_is_no_slower_network() -> None:
    """A message of 100 us, beside a kernel for 40 us in one and for 10 us in the other."""

    def side(kernel_ns: int, message_ns: int = 100_000) -> Source:
        spans = RankSpans(0, 300_000)
        spans.add(Kind.TRANSFER, "all-reduce", 100_000, 100_000 + message_ns)
        spans.add(Kind.COMPUTE, "matmul", kernel_ns, kernel_ns + 50_000)
        return Source("x", "replay", {0: spans})

    (note,) = compare(side(90_000), side(60_000)).notes
    assert note == (
        "communication takes 100 µs in both; kernels run beside 40 µs of it in A and 10 µs in B: it starts at other "
        "times, the network is as fast"
    )
    assert compare(side(90_000), side(90_000)).notes == ()
    assert compare(side(90_000), side(60_000, 120_000)).notes == ()
