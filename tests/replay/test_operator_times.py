"""Operator times: closed forms, laws that any machine obeys, and constants in files."""

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakra.builder import TraceBuilder
from chakra.errors import ConfigError, TraceError
from chakra.et import Trace
from chakra.et.operators import (
    Attention,
    Direction,
    Kernel,
    KernelKind,
    MatrixProduct,
    operator_text,
    parse_operators,
)
from chakra.generate import TransformerRequest, build_workload
from chakra.platforms import cluster
from chakra.replay import simulate
from chakra.replay.compute import (
    ComputeParameters,
    MatmulCosts,
    compute_parameters,
    compute_parameters_from,
    compute_parameters_to,
    names_with_operator_times,
    operator_ns,
)

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs/guides/operator-times.md"
MEASURED = ROOT / "tools/measured_attention.csv"
PRESETS = names_with_operator_times()
#: 100 units of 1 TFLOP/s, 1,000 GB/s, and nothing else costs anything
PLAIN = compute_parameters_from(
    {
        "accelerator": "made up",
        "units": 100,
        "matmul": {
            "bf16": {"peak_tflops": 100.0, "efficiency": 1.0, "memory_efficiency": 1.0, "launch_us": 0.0}
        },
        "memory": {"gbps": 1000.0, "efficiency": 0.5, "floor_us": 2.0},
        "attention": {"fused_forward": 0.5, "fused_backward": 0.25},
    },
    "plain",
)


def us(operator: Any, parameters: ComputeParameters = PLAIN) -> float:
    """Time of one operator."""
    return float(operator_ns([operator_text(operator)], parameters)[0]) / 1e3


# -------------------------------------------------------------------------------------------------------- closed forms


def test_a_product_takes_whole_waves() -> None:
    """100 tiles of 256 x 128 fill 100 units once, 101 twice; a wave is 2*256*128*k operations at 1 TFLOP/s."""
    wave = 2 * 256 * 128 * 8192 / 1e6
    assert us(MatrixProduct(256 * 10, 128 * 10, 8192)) == pytest.approx(wave)
    assert us(MatrixProduct(256 * 100, 128 * 3, 8192)) == pytest.approx(3 * wave)
    assert (
        wave < us(MatrixProduct(256 * 101, 128, 8192)) < 2 * wave
    )  # smaller tiles waste less of the second wave


def test_a_small_product_takes_its_bytes() -> None:
    moved = 2 * (16 * 8192 + 8192 * 8192 + 16 * 8192)
    assert us(MatrixProduct(16, 8192, 8192)) == pytest.approx(moved / 1e6, rel=1e-6)


def test_memory_bound_kernels_take_their_bytes_and_a_floor() -> None:
    assert us(Kernel(KernelKind.ADD, 10**6, 6 * 10**6)) == pytest.approx(2 + 6e6 / 500e3)
    # the backward of a norm is two kernels
    norm = Kernel(KernelKind.NORM, 10**6, 6 * 10**6, direction=Direction.BACKWARD)
    assert us(norm) == pytest.approx(4 + 6e6 / 500e3)


def test_a_program_has_scans_of_its_own() -> None:
    """A factor on scans is one on the bytes of the recurrence, and on products of its chunks; others stay."""
    slow = replace(PLAIN, kernels={"scan": 3.0})
    chunk = MatrixProduct(2560, 1280, 8192, role="scan")
    assert us(chunk, slow) == pytest.approx(3 * us(chunk))
    assert us(replace(chunk, role=""), slow) == pytest.approx(us(chunk))
    recurrence = Kernel(KernelKind.SCAN, 10**6, 6 * 10**6)
    assert us(recurrence, slow) == pytest.approx(2 + 3 * 6e6 / 500e3)


def test_fused_attention_takes_its_operations_at_a_share_of_the_peak() -> None:
    """50 heads of 256 queries are 100 tiles: one wave."""
    forward = Attention(1, 50, 50, 256, 256, 128)
    assert us(forward) == pytest.approx(2 + 4 * 50 * 256 * 256 * 128 / (100e6 * 0.5))
    backward = replace(forward, direction=Direction.BACKWARD)
    assert us(backward) == pytest.approx(3 * 2 + 8 * 50 * 256 * 256 * 128 / (100e6 * 0.25))
    assert us(replace(forward, keys=8192, queries=8192, causal=True)) < 0.6 * us(
        replace(forward, keys=8192, queries=8192)
    )


def test_a_fused_window_takes_whole_tiles_and_small_heads_take_the_time_of_larger_ones() -> None:
    """A tile of 128 queries computes its own tile of keys, and those that begin in the window."""
    plain = Attention(1, 100, 100, 1 << 14, 1 << 14, 128, causal=True)
    fast = replace(PLAIN, memory=replace(PLAIN.memory, gbps=1e6))
    window = [us(replace(plain, window=size), fast) - 2 for size in (1, 2, 129, 130)]
    assert window[1] == window[2] == pytest.approx(2 * window[0], rel=0.02)
    assert window[3] == pytest.approx(3 * window[0], rel=0.03)
    narrow = replace(PLAIN, attention=replace(PLAIN.attention, least_head=96))
    assert us(replace(plain, head=64), narrow) == pytest.approx(us(replace(plain, head=96)))
    assert us(plain, narrow) == us(plain)
    assert us(replace(plain, head=128, value_head=64), narrow) == us(replace(plain, value_head=64))


def test_fused_attention_is_near_what_was_measured() -> None:
    """Kernels of cuDNN in bf16: errors on the rows that nothing was fitted to are those of the guide."""
    lines = [line for line in MEASURED.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    rows = list(csv.DictReader(lines))
    guide = GUIDE.read_text(encoding="utf-8")
    for machine in ("hgx-h200", "gb200-nvl72", "gb300-nvl72"):
        parameters = compute_parameters(machine)
        cells = []
        for direction in (Direction.FORWARD, Direction.BACKWARD):
            held = [row for row in rows if (row["machine"], row["pass"]) == (machine, direction.value)][1::2]
            errors, plain = [], []
            for row in held:
                batch, heads, kv_heads, length, head, value, causal, window = map(
                    int, list(row.values())[1:9]
                )
                core = Attention(
                    batch, heads, kv_heads, length, length, head, value_head=value % head, causal=bool(causal),
                    window=window, direction=direction,
                )  # fmt: skip
                error = abs(us(core, parameters) / 1e3 / float(row["ms"]) - 1)
                errors.append(error)
                if not window:
                    plain.append(error)
            cells += [
                f"{len(held)}",
                *(f"{100 * sum(some) / len(some):.1f} %" for some in (errors, plain)),
            ]
        assert f"| {machine} | {' | '.join(cells)} |" in guide


def test_unfused_attention_writes_and_reads_the_scores() -> None:
    """Two products of all pairs, and two passes over the scores by one kernel."""
    heads, length, head = 25, 512, 64
    products = us(MatrixProduct(length, length, head, heads)) + us(MatrixProduct(length, head, length, heads))
    scores = 2 * heads * length * length
    attention = Attention(1, heads, heads, length, length, head, fused=False)
    assert us(attention) == pytest.approx(products + 2 + 2 * scores / 500e3)
    assert us(replace(attention, causal=True)) == us(attention)
    assert us(replace(attention, dropout=True)) == pytest.approx(us(attention) + 2 + 2.5 * scores / 500e3)


def test_a_window_bounds_the_pairs() -> None:
    whole = Attention(1, 8, 8, 4096, 4096, 128, causal=True)
    assert replace(whole, window=128).pairs == 4096 * 128 - 128 * 127 // 2
    assert us(replace(whole, window=128)) < us(whole) / 4


def test_a_node_of_several_operators_is_their_sum() -> None:
    one, other = "gemm m=512 n=512 k=512", "norm elements=1000 bytes=4000"
    first, second = operator_ns([one, other], PLAIN)
    assert operator_ns([f"3 * {one} + {other}"], PLAIN)[0] == pytest.approx(3 * first + second)


# -------------------------------------------------------------------------------------------------------------- laws

SIZES = st.integers(1, 1 << 14)


@given(SIZES, SIZES, SIZES, st.integers(1, 16), st.sampled_from(PRESETS), st.sampled_from("mnk"))
def test_a_larger_product_is_not_faster(m: int, n: int, k: int, batch: int, name: str, axis: str) -> None:
    """Twice a side never takes less time, and a product never beats its operations at the peak, nor its bytes."""
    parameters = compute_parameters(name)
    small = MatrixProduct(m, n, k, batch)
    large = replace(small, **{axis: 2 * getattr(small, axis)})
    assert us(large, parameters) >= us(small, parameters) * 0.999999
    costs = parameters.matmul["bf16"]
    assert us(small, parameters) >= small.flops / (costs.peak_tflops * 1e6)
    assert us(small, parameters) >= small.moved_bytes / (parameters.memory.gbps * 1e3)


@given(st.integers(1, 64), st.integers(1, 8192), st.sampled_from(PRESETS), st.booleans(), st.booleans())
def test_attention_of_more_sequences_or_keys_is_not_faster(
    heads: int, length: int, name: str, causal: bool, fused: bool
) -> None:
    parameters = compute_parameters(name)
    small = Attention(1, heads, heads, length, length, 128, causal=causal, fused=fused)
    assert us(replace(small, batch=2), parameters) >= us(small, parameters) * 0.999999
    longer = replace(small, queries=2 * length, keys=2 * length)
    assert us(longer, parameters) >= us(small, parameters) * 0.999999
    assert us(replace(small, direction=Direction.BACKWARD), parameters) > us(small, parameters)


@given(
    st.one_of(
        st.builds(
            MatrixProduct, SIZES, SIZES, SIZES, SIZES, st.sampled_from(["", "router"]), st.integers(0, 99),
            st.sampled_from(["bf16", "fp8", "nvfp4"]), st.sampled_from(["", "fp32"]), st.sampled_from(Direction),
        ),
        st.builds(Attention, SIZES, SIZES, SIZES, SIZES, SIZES, SIZES, SIZES, st.booleans(), SIZES, st.booleans()),
        st.builds(Kernel, st.sampled_from(KernelKind), SIZES, SIZES, st.sampled_from(["bf16", "fp32"])),
    ),
    st.integers(1, 9),
)  # fmt: skip
def test_an_operator_is_its_text(operator: Any, count: int) -> None:
    text = operator_text(operator)
    assert parse_operators(text) == ((operator, 1),)
    assert parse_operators(f"{count} * {text}") == ((operator, count),)


def test_texts_of_other_tools_are_no_operators_and_broken_ones_are_errors() -> None:
    assert (
        parse_operators("aten::mm")
        == parse_operators("copy from host to device")
        == parse_operators("")
        == ()
    )
    for text, what in (
        ("gemm m=1 n=2", "k is missing"),
        ("gemm m=1 n=2 k=x", "k cannot be 'x'"),
        ("gemm m=1 n=2 k=3 q=4", "'q' is not one of"),
        ("gemm m=0 n=2 k=3", "m must be a whole number"),
        ("gemm m=1 n=2 k=3 type=bf17", "type 'bf17'"),
        ("x * gemm m=1 n=2 k=3", "'x' is no count"),
    ):
        with pytest.raises(TraceError, match=what):
            parse_operators(text)


# --------------------------------------------------------------------------------------------------------- parameters


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_its_document(name: str) -> None:
    """And its peak and bandwidth are those of the machine's preset."""
    parameters = compute_parameters(name)
    assert compute_parameters_from(compute_parameters_to(parameters), name) == parameters
    accelerator = cluster(name, sized=False).accelerator
    assert parameters.matmul["bf16"].peak_tflops == accelerator.peak_tflops
    assert parameters.memory.gbps == accelerator.mem_gbps


@pytest.mark.parametrize(
    ("name", "kind", "best"),
    [
        # rates that stas00/ml-engineering found, 10^12 op/s
        ("mi300x", "bf16", 668.4),
        ("hls-2", "bf16", 418.7),
        ("hls-2", "fp8", 826.5),
        ("hls-3", "bf16", 1243.0),
        ("hls-3", "fp8", 1289.5),
    ],
)
def test_a_ceiling_is_the_best_measured_product(name: str, kind: str, best: float) -> None:
    """Large products come within 1 % of it, and none above; attention has no larger share of it than on H100."""
    parameters, like = compute_parameters(name), compute_parameters("hgx-h100")
    assert parameters.status == "ceiling"
    assert not parameters.errors
    sizes = [(1 << 16, 1 << 16, 1 << 20), (1 << 15, 1 << 14, 1 << 13), (4096, 4096, 4096), (512, 512, 512)]
    # gradients of weights: their operands are in the type of the product already
    products = [MatrixProduct(*size, type=kind, direction=Direction.WEIGHT) for size in sizes]
    times = operator_ns([operator_text(product) for product in products], parameters)
    rates = [product.flops / time / 1e3 for product, time in zip(products, times, strict=True)]
    assert rates[0] == pytest.approx(best, rel=0.01)
    assert max(rates) <= best * 1.002
    assert rates[3] < rates[2] < rates[0]
    share = parameters.attention.fused_forward / parameters.matmul["bf16"].efficiency
    assert share <= 1.001 * like.attention.fused_forward / like.matmul["bf16"].efficiency


def test_a_replay_says_where_a_ceiling_comes_from() -> None:
    platform = cluster("mi300x", 8)
    workload = build_workload(TransformerRequest(model="gpt2-small", tp=4, dp=2).plan())
    notes = " ".join(simulate(workload, platform.system(), platform.network()).notes)
    assert "MI300X; ceiling: stas00/ml-engineering, best matrix product found (668.4 10^12 op/s)" in notes
    assert "100 %" not in notes


@pytest.mark.parametrize(
    ("name", "npus"), [("l40s", 8), ("rtx-pro-6000", 8), ("dgx-1v", 8), ("dgx-2", 16), ("tpu-v3-8", 8)]
)
def test_what_was_not_measured_has_no_operator_times_and_says_so(name: str, npus: int) -> None:
    platform = cluster(name, npus)
    assert name not in PRESETS
    workload = build_workload(TransformerRequest(model="gpt2-small", npus=npus).plan())
    notes = " ".join(simulate(workload, platform.system(), platform.network()).notes)
    assert "the roofline computes at 100 % of" in notes


def test_changes_are_merged_and_checked() -> None:
    half = compute_parameters("hgx-h100", {"memory": {"efficiency": 0.5}})
    assert half.memory.efficiency == 0.5
    assert half.matmul == compute_parameters("hgx-h100").matmul
    # other element types follow the first one where they have no constants of their own
    slow = compute_parameters("hgx-h100", {"matmul": {"bf16": {"efficiency": 0.1}}})
    assert slow.matmul["tf32"].efficiency == 0.1
    for changes, what in (
        ({"memory": {"efficiency": 1.5}}, "efficiency is a share"),
        ({"memory": {"speed": 1}}, "'speed' is not one of"),
        ({"memories": {}}, "'memories' is not one of"),
        ({"kernels": {"norn": 2.0}}, "'norn' is not known; did you mean 'norm'"),
        ({"host": {"gap_us": "6"}}, "gap_us"),
        ({"matmul": {"bf16": 3}}, "must be a map"),
    ):
        with pytest.raises(ConfigError, match=what):
            compute_parameters("hgx-h100", changes)


def test_a_type_that_a_machine_lacks_is_named() -> None:
    with pytest.raises(ConfigError, match="dgx-a100: no matrix products of fp8; there are bf16"):
        operator_ns(["gemm m=64 n=64 k=64 type=fp8"], compute_parameters("dgx-a100"))


# ------------------------------------------------------------------------------------------------------------- replay

NETWORK = {"topology": ["Ring"], "npus_count": [2], "bandwidth": [50], "latency": [500]}
PLAIN_MAP = compute_parameters_to(PLAIN)
TEXT = "gemm m=2560 n=1280 k=8192"
WAVE_NS = 2 * 256 * 128 * 8192 // 1000


def chain(*nodes: dict[str, Any]) -> Trace:
    """A trace of compute nodes that follow each other."""
    builder = TraceBuilder()
    before: tuple[Any, ...] = ()
    for number, node in enumerate(nodes):
        before = (builder.compute(f"n{number}", after=before, **node),)
    return builder.build()


def finish(trace: Trace, system: dict[str, Any], **options: Any) -> int:
    """When both NPUs finish."""
    return int(simulate([trace, trace], system, NETWORK, **options).finish_ns[0])


def said(**more: Any) -> dict[str, Any]:
    """A node that says what it computes."""
    return {"num_ops": 10**9, "tensor_bytes": 10**6, "attrs": {"operator": TEXT}, **more}


ROOFLINE = {"roofline-enabled": 1, "peak-perf": 100, "local-mem-bw": 1000}


def test_a_duration_wins_then_the_operator_then_the_roofline() -> None:
    modelled = {**ROOFLINE, "operator-model": PLAIN_MAP}
    roofline = {"num_ops": 10**9, "tensor_bytes": 10**6}
    assert finish(chain(said(duration_ns=777)), modelled) == 777
    assert finish(chain(said()), modelled) == pytest.approx(WAVE_NS, abs=1)
    assert finish(chain(roofline), modelled) == 10_000
    assert finish(chain(said(), roofline, said(duration_ns=777)), modelled) == pytest.approx(
        WAVE_NS + 10_777, abs=1
    )
    # without the key, with --ideal and under --compat: the roofline, which replaces durations
    for system, options in ((ROOFLINE, {}), (modelled, {"ideal": True}), (modelled, {"compat": "astra-sim"})):
        assert finish(chain(said(duration_ns=777)), system, **options) == 10_000
        assert finish(chain(said()), system, **options) == 10_000


def test_peak_and_bandwidth_of_the_system_scale_the_machine() -> None:
    system = {"operator-model": PLAIN_MAP, "peak-perf": 200, "local-mem-bw": 1000}
    assert finish(chain(said()), system) == pytest.approx(WAVE_NS / 2, abs=1)
    assert finish(chain(said()), system, compute_scale=3.0) == pytest.approx(WAVE_NS * 1.5, abs=2)


def test_notes_say_whose_times_computation_takes() -> None:
    machine = cluster("dgx-a100", 8)
    workload = build_workload(TransformerRequest(model="gpt2-small", tp=4, npus=8).plan())
    modelled = simulate(workload, machine.system(), machine.network())
    assert any(
        "takes the operator times of dgx-a100 (A100 SXM 80 GB; fitted" in note for note in modelled.notes
    )
    assert not any("100 % of" in note for note in modelled.notes)
    ideal = simulate(workload, machine.system(), machine.network(), ideal=True)
    assert "operator-model has no effect: --ideal asks for the peak" in ideal.notes
    assert any("the roofline computes at 100 %" in note for note in ideal.notes)
    assert ideal.finish_ns.max() < modelled.finish_ns.max()


def test_a_model_that_is_none_is_one_line() -> None:
    for model, what in (
        ("hgx-h1000", "no operator times for 'hgx-h1000'; did you mean"),
        ({"base": "hgx-h100", "units": 0}, "units must be at least 1"),
        ({"units": 3}, "accelerator is missing"),
        ({"base": 3}, "base must be the name of a preset"),
    ):
        with pytest.raises(ConfigError, match=what):
            finish(chain(said()), {**ROOFLINE, "operator-model": model})


def test_types_of_products_have_their_own_costs() -> None:
    eight = replace(PLAIN, matmul={**PLAIN.matmul, "fp8": MatmulCosts(200.0, 1.0, 1.0, 0.0)})
    product = MatrixProduct(2560, 1280, 8192, type="fp8")
    assert us(product, eight) == pytest.approx(us(replace(product, type="bf16"), eight) / 2)
    assert product.result_type == "bf16"


def test_activations_are_brought_into_the_type_of_the_product() -> None:
    """4 bytes for each of m * k activations at 500 GB/s; the gradient of the weights finds its operands made."""
    costs = MatmulCosts(200.0, 1.0, 1.0, 0.0)
    eight = replace(PLAIN, matmul={**PLAIN.matmul, "fp8": costs})
    cast = replace(PLAIN, matmul={**PLAIN.matmul, "fp8": replace(costs, cast_bytes=4.0)})
    product = MatrixProduct(2560, 1280, 8192, type="fp8")
    assert us(product, cast) - us(product, eight) == pytest.approx(4 * 2560 * 8192 / 500e3)
    weight = replace(product, direction=Direction.WEIGHT)
    assert us(weight, cast) == us(weight, eight)
