"""Generated training steps meet the closed forms of the literature, exactly where these are exact."""

from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from math import ceil
from typing import Any

import pytest

from chakra.errors import UsageError
from chakra.generate.model.blocks import ContextParallel, TokenShape, TransformerOptions
from chakra.generate.model.build import transformer_stages
from chakra.generate.model.config import TransformerConfig
from chakra.generate.model.presets import TRANSFORMERS, transformer
from chakra.generate.parallel import ParallelConfig
from chakra.generate.plan.options import Recompute, TrainingOptions, Zero
from chakra.generate.plan.template import EmitOptions
from chakra.generate.plan.training import StepPlan, plan_step
from chakra.generate.request.transformers import TransformerRequest
from chakra.generate.schedule.pipeline import ScheduleKind
from chakra.generate.verify import closed_forms as closed
from chakra.generate.verify.memory import layer_activations
from chakra.generate.verify.step_totals import (
    StageSummary,
    Traffic,
    summarize,
    total_matmul_flops,
    total_parameters,
)
from chakra.replay.config.model import CollectiveKind

SMALL = TransformerConfig("small", 8, 64, 8, 4, 8, 128, 96, 32)
SMALL_GPT = TransformerConfig(
    "small-gpt", 8, 64, 8, 8, 8, 256, 96, 32, gated=False, tied=True, biases=True, layer_norm=True, learned_positions=32,
    dropout=True,
)  # fmt: skip
SMALL_MOE = TransformerConfig(
    "small-moe", 4, 64, 8, 4, 8, 0, 96, 32, experts=8, experts_per_token=2, moe_ffn=128
)


def plan(
    model: TransformerConfig,
    parallel: ParallelConfig,
    *,
    micro_batches: int = 4,
    sequences: int = 2,
    training: TrainingOptions | None = None,
    emit: EmitOptions | None = None,
    **options: object,
) -> StepPlan:
    shape = TokenShape(sequences, model.sequence, model.sequence)
    stages = transformer_stages(model, parallel, shape, TransformerOptions(**options))  # type: ignore[arg-type]
    return plan_step(
        stages, parallel, training or TrainingOptions(micro_batches=micro_batches), emit or EmitOptions()
    )


def traffic(summary: StageSummary, group: str, kind: str) -> Traffic:
    found = [t for t in summary.traffic if (t.group, t.kind) == (group, kind)]
    return found[0] if found else Traffic(group, kind, 0, 0, 0, 0.0)


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("gpt3-175b", 174.6e9),
        ("llama2-7b", 6.738e9),
        ("llama2-70b", 68.98e9),
        ("llama3-8b", 8.03e9),
        ("llama3-70b", 70.55e9),
        ("llama3-405b", 405.85e9),
        ("mixtral-8x7b", 46.70e9),
        ("mixtral-8x22b", 140.6e9),
        ("gpt2-xl", 1.5576e9),
        ("qwen1.5-moe-a2.7b", 14.3e9),
        ("deepseek-moe-16b", 16.38e9),
    ],
)
def test_presets_have_the_published_number_of_parameters(name: str, published: float) -> None:
    assert closed.parameters(transformer(name)) == pytest.approx(published, rel=2e-3)


def test_gpt3_with_both_embeddings_has_the_matmul_parameters_of_the_symbolic_generator() -> None:
    model = transformer("gpt3-175b")
    both = closed.matmul_parameters(model) + model.vocabulary * model.hidden
    assert both == pytest.approx(175.18e9, rel=1e-4)


@pytest.mark.parametrize("name", sorted(TRANSFORMERS))
def test_every_preset_generates_its_own_parameters(name: str) -> None:
    model = transformer(name)
    one = plan(model, ParallelConfig(), micro_batches=1, sequences=1)
    assert total_parameters(one) == closed.parameters(model)


def test_megatron_flops_of_gpt3_are_met() -> None:
    """6*N*tokens form and Megatron's form agree: 1.410824e17 for 64 sequences of 2048."""
    model = transformer("gpt3-175b")
    ours = closed.training_flops(model, 64, 2048)
    assert ours == pytest.approx(1.410824e17, rel=1e-6)
    assert ours == pytest.approx(
        closed.megatron_flops(96, 12288, 50257, 64, 2048, full_recompute=False), rel=1e-12
    )
    assert closed.training_flops(model, 64, 2048, Recompute.FULL) == pytest.approx(
        closed.megatron_flops(96, 12288, 50257, 64, 2048, full_recompute=True), rel=1e-12
    )
    assert ours == pytest.approx(6 * closed.parameters(model) * 64 * 2048, rel=0.05)


PARALLEL = [
    ParallelConfig(),
    ParallelConfig(tp=2),
    ParallelConfig(tp=4, dp=2),
    ParallelConfig(tp=2, pp=2, dp=2),
    ParallelConfig(tp=2, cp=2, dp=2, pp=4),
    ParallelConfig(pp=2, vp=2),
]


@pytest.mark.parametrize("model", [SMALL, SMALL_GPT], ids=lambda model: model.name)
@pytest.mark.parametrize("parallel", PARALLEL, ids=str)
@pytest.mark.parametrize("recompute", list(Recompute))
@pytest.mark.parametrize("sp", [False, True])
def test_flops_of_all_ranks_add_up_exactly(
    model: TransformerConfig, parallel: ParallelConfig, recompute: Recompute, sp: bool
) -> None:
    schedule = ScheduleKind.INTERLEAVED if parallel.vp > 1 else ScheduleKind.ONE_F_ONE_B
    training = TrainingOptions(micro_batches=4, schedule=schedule, recompute=recompute)
    step = plan(model, parallel, training=training, sp=sp)
    sequences = 2 * 4 * parallel.dp
    assert total_matmul_flops(step) == closed.training_flops(model, sequences, model.sequence, recompute)


@pytest.mark.parametrize("context", list(ContextParallel))
@pytest.mark.parametrize("kind", list(ScheduleKind))
def test_flops_do_not_depend_on_context_parallelism_or_schedule(
    context: ContextParallel, kind: ScheduleKind
) -> None:
    parallel = ParallelConfig(tp=2, cp=2, pp=2, vp=2 if kind is ScheduleKind.DUALPIPEV else 1)
    training = TrainingOptions(micro_batches=4, schedule=kind)
    step = plan(SMALL, parallel, training=training, context=context)
    assert total_matmul_flops(step) == closed.training_flops(SMALL, 8, SMALL.sequence)


def test_causal_kernels_halve_the_attention_core() -> None:
    step = plan(SMALL, ParallelConfig(tp=2), causal=True)
    assert total_matmul_flops(step) == closed.training_flops(SMALL, 8, SMALL.sequence, causal=True)


def test_a_mask_leaves_the_only_pair_of_one_token() -> None:
    one = replace(SMALL, sequence=1)
    masked, whole = (
        total_matmul_flops(plan(one, ParallelConfig(tp=2), causal=causal)) for causal in (True, False)
    )
    # 6 FLOPs a matrix element and token; the core has a pair of 2*(8 + 8) FLOPs in 8 heads of 8 layers, three times
    matrices = 8 * (64 * 16 * 8 + 64 * 64 + 3 * 64 * 128) + 64 * 96
    assert masked == whole == 8 * (6 * matrices + 3 * 8 * 8 * 32)
    assert closed.training_flops(one, 8, 1, causal=True) == masked


@pytest.mark.parametrize(
    "parallel",
    [ParallelConfig(dp=4, ep=2), ParallelConfig(dp=8, ep=8), ParallelConfig(dp=2, pp=2, ep=2)],
    ids=str,
)
def test_moe_flops_and_parameters_add_up(parallel: ParallelConfig) -> None:
    step = plan(SMALL_MOE, parallel)
    assert total_matmul_flops(step) == closed.training_flops(SMALL_MOE, 8 * parallel.dp, SMALL_MOE.sequence)
    assert total_parameters(step) == closed.parameters(SMALL_MOE)


@pytest.mark.parametrize("sp", [False, True])
@pytest.mark.parametrize("regather", [False, True])
@pytest.mark.parametrize("recompute", [Recompute.NONE, Recompute.FULL])
def test_tensor_parallel_calls_and_bytes(sp: bool, regather: bool, recompute: Recompute) -> None:
    parallel = ParallelConfig(tp=4, pp=4, dp=2)
    training = TrainingOptions(micro_batches=4, recompute=recompute)
    step = plan(SMALL, parallel, training=training, sp=sp, regather=regather)
    message = 2 * SMALL.sequence * SMALL.hidden * 2
    middle = summarize(step)[1]
    expected = closed.tensor_parallel_calls(
        blocks=4, micro_batches=4, message_bytes=message, tp=4, sp=sp,
        full_recompute=recompute is Recompute.FULL, regather=regather,
    )  # fmt: skip
    for call in expected:
        found = traffic(middle, "tp", call.kind.value)
        assert (found.calls, found.size_bytes) == (
            call.calls + (sp and call.kind is CollectiveKind.ALL_REDUCE),
            call.calls * call.size_bytes,
        )


def test_vocabulary_parallel_calls() -> None:
    """Embedding forward one all-reduce; head backward one, and three of 4 bytes a token in the loss."""
    step = plan(SMALL, ParallelConfig(tp=4, pp=4))
    first, middle, *_, last = summarize(step)
    message = 2 * SMALL.sequence * SMALL.hidden * 2
    layers = traffic(middle, "tp", "ALL_REDUCE")
    embedding = traffic(first, "tp", "ALL_REDUCE")
    head = traffic(last, "tp", "ALL_REDUCE")
    assert embedding.calls - layers.calls == 4
    assert embedding.size_bytes - layers.size_bytes == 4 * message
    assert head.calls - layers.calls == 4 * (1 + 3)
    assert head.size_bytes - layers.size_bytes == 4 * (message + 3 * 2 * SMALL.sequence * 4)


@pytest.mark.parametrize("micro_batches", [1, 2, 8])
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("bucket", [1000, 100_000, 10**9])
def test_gradient_buckets_do_not_depend_on_micro_batches(
    micro_batches: int, overlap: bool, bucket: int
) -> None:
    parallel = ParallelConfig(tp=2, dp=4, pp=2)
    training = TrainingOptions(micro_batches=micro_batches, bucket_bytes=bucket)
    step = plan(SMALL, parallel, training=training, emit=EmitOptions(overlap=overlap))
    for stage in summarize(step):
        found = traffic(stage, "dp", "ALL_REDUCE")
        assert found.size_bytes == stage.parameters * 4
        assert found.calls == -(-stage.parameters * 4 // bucket)
        assert found.sent_bytes == pytest.approx(2 * 3 / 4 * stage.parameters * 4)


def test_zero_1_scatters_gradients_and_gathers_parameters() -> None:
    training = TrainingOptions(micro_batches=4, zero=Zero.OPTIMIZER, bucket_bytes=10**9)
    step = plan(SMALL, ParallelConfig(dp=4), training=training)
    stage = summarize(step)[0]
    assert traffic(stage, "dp", "ALL_REDUCE").calls == 0
    assert traffic(stage, "dp", "REDUCE_SCATTER").size_bytes == stage.parameters * 4
    assert traffic(stage, "dp", "ALL_GATHER").size_bytes == stage.parameters * 2 // 4
    sent = traffic(stage, "dp", "REDUCE_SCATTER").sent_bytes + traffic(stage, "dp", "ALL_GATHER").sent_bytes
    assert sent == pytest.approx(3 / 4 * stage.parameters * (4 + 2))


@pytest.mark.parametrize(("overlap", "calls"), [(True, 4), (False, 4)])
def test_zero_2_scatters_gradients_in_every_micro_batch(overlap: bool, calls: int) -> None:
    training = TrainingOptions(micro_batches=4, zero=Zero.GRADIENTS, bucket_bytes=10**9)
    step = plan(SMALL, ParallelConfig(dp=4), training=training, emit=EmitOptions(overlap=overlap))
    stage = summarize(step)[0]
    found = traffic(stage, "dp", "REDUCE_SCATTER")
    assert (found.calls, found.size_bytes) == (calls, calls * stage.parameters * 4)


@pytest.mark.parametrize("reshard", [True, False])
@pytest.mark.parametrize("once", [True, False])
@pytest.mark.parametrize("overlap", [True, False])
def test_fsdp_units(reshard: bool, once: bool, overlap: bool) -> None:
    """U units: 2U gathers per micro-batch (U without resharding), U reductions per micro-batch or per step."""
    training = TrainingOptions(
        micro_batches=3, zero=Zero.WEIGHTS, reshard_after_forward=reshard, reduce_once=once
    )
    step = plan(SMALL, ParallelConfig(dp=4), training=training, emit=EmitOptions(overlap=overlap))
    stage = summarize(step)[0]
    units = SMALL.layers + 2
    gathers, reductions = traffic(stage, "dp", "ALL_GATHER"), traffic(stage, "dp", "REDUCE_SCATTER")
    assert gathers.calls == 3 * units * (2 if reshard else 1)
    assert gathers.size_bytes == 3 * (2 if reshard else 1) * stage.parameters * 2 // 4
    assert reductions.calls == units * (1 if once else 3)
    assert reductions.size_bytes == stage.parameters * 4 * (1 if once else 3)


def test_fsdp_with_one_micro_batch_moves_three_times_the_parameters() -> None:
    training = TrainingOptions(zero=Zero.WEIGHTS)
    step = plan(SMALL, ParallelConfig(dp=4), training=training, grad_itemsize=2)
    stage = summarize(step)[0]
    sent = sum(t.sent_bytes for t in stage.traffic)
    assert sent == pytest.approx(3 * 3 / 4 * stage.parameters * 2)


@pytest.mark.parametrize(("parallel", "kind"), [
    (ParallelConfig(tp=2, dp=2, pp=4), ScheduleKind.GPIPE),
    (ParallelConfig(tp=2, dp=2, pp=4), ScheduleKind.ONE_F_ONE_B),
    (ParallelConfig(tp=2, dp=2, pp=4), ScheduleKind.ZB_H1),
    (ParallelConfig(tp=2, dp=2, pp=4), ScheduleKind.ZB_H2),
    (ParallelConfig(tp=2, cp=2, pp=2, vp=2), ScheduleKind.INTERLEAVED),
    (ParallelConfig(pp=2, vp=4), ScheduleKind.INTERLEAVED),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("sp", [False, True])
def test_pipeline_messages(parallel: ParallelConfig, kind: ScheduleKind, sp: bool) -> None:
    training = TrainingOptions(micro_batches=8, schedule=kind)
    step = plan(SMALL, parallel, training=training, sp=sp, context=ContextParallel.ALL_GATHER)
    stages = summarize(step)
    sends = [traffic(stage, "pp", "SEND") for stage in stages]
    receives = [traffic(stage, "pp", "RECV") for stage in stages]
    chains = parallel.world // parallel.pp
    expected = closed.pipeline_messages(
        stages=parallel.pp, chunks=parallel.vp, micro_batches=8, chains=chains
    )
    assert sum(send.calls for send in sends) * chains == expected
    assert [send.calls for send in sends] == [receive.calls for receive in receives]
    message = 2 * SMALL.sequence // parallel.cp * SMALL.hidden * 2 // (parallel.tp if sp else 1)
    assert all(send.size_bytes == send.calls * message for send in sends)
    if parallel.vp == 1:
        assert [send.calls for send in sends] == [8, *[16] * (parallel.pp - 2), 8]


def test_ring_attention_passes_keys_and_values_around() -> None:
    """C-1 messages of 2*b*(s/C)*(k*d/T)*w forward per layer; keys, values and their gradients backward."""
    step = plan(SMALL, ParallelConfig(tp=2, cp=4), context=ContextParallel.RING)
    stage = summarize(step)[0]
    found = traffic(stage, "cp", "SEND")
    block = 2 * 2 * (SMALL.sequence // 4) * (SMALL.kv_width // 2) * 2
    assert found.calls == 2 * 3 * SMALL.layers * 4
    assert found.size_bytes == 3 * SMALL.layers * 4 * (block + 2 * block)


def test_ulysses_exchanges_heads_for_sequence() -> None:
    """Four all-to-alls forward (q, k, v, output) and four backward."""
    step = plan(SMALL, ParallelConfig(tp=2, cp=2), context=ContextParallel.ULYSSES)
    found = traffic(summarize(step)[0], "cp", "ALL_TO_ALL")
    tokens = 2 * SMALL.sequence // 2
    q, kv = tokens * SMALL.attention_width // 2 * 2, tokens * SMALL.kv_width // 2 * 2
    assert found.calls == 8 * SMALL.layers * 4
    assert found.size_bytes == 2 * (2 * q + 2 * kv) * SMALL.layers * 4


def test_all_gather_context_parallelism() -> None:
    """Keys and values gathered forward and again backward; their gradients scattered."""
    step = plan(SMALL, ParallelConfig(cp=2), context=ContextParallel.ALL_GATHER)
    stage = summarize(step)[0]
    shard = 2 * 2 * (SMALL.sequence // 2) * SMALL.kv_width * 2
    gathers, scatters = traffic(stage, "cp", "ALL_GATHER"), traffic(stage, "cp", "REDUCE_SCATTER")
    assert (gathers.calls, gathers.size_bytes) == (2 * 8 * 4, 2 * 8 * 4 * shard)
    assert (scatters.calls, scatters.size_bytes) == (8 * 4, 8 * 4 * 2 * shard)


@pytest.mark.parametrize("capacity", [1.0, 1.25])
@pytest.mark.parametrize(("tp", "sp"), [(1, False), (2, True), (2, False)])
def test_expert_parallel_exchange(capacity: float, tp: int, sp: bool) -> None:
    """Four all-to-alls per layer and micro-batch of topk*tokens*h*w, also when tp is 1."""
    step = plan(SMALL_MOE, ParallelConfig(tp=tp, dp=4, ep=4), capacity_factor=capacity, sp=sp)
    found = traffic(summarize(step)[0], "ep", "ALL_TO_ALL")
    tokens = 2 * SMALL_MOE.sequence // (tp if sp else 1)
    assert found.calls == 4 * SMALL_MOE.layers * 4
    assert found.size_bytes == found.calls * int(2 * tokens * capacity) * SMALL_MOE.hidden * 2


@pytest.mark.parametrize(
    ("domain", "reached"), [(1, Fraction(13, 7)), (2, Fraction(11, 7)), (4, Fraction(1))]
)
def test_a_token_travels_once_to_a_domain(domain: int, reached: Fraction) -> None:
    """Of the 28 pairs of 8 experts on 4 ranks 4 lie on one rank, so that a token visits 2 - 4/28 ranks.

    With two ranks in a domain 12 pairs lie in one of the two, 2 - 12/28; four ranks are all.
    """
    step = plan(SMALL_MOE, ParallelConfig(dp=4, ep=4), dispatch_domain=domain)
    found = traffic(summarize(step)[0], "ep", "ALL_TO_ALL")
    assert found.size_bytes == found.calls * ceil(2 * SMALL_MOE.sequence * reached) * SMALL_MOE.hidden * 2
    pairs = list(combinations(range(8), 2))
    assert reached == Fraction(sum(len({one // (2 * domain) for one in pair}) for pair in pairs), len(pairs))


def test_experts_of_a_latent_width_exchange_and_hold_less() -> None:
    """Tokens are 16 wide between two matrices of 64 x 16; router and shared expert keep the hidden width."""
    latent = replace(SMALL_MOE, moe_latent=16, shared_experts=1)
    step = plan(latent, ParallelConfig(dp=4, ep=4))
    stage = summarize(step)[0]
    found = traffic(stage, "ep", "ALL_TO_ALL")
    assert found.size_bytes == found.calls * 2 * (2 * latent.sequence) * 16 * 2
    wide = summarize(plan(replace(latent, moe_latent=0), ParallelConfig(dp=4, ep=4)))[0]
    # 2 of 8 experts on a rank, of three matrices
    assert wide.parameters - stage.parameters == 4 * (2 * 3 * 128 * (64 - 16) - 2 * 64 * 16)
    assert closed.parameters(replace(latent, moe_latent=0)) - closed.parameters(latent) == 4 * (
        8 * 3 * 128 * (64 - 16) - 2 * 64 * 16
    )


def test_expert_gradients_are_reduced_among_equal_experts_only() -> None:
    step = plan(SMALL_MOE, ParallelConfig(dp=8, ep=4))
    stage = summarize(step)[0]
    experts = SMALL_MOE.layers * SMALL_MOE.experts // 4 * 3 * SMALL_MOE.hidden * SMALL_MOE.moe_ffn
    assert traffic(stage, "edp", "ALL_REDUCE").size_bytes == experts * 4
    assert traffic(stage, "dp", "ALL_REDUCE").size_bytes == (stage.parameters - experts) * 4
    assert traffic(stage, "edp", "ALL_REDUCE").members == 2


def test_tied_embedding_is_reduced_between_first_and_last_stage() -> None:
    step = plan(SMALL_GPT, ParallelConfig(tp=2, pp=4))
    calls = [traffic(stage, "embed", "ALL_REDUCE") for stage in summarize(step)]
    expected = SMALL_GPT.vocabulary * SMALL_GPT.hidden // 2 * 4
    assert [call.size_bytes for call in calls] == [expected, 0, 0, expected]


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_a_rank_reduces_the_tied_gradients_that_it_holds(zero: int) -> None:
    """From ZeRO 2 on its shard alone: 50,257 x 768 numbers of 4 bytes over 4 replicas."""
    step = TransformerRequest(model="gpt2-small", pp=2, dp=4, zero=zero, micro_batches=2).plan()
    found = traffic(summarize(step)[0], "embed", "ALL_REDUCE").size_bytes
    assert found == 50257 * 768 // (4 if zero >= 2 else 1) * 4


@pytest.mark.parametrize("tp", [1, 2, 4])
@pytest.mark.parametrize("sp", [False, True])
@pytest.mark.parametrize("flash", [False, True])
@pytest.mark.parametrize("recompute", list(Recompute))
def test_activations_are_those_of_korthikanti(tp: int, sp: bool, flash: bool, recompute: Recompute) -> None:
    shape = TokenShape(2, SMALL_GPT.sequence, SMALL_GPT.sequence)
    stages = transformer_stages(
        SMALL_GPT, ParallelConfig(tp=tp), shape, TransformerOptions(sp=sp, flash=flash)
    )
    layer = stages.chunks[0][1]
    expected = closed.activation_bytes(
        SMALL_GPT.sequence, 2, SMALL_GPT.hidden, SMALL_GPT.heads, tp, sp=sp, recompute=recompute, flash=flash
    )
    assert layer_activations(layer, recompute) == expected


@pytest.mark.parametrize(("zero", "per_parameter"), [(0, 18), (1, 6 + 12 / 4), (2, 2 + 16 / 4), (3, 18 / 4)])
def test_model_states_per_parameter(zero: int, per_parameter: float) -> None:
    step = plan(SMALL, ParallelConfig(dp=4), training=TrainingOptions(zero=Zero(zero)))
    stage = summarize(step)[0]
    assert stage.memory.states == pytest.approx(per_parameter * stage.parameters, rel=1e-9)


@pytest.mark.parametrize(("kind", "held"), [
    (ScheduleKind.GPIPE, [8, 8, 8, 8]),
    (ScheduleKind.ONE_F_ONE_B, [4, 3, 2, 1]),
])  # fmt: skip
def test_activations_in_flight(kind: ScheduleKind, held: list[int]) -> None:
    training = TrainingOptions(micro_batches=8, schedule=kind)
    step = plan(SMALL, ParallelConfig(pp=4), training=training)
    stages = summarize(step)
    for number in (1, 2):
        chunk = step.model.of_stage(number, 4)[0]
        one = sum(layer_activations(layer, Recompute.NONE) for layer in chunk)
        assert stages[number].memory.activations == held[number] * one


def test_doubling_micro_batches_doubles_compute_and_tensor_traffic_only() -> None:
    parallel = ParallelConfig(tp=2, dp=2, pp=2)
    few, many = (summarize(plan(SMALL, parallel, micro_batches=m)) for m in (4, 8))
    for a, b in zip(few, many, strict=True):
        assert b.matmul_flops == 2 * a.matmul_flops
        assert traffic(b, "tp", "ALL_REDUCE").size_bytes == 2 * traffic(a, "tp", "ALL_REDUCE").size_bytes
        assert traffic(b, "dp", "ALL_REDUCE") == traffic(a, "dp", "ALL_REDUCE")


@pytest.mark.parametrize(("parallel", "options", "message"), [
    (ParallelConfig(tp=16), {}, r"heads \(8\) must be a multiple of tp \(16\)"),
    (ParallelConfig(cp=3), {}, r"sequence \(32\) must be a multiple of cp \(3\)"),
    (ParallelConfig(dp=2, ep=2), {}, r"expert parallelism \(ep=2\) needs a model with experts"),
    (ParallelConfig(pp=16), {}, r"8 layers cannot fill 16 pipeline chunks"),
    (ParallelConfig(tp=4, cp=2), {"context": ContextParallel.ULYSSES}, r"kv-heads/tp \(1\) must be a multiple of cp"),
])  # fmt: skip
def test_sizes_that_do_not_divide_are_named(
    parallel: ParallelConfig, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        plan(SMALL, parallel, **options)


def test_a_sequence_of_one_token_is_not_split() -> None:
    with pytest.raises(UsageError, match=r"sequence \(1\) must be a multiple of cp \(2\)"):
        plan(replace(SMALL, sequence=1), ParallelConfig(cp=2))


def test_expert_degree_must_divide_the_data_parallel_ranks() -> None:
    with pytest.raises(UsageError, match=r"ep=3 must divide cp\*dp=4"):
        ParallelConfig(dp=4, ep=3)
