"""Peak memory of a planned step."""

import pytest

from chakra.generate import Mode, MoeRequest, ScheduleKind, TransformerRequest, summarize


@pytest.mark.parametrize("layers", [2, 32])
def test_weights_gathered_together_are_neighbours(layers: int) -> None:
    """Llama-3 8B under ZeRO-3 with one layer gathered ahead: layer and head; embedding and head are never together.

    The head's gradients are whole, twice as many bytes as its weights, until they are scattered.
    """
    vocabulary, hidden = 128256, 4096
    head = vocabulary * hidden * 2 + 2 * hidden
    layer = (2 * hidden * hidden + 2 * hidden * 1024 + 3 * hidden * 14336 + 2 * hidden) * 2
    plan = TransformerRequest(model="llama3-8b", layers=layers, npus=8, zero=3).plan()
    assert summarize(plan)[0].memory.transient == head + layer + 2 * head


#: parameters of Llama-2 7B
LLAMA2_7B = 6_738_415_616


@pytest.mark.parametrize(("once", "micro_batches", "gradients"), [(False, 4, 8), (True, 4, 1), (True, 1, 8)])
def test_gradients_reduced_once_a_step_are_added_up_whole(
    once: bool, micro_batches: int, gradients: int
) -> None:
    """ZeRO-3 over 8 ranks: 2 and 12 bytes a parameter are a rank's shard, the gradient's 4 only where it is scattered."""
    plan = TransformerRequest(
        model="llama2-7b", npus=8, zero=3, micro_batches=micro_batches, reduce_once=once
    ).plan()
    assert summarize(plan)[0].memory.states == 14 * LLAMA2_7B // 8 + 4 * LLAMA2_7B // gradients


@pytest.mark.parametrize(("pp", "vp"), [(1, 1), (2, 1), (2, 2)])
def test_weights_that_are_not_freed_behind_the_forward_are_all_there(pp: int, vp: int) -> None:
    """Without resharding a stage's 2 bytes a parameter are whole while a micro-batch waits for its backward.

    On top come 4 bytes of gradients of the largest layer: an inner one where there is neither embedding nor head.
    """
    plan = TransformerRequest(
        model="llama2-7b",
        pp=pp,
        vp=vp,
        dp=8,
        zero=3,
        micro_batches=4,
        reshard=False,
        schedule=ScheduleKind.INTERLEAVED if vp > 1 else ScheduleKind.ONE_F_ONE_B,
    ).plan()
    transient = [stage.memory.transient for stage in summarize(plan)]
    layer = 4 * 4096 * 4096 + 3 * 4096 * 11008 + 2 * 4096
    assert sum(transient) == 2 * LLAMA2_7B + 4 * pp * layer


@pytest.mark.parametrize(("zero", "pp", "overlap", "gradients"), [
    (0, 1, True, 0), (1, 1, True, 0),
    # a layer, and the bucket that the layers before it left unfilled
    (2, 1, True, 4 * (4 * 4096 * 4096 + 3 * 4096 * 11008 + 2 * 4096) + 40_000_000),
    # buckets wait for the end of the pass: all of a stage, with the embedding or with the head and its norm
    (2, 1, False, 4 * LLAMA2_7B), (2, 2, True, 2 * (LLAMA2_7B + 4096)),
    (2, 1, None, 0),
])  # fmt: skip
def test_gradients_are_whole_until_they_are_scattered(
    zero: int, pp: int, overlap: bool | None, gradients: int
) -> None:
    """Llama-2 7B on 8 replicas, or (None) on one, which scatters nothing."""
    plan = TransformerRequest(
        model="llama2-7b", dp=1 if overlap is None else 8, pp=pp, zero=zero, overlap=overlap is not False
    ).plan()
    assert max(stage.memory.transient for stage in summarize(plan)) == gradients


@pytest.mark.parametrize(("dp", "shard"), [(1, None), (4, 1)])
def test_weights_of_one_rank_are_not_gathered(dp: int, shard: int | None) -> None:
    plan = TransformerRequest(model="llama3-8b", layers=2, dp=dp, shard=shard, zero=3).plan()
    assert summarize(plan)[0].memory.transient == 0


def test_experts_of_one_rank_are_not_gathered() -> None:
    """Mixtral on 8 ranks with an expert each: a layer's attention, router and norms are gathered, with the head's.

    Nor are the gradients of experts scattered; the head's are the largest.
    """
    plan = MoeRequest(model="mixtral-8x7b", layers=2, dp=8, ep=8, zero=3).plan()
    head = 32000 * 4096 + 4096
    layer = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 8 * 4096 + 2 * 4096
    assert summarize(plan)[0].memory.transient == 2 * (head + layer) + 4 * head


def largest_result(
    model: str, mode: Mode, *, seq: int | None = None, encoder_seq: int | None = None, steps: int = 1
) -> int:
    """Twice the largest result of an operator, which inference holds beside weights and cache."""
    plan = TransformerRequest(
        model=model, mode=mode, npus=1, micro_batch=8, seq=seq, encoder_seq=encoder_seq, decode_steps=steps
    ).plan()
    return summarize(plan)[0].memory.transient


def test_serving_holds_what_its_prefill_holds() -> None:
    """GPT-2 small: the results of the MLP's first product, 8 x 1,024 tokens of 4 x 768 numbers of 2 bytes."""
    mlp = 8 * 1024 * 4 * 768 * 2
    assert largest_result("gpt2-small", Mode.PREFILL, seq=1024) == 2 * mlp
    assert largest_result("gpt2-small", Mode.SERVE, seq=1024, steps=3) == 2 * mlp
    assert largest_result("gpt2-small", Mode.DECODE, seq=1024, steps=3) == 2 * 8 * 50257 * 2


def test_decoding_does_not_hold_the_results_of_an_encoder() -> None:
    """Whisper large: a vocabulary of 51,866 for each of 8 requests, whatever the encoder's length."""
    for length in (1, 1500):
        found = largest_result("whisper-large-v3", Mode.DECODE, encoder_seq=length)
        assert found == 2 * 8 * 51866 * 2


@pytest.mark.parametrize("mode", ["prefill", "serve", "decode"])
def test_a_stage_without_layers_passes_the_tensor_on(mode: str) -> None:
    plan = TransformerRequest(
        model="gpt2-small",
        layers=4,
        mode=Mode(mode),
        npus=3,
        pp=3,
        stage_layers=(2, 0, 2),
        seq=64,
        decode_steps=1 if mode == "prefill" else 2,
    ).plan()
    sent = {
        template.comm_bytes[node]
        for template in plan.stages[1].templates
        for node, name in enumerate(template.names)
        if name == "send"
    }
    tokens = {"prefill": {64}, "serve": {64, 1}, "decode": {1}}[mode]
    assert sent == {count * 768 * 2 for count in tokens}
