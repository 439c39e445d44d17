"""Multi-token prediction: published sizes, closed forms, work and exchanges by hand, and what stays in 16 bits."""

from dataclasses import replace
from typing import Any

import pytest

from chakra.errors import UsageError
from chakra.et import NodeType
from chakra.et.operators import MatrixProduct, parse_operators
from chakra.generate import TransformerRequest, build_workload, summarize
from chakra.generate.model.presets import transformer
from chakra.generate.verify import closed_forms as closed
from chakra.generate.verify.check import check_step
from chakra.generate.verify.step_totals import total_matmul_flops, total_parameters
from chakra.replay import simulate

SYSTEM: dict[str, Any] = {
    "roofline-enabled": 1, "peak-perf": 1, "local-mem-bw": 100,
    **{f"{kind}-implementation": ["ring"] for kind in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")},
}  # fmt: skip
H, V, S = 64, 96, 32
SIZES: dict[str, Any] = {
    "model": "", "layers": 4, "hidden": H, "heads": 8, "ffn": 128, "vocabulary": V, "seq": S, "micro-batches": 4,
}  # fmt: skip
EXPERTS: dict[str, Any] = {"experts": 8, "experts-per-token": 2, "moe-ffn": 32}


def request(**more: Any) -> TransformerRequest:
    return TransformerRequest.from_mapping({**SIZES, **{key.replace("_", "-"): more[key] for key in more}})


def test_deepseek_v3_has_the_published_module() -> None:
    """11.5 billion parameters beside the embedding and output matrix that it shares (its README on weights)."""
    model = transformer("deepseek-v3")
    more = closed.parameters(replace(model, mtp=1)) - closed.parameters(model)
    attention = 7168 * 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 * 128 * 256 + 128 * 128 * 7168 + 1536 + 512
    experts = 7168 * 256 + 257 * 3 * 7168 * 2048
    assert more == 2 * 7168**2 + 5 * 7168 + attention + experts
    assert more == pytest.approx(11.5e9, rel=0.01)


@pytest.mark.parametrize("experts", [{}, EXPERTS], ids=["dense", "experts"])
@pytest.mark.parametrize(
    "parallel",
    [
        {"mtp": 1},
        {"mtp": 2, "tp": 2, "pp": 4, "dp": 2, "sp": True},
        {"mtp": 2, "tp": 2, "pp": 2, "recompute": "full"},
        {"mtp": 1, "pp": 2, "vp": 2, "recompute": "selective", "causal": True},
        {"mtp": 1, "pp": 4, "schedule": "zb-h1", "iterations": 2},
        {"mtp": 1, "pp": 4, "schedule": "dualpipe", "micro-batches": 8},
        {"mtp": 1, "pp": 2, "schedule": "dualpipev", "micro-batches": 8, "zero": 1, "dp": 2},
        {"mtp": 3, "dp": 4, "zero": 3, "fuse": True},
        {"mtp": 1, "dp": 2, "zero": 2, "pp": 2},
    ],
    ids=str,
)
def test_every_closed_form_is_met(parallel: dict[str, Any], experts: dict[str, Any]) -> None:
    job = request(**parallel, **experts)
    plan = job.plan()
    checks = check_step(job, plan)
    repeated = job.tp > 1 and not job.sp and bool(experts)
    assert ("matrix FLOPs of all ranks" in {check.name for check in checks}) is not repeated
    assert [check for check in checks if not check.passed] == []
    network = {
        "topology": ["Switch"], "npus_count": [plan.parallel.world], "bandwidth": [5.0], "latency": [100.0]
    }  # fmt: skip
    simulate(build_workload(plan), SYSTEM, network)


def test_modules_add_their_own_work() -> None:
    """A token costs 2h*h, a layer and the output matrix once more, forward, and twice that backward."""
    plain, more = (total_matmul_flops(request(mtp=depth).plan()) for depth in (0, 2))
    layer = 4 * H * H + 2 * H * 128
    core = 4 * S * S * H
    tokens = 4 * S
    assert more - plain == 2 * 3 * (2 * (2 * H * H + layer + H * V) * tokens + 4 * core)


def test_repeated_modules_compute_again_and_hold_nothing_more() -> None:
    """Nemotron 3's two modules of attention and experts are one: 2h*h, and 3 norms beside those of the layers."""
    small = {"model": "nemotron-3-super-120b-a12b", "layers": 9, "experts": 32, "seq": 64}
    none, once, twice = (
        TransformerRequest.from_mapping({**small, "mtp": depth}).plan() for depth in (0, 1, 2)
    )
    assert total_parameters(once) == total_parameters(twice)
    attention = 4096 * (32 + 2 * 2) * 128 + 32 * 128 * 4096 + 4096
    experts = 4096 * 32 + 32 * 2 * 1024 * 2688 + 2 * 4096 * 1024 + 2 * 2 * 4096 * 2688 + 4096
    assert total_parameters(once) - total_parameters(none) == 2 * 4096**2 + 3 * 4096 + attention + experts
    added = total_matmul_flops(once) - total_matmul_flops(none)
    assert total_matmul_flops(twice) - total_matmul_flops(once) == added


def test_a_summary_names_the_modules_of_a_stage() -> None:
    assert [stage.layers for stage in summarize(request(mtp=2, pp=2).plan())] == ["0-1", "2-3, mtp0, mtp1"]


@pytest.mark.parametrize(
    ("options", "compared"),
    [
        ({"layers": 5, "tp": 4, "sp": True}, False),
        ({"layers": 1, "tp": 2}, False),
        ({"layers": 1, "dp": 4, "ep": 4}, True),
        ({"layer-pattern": "MMMM", "layers": 4, "tp": 2}, False),
    ],
    ids=str,
)
def test_modules_of_other_layers_count_in_what_is_checked(options: dict[str, Any], compared: bool) -> None:
    """Its modules have attention and experts where layers have neither: what tp ranks repeat, and what ep needs."""
    job = TransformerRequest.from_mapping(
        {"model": "nemotron-3-nano-30b-a3b", "seq": 64, "mtp": 1, **options}
    )
    checks = check_step(job, job.plan())
    assert ("matrix FLOPs of all ranks" in {check.name for check in checks}) is compared
    assert [check for check in checks if not check.passed] == []


def test_experts_of_modules_are_visited_unevenly_as_those_of_layers_are() -> None:
    job = request(mtp=2, dp=4, ep=4, expert_load="zipf:1.2", **EXPERTS)
    plan = job.plan()
    assert [check for check in check_step(job, plan) if not check.passed] == []
    sent: dict[str, set[tuple[int, ...]]] = {}
    for trace in build_workload(plan).traces:
        for i in range(trace.n_nodes):
            name = trace.node(i).name.split(" ")[-1]
            if trace.types[i] == NodeType.COMM_COLL and name.endswith("expert1.all_to_all"):
                sent.setdefault(name.split(".")[0], set()).add(tuple(trace.attr(i, "in_split_bytes", ())))
    modules = [sent["mtp0"], sent["mtp1"]]
    assert all(len(set(split)) > 1 for splits in modules for split in splits)
    assert modules[0] != modules[1]


@pytest.mark.parametrize(("stages", "held"), [(1, []), (2, [0, 1]), (4, [0, 3])])
def test_the_last_stage_looks_tokens_up_by_a_copy_of_the_embedding(stages: int, held: list[int]) -> None:
    found = summarize(request(mtp=1, pp=stages).plan())
    sizes = {
        stage.stage: traffic.size_bytes
        for stage in found
        for traffic in stage.traffic
        if traffic.group == "embed"
    }
    assert sizes == dict.fromkeys(held, V * H * 4)


@pytest.mark.parametrize("tied", ["gpt2-small", "deepseek-v2-lite"])
def test_dualpipe_has_one_embedding_for_both_ends_on_a_stage(tied: str) -> None:
    """Its first and last stage have both ends of the model: what these share is there once, and no copy is reduced."""
    job = TransformerRequest.from_mapping(
        {"model": tied, "layers": 8, "seq": 64, "pp": 4, "micro-batches": 8, "schedule": "dualpipe", "mtp": 1}
    )
    plan = job.plan()
    assert total_parameters(plan) == closed.parameters(job.config())
    assert not any(traffic.group == "embed" for stage in summarize(plan) for traffic in stage.traffic)


def types_of(job: TransformerRequest) -> dict[str, set[str]]:
    """Element types of products by the part of the model whose node has them."""
    found: dict[str, set[str]] = {}
    for trace in build_workload(job.plan()).traces:
        for i in range(trace.n_nodes):
            if trace.types[i] != NodeType.COMP:
                continue
            name = trace.node(i).name.split(" ")[-1]
            part = "head" if "logits" in name else "mtp" if name.startswith("mtp") else "layers"
            for operator, _ in parse_operators(str(trace.attr(i, "operator", ""))):
                if isinstance(operator, MatrixProduct) and not operator.role:
                    found.setdefault(part, set()).add(operator.type)
    return found


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        ("", {"layers": {"mxfp8"}, "mtp": {"mxfp8"}, "head": {"mxfp8"}}),
        ("head", {"layers": {"mxfp8"}, "mtp": {"mxfp8"}, "head": {"bf16"}}),
        ("head, mtp", {"layers": {"mxfp8"}, "mtp": {"bf16"}, "head": {"bf16"}}),
    ],
)
def test_parts_stay_in_the_type_of_activations(kept: str, expected: dict[str, set[str]]) -> None:
    assert types_of(request(mtp=1, matmul_dtype="mxfp8", unquantised=kept)) == expected


def test_the_output_matrix_of_megatron_is_in_16_bits() -> None:
    job = request(framework="megatron", matmul_dtype="fp8")
    assert types_of(job) == {"layers": {"fp8"}, "head": {"bf16"}}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mtp": 1, "mode": "prefill"}, "mtp is of mode train"),
        ({"mtp": -1}, "mtp must be a number of at least 0"),
        ({"mtp": 1, "encoder-layers": 4}, "behind an encoder"),
        ({"model": "vit-b16", "mtp": 1}, "text alone"),
        ({"unquantised": "experts"}, "unquantised 'experts' is not one of head, mtp"),
    ],
)
def test_what_cannot_be_is_named(options: dict[str, Any], message: str) -> None:
    base = {} if "model" in options else SIZES
    with pytest.raises(UsageError, match=message):
        TransformerRequest.from_mapping({**base, **options}).plan()
