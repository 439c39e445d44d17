"""Latent attention, sliding windows and sinks: layers that meet counts made apart, and times that follow their shapes."""

from dataclasses import replace
from typing import Any

import pytest

from chakra.errors import UsageError
from chakra.et.operators import Attention, MatrixProduct, operator_text, parse_operators
from chakra.generate import TransformerRequest
from chakra.generate.model.config import TransformerConfig
from chakra.generate.model.presets import TRANSFORMERS, transformer
from chakra.generate.verify import closed_forms as closed
from chakra.generate.verify.check import check_step
from chakra.generate.verify.step_totals import summarize, total_matmul_flops, total_parameters
from chakra.replay.compute import compute_parameters, operator_ns

SMALL_LATENT: dict[str, Any] = {
    "model": "", "layers": 4, "hidden": 64, "heads": 8, "head-dim": 8, "ffn": 128, "vocabulary": 96, "gated": True,
    "seq": 32, "q-rank": 24, "kv-rank": 16, "rope-dim": 4, "value-dim": 12, "micro-batches": 4,
}  # fmt: skip
SMALL_WINDOW: dict[str, Any] = {
    "model": "", "layers": 4, "hidden": 64, "heads": 8, "kv-heads": 4, "head-dim": 8, "ffn": 128, "vocabulary": 96,
    "gated": True, "seq": 32, "window": 5, "full-every": 2, "sinks": True, "micro-batches": 4,
}  # fmt: skip


def _all_seen(queries: int, keys: int, *, causal: bool, window: int) -> int:
    """Pairs that a mask leaves, counted one by one; the last query stands at the place of the last key."""
    count = 0
    for query in range(queries):
        place = keys - queries + query
        for key in range(keys):
            if causal and key > place:
                continue
            if causal and window and key <= place - window:
                continue
            count += 1
    return count


def _operators(request: TransformerRequest) -> list[tuple[str, Any]]:
    """Names and operators of every node of the first stage's templates."""
    plan = request.plan()
    found = []
    for template in plan.stages[0].templates:
        for name, text in zip(template.names, template.operators, strict=True):
            found += [(name, operator) for operator, _ in parse_operators(text or "none")]
    return found


# ------------------------------------------------------------------------------------------------------- parameters


@pytest.mark.parametrize(
    ("name", "total", "active"),
    [
        # with both embeddings, as DeepSeek-AI counts
        ("deepseek-v2-lite", 15.7e9, 2.66e9),
        ("deepseek-v2", 236e9, 21.4e9),
        ("deepseek-v3", 671e9, 37.5e9),
    ],
)
def test_deepseek_has_the_published_parameters(name: str, total: float, active: float) -> None:
    model = transformer(name)
    assert closed.parameters(model) == pytest.approx(total, rel=2e-3)
    assert closed.parameters(model, active=True) == pytest.approx(active, rel=5e-3)


@pytest.mark.parametrize(
    ("name", "total", "active"), [("gpt-oss-20b", 20.91e9, 3.61e9), ("gpt-oss-120b", 116.83e9, 5.13e9)]
)
def test_gpt_oss_has_the_published_parameters(name: str, total: float, active: float) -> None:
    """The published number of active parameters leaves the input embedding out."""
    model = transformer(name)
    assert closed.parameters(model) == pytest.approx(total, rel=5e-4)
    embedding = model.vocabulary * model.hidden
    assert closed.parameters(model, active=True) - embedding == pytest.approx(active, rel=2e-3)


def test_latent_projections_are_the_published_widths() -> None:
    """Weights of one layer's attention, by the widths of DeepSeek-V3's report, and FLOPs of two a weight and token."""
    queries = 7168 * 1536 + 1536 * 128 * (128 + 64)
    others = 7168 * (512 + 64) + 512 * 128 * (128 + 128) + 128 * 128 * 7168
    assert transformer("deepseek-v3").attention_parameters == queries + others == 187_105_280
    assert closed.attention_matrices(transformer("deepseek-v3")) == queries + others
    request = TransformerRequest(model="deepseek-v3", layers=3, seq=512)
    words = ("q_down", "q_up", "kv_down", "kv_up", "proj")
    products = [
        operator
        for name, operator in _operators(request)
        if name.startswith("layer0.") and name.split(".")[-1] in words and isinstance(operator, MatrixProduct)
    ]
    assert len(products) == len(words)
    assert sum(product.flops for product in products) == 2 * 512 * (queries + others)


@pytest.mark.parametrize("sizes", [SMALL_LATENT, {**SMALL_LATENT, "q-rank": 0}, SMALL_WINDOW], ids=str)
@pytest.mark.parametrize(
    "parallel",
    [
        {"tp": 2, "pp": 4, "dp": 2, "sp": True},
        {"tp": 2, "pp": 4, "sp": True, "regather": False},
        {"tp": 2, "pp": 4, "sp": True, "recompute": "full"},
        {"tp": 4, "pp": 4, "recompute": "full"},
        {"tp": 2, "pp": 4, "recompute": "selective", "causal": True},
        {"cp": 2, "dp": 2, "causal": True},
        {"cp": 4, "context": "all-gather", "causal": True},
        {"cp": 4, "context": "ulysses"},
        {"tp": 2, "cp": 2, "sp": True, "context": "ring"},
        {"dp": 4, "zero": 3},
        {"flash": False, "recompute": "selective"},
    ],
    ids=str,
)
def test_every_closed_form_is_met(sizes: dict[str, Any], parallel: dict[str, Any]) -> None:
    request = TransformerRequest.from_mapping({**sizes, **parallel})
    checks = check_step(request, request.plan())
    names = [check.name for check in checks]
    assert "parameters" in names
    repeated = request.tp > 1 and not request.sp and request.config().latent
    assert ("matrix FLOPs of all ranks" in names) is not repeated
    if request.tp > 1 and request.pp > 2:
        assert any("tp" in name and "bytes" in name for name in names)
    assert [check for check in checks if not check.passed] == []


def test_gradients_of_experts_count_though_their_group_is_their_own() -> None:
    """Replicas of a mixture of experts without expert parallelism: two groups reduce all gradients together."""
    request = TransformerRequest.from_mapping({"model": "gpt-oss-20b", "layers": 4, "dp": 2})
    checks = check_step(request, request.plan())
    assert [check for check in checks if not check.passed] == []
    assert any("gradient bytes" in check.name for check in checks)


def test_a_check_of_latent_attention_can_fail() -> None:
    """A model with another compressed width does not pass for the one that was planned."""
    request = TransformerRequest.from_mapping({**SMALL_LATENT, "tp": 2, "pp": 4, "sp": True})
    failed = {
        check.name for check in check_step(replace(request, kv_rank=17), request.plan()) if not check.passed
    }
    assert {"parameters", "matrix FLOPs of all ranks", "tp all-gather, stage 1, bytes"} <= failed


@pytest.mark.parametrize("tp", [2, 8, 16, 32])
def test_biases_of_keys_and_values_that_ranks_share_count_once(tp: int) -> None:
    """With more tensor-parallel ranks than heads of keys, several hold the same head, its matrix and its bias."""
    request = TransformerRequest.from_mapping({"model": "gpt-oss-20b", "layers": 2, "tp": tp, "seq": 128})
    (check,) = [one for one in check_step(request, request.plan()) if one.name == "parameters"]
    assert check.passed, check


@pytest.mark.parametrize("name", ["deepseek-v3", "gpt-oss-20b"])
def test_experts_and_new_attention_go_together(name: str) -> None:
    model = TRANSFORMERS[name]
    request = TransformerRequest.from_mapping(
        {
            "model": name,
            "layers": 4,
            "seq": 256,
            "tp": 2,
            "sp": True,
            "ep": 2,
            "dp": 2,
            "micro-batches": 2,
            "causal": True,
        }
    )
    plan = request.plan()
    assert [check for check in check_step(request, plan) if not check.passed] == []
    assert total_parameters(plan) == closed.parameters(replace(model, layers=4))


# ------------------------------------------------------------------------------------------------------- windows


@pytest.mark.parametrize(("queries", "keys"), [(8, 8), (1, 8), (3, 8), (32, 32)])
@pytest.mark.parametrize("window", [1, 2, 5, 7])
def test_pairs_of_a_window_are_those_left_by_its_mask(queries: int, keys: int, window: int) -> None:
    operator = Attention(1, 1, 1, queries, keys, 8, causal=True, window=window)
    pairs = _all_seen(queries, keys, causal=True, window=window)
    assert operator.pairs == pairs
    assert operator.flops == 2 * pairs * 16
    places = range(keys - queries, keys)
    assert operator.seen == len(
        {key for place in places for key in range(max(0, place - window + 1), place + 1)}
    )


def test_layers_alternate_between_windows_and_all_keys() -> None:
    """Every layer's core computes the pairs that its mask leaves: 128 keys in GPT-OSS's first layer, then all."""
    request = TransformerRequest(model="gpt-oss-20b", layers=4, seq=512, causal=True)
    cores = [
        (name, operator)
        for name, operator in _operators(request)
        if name.endswith(".attention") and isinstance(operator, Attention)
    ]
    assert [operator.window for _, operator in cores] == [128, 0, 128, 0]
    assert all(operator.sinks and operator.heads == 64 and operator.kv_heads == 8 for _, operator in cores)
    windowed, full = (2 * 64 * operator.pairs * (64 + 64) for _, operator in cores[:2])
    assert windowed == 2 * 64 * _all_seen(512, 512, causal=True, window=128) * 128
    assert full == 2 * 64 * (512 * 512 // 2) * 128
    template = request.plan().stages[0].templates[0]
    flops = dict(zip(template.names, template.flops, strict=True))
    assert [flops[name] for name, _ in cores] == [windowed, full, windowed, full]


def test_a_window_needs_no_keys_of_far_ranks() -> None:
    """Round a ring of 8 ranks with 64 tokens each: a window of 128 reaches 2 ranks back, full layers take 7 steps."""
    request = TransformerRequest(model="gpt-oss-20b", layers=2, seq=512, cp=8, causal=True)
    names = [name for name, _ in _operators(request)]
    for layer, steps in ((0, 2), (1, 7)):
        assert sum(name.startswith(f"layer{layer}.attention.block") for name in names) == steps + 1
    shared = TransformerRequest(model="gpt-oss-20b", layers=2, seq=512, causal=True)
    assert total_matmul_flops(request.plan()) == total_matmul_flops(shared.plan())


@pytest.mark.parametrize(
    "sizes",
    [{"model": "llama3-8b"}, {"model": "gpt-oss-20b"}, {"model": "llama3-8b", "causal": False}],
    ids=str,
)
@pytest.mark.parametrize("context", ["ring", "all-gather", "ulysses"])
@pytest.mark.parametrize("cp", [2, 4, 8])
def test_context_ranks_compute_what_one_rank_would(sizes: dict[str, Any], context: str, cp: int) -> None:
    """Each an equal share of the pairs that the mask leaves: what the operators say adds up to the whole."""

    def pairs(ranks: int) -> dict[str, int]:
        job = {"causal": True, **sizes, "layers": 2, "seq": 4096, "cp": ranks, "context": context}
        found: dict[str, int] = {}
        for name, operator in _operators(TransformerRequest.from_mapping(job)):
            if isinstance(operator, Attention):
                layer = name.partition(".attention")[0] + str(operator.direction)
                found[layer] = found.get(layer, 0) + operator.flops
        return found

    alone = pairs(1)
    assert alone
    assert pairs(cp) == {layer: flops // cp for layer, flops in alone.items()}


# ------------------------------------------------------------------------------------------------------- inference


def test_cache_of_latent_attention_is_the_published_one() -> None:
    """70.272 kB a token (DeepSeek-V3 in 16 bits): what is compressed and the rotary part, on every tp rank."""
    assert closed.kv_cache_bytes(transformer("deepseek-v3"), 1) == 70_272
    for tp in (1, 8):
        request = TransformerRequest.from_mapping(
            {"model": "deepseek-v3", "mode": "decode", "seq": 1023, "micro-batch": 8, "tp": tp}
        )
        (stage,) = summarize(request.plan())
        assert stage.memory.cache == 8 * 1024 * 70_272


def test_layers_with_a_window_keep_no_more_than_it() -> None:
    request = TransformerRequest.from_mapping(
        {"model": "gpt-oss-20b", "mode": "decode", "seq": 4095, "micro-batch": 2}
    )
    (stage,) = summarize(request.plan())
    assert stage.memory.cache == 2 * (12 * 4096 + 12 * 128) * 2 * 8 * 64 * 2
    assert stage.memory.cache == 2 * closed.kv_cache_bytes(transformer("gpt-oss-20b"), 4096)


@pytest.mark.parametrize("sizes", [SMALL_LATENT, {**SMALL_LATENT, "q-rank": 0}, SMALL_WINDOW], ids=str)
@pytest.mark.parametrize("mode", ["prefill", "decode", "serve"])
def test_inference_flops_are_those_of_the_closed_form(sizes: dict[str, Any], mode: str) -> None:
    request = TransformerRequest.from_mapping(
        {**sizes, "mode": mode, **({} if mode == "prefill" else {"decode-steps": 3})}
    )
    contexts = () if mode == "prefill" else (33, 34, 35)
    one = closed.inference_flops(request.config(), prompt=0 if mode == "decode" else 32, contexts=contexts)
    assert total_matmul_flops(request.plan()) == 4 * one


def test_decoding_reads_compressed_keys_once() -> None:
    """Values are part of the compressed keys: a step's core reads 576 elements a token and not 1088."""
    request = TransformerRequest.from_mapping(
        {"model": "deepseek-v3", "layers": 3, "mode": "decode", "seq": 65535}
    )
    cores = [operator for _, operator in _operators(request) if isinstance(operator, Attention)]
    assert {(core.head, core.value_head, core.kv_heads, core.latent) for core in cores} == {
        (576, 512, 1, True)
    }
    machine = compute_parameters("hgx-h100")
    # a sequence for each compute unit
    apart = replace(cores[0], batch=132, heads=1, latent=False)
    together = replace(apart, latent=True)
    times = operator_ns([operator_text(apart), operator_text(together)], machine)
    bandwidth = machine.memory.gbps * machine.memory.efficiency
    assert times[0] - times[1] == pytest.approx(132 * 65536 * 512 * 2 / bandwidth, rel=1e-6)


# ------------------------------------------------------------------------------------------------------- times and texts


def test_time_of_a_window_follows_its_pairs() -> None:
    """Long sequences: the core's time is its floor and the pairs of its mask's tiles at the reachable rate."""
    machine = compute_parameters("hgx-h100")
    assert (machine.attention.tile, machine.attention.least_head) == (128, 96)
    for window in (1, 100, 128, 129, 1024, 8192):
        operator = Attention(8, 64, 8, 8192, 8192, 64, causal=True, window=window)
        (time,) = operator_ns([operator_text(operator)], machine)
        seen = min(8192, 128 * (1 + -(-(window - 1) // 128)))
        pairs = 8192 * 8193 // 2 - (8192 - seen) * (8192 - seen + 1) // 2 if seen < 8192 else 8192 * 4096
        tiles = 8 * 64 * 64
        idle = -(-tiles // machine.units) * machine.units / tiles
        rate = machine.matmul["bf16"].peak_tflops * machine.attention.fused_forward * 1e3
        # a head of 64 takes the time of one of 96
        compute = 8 * 64 * pairs * 2 * 192 / rate * idle
        moved = 8 * 8192 * (2 * 64 + 2 * 8) * 64 * 2 / (machine.memory.gbps * machine.memory.efficiency)
        assert time == pytest.approx(machine.memory.floor_us * 1e3 + max(compute, moved), rel=1e-9)


def test_texts_hold_windows_sinks_and_compression() -> None:
    operator = Attention(4, 128, 1, 1, 4096, 576, value_head=512, window=64, sinks=True, latent=True)
    text = operator_text(operator)
    assert text == (
        "attention batch=4 heads=128 kv_heads=1 queries=1 keys=4096 head=576 value_head=512 window=64 sinks=1 latent=1"
    )
    assert parse_operators(text) == ((operator, 1),)


# ------------------------------------------------------------------------------------------------------- refused


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"kv-rank": 16}, "rope-dim is 0"),
        ({"q-rank": 16}, "kv-rank is 0"),
        ({"kv-rank": 16, "rope-dim": 4}, "value-dim is 0"),
        ({"kv-rank": 16, "rope-dim": 4, "value-dim": 8, "kv-heads": 2}, "as many kv-heads"),
        ({"full-every": 2}, "needs a window"),
        (
            {"model": "gpt2-small", "kv-heads": 12, "kv-rank": 16, "rope-dim": 4, "value-dim": 8},
            "with biases",
        ),
    ],
)
def test_sizes_that_contradict_each_other_are_refused(sizes: dict[str, Any], words: str) -> None:
    values = {"model": "llama3-8b", "kv-heads": 32, **sizes}
    with pytest.raises(UsageError, match=words):
        TransformerRequest.from_mapping(values).config()


def test_heads_of_a_latent_preset_do_not_follow_the_width() -> None:
    """A smaller DeepSeek keeps the size of its heads."""
    model: TransformerConfig = TransformerRequest(model="deepseek-v3", hidden=1024, heads=8).config()
    assert (model.head_dim, model.rope_dim, model.value_dim, model.kv_heads) == (128, 64, 128, 8)
