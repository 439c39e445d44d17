"""MLP, ResNet-50, DLRM and inference against their closed forms."""

from itertools import pairwise
from typing import Any

import pytest

from chakra.errors import UsageError
from chakra.generate import summarize, total_matmul_flops, total_parameters
from chakra.generate.model.classic import DLRM, MlpConfig
from chakra.generate.model.presets import transformer
from chakra.generate.request.requests import DlrmRequest, MlpRequest, ResnetRequest
from chakra.generate.request.transformers import TransformerRequest
from chakra.generate.verify import closed_forms as closed


def test_resnet50_has_the_published_size() -> None:
    """25.557 million parameters and 4.089 GMAC per image of 224 x 224; backward twice that, but for the input."""
    plan = ResnetRequest(dp=2, micro_batch=3).plan()
    assert total_parameters(plan) == 25_557_032
    forward = 2 * 4_089_184_256
    first = 2 * 112 * 112 * 64 * 3 * 49
    assert total_matmul_flops(plan) == 2 * 3 * (3 * forward - first)


@pytest.mark.parametrize("options", [{}, {"tp": 2}, {"tp": 4, "dp": 2}, {"pp": 2, "micro_batches": 4}])
def test_mlp_parameters_and_flops(options: dict[str, Any]) -> None:
    widths = (64, 128, 64, 128, 32)
    request = MlpRequest(widths=widths, micro_batch=8, **options)
    plan = request.plan()
    assert total_parameters(plan) == MlpConfig(widths).parameters
    products = [2 * k * n for k, n in pairwise(widths)]
    samples = 8 * plan.training.micro_batches * plan.parallel.dp
    assert total_matmul_flops(plan) == samples * (3 * sum(products) - products[0])


def test_dlrm_exchanges_pooled_vectors_and_reduces_dense_gradients_only() -> None:
    model = DLRM["dlrm-criteo"]
    plan = DlrmRequest(dp=16, micro_batch=128).plan()
    (stage,) = summarize(plan)
    exchanged = next(t for t in stage.traffic if t.kind == "ALL_TO_ALL")
    assert (exchanged.calls, exchanged.size_bytes) == (2, 2 * 128 * 26 * 128 * 2)
    reduced = next(t for t in stage.traffic if t.kind == "ALL_REDUCE")
    assert reduced.size_bytes == model.dense_parameters * 4
    assert total_parameters(plan) == model.dense_parameters + model.rows * model.dim


@pytest.mark.parametrize(("request_type", "options", "message"), [
    (ResnetRequest, {"tp": 2}, "ResNet-50 has no tp parallelism here"),
    (ResnetRequest, {"image": 100}, "multiple of 32"),
    (ResnetRequest, {"pp": 40}, "cannot fill 40 pipeline chunks"),
    (DlrmRequest, {"pp": 2}, "DLRM has no pipeline here"),
    (DlrmRequest, {"dim": 64}, "must end with the table width 64"),
    (DlrmRequest, {"model": "x"}, "no DLRM preset 'x'"),
    (MlpRequest, {"widths": (3,)}, "at least two widths"),
    (MlpRequest, {"cp": 2}, "no cp parallelism"),
    (MlpRequest, {"widths": (6, 5), "tp": 2}, r"must be a multiple of tp \(2\)"),
    (MlpRequest, {"micro_batch": 0}, "micro-batch must be at least 1"),
])  # fmt: skip
def test_wrong_requests_are_named(request_type: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        request_type(**options).plan()


# --------------------------------------------------------------------------------------------------- inference


@pytest.mark.parametrize(
    "parallel", [{}, {"tp": 8}, {"tp": 4, "pp": 4}, {"tp": 2, "dp": 2}, {"pp": 4, "vp": 2}]
)
@pytest.mark.parametrize(("mode", "steps"), [("prefill", 0), ("decode", 3), ("serve", 2)])
def test_inference_flops(parallel: dict[str, Any], mode: str, steps: int) -> None:
    model = transformer("llama2-70b")
    request = TransformerRequest.from_mapping(
        {
            "model": model.name,
            "mode": mode,
            **({"decode-steps": steps} if steps else {}),
            "seq": 64,
            "micro-batch": 4,
            "micro-batches": 2,
            **parallel,
        }
    )
    plan = request.plan()
    contexts = tuple(64 + step + 1 for step in range(steps))
    one = closed.inference_flops(model, prompt=0 if mode == "decode" else 64, contexts=contexts)
    assert total_matmul_flops(plan) == one * 4 * 2 * plan.parallel.dp


def test_key_value_cache_and_weights_bound_a_decode_step() -> None:
    """Decode reads all weights once and the cache of the batch: its time is at least bytes / bandwidth."""
    model = transformer("llama2-70b")
    (stage,) = summarize(TransformerRequest.from_mapping({
        "model": model.name, "mode": "decode", "seq": 1023, "micro-batch": 8, "tp": 8, "decode-steps": 1,
    }).plan())  # fmt: skip
    cache = 8 * closed.kv_cache_bytes(model, 1024) // 8
    assert stage.memory.cache == cache
    assert stage.memory.states == stage.parameters * 2
    looked_up = model.vocabulary * model.hidden // 8 * 2
    assert stage.memory_traffic_bytes >= stage.parameters * 2 - looked_up + cache
    assert stage.memory_traffic_bytes <= 1.1 * (stage.parameters * 2 + cache)


def test_tensor_parallel_decode_reduces_twice_per_layer() -> None:
    plan = TransformerRequest.from_mapping(
        {"model": "llama2-70b", "mode": "decode", "seq": 64, "micro-batch": 4, "tp": 8, "decode-steps": 2}
    ).plan()
    (stage,) = summarize(plan)
    (traffic,) = stage.traffic
    assert traffic.calls == 2 * (2 * 80 + 1)
    assert traffic.size_bytes == traffic.calls * 4 * 8192 * 2


def test_the_pipeline_returns_every_token_to_the_first_stage() -> None:
    plan = TransformerRequest.from_mapping(
        {"model": "llama2-7b", "mode": "serve", "seq": 64, "pp": 4, "decode-steps": 3, "micro-batches": 2}
    ).plan()
    first, *_, last = summarize(plan)
    returned = [t for t in first.traffic if t.kind == "RECV"]
    assert [(t.calls, t.size_bytes) for t in returned] == [(3 * 2, 3 * 2 * 4)]
    assert sum(t.calls for t in last.traffic if t.kind == "SEND") == 3 * 2


@pytest.mark.parametrize(("options", "message"), [
    ({"mode": "decode", "decode-steps": 0}, "nothing to do"),
    ({"mode": "decode", "cp": 2}, "decoding does not split the context"),
    ({"mode": "decode", "micro-batch": 3, "tp": 2, "sp": True}, r"requests per micro-batch \(3\)"),
    ({"micro-batch": 1, "seq": 1, "tp": 2, "sp": True}, r"sequences per micro-batch \(1\) must be a multiple of tp"),
    ({"mode": "prefill", "zero": 3}, "zero is of mode train; mode prefill does not read it"),
    ({"mode": "serve", "freeze-encoder": True}, "freeze-encoder is of mode train; mode serve does not read it"),
    ({"mode": "serve", "recompute": "full"}, "recompute is of mode train"),
    ({"mode": "decode", "schedule": "dualpipev"}, "schedule is of mode train"),
    ({"mode": "decode", "shard": 2, "dp": 4, "framework": "fsdp2"}, "shard is of mode train"),
    ({"mode": "prefill", "optimizer-bytes": 16}, "optimizer-bytes is of mode train"),
    ({"decode-steps": 4}, "decode-steps is of mode decode, serve, disaggregated; mode train does not read it"),
    ({"mode": "prefill", "decode-steps": 4}, "disaggregated; mode prefill does not read it"),
    ({"mode": "serve", "decode-steps": -1}, "decode steps must not be negative"),
])  # fmt: skip
def test_wrong_inference_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        TransformerRequest.from_mapping({"model": "llama2-7b", "seq": 64, **options}).plan()


@pytest.mark.parametrize("name", ["megatron", "megatron-2022", "fsdp1", "fsdp2", "nanotron", "maxtext"])
def test_what_a_framework_says_of_training_is_no_request_for_it(name: str) -> None:
    plan = TransformerRequest.from_mapping(
        {"model": "llama2-7b", "layers": 2, "seq": 64, "mode": "serve", "framework": name, "iterations": 1}
    ).plan()
    assert total_matmul_flops(plan) > 0


@pytest.mark.parametrize(
    ("name", "options", "rows"),
    [
        ("whisper-large-v3", {}, 448),
        # a prompt of one token, and each token but the last one generated is read again
        ("whisper-large-v3", {"mode": "serve", "decode-steps": 447}, 448),
        ("whisper-large-v3", {"mode": "serve", "decode-steps": 500}, 501),
        ("whisper-large-v3", {"mode": "decode", "decode-steps": 8, "seq": 448}, 456),
        ("gpt2-small", {"mode": "serve", "decode-steps": 8, "seq": 1000}, 1024),
        ("gpt2-small", {"mode": "serve", "decode-steps": 30, "seq": 1000}, 1030),
        ("gpt2-small", {"mode": "prefill", "seq": 1000}, 1024),
        # two rows more than positions
        ("bart-base", {"seq": 1024}, 1026),
        ("bart-base", {"seq": 1025}, 1027),
        ("bart-base", {"mode": "serve", "seq": 1024, "decode-steps": 1}, 1027),
        ("llama2-7b", {"mode": "serve", "seq": 64}, 0),
    ],
)
def test_a_table_of_positions_has_room_for_prompt_and_answer(
    name: str, options: dict[str, Any], rows: int
) -> None:
    assert TransformerRequest.from_mapping({"model": name, **options}).config().learned_positions == rows
